"""Points at which formulas are compared: whole numbers for every variable, such that a document's conditions hold.

A search, since conditions are arbitrary comparisons: from the configuration's values it repairs one broken condition
after another, then moves each variable as far as the conditions let it. The same document always gives the same points.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from opscope_schemas.analysis import Variable
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import evaluate, holds, variables

__all__ = ["Probes", "points"]

Point = dict[str, int]
_REPAIRS, _STARTS, _MOVES, _FOLLOWS = 300, 6, 6, 4
#: variables are drawn below these, one after another, so that short and long branches of min, max and // are both seen
_SCALES = (8, 64, 1000, 20_000)
#: of the probes: far out, what is small, and what no formula's number exceeds
_FAR, _SMALL, _LARGEST = (2**20, 2**40, 2**64), (2, 5, 8), 2**128


def points(known: Sequence[Variable], conditions: Sequence[str], count: int = 8) -> list[Point]:
    """Up to `count` points at which every condition holds; none where the search found none."""
    search = _Search(known, conditions)
    found: list[Point] = []
    for number in range(count):
        start = search.start(random.Random(number), own=number == 0)
        if start is None:
            break
        found.append(search.moved(start, random.Random(1000 + number), _SCALES[number % len(_SCALES)]))
    return found


class Probes:
    """Further points for two formulas that algebra does not show to be equal: where either may turn, small and far out."""

    def __init__(self, known: Sequence[Variable], conditions: Sequence[str], found: Sequence[Point]) -> None:
        self._search = _Search(known, conditions)
        self._found = found
        self._moved: dict[tuple[int, str, int], Point | None] = {}
        self._smallest: Point | None = None

    def around(self, turns: Iterable[int], text: str) -> Iterator[Point]:
        """Points at which one variable of `text` is at or beside a number of `turns` or another variable, or far out."""
        if not self._found:
            return
        if self._smallest is None:
            self._smallest = self._search.moved(self._found[0], random.Random(0), 2)
        bases = (self._found[0], self._smallest)
        yield self._smallest
        rng = random.Random(text)  # of the formulas' own text: nobody can know them before
        for scale in _FAR:
            yield self._search.moved(self._found[0], rng, scale)
        numbers = {turn + step for turn in {*turns, *_SMALL} for step in (-1, 0, 1)}
        for index, base in enumerate(bases):
            names = sorted(variables(text) & base.keys())
            beside = {base[name] + step for name in names for step in (-1, 0, 1)}
            for name in names:
                unit = max(base[name], 1)  # multiples of it keep what divides it
                multiples = {number // unit * unit + step for number in {*turns, *_FAR} for step in (0, unit)}
                for value in sorted(numbers | beside | multiples):
                    if 0 < value <= _LARGEST and (point := self._at(index, base, name, value)) is not None:
                        yield point

    def _at(self, index: int, base: Point, name: str, value: int) -> Point | None:
        key = (index, name, value)
        if key not in self._moved:
            self._moved[key] = self._search.at(base, name, value)
        return self._moved[key]


class _Search:
    def __init__(self, known: Sequence[Variable], conditions: Sequence[str]) -> None:
        self._derived = [v for v in known if v.kind == "derived" and v.definition]
        derived = {v.name for v in self._derived}
        self._fixed = {v.name: math.ceil(v.default) for v in known if v.kind == "fixed" and v.default is not None}
        self._free = [v for v in known if v.name not in derived and v.name not in self._fixed]
        self._conditions = list(dict.fromkeys(conditions))
        self._touching = {v.name: self._that_change_with(v.name, derived) for v in self._free}
        self._numbers = {c: [int(n) for n in re.findall(r"\b\d+\b", c)] for c in self._conditions}

    def _that_change_with(self, name: str, derived: set[str]) -> list[str]:
        return [c for c in self._conditions if variables(c) & ({name} | derived)]

    def start(self, rng: random.Random, own: bool) -> Point | None:
        """A point at which all conditions hold, near the configuration's `own` values or anywhere."""
        for attempt in range(_STARTS):
            near = (attempt % 2 == 0) == own
            free = {v.name: self._first(v, rng, near) for v in self._free}
            for _ in range(_REPAIRS):
                broken = self._broken(self._conditions, free)
                if not broken:
                    return self._complete(free)
                self._repair(free, rng.choice(broken), rng)
        return None

    def _first(self, variable: Variable, rng: random.Random, near: bool) -> int:
        if near and variable.default is not None and variable.default > 0:
            return math.ceil(variable.default)
        return 1 << rng.randint(1, 8)

    def _repair(self, free: Point, condition: str, rng: random.Random, keep: str = "") -> None:
        """Change one variable of `condition`, not `keep`, to what leaves the fewest conditions broken."""
        names = [name for name in self._touching if condition in self._touching[name] and name != keep]
        if not names:
            return
        name = rng.choice(names)
        near = self._touching[name]
        tried = [free[name], *self._candidates(free, condition, rng)]
        free[name] = min(tried, key=lambda value: (len(self._broken(near, {**free, name: value})), rng.random()))

    def _candidates(self, free: Point, condition: str, rng: random.Random) -> list[int]:
        others = [free[name] for name in variables(condition) if name in free]
        seeds = [*others, *self._numbers[condition]]
        made = {value + step for value in seeds for step in (-1, 0, 1)}
        made |= {value * factor for value in seeds for factor in (2, 3, 4)} | {value // 2 for value in seeds}
        made |= {a * b for a in others for b in others} | {1 << rng.randint(0, 12) for _ in range(4)}
        made |= {a // b for a in others for b in others if b}
        return sorted(value for value in made if value >= 0)

    def moved(self, start: Point, rng: random.Random, scale: int) -> Point:
        """`start` with every variable drawn anew, as far as the conditions allow."""
        free = {v.name: start[v.name] for v in self._free}
        order = list(free)
        for _ in range(2):
            rng.shuffle(order)
            for name in order:
                self._move(free, name, rng, scale)
        return self._complete(free) or start

    def at(self, start: Point, name: str, value: int) -> Point | None:
        """`start` with `name` at `value`, others following as far as conditions ask; None where they do not allow it."""
        free = {v.name: start[v.name] for v in self._free}
        if name not in free:
            return None
        free[name] = value
        return self._complete(free) if self._mended(free, name, random.Random(value)) else None

    def _move(self, free: Point, name: str, rng: random.Random, scale: int) -> None:
        top = min(scale, 17) if name in ("w_bytes", "a_bytes", "kv_bytes") else scale
        for attempt in range(_MOVES):
            value = rng.randint(1, top)
            if attempt % 2:  # multiples keep what divides it
                value = free[name] * rng.randint(2, 5) if free[name] < scale else max(1, free[name] // 2)
            trial = {**free, name: value}
            if self._mended(trial, name, rng):
                free.update(trial)
                return

    def _mended(self, free: Point, name: str, rng: random.Random) -> bool:
        """Let other variables follow what `name` was changed to, as an equality asks for."""
        broken = self._broken(self._touching[name], free)
        for _ in range(_FOLLOWS):
            if not broken:
                break
            self._repair(free, rng.choice(broken), rng, keep=name)
            broken = self._broken(self._conditions, free)
        return not broken and self._complete(free) is not None

    def _broken(self, conditions: Iterable[str], free: Mapping[str, int]) -> list[str]:
        values = self._complete(free)
        if values is None:
            return list(conditions) or ["derived"]
        return [condition for condition in conditions if not _true(condition, values)]

    def _complete(self, free: Mapping[str, int]) -> Point | None:
        """With what is fixed and what is derived; None where a derived value is no whole number."""
        values: Point = {**self._fixed, **free}
        pending = list(self._derived)
        while pending:
            ready = [v for v in pending if variables(v.definition) <= values.keys()]
            if not ready:
                return None
            for variable in ready:
                try:
                    values[variable.name] = evaluate(variable.definition, values)
                except ValuesError:
                    return None
            pending = [v for v in pending if v not in ready]
        return values


def _true(condition: str, values: Mapping[str, int]) -> bool:
    try:
        return holds(condition, values)
    except ValuesError:
        return False
