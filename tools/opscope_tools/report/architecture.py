"""The one diagram of a repository's report: a typed graph of what calls or holds what, in Markdown as Mermaid.

Vertices are files and folders of the repository, each once; an edge is a call that the loop makes from one file into another,
the function that a way in runs, or a folder that holds another.
"""

from __future__ import annotations

from collections.abc import Iterator

from opscope_schemas.repo_map import RepoMapResult

from opscope_tools.report.graph import Drawing, Edge, Graph, Vertex
from opscope_tools.report.mermaid import mermaid

__all__ = ["architecture_map"]

_NODES = 12


def architecture_map(found: RepoMapResult) -> Drawing:
    """The diagram; what is left out for its size is said."""
    nodes: dict[str, None] = {}
    left_out: dict[str, None] = {}
    edges: dict[Edge, None] = {}
    for source, target, label in (*_loop_calls(found), *_ways_in(found), *_holds(found)):
        new = {source, target} - nodes.keys()
        if source == target or len(nodes) + len(new) > _NODES:
            left_out.update(dict.fromkeys(sorted(new) if source != target else ()))
            continue
        nodes.update(dict.fromkeys(path for path in (source, target) if path in new))
        if not any((e.source, e.target) == (source, target) for e in edges):
            edges[Edge(source, target, label)] = None
    if not nodes:
        nodes = {found.repository: None}
    roles = {c.candidates[0].at.rpartition(":")[0]: c.role for c in reversed(found.components) if c.candidates}
    vertices = tuple(Vertex(n, (f"{n} ({roles[n]})" if n in roles else n,)) for n in nodes)
    gone = [path for path in left_out if path not in nodes]
    note = f"{len(gone)} further files and folders are not drawn." if gone else ""
    graph = Graph(vertices, tuple(edges), note=note)
    return Drawing("map", "Architecture map: what calls, runs or holds what", mermaid(graph), (graph,))


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
