#!/usr/bin/env python3
"""Training steps of a char GPT in PyTorch and in minim, in turns, on this machine.

One step is forward, loss, backward, clipping and AdamW. Both frameworks first try 1 thread and one
per core, then run at what was best for them; what is shown are medians over the rounds, and their
ratio. Memory: how far PyTorch's process grew over what it had before the model was made, and the
peak of minim's tensors.

    cmake --build --preset release
    python3 tools/compare_torch.py

Any PyTorch from 1.13 on. Debian's takes whatever libblas.so.3 is there: install libopenblas0-openmp,
with the reference BLAS it is ten times slower.
"""
import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

VOCAB = 36  # the toy language's, which minim bench trains on
MODELS = {  # as in tools/bench_step.cpp
    "small": dict(layers=4, heads=4, width=128, block=64, batch=12),
    "large": dict(layers=6, heads=6, width=384, block=256, batch=8),
}
PRECISIONS = {"fp32": "fp32", "bf16": "amp-bf16-lean"}  # PyTorch's autocast: minim bench's name


def make_step(layers, heads, width, block, batch, precision):
    import torch
    import torch.nn.functional as F
    from torch import nn

    future = torch.ones(block, block, dtype=torch.bool).triu(1)

    def attention(q, k, v):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5  # what one wrote before PyTorch 2.0
        return scores.masked_fill(future, -torch.inf).softmax(-1) @ v

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return F.layer_norm(x, (width,), self.weight)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = Norm(), Norm()
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x):
            q, k, v = (t.view(batch, block, heads, -1).transpose(1, 2)
                       for t in self.qkv(self.norm1(x)).chunk(3, -1))
            y = attention(q, k, v)
            x = x + self.out(y.transpose(1, 2).reshape(batch, block, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCAB, width)
            self.positions = nn.Embedding(block, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = Norm()
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.positions(torch.arange(block))
            for b in self.blocks:
                x = b(x)
            return F.linear(self.norm(x), self.tokens.weight)

    model = GPT()
    settings = dict(lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1)
    try:
        optimizer = torch.optim.AdamW(model.parameters(), fused=True, **settings)
    except (RuntimeError, TypeError):  # an older PyTorch has no fused one for CPUs
        optimizer = torch.optim.AdamW(model.parameters(), **settings)
    text = torch.randint(VOCAB, (100000,))

    def step():
        starts = torch.randint(len(text) - block - 1, (batch,)).tolist()
        inputs = torch.stack([text[s:s + block] for s in starts])
        targets = torch.stack([text[s + 1:s + 1 + block] for s in starts])
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = model(inputs)
            loss = F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def run_in_child(model, precision, threads, seconds):
    """The body of the process that torch_rate starts."""
    import torch
    torch.set_num_threads(threads)
    torch.ones(8, 8) @ torch.ones(8, 8)
    before = resident()
    step = make_step(precision=precision, **MODELS[model])
    step(), step()
    times, end = [], time.monotonic() + seconds
    while len(times) < 3 or time.monotonic() < end:
        start = time.monotonic()
        step()
        times.append(time.monotonic() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    tokens = MODELS[model]["batch"] * MODELS[model]["block"]
    print(json.dumps({"rate": tokens / statistics.median(times), "bytes": peak - before}))


def output_of(words, **more):
    """What the command prints; where it fails, its errors are shown and this program ends."""
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        sys.exit(f"tools/compare_torch.py: exit status {done.returncode}: {shlex.join(words)}")
    return done.stdout


def torch_rate(options, model, precision, threads):
    words = [sys.executable, __file__, "--child", model, precision, str(threads)]
    out = output_of(words + ["--seconds", str(options.seconds)],
                    env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    found = json.loads(out.splitlines()[-1])
    return found["rate"], found["bytes"]


def minim_rate(options, model, precision, threads):
    name = f"step/{model}/t{threads}/{PRECISIONS[precision]}"
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "bench.json")
        output_of([options.minim, "bench", "--group", "step", "--filter", f"^{name}$",
                   "--threads", str(threads), "--seconds", str(options.seconds), "--json", file])
        with open(file) as f:
            case = next(c for c in json.load(f)["cases"] if c["name"] == name)
    return case["rate"], case["peak_bytes"]["total"]


def compare(options, model, precision):
    """One row: the best thread count of each, then rounds of one after the other."""
    rates, memory, best = {}, {}, {}
    contestants = {"PyTorch": torch_rate, "minim": minim_rate}
    for who, measure in contestants.items():
        found = {n: measure(options, model, precision, n)[0] for n in options.threads}
        best[who] = max(found, key=found.get)
        rates[who] = []
    for _ in range(options.rounds):
        for who, measure in contestants.items():
            rate, memory[who] = measure(options, model, precision, best[who])
            rates[who].append(rate)
    torch, minim = (statistics.median(rates[who]) for who in contestants)
    pairs = sorted(m / t for m, t in zip(rates["minim"], rates["PyTorch"]))
    return [f"{model}, {precision}", f"{torch:.0f} ({best['PyTorch']})",
            f"{minim:.0f} ({best['minim']})", f"{minim / torch:.2f}",
            f"{pairs[0]:.2f} to {pairs[-1]:.2f}", f"{memory['PyTorch'] / 1e6:.0f}",
            f"{memory['minim'] / 1e6:.0f}", f"{memory['minim'] / memory['PyTorch']:.2f}"]


def positive(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text}")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minim", default="build/release/minim", help="the command to compare")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--threads", nargs="+", type=positive, help="thread counts to try",
                        default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="least time for each run")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        model, precision, threads = options.child
        return run_in_child(model, precision, int(threads), options.seconds)
    try:
        import torch
    except ImportError:
        sys.exit("tools/compare_torch.py: this Python has no PyTorch: pip install torch")
    if not os.access(options.minim, os.X_OK):
        sys.exit(f"tools/compare_torch.py: there is no program '{options.minim}': build minim, or "
                 "name it with --minim")
    print(f"PyTorch {torch.__version__}; medians of {options.rounds} rounds, in turns\n")
    header = ["step", "PyTorch tokens/s (threads)", "minim tokens/s (threads)",
              "rate, minim / PyTorch", "least and most of single rounds", "PyTorch MB", "minim MB",
              "bytes, minim / PyTorch"]
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for model in options.models:
        for precision in options.precisions:
            print("| " + " | ".join(compare(options, model, precision)) + " |", flush=True)


if __name__ == "__main__":
    main()
