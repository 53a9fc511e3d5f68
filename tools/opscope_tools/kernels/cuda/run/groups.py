"""Cooperative groups: what `this_thread_block()` and `this_grid()` say of the thread that asks, by the built-in indices."""

from __future__ import annotations

from collections.abc import Callable

from opscope_tools.kernels.cuda.names.values import LONG, Type, Value, arithmetic

#: what makes a group -> its type
GROUPS = {"this_thread_block": "thread_block", "this_grid": "grid_group"}
#: methods that give three numbers -> the built-in index or size that they are
_TRIPLES = {
    "thread_index": "threadIdx", "group_index": "blockIdx", "group_dim": "blockDim", "dim_threads": "blockDim",
    "block_index": "blockIdx", "dim_blocks": "gridDim",
}  # fmt: skip
_DIM3 = Type("object", "dim3", "12")


def made_group(name: str) -> Value | None:
    """The group that a function of the language gives."""
    kind = GROUPS.get(name.rpartition("::")[2])
    return Value(Type("object", kind)) if kind else None


def of_group(kind: str, method: str, index: Callable[[str, str], Value]) -> Value | None:
    """What a method of a group gives; a grid is taken to have one axis. None for other objects and methods."""
    kind = kind.rpartition("::")[2]
    if kind not in GROUPS.values():
        return None
    if method in _TRIPLES:
        parts = {axis: index(_TRIPLES[method], axis) for axis in "xyz"}
        return Value(_DIM3, varies=frozenset[str]().union(*(p.varies for p in parts.values())), parts=parts)
    size = {axis: index("blockDim", axis) for axis in "xyz"}
    plane = arithmetic("*", size["x"], size["y"], LONG)
    threads = arithmetic("*", plane, size["z"], LONG)
    if method in {"size", "num_threads"}:
        return threads if kind == "thread_block" else arithmetic("*", threads, index("gridDim", "x"), LONG)
    if method != "thread_rank":
        return None
    row, depth = index("threadIdx", "y"), index("threadIdx", "z")
    rank = arithmetic("+", arithmetic("*", row, size["x"], LONG), index("threadIdx", "x"), LONG)
    rank = arithmetic("+", arithmetic("*", depth, plane, LONG), rank, LONG)
    if kind == "thread_block":
        return rank
    return arithmetic("+", arithmetic("*", index("blockIdx", "x"), threads, LONG), rank, LONG)
