"""Estimates of any shape, made up without a trace: what pictures take, drawn from hypothesis or from a seed."""

from __future__ import annotations

import random
from typing import Any

from opscope_schemas.estimates import ClassTime, Hardware, MemoryUse, OperatorTime, RooflineResult, TimeTotals

KINDS = ("matrix products", "attention", "experts", "norms, elementwise work and copies", "a class of tomorrow")
GB = 10**9


def operator(drawn: random.Random, module: str, count: int, *, calibrated: bool = True) -> OperatorTime:
    """An operator whose figures lie anywhere over ten decades; one in five computes nothing."""
    flops = 0 if drawn.random() < 0.2 else int(10 ** drawn.uniform(1, 14))
    moved = int(10 ** drawn.uniform(2, 11))
    bound = max(flops / 1e15, moved / 3e12)
    times: dict[str, Any] = {}
    if calibrated:
        seconds = bound * drawn.uniform(1, 3) + 2e-6
        times = {"calibrated_seconds": seconds, "low_seconds": 0.8 * seconds, "high_seconds": 1.3 * seconds}
    return OperatorTime(
        operation=drawn.choice(["mm", "sdpa", "add", "mul", "experts", "mm (gate_proj, up_proj)"]), kind=drawn.choice(KINDS), module=module,
        file=f"pack/models/modeling_{drawn.randrange(3)}.py", line=drawn.randrange(1, 900), count=count, flops=flops, bytes=moved,
        intensity=flops / moved, bound_seconds=bound, limited_by="memory", **times,
    )  # fmt: skip


def estimate(operators: list[OperatorTime], **given: Any) -> RooflineResult:
    """A whole estimate of these operators."""
    known = all(one.calibrated_seconds is not None for one in operators)
    bound = sum(one.bound_seconds for one in operators)
    times = {
        name: sum(getattr(one, name) for one in operators) if known else None
        for name in ("calibrated_seconds", "low_seconds", "high_seconds")
    }
    kinds = dict.fromkeys(one.kind for one in operators)
    whole: dict[str, Any] = {
        "model_class": "pack.models.Some$Model$ForCausalLM", "phase": "decode", "view": "serving", "precision": {"weights": "bf16"},
        "hardware": Hardware(
            id="d", name="Device 80GB", peak_flops=1e15, peak_precision="bf16", bandwidth=3e12, capacity=80 * GB, ridge=333.3,
            ceilings={"bf16": 1e15, "fp8": 2e15, "int8": 2e15}, sources=("peak_flops, sms: A data sheet", "bandwidth: Another page"),
        ),
        "values": {"batch_size": 4, "cache_len": 1000},
        "totals": TimeTotals(flops=1, bytes=1, bound_seconds=bound, limited_by="memory", **times),
        "spent": tuple(ClassTime(name=name, share=0.1, bound_seconds=1.0) for name in kinds),
        "memory": memory(1000), "operators": tuple(operators),
    }  # fmt: skip
    return RooflineResult(**(whole | given))


def memory(context: int, **given: Any) -> MemoryUse:
    """Memory that grows with the context."""
    whole = {
        "weights_bytes": 16 * GB, "cache_bytes": context * 10**6, "activation_bytes": GB, "capacity_bytes": 88 * GB, "usable_bytes": 80 * GB, "fits": context < 63_000,
        "longest_context": 63_000, "largest_batch": 59,
    }  # fmt: skip
    return MemoryUse(**(whole | given))


def rates(batch: int, *, calibrated: bool = True) -> TimeTotals:
    """Totals of a pass of that batch; past 64 it does not fit."""
    seconds = 0.01 + 0.0001 * batch
    fits = batch <= 64
    times = (
        {"calibrated_seconds": 1.2 * seconds, "low_seconds": seconds, "high_seconds": 1.5 * seconds}
        if calibrated
        else {}
    )
    return TimeTotals(
        flops=1, bytes=1, bound_seconds=seconds, limited_by="memory", bound_tokens_per_second=batch / seconds if fits else None,
        tokens_per_second=batch / (1.2 * seconds) if fits and calibrated else None, **times,
    )  # fmt: skip


def decoder(seed: int, *, kinds: int = 2, calibrated: bool = True) -> RooflineResult:
    """A pass with an embedding, layers of some kinds, each kind one after the other, and a head."""
    drawn = random.Random(seed)
    found = [operator(drawn, "model.embed", 1, calibrated=calibrated)]
    for _ in range(kinds):
        runs = drawn.randrange(2, 40)
        first = operator(drawn, "model.layers.*.norm", runs, calibrated=calibrated)
        found.append(first.model_copy(update={"operation": "norm", "file": "pack/norm.py", "line": 7}))
        for _ in range(drawn.randrange(1, 9)):
            part = drawn.choice(["attention", "mlp", "mlp.down"])
            found.append(
                operator(drawn, f"model.layers.*.{part}", runs * drawn.choice([1, 1, 3]), calibrated=calibrated)
            )
    found.append(operator(drawn, "lm_head", 1, calibrated=calibrated))
    return estimate(found)
