"""What runs in a pass and feeds nothing that the pass gives or keeps: layers behind the one that is taken, norms that nobody reads."""

from __future__ import annotations

from collections.abc import Sequence

from opscope_schemas.analysis import ModelAnalysis
from opscope_schemas.dataflow import Dataflow, FlowOperator

from opscope_tools.report.facts import Figures, ImplementationFacts, leaves
from opscope_tools.report.quotes import Quotes, joined

__all__ = ["unread_said"]

#: of a pass's FLOPs or bytes: less is worth no word
_WORTH = 0.001
#: modules that are named
_NAMED = 4


def unread_said(facts: ImplementationFacts, document: ModelAnalysis, quotes: Quotes) -> str:
    """` 15.9 GFLOP and 96 MB feed nothing ...`; empty where next to nothing does."""
    graph = facts.graph_of(document)
    idle = _idle(graph)
    if not idle:
        return ""
    kernels = [kernel for _, kernel in leaves(document)]
    values, whole, phase = facts.point(document), facts.totals(document), document.phase
    lost = [kernel for kernel, one in zip(kernels, graph.operators, strict=True) if one.id in idle]
    figures = Figures.sum(lost, values)
    if figures.flops < _WORTH * whole.flops and figures.bytes < _WORTH * whole.bytes:
        return ""
    names = _modules(graph.operators, idle)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    where = f"{joined(f'`{name}`' for name in names[:_NAMED])}{more}"
    flops, moved = (
        quotes.said(f"{phase}.unread.flops", figures.flops),
        quotes.said(f"{phase}.unread.bytes", figures.bytes),
    )
    return f" {flops} and, run eagerly, {moved} of it feed nothing that the pass gives or keeps: {where}, whose results nobody reads."


def _idle(graph: Dataflow) -> frozenset[int]:
    """Operators from which no way leads to what the pass gives or keeps."""
    kept = {tensor.id for tensor in graph.tensors if tensor.kind in ("output", "cache", "input")}
    by_id = {one.id: one for one in graph.operators}
    pending = [one.id for one in graph.operators if kept & {*one.writes}]
    if not pending:
        return frozenset()
    live: set[int] = set()
    while pending:
        one = pending.pop()
        if one not in live:
            live.add(one)
            pending += [*by_id[one].depends_on, *by_id[one].carried_from]
    return frozenset(by_id.keys() - live)


def _modules(operators: Sequence[FlowOperator], idle: frozenset[int]) -> list[str]:
    """The outermost modules of which every operator is idle, in order; where there are none, those that issue idle ones."""
    below: dict[str, bool] = {}
    for one in operators:
        for path in _above(one):
            below[path] = below.get(path, True) and one.id in idle
    whole, part = dict[str, None](), dict[str, None]()
    for one in (each for each in operators if each.id in idle):
        path = next((path for path in _above(one) if below[path]), "")
        (whole if path else part)[path or one.module or "the model itself"] = None
    return list(whole or part)


def _above(one: FlowOperator) -> list[str]:
    """Paths of the modules that hold an operator, the outermost first."""
    parts = one.module.split(".") if one.module else []
    return [".".join(parts[: end + 1]) for end in range(len(parts))]
