"""Section 8.2: a pass and one layer of it along a modelled time axis, operators one after another as eager execution runs them.

An operator takes as long as the slower of its two demands: its bytes, or the bytes that the device of the assumed ridge could
have moved while it computes the FLOPs. The axis is the share of that sum, so nothing on it is a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opscope_schemas.analysis import Kernel, ModelAnalysis
from opscope_schemas.formula import Rational, evaluate
from opscope_schemas.units import amount, plain_bytes

from opscope_tools.report.facts import Figures, ImplementationFacts, is_leaf, short, walk
from opscope_tools.report.flow import bare
from opscope_tools.report.graph import Graph, Span, Vertex
from opscope_tools.report.kinds import Kind, kinds_of
from opscope_tools.report.system import Part, parts, path_of
from opscope_tools.report.tasks import Occurrence, Task, numbering, occurrences

__all__ = ["timelines"]

#: bars of one timeline, more than which share one; layers drawn of a pass, the longest first
_MOST, _LAYERS = 30, 2
#: share of a timeline below which neighbours share a bar
_SMALL = 0.004
#: operators that a bar of several names
_NAMED = 4


@dataclass(frozen=True)
class _Step:
    """Something that runs: its task, name and place, what it demands, how long it takes in bytes moved at full bandwidth."""

    number: int
    name: str
    where: str
    flops: int
    bytes: int
    time: float
    computing: float

    @property
    def label(self) -> str:
        """`20 mm (q_proj)`."""
        return f"{f'{self.number} ' if self.number else ''}{self.name}{f' ({self.where})' if self.where else ''}"

    @property
    def said(self) -> str:
        """What bounds it and how much of that it takes; both where it is made of steps of either kind."""
        if self.computing and self.computing < self.time:
            return f"{amount(self.flops, 'FLOP')}, {plain_bytes(self.bytes)}"
        return f"compute, {amount(self.flops, 'FLOP')}" if self.computing else f"memory, {plain_bytes(self.bytes)}"


def timelines(facts: ImplementationFacts, catalogue: Sequence[Task]) -> list[Graph]:
    """Per phase the whole pass, then one layer of each kind, the longest kinds where there are many; else its operators."""
    numbers, found = _numbered(facts, catalogue), []
    for document in facts.documents:
        values = facts.point(document)
        kinds = kinds_of(facts, document)
        rows = _by_layer(document, parts(facts, document.kernels, values), values, kinds)
        steps = [
            _sum(name, "", [_step(0, "", "", k, values, facts.ridge) for k in _leaves(kernels)])
            for name, kernels, _ in rows
        ]
        found.append(_graph(f"{document.phase}, modelled: the whole pass", steps))
        layers = [(layer, step.time) for (*_, layer), step in zip(rows, steps, strict=True) if layer is not None]
        longest = sorted(layers, key=lambda each: -each[1])[:_LAYERS]
        whole = sum(step.time for step in steps) or 1.0
        left = f"; {len(layers) - _LAYERS} further kinds of layers are not drawn" if len(layers) > _LAYERS else ""
        own = _own(facts, document, document.kernels, document.class_name, numbers) if not layers else []
        if len(own) > len(steps):  # nothing repeats: there is no layer to look into
            found.append(_graph(f"{document.phase}, modelled: the whole pass by operator", own))
        for layer, time in [each for each in layers if each in longest]:
            times = evaluate(layer.repeat, values)
            own = _own(facts, document, layer.kernels or (), layer.class_name, numbers, times)
            kind = f", {kinds[id(layer)].whole}" if id(layer) in kinds else ""
            path = f"{path_of(document.kernels, layer)} ({short(layer.class_name)}{kind})"
            share = f"{100 * time / times / whole:.1f} % of the pass"
            found.append(_graph(f"{document.phase}, modelled: one of {times} runs of {path}, {share}{left}", own))
    return [graph for graph in found if graph.vertices]


def _own(
    facts: ImplementationFacts,
    document: ModelAnalysis,
    kernels: Sequence[Kernel],
    owner: str,
    numbers: Mapping[int, int],
    times: int = 1,
) -> list[_Step]:
    """The operators of `kernels` in order of execution; the figures are of one of `times` runs."""
    values = facts.point(document)
    return [
        _step(
            numbers.get(id(o.kernel), 0), bare(o.kernel.operator or o.kernel.class_name), _where(o), o.kernel, values,
            facts.ridge, times,
        )
        for o in occurrences(kernels, owner)
    ]  # fmt: skip


def _leaves(kernels: Sequence[Kernel]) -> list[Kernel]:
    return [kernel for _, _, kernel in walk(kernels, "") if is_leaf(kernel)]


def _by_layer(
    document: ModelAnalysis, found: Sequence[Part], values: Mapping[str, Rational], kinds: Mapping[int, Kind]
) -> list[tuple[str, tuple[Kernel, ...], Kernel | None]]:
    """The parts of a pass, those of a repeated layer put together: name, kernels, the layer."""
    rows: list[tuple[str, tuple[Kernel, ...], Kernel | None]] = []
    for part in found:
        layer = part.within
        if layer is None:
            name, _, class_name = part.label.partition(": ")
            rows.append((f"{name} ({class_name})" if class_name else name, part.kernels, None))
        elif not rows or rows[-1][2] is not layer:
            kind = f", {kinds[id(layer)].name}" if id(layer) in kinds else ""
            times = f"×{evaluate(layer.repeat, values)}{kind}"
            name = f"{path_of(document.kernels, layer)} ({short(layer.class_name)} {times})"
            rows.append((name, (layer,), layer))
    return rows


def _step(
    number: int, name: str, where: str, kernel: Kernel, values: Mapping[str, Rational], ridge: float, times: int = 1
) -> _Step:
    """One run of a kernel whose figures are those of `times` runs."""
    figures = Figures.sum([kernel], values)
    computing = figures.flops / ridge
    time = max(computing, figures.bytes) / times
    bound = time if computing >= figures.bytes else 0.0
    return _Step(number, name, where, figures.flops // times, figures.bytes // times, time, bound)


def _sum(name: str, where: str, held: Sequence[_Step], number: int = 0) -> _Step:
    flops, moved = sum(s.flops for s in held), sum(s.bytes for s in held)
    return _Step(number, name, where, flops, moved, sum(s.time for s in held), sum(s.computing for s in held))


def _graph(title: str, steps: Sequence[_Step]) -> Graph:
    """The steps as bars behind one another; short neighbours are one bar."""
    whole = sum(step.time for step in steps)
    if not whole:
        return Graph(())
    vertices, at = [], 0.0
    for place, step in enumerate(_joined(steps)):
        share = step.time / whole
        lines = (step.label, f"{100 * share:5.1f} %", step.said)
        vertices.append(Vertex(f"s{place}", lines, weight=share, span=Span(at, share)))
        at += share
    return Graph(tuple(vertices), layout="timeline", title=title)


def _joined(steps: Sequence[_Step]) -> list[_Step]:
    """The steps with too short neighbours put together; where there are too many, those that take the least, again and again."""
    small = _SMALL * sum(step.time for step in steps)
    runs: list[list[_Step]] = []
    for step in (step for step in steps if step.time):
        if runs and step.time < small and all(other.time < small for other in runs[-1]):
            runs[-1].append(step)
        else:
            runs.append([step])
    while len(runs) > _MOST:
        times = [sum(step.time for step in run) for run in runs]
        at = min(range(len(runs) - 1), key=lambda place: times[place] + times[place + 1])
        runs[at : at + 2] = [runs[at] + runs[at + 1]]
    return [_together(run) for run in runs]


def _together(run: Sequence[_Step]) -> _Step:
    """Several steps as one, named by its operators where they stand in one place, else by its ends."""
    if len(run) == 1:
        return run[0]
    places = {step.where for step in run}
    names = list(dict.fromkeys(step.name for step in run))
    if len(places) == 1 and run[0].where and len(names) <= _NAMED:
        return _sum(", ".join(names), run[0].where, run, run[0].number)
    return _sum(f"{_end(run[0])} to {_end(run[-1])}", "", run)


def _end(step: _Step) -> str:
    """An operator by its label, a part of the pass by its path alone."""
    return step.label if step.where else step.name.partition(" (")[0]


# ---- tasks ----------------------------------------------------------------------------------------------------------


def _numbered(facts: ImplementationFacts, catalogue: Sequence[Task]) -> dict[int, int]:
    """The task that an operator of any phase is, by the identity of its kernel; the catalogue is that of the first phase.

    Operators of another phase are found by where they stand; where a line runs another number of them, by none.
    """
    main, found = numbering(catalogue), dict(numbering(catalogue))
    first = _places(facts.main.kernels)
    for document in facts.documents:
        for place, kernels in _places(document.kernels).items() if document is not facts.main else ():
            known = first.get(place, [])
            if len(known) == len(kernels):
                found |= {id(kernel): main[id(same)] for kernel, same in zip(kernels, known, strict=True)}
    return found


def _places(kernels: Sequence[Kernel]) -> dict[tuple[object, ...], list[Kernel]]:
    """Operators by the calls that lead to them, their line and their name."""
    found: dict[tuple[object, ...], list[Kernel]] = {}

    def visit(held: Sequence[Kernel], path: tuple[object, ...]) -> None:
        for kernel in held:
            if is_leaf(kernel):
                found.setdefault((*path, kernel.file, kernel.line, kernel.operator), []).append(kernel)
            else:
                visit(kernel.kernels or (), (*path, kernel.attribute, kernel.line))

    visit(kernels, ())
    return found


def _where(occurrence: Occurrence) -> str:
    """The call that issues an operator, or the class in whose forward it stands."""
    call = occurrence.call
    return call.attribute if call and call.attribute else short(occurrence.owner)
