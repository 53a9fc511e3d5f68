"""Names beside marks so that none covers another: each takes the nearest free place around its mark, the most important first.

Boxes are (left, bottom, right, top) in pixels of the sheet. What finds no place is not written, and is told to the caller.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opscope_tools.pictures.canvas import FAINT, INK, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

Box = tuple[float, float, float, float]
#: how far from its mark a name may stand, in pixels beyond the mark's edge; from the third on a line leads to it
_FAR = (4, 9, 18, 30, 45, 62, 82, 105, 130, 160)
_LED = 12
_WAYS = 16
#: columns of names beside a mark, in pixels beyond its edge, their lines and how high one is
_COLUMNS, _LINES, _HIGH = (30, 75, 130), 16, 14
#: marks so near to another (pixels) that more than so many of them stand in each other's way
_NEAR, _CROWD = 30, 3


@dataclass(frozen=True)
class Mark:
    """A mark in data coordinates, its radius in pixels, its name."""

    x: float
    y: float
    radius: float
    name: str


def name_marks(axes: Axes, marks: Sequence[Mark], taken: Iterable[Box] = ()) -> list[Text]:
    """Write the marks' names in order of importance; the texts that found a place. Limits and scales of the axes are final."""
    frame = axes.get_window_extent()
    inner = (frame.x0 + 2, frame.y0 + 2, frame.x1 - 2, frame.y1 - 2)
    places = pixels(axes, [(mark.x, mark.y) for mark in marks])
    full = [*taken, *(around(x, y, m.radius) for (x, y), m in zip(places, marks, strict=True))]
    written: list[Box] = []
    found = []
    for mark, (x, y) in zip(marks, places, strict=True):
        text = axes.text(mark.x, mark.y, plain(mark.name), size=7.5, color=INK, ha="left", va="bottom", zorder=6)
        size = text.get_window_extent()
        crowded = sum(math.dist((x, y), other) < _NEAR for other in places) > _CROWD
        for box in _tries(x, y, mark.radius, (size.width + 2, size.height + 2), crowded=crowded):
            near = _nearest(box, x, y)
            lead = list(_line((x, y), near)) if math.dist((x, y), near) > mark.radius + _LED else []
            covers = any(_meet(box, other) for other in (*full, *written))
            if _within(box, inner) and not covers and not any(_meet(dot, other) for dot in lead for other in written):
                break
        else:
            text.remove()
            continue
        ends = axes.transData.inverted().transform([box[:2], (x, y), _nearest(box, x, y)])
        text.set_position((ends[0, 0], ends[0, 1]))  # in data: an SVG has other pixels
        written.append(box)
        full += lead
        found.append(text)
        if lead:
            axes.plot(ends[1:, 0], ends[1:, 1], color=FAINT, linewidth=0.6, zorder=5)
    return found


def _tries(x: float, y: float, radius: float, size: tuple[float, float], *, crowded: bool) -> Iterator[Box]:
    """Places for a text around a mark, the nearest first, right before left; then in columns beside it.

    In a crowd none above or below: there it would stand between the marks and the columns.
    """
    width, height = size
    for far in _FAR[:2] if crowded else _FAR:
        for way in (0, _WAYS // 2) if crowded else sorted(range(_WAYS), key=lambda n: min(n, _WAYS - n)):
            angle = 2 * math.pi * way / _WAYS
            at_x, at_y = x + (radius + far) * math.cos(angle), y + (radius + far) * math.sin(angle)
            left, low = at_x - width * (1 - math.cos(angle)) / 2, at_y - height * (1 - math.sin(angle)) / 2
            yield left, low, left + width, low + height
    for far in _COLUMNS:
        for line, up, right in itertools.product(range(_LINES), (1, -1), (True, False)):
            left = x + radius + far if right else x - radius - far - width
            low = y + up * line * _HIGH - height / 2
            yield left, low, left + width, low + height


def pixels(axes: Axes, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where points in data coordinates stand on the sheet."""
    return [(float(x), float(y)) for x, y in axes.transData.transform(points)] if points else []


def along(points: Sequence[tuple[float, float]]) -> list[Box]:
    """Small boxes along a line through these points in pixels: names keep off it."""
    return [box for a, b in itertools.pairwise(points) for box in _line(a, b)]


def _line(start: tuple[float, float], end: tuple[float, float]) -> Iterator[Box]:
    steps = max(1, int(math.dist(start, end) / 5))
    for step in range(steps + 1):
        share = step / steps
        yield around(start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]), 0.8)


def around(x: float, y: float, radius: float) -> Box:
    """The box around a disc."""
    return x - radius, y - radius, x + radius, y + radius


def _nearest(box: Box, x: float, y: float) -> tuple[float, float]:
    """The point of the box that is nearest to (x, y)."""
    return min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])


def _within(box: Box, outer: Box) -> bool:
    return box[0] >= outer[0] and box[1] >= outer[1] and box[2] <= outer[2] and box[3] <= outer[3]


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


__all__ = ["Box", "Mark", "along", "around", "name_marks", "pixels"]
