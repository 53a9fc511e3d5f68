"""What kind of measured kernel each part of a pass is like, its sizes against the configuration's own: attention in a window and in both
directions, linear attention, and products whose bias comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from opscope_schemas.estimates import Parallel
from opscope_tools.estimate_roofline.alternatives import changes
from opscope_tools.estimate_roofline.kernels import Kernel
from opscope_tools.estimate_roofline.times import estimates
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline, model_of, timing_of
from opscope_tools.hardware.calibration import calibration_of
from opscope_tools.hardware.devices import shipped
from opscope_tools.hardware.forms import FORMS
from opscope_tools.running.tool import ToolContext
from sampled import sampled

H, N, K, D, WINDOW, LAYERS = 64, 8, 2, 16, 24, 4
SINKS = {"hidden_size": H, "intermediate_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": N, "num_key_value_heads": K,
         "head_dim": D, "vocab_size": 99, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": WINDOW}  # fmt: skip
KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, TAPS = 4, 8, 16, 24, 4
DELTA = {"hidden_size": H, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_hidden_layers": LAYERS,
         "num_attention_heads": N, "num_key_value_heads": K, "head_dim": D, "vocab_size": 99, "num_experts": 8, "num_experts_per_tok": 2,
         "linear_num_key_heads": KEY_HEADS, "linear_num_value_heads": VALUE_HEADS, "linear_key_head_dim": KEY_DIM,
         "linear_value_head_dim": VALUE_DIM, "linear_conv_kernel_dim": TAPS}  # fmt: skip


def kernels(
    context: ToolContext, model: str, phase: Literal["prefill", "decode"], batch: int, length: int, tp: int = 1
) -> list[Kernel]:
    config: dict[str, Any] = SINKS if model == "gpt_oss" else DELTA
    asked = RooflineArguments.model_validate({"target": model, "hardware": "h100_sxm", "config": config})
    timing = model_of(asked, context).timing(phase, batch, length)
    sizes = {"batch_size": batch, "seq_len" if phase == "prefill" else "cache_len": length}
    return timing.of.kernels(timing.at(**sizes), Parallel(tp=tp))


def of_form(found: list[Kernel], name: str) -> list[Kernel]:
    return [one for one in found if one.form is not None and one.form.name == name]


@pytest.mark.parametrize("length", [WINDOW + 17, 400])
def test_a_layer_that_looks_back_so_far_is_attention_in_a_window(context: ToolContext, length: int) -> None:
    batch = 3
    for phase, pairs in (("decode", batch * WINDOW), ("prefill", None)):
        found = kernels(context, "gpt_oss", phase, batch, length)  # type: ignore[arg-type]  # one of the two
        (inside,), (whole,) = (of_form(found, f"{kind}{phase}_attention") for kind in ("window_", ""))
        assert inside.count == whole.count == LAYERS // 2
        assert inside.sizes is not None
        assert (inside.sizes["window"], inside.sizes["kv"], inside.sizes["h"], inside.sizes["d"]) == (WINDOW, K, N, D)
        assert inside.sizes["context"] == length + (phase == "decode")
        seen = pairs or batch * sum(min(at + 1, WINDOW) for at in range(length))
        assert inside.matmul_flops == pytest.approx(4 * N * D * seen)


def test_new_tokens_in_a_window_count_each_and_a_narrower_cache_is_read_half(context: ToolContext) -> None:
    asked = RooflineArguments.model_validate({"target": "gpt_oss", "hardware": "h100_sxm", "config": SINKS})

    def inside(new: int) -> Kernel:
        timing = timing_of(asked, {"batch_size": 3, "seq_len": new, "cache_len": 400}, context)
        (found,) = of_form(timing.of.kernels(timing.at()), "window_decode_attention")
        return found

    assert inside(4).matmul_flops == pytest.approx(4 * inside(1).matmul_flops)
    named = [found for name, found in changes([inside(1)], 99, cached=True) if name == "cache fp8"]
    assert not [name for name, _ in changes([inside(1)], 99, cached=False) if name.startswith("cache")]
    assert inside(1).moved - named[0][0].moved == pytest.approx(3 * WINDOW * 2 * K * D)


@pytest.mark.parametrize("model", ["mistral", "starcoder2"])
def test_a_window_of_the_configuration_is_one(context: ToolContext, model: str) -> None:
    """Query heads are folded into new tokens where the cache is as long as the window: each counts once."""
    config = {n: x for n, x in SINKS.items() if "experts" not in n}
    asked = RooflineArguments.model_validate({"target": model, "hardware": "h100_sxm", "config": config})
    for phase, length, pairs in (
        ("decode", 3 * WINDOW, WINDOW),
        ("prefill", 2 * WINDOW, WINDOW * (WINDOW + 1) // 2 + WINDOW**2),
    ):
        timing = model_of(asked, context).timing(phase, 3, length)  # type: ignore[arg-type]  # one of the two
        (found,) = of_form(timing.of.kernels(timing.at()), f"window_{phase}_attention")
        assert found.sizes is not None
        assert (found.count, found.sizes["h"], found.sizes["kv"]) == (LAYERS, N, K)
        assert found.matmul_flops == pytest.approx(4 * 3 * N * D * pairs)


def test_where_the_window_holds_all_there_is_there_is_none(context: ToolContext) -> None:
    found = kernels(context, "gpt_oss", "decode", 3, WINDOW - 5)
    assert not of_form(found, "window_decode_attention")
    assert sum(one.count for one in of_form(found, "decode_attention")) == LAYERS


def test_a_bias_that_comes_first_is_not_what_a_product_reads(context: ToolContext) -> None:
    """Queries are wider than the layer, so the bias is wider than the activations."""
    tokens = 5
    (joined,) = {
        tuple(one.sizes[n] for n in "mnk")
        for one in kernels(context, "gpt_oss", "decode", tokens, 40)
        if one.sizes is not None and "q_proj" in one.operation
    }
    assert joined == (tokens, (N + 2 * K) * D, H)


@pytest.mark.parametrize("tp", [1, 2])
def test_linear_attention_is_the_fused_kernels_that_engines_have(context: ToolContext, tp: int) -> None:
    batch, new = 3, 150
    states = {
        "k_heads": KEY_HEADS / tp, "v_heads": VALUE_HEADS / tp, "k_dim": KEY_DIM, "v_dim": VALUE_DIM, "b": batch,
    }  # fmt: skip
    channels = (2 * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM) / tp
    for phase, rule, short, tokens in (
        ("decode", "gated_delta_decode", "short_convolution_step", 1),
        ("prefill", "gated_delta_prefill", "short_convolution", new),
    ):
        found = kernels(context, "qwen3_next", phase, batch, new, tp)  # type: ignore[arg-type]  # one of the two
        (delta,), (convolution,) = of_form(found, rule), of_form(found, short)
        assert delta.count == convolution.count == LAYERS - LAYERS // 4
        assert delta.sizes == {**states, "new": tokens}
        assert convolution.sizes == {"b": batch, "new": tokens, "channels": channels, "width": TAPS}
        state = 2 * 4 * batch * VALUE_HEADS / tp * KEY_DIM * VALUE_DIM  # float32, read and written
        assert delta.moved == state + 4 * batch * tokens * (KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM) / tp
        if phase == "decode":  # the kernel leaves the state in the cache
            assert not [one for one in found if "copy_" in one.operation and one.moved > state / 2]


def test_all_of_such_a_model_is_calibrated(context: ToolContext) -> None:
    for model, config in (("gpt_oss", SINKS), ("qwen3_next", DELTA)):
        load = {"concurrency": 4, "input_len": 100, "output_len": 60}
        asked = {"target": model, "hardware": "h100_sxm", "phase": "serve", "serving": load, "config": config}
        answer = estimate_roofline(RooflineArguments.model_validate(asked), context)
        assert answer.serving is not None
        assert answer.serving.basis == "calibrated"
        assert answer.totals.calibrated_seconds is not None


def test_a_gate_that_is_read_once_what_it_gates_is_there_is_no_kernel_of_its_own(context: ToolContext) -> None:
    """It is made before what it gates, and read in one kernel: activations go to memory neither as they are nor in 32 bits."""
    batch, new = 3, 40
    asked = RooflineArguments.model_validate({"target": "qwen3_next", "hardware": "h100_sxm", "config": DELTA})
    timing = model_of(asked, context).timing("prefill", batch, new)
    found = timing.of.singles(timing.at(batch_size=batch, seq_len=new))
    (norm,) = [one for one in found if one.module.endswith("linear_attn.norm")]
    assert norm.moved == 2 * (3 * batch * new * VALUE_HEADS * VALUE_DIM + VALUE_DIM)
    (gate,) = [one for one in found if one.module.endswith("self_attn") and one.operation == "fused activation"]
    assert gate.moved == 2 * 3 * batch * new * N * D
    (shared,) = {one.moved for one in found if one.module.endswith("mlp") and one.operation == "fused activation"}
    assert shared == 2 * batch * new * (4 * H + 1)


SMALL = {"hidden_size": H, "intermediate_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": N, "num_key_value_heads": K,
         "vocab_size": 99, "num_experts_per_tok": 2}  # fmt: skip
ROUTED = {"qwen3_moe": {**SMALL, "moe_intermediate_size": 32, "num_experts": 8}, "mixtral": {**SMALL, "num_local_experts": 8},
          "olmoe": {**SMALL, "num_experts": 8}, "gpt_oss": SINKS, "qwen3_next": DELTA}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "phase"), [*((model, "prefill") for model in ROUTED), ("mixtral", "decode"), ("qwen3_next", "decode")]
)
def test_no_kernel_holds_a_part_of_a_layer_of_experts_that_is_measured_whole(
    model: str, phase: Literal["prefill", "decode"], context: ToolContext
) -> None:
    """Nor is anything that was measured with it beside it: the sum over a token's experts makes no kernel with the residual add."""
    asked = RooflineArguments.model_validate({"target": model, "hardware": "h100_sxm", "config": ROUTED[model]})
    of = model_of(asked, context).timing(phase, 3, 40).of
    calls = {op.order: op.call for op in of.found.tree.trace.ops}
    assert of.layers
    for below in of.layers.values():
        kinds = {frozenset(calls[order] in below for order in part.orders) for part in of.parts}
        assert kinds == {frozenset([True]), frozenset([False])}


@pytest.mark.parametrize(("target", "towers"), sampled([("clip", {"vision_model": "encoder", "text_model": "prefill"}), ("t5", {"encoder": "encoder", "decoder": "prefill"}), ("vit", {"layers": "encoder"})], 2))  # fmt: skip
@pytest.mark.parametrize("hardware", ["h100_sxm", "a100_sxm"])
def test_attention_in_both_directions_is_timed_as_such(
    target: str, towers: dict[str, str], hardware: str, context: ToolContext
) -> None:
    """On a device that has no table of it, as a causal kernel with as many pairs."""
    values: dict[str, Any] = {"batch_size": 2, **({"encoder_seq_len": 64, "seq_len": 32} if target == "t5" else {})}
    asked = RooflineArguments(target=target, hardware=hardware, phase="prefill", values=values)
    found = estimate_roofline(asked, context)
    told = {
        row.module.partition(".")[0]: row
        for row in found.operators
        if row.operation == "sdpa" and "Enc" not in row.module
    }
    assert told.keys() == towers.keys()
    for tower, row in told.items():
        kind = towers[tower] if hardware == "h100_sxm" else "prefill"
        assert row.measured_as.startswith(f"{kind} attention"), tower
        assert row.calibrated_seconds is not None
    assert found.totals.calibrated_seconds is not None


@pytest.mark.parametrize("target", sampled(["bloom", "mpt", "xglm", "codegen"], 4))
def test_tokens_that_a_mask_hides_from_one_another_are_timed_as_causal(target: str, context: ToolContext) -> None:
    """Of models that generate, whose attention nothing but a tensor tells what it hides."""
    asked = RooflineArguments(target=target, hardware="h100_sxm", phase="prefill", values={"seq_len": 64})
    kinds = {
        row.measured_as.partition(",")[0]
        for row in estimate_roofline(asked, context).operators
        if row.kind == "attention"
    }
    assert kinds == {"prefill attention"}


def test_a_causal_kernel_that_stands_for_one_in_both_directions_has_as_many_pairs() -> None:
    held, device = calibration_of("a100_sxm"), shipped()["a100_sxm"]
    sizes = {"b": 4.0, "h": 16.0, "kv": 16.0, "d": 64.0, "new": 1024.0, "context": 1024.0, "cache_bytes": 2.0}
    kernel = Kernel(
        "sdpa", "", "", 1, 1, 0.0, 4 * 4 * 16 * 64 * 1024.0**2, 0.0, form=FORMS["encoder_attention"], sizes=sizes
    )
    (one,) = estimates([kernel], device, held, "vllm")
    pairs = 1024.0 * 2**0.5
    causal = {**sizes, "new": pairs, "context": pairs}
    assert FORMS["prefill_attention"].work(causal)[0] == pytest.approx(kernel.matmul_flops, rel=1e-3)
    (other,) = estimates([replace(kernel, form=FORMS["prefill_attention"], sizes=causal)], device, held, "vllm")
    assert one.measured is not None
    assert other.measured is not None
    assert one.measured.seconds == pytest.approx(other.measured.seconds)
