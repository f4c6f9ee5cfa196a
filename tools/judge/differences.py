"""Every difference that is known: what it is, and why."""
import re

RULES = []


def classify(entry, case, problem):
    """(class, reason) of a difference; without a rule it is "ours wrong"."""
    for kind, names, kinds, holds, why in RULES:
        if re.fullmatch(names, entry) and problem.kind in kinds.split() and holds(case, problem):
            return kind, why
    return "ours wrong", problem.kind
