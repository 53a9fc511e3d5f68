"""Typed graphs drawn as text: flows from top to bottom, indented trees, lines of chains, timelines.

Who reads whom is said by number behind each vertex, because lines beside thirty of them cannot be followed in text; an arrow head
stands where a vertex reads the one above it. The page draws the same graphs with boxes and lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opscope_tools.report.graph import INPUTS, OUTPUTS, Edge, Graph, Span, Vertex

__all__ = ["draw", "entry", "reads"]

_CHAIN = 80
#: columns of a row of several chains
_PACKED = 120
#: columns of a timeline's bars
_BAR = 40


def draw(graph: Graph) -> str:
    """The graph as its layout asks."""
    drawers = {"flow": _flow, "tree": _tree, "chains": _chains, "timeline": _timeline}
    return drawers[graph.layout](graph)


# ---- flow -----------------------------------------------------------------------------------------------------------


def _flow(graph: Graph) -> str:
    """Vertices from top to bottom, each beginning its own line; an arrow head where it reads the one above it, members of a
    group indented below its label."""
    if any(vertex.brief for vertex in graph.vertices):
        return _brief(graph)
    drawn: list[str] = []
    before: Sequence[Vertex] = ()
    for group, held in graph.blocks():
        first, *more = (
            [group.label, *(line for v in held for line in _told(graph, v))] if group else _told(graph, held[0])
        )
        between = _between(graph, before, held)
        if graph.is_chain and (label := ", ".join(dict.fromkeys(e.label for e in between if e.label))):
            drawn.append(f"│ {label}")  # elsewhere brackets say it
        drawn += [f"{'▼' if between else '•'} {first}", *(f"  {'  ' if group else ''}{line}" for line in more)]
        before = held
    return "\n".join(drawn)


def _brief(graph: Graph) -> str:
    """Vertices by their brief labels, those that follow each other and read the same on one line."""
    inner = [vertex for vertex in graph.vertices if vertex.id not in (INPUTS, OUTPUTS)]
    if len(inner) == 1 and graph.is_chain:
        return f"inputs -> {inner[0].brief} -> outputs"
    rows: list[tuple[str, list[str]]] = []
    for vertex in graph.vertices:
        if vertex.id == INPUTS:
            continue
        said = f"[{reads(graph, vertex.id)}]"
        outer = vertex.id in (INPUTS, OUTPUTS)
        label = vertex.lines[0] if outer else f"{graph.names[vertex.id]} {vertex.brief}"
        if rows and rows[-1][0] == said and not outer:
            rows[-1][1].append(label)
        else:
            rows.append((said, [label]))
    return "\n".join("  ".join([" · ".join(labels), said]).rstrip() for said, labels in rows)


def _between(graph: Graph, upper: Sequence[Vertex], lower: Sequence[Vertex]) -> list[Edge]:
    """What the lower vertices read of the upper ones in the same repetition."""
    ends = {vertex.id for vertex in upper}
    return [e for vertex in lower for e in graph.into[vertex.id] if e.source in ends and not e.again]


def entry(graph: Graph, vertex: Vertex) -> list[str]:
    """A vertex's lines, in a flow that is no chain with its number and, on a line of its own, what it reads."""
    if graph.layout == "chains":
        said = _after([e for e in graph.edges if e.target == vertex.id])
        return [*_wrapped(vertex.lines), *([f"after {said}"] if said else [])]
    if graph.is_chain:
        return list(vertex.lines)
    outer = vertex.id in (INPUTS, OUTPUTS)
    number = "" if outer else f"{graph.names[vertex.id]}  "
    indent = " " * len(number)
    lines = [f"{number}{vertex.lines[0]}", *(f"{indent}{line}" for line in vertex.lines[1:])]
    return lines if vertex.id == INPUTS else [*lines, f"{indent}{reads(graph, vertex.id)}"]


def _told(graph: Graph, vertex: Vertex) -> list[str]:
    """Its entry, with what it reads in brackets behind the last of its own lines."""
    lines = entry(graph, vertex)
    if graph.is_chain:
        return [lines[0], *(f"  {line}" for line in lines[1:])]
    if vertex.id == INPUTS:
        return lines
    return [*lines[:-2], f"{lines[-2]}  [{lines[-1].strip()}]"]


def reads(graph: Graph, name: str) -> str:
    """`reads inputs, 2; of the repetition before: 7`."""
    edges = graph.into[name]
    now, again = (", ".join(_source(graph, e) for e in edges if e.again is late) for late in (False, True))
    parts = [now or "no other result"] if now or not again else []
    return "reads " + "; ".join([*parts, *([f"of the repetition before: {again}"] if again else [])])


def _source(graph: Graph, edge: Edge) -> str:
    return f"{graph.names[edge.source]}{f' ({edge.label})' if edge.label else ''}"


# ---- tree -----------------------------------------------------------------------------------------------------------


def _tree(graph: Graph) -> str:
    """Branch glyphs, one vertex per line."""
    children: dict[str, list[Vertex]] = {vertex.id: [] for vertex in graph.vertices}
    held = {edge.target: edge.source for edge in graph.edges}
    for vertex in graph.vertices:
        if vertex.id in held:
            children[held[vertex.id]].append(vertex)
    roots = [vertex for vertex in graph.vertices if vertex.id not in held]
    return "\n".join(line for root in roots for line in [root.lines[0], *_branches(children, root, "")])


def _branches(children: dict[str, list[Vertex]], vertex: Vertex, indent: str) -> Iterator[str]:
    for position, child in enumerate(children[vertex.id], 1):
        last = position == len(children[vertex.id])
        yield f"{indent}{'└── ' if last else '├── '}{child.lines[0]}"
        yield from _branches(children, child, indent + ("    " if last else "│   "))


# ---- chains ---------------------------------------------------------------------------------------------------------


def _chains(graph: Graph) -> str:
    """Vertices with their lines joined by arrows, what the first one reads in front; short ones share a row."""
    drawn: list[str] = []
    for vertex in graph.vertices:
        said = _after([e for e in graph.edges if e.target == vertex.id])
        rows = _wrapped(vertex.lines)
        first = f"{f'after {said}: ' if said else ''}{rows[0]}"
        if drawn and len(rows) == 1 and len(drawn[-1]) + len(first) + 3 <= _PACKED:
            drawn[-1] += f" | {first}"
        else:
            drawn.append(first)
        drawn += [f"  -> {row}" for row in rows[1:]]
    return "\n".join(drawn)


def _after(edges: Sequence[Edge]) -> str:
    """The labels of edges, which name what is read: those of this pass, of the repetition before, of a second run."""
    kinds: dict[str, list[str]] = {}
    for edge in edges:
        number, _, kind = edge.label.partition(" ")
        kinds.setdefault(kind, []).append(number)
    return "; ".join(f"{kind}: {', '.join(numbers)}" if kind else ", ".join(numbers) for kind, numbers in kinds.items())


def _wrapped(labels: Sequence[str]) -> list[str]:
    rows = [labels[0]]
    for label in labels[1:]:
        if len(rows[-1]) + len(label) + 4 > _CHAIN:
            rows.append(label)
        else:
            rows[-1] += f" -> {label}"
    return rows


# ---- timeline -------------------------------------------------------------------------------------------------------


def _timeline(graph: Graph) -> str:
    """One bar per vertex, from where it begins to where it ends; first line and last lines of a vertex beside its bar."""
    room = max((len(vertex.lines[0]) for vertex in graph.vertices), default=0)
    drawn = []
    for vertex in graph.vertices:
        assert vertex.span is not None
        drawn.append(f"{vertex.lines[0].ljust(room)} {_bar(vertex.span)} {'  '.join(vertex.lines[1:])}".rstrip())
    return "\n".join(drawn)


def _bar(span: Span) -> str:
    """A bar at its place; what is shorter than half a column is a thin stroke."""
    first, last = round(_BAR * span.start), round(_BAR * (span.start + span.length))
    at = min(first, _BAR - 1)
    return (" " * at + ("█" * (last - first) or "▏")).ljust(_BAR)
