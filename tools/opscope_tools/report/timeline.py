"""Section 8.2: a pass along a time axis in seconds, kernel after kernel as engines run them, out of the estimate of its time.

A kernel of repeated layers is one bar, all its runs together; a bar is as long as the kernels were measured to take on the
device, where nobody measured their kind as long as the bound.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from opscope_schemas.estimates import OperatorTime, RooflineResult, launches
from opscope_schemas.units import amount, plain_bytes, seconds

from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.graph import Graph, Span, Vertex

__all__ = ["LEGEND", "timelines"]

#: bars of one timeline; short neighbours share one until there are no more
_MOST = 16
#: share of the pass below which neighbours together are one bar
_SMALL = 0.005
#: operators that a bar of several names
_NAMED = 3
LEGEND = (
    "Behind a bar: its time, its share of the pass, what limits it (launch: the fixed time of its kernels, as measured for their class: what one takes however small it is, is most of the time), what it computes or moves in all its runs. A fused kernel is "
    "called by what it does, with the operators before and behind that it takes in (a residual add, a cast), and stands at the "
    "module that issues most of them."
)


def timelines(facts: ImplementationFacts) -> list[Graph]:
    """The kernels of each pass whose time is known."""
    return [
        _graph(document.phase, facts.estimates[document.phase])
        for document in facts.documents
        if document.phase in facts.estimates
    ]


def _graph(phase: str, found: RooflineResult) -> Graph:
    whole = sum(map(_time, found.operators))
    vertices, at = [], 0.0
    for place, run in enumerate(_joined(found.operators)):
        time = sum(map(_time, run))
        share = time / whole if whole else 0.0
        lines = (_label(run), f"{seconds(time):>8}", f"{100 * share:4.1f} %", _said(run))
        vertices.append(Vertex(f"s{place}", lines, weight=share, span=Span(at, share)))
        at += share
    basis = "calibrated" if found.totals.calibrated_seconds is not None else "at least"
    title = f"{phase} on {found.hardware.name}, {basis}: {seconds(whole)}"
    return Graph(tuple(vertices), layout="timeline", title=title)


def _time(one: OperatorTime) -> float:
    return one.bound_seconds if one.calibrated_seconds is None else one.calibrated_seconds


def _joined(operators: Sequence[OperatorTime]) -> list[list[OperatorTime]]:
    """The kernels with those neighbours put together that take the least, until few enough bars are left."""
    runs = [[one] for one in operators if _time(one)]
    whole = sum(map(_time, operators))
    while True:
        times = [sum(map(_time, run)) for run in runs]
        if len(runs) <= _MOST and all(a + b >= _SMALL * whole for a, b in pairwise(times)):
            return runs
        at = min(range(len(runs) - 1), key=lambda place: times[place] + times[place + 1])
        runs[at : at + 2] = [runs[at] + runs[at + 1]]


def _label(run: Sequence[OperatorTime]) -> str:
    """`sdpa (self_attn) ×32  :257`; of several kernels the first and the last."""
    first = run[0]
    if len({(one.module, one.count) for one in run}) > 1:
        return f"{_named(first)} to {_named(run[-1])}"
    times = f" ×{first.count}" if first.count > 1 else ""
    return f"{_operations(run)}{_where(first)}{times}  :{first.line}"


def _named(one: OperatorTime) -> str:
    return f"{_operations([one])}{_where(one)}"


def _operations(run: Sequence[OperatorTime]) -> str:
    """The first few names of what runs; products that run as one are one name."""
    names = list(dict.fromkeys(name for one in run for name in re.split(r", (?![^(]*\))", one.operation)))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _where(one: OperatorTime) -> str:
    """The submodule that issues it, without the path to it; a layer by its list."""
    parts = one.module.split(".")
    last = next((part for part in reversed(parts) if part != "*"), "")
    return f" ({last})" if last else ""


def _said(run: Sequence[OperatorTime]) -> str:
    """What limits it and how much of that it takes."""
    flops, moved = sum(one.flops for one in run), sum(one.bytes for one in run)
    limits = dict.fromkeys("launch" if launches(one) else one.limited_by for one in run if one.limited_by)
    if list(limits) == ["launch"]:
        return f"launch, {plain_bytes(moved)}"
    if list(limits) == ["compute"]:
        return f"compute, {amount(flops, 'FLOP')}"
    if list(limits) == ["memory"]:
        return f"memory, {plain_bytes(moved)}"
    return f"{amount(flops, 'FLOP')}, {plain_bytes(moved)}"
