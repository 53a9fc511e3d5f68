"""Gathers and scatters: what is read or written is the elements that the indices name.

Order: gathers, bags of embeddings, scatters by one index tensor, writes by several (`index_put`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.trace.operators.types import ONE, ZERO, Call, Cost, Tensor, moved, operator, read_once, times

# ---------------------------------------------------------------- gathers


@operator("aten.embedding", "aten.index_select")
def embedding(call: Call) -> Cost:
    """Reads its indices and the rows that they name, writes them."""
    table, indices = call.inputs[0], call.inputs[-1]
    read = table.bytes_of(call.out) + indices.bytes
    return Cost(read=read, write=moved(call)[1], derivation="the rows gathered and the indices")


@operator("aten.gather", "aten.index", "aten.take", "aten._unsafe_index", "aten._unsafe_masked_index")
def gather(call: Call) -> Cost:
    """Reads one element per output element, and the indices or the mask."""
    read = call.inputs[0].bytes_of(call.out) + read_once(call.inputs[1:])
    return Cost(read=read, write=moved(call)[1], derivation="the elements gathered and the indices")


@operator("aten._embedding_bag", "aten._embedding_bag_forward_only", "aten.embedding_bag")
def embedding_bag(call: Call) -> Cost:
    """Rows gathered and reduced by bag: 1 add per element gathered (the largest: 0), the mean's division per output.

    `mode` is 0 sum, 1 mean, 2 max; a weight per index multiplies its row.
    """
    table, indices = call.inputs[:2]
    gathered = indices.numel * table.shape[-1]
    mode = call.arguments.get("mode", 0)
    flops = (ZERO if mode == 2 else gathered) + (call.out if mode == 1 else ZERO)
    flops = flops + (gathered if len(call.inputs) > 3 else ZERO)
    read = table.bytes_of(gathered) + read_once(call.inputs[1:])
    return Cost(flops, ZERO, read, moved(call)[1], "the rows gathered, 1 add per element")


# ---------------------------------------------------------------- scatters


def _written(call: Call, count: Formula, read: Formula, flops: Formula = ZERO, *, again: bool = False) -> Cost:
    """`count` elements of the first input written, after `read` bytes; `again`: each is read first, to be added to.

    The functional form also copies its input.
    """
    target = call.inputs[0]
    if again:
        read = read + count * target.element
    write = count * target.element
    if not call.in_place:
        read, write = read + target.bytes, moved(call)[1]
    return Cost(flops, ZERO, read, write, "the elements written" + (", 1 add each" if flops.terms else ""))


@operator("aten.scatter", "aten.scatter_add", "aten.scatter_reduce")
def scatter(call: Call) -> Cost:
    """One element of the target per index; the source's elements beyond the index's shape are not read.

    Adding and multiplying are 1 each, the largest and the smallest are comparisons; a mean divides once per element.
    """
    index, source = call.inputs[1], call.inputs[2:]
    reduce = "sum" if "add" in call.name else call.arguments.get("reduce")
    count = index.numel
    flops = ZERO if reduce in (None, "amax", "amin") else count
    if reduce == "mean":
        flops = flops + call.out
    read = index.bytes + sum((Formula.minimum(t.stored, count) * t.element for t in source), ZERO)
    return _written(call, count, read, flops, again=reduce is not None)


@operator("aten.index_add", "aten.index_reduce")
def index_add(call: Call) -> Cost:
    """Slices of the source added to those of the target: 1 per element of the source, 2 where alpha is not 1."""
    source = call.inputs[-1]
    compares = call.arguments.get("reduce") in ("amax", "amin")
    each = 0 if compares else 1 + (call.arguments.get("alpha", 1) != 1)
    return _written(call, source.numel, read_once(call.inputs[1:]), each * source.numel, again=True)


@operator(
    "aten.index_copy", "aten.slice_scatter", "aten.select_scatter", "aten.diagonal_scatter", "aten.masked_scatter"
)
def slices_written(call: Call) -> Cost:
    """The source's elements written into the target; a mask or an index is read."""
    return _written(call, call.inputs[-1].numel, read_once(call.inputs[1:]))


@operator("aten.index_fill")
def index_fill(call: Call) -> Cost:
    """One value written to the slices that the index names."""
    target, index = call.inputs[:2]
    dim = call.arguments.get("dim", 0)
    rest = [size for at, size in enumerate(target.shape) if at != dim % len(target.shape)]
    return _written(call, index.numel * times(rest), read_once(call.inputs[1:]))


@operator("aten.put")
def put(call: Call) -> Cost:
    """The source written, or added, at flat places."""
    adds = bool(call.arguments.get("accumulate"))
    count = call.inputs[-1].numel
    return _written(call, count, read_once(call.inputs[1:]), count if adds else ZERO, again=adds)


# ---------------------------------------------------------------- index_put: several index tensors


@operator(
    "aten.index_put", "aten._index_put_impl_", "aten._unsafe_index_put", "aten._unsafe_masked_index_put_accumulate"
)
def index_put(call: Call) -> Cost:
    """`target[indices] = values`: the joint shape of the indices times the dimensions that none of them names."""
    values = call.inputs[-1]
    count = _places(call.inputs[0], call.inputs[1:-1], values, call.arguments.get("indices"))
    adds = bool(call.arguments.get("accumulate")) or call.name.endswith("accumulate")
    return _written(call, count, read_once(call.inputs[1:]), count if adds else ZERO, again=adds)


def _places(target: Tensor, indices: Sequence[Tensor], values: Tensor, positions: Any) -> Formula:
    """How many elements are written.

    `positions` is the schema's list, whose None entries leave a dimension whole. What a mask selects is data: as many
    as there are values, or where one value fills all, at most what the mask covers.
    """
    if any(index.is_mask for index in indices) and values.shape and values.numel != ONE:
        return values.numel
    joint = times(_broadcast([index.shape for index in indices]))
    left, found = list(target.shape), iter(indices)
    for slot in positions if positions is not None else indices:
        if slot is None:
            left.append(left.pop(0))
            continue
        index = next(found)
        del left[: len(index.shape) if index.is_mask else 1]
    return joint * times(left)


def _broadcast(shapes: list[tuple[Formula, ...]]) -> list[Formula]:
    """The joint shape: per dimension from the right, the size that is not 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(ONE,) * (rank - len(shape)) + shape for shape in shapes]
    return [next((size for size in sizes if size != ONE), ONE) for sizes in zip(*padded, strict=True)]
