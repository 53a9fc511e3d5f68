"""Quantised checkpoints: bytes per class of weights with every scale, against counts by hand and published sizes."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from opscope_schemas.analysis import ModuleAnalysisResult
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.quantisation import scheme_of
from opscope_tools.trace_dataflow import DataflowArguments, trace_dataflow
from sampled import sampled

#: sizes at which blocks of 128 and groups of 32 are ragged
HIDDEN, INNER, HEADS, KV, HEAD, VOCAB, LAYERS = 200, 328, 4, 2, 40, 99, 3
LLAMA = {
    "hidden_size": HIDDEN, "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": KV,
    "head_dim": HEAD, "vocab_size": VOCAB, "num_hidden_layers": LAYERS,
}  # fmt: skip
#: outputs and inputs of a layer's linear weights
LINEARS = [
    (HEADS * HEAD, HIDDEN), (KV * HEAD, HIDDEN), (KV * HEAD, HIDDEN), (HIDDEN, HEADS * HEAD), (INNER, HIDDEN), (INNER, HIDDEN),
    (HIDDEN, INNER),
]  # fmt: skip
PLAIN = 2 * (2 * VOCAB * HIDDEN + HIDDEN + LAYERS * 2 * HIDDEN)
ALL = sum(n * k for n, k in LINEARS)


def blocks(n: int, k: int, rows: int, columns: int) -> int:
    return ceil(n / rows) * ceil(k / columns)


#: quantization_config, and by hand the bytes of one layer's linear weights
CASES: dict[str, tuple[dict[str, Any], Fraction]] = {
    "fp8 in blocks": (
        {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
        Fraction(ALL + sum(4 * blocks(n, k, 128, 128) for n, k in LINEARS)),
    ),
    "fp8 per tensor": (
        {"quant_method": "fp8", "activation_scheme": "static"}, Fraction(ALL + 7 * (4 + 4)),
    ),
    "fp8 per output": ({"quant_method": "fbgemm_fp8"}, Fraction(ALL + sum(4 * n for n, _ in LINEARS))),
    "gptq": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
        Fraction(ALL, 2) + sum(Fraction(5, 2) * blocks(n, k, 1, 128) for n, k in LINEARS),
    ),
    "gptq in its order": (
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True},
        Fraction(ALL, 2) + sum(Fraction(5, 2) * blocks(n, k, 1, 32) + 4 * k for n, k in LINEARS),
    ),
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
        Fraction(ALL, 2) + sum(Fraction(5, 2) * blocks(n, k, 1, 128) for n, k in LINEARS),
    ),
    "int4 in groups": (
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group", "symmetric": True}}}},
        Fraction(ALL, 2) + sum(2 * blocks(n, k, 1, 32) + 16 for n, k in LINEARS),
    ),
    "int8 per output": (
        {"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}}}},
        Fraction(ALL + sum(2 * n for n, _ in LINEARS)),
    ),
    "nvfp4": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]},
        Fraction(ALL, 2) + sum(blocks(n, k, 1, 16) + 8 for n, k in LINEARS),
    ),
    "bitsandbytes int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, Fraction(ALL + sum(4 * n for n, _ in LINEARS))),
    "bitsandbytes nf4": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        Fraction(ALL, 2) + sum(4 * ceil(n * k / 64) for n, k in LINEARS),
    ),
    "bitsandbytes nf4 twice": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
        Fraction(ALL, 2) + sum(ceil(n * k / 64) + 4 * ceil(ceil(n * k / 64) / 256) for n, k in LINEARS),
    ),
}  # fmt: skip


def counted(
    context: ToolContext, target: str, config: dict[str, Any] | None = None, **values: Any
) -> ModuleAnalysisResult:
    given = {"batch_size": 2, "seq_len": 8, **values}
    return count_flops(CostArguments.model_validate({"target": target, "config": config, "values": given}), context)


@pytest.mark.parametrize("name", sampled(CASES))
def test_weights_take_what_the_format_stores(name: str, context: ToolContext) -> None:
    quantised, layer = CASES[name]
    found = counted(context, "llama", {**LLAMA, "quantization_config": quantised}).evaluated
    assert found is not None
    assert found.weights == ceil(PLAIN + LAYERS * layer)


def test_what_runs_is_the_same_but_for_the_bytes_of_weights(context: ToolContext) -> None:
    quantised, layer = CASES["fp8 in blocks"]
    plain = counted(context, "llama", LLAMA).evaluated
    found = counted(context, "llama", {**LLAMA, "quantization_config": quantised}).evaluated
    assert plain is not None
    assert found is not None
    assert found.flops == plain.flops
    assert found.memory_write == plain.memory_write
    saved = LAYERS * (2 * ALL - int(layer))
    assert plain.memory_read - found.memory_read == saved
    assert plain.floor_read - found.floor_read == saved
    assert plain.weights - found.weights == saved


def test_what_the_config_leaves_alone_is_left_alone(context: ToolContext) -> None:
    kept = ["lm_head", "model.layers.1.mlp", "re:.*self_attn.q_proj$", "k_proj"]
    quantised = {**CASES["fp8 in blocks"][0], "modules_to_not_convert": kept}
    found = counted(context, "llama", {**LLAMA, "quantization_config": quantised}).evaluated
    every = sum(n * k + 4 * blocks(n, k, 128, 128) for n, k in LINEARS[2:])
    mlp = sum(2 * n * k - n * k - 4 * blocks(n, k, 128, 128) for n, k in LINEARS[4:])
    assert found is not None
    assert found.weights == PLAIN + LAYERS * (every + 2 * sum(n * k for n, k in LINEARS[:2])) + mlp


def test_the_bytes_are_variables_that_say_where_they_stand_and_that_values_set(context: ToolContext) -> None:
    config = {**LLAMA, "quantization_config": CASES["int4 in groups"][0]}
    result = counted(context, "llama", config)
    known = {v.name: v for v in result.document.variables}
    assert known["linear_bytes"].default == Fraction(1, 2)
    assert "quantization_config" in known["linear_bytes"].meaning
    assert '"linear_bytes"' in result.model_dump_json()
    assert ModuleAnalysisResult.model_validate_json(result.model_dump_json()) == result
    assert any("int4 in groups of 32" in text for text in result.document.assumptions)
    plain = counted(context, "llama", LLAMA).evaluated
    again = counted(context, "llama", config, linear_bytes=2, linear_scale_bytes=0).evaluated
    assert plain is not None
    assert again is not None
    assert again.weights == plain.weights + LAYERS * 7 * 16  # the shapes that are stored beside


@pytest.mark.parametrize(
    ("given", "bytes_each"), [(1, 1), ("1/2", Fraction(1, 2)), (0.5, Fraction(1, 2)), ("17/32", Fraction(17, 32))]
)
def test_bytes_per_weight_may_be_fractions(given: Any, bytes_each: Fraction, context: ToolContext) -> None:
    found = counted(context, "llama", LLAMA, w_bytes=given).evaluated
    assert found is not None
    assert found.weights == ceil((PLAIN // 2 + LAYERS * ALL) * bytes_each)


@pytest.mark.parametrize(
    "values", [{"w_bytes": 0.1}, {"w_bytes": "two"}, {"w_bytes": -1.5}, {"seq_len": "1/2"}, {"w_bytes": "1/0"}]
)
def test_values_that_are_no_exact_fractions_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        CostArguments.model_validate({"target": "llama", "values": values})


def test_an_unknown_method_is_said_and_counted_as_unquantised(context: ToolContext) -> None:
    plain = counted(context, "llama", LLAMA)
    found = counted(
        context, "llama", {**LLAMA, "quantization_config": {"quant_method": "aqlm", "nbits_per_codebook": 16}}
    )
    assert plain.evaluated is not None
    assert found.evaluated is not None
    assert found.evaluated.weights == plain.evaluated.weights
    assert any("aqlm" in text and "counted as unquantised" in text for text in found.document.assumptions)


def test_only_experts_of_an_mxfp4_checkpoint_are_quantised(context: ToolContext) -> None:
    name = "openai/gpt-oss-120b"
    found = counted(context, name).evaluated
    assert found is not None
    assert found.weights == 65_248_815_744  # as its published index states
    flow = trace_dataflow(
        DataflowArguments.model_validate({"target": name, "values": {"batch_size": 1, "seq_len": 8}}), context
    )
    assert flow.evaluated is not None
    assert flow.evaluated.weights == found.weights


@pytest.mark.slow
def test_the_blocks_of_deepseek_v3_take_what_was_published_but_for_its_extra_layer(context: ToolContext) -> None:
    found = counted(context, "deepseek-ai/DeepSeek-V3").evaluated
    assert found is not None
    hidden, inner, heads, vocab = 7168, 2048, 128, 129280
    attention = [(1536, hidden), (heads * 192, 1536), (576, hidden), (heads * 256, 512), (hidden, heads * 128)]
    experts = [(inner, hidden), (inner, hidden), (hidden, inner)] * 257
    extra = sum(n * k + 4 * blocks(n, k, 128, 128) for n, k in [*attention, *experts])
    extra += 2 * (
        256 * hidden + 2 * hidden * hidden + 2 * vocab * hidden + 5 * hidden + 2048
    )  # router, projection, its own tables
    assert abs(found.weights + extra - 688_586_000_000) < 20_000_000  # what was published is given to the megabyte


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:" + ".*a" * 40, "re:(", "*" * 9, "x" * 301])
def test_a_name_of_modules_that_could_take_long_to_find_is_not_looked_for(pattern: str) -> None:
    scheme = scheme_of({"quant_method": "fp8", "modules_to_not_convert": [pattern]})
    assert scheme is not None
    assert "counted as unquantised" in scheme.unread


@pytest.mark.parametrize("name", ["model.layers.1.mlp.gate", "lm_head", "model.layers.3.self_attn.q_proj"])
def test_names_match_as_wholes(name: str) -> None:
    scheme = scheme_of(
        {"quant_method": "fp8", "modules_to_not_convert": ["mlp.gate", "model.layers.3.*", "layers.1.self"]}
    )
    assert scheme is not None
    assert scheme.format_of(name, expert=False) is None
    assert scheme.format_of("model.layers.1.mlp.gate_proj", expert=False) is not None
    assert scheme.format_of("model.layers.30.self_attn.q_proj", expert=False) is not None
    assert scheme.format_of("model.layers.1.self_attn.q_proj", expert=False) is not None


@pytest.mark.parametrize(("scale_fmt", "scale"), [("ue8m0", 1), (None, 4)])
def test_experts_in_fp4_take_half_a_byte_and_a_scale_per_32_inputs(
    scale_fmt: str | None, scale: int, context: ToolContext
) -> None:
    hidden, inner, experts, layers = 256, 384, 6, 2
    config = {
        "hidden_size": hidden, "moe_intermediate_size": inner, "num_experts": experts, "num_experts_per_tok": 2,
        "num_hidden_layers": layers, "vocab_size": 99, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    }  # fmt: skip
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": scale_fmt}

    def weights(quantisation: dict[str, Any]) -> int:
        found = count_flops(
            CostArguments.model_validate({
                "target": "qwen3_moe", "config": {**config, "quantization_config": quantisation},
                "values": {"batch_size": 2, "seq_len": 8},
            }),
            context,
        )  # fmt: skip
        assert found.evaluated is not None
        return found.evaluated.weights

    matrices = [(2 * inner, hidden), (hidden, inner)]
    in_fp8 = sum(n * k + 4 * blocks(n, k, 128, 128) for n, k in matrices)
    in_fp4 = sum(n * k // 2 + scale * blocks(n, k, 1, 32) for n, k in matrices)
    saved = weights(fp8) - weights({**fp8, "expert_dtype": "fp4"})
    assert saved == layers * experts * (in_fp8 - in_fp4)
