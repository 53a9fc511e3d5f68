"""The one diagram of a repository's report: a typed graph of what calls or holds what, written as Mermaid.

Nodes are files and folders of the repository, each once; an edge is a call that the loop makes from one file into another,
the function that a way in runs, or a folder that holds another. Labels are always quoted, so that nothing in them is syntax.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opscope_schemas.repo_map import RepoMapResult

__all__ = ["Edge", "Graph", "architecture_map", "mermaid"]

_NODES = 12


@dataclass(frozen=True)
class Edge:
    """From one node to another."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True)
class Graph:
    """Labels by node, and edges between nodes."""

    nodes: dict[str, str]
    edges: tuple[Edge, ...]


def architecture_map(found: RepoMapResult) -> str:
    """The diagram as Mermaid."""
    nodes: dict[str, str] = {}
    edges: dict[Edge, None] = {}
    for source, target, label in (*_loop_calls(found), *_ways_in(found), *_holds(found)):
        new = {source, target} - nodes.keys()
        if source == target or len(nodes) + len(new) > _NODES:
            continue
        nodes.update({path: path for path in (source, target) if path in new})
        if not any((e.source, e.target) == (source, target) for e in edges):
            edges[Edge(source, target, label)] = None
    if not nodes:
        nodes = {found.repository: found.repository}
    roles = {c.candidates[0].at.rpartition(":")[0]: c.role for c in reversed(found.components) if c.candidates}
    return mermaid(Graph({n: f"{n} ({roles[n]})" if n in roles else n for n in nodes}, tuple(edges)))


def _loop_calls(found: RepoMapResult) -> Iterator[tuple[str, str, str]]:
    for nest in found.loops:
        for line in nest.lines:
            if line.into:
                yield line.at.rpartition(":")[0], line.into.rpartition(":")[0], "calls"


def _ways_in(found: RepoMapResult) -> Iterator[tuple[str, str, str]]:
    for entry in found.entry_points:
        if entry.target:
            yield entry.at.rpartition(":")[0], entry.target.rpartition(":")[0], "runs"


def _holds(found: RepoMapResult) -> Iterator[tuple[str, str, str]]:
    for module in found.modules:
        parent = module.path.rpartition("/")[0]
        if parent:
            yield parent, module.path, "holds"
    for folder in found.directories:
        yield found.repository, folder.path, "holds"


def mermaid(graph: Graph) -> str:
    """The graph as a flowchart."""
    names = {node: f"n{place}" for place, node in enumerate(graph.nodes, 1)}
    lines = ["flowchart TB"]
    for node, label in graph.nodes.items():
        plain = label.replace('"', "'").replace("#", "")
        lines.append(f'  {names[node]}["{plain}"]')
    for edge in graph.edges:
        label = f'|"{edge.label}"|' if edge.label else ""
        lines.append(f"  {names[edge.source]} -->{label} {names[edge.target]}")
    return "\n".join(lines)
