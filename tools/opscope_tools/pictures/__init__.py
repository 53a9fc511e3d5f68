"""Pictures of estimates as SVG or PNG, and a pass as a trace: pure functions from what an estimate says to bytes.

`canvas` owns the drawing library and makes its output the same everywhere, `labels` finds free places for names. `roofline` and
`classes` draw one estimate, `curves` draws several, `swept` a table, `layers` cuts a pass into layers, `timeline` draws one as bars, as text and
as a trace for Perfetto. The library is loaded by the first picture.
"""

from __future__ import annotations

from typing import Literal

from opscope_schemas.estimates import PlanResult, RooflineResult

from opscope_tools.pictures.canvas import Form
from opscope_tools.pictures.classes import classes
from opscope_tools.pictures.curves import pareto
from opscope_tools.pictures.roofline import roofline
from opscope_tools.pictures.swept import swept
from opscope_tools.pictures.timeline import timeline

Kind = Literal["roofline", "classes", "timeline"]


def picture(result: RooflineResult, kind: Kind, form: Form) -> bytes:
    """The picture of that kind of one whole estimate."""
    return {"roofline": roofline, "classes": classes, "timeline": timeline}[kind](result, form)


def plans(result: PlanResult, form: Form) -> bytes:
    """The plans of a whole search, and their Pareto front."""
    marks = [
        (
            p.tokens_per_second_per_user,
            p.tokens_per_second_per_device,
            f"{p.parallel}, {p.concurrency} request{'s' if p.concurrency > 1 else ''}",
        )
        for p in result.front
    ]
    marks += [(user, device, "") for user, device in result.beaten]
    loads = f"{result.input_len:,} tokens in, {result.output_len:,} out; {result.considered} plans considered"
    model = result.model_class.rpartition(".")[2]
    return pareto(marks, f"Plans: {model} on {result.devices} {result.hardware.name}", loads, form)


__all__ = ["Form", "Kind", "picture", "plans", "swept"]
