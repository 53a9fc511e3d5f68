"""The C3 linearisation, over classes and the names of those that are not in source: each ancestor is ordered once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from opscope_tools.source.python.found import Base, ClassSymbol, Identity
from opscope_tools.source.python.outside import standard_order

_GENERIC = "typing.Generic"


def linearised(
    symbol: ClassSymbol, bases_of: Callable[[ClassSymbol], list[Base]], known: dict[Identity, list[Base]]
) -> list[Base]:
    """The order of `symbol`: definitions, and names for what is not in source, `object` last. `known` holds what was
    ordered before and takes what is ordered now, unless a class derives from itself, which Python would refuse."""
    ordered: dict[Identity, list[Base]] = {}
    waiting: dict[Identity, list[Base]] = {}  # the bases of classes whose bases are not all ordered
    pending = [symbol]
    circular = False
    while pending:
        top = pending[-1]
        if top.identity in ordered or top.identity in known:
            pending.pop()
        elif top.identity not in waiting:
            bases = waiting[top.identity] = bases_of(top)
            above = [base for base in bases if isinstance(base, ClassSymbol)]
            circular = circular or any(base.identity in waiting for base in above)
            pending += [base for base in reversed(above) if base.identity not in waiting]
        else:
            lines = [
                _line(base, known.get(identity(base)) or ordered.get(identity(base))) for base in waiting[top.identity]
            ]
            ordered[top.identity] = [top, *_merged(waiting.pop(top.identity), lines), "object"]
            pending.pop()
    found = known.get(symbol.identity) or ordered[symbol.identity]
    if not circular:
        known.update(ordered)
    return found


def _line(base: Base, order: list[Base] | None) -> list[Base]:
    """The order of a base; a class that is still waiting is its own ancestor and goes no further."""
    return list(standard_order(base)) if isinstance(base, str) else order or [base]


def _merged(bases: list[Base], lines: list[list[Base]]) -> list[Base]:
    """The orders of the bases as one, without `object`."""
    if _GENERIC in bases:
        lines = [
            [name for name in line if name != _GENERIC or base == _GENERIC] if isinstance(base, str) else line
            for base, line in zip(bases, lines, strict=True)
        ]
    lines = [[entry for entry in line or [base] if entry != "object"] for base, line in zip(bases, lines, strict=True)]
    if len(lines) == 1:
        return lines[0]
    return merge([*lines, [line[0] for line in lines if line]])


def identity(base: Base) -> Identity:
    """What two bases that are the same share; a name is never the same as a definition."""
    return base if isinstance(base, str) else base.identity


def merge(lines: list[list[Base]]) -> list[Base]:
    """C3: always the first head that stands in no other tail; where there is none (a class Python would refuse),
    the first head. Each entry is passed once, however many lines there are."""
    merge = _Merge([line for line in lines if line])
    merged: list[Base] = []
    while (head := merge.next()) is not None:
        merged.append(head)
        merge.take(identity(head))
    return merged


class _Merge:
    """The lines with a mark where each of them begins now."""

    def __init__(self, lines: list[list[Base]]) -> None:
        self._lines = lines
        self._keys = [[identity(base) for base in line] for line in lines]
        self._at = [0] * len(lines)
        self._first = 0  # lines before it are used up
        self._taken: set[Identity] = set()
        #: in how many places behind a head a class stands, and which lines it heads
        self._behind = Counter(key for keys in self._keys for key in keys[1:])
        self._headed: dict[Identity, list[int]] = {}
        for number, keys in enumerate(self._keys):
            self._headed.setdefault(keys[0], []).append(number)

    def next(self) -> Base | None:
        """The class that comes next; None where all are taken."""
        while self._first < len(self._lines) and self._at[self._first] == len(self._lines[self._first]):
            self._first += 1
        fallback: Base | None = None
        for number in range(self._first, len(self._lines)):
            at = self._at[number]
            if at == len(self._lines[number]):
                continue
            head = self._lines[number][at]
            if not self._behind[self._keys[number][at]]:
                return head
            fallback = fallback or head
        return fallback

    def take(self, taken: Identity) -> None:
        """Leave a class out of every line."""
        self._taken.add(taken)
        for number in self._headed.pop(taken, []):
            keys = self._keys[number]
            at = self._at[number] + 1
            while at < len(keys) and keys[at] in self._taken:
                at += 1
            self._at[number] = at
            if at < len(keys):
                self._behind[keys[at]] -= 1
                self._headed.setdefault(keys[at], []).append(number)
