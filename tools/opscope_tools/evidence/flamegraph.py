"""A flame graph from folded stacks, as one SVG that needs nothing else: frames as wide as what they take, the outermost below.

Every frame has a title that a pointer or a screen reader meets; its text is left out where it does not fit. Colours follow the kind of frame
(Python, native, kernel), equal frames have equal colours, and the same stacks give the same bytes. Labels are dark on light
grounds at a contrast of at least 4.5.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

__all__ = ["flamegraph"]

_WIDTH, _ROW, _SIGN, _EDGE, _HEAD = 1180, 17, 6.6, 10, 46
#: frames narrower than this, in pixels, are not drawn; what they took is told in the last line
_NARROWEST = 0.4
#: hue, and what frames of that hue are
_KINDS = (
    ("kernel", 12, re.compile(r"^\[k\]|_\[k\]$|\(vmlinux\)|^(?:__x64_sys|do_syscall|asm_|entry_SYSCALL)")),
    ("Python", 205, re.compile(r"\([^()]*\.py:\d+\)$")),
    ("native", 42, re.compile(r"")),
)


@dataclass
class _Frame:
    name: str
    count: int = 0
    inner: dict[str, _Frame] = field(default_factory=dict)

    def depth(self) -> int:
        return 1 + max((frame.depth() for frame in self.inner.values()), default=0)


def flamegraph(stacks: Mapping[tuple[str, ...], int], title: str, unit: str = "samples") -> str:
    """The SVG. `unit` is what a count counts. Raises `ValueError` where there is no stack."""
    root = _Frame("all")
    for stack, count in stacks.items():
        frame = root
        frame.count += count
        for name in stack:
            frame = frame.inner.setdefault(name, _Frame(name))
            frame.count += count
    if not root.count:
        raise ValueError("A flame graph needs at least one stack.")
    drawn: list[str] = []
    depth = root.depth()
    height = _HEAD + depth * _ROW + 34
    left_out = _draw(root, float(_EDGE), (_WIDTH - 2 * _EDGE) / root.count, height - 34 - _ROW, drawn, root.count, unit)
    told = f"{root.count:,} {unit}, {depth - 1} frames deep"
    small = f"; {100 * left_out / root.count:.1f} % in frames too narrow to draw" if left_out else ""
    key = "".join(
        f'<rect x="{_EDGE + 92 * at}" y="{height - 22}" width="12" height="12" fill="{_colour(hue, 0)}"/>'
        f'<text x="{_EDGE + 17 + 92 * at}" y="{height - 12}">{name}</text>'
        for at, (name, hue, _) in enumerate(_KINDS)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" aria-label="{escape(title)}" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11" fill="#14171a">'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/><text x="{_EDGE}" y="18" font-size="14" font-weight="700">{escape(title)}</text>'
        f'<text x="{_EDGE}" y="35">{told}{small}</text>{"".join(drawn)}{key}</svg>\n'
    )


def _draw(frame: _Frame, x: float, scale: float, y: float, drawn: list[str], total: int, unit: str) -> int:
    """Put down a frame and those above it; what of them is too narrow."""
    width = frame.count * scale
    if width < _NARROWEST:
        return frame.count
    told = f"{frame.name} ({frame.count:,} {unit}, {100 * frame.count / total:.1f} %)"
    room = int((width - 5) / _SIGN)
    label = frame.name if len(frame.name) <= room else f"{frame.name[: room - 1]}…" if room > 3 else ""
    text = f'<text x="{x + 3:.1f}" y="{y + 12:.1f}">{escape(label)}</text>' if label else ""
    hue = next(hue for _, hue, pattern in _KINDS if pattern.search(frame.name))
    drawn.append(
        f'<g><title>{escape(told)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{max(width - 0.4, 0.3):.1f}" height="{_ROW - 1}" fill="{_colour(hue, zlib.crc32(frame.name.encode()))}"/>{text}</g>'
    )
    left_out = 0
    at = x
    for inner in sorted(frame.inner.values(), key=lambda one: one.name):
        left_out += _draw(inner, at, scale, y - _ROW, drawn, total, unit)
        at += inner.count * scale
    return left_out


def _colour(hue: int, seed: int) -> str:
    """A light colour of that hue: text of #14171a on it has a contrast of at least 4.5."""
    return f"hsl({hue + seed % 18} {62 + seed // 18 % 20}% {72 + seed // 360 % 10}%)"
