"""Which lines of a call nesting stay where it has to be shorter: the map, its pages and reports shorten it alike.

What the entry itself does comes first, with the way to each stage of the engine; then what lies one call deeper, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

from opscope_schemas.repo_map import NestLine

__all__ = ["shortened"]


def shortened(lines: Sequence[NestLine], most: int) -> list[NestLine]:
    """At most `most` of the lines, in their order, each with the lines that it stands under."""
    if len(lines) <= most:
        return list(lines)
    above = _parents(lines)
    kept: set[int] = set()
    calls = [number for number, line in enumerate(lines) if line.kind in {"call", "choice", "exit"}]
    for number in [*_first_of_stages(lines), *sorted(calls, key=lambda n: (lines[n].calls, n))]:
        way = _way(lines, number, above)
        new = [one for one in way if one not in kept]
        if len(kept) + len(new) <= most:
            kept.update(new)
    return [lines[number] for number in sorted(kept)]


def _first_of_stages(lines: Sequence[NestLine]) -> list[int]:
    """The nearest call of each stage."""
    first: dict[str, int] = {}
    for number, line in enumerate(lines):
        if line.stage and (line.stage not in first or line.calls < lines[first[line.stage]].calls):
            first[line.stage] = number
    return sorted(first.values())


def _way(lines: Sequence[NestLine], number: int, above: dict[int, int]) -> list[int]:
    """A line with those that it stands under, and the `if` of each `elif` and `else` among them."""
    way = [number]
    while True:
        last = way[-1]
        over: int | None = above.get(last)
        if lines[last].code.startswith(("elif ", "else:")):
            over = next((n for n in range(last - 1, -1, -1) if lines[n].depth <= lines[last].depth), None)
        if over is None:
            return way
        way.append(over)


def _parents(lines: Sequence[NestLine]) -> dict[int, int]:
    """Line -> the line that it stands under."""
    above: dict[int, int] = {}
    open_: list[int] = []
    for number, line in enumerate(lines):
        while open_ and lines[open_[-1]].depth >= line.depth:
            open_.pop()
        if open_:
            above[number] = open_[-1]
        open_.append(number)
    return above
