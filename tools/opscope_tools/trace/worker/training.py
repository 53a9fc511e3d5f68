"""The second half of a training step: what autograd runs backwards, by forward line, and what it keeps until then.

Autograd numbers its nodes as it makes them. Before an operator of the forward reaches the recorder its node is made, so the
newest number then is the node's: `Training.note` keeps under it the call and the line, and `Training.place` finds them
again when the node runs. What has no node (a gradient added to another) belongs to the node that ran last.

A folded sibling has no operators. `stand_in` puts one node in the place of its graph, so that gradients flow on to the
sibling that ran; what it would have saved is followed from that one (`Training.again`). Order: nodes of ours, `Training`.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from opscope_schemas.analysis import Site
from opscope_schemas.errors import TraceError
from opscope_schemas.formula import Formula

#: a call's index and a line in it
Place = tuple[int, Site]


class _StandIn(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """The graph of a folded sibling: what it returned depends on what it was given."""

    @staticmethod
    def forward(ctx: Any, paused: Any, given: Sequence[bool], made: Sequence[Any], *inputs: Any) -> Any:
        ctx.paused, ctx.inputs = paused, inputs
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(t for t, flows in zip(made, given, strict=True) if not flows))
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        with ctx.paused():
            found = [torch.empty_like(t) if any(g is not None for g in gradients) else None for t in ctx.inputs]
        return (None, None, None, *found)


class _Attention(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """The node of the fused attention: it keeps q, k, v, the mask, the result and a logarithm of each row's sum."""

    @staticmethod
    def forward(ctx: Any, report: Any, arguments: dict[str, Any], out: Any, sums: Any, *inputs: Any) -> Any:
        ctx.report, ctx.arguments = report, arguments
        ctx.save_for_backward(*inputs, out, sums)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        *inputs, out, sums = ctx.saved_tensors
        wanted = ctx.needs_input_grad[4:]
        made = [torch.empty_like(t) if wants else None for t, wants in zip(inputs, wanted, strict=True)]
        arguments = {**ctx.arguments, "masked": len(inputs) > 3}
        ctx.report(
            "opscope.sdpa_backward", [gradient, *inputs, out, sums], [t for t in made if t is not None], arguments
        )
        return (None, None, None, None, *made)


def result_of(query: Any, value: Any) -> Any:
    """An empty result of attention, which lies as the kernels leave it: as q does, or token by token."""
    if len(query.shape) != 4:
        return query.new_empty((*query.shape[:-1], value.shape[-1]))
    if query.shape[-1] == value.shape[-1]:
        return torch.empty_like(query.transpose(1, 2)).transpose(1, 2)
    batch, heads, length, _ = query.shape
    return query.new_empty((batch, length, heads, value.shape[-1])).transpose(1, 2)


def attention(report: Any, arguments: dict[str, Any], out: Any, inputs: Sequence[Any]) -> Any:
    """`out` with the graph of fused attention behind it."""
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in inputs):
        return out
    sums = torch.empty(inputs[0].shape[:-1], dtype=torch.float32)
    return _Attention.apply(report, arguments, out, sums, *inputs)


@dataclass(frozen=True)
class Saved:
    """A stretch of memory that autograd keeps, where it was first saved.

    `kind` "": kept always; "layer": by the operators of a layer, which recomputation spares; "input": what a layer is given,
    which recomputation keeps.
    """

    call: int
    site: Site
    info: Any
    size: Formula
    kind: str = ""


@dataclass
class _Pack:
    """Autograd saved a tensor, at that point of the record."""

    order: int
    storage: int
    saved: Saved
    #: whether its memory was not saved before
    new: bool


@dataclass
class Training:
    """What one recorded training step knows beside its operators.

    `measure`: what a tensor is and the bytes of its memory; `before`: whether memory was there before a point of the record.
    """

    measure: Callable[[Any], tuple[Any, Formula]]
    before: Callable[[int, int], bool]
    weights: frozenset[int]
    backward: bool = False
    saved: list[Saved] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    _places: list[Place] = field(default_factory=list)
    _last: Place | None = None
    _packs: list[_Pack] = field(default_factory=list)
    #: memory that is saved, kept alive so that no other takes its place
    _kept: dict[int, Any] = field(default_factory=dict)
    #: first sibling -> which of its packs are new to a sibling that was folded
    _steady: dict[int, tuple[bool, ...]] = field(default_factory=dict)

    # ---- where a node belongs

    def newest(self) -> int | None:
        """The number of the newest node, where nothing is known of it yet."""
        number = torch.autograd._get_sequence_nr() - 1
        return number if not self._numbers or number > self._numbers[-1] else None

    def note(self, number: int, place: Place) -> None:
        """The node of that number belongs there."""
        self._numbers.append(number)
        self._places.append(place)

    def place(self) -> Place | None:
        """Where the node that runs belongs."""
        node = torch._C._current_autograd_node()
        number = None if node is None else node._sequence_nr()
        if number is not None and number < 1 << 62:  # a weight's node, which takes its gradient, is behind all others
            at = bisect.bisect_right(self._numbers, number) - 1
            self._last = self._places[max(at, 0)] if self._places else self._last
        return self._last

    # ---- what is saved

    def save(self, tensor: Any, order: int, place: Callable[[], Place]) -> None:
        """Autograd saves a tensor."""
        storage = _storage(tensor)
        if storage in self.weights:
            return
        new = storage not in self._kept
        self._kept.setdefault(storage, tensor)
        call, site = place()
        saved = Saved(call, site, *self.measure(tensor))
        self._packs.append(_Pack(order, storage, saved, new))

    def again(self, event: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
        """A sibling of `event` was folded: `pairs` of what the first one took and gave, and of what this one did.

        Raises `TraceError` where siblings save differently.
        """
        stands = {_storage(a): b for a, b in pairs}
        mine = [pack for pack in self._packs if event.order <= pack.order <= event.end]
        fresh: set[int] = set()
        found = []
        for pack in mine:
            if pack.storage in stands:
                tensor = stands[pack.storage]
                new = _storage(tensor) not in self._kept and _storage(tensor) not in self.weights
                self._kept.setdefault(_storage(tensor), tensor)
            else:
                new = pack.storage not in fresh and not self.before(pack.storage, event.order)
                fresh.add(pack.storage)
            found.append(new)
        if self._steady.setdefault(event.index, tuple(found)) != tuple(found):
            raise TraceError("Layers that are alike save different tensors for their gradients.")

    def written(self, calls: Sequence[Any]) -> list[Saved]:
        """Everything that is saved once: by a layer that stands for others, what each of these saves."""
        layers = self.layers(calls)
        found = []
        for pack in self._packs:
            above = _above(calls, pack.saved.call)
            layer = next((calls[index] for index in above if index in layers), None)
            inner = layer is not None and (pack.storage in layer.kept or not self.before(pack.storage, layer.order))
            kind = "layer" if inner else ""
            steady = self._as_siblings(pack, [calls[i] for i in above])
            if steady is None:
                found += [_with(pack.saved, kind)] if pack.new else []
                continue
            new, event = steady
            found += [_with(pack.saved, kind)] if new else []
            if new != pack.new:  # the first sibling's own share, once
                once = pack.saved.size if pack.new else -1 * pack.saved.size
                found.append(Saved(event.parent, event.site or pack.saved.site, pack.saved.info, once, kind))
        for index in layers:
            found += self._inputs(calls[index])
        return found

    def _as_siblings(self, pack: _Pack, above: Sequence[Any]) -> tuple[bool, Any] | None:
        """Whether the siblings of the outermost layer that a pack lies in save it too, and that layer."""
        folded = [event for event in above if event.index in self._steady]
        if not folded:
            return None
        found = None
        for event in folded:
            mine = [p for p in self._packs if event.order <= p.order <= event.end]
            new = self._steady[event.index][next(i for i, p in enumerate(mine) if p is pack)]
            if new != pack.new:
                if len(folded) > 1:
                    raise TraceError("Layers within layers save different tensors for their gradients.")
                return new, event
            found = found or (new, event)
        return found

    def layers(self, calls: Sequence[Any]) -> frozenset[int]:
        """The outermost calls of lists' members: what recomputation runs again."""
        members = {e.index for e in calls if e.members is not None and e.takes_gradient}
        return frozenset(i for i in members if not any(above in members for above in _above(calls, i)[1:]))

    def _inputs(self, event: Any) -> list[Saved]:
        return [Saved(event.index, event.site, info, size, "input") for info, size in event.kept.values()]


def stand_in(paused: Any, made: Sequence[Any], like: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """`made` with one node behind them that hands gradients on to `inputs`, where those that they are `like` have one."""
    takes = [t for t in inputs if t.requires_grad]
    flows = [t.requires_grad for t in like]
    if not takes or not any(flows):
        return list(made)
    return list(_StandIn.apply(paused, flows, list(made), *takes))


@contextlib.contextmanager
def keeping(save: Callable[[Any], None]) -> Iterator[None]:
    """Hear of every tensor that autograd saves."""

    def packed(tensor: Any) -> Any:
        save(tensor)
        with torch.no_grad():
            return tensor.detach()  # the tensor itself would hold the graph that holds it

    with torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
        yield


def _with(saved: Saved, kind: str) -> Saved:
    return Saved(saved.call, saved.site, saved.info, saved.size, kind)


def _above(calls: Sequence[Any], index: int) -> list[int]:
    """A call and those it is made in, inside out."""
    found = []
    while index >= 0:
        found.append(index)
        index = calls[index].parent
    return found


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


__all__ = ["Saved", "Training", "attention", "keeping", "result_of", "stand_in"]
