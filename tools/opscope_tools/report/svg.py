"""Typed graphs drawn as inline SVG: boxes with side lines from what is made to who reads it, trees, timelines.

Boxes stand in one column in the order of execution; what the next box reads is an arrow between the two, what a later one reads
runs down a lane beside the column, one lane per maker. Colours are CSS variables of the page, so that one drawing serves light and
dark; each has a title and a description in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from opscope_tools.report.diagrams import entry, reads
from opscope_tools.report.graph import Graph, Vertex

__all__ = ["svg"]

#: of one character, one line, the space between boxes, one lane; the most characters of a line
_CHAR, _LINE, _GAP, _LANE, _CLIP = 7.3, 16, 22, 11, 84
_PAD, _LEFT, _HEAD = 9, 16, 22
#: a timeline's bars
_BARS, _ROW = 300, 34


def svg(graph: Graph, title: str, name: str) -> str:
    """The drawing; `name` makes the ids of its title and description unique in a page."""
    drawers = {"flow": _flow, "chains": _flow, "tree": _tree, "timeline": _timeline}
    width, height, body = drawers[graph.layout](graph)
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc" class="diagram"><title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(_described(graph))}</desc>{"".join(body)}</svg>'
    )


def _described(graph: Graph) -> str:
    """The drawing in words; who reads whom, what holds how much, what takes how long."""
    if graph.layout == "tree":
        said = f"{len(graph.vertices)} rows, from {graph.vertices[0].lines[0]}."
    elif graph.layout == "timeline":
        said = "; ".join(" ".join(" ".join(v.lines).split()) for v in graph.vertices) + "."
    else:
        said = "; ".join(
            f"{v.lines[0]} {reads(graph, v.id)}" if graph.into[v.id] else v.lines[0] for v in graph.vertices
        )
    return " ".join(filter(None, (said, graph.note)))


def _clipped(text: str) -> str:
    return text if len(text) <= _CLIP else text[: _CLIP - 1] + "…"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{mark} xml:space="preserve">{escape(text)}</text>'


# ---- flow -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Box:
    """Where a vertex is drawn."""

    lines: tuple[str, ...]
    top: float
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height


def _flow(graph: Graph) -> tuple[float, float, list[str]]:
    texts = {v.id: tuple(_clipped(line) for line in entry(graph, v)) for v in graph.vertices}
    labels = [_clipped(group.label) for group in graph.groups]
    widest = max(len(line) for lines in (labels, *texts.values()) for line in lines)
    right = _LEFT + 2 * _PAD + _CHAR * widest
    boxes, body, bottom = _placed(graph, texts, right)
    for vertex in graph.vertices:
        box = boxes[vertex.id]
        body.append(
            f'<rect class="box" x="{_LEFT}" y="{box.top:.1f}" width="{right - _LEFT:.1f}" height="{box.height:.1f}" rx="4"/>'
        )
        body += [_text(_LEFT + _PAD, box.top + 17 + _LINE * at, line) for at, line in enumerate(box.lines)]
    lanes = _lanes(graph)
    body += _links(graph, boxes, lanes, right)
    beside = _LANE * (max((lane for lane in lanes.values()), default=-1) + 2)
    labels_end = (
        _LEFT + 34 + _CHAR * max((len(edge.label) for edge in graph.edges if graph.layout == "flow"), default=0)
    )
    return max(right + beside + 10, labels_end + 6), bottom, body


def _placed(graph: Graph, texts: dict[str, tuple[str, ...]], right: float) -> tuple[dict[str, _Box], list[str], float]:
    """The boxes from top to bottom, and the frames of groups around theirs."""
    boxes: dict[str, _Box] = {}
    frames: list[str] = []
    y = 8.0
    for group, held in graph.blocks():
        first = y
        y += _HEAD + 6 if group else 0
        for vertex in held:
            boxes[vertex.id] = _Box(texts[vertex.id], y, 10 + _LINE * len(texts[vertex.id]))
            y = boxes[vertex.id].bottom + _GAP
        if group:
            y += 4
            shape = f'x="{_LEFT - 10}" y="{first:.1f}" width="{right - _LEFT + 16:.1f}" height="{y - first - 14:.1f}"'
            frames += [f'<rect class="frame" {shape} rx="6"/>', _text(_LEFT, first + 17, group.label, "strong")]
            y += 8
    return boxes, frames, y - _GAP + 8


def _lanes(graph: Graph) -> dict[tuple[str, bool], int]:
    """A lane for each maker that somebody else than the next box reads: the innermost that is free between the two."""
    spans: dict[tuple[str, bool], tuple[int, int]] = {}
    for edge in graph.edges:
        source, target = graph.place[edge.source], graph.place[edge.target]
        if edge.again or target != source + 1:
            low, high = spans.get((edge.source, edge.again), (source, source))
            spans[edge.source, edge.again] = min(low, target), max(high, target)
    taken: list[list[tuple[int, int]]] = []
    lanes: dict[tuple[str, bool], int] = {}
    for key, (low, high) in sorted(spans.items(), key=lambda each: (each[1][1] - each[1][0], each[1])):
        lane = next((n for n, held in enumerate(taken) if all(high < a or low > b for a, b in held)), len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((low, high))
        lanes[key] = lane
    return lanes


def _links(graph: Graph, boxes: dict[str, _Box], lanes: dict[tuple[str, bool], int], right: float) -> Iterator[str]:
    for vertex in graph.vertices:
        arrived = 0
        for edge in {(e.source, e.again): e for e in graph.into[vertex.id]}.values():
            source, target = boxes[edge.source], boxes[edge.target]
            if not edge.again and graph.place[edge.target] == graph.place[edge.source] + 1:
                x = _LEFT + 24
                yield f'<path class="link" d="M{x},{source.bottom:.1f}V{target.top - 5:.1f}"/>'
                yield f'<path class="head" d="M{x - 4},{target.top - 7:.1f}h8l-4,7z"/>'
                if edge.label and graph.layout == "flow":
                    yield _text(x + 10, source.bottom + _GAP - 7, edge.label, "faint")
                continue
            kind = "again" if edge.again else "link"
            lane = right + 10 + _LANE * lanes[edge.source, edge.again]
            start = source.bottom - (11 if edge.again else 5)
            end = min(target.top + 8 + 7 * arrived, target.bottom - 8)
            arrived += 1
            yield f'<path class="{kind}" d="M{right:.1f},{start:.1f}H{lane:.1f}V{end:.1f}H{right + 6:.1f}"/>'
            yield f'<path class="head" d="M{right:.1f},{end:.1f}l7,-4v8z"/>'


# ---- tree -----------------------------------------------------------------------------------------------------------


def _tree(graph: Graph) -> tuple[float, float, list[str]]:
    depth: dict[str, int] = {}
    held = {edge.target: edge.source for edge in graph.edges}
    body: list[str] = []
    widest = 0.0
    for place, vertex in enumerate(graph.vertices):
        depth[vertex.id] = depth[held[vertex.id]] + 1 if vertex.id in held else 0
        x, y = 8 + 20 * depth[vertex.id], 20 + _LINE * 1.15 * place
        if vertex.id in held:
            above = 20 + _LINE * 1.15 * graph.place[held[vertex.id]]
            body.append(f'<path class="branch" d="M{x - 13},{above + 5:.1f}V{y - 4:.1f}h10"/>')
        body.append(_text(x, y, _clipped(vertex.lines[0])))
        widest = max(widest, x + _CHAR * len(_clipped(vertex.lines[0])))
    return widest + 10, 20 + _LINE * 1.15 * len(graph.vertices), body


# ---- timeline -------------------------------------------------------------------------------------------------------


def _timeline(graph: Graph) -> tuple[float, float, list[str]]:
    """Each label stands above its bar, so that bars begin at the left edge of a narrow screen."""
    left = 8
    widest = max((_CHAR * len(_clipped(v.lines[0])) for v in graph.vertices), default=0)
    beside = _CHAR * max((len(_beside(v)) for v in graph.vertices), default=0)
    height = 28 + _ROW * len(graph.vertices)
    body = [_text(left, 14, "0 %", "faint"), _text(left + _BARS - 5 * _CHAR, 14, "100 %", "faint")]
    for part in range(5):
        x = left + _BARS * part / 4
        body.append(f'<path class="branch" d="M{x:.1f},20V{height - 4}"/>')
    for place, vertex in enumerate(graph.vertices):
        assert vertex.span is not None
        y = 24 + _ROW * place + 14
        x, width = left + _BARS * vertex.span.start, max(1.5, _BARS * vertex.span.length)
        kind = "computing" if "compute" in vertex.lines[-1] else "bar"
        body.append(f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="14"/>')
        body.append(_text(8, y - 3, _clipped(vertex.lines[0])))
        body.append(_text(left + _BARS + 10, y + 12, _beside(vertex)))
    return left + max(_BARS + beside + 10, widest) + 10, height, body


def _beside(vertex: Vertex) -> str:
    return "  ".join(vertex.lines[1:])
