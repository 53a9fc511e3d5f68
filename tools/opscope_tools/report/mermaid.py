"""Typed graphs written as Mermaid's flowcharts, with groups as subgraphs.

Labels are quoted and what Mermaid or Markdown would read in them is written as an entity, so that no label is syntax.
"""

from __future__ import annotations

from collections.abc import Iterator

from opscope_tools.report.graph import Graph, Vertex

__all__ = ["mermaid"]

#: characters that end a label, begin an entity or a tag, or are Markdown inside one
_SPECIAL = {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "`": "#96;", "|": "#124;"}


def mermaid(graph: Graph) -> str:
    """The graph as Mermaid's text."""
    return "\n".join(_flowchart(graph))


def _label(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _lines(vertex: Vertex) -> str:
    return "<br/>".join(_label(line) for part in vertex.lines for line in part.split("\n"))


def _flowchart(graph: Graph) -> Iterator[str]:
    names = {vertex.id: f"n{place}" for place, vertex in enumerate(graph.vertices, 1)}
    yield "flowchart TB"
    for number, (group, held) in enumerate(graph.blocks(), 1):
        indent = "    " if group else "  "
        if group:
            yield f'  subgraph g{number}["{_label(group.label)}"]'
        for vertex in held:
            yield f'{indent}{names[vertex.id]}["{_lines(vertex)}"]'
        if group:
            yield "  end"
    labels: dict[tuple[str, str, bool], list[str]] = {}
    for edge in graph.edges:
        labels.setdefault((edge.source, edge.target, edge.again), []).append(edge.label)
    for (source, target, again), given in labels.items():
        said = ", ".join(_label(label) for label in given if label)
        mark = f'|"{said}"|' if said else ""
        yield f"  {names[source]} {'-.->' if again else '-->'}{mark} {names[target]}"
