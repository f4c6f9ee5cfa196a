"""Calls of minim, written down as they are made, and sent to the program minim_judge (main.cpp)."""
import json
import math
import pathlib
import struct
import subprocess

import torch

CODES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
         torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}
NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
         torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8", torch.bool: "bool"}
DTYPES = {code: dtype for dtype, code in CODES.items()}


class Missing(Exception):
    """minim has no such attribute, or another shape of operand."""


class Outside(Exception):
    """Nothing that could be compared: random numbers, or not this op at all."""


class Value:
    """An operand or the result of a step. Operands know what tensor they are."""

    def __init__(self, tensor=None, number=None):
        self.tensor, self.number = tensor, number

    shape = property(lambda self: list(self.tensor.shape))
    ndim = property(lambda self: self.tensor.ndim)
    dtype = property(lambda self: self.tensor.dtype)


def plain(attribute):
    """An attribute as JSON."""
    if isinstance(attribute, torch.dtype):
        if attribute not in NAMES:
            raise Missing(f"dtype {attribute}")
        return NAMES[attribute]
    if isinstance(attribute, float) and not math.isfinite(attribute):
        return str(attribute)
    if isinstance(attribute, (tuple, list, torch.Size)):
        return [plain(a) for a in attribute]
    return attribute


class Recorder:
    """m.softmax(x, dim=1) writes a step down. A number that is an operand is weak, as in C++."""

    def __init__(self):
        self.operands, self.steps = [], []

    def operand(self, tensor):
        self.operands.append(Value(tensor))
        return self.operands[-1]

    def as_value(self, x):
        if x is None or isinstance(x, Value):
            return x
        if isinstance(x, (bool, int, float)):
            self.operands.append(Value(number=x))
            return self.operands[-1]
        raise Missing(f"an operand of type {type(x).__name__}")

    def __getattr__(self, op):
        def step(*operands, results=1, **attrs):
            out = [Value() for _ in range(results)]
            attrs = {k: plain(v) for k, v in attrs.items() if v is not None}
            self.steps.append((op, [self.as_value(x) for x in operands], attrs, out))
            return out[0] if results == 1 else out
        return step

    def request(self, out, tensor_name, layout, wants_grad):
        """The call as minim_judge reads it, but for its name and cotangents."""
        number = {id(v): k for k, v in enumerate(self.operands + [v for step in self.steps for v in step[3]])}
        operands = []
        for v in self.operands:
            if v.tensor is None:
                operands.append({"number": plain(v.number)})
            else:
                operands.append({"tensor": tensor_name(v), "layout": layout, "grad": wants_grad(v)})
        steps = [{"op": op, "in": [-1 if v is None else number[id(v)] for v in values], "attrs": attrs}
                 for op, values, attrs, _ in self.steps]
        return {"operands": operands, "steps": steps, "layout": layout, "out": [number[id(v)] for v in out]}


def write_safetensors(path, tensors):
    header, chunks, at = {}, [], 0
    for name, t in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
        raw = t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": CODES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        chunks.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, tensors = json.loads(raw[8:8 + size]), {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        if begin == end:
            tensors[name] = torch.empty(entry["shape"], dtype=dtype)
        else:
            data = bytearray(raw[8 + size + begin:8 + size + end])
            tensors[name] = torch.frombuffer(data, dtype=dtype).reshape(entry["shape"])
    return tensors


def run(program, folder, requests, tensors):
    """Results by name, and what was refused by the call's id: (stage, message)."""
    folder = pathlib.Path(folder)
    write_safetensors(folder / "operands.safetensors", tensors)
    (folder / "calls.jsonl").write_text("".join(json.dumps(r) + "\n" for r in requests))
    done = subprocess.run([program, folder], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-500:]}")
    refused = {}
    for line in (folder / "results.jsonl").read_text().splitlines():
        entry = json.loads(line)
        refused[entry["id"]] = (entry["stage"], entry["error"])
    return read_safetensors(folder / "results.safetensors"), refused
