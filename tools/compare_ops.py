#!/usr/bin/env python3
"""PyTorch's own samples of its ops (OpInfo), run through minim: results and gradients against PyTorch in f64.

    cmake --build --preset release --target minim_judge
    python3 tools/compare_ops.py                               # all, some minutes
    python3 tools/compare_ops.py softmax var --reference       # two, with the longer list of samples
    python3 tools/compare_ops.py --markdown docs/parity.md     # and write the tables

Needs torch 2.15 with what its OpInfos need (numpy, expecttest); no GPU. Each sample is run in f64, f32, f16,
bf16, i64, i32, u8 and bool, where PyTorch has it, and in five layouts: dense, transposed, stepped (every other
element of a longer buffer, NaN between), expanded along the first and the last axis (f32 and bf16). Exit
status 1 where a difference has no reason in tools/judge/differences.py.

tools/judge/: entries.py, layers.py and shapes.py say which calls of minim a function of PyTorch is; samples.py
evaluates PyTorch; calls.py writes the calls down and runs minim_judge (main.cpp); verdicts.py compares;
differences.py gives reasons; report.py counts.
"""
import argparse
import collections
import concurrent.futures
import itertools
import logging
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
logging.disable(logging.WARNING)  # of torch, that there is no CUDA

import torch  # noqa: E402

from judge import calls, differences, report, samples, verdicts  # noqa: E402
from judge.entries import ENTRIES  # noqa: E402

DTYPES = {name: dtype for dtype, name in calls.NAMES.items()}
INTRODUCTION = """Made by `tools/test --torch`, or `python3 tools/compare_ops.py --markdown docs/parity.md`, with PyTorch {version}:
the samples of {entries} of its {all} OpInfos, those that are calls of minim's rows, alone or a few in a row. A sample is a set
of operands in one dtype (f64, f32, f16, bf16, i64, i32, u8, bool) and one layout (dense, transposed, stepped, expanded). Results
and the gradients of all floating operands are compared with PyTorch's f64 from the same operands: dtype, shape,
every element, NaN and infinities. *agreed*: minim's error is at most PyTorch's own in that dtype, or one rounding after
c * 2^-24 * (|y| + 4 n), whichever is larger; c is the row's, one more for gradients, 2^-53 and c + 8 in f64; n is the largest
change of the element, per 2^-24, in {trials} moves of all operands by relative 2^-24 of random signs; for a gradient |y| counts
with the incoming one. Gradients in 16 bits, for which both read rounded results, are allowed the largest of PyTorch's errors in
the tensor. Several rounded steps in 16 bits count with the dtype's epsilon. *documented*: another result, on purpose.
*missing*: an attribute that minim has not. *torch wrong*: PyTorch's f64 is not right. *ours wrong*: none may be.
*torch off*: of the agreed samples those in which PyTorch's own result in that dtype is further from its f64 than 16 times the bound."""


def recorded(name, case):
    m = calls.Recorder()
    values = [m.operand(t) for t in case.tensors]
    x, args, kwargs = case.arguments(values)
    out = ENTRIES[name](m, x, *args, **kwargs)
    return m, out if isinstance(out, (list, tuple)) else [out]


def cases_of(name, dtype, options):
    """(label, case, layouts)"""
    for i, sample in enumerate(samples.samples(name, dtype, options.reference)):
        yield f"{calls.NAMES[dtype]} #{i}", samples.Case(name, sample, dtype), ["dense", "transposed", "stepped"]
        if dtype in (torch.float32, torch.bfloat16):
            for axis, layout in ((0, "expanded along the first axis"), (-1, "expanded along the last axis")):
                yield f"{calls.NAMES[dtype]} #{i}", samples.Case(name, sample, dtype, axis), [layout]


def run_entry(name, options):
    entry, requests, tensors, pending = report.Entry(name), [], {}, []
    for dtype in [DTYPES[d] for d in options.dtypes]:
        if dtype not in samples.OPS[name].dtypes:
            continue
        for label, case, layouts in cases_of(name, dtype, options):
            if not case.usable():
                continue
            try:
                m, out = recorded(name, case)
            except calls.Outside:
                continue
            except calls.Missing as e:
                entry.add(label, [("missing", str(e), "")])
                continue
            try:
                theirs = case.theirs()
            except (RuntimeError, NotImplementedError, IndexError, ValueError):
                continue  # PyTorch has no kernel for that dtype
            exact = case.wide()
            noise = case.noise(exact)
            narrow = case.narrow() if dtype == torch.float64 else []
            for outcome in (theirs, exact, noise, *narrow):
                outcome.results = outcome.results[:len(out)]
            key = f"{len(pending)}"
            for k, t in enumerate(case.tensors):
                tensors[f"{key}/x{k}"] = t
            for k, c in enumerate(case.cotangents):
                tensors[f"{key}/c{k}"] = c
            entry.ops.update(op for op, *_ in m.steps)
            ids = []
            for layout in layouts:
                index = {id(v): k for k, v in enumerate(m.operands)}
                request = m.request(out, lambda v: f"{key}/x{index[id(v)]}", layout,
                                    lambda v: case.grad[index[id(v)]])
                request["id"] = f"{key}.{layout}"
                request["cotangents"] = [f"{key}/c{k}" if y.is_floating_point() else None
                                         for k, y in enumerate(theirs.results)]
                requests.append(request)
                ids.append((request["id"], f"{label} {layout}"))
            pending.append((case, m, theirs, exact, noise, narrow, ids))
    if requests:
        judge_all(entry, requests, tensors, pending, options)
    return entry


def judge_all(entry, requests, tensors, pending, options):
    with tempfile.TemporaryDirectory() as folder:
        results, refused = calls.run(options.program, folder, requests, tensors)
    by_call = collections.defaultdict(dict)
    for name, t in results.items():
        key, what = name.split("/")
        by_call[key][what] = t
    for case, m, theirs, exact, noise, narrow, ids in pending:
        for key, label in ids:
            if key in refused:
                found, off = [verdicts.Problem("refused", refused[key][0], refused[key][1])], 0
            else:
                found, off = verdicts.judge(case, m.steps, by_call[key], theirs, exact, noise, narrow)
            entry.torch_off += bool(off)
            entry.add(label, [(*differences.classify(entry.name, case, p), f"{p.kind} {p.what} {p.detail}")
                              for p in found])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="OPINFO", help="OpInfos by name; all that are calls of minim by default")
    parser.add_argument("--program", default=ROOT / "build/release/minim_judge", help="default: %(default)s")
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--reference", action="store_true", help="the longer list of samples, with extremal values")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--markdown", metavar="FILE", help="write the section of docs/parity.md")
    parser.add_argument("--verbose", action="store_true", help="show every kind of difference, not only ours wrong")
    parser.add_argument("--details", type=int, default=2, help="how many of each kind (default: %(default)s)")
    options = parser.parse_args()
    unknown = [n for n in options.names if n not in ENTRIES]
    if unknown:
        parser.error(f"no such entry: {', '.join(unknown)}; they are {', '.join(sorted(ENTRIES))}")
    if not pathlib.Path(options.program).exists():
        parser.error(f"{options.program} is not there: cmake --build --preset release --target minim_judge")
    torch.set_num_threads(1)
    start, entries = time.time(), []
    report.heading()
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
        for entry in pool.map(run_entry, options.names or sorted(ENTRIES), itertools.repeat(options)):
            entries.append(entry)
            report.line(entry, options)
    wrong = sum(e.counts["ours wrong"] for e in entries)
    print(f"{len(entries)} OpInfos, {sum(e.samples for e in entries)} samples, {wrong} of them ours wrong; "
          f"{time.time() - start:.0f} s, PyTorch {torch.__version__}")
    if options.markdown:
        report.write(options.markdown, report.section(entries, INTRODUCTION.format(
            version=torch.__version__.split("+")[0], entries=len(entries), all=len(samples.OPS), trials=samples.TRIALS)))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
