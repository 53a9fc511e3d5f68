"""Pictures of estimates as SVG or PNG, and a pass as a trace: pure functions from what an estimate says to bytes.

`canvas` owns the drawing library and makes its output the same everywhere, `labels` finds free places for names. `roofline` and
`classes` draw one estimate, `curves` draws several, `layers` cuts a pass into layers, `timeline` draws one as bars, as text and
as a trace for Perfetto. The library is loaded by the first picture.
"""

from __future__ import annotations

from typing import Literal

from opscope_schemas.estimates import RooflineResult

from opscope_tools.pictures.canvas import Form
from opscope_tools.pictures.classes import classes
from opscope_tools.pictures.roofline import roofline
from opscope_tools.pictures.timeline import timeline

Kind = Literal["roofline", "classes", "timeline"]


def picture(result: RooflineResult, kind: Kind, form: Form) -> bytes:
    """The picture of that kind of one whole estimate."""
    return {"roofline": roofline, "classes": classes, "timeline": timeline}[kind](result, form)


__all__ = ["Form", "Kind", "picture"]
