#!/usr/bin/env python3
"""PyTorch's own samples of its ops (OpInfo), run through minim, forward and backward."""
import argparse
import collections
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import torch  # noqa: E402

from judge import calls, differences, samples, verdicts  # noqa: E402
from judge.entries import ENTRIES  # noqa: E402

DTYPES = {name: dtype for dtype, name in calls.NAMES.items()}
FLOATING = ["f64", "f32", "f16", "bf16"]
CLASSES = ["documented", "missing", "torch wrong", "ours wrong"]


class Entry:
    """What was found for one OpInfo."""

    def __init__(self, name):
        self.name, self.samples, self.agreed, self.torch_off = name, 0, 0, 0
        self.counts = collections.Counter()
        self.found = collections.defaultdict(list)  # (class, reason) -> details
        self.rows = collections.Counter()

    def add(self, label, verdicts_of_sample):
        """A sample is one set of values in one dtype and layout."""
        self.samples += 1
        if not verdicts_of_sample:
            self.agreed += 1
        for kind in {k for k, _, _ in verdicts_of_sample}:
            self.counts[kind] += 1
        for kind, why, detail in verdicts_of_sample:
            self.found[kind, why].append(f"{label}: {detail}")


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
    entry, requests, tensors, pending = Entry(name), [], {}, []
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
            narrow = case.narrow() if dtype == torch.float64 else None
            for outcome in (theirs, exact, noise, narrow):
                if outcome:
                    outcome.results = outcome.results[:len(out)]
            key = f"{len(pending)}"
            for k, t in enumerate(case.tensors):
                tensors[f"{key}/x{k}"] = t
            for k, c in enumerate(case.cotangents):
                tensors[f"{key}/c{k}"] = c
            entry.rows.update(op for op, *_ in m.steps)
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


def show(entry, options):
    print(f"{entry.name:44} {entry.samples:6} {entry.agreed:6} " +
          " ".join(f"{entry.counts[c]:6}" for c in CLASSES) + f" {entry.torch_off:6}", flush=True)
    for (kind, why), details in sorted(entry.found.items()):
        if options.verbose or kind == "ours wrong":
            for d in details[:options.details]:
                print(f"    {kind}, {why} ({len(details)}): {d[:400]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="OpInfos; all that minim has by default")
    parser.add_argument("--program", default=ROOT / "build/release/minim_judge")
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--reference", action="store_true", help="also the longer list, reference_inputs")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--details", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.time()
    entries = []
    for name in options.names or sorted(ENTRIES):
        entries.append(run_entry(name, options))
        show(entries[-1], options)
    print(f"{len(entries)} entries, {sum(e.samples for e in entries)} samples, {time.time() - start:.0f} s")
    return any(e.counts["ours wrong"] for e in entries)


if __name__ == "__main__":
    sys.exit(main())
