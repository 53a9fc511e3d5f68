"""One layer along the time axis: as bars, as text, and the pass as a trace that Perfetto and chrome://tracing open.

Kernels follow one another; times are calibrated where every kernel has such a time, else bounds, never a mixture. Text is drawn by
the diagrams of reports.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from opscope_schemas.estimates import RooflineResult

from opscope_tools.pictures import canvas
from opscope_tools.pictures.layers import Step, Stretch, is_calibrated, longest, short, stretches
from opscope_tools.report.diagrams import draw
from opscope_tools.report.graph import Graph, Span, Vertex

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: bars of a drawing, the longest
_MOST, _WIDTH = 48, 10.5


def _title(result: RooflineResult, stretch: Stretch | None) -> str:
    kind = "calibrated" if is_calibrated(result) else "bound"
    return f"{stretch.name if stretch else 'Nothing runs'}, {kind} times: {canvas.subject(result)}"


def _steps(result: RooflineResult, stretch: Stretch | None) -> list[Step]:
    return stretch.steps(calibrated=is_calibrated(result)) if stretch else []


def _where(step: Step) -> str:
    return f"{step.row.file.rpartition('/')[2]}:{step.row.line}"


def timeline_text(result: RooflineResult) -> str:
    """The longest kind of layer as text: operator, bar, time, limit of the bound, place."""
    stretch = longest(result)
    steps = _steps(result, stretch)
    whole = sum(step.length for step in steps) or 1.0
    vertices = [
        Vertex(
            f"s{number}", (short(step.row), canvas.seconds(step.length), step.row.limited_by or "not counted", _where(step)),
            span=Span(step.start / whole, step.length / whole),
        )
        for number, step in enumerate(steps)
    ]  # fmt: skip
    return f"{_title(result, stretch)}, {canvas.seconds(whole)}\n{draw(Graph(tuple(vertices), layout='timeline'))}\n"


def timeline(result: RooflineResult, form: canvas.Form = "svg") -> bytes:
    """The longest kind of layer as bars, one line an operator."""
    stretch = longest(result)
    steps = _steps(result, stretch)
    whole = sum(step.length for step in steps) or 1.0
    kept = sorted(sorted(range(len(steps)), key=lambda n: -steps[n].length)[:_MOST])
    rows = [steps[n] for n in kept]
    left = sum(step.length for step in steps) - sum(step.length for step in rows)
    dropped = len(steps) - len(rows)
    notes = [f"{dropped} shorter kernels, {100 * left / whole:.2g} % of the time, are not drawn."] if dropped else []
    height = 1.7 + 0.21 * max(3, len(rows)) + canvas.foot_inches(notes, _WIDTH)

    def paint(sheet: Figure) -> None:
        canvas.headed(sheet, _title(result, stretch), canvas.point(result))
        canvas.footed(sheet, notes)
        foot = canvas.foot_inches(notes, _WIDTH)
        field = canvas.axes(sheet, left=2.9, right=3.2, bottom=0.85 + foot)
        tint = canvas.colours([kind.name for kind in result.spent])
        for at, step in enumerate(rows):
            start, length = step.start * 1e6, step.length * 1e6
            colour = tint.get(step.row.kind, canvas.FAINT)
            field.barh(at, length, 0.8, left=start, color=colour, edgecolor=colour, linewidth=0.8, clip_on=False)
            said = f"{canvas.seconds(step.length)}, {step.row.limited_by or 'not counted'}, {_where(step)}"
            field.text(
                1.01, at, _cut(said, 52), transform=field.get_yaxis_transform(), va="center", size=7.5, clip_on=False
            )
        field.set_yticks(range(len(rows)), [_cut(short(step.row), 44) for step in rows], size=7.5)
        field.set(ylim=(max(3, len(rows)) - 0.4, -0.6), xlim=(0, whole * 1e6), xlabel="microseconds of one run")
        field.grid(visible=False, axis="y")
        canvas.legend(sheet, {n: c for n, c in tint.items() if any(step.row.kind == n for step in rows)}, foot)

    return canvas.drawn(paint, form, _WIDTH, height, _title(result, stretch))


def _cut(text: str, most: int) -> str:
    text = canvas.plain(text)
    return text if len(text) <= most else f"{text[: most // 2 - 2]}...{text[-(most - most // 2 - 1) :]}"


# ---- the trace ------------------------------------------------------------------------------------------------------


def perfetto_trace(result: RooflineResult) -> str:
    """The pass as Chrome trace-event JSON: one layer of each kind, and what runs outside of layers.

    A process for the bound and, where all kernels have such a time, one for calibrated times; in each the stretches are slices
    that hold their kernels. Every kernel is one event, of all its runs in one layer; times are microseconds.
    """
    kinds = ["bound", *(["calibrated"] if is_calibrated(result) else [])]
    events: list[dict[str, Any]] = []
    for process, kind in enumerate(kinds, 1):
        for what, name in (("process_name", f"{kind}: {canvas.subject(result)}"), ("thread_name", "kernels")):
            events.append({"name": what, "ph": "M", "pid": process, "tid": 1, "args": {"name": name}})
        events += _slices(stretches(result.operators), process, calibrated=kind == "calibrated")
    about = {
        "model": result.model_class,
        "device": result.hardware.name,
        "phase": result.phase,
        "point": canvas.point(result),
    }
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}, indent=1) + "\n"


def _slices(every: Sequence[Stretch], process: int, *, calibrated: bool) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    lengths = [sum(step.length for step in stretch.steps(calibrated=calibrated)) for stretch in every]
    for stretch, start, length in zip(every, accumulate([0.0, *lengths]), lengths, strict=False):
        if stretch.path:
            events.append(_event(stretch.name, "layer", process, start, length, {"runs": stretch.runs}))
        for step in stretch.steps(calibrated=calibrated, start=start):
            row = step.row
            told = {
                "flops": row.flops / stretch.runs, "bytes": row.bytes / stretch.runs, "bound": row.limited_by or "not counted",
                "bound_us": row.bound_seconds / stretch.runs * 1e6, "runs": stretch.share(row), "module": row.module,
                "file": f"{row.file}:{row.line}",
            }  # fmt: skip
            events.append(_event(short(row), row.kind or "kernel", process, step.start, step.length, told))
    return events


def _event(name: str, kind: str, process: int, start: float, length: float, told: dict[str, Any]) -> dict[str, Any]:
    """A complete event; the end of one is the start of the next, so both are rounded alike, to picoseconds."""
    first, last = round(start * 1e6, 6), round((start + length) * 1e6, 6)
    return {
        "name": name, "cat": kind, "ph": "X", "pid": process, "tid": 1, "ts": first, "dur": round(last - first, 6), "args": told,
    }  # fmt: skip


__all__ = ["perfetto_trace", "timeline", "timeline_text"]
