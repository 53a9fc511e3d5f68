"""The MCP tool `plan`: ways to serve a model on so many devices, timed under load, and those that no other beats.

Every way that the model allows is looked at: tensor, pipeline and expert parallelism within a replica, as many replicas as the devices
give. Each is timed in steady state at growing concurrency; a front of (tokens/s for a user, tokens/s of a device) is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from opscope_cache.trees import IMPORTED
from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import ConfigError
from opscope_schemas.estimates import Parallel, Plan, PlanResult, Served
from opscope_schemas.units import seconds
from pydantic import Field

from opscope_tools.costing.arguments import sources
from opscope_tools.estimate_roofline.parallel import ep_degrees, tp_degrees
from opscope_tools.estimate_roofline.predicting import Model, Replica, served
from opscope_tools.estimate_roofline.tool import Precision, RooflineArguments, devices_of, model_of, shown
from opscope_tools.estimate_roofline.traffic import Load
from opscope_tools.hardware.calibration import calibration_for
from opscope_tools.pictures import plans
from opscope_tools.running.config_files import Config
from opscope_tools.running.tool import Tool, ToolContext

#: requests at a time that are tried, of all devices
_CONCURRENCIES = (1, 4, 16, 64, 256, 1024)
_HOUR = 3600.0
_ASSUMED = (
    "Times are those of `estimate_roofline` with `serving`: steady state, kernels one after the other, experts loaded evenly.",
    "Replicas share the load evenly and nothing else; tensor and expert ranks lie within one domain of the fastest link where they fit it.",
)


class PlanArguments(ToolArguments):
    """Arguments of `plan`."""

    target: str = Field(description="A model.", min_length=1, max_length=1000)
    hardware: str = Field(description="`h100_sxm:8`.", min_length=1, max_length=200)
    goal: Literal["latency", "throughput", "cost"] = Field(default="throughput", description="Of `best`.")
    input_len: int = Field(default=1024, ge=1, le=10_000_000, description="Tokens.")
    output_len: int = Field(default=1024, ge=1, le=10_000_000, description="Tokens.")
    weights: list[Precision] | None = Field(default=None, description="To try.")
    tpot_limit: float | None = Field(default=None, gt=0, description="Seconds.")
    price: float | None = Field(default=None, gt=0, description="A device-hour.")
    config: Config = Field(default=None, description="As elsewhere.")
    backend: Literal["vllm", "trtllm", "sglang"] = Field(default="vllm", description="Whose kernels.")
    plot: bool = Field(default=False, description="Adds a picture.")


def plan(arguments: PlanArguments, context: ToolContext) -> PlanResult:
    """Raises what `estimate_roofline` raises, and `ConfigError` for a cost without a price."""
    if arguments.goal == "cost" and arguments.price is None:
        raise ConfigError("A cost needs a price.", next_step="Give `price`, what a device costs an hour.")
    device, spread = devices_of(arguments.hardware, None, context)
    count = spread.devices
    found: list[Plan] = []
    refused: list[str] = []
    model_class = ""
    tried: list[Precision | None] = [*arguments.weights] if arguments.weights else [None]
    for weights in tried:
        model = _model(arguments, weights, context)
        first = model.timing("decode", 2, arguments.input_len + arguments.output_len / 2)
        model_class = first.found.tree.trace.model_class
        here = first.at(batch_size=2)
        for parallel, replicas in _ways(
            count, tp_degrees(first.of, here), ep_degrees(first.of, here), here.get("num_layers", 1)
        ):
            context.checkpoint()
            context.progress(len(found), None, f"{parallel}, {replicas} replicas")
            replica = Replica(model, device, calibration_for(device), arguments.backend, parallel)
            if not replica.places(arguments.input_len + arguments.output_len):
                refused.append(f"{weights or 'as stored'}, {parallel}: weights do not fit")
                continue
            found.extend(_plans(replica, replicas, weights or "as stored", arguments))
    front = _front(found)
    within = [p for p in found if arguments.tpot_limit is None or p.tpot_seconds <= arguments.tpot_limit]
    return PlanResult(
        model_class=model_class, hardware=shown(device, []), devices=count, goal=arguments.goal, input_len=arguments.input_len,
        output_len=arguments.output_len, best=_best(within, arguments.goal), front=front, beaten=tuple((round(p.tokens_per_second_per_user, 2), round(p.tokens_per_second_per_device, 2)) for p in found if p not in front), considered=len(found), refused=tuple(refused),
        assumptions=_ASSUMED, sources=sources(context.workspace),
        notes=_without(found, within, arguments.tpot_limit),
    )  # fmt: skip


def _without(found: Sequence[Plan], within: Sequence[Plan], limit: float | None) -> tuple[str, ...]:
    """Why there is no best plan, where there is none."""
    if not found:
        return ("No plan fits: the weights are too large for these devices.",)
    if within or limit is None:
        return ()
    fastest = min(plan.tpot_seconds for plan in found)
    return (f"No plan keeps to {seconds(limit)} a token: the fastest takes {seconds(fastest)}.",)


def _model(arguments: PlanArguments, weights: Precision | None, context: ToolContext) -> Model:
    precision = {"weights": weights} if weights is not None else None
    given = {
        "target": arguments.target,
        "hardware": arguments.hardware,
        "config": arguments.config,
        "backend": arguments.backend,
    }
    return model_of(
        RooflineArguments.model_validate({**given, **({"precision": precision} if precision else {})}), context
    )


def _ways(count: int, heads: Sequence[int], experts: Sequence[int], layers: float) -> Iterator[tuple[Parallel, int]]:
    """Ways to use all devices, with the replicas that they make."""
    for tp in [t for t in heads or (1,) if count % t == 0]:
        for pp in [p for p in range(1, count // tp + 1) if (count // tp) % p == 0 and p <= layers]:
            replicas = count // (tp * pp)
            yield Parallel(tp=tp, pp=pp), replicas
            if experts and tp > 1 and tp in experts:
                yield Parallel(tp=tp, pp=pp, ep=tp), replicas
            if experts and replicas > 1 and tp * replicas in experts:
                yield Parallel(tp=tp, pp=pp, dp=replicas, ep=tp * replicas), 1


def _plans(replica: Replica, replicas: int, weights: str, arguments: PlanArguments) -> Iterator[Plan]:
    for concurrency in _CONCURRENCIES:
        each = max(1, concurrency // replicas)
        if each * replicas != concurrency and concurrency > 1:
            continue
        found = served(replica, Load(each, arguments.input_len, arguments.output_len))
        if found.cache_limit is not None:  # more would only wait: the last is as many as there are places
            full = found.cache_limit * replica.parallel.dp
            found = served(replica, Load(full, arguments.input_len, arguments.output_len))
            yield _plan(replica, replicas, weights, full * replicas, found, arguments)
            return
        yield _plan(replica, replicas, weights, concurrency, found, arguments)


def _plan(
    replica: Replica, replicas: int, weights: str, concurrency: int, found: Served, arguments: PlanArguments
) -> Plan:
    parallel, busy = replica.parallel, min(replicas, concurrency)
    rate = (found.tokens_per_second or 0.0) * busy
    devices = parallel.devices * replicas
    timing = replica.model.timing("decode", 2, arguments.input_len)
    return Plan(
        parallel=f"{parallel}{f', {replicas} replicas' if replicas > 1 else ''}", tp=parallel.tp, pp=parallel.pp, ep=parallel.ep,
        dp=parallel.dp, replicas=replicas, weights=weights, concurrency=concurrency, tpot_seconds=found.tpot_seconds or 0.0,
        ttft_seconds=found.ttft_seconds or 0.0, tokens_per_second_per_user=1 / (found.tpot_seconds or 1.0),
        tokens_per_second_per_device=rate / devices, basis=found.basis,
        cost_per_million_tokens=arguments.price * devices / _HOUR / rate * 1e6 if arguments.price and rate else None,
        weights_bytes=timing.memory.weights(timing.at(batch_size=1), parallel),
    )  # fmt: skip


def _front(found: Iterable[Plan]) -> tuple[Plan, ...]:
    """Those that no other beats in both rates, the fastest for a user first."""
    kept: list[Plan] = []
    for one in sorted(found, key=lambda p: (-p.tokens_per_second_per_user, -p.tokens_per_second_per_device)):
        if not kept or one.tokens_per_second_per_device > kept[-1].tokens_per_second_per_device:
            kept.append(one)
    return tuple(kept)


def _best(found: Sequence[Plan], goal: Literal["latency", "throughput", "cost"]) -> Plan | None:
    if goal == "latency":
        return min(found, key=lambda p: (p.tpot_seconds, p.ttft_seconds), default=None)
    if goal == "cost":
        return min(found, key=lambda p: p.cost_per_million_tokens or 0.0, default=None)
    return max(found, key=lambda p: p.tokens_per_second_per_device, default=None)


def _brief(result: PlanResult) -> PlanResult:
    return result.model_copy(
        update={
            "front": result.front[:12],
            "beaten": (),
            "shortened": "The first 12 plans of the front are listed, none that they beat. The artifact is whole.",
        }
    )


PLAN: Tool[PlanArguments, PlanResult] = Tool(
    name="plan",
    title="Ways to serve a model on several devices",
    description="Parallel plans: a Pareto front of tokens/s per user and per device.",
    arguments=PlanArguments,
    result=PlanResult,
    run=plan,
    sources=IMPORTED,
    files=lambda workspace: workspace.device_files,
    shorter=(_brief,),
    lane=lambda _: "trace",
    picture=lambda asked, result: plans(result, "png") if asked.plot else None,
    of_hosts=("plot",),
)
