"""`estimate_roofline` on real models: its work is that of the cost documents, its memory that of the dataflow, its bound by hand."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from opscope_schemas.errors import InputError, PathRefusedError, TraceError, UnknownNameError
from opscope_schemas.estimates import MemoryUse, Parallel, RooflineResult, launches
from opscope_tools.catalog import tool_named
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.estimate_roofline.alternatives import alternatives
from opscope_tools.estimate_roofline.kernels import Kernel
from opscope_tools.estimate_roofline.predicting import Replica
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline, model_of, timing_of
from opscope_tools.expand_refs import ExpandArguments, expand_refs
from opscope_tools.hardware.calibration import calibration_of, chosen
from opscope_tools.hardware.devices import shipped
from opscope_tools.hardware.forms import FORMS
from opscope_tools.running.runner import validate
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.document import CallTree
from opscope_tools.trace.engine import TraceEngine
from opscope_tools.trace.flights import Running
from opscope_tools.trace.protocol import TraceRequest
from opscope_tools.trace_dataflow import DataflowArguments, trace_dataflow
from sampled import sampled

SMALL = {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000,
         "num_hidden_layers": 3}  # fmt: skip
MIXTRAL = {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2}
POINT = {"batch_size": 4, "cache_len": 96, "seq_len": 1}


def estimate(context: ToolContext, target: str = "llama", hardware: str = "h100_sxm", **given: Any) -> RooflineResult:
    asked = {"config": SMALL, "values": {"batch_size": 4, "cache_len": 96}, **given}
    return estimate_roofline(RooflineArguments(target=target, hardware=hardware, **asked), context)


@pytest.mark.parametrize(
    ("target", "config"), [("llama", SMALL), ("gpt2", {}), ("mixtral", MIXTRAL), ("gemma2", SMALL)]
)
def test_eager_kernels_add_up_to_the_cost_document(context: ToolContext, target: str, config: dict[str, Any]) -> None:
    found = estimate(context, target, config=config, view="eager")
    document = expand_refs(
        ExpandArguments(target=target, phase="decode", config=config, values=POINT, logits="last"), context
    )
    assert document.evaluated is not None
    assert found.totals.flops == document.evaluated.flops
    read = document.evaluated.memory_read if document.expected is None else document.expected.memory_read
    assert found.totals.bytes == pytest.approx(read + document.evaluated.memory_write, abs=len(found.operators) + 2)


def test_served_kernels_move_what_the_serving_view_says_less_what_joined_products_read_once(
    context: ToolContext,
) -> None:
    found = estimate(context)
    served = expand_refs(
        ExpandArguments(target="llama", phase="decode", config=SMALL, values=POINT, logits="last", view="serving"),
        context,
    ).serving
    assert served is not None
    assert served.evaluated is not None
    moved = served.evaluated["memory_read"] + served.evaluated["memory_write"]
    rows, layers = POINT["batch_size"] * 256 * 2, 3
    assert found.totals.bytes == moved - layers * rows * (2 + 1)  # q, k and v read it once, so do gate and up
    assert found.totals.flops == served.evaluated["flops"]


def test_an_estimate_of_a_class_bears_its_name_and_not_that_of_the_model_around_it(context: ToolContext) -> None:
    found = estimate_roofline(RooflineArguments.model_validate({"target": "LlamaMLP", "hardware": "h100_sxm"}), context)
    assert found.model_class.endswith(".LlamaMLP")


def test_every_kernel_is_of_a_class_that_the_sums_name(context: ToolContext) -> None:
    found = estimate(context, "mixtral", config=MIXTRAL)
    for one in found.spent:
        of_it = [row for row in found.operators if row.kind == one.name]
        assert sum(row.bound_seconds for row in of_it) == pytest.approx(one.bound_seconds)
        assert sum(row.calibrated_seconds or 0 for row in of_it) == pytest.approx(one.calibrated_seconds)
    assert {row.kind for row in found.operators if row.limited_by} == {one.name for one in found.spent}


def test_kernels_say_of_which_classes_they_are_where_layers_of_several_kinds_stand_at_one_path(
    context: ToolContext,
) -> None:
    """One dense layer, two of experts, all at `model.layers.*.mlp`; sizes of products say which of them a kernel is of."""
    config = {**SMALL, "moe_intermediate_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2, "head_dim": 32}
    found = estimate(context, "glm4_moe", config={**config, "n_group": 1, "topk_group": 1}, phase="prefill")
    held: dict[str, int] = {}
    for row in found.operators:
        for name in row.classes:
            name = name.rpartition(".")[2]
            held[name] = held.get(name, 0) + row.flops * (row.kind == "matrix products")
    tokens = found.values["batch_size"] * found.values["seq_len"]
    shared = 2 * 2 * tokens * 3 * 256 * 64
    assert held["Glm4MoeMLP"] == 2 * tokens * 3 * 256 * 512 + shared
    assert held["Glm4MoeMoE"] - held["Glm4MoeTopkRouter"] == shared
    assert held["Glm4MoeForCausalLM"] == sum(row.flops for row in found.operators if row.kind == "matrix products")


def test_a_fused_kernel_stands_at_the_module_that_issues_most_of_it(context: ToolContext) -> None:
    """The cast of the router before which a norm runs does not take the norm to itself; the sum over experts is a part of theirs."""
    config = {**SMALL, "moe_intermediate_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2, "head_dim": 32}
    found = estimate(context, "glm4_moe", config={**config, "n_group": 1, "topk_group": 1}, phase="prefill")
    norms = [row for row in found.operators if row.operation == "fused norm"]
    assert sum(row.count for row in norms) == 2 * 3 + 1
    assert all("norm" in row.module for row in norms)
    assert not [
        row for row in found.operators if "sum" in row.operation.split(", ") and row.module.endswith(("experts", "*"))
    ]
    assert not [
        row for row in found.operators if row.operation == "add"
    ]  # each is in the norm that begins the next layer


def test_a_norm_stands_where_its_layer_begins_also_with_the_add_of_the_layer_before(context: ToolContext) -> None:
    """That add runs last of all in the layer, and is as many operators as a norm that is one."""
    found = estimate(context, "gpt2", config={"n_layer": 3, "n_embd": 64, "n_head": 4}, phase="prefill")
    rows = [(row.operation, row.module) for row in found.operators]
    first, second = (rows.index(("fused norm", f"transformer.h.*.{name}")) for name in ("ln_1", "ln_2"))
    assert first < min(at for at, (_, module) in enumerate(rows) if ".h.*.attn" in module)
    assert first < second
    assert [row.count for row in found.operators if row.operation == "fused norm"] == [3, 3]


def test_ranks_divide_the_heads_of_every_attention(context: ToolContext) -> None:
    """Towers with 8 and with 12 heads: 4 ranks divide both, 8 only those of the one."""
    found = estimate(context, "clip", config={}, values={}, phase="prefill", parallel={"tp": 2})
    assert found.parallel is not None
    assert found.parallel.tp_degrees == (1, 2, 4)


def test_attention_over_what_an_encoder_read_has_no_window(context: ToolContext) -> None:
    """Fewer positions of the encoder than the decoder has cached are not a cache that forgets."""
    found = estimate(context, "t5", config={}, values={"encoder_seq_len": 512, "cache_len": 1024})
    attentions = [row for row in found.operators if row.operation == "sdpa"]
    assert attentions
    assert not any("window" in row.measured_as for row in attentions)


def test_ceilings_are_the_peaks_of_the_precisions_that_products_run_in(context: ToolContext) -> None:
    found, peaks = estimate(context, precision={"weights": "fp8"}), shipped()["h100_sxm"].peak_flops
    assert found.hardware.ceilings == {"fp8": peaks["fp8"], "bf16": peaks["bf16"]}  # attention runs in the latter
    assert estimate(context).hardware.ceilings == {"bf16": peaks["bf16"]}


@pytest.mark.parametrize(("view", "narrow"), [("eager", False), ("serving", False), ("serving", True)])
def test_products_in_32_bits_are_bound_by_their_peak_eagerly_and_are_never_those_of_quantised_weights(
    context: ToolContext, view: str, narrow: bool
) -> None:
    """DeepSeek's router widens what it reads and its weights; engines were measured to run it as other products."""
    tiny = {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 512, "vocab_size": 1000, "num_hidden_layers": 3,
            "moe_intermediate_size": 64, "first_k_dense_replace": 1, "n_routed_experts": 16, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 4}  # fmt: skip
    rows = 2**15
    more: dict[str, Any] = {"precision": {"weights": "fp8", "activations": "fp8"}} if narrow else {}
    found = estimate(
        context,
        "deepseek_v3",
        config=tiny,
        values={"batch_size": 1, "seq_len": rows},
        phase="prefill",
        view=view,
        **more,
    )
    device = shipped()["h100_sxm"]
    routers = [one for one in found.operators if one.module.endswith("gate") and one.flops >= 2 * 2 * rows * 256 * 16]
    assert [(one.count, one.flops, one.bytes) for one in routers] == [
        (2, 2 * 2 * rows * 256 * 16, 2 * 4 * (rows * 256 + 256 * 16 + rows * 16))
    ]
    peak = device.peak_flops["fp32" if view == "eager" else "bf16"]
    assert routers[0].bound_seconds == pytest.approx(
        max(routers[0].flops / peak, routers[0].bytes / device.bandwidth), rel=1e-6
    )
    assert ("fp32" in found.hardware.ceilings) == (view == "eager")
    assert sum("32 bits" in note for note in found.notes) == 1
    if view == "serving":
        assert routers[0].measured_as == "product, bf16, vllm"
    plain = estimate(context, config=SMALL)
    assert not any("32 bits" in note for note in plain.notes)


def test_the_bound_is_work_over_rates(context: ToolContext) -> None:
    found, device = estimate(context), shipped()["h100_sxm"]
    for one in found.operators:
        assert one.bound_seconds >= one.bytes / device.bandwidth * 0.999999
        assert one.bound_seconds == pytest.approx(
            max(one.bytes / device.bandwidth, one.flops / device.peak_flops["bf16"]), rel=0.02
        )
    assert found.totals.bound_seconds == pytest.approx(sum(one.bound_seconds for one in found.operators))
    assert found.totals.calibrated_seconds == pytest.approx(sum(one.calibrated_seconds or 0 for one in found.operators))
    assert found.totals.calibrated_seconds is not None
    assert found.totals.low_seconds is not None
    assert found.totals.high_seconds is not None
    assert found.totals.low_seconds < found.totals.calibrated_seconds < found.totals.high_seconds
    assert sum(kind.share for kind in found.spent) == pytest.approx(1, abs=0.001)


def test_memory_is_that_of_the_dataflow_and_its_limits_are_sharp(context: ToolContext) -> None:
    found = estimate(context, values={"batch_size": 1000, "cache_len": 50_000}, hardware="l4")
    flow = trace_dataflow(
        DataflowArguments(
            target="llama",
            phase="decode",
            config=SMALL,
            logits="last",
            values={"batch_size": 1000, "cache_len": 50_000},
        ),
        context,
    )
    assert flow.evaluated is not None
    assert (found.memory.weights_bytes, found.memory.cache_bytes) == (
        flow.evaluated.weights,
        flow.evaluated.cache_after,
    )
    assert found.memory.largest_batch is not None
    assert found.memory.longest_context is not None
    for name, most in (("batch_size", found.memory.largest_batch), ("cache_len", found.memory.longest_context)):
        for more, fits in ((0, True), (1, False)):
            there = estimate(
                context, hardware="l4", values={"batch_size": 1000, "cache_len": 50_000, name: most + more}
            )
            assert there.memory.fits == fits, (name, more)


@pytest.mark.parametrize("batch", sampled([1, 8, 3000]))
def test_limits_do_not_depend_on_the_point_that_was_asked_and_hold_where_other_traces_do(
    batch: int, context: ToolContext
) -> None:
    """Of one sequence, and on both sides of a window of which half the layers hold no more."""
    config = {
        "hidden_size": 1024, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 8, "vocab_size": 512, "sliding_window": 3000, "head_dim": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 2, "max_position_embeddings": 10**8,
    }  # fmt: skip

    def found(**values: int) -> MemoryUse:
        return estimate(context, target="gemma2", config=config, values=values, hardware="l4").memory

    asked = [found(batch_size=batch, cache_len=length) for length in (100, 2999, 3001, 700_000)]
    longest = {one.longest_context for one in asked}
    assert len(longest) == 1
    most = longest.pop()
    assert most is not None
    assert most > 0
    assert found(batch_size=batch, cache_len=most).fits
    assert not found(batch_size=batch, cache_len=most + 1).fits
    for length, one in ((100, asked[0]), (3001, asked[2])):
        assert one.largest_batch is not None
        assert found(batch_size=one.largest_batch, cache_len=length).fits
        assert not found(batch_size=one.largest_batch + 1, cache_len=length).fits


@pytest.mark.parametrize(("target", "calibrated"), [("llama", True), ("falcon_h1", False)])
def test_kernels_and_totals_stand_on_one_basis(context: ToolContext, target: str, calibrated: bool) -> None:
    """falcon_h1's scan was measured nowhere: its pass is a bound, and so are its kernels wherever they are added."""
    config, values = {"num_hidden_layers": 2}, {"batch_size": 1, "seq_len": 512}
    found = estimate(context, target=target, config=config, values=values, phase="prefill")
    assert (found.totals.calibrated_seconds is not None) is calibrated
    expected = found.totals.calibrated_seconds if calibrated else found.totals.bound_seconds
    assert sum(map(found.seconds_of, found.operators)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("target", "config", "each"),
    [
        ("vit", {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}, 3 * 224 * 224 * 2),
        ("llama", SMALL, 8 * 48),
    ],
)  # fmt: skip
def test_what_a_pass_is_called_with_takes_memory_too(
    context: ToolContext, target: str, config: dict[str, Any], each: int
) -> None:
    """Pixels, three of 2 bytes each, and token ids, of 8 bytes: a batch of images is limited by both them and the activations."""
    for batch in (3, 500):
        values = {"batch_size": batch, **({"seq_len": 48} if target == "llama" else {})}
        memory = estimate(context, target, config=config, values=values, phase="prefill").memory
        assert memory.input_bytes == batch * each
        assert memory.activation_bytes is not None
        assert memory.largest_batch is not None
        by_batch = memory.cache_bytes + memory.activation_bytes + memory.input_bytes
        fitting = batch * (memory.usable_bytes - memory.weights_bytes) / by_batch
        assert memory.largest_batch == pytest.approx(fitting, rel=0.02)


def test_limits_are_not_traced_for_at_lengths_that_a_loop_would_run_over(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mamba2 runs over chunks of its tokens: at the longest context that fits, a trace would take hours."""
    lengths = set()
    traced = TraceEngine.trace

    def trace(self: TraceEngine, request: TraceRequest, running: Running) -> CallTree:
        lengths.add(request.hints.get("seq_len", 40))
        return traced(self, request, running)

    monkeypatch.setattr(TraceEngine, "trace", trace)
    config = {"hidden_size": 64, "num_heads": 8, "head_dim": 16, "num_hidden_layers": 1, "vocab_size": 100, "chunk_size": 16,
              "state_size": 16, "n_groups": 1}  # fmt: skip
    asked: dict[str, Any] = {"config": config, "phase": "prefill", "values": {"batch_size": 2, "seq_len": 40}}
    found = estimate(context, target="mamba2", **asked).memory
    assert max(lengths) <= 2 * max(config.values()) + 3
    assert found.fits
    if found.longest_context is not None:  # then a trace that holds there said so
        asked["values"] = {"batch_size": 2, "seq_len": 48}
        assert estimate(context, target="mamba2", **asked).memory.longest_context == found.longest_context


def test_a_context_beyond_the_positions_is_said_to_be(context: ToolContext) -> None:
    notes = {room: estimate(context, target="opt", values={"batch_size": 64, "cache_len": 96}, hardware="l4", config={
        "hidden_size": 512, "word_embed_proj_dim": 512, "ffn_dim": 64, "num_attention_heads": 2, "num_hidden_layers": 2,
        "vocab_size": 100, "max_position_embeddings": room}).notes for room in (128, 10**6)}  # fmt: skip
    assert any("room for 128 positions" in note for note in notes[128])
    assert not any("room for" in note for note in notes[10**6])


def test_the_cache_of_a_stage_is_its_layers_of_all_sequences(context: ToolContext) -> None:
    """Four sequences on three stages: one of them works on two at a time, none holds more than its third."""
    alone = estimate(context, values={"batch_size": 4, "cache_len": 4096}).memory
    staged = estimate(context, values={"batch_size": 4, "cache_len": 4096}, parallel={"pp": 3}).memory
    assert staged.cache_bytes == math.ceil(alone.cache_bytes / 3)
    deeper = {**SMALL, "num_hidden_layers": 4}  # the largest stage has two of them
    alone = estimate(context, config=deeper, values={"batch_size": 3, "cache_len": 4096}).memory
    staged = estimate(context, config=deeper, values={"batch_size": 3, "cache_len": 4096}, parallel={"pp": 3}).memory
    assert staged.cache_bytes == math.ceil(alone.cache_bytes / 2)
    for batch in (1, 2, 5):  # one sequence is traced by itself
        at = {"batch_size": batch, "cache_len": 4096}
        alone = estimate(context, config=deeper, values=at).memory
        staged = estimate(context, config=deeper, values=at, parallel={"pp": 2}).memory
        assert staged.cache_bytes == math.ceil(alone.cache_bytes / 2)
        assert alone.cache_bytes_per_token is not None
        assert staged.cache_bytes_per_token == alone.cache_bytes_per_token / 2


def test_a_replica_has_places_for_what_fits_on_its_largest_stage(context: ToolContext) -> None:
    device = shipped()["h100_sxm"]
    deep = {**SMALL, "num_hidden_layers": 4}
    asked = {"target": "llama", "hardware": "h100_sxm", "config": deep}
    model = model_of(RooflineArguments.model_validate(asked), context)
    one, two = (Replica(model, device, None, "vllm", Parallel(pp=stages)).places(4096) for stages in (1, 2))
    assert two / one == pytest.approx(
        2, rel=0.05
    )  # each stage keeps half the layers, and nearly all of the memory is for the cache


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"precision": {"weights": "fp7"}}, "weights: input should be 'bf16'"),
        ({"precision": {"weigths": "fp8"}}, "each name should be 'weights', 'cache' or 'activations'"),
        ({"parallel": {"tpx": 2}}, "cannot be 'tpx': each name should be 'tp'"),
    ],
)
def test_a_wrong_argument_is_told_in_words_of_the_caller(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(tool_named("estimate_roofline"), {"target": "llama", "hardware": "h100_sxm", **given})
    assert said in str(caught.value)
    assert not any(word in str(caught.value) for word in ("[key]", "literal[", "dict[", "union"))


def test_a_field_that_nobody_has_set_is_named_where_the_model_fails_on_it(context: ToolContext) -> None:
    with pytest.raises(TraceError) as caught:
        estimate(context, target="deepseek_v2", config={})
    assert "Give num_experts_per_tok, n_group, topk_group with config: DeepseekV2TopkRouter reads them" in str(
        caught.value
    )


def test_no_rate_is_given_for_what_does_not_fit(context: ToolContext) -> None:
    found = estimate(context, values={"batch_size": 2_000_000, "cache_len": 50_000}, hardware="h100_sxm")
    assert not found.memory.fits
    assert found.totals.tokens_per_second is None
    assert found.totals.bound_tokens_per_second is None
    assert any("do not fit" in said for said in found.notes)


def test_more_sequences_never_take_less_time(context: ToolContext) -> None:
    times = [estimate(context, values={"batch_size": b, "cache_len": 512}).totals for b in (1, 8, 64, 512)]
    bounds = [t.bound_seconds for t in times]
    assert bounds == sorted(bounds)
    assert all(t.calibrated_seconds is not None and t.calibrated_seconds > t.bound_seconds for t in times)


def test_a_device_without_measurements_has_a_bound_alone_and_says_so(context: ToolContext) -> None:
    found = estimate(context, hardware="mi300x")
    assert found.calibration is None
    assert found.totals.calibrated_seconds is None
    assert all(one.calibrated_seconds is None for one in found.operators)
    assert any("uncalibrated" in said for said in found.notes)
    low, high = found.totals.low_seconds, found.totals.high_seconds
    assert low is not None
    assert high is not None
    assert found.totals.bound_seconds <= low < high
    assert any("the mean of other devices" in said for said in found.notes)


def test_experts_are_one_kernel_and_read_what_uniform_routing_touches(context: ToolContext) -> None:
    found = estimate(context, "mixtral", config=MIXTRAL)
    layers = [one for one in found.operators if one.operation == "experts"]
    assert [one.count for one in layers] == [3]
    touched = 4 * (1 - (1 - 2 / 4) ** 4)
    weights = 3 * touched * 3 * 256 * 512 * 2
    assert weights < layers[0].bytes < 1.1 * weights
    assert layers[0].flops >= 3 * 6 * 4 * 2 * 256 * 512


def test_precisions_change_weights_and_cache(context: ToolContext) -> None:
    plain, narrow = estimate(context), estimate(context, precision={"weights": "fp8", "cache": "fp8"})
    linears = 3 * (2 * 256 * 256 + 2 * 256 * 64 + 3 * 256 * 512)
    assert plain.memory.weights_bytes - narrow.memory.weights_bytes == pytest.approx(linears, rel=0.001)
    assert narrow.memory.cache_bytes * 2 == plain.memory.cache_bytes
    assert narrow.precision == {"weights": "fp8", "cache": "fp8", "activations": "bf16"}
    products = [one for one in narrow.operators if "q_proj" in one.operation]
    assert products[0].measured_as.startswith("product, fp8")
    assert next(o.measured_as for o in narrow.operators if o.module == "lm_head").startswith("product, bf16")


def test_a_narrow_cache_leaves_the_products_of_a_prompt_as_wide_as_they_were_measured(context: ToolContext) -> None:
    wide = {**SMALL, "num_hidden_layers": 1, "vocab_size": 128}
    given: dict[str, Any] = {"config": wide, "values": {"batch_size": 1, "seq_len": 32768}, "phase": "prefill"}
    plain, narrow = estimate(context, **given), estimate(context, **given, precision={"cache": "fp8"})
    for found in (plain, narrow):
        (row,) = [row for row in found.operators if row.kind == "attention"]
        assert row.limited_by == "compute"
        peak = shipped()["h100_sxm"].peak("bf16")[0]
        assert (
            row.bound_seconds >= 0.99 * 4 * 256 * 32768**2 / 2 / peak
        )  # half of the pairs, queries by keys and by values


def test_a_file_in_a_precision_is_its_content_in_that_precision(context: ToolContext) -> None:
    file = context.workspace.output / "narrow" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SMALL}))
    narrow = {"weights": "fp8"}
    from_file, from_object = (estimate(context, config=c, precision=narrow) for c in (str(file), SMALL))
    assert from_file.memory == from_object.memory
    assert from_file.totals == from_object.totals
    assert from_file.memory.weights_bytes < estimate(context, config=str(file)).memory.weights_bytes


def test_prefill_counts_attention_below_the_diagonal(context: ToolContext) -> None:
    found = estimate(context, phase="prefill", values={"batch_size": 2, "seq_len": 128})
    document = expand_refs(
        ExpandArguments(target="llama", config=SMALL, values={"batch_size": 2, "seq_len": 128}, logits="last"), context
    )
    (attention,) = [one for one in found.operators if one.operation == "sdpa"]
    pairs = 128 * 129 // 2
    assert attention.flops >= 3 * 4 * 2 * 8 * 32 * pairs
    assert document.evaluated is not None
    assert found.totals.flops < document.evaluated.flops


def test_attention_out_of_eager_operators_skips_what_lies_above_the_diagonal_too(context: ToolContext) -> None:
    """gpt-oss runs no fused attention; every second layer has a window, the others see all positions before."""
    layers, tokens, heads, width = 4, 512, 8, 32
    config = {
        **SMALL,
        "head_dim": width,
        "num_hidden_layers": layers,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 128,
    }
    found = estimate(context, "gpt_oss", config=config, phase="prefill", values={"batch_size": 2, "seq_len": tokens})
    attentions = [one for one in found.operators if one.kind == "attention"]
    assert {one.operation for one in attentions} == {"attention"}
    pairs = tokens * (tokens + 1) // 2
    beyond = (tokens - 128) * (tokens - 127) // 2
    products = [2 // 2 * layers // 2 * 2 * 4 * heads * width * n for n in (pairs - beyond, pairs)]
    for one, least in zip(sorted(attentions, key=lambda one: one.flops), products, strict=True):
        assert least <= one.flops <= 1.1 * least


def test_sizes_that_nobody_gave_are_said(context: ToolContext) -> None:
    found = estimate(context, values=None)
    assert any("batch_size 1, cache_len 1,024" in said for said in found.notes)


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"hardware": "h1000"}, UnknownNameError, "Nearest names"),
        ({"target": "lama"}, UnknownNameError, "llama"),
        ({"config": "config.json", "precision": {"weights": "fp8"}}, PathRefusedError, "config.json"),
    ],
)  # fmt: skip
def test_bad_input_gets_a_sentence(
    context: ToolContext, given: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        estimate(context, **given)


def test_arguments_of_the_cost_tools_and_of_estimates_bear_the_same_names() -> None:
    shared = {"target", "phase", "config", "values", "view"}
    assert shared <= set(RooflineArguments.model_fields) & set(CostArguments.model_fields)


LATENTS = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 64, "num_hidden_layers": 3, "n_routed_experts": 8,
           "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "vocab_size": 1000, "num_attention_heads": 4, "num_key_value_heads": 4}  # fmt: skip


@pytest.mark.parametrize(("phase", "says"), [("decode", "latent decode, bf16"), ("prefill", "latent prefill, bf16")])
def test_attention_over_latents_takes_what_kernels_over_latents_were_measured_to_take(
    context: ToolContext, phase: str, says: str
) -> None:
    point = {"batch_size": 4, "cache_len": 96} if phase == "decode" else {"batch_size": 4, "seq_len": 96}
    found = estimate(context, "deepseek_v3", config=LATENTS, values=point, phase=phase)
    attention = [one for one in found.operators if one.operation == "sdpa"]
    assert attention
    assert all(one.measured_as.startswith(says) for one in attention)
    assert found.totals.calibrated_seconds is not None


def test_a_kernel_like_none_that_was_measured_leaves_the_whole_uncalibrated(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opscope_tools.estimate_roofline.kernels._latents", lambda plain, *_: plain)
    found = estimate(context, "deepseek_v3", config=LATENTS)
    attention = [one for one in found.operators if one.operation == "sdpa"]
    assert attention
    assert all(one.calibrated_seconds is None and one.bound_seconds > 0 for one in attention)
    assert found.totals.calibrated_seconds is None
    assert any("No measured kernels are like sdpa of model.layers.*.self_attn" in said for said in found.notes)
    assert "other products" in {kind.name for kind in found.spent}


@pytest.mark.parametrize("precision", sampled([{"cache": "fp8"}, {"weights": "fp8_block"}, {"weights": "fp8"}, {"weights": "mxfp4"}, {"weights": "int4"}, {"weights": "nvfp4"}]))  # fmt: skip
@pytest.mark.parametrize("target", sampled(["mixtral", "llama"]))
def test_an_alternative_is_what_an_estimate_with_it_says(
    context: ToolContext, precision: dict[str, str], target: str
) -> None:
    ((kind, name),) = precision.items()
    values = {"batch_size": 32, "cache_len": 4096}
    large = {**SMALL, "hidden_size": 2048, "intermediate_size": 8192}
    large = {**large, "num_attention_heads": 32, "num_key_value_heads": 8}
    large = large if target == "llama" else {**large, "num_local_experts": 8, "num_experts_per_tok": 2}
    now = estimate(context, target, config=large, values=values)
    assert len(now.alternatives) > 3
    then = estimate(context, target, config=large, values=values, precision=precision)
    said = {one.name: one for one in now.alternatives}.get(f"{kind} {name}")
    if said is None:  # it saves nothing here, not even of the bound
        assert then.totals.bound_seconds >= now.totals.bound_seconds
        return
    bounds = now.totals.bound_seconds, then.totals.bound_seconds
    assert said.bound_share == pytest.approx(1 - bounds[1] / bounds[0], abs=0.0003)
    assert said.widened_to == ("" if "fp8" in name else "bf16")  # Hopper multiplies in eight bits, not in four
    if said.basis == "calibrated":
        bounds = now.totals.calibrated_seconds or 0, then.totals.calibrated_seconds or 0
    else:
        assert then.totals.calibrated_seconds is None
        assert said.unmeasured[0] == f"matrix products {name}"
        assert all(one.endswith(f" {name}") for one in said.unmeasured)
    assert said.seconds == pytest.approx(bounds[1], rel=0.01)
    assert said.saved_seconds == pytest.approx(bounds[0] - said.seconds)
    if (target, name) == ("llama", "fp8") and kind == "weights":
        off = []
        for one, units in ((now, "bf16"), (then, "fp8")):
            assert one.calibration is not None
            changed = [row for row in one.operators if row.kind == "matrix products" and "lm_head" not in row.module]
            took = sum(row.calibrated_seconds or 0 for row in changed)
            off.append(took * one.calibration.error[f"product {units} vllm"] / 100)
        assert said.error_share == pytest.approx(math.hypot(*off) / bounds[0], rel=0.01)
    for basis in ("calibrated", "bound"):
        saved = [one.saved_seconds for one in now.alternatives if one.basis == basis]
        assert saved == sorted(saved, reverse=True)


@pytest.mark.parametrize("device", sampled(["h100_sxm", "b200_sxm", "a100_sxm", "mi300x"], 3))
def test_an_alternative_compares_like_with_like_and_names_what_was_not_measured(
    context: ToolContext, device: str
) -> None:
    """Experts whose weights are most of what is read: measured in some precisions on each device, in none on one."""
    config = {**MIXTRAL, "hidden_size": 1024, "intermediate_size": 2048, "num_local_experts": 32}
    found = estimate(context, "mixtral", device, config=config, values={"batch_size": 32, "cache_len": 64})
    calibration = calibration_of(device)
    said = {one.name: one for one in found.alternatives}
    assert said["weights int4"].bound_share > 0.5
    for one in found.alternatives:
        precision = one.name.partition(" ")[2]
        both = calibration is not None and all(chosen(calibration, FORMS[f], precision) for f in ("product", "experts"))
        if one.name.startswith("weights"):
            assert (one.basis == "calibrated") == both
            assert bool(one.unmeasured) == (calibration is not None and not both)
        if one.basis == "bound":
            assert one.share == one.bound_share
        used = {
            by.backend
            for f in ("product", "experts")
            if calibration and (by := chosen(calibration, FORMS[f], precision))
        }
        if one.name.startswith("weights"):
            assert set(one.backends) == (used if one.basis == "calibrated" else set())


def test_another_backend_is_told_where_its_kernels_gain_and_these_do_not(context: ToolContext) -> None:
    config = {
        **MIXTRAL,
        "hidden_size": 2048,
        "intermediate_size": 768,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
    }
    values = {"batch_size": 64, "cache_len": 64}
    found = estimate(context, "mixtral", config=config, values=values)
    told = [one for one in found.alternatives if one.other_backend]
    assert told
    assert all(one.share <= one.error_share < one.other_share for one in told)
    for one in told:
        kind, precision = one.name.split(" ")
        if kind != "weights":
            continue
        alike: dict[str, Any] = {"config": config, "values": values, "backend": one.other_backend}
        narrow: dict[str, Any] = {"precision": {"weights": precision}}
        before = estimate(context, "mixtral", **alike)
        after = estimate(context, "mixtral", **alike, **narrow)
        took = before.totals.calibrated_seconds or 0, after.totals.calibrated_seconds or 0
        assert one.other_share == pytest.approx(1 - took[1] / took[0], abs=1e-3)


def test_what_a_change_saves_is_told_of_one_backend_before_and_after(context: ToolContext) -> None:
    wide = {**SMALL, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 11008}
    found = estimate(context, config=wide)
    others = [one for one in found.alternatives if one.basis == "calibrated" and "vllm" not in one.backends]
    assert others
    for one in others:
        (backend,) = one.backends
        as_it_is = estimate(context, config=wide, backend=backend).totals.calibrated_seconds
        assert one.seconds + one.saved_seconds == pytest.approx(as_it_is)
        assert one.share == pytest.approx(one.saved_seconds / (as_it_is or 1), abs=1e-4)


@given(
    st.sampled_from(["fp8", "fp8_block", "int4", "mxfp4", "nvfp4"]),
    st.sampled_from([8, 16, 128]),
    st.integers(0, 11).map(lambda power: 2**power),
    st.sampled_from(["h100_sxm", "b200_sxm", "a100_sxm", "mi300x"]),
)
def test_narrower_weights_save_what_their_bytes_take_where_memory_limits(
    precision: str, experts: int, tokens: int, device: str
) -> None:
    """Weights of experts that are touched, at the width of each precision by hand; less only where compute comes to limit."""
    hidden, inter, topk = 2048, 768, 4
    touched = experts * (1 - (1 - topk / experts) ** tokens)
    sizes = {"tokens": tokens, "hidden": hidden, "inter": inter, "topk": topk, "experts": experts, "tp": 1, "ep": 1, "matrices": 3,
             "skew": 1.01, "weight_bytes": 2.0}  # fmt: skip
    rest = 4.0 * tokens * hidden + tokens * topk * (4 * hidden + 6 * inter)
    weights = touched * 3 * hidden * inter
    flops = 6.0 * tokens * topk * hidden * inter
    kernel = Kernel("experts", "", "", 1, 1, flops, flops, rest + 2 * weights, form=FORMS["experts"], sizes=sizes)
    width = {"fp8": 1, "fp8_block": 1 + 4 / 128**2, "int4": 0.5 + 2 / 128, "mxfp4": 0.5 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
    held = shipped()[device]
    found = {one.name: one for one in alternatives([kernel], held, None, "vllm", math.inf, True)[0]}
    saved = weights * (2 - width[precision]) / held.bandwidth
    before = kernel.moved / held.bandwidth
    if flops / held.peak_flops["bf16"] < before:
        after = max(before - saved, flops / held.peak(precision)[0])
        said = found.get(f"weights {precision}")
        assert (said.saved_seconds if said else 0.0) == pytest.approx(before - after, rel=1e-6, abs=1e-12)


def test_projections_and_convolutions_outside_of_the_layers_stay_as_they_are(context: ToolContext) -> None:
    """Of two towers with a convolution before one and a projection behind each: weights by transformers' own model."""
    from transformers import CLIPConfig, CLIPModel

    found = estimate(context, "clip", phase="prefill", config=None, values={"batch_size": 1})
    with torch.device("meta"):
        model = CLIPModel(CLIPConfig())
    weights = sum(p.numel() for name, p in model.named_parameters() if p.ndim > 1 and ".layers." in name)
    (fp8,) = [one for one in found.alternatives if one.name == "weights fp8"]
    assert fp8.bound_share * found.totals.bound_seconds == pytest.approx(
        weights / shipped()["h100_sxm"].bandwidth, rel=0.002
    )


def test_depthwise_convolutions_are_timed_by_their_bytes_and_no_convolution_is_narrowed(context: ToolContext) -> None:
    """Weights of `Linear` modules by transformers' own model; each of its layers has one filter a channel."""
    from transformers import ConvNextConfig, ConvNextModel

    found = estimate(context, "convnext", phase="prefill", config=None, values={"batch_size": 1})
    with torch.device("meta"):
        model = ConvNextModel(ConvNextConfig())
    linears = [one.weight.numel() for one in model.modules() if isinstance(one, torch.nn.Linear)]
    (fp8,) = [one for one in found.alternatives if one.name == "weights fp8"]
    assert fp8.bound_share * found.totals.bound_seconds == pytest.approx(
        sum(linears) / shipped()["h100_sxm"].bandwidth, rel=0.01
    )
    rows = [row for row in found.operators if row.kind == "depthwise convolutions"]
    assert sum(row.count for row in rows) == 18
    moved, now = (sum(getattr(row, name) or 0 for row in rows) for name in ("bytes", "calibrated_seconds"))
    elementwise = [row for row in found.operators if row.operation == "gelu"]
    launch = elementwise[0].launch_seconds or 0
    rate = (elementwise[0].bytes) / ((elementwise[0].calibrated_seconds or 0) - launch)
    assert now == pytest.approx(18 * launch / elementwise[0].count + moved / rate)


def test_a_part_of_the_weights_is_told_where_it_saves_more_than_all_of_them(context: ToolContext) -> None:
    """As checkpoints store them that leave attention as it is; what an estimate of both says of the experts' kernels."""
    config = {**MIXTRAL, "hidden_size": 1024, "intermediate_size": 2048, "num_local_experts": 32}
    values = {"batch_size": 32, "cache_len": 64}
    now = estimate(context, "mixtral", config=config, values=values)
    said = {one.name: one for one in now.alternatives}
    parts = {name: one for name, one in said.items() if name.startswith(("experts", "dense"))}
    assert {"experts int4", "experts mxfp4"} <= parts.keys()  # of which all weights were not measured
    for name, one in parts.items():
        whole = said.get(f"weights {name.partition(' ')[2]}")
        assert one.basis == "calibrated"
        assert one.saved_seconds > (whole.saved_seconds if whole is not None and whole.basis == "calibrated" else 0)
    then = estimate(context, "mixtral", config=config, values=values, precision={"weights": "mxfp4"})
    took = [sum(row.calibrated_seconds or 0 for row in one.operators if row.kind == "experts") for one in (now, then)]
    assert said["experts mxfp4"].saved_seconds == pytest.approx(took[0] - took[1])


@pytest.mark.parametrize("target", sampled(["llama4_text", "llama", "gpt2", "phi3"]))
def test_narrower_weights_save_those_that_the_model_has_in_its_layers(context: ToolContext, target: str) -> None:
    """Weights of products by transformers' own model: of experts all, where all of them run on every token."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    given: dict[str, Any] = {
        "llama": SMALL,
        "llama4_text": {
            **SMALL,
            "head_dim": 32,
            "intermediate_size_mlp": 512,
            "num_local_experts": 8,
            "attention_chunk_size": 8192,
        },
        "gpt2": {"n_embd": 256, "n_layer": 3, "n_head": 8, "vocab_size": 1000},
        "phi3": {**SMALL, "pad_token_id": 0},
    }
    found = estimate(context, target, config=given[target], values={"batch_size": 1, "cache_len": 64})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[target](**given[target]))
    layers = [p for name, p in model.named_parameters() if p.ndim > 1 and not re.search(r"embed|wte|wpe|lm_head", name)]
    weights = sum(p.numel() for p in layers)
    saved = weights * (2 - 1) / shipped()["h100_sxm"].bandwidth
    (fp8,) = [one for one in found.alternatives if one.name == "weights fp8"]
    assert fp8.bound_share * found.totals.bound_seconds == pytest.approx(saved, rel=0.01)


@pytest.mark.parametrize(("target", "more"), sampled([
    ("llama4_text", {}), ("llama", {"precision": {"weights": "fp8"}}), ("llama4_text", {"precision": {"weights": "int4"}}),
    ("llama4_text", {"parallel": {"tp": 2}}), ("gpt2", {}), ("deepseek_v3", {}), ("deepseek_v3", {"parallel": {"tp": 4}}), ("mixtral", {}),
]))  # fmt: skip
def test_a_kernel_is_timed_at_the_sizes_at_which_it_moves_what_is_said(
    context: ToolContext, target: str, more: dict[str, Any]
) -> None:
    """Products with weights in a decode step, where weights are nearly all that moves; attention over a long context. Experts are chosen
    evenly in the bound and by a power law in the time: of them only the FLOPs."""
    tiny: dict[str, Any] = {
        "llama4_text": {**SMALL, "num_key_value_heads": 4, "head_dim": 32, "intermediate_size_mlp": 512, "num_local_experts": 8},
        "deepseek_v3": {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 512, "vocab_size": 1000,
                        "num_hidden_layers": 3, "moe_intermediate_size": 64, "n_routed_experts": 16, "n_group": 4, "first_k_dense_replace": 1},
        "mixtral": MIXTRAL, "gpt2": {}, "llama": SMALL,
    }  # fmt: skip
    given = {"config": tiny[target], "hardware": "h100_sxm", "target": target, "phase": "decode", **more}
    asked = RooflineArguments.model_validate(given)
    timing = timing_of(asked, {"batch_size": 1, "cache_len": 900}, context)
    kernels = timing.of.kernels(timing.at(batch_size=1, cache_len=900), Parallel.model_validate(asked.parallel or {}))
    held = [
        one
        for one in kernels
        if one.form is not None
        and one.sizes is not None
        and (one.joins or one.form.name != "product")
        and one.ranks == 1
    ]
    assert len(held) > 4
    for one in held:
        assert one.form is not None
        assert one.sizes is not None
        sizes = {**one.sizes, "h": one.sizes["h"] * one.sizes.get("new", 1)} if "h" in one.sizes else one.sizes
        flops, moved = one.form.work(sizes)
        assert flops == pytest.approx(one.matmul_flops, rel=0.02), one
        if one.form.name != "experts":
            assert moved == pytest.approx(one.moved, rel=0.15), one


def test_compute_limits_from_the_turning_batch_on_and_not_before(context: ToolContext) -> None:
    large = {**SMALL, "hidden_size": 2048, "intermediate_size": 8192}
    found = estimate(context, config=large, values={"batch_size": 8, "cache_len": 16}, hardware="l4")
    assert found.turning_batch is not None
    for batch, limit in ((found.turning_batch, "compute"), (found.turning_batch - 1, "memory")):
        there = estimate(context, config=large, values={"batch_size": batch, "cache_len": 16}, hardware="l4")
        spent = {"compute": 0.0, "memory": 0.0}
        for one in there.operators:
            spent[one.limited_by or "memory"] += one.bound_seconds
        assert max(spent, key=lambda name: spent[name]) == limit


def test_a_pass_of_small_kernels_is_limited_by_starting_them(context: ToolContext) -> None:
    """What they take however little they do, added up, is most of the time; not so with large weights."""
    wide = {**SMALL, "hidden_size": 4096, "intermediate_size": 16384}
    for config, starts in ((SMALL, True), (wide, False)):
        totals = estimate(context, config=config, values={"batch_size": 1, "cache_len": 96}).totals
        assert totals.calibrated_seconds is not None
        assert totals.launch_seconds is not None
        assert 0 < totals.launch_seconds < totals.calibrated_seconds
        assert (launches(totals) is not None) == starts


def test_a_decode_step_that_absorbs_its_latents_keeps_none_of_all_positions(context: ToolContext) -> None:
    latent = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 4, "vocab_size": 99, "kv_lora_rank": 24, "q_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12,
              "v_head_dim": 16, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}  # fmt: skip

    def kept(view: str, held: int) -> int:
        found = estimate(
            context,
            "deepseek_v3",
            phase="decode",
            config=latent,
            view=view,
            values={"batch_size": 1, "cache_len": held},
        )
        return found.memory.activation_bytes or 0

    expanded = 4 * (12 + 16) * 2  # keys and values of one position: heads, widths, bytes
    assert kept("eager", 4096) - kept("eager", 2048) >= 2048 * expanded
    assert kept("serving", 4096) == kept("serving", 2048) > 0


def test_what_one_kernel_of_an_engine_keeps_to_itself_is_in_no_memory(context: ToolContext) -> None:
    """Scores of all pairs of positions, and states of all positions, lie in memory in the eager pass alone."""

    def peak(target: str, config: dict[str, int], view: str, tokens: int) -> int:
        found = estimate(
            context, target, phase="prefill", config=config, view=view, values={"batch_size": 1, "seq_len": tokens}
        )
        assert found.memory.activation_bytes is not None
        return found.memory.activation_bytes

    def bend(view: str) -> float:
        bloom = {"hidden_size": 64, "n_layer": 2, "n_head": 8, "vocab_size": 99}
        return peak("bloom", bloom, view, 1200) - 2 * peak("bloom", bloom, view, 800) + peak("bloom", bloom, view, 400)

    pairs = 2 * 400**2  # the second difference of the square
    assert bend("eager") >= 2 * 2 * 8 * pairs  # scores and what comes of them, 8 heads of 2 bytes
    assert bend("serving") <= 8 * pairs  # masks, of all heads alike

    mamba = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 16}
    per_token = {
        view: (peak("falcon_mamba", mamba, view, 800) - peak("falcon_mamba", mamba, view, 400)) / 400
        for view in ("eager", "serving")
    }
    assert per_token["eager"] > 4 * 64 * 16  # an inner width of 64 with states of float32
    assert per_token["serving"] < 4 * 10 * 64
