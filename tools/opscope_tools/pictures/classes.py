"""Time by class of kernels: the bound and the calibrated time of each as bars, with the interval of the latter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opscope_schemas.estimates import OperatorTime, RooflineResult

from opscope_tools.pictures import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 9.0


@dataclass(frozen=True)
class Spent:
    """Seconds on one class of kernels; calibrated, low and high are None where a kernel of it has no calibrated time."""

    name: str
    bound: float
    calibrated: float | None
    low: float | None
    high: float | None


def spent_on(operators: Sequence[OperatorTime]) -> list[Spent]:
    """Sums by class of kernels, most first."""
    held: dict[str, list[OperatorTime]] = {}
    for row in operators:
        if row.limited_by is not None:
            held.setdefault(row.kind, []).append(row)
    found = [
        Spent(
            name, sum(r.bound_seconds for r in rows), _sum([r.calibrated_seconds for r in rows]),
            _sum([r.low_seconds for r in rows]), _sum([r.high_seconds for r in rows]),
        )
        for name, rows in held.items()
    ]  # fmt: skip
    return sorted(found, key=lambda one: (-(one.calibrated or one.bound), one.name))


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def classes(result: RooflineResult, form: canvas.Form = "svg") -> bytes:
    """The bars of one estimate."""
    rows = spent_on(result.operators)
    notes = [canvas.INTERVAL if any(row.calibrated for row in rows) else ""]
    notes += [f"Not calibrated: {', '.join(row.name for row in rows if row.calibrated is None)}."] * any(
        row.calibrated is None for row in rows
    )
    height = 1.75 + 0.62 * max(1, len(rows)) + canvas.foot_inches(notes, _WIDTH)

    def paint(sheet: Figure) -> None:
        canvas.headed(sheet, f"Time by class of kernels: {canvas.subject(result)}", canvas.point(result))
        canvas.footed(sheet, notes)
        field = canvas.axes(sheet, left=2.2, right=1.9, bottom=0.65 + canvas.foot_inches(notes, _WIDTH))
        tint = canvas.colours([row.name for row in rows])
        most = max([row.high or row.bound for row in rows], default=1.0)
        scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if most >= s), (1e-6, "us"))
        whole = sum(row.calibrated or row.bound for row in rows) or 1.0
        for at, row in enumerate(rows):
            field.barh(at + 0.18, row.bound / scale, 0.3, color=tint[row.name], alpha=0.4)
            said = f"{canvas.seconds(row.bound)} bound"
            if row.calibrated is not None and row.low is not None and row.high is not None:
                off = [[(row.calibrated - row.low) / scale], [(row.high - row.calibrated) / scale]]
                field.barh(at - 0.18, row.calibrated / scale, 0.3, color=tint[row.name])
                field.errorbar(row.calibrated / scale, at - 0.18, xerr=off, color=canvas.INK, capsize=3, linewidth=1)
                said = f"{canvas.seconds(row.calibrated)} calibrated, {100 * row.calibrated / whole:.0f} %\n{said}"
            field.text(1.02, at, said, transform=field.get_yaxis_transform(), va="center", size=8, clip_on=False)
        field.set_yticks(range(len(rows)), [canvas.plain(row.name) for row in rows])
        field.set(ylim=(len(rows) - 0.45, -0.55), xlim=(0, most / scale * 1.03), xlabel=f"{unit} of one pass")
        field.grid(visible=False, axis="y")

    return canvas.drawn(paint, form, _WIDTH, height, f"Time by class of kernels: {canvas.subject(result)}")


__all__ = ["Spent", "classes", "spent_on"]
