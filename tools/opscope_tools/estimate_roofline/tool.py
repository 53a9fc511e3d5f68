"""The MCP tool `estimate_roofline`: its arguments, and from a trace to times and memory on a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from opscope_cache.trees import IMPORTED
from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import ConfigError, TraceError, ValuesError
from opscope_schemas.estimates import (
    ALONE,
    Alternative,
    ClassTime,
    Hardware,
    MemoryUse,
    OperatorTime,
    Parallel,
    RooflineResult,
    Speculative,
    TimeTotals,
    launches,
)
from opscope_schemas.formula import Rational
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
from opscope_tools.costing.numbers import positions, usual_sizes
from opscope_tools.estimate_roofline.alternatives import alternatives, turning_batch
from opscope_tools.estimate_roofline.fusing import fusions
from opscope_tools.estimate_roofline.kernels import Kernel
from opscope_tools.estimate_roofline.memory import Memory, memory_use, of_rank
from opscope_tools.estimate_roofline.parallel import check, check_training, spread
from opscope_tools.estimate_roofline.predicting import Model, Phase, Replica, Timing, served
from opscope_tools.estimate_roofline.speculating import ASSUMED as SPECULATIVE_ASSUMED
from opscope_tools.estimate_roofline.speculating import asked, speculative
from opscope_tools.estimate_roofline.times import Beside, Estimate, estimates, note, rows, spent, totals
from opscope_tools.estimate_roofline.traffic import Load
from opscope_tools.estimate_roofline.training import ASSUMED as TRAINING_ASSUMED
from opscope_tools.estimate_roofline.training import step_kernels, step_memory
from opscope_tools.hardware.calibration import calibration_for, generic
from opscope_tools.hardware.devices import Device, device_named, devices
from opscope_tools.hardware.forms import BYTES
from opscope_tools.hardware.here import NAME, this_processor
from opscope_tools.pictures import picture
from opscope_tools.running.config_files import Config, read_config
from opscope_tools.running.runner import briefest
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.document import not_counted
from opscope_tools.trace.engine import Found
from opscope_tools.trace.quantisation import scheme_of

Precision = Literal["bf16", "fp8", "fp8_block", "int8", "int4", "mxfp4", "nvfp4"]
#: kernels that an agent is told of
_SLOWEST = 5
#: what products may be asked to read, beside weights and cache of any precision
_ACTIVATIONS = ("bf16", "fp16", "fp8")
#: sizes of a pass where nobody gives them
_SIZES = {"batch_size": 1, "seq_len": 1024, "cache_len": 1024}
#: how a checkpoint of that precision says so: all products but the head
STORED: Mapping[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8"},
    "fp8_block": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "int4": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": False},
    "mxfp4": {
        "quant_method": "compressed-tensors",
        "ignore": ["lm_head"],
        "config_groups": {
            "all": {"targets": ["Linear"], "weights": {"type": "float", "num_bits": 4, "group_size": 32}}
        },
    },
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]},
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
    "Products that read the same activations in one module run as one, and so do small kernels of a module with no product between "
    "them; a layer of experts is one kernel, calibrated where tokens choose experts by a power law (1.01); its bound has them chosen evenly.",
    "Norms, activations, copies and hub kernels were not measured: launch and bandwidth of products stand for them, 0.6 to 1.5 times as spread.",
    "A tenth of the memory is left to the runtime.",
)

_STEADY = (
    "Requests come in a closed loop of that concurrency, each as soon as another has ended; how many decode at a time follows from Little's "
    "law, and no more do than have room for their cache in 0.9 of the memory, for TensorRT-LLM of what weights leave of it. An engine that "
    "begins a request with room for its question alone makes it wait for the rest between its tokens.",
    "A prefill beside decoding stretches the steps by the time that it takes. `ttft_queue_seconds` is what a request waits beside its own "
    "prefill: for a place, and as engines schedule, for some steps and a share of a first wave that comes at once; those three figures of "
    "each engine, and 0.6 ms of a decode step in which the device waits for vLLM's host, are fitted on measured runs, nothing else is.",
)


class RooflineArguments(ToolArguments):
    """Arguments of `estimate_roofline`."""

    target: str = Field(description=TARGET, min_length=1, max_length=1000)
    hardware: str = Field(description="`h100_sxm`, `b200_sxm:8`, `mi300x`, ...", min_length=1, max_length=200)
    phase: Literal["prefill", "decode", "encode", "serve", "train"] = Field(
        default="decode", description="serve: `serving`; train: AdamW."
    )
    config: Config = Field(default=None, description=CONFIG)
    values: Values = Field(default=None, description=VALUES)
    precision: dict[Literal["weights", "cache", "activations"], Precision | Literal["fp16"]] | None = Field(
        default=None, description="Default: the checkpoint's."
    )
    parallel: dict[Literal["tp", "pp", "ep", "dp", "sp", "zero"], Annotated[int, Field(ge=0, le=1024)]] | None = Field(
        default=None, description="Degrees; sp: 0 or 1; zero: 0 to 3."
    )
    serving: (
        dict[Literal["concurrency", "input_len", "output_len"], Annotated[int, Field(ge=1, le=10_000_000)]] | None
    ) = Field(default=None, description="Requests; tokens of each.")
    speculative: dict[str, Any] | None = Field(
        default=None,
        description="num_speculative_tokens, acceptance_rate, draft_model or draft_cost.",
    )
    backend: Literal["vllm", "trtllm", "sglang"] = Field(default="vllm", description="Whose kernels.")
    view: Literal["eager", "serving"] = Field(default="serving", description="As engines run it.")
    plot: Literal["roofline", "classes", "timeline"] | None = Field(default=None, description="Adds this picture.")


def estimate_roofline(arguments: RooflineArguments, context: ToolContext) -> RooflineResult:
    """Raises what the cost tools raise, and `UnknownNameError` for a device that the table lacks."""
    if arguments.serving is not None or arguments.phase == "serve":
        return _served(arguments, context)
    return _estimated(arguments, context, *devices_of(arguments.hardware, arguments.parallel, context))


def with_nearest(arguments: RooflineArguments, context: ToolContext) -> RooflineResult:
    """A pass, with the nearest measured row beside each kernel. Raises `ConfigError` where no tables of them are installed."""
    from opscope_tools.hardware import measured, nearest  # numpy, and with the first row pyarrow

    measured.folder()
    if arguments.serving is not None or arguments.phase == "serve":
        raise ConfigError("Measured rows stand beside the kernels of one pass.", next_step="Leave out `serving`.")
    device, parallel = devices_of(arguments.hardware, arguments.parallel, context)
    return _estimated(arguments, context, device, parallel, partial(nearest.nearest_row, device.id))


def devices_of(hardware: str, degrees: Mapping[Any, int] | None, context: ToolContext) -> tuple[Device, Parallel]:
    """The device that is named, and how a model is spread: over as many as are named, by tensors where nothing else is said.

    Raises `UnknownNameError` for the device and `ConfigError` for a number that the plan contradicts.
    """
    name, _, count = hardware.partition(":")
    parallel = _parallel(degrees) if degrees is not None else None
    own = context.workspace.device_files
    device = this_processor() if name.strip().lower() == NAME and NAME not in devices(own) else device_named(name, own)
    if not count:
        return device, parallel or ALONE
    if not count.isdigit() or not 1 <= int(count) <= 1024:
        raise ConfigError(
            f"{hardware!r} names no number of devices.", next_step="Write DEVICE:NUMBER, as in h100_sxm:4."
        )
    if parallel is None:
        return device, Parallel(tp=int(count))
    if parallel.devices != int(count):
        raise ConfigError(
            f"{parallel} takes {parallel.devices} devices, and {count} are given.",
            next_step="Let tp times pp times dp be the number of devices, or leave one of them away.",
        )
    return device, parallel


def _parallel(degrees: Mapping[Any, int]) -> Parallel:
    if wrong := [name for name, size in degrees.items() if name not in ("sp", "zero") and size < 1]:
        raise ConfigError(f"{wrong[0]} begins with 1.", next_step="Leave it away, or give a number of ranks.")
    return Parallel.model_validate({**degrees, "sp": bool(degrees.get("sp", 0))})


def _served(arguments: RooflineArguments, context: ToolContext) -> RooflineResult:
    """A decode step as continuous batching comes to run it, and what users see of it."""
    given = {"concurrency": 1, **(arguments.serving or {})}
    if missing := [name for name in ("input_len", "output_len") if name not in given]:
        raise ValuesError(
            f"Serving depends on the load: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.",
            next_step="Give serving: {'concurrency': 64, 'input_len': 1024, 'output_len': 1024}.",
        )
    device, parallel = devices_of(arguments.hardware, arguments.parallel, context)
    model = model_of(arguments, context)
    load = Load(given["concurrency"], given["input_len"], given["output_len"])
    first = model.timing("decode", 2, load.input_len + load.output_len / 2)
    check(first.of, first.at(batch_size=2), parallel)
    replica = Replica(model, device, calibration_for(device), arguments.backend, parallel)
    found = served(replica, load)
    batch = max(1, round(found.decode_batch * parallel.dp)) if found.cache_limit != 0 else load.concurrency
    values = {**(arguments.values or {}), "batch_size": batch, "cache_len": round(load.input_len + load.output_len / 2)}
    step = arguments.model_copy(update={"phase": "decode", "values": values, "serving": None})
    found_step = _estimated(step, context, device, parallel)
    assumed = (*found_step.assumptions, *_STEADY)
    return found_step.model_copy(update={"phase": "serve", "serving": found, "assumptions": assumed})


def model_of(arguments: RooflineArguments, context: ToolContext) -> Model:
    """The passes of the model that the arguments name."""
    others = {n: v for n, v in (arguments.values or {}).items() if n not in _SIZES}

    def found(phase: Phase, sizes: Mapping[str, Rational]) -> Timing:
        return timing_of(arguments.model_copy(update={"phase": phase}), {**others, **sizes}, context)

    return Model(found)


def timing_of(
    arguments: RooflineArguments,
    values: Mapping[str, Rational],
    context: ToolContext,
    *,
    fused: bool = True,
    special: bool = True,
) -> Timing:
    """The pass that the arguments name, traced where `values` need it, as `find` is told to."""  # fmt: skip
    cost, _ = _asked(arguments.model_copy(update={"values": values}), context.workspace)
    context.checkpoint()
    quantised, _ = _quantised(cost, arguments, context)
    found = find(cost, context, fused=fused, special=special, several=False)
    activations = (arguments.precision or {}).get("activations", "")
    return Timing(found, quantised, activations=activations, whole=_whole_pass(found, cost, context))


def _whole_pass(found: Found, cost: CostArguments, context: ToolContext) -> Callable[[], Found] | None:
    """What finds the pass before a decode step that leaves parts of the model out, such as an encoder."""
    if cost.phase != "decode" or found.call.parent >= 0 or not found.tree.trace.idle:
        return None
    return lambda: find(cost.model_copy(update={"phase": "prefill", "values": None}), context)


def _estimated(
    arguments: RooflineArguments, context: ToolContext, device: Device, parallel: Parallel, beside: Beside | None = None
) -> RooflineResult:
    cost, defaults = _asked(arguments, context.workspace)
    if defaults:  # as far as the model has positions
        usual = usual_sizes(find(cost.model_copy(update={"values": None}), context))
        cost, defaults = _asked(
            arguments,
            context.workspace,
            {**_SIZES, **{n: int(x) for n, x in usual.items() if n != "seq_len" or arguments.phase != "decode"}},
        )
    training = arguments.phase == "train"
    batch = (cost.values or {}).get("batch_size")
    if training:
        parallel = parallel if arguments.parallel else Parallel(dp=parallel.devices)
        check_training(parallel)
        each = {"batch_size": math.ceil(batch / parallel.dp)} if isinstance(batch, int) else {}
        cost = cost.model_copy(update={"values": {**(cost.values or {}), **each}})
    quantised, precision = _quantised(cost, arguments, context)
    serving = arguments.view == "serving" and not training
    found = find(cost, context, fused=serving, several=False)
    values = found.values
    if values is None:
        raise ValuesError("No point to estimate at.", next_step="Give values: {'batch_size': 1, 'cache_len': 1024}.")
    context.checkpoint()
    timing = Timing(
        found,
        "" if training else quantised,
        eager=not serving,
        activations=(arguments.precision or {}).get("activations", ""),
        whole=_whole_pass(found, cost, context),
    )
    elsewhere = _elsewhere_of(timing, arguments.model_copy(update={"values": cost.values}), context)
    here = of_rank(values, ALONE if training else parallel)
    if not training:
        check(timing.of, here, parallel)
    calibration = calibration_for(device) if serving else None
    every = step_kernels(timing.of, values, parallel) if training else timing.of.kernels(here, parallel)
    times = estimates(every, device, calibration, arguments.backend)
    memory = (
        step_memory(found, values, device, parallel)
        if training
        else memory_use(timing.memory, values, device, parallel, lambda name, size: _memory(elsewhere({name: size})))
    )
    tokens = (
        float(values.get("batch_size", 0)) * float(values.get("seq_len", 0)) if arguments.phase != "encode" else 0.0
    )
    if training and isinstance(batch, int):  # what was asked for, not a rank's part of it
        values, tokens = {**values, "batch_size": batch}, tokens / float(values["batch_size"]) * batch
    whole, expected = _elsewhere(totals(times, tokens, memory.fits), every, device, arguments)
    vocabulary = here.get("vocab_size", math.inf) / parallel.tp
    others, off = (
        alternatives(every, device, calibration, arguments.backend, vocabulary, bool(memory.cache_bytes))
        if serving
        else ((), {})
    )
    return RooflineResult(
        model_class=found.call.class_name, phase=found.tree.trace.phase, view="serving" if serving else "eager",
        precision={**precision, "activations": (arguments.precision or {}).get("activations", "bf16")}, hardware=shown(device, times),
        values={n: v for n, v in values.items() if n in _SIZES or n in (arguments.values or {})},
        totals=whole, spent=spent(times), memory=memory, operators=rows(times, beside),
        parallel=spread(timing.of, here, parallel, times),
        alternatives=others,
        speculative=_speculative(arguments, context, device, parallel, whole) if arguments.speculative else None,
        fusion=fusions(timing.of, values, device) if arguments.view == "eager" and not training else (),
        turning_batch=_turning(timing, elsewhere({"batch_size": 3}), here, parallel, device) if serving else None,
        calibration=note(times, calibration, off) if calibration is not None else None,
        assumptions=(*TRAINING_ASSUMED, *_ASSUMED[:2]) if training else (*_ASSUMED, *(SPECULATIVE_ASSUMED if arguments.speculative else ())),
        not_counted=not_counted(found.tree.ops_below(found.call)), sources=sources(context.workspace),
        notes=(
            *defaults, *_told(device, times, arguments.view if serving else "eager", memory.fits), *expected,
            *_longer(memory, positions(found)), *remarks(found),
        ),
    )  # fmt: skip


def _longer(memory: MemoryUse, room: int | None) -> tuple[str, ...]:
    """A note where memory holds more positions than the model has."""
    longest = memory.longest_context
    if room is None or longest is None or longest <= room:
        return ()
    return (f"Memory holds a context of {longest:,}; the config makes room for {room:,} positions.",)


def _speculative(
    arguments: RooflineArguments, context: ToolContext, device: Device, parallel: Parallel, step: TimeTotals
) -> Speculative:
    """Speculative decoding instead of the step, both models on the same ranks."""
    of = asked(arguments.speculative or {})
    if arguments.phase != "decode" or (arguments.values or {}).get("seq_len", 1) != 1 or arguments.view == "eager":
        raise ConfigError(
            "Speculation is of a decode step of the serving view.", next_step="Leave out phase, seq_len and view."
        )
    plain = arguments.model_copy(update={"speculative": None})
    pass_of = {"values": {**(arguments.values or {}), "seq_len": of.tokens + 1}}
    verified = _estimated(plain.model_copy(update=pass_of), context, device, parallel).totals
    sizes = {name: size for name, size in (arguments.values or {}).items() if name in _SIZES}
    draft = plain.model_copy(update={"target": of.model, "config": None, "precision": None, "values": sizes})
    return speculative(of, step, verified, lambda: _estimated(draft, context, device, parallel).totals)


def _elsewhere_of(
    timing: Timing, arguments: RooflineArguments, context: ToolContext
) -> Callable[[Mapping[str, int]], Timing | None]:
    """What gives the timing that holds at other sizes, where the model runs there and a trace of that length is not long."""
    known = [timing]

    def elsewhere(sizes: Mapping[str, int]) -> Timing | None:
        found = next((one for one in known if one.holds(**sizes)), None)
        if found is None:
            try:
                values, short = {**(arguments.values or {}), **sizes}, sizes.keys() <= {"batch_size"}
                there = timing_of(arguments, values, context, fused=not timing.eager, special=short)
            except (TraceError, ValuesError):
                return None
            found = replace(there, eager=timing.eager)
            known.append(found)
        return found

    return elsewhere


def _memory(timing: Timing | None) -> Memory | None:
    return timing.memory if timing is not None else None


def _turning(
    timing: Timing, of_many: Timing | None, here: Mapping[str, float], parallel: Parallel, device: Device
) -> int | None:
    if "batch_size" not in here or of_many is None or not of_many.holds(batch_size=4):
        return None  # a trace of one sequence, or of this number of them alone
    groups = parallel.dp * parallel.pp

    def kernels(batch: int) -> list[Kernel]:
        return (timing if batch == here["batch_size"] else of_many).of.kernels({**here, "batch_size": batch}, parallel)

    found = turning_batch(kernels, device, round(here["batch_size"]))
    return found * groups if found is not None else None


def _elsewhere(
    whole: TimeTotals, every: list[Kernel], device: Device, arguments: RooflineArguments
) -> tuple[TimeTotals, tuple[str, ...]]:
    """Between what times a device without measurements may lie by those that were measured: no calibrated time, and said."""
    if (
        arguments.view == "eager"
        or arguments.phase == "train"
        or calibration_for(device) is not None
        or device.kind != "gpu"
    ):
        return whole, ()
    calibration = generic(device)
    other = totals(estimates(every, device, calibration, arguments.backend), 0.0, fits=True)
    if other.low_seconds is None or other.high_seconds is None:
        return whole, ()
    low = max(other.low_seconds, whole.bound_seconds)
    high = max(other.high_seconds, low)
    said = f"Between {low * 1e3:.3g} and {high * 1e3:.3g} ms if its kernels use it as NVIDIA's use theirs ({calibration.source})."
    return whole.model_copy(update={"low_seconds": low, "high_seconds": high}), (said,)


def stored_as(workspace: Workspace, config: Config, weights: str) -> dict[str, Any]:
    """The configuration with its weights in a precision, as a checkpoint says it; raises as `read_config` does."""
    return {**(read_config(workspace, config) or {}), "quantization_config": STORED.get(weights, {})}


def _asked(
    arguments: RooflineArguments, workspace: Workspace, usual: Mapping[str, int] = _SIZES
) -> tuple[CostArguments, tuple[str, ...]]:
    """What the cost tools are asked for, and what was assumed on the way."""
    given = dict(arguments.values or {})
    wanted = ("batch_size", "cache_len") if arguments.phase in ("decode", "serve") else ("batch_size", "seq_len")
    missing = [name for name in wanted if name not in given]
    values: dict[str, Any] = {**{name: usual[name] for name in missing}, **given}
    precision = arguments.precision or {}
    if precision and arguments.phase == "train":
        raise ConfigError("Training is estimated in bf16 alone.", next_step="Leave out precision.")
    if wrong := [
        f"{kind} {name}"
        for kind, name in precision.items()
        if (name not in _ACTIVATIONS if kind == "activations" else name == "fp16")
    ]:
        raise ConfigError(
            f"{wrong[0]} is not known.",
            next_step="Activations are bf16, fp16 or fp8; weights and cache are not fp16: bf16 takes as much.",
        )
    if cache := precision.get("cache"):
        values.setdefault("kv_bytes", Fraction(BYTES[cache]).limit_denominator(4096))
    config = arguments.config
    if weights := precision.get("weights"):
        config = stored_as(workspace, config, weights)
    said = ", ".join(f"{name} {values[name]:,}" for name in missing)
    return (
        CostArguments(
            target=arguments.target, phase="decode" if arguments.phase == "serve" else arguments.phase, config=config, values=values,
            view="eager", logits="all" if arguments.phase == "train" else "last",
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


def shown(device: Device, times: list[Estimate]) -> Hardware:
    """The device, with the peak of what most of the products are computed in."""
    spent_in: dict[str, float] = {}
    for one in times:
        if one.kernel.matmul_flops:
            spent_in[one.kernel.units] = (
                spent_in.get(one.kernel.units, 0.0) + one.kernel.matmul_flops * one.kernel.count
            )
    rate, units = device.peak(max(spent_in, key=lambda n: spent_in[n], default="bf16"))
    return Hardware(
        id=device.id, name=device.name, peak_flops=rate, peak_precision=units, bandwidth=device.bandwidth, capacity=device.capacity, l2_bytes=device.l2_bytes,
        ridge=round(rate / device.bandwidth, 1), ceilings={name: peak for peak, name in map(device.peak, spent_in)}, sources=tuple(f"{s.what}: {s.source}" for s in device.sources),
    )  # fmt: skip


def _told(device: Device, times: list[Estimate], view: str, fits: bool) -> tuple[str, ...]:
    said = []
    calibrated = calibration_for(device) is not None
    if not calibrated:
        said.append(
            f"{device.name} is uncalibrated: no measured kernels of it are at hand, and of its own only the bound is given."
        )
    elif unlike := [one.kernel for one in times if one.measured is None and one.limit is not None and view != "eager"]:
        named = ", ".join(dict.fromkeys(f"{kernel.operation} of {kernel.module}" for kernel in unlike))
        said.append(f"No measured kernels are like {named}: only the bound is given for the whole.")
    elif view == "eager":
        said.append("Eager kernels were not measured: only the bound is given.")
    if wide := dict.fromkeys(f"{one.kernel.operation} of {one.kernel.module}" for one in times if one.kernel.wide):
        said.append(
            f"The source multiplies in 32 bits in {', '.join(wide)}: eagerly that is bound by their peak, while measured runs of engines "
            "are nearer to such products in bf16, and so they are timed."
            if view != "eager"
            else f"In 32 bits, at their peak: {', '.join(wide)}."
        )
    outside: dict[str, set[str]] = {}
    for one in times:
        for name in one.measured.outside if one.measured and one.kernel.form else ():
            outside.setdefault(f"{one.kernel.operation} of {one.kernel.module}", set()).add(name)
    if outside:
        each = "; ".join(f"{which}, by its {' and '.join(sorted(sizes))}" for which, sizes in outside.items())
        said.append(f"Larger or smaller than any measured kernel: {each}.")
    if not fits:
        said.append("Weights, cache and activations do not fit one device: no throughput is given.")
    return tuple(said)


def _brief(result: RooflineResult) -> RooflineResult:
    return briefest(lambda rows: _with_slowest(result, rows), _SLOWEST)


def _with_slowest(result: RooflineResult, rows: int) -> RooflineResult:
    slowest = sorted(result.operators, key=lambda o: -(o.calibrated_seconds or o.bound_seconds))[:rows]
    said = f"The {len(slowest)} slowest kernels are listed, what launches take where it is most; times with four digits; sources of the device and classes of modules left out; totals are of all. The artifact is whole."
    return result.model_copy(
        update={
            "operators": tuple(_rounded(one, launch_seconds=launches(one) and one.launch_seconds, classes=()) for one in slowest),
            "hardware": result.hardware.model_copy(update={"sources": ()}), "totals": _rounded(result.totals),
            "spent": tuple(map(_rounded, result.spent)), "alternatives": tuple(map(_rounded, result.alternatives)), "shortened": said,
        }
    )  # fmt: skip


_Timed = TypeVar("_Timed", OperatorTime, TimeTotals, ClassTime, Alternative)


def _rounded(row: _Timed, **others: Any) -> _Timed:
    """With times of four digits, and with the others as given."""
    row = row.model_copy(update=others)
    return row.model_copy(
        update={
            n: float(f"{x:.4g}")
            for n, x in row
            if (n.endswith(("_seconds", "_per_second")) or n == "seconds") and isinstance(x, float)
        }
    )


ESTIMATE_ROOFLINE: Tool[RooflineArguments, RooflineResult] = Tool(
    name="estimate_roofline",
    title="Time and memory of a pass on named hardware",
    description=(
        "How long a pass takes on devices, kernel by kernel: an exact bound, and the time that measured kernels took; what "
        "limits it; memory against capacity; serving under load."
    ),
    arguments=RooflineArguments,
    result=RooflineResult,
    run=estimate_roofline,
    sources=IMPORTED,
    files=lambda workspace: workspace.device_files,
    brief=_brief,
    lane=lambda _: "trace",
    picture=lambda asked, result: picture(result, asked.plot, "png") if asked.plot else None,
    of_hosts=("plot",),
)
#: of a shell alone: hosts have no tables of measured kernels
NEAREST: Tool[RooflineArguments, RooflineResult] = replace(
    ESTIMATE_ROOFLINE, name="estimate_beside_measurements", run=with_nearest
)
