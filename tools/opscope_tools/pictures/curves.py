"""Pictures of several estimates: memory over context, throughput over batch, and plans against their Pareto front.

Each takes plain pairs, so that whoever has the points draws them: a command that asks at several sizes, a sweep, a search for plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from opscope_schemas.estimates import MemoryUse, TimeTotals

from opscope_tools.pictures import canvas
from opscope_tools.pictures.labels import Mark, along, name_marks, pixels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")

_WIDTH, _HEIGHT = 9.0, 5.6
_LAYERS = {"weights": "#0072b2", "cache": "#d55e00", "inputs and activations": "#8c8c8c"}


def memory(
    points: Sequence[tuple[float, MemoryUse]], title: str, under: str, across: str, form: canvas.Form = "svg"
) -> bytes:
    """Weights, cache and activations stacked over `across` (a size, such as tokens of context) against the capacity of the device.

    Raises `ValueError` for fewer than two points.
    """  # fmt: skip
    found = _ordered(points)
    known = all(use.activation_bytes is not None for _, use in found)
    notes = [] if known else ["Activations are not known at every point, and are left out."]

    def paint(sheet: Figure) -> None:
        canvas.headed(sheet, title, under)
        canvas.footed(sheet, notes)
        foot = canvas.foot_inches(notes, _WIDTH)
        field = _over(sheet, across, "GB", foot)
        field.set_xlim(found[0][0], found[-1][0])
        parts = {
            "weights": [use.weights_bytes / 1e9 for _, use in found], "cache": [use.cache_bytes / 1e9 for _, use in found],
            **({"inputs and activations": [(use.input_bytes + (use.activation_bytes or 0)) / 1e9 for _, use in found]} if known else {}),
        }  # fmt: skip
        tint = {name: _LAYERS[name] for name in parts}
        field.stackplot([x for x, _ in found], *parts.values(), colors=list(tint.values()), alpha=0.75)
        usable = max(use.usable_bytes for _, use in found) / 1e9
        most = max(map(sum, zip(*parts.values(), strict=True)))
        field.set_ylim(0, max(most, usable) * 1.12)
        field.axhline(usable, color=canvas.INK, linewidth=1.3)
        field.text(found[0][0], usable, f" usable {usable:,.4g} GB", va="bottom", size=8)
        room = {use.longest_context for _, use in found if use.longest_context}
        for limit in sorted(room):
            if found[0][0] < limit < found[-1][0]:
                field.axvline(limit, color=canvas.FAINT, linewidth=0.8, linestyle=":")
                field.text(limit, usable * 0.02, f"{limit:,} fit ", rotation=90, ha="right", va="bottom", size=8)
        canvas.legend(sheet, tint, foot)

    return canvas.drawn(paint, form, _WIDTH, _HEIGHT, title)


def throughput(
    points: Sequence[tuple[float, TimeTotals]], title: str, under: str, across: str, form: canvas.Form = "svg"
) -> bytes:
    """Tokens per second over `across` (a size, such as sequences of a batch): the bound, the calibrated rate and its interval.

    A point that does not fit the device has no rate and is told below. Raises `ValueError` for fewer than two points.
    """  # fmt: skip
    found = _ordered(points)
    bounds = [(x, t.bound_tokens_per_second) for x, t in found if t.bound_tokens_per_second is not None]
    beyond = [f"{x:,.12g}" for x, t in found if t.bound_tokens_per_second is None]
    measured = [(x, t, t.tokens_per_second) for x, t in found if t.tokens_per_second is not None]
    notes = [f"No rate is given at {', '.join(beyond)}: it does not fit, or makes no tokens."] if beyond else []
    notes += [canvas.INTERVAL if measured else "Uncalibrated: only the bound is given."]

    def paint(sheet: Figure) -> None:
        canvas.headed(sheet, title, under)
        canvas.footed(sheet, notes)
        foot = canvas.foot_inches(notes, _WIDTH)
        field = _over(sheet, across, "tokens per second", foot)
        _doubling(field, [x for x, _ in found])
        tint = {"bound": canvas.FAINT}
        xs, rates = [x for x, _ in bounds], [rate for _, rate in bounds]
        field.plot(xs, rates, "o--", color=tint["bound"], markersize=4, clip_on=False)
        if measured:
            tint["calibrated"] = _LAYERS["weights"]
            colour, xs = _LAYERS["weights"], [x for x, _, _ in measured]
            spread = [(_at(t, rate, t.high_seconds), _at(t, rate, t.low_seconds)) for _, t, rate in measured]
            field.fill_between(
                xs, [low for low, _ in spread], [high for _, high in spread], color=colour, alpha=0.2, linewidth=0
            )
            field.plot(xs, [rate for _, _, rate in measured], "o-", color=colour, markersize=4, clip_on=False)
        field.set_ylim(bottom=0)
        canvas.legend(sheet, tint, foot)

    return canvas.drawn(paint, form, _WIDTH, _HEIGHT, title)


def _at(totals: TimeTotals, rate: float, seconds: float | None) -> float:
    """The rate if the pass took so many seconds."""
    return rate * (totals.calibrated_seconds or 0.0) / seconds if seconds else rate


def _ordered(points: Sequence[tuple[float, T]]) -> list[tuple[float, T]]:
    found = sorted(points, key=lambda point: point[0])
    if len({x for x, _ in found}) < 2:
        raise ValueError("A curve needs two points.")
    return found


def _over(sheet: Figure, across: str, unit: str, foot: float) -> Axes:
    field = canvas.axes(sheet, left=1.0, bottom=0.9 + foot)
    field.set(xlabel=canvas.plain(across), ylabel=unit)
    for axis in (field.xaxis, field.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.12g}")
    return field


def _doubling(field: Axes, xs: Sequence[float]) -> None:
    """A logarithmic axis over sizes, a tick at each that stands apart from the next."""
    field.set_xscale("log", base=2)
    shown = [x for x, after in zip(xs, [*xs[1:], float("inf")], strict=True) if after / x > 1.4]
    field.set_xticks(shown, [f"{x:,.12g}" for x in shown], minor=False)
    field.set_xticks([], minor=True)
    field.set_xlim(xs[0], xs[-1])


# ---- plans ----------------------------------------------------------------------------------------------------------

Plan = tuple[float, float, str]


def pareto_front(plans: Sequence[Plan]) -> list[Plan]:
    """The plans that no other one beats or equals in both rates while it beats it in one, by the first rate."""
    best: list[Plan] = []
    for plan in sorted(plans, key=lambda p: (-p[0], -p[1], p[2])):
        if not best or plan[1] > best[-1][1] or plan[:2] == best[-1][:2]:
            best.append(plan)
    return best[::-1]


def pareto(plans: Sequence[Plan], title: str, under: str, form: canvas.Form = "svg") -> bytes:
    """Plans by (tokens per second of one user, tokens per second of one device, name): all as marks, the front named,
    with a line below which every pair of rates is reached."""
    front = pareto_front(plans)
    notes = [
        f"{len(plans) - len(front)} of {len(plans)} plans are beaten in both rates, or in one and equalled in the other."
    ]

    def paint(sheet: Figure) -> None:
        canvas.headed(sheet, title, under)
        canvas.footed(sheet, notes)
        field = _over(
            sheet, "tokens per second of one user", "tokens per second of one device", canvas.foot_inches(notes, _WIDTH)
        )
        beaten = [plan for plan in plans if plan not in front]
        field.scatter([x for x, _, _ in beaten], [y for _, y, _ in beaten], s=16, color="#bbbbbb", zorder=2)
        edge = [corner for one, after in pairwise(front) for corner in (one[:2], (one[0], after[1]))]
        edge += [plan[:2] for plan in front[-1:]]
        field.plot([x for x, _ in edge], [y for _, y in edge], color=_LAYERS["weights"], linewidth=1.2, zorder=3)
        field.scatter([x for x, _, _ in front], [y for _, y, _ in front], s=24, color=_LAYERS["weights"], zorder=4)
        field.set_xlim(0, max([x for x, _, _ in plans], default=1.0) * 1.15)
        field.set_ylim(0, max([y for _, y, _ in plans], default=1.0) * 1.15)
        places = pixels(field, edge)
        name_marks(field, [Mark(x, y, 4, name) for x, y, name in front], along(places))

    return canvas.drawn(paint, form, _WIDTH, _HEIGHT, title)


__all__ = ["Plan", "memory", "pareto", "pareto_front", "throughput"]
