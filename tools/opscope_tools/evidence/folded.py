"""Stacks as lines `outer;inner;innermost COUNT`, which every flame graph is drawn from: from samplers' own output to those lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

__all__ = ["parsed", "pruned", "shares", "short_frame", "written"]


def parsed(text: str) -> Counter[tuple[str, ...]]:
    """Stacks and how often each was seen. Raises `ValueError` for a line that is none."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        if not line.strip():
            continue
        stack, _, count = line.rpartition(" ")
        if not stack or not count.isdecimal():
            raise ValueError(f"no folded stack: {line[:120]!r}")
        found[tuple(stack.split(";"))] += int(count)
    return found


def written(stacks: Mapping[tuple[str, ...], int]) -> str:
    """The lines of stacks, sorted, so that equal stacks give equal text."""
    return "".join(f"{';'.join(stack)} {count}\n" for stack, count in sorted(stacks.items()))


def short_frame(name: str) -> str:
    """A frame without template arguments and parameter lists, which are longer than any picture."""
    kept, depth = [], 0
    for sign in name.replace("operator<", "operator less").replace("->", "."):
        depth += sign == "<"
        if depth == 0:
            kept.append(sign)
        depth -= sign == ">" and depth > 0
    text = "".join(kept)
    text = re.sub(r"\((?!anonymous|[\w./-]+:\d+\)|[\w.+-]+\.so)[^()]*\)", "", text)
    return re.sub(r"\s+", " ", text).strip()[:160] or name[:160]


def pruned(stacks: Mapping[tuple[str, ...], int], percent: float = 0.1) -> Counter[tuple[str, ...]]:
    """The same samples in fewer stacks: of each stack the outer frames that hold at least so many percent of all, and its innermost."""
    total = sum(stacks.values())
    held: Counter[tuple[str, ...]] = Counter()
    for stack, count in stacks.items():
        for depth in range(1, len(stack)):
            held[stack[:depth]] += count
    found: Counter[tuple[str, ...]] = Counter()
    for stack, count in stacks.items():
        depth = next((at for at in range(1, len(stack)) if held[stack[:at]] * 100 < percent * total), len(stack))
        found[(*stack[: depth - 1], stack[-1])] += count
    return found


def shares(stacks: Mapping[tuple[str, ...], int], wanted: Iterable[tuple[str, str]]) -> Iterator[tuple[str, float]]:
    """For each name and pattern: the part, in percent, of samples with a frame that fits anywhere in the stack."""
    total = sum(stacks.values()) or 1
    for name, pattern in wanted:
        fits = re.compile(pattern)
        held = sum(count for stack, count in stacks.items() if any(fits.search(frame) for frame in stack))
        yield name, round(100 * held / total, 1)
