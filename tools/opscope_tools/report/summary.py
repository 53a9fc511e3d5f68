"""The reply that goes with a saved report: insights, optimisations, limitations, links, all from computed facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opscope_schemas.analysis import ModelAnalysis
from opscope_schemas.dataflow import Dataflow
from opscope_schemas.formula import Rational
from opscope_schemas.notes import of_its_point
from opscope_schemas.report import ReportSummary
from opscope_schemas.units import amount, counted, plain_bytes, things

from opscope_tools.report import scan
from opscope_tools.report.attending import attending, heads_by_class, keeps_cache
from opscope_tools.report.facts import Figures, ImplementationFacts, short
from opscope_tools.report.given import configuration_given
from opscope_tools.report.glance import times_said
from opscope_tools.report.outline import Section, anchor
from opscope_tools.report.overview import ran_in, swappable
from opscope_tools.report.quotes import joined
from opscope_tools.report.reference import fused_operators
from opscope_tools.report.tasks import tasks

__all__ = ["summarise"]


def summarise(facts: ImplementationFacts, path: str, outline: Sequence[Section]) -> ReportSummary:
    """The four lists; links are `path#anchor`."""
    seen: dict[str, int] = {}
    anchors = [(section, anchor(section.heading, seen)) for section in outline]
    return ReportSummary(
        insights=tuple(_insights(facts)),
        optimizations=tuple(_optimisations(facts)),
        limitations=tuple(_limitations(facts)),
        links=tuple(f"{path}#{slug}" for section, slug in anchors if "." not in section.number),
    )


def _plain(pointer: str) -> str:
    return pointer.replace("`", "")


def _insights(facts: ImplementationFacts) -> list[str]:
    name = short(facts.subject)
    inside = f"; the figures are of it as it runs in {short(facts.within)}" if facts.within else ""
    whose = _plain(configuration_given(facts))
    lines = [
        f"{name} has {counted(facts.tree.parameters)} parameters ({_plain(facts.pointer(facts.subject))}){inside}. The "
        f"configuration is {whose}."
    ]
    for class_name, kind in attending(facts).items():
        whose = f" of {short(class_name)}" * bool(heads_by_class(facts))
        lines.append(
            f"Attention{whose} is {kind.kind}: {kind.queries} {things(kind.queries, 'query head')} on {kind.shared} "
            f"{things(kind.shared, 'key-value head')} ({_plain(facts.pointer(class_name))})."
        )
    for document, graph in zip(facts.documents, facts.graphs, strict=True):
        figures, values = facts.totals(document), facts.point(document)
        subject = _plain(facts.called(document))
        bound, share = facts.limited(document)
        lines.append(
            f"{subject} takes {amount(figures.flops, 'FLOP')} and moves "
            f"{plain_bytes(figures.bytes)}: {figures.intensity:.2f} FLOPs per byte; at a ridge of {facts.ridge:g}, "
            f"{bound}-bound kernels take {100 * share:.0f} % of the time at the roofs."
        )
        if figures.flops:
            lines.append(_costliest(document, graph, values, figures))
    return [*lines, *times_said(facts)]


def _costliest(document: ModelAnalysis, graph: Dataflow, values: Mapping[str, Rational], whole: Figures) -> str:
    """The task with the most FLOPs, at the line of the model's source that calls it."""
    catalogue = tasks(document, graph)
    costs = {task.number: Figures.sum([o.kernel for o in task.occurrences], values).flops for task in catalogue}
    top = max(catalogue, key=lambda task: costs[task.number])
    kernel, call = top.first.kernel, top.first.call
    at = f"{kernel.file}:{kernel.line}"
    if call and kernel.file != document.file:
        at = f"{call.attribute}, called at {call.file}:{call.line}"
    share = 100 * costs[top.number] / whole.flops
    counted = {"last": " with the logits of the last position", "all": " with the logits of all positions"}
    said = counted.get(document.logits, "")
    return f"The costliest operator of {document.phase}{said} is {top.kind} ({at}): {share:.1f} % of its FLOPs."


def _optimisations(facts: ImplementationFacts) -> list[str]:
    lines = [f"{name} joins {parts} ({_plain(where)})." for name, parts, where in fused_operators(facts)]
    for class_name, kind in attending(facts).items():
        if kind.queries > kind.shared > 0 and keeps_cache(facts, class_name):
            lines.append(
                f"The key-value cache holds {kind.shared} {things(kind.shared, 'head')} in place of {kind.queries}."
            )
    swaps = swappable(facts)
    lines += [
        f"{_swapped(hit)} can be replaced by a kernel through @{hit.text} ({hit.path}:{hit.line})." for hit in swaps
    ]
    return lines or [f"None found: searched {joined(ran_in(facts))} for fused operators and kernel decorators."]


def _swapped(hit: scan.Hit) -> str:
    return f"{hit.concerns}, which {hit.name} calls," if hit.concerns else hit.name


def _limitations(facts: ImplementationFacts) -> list[str]:
    lines = [f"Not counted: {text}" for text in facts.main.not_counted]
    lines += [f"{short(name)} is not analysed on its own: {reason}" for name, reason in facts.unavailable.items()]
    anew = [document.phase for document in facts.documents if _traced_anew(facts, document)]
    if anew:
        lines.append(
            f"The figures of {' and '.join(anew)} hold as reported: the reported values were traced anew. At other values "
            "the formulas hold under the conditions that the document lists."
        )
    lines += _validity(facts, [d for d in facts.documents if d.conditions and d.phase not in anew])
    for document in facts.documents:
        floor, figures = facts.floor_bytes(document), facts.totals(document)
        if floor and figures.bytes >= 1.005 * floor:  # below that it would read as 1.00 times
            lines.append(
                f"Eager {document.phase} moves {figures.bytes / floor:.2f} times the "
                "bytes that no implementation can avoid."
            )
    if facts.tiling is None:
        lines.append("Tiles, shared memory and registers are not analysed: no kernel was named.")
    lines.append("The execution timeline is modelled from bytes and FLOPs: nothing was run on a device.")
    return lines


def _traced_anew(facts: ImplementationFacts, document: ModelAnalysis) -> bool:
    """Whether the reported point was traced itself, so that no condition bounds the figures."""
    return any(note.startswith(f"{document.phase}: ") and of_its_point(note) for note in facts.notes)


def _validity(facts: ImplementationFacts, documents: Sequence[ModelAnalysis]) -> list[str]:
    """Where the conditions stand under which the formulas of the passes hold."""
    told = [document.phase for document in documents if document.conditions == facts.main.conditions]
    rest = [document.phase for document in documents if document.phase not in told]
    return [
        f"The formulas of {' and '.join(phases)} hold where {where} do."
        for phases, where in ((told, "the conditions of section 3.3"), (rest, "those that the document lists"))
        if phases
    ]
