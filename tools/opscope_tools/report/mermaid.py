"""Typed graphs written as Mermaid: flowcharts, with groups as subgraphs, and timelines as a gantt chart of shares.

Labels are quoted and what Mermaid or Markdown would read in them is written as an entity, so that no label is syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from opscope_tools.report.graph import Graph, Vertex

__all__ = ["mermaid"]

#: characters that end a label, begin an entity or a tag, or are Markdown inside one
_SPECIAL = {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "`": "#96;", "|": "#124;"}
#: parts of one whole that a gantt chart counts in
_PARTS = 1000


def mermaid(graph: Graph) -> str:
    """The graph as Mermaid's text."""
    return "\n".join(_gantt(graph) if graph.layout == "timeline" else _flowchart(graph))


def _label(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _lines(graph: Graph, vertex: Vertex) -> str:
    joint = " → " if graph.layout == "chains" else "\n"
    return "<br/>".join(_label(line) for line in joint.join(vertex.lines).split("\n"))


def _flowchart(graph: Graph) -> Iterator[str]:
    names = {vertex.id: f"n{place}" for place, vertex in enumerate(graph.vertices, 1)}
    yield "flowchart LR" if graph.layout == "tree" else "flowchart TB"
    for number, (group, held) in enumerate(graph.blocks(), 1):
        indent = "    " if group else "  "
        if group:
            yield f'  subgraph g{number}["{_label(group.label)}"]'
        for vertex in held:
            yield f'{indent}{names[vertex.id]}["{_lines(graph, vertex)}"]'
        if group:
            yield "  end"
    labels: dict[tuple[str, str, bool], list[str]] = {}
    for edge in graph.edges:
        labels.setdefault((edge.source, edge.target, edge.again), []).append(edge.label)
    for (source, target, again), given in labels.items():
        said = ", ".join(_label(label) for label in given if label)
        mark = f'|"{said}"|' if said else ""
        yield f"  {names[source]} {'-.->' if again else '-->'}{mark} {names[target]}"


def _gantt(graph: Graph) -> Iterator[str]:
    """A gantt chart knows only dates, so the axis counts thousandths of the whole."""
    yield "gantt"
    yield f"  title {_plain(graph.title)}, in thousandths"
    yield "  dateFormat x"
    yield "  axisFormat %Q"
    for vertex in graph.vertices:
        assert vertex.span is not None
        first, last = round(_PARTS * vertex.span.start), round(_PARTS * (vertex.span.start + vertex.span.length))
        yield f"  {_plain(vertex.lines[0])} :{first}, {max(last, first + 1)}"


def _plain(text: str) -> str:
    """A label of a gantt chart, which nothing quotes."""
    return re.sub(r"[:;#,%]", " ", text)
