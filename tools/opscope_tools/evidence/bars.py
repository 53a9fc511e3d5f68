"""Bars of what kernels are made of, as one SVG that needs nothing else: a bar for each, its parts by kind, in one order and one colour for all.

Each part has a title that a pointer or a screen reader meets, and its number where it fits; below stands which colour is what.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

__all__ = ["bars"]

_WIDTH, _ROW, _HEAD, _EDGE, _SIGN = 1180, 26, 52, 10, 6.6
#: hues of the kinds, in order; dark text on any of them has a contrast of at least 4.5
_HUES = (12, 42, 95, 165, 205, 250, 300, 340)


def bars(rows: Mapping[str, Mapping[str, int]], title: str, unit: str) -> str:
    """The SVG of rows of counts by kind; the longest bar takes the width. Raises `ValueError` where nothing was counted."""
    most = max((sum(parts.values()) for parts in rows.values()), default=0)
    if not most:
        raise ValueError("Bars need at least one count.")
    held: dict[str, int] = {}
    for parts in rows.values():
        for kind, count in parts.items():
            held[kind] = held.get(kind, 0) + count
    kinds = sorted(held, key=lambda kind: (-held[kind], kind))
    left = _EDGE + int(_SIGN * max(map(len, rows))) + 12
    scale = (_WIDTH - left - 70) / most
    drawn = []
    for at, (name, parts) in enumerate(rows.items()):
        y, x = _HEAD + at * _ROW, float(left)
        drawn.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        for kind in kinds:
            if count := parts.get(kind, 0):
                drawn.append(_part(x, y, count * scale, kind, count, _colour(kinds.index(kind)), f"{name}: {count:,} {unit}, {kind}"))  # fmt: skip
                x += count * scale
        drawn.append(f'<text x="{x + 6:.1f}" y="{y + 14}">{sum(parts.values()):,}</text>')
    foot = _HEAD + len(rows) * _ROW + 14
    x = _EDGE
    for at, kind in enumerate(kinds):
        wide = 34 + int(_SIGN * len(kind))
        if x + wide > _WIDTH and x > _EDGE:
            x, foot = _EDGE, foot + 18
        drawn.append(f'<rect x="{x}" y="{foot}" width="12" height="12" fill="{_colour(at)}"/><text x="{x + 17}" y="{foot + 10}">{escape(kind)}</text>')  # fmt: skip
        x += wide
    height = foot + 26
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" aria-label="{escape(title)}" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11" fill="#14171a">'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/><text x="{_EDGE}" y="18" font-size="14" font-weight="700">{escape(title)}</text>'
        f'<text x="{_EDGE}" y="35">{escape(unit)}, by kind</text>{"".join(drawn)}</svg>\n'
    )


def _part(x: float, y: int, width: float, kind: str, count: int, colour: str, told: str) -> str:
    label = next((text for text in (f"{kind} {count:,}", f"{count:,}") if _SIGN * len(text) + 6 <= width), "")
    text = f'<text x="{x + 3:.1f}" y="{y + 14}">{escape(label)}</text>' if label else ""
    return f'<g><title>{escape(told)}</title><rect x="{x:.1f}" y="{y}" width="{max(width - 0.6, 0.4):.1f}" height="{_ROW - 6}" fill="{colour}"/>{text}</g>'  # fmt: skip


def _colour(at: int) -> str:
    return f"hsl({_HUES[at % len(_HUES)]} 62% {78 - 8 * (at // len(_HUES) % 2)}%)"
