"""Bytes of operators as they ran on real tensors, from the written conventions.

In general each distinct input is read once at its stored size and each output written once. `READ` and `WRITTEN` hold
what differs: gathers read the elements that they name, scatters write them, what is overwritten is not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from cost_flops import MADE
from cost_operator import Ran, find, places_written, tensors


def stored(tensor: torch.Tensor) -> int:
    """Bytes in memory: a dimension of stride 0 repeats what is there once."""
    sizes = (n for n, step in zip(tensor.shape, tensor.stride(), strict=True) if step != 0)
    return int(tensor.element_size() * math.prod(sizes))


def distinct(inputs: Iterable[torch.Tensor]) -> int:
    """Stored bytes of the inputs, the same view of the same memory once."""
    seen = {
        (t.untyped_storage()._cdata, t.storage_offset(), tuple(t.shape), t.stride(), t.dtype, t.is_conj()): stored(t)
        for t in inputs
    }
    return sum(seen.values())


def whole(outputs: Iterable[torch.Tensor]) -> int:
    return sum(int(t.numel() * t.element_size()) for t in outputs)


# ---------------------------------------------------------------- how many elements are named


def _gathered(call: Ran) -> int:
    """An element of the table per output element, and the indices."""
    return int(call.made * call.inputs[0].element_size() + distinct(call.inputs[1:]))


def _embedding(call: Ran) -> int:
    return call.made * int(call["weight"].element_size()) + stored(call["indices"])


def _bag(call: Ran) -> int:
    table, indices = call["weight"], call["indices"]
    return int(indices.numel() * table.shape[-1] * table.element_size()) + distinct(call.inputs[1:])


def _experts(call: Ran) -> int:
    """The rows, and the matrices of no more experts than there are rows."""
    rows, weights = call.inputs[:2]
    touched = min(weights.shape[0], rows.shape[0]) * math.prod(weights.shape[1:]) * weights.element_size()
    return stored(rows) + int(touched) + distinct(call.inputs[2:])


def _source(call: Ran) -> int:
    return distinct(call.inputs[1:])


def _loss(call: Ran) -> int:
    scores, target = call["self"], call["target"]
    return int(target.numel() * scores.element_size()) + distinct(call.inputs[1:])


def _named_slices(call: Ran) -> int:
    """Elements of the slices that the index names."""
    target = call["self"]
    return int(call["index"].numel() * target.numel() // max(target.shape[call["dim"]], 1)) if target.dim() else 1


#: scatters -> how many elements of the first input they write
_SCATTERED: dict[str, Callable[[Ran], int]] = {
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), lambda call: int(call["index"].numel())),
    **dict.fromkeys(("index_add", "index_reduce", "index_copy"), lambda call: int(call["source"].numel())),
    "masked_scatter": lambda call: int(call["source"].numel()),
    **dict.fromkeys(("slice_scatter", "select_scatter", "diagonal_scatter"), lambda call: int(call["src"].numel())),
    "index_fill": _named_slices,
    **dict.fromkeys(("index_put", "_index_put_impl_", "_unsafe_index_put", "_unsafe_masked_index_put_accumulate"), places_written),
    "put": lambda call: int(call["source"].numel()),
}  # fmt: skip


def _adds(call: Ran) -> bool:
    """Whether what is there is read to be joined with what comes."""
    joins = call.name.startswith(("scatter_add", "scatter_reduce", "index_add", "index_reduce"))
    joins = joins or call.name.endswith("_accumulate")
    return joins or call.arguments.get("reduce") is not None or bool(call.arguments.get("accumulate"))


def _scattered(call: Ran, count: int) -> tuple[int, int]:
    """The elements named are written, where something is added to them after being read; not in place, all is copied."""
    target = call.inputs[0]
    named = count * target.element_size()
    if call.name.startswith("scatter"):  # entries of the source beyond the index's shape are not read
        given = sum(min(stored(t), count * t.element_size()) for t in tensors(call.arguments.get("src")))
        read = stored(call["index"]) + given
    else:
        read = distinct(call.inputs[1:])
    read += named if _adds(call) else 0
    return (read, named) if call.in_place else (read + stored(target), whole(call.outputs))


_READ: dict[str, Callable[[Ran], int]] = {
    "embedding": _embedding, "index_select": _gathered, "gather": _gathered, "index": _gathered, "take": _gathered,
    "_unsafe_index": _gathered, "_unsafe_masked_index": _gathered, "_embedding_bag": _bag, "_embedding_bag_forward_only": _bag,
    "cauchy_": _source, "geometric_": _source, "log_normal_": _source, "_grouped_mm": _experts, "grouped_mm_fallback": _experts,
    "copy_": _source, "copy": _source, "fill": _source, "zero": _source, "bernoulli_": _source, "normal_": _source, "uniform_": _source,
    "random_": _source, "exponential_": _source, "nll_loss": _loss, "embedding_bag": _bag, "nll_loss_forward": _loss, "nll_loss2d_forward": _loss,
}  # fmt: skip


def moved(call: Ran) -> tuple[int, int]:
    """Bytes read and written."""
    scattered = find(call.name, _SCATTERED)
    if scattered is not None:
        return _scattered(call, scattered(call))
    if call.name in MADE:
        return 0, whole(call.outputs)
    read = find(call.name, _READ)
    return (read(call) if read else distinct(call.inputs)), _written(call)


def _written(call: Ran) -> int:
    """The outputs as a GPU's kernels leave them, which other devices do not for the statistics of norms.

    Those of a layer norm are accumulated in float32 at least; those of a batch norm that has stored ones come out empty.
    """
    first, statistics = call.outputs[:1], call.outputs[1:]
    if call.name == "native_layer_norm":
        return whole(first) + sum(int(t.numel()) for t in statistics) * max(4, int(call["input"].element_size()))
    if "batch_norm" in call.name and not call.arguments.get("training", call.name == "_batch_norm_with_update"):
        return whole(first)
    return whole(call.outputs)
