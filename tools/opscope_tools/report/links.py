"""Who reads whose result, lifted from operators to whatever a diagram draws: lines of a forward, or calls of modules.

The operator graph numbers the operators in the order of the expanded document, so each kernel of that document holds a set
of operators; an edge is there where an operator of one set reads what one of another set made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opscope_schemas.analysis import Analysis, Kernel
from opscope_schemas.dataflow import Dataflow, FlowOperator, FlowTensor

from opscope_tools.report.facts import maker_of, walk
from opscope_tools.report.graph import INPUTS, OUTPUTS, Edge
from opscope_tools.report.tasks import occurrences

__all__ = ["Operators", "Unit", "edges_of"]

#: what an edge to or from the cache is called
_CACHE = "cache"


@dataclass(frozen=True)
class Unit:
    """What becomes a vertex: its id and the operators that run in it; `repeats`: how often its kernels run in a pass.

    An operator inside that runs more often repeats within the vertex.
    """

    id: str
    operators: frozenset[int]
    repeats: frozenset[str] = frozenset()


class Operators:
    """The operators of each kernel of an expanded document, by number in the operator graph."""

    def __init__(self, document: Analysis) -> None:
        basic = [o.kernel for o in occurrences(document.kernels, document.class_name)]
        self._numbers = {id(k): n for n, k in enumerate((k for k in basic if k.kernel_type == "basic"), 1)}

    def unit(self, name: str, kernels: Sequence[Kernel]) -> Unit:
        """A vertex of that name, in which `kernels` run."""
        return Unit(name, self.of(kernels), frozenset(kernel.repeat for kernel in kernels))

    def of(self, kernels: Sequence[Kernel]) -> frozenset[int]:
        """The operators that run in `kernels`, which are those of the document."""
        return frozenset(self._numbers[id(k)] for _, _, k in walk(kernels, "") if id(k) in self._numbers)


def edges_of(units: Sequence[Unit], graph: Dataflow, repeat: str = "1") -> tuple[Edge, ...]:
    """The edges between `units`, from `INPUTS` and to `OUTPUTS`; `repeat` is how often all of them together run in a pass.

    What an operator reads of the repetition before comes from outside where the units run once each time, and is an edge
    between them where they hold the loop; of a unit to itself where the loop is not inside it.
    """
    owner = {number: unit.id for unit in units for number in unit.operators}
    repeats = {unit.id: unit.repeats for unit in units}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    found: dict[Edge, None] = {}
    for operator in graph.operators:
        if operator.id in owner:
            found |= dict.fromkeys(_read(operator, owner, graph, repeat, repeats))
            found |= {
                Edge(INPUTS, owner[operator.id], _CACHE if tensor.kind == "cache" else ""): None
                for tensor in _from_outside(operator, tensors)
            }
        else:
            found |= dict.fromkeys(Edge(owner[n], OUTPUTS) for n in operator.depends_on if n in owner)
        found |= dict.fromkeys(
            Edge(owner[n], OUTPUTS)
            for n in operator.carried_from
            if n in owner and not _within(graph.operators[n - 1], repeat)
        )
    found |= dict.fromkeys(_given(owner, graph))
    place = {unit.id: at for at, unit in enumerate(units)}
    found = {  # a unit that stands behind its reader was read where the lines ran once more, as in a loop
        replace(e, again=True) if place.get(e.source, -1) > place.get(e.target, len(place)) else e: None for e in found
    }
    plain = {(edge.source, edge.target) for edge in found if not edge.label and not edge.again}
    return tuple(e for e in found if not (e.label or e.again) or (e.source, e.target) not in plain or e.again)


def _within(operator: FlowOperator, repeat: str) -> bool:
    """Whether an operator runs several times while the units run once."""
    return operator.repeat != repeat


def _read(
    operator: FlowOperator,
    owner: Mapping[int, str],
    graph: Dataflow,
    repeat: str,
    repeats: Mapping[str, frozenset[str]],
) -> Iterator[Edge]:
    """What one operator reads: of other units, of outside, of the repetition before."""
    name = owner[operator.id]
    for number in operator.depends_on:
        source = owner.get(number, INPUTS)
        if source != name:
            yield Edge(source, name)
    for number in operator.carried_from:
        maker = graph.operators[number - 1]
        if number not in owner or not _within(maker, repeat):
            yield Edge(INPUTS, name)
        elif owner[number] != name or maker.repeat in repeats[name]:
            yield Edge(owner[number], name, again=True)


def _from_outside(operator: FlowOperator, tensors: Mapping[int, FlowTensor]) -> list[FlowTensor]:
    """The inputs and the cache that an operator reads.

    Behind folded layers an operator reads a stand-in for the last layer's result, which no operator makes: it is no input,
    and its maker is among the dependencies without a tensor of its own.
    """
    read = [tensors[number] for number in operator.reads if number in tensors]
    there = [tensor for tensor in read if not tensor.created_by]
    stand_ins = len(set(operator.depends_on) - {tensor.created_by for tensor in read})
    inputs = [tensor for tensor in there if tensor.kind == "input"]
    return [*inputs[stand_ins:], *(tensor for tensor in there if tensor.kind == "cache")]


def _given(owner: Mapping[int, str], graph: Dataflow) -> Iterator[Edge]:
    """What the units give that no operator of the pass need read: the model's output, the cache."""
    for tensor in graph.tensors:
        if tensor.kind in ("output", "cache") and (maker := maker_of(tensor, graph)) in owner:
            yield Edge(owner[maker], OUTPUTS, _CACHE if tensor.kind == "cache" else "")
