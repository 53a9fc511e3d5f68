"""The graph of section 2.1: the calls that a forward makes, repeated layers as groups, and who reads whose result.

A call that only holds repeated layers (a backbone, a stack) is replaced by what it calls, so that the layers show. A model's
own operators are boxes too: a residual addition between two calls is where their paths join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opscope_schemas.analysis import Kernel
from opscope_schemas.dataflow import Dataflow
from opscope_schemas.formula import Rational, evaluate

from opscope_tools.report.facts import Figures, ImplementationFacts, short, walk
from opscope_tools.report.graph import INPUTS, OUTPUTS, Edge, Graph, Group, Vertex, folded
from opscope_tools.report.kinds import kinds_of
from opscope_tools.report.links import Operators, Unit, edges_of

__all__ = ["Part", "parts", "path_of", "system_graph"]

#: boxes beyond which the lightest are left out, and own operators that a box names
_MOST, _NAMED = 40, 5


@dataclass(frozen=True)
class Part:
    """A box: its label, the kernels that run in it, and the repeated call that holds it."""

    label: str
    kernels: tuple[Kernel, ...]
    within: Kernel | None = None
    path: str = ""
    #: whose own operators they are; empty: they are calls
    owner: str = ""


def parts(facts: ImplementationFacts, kernels: Sequence[Kernel], values: Mapping[str, Rational]) -> list[Part]:
    """What a forward runs, in order of execution, down to the calls inside repeated layers."""
    return _parts(kernels, short(facts.subject), "", None, values)


def _parts(
    kernels: Sequence[Kernel], owner: str, prefix: str, within: Kernel | None, values: Mapping[str, Rational]
) -> list[Part]:
    found: list[Part] = []
    outer = evaluate(within.repeat, values) if within else 1
    for run in _runs(kernels, outer, values):
        first, repeat = run[0], evaluate(run[0].repeat, values)
        path = f"{prefix}{first.attribute or 'call'}"
        if not first.class_name:
            found.append(Part(_own(run, owner), run, within, prefix, owner))
        elif within is None and repeat > 1 and len(run) == 1 and first.kernels:
            found += _parts(first.kernels, short(first.class_name), "", first, values)
        elif within is None and len(run) == 1 and _holds_layers(first, values):
            found += _parts(first.kernels or (), short(first.class_name), f"{path}.", None, values)
        else:
            count = len(run) * repeat // outer
            times = f" ×{count}" if count > 1 else ""
            found.append(Part(f"{path}: {short(first.class_name)}{times}", run, within, path))
    return found


def _runs(kernels: Sequence[Kernel], outer: int, values: Mapping[str, Rational]) -> list[tuple[Kernel, ...]]:
    """Calls of one submodule on one line together, but for repeated ones; operators that follow each other together."""
    found: dict[object, list[Kernel]] = {}
    stretch = 0
    for kernel in kernels:
        if kernel.class_name:
            stretch += 1
            alone = evaluate(kernel.repeat, values) != outer
            key: object = id(kernel) if alone else (kernel.attribute, kernel.class_name, kernel.file, kernel.line)
        else:
            key = stretch
        found.setdefault(key, []).append(kernel)
    return [tuple(run) for run in found.values()]


def _own(run: Sequence[Kernel], owner: str) -> str:
    names = list(dict.fromkeys((k.operator or k.operation).removeprefix("aten.").split(".")[0] for k in run))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    lines = [f":{line}" for line in dict.fromkeys(kernel.line for kernel in run)]
    further = f" and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    return f"{owner}'s own {', '.join(names[:_NAMED])}{more} ({', '.join(lines[:_NAMED])}{further})"


def _holds_layers(call: Kernel, values: Mapping[str, Rational]) -> bool:
    return any(evaluate(k.repeat, values) > evaluate(call.repeat, values) for _, _, k in walk(call.kernels or (), ""))


def system_graph(facts: ImplementationFacts) -> Graph:
    """The calls as boxes, in call order; calls that run no operator (dropout in inference) are none."""
    name, values = short(facts.subject), facts.point(facts.main)
    operators = Operators(facts.main)
    whole = parts(facts, facts.main.kernels, values)
    found = [each for part in whole for each in _apart(part, operators, facts.graphs[0]) if operators.of(each.kernels)]
    units = [operators.unit(f"v{at}", part.kernels) for at, part in enumerate(found)]
    groups: dict[int, Group] = {}
    vertices = []
    for unit, part in zip(units, found, strict=True):
        group = ""
        if part.within is not None:
            group = groups.setdefault(id(part.within), Group(f"g{len(groups)}", _title(facts, part.within, values))).id
        weight = Figures.sum(part.kernels, values).bytes
        vertices.append(Vertex(unit.id, (part.label,), group, weight))
    return folded(
        Graph(
            (Vertex(INPUTS, (f"inputs of {name}",)), *vertices, Vertex(OUTPUTS, (f"outputs of {name}",))),
            (*edges_of(units, facts.graphs[0]), *_missing(units)), tuple(groups.values()),
        ),
        _MOST, "boxes that move the fewest bytes",
    )  # fmt: skip


def _apart(part: Part, operators: Operators, graph: Dataflow) -> list[Part]:
    """Own operators as boxes of those that belong together: they stand on one line, read each other, or read the same."""
    if not part.owner:
        return [part]
    groups: list[tuple[list[Kernel], set[object]]] = []
    for kernel in part.kernels:
        joined, signs = [kernel], _signs(kernel, operators, graph)
        for group in [group for group in groups if group[1] & signs]:
            groups.remove(group)
            joined, signs = [*group[0], *joined], group[1] | signs
        groups.append((joined, signs))
    place = {id(kernel): at for at, kernel in enumerate(part.kernels)}
    runs = sorted((sorted(held, key=lambda k: place[id(k)]) for held, _ in groups), key=lambda run: place[id(run[0])])
    return [replace(part, label=_own(run, part.owner), kernels=tuple(run)) for run in runs]


def _signs(kernel: Kernel, operators: Operators, graph: Dataflow) -> set[object]:
    """What an operator shares with those that belong to it: its line, its result, what it reads."""
    own = [graph.operators[number - 1] for number in operators.of([kernel])]
    read = {sign for one in own for sign in (*one.depends_on, *(("tensor", tensor) for tensor in one.reads))}
    return {("line", kernel.file, kernel.line), *(one.id for one in own), *read}


def _missing(units: Sequence[Unit]) -> tuple[Edge, ...]:
    """A forward that runs no operator hands on what it is given."""
    return () if units else (Edge(INPUTS, OUTPUTS),)


def _title(facts: ImplementationFacts, call: Kernel, values: Mapping[str, Rational]) -> str:
    """The whole path of a repeated call, its class and how often it runs."""
    path = path_of(facts.main.kernels, call) or call.attribute or "call"
    kind = kinds_of(facts, facts.main).get(id(call))
    return f"{path}: {short(call.class_name)} ×{evaluate(call.repeat, values)}{f', {kind.whole}' if kind else ''}"


def path_of(kernels: Sequence[Kernel], wanted: Kernel) -> str:
    """The attributes that lead to a call, joined by dots; empty where it is not below `kernels`."""
    for kernel in kernels:
        if kernel is wanted:
            return kernel.attribute
        below = path_of(kernel.kernels or (), wanted)
        if below:
            return f"{kernel.attribute}.{below}"
    return ""
