"""In how many turns of the loops around a statement the tests on the way to it hold, where they ask for the loops' counters.

Exact or not told: turns of constant bounds are gone through one by one; of others, a comparison of the counter leaves a stretch of
turns, and a remainder of it by a constant every so many-th.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from opscope_tools.kernels.values.expressions import (
    COMPARISONS,
    Expression,
    Operation,
    Prefix,
    Quantity,
    Size,
    call,
    ceil_div,
    negative,
    render,
    settled,
)  # fmt: skip
from opscope_tools.kernels.values.notation import evaluate, names_of, of_run, parts

#: turns that are gone through one by one, and terms that one count is a sum of
_MOST_TURNS, _MOST_TERMS = 65_536, 16
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

#: turns from the first to before the second
Stretch: TypeAlias = tuple[Size, Size]


@dataclass(frozen=True)
class Counter:
    """A loop's counter: `start`, and `step` more in each of `trips` turns."""

    name: str
    start: Size
    step: Size
    trips: Size
    #: counters of loops around it that its bounds ask for: `trips` is its mean
    asks: frozenset[str] = frozenset()

    @property
    def values(self) -> range | None:
        """All values that it takes, of constant bounds."""
        trips = evaluate(render(self.trips), {})
        if isinstance(self.start, int) and isinstance(self.step, int) and trips is not None and self.step:
            return range(self.start, self.start + self.step * int(trips), self.step)
        return None


@dataclass(frozen=True)
class Turns:
    """The loops around a statement, outermost first, and the tests of their counters that lead to it."""

    loops: tuple[Counter, ...] = ()
    tests: tuple[Expression, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The counters that a test may ask for."""
        return frozenset(loop.name for loop in self.loops) - {""}

    def within(self, loop: Counter) -> Turns:
        """In one more loop."""
        return replace(self, loops=(*self.loops, loop))

    def where(self, test: Expression, holds: bool = True) -> Turns:
        """In the turns in which a test holds, or in the others."""
        return replace(self, tests=(*self.tests, test if holds else opposite(test)))

    def counts(self) -> tuple[Size, ...] | None:
        """Numbers whose product is how often the statement runs; None where it is not told."""
        asked = [frozenset(names_of(test)) & self.names for test in self.tests]
        every = frozenset().union(*asked)
        named = [loop.name for loop in self.loops]
        if any(loop.asks & every for loop in self.loops) or any(named.count(name) > 1 for name in every):
            return None
        together = frozenset().union(*(names for names in asked if len(names) > 1))
        made: list[Size | None] = []
        if together:
            joint = [test for test, names in zip(self.tests, asked, strict=True) if names & together]
            made.append(_one_by_one([loop for loop in self.loops if loop.name in together], joint))
        for loop in self.loops:
            if loop.name not in together:
                own = [test for test, names in zip(self.tests, asked, strict=True) if loop.name in names]
                made.append(_met(loop, own) if own else loop.trips)
        told = tuple(size for size in made if size is not None)
        return told if len(told) == len(made) else None


def as_test(size: Expression) -> Expression:
    """What holds where a size that is asked for as a truth does."""
    match size:
        case Operation(operator=symbol) if symbol in COMPARISONS or symbol in {"and", "or"}:
            return size
        case Prefix(operator="not"):
            return size
    return Operation("!=", size, 0)


def opposite(test: Expression) -> Expression:
    """A test that holds where another does not."""
    match test:
        case Operation(operator=symbol, left=left, right=right) if symbol in _OPPOSITE:
            return Operation(_OPPOSITE[symbol], left, right)
        case Prefix(operator="not", operand=Expression() as inner):
            return inner
    return Prefix("not", test)


def holds(test: Size, values: Mapping[str, int]) -> bool | None:
    """Whether a test holds where its quantities have these values; None where that is not told."""
    match test:
        case bool():
            return test
        case Operation(operator="and" | "or" as symbol, left=left, right=right):
            sides = [holds(side, values) for side in (left, right)]
            return None if None in sides else all(sides) if symbol == "and" else any(sides)
        case Prefix(operator="not", operand=inner):
            answer = holds(inner, values)
            return None if answer is None else not answer
        case Operation(operator=symbol, left=left, right=right) if symbol in COMPARISONS:
            numbers = [evaluate(render(side), values) for side in (left, right)]
            return None if None in numbers else COMPARISONS[symbol](*numbers)
    return None


def _met(loop: Counter, tests: list[Expression]) -> Size | None:
    """In how many turns of one loop all tests hold."""
    found: Size | None = _one_by_one([loop], tests)
    if found is None:
        found = _every_so_many(loop, tests)
    if found is None:
        found = _in_a_stretch(loop, tests)
    if found is None and len(tests) == 1:  # all turns but those in which it does not hold
        stretch = _in_a_stretch(loop, [opposite(tests[0])])
        found = None if stretch is None else settled("-", loop.trips, stretch)
    return found


def _one_by_one(loops: list[Counter], tests: list[Expression]) -> int | None:
    """Of loops of constant bounds."""
    values = [loop.values for loop in loops]
    told = [found for found in values if found is not None]
    if len(told) < len(values) or math.prod(map(len, told)) > _MOST_TURNS:
        return None
    names = [loop.name for loop in loops]
    return _sum(
        [holds(test, dict(zip(names, turn, strict=True))) for test in tests] for turn in itertools.product(*told)
    )


def _sum(turns: Iterable[list[bool | None]]) -> int | None:
    answers = list(turns)
    return None if any(None in turn for turn in answers) else sum(all(turn) for turn in answers)


def _every_so_many(loop: Counter, tests: list[Expression]) -> Size | None:
    """Of tests that ask for remainders of the counter by constants alone: as often as each turn of the first period comes again."""
    remainders = {one for test in tests for one in parts(test) if isinstance(one, Operation) and one.operator == "%"}
    moduli = [one.right for one in remainders if isinstance(one.right, int) and one.right > 0]
    bare = any(_asks_outside(test, loop.name) for test in tests)
    if (
        bare
        or not moduli
        or len(moduli) < len(remainders)
        or not isinstance(loop.start, int)
        or not isinstance(loop.step, int)
    ):
        return None
    period = math.lcm(*moduli)
    if period > _MOST_TURNS:
        return None
    first = []
    for turn in range(period):
        answers = [holds(test, {loop.name: loop.start + turn * loop.step}) for test in tests]
        if None in answers:
            return None
        first += [turn] * all(answers)
    rest = [turn for turn in range(period) if turn not in first]
    few = min(first, rest, key=len)
    if len(few) > _MOST_TERMS:
        return None
    total: Size = 0
    for turn in few:
        total = settled("+", total, ceil_div(settled("-", loop.trips, turn), period))
    return total if few is first else settled("-", loop.trips, total)


def _asks_outside(size: Size, name: str) -> bool:
    """Whether an expression asks for a counter otherwise than for a remainder of it."""
    match size:
        case Quantity(name=own):
            return own == name
        case Operation(operator="%"):
            return False
        case Operation(left=left, right=right):
            return _asks_outside(left, name) or _asks_outside(right, name)
        case Prefix(operand=inner):
            return _asks_outside(inner, name)
        case Expression():
            return name in names_of(size)
    return False


def _in_a_stretch(loop: Counter, tests: list[Expression]) -> Size | None:
    """Of comparisons that are all met from some turn on, or up to one."""
    lows: list[Size] = []
    highs: list[Size] = []
    for test in tests:
        stretch = _stretch(loop, test)
        if stretch is None:
            return None
        lows += stretch[0]
        highs += stretch[1]
    low = _extreme("max", [0, *lows])
    length = settled("-", _extreme("min", [loop.trips, *highs]), low)
    bounded = lows or any(not isinstance(high, int) or high < 0 for high in highs)
    return _extreme("max", [length, 0]) if bounded else length


def _stretch(loop: Counter, test: Size) -> tuple[list[Size], list[Size]] | None:
    """From which turns on a comparison holds, and before which."""
    match test:
        case Operation(operator="and", left=left, right=right):
            one, other = _stretch(loop, left), _stretch(loop, right)
            return None if one is None or other is None else (one[0] + other[0], one[1] + other[1])
        case Operation(operator="<" | "<=" | ">" | ">=" | "==" as symbol, left=left, right=right):
            return _compared(loop, symbol, left, right)
    return None


def _compared(loop: Counter, symbol: str, left: Size, right: Size) -> tuple[list[Size], list[Size]] | None:
    """As `_stretch`, of one comparison of whole numbers."""
    one, other = _linear(left, loop.name), _linear(right, loop.name)
    if one is None or other is None:
        return None
    if one[0] == 0:
        one, other, symbol = other, one, _TURNED[symbol]
    if other[0] != 0:
        return None
    bound = settled("-", settled("-", other[1], one[1]), _times(one[0], loop.start))
    factor = _without_sign(one[0])
    each = settled("*", factor, _without_sign(loop.step))
    if _below_none(one[0]) != _below_none(loop.step):
        bound, symbol = negative(bound), _TURNED[symbol]
    if not _positive(each) or of_run(factor):
        return None
    below, up_to = ceil_div(bound, each), ceil_div(settled("+", bound, 1), each)
    table: Mapping[str, tuple[list[Size], list[Size]]] = {
        "<": ([], [below]), "<=": ([], [up_to]), ">=": ([below], []), ">": ([up_to], []), "==": ([below], [up_to]),
    }  # fmt: skip
    return table[symbol]


def _linear(size: Size, name: str) -> tuple[Size, Size] | None:
    """(a, b) of `a * counter + b`; None of what is no such sum, or has a part that is no whole number for certain."""
    match size:
        case int():
            return 0, size
        case Quantity(name=own) if own == name:
            return 1, 0
        case Prefix(operator="-", operand=inner):
            found = _linear(inner, name)
            return None if found is None else (negative(found[0]), negative(found[1]))
        case Operation(operator="+" | "-" | "*" as symbol, left=left, right=right):
            one, other = _linear(left, name), _linear(right, name)
            if one is None or other is None:
                return None
            if symbol != "*":
                return settled(symbol, one[0], other[0]), settled(symbol, one[1], other[1])
            if one[0] != 0 and other[0] != 0:
                return None
            factor = one[1] if one[0] == 0 else other[1]
            of = other if one[0] == 0 else one
            return _times(of[0], factor), _times(of[1], factor)
        case Expression() if name not in names_of(size):
            return 0, size
    return None


def _below_none(size: Size) -> bool:
    return size.operator == "-" if isinstance(size, Prefix) else not isinstance(size, Expression) and size < 0


def _without_sign(size: Size) -> Size:
    return negative(size) if _below_none(size) else size


def _positive(size: Size) -> bool:
    """Whether a size is above none: sizes with a name are, where a launch gives them one."""
    if isinstance(size, Operation):
        return size.operator == "*" and _positive(size.left) and _positive(size.right)
    return isinstance(size, Quantity) or (isinstance(size, int) and size > 0)


def _times(size: Size, factor: Size) -> Size:
    return 0 if 0 in (size, factor) else settled("*", size, factor)


def _extreme(which: str, sizes: list[Size]) -> Size:
    """The largest or smallest of sizes, numbers worked out."""
    choose = max if which == "max" else min
    numbers = [size for size in sizes if isinstance(size, int)]
    others = [size for size in dict.fromkeys(sizes) if not isinstance(size, int)]
    kept: list[Size] = [*others, *([choose(numbers)] if numbers else [])]
    return kept[0] if len(kept) == 1 else call(which, *kept)


__all__ = ["Counter", "Turns", "as_test", "holds", "opposite"]
