"""Passes of one model on one kind of device, timed at any batch and length: what serving, sweeps and plans are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

from opscope_schemas.estimates import ALONE, Parallel, Served, SweepPoint
from opscope_schemas.formula import Rational, approximated, evaluate, holds, variables

from opscope_tools.costing.numbers import positions
from opscope_tools.estimate_roofline.kernels import Pass, numbers
from opscope_tools.estimate_roofline.memory import Memory, of_rank
from opscope_tools.estimate_roofline.times import Estimate, estimates, totals
from opscope_tools.estimate_roofline.traffic import CHUNK, Load, Steps, steady
from opscope_tools.hardware.calibration import Calibration
from opscope_tools.hardware.devices import USABLE, Device
from opscope_tools.trace.dataflow import dataflow, served_peak
from opscope_tools.trace.engine import Found

Phase = Literal["prefill", "decode"]
T = TypeVar("T")


#: engines that take that share of what weights leave free; others of the whole, weights among it
_OF_THE_REST = frozenset({"trtllm"})
#: engines that keep room for the whole of an answer when a request begins; others for what it has, and begin again what they must
_KEEP_WHOLE = frozenset({"trtllm"})


@dataclass
class Timing:
    """One pass of a trace, and the bytes that it needs."""

    found: Found
    quantised: str
    eager: bool = False
    activations: str = ""
    #: a pass in which all parts run, where this one leaves some out
    whole: Callable[[], Found] | None = None

    @cached_property
    def of(self) -> Pass:
        """Its kernels."""
        return self._once(
            "pass", lambda: Pass(self.found, self.quantised, eager=self.eager, activations=self.activations)
        )

    @cached_property
    def memory(self) -> Memory:
        """Its memory."""

        def make() -> Memory:
            tree, call = self.found.tree, self.found.call
            flow = dataflow(tree, call)
            peak = flow.peak_activations if self.eager else served_peak(tree, call)
            return Memory(self.of, flow, peak, self.whole)

        return make() if self.whole else self._once("memory", make)

    @cached_property
    def room(self) -> int | None:
        """How many positions the configuration makes room for, where it says so."""
        return positions(self.found)

    def _once(self, what: str, make: Callable[[], T]) -> T:
        """Of every point of a trace the same."""
        return self.found.tree.once((what, self.found.call.index, self.quantised, self.eager, self.activations), make)

    @cached_property
    def _followers(self) -> list[tuple[str, str]]:
        """Sizes that follow from those of a pass, with their definitions."""
        moved = {"batch_size", "seq_len", "cache_len"}
        return [
            (v.name, v.definition)
            for v in self.found.tree.trace.variables
            if v.definition and variables(v.definition) & moved
        ]

    @cached_property
    def _conditions(self) -> list[str]:
        """What the trace asks of the sizes of a pass."""
        moved = {"batch_size", "seq_len", "cache_len", *(name for name, _ in self._followers)}
        return [guard for guard in self.found.tree.trace.guards if variables(guard) & moved]

    def at(self, **sizes: float) -> dict[str, float]:
        """The point of the trace with these sizes in the place of its own."""
        values = {**numbers(self.found.values or {}), **sizes}
        for name, definition in self._followers:
            values[name] = approximated(definition)(values)
        return values

    def holds(self, **sizes: int) -> bool:
        """Whether the trace's record is of a pass of these sizes."""
        own = self.found.values or {}
        if any(size != own.get(name, size) for name, size in sizes.items() if name not in self._free):
            return False
        values = self.exactly(**sizes)
        return all(holds(condition, values) for condition in self._conditions)

    @cached_property
    def _free(self) -> set[str]:
        """Sizes that the formulas have as variables; others are numbers in them."""
        return {v.name for v in self.found.tree.trace.variables if v.kind == "symbol"}

    def exactly(self, **sizes: int) -> dict[str, Rational]:
        """As `at`, in whole numbers and fractions."""
        values = {**(self.found.values or {}), **sizes}
        for name, definition in self._followers:
            values[name] = evaluate(definition, values)
        return values


_LENGTH: Mapping[Phase, str] = {"prefill": "seq_len", "decode": "cache_len"}


@dataclass
class Model:
    """A model's passes; `find` traces one at given sizes. Traces are kept, and asked again where they hold."""

    find: Callable[[Phase, Mapping[str, Rational]], Timing]
    _held: dict[Phase, list[Timing]] = field(default_factory=dict)
    _chosen: dict[tuple[Phase, int, int], Timing] = field(default_factory=dict)

    def timing(self, phase: Phase, batch: float, length: float) -> Timing:
        """The trace that holds for so many sequences of that length."""
        key = (phase, max(1, round(batch)), round(length))
        sizes = {"batch_size": key[1], _LENGTH[phase]: key[2]}
        if key not in self._chosen:
            known = self._held.setdefault(phase, [])
            found = next((one for one in known if one.holds(**sizes)), None)
            if found is None:
                found = self.find(phase, sizes)
                known.append(found)
            self._chosen[key] = found
        return self._chosen[key]


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
        values = timing.at(**{"batch_size": batch, _LENGTH[phase]: round(length)})
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
        held: float = decode.memory.weights(here, self.parallel)
        held += (
            prefill.memory.activations(prefill.at(batch_size=1, seq_len=round(min(CHUNK, length)))) or 0
        ) / self.parallel.tp
        device = self.device
        left = USABLE * (device.capacity - held) if self.backend in _OF_THE_REST else device.usable - held
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


def served(replica: Replica, load: Load) -> Served:
    """The steady state under that load, of calibrated times where all kernels of both passes have them, else of bounds alone; no times
    where the weights do not fit."""
    found = _served(replica, load)
    if replica.basis == "bound" and replica.calibration is not None:  # some were calibrated: the two are never mixed
        return _served(Replica(replica.model, replica.device, None, replica.backend, replica.parallel), load)
    return found


def _served(replica: Replica, load: Load) -> Served:
    parallel = replica.parallel
    kept = load.input_len + load.output_len * (1.0 if replica.backend in _KEEP_WHOLE else 0.5)
    at_first = 1.0 if replica.backend in _KEEP_WHOLE else load.input_len / kept
    limit = replica.places(kept)
    asked = max(1.0, load.concurrency / parallel.dp)
    if limit == 0:
        return Served(
            concurrency=load.concurrency, input_len=load.input_len, output_len=load.output_len, decode_batch=0, cache_limit=0,
            step_seconds=replica.seconds("decode", asked, load.input_len + load.output_len / 2), prefill_share=0, basis=replica.basis,
        )  # fmt: skip
    waits = replica.backend if replica.calibration is not None else ""
    found = steady(replica.steps(), load, parallel.dp, limit, waits, at_first)
    rate = found.rate * load.output_len * min(parallel.dp, load.concurrency)
    return Served(
        concurrency=load.concurrency, input_len=load.input_len, output_len=load.output_len, tpot_seconds=found.tpot, step_seconds=found.step,
        ttft_service_seconds=found.service, ttft_queue_seconds=found.queue, ttft_seconds=found.service + found.queue,
        decode_batch=round(found.batch, 3), cache_limit=limit if limit < asked else None, tokens_per_second=rate,
        tokens_per_second_per_device=rate / parallel.devices, prefill_share=round(found.prefill_share, 4), basis=replica.basis,
    )  # fmt: skip


def swept(replica: Replica, phase: Phase, batch: int, length: int) -> SweepPoint:
    """One point: the pass, and whether its sequences fit."""
    parallel, device = replica.parallel, replica.device
    timing = replica.model.timing(phase, batch, length)
    whole = timing.at(**{"batch_size": batch, _LENGTH[phase]: length})
    here = of_rank(whole, parallel)
    found = replica.times(phase, here["batch_size"], length)
    held = timing.memory.held(here, of_rank(whole, parallel, held=True), parallel)
    fits = held.total <= device.usable
    said = totals(found, batch * (length if phase == "prefill" else 1), fits)
    return SweepPoint(
        batch=batch, context=length, flops=said.flops, bytes=said.bytes, bound_seconds=said.bound_seconds, calibrated_seconds=said.calibrated_seconds,
        low_seconds=said.low_seconds, high_seconds=said.high_seconds, limited_by=said.limited_by, tokens_per_second=said.tokens_per_second,
        weights_bytes=held.weights, cache_bytes=held.cache, fits=fits,
    )  # fmt: skip


__all__ = ["Model", "Phase", "Replica", "Timing", "served", "swept"]
