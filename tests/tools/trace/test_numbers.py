"""Answers in numbers: exact totals, parts that add up, sizes that were assumed, and short enough to read."""

from __future__ import annotations

import math

import pytest
from opscope_schemas.errors import UnknownNameError
from opscope_schemas.formula import evaluate
from opscope_tools.catalog import tool_named
from opscope_tools.costing.arguments import CostArguments, find
from opscope_tools.costing.numbers import at_usual_sizes, numbers
from opscope_tools.count_flops import count_flops
from opscope_tools.hardware.devices import shipped
from opscope_tools.running.runner import run_tool, shorten_to, to_json
from opscope_tools.running.tool import ToolContext
from sampled import sampled

SHORT = 6200
MODELS = [
    ("llama", "prefill"),
    ("Qwen/Qwen3-30B-A3B", "decode"),
    ("whisper", "prefill"),
    ("clip", "prefill"),
    ("mamba", "prefill"),
]
#: notes, plans and kernels of many kinds: what is not a ranking takes more than elsewhere
TALKATIVE = ("deepseek_v3", "decode")


@pytest.mark.parametrize(("target", "phase"), MODELS)
def test_parts_add_up_to_exact_totals(context: ToolContext, target: str, phase: str) -> None:
    asked = CostArguments.model_validate({"target": target, "phase": phase, "hardware": "h100_sxm"})
    found, assumed = at_usual_sizes(asked, find(asked, context), context)
    told = numbers(found, assumed, shipped()["h100_sxm"])
    assert told is not None
    # independent of the ranking: the document's formulas at the same sizes
    given = {n: x for n, x in told.at.items() if n in ("batch_size", "seq_len", "cache_len")}
    again = count_flops(asked.model_copy(update={"values": told.at, "detail": "formulas"}), context)
    assert again.numbers is None
    assert again.evaluated is not None
    assert (told.flops, told.matmul_flops, told.bytes_read, told.bytes_written, told.parameters) == (
        again.evaluated.flops, again.evaluated.matmul_flops, again.evaluated.memory_read, again.evaluated.memory_write,
        again.evaluated.parameters,
    )  # fmt: skip
    assert set(assumed) >= set(given)
    # nothing is in two modules, and nothing in none
    if len(told.modules) < 8:
        assert sum(row.flops for row in told.modules) == pytest.approx(told.flops, rel=1e-9)
        assert sum(row.bytes for row in told.modules) == pytest.approx(told.bytes_read + told.bytes_written, rel=1e-6)
    times = [row.bound_seconds or 0.0 for row in told.operators]
    assert times == sorted(times, reverse=True)
    assert told.bound_seconds is not None
    assert sum(times) <= told.bound_seconds * (1 + 1e-9)
    for row in told.operators:
        assert row.flops_share == pytest.approx(row.flops / told.flops, abs=1e-4)


def test_what_a_token_meets_is_what_its_experts_hold(context: ToolContext) -> None:
    asked = {"target": "Qwen/Qwen3-30B-A3B", "phase": "decode", "values": {"batch_size": 4, "cache_len": 512}}
    told = count_flops(CostArguments.model_validate(asked), context).numbers
    assert told is not None
    # 48 layers, 8 of 128 experts of three matrices of 2,048 x 768
    assert told.active_parameters == told.parameters - 48 * (128 - 8) * 3 * 2048 * 768
    assert told.flops_per_token == round(told.flops / 4)
    assert told.cache_bytes_per_token == 48 * 2 * 4 * 128 * 2
    assert told.assumed == ()


def test_one_sequence_is_assumed_and_said(context: ToolContext) -> None:
    told = count_flops(CostArguments(target="LlamaMLP", values={"seq_len": 7}), context).numbers
    assert told is not None
    assert told.assumed == ("batch_size",)
    assert told.at == {"batch_size": 1, "seq_len": 7}
    assert told.matmul_flops == 3 * 2 * 7 * 4096 * 11008
    assert "1.89 GFLOP" in told.said


def test_a_device_that_is_not_known_is_refused(context: ToolContext) -> None:
    with pytest.raises(UnknownNameError, match="h100"):
        count_flops(CostArguments(target="LlamaMLP", hardware="h100sxm9"), context)


@pytest.mark.parametrize("tool", ["count_flops", "expand_refs", "trace_dataflow", "estimate_roofline"])
@pytest.mark.parametrize(("target", "phase"), [*sampled(MODELS), TALKATIVE])
def test_an_agent_is_told_in_few_characters_and_what_was_left_out(
    context: ToolContext, tool: str, target: str, phase: str
) -> None:
    asked = {"target": target, "phase": phase, **({"hardware": "h100_sxm"} if tool == "estimate_roofline" else {})}
    whole = run_tool(tool_named(tool), asked, context)
    told = shorten_to(tool_named(tool), whole)
    assert len(to_json(told)) <= SHORT
    assert told.shortened
    assert told.artifact


def test_formulas_are_given_where_they_are_asked_for(context: ToolContext) -> None:
    asked = {"target": "LlamaMLP", "detail": "formulas"}
    told = shorten_to(tool_named("count_flops"), run_tool(tool_named("count_flops"), asked, context))
    assert not told.shortened
    assert math.prod((told.document.kernels != (), told.numbers is None))


def test_biases_of_experts_that_a_token_does_not_meet_are_not_active(context: ToolContext) -> None:
    narrow = {
        "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 48, "num_local_experts": 8, "num_experts_per_tok": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96,
    }  # fmt: skip
    for values in ({"batch_size": 2, "seq_len": 5}, {"batch_size": 1, "seq_len": 1}):
        asked = CostArguments.model_validate({"target": "gpt_oss", "config": narrow, "values": values})
        told = count_flops(asked, context).numbers
        assert told is not None
        expert = 64 * 2 * 48 + 2 * 48 + 48 * 64 + 64  # two products, each with a bias
        assert told.active_parameters == told.parameters - 2 * (8 - 2) * expert


def test_a_layer_norm_keeps_mean_and_scale_of_each_row_in_four_bytes(context: ToolContext) -> None:
    """As a GPU does (aten/src/ATen/native/cuda/layer_norm_kernel.cu: the accumulation type), whatever the activations are."""
    for width in (2, 4):
        at = {"batch_size": 2, "seq_len": 3, "a_bytes": width}
        document = count_flops(CostArguments.model_validate({"target": "BertOutput", "values": at}), context).document
        (norm,) = [kernel for kernel in document.kernels if kernel.class_name.endswith("LayerNorm")]
        assert evaluate(norm.memory_access.write, {**at, "hidden_size": 768}) == 2 * 3 * (768 * width + 8)
