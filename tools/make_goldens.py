#!/usr/bin/env python3
"""Makes the golden files of tests/test_parity.cpp: what PyTorch computes, and in f64 what is right.

    tools/make_goldens.py [--out tests/golden]      # needs torch on the CPU, and nothing else

ops.safetensors    per case, dtype and tensor: NAME/DTYPE/TENSOR is PyTorch's, NAME/ref-DTYPE/TENSOR
                   the same in f64 from the same inputs, which were rounded to DTYPE. TENSOR is y or
                   d_OPERAND; the cotangent of y is made like an operand. A missing NAME/DTYPE/TENSOR
                   is something that PyTorch does not compute in that dtype on the CPU.
                   Of sums over LONG_AXES numbers only the errors are kept, in the metadata: "long
                   NAME/K" tells the operands and "long NAME/K/DTYPE/TENSOR" PyTorch's absolute and
                   relative error (docs/accuracy.md).
gpt.safetensors    a 2-layer GPT: logits, every gradient and the losses of 20 steps of AdamW, in f64,
                   f32 and f32 under autocast to bf16 and to f16, with a loss scale of 1024 in f16.

Inputs are not stored. Each comes from s = s * 1664525 + 1013904223 mod 2^32, whose top 16 bits are a
value u in [0, 1) in steps of 2^-16, beginning at s = 1000 k + 1 for operand k (from 0), 77001 for the
cotangent. A floating operand is low + (high - low) * u, an integer the floor of that, a boolean
u < 0.5; a cotangent is floor(128 u - 64) / 32. The metadata of the file tell each case's operands:
"x f 3x5 -3 3; target i 3 0 5; mask b 3x5".
"""
import argparse
import json
import math
import pathlib
import struct

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CODES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
         torch.int64: "I64", torch.bool: "BOOL"}


def write_safetensors(path, tensors, metadata):
    """u64 length of the header, JSON header, data: the widest elements first, so that all is aligned."""
    header, data = {"__metadata__": metadata}, bytearray()
    for name, t in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        raw = bytes(t.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
        header[name] = {"dtype": CODES[t.dtype], "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def uniform(count, seed):
    values, s = [], seed
    for _ in range(count):
        s = (s * 1664525 + 1013904223) % 2**32
        values.append((s >> 16) / 65536)
    return values


def shaped(values, shape, dtype):
    return torch.tensor(values, dtype=dtype).reshape(shape)


def operand(spec, k):
    """One operand in f64, int64 or bool."""
    _, kind, sizes, *bounds = spec.split()
    shape = [int(n) for n in sizes.split("x")]
    us = uniform(math.prod(shape), 1000 * k + 1)
    if kind == "b":
        return shaped([u < 0.5 for u in us], shape, torch.bool)
    low, high = map(float, bounds)
    values = [low + (high - low) * u for u in us]
    if kind == "i":
        return shaped([math.floor(v) for v in values], shape, torch.int64)
    return shaped(values, shape, torch.float64)


def cotangent(y):
    values = [math.floor(128 * u - 64) / 32 for u in uniform(y.numel(), 77001)]
    return shaped(values, y.shape, y.dtype)


X = "x f 4x12 -3 3"                # of either sign
P = "x f 4x12 0.1 3.1"             # positive
W = "x f 4x12 -12 12"              # wide
XY = X + "; y f 12 -3 3"
PAIR = "x f 4x12 -3 3; target f 4x12 -3 3"
CASES = {}


def case(name, operands, f):
    CASES[name] = (operands, f)


for name, f in {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum,
                "minimum": torch.minimum, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le,
                "gt": torch.gt, "ge": torch.ge}.items():
    case(name, XY, f)
case("div", X + "; y f 12 0.1 3.1", torch.div)
for name, f in {"neg": torch.neg, "abs": torch.abs, "square": torch.square, "exp": torch.exp, "sin": torch.sin,
                "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu,
                "leaky_relu": lambda x: F.leaky_relu(x, 0.01), "gelu": F.gelu,
                "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
                "softplus": F.softplus, "log_sigmoid": F.logsigmoid}.items():
    case(name, X, f)
    if name in ("exp", "sin", "cos", "tanh", "sigmoid", "gelu", "gelu tanh", "silu", "softplus", "log_sigmoid"):
        case(name + " wide", W, f)
case("exp tiny", "x f 4x12 -0.01 0.01", torch.exp)
case("tanh tiny", "x f 4x12 -0.01 0.01", torch.tanh)
case("log", P, torch.log)
case("log near 1", "x f 4x12 0.9 1.1", torch.log)
case("log1p", "x f 4x12 -0.9 3", torch.log1p)
case("log1p tiny", "x f 4x12 -0.01 0.01", torch.log1p)
case("sqrt", P, torch.sqrt)
case("rsqrt", P, torch.rsqrt)
case("reciprocal", P, torch.reciprocal)
case("pow", P + "; y f 12 -3 3", torch.pow)
case("clamp", X, lambda x: torch.clamp(x, -1, 0.75))
case("where", "condition b 4x12; " + XY, torch.where)
case("masked_fill", X + "; mask b 4x12", lambda x, mask: x.masked_fill(mask, -2.5))
case("to", X, lambda x: x.to(torch.bfloat16))
case("reshape", X, lambda x: x.reshape(6, 8))
case("permute", "x f 2x3x4 -3 3", lambda x: x.permute(2, 0, 1))
case("slice", X, lambda x: x[:, 1:9:2])
case("expand", "x f 1x12 -3 3", lambda x: x.expand(5, 12))
case("matmul", "x f 6x10 -1 1; y f 10x6 -1 1", torch.matmul)
case("matmul batched", "x f 2x3x8 -1 1; y f 8x5 -1 1", torch.matmul)
case("linear", "x f 4x12 -1 1; weight f 5x12 -1 1; bias f 5 -1 1", F.linear)
case("embedding", "weight f 7x6 -3 3; indices i 3x4 0 7", lambda weight, indices: F.embedding(indices, weight))
case("gather", "x f 5x6 -3 3; index i 3x6 0 5", lambda x, index: torch.gather(x, 0, index))
case("index_select", "x f 5x6 -3 3; index i 4 0 6", lambda x, index: torch.index_select(x, 1, index))
case("scatter_add", "x f 5x6 -3 3; index i 8x6 0 5; src f 8x6 -3 3", lambda x, i, s: torch.scatter_add(x, 0, i, s))
case("cat", "x f 3x5 -3 3; y f 3x7 -3 3", lambda x, y: torch.cat([x, y], 1))
case("conv2d", "x f 1x2x5x6 -1 1; weight f 2x2x3x3 -1 1; bias f 2 -1 1",
     lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=1))
case("max_pool2d", "x f 1x2x5x6 -3 3", lambda x: F.max_pool2d(x, 3, stride=2, padding=1))
case("avg_pool2d", "x f 1x2x5x6 -3 3", lambda x: F.avg_pool2d(x, 3, stride=2, padding=1))
case("cross_entropy", "x f 6x10 -3 3; target i 6 0 10", F.cross_entropy)
case("cross_entropy smooth", "x f 6x10 -12 12; target i 6 0 10",
     lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="sum"))
case("nll_loss", "x f 6x10 -3 0; target i 6 0 10", F.nll_loss)
case("scaled_dot_product_attention", "q f 1x2x4x6 -1 1; k f 1x2x4x6 -1 1; v f 1x2x4x6 -1 1",
     F.scaled_dot_product_attention)
case("scaled_dot_product_attention causal", "q f 1x2x4x6 -2 2; k f 1x2x4x6 -2 2; v f 1x2x4x6 -1 1",
     lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
case("sum", X, lambda x: x.sum(1))
case("sum all", "x f 64 -1 3", torch.sum)
case("prod", "x f 6x5 -1.5 1.5", lambda x: x.prod(1))
case("cumsum", X, lambda x: x.cumsum(1))
case("mean", X, lambda x: x.mean(0))
case("any", "x b 4x12", lambda x: x.any(1))
case("all", "x b 12x3", lambda x: x.all(1))
case("max", X, lambda x: x.max(1).values)
case("min", X, lambda x: x.min(1).values)
case("argmax", X, lambda x: x.argmax(1))
case("argmin", X, lambda x: x.argmin(1))
case("var", X, lambda x: x.var(1))
case("var offset", "x f 4x12 100 104", lambda x: x.var(1))
case("std", X, lambda x: x.std(1))
case("norm", X, lambda x: torch.linalg.vector_norm(x, dim=1))
case("norm 1", X, lambda x: torch.linalg.vector_norm(x, ord=1, dim=1))
case("norm 3", X, lambda x: torch.linalg.vector_norm(x, ord=3, dim=1))
case("normalize", X, F.normalize)
case("cosine_similarity", "x f 4x12 -3 3; y f 4x12 -3 3", F.cosine_similarity)
for suffix, x in {"": X, " wide": W}.items():
    case("logsumexp" + suffix, x, lambda x: torch.logsumexp(x, 1))
    case("softmax" + suffix, x, lambda x: torch.softmax(x, 1))
    case("log_softmax" + suffix, x, lambda x: torch.log_softmax(x, 1))
for suffix, x in {"": X, " offset": "x f 4x12 100 104"}.items():
    case("layer_norm" + suffix, x + "; weight f 12 0.5 1.5; bias f 12 -1 1",
         lambda x, w, b: F.layer_norm(x, [12], w, b))
case("rms_norm", X + "; weight f 12 0.5 1.5", lambda x, w: F.rms_norm(x, [12], w, eps=1e-6))
case("group_norm", "x f 2x4x6 -3 3; weight f 4 0.5 1.5; bias f 4 -1 1", lambda x, w, b: F.group_norm(x, 2, w, b))
case("batch_norm", "x f 4x3x4 -3 3; weight f 3 0.5 1.5; bias f 3 -1 1",
     lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True))
case("mse", PAIR, F.mse_loss)
case("l1", PAIR, F.l1_loss)
case("smooth_l1", PAIR, F.smooth_l1_loss)
case("bce_with_logits", X + "; target f 4x12 0 1", F.binary_cross_entropy_with_logits)
case("kl_div", "x f 4x12 -3 0; target f 4x12 0.05 0.95", lambda x, t: F.kl_div(x, t, reduction="batchmean"))
case("bce", "x f 4x12 0.05 0.95; target f 4x12 0.05 0.95", F.binary_cross_entropy)


LONG_AXES = 4096, 65536
LONG = {
    "sum": "x f 3xK 0 1", "mean": "x f Kx3 0 1", "cumsum": "x f 2xK 0 1", "var": "x f 3xK -3 3",
    "std": "x f 3xK -3 3", "norm": "x f 3xK -3 3", "norm 1": "x f 3xK -3 3", "logsumexp": "x f 3xK -3 3",
    "softmax": "x f 3xK -3 3", "log_softmax": "x f 3xK -3 3", "normalize": "x f 3xK -3 3",
    "cosine_similarity": "x f 3xK -3 3; y f 3xK -3 3",
    "layer_norm": "x f 3xK -3 3; weight f K 0.5 1.5; bias f K -1 1",
    "rms_norm": "x f 3xK -3 3; weight f K 0.5 1.5",
    "group_norm": "x f 2x4xK -3 3; weight f 4 0.5 1.5; bias f 4 -1 1",
    "batch_norm": "x f Kx3 -3 3; weight f 3 0.5 1.5; bias f 3 -1 1",
    "matmul": "x f 3xK 0 1; y f Kx3 0 1", "linear": "x f Kx3 0 1; weight f 4x3 0 1; bias f 4 0 1",
    "conv2d": "x f Kx2x2x2 0 1; weight f 2x2x1x1 0 1; bias f 2 0 1",
    "scaled_dot_product_attention": "q f 1x1x3x8 -1 1; k f 1x1xKx8 -1 1; v f 1x1xKx8 0 1",
    "embedding": "weight f 5x3 -3 3; indices i K 0 5", "index_select": "x f 3x6 0 1; index i K 0 6",
    "gather": "x f 5x2 -3 3; index i Kx2 0 5", "scatter_add": "x f 5x2 0 1; index i Kx2 0 5; src f Kx2 0 1",
    "cross_entropy": "x f 3xK -3 3; target i 3 0 K", "nll_loss": "x f Kx4 -3 0; target i K 0 4",
    "mse": "x f K -3 3; target f K -3 3", "l1": "x f K -3 3; target f K -3 3",
    "smooth_l1": "x f K -3 3; target f K -3 3", "bce_with_logits": "x f K -3 3; target f K 0 1",
    "bce": "x f K 0.05 0.95; target f K 0.05 0.95", "add": "x f Kx4 0 1; y f 4 0 1", "mul": "x f Kx4 0 1; y f 4 0 1",
}


def errors_of(got, exact, unit):
    """As errors_of in tests/parity.cpp."""
    exact, eps = exact.double(), torch.finfo(unit).eps
    fits = exact.abs() <= torch.finfo(unit).max
    off, size = (got.double() - exact).abs()[fits] / eps, exact.abs()[fits]
    if not size.numel():
        return "0 0"
    largest = max(torch.finfo(unit).tiny, size.max().item())
    seen = size >= largest / 1000
    return f"{off.max().item() / largest:.6g} {(off[seen] / size[seen]).max().item() if seen.any() else 0:.6g}"


def run_case(specs, f, dtype, through):
    """Results by name, in `dtype`, from inputs that were rounded to `through` first."""
    xs = []
    for k, spec in enumerate(specs):
        x = operand(spec, k)
        if x.is_floating_point():
            x = x.to(through).to(dtype).requires_grad_()
        xs.append(x)
    y = f(*xs)
    found = {"y": y}
    if y.requires_grad:
        y.backward(cotangent(y))
        found.update({"d_" + s.split()[0]: x.grad for s, x in zip(specs, xs) if x.grad is not None})
    return found


def op_goldens():
    tensors, metadata = {}, {}
    for name, (operands, f) in CASES.items():
        specs = operands.split("; ")
        metadata["case " + name] = operands
        for short, dtype in DTYPES.items():
            for tensor, value in run_case(specs, f, torch.float64, dtype).items():
                tensors[f"{name}/ref-{short}/{tensor}"] = value.clone()
            try:
                theirs = run_case(specs, f, dtype, dtype)
            except RuntimeError as e:
                print(f"{name} in {short}: {str(e).splitlines()[0]}")
                continue
            for tensor, value in theirs.items():
                tensors[f"{name}/{short}/{tensor}"] = value.clone()
    return tensors, metadata


def long_errors():
    metadata = {}
    for name, template in LONG.items():
        for k in LONG_AXES:
            operands, f = template.replace("K", str(k)), CASES[name][1]
            if name == "layer_norm":
                f = lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b)
            elif name == "rms_norm":
                f = lambda x, w: F.rms_norm(x, x.shape[-1:], w, eps=1e-6)
            elif name == "conv2d":
                f = lambda x, w, b: F.conv2d(x, w, b)
            metadata[f"long {name}/{k}"] = operands
            for short, dtype in DTYPES.items():
                exact = run_case(operands.split("; "), f, torch.float64, dtype)
                for tensor, value in run_case(operands.split("; "), f, dtype, dtype).items():
                    metadata[f"long {name}/{k}/{short}/{tensor}"] = errors_of(value, exact[tensor], value.dtype)
    return metadata


VOCAB, BLOCK, LAYERS, HEADS, EMBD, BATCH, STEPS = 17, 8, 2, 2, 16, 2, 20


def gpt_shapes():
    """By minim's names, in the order of their seeds: parameter i begins at s = 1000 i + 1."""
    def norm(name):
        return {name + ".weight": [EMBD], name + ".bias": [EMBD]}

    def layer(name, into, out):
        return {name + ".weight": [out, into], name + ".bias": [out]}

    shapes = {"tokens.weight": [VOCAB, EMBD], "positions.weight": [BLOCK, EMBD]}
    for i in range(LAYERS):
        b = f"blocks.{i}."
        shapes |= (norm(b + "norm1") | layer(b + "attn.qkv", EMBD, 3 * EMBD) | layer(b + "attn.out", EMBD, EMBD)
                   | norm(b + "norm2") | layer(b + "mlp.up", EMBD, 4 * EMBD) | layer(b + "mlp.down", 4 * EMBD, EMBD))
    return shapes | norm("norm")


def gpt_parameters(dtype):
    """Uniform in [-0.25, 0.25); weights of norms in [0.75, 1.25). Exact in fp32."""
    params = {}
    for i, (name, shape) in enumerate(gpt_shapes().items()):
        centre = 1 if "norm" in name and name.endswith("weight") else 0
        values = [centre + (u - 0.5) / 2 for u in uniform(math.prod(shape), 1000 * i + 1)]
        params[name] = shaped(values, shape, dtype).requires_grad_()
    return params


def gpt_tokens():
    """BATCH rows of BLOCK inputs and the token after each, from s = 5."""
    rows = shaped([math.floor(VOCAB * u) for u in uniform(BATCH * (BLOCK + 1), 5)], [BATCH, BLOCK + 1], torch.int64)
    return rows[:, :-1], rows[:, 1:]


def gpt_logits(p, tokens):
    def linear(name, x):
        return F.linear(x, p[name + ".weight"], p[name + ".bias"])

    def norm(name, x):
        return F.layer_norm(x, [EMBD], p[name + ".weight"], p[name + ".bias"])

    def attention(name, x):
        q, k, v = (t.reshape(BATCH, BLOCK, HEADS, EMBD // HEADS).transpose(1, 2)
                   for t in linear(name + ".qkv", x).split(EMBD, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return linear(name + ".out", y.transpose(1, 2).reshape(BATCH, BLOCK, EMBD))

    x = F.embedding(tokens, p["tokens.weight"]) + p["positions.weight"]
    for i in range(LAYERS):
        b = f"blocks.{i}."
        x = x + attention(b + "attn", norm(b + "norm1", x))
        x = x + linear(b + "mlp.down", F.gelu(linear(b + "mlp.up", norm(b + "norm2", x))))
    return F.linear(norm("norm", x), p["tokens.weight"])


def gpt_run(mode):
    p = gpt_parameters(torch.float64 if mode == "ref" else torch.float32)
    inputs, targets = gpt_tokens()
    # With eps 1e-8 one gradient that is all but 0 decides how far the losses are apart.
    optimizer = torch.optim.AdamW(p.values(), lr=1e-2, eps=1e-5, weight_decay=0.1)
    losses, found = [], {}
    scale = 1024 if mode == "f16" else 1
    for step in range(STEPS):
        with torch.autocast("cpu", DTYPES.get(mode, torch.bfloat16), enabled=mode in ("f16", "bf16")):
            logits = gpt_logits(p, inputs)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(wide.reshape(-1, VOCAB), targets.reshape(-1))
        optimizer.zero_grad()
        (loss * scale).backward()
        for w in p.values():
            w.grad /= scale
        if step == 0:
            found[f"{mode}/logits"] = logits.detach().clone()
            found |= {f"{mode}/d_{name}": w.grad.clone() for name, w in p.items()}
        losses.append(loss.item())
        optimizer.step()
    found[f"{mode}/losses"] = torch.tensor(losses, dtype=torch.float64)
    return found


def main():
    parser = argparse.ArgumentParser(description="makes the golden files of tests/test_parity.cpp")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parents[1] / "tests/golden")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    version = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    tensors, metadata = op_goldens()
    write_safetensors(out / "ops.safetensors", tensors, version | metadata | long_errors())
    gpt = {}
    for mode in ("ref", "f32", "bf16", "f16"):
        gpt |= gpt_run(mode)
    write_safetensors(out / "gpt.safetensors", gpt, version)
    print(f"{len(CASES)} cases, {len(tensors)} tensors, PyTorch {torch.__version__}: {out}")


if __name__ == "__main__":
    main()
