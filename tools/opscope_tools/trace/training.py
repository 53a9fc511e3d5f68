"""The training step of a traced call: which way the work goes, what stays in memory between, and the optimizer's share.

Order: the two ways, saved activations by line, optimizers by class, recomputation layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterable

from opscope_schemas.analysis import MemoryAccess, Optimizer, Recomputation, Share, TrainedLine, Training
from opscope_schemas.formula import Formula

from opscope_tools.trace.document import CallTree, Sum, op_sum, parse
from opscope_tools.trace.protocol import CallRecord, OpRecord, SavedRecord

_ZERO = Formula.const(0)
#: what an optimizer keeps per weight beside the weight itself, FLOPs per weight, tensors of fp32 read and written
_OPTIMIZERS = (
    ("adamw", 12, 15, 3, "fp32 weights and two fp32 moments; per weight: decay 1, moments 3 and 4, their corrections 2, root, "
     "epsilon, divide, rate, subtract"),
    ("sgd_momentum", 8, 4, 2, "fp32 weights and an fp32 momentum; per weight: momentum 2, rate, subtract"),
    ("sgd", 4, 2, 1, "fp32 weights; per weight: rate, subtract"),
)  # fmt: skip


def training_of(tree: CallTree, call: CallRecord) -> Training | None:
    """What a training step adds to the document of a call; None of any other pass."""
    if tree.trace.phase != "train":
        return None
    back = _backward(tree, call)
    total = tree.own_sum(call)
    ahead = total + back.times(Formula.const(-1))
    saved = _saved(tree)
    own = saved_below(tree, call, saved, ("", "layer"))
    return Training(
        forward=_share(ahead), backward=_share(back), saved_activations=str(own),
        gradients=str(parse(call.parameters) * Formula.var("w_bytes")), optimizers=optimizers(parse(call.parameters)),
        recomputation=_recomputed(tree, call, total, saved), lines=tuple(_lines(tree, call, saved)),
    )  # fmt: skip


def _share(cost: Sum) -> Share:
    return Share(flops=str(cost.flops), matmul_flops=str(cost.matmul), memory_access=cost.access())


def _backward(tree: CallTree, call: CallRecord) -> Sum:
    """What of a call's work runs on the way back."""
    total = Sum()
    for child in tree.children(call):
        if isinstance(child, CallRecord):
            total = total + _backward(tree, child).times(parse(child.repeat))
        elif child.backward:
            total = total + op_sum(child)
    return total


# ---------------------------------------------------------------- saved activations


def _saved(tree: CallTree) -> dict[int, list[SavedRecord]]:
    found: dict[int, list[SavedRecord]] = {}
    for record in tree.trace.saved:
        found.setdefault(record.call, []).append(record)
    return found


def _own(saved: dict[int, list[SavedRecord]], call: CallRecord, kinds: Iterable[str]) -> Formula:
    return sum((parse(record.size) for record in saved.get(call.index, ()) if record.kind in kinds), _ZERO)


def saved_below(
    tree: CallTree, call: CallRecord, saved: dict[int, list[SavedRecord]], kinds: tuple[str, ...]
) -> Formula:
    """Bytes that one call saves, everything below it included."""
    total = _own(saved, call, kinds)
    for child in tree.children(call):
        if isinstance(child, CallRecord):
            total = total + parse(child.repeat) * saved_below(tree, child, saved, kinds)
    return total


def _lines(tree: CallTree, call: CallRecord, saved: dict[int, list[SavedRecord]]) -> Iterable[TrainedLine]:
    rows: dict[tuple[str, int], list[Formula]] = {}

    def add(file: str, line: int, *shares: Formula) -> None:
        row = rows.setdefault((file, line), [_ZERO] * 3)
        row[:] = [a + b for a, b in zip(row, shares, strict=True)]

    for child in tree.children(call):
        if isinstance(child, OpRecord):
            flops = op_sum(child).flops
            add(child.site.file, child.site.line, *((_ZERO, flops) if child.backward else (flops, _ZERO)), _ZERO)
            continue
        times, back = parse(child.repeat), _backward(tree, child).flops
        kept = times * saved_below(tree, child, saved, ("", "layer"))
        if child.site is not None:
            add(child.site.file, child.site.line, times * (tree.own_sum(child).flops - back), times * back, kept)
    for record in saved.get(call.index, ()):
        if record.kind != "input":
            add(record.site.file, record.site.line, _ZERO, _ZERO, parse(record.size))
    for (file, line), (ahead, back, kept) in rows.items():
        yield TrainedLine(file=file, line=line, forward=str(ahead), backward=str(back), saved=str(kept))


# ---------------------------------------------------------------- optimizers and recomputation


def optimizers(parameters: Formula) -> tuple[Optimizer, ...]:
    """What each class of optimizers keeps, and one update of so many weights: a gradient and fp32 tensors read, these and a weight written."""
    weight = parameters * Formula.var("w_bytes")
    found = []
    for name, kept, flops, tensors, says in _OPTIMIZERS:
        state = 4 * tensors * parameters
        access = MemoryAccess(read=str(state + weight), write=str(state + weight))
        step = Share(flops=str(flops * parameters), matmul_flops="0", memory_access=access)
        found.append(
            Optimizer.model_validate({"name": name, "says": says, "state": str(kept * parameters), "step": step})
        )
    return tuple(found)


def _recomputed(
    tree: CallTree, call: CallRecord, total: Sum, saved: dict[int, list[SavedRecord]]
) -> Recomputation | None:
    """Every layer keeps what it is given and runs forward once more."""
    layers = [(layer, times) for layer, times in _layers(tree, call, Formula.const(1))]
    if not layers:
        return None
    again = Sum()
    inside = [saved_below(tree, layer, saved, ("layer",)) for layer, _ in layers]
    for layer, times in layers:
        ahead = tree.own_sum(layer) + _backward(tree, layer).times(Formula.const(-1))
        again = again + ahead.times(times)
    largest = inside[0]
    for one in inside[1:]:
        largest = largest if one == largest else Formula.maximum(largest, one)
    return Recomputation(
        saved_activations=str(saved_below(tree, call, saved, ("", "input"))), largest_layer=str(largest),
        flops=str(total.flops + again.flops), matmul_flops=str(total.matmul + again.matmul),
    )  # fmt: skip


def _layers(tree: CallTree, call: CallRecord, times: Formula) -> Iterable[tuple[CallRecord, Formula]]:
    for child in tree.children(call):
        if isinstance(child, CallRecord):
            often = times * parse(child.repeat)
            if child.index in tree.trace.layers:
                yield child, often
            else:
                yield from _layers(tree, child, often)


__all__ = ["optimizers", "saved_below", "training_of"]
