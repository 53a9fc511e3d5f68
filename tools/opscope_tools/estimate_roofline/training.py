"""A training step on a device: its kernels there and back, the optimizer's update, and what has to lie in memory for it.

Order: the kernels, memory with saved activations, memory with layers that run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opscope_schemas.analysis import Optimizer, Training
from opscope_schemas.errors import TraceError
from opscope_schemas.estimates import MemoryUse, RecomputedMemory, TrainingMemory
from opscope_schemas.formula import Rational, evaluate, whole_bytes

from opscope_tools.estimate_roofline.kernels import Kernel, Pass
from opscope_tools.estimate_roofline.memory import largest
from opscope_tools.hardware.forms import PREFILL_ATTENTION
from opscope_tools.trace.engine import Found
from opscope_tools.trace.training import training_of

ASSUMED = (
    "Every kernel is one of eager execution on bf16 weights; none was measured, so that only the bound is given.",
    "The optimizer is AdamW with fp32 weights and moments, its update one pass over them.",
    "Saved activations are all in memory when the way back begins; what it needs beside them is left out.",
)


def step_of(found: Found) -> Training:
    """What training adds to the document of the call; raises `TraceError` where the trace is of another pass."""
    training = training_of(found.tree, found.call)
    if training is None:
        raise TraceError(f"The trace is of {found.tree.trace.phase}, no training step.")
    return training


def step_kernels(of: Pass, values: Mapping[str, Rational]) -> list[Kernel]:
    """The kernels of forward and backward, as they run eagerly, and the optimizer's update as one."""
    made = []
    for op, kernel in zip([part.op for part in of.parts], of.kernels(values), strict=True):
        if op.operator == "opscope.sdpa_backward":
            kernel = replace(kernel, form=PREFILL_ATTENTION)
        named = f"{kernel.operation.removesuffix('_backward')} (backward)" if op.backward else kernel.operation
        made.append(replace(kernel, operation=named))
    return [*made, _update(of.found, values)]


def _adamw(found: Found) -> Optimizer:
    return next(one for one in step_of(found).optimizers if one.name == "adamw")


def _update(found: Found, values: Mapping[str, Rational]) -> Kernel:
    step = _adamw(found).step
    moved = whole_bytes(step.memory_access.read, values) + whole_bytes(step.memory_access.write, values)
    return Kernel(
        operation="adamw", module="", file=found.call.file, line=found.call.line, count=1,
        flops=float(evaluate(step.flops, values)), matmul_flops=0.0, moved=float(moved),
    )  # fmt: skip


def step_memory(found: Found, values: Mapping[str, Rational], capacity: int) -> MemoryUse:
    """Weights, gradients, optimizer state and saved activations against a capacity, and the same with recomputation."""
    training = step_of(found)
    weights = whole_bytes(found.call.weights, values)
    gradients = whole_bytes(training.gradients, values)
    state = whole_bytes(_adamw(found).state, values)
    fixed = weights + gradients + state

    def fits(*texts: str) -> int | None:
        if "batch_size" not in values:
            return None
        return largest(
            lambda size: fixed + sum(whole_bytes(t, {**values, "batch_size": size}) for t in texts), capacity
        )

    saved = whole_bytes(training.saved_activations, values)
    again = training.recomputation
    recomputed = None
    if again is not None:
        kept = whole_bytes(again.saved_activations, values) + whole_bytes(again.largest_layer, values)
        recomputed = RecomputedMemory(
            saved_bytes=kept, flops=evaluate(again.flops, values), fits=fixed + kept <= capacity,
            largest_batch=fits(again.saved_activations, again.largest_layer),
        )  # fmt: skip
    return MemoryUse(
        weights_bytes=weights, cache_bytes=0, activation_bytes=saved, capacity_bytes=capacity,
        fits=fixed + saved <= capacity, largest_batch=fits(training.saved_activations),
        training=TrainingMemory(gradient_bytes=gradients, optimizer_bytes=state, recomputed=recomputed),
    )  # fmt: skip


__all__ = ["ASSUMED", "step_kernels", "step_memory", "step_of"]
