"""A thin table over two or three axes, read between its knots: linear in the logarithm of each axis, level beyond its ends.

What stands in the table is the logarithm of a factor. A table is flat, its last axis runs fastest.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """A positive quantity and where the table has its knots along it, ascending."""

    name: str
    knots: tuple[float, ...]

    def place(self, value: float) -> tuple[int, float]:
        """The knot at or before a value, and how far it lies on the way to the next one, 0 to 1."""
        inside = min(max(value, self.knots[0]), self.knots[-1])
        at = min(bisect_right(self.knots, inside) - 1, len(self.knots) - 2)
        low, high = self.knots[at], self.knots[at + 1]
        return at, math.log(inside / low) / math.log(high / low)


def interpolated(axes: Sequence[Axis], table: Sequence[float], values: Sequence[float]) -> float:
    """The table's entry at a point."""
    places = [axis.place(value) for axis, value in zip(axes, values, strict=True)]
    found = 0.0
    for corner in itertools.product((0, 1), repeat=len(places)):
        weight, index = 1.0, 0
        for axis, (at, share), step in zip(axes, places, corner, strict=True):
            weight *= share if step else 1.0 - share
            index = index * len(axis.knots) + at + step
        if weight:
            found += weight * table[index]
    return found


__all__ = ["Axis", "interpolated"]
