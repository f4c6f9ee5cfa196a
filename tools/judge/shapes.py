"""PyTorch's functions that move elements and compute nothing, as calls of minim."""
import math

import torch

from .calls import Missing, Outside

SHAPES = {}


def shape_of(args):
    return list(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list, torch.Size)) else list(args)


def flatten(m, x, start_dim=0, end_dim=-1):
    return m.flatten(x, **{"from": start_dim, "to": end_dim})


def permute(m, x, *dims):
    return m.permute(x, order=shape_of(dims))


def movedim(m, x, source, destination):
    source, destination = ([d] if isinstance(d, int) else list(d) for d in (source, destination))
    order = [-1] * x.ndim
    for s, d in zip(source, destination):
        order[d] = s % x.ndim
    rest = iter(sorted(set(range(x.ndim)) - set(order)))
    return m.permute(x, order=[next(rest) if o == -1 else o for o in order])


def squeeze(m, x, dim=None):
    if dim is None:
        dim = [i for i, n in enumerate(x.shape) if n == 1]
    dims = [dim] if isinstance(dim, int) else list(dim)
    for axis in sorted((d % max(1, x.ndim) for d in dims), reverse=True):
        if x.ndim and x.shape[axis] != 1:
            continue  # PyTorch leaves it; minim says that it is no 1
        x, rest = m.squeeze(x, axis=axis), [n for i, n in enumerate(x.shape) if i != axis]
        x.tensor = torch.empty(rest)
    return x if dims else m.clone(x)


def split(m, x, size_or_sizes, dim=0):
    length = x.shape[dim]
    if isinstance(size_or_sizes, int):
        results = max(1, math.ceil(length / size_or_sizes)) if size_or_sizes else 1
        found = m.split(x, size=size_or_sizes, axis=dim, results=results)
    else:
        found = m.split(x, sizes=list(size_or_sizes), axis=dim, results=len(size_or_sizes))
    return found if isinstance(found, list) else [found]


def chunk(m, x, chunks, dim=0):
    return split(m, x, max(1, math.ceil(x.shape[dim] / chunks)), dim)


def tensor_split(m, x, indices_or_sections, dim=0):
    if not isinstance(indices_or_sections, (int, tuple, list)):
        raise Missing("a tensor of indices")
    if x.ndim == 0:
        raise Outside("no axis")
    length = x.shape[dim]
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        sizes = [length // n + (i < length % n) for i in range(n)]
    else:
        bounds = [min(length, max(0, i + length) if i < 0 else i) for i in indices_or_sections]
        edges = [0] + bounds + [length]
        sizes = [max(0, b - a) for a, b in zip(edges, edges[1:])]
        if sum(sizes) != length:
            raise Outside("overlapping parts")
    return split(m, x, sizes, dim)


def split_at(axis):
    return lambda m, x, by: tensor_split(m, x, by, axis if x.ndim > axis else 0)


def select(m, x, dim, index):
    return m.select(x, axis=dim, i=index)


def narrow(m, x, dim, start, length):
    if not isinstance(start, int):
        raise Missing("a tensor as start")
    begin = start + x.shape[dim] if start < 0 else start
    return m.slice(x, axis=dim, begin=begin, end=begin + length)


def slice_(m, x, dim=0, start=None, end=None, step=1):
    length = x.shape[dim]
    begin, stop, _ = slice(start, end).indices(length)
    return m.slice(x, axis=dim, begin=begin, end=max(begin, stop), step=step)


def unbind(m, x, dim=0):
    return [m.select(x, axis=dim, i=i) for i in range(x.shape[dim])]


def unflatten(m, x, dim, sizes):
    shape = x.shape
    axis = dim % x.ndim
    return m.reshape(x, shape=shape[:axis] + list(sizes) + shape[axis + 1:])


def last_two(m, x):
    return m.clone(x) if x.ndim == 0 else m.transpose(x, a=-2, b=-1)


def all_axes(m, x):
    return m.permute(x, order=list(range(x.ndim))[::-1]) if x.ndim else m.clone(x)


def at_least(rank):
    def one(m, x):
        shape = x.shape
        if len(shape) >= rank:
            return m.clone(x)
        if rank == 3:
            shape = {0: [1, 1, 1], 1: [1] + shape, 2: shape}[len(shape)] + ([1] if len(shape) else [])
        else:
            shape = [1] * (rank - len(shape)) + shape
        return m.reshape(x, shape=shape)

    def call(m, *xs):
        xs = list(xs[0]) if isinstance(xs[0], (tuple, list)) else list(xs)
        out = [one(m, x) for x in xs]
        return out if len(out) > 1 else out[0]
    return call


def cat(m, tensors, dim=0):
    return m.cat(*tensors, axis=dim)


def joined(rank, axis):
    """hstack, vstack, dstack: cat of what has at least that many axes."""
    def call(m, tensors):
        made = [at_least(rank)(m, t) for t in tensors]
        return m.cat(*made, axis=0 if rank == 1 and tensors[0].ndim <= 1 else axis)
    return call


def column_stack(m, tensors):
    return m.cat(*[m.reshape(t, shape=[math.prod(t.shape), 1]) if t.ndim <= 1 else t for t in tensors], axis=1)


def broadcast_tensors(m, *tensors):
    shape = torch.broadcast_shapes(*[t.shape for t in tensors])
    return [m.expand(t, shape=shape) for t in tensors]


def to_dtype(dtype):
    return lambda m, x, **_: m.to(x, dtype=dtype)


def to(m, x, *args, **kwargs):
    for a in [*args, *kwargs.values()]:
        if isinstance(a, torch.dtype):
            return m.to(x, dtype=a)
        if hasattr(a, "tensor"):
            return m.to(x, dtype=a.dtype)
    raise Outside("no dtype")


def filled(value):
    def call(m, x, *, dtype=None, **_):
        return m.full(shape=x.shape, value=float(value), dtype=dtype or x.dtype)
    return call


def full_like(m, x, value, *, dtype=None, **_):
    return m.full(shape=x.shape, value=float(value), dtype=dtype or x.dtype)


def new_filled(value):
    def call(m, x, shape, *, dtype=None, **_):
        return m.full(shape=shape, value=float(value), dtype=dtype or x.dtype)
    return call


def new_full(m, x, shape, value, *, dtype=None, **_):
    return m.full(shape=shape, value=float(value), dtype=dtype or x.dtype)


SHAPES.update({
    "T": all_axes, "mT": last_two, "H": all_axes, "mH": last_two, "t": all_axes, "t_copy": all_axes,
    "clone": lambda m, x, **_: m.clone(x), "contiguous": lambda m, x, **_: m.contiguous(x),
    "alias_copy": lambda m, x: m.clone(x),
    "ravel": lambda m, x: m.flatten(x), "flatten": flatten, "unflatten": unflatten,
    "reshape_as": lambda m, x, y: m.reshape(x, shape=y.shape), "view_as": lambda m, x, y: m.reshape(x, shape=y.shape),
    "expand_as": lambda m, x, y: m.expand(x, shape=y.shape), "movedim": movedim,
    "broadcast_tensors": broadcast_tensors, "squeeze/multiple": squeeze,
    "chunk": chunk, "unsafe_chunk": chunk, "tensor_split": tensor_split,
    "hsplit": split_at(1), "vsplit": split_at(0), "dsplit": split_at(2),
    "split": split, "split/list_args": split, "split_with_sizes": split, "split_with_sizes_copy": split,
    "unsafe_split": split, "select": select, "slice": slice_,
    "atleast_1d": at_least(1), "atleast_2d": at_least(2), "atleast_3d": at_least(3),
    "cat": cat, "stack": lambda m, tensors, dim=0: m.stack(*tensors, axis=dim), "column_stack": column_stack,
    "hstack": joined(1, 1), "vstack": joined(2, 0), "dstack": joined(3, 2),
    "to": to, "fill": lambda m, x, value: m.fill_(x, value=float(value)) if isinstance(value, (int, float)) else m.copy_(
        x, value), "zero_": lambda m, x: m.fill_(x, value=0),
    "zeros_like": filled(0), "ones_like": filled(1), "full_like": full_like,
    "new_zeros": new_filled(0), "new_ones": new_filled(1), "new_full": new_full,
})
for name, f in {"permute": permute, "squeeze": squeeze, "unbind": unbind, "narrow": narrow,
                "transpose": lambda m, x, a, b: m.transpose(x, a=a, b=b),
                "unsqueeze": lambda m, x, dim: m.unsqueeze(x, axis=dim),
                "expand": lambda m, x, *shape: m.expand(x, shape=shape_of(shape)),
                "view": lambda m, x, *shape: m.reshape(x, shape=shape_of(shape))}.items():
    SHAPES[name] = SHAPES[name + "_copy"] = f
SHAPES["reshape"], SHAPES["broadcast_to"] = SHAPES["view"], SHAPES["expand"]
for name, dtype in {"double": torch.float64, "float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16,
                    "long": torch.int64, "int": torch.int32, "byte": torch.uint8, "bool": torch.bool}.items():
    SHAPES[name] = to_dtype(dtype)
