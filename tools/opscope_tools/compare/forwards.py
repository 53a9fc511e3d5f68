"""The lines in which the forwards of matched modules differ, as `find_forward` reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from opscope_schemas.comparison import ForwardDifference
from opscope_schemas.errors import CancelledError, OpscopeError
from opscope_schemas.index import ForwardLine

from opscope_tools.compare.matching import Node
from opscope_tools.find_forward import FIND_FORWARD
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext


def differing_forwards(
    nodes: Sequence[tuple[Node, Node]], effects: Mapping[str, float], left: ToolContext, right: ToolContext, side: int
) -> list[ForwardDifference]:
    """Those whose lines differ, those first whose modules' own operators differ most (`effects`, by path in the left pass).

    What only a class's prefix makes different (LlamaMLP, Qwen3MLP) is the same.
    """
    found: dict[tuple[object, ...], ForwardDifference] = {}
    for one, other in sorted(nodes, key=lambda pair: -effects.get(pair[0].path, 0)):
        key = (one.forward, other.forward)
        if key in found or not (one.own and other.own):
            continue
        if one.forward == other.forward and left.workspace is right.workspace:
            continue
        try:
            lines = _lines(one, left), _lines(other, right)
        except CancelledError:
            raise
        except OpscopeError:  # code that no index holds
            continue
        if changed := _changed(*lines, _prefix(one), _prefix(other)):
            found[key] = ForwardDifference(
                what=one.path or one.class_name.rpartition(".")[2], side=side, left_at=_at(one), right_at=_at(other),
                lines=tuple(changed),
            )  # fmt: skip
    return list(found.values())


def _at(node: Node) -> str:
    return f"{node.forward[0]}:{node.forward[1]}"


def _prefix(node: Node) -> str:
    return node.class_name.rpartition(".")[2].removesuffix(node.stem)


def _lines(node: Node, context: ToolContext) -> tuple[ForwardLine, ...]:
    return run_tool(FIND_FORWARD, {"target": _at(node)}, context).lines


def _changed(
    left: Sequence[ForwardLine], right: Sequence[ForwardLine], left_prefix: str, right_prefix: str
) -> list[str]:
    """`-LINE code` and `+LINE code`, in order."""
    matcher = SequenceMatcher(None, _plain(left, left_prefix), _plain(right, right_prefix), autojunk=False)
    found = []
    for tag, i, k, j, m in matcher.get_opcodes():
        if tag != "equal":
            found += [f"-{line.line} {' '.join(line.code.split())}" for line in left[i:k]]
            found += [f"+{line.line} {' '.join(line.code.split())}" for line in right[j:m]]
    return found


def _plain(lines: Sequence[ForwardLine], prefix: str) -> list[str]:
    """Code without the prefix that the model's classes share."""
    named = re.compile(rf"\b{re.escape(prefix)}(?=[A-Z])") if prefix else None
    codes = [" ".join(line.code.split()) for line in lines]
    return [named.sub("", code) for code in codes] if named is not None else codes


__all__ = ["differing_forwards"]
