"""The merge of the C3 linearisation, over classes and the names of those that are not in source."""

from __future__ import annotations

from opscope_tools.index.found import Base


def _equal(first: Base, second: Base) -> bool:
    if isinstance(first, str) or isinstance(second, str):
        return first == second
    return first.same(second)


def merge(lines: list[list[Base]]) -> list[Base]:
    """C3: always the first head that stands in no other tail; where there is none (a class Python would refuse),
    the first head."""
    merged: list[Base] = []
    lines = [line for line in lines if line]
    while lines:
        head = next(
            (line[0] for line in lines if not any(_equal(line[0], n) for other in lines for n in other[1:])),
            lines[0][0],
        )
        merged.append(head)
        lines = [rest for line in lines if (rest := [n for n in line if not _equal(n, head)])]
    return merged
