"""What the functions of `cutlass.cute` make of their arguments: sizes, layouts, views of tensors, tiled copies and products.

`apply` gives the value of a call, or raises `UnresolvedError`: whoever called keeps the text. What a call does beside that (a copy,
a product, an allocation) is put down by the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opscope_tools.kernels.cutedsl.values import BITS, Allocator, Either, Pointer, Tensor, Threaded, Tiled, is_size
from opscope_tools.kernels.host.worlds import ImportRef, UnresolvedError
from opscope_tools.kernels.values import layouts
from opscope_tools.kernels.values.expressions import (
    Expression,
    Quantity,
    call,
    ceil_div,
    combine,
    leaf,
    render,
    settled,
)
from opscope_tools.kernels.values.layouts import Layout, LayoutError

WARP = 32
#: axes of ids and sizes of the hardware
_AXES = ("x", "y", "z")
_IDS = {
    "block_idx": "blockIdx", "thread_idx": "threadIdx", "block_dim": "blockDim", "grid_dim": "gridDim", "cluster_idx": "clusterIdx",
    "cluster_dim": "clusterDim", "block_in_cluster_idx": "blockInCluster", "block_in_cluster_dim": "blockInClusterDim",
}  # fmt: skip
#: one value of the hardware each
_LANE = {"warp_idx", "lane_idx", "block_idx_in_cluster"}
#: functions whose value is their only argument, as far as sizes go
_SAME = {
    "const_expr", "Int32", "Int64", "Uint32", "Uint64", "Int16", "Int8", "Uint8", "Float32", "Float16", "BFloat16", "Boolean", "Constexpr",
    "make_warp_uniform", "assume",
}  # fmt: skip
#: functions that give a view of the tensor that is their first argument
_VIEWS = {
    "group_modes", "flat_divide", "zipped_divide", "logical_divide", "tiled_divide", "recast_tensor", "filter_zeros", "filter", "coalesce",
    "append", "prepend", "append_ones", "prepend_ones", "select", "slice_", "composition", "local_partition", "flatten", "dice",
}  # fmt: skip
_REGISTERS = {
    "make_fragment", "make_fragment_like", "make_rmem_tensor", "make_rmem_tensor_like", "make_tmem_tensor", "make_mma_fragment"
}  # fmt: skip


def known(dotted: str) -> str:
    """What the table calls a dotted name: `size` of `cutlass.cute.size`; '' where it has none."""
    if not dotted.startswith(("cutlass.", "cute.")):
        return ""
    last = dotted.rpartition(".")[2]
    return last if last in _TABLE or last in _SAME or last in _IDS or last in _LANE or last in _REGISTERS else ""


def apply(name: str, positional: Sequence[Any], keywords: Mapping[str, Any], text: str) -> Any:
    """The value of a call; `text`: as written. Raises `UnresolvedError`."""
    if name in _IDS:
        return tuple(leaf(f"{_IDS[name]}.{axis}") for axis in _AXES)
    if name in _LANE:
        return leaf(name)
    if name in _SAME and name not in _TABLE:
        if not positional:
            raise UnresolvedError(text)
        return whole(positional[0]) if "Int" in name or "int" in name else positional[0]
    if name in _REGISTERS:
        return Tensor(text, "unknown" if name == "make_tmem_tensor" else "register", text)
    try:
        return _TABLE[name](*[_present(v) for v in positional], **{**keywords, "text": text})
    except (LayoutError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise UnresolvedError(text) from error


def whole(value: Any) -> Any:
    """A value as a whole number: what may be none is rounded in the formula."""
    if isinstance(value, float):
        return int(value)
    if isinstance(value, Expression) and re.search(r"(?<!/)/(?!/)|\.\d|\d\.|\*\* -|log|sqrt|exp|pow|float", value.text):
        return value if value.text.startswith("int(") else call("int", value)
    return value


def _present(value: Any) -> Any:
    return value.present if isinstance(value, Either) and value.present is not None else value


def shape_of(value: Any) -> Any:
    """The shape of a layout, a tensor whose shape is known, or a shape."""
    if isinstance(value, Layout):
        return value.shape
    if isinstance(value, Tensor):
        return value.shape
    if isinstance(value, tuple | list) or is_size(value):
        return _nested(value)
    raise ValueError(value)


def _nested(value: Any) -> Any:
    """A tuple of sizes; raises `ValueError` where something in it is none."""
    if isinstance(value, tuple | list):
        return tuple(map(_nested, value))
    if is_size(value) and not isinstance(value, float):
        return value
    raise ValueError(value)


def _size(value: Any, mode: Any = None, *, text: str, **_: Any) -> Any:
    if isinstance(value, Quantity):  # a tensor, a layout or a number
        return leaf(text)
    if isinstance(value, Tiled | Threaded):
        if (mode is None and isinstance(value, Threaded)) or mode not in (None, [0]):
            raise ValueError(text)
        return value.threads
    shape = shape_of(value)
    if shape is None:
        named = mode if isinstance(mode, list) and all(isinstance(m, int) for m in mode) else None
        if named is None or len(named) != 1:
            return leaf(f"size({value.text})") if mode is None else leaf(text)
        return leaf(f"size({value.text}.shape[{named[0]}])")
    return layouts.product(layouts.mode(shape, *mode) if mode is not None else shape)


def _ceil(a: Any, b: Any, **_: Any) -> Any:
    if isinstance(a, tuple | list):
        return layouts.rounded_up(_nested(a), _nested(b))
    if not (is_size(a) and is_size(b)):
        raise ValueError(a)
    return ceil_div(a, b)


def _round_up(a: Any, b: Any, **_: Any) -> Any:
    if not (is_size(a) and is_size(b)):
        raise ValueError(a)
    return settled("*", ceil_div(a, b), b)


class _Compact(Layout):
    """A layout without gaps: it reaches over as many places as it has."""

    @property
    def cosize(self) -> Any:
        """Of a formula, the product of its sizes."""
        return self.size


def _layout(shape: Any, stride: Any = None, **_: Any) -> Layout:
    if stride is None:
        return _Compact(_nested(shape), layouts.compact(_nested(shape)))
    return Layout(_nested(shape), _nested(stride))


def _ordered(shape: Any, order: Any, **_: Any) -> Layout:
    sizes, places = _nested(shape), _nested(order)
    if isinstance(places, tuple) and isinstance(sizes, tuple) and len(places) == len(sizes):
        places = tuple(_within(size, place) for size, place in zip(sizes, places, strict=True))
    found = sorted(dict.fromkeys(layouts.flatten(places)))
    return _Compact(sizes, layouts.ordered(sizes, layouts.mapped(found.index, places)))


def _within(size: Any, place: Any, inner: tuple[int, ...] = ()) -> Any:
    """The order of a mode's sizes: those of one place follow each other."""
    if isinstance(place, tuple):
        return tuple(_within(s, p) for s, p in zip(size, place, strict=True))
    if isinstance(size, tuple):
        return tuple(_within(s, place, (*inner, i)) for i, s in enumerate(size))
    return _Place((place, *inner))


class _Place(tuple[int, ...]):
    """Where a size comes in an order; no tuple of sizes."""


def _to_shape(atom: Any, shape: Any, order: Any = None, **_: Any) -> Layout:
    if not isinstance(atom, Layout):
        raise ValueError(atom)
    return layouts.tile_to_shape(atom, _nested(shape), None if order is None else _nested(order))


def _cosize(layout: Any, **_: Any) -> Any:
    if not isinstance(layout, Layout):
        raise ValueError(layout)
    return layout.cosize


def _rank(value: Any, **_: Any) -> Any:
    shape = shape_of(value)
    if shape is None or isinstance(shape, Quantity):  # a size, or what has more
        return leaf(f"rank({render(value)})")
    return layouts.rank(shape)


def _view(tensor: Any, *_arguments: Any, text: str, **_: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise ValueError(tensor)
    return tensor.seen_as(text)


def _tile(tensor: Any, tiler: Any, coordinate: Any, *_more: Any, text: str, **keywords: Any) -> Tensor:
    """The tile at a coordinate; one of which some modes stay open is a row of tiles."""
    if not isinstance(tensor, Tensor):
        raise ValueError(tensor)
    whole = isinstance(coordinate, tuple | list) and all(is_size(c) for c in coordinate) and not keywords
    shape = _nested(tiler) if whole and isinstance(tiler, tuple | list) else None
    return tensor.seen_as(text, shape)


def _offset(_coordinate: Any, tensor: Any, text: str, **_: Any) -> Tensor:
    return _view(tensor, text=text)


def _tensor(pointer: Any, layout: Any = None, *, text: str, **_: Any) -> Tensor:
    if not isinstance(pointer, Pointer):
        raise ValueError(pointer)
    return pointer.tensor.seen_as(
        text, layout.shape if isinstance(layout, Layout) and isinstance(layout.shape, tuple) else None
    )


def _recast(pointer: Any, *_arguments: Any, **_: Any) -> Pointer:
    if not isinstance(pointer, Pointer):
        raise ValueError(pointer)
    return pointer


def _tiled_copy(_atom: Any, threads: Any, values: Any = None, *, text: str, **_: Any) -> Tiled:
    if not isinstance(threads, Layout):
        raise ValueError(threads)
    try:
        places = layouts.right_inverse(layouts.blocked_product(threads, values, raked=True))
        shape = Layout.of((threads.size, values.size))
        return Tiled(text, threads.size, layouts.composition(places, shape))
    except (LayoutError, AttributeError, TypeError):
        return Tiled(text, threads.size)


def _tma_atom(_op: Any, tensor: Any, *_arguments: Any, text: str, **_: Any) -> tuple[Any, Tensor]:
    return Quantity(text), _view(tensor, text=tensor.text if isinstance(tensor, Tensor) else text)


def _tma_parts(_atom: Any, _coordinate: Any, _layout: Any, shared: Any, outside: Any, **_: Any) -> Any:
    return _view(shared, text=f"{shared!r} for TMA"), _view(outside, text=f"{outside!r} for TMA")


def _bytes(dtype: Any, layout: Any, **_: Any) -> Any:
    bits = width(dtype)
    if bits is None or not isinstance(layout, Layout):
        raise ValueError(dtype)
    return ceil_div(settled("*", bits, layout.cosize), 8)


def width(dtype: Any) -> Any:
    """Bits of an element, a formula where the type is a parameter; None where it is not told."""
    if isinstance(dtype, ImportRef):
        return BITS.get(dtype.dotted.rpartition(".")[2])
    return Quantity(f"{dtype.name}.width", dtype.run_time) if isinstance(dtype, Quantity) else None


def bytes_of(dtype: Any, elements: Any) -> Any:
    """Bytes of so many elements; None where the type is not told."""
    bits = width(dtype)
    if bits is None or not is_size(elements):
        return None
    if isinstance(bits, int) and bits % 8 == 0:
        return settled("*", elements, bits // 8)
    return (
        combine("//", settled("*", elements, bits), 8)
        if not isinstance(bits, int)
        else ceil_div(settled("*", elements, bits), 8)
    )


_TABLE: dict[str, Callable[..., Any]] = {
    "size": _size, "ceil_div": _ceil, "round_up": _round_up, "make_layout": _layout, "make_ordered_layout": _ordered,
    "tile_to_shape": _to_shape, "cosize": _cosize, "rank": _rank, "local_tile": _tile, "domain_offset": _offset, "make_tensor": _tensor,
    "recast_ptr": _recast, "make_tiled_copy_tv": _tiled_copy, "make_tiled_tma_atom": _tma_atom, "tma_partition": _tma_parts,
    "size_in_bytes": _bytes, "SmemAllocator": lambda **_: Allocator(),
    "make_shape": lambda *sizes, **_: sizes, "make_coord": lambda *sizes, **_: sizes,
    "make_identity_tensor": lambda *_, text: Tensor(text, "register", text),
    **dict.fromkeys(_VIEWS, _view),
}  # fmt: skip

__all__ = ["WARP", "apply", "bytes_of", "known", "whole"]
