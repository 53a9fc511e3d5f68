"""The MCP tool `estimate_roofline`: its arguments, and from a trace to times and memory on a device."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

from opscope_cache.trees import IMPORTED
from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import ConfigError, ValuesError
from opscope_schemas.estimates import Hardware, RooflineResult
from pydantic import Field

from opscope_tools.costing.arguments import (
    CONFIG,
    TARGET,
    VALUES,
    CostArguments,
    Values,
    find,
    model_spec,
    remarks,
    sources,
)
from opscope_tools.estimate_roofline.kernels import kernels_at
from opscope_tools.estimate_roofline.memory import memory_use
from opscope_tools.estimate_roofline.times import Estimate, estimates, note, rows, spent, totals
from opscope_tools.estimate_roofline.training import ASSUMED as TRAINING_ASSUMED
from opscope_tools.estimate_roofline.training import step_kernels, step_memory
from opscope_tools.hardware.calibration import calibration_of
from opscope_tools.hardware.devices import Device, device_named
from opscope_tools.hardware.forms import BYTES
from opscope_tools.running.config_files import Config
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.trace.dataflow import dataflow
from opscope_tools.trace.document import not_counted
from opscope_tools.trace.quantisation import scheme_of

Precision = Literal["bf16", "fp8", "fp8_block", "int8", "int4", "mxfp4", "nvfp4"]
#: sizes of a pass where nobody gives them
_SIZES = {"batch_size": 1, "seq_len": 1024, "cache_len": 1024}
#: how a checkpoint of that precision says so, head and norms left alone
_STORED: Mapping[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8"},
    "fp8_block": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "int4": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "mxfp4": {"quant_method": "mxfp4"},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}
#: what the names of stored formats begin with -> precision of the kernels
_PRECISIONS = {
    "fp8 in blocks": "fp8_block",
    "fp8": "fp8",
    "mxfp4": "mxfp4",
    "fp4": "mxfp4",
    "nvfp4": "nvfp4",
    "int4": "int4",
    "int8": "int8",
}
_ASSUMED = (
    "The bound counts matrix-product FLOPs at the peak of their precision and every byte at the bandwidth of memory; of attention "
    "what a causal kernel computes.",
    "Kernels run one after the other, launched from a CUDA graph; what the runtime does between passes is not in the times.",
    "Products that read the same activations in one module run as one; a layer of experts is one kernel.",
    "Norms, activations and copies were not measured: the launch and the bandwidth of products stand for them, and 0.6 to 1.5 times "
    "that for their spread.",
    "Runtime, graphs and fragmentation take memory beside what is counted here.",
)


class RooflineArguments(ToolArguments):
    """Arguments of `estimate_roofline`."""

    target: str = Field(description=TARGET, min_length=1, max_length=1000)
    hardware: str = Field(description="`h100_sxm`, `b200_sxm`, `mi300x`, ...", min_length=1, max_length=200)
    phase: Literal["prefill", "decode", "encode", "train"] = Field(
        default="decode", description="decode: a token of each sequence; train: a step with AdamW, eager."
    )
    config: Config = Field(default=None, description=CONFIG)
    values: Values = Field(default=None, description=VALUES)
    precision: dict[Literal["weights", "cache"], Precision] | None = Field(
        default=None, description="Default: the checkpoint's."
    )
    backend: Literal["vllm", "trtllm", "sglang"] = Field(default="vllm", description="Whose kernels.")
    view: Literal["eager", "serving"] = Field(default="serving", description="As engines run it, or eagerly.")


def estimate_roofline(arguments: RooflineArguments, context: ToolContext) -> RooflineResult:
    """Raises what the cost tools raise, and `UnknownNameError` for a device that the table lacks."""
    device = device_named(arguments.hardware)
    asked, defaults = _asked(arguments)
    quantised, precision = _quantised(asked, arguments, context)
    found = find(asked, context)
    values = found.values
    if values is None:
        raise ValuesError("No point to estimate at.", next_step="Give values: {'batch_size': 1, 'cache_len': 1024}.")
    context.checkpoint()
    training = arguments.phase == "train"
    serving = arguments.view == "serving" and not training
    every = step_kernels(found, values) if training else kernels_at(found, values, quantised, eager=not serving)
    calibration = calibration_of(device.id) if serving else None
    times = estimates(every, device, calibration, arguments.backend)
    memory = (
        step_memory(found, values, device.capacity)
        if training
        else memory_use(dataflow(found.tree, found.call), values, device.capacity)
    )
    tokens = (
        float(values.get("batch_size", 0)) * float(values.get("seq_len", 0)) if arguments.phase != "encode" else 0.0
    )
    return RooflineResult(
        model_class=found.tree.trace.model_class, phase=found.tree.trace.phase, view="serving" if serving else "eager",
        precision={**precision, "activations": "bf16"}, hardware=_shown(device, times),
        values={n: v for n, v in values.items() if n in _SIZES or n in (arguments.values or {})},
        totals=totals(times, tokens, memory.fits), spent=spent(times), memory=memory, operators=rows(times),
        calibration=note(times, calibration) if calibration is not None else None, assumptions=_ASSUMED if not training else (*TRAINING_ASSUMED, *_ASSUMED[:2]),
        not_counted=not_counted(found.tree.ops_below(found.call)), sources=sources(context.workspace),
        notes=(*defaults, *_told(device, times, arguments.view if serving else "eager", memory.fits), *remarks(found)),
    )  # fmt: skip


def _asked(arguments: RooflineArguments) -> tuple[CostArguments, tuple[str, ...]]:
    """What the cost tools are asked for, and what was assumed on the way."""
    given = dict(arguments.values or {})
    wanted = ("batch_size", "cache_len") if arguments.phase == "decode" else ("batch_size", "seq_len")
    missing = [name for name in wanted if name not in given]
    values: dict[str, Any] = {**{name: _SIZES[name] for name in missing}, **given}
    precision = arguments.precision or {}
    if precision and arguments.phase == "train":
        raise ConfigError("Training is estimated in bf16 alone.", next_step="Leave out precision.")
    if cache := precision.get("cache"):
        values.setdefault("kv_bytes", Fraction(BYTES[cache]).limit_denominator(4096))
    config = arguments.config
    if weights := precision.get("weights"):
        if config is not None and not isinstance(config, dict):
            raise ConfigError(
                "Both a config file and a precision of weights were given.",
                next_step="Give the config as an object, or leave the precision to it.",
            )
        config = {**(config or {}), "quantization_config": _STORED.get(weights, {})}
    said = ", ".join(f"{name} {values[name]:,}" for name in missing)
    return (
        CostArguments(
            target=arguments.target, phase=arguments.phase, config=config, values=values, view="eager",
            logits="all" if arguments.phase == "train" else "last",
        ),
        (f"Not given, and assumed: {said}.",) if missing else (),
    )  # fmt: skip


def _quantised(asked: CostArguments, arguments: RooflineArguments, context: ToolContext) -> tuple[str, dict[str, str]]:
    """The precision of weights that are not the model's dtype, empty where all are; and that of weights and cache."""
    spec = model_spec(context.workspace, asked.target, asked.config)
    scheme = scheme_of(spec.overrides.get("quantization_config", spec.content.get("quantization_config")))
    weights = "bf16"
    if scheme is not None and scheme.rules:
        name = scheme.rules[0].format.name
        weights = next((p for start, p in _PRECISIONS.items() if name.startswith(start)), "bf16")
    cache = (arguments.precision or {}).get("cache") or (
        "fp8" if scheme is not None and scheme.cache_element() == 1 else "bf16"
    )
    return ("" if weights == "bf16" else weights), {"weights": weights, "cache": cache}


def _shown(device: Device, times: list[Estimate]) -> Hardware:
    spent_in: dict[str, float] = {}
    for one in times:
        if one.kernel.matmul_flops:
            spent_in[one.kernel.precision] = (
                spent_in.get(one.kernel.precision, 0.0) + one.kernel.matmul_flops * one.kernel.count
            )
    rate, units = device.peak(max(spent_in, key=lambda n: spent_in[n], default="bf16"))
    return Hardware(
        id=device.id, name=device.name, peak_flops=rate, peak_precision=units, bandwidth=device.bandwidth, capacity=device.capacity,
        ridge=round(rate / device.bandwidth, 1), sources=tuple(f"{s.what}: {s.source}" for s in device.sources),
    )  # fmt: skip


def _told(device: Device, times: list[Estimate], view: str, fits: bool) -> tuple[str, ...]:
    said = []
    calibrated = calibration_of(device.id) is not None
    if not calibrated:
        said.append(
            f"{device.name} is uncalibrated: no measured kernels of it are at hand, and only the bound is given."
        )
    elif unlike := [one.kernel for one in times if one.measured is None and one.limit is not None and view != "eager"]:
        named = ", ".join(dict.fromkeys(f"{kernel.operation} of {kernel.module}" for kernel in unlike))
        said.append(f"No measured kernels are like {named}: only the bound is given for the whole.")
    elif view == "eager":
        said.append("Eager kernels were not measured: only the bound is given.")
    if outside := sorted({n for one in times if one.measured and one.kernel.form for n in one.measured.outside}):
        said.append(f"Beyond what was measured: {', '.join(outside)}.")
    if not fits:
        said.append("Weights, cache and activations do not fit one device: no throughput is given.")
    return tuple(said)


def _brief(result: RooflineResult) -> RooflineResult:
    slowest = sorted(result.operators, key=lambda o: -(o.calibrated_seconds or o.bound_seconds))[:25]
    kept = tuple(o for o in result.operators if o in slowest)
    return result.model_copy(
        update={
            "operators": kept,
            "shortened": "The 25 slowest kernels are listed; the totals are of all. The artifact is whole.",
        }
    )


ESTIMATE_ROOFLINE: Tool[RooflineArguments, RooflineResult] = Tool(
    name="estimate_roofline",
    title="Time and memory of a pass on named hardware",
    description=(
        "How long a pass takes on a device, kernel by kernel: an exact bound, and the time that measured kernels "
        "took; what limits it; weights and cache against capacity, the largest batch and context that fit."
    ),
    arguments=RooflineArguments,
    result=RooflineResult,
    run=estimate_roofline,
    sources=IMPORTED,
    shorter=(_brief,),
    lane=lambda _: "trace",
)
