"""Every difference that is known: what kind of difference it is, and why. One without a rule is "ours wrong".

A rule: the class, the entries and the kinds of problem it is for (regular expressions), what the problem's
text or its numbers must be, and the reason, as the tables show it.
"""
import math
import re

import torch

SIXTEEN_BITS = (torch.float16, torch.bfloat16)
ANY = ".*"
LOSSES = r"nn\.functional\.(.*_loss|kl_div|binary_cross_entropy.*|cross_entropy)"
EXTREMES = r"amax|amin|aminmax|(max|min)/reduction_no_dim"
POWERS = r"pow|__rpow__"


def says(text):
    return lambda case, p: re.search(text, p.detail) is not None


def integers_in(dtype):
    return lambda case, p: not case.dtype.is_floating_point and p.got_dtype == dtype


def is_nan(number):
    return isinstance(number, float) and math.isnan(number)


def tied(case, p):
    """The sample has its extreme value more than once."""
    x = case.tensors[0]
    return p.kind == "gradient" and x.numel() > x.unique().numel()


def grew_too_large(case, p):
    return case.dtype == torch.float16 and not math.isfinite(p.got) and not math.isfinite(p.theirs)


def row_of_one(case, p):
    return p.got == 0 and abs(p.exact) < 1e-12


def none_counted(case, p):
    return p.got == 0 and is_nan(p.exact)


RULES = [
    # PyTorch's f64 itself
    ("torch wrong", r"nn\.functional\.layer_norm", "gradient", row_of_one,
     "a row of one element has slope 0; PyTorch's f64 has its rounding errors there"),
    ("torch wrong", "logsumexp", "gradient", lambda case, p: case.dtype == torch.float64 and abs(p.got - p.exact) < 1e-13,
     "PyTorch's f64 takes the slope from the rounded result; minim keeps the logarithm apart"),
    # Dtypes of results
    ("documented", LOSSES, "dtype", lambda case, p: case.dtype in SIXTEEN_BITS and p.got_dtype == torch.float32,
     "losses of 16-bit values are f32"),
    ("documented", POWERS, "dtype", integers_in(torch.float32), "no integer power: pow of integers is f32"),
    ("documented", r"nn\.functional\.(avg_pool.d|max_pool.d|relu6?|hardtanh)", "dtype", integers_in(torch.float32),
     "what has no integer kernel computes integers in f32"),
    ("documented", "any|all", "dtype", lambda case, p: case.dtype == torch.uint8, "any and all of u8 are bool"),
    ("documented", "masked_fill", "dtype", lambda case, p: p.their_dtype == case.dtype,
     "the result of masked_fill holds the number, and has the dtype for it"),
    ("documented", "square", "dtype", integers_in(torch.bool), "square is x * x, and bool * bool is bool"),
    # Gradients
    ("documented", EXTREMES, "gradient", tied, "the gradient of max and min goes to the first of equals; PyTorch divides it"),
    ("documented", ANY, "zero", lambda case, p: is_nan(p.exact),
     "an incoming gradient of 0 sends 0 on, where PyTorch has 0 * inf or 0 * NaN"),
    ("documented", POWERS, "gradient", grew_too_large,
     "a gradient that would fit, made of a result that did not"),
    ("documented", LOSSES, "value gradient", none_counted, "the mean over no targets is 0, with a warning"),
    ("documented", "abs", "gradient", lambda case, p: is_nan(p.got) and p.exact == 0,
     "the slope of abs at NaN is NaN; PyTorch has 0"),
    ("documented", "int|byte|long|to", "value", lambda case, p: case.dtype.is_floating_point,
     "a cast of what no integer can hold is C++'s, as in PyTorch, but by way of i64"),
    # Refused
    ("documented", ANY, "refused", lambda case, p: case.dtype == torch.uint8 and "does not fit u8" in p.detail,
     "a number that does not fit the dtype is an error; in PyTorch it wraps"),
    ("documented", ANY, "refused", says("at most 8 dimensions"), "a tensor has at most 8 dimensions"),
    ("documented", ANY, "refused", says("takes? floating operands|operands differ in dtype: x is [iub]"),
     "products take floating operands; the error says to convert"),
    ("documented", ANY, "refused", says("do not allow a view"),
     "reshape is always a view; the error says to call contiguous()"),
    ("documented", ANY, "refused", says("p is .*must be positive"), "norms need p > 0"),
    ("documented", ANY, "refused", says("cannot be changed in place|a write in place is not recorded"),
     "an in-place write into what requires gradients is refused"),
    ("documented", "cat", "refused", says("need the same number of axes"),
     "cat joins no 1-dim tensor of no elements to others"),
    ("documented", "gather|scatter_.*", "refused", says("does not fit"),
     "an index has as many axes as x, also without elements"),
    ("documented", "take_along_dim", "refused", says(r"index -\d+ .* is not in"), "an index counts from 0"),
    ("documented", r"nn\.functional\.batch_norm.*", "refused", says(r"must be \(N, C"), "batch_norm takes (N, C, ...)"),
    ("documented", r"nn\.functional\.linear", "refused", says("must be .out, in"),
     "linear takes a weight (out, in); matmul takes a vector"),
    ("documented", r"nn\.functional\.scaled_dot_product_attention", "refused", says("with the same leading sizes"),
     "attention broadcasts heads alone; expand the other axes"),
    ("documented", r"nn\.functional\.(mse|l1|smooth_l1|huber)_loss|nn\.functional\.(kl_div|cosine_similarity)", "refused",
     says("they must be equal"), "losses and cosines do not broadcast: reshape or expand one"),
]


def classify(entry, case, problem):
    """(class, reason) of a difference."""
    for kind, names, kinds, holds, why in RULES:
        if re.fullmatch(names, entry) and problem.kind in kinds.split() and holds(case, problem):
            return kind, why
    return "ours wrong", problem.kind
