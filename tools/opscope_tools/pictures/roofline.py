"""Every operator of a pass under the roofs of its device: FLOPs per byte against FLOPs per second, both logarithmic.

A full mark stands at the rate that measured kernels reach, with a stroke up to what the bound allows; a hollow one has only its
bound. Areas are shares of the time, colours classes of kernels. What computes nothing has no place on these axes, and is told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opscope_schemas.estimates import Hardware, OperatorTime, RooflineResult

from opscope_tools.pictures import canvas
from opscope_tools.pictures.labels import Box, Mark, along, around, name_marks, pixels
from opscope_tools.pictures.layers import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: operators that are named, the longest first; inches of the sheet
_NAMED, _WIDTH, _HEIGHT = 16, 10.0, 6.6
#: radius in pixels of what takes no time, and of what takes all
_SMALL, _LARGE = 2.5, 24.0


def roofline(result: RooflineResult, form: canvas.Form = "svg") -> bytes:
    """The roofline of one estimate, with every operator that computes and moves something."""
    shown = [row for row in result.operators if row.flops and row.bytes and _seconds(row)]
    whole = sum(map(_seconds, result.operators)) or 1.0
    hidden = [row for row in result.operators if row not in shown and _seconds(row)]
    share = sum(map(_seconds, hidden)) / whole
    notes = [
        f"{len(hidden)} operators that compute nothing take {100 * share:.2g} % of the time and have no place here." if hidden else "",
        "Areas: shares of the time. "
        + ("Full: calibrated, with a stroke up to the bound. " if any(row.calibrated_seconds for row in shown) else "")
        + ("Hollow: bound only." if not all(row.calibrated_seconds for row in shown) else ""),
        f"Of {len(shown)} operators the {_NAMED} that take longest are named." if len(shown) > _NAMED else "",
        *_sources(result.hardware),
    ]  # fmt: skip

    def paint(sheet: Figure) -> None:
        canvas.headed(sheet, f"Roofline of {canvas.subject(result)}", canvas.point(result))
        canvas.footed(sheet, notes)
        foot = canvas.foot_inches(notes, _WIDTH)
        field = canvas.axes(sheet, right=1.5, bottom=0.8 + foot)
        taken = _roofs(field, result.hardware, shown)
        tint = canvas.colours([kind.name for kind in result.spent])
        marks = [
            _mark(field, row, _seconds(row) / whole, tint, taken) for row in sorted(shown, key=lambda r: -_seconds(r))
        ]
        for mark in marks[_NAMED:]:
            taken += [around(*place, mark.radius) for place in pixels(field, [(mark.x, mark.y)])]
        name_marks(field, marks[:_NAMED], taken)
        canvas.legend(sheet, {n: c for n, c in tint.items() if any(row.kind == n for row in shown)}, foot + 0.05)

    return canvas.drawn(paint, form, _WIDTH, _HEIGHT, f"Roofline of {canvas.subject(result)}")


def _seconds(row: OperatorTime) -> float:
    return row.calibrated_seconds or row.bound_seconds


def _peaks(hardware: Hardware) -> dict[str, float]:
    return dict(hardware.ceilings) or {hardware.peak_precision: hardware.peak_flops}


def _sources(hardware: Hardware) -> list[str]:
    """Where the figures of the roofs stand: of each kind the first source."""
    found = []
    for kind, name in (("peak_flops", "Peak"), ("bandwidth", "Bandwidth")):
        told = [source.partition(": ") for source in hardware.sources]
        fitting = [said for what, _, said in told if any(part.strip().startswith(kind) for part in what.split(","))]
        found.append(f"{name}: {fitting[0]}." if fitting else "")
    return found


def _roofs(field: Axes, hardware: Hardware, shown: Sequence[OperatorTime]) -> list[Box]:
    """Draw the roofs with their figures and fix the limits; the pixels that they take."""
    peaks, bandwidth = _peaks(hardware), hardware.bandwidth
    top = max(peaks.values())
    places = [row.flops / row.bytes for row in shown]
    rates = [row.flops / _seconds(row) for row in shown]
    low, high = min([0.1, *places]) / 2, max([10 * top / bandwidth, *places]) * 2
    field.set(xscale="log", yscale="log", xlim=(low, high), xlabel="FLOPs per byte", ylabel="FLOPs per second")
    field.set_ylim(min([low * bandwidth, *rates]) / 2, max([top, *rates]) * 3)
    field.xaxis.set_major_formatter(lambda x, _: f"{x:,.12g}")
    field.yaxis.set_major_formatter(lambda y, _: canvas.amount(y, ""))
    by_rate: dict[float, list[str]] = {}
    for precision, rate in peaks.items():
        by_rate.setdefault(rate, []).append(precision)
    taken: list[Box] = []
    written = 0.0  # pixels
    for rate, precisions in sorted(by_rate.items()):
        ends = [(rate / bandwidth, rate), (high, rate)]
        dashed = "-" if rate == hardware.peak_flops else "--"
        field.plot(*zip(*ends, strict=True), color=canvas.INK, linewidth=1.3, linestyle=dashed, zorder=2)
        first, last = pixels(field, ends)
        taken += along([first, last])
        written = max(last[1], written + 12)  # beside the axes, none on another
        said = f"{', '.join(precisions)}: {canvas.amount(rate, 'FLOP/s')}"
        above = (written - last[1]) * 72 / canvas.DPI
        field.annotate(canvas.plain(said), ends[1], (5, above), textcoords="offset points", va="center", size=8)
    _slope(field, hardware, (low, top / bandwidth), taken)
    return taken


def _slope(field: Axes, hardware: Hardware, span: tuple[float, float], taken: list[Box]) -> None:
    """The roof of memory, its figure written along it from its lower end on."""
    bandwidth = hardware.bandwidth
    ends = [(x, x * bandwidth) for x in span]
    field.plot(span, [y for _, y in ends], color=canvas.INK, linewidth=1.3, zorder=2)
    (x0, y0), (x1, y1) = pixels(field, ends)
    taken += along([(x0, y0), (x1, y1)])
    turned = math.degrees(math.atan2(y1 - y0, x1 - x0))
    text = field.annotate(
        f"memory: {canvas.amount(bandwidth, 'B/s')}", (ends[0][0] * 1.3, ends[0][1] * 1.3), (-2, 4), textcoords="offset points",
        rotation=turned, rotation_mode="anchor", size=8, color=canvas.INK,
    )  # fmt: skip
    box = text.get_window_extent()
    wide = (box.x1 - box.x0) / 8
    taken += [
        (box.x0 + n * wide, box.y0 + n * (box.height - 12) / 8, box.x0 + (n + 1) * wide, box.y0 + n * (box.height - 12) / 8 + 20)
        for n in range(8)
    ]  # fmt: skip


def _mark(field: Axes, row: OperatorTime, share: float, tint: Mapping[str, str], taken: list[Box]) -> Mark:
    """Draw one operator; `taken` gets the pixels of its stroke."""
    x, y = row.flops / row.bytes, row.flops / _seconds(row)
    radius = math.hypot(_SMALL, _LARGE * math.sqrt(share))
    colour = tint.get(row.kind, canvas.FAINT)
    calibrated = bool(row.calibrated_seconds)
    if calibrated and row.bound_seconds:
        top = row.flops / row.bound_seconds
        field.plot([x, x], [y, top], color=colour, linewidth=0.7, alpha=0.6, zorder=2.5)
        taken += along(pixels(field, [(x, y), (x, top)]))
    field.scatter(
        [x], [y], s=(2 * radius * 72 / canvas.DPI) ** 2, facecolors=colour if calibrated else "white", edgecolors=colour,
        linewidths=1.0, alpha=0.75, zorder=3,
    )  # fmt: skip
    return Mark(x, y, radius, short(row))


__all__ = ["roofline"]
