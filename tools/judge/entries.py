"""PyTorch's functions as calls of minim: what `tools/compare_ops.py` compares, by OpInfo's names.

A function here takes the recorder, then what the function of PyTorch takes, with Values for tensors. It
returns the Value, or the list of them, that PyTorch returns.
"""
import math

import torch

from .calls import Missing, Outside, Value
from .shapes import SHAPES

ENTRIES = {}


def entry(*names):
    def add(f):
        for name in names:
            ENTRIES[name] = f
        return f
    return add


def no(**given):
    """Attributes that minim has not: all must have the value that does nothing."""
    for name, value in given.items():
        if value not in (None, False):
            raise Missing(f"{name}=")


def axes(dim):
    return [] if dim is None else [dim] if isinstance(dim, int) else list(dim)


def pointwise(name, op=None):
    ENTRIES[name] = lambda m, *operands, **kwargs: no(**kwargs) or getattr(m, op or name)(*operands)


for name in ("abs neg square exp log log1p sqrt reciprocal rsqrt sin cos tanh sigmoid mul maximum minimum "
             "eq ne lt le gt ge pow").split():
    pointwise(name)
for name, op in {"nn.functional.relu": "relu", "nn.functional.silu": "silu", "nn.functional.logsigmoid": "log_sigmoid",
                 "div/no_rounding_mode": "div", "true_divide": "div", "max/binary": "maximum", "min/binary": "minimum",
                 "clamp_min": "maximum", "clamp_max": "minimum", "mm": "matmul", "bmm": "matmul", "mv": "matmul",
                 "dot": "matmul", "matmul": "matmul", "__rmul__": "mul"}.items():
    pointwise(name, op)


@entry("add", "__radd__")
def add(m, x, y, *, alpha=1):
    return m.add(x, y if alpha == 1 else m.mul(y, alpha))


@entry("sub")
def sub(m, x, y, *, alpha=1):
    return m.sub(x, y if alpha == 1 else m.mul(y, alpha))


@entry("rsub", "__rsub__")
def rsub(m, x, y, *, alpha=1):
    return m.sub(y, x if alpha == 1 else m.mul(x, alpha))


ENTRIES["__rdiv__"] = lambda m, x, y: m.div(y, x)
ENTRIES["__rpow__"] = lambda m, x, y: m.pow(y, x)
ENTRIES["__rmatmul__"] = lambda m, x, y: m.matmul(y, x)
ENTRIES["nn.functional.leaky_relu"] = lambda m, x, negative_slope=0.01, inplace=False: m.leaky_relu(
    x, negative_slope=negative_slope)
ENTRIES["nn.functional.gelu"] = lambda m, x, approximate="none": m.gelu(x, tanh=approximate == "tanh")
ENTRIES["nn.functional.softplus"] = lambda m, x, beta=1, threshold=20: m.softplus(x, beta=beta, threshold=threshold)
ENTRIES["nn.functional.relu6"] = lambda m, x, inplace=False: m.clamp(x, lo=0, hi=6)
ENTRIES["nn.functional.hardtanh"] = lambda m, x, min_val=-1, max_val=1, inplace=False: m.clamp(x, lo=min_val, hi=max_val)
ENTRIES["nn.functional.softsign"] = lambda m, x: m.div(x, m.add(m.abs(x), 1))
ENTRIES["nn.functional.mish"] = lambda m, x, inplace=False: m.mul(x, m.tanh(m.softplus(x)))
ENTRIES["deg2rad"] = lambda m, x: m.mul(x, math.pi / 180)
ENTRIES["rad2deg"] = lambda m, x: m.mul(x, 180 / math.pi)
ENTRIES["positive"] = lambda m, x: m.clone(x)
ENTRIES["where"] = lambda m, x, condition, y: m.where(condition, x, y)
ENTRIES["masked_fill"] = lambda m, x, mask, value: m.masked_fill(x, mask, value)


@entry("clamp")
def clamp(m, x, min=None, max=None):
    if isinstance(min, Value) or isinstance(max, Value):
        raise Missing("tensors as bounds")
    return m.clamp(x, lo=min, hi=max)


@entry("nn.functional.glu")
def glu(m, x, dim=-1):
    a, b = m.split(x, size=x.shape[dim] // 2, axis=dim, results=2)
    return m.mul(a, m.sigmoid(b))


@entry("nn.functional.dropout")
def dropout(m, x, p=0.5, training=True, inplace=False):
    if training and p > 0:
        raise Outside("random numbers")
    return m.dropout(x, p=0)


def one_dtype(*xs):
    """Several steps would promote one after the other."""
    if len({x.dtype for x in xs}) > 1:
        raise Outside("operands of several dtypes")


@entry("addcmul")
def addcmul(m, x, a, b, *, value=1):
    one_dtype(x, a, b)
    return m.add(x, m.mul(m.mul(a, b), value))


@entry("addcdiv")
def addcdiv(m, x, a, b, *, value=1):
    one_dtype(x, a, b)
    return m.add(x, m.mul(m.div(a, b), value))


@entry("lerp")
def lerp(m, x, y, weight):
    return m.add(x, m.mul(weight, m.sub(y, x)))


# Products

def scaled_sum(m, c, product, beta, alpha):
    if c.dtype == torch.bool:
        raise Outside("numbers beside bool, which PyTorch takes for bool here")
    if beta == 0:
        raise Missing("beta=0, which drops NaN")
    return m.add(c if beta == 1 else m.mul(c, beta), product if alpha == 1 else m.mul(product, alpha))


@entry("addmm", "addmm/decomposed", "addmv", "baddbmm")
def addmm(m, c, a, b, *, beta=1, alpha=1):
    return scaled_sum(m, c, m.matmul(a, b), beta, alpha)


@entry("addbmm")
def addbmm(m, c, a, b, *, beta=1, alpha=1):
    return scaled_sum(m, c, m.sum(m.matmul(a, b), axes=[0]), beta, alpha)


@entry("addr")
def addr(m, c, a, b, *, beta=1, alpha=1):
    return scaled_sum(m, c, m.mul(m.unsqueeze(a, axis=1), b), beta, alpha)


ENTRIES["outer"] = lambda m, a, b: m.mul(m.unsqueeze(a, axis=1), b)
ENTRIES["vdot"] = lambda m, a, b: m.matmul(a, b)
ENTRIES["linalg.vecdot"] = lambda m, a, b, dim=-1: m.sum(m.mul(a, b), axes=[dim])
ENTRIES["nn.functional.linear"] = lambda m, x, weight, bias=None: m.linear(x, weight, bias)
ENTRIES["einsum"] = lambda m, tensors, equation: m.einsum(*tensors, equation=equation)


@entry("inner")
def inner(m, a, b):
    if a.ndim == 0 or b.ndim == 0:
        return m.mul(a, b)
    if b.ndim > 2:
        raise Outside("more than two axes: tensordot")
    return m.matmul(a, m.transpose(b, a=0, b=1) if b.ndim == 2 else b)


@entry("linalg.multi_dot")
def multi_dot(m, tensors):
    product = tensors[0]
    for t in tensors[1:]:
        product = m.matmul(product, t)
    return product


# Indices

@entry("nn.functional.embedding")
def embedding(m, weight, indices, padding_idx=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, sparse=False):
    if padding_idx is not None:
        raise Missing("padding_idx=")
    no(max_norm=max_norm, scale_grad_by_freq=scale_grad_by_freq)
    return m.embedding(weight, indices)


ENTRIES["gather"] = lambda m, x, dim, index, sparse_grad=False: m.gather(x, index, axis=dim)
ENTRIES["index_select"] = lambda m, x, dim, index: m.index_select(x, index, axis=dim)
ENTRIES["scatter_add"] = lambda m, x, dim, index, src: m.scatter_add(x, index, src, axis=dim)


@entry("scatter_reduce/sum")
def scatter_reduce(m, x, dim, index, src, reduce=None, *, include_self=True):
    if not include_self:
        raise Missing("include_self=False")
    return m.scatter_add(x, index, src, axis=dim)


@entry("index_add")
def index_add(m, x, dim, index, source, *, alpha=1):
    if x.ndim == 0:
        raise Outside("0-dim: no axis for the index")
    shape = [1] * x.ndim
    shape[dim] = -1
    wide = m.expand(m.reshape(index, shape=shape), shape=source.shape)
    return m.scatter_add(x, wide, source if alpha == 1 else m.mul(source, alpha), axis=dim)


@entry("take_along_dim")
def take_along_dim(m, x, index, dim=None):
    if dim is None:
        return m.gather(m.flatten(x), m.flatten(index), axis=0)
    shape = list(torch.broadcast_shapes([1 if i == dim % x.ndim else n for i, n in enumerate(x.shape)],
                                        [1 if i == dim % x.ndim else n for i, n in enumerate(index.shape)]))
    own, other = list(shape), list(shape)
    own[dim], other[dim] = x.shape[dim], index.shape[dim]
    return m.gather(m.expand(x, shape=own), m.expand(index, shape=other), axis=dim)


# Reductions

def reduction(op):
    def call(m, x, dim=None, keepdim=False, *, dtype=None):
        return getattr(m, op)(x, axes=axes(dim), keepdim=keepdim, dtype=dtype)
    return call


for name, op in {"sum": "sum", "prod": "prod", "any": "any", "all": "all", "amax": "max", "amin": "min",
                 "logsumexp": "logsumexp", "max/reduction_no_dim": "max", "min/reduction_no_dim": "min"}.items():
    ENTRIES[name] = reduction(op)


@entry("mean")
def mean(m, x, dim=None, keepdim=False, *, dtype=None):
    return m.mean(x if dtype is None else m.to(x, dtype=dtype), axes=axes(dim), keepdim=keepdim)


ENTRIES["max/reduction_with_dim"] = lambda m, x, dim, keepdim=False: [
    m.max(x, axes=[dim], keepdim=keepdim), m.argmax(x, axis=dim, keepdim=keepdim)]
ENTRIES["min/reduction_with_dim"] = lambda m, x, dim, keepdim=False: [
    m.min(x, axes=[dim], keepdim=keepdim), m.argmin(x, axis=dim, keepdim=keepdim)]
ENTRIES["aminmax"] = lambda m, x, *, dim=None, keepdim=False: [
    m.min(x, axes=axes(dim), keepdim=keepdim), m.max(x, axes=axes(dim), keepdim=keepdim)]
ENTRIES["argmax"] = lambda m, x, dim=None, keepdim=False: m.argmax(x, axis=dim, keepdim=keepdim)
ENTRIES["argmin"] = lambda m, x, dim=None, keepdim=False: m.argmin(x, axis=dim, keepdim=keepdim)
ENTRIES["cumsum"] = lambda m, x, dim, *, dtype=None: m.cumsum(x, dim=dim, dtype=dtype)


def spread(op, with_mean):
    def call(m, x, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        y = getattr(m, op)(x, axes=axes(dim), keepdim=keepdim, correction=correction)
        return [y, m.mean(x, axes=axes(dim), keepdim=keepdim)] if with_mean else y
    return call


for op in ("var", "std"):
    for variant in ("", "/unbiased"):
        ENTRIES[op + variant] = spread(op, False)
        ENTRIES[op + "_mean" + variant] = spread(op, True)


@entry("norm", "norm/fro", "norm/inf")
def norm(m, x, p="fro", dim=None, keepdim=False, dtype=None):
    if p == "nuc":
        raise Outside("nuclear norm")
    p = 2 if p in ("fro", None) else p
    return m.norm(x if dtype is None else m.to(x, dtype=dtype), axes=axes(dim), keepdim=keepdim, p=float(p))


@entry("linalg.vector_norm")
def vector_norm(m, x, ord=2, dim=None, keepdim=False, *, dtype=None):
    return norm(m, x, ord, dim, keepdim, dtype)


@entry("linalg.norm", "linalg.norm/subgradients_at_zero")
def linalg_norm(m, x, ord=None, dim=None, keepdim=False, *, dtype=None):
    matrix = (isinstance(dim, (tuple, list)) and len(dim) == 2) or (dim is None and x.ndim == 2)
    if ord is not None and ord != "fro" and matrix:
        raise Outside("a norm of matrices")
    return norm(m, x, "fro" if ord is None else ord, dim, keepdim, dtype)


@entry("linalg.matrix_norm")
def matrix_norm(m, x, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    if ord != "fro":
        raise Outside("a norm of matrices")
    return norm(m, x, "fro", dim, keepdim, dtype)


ENTRIES["dist"] = lambda m, x, y, p=2: m.norm(m.sub(x, y), p=float(p))
ENTRIES["nn.functional.pairwise_distance"] = lambda m, x, y, p=2, eps=1e-6, keepdim=False: m.norm(
    m.add(m.sub(x, y), eps), axes=[-1], p=float(p), keepdim=keepdim)
ENTRIES["nn.functional.normalize"] = lambda m, x, p=2, dim=1, eps=1e-12: m.normalize(x, p=float(p), dim=dim, eps=eps)
ENTRIES["nn.functional.cosine_similarity"] = lambda m, x, y, dim=1, eps=1e-8: m.cosine_similarity(x, y, dim=dim, eps=eps)

ENTRIES.update(SHAPES)
from . import layers  # noqa: E402,F401  adds its own
