"""Weights, cache and activations of a pass against the memory of one device, and how far batch and context may grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opscope_schemas.dataflow import Dataflow
from opscope_schemas.errors import ValuesError
from opscope_schemas.estimates import MemoryUse
from opscope_schemas.formula import Rational, evaluate

from opscope_tools.trace.dataflow import evaluated

#: a batch or a context beyond this is no limit that anybody meets
_MOST = 2**24


def memory_use(flow: Dataflow, values: Mapping[str, Rational], capacity: int) -> MemoryUse:
    """Bytes at the point. Raises `ValuesError` where the point lacks a variable."""
    here = evaluated(flow, values)
    weights, cache = here.weights or 0, here.cache_after or 0

    def needs(name: str) -> Callable[[int], int]:
        def of(size: int) -> int:
            there = {**values, name: size}
            total = weights
            for text in (flow.cache.after if flow.cache else "", flow.peak_activations):
                total += evaluate(text, there) if text else 0
            return int(total)

        return of

    length = "cache_len" if flow.phase == "decode" else "seq_len"
    total = weights + cache + (here.peak_activations or 0)
    return MemoryUse(
        weights_bytes=weights, cache_bytes=cache,
        cache_bytes_per_token=here.cache_per_token // int(values["batch_size"]) if here.cache_per_token and values.get("batch_size") else None,
        activation_bytes=here.peak_activations, capacity_bytes=capacity, fits=total <= capacity,
        largest_batch=largest(needs("batch_size"), capacity) if "batch_size" in values else None,
        longest_context=largest(needs(length), capacity) if length in values and flow.cache is not None else None,
    )  # fmt: skip


def largest(needs: Callable[[int], int], capacity: int) -> int | None:
    """The largest size whose bytes fit; 0 where none does, None where every size does or a size has no bytes."""
    try:
        if needs(1) > capacity:
            return 0
        low, high = 1, 2
        while needs(high) <= capacity:
            low, high = high, 2 * high
            if high > _MOST:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if needs(middle) <= capacity else (low, middle)
    except (ValuesError, ZeroDivisionError):
        return None
    return low


__all__ = ["largest", "memory_use"]
