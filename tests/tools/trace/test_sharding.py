"""How passes are split over ranks: against the plans that transformers' own configurations declare, and by what must be kept."""

from __future__ import annotations

import ast
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from opscope_schemas.errors import ConfigError
from opscope_schemas.estimates import Parallel, RooflineResult
from opscope_tools.costing.arguments import CostArguments, find
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.sharding import shards
from sampled import sampled

SMALL = {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 1024,
         "num_hidden_layers": 4}  # fmt: skip
EXPERTS = {**SMALL, "head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
#: what the plans call products that are split by columns and by rows
COLUMNS, ROWS = {"colwise", "colwise_gather_output"}, {"rowwise", "rowwise_split_input"}
WITH_PLANS = ["llama", "qwen3_moe", "gemma2", "phi3", "olmo2", "gpt_neox"]


def declared(model_type: str) -> dict[str, str]:
    from transformers import CONFIG_MAPPING

    return dict(CONFIG_MAPPING[model_type].base_model_tp_plan)


@pytest.mark.parametrize("model_type", sampled(WITH_PLANS))
def test_products_are_split_as_the_models_own_plan_says(context: ToolContext, model_type: str) -> None:
    found = find(CostArguments(target=model_type, phase="decode", values={"batch_size": 4, "cache_len": 64}), context)
    tree = found.tree
    split = shards(tree, found.call).split
    plan = declared(model_type)
    products: dict[str, str] = {}
    for op in tree.ops_below(found.call):
        path = tree.pattern(tree.trace.calls[op.call])
        if op.matmul_flops != "0" and path.endswith("_proj"):
            products[path] = split.get(op.order, "whole")
    compared = 0
    for path, ours in products.items():
        theirs = next(
            (kind for name, kind in sorted(plan.items(), key=lambda p: -len(p[0])) if path.endswith(name)), None
        )
        if theirs in COLUMNS | ROWS:
            assert ours == ("column" if theirs in COLUMNS else "row"), (path, theirs)
            compared += 1
    assert compared >= (2 if model_type == "gpt_neox" else 4) or model_type == "gpt_neox"


def test_partial_results_are_added_up_twice_in_a_layer_and_once_behind_the_table(context: ToolContext) -> None:
    found = find(CostArguments(target="llama", phase="decode", values={"batch_size": 4, "cache_len": 64}), context)
    told = shards(found.tree, found.call).exchanges
    assert [(e.kind, e.repeat, e.bytes) for e in told] == [
        ("all_reduce", "1", "{batch_size} * {hidden_size} * {a_bytes}"),
        ("all_reduce", "{num_layers}", "{batch_size} * {hidden_size} * {a_bytes}"),
        ("all_reduce", "{num_layers}", "{batch_size} * {hidden_size} * {a_bytes}"),
        ("all_gather", "1", "{batch_size} * {vocab_size} * {a_bytes}"),
    ]


def test_attention_and_mlp_side_by_side_are_added_up_together(context: ToolContext) -> None:
    found = find(CostArguments(target="gptj", phase="decode", values={"batch_size": 4, "cache_len": 64}), context)
    split = shards(found.tree, found.call)
    in_layers = [e for e in split.exchanges if e.repeat != "1"]
    assert len(in_layers) == 1
    assert split.merged


@pytest.mark.parametrize(
    ("target", "config", "tp", "said"),
    [
        ("gptj", {}, 2, "Partial results"), ("llama", SMALL, 2, ""), ("llama", SMALL, 4, ""),
        ("llama", SMALL, 8, "8 ranks share 4 heads of keys and values: 2 of them hold each, with its cache."),
        ("mamba2", {}, 2, "What channels or heads of a scan share"),
    ],
)  # fmt: skip
def test_what_ranks_hold_alike_and_an_engine_may_split_otherwise_is_told(
    context: ToolContext, target: str, config: dict[str, Any], tp: int, said: str
) -> None:
    found = estimate(context, target, config, parallel={"tp": tp})
    assert found.parallel is not None
    assert [one.partition(said)[1] for one in found.parallel.differs] == ([said] if said else [])
    alone = estimate(context, target, config)
    assert alone.parallel is None


def estimate(context: ToolContext, target: str, config: dict[str, Any], **given: Any) -> RooflineResult:
    asked = {"config": config, "values": {"batch_size": 8, "cache_len": 96}, "hardware": "h100_sxm", **given}
    return estimate_roofline(RooflineArguments(target=target, **asked), context)


@pytest.mark.parametrize("tp", sampled([2, 4, 8]))
def test_ranks_share_the_work_and_the_weights(context: ToolContext, tp: int) -> None:
    alone = estimate(context, "llama", SMALL)
    rank = estimate(context, "llama", SMALL, parallel={"tp": tp})
    products = {o.module: o for o in alone.operators if o.kind == "matrix products"}
    for one in rank.operators:
        if one.kind != "matrix products":
            continue
        whole = products[one.module]
        keys = 2 * 128 * 256 * 8 * 2 * 4 if one.module.endswith("self_attn") else 0  # k and v: 4 heads of 32, 4 layers
        assert one.flops == round((whole.flops - keys) / tp + keys / min(tp, 4)), one.module
    hidden, inter, vocab, layers = 256, 512, 1024, 4
    kv = 2 * hidden * 128 // min(tp, 4)
    shared = (
        layers * ((2 * hidden * hidden + 3 * hidden * inter) // tp + kv + 2 * hidden)
        + 2 * vocab * hidden // tp
        + hidden
    )
    assert rank.memory.weights_bytes == 2 * shared
    assert rank.memory.cache_bytes == alone.memory.cache_bytes // min(tp, 4)
    assert rank.parallel is not None
    assert rank.parallel.tp_degrees == (1, 2, 4, 8)
    exchanges = [o for o in rank.operators if o.limited_by == "link"]
    assert [
        o for o in exchanges if not o.measured_as.startswith(o.operation.replace("_", " "))
    ] == []  # none as another collective
    told = {(one.kind, one.bytes): one.count for one in rank.parallel.communication}
    assert told == {("all_reduce", 8 * 256 * 2): 2 * layers + 1, ("all_gather", 8 * vocab * 2): 1}


def test_whole_experts_on_each_rank_or_parts_of_all_are_the_same_weights(context: ToolContext) -> None:
    alone = estimate(context, "qwen3_moe", EXPERTS)
    parts = estimate(context, "qwen3_moe", EXPERTS, parallel={"tp": 4})
    whole = estimate(context, "qwen3_moe", EXPERTS, parallel={"tp": 4, "ep": 4})
    spread = estimate(context, "qwen3_moe", EXPERTS, parallel={"tp": 1, "dp": 4, "ep": 4})
    experts = 4 * 8 * 3 * 256 * 64 * 2
    assert parts.memory.weights_bytes == whole.memory.weights_bytes
    assert spread.memory.weights_bytes == alone.memory.weights_bytes - experts + experts // 4
    assert spread.memory.cache_bytes == alone.memory.cache_bytes // 4
    flops = {
        name: sum(o.flops for o in r.operators if o.kind == "experts")
        for name, r in (("a", alone), ("p", parts), ("s", spread))
    }
    assert flops["p"] == pytest.approx(flops["a"] / 4, rel=1e-6)
    assert flops["s"] == pytest.approx(flops["a"] / 4, rel=1e-3)  # what sorts tokens is not shared


def test_stages_hold_their_layers_and_hand_on_what_they_made(context: ToolContext) -> None:
    alone, staged = estimate(context, "llama", SMALL), estimate(context, "llama", SMALL, parallel={"pp": 2})
    layers, table = 4 * (4 * 256 * 256 - 2 * 256 * 128 + 3 * 256 * 512 + 2 * 256), 1024 * 256
    assert staged.memory.weights_bytes == 2 * (layers // 2 + table)
    assert staged.memory.cache_bytes == alone.memory.cache_bytes // 2
    assert staged.parallel is not None
    assert [(c.kind, c.bytes, c.count) for c in staged.parallel.communication] == [("send", 4 * 256 * 2, 1)]


@pytest.mark.parametrize(
    ("parallel", "said"),
    [
        ({"tp": 3}, "does not divide 8 heads"),
        ({"tp": 16}, "does not divide 8 heads"),
        ({"ep": 2}, "no experts"),
        ({"pp": 5}, "more than the 4 layers"),
    ],
)
def test_degrees_that_the_model_does_not_allow_are_refused(
    context: ToolContext, parallel: dict[str, int], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        estimate(context, "llama", SMALL, parallel=parallel)


@pytest.mark.parametrize(("devices", "stages"), sampled([(3, 1), (6, 1), (12, 2), (16, 1)]))
def test_what_a_refusal_of_a_degree_proposes_is_taken(context: ToolContext, devices: int, stages: int) -> None:
    with pytest.raises(ConfigError) as refused:
        estimate(context, "llama", SMALL, parallel={"tp": devices, "pp": stages})
    said = re.search(r"\{.*\}", str(refused.value))
    assert said is not None
    proposed = ast.literal_eval(said[0])
    assert math.prod(proposed.values()) == devices * stages
    assert estimate(context, "llama", SMALL, parallel=proposed).parallel is not None


def test_what_fits_leaves_the_runtime_its_part(
    context: ToolContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device that holds the bytes to the last one, and on one whose nine tenths do."""
    memory = estimate(context, "llama", SMALL).memory
    needed = memory.weights_bytes + memory.cache_bytes + memory.input_bytes + (memory.activation_bytes or 0)
    table = tmp_path / "devices.json"
    monkeypatch.setattr(context.workspace, "device_files", (table,))
    for capacity, fits in ((needed, False), (-(-needed * 10 // 9) + 9, True)):
        device = {"id": "d", "name": "D", "vendor": "v", "kind": "gpu", "peak_flops": {"bf16": 1e12}, "bandwidth": 1e12}
        source = {"what": "all", "source": "made up"}
        table.write_text(json.dumps({"devices": [{**device, "capacity": capacity, "sources": [source]}]}), "utf-8")
        there = estimate(context, "llama", SMALL, hardware="d")
        assert there.memory.fits is fits
        assert (there.totals.bound_tokens_per_second is not None) is fits
        assert there.memory.largest_batch is not None
        assert (there.memory.largest_batch >= 8) is fits


def test_only_whole_models_as_engines_run_them_are_spread(context: ToolContext) -> None:
    with pytest.raises(ConfigError, match="serving view"):
        estimate(context, "llama", SMALL, parallel={"tp": 2}, view="eager")
    with pytest.raises(ConfigError, match="Only whole models"):
        estimate(
            context, "LlamaMLP", SMALL, parallel={"tp": 2}, phase="prefill", values={"batch_size": 1, "seq_len": 16}
        )


def test_a_number_of_devices_is_a_tensor_parallel_plan_unless_another_is_given(context: ToolContext) -> None:
    named = estimate(context, "llama", SMALL, hardware="h100_sxm:4")
    assert named.parallel is not None
    assert (named.parallel.tp, named.parallel.devices) == (4, 4)
    with pytest.raises(ConfigError, match="takes 2 devices, and 4 are given"):
        estimate(context, "llama", SMALL, hardware="h100_sxm:4", parallel={"pp": 2})
    with pytest.raises(ConfigError, match="names no number"):
        estimate(context, "llama", SMALL, hardware="h100_sxm:four")
    assert str(Parallel(tp=2, ep=4, dp=2)) == "tp2 ep4 dp2"


@pytest.mark.parametrize("model", sampled(["gemma2", "qwen3", "llama"]))
def test_ranks_together_hold_tied_weights_once(context: ToolContext, model: str) -> None:
    small = {
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 8,
        "vocab_size": 512,
        "intermediate_size": 128,
    }
    config = {**small, "num_hidden_layers": 2, "tie_word_embeddings": True}
    asked = {"target": model, "hardware": "h100_sxm", "config": config, "values": {"batch_size": 2, "cache_len": 8}}

    def weights(tp: int) -> int:
        given = RooflineArguments.model_validate({**asked, "parallel": {"tp": tp}})
        return estimate_roofline(given, context).memory.weights_bytes

    whole = weights(1)
    norms = 2 * 2 * (8 * 64 + 64)  # more than these models have, on every rank
    for tp in (2, 4, 8):
        assert whole / tp <= weights(tp) <= whole / tp + norms


@pytest.mark.parametrize("model", ["gemma2", "llama", "gpt_oss"])
def test_ranks_beyond_the_heads_of_keys_and_values_hold_them_again(context: ToolContext, model: str) -> None:
    """However attention runs, fused or out of eager operators: of a model whose sizes transformers itself tells, a rank's part by hand."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    config = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 512,
              "intermediate_size": 128, "num_hidden_layers": 2, "tie_word_embeddings": False,
              **({"num_local_experts": 8} if model == "gpt_oss" else {})}  # fmt: skip
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(CONFIG_MAPPING[model](**config))
    sizes = {name: 2 * parameter.numel() for name, parameter in built.named_parameters()}
    keys = sum(size for name, size in sizes.items() if re.search(r"\.[kv]_proj\.", name))
    whole = sum(size for name, size in sizes.items() if re.search(r"norm|router", name))
    rest = sum(sizes.values()) - keys - whole

    def weights(tp: int) -> int:
        asked = {"target": model, "hardware": "h100_sxm", "config": config, "values": {"batch_size": 2, "cache_len": 8}}
        given = RooflineArguments.model_validate({**asked, "parallel": {"tp": tp}})
        return estimate_roofline(given, context).memory.weights_bytes

    slack = 0.01 * sum(sizes.values())  # biases of rows and sinks, which each rank may hold or share
    for tp in (2, 4, 8):
        assert weights(tp) == pytest.approx(rest / tp + keys / min(tp, 2) + whole, abs=slack)


ENCODER_DECODER = {"d_model": 64, "num_heads": 8, "d_kv": 8, "d_ff": 128, "vocab_size": 256, "num_layers": 3,
                   "num_decoder_layers": 2}  # fmt: skip


@pytest.mark.parametrize("tp", sampled([2, 8]))
def test_what_a_decode_step_does_not_run_is_split_as_the_pass_that_runs_it(context: ToolContext, tp: int) -> None:
    """An encoder, the keys and values of cross attention, and the cache that they made."""
    given = {"batch_size": 8, "cache_len": 96, "encoder_seq_len": 32}
    alone = estimate(context, "t5", ENCODER_DECODER, values=given)
    rank = estimate(context, "t5", ENCODER_DECODER, values=given, parallel={"tp": tp})
    norms, positions = 64 * (3 * 2 + 1 + 2 * 3 + 1), 2 * 32 * 8
    whole = 2 * (norms + positions)
    assert rank.memory.weights_bytes == (alone.memory.weights_bytes - whole) / tp + whole
    assert rank.memory.cache_bytes == alone.memory.cache_bytes / tp


def test_ranks_share_the_states_of_convolutions_and_of_scans(context: ToolContext) -> None:
    """Each is of channels, whichever kernel keeps it."""
    asked: dict[str, Any] = {
        "target": "falcon_mamba",
        "hardware": "h100_sxm",
        "phase": "decode",
        "values": {"cache_len": 64},
    }
    alone, shared = (
        estimate_roofline(RooflineArguments.model_validate({**asked, **more}), context).memory.cache_bytes
        for more in ({}, {"parallel": {"tp": 4}})
    )
    assert alone == 4 * shared > 0


def test_a_norm_over_all_heads_is_told_as_one_that_engines_may_spread_otherwise(context: ToolContext) -> None:
    found = estimate(context, "olmo2", SMALL, parallel={"tp": 2})
    assert found.parallel is not None
    assert [one.partition(" ranks tell")[0] for one in found.parallel.differs] == ["Of a norm over all heads together"]


@pytest.mark.parametrize("model_type", sampled(["jamba", "falcon_mamba", "mamba2", "falcon_h1", "lfm2", "qwen3_next"]))
def test_a_prompt_is_split_as_a_step_is(context: ToolContext, model_type: str) -> None:
    """The weights lie on the ranks once: what reads a whole sequence, in a loop too, cannot want others of them than one token does."""
    layers = {"num_hidden_layers": 6}
    told: dict[str, dict[str, str]] = {}
    for phase in ("prefill", "decode"):
        found = find(CostArguments(target=model_type, phase=phase, config=layers), context)
        split = shards(found.tree, found.call).split
        told[phase] = {
            found.tree.pattern(found.tree.trace.calls[op.call]): split.get(op.order, "whole")
            for op in found.tree.ops_below(found.call)
            if op.matmul_flops != "0" and op.reads and len(op.inputs) > len(op.reads)
        }
    both = told["prefill"].keys() & told["decode"].keys()
    assert {path: told["prefill"][path] for path in both} == {path: told["decode"][path] for path in both}
    assert len(both) > 3


@pytest.mark.parametrize(
    ("model_type", "heads"),
    [("siglip", ["text_model.head"]), pytest.param("clip", ["visual_projection", "text_projection"], marks=pytest.mark.slow)],
)  # fmt: skip
def test_only_what_is_made_in_parts_is_gathered(context: ToolContext, model_type: str, heads: list[str]) -> None:
    """A projection that is returned, and whose norm is of all its columns; what comes of two whole activations is whole."""
    found = find(CostArguments(target=model_type, phase="prefill"), context)
    told, ops = shards(found.tree, found.call), {op.order: op for op in found.tree.trace.ops}
    gathered = [ops[one.made] for one in told.exchanges if one.kind == "all_gather"]
    assert [found.tree.pattern(found.tree.trace.calls[op.call]) for op in gathered] == heads
    assert [told.split[op.order] for op in gathered] == ["column"] * len(heads)
    last = [op for op in ops.values() if op.order > gathered[-1].order]
    assert any(op.matmul_flops != "0" for op in last)
    assert not {op.order for op in last} & told.split.keys()
