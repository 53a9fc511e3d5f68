"""Weights, cache and activations of a pass against the memory of one device, and how far batch and context may grow."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import NamedTuple

from opscope_schemas.dataflow import Dataflow
from opscope_schemas.errors import ValuesError
from opscope_schemas.estimates import ALONE, MemoryUse, Parallel
from opscope_schemas.formula import Rational, approximated

from opscope_tools.estimate_roofline.kernels import Numbers, Pass, numbers
from opscope_tools.hardware.devices import Device
from opscope_tools.trace.engine import Found
from opscope_tools.trace.sharding import Split, shards, weight_shares

#: a batch or a context beyond this is no limit that anybody meets
_MOST = 2**24
#: a trace of so many is one of any number; of one it may be of one alone
_SOME = 3
#: regions of a size that are looked at, each with a trace of its own
_TRACES = 4


class Held(NamedTuple):
    """Bytes of a pass on one rank; activations None: not known."""

    weights: int
    cache: int
    inputs: int
    activations: int | None

    @property
    def total(self) -> int:
        """Together, what is known of them."""
        return self.weights + self.cache + self.inputs + (self.activations or 0)


class Memory:
    """Bytes that one rank holds, at any point."""

    def __init__(self, of: Pass, flow: Dataflow, peak: str, whole: Callable[[], Found] | None = None) -> None:
        """`peak`: of its activations as it runs. `whole`: a pass in which parts run that this one leaves out, where it does: how
        they are split is found in that."""
        self.flow, self._peak = flow, peak
        self._of, self._whole = of, whole

    @property
    def fixed(self) -> Collection[str]:
        """Sizes that are numbers in its trace, which holds at those alone."""
        return self._of.found.tree.trace.fixed

    @cached_property
    def _weights(self) -> list[tuple[str, Split | None, str, bool]]:
        """Bytes, what splits them, the heads that they make, and whether they are in a stack of layers."""
        found = self._of.found if self._whole is None else self._whole()
        split = self._of.shards if self._whole is None else shards(found.tree, found.call)
        return [
            (str(size), how, heads, layered)
            for size, how, heads, layered in weight_shares(found.tree, found.call, split)
        ]

    def weights(self, values: Numbers, parallel: Parallel = ALONE) -> int:
        """Of the largest stage. Layers are dealt out evenly, what stands before and after them lies on one stage each."""
        if parallel.devices == 1:
            return _whole(self.flow.weights, values)
        layers = ends = largest_end = 0.0
        for text, split, heads, layered in self._weights:
            degree: float = 1.0
            if split == "experts":
                degree = parallel.expert_ranks
            elif split is not None:
                degree = min(parallel.tp, approximated(heads)(values)) if heads else parallel.tp
            size = approximated(text)(values) / degree
            if layered:
                layers += size
            else:
                ends, largest_end = ends + size, max(largest_end, size)
        return math.ceil(layers * _share(values, parallel) + (ends if parallel.pp == 1 else largest_end))

    def cache(self, values: Numbers, parallel: Parallel = ALONE) -> int:
        """After the pass, of the largest stage: its own layers of all the sequences that `values` say."""
        if self.flow.cache is None:
            return 0
        if parallel.devices == 1:
            return _whole(self.flow.cache.after, values)
        total = 0.0
        for text, heads in self._of.shards.cache:
            total += approximated(text)(values) / (min(parallel.tp, approximated(heads)(values)) if heads else 1)
        return math.ceil(total * _share(values, parallel))

    def activations(self, values: Numbers) -> int | None:
        """Their peak; None: not known."""
        return _whole(self._peak, values) if self._peak else None

    def inputs(self, values: Numbers) -> int:
        """Of what the pass is called with, which its caller keeps until it ends."""
        return _whole(self.flow.inputs, values) if self.flow.inputs else 0

    def held(self, values: Numbers, kept: Numbers, parallel: Parallel = ALONE) -> Held:
        """All of them; `kept`: the point of the sequences whose cache it keeps."""
        return Held(
            self.weights(values, parallel), self.cache(kept, parallel), self.inputs(values), self.activations(values)
        )


def _share(values: Numbers, parallel: Parallel) -> float:
    """The part of the layers that the largest stage has."""
    depth = values.get("num_layers", parallel.pp)
    return math.ceil(depth / parallel.pp) / depth


def _whole(text: str, values: Numbers) -> int:
    return math.ceil(round(approximated(text)(values), 6))


def of_rank(values: Mapping[str, Rational | float], parallel: Parallel, *, held: bool = False) -> dict[str, float]:
    """The point as one rank sees it: its replica's sequences, of which each stage has a part in work. The parts differ by one
    sequence at most, and the largest is worked on; `held`: all of them, as each stage holds its layers of all."""
    found = numbers(values)
    if "batch_size" in found and parallel.dp * parallel.pp > 1:
        of_replica = math.ceil(found["batch_size"] / parallel.dp)
        found["batch_size"] = of_replica if held else math.ceil(of_replica / parallel.pp)
    return found


#: a memory at a point, by name of the size that is moved and its value; None: no trace holds there
At = Callable[[str, int], Memory | None]


def memory_use(
    memory: Memory, values: Mapping[str, Rational], device: Device, parallel: Parallel, elsewhere: At
) -> MemoryUse:
    """Bytes at the point. Raises `ValuesError` where the point lacks a variable."""
    flow, here, held = memory.flow, of_rank(values, parallel), of_rank(values, parallel, held=True)
    found = memory.held(here, held, parallel)

    def most(name: str) -> int | None:
        return _most(name, memory, values, device.usable, parallel, elsewhere)

    length = "cache_len" if flow.phase == "decode" else "seq_len"
    per_token = _whole(flow.cache.per_token, here) if flow.cache is not None and flow.cache.per_token else None
    return MemoryUse(
        weights_bytes=found.weights, cache_bytes=found.cache, input_bytes=found.inputs, activation_bytes=found.activations,
        cache_bytes_per_token=round(per_token / here["batch_size"] * (found.cache / memory.cache(held) if parallel.devices > 1 else 1))
        if per_token and here.get("batch_size") else None,
        capacity_bytes=device.capacity, usable_bytes=device.usable, fits=found.total <= device.usable,
        largest_batch=most("batch_size") if "batch_size" in values else None,
        longest_context=most(length) if length in values and flow.cache is not None else None,
    )  # fmt: skip


def _most(
    name: str, memory: Memory, values: Mapping[str, Rational], capacity: int, parallel: Parallel, elsewhere: At
) -> int | None:
    """The largest size that fits by the trace that holds there: beyond a window the cache no longer grows, and what is traced
    of one sequence says nothing of two. None where every size fits, or no trace says which do."""
    asked = [memory]
    size = int(values[name])
    found: int | None = size
    if name == "batch_size":
        asked = [elsewhere(name, max(size, _SOME)) or memory]
    while len(asked) < _TRACES:
        of = asked[-1]

        def needs(size: int, of: Memory = of) -> int:
            there = {**values, name: size}
            return of.held(of_rank(there, parallel), of_rank(there, parallel, held=True), parallel).total

        found = largest(needs, capacity)
        if name in of.fixed:  # a pass that takes images one after another, say: each number of them is another trace
            return 0 if found == 0 else None
        then = elsewhere(name, found or (_SOME if found == 0 else _MOST))
        if then is None:
            return 0 if found == 0 else None
        if then in asked:
            break
        asked.append(then)
    return found


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


__all__ = ["Memory", "largest", "memory_use", "of_rank"]
