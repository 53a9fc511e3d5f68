"""In which turns of a loop a test on its counter is met: an interval of them, every second of them, or some of a list.

A counter that goes up or down by even steps is `start + step * turn`; a test that compares it with what the loop leaves
alone holds up to a turn, or from it on. One of the counter's rest (`i % 2 == 1`) holds in turns that come back evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import lcm
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.kernels.cuda.names.values import Value, whole
from opscope_tools.kernels.cuda.run.decisions import holds
from opscope_tools.kernels.values.expressions import Operation, Quantity, call, ceil_div, combine, leaf, settled
from opscope_tools.kernels.values.notation import Counts, names_of, parts, read_size

#: turns after which a test that comes back evenly has come back
_LONGEST_PERIOD = 64
_OPPOSITE = {">=": "<", ">": "<=", "!=": "=="}


@dataclass(frozen=True)
class Turns:
    """Turns of a loop. Where `counter` is empty nothing tells them apart."""

    count: Any
    counter: str = ""
    #: of the counter, in the first turn of the whole loop
    start: Any = 0
    #: from turn to turn, with `down` less; None: by no even steps
    step: Any = 1
    down: bool = False
    #: how far the counter's bound lies from its start, while these are all turns of the loop
    span: Any = None
    #: the first of them, where they follow one another
    first: Any = 0
    #: where there are none of them the loop ends before `first`
    sure: bool = True
    #: the values that the counter takes, where all are known
    values: tuple[int, ...] | None = None

    def some(self, count: Any) -> Turns:
        """So many of them, nothing tells which."""
        return Turns(count)

    def listed(self, values: tuple[int, ...]) -> Turns:
        """Those in which the counter has these values."""
        return replace(self, values=values, count=len(values))

    @property
    def first_one(self) -> Turns:
        """The first of them."""
        if self.values is not None:
            return self.listed(self.values[:1])
        return replace(self, count=_least(self.count, 1), span=None)

    def up_to(self, others: Turns) -> tuple[Turns, Turns, Turns] | None:
        """All turns up to the first of some others, that one, and those before it; None where it is not told."""
        if self.values is not None and others.values:
            at = self.values.index(others.values[0])
            return self.listed(self.values[: at + 1]), others.listed(others.values[:1]), self.listed(self.values[:at])
        if others.count == 0:
            return self, others, self
        surely = isinstance(others.count, int) or others.sure
        if others.counter != self.counter or self.first != 0 or not surely:
            return None  # where there may be none, the first is not told
        ended = replace(self, count=_least(settled("+", others.first, 1), self.count), span=None, values=None)
        before = replace(ended, count=_least(others.first, self.count) if others.first else 0)
        return ended, replace(others, count=settled("-", ended.count, before.count)), before


def split(turns: Turns, test: Value, counts: Counts) -> tuple[Turns, Turns] | None:
    """The turns in which a test is met, and the others; None where that is not told."""
    if turns.values is not None:
        answers = {value: holds(test, {turns.counter: value}) for value in turns.values}
        if None not in answers.values():
            sides = (tuple(v for v, met in answers.items() if met is side) for side in (True, False))
            yes, no = (replace(turns.listed(side), step=None) for side in sides)  # they need not follow one another
            return yes, no
    word, *sides_ = test.test or ("!=", test, whole(0))
    if word == "not":
        found = split(turns, sides_[0], counts)
        return None if found is None else (found[1], found[0])
    if word == "or":
        opposite = [Value(side.type, test=("not", side), varies=side.varies) for side in sides_]
        found = split(turns, Value(test.type, test=("and", *opposite), varies=test.varies), counts)
        return None if found is None else (found[1], found[0])
    if word == "and":
        first = split(turns, sides_[0], counts)
        found = None if first is None or not first[0].counter else split(first[0], sides_[1], counts)
        return None if found is None else (found[0], turns.some(settled("-", turns.count, found[0].count)))
    a, b = sides_
    if a.number is None or b.number is None or turns.counter not in {*names_of(a.number), *names_of(b.number)}:
        return None
    if word in _OPPOSITE:
        found = _compared(turns, _OPPOSITE[word], a.number, b.number, counts)
        return None if found is None else (found[1], found[0])
    return _compared(turns, word, a.number, b.number, counts)


def _compared(turns: Turns, operator: str, a: Any, b: Any, counts: Counts) -> tuple[Turns, Turns] | None:
    """Of `<`, `<=` and `==`."""
    line = _line(turns, combine("-", a, b), counts)
    if line is None:
        return _evenly(turns, operator, a, b)
    rise, start, falls = line
    if operator == "==":
        return _at(turns, (-start).divided(rise), counts)
    if falls:  # `-x < 0` is `x > 0`, the opposite of `x <= 0`
        found = _below(turns, rise, -start + (1 if operator == "<" else 0), counts)
        return found[::-1] if found is not None else None
    return _below(turns, rise, -start + int(operator == "<="), counts)


def _line(turns: Turns, size: Any, counts: Counts) -> tuple[Formula, Formula, bool] | None:
    """(rise, start, whether it falls instead) of a size that is `start + rise * turn`, both signs turned where it falls."""
    if turns.step is None:
        return None
    (name,) = counts.read(leaf(turns.counter)).variables()
    made = counts.read(size)
    at = [made.substitute({name: n}) for n in range(3)]
    slope = at[1] - at[0]
    factor = slope.constant()
    if not factor or at[2] - at[1] != slope or turns.counter in names_of(str(at[0])):
        return None
    falls = (factor < 0) is not turns.down
    start = at[0] + slope * counts.read(turns.start)
    return counts.read(turns.step) * Formula.const(abs(factor)), -start if falls else start, falls


def _below(turns: Turns, rise: Formula, bound: Formula, counts: Counts) -> tuple[Turns, Turns] | None:
    """The turns in which `rise * turn` is below a bound, and those in which it is not."""
    if turns.first != 0:
        return None
    n = turns.count
    alike = turns.span is not None and rise == counts.read(turns.step)
    behind = (counts.read(turns.span) - bound).divided(rise) if alike else None
    ahead = behind.constant() if behind is not None else None
    if ahead is not None and ahead.denominator == 1:  # so many before the end
        c = int(ahead)
        first = n if c <= 0 else _no_less(settled("-", n, c))
        last = 0 if c <= 0 else _least(n, c)
    else:
        first = _least(n, _no_less(ceil_div(_size(bound), _size(rise))))
        last = settled("-", n, first)
    yes = replace(turns, count=first, span=None if ahead != 0 else turns.span, sure=False, values=None)
    return yes, replace(turns, count=last, span=None, first=first, values=None)


def _at(turns: Turns, turn: Formula | None, counts: Counts) -> tuple[Turns, Turns] | None:
    """One turn, where it is a number or the last."""
    if turn is None or turns.first != 0:
        return None
    number, n = turn.constant(), turns.count
    behind = (counts.read(turns.span) - turn).constant() if turns.span is not None and turns.step == 1 else None
    if number is not None:
        one = (
            0
            if number.denominator != 1 or number < 0
            else _least(_no_less(settled("-", n, int(number))) if number else n, 1)
        )
        first = int(number) if number.denominator == 1 else 0
    elif behind is not None and behind >= 1:
        one = _least(_no_less(settled("-", n, int(behind) - 1)), 1)
        if behind > 1:
            return turns.some(one), turns.some(settled("-", n, one))
        first = _no_less(settled("-", n, 1))
    else:
        return None
    rest = settled("-", n, one)
    others = (
        replace(turns, count=rest, span=None, first=1, values=None) if first == 0 and one != 0 else turns.some(rest)
    )
    return replace(turns, count=one, span=None, first=first, values=None), others


def _evenly(turns: Turns, operator: str, a: Any, b: Any) -> tuple[Turns, Turns] | None:
    """A test on rests of the counter alone, which comes back after some turns."""
    rests = [one for side in (a, b) for one in _rests(side, turns.counter)]
    told = isinstance(turns.start, int) and isinstance(turns.step, int) and turns.first == 0
    if not rests or None in rests or not told:
        return None
    period = lcm(*(one for one in rests if one is not None))
    test = Value(whole(0).type, test=(operator, whole(a), whole(b)))
    step = -turns.step if turns.down else turns.step
    if period > _LONGEST_PERIOD:
        return None
    met = [holds(test, {turns.counter: turns.start + step * turn}) for turn in range(period)]
    if None in met:
        return None
    sums: list[Any] = [0, 0]
    for turn, side in enumerate(met):
        share = settled("//", settled("+", turns.count, period - 1 - turn), period)
        sums[not side] = settled("+", sums[not side], share)
    return turns.some(sums[0]), turns.some(sums[1])


def _rests(size: Any, counter: str) -> Iterator[int | None]:
    """What the counter is divided by wherever a size has it; None where it has it otherwise."""
    match size:
        case Operation(operator="%", left=left, right=int(right)) if right > 0 and counter in names_of(left):
            even = all(
                isinstance(p, Quantity) or (isinstance(p, Operation) and p.operator in "+-*") for p in parts(left)
            )
            yield right if even else None
        case Operation(left=left, right=right):
            yield from _rests(left, counter)
            yield from _rests(right, counter)
        case int():
            return
        case _ if counter in names_of(size):
            yield None


def _no_less(size: Any, least: Any = 0) -> Any:
    return max(size, least) if isinstance(size, int) and isinstance(least, int) else call("max", size, least)


def _least(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else call("min", a, b)


def _size(formula: Formula) -> Any:
    return read_size(str(formula))


__all__ = ["Turns", "split"]
