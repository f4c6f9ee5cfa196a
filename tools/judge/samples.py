"""PyTorch's samples of an op: the values, what PyTorch makes of them in their dtype and in f64, and how
far relative errors of the inputs move that."""
import contextlib
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from .calls import CODES

STEP = 2.0 ** -24   # by how much inputs are moved
TRIALS = 4
MOST = 1 << 14      # elements of an operand; larger samples are left out
OPS = {op.name + ("/" + op.variant_test_name if op.variant_test_name else ""): op for op in op_db}


def function_of(name):
    """The op; with what it writes into its operands as further results."""
    op = OPS[name].op
    if not name.startswith("nn.functional.batch_norm"):
        return op

    def batch_norm(x, mean=None, var=None, *args, **kwargs):
        mean, var = (None if t is None else t.detach().clone() for t in (mean, var))
        return op(x, mean, var, *args, **kwargs)
    return batch_norm


def prepared(name, kwargs, dtype):
    """The attributes, with defaults of PyTorch's that depend on the dtype written out."""
    if name == "nn.functional.rms_norm" and kwargs.get("eps") is None:
        return {**kwargs, "eps": torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps}
    return kwargs


def cotangent(y, seed):
    """Exact in every dtype."""
    draw = torch.Generator().manual_seed(seed)
    return (torch.randint(-64, 64, y.shape, generator=draw) / 32).to(y.dtype)


def expanded(t, axis):
    """The values that are left when an axis is one element, repeated."""
    return t if t.ndim == 0 or t.numel() == 0 else t.narrow(axis, 0, 1).expand(t.shape).clone()


class Outcome:
    def __init__(self, results, gradients):
        self.results, self.gradients = results, gradients


class Case:
    """One sample in one dtype. `tensors` are its operands in the order of PyTorch's arguments."""

    def __init__(self, name, sample, dtype, axis=None):
        tree = (sample.input, sample.args, prepared(name, sample.kwargs, dtype))
        self.leaves, self.spec = tree_flatten(tree)
        self.at = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [self.leaves[i].detach().clone(memory_format=torch.contiguous_format) for i in self.at]
        if axis is not None:
            self.tensors = [expanded(t, axis) for t in self.tensors]
        self.axis, self.dtype = axis, dtype
        self.grad = [self.leaves[i].requires_grad for i in self.at]
        self.function = function_of(name)
        self.cotangents = []

    def usable(self):
        return all(t.dtype in CODES and t.numel() <= MOST for t in self.tensors)

    def arguments(self, tensors, wide=False):
        """With f64 for any floating dtype among the attributes, where `wide`."""
        leaves = [torch.float64 if wide and isinstance(v, torch.dtype) and v.is_floating_point else v for v in self.leaves]
        for i, t in zip(self.at, tensors):
            leaves[i] = t
        return tree_unflatten(leaves, self.spec)

    def evaluate(self, tensors, cotangents, wide=False):
        fresh = [t.detach().clone().requires_grad_(g) for t, g in zip(tensors, self.grad)]
        x, args, kwargs = self.arguments(fresh, wide)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [y for y in tree_leaves(self.function(x, *args, **kwargs)) if isinstance(y, torch.Tensor)]
            if cotangents is None:
                self.cotangents = cotangents = [cotangent(y.detach(), 77 + k) for k, y in enumerate(results)]
                if self.axis is not None:
                    self.cotangents = cotangents = [expanded(c, self.axis) for c in cotangents]
            roots = [(y, c.to(y.dtype)) for y, c in zip(results, cotangents) if y.requires_grad]
            wanted = [t for t in fresh if t.requires_grad]
            found = torch.autograd.grad([y for y, _ in roots], wanted, [c for _, c in roots],
                                        allow_unused=True) if roots and wanted else [None] * len(wanted)
        gradients = iter(found)
        return Outcome([y.detach() for y in results], [next(gradients) if g else None for g in self.grad])

    def theirs(self):
        return self.evaluate(self.tensors, None)

    def wide(self, move=None):
        """In f64, with inputs and cotangents moved by relative STEPs of random signs."""
        def widened(t):
            if not t.is_floating_point():
                return t
            t = t.to(torch.float64)
            return t if move is None else t * (1 + STEP * (torch.randint(0, 2, t.shape, generator=move) * 2 - 1))
        with default_dtype(torch.float64):
            return self.evaluate([widened(t) for t in self.tensors], [widened(c) for c in self.cotangents], True)

    def narrow(self):
        """In f32, a few times from moved inputs: what rounds there rounds in f64 as often."""
        draw = torch.Generator().manual_seed(6)

        def narrowed(t):
            sign = torch.randint(0, 2, t.shape, generator=draw) * 2 - 1
            return (t * (1 + STEP * sign)).to(torch.float32) if t.is_floating_point() else t
        return [self.evaluate([narrowed(t) for t in self.tensors], self.cotangents) for _ in range(TRIALS)]

    def noise(self, exact):
        """The largest change of each number over a few moves."""
        draw = torch.Generator().manual_seed(5)
        most = None
        for _ in range(TRIALS):
            moved = self.wide(draw)
            change = [None if a is None or not a.is_floating_point() or a.shape != b.shape else
                      torch.nan_to_num((a - b).abs(), 0, 0, 0)
                      for a, b in zip(moved.results + moved.gradients, exact.results + exact.gradients)]
            most = change if most is None else [a if a is None else torch.maximum(a, b) for a, b in zip(most, change)]
        n = len(exact.results)
        return Outcome(most[:n], most[n:])


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def samples(name, dtype, reference):
    """The op's samples, the same at every run. Gradients are asked for where PyTorch has some."""
    op = OPS[name]
    torch.manual_seed(20)
    grad = dtype.is_floating_point and op.supports_autograd
    make = op.reference_inputs if reference else op.sample_inputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return list(make("cpu", dtype, requires_grad=grad))
        except ValueError:  # some of the list are integers
            return list(make("cpu", dtype, requires_grad=False))
