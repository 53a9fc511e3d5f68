"""Diagrams as text, compiled from typed graphs: indented trees, stacked boxes, bars.

Nothing is drawn by hand: labels are data, so a long class name widens a box instead of breaking it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Box", "Node", "bars", "draw_stack", "draw_tree"]


@dataclass(frozen=True)
class Node:
    """A vertex of a tree."""

    label: str
    children: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Box:
    """A box of a stack: a title and lines below it."""

    title: str
    lines: tuple[str, ...] = ()


def draw_tree(root: Node) -> str:
    """The tree with branch glyphs, one node per line."""
    return "\n".join([root.label, *_branches(root, "")])


def _branches(node: Node, indent: str) -> list[str]:
    drawn: list[str] = []
    for position, child in enumerate(node.children, 1):
        last = position == len(node.children)
        drawn.append(f"{indent}{'└── ' if last else '├── '}{child.label}")
        drawn += _branches(child, indent + ("    " if last else "│   "))
    return drawn


def draw_stack(boxes: Sequence[Box], flow: Sequence[str] = ()) -> str:
    """The boxes from top to bottom, all of one width, joined by arrows; `flow` labels the arrows."""
    width = max((len(line) for box in boxes for line in (box.title, *box.lines)), default=0) + 2
    drawn: list[str] = []
    for position, box in enumerate(boxes):
        if position:
            label = flow[position - 1] if position <= len(flow) else ""
            drawn += [f"{' ' * (width // 2)}│ {label}".rstrip(), f"{' ' * (width // 2)}▼"]
        drawn.append(f"┌{'─' * width}┐")
        drawn += [f"│ {line.ljust(width - 2)} │" for line in (box.title, *box.lines)]
        drawn.append(f"└{'─' * width}┘")
    return "\n".join(drawn)


def bars(rows: Sequence[tuple[str, int]], width: int = 40) -> str:
    """One bar per row, as long as its share of the largest; the share of the sum follows."""
    total = sum(value for _, value in rows)
    top = max((value for _, value in rows), default=0)
    if not total:
        return "nothing is moved"
    room = max(len(label) for label, _ in rows)
    return "\n".join(
        f"{label.ljust(room)} {'█' * round(width * value / top):<{width}} {100 * value / total:5.1f} %"
        for label, value in rows
    )
