"""`{kv_bytes}`: what lies in the KV cache is read and written with bytes per element of its own."""

from __future__ import annotations

from typing import Any

import pytest
from opscope_schemas.analysis import ModuleAnalysisResult
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace_dataflow import DataflowArguments, trace_dataflow
from sampled import sampled

B, CACHE, HEADS, KV, HEAD, LAYERS = 3, 17, 4, 2, 16, 3
SMALL = {"hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
         "num_key_value_heads": KV, "vocab_size": 99, "head_dim": HEAD}  # fmt: skip
#: keys and values of one token of every sequence, of all layers
TOKEN = 2 * B * KV * HEAD * LAYERS


def counted(
    context: ToolContext, phase: str, config: dict[str, Any] | None = None, **values: Any
) -> ModuleAnalysisResult:
    point = {"batch_size": B, "seq_len": 1, "cache_len": CACHE, **values}
    given = {"target": "llama", "phase": phase, "config": {**SMALL, **(config or {})}, "values": point}
    return count_flops(CostArguments.model_validate(given), context)


def moved(context: ToolContext, phase: str, **values: Any) -> tuple[int, int, int, int]:
    found = counted(context, phase, **values).evaluated
    assert found is not None
    return found.memory_read, found.memory_write, found.floor_read, found.floor_write


def test_a_decode_step_reads_the_old_cache_and_the_new_one_with_the_caches_bytes(context: ToolContext) -> None:
    two, one = moved(context, "decode"), moved(context, "decode", kv_bytes=1)
    # eager: the old cache is read to append to it, the new one is written, and read by attention
    assert two[0] - one[0] == TOKEN * (CACHE + CACHE + 1)
    assert two[1] - one[1] == TOKEN * (CACHE + 1)
    assert (two[2] - one[2], two[3] - one[3]) == (TOKEN * CACHE, TOKEN)


def test_a_prefill_writes_and_reads_its_new_keys_and_values_with_the_caches_bytes(context: ToolContext) -> None:
    two, one = moved(context, "prefill", seq_len=23), moved(context, "prefill", seq_len=23, kv_bytes=1)
    assert [a - b for a, b in zip(two, one, strict=True)] == [TOKEN * 23, TOKEN * 23, 0, TOKEN * 23]


def test_the_caches_growth_is_in_the_caches_bytes(context: ToolContext) -> None:
    values = {"batch_size": B, "seq_len": 1, "cache_len": CACHE, "kv_bytes": 1}
    given = {"target": "llama", "phase": "decode", "config": SMALL, "values": values}
    answer = trace_dataflow(DataflowArguments.model_validate(given), context)
    assert answer.document.cache is not None
    assert "{kv_bytes}" in answer.document.cache.per_token
    assert "a_bytes" not in answer.document.cache.after
    assert answer.evaluated is not None
    assert (answer.evaluated.cache_before, answer.evaluated.cache_per_token) == (TOKEN * CACHE, TOKEN)


@pytest.mark.parametrize(("wanted", "element"), [({"num_bits": 8, "type": "float"}, 1), (None, 2)])
def test_a_checkpoint_that_wants_a_quantised_cache_has_it_by_default(
    wanted: Any, element: int, context: ToolContext
) -> None:
    scheme = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "kv_cache_scheme": wanted,
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}  # fmt: skip
    answer = counted(context, "decode", {"quantization_config": scheme})
    (variable,) = (v for v in answer.document.variables if v.name == "kv_bytes")
    assert variable.default == element
    assert any("counts as kv_bytes each" in said for said in answer.document.assumptions) == (wanted is not None)
    given = counted(context, "decode", {"quantization_config": scheme}, kv_bytes=element)
    assert given.evaluated == answer.evaluated


def test_cross_attention_reads_its_cache_and_a_mamba_state_is_no_keys_and_values(context: ToolContext) -> None:
    values = {"batch_size": 1, "seq_len": 1, "cache_len": 9}
    whisper = {"target": "WhisperForConditionalGeneration", "phase": "decode", "values": values}
    assert (
        "{kv_bytes}" in count_flops(CostArguments.model_validate(whisper), context).document.totals.memory_access.read
    )
    mamba = {"target": "mamba", "phase": "decode", "values": values}
    assert (
        "{kv_bytes}" not in count_flops(CostArguments.model_validate(mamba), context).document.totals.memory_access.read
    )


def test_the_floor_of_a_decode_step_holds_the_cache_that_cross_attention_reads(context: ToolContext) -> None:
    config = {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_decoder_layers": LAYERS, "vocab_size": 99}
    read = []
    for encoded in (11, 12):
        point = {"batch_size": B, "seq_len": 1, "cache_len": CACHE, "encoder_seq_len": encoded, "a_bytes": 0}
        given = {"target": "t5", "phase": "decode", "config": config, "values": point}
        found = count_flops(CostArguments.model_validate(given), context).evaluated
        assert found is not None
        read.append(found.floor_read)
    assert read[1] - read[0] == 2 * B * 4 * 8 * LAYERS * 2  # keys and values of one position


@pytest.mark.parametrize("target", sampled(["phi3", "olmoe"]))
def test_the_cache_is_of_heads_of_keys_where_all_heads_have_keys_of_their_own(
    target: str, context: ToolContext
) -> None:
    """A step that asks whether there are as many heads of keys as of queries puts one for the other in every formula."""
    given = {"target": target, "phase": "decode", "values": {"batch_size": 1, "seq_len": 1, "cache_len": CACHE}}
    cache = trace_dataflow(DataflowArguments.model_validate(given), context).document.cache
    assert cache is not None
    assert (
        cache.after == "2 * {num_layers} * {batch_size} * {num_kv_heads} * {head_dim} * ({cache_len} + 1) * {kv_bytes}"
    )


SSM = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4}
OF_KINDS: dict[str, dict[str, Any]] = {
    "llama": SMALL,
    "falcon_mamba": SSM,
    "mamba2": {**SSM, "num_heads": 4, "head_dim": 16, "n_groups": 1},
    "qwen3_next": {**SMALL, "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                   "linear_key_head_dim": 8, "linear_value_head_dim": 8, "shared_expert_intermediate_size": 16},
    "t5": {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_layers": 2, "num_decoder_layers": LAYERS, "vocab_size": 99},
    "bart": {"d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 99,
             "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
}  # fmt: skip


@pytest.mark.parametrize("target", sampled(OF_KINDS, 2))
def test_the_floor_of_a_decode_step_reads_each_cache_once_whatever_it_holds_and_nothing_that_is_handed_on(
    target: str, context: ToolContext
) -> None:
    def at(batch: int) -> tuple[int, int]:
        values = {"batch_size": batch, "seq_len": 1, "cache_len": CACHE, "w_bytes": 0}
        values |= {"encoder_seq_len": 11} if target in ("t5", "bart") else {}
        given = {"target": target, "phase": "decode", "config": OF_KINDS[target], "values": values}
        floor = count_flops(CostArguments.model_validate(given), context).evaluated
        held = trace_dataflow(DataflowArguments.model_validate(given), context).evaluated
        assert floor is not None
        assert held is not None
        assert held.cache_before is not None
        return floor.floor_read, held.cache_before

    (read, held), (more_read, more_held) = at(2), at(5)
    ids = 8 * 3
    assert more_read - read == more_held - held + ids


@pytest.mark.parametrize("target", sampled(["falcon_mamba", "mamba2"]))
def test_the_floor_writes_the_states_that_a_pass_leaves(target: str, context: ToolContext) -> None:
    for phase, tokens in (("prefill", 13), ("decode", 1)):
        values = {"batch_size": B, "seq_len": tokens, **({"cache_len": CACHE} if phase == "decode" else {})}
        given = {"target": target, "phase": phase, "config": OF_KINDS[target], "values": values}
        floor = count_flops(CostArguments.model_validate(given), context).evaluated
        held = trace_dataflow(DataflowArguments.model_validate(given), context).evaluated
        assert floor is not None
        assert held is not None
        assert held.cache_after is not None
        logits = B * tokens * 99
        assert floor.floor_write - held.cache_after in (2 * logits, 4 * logits)
