"""Speculative decoding, activations of other precisions, and what fusing saves: against other estimates and counts by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opscope_schemas.errors import ConfigError
from opscope_schemas.estimates import RooflineResult, TimeTotals
from opscope_tools.estimate_roofline.speculating import Speculation, asked, speculative
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline
from opscope_tools.hardware.devices import shipped
from opscope_tools.running.tool import ToolContext
from sampled import sampled

SMALL = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1024, "vocab_size": 1000,
         "num_hidden_layers": 3}  # fmt: skip
LATENTS = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 64, "num_hidden_layers": 3, "n_routed_experts": 8,
           "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "vocab_size": 1000, "num_attention_heads": 4, "num_key_value_heads": 4,
           "kv_lora_rank": 96, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64}  # fmt: skip
POINT = {"batch_size": 4, "cache_len": 600}
DRAFTED = {"num_speculative_tokens": 3, "acceptance_rate": 0.8}


def estimate(context: ToolContext, target: str = "llama", **given: Any) -> RooflineResult:
    asked = {"hardware": "h100_sxm", "config": SMALL, "values": POINT, **given}
    return estimate_roofline(RooflineArguments.model_validate({"target": target, **asked}), context)


def totals(bound: float, calibrated: float | None) -> TimeTotals:
    return TimeTotals(flops=1, bytes=1, bound_seconds=bound, calibrated_seconds=calibrated, limited_by="memory")


@given(st.integers(1, 20), st.floats(0, 1))
def test_tokens_of_a_step_are_those_up_to_the_first_refusal_and_one_more(tokens: int, rate: float) -> None:
    """Summed over where the first refusal falls: after i acceptances the step gives i + 1 tokens."""
    by_refusal = sum((i + 1) * rate**i * (1 - rate) for i in range(tokens)) + (tokens + 1) * rate**tokens
    assert Speculation(tokens, rate).expected == pytest.approx(by_refusal)


@given(st.integers(1, 20), st.floats(0, 1), st.floats(0, 1), st.floats(1e-6, 1))
def test_speculation_is_as_fast_as_its_inventors_say(tokens: int, rate: float, cost: float, step: float) -> None:
    """Where verifying takes as long as a step (arXiv 2211.17192, theorem 3.8)."""
    found = speculative(
        Speculation(tokens, rate, "", cost), totals(step, None), totals(step, None), lambda: totals(1, 1)
    )
    expected = tokens + 1 if rate == 1 else (1 - rate ** (tokens + 1)) / (1 - rate)
    assert found.speedup == pytest.approx(expected / (tokens * cost + 1), rel=1e-6)
    assert found.basis == "bound"


def test_a_speculative_step_is_a_draft_and_a_pass_over_one_token_more(context: ToolContext) -> None:
    step, verified = estimate(context), estimate(context, values={**POINT, "seq_len": 4})
    found = estimate(context, speculative={**DRAFTED, "draft_cost": 0.2}).speculative
    assert found is not None
    once, again = step.totals.calibrated_seconds, verified.totals.calibrated_seconds
    assert once is not None
    assert again is not None
    assert found.verify_seconds == pytest.approx(again)
    assert found.draft_seconds == pytest.approx(3 * 0.2 * once)
    assert found.tokens_per_step == pytest.approx(1 + 0.8 + 0.8**2 + 0.8**3)
    assert found.basis == "calibrated"
    own = estimate(context, speculative={**DRAFTED, "draft_model": "gpt2"}).speculative
    draft = estimate(context, "gpt2", config=None).totals.calibrated_seconds
    assert own is not None
    assert own.draft_seconds == pytest.approx(3 * (draft or 0))


@pytest.mark.parametrize(("target", "config"), [("llama", SMALL), ("deepseek_v3", LATENTS)])
def test_new_tokens_read_the_cache_once_between_them(context: ToolContext, target: str, config: dict[str, Any]) -> None:
    """Attention of a few tokens takes little longer than of one, and no shorter than the cache takes to be read."""
    one, four = (
        next(o for o in estimate(context, target, config=config, values={**POINT, "seq_len": n}).operators if o.operation == "sdpa")
        for n in (1, 4)
    )  # fmt: skip
    assert one.calibrated_seconds is not None
    assert four.calibrated_seconds is not None
    assert 0.95 * one.calibrated_seconds <= four.calibrated_seconds <= 2 * one.calibrated_seconds
    assert one.bytes < four.bytes < 1.5 * one.bytes
    assert one.measured_as == four.measured_as


@pytest.mark.parametrize(
    "given",
    [
        {**DRAFTED, "draft_cost": 0.1, "speed": 2}, {**DRAFTED}, {**DRAFTED, "draft_cost": 0.1, "draft_model": "gpt2"},
        {**DRAFTED, "draft_cost": 2}, {"num_speculative_tokens": 0, "acceptance_rate": 0.5, "draft_cost": 0.1},
        {"num_speculative_tokens": 2, "acceptance_rate": 1.5, "draft_cost": 0.1}, {"acceptance_rate": 0.5, "draft_cost": 0.1},
    ],
)  # fmt: skip
def test_speculation_that_cannot_be_meant_gets_a_sentence(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        asked(given)


def test_activations_change_the_units_of_products_and_the_bytes_that_they_read(context: ToolContext) -> None:
    """Of weights in each precision: computed in the wider of the two, activations at their own width, by hand."""
    peaks, rows = shipped()["h100_sxm"].peak_flops, POINT["batch_size"]
    for weights, activations, units in (
        ("bf16", "fp16", "fp16"), ("bf16", "fp8", "bf16"), ("fp8", "bf16", "bf16"), ("fp8", "fp8", "fp8"), ("int4", "fp8", "fp8"),
    ):  # fmt: skip
        stored = {"weights": weights} if weights != "bf16" else {}
        plain = estimate(context, precision=stored or None)
        found = estimate(context, precision={**stored, "activations": activations})
        assert found.precision["activations"] == activations
        assert found.hardware.ceilings.get(units) == peaks[units]
        down, before = (next(o for o in r.operators if o.module.endswith("down_proj")) for r in (found, plain))
        assert before.bytes - down.bytes == (3 * rows * 1024 if activations == "fp8" else 0)
        assert down.flops == before.flops
        compute = down.flops / peaks[units]
        assert down.bound_seconds == pytest.approx(max(compute, down.bytes / shipped()["h100_sxm"].bandwidth), rel=1e-3)


def test_only_kernels_that_were_measured_with_such_activations_have_a_calibrated_time(context: ToolContext) -> None:
    for weights, activations, known in (
        ("fp8", "fp8", True), ("fp8", "bf16", False), ("bf16", "fp16", True), ("bf16", "fp8", False), ("bf16", "bf16", True),
    ):  # fmt: skip
        stored = {"weights": weights} if weights != "bf16" else {}
        found = estimate(context, precision={**stored, "activations": activations})
        assert (found.totals.calibrated_seconds is not None) == known, (weights, activations)
    with pytest.raises(ConfigError, match="activations int4 is not known"):
        estimate(context, precision={"activations": "int4"})


@pytest.mark.parametrize(("target", "config"), sampled([("deepseek_v3", LATENTS), ("llama", SMALL)]))
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_what_fusing_saves_is_the_eager_pass_less_the_served_one(
    context: ToolContext, target: str, config: dict[str, Any], phase: str
) -> None:
    values = {"batch_size": 2, "seq_len": 64} if phase == "prefill" else POINT
    given: dict[str, Any] = {"config": config, "values": values, "phase": phase}
    eager = estimate(context, target, **given, view="eager")
    served = estimate(context, target, **given)
    assert served.fusion == ()
    saved = sum(one.eager_bytes - one.fused_bytes for one in eager.fusion)
    assert 0 < saved <= eager.totals.bytes
    joined = (
        eager.totals.bytes - served.totals.bytes - saved
    )  # products that read their input once, and layers of experts
    assert -0.05 * served.totals.bytes <= joined <= 0.2 * served.totals.bytes
    norms = [one for one in eager.fusion if one.module.endswith("input_layernorm")]
    assert sum(one.fused_kernels for one in norms) == config["num_hidden_layers"]
    assert all(one.kernels > one.fused_kernels for one in norms)
    assert [one.saved_seconds for one in eager.fusion] == sorted((o.saved_seconds for o in eager.fusion), reverse=True)
