"""A training step on a device: its kernels there and back, the optimizer's update, and what has to lie in memory for it.

Order: the kernels, memory with saved activations, memory with layers that run again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from opscope_schemas.analysis import Optimizer, Training
from opscope_schemas.errors import TraceError
from opscope_schemas.estimates import ALONE, MemoryUse, Parallel, RecomputedMemory, TrainingMemory
from opscope_schemas.formula import Rational, evaluate, whole_bytes

from opscope_tools.estimate_roofline.kernels import Kernel, Pass
from opscope_tools.estimate_roofline.memory import largest
from opscope_tools.hardware.devices import Device
from opscope_tools.hardware.forms import FORMS, PREFILL_ATTENTION
from opscope_tools.trace.engine import Found
from opscope_tools.trace.training import training_of

ASSUMED = (
    "Every kernel is one of eager execution on bf16 weights; none was measured, so that only the bound is given.",
    "The optimizer is AdamW with fp32 weights and moments, its update one pass over them.",
    "Saved activations are all in memory when the way back begins; what it needs beside them is left out.",
    "Data-parallel ranks exchange gradients once a step, beside nothing else: all-reduced, with ZeRO scattered in sums and weights gathered "
    "again, with its third stage for each way; a layer that is gathered is not in the memory.",
)


def step_of(found: Found) -> Training:
    """What training adds to the document of the call; raises `TraceError` where the trace is of another pass."""
    training = training_of(found.tree, found.call)
    if training is None:
        raise TraceError(f"The trace is of {found.tree.trace.phase}, no training step.")
    return training


def step_kernels(of: Pass, values: Mapping[str, Rational], parallel: Parallel = ALONE) -> list[Kernel]:
    """The kernels of forward and backward of one rank, as they run eagerly, the optimizer's update as one, and what ranks exchange.

    `values` are those of the rank's own sequences.
    """
    made = []
    for op, kernel in zip([part.op for part in of.parts], of.kernels(values), strict=True):
        if op.operator == "opscope.sdpa_backward":
            kernel = replace(kernel, form=PREFILL_ATTENTION)
        named = f"{kernel.operation.removesuffix('_backward')} (backward)" if op.backward else kernel.operation
        made.append(replace(kernel, operation=named))
    update = _update(of.found, values)
    if parallel.zero:
        update = replace(update, flops=update.flops / parallel.dp, moved=update.moved / parallel.dp)
    return [*made, update, *_exchanges(of.found, values, parallel)]


def _exchanges(found: Found, values: Mapping[str, Rational], parallel: Parallel) -> Iterator[Kernel]:
    """Gradients among data-parallel ranks, and with ZeRO the weights that a rank has not updated, or not kept."""
    weights, gradients = whole_bytes(found.call.weights, values), whole_bytes(step_of(found).gradients, values)
    kinds = {
        0: [("all_reduce", gradients)],
        1: [("reduce_scatter", gradients), ("all_gather", weights)],
        2: [("reduce_scatter", gradients), ("all_gather", weights)],
        3: [("reduce_scatter", gradients), ("all_gather", weights), ("all_gather", weights)],
    }[parallel.zero]
    for kind, size in kinds if parallel.dp > 1 else ():
        yield Kernel(
            operation=kind, module="", file=found.call.file, line=found.call.line, count=1, flops=0.0, matmul_flops=0.0, moved=0.0,
            form=FORMS[kind], sizes={"bytes": float(size), "ranks": float(parallel.dp)}, exchanged=float(size), ranks=parallel.dp,
        )  # fmt: skip


def _adamw(found: Found) -> Optimizer:
    return next(one for one in step_of(found).optimizers if one.name == "adamw")


def _update(found: Found, values: Mapping[str, Rational]) -> Kernel:
    step = _adamw(found).step
    moved = whole_bytes(step.memory_access.read, values) + whole_bytes(step.memory_access.write, values)
    return Kernel(
        operation="adamw", module="", file=found.call.file, line=found.call.line, count=1,
        flops=float(evaluate(step.flops, values)), matmul_flops=0.0, moved=float(moved),
    )  # fmt: skip


def step_memory(found: Found, values: Mapping[str, Rational], device: Device, parallel: Parallel = ALONE) -> MemoryUse:
    """Weights, gradients, optimizer state and saved activations of a rank against what it may use, and the same with recomputation.

    `values` are those of a rank's own sequences; the largest batch is of all ranks.
    """
    training = step_of(found)

    def share(text: str, stage: int) -> int:
        return math.ceil(whole_bytes(text, values) / (parallel.dp if parallel.zero >= stage else 1))

    weights, gradients = share(found.call.weights, 3), share(training.gradients, 2)
    state = share(_adamw(found).state, 1)
    fixed = weights + gradients + state

    def fits(*texts: str) -> int | None:
        if "batch_size" not in values:
            return None
        each = largest(
            lambda size: fixed + sum(whole_bytes(t, {**values, "batch_size": size}) for t in texts), device.usable
        )
        return each * parallel.dp if each is not None else None

    saved = whole_bytes(training.saved_activations, values)
    again = training.recomputation
    recomputed = None
    if again is not None:
        kept = whole_bytes(again.saved_activations, values) + whole_bytes(again.largest_layer, values)
        recomputed = RecomputedMemory(
            saved_bytes=kept, flops=evaluate(again.flops, values), fits=fixed + kept <= device.usable,
            largest_batch=fits(again.saved_activations, again.largest_layer),
        )  # fmt: skip
    return MemoryUse(
        weights_bytes=weights, cache_bytes=0, activation_bytes=saved, capacity_bytes=device.capacity,
        usable_bytes=device.usable, fits=fixed + saved <= device.usable, largest_batch=fits(training.saved_activations),
        training=TrainingMemory(gradient_bytes=gradients, optimizer_bytes=state, recomputed=recomputed),
    )  # fmt: skip


__all__ = ["ASSUMED", "step_kernels", "step_memory", "step_of"]
