"""The account of a run: per OpInfo on the terminal, per row of minim in docs/parity.md."""
import collections
import pathlib
import re

from .verdicts import ERRORS

CLASSES = ["documented", "missing", "torch wrong", "ours wrong"]
TITLE = "## PyTorch's own samples"
VIEWS = ["to", "reshape", "permute", "slice", "expand"]
SPELLED = {"transpose": "permute", "squeeze": "reshape", "unsqueeze": "reshape", "flatten": "reshape", "select": "slice",
           "split": "slice", "stack": "cat", "batch_norm_update": "batch_norm", "einsum": "matmul"}


class Entry:
    """What was found for one OpInfo. A sample is a set of values in one dtype and one layout; it counts once
    for each class of its differences."""

    def __init__(self, name):
        self.name, self.samples, self.agreed, self.torch_off = name, 0, 0, 0
        self.counts = collections.Counter()
        self.found = collections.defaultdict(list)  # (class, reason): details
        self.ops = collections.Counter()

    def add(self, label, differences):
        """differences: (class, reason, detail)"""
        self.samples += 1
        self.agreed += not differences
        self.counts.update({kind for kind, _, _ in differences})
        for kind, why in {(kind, why) for kind, why, _ in differences}:
            self.found[kind, why].append(f"{label}: {next(d for k, w, d in differences if (k, w) == (kind, why))}")

    def row(self):
        """The row of minim that it is about: of the ops it calls, the one that computes most."""
        ops = [SPELLED.get(op, op) for op in self.ops]
        ops = [op for op in ops if op in ERRORS] or [op for op in [self.name.split("/")[0].split(".")[-1]] if op in ERRORS]
        return max(ops, key=lambda op: (op not in VIEWS, ERRORS[op], op)) if ops else "copies and fills"


def line(entry, options):
    print(f"{entry.name:44} {entry.samples:6} {entry.agreed:6} " +
          " ".join(f"{entry.counts[c]:6}" for c in CLASSES) + f" {entry.torch_off:6}", flush=True)
    for (kind, why), details in sorted(entry.found.items()):
        if options.verbose or kind == "ours wrong":
            for d in details[:options.details]:
                print(f"    {kind}, {why} ({len(details)}): {d[:500]}")


def heading():
    print(f"{'':44} {'':6} {'':6} {'docu-':>6} {'':6} {'torch':>6} {'ours':>6} {'torch':>6}")
    print(f"{'OpInfo':44} {'sample':>6} {'agreed':>6} {'mented':>6} {'missng':>6} {'wrong':>6} {'wrong':>6} {'off':>6}")


def numbers(entries):
    return " | ".join(str(n) for n in [sum(e.samples for e in entries), sum(e.agreed for e in entries),
                                       *(sum(e.counts[c] for e in entries) for c in CLASSES),
                                       sum(e.torch_off for e in entries)])


def section(entries, introduction):
    text = [TITLE, "", introduction, "", "| row | OpInfos | samples | agreed | documented | missing | torch wrong | ours wrong "
            "| torch off |", "|---|---|---|---|---|---|---|---|---|"]
    rows = collections.defaultdict(list)
    for e in entries:
        rows[e.row()].append(e)
    order = [*[op for op in ERRORS if op in rows], *sorted(set(rows) - set(ERRORS))]
    for row in order:
        names = ", ".join(e.name.replace("nn.functional.", "") for e in rows[row])
        text.append(f"| {row} | {names} | {numbers(rows[row])} |")
    text += [f"| all | {len(entries)} | {numbers(entries)} |", "", "| class | difference | OpInfos, samples |", "|---|---|---|"]
    found = collections.defaultdict(list)
    for e in entries:
        for key, details in e.found.items():
            found[key].append((e.name.replace("nn.functional.", ""), len(details)))
    for (kind, why), where in sorted(found.items(), key=lambda item: (CLASSES.index(item[0][0]), item[0][1])):
        text.append(f"| {kind} | {why} | {', '.join(f'{name} {n}' for name, n in where)} |")
    return "\n".join(text) + "\n"


def write(path, made):
    """Puts the section in its place in the page, or at its end."""
    path = pathlib.Path(path)
    page = path.read_text() if path.exists() else ""
    found = re.search(rf"^{re.escape(TITLE)}\n.*?(?=^## |\Z)", page, re.M | re.S)
    if found:
        page = page[:found.start()] + made + ("\n" if page[found.end():] else "") + page[found.end():]
    else:
        page = page.rstrip("\n") + "\n\n" + made
    path.write_text(page)
