"""Plots as inline SVG: the roofline of a pass, and the memory that its activations take from operator to operator.

Colours are CSS variables of the page, so that one drawing serves light and dark; each drawing has a title and its numbers
as a description, for readers that do not see it. Nothing here was measured: both are drawn from counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from opscope_schemas.analysis import ModelAnalysis
from opscope_schemas.dataflow import Dataflow
from opscope_schemas.formula import Rational, evaluate
from opscope_schemas.units import amount, plain_bytes

from opscope_tools.report.facts import Figures, ImplementationFacts

__all__ = ["Plot", "memory_plot", "plots", "roofline_plot"]

_WIDTH, _HEIGHT = 720, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 16, 44
#: operators that a roofline names
_NAMED = 8


@dataclass(frozen=True)
class Plot:
    """A drawing: its heading in the report, a title, and the SVG."""

    section: str
    title: str
    svg: str


def plots(facts: ImplementationFacts) -> list[Plot]:
    """A roofline and a memory plot for every pass of the report."""
    found = []
    for document, graph in zip(facts.documents, facts.graphs, strict=True):
        point = facts.point(document)
        found.append(roofline_plot(document, point, facts.ridge, facts.ridge_source))
        memory = memory_plot(document, graph, point)
        found += [memory] if memory else []
    return found


def _svg(title: str, described: str, body: Sequence[str], name: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{name}-title {name}-desc" class="plot">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(described)}</desc>'
        f"{''.join(body)}</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


# ---- roofline -------------------------------------------------------------------------------------------------------


def roofline_plot(document: ModelAnalysis, point: dict[str, Rational], ridge: float, source: str) -> Plot:
    """Operators by FLOPs per byte under the roof of a device that turns compute-bound at `ridge` FLOPs per byte."""
    rows = []
    for group in document.per_operator:
        access = group.memory_access
        texts = (group.flops, group.matmul_flops, access.read, access.write)
        figures = Figures(*(evaluate(text, point) for text in texts))
        if figures.flops and figures.bytes:
            rows.append((group.name, figures))
    rows.sort(key=lambda row: -row[1].bytes)
    low = math.floor(math.log10(min([0.1, *(f.intensity for _, f in rows)])))
    high = math.ceil(math.log10(max([10 * ridge, *(f.intensity for _, f in rows)])))
    bottom = math.floor(math.log10(min(10.0**low / ridge, 1)))

    def x(intensity: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (math.log10(intensity) - low) / (high - low)

    def y(share: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (math.log10(share) - bottom) / -bottom

    body = [
        _line(_LEFT, y(1), _LEFT, y(10.0**bottom), "axis"),
        _line(_LEFT, y(10.0**bottom), _WIDTH - _RIGHT, y(10.0**bottom), "axis"),
    ]
    for power in range(low, high + 1):
        body += [_line(x(10.0**power), y(1), x(10.0**power), y(10.0**bottom), "grid")]
        body += [_text(x(10.0**power), _HEIGHT - _BOTTOM + 16, f"{10.0**power:g}", "middle")]
    for power in range(bottom, 1):
        body += [_text(_LEFT - 6, y(10.0**power) + 4, f"{100 * 10.0**power:g} %", "end")]
    body += [_text(_WIDTH / 2, _HEIGHT - 8, "FLOPs per byte", "middle")]
    body += [
        _line(x(10.0**low), y(10.0**low / ridge), x(ridge), y(1), "roof"),
        _line(x(ridge), y(1), _WIDTH - _RIGHT, y(1), "roof"),
    ]
    body += [_text(x(ridge) + 6, y(1) + 16, f"ridge {ridge:g}")]
    largest = max((f.bytes for _, f in rows), default=1)
    taken: list[tuple[float, float, float]] = [(x(ridge) + 6, y(1) + 16, 60)]
    for place, (name, figures) in enumerate(rows):
        at = x(figures.intensity), y(min(1.0, figures.intensity / ridge))
        radius = 3 + 7 * math.sqrt(figures.bytes / largest)
        body.append(f'<circle class="mark" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:.1f}"/>')
        if place < _NAMED:
            body.append(_label(at[0] + radius + 3, at[1] + 4, name.partition(".")[2] or name, taken))
    said = "; ".join(f"{name}: {f.intensity:.3g} FLOPs per byte, {plain_bytes(f.bytes)}" for name, f in rows)
    title = f"Roofline of {document.phase}, modelled from counts: share of peak that an operator can reach at most"
    described = f"Ridge {ridge:g} FLOPs per byte ({source}). {said}."
    return Plot("8.3", title, _svg(title, described, body, f"roofline-{document.phase}"))


def _label(x: float, y: float, text: str, taken: list[tuple[float, float, float]]) -> str:
    """A name beside its mark, moved down or up to where no other name stands, and kept inside the drawing."""
    width = 6.5 * len(text)
    x = min(x, _WIDTH - width - 2)
    for step in (0, 1, -1, 2, -2, 3, -3, 4, 5, 6):
        moved = y + 13 * step
        free = all(abs(moved - b) >= 12 or x >= a + w or a >= x + width for a, b, w in taken)
        if free and _TOP <= moved <= _HEIGHT - _BOTTOM:
            break
    taken.append((x, moved, width))
    return _text(x, moved, text)


# ---- memory ---------------------------------------------------------------------------------------------------------


def memory_plot(document: ModelAnalysis, graph: Dataflow, point: dict[str, Rational]) -> Plot | None:
    """Bytes of activations that are alive during each operator; None where a size is not known."""
    sizes = {t.id: evaluate(t.bytes, point) if t.bytes else None for t in graph.tensors}
    held = [[sizes[index] for index in operator.holds] for operator in graph.operators]
    if not held or any(size is None for one in held for size in one):
        return None
    alive = [sum(size or 0 for size in one) for one in held]
    if not any(alive):
        return None
    top = max(alive)
    step = (_WIDTH - _LEFT - _RIGHT) / len(alive)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top

    body = [_line(_LEFT, y(0), _WIDTH - _RIGHT, y(0), "axis"), _line(_LEFT, y(top), _LEFT, y(0), "axis")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        body += [_line(_LEFT, y(share * top), _WIDTH - _RIGHT, y(share * top), "grid")]
        body += [_text(_LEFT - 6, y(share * top) + 4, plain_bytes(round(share * top)), "end")]
    path = "".join(f"L{_LEFT + i * step:.1f},{y(v):.1f}H{_LEFT + (i + 1) * step:.1f}" for i, v in enumerate(alive))
    body.append(f'<path class="area" d="M{_LEFT},{y(0):.1f}{path}V{y(0):.1f}Z"/>')
    peak = alive.index(top)
    operator = graph.operators[peak]
    body += [
        _text(min(_LEFT + peak * step, _WIDTH - 200), y(top) + 14, f"peak {plain_bytes(top)}: {operator.operator}")
    ]
    body += [_text(_WIDTH / 2, _HEIGHT - 8, f"operators 1 to {len(alive)}, repeated layers once", "middle")]
    title = f"Activations alive in {document.phase}, from counts: each there until Python lets it go"
    described = (
        f"Peak {plain_bytes(top)} during operator {peak + 1}, {operator.operator} at {operator.file}:{operator.line}; "
        f"{amount(sum(alive) / len(alive), 'B')} on average."
    )
    return Plot("6.3", title, _svg(title, described, body, f"memory-{document.phase}"))
