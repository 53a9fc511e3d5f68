"""Which threads of a block run a statement: the digits that a kernel takes its thread index apart into.

An axis of the block is a list of digits from low to high: `threadIdx.x` is one, `threadIdx.x % 32` and `threadIdx.x / 32`
are two. A test on a digit leaves some of its values; the threads are the product of what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Literal

from opscope_schemas.formula import Formula

from opscope_tools.kernels.values.expressions import call, render, settled
from opscope_tools.kernels.values.notation import Counts, read_size

#: what is left of a digit: its first `count` values; one value or some others; or it runs in a loop's place
Left = Literal["first", "some"]


@dataclass(frozen=True)
class Digit:
    """Values of `thread index / low % (high / low)`; `high` None: up to the size of the axis."""

    axis: str
    low: Any
    high: Any
    count: Any
    left: Left = "first"
    #: all of them
    full: bool = True


#: threads of a block, as CUDA has them
_MOST_MEMBERS = 1024
#: a digit by its place, before its values are looked at
Key = tuple[str, Any, Any]


@dataclass(frozen=True)
class Threads:
    """The threads that run a statement."""

    digits: tuple[Digit, ...]
    #: what stands in the place of digits that loops or tests have taken up
    factor: Any = 1
    #: what is taken for granted about the size of the block
    assumed: tuple[str, ...] = ()
    #: their indices along x, y and z, where the block has one size and tests tell them one by one
    members: frozenset[tuple[int, ...]] | None = None

    def total(self, counts: Counts) -> Formula:
        """How many threads these are."""
        made = counts.factor(self.factor)
        for digit in self.digits:
            made = made * counts.factor(digit.count)
        return made

    def split(self, key: Key) -> tuple[Threads, list[Digit]] | None:
        """The digits that a key covers, after taking them apart where that needs it; None where it does not fit."""
        axis, low, high = key
        made: Threads | None = self
        for place in (low, high):
            if made is not None and place not in (1, None):
                made = made._cut(axis, place)
        if made is None:
            return None
        covered, inside = [], False
        for digit in made.digits:
            if digit.axis == axis:
                inside = inside or digit.low == low
                if inside:
                    covered.append(digit)
                if digit.high == high and inside:
                    return made, covered
        return None

    def _cut(self, axis: str, place: Any) -> Threads | None:
        """With a border between digits at `place`."""
        made: list[Digit] = []
        done, assumed = False, self.assumed
        for digit in self.digits:
            if digit.axis != axis or done or place in (digit.low, digit.high):
                done = done or (digit.axis == axis and place in (digit.low, digit.high))
                made.append(digit)
                continue
            ints = isinstance(place, int) and isinstance(digit.low, int) and isinstance(digit.high, int | None)
            if ints and digit.high is not None and not digit.low < place < digit.high:
                made.append(digit)
                continue
            if not ints and not (digit.low == 1 and digit.high is None):
                return None
            if ints and (place % digit.low or (digit.high is not None and digit.high % place)):
                return None
            inner: Any = settled("//", place, digit.low)
            parts: tuple[Any, Any]
            if digit.left != "first":
                return None
            if isinstance(digit.count, int) and isinstance(inner, int):
                if digit.count <= inner:
                    parts = digit.count, 1
                elif digit.count % inner == 0:
                    parts = inner, digit.count // inner
                else:
                    return None
            elif digit.full:
                parts = inner, settled("//", digit.count, inner)
                assumed = (*assumed, f"{render(digit.count)} is a multiple of {render(inner)}")
            else:
                return None
            lower, upper = parts
            made.append(replace(digit, high=place, count=lower, full=lower == inner))
            made.append(replace(digit, low=place, count=upper, full=digit.full))
            done = True
        return replace(self, digits=tuple(made), assumed=tuple(dict.fromkeys(assumed))) if done else None

    def with_(self, old: list[Digit], new: list[Digit]) -> Threads:
        """With some digits in the place of others."""
        table = dict(zip(old, new, strict=True))
        return replace(self, digits=tuple(table.get(d, d) for d in self.digits), members=None)

    def of(self, members: frozenset[tuple[int, ...]]) -> Threads:
        """Those that are given one by one."""
        digits = tuple(replace(d, count=1, left="some", full=False) for d in self.digits)
        return Threads(digits, len(members), self.assumed, members)

    def below(self, digits: list[Digit], bound: Any) -> Threads | None:
        """Those whose number, made of the digits, is less than a bound."""
        if any(d.left != "first" for d in digits):
            return None
        if len(digits) == 1:
            (digit,) = digits
            if isinstance(bound, int) and isinstance(digit.count, int):
                count: Any = max(min(bound, digit.count), 0)
            elif bound == digit.count:
                return self
            else:
                count = call("max", call("min", bound, digit.count), 0)
            return self.with_(digits, [replace(digit, count=count, full=count == digit.count and digit.full)])
        if not isinstance(bound, int):
            return None
        made: list[Digit] = []
        base = digits[0].low
        for digit in reversed(digits):
            unit = digit.low // base if isinstance(digit.low, int) and isinstance(base, int) else 0
            if not unit:
                return None
            if bound is None:
                made.append(digit)
            elif bound <= unit:
                made.append(replace(digit, count=1, full=False))
                continue
            elif bound % unit == 0 and isinstance(digit.count, int):
                made.append(replace(digit, count=min(bound // unit, digit.count), full=False))
                bound = None
            else:
                return None
        return self.with_(list(reversed(digits)), made)

    def at(self, digits: list[Digit]) -> Threads | None:
        """Those of one value of the digits."""
        if any(d.left != "first" for d in digits):
            return None
        return self.with_(digits, [replace(d, count=1, left="some", full=False) for d in digits])

    def without(self, others: Threads, counts: Counts) -> Threads:
        """All but some of them: nothing more is known of those than how many they are."""
        rest = self.total(counts) - others.total(counts)
        digits = tuple(replace(d, count=1, left="some", full=False) for d in self.digits)
        return Threads(digits, read_size(str(rest)), (*self.assumed, *others.assumed))

    def taken(self, digits: list[Digit], iterations: Any) -> Threads:
        """With the digits in the hands of a loop that makes `iterations` for all of their threads together."""
        made = self.with_(digits, [replace(d, count=1, left="some", full=False) for d in digits])
        return replace(made, factor=settled("*", made.factor, iterations))


def whole(sizes: dict[str, Any]) -> Threads:
    """All threads of a block of the given sizes."""
    told = all(isinstance(size, int) for size in sizes.values()) and prod(sizes.values()) <= _MOST_MEMBERS
    members = frozenset(product(*(range(size) for size in sizes.values()))) if told else None
    return Threads(tuple(Digit(axis, 1, None, size) for axis, size in sizes.items()), members=members)
