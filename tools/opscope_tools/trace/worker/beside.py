"""Work outside of a stack's layers that their number decides: what a forward does between two of them, or once for each.

Layers are counted by a formula of the depth. What a model computes by itself for each of them (a cache that it sets up, a
scaled residual) is in the record as often as at the traced depth, so the record holds for that depth alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from opscope_tools.trace.worker.recorder import CallEvent, Recorder


def between_layers(recorder: Recorder, container: str, stacked: Collection[str]) -> bool:
    """Whether anything but layers, of this stack or another of `stacked`, runs after a stack's first layer and before its last."""
    for parent in {event.parent for event in recorder.calls if event.container == container}:
        first, last = recorder.spans[parent, container]
        if any(op.call == parent and first < op.order < last for op in recorder.ops):
            return True
        others = (e for e in recorder.calls if e.parent == parent and e.container not in stacked)
        if any(first < e.order < last for e in others):
            return True
    return False


def once_a_layer(recorder: Recorder, container: str, depth: int) -> bool:
    """Whether a line outside of the stack runs an operator about as often as there are layers."""
    outside = _around(recorder.calls, container)
    often = Counter((op.call, op.site, op.operator) for op in recorder.ops if op.call in outside)
    return any(count > 1 and count >= depth - 1 for count in often.values())


def _around(calls: list[CallEvent], container: str) -> set[int]:
    """The calls within which a stack runs."""
    found: set[int] = set()
    for event in calls:
        if event.container == container:
            parent = event.parent
            while parent >= 0 and parent not in found:
                found.add(parent)
                parent = calls[parent].parent
    return found


__all__ = ["between_layers", "once_a_layer"]
