"""Passes of one model on one kind of device, timed at any batch and length: what serving, sweeps and plans are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from opscope_schemas.estimates import ALONE, Parallel, Served
from opscope_schemas.formula import Rational, approximated, variables

from opscope_tools.estimate_roofline.kernels import Pass, numbers
from opscope_tools.estimate_roofline.memory import Memory
from opscope_tools.estimate_roofline.times import Estimate, estimates
from opscope_tools.estimate_roofline.traffic import CHUNK, Load, Steady, Steps, steady
from opscope_tools.hardware.calibration import Calibration
from opscope_tools.hardware.devices import Device
from opscope_tools.trace.dataflow import dataflow
from opscope_tools.trace.engine import Found

#: of a device's memory, what an engine gives weights, cache and activations; the rest is the runtime's, graphs and fragments
USABLE = 0.9
Phase = Literal["prefill", "decode"]


@dataclass
class Timing:
    """One pass of a trace, and the bytes that it needs."""

    found: Found
    quantised: str
    eager: bool = False

    @cached_property
    def of(self) -> Pass:
        """Its kernels."""
        return Pass(self.found, self.quantised, eager=self.eager)

    @cached_property
    def memory(self) -> Memory:
        """Its memory."""
        return Memory(self.of, dataflow(self.found.tree, self.found.call))

    @cached_property
    def _followers(self) -> list[tuple[str, str]]:
        """Sizes that follow from those of a pass, with their definitions."""
        moved = {"batch_size", "seq_len", "cache_len"}
        return [
            (v.name, v.definition)
            for v in self.found.tree.trace.variables
            if v.definition and variables(v.definition) & moved
        ]

    def at(self, **sizes: float) -> dict[str, float]:
        """The point of the trace with these sizes in the place of its own."""
        values = {**numbers(self.found.values or {}), **sizes}
        for name, definition in self._followers:
            values[name] = approximated(definition)(values)
        return values


@dataclass
class Model:
    """A model's passes; `find` traces one at given sizes, which are kept by phase and by whether a single sequence runs."""

    find: Callable[[Phase, Mapping[str, Rational]], Timing]
    held: dict[tuple[Phase, bool, int], Timing] = field(default_factory=dict)

    def timing(self, phase: Phase, batch: float, length: float) -> Timing:
        """The trace for sequences of about that length, one or several."""
        alone, size = batch < 2, round(length)
        key = (phase, alone, size)
        if key not in self.held:
            name = "cache_len" if phase == "decode" else "seq_len"
            self.held[key] = self.find(phase, {"batch_size": 1 if alone else 2, name: size})
        return self.held[key]


@dataclass
class Replica:
    """A model on some ranks of a device, as one engine's kernels run it."""

    model: Model
    device: Device
    calibration: Calibration | None
    backend: str
    parallel: Parallel = ALONE
    basis: Literal["calibrated", "bound"] = "calibrated"
    _seen: dict[tuple[Phase, float, float], float] = field(default_factory=dict)

    def times(self, phase: Phase, batch: float, length: float) -> list[Estimate]:
        """Of every kernel of a pass, of one rank."""
        timing = self.model.timing(phase, batch, length)
        name = "cache_len" if phase == "decode" else "seq_len"
        values = timing.at(**{"batch_size": batch, name: round(length)})
        return estimates(timing.of.kernels(values, self.parallel), self.device, self.calibration, self.backend)

    def seconds(self, phase: Phase, batch: float, length: float) -> float:
        """Of a pass; between one sequence and two, where another trace holds, in proportion."""
        key = (phase, batch, length)
        if key not in self._seen:
            if 1 < batch < 2:
                one, two = (self.seconds(phase, whole, length) for whole in (1, 2))
                self._seen[key] = one + (batch - 1) * (two - one)
            else:
                self._seen[key] = self._sum(self.times(phase, batch, length))
        return self._seen[key]

    def _sum(self, found: list[Estimate]) -> float:
        known = all(one.measured is not None for one in found if one.limit is not None)
        if not known:
            self.basis = "bound"
        return sum(
            (one.measured.seconds if known and one.measured is not None else one.bound) * one.kernel.count
            for one in found
        )

    def places(self, length: float) -> int:
        """Sequences of that length whose cache fits beside weights and activations, of one replica; 0: the weights do not fit."""
        decode, prefill = self.model.timing("decode", 2, length), self.model.timing("prefill", 1, min(CHUNK, length))
        here = decode.at(batch_size=1, cache_len=round(length))
        left = USABLE * self.device.capacity - decode.memory.weights(here, self.parallel)
        left -= (
            prefill.memory.activations(prefill.at(batch_size=1, seq_len=round(min(CHUNK, length)))) or 0
        ) / self.parallel.tp
        if left <= 0:
            return 0
        many = decode.at(batch_size=1024, cache_len=round(length))
        each = decode.memory.cache(many, self.parallel) / 1024
        return int(left / each) if each else 2**24

    def steps(self) -> Steps:
        """Of this replica, where every stage of a pipeline has a part of the batch in work."""
        stages = self.parallel.pp
        return Steps(
            decode=lambda batch, context: self.seconds("decode", max(1.0, batch / stages), context),
            prefill=lambda count, length: self.seconds("prefill", count, length) / (stages if count > 1 else 1),
        )


def served(replica: Replica, load: Load) -> tuple[Served, Steady | None]:
    """The steady state under that load; no times where the weights do not fit."""
    parallel = replica.parallel
    limit = replica.places(load.input_len + load.output_len)
    asked = max(1.0, load.concurrency / parallel.dp)
    if limit == 0:
        return Served(
            concurrency=load.concurrency, input_len=load.input_len, output_len=load.output_len, decode_batch=0, cache_limit=0,
            step_seconds=replica.seconds("decode", asked, load.input_len + load.output_len / 2), prefill_share=0, basis=replica.basis,
        ), None  # fmt: skip
    found = steady(replica.steps(), load, parallel.dp, limit)
    rate = found.rate * load.output_len * min(parallel.dp, load.concurrency)
    return Served(
        concurrency=load.concurrency, input_len=load.input_len, output_len=load.output_len, tpot_seconds=found.tpot, step_seconds=found.step,
        ttft_service_seconds=found.service, ttft_queue_seconds=found.queue, ttft_seconds=found.service + found.queue,
        decode_batch=round(found.batch, 3), cache_limit=limit if limit < asked else None, tokens_per_second=rate,
        tokens_per_second_per_device=rate / parallel.devices, prefill_share=round(found.prefill_share, 4), basis=replica.basis,
    ), found  # fmt: skip


__all__ = ["USABLE", "Model", "Replica", "Timing", "served"]
