"""In which turns of a loop tests of its counter hold: how many these are, which is the first, and which are the others.

A comparison of the counter holds up to a turn or from one on, one of its remainder in turns that come back evenly; of a
counter whose values are known each turn is tried. What is made of these by `and`, `or` and `not` is told exactly or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from math import ceil, lcm
from typing import TypeAlias

from opscope_schemas.formula import Formula

from opscope_tools.kernels.values.expressions import (
    COMPARISONS,
    Call,
    Expression,
    Opaque,
    Operation,
    Prefix,
    Quantity,
    Size,
    call,
    ceil_div,
    combine,
    leaf,
    negative,
    settled,
)  # fmt: skip
from opscope_tools.kernels.values.notation import Counts, exact, holds, names_of, parts, read_size
from opscope_tools.kernels.values.quotients import least, may_be_negative
from opscope_tools.kernels.values.trips import downwards

#: turns that are gone through one by one, and terms that one count is a sum of
MOST_TURNS, _MOST_TERMS = 65_536, 16
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Counter:
    """A loop's counter: `start`, and `step` more in each of `trips` turns, which are never fewer than none."""

    name: str
    start: Size
    step: Size
    trips: Size
    #: counters of loops around it that its bounds ask for: `trips` is its mean
    asks: frozenset[str] = frozenset()
    #: the values that it takes, where they are known but come by no even steps
    listed: tuple[int, ...] | None = None
    #: turns that are made at once, each by a thread of its own, before any of these makes its next
    at_once: Size = 1
    #: blocks that share its turns: each makes the mean of them
    among: Size = 1

    @cached_property
    def values(self) -> Sequence[int] | None:
        """All values that it takes, where they are known."""
        trips = exact(self.trips, {})
        if self.listed is None and isinstance(self.start, int) and isinstance(self.step, int) and trips is not None:
            return range(self.start, self.start + self.step * int(trips), self.step) if self.step else None
        return self.listed

    @property
    def by(self) -> Size:
        """The step, without its sign."""
        return negative(self.step) if downwards(self.step) else self.step

    @property
    def span(self) -> Size | None:
        """How far its bound lies from where it starts: it turns `cdiv(span, step)` times, or not at all."""
        by, trips = self.by, self.trips
        if isinstance(trips, Call) and trips.function == "max" and trips.arguments[1:] == (0,):
            trips = trips.arguments[0]
        if by == 1:
            return trips
        even = isinstance(trips, Call) and trips.function == "cdiv" and trips.arguments[1] == by
        return trips.arguments[0] if even and isinstance(trips, Call) else None


@dataclass(frozen=True)
class Stretch:
    """Turns from the last of `lows` on and before the first of `highs`; of these such as leave one of `rests` by a period."""

    lows: tuple[Size, ...] = ()
    highs: tuple[Size, ...] = ()
    period: int = 1
    rests: tuple[int, ...] = (0,)

    def within(self, other: Stretch) -> Stretch | None:
        """Those that are in both; None where there are none."""
        lows, highs = _ends("max", self.lows + other.lows), _ends("min", self.highs + other.highs)
        if any(_no_less(low, high) for high in highs for low in (0, *lows)):
            return None
        if (period := lcm(self.period, other.period)) == 1:
            return Stretch(lows, highs)
        both = [(self.period, set(self.rests)), (other.period, set(other.rests))]
        rests = tuple(rest for rest in range(period) if all(rest % by in some for by, some in both))
        return Stretch(lows, highs, period, rests) if rests else None

    def of(self, trips: Size) -> Stretch | None:
        """The same of so many turns, without ends that are no less; None where there are none."""
        highs = tuple(high for high in self.highs if not _no_less(high, trips))
        return None if any(_no_less(low, trips) for low in self.lows) else replace(self, highs=highs)

    def count(self, trips: Size) -> Size:
        """How many these are of so many turns."""
        lows, highs = _ends("max", (0, *self.lows)), _ends("min", (*_of_least(trips), *self.highs))
        low, high = _one("max", lows), _one("min", highs)
        if self.period > 1:
            return self._evenly(low, _one("max", _ends("max", (high, low))))
        apart = _more(high, lows[0]) if lows[1:] in ((), (0,)) else None
        length: Size = settled("-", high, low)
        if low == 0:
            length = high
        elif apart is not None and not may_be_negative(apart):
            length = _one("min", _ends("min", (high, apart) if lows[1:] else (apart,)))
        elif isinstance(apart, int):
            length = 0
        return _one("max", _ends("max", (length, 0)))

    def _evenly(self, low: Size, high: Size) -> Size:
        """As `count`, between two turns of which the second is not before the first."""
        others = tuple(rest for rest in range(self.period) if rest not in self.rests)
        fewer = len(others) < len(self.rests)
        total: Size = 0
        for rest in others if fewer else self.rests:
            until, before = (
                settled("//", settled("+", end, self.period - 1 - rest), self.period) for end in (high, low)
            )
            total = settled("+", total, settled("-", until, before))
        return settled("-", settled("-", high, low), total) if fewer else total

    @property
    def first(self) -> Size | None:
        """The first of them, where there are any; None where it is not told."""
        low = _one("max", _ends("max", (0, *self.lows)))
        return low if self.period == 1 else self.rests[0] if low == 0 else None

    @property
    def numbers(self) -> Iterator[int]:
        """Each of them, of known ends."""
        lows, highs = ([end for end in ends if isinstance(end, int)] for ends in (self.lows, self.highs))
        return (turn for turn in range(max((0, *lows)), min(highs)) if turn % self.period in self.rests)

    @property
    def terms(self) -> int:
        """How many terms their count is a sum of."""
        return min(len(self.rests), self.period - len(self.rests) + 1)


#: stretches that have no turn in common
Stretches: TypeAlias = tuple[Stretch, ...]
_ALL = (Stretch(),)


@dataclass(frozen=True)
class Turns:
    """Some turns of a loop, and the others of it."""

    loop: Counter
    met: Stretches = _ALL
    others: Stretches = ()

    @cached_property
    def count(self) -> Size:
        """How many these are."""
        if not self.others:
            return self.loop.trips
        fewer = sum(s.terms for s in self.others) < sum(s.terms for s in self.met)
        total: Size = 0
        for stretch in self.others if fewer else self.met:
            total = settled("+", total, stretch.count(self.loop.trips))
        return settled("-", self.loop.trips, total) if fewer else total

    @property
    def numbers(self) -> list[int] | None:
        """Each of them by its number, where the values of the counter are known; None of others."""
        values = self.loop.values
        if values is None or len(values) > MOST_TURNS:
            return None
        inside = _both(self.met, (Stretch(highs=(len(values),)),))
        known = all(isinstance(end, int) for one in inside for end in one.lows + one.highs)
        return sorted(turn for one in inside for turn in one.numbers) if known else None

    def split(self, test: Size) -> tuple[Turns, Turns] | None:
        """Those of them in which a test holds, and those in which it does not; None where that is not told."""
        if any(isinstance(one, Opaque) for one in parts(test)):  # a number that is not told: it stands for none
            return None
        found = _sides(self.loop, test)
        sides = self._tried(test) if found is None else (_both(self.met, found[0]), _both(self.met, found[1]))
        if sides is None:
            return None
        one, other = (tuple(kept for part in side if (kept := part.of(self.loop.trips))) for side in sides)
        yes, no = Turns(self.loop, one, self.others + other), Turns(self.loop, other, self.others + one)
        constant = isinstance(yes.count, int) and isinstance(no.count, int)
        return (yes, no) if constant or max(yes.terms, no.terms) <= _MOST_TERMS else None

    @property
    def terms(self) -> int:
        """How many terms their count is a sum of."""
        return min(sum(stretch.terms for stretch in some) for some in (self.met, self.others))

    def _tried(self, test: Size) -> tuple[Stretches, Stretches] | None:
        """As `split`, each turn by itself."""
        numbers, values = self.numbers, self.loop.values
        if numbers is None or values is None:
            return None
        answers = {turn: holds(test, {self.loop.name: values[turn]}) for turn in numbers}
        if None in answers.values():
            return None
        yes, no = (_runs(turn for turn in numbers if answers[turn] is side) for side in (True, False))
        return yes, no

    def before(self, turn: Size) -> Turns:
        """Those of them before a turn of the loop."""
        if isinstance(turn, int) and isinstance(self.loop.trips, int) and turn >= self.loop.trips:
            return self
        until, rest = Stretch(highs=(turn,)), Stretch(lows=(turn,))
        return Turns(self.loop, _both(self.met, (until,)), self.others + _both(self.met, (rest,)))

    def up_to(self, some: Turns) -> tuple[Turns, Turns, Turns] | None:
        """All turns of the loop up to the first of some of these, that one, and those of these before it; None where it is not told."""
        if not some.met:
            return Turns(self.loop), some, self
        numbers, stretch = some.numbers, some.met[0]
        first = numbers[0] if numbers else stretch.first if len(some.met) == 1 else None
        if first is None:
            return None
        surely = isinstance(some.count, int) or all(_no_less(high, settled("+", first, 1)) for high in stretch.highs)
        if self.loop.at_once != 1:  # each thread up to its own first: none of them goes on where all that follow leave
            surely = self.loop.listed is None and stretch.period == len(some.met) == 1 and not stretch.highs
        if not surely:  # where there are none of them, the loop ends before the first
            return None
        behind = settled("+", first, self.loop.at_once)
        return Turns(self.loop).before(behind), some.before(behind), self.before(first)


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


def _sides(loop: Counter, test: Size) -> tuple[Stretches, Stretches] | None:
    """Of all turns of a loop those in which a test holds, and the others; None where that is not told."""
    match test:
        case int():
            return (_ALL, ()) if test else ((), _ALL)
        case Prefix(operator="not", operand=inner):
            return _turned(_sides(loop, inner))
        case Operation(operator="or", left=left, right=right):
            return _turned(_sides(loop, Operation("and", Prefix("not", left), Prefix("not", right))))
        case Operation(operator="and", left=left, right=right):
            one, other = _sides(loop, left), _sides(loop, right)
            if one is None or other is None or max(map(len, one + other)) > _MOST_TERMS:
                return None
            return _both(one[0], other[0]), one[1] + _both(one[0], other[1])
        case Operation(operator=">" | ">=" as symbol, left=left, right=right):
            return _sides(loop, Operation("<" if symbol == ">" else "<=", right, left))
        case Operation(operator="!=", left=left, right=right):
            return _turned(_sides(loop, Operation("==", left, right)))
        case Operation(operator="<" | "<=" | "==" as symbol, left=left, right=right) if loop.listed is None:
            line = _line(loop, combine("-", left, right))
            return _compared(line, symbol) if line is not None else _by_remainders(loop, test)
        case Expression():
            return _sides(loop, as_test(test)) if as_test(test) is not test else None
    return None


def _turned(sides: tuple[Stretches, Stretches] | None) -> tuple[Stretches, Stretches] | None:
    return None if sides is None else (sides[1], sides[0])


@dataclass(frozen=True)
class _Line:
    """A size that is `start + each * turn`, both signs turned where it falls instead: `each` is above none."""

    loop: Counter
    start: Formula
    each: Formula
    falls: bool
    counts: Counts = field(compare=False)

    def reaches(self, bound: Formula) -> Size:
        """The first turn in which `each * turn` is no less than a bound, as a number that may be beyond the loop's turns."""
        turn = bound.divided(self.each)
        if turn is not None and (number := turn.constant()) is not None:
            return ceil(number)
        span = self.loop.span if self.each == self.counts.read(self.loop.by) else None
        behind = None if span is None else (self.counts.read(span) - bound).divided(self.each)
        number = None if behind is None else behind.constant()
        if number is not None and number.denominator == 1:  # so many before the end
            before: Size = settled("-", self.loop.trips, int(number))
            return before
        if turn is not None and all(factor.denominator == 1 for factor in turn.terms.values()):
            return _size(turn)
        by, rest = self.each.constant(), bound.terms.get((), 0)
        whole = int(rest / by) if by is not None and rest % by == 0 else 0  # which leaves the quotient
        made: Size = settled("+", ceil_div(_size(bound - self.each * whole), _size(self.each)), whole)
        return made


def _compared(line: _Line, symbol: str) -> tuple[Stretches, Stretches]:
    """Where a size is less than none, no more or just that."""
    none, above = line.reaches(-line.start), line.reaches(-line.start + 1)
    if symbol == "==":
        return _both(_ALL, (Stretch((none,), (above,)),)), _both(_ALL, (Stretch((), (none,)), Stretch((above,))))
    end = above if (symbol == "<=") is not line.falls else none  # `-x < 0` is `x > 0`, the opposite of `x <= 0`
    sides = _both(_ALL, (Stretch((), (end,)),)), (Stretch((end,)),)
    return sides[::-1] if line.falls else sides


def _line(loop: Counter, size: Size) -> _Line | None:
    """How a size goes with the turns; None of what grows unevenly, by what may be none, or is no whole number for certain."""
    if any(
        (isinstance(one, Operation) and one.operator == "/") or float in map(type, vars(one).values())
        for one in parts(size)
    ):
        return None
    counts = Counts()
    made, by = counts.read(size), counts.read(loop.by)
    names = [str(counts.read(one)) for one in (leaf(loop.name), Quantity(loop.name))]
    at = [made.substitute(dict.fromkeys(names, turn)) for turn in range(3)]
    slope = at[1] - at[0]
    if not slope.terms or at[2] - at[1] != slope or loop.name in names_of(str(at[0])) + names_of(str(slope)):
        return None
    down = next(iter(slope.terms.values())) < 0
    rise, start = -slope if down else slope, at[0] + slope * counts.read(loop.start)
    if (least(_size(rise)) or 0) < 1:
        return None
    falls = down is not downwards(loop.step)
    return _Line(loop, -start if falls else start, rise * by, falls, counts)


def _by_remainders(loop: Counter, test: Operation) -> tuple[Stretches, Stretches] | None:
    """Of a comparison that asks for remainders of the counter by constants alone: what holds in the first turns comes again."""
    remainders = [*_remainders(test.left, loop), *_remainders(test.right, loop)]
    told = [one for one in remainders if one is not None]
    if not told or len(told) < len(remainders) or not isinstance(loop.start, int) or not isinstance(loop.step, int):
        return None
    period = lcm(*told)
    if period > MOST_TURNS:
        return None
    answers = [holds(test, {loop.name: loop.start + turn * loop.step}) for turn in range(period)]
    if None in answers:
        return None
    sides = (tuple(turn for turn in range(period) if answers[turn] is side) for side in (True, False))
    yes, no = ((Stretch((), (), period, side),) if side else () for side in sides)
    return yes, no


def _remainders(size: Size, loop: Counter) -> Iterator[int | None]:
    """What a counter is divided by wherever a size asks for a remainder of it; None where it asks otherwise."""
    match size:
        case Operation(operator="%", left=left, right=int(right)) if right > 0 and loop.name in names_of(left):
            plain = all(
                isinstance(p, Quantity) or (isinstance(p, Operation) and p.operator in "+-*") for p in parts(left)
            )
            yield right if plain and _never_negative(left, loop) else None
        case Operation(left=left, right=right):
            yield from _remainders(left, loop)
            yield from _remainders(right, loop)
        case Expression() if loop.name in names_of(size):
            yield None


def _never_negative(size: Size, loop: Counter) -> bool:
    """Whether what is not negative in the first turns of a loop is so in all: remainders of others depend on the language."""
    line = _line(loop, size)
    if line is None:
        return not downwards(loop.step) and not may_be_negative(size)
    rise = line.each.divided(line.counts.read(loop.by))
    if not line.falls or rise is None or loop.span is None:
        return not line.falls
    return not may_be_negative(_size(-line.start - rise * (line.counts.read(loop.span) - 1)))


def _both(some: Iterable[Stretch], others: Stretches) -> Stretches:
    """The turns that are in both."""
    return tuple(both for one, other in product(some, others) if (both := one.within(other)) is not None)


def _runs(turns: Iterable[int]) -> Stretches:
    """Turns by their numbers, those that follow one another together."""
    ends = list[list[int]]()
    for turn in turns:
        if ends and ends[-1][1] == turn:
            ends[-1][1] += 1
        else:
            ends.append([turn, turn + 1])
    return tuple(Stretch((low,), (high,)) for low, high in ends)


def _more(a: Size, b: Size) -> Size:
    """How much more one size is than another."""
    return a - b if isinstance(a, int) and isinstance(b, int) else _more_of_sizes(a, b)


@lru_cache(maxsize=8192)
def _more_of_sizes(a: Size, b: Size) -> Size:
    counts = Counts()
    return _size(counts.read(a) - counts.read(b))


def _no_less(a: Size, b: Size) -> bool:
    """Whether a size is no less than another for certain."""
    return not may_be_negative(_more(a, b))


def _ends(which: str, sizes: Iterable[Size]) -> tuple[Size, ...]:
    """Of sizes those that may be the largest, or the smallest; numbers stand last."""
    kept = list[Size]()
    for size in sorted(dict.fromkeys(sizes), key=lambda size: isinstance(size, int)):
        for place, other in enumerate(kept):
            more, less = (other, size) if which == "max" else (size, other)
            if _no_less(more, less):
                break
            if _no_less(less, more):
                kept[place] = size
                break
        else:
            kept.append(size)
    return tuple(kept)


def _of_least(size: Size) -> tuple[Size, ...]:
    """The sizes of which one is the least."""
    return size.arguments if isinstance(size, Call) and size.function == "min" else (size,)


def _one(which: str, sizes: Sequence[Size]) -> Size:
    return sizes[0] if len(sizes) == 1 else call(which, *sizes)


def _size(formula: Formula) -> Size:
    return read_size(str(formula))


__all__ = ["MOST_TURNS", "Counter", "Stretch", "Turns", "as_test", "opposite"]
