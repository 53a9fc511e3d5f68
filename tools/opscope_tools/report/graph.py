"""The typed graph that every diagram of a report is built as, once; `diagrams`, `mermaid` and `svg` only draw it.

A vertex has lines of text; a group holds vertices that follow each other; an edge leads from what is read to its reader. The
order of the vertices is the order of execution (or of nesting). `folded` takes vertices out and keeps what flowed through them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

__all__ = ["INPUTS", "OUTPUTS", "Drawing", "Edge", "Graph", "Group", "Layout", "Span", "Vertex", "folded", "from_tree"]

#: flow: boxes and who reads whom; tree: what holds what; chains: a flow whose runs of vertices are one line; timeline: spans
Layout = Literal["flow", "tree", "chains", "timeline"]
#: ids of the two vertices that stand for what a module is given and what it gives
INPUTS, OUTPUTS = "in", "out"


@dataclass(frozen=True)
class Span:
    """A stretch of a timeline, both numbers in shares of the whole, from 0 to 1."""

    start: float
    length: float


@dataclass(frozen=True)
class Vertex:
    """A box, a row of a tree or a bar: its lines, the group that holds it, what it weighs where something must go.

    `brief` stands in text for lines that a drawing has room for.
    """

    id: str
    lines: tuple[str, ...]
    group: str = ""
    weight: float = 0
    span: Span | None = None
    brief: str = ""


@dataclass(frozen=True)
class Edge:
    """`target` reads what `source` makes, or is held by it; `again`: it reads what was made a repetition earlier."""

    source: str
    target: str
    label: str = ""
    again: bool = False


@dataclass(frozen=True)
class Group:
    """A frame around vertices that follow each other."""

    id: str
    label: str


@dataclass(frozen=True)
class Graph:
    """Vertices in order, edges, groups; `note` says what is left out, where anything is."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...] = ()
    groups: tuple[Group, ...] = ()
    layout: Layout = "flow"
    title: str = ""
    note: str = ""

    @cached_property
    def place(self) -> dict[str, int]:
        """Where each vertex stands in the order."""
        return {vertex.id: place for place, vertex in enumerate(self.vertices)}

    @cached_property
    def into(self) -> dict[str, list[Edge]]:
        """The edges that end at each vertex, by the order of where they begin."""
        found: dict[str, list[Edge]] = {vertex.id: [] for vertex in self.vertices}
        for edge in sorted(self.edges, key=lambda edge: self.place[edge.source]):
            found[edge.target].append(edge)
        return found

    @cached_property
    def names(self) -> dict[str, str]:
        """What a vertex is called by others: its number in the order; inputs and outputs by what they are."""
        inner = [v.id for v in self.vertices if v.id not in (INPUTS, OUTPUTS)]
        numbers = {name: str(number) for number, name in enumerate(inner, 1)}
        return {INPUTS: "inputs", OUTPUTS: "outputs", **numbers}

    @property
    def is_chain(self) -> bool:
        """Whether each vertex is read by the next one and by no other."""
        ids = [vertex.id for vertex in self.vertices]
        steps = set(pairwise(ids))
        return {(e.source, e.target) for e in self.edges} == steps and not any(e.again for e in self.edges)

    def blocks(self) -> Iterator[tuple[Group | None, list[Vertex]]]:
        """The vertices as they stand below each other: each alone, or the ones of a group together."""
        held = {group.id: group for group in self.groups}
        run: list[Vertex] = []
        for vertex in self.vertices:
            if run and (vertex.group != run[0].group or not vertex.group):
                yield held.get(run[0].group), run
                run = []
            run.append(vertex)
        if run:
            yield held.get(run[0].group), run


@dataclass(frozen=True)
class Drawing:
    """A diagram of a report: its section, its text in Markdown, and the graphs to be drawn elsewhere."""

    section: str
    title: str
    text: str
    graphs: tuple[Graph, ...] = ()

    @property
    def note(self) -> str:
        """What the drawn graphs leave out of what the text has."""
        return " ".join(dict.fromkeys(graph.note for graph in self.graphs if graph.note))


def folded(graph: Graph, most: int, what: str) -> Graph:
    """The graph with the `most` heaviest vertices; what was read through others is read from where it came.

    `what` names the vertices in the sentence that says how many are left out. Inputs and outputs always stay.
    """
    inner = [vertex for vertex in graph.vertices if vertex.id not in (INPUTS, OUTPUTS)]
    if len(inner) <= most:
        return graph
    kept = {v.id for v in sorted(inner, key=lambda v: -v.weight)[:most]}
    gone = [vertex.id for vertex in inner if vertex.id not in kept]
    edges = _through(graph.edges, gone)
    vertices = tuple(vertex for vertex in graph.vertices if vertex.id not in gone)
    groups = tuple(group for group in graph.groups if any(v.group == group.id for v in vertices))
    said = f"{len(gone)} {what} are left out; an arrow past them means that what is read went through them."
    return replace(
        graph, vertices=vertices, edges=edges, groups=groups, note=" ".join(filter(None, (graph.note, said)))
    )


def _through(edges: Sequence[Edge], gone: Sequence[str]) -> tuple[Edge, ...]:
    """Edges without the vertices that are gone: from each that they read to each that reads them."""
    found = dict.fromkeys(edges)
    for name in gone:
        arriving = [edge for edge in found if edge.target == name and edge.source != name]
        leaving = [edge for edge in found if edge.source == name and edge.target != name]
        found = {edge: None for edge in found if name not in (edge.source, edge.target)}
        held = {(edge.source, edge.target, edge.again) for edge in found}
        for a in arriving:
            for b in leaving:
                new = Edge(a.source, b.target, b.label, a.again or b.again)
                if (new.source != new.target or new.again) and (new.source, new.target, new.again) not in held:
                    held.add((new.source, new.target, new.again))
                    found[new] = None
    return tuple(found)


def from_tree(rows: Sequence[tuple[int, str]], most: int = 0) -> Graph:
    """A tree from its rows, each with its depth, in order; with `most` the deepest levels are left out until no more rows stay.

    The rows that lose what they held say how many.
    """
    deepest = max((depth for depth, _ in rows), default=0)
    while most and deepest > 1 and sum(depth <= deepest for depth, _ in rows) > most:
        deepest -= 1
    below: dict[int, int] = {}
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    above: Mapping[int, str] = {}
    for depth, label in rows:
        if depth > deepest:
            below[len(vertices) - 1] = below.get(len(vertices) - 1, 0) + 1
            continue
        name = f"r{len(vertices)}"
        above = {**{level: held for level, held in above.items() if level < depth}, depth: name}
        vertices.append(Vertex(name, (label,)))
        edges += [Edge(above[depth - 1], name)] if depth - 1 in above else []
    shown = tuple(
        replace(v, lines=(f"{v.lines[0]}  (+{below[at]} below)",)) if at in below else v
        for at, v in enumerate(vertices)
    )
    gone = sum(below.values())
    note = f"{gone} rows of the deepest levels are left out of the drawing; the text has all." if gone else ""
    return Graph(shown, tuple(edges), layout="tree", note=note)
