"""Tests as texts: the form in which one is kept, its opposite, and the condition that several ways amount to."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FLIP = {"<": ">=", "<=": ">", "!=": "==", "is not": "is", "not in": "in"}
_OPERATOR = re.compile(r" (<=|>=|==|!=|<|>|is not|is|not in|in) ")
#: of several tests: the opposite is not that of one of them
_JOINED = re.compile(r"\b(?:and|or|if)\b|&&|\|\||\?")


def canonical(text: str) -> tuple[str, bool]:
    """A test without braces, in the one of its two forms that is kept, and whether that is the asked one."""
    plain = text.replace("{", "").replace("}", "")
    if plain.startswith("not ") and not _JOINED.search(
        _outside(plain)
    ):  # else it is the opposite of the first part alone
        inner, positive = canonical(plain[4:])
        return inner, not positive
    found = _compared(plain)
    if found and found[1] in _FLIP:
        return f"{found[0]} {_FLIP[found[1]]} {found[2]}", False
    return plain, True


def negated(text: str) -> str:
    """The opposite of a test, for reading."""
    found = _compared(text)
    if found:
        opposite = {**_FLIP, **{v: k for k, v in _FLIP.items()}}
        return f"{found[0]} {opposite[found[1]]} {found[2]}"
    return f"not {text}" if re.match(r"^[\w.]+(\([^()]*\))?$", text) else f"not ({text})"


def _compared(text: str) -> tuple[str, str, str] | None:
    """Both sides of a single comparison and its operator; None of a chain of them, of several tests, and of what compares nothing."""
    found = [] if _JOINED.search(text) else list(_OPERATOR.finditer(_outside(text)))
    if len(found) != 1 or text.startswith("not "):
        return None
    return text[: found[0].start()], found[0][1], text[found[0].end() :]


def _outside(text: str) -> str:
    """A text of the same length in which what stands in brackets is blotted out."""
    made, depth = [], 0
    for letter in text:
        depth -= letter in ")]"
        made.append("_" if depth > 0 else letter)
        depth += letter in "(["
    return "".join(made)


def when_text(trails: Sequence[Sequence[tuple[str, bool]]]) -> str:
    """Trails as one readable condition; an empty one among them means always."""
    if not trails or any(not trail for trail in trails):
        return ""
    merged = _merge(list(dict.fromkeys(tuple(dict.fromkeys(trail)) for trail in trails)))
    if any(not trail for trail in merged):
        return ""
    shown = []
    for trail in merged:
        tests = _tightest([text if yes else negated(text) for text, yes in trail])
        shown.append(
            " and ".join(
                f"({t})" if len(tests) > 1 and re.search(r"\bor\b|\|\|", t) and not _WHOLE.match(t) else t
                for t in tests
            )
        )
    return " or ".join(f"({s})" if len(shown) > 1 and " and " in s else s for s in shown)


#: a test that stands in parentheses, or is a call
_WHOLE = re.compile(r"^(not )?[\w.]*\([^()]*\)$")
_BOUND = re.compile(r"^(.+) (<=|<|>=|>) (-?\d+)$")


def _tightest(tests: list[str]) -> list[str]:
    """Of several constant bounds on one side of one expression, only the tightest."""
    kept: dict[tuple[str, str], tuple[int, str]] = {}
    for test in tests:
        found = _BOUND.match(test)
        if found is None:
            kept[test, ""] = (0, test)
            continue
        side, bound = found[2][0], int(found[3])
        # `< 8` and `<= 7`, `> 7` and `>= 8` bound integers alike
        limit = bound - (found[2] == "<") if side == "<" else bound + (found[2] == ">")
        old = kept.get((found[1], side))
        if old is None or (limit < old[0] if side == "<" else limit > old[0]):
            kept[found[1], side] = (limit, test)
    return [test for _, test in kept.values()]


def _merge(trails: list[tuple[tuple[str, bool], ...]]) -> list[tuple[tuple[str, bool], ...]]:
    """Trails that differ in the answer to one question only need not mention it."""
    changed = True
    while changed:
        changed = False
        for i, first in enumerate(trails):
            for j in range(i + 1, len(trails)):
                difference = set(first) ^ set(trails[j])
                if len(difference) == 2 and len({text for text, _ in difference}) == 1:
                    kept = tuple(item for item in first if item not in difference)
                    trails = [t for k, t in enumerate(trails) if k not in (i, j)] + [kept]
                    changed = True
                    break
            if changed:
                break
    return trails


__all__ = ["canonical", "negated", "when_text"]
