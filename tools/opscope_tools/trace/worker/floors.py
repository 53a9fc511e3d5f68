"""The floor: bytes that no implementation of a module call can avoid."""

from __future__ import annotations

from collections.abc import Mapping

from opscope_schemas.formula import Formula, Rational

from opscope_tools.trace.operators import ZERO
from opscope_tools.trace.worker.recorder import CallEvent, Recorder


class Floors:
    """Bytes that a call cannot avoid: each weight it touches, its inputs and its cache read once, its outputs written."""

    def __init__(self, recorder: Recorder, layers: dict[int, Formula], point: Mapping[str, Rational]) -> None:
        self._layers = layers
        stored = recorder.stored.variables() if recorder.stored is not None else {}
        elements = dict.fromkeys(("w_bytes", "a_bytes", "kv_bytes", *stored), 2)  # of one dtype
        self._point = {**recorder.symbols.hints, **point, **elements}
        self._children: dict[int, list[CallEvent]] = {}
        self._own: dict[int, dict[int, Formula]] = {}
        for event in recorder.calls:
            self._children.setdefault(event.parent, []).append(event)
        for op in recorder.ops:
            mine = self._own.setdefault(op.call, {})
            for storage, read in op.weights.items():
                mine[storage] = self._larger(mine.get(storage), read)
        self._known: dict[int, tuple[dict[int, Formula], Formula, Formula, Formula]] = {}

    def _larger(self, a: Formula | None, b: Formula) -> Formula:
        if a is None or a == b:
            return b
        return a if a.evaluate(self._point) >= b.evaluate(self._point) else b

    def _gathered(self, event: CallEvent) -> tuple[dict[int, Formula], Formula, Formula, Formula]:
        """Weights by storage, weights of repeated children, cache read, cache written: of the subtree."""
        if event.index not in self._known:
            single, repeated = dict(self._own.get(event.index, {})), ZERO
            read, written = event.cache_read, event.cache_written
            for child in self._children.get(event.index, []):
                weights, more, child_read, child_written = self._gathered(child)
                times = self._layers[child.index]
                if times == 1:  # a step of a loop reads the weights that the one before it read
                    repeated = repeated + more
                    for storage, size in weights.items():
                        single[storage] = self._larger(single.get(storage), size)
                else:
                    repeated = repeated + times * (more + sum(weights.values(), ZERO))
                times = times * child.loops
                read, written = read + times * child_read, written + times * child_written
            self._known[event.index] = (single, repeated, read, written)
        return self._known[event.index]

    def of(self, event: CallEvent) -> tuple[Formula, Formula]:
        """(read, written) bytes of one call."""
        single, repeated, cache_read, cache_written = self._gathered(event)
        weights = sum(single.values(), repeated)
        return weights + event.input_bytes + cache_read, event.output_bytes + cache_written
