"""What is the same, and what is not: one result of minim beside PyTorch's and the one in f64."""
import dataclasses
import pathlib
import re

import torch

from .calls import NAMES
from .samples import STEP

THEIRS_64 = 8  # the c that PyTorch's f64 is granted
FACTOR = 4     # from the largest of a few moves by random signs to a bound
SIXTEEN_BITS = (torch.float16, torch.bfloat16)
ROOT = pathlib.Path(__file__).resolve().parents[2]
ERRORS = {name: float(c) for name, c in re.findall(r"^OP\((\w+), *\w+, *\w+, *\w+, *(\d+),",
                                                  (ROOT / "ops/ops.def").read_text(), re.M)}
POINTWISE = set(list(ERRORS)[:list(ERRORS).index("eq")])
READS_RESULT = {name for name, reads in re.findall(r"^\| `(\w+)` (?:\|[^|]*){4}\|([^|]*)\|", (ROOT / "docs/ops.md").read_text(),
                                                  re.M) if "the result" in reads}
ERRORS |= {"einsum": 18, "batch_norm_update": ERRORS["batch_norm"]}


@dataclasses.dataclass
class Problem:
    kind: str     # refused, results, dtype, shape, value, gradient, zero (of an incoming gradient of 0)
    what: str     # y0, g1
    detail: str
    got: object = None   # of one element
    exact: object = None
    theirs: object = None
    got_dtype: object = None
    their_dtype: object = None


def half_ulp(dtype, size):
    info = torch.finfo(dtype)
    exponent = torch.frexp(size.clamp(min=info.tiny))[1] - 1
    return torch.ldexp(torch.full_like(size, info.eps / 2), exponent)


def bound(dtype, exact, noise):
    """One rounding, of a number that is off by `noise`."""
    return half_ulp(dtype, exact.abs() + noise) + noise


def errors_of(own, exact, kind, through, narrow):
    """What PyTorch's error allows. Gradients in 16 bits are made of rounded results, here and there, and a
    rounding is luck: the largest of the tensor counts. So it does in f64, which is estimated from f32."""
    if through == torch.float64:
        errors = [(n.to(torch.float64) - exact).abs() * (8 * 2.0 ** -29) for n in narrow if n is not None]
        if not errors or not exact.numel():
            return torch.zeros_like(exact)
        return torch.nan_to_num(torch.stack(errors), 0, 0, 0).max().expand_as(exact)
    error = torch.nan_to_num((own - exact).abs(), 0, 0, 0)
    if through in SIXTEEN_BITS and kind == "gradient" and exact.numel():
        error = error.max() + half_ulp(through, own.abs().nan_to_num(0, 0, 0))
    return error


def compare(what, got, theirs, exact, noise, through, narrow, unsent):
    """Problems of one tensor, the first of each kind; `unsent` is where the incoming gradient is 0. And whether PyTorch's own is far from its f64."""
    kind = "value" if what[0] == "y" else "gradient"
    found = []
    if kind == "value" and got.dtype != theirs.dtype:
        found.append(Problem("dtype", what, f"{NAMES[got.dtype]}, PyTorch {NAMES.get(theirs.dtype, theirs.dtype)}",
                             got_dtype=got.dtype, their_dtype=theirs.dtype))
        if not theirs.is_floating_point():
            return found, False  # other numbers
    if got.shape != theirs.shape:
        return found + [Problem("shape", what, f"{tuple(got.shape)}, PyTorch {tuple(theirs.shape)}")], False
    if not (exact.is_floating_point() and got.is_floating_point()):
        same = got.to(torch.float64) == theirs.to(torch.float64)
        return found + first_bad(kind, what, ~same, got, theirs, theirs), False
    wide, own = got.to(torch.float64), theirs.to(torch.float64)
    near = bound(got.dtype, exact, noise)
    allowed = torch.maximum(errors_of(own, exact, kind, through, narrow), near)
    same = agrees(wide, exact, got.dtype, allowed)
    if unsent is not None:  # 0 times a slope that is inf or NaN
        found += first_bad("zero", what, ~same & unsent & (wide == 0), got, exact, theirs)
        same |= unsent & (wide == 0)
    found += first_bad(kind, what, ~same, got, exact, theirs)
    right = agrees(own, exact, theirs.dtype, 16 * bound(theirs.dtype, exact, noise))
    return found, bool((~right).any()) and bool(same.all())


def agrees(numbers, exact, dtype, allowed):
    largest = torch.finfo(dtype).max
    same = (numbers == exact) | (numbers == exact.to(dtype).to(torch.float64)) | (numbers.isnan() & exact.isnan())
    same |= exact.isfinite() & ((numbers - exact).abs() <= allowed)
    return same | exact.isfinite() & (exact.abs() + allowed > largest) & (numbers.abs() >= largest) & (
        numbers.sign() == exact.sign())


def first_bad(kind, what, bad, got, exact, theirs):
    if not bool(bad.any()):
        return []
    at = tuple(int(i) for i in bad.nonzero()[0])
    g, e, t = (x[at].item() for x in (got, exact, theirs))
    return [Problem(kind, what, f"{int(bad.sum())} of {bad.numel()}, first {list(at)}: {g!r}, exact {e!r}, PyTorch {t!r}",
                    g, e, t, got.dtype, theirs.dtype)]


def unsent(cotangents, gradient):
    """Where the incoming gradient is 0, where that is known."""
    same = [c == 0 for c in cotangents if c.shape == gradient.shape and c.is_floating_point()]
    return same[0] if len(same) == len(cotangents) == 1 else None


def incoming(cotangents, shape, steps):
    """The cotangent of an element, or the largest row of them where it is not known which."""
    cotangents = [c.abs().to(torch.float64) for c in cotangents if c.is_floating_point() and c.numel()]
    if len(cotangents) == 1 and cotangents[0].shape == shape and {op for op, *_ in steps} <= POINTWISE:
        return cotangents[0]
    return max([(c.sum(-1) if c.ndim else c).max() for c in cotangents], default=torch.tensor(0.0, dtype=torch.float64))


def error_constant(steps):
    """c of the whole call, and whether more than one step rounds."""
    cs = [ERRORS.get(op, 0) for op, *_ in steps]
    return sum(cs), sum(op in ERRORS and op not in ("to", "reshape", "permute", "slice", "expand") for op, *_ in steps) > 1


def judge(case, steps, ours, theirs, exact, noise, narrow):
    """ours: {"y0": tensor, "g0": tensor}. Problems, and how many tensors PyTorch has far from its f64."""
    c, rounds_between = error_constant(steps)
    f64 = case.dtype == torch.float64
    unit = 2.0 ** -53 if f64 else torch.finfo(case.dtype).eps / 2 if rounds_between and \
        case.dtype.is_floating_point else 2.0 ** -24
    found, torch_off = [], 0
    for letter, gradients in (("y", False), ("g", True)):
        part = "gradients" if gradients else "results"
        for k, (t, x, n) in enumerate(zip(*(getattr(o, part) for o in (theirs, exact, noise)))):
            what = f"{letter}{k}"
            got = ours.get(what)
            if t is None or x is None:
                if got is not None and bool((got != 0).any()):
                    found.append(Problem("gradient", what, "PyTorch has none"))
                continue
            if got is None:
                if not gradients or bool((x != 0).any()):
                    found.append(Problem("gradient" if gradients else "results", what, "there is none"))
                continue
            factor = (c + gradients + (THEIRS_64 if f64 else 0)) if c else 0
            allowed = torch.zeros_like(x)
            if n is not None:
                size = x.abs().nan_to_num(0, 0, 0)
                if gradients:  # a slope counts as 1 at least
                    size = size + incoming(case.cotangents, x.shape, steps)
                allowed = factor * (FACTOR * n * (unit / STEP) + unit * size)
            if gradients and case.dtype in SIXTEEN_BITS and READS_RESULT & {op for op, *_ in steps}:
                allowed = allowed + 2 * half_ulp(case.dtype, x.abs())  # of the rounded result
            problems, off = compare(what, got, t, x, allowed, case.dtype,
                                    [getattr(o, part)[k] for o in narrow], unsent(case.cotangents, t) if gradients else None)
            found += problems
            torch_off += off
    return found, torch_off
