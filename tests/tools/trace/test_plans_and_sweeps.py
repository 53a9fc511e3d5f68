"""Serving, plans and sweeps on a small model: against single estimates, and by what a front and a load must keep."""

from __future__ import annotations

import pytest
from opscope_schemas.errors import ConfigError, ValuesError
from opscope_schemas.estimates import RooflineResult
from opscope_tools.estimate_roofline.placing import fewest_that_hold, of_more
from opscope_tools.estimate_roofline.planning import PlanArguments, plan
from opscope_tools.estimate_roofline.predicting import Replica, served
from opscope_tools.estimate_roofline.sweeping import SweepArguments, sweep
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline, model_of
from opscope_tools.estimate_roofline.traffic import Load
from opscope_tools.hardware.calibration import Calibration, calibration_of
from opscope_tools.hardware.devices import shipped
from opscope_tools.running.tool import ToolContext

SMALL = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1024, "vocab_size": 8192,
         "num_hidden_layers": 4}  # fmt: skip
EXPERTS = {**SMALL, "head_dim": 64, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}


@pytest.mark.parametrize(("target", "config", "parallel"), [("llama", SMALL, {"tp": 2}), ("qwen3_moe", EXPERTS, None)])
def test_a_point_of_a_sweep_is_the_estimate_of_that_point(
    context: ToolContext, target: str, config: dict[str, int], parallel: dict[str, int] | None
) -> None:
    given = {"target": target, "hardware": "h100_sxm", "config": config, "parallel": parallel}
    swept = sweep(SweepArguments.model_validate({**given, "batches": [1, 3, 64], "contexts": [100, 5000]}), context)
    assert [(p.batch, p.context) for p in swept.points] == [(b, c) for c in (100, 5000) for b in (1, 3, 64)]
    for point in swept.points:
        values = {"batch_size": point.batch, "cache_len": point.context}
        alone = estimate_roofline(RooflineArguments.model_validate({**given, "values": values}), context)
        assert point.calibrated_seconds == pytest.approx(alone.totals.calibrated_seconds)
        assert point.bound_seconds == pytest.approx(alone.totals.bound_seconds)
        assert (point.weights_bytes, point.cache_bytes, point.fits) == (
            alone.memory.weights_bytes, alone.memory.cache_bytes, alone.memory.fits,
        )  # fmt: skip


def test_a_plan_of_the_front_is_beaten_by_none_and_uses_all_devices(context: ToolContext) -> None:
    found = plan(
        PlanArguments(target="qwen3_moe", hardware="h100_sxm:4", config=EXPERTS, price=2.0, goal="cost"), context
    )
    assert found.front
    for one in found.front:
        assert one.tp * one.pp * one.dp * one.replicas == 4
        assert not any(
            other.tokens_per_second_per_user > one.tokens_per_second_per_user
            and other.tokens_per_second_per_device > one.tokens_per_second_per_device
            for other in found.front
        )
        spent = 4 * 2.0 / 3600 / (one.tokens_per_second_per_device * 4) * 1e6
        assert one.cost_per_million_tokens == pytest.approx(spent)
    assert found.best is not None
    assert found.best.cost_per_million_tokens == min(p.cost_per_million_tokens or 0 for p in found.front)
    with pytest.raises(ConfigError, match="needs a price"):
        plan(PlanArguments(target="llama", hardware="h100_sxm:4", config=SMALL, goal="cost"), context)


def test_the_best_plan_keeps_to_the_limit_of_a_token(context: ToolContext) -> None:
    free = plan(PlanArguments(target="llama", hardware="h100_sxm:2", config=SMALL), context)
    assert free.best is not None
    limit = sorted(p.tpot_seconds for p in free.front)[0] * 1.01
    bound = plan(PlanArguments(target="llama", hardware="h100_sxm:2", config=SMALL, tpot_limit=limit), context)
    assert bound.best is not None
    assert bound.best.tpot_seconds <= limit
    assert bound.best.tokens_per_second_per_device <= free.best.tokens_per_second_per_device


def test_a_load_is_answered_with_the_step_that_it_comes_to(context: ToolContext) -> None:
    asked = {"target": "llama", "hardware": "h100_sxm", "config": SMALL, "phase": "serve"}
    load = {"concurrency": 32, "input_len": 512, "output_len": 256}
    found = estimate_roofline(RooflineArguments.model_validate({**asked, "serving": load}), context)
    assert found.phase == "serve"
    served = found.serving
    assert served is not None
    assert served.basis == "calibrated"
    assert served.tpot_seconds is not None
    assert served.ttft_seconds == pytest.approx((served.ttft_service_seconds or 0) + (served.ttft_queue_seconds or 0))
    host = 6e-4  # of each step of this engine beside its kernels
    assert found.totals.calibrated_seconds == pytest.approx(
        served.step_seconds - host, rel=0.05
    )  # of a whole number of sequences
    assert served.tpot_seconds >= served.step_seconds
    with pytest.raises(ValuesError, match="input_len and output_len are missing"):
        estimate_roofline(RooflineArguments.model_validate(asked), context)


def test_no_throughput_is_given_for_weights_that_do_not_fit(context: ToolContext) -> None:
    load = {"concurrency": 8, "input_len": 512, "output_len": 256}
    asked = {"target": "meta-llama/Meta-Llama-3.1-70B", "hardware": "l4", "serving": load}
    found = estimate_roofline(RooflineArguments.model_validate(asked), context)
    assert found.serving is not None
    assert (found.serving.cache_limit, found.serving.tpot_seconds, found.serving.tokens_per_second) == (0, None, None)
    assert found.totals.tokens_per_second is None


def test_a_load_on_a_device_without_measurements_is_of_bounds_alone(context: ToolContext) -> None:
    load = {"concurrency": 8, "input_len": 512, "output_len": 64}
    asked = {"target": "llama", "hardware": "mi300x", "config": SMALL, "serving": load}
    found = estimate_roofline(RooflineArguments.model_validate(asked), context).serving
    assert found is not None
    assert found.basis == "bound"
    assert found.ttft_queue_seconds == pytest.approx(0, abs=1e-5)


def test_calibrated_times_and_bounds_are_not_mixed(context: ToolContext) -> None:
    """Only one of two passes has calibrated times: both are taken as bounds."""
    asked = RooflineArguments.model_validate({"target": "llama", "hardware": "h100_sxm", "config": SMALL})
    device, load = shipped()["h100_sxm"], Load(8, 512, 64)
    held = calibration_of("h100_sxm")
    assert held is not None
    kept = [c for c in held.model_dump()["classes"] if c["form"] != "prefill_attention"]
    without = Calibration.model_validate({**held.model_dump(), "classes": kept})
    partly = served(Replica(model_of(asked, context), device, without, "vllm"), load)
    never = served(Replica(model_of(asked, context), device, None, "vllm"), load)
    assert partly == never
    assert partly.basis == "bound"


def test_a_limit_that_no_plan_keeps_is_named_with_the_fastest(context: ToolContext) -> None:
    found = plan(PlanArguments(target="llama", hardware="h100_sxm:2", config=SMALL, tpot_limit=1e-7), context)
    assert found.best is None
    assert found.front
    (note,) = found.notes
    assert note.startswith("No plan keeps to 100 ns a token: the fastest takes ")


def test_no_range_of_times_begins_below_the_bound(context: ToolContext) -> None:
    """Beyond the L2 cache nothing is faster than memory, whatever the spread of what was measured."""
    for batch in (1, 64):
        given = {
            "target": "meta-llama/Llama-3.1-8B",
            "hardware": "l40s",
            "values": {"batch_size": batch, "cache_len": 3000},
        }
        for one in estimate_roofline(RooflineArguments.model_validate(given), context).operators:
            if one.low_seconds is not None and not one.fits_l2:
                assert one.low_seconds >= one.bound_seconds * (1 - 1e-9), one


def _passes(config: dict[str, int]) -> dict[str, dict[str, object]]:
    values = {"prefill": {"batch_size": 1, "seq_len": 1024}, "decode": {"batch_size": 1, "cache_len": 1024}}
    return {phase: {"target": "llama", "phase": phase, "config": config, "values": at} for phase, at in values.items()}


def _on(passes: dict[str, dict[str, object]], context: ToolContext, **plan: int) -> dict[str, RooflineResult]:
    asked = {"hardware": "h100_sxm", **({"parallel": plan} if plan else {})}
    return {
        phase: estimate_roofline(RooflineArguments.model_validate({**one, **asked}), context)
        for phase, one in passes.items()
    }


@pytest.mark.parametrize(
    ("config", "plan", "fewer"),
    [
        ({"num_hidden_layers": 64}, {"tp": 2, "pp": 1}, []),
        ({"num_hidden_layers": 160}, {"tp": 4, "pp": 1}, [{"tp": 2}]),
        # ten heads are no multiple of four
        ({"num_hidden_layers": 140, "num_attention_heads": 10, "num_key_value_heads": 10, "hidden_size": 8160}, {"tp": 2, "pp": 2}, [{"tp": 2}]),
        ({"num_hidden_layers": 560}, {"tp": 8, "pp": 2}, [{"tp": 8}]),
    ],
)  # fmt: skip
def test_the_fewest_devices_that_hold_the_passes(
    context: ToolContext, config: dict[str, int], plan: dict[str, int], fewer: list[dict[str, int]]
) -> None:
    wide = {
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 28672,
        **config,
    }
    passes = _passes(wide)
    alone = _on(passes, context)
    assert not all(one.memory.fits for one in alone.values())
    held = fewest_that_hold("h100_sxm", passes, alone, context)
    for phase, one in _on(passes, context, **plan).items():
        spread = held[phase].parallel
        assert spread is not None
        assert {"tp": spread.tp, "pp": spread.pp} == plan
        assert (held[phase].totals, held[phase].memory) == (one.totals, one.memory)
    assert all(one.memory.fits for one in held.values())
    for less in fewer:
        assert not all(one.memory.fits for one in _on(passes, context, **less).values())
    assert fewest_that_hold("h100_sxm:1", passes, alone, context) == {}  # who names a number means it


def test_what_one_device_holds_is_not_spread_and_what_none_holds_is_not_told(context: ToolContext) -> None:
    passes = _passes(SMALL)
    assert fewest_that_hold("h100_sxm", passes, _on(passes, context), context) == {}
    passes = _passes({**SMALL, "hidden_size": 65536, "intermediate_size": 262144, "num_hidden_layers": 512})
    assert fewest_that_hold("h100_sxm", passes, _on(passes, context), context) == {}


def test_devices_that_nothing_is_known_to_join_are_not_put_together(context: ToolContext) -> None:
    passes = _passes(SMALL)
    alone = _on(passes, context)
    full = {
        phase: one.model_copy(update={"memory": one.memory.model_copy(update={"fits": False})})
        for phase, one in alone.items()
    }
    assert {
        one.parallel.devices for one in fewest_that_hold("h100_sxm", passes, full, context).values() if one.parallel
    } == {2}
    assert fewest_that_hold("cpu", passes, full, context) == {}


def test_steps_of_more_sequences_are_told_up_to_what_fits(context: ToolContext) -> None:
    passes = _passes({**SMALL, "num_hidden_layers": 64})
    for cached, last in ((1024, 256), (65536, None)):
        asked = {**passes["decode"], "values": {"batch_size": 1, "cache_len": cached}}
        step = _on({"decode": asked}, context)["decode"]
        ran = of_more("h100_sxm", asked, step, context)
        batches = [int(one.values["batch_size"]) for one in ran]
        assert batches[-1] == (last or step.memory.largest_batch)
        assert batches == sorted(set(batches))
        assert all(one.memory.fits and one.values["cache_len"] == cached for one in ran)
        for batch, one in zip(batches, ran, strict=True):
            at = {"batch_size": batch, "cache_len": cached}
            alone = _on({"decode": {**asked, "values": at}}, context)["decode"]
            assert one.totals.calibrated_seconds == pytest.approx(alone.totals.calibrated_seconds)


def test_what_ranks_exchange_between_modules_runs_in_what_holds_both(context: ToolContext) -> None:
    """The sum of a split embedding is no layer's, though a layer's norm is the first to read it."""
    given = {"target": "llama", "hardware": "h100_sxm", "config": SMALL, "parallel": {"tp": 2}}
    found = estimate_roofline(RooflineArguments.model_validate(given), context)
    runs = dict.fromkeys((True, False), 0)
    for row in found.operators:
        if row.operation == "all_reduce":
            runs[any(name.endswith("LlamaDecoderLayer") for name in row.classes)] += row.count
    assert runs == {True: 2 * SMALL["num_hidden_layers"], False: 1}
