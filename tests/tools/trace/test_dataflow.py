"""The operator graph against a run on real tensors: dependencies, the peak of activations, the cache, byte for byte."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from opscope_schemas.dataflow import DataflowResult
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import evaluate
from opscope_schemas.units import plain_bytes
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline
from opscope_tools.expand_refs import ExpandArguments, expand_refs
from opscope_tools.inspect_model import InspectArguments, inspect_model
from opscope_tools.report.crossing import Crossed, crossing_said
from opscope_tools.report.memory import held_by_append
from opscope_tools.report.tasks import tasks
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace_dataflow import DataflowArguments, trace_dataflow
from sampled import sampled

REFERENCE = Path(__file__).parents[2] / "support" / "dataflow_reference.py"
SMALL = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 96, "vocab_size": 100,
    "max_position_embeddings": 128,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", GROUPED),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_head": 4, "n_layer": 3, "vocab_size": 100, "n_positions": 128}),
    # layers of two kinds, one of which keeps a window
    "gemma2": ("Gemma2ForCausalLM", {**GROUPED, "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16}),
    "olmo2": ("Olmo2ForCausalLM", GROUPED),
    "phi": ("PhiForCausalLM", SMALL),
    # names that are bound anew while layers run, and a layer that flattens what it is given
    "opt": (
        "OPTForCausalLM",
        {
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_hidden_layers": 3,
            "ffn_dim": 96,
            "vocab_size": 100,
            "max_position_embeddings": 128,
            "word_embed_proj_dim": 64,
        },
    ),
    "bloom": ("BloomForCausalLM", {"hidden_size": 64, "n_head": 4, "n_layer": 3, "vocab_size": 100}),
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    # hooks on parts of layers collect what those give
    "gpt2 with attentions": (
        "GPT2LMHeadModel",
        {"n_embd": 64, "n_head": 4, "n_layer": 5, "vocab_size": 100, "n_positions": 128, "output_attentions": True},
    ),
    "llama with states": ("LlamaForCausalLM", {**GROUPED, "num_hidden_layers": 5, "output_hidden_states": True}),
    "bert": ("BertModel", SMALL),
    # a state in place of a cache of keys and values
    "falcon_mamba": (
        "FalconMambaForCausalLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "vocab_size": 100,
            "state_size": 4,
            "time_step_rank": 2,
            "intermediate_size": 48,
        },
    ),
}
LAYERS = {"gpt2": "n_layer"}
#: what a model type is called where a case has another name
TYPES = {"gpt2 with attentions": "gpt2", "llama with states": "llama"}
VALUES = {
    "prefill": {"batch_size": 2, "seq_len": 24},
    "decode": {"batch_size": 2, "seq_len": 3, "cache_len": 40},
    "one sequence": {"batch_size": 1, "seq_len": 24},
    "one token": {"batch_size": 1, "seq_len": 1, "cache_len": 40},
    "long cache": {"batch_size": 2, "seq_len": 1, "cache_len": 100},
}
PHASE = {"one sequence": "prefill", "one token": "decode"}
CASES = [(name, phase) for name in MODELS if name not in {"bert", "falcon_mamba"} for phase in ("prefill", "decode")]
CASES += [("falcon_mamba", "prefill"), ("llama", "one sequence"), ("llama", "one token")]


def flow(context: ToolContext, target: str, **options: Any) -> DataflowResult:
    return trace_dataflow(DataflowArguments(target=target, **options), context)


def request(model_type: str, phase: str = "prefill", changes: dict[str, Any] | None = None) -> dict[str, Any]:
    class_name, config = MODELS[model_type]
    asked: dict[str, Any] = {
        "model_type": TYPES.get(model_type, model_type), "class": class_name, "config": {**config, **(changes or {})},
        "inputs": {"input_ids": [VALUES[phase]["batch_size"], VALUES[phase]["seq_len"]]},
    }  # fmt: skip
    cached = VALUES[phase].get("cache_len")
    asked |= {"fill": [VALUES[phase]["batch_size"], cached]} if cached else {}
    return asked | ({} if model_type == "bert" else {"options": {"use_cache": True}})


REQUESTS = {
    **{(name, phase): request(name, phase) for name, phase in CASES},
    **{
        (name, "single"): request(name, changes={LAYERS.get(name, "num_hidden_layers"): 1})
        for name in ("llama", "gpt2", "phi")
    },
    ("bert", "prefill"): request("bert"),
    **{(name, "long cache"): request(name, "long cache") for name in ("gpt2", "bloom")},
}


@pytest.fixture(scope="module")
def real() -> dict[tuple[str, str], Any]:
    """What runs on real tensors say."""
    command = [sys.executable, str(REFERENCE), json.dumps(list(REQUESTS.values()))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(REQUESTS, json.loads(done.stdout), strict=True))


def test_what_engines_hold_of_experts_lies_between_their_products(context: ToolContext) -> None:
    """Rows are taken from where they lie and summed in one pass: neither is in memory once for each expert that a token meets."""
    config = {**GROUPED, "intermediate_size": 32, "num_local_experts": 16}

    def held(chosen: int) -> int:
        asked = RooflineArguments(
            target="MixtralForCausalLM", hardware="h100_sxm", phase="prefill", config={**config, "num_experts_per_tok": chosen},
            values={"batch_size": 1, "seq_len": 64},
        )  # fmt: skip
        found = estimate_roofline(asked, context).memory.activation_bytes
        assert found is not None
        return found

    rows, hidden, inner = 2 * 64, 64, 32
    most = max(2 * inner + inner, inner + hidden)  # gate and up beside their product, or that beside what comes out
    beside = 8 + 2 + 2  # each row's place, and the weight of its expert as chosen and as scaled
    assert held(8) - held(6) == rows * (most * 2 + beside)


def test_a_prefill_past_its_window_says_what_differs(context: ToolContext) -> None:
    class_name, config = MODELS["gemma2"]
    within, past = (
        flow(context, class_name, config=config, values={"batch_size": 2, "seq_len": tokens}, attention="sdpa")
        for tokens in (4, 24)
    )
    assert within.evaluated is not None
    assert past.evaluated is not None
    crossed = Crossed(past.document, past.evaluated.values, 8, 24)
    said = crossing_said(within.document, within.evaluated.values, crossed)
    assert said.startswith("A prefill of 24 tokens, past the window of 8, runs otherwise")
    kept = past.evaluated.cache_after
    assert kept is not None
    tokens, layer = 24 * 2, 2 * 2 * 16 * 2  # of both sequences; keys and values of two heads, 16 wide
    assert f"the {plain_bytes(kept)} of cache" in said
    assert f"{plain_bytes(3 * tokens * layer)} stay in memory" in said
    itself = Crossed(within.document, within.evaluated.values, 8, 4)
    assert not crossing_said(within.document, within.evaluated.values, itself)


@pytest.mark.parametrize("name", ["gpt2", "bloom"])
def test_an_append_to_a_cache_holds_the_old_beside_the_new(
    context: ToolContext, real: dict[tuple[str, str], Any], name: str
) -> None:
    class_name, config = MODELS[name]
    found = flow(context, class_name, phase="decode", config=config, values=VALUES["long cache"], attention="eager")
    assert found.evaluated is not None
    values = found.evaluated.values
    append = held_by_append(found.document, values)
    assert append is not None
    run = real[name, "long cache"]
    peak = max(evaluate(one.bytes, values) for one in found.document.peaks)
    assert max(append[2], peak) == run["whole"] - run["cache"]
    assert append[2] > peak  # keys of all heads are kept, and none are repeated


@pytest.mark.parametrize(("name", "phase"), sampled(CASES, every=2))
def test_peak_and_cache_are_those_of_a_run_on_real_tensors(
    context: ToolContext, real: dict[tuple[str, str], Any], name: str, phase: Any
) -> None:
    class_name, config = MODELS[name]
    values = VALUES[phase]
    found = flow(context, class_name, phase=PHASE.get(phase, phase), config=config, values=values, attention="eager")
    run = real[name, phase]
    assert found.evaluated is not None
    assert (found.evaluated.peak_activations, found.evaluated.cache_after) == (run["peak"], run["cache"])
    cache = found.document.cache
    assert cache is not None
    assert evaluate(cache.memory or cache.after, found.evaluated.values) == run["beneath"]
    peak = next(p for p in found.document.peaks if p.operator == found.evaluated.peak_operator)
    sizes = {t.id: evaluate(t.bytes, found.evaluated.values) for t in found.document.tensors}
    assert sum(sizes[i] for i in peak.tensors) == run["peak"]


@pytest.mark.parametrize("name", ["llama", "gpt2", "phi"])
def test_every_dependency_is_one_of_a_run_on_real_tensors(
    context: ToolContext, real: dict[tuple[str, str], Any], name: str
) -> None:
    single = REQUESTS[name, "single"]["config"]
    found = flow(context, MODELS[name][0], config=single, values=VALUES["prefill"], attention="eager")
    operators = found.document.operators
    names = {o.id: o.operator for o in operators}
    assert Counter((names[d], o.operator) for o in operators for d in o.depends_on) == Counter(
        (a, b) for a, b in real[name, "single"]["edges"]
    )


def test_a_model_without_a_cache_keeps_none(context: ToolContext, real: dict[tuple[str, str], Any]) -> None:
    found = flow(context, "BertModel", config=SMALL, values=VALUES["prefill"], attention="eager")
    assert found.document.cache is None
    assert found.evaluated is not None
    assert found.evaluated.peak_activations == real["bert", "prefill"]["peak"]


def test_projections_of_an_attention_are_independent(context: ToolContext) -> None:
    operators = flow(context, "LlamaAttention").document.operators
    three = [o for o in operators if o.module in ("q_proj", "k_proj", "v_proj")]
    assert len({o.level for o in three}) == 1
    assert not any(set(o.depends_on) & {p.id for p in three} for o in three)


def test_a_layer_reads_what_the_layer_before_it_wrote(context: ToolContext) -> None:
    operators = flow(context, "llama").document.operators
    last = max(o.id for o in operators if o.module == "model.layers.*")
    readers = [o for o in operators if o.carried_from]
    assert {o.carried_from for o in readers} == {(last,)}
    assert {o.module for o in readers} == {"model.layers.*.input_layernorm", "model.layers.*"}


def test_the_cache_grows_by_keys_and_values_of_all_layers(context: ToolContext) -> None:
    cache = flow(context, "llama", phase="decode").document.cache
    assert cache is not None
    sizes = {
        "num_layers": 5, "batch_size": 3, "num_kv_heads": 2, "head_dim": 16, "kv_bytes": 2, "cache_len": 7, "seq_len": 1,
    }  # fmt: skip
    assert evaluate(cache.per_token, sizes) == 2 * 5 * 3 * 2 * 16 * 2
    assert evaluate(cache.after, sizes) - evaluate(cache.before, sizes) == 2 * 5 * 3 * 2 * 16 * 2


def test_plans_name_what_a_split_communicates(context: ToolContext) -> None:
    found = flow(context, "llama")
    tensor = next(s for s in found.parallelism if s.kind == "tensor")
    assert tensor.found
    rows = [c for c in found.communication if c.primitive.startswith("all_reduce")]
    sizes = {"batch_size": 1, "seq_len": 8, "hidden_size": 64, "a_bytes": 2, "num_layers": 4}
    assert {evaluate(c.bytes, sizes) for c in rows} == {8 * 64 * 2}
    assert {evaluate(c.calls, sizes) for c in rows} == {1, 4}  # the table of tokens, and each layer


#: alone, with experts, as parts of models of pictures and sounds, and as an encoder beside a decoder
WITH_PLANS = [
    "paligemma", "llava", "llama", "qwen2_audio", "qwen2_5_vl", "phi3", "t5gemma", "gemma3", "idefics3", "qwen3_moe", "internvl", "gpt_neox",
    "deepseek_v3",
]  # fmt: skip


def built(model_type: str, class_name: str) -> Any:
    """The model without memory for its weights."""
    import torch
    from transformers import CONFIG_MAPPING

    module, _, name = class_name.rpartition(".")
    with torch.device("meta"):
        return getattr(importlib.import_module(module), name)(CONFIG_MAPPING[model_type]())


@pytest.mark.parametrize("model_type", sampled(WITH_PLANS))
def test_the_plan_is_that_of_the_built_model(context: ToolContext, model_type: str) -> None:
    """As transformers puts it together from the model's configurations: `tp_plan` of the model, for what of it is there."""
    found = flow(context, model_type, phase="prefill")
    model = built(model_type, found.document.class_name)
    parts = {re.sub(r"\.\d+(?=\.)", ".*", part) for part, _ in (*model.named_modules(), *model.named_parameters())}
    told = [
        row for row in found.communication if row.when == "when the tp plan is applied" and "pass" not in row.primitive
    ]
    pairs = [re.findall("`([^`]+)`", row.what) for row in told]
    ours = {part: style for pattern, style in pairs for part in parts if f".{part}".endswith(f".{pattern}")}
    assert ours == {part: style for part, style in model.tp_plan.items() if part in parts}
    assert len(ours) > 4


@pytest.mark.parametrize("model_type", sampled(["gpt_neox", "llama", "gpt2", "paligemma", "mamba", "siglip", "gemma2"]))
def test_stages_are_told_as_the_library_cuts_the_built_model(
    context: ToolContext, model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own function is run, for the second of three stages, which have no lists of layers but that of the model below the head."""
    import torch.distributed
    from transformers.distributed.pipeline_parallel import apply_pipeline_parallelism

    found = flow(context, model_type, phase="prefill")
    model = built(model_type, found.document.class_name)
    before, mesh = (
        dict(model.named_modules()),
        SimpleNamespace(get_local_rank=lambda: 1, size=lambda: 3, get_group=lambda: None),
    )
    monkeypatch.setattr(torch.distributed, "get_backend", lambda _: "nccl")
    try:
        cuts = apply_pipeline_parallelism(model, mesh) is model
    except AttributeError:
        cuts = False
    (pipeline,) = [one for one in found.parallelism if one.kind == "pipeline"]
    said = next((place.text for place in pipeline.places), pipeline.searched).partition("; searched")[0]
    assert ("` by the number of layers" in said, "which this model does not have" in said) == (cuts, not cuts)
    added = {name for name, _ in model.named_modules() if name not in before}
    assert set(re.findall("`([^`]+)`", said.partition("in place of")[2])) == added
    assert pipeline.found == bool(model.pp_plan)
    for place in pipeline.places[:1]:
        _, file = context.workspace.resolve_inside(place.file)
        assert ("def apply_pipeline_parallelism" if cuts else ".layers") in file.read_text().split("\n")[place.line - 1]
    sent = {row.primitive.split()[0]: row for row in found.communication if "into stages" in row.when}
    if not (cuts and pipeline.found):
        assert not sent
        return
    sizes = {variable.name: variable.default for variable in found.document.variables if variable.default is not None}
    sizes |= {"batch_size": 2, "seq_len": 8, "a_bytes": 2}
    widths = {"send": model.config.hidden_size, "broadcast": model.config.vocab_size}
    assert {kind: evaluate(row.bytes, sizes) for kind, row in sent.items()} == {
        kind: 2 * 8 * width * 2 for kind, width in widths.items()
    }


def test_experts_on_several_ranks_exchange_the_rows_of_their_tokens(context: ToolContext) -> None:
    config = {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}
    found = flow(context, "MixtralForCausalLM", config=config, values={"batch_size": 2, "seq_len": 8})
    plans = [c for c in found.communication if "ep_dispatch_experts" in c.what]
    assert next(s for s in found.parallelism if s.kind == "expert").found
    shared, exchanged = plans
    assert shared.primitive.startswith("all_reduce")
    assert exchanged.primitive.startswith("all_to_all")
    sizes = {
        "batch_size": 2, "seq_len": 8, "hidden_size": 64, "a_bytes": 2, "num_layers": 3, "num_experts": 4,
        "num_experts_per_tok": 2,
    }  # fmt: skip
    # all_reduce: a row of 64 for each of 2 * 8 tokens; all_to_all: one for each of a token's 2 experts, there and back, and
    # how many rows go to each of the 4 experts as an int64
    assert evaluate(shared.bytes, sizes) == 2 * 8 * 64 * 2
    assert evaluate(exchanged.bytes, sizes) == 2 * (2 * 8 * 2) * 64 * 2 + 4 * 8
    assert {evaluate(c.calls, sizes) for c in plans} == {3}
    lines = (context.workspace.resolve_inside(shared.file)[1]).read_text().split("\n")
    assert "ep_dispatch_experts" in lines[shared.line - 1]


def test_an_unknown_variable_is_refused_by_name(context: ToolContext) -> None:
    with pytest.raises(ValuesError, match="sequence_length"):
        flow(context, "llama", values={"sequence_length": 4})


# ---- layers of two kinds that alternate: the first keeps a window of 8 tokens, the second all

ALTERNATING = {
    **GROUPED, "num_hidden_layers": 4, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
}  # fmt: skip
#: keys and values, 2 heads of 16, 2 bytes each
ROW = 2 * 2 * 16 * 2


def test_a_plan_counts_the_calls_of_layers_of_every_kind(context: ToolContext) -> None:
    found = flow(context, "gpt_oss", config=ALTERNATING, values={"batch_size": 2, "seq_len": 6})
    rows = [c for c in found.communication if "ep_dispatch_experts" in c.what]
    assert {c.primitive.partition(" ")[0] for c in rows} == {"all_reduce", "all_to_all"}
    assert [evaluate(c.calls, {"num_layers": 4}) for c in rows] == [4, 4]


def test_layers_that_alternate_read_the_layer_before_them_once(context: ToolContext) -> None:
    operators = flow(context, "gpt_oss", config=ALTERNATING, values={"batch_size": 2, "seq_len": 6}).document.operators
    last = [o.id for o in operators if o.operator == "aten.add" and o.module == "model.layers.*"]
    assert len(last) == 4  # two residual additions in each kind of layer
    carried = {o.id: o.carried_from for o in operators if o.carried_from}
    assert set(carried.values()) == {(last[-1],)}
    assert (
        max(carried) < last[1]
    )  # the second kind reads the first kind's result in each repetition, and no earlier one


@pytest.mark.parametrize("batch", [1, 2])
def test_a_full_window_keeps_no_more_tokens_after_prefill(context: ToolContext, batch: int) -> None:
    found = flow(context, "gpt_oss", config=ALTERNATING, values={"batch_size": batch, "seq_len": 20}).evaluated
    assert found is not None
    assert found.cache_after == batch * ROW * (2 * 7 + 2 * 20)
    assert found.cache_per_token == batch * ROW * 2


@pytest.mark.parametrize(("cached", "growing"), [(4, 4), (20, 2)])
@pytest.mark.parametrize("batch", sampled([3, 1]))
def test_one_more_token_grows_the_layers_whose_window_is_not_full(
    context: ToolContext, cached: int, growing: int, batch: int
) -> None:
    values = {"batch_size": batch, "seq_len": 1, "cache_len": cached}
    found = flow(context, "gpt_oss", phase="decode", config=ALTERNATING, values=values).evaluated
    assert found is not None
    assert found.cache_per_token == batch * ROW * growing


@pytest.mark.parametrize(("model_type", "fitting"), [("llama", "3 entries"), ("gpt2", "")])
def test_a_plan_that_every_configuration_inherits_counts_where_its_modules_are_there(
    context: ToolContext, model_type: str, fitting: str
) -> None:
    data = next(s for s in flow(context, model_type).parallelism if s.kind == "data")
    inherited = [place for place in data.places if place.file == "transformers/configuration_utils.py"]
    assert [fitting in place.text for place in inherited] == ([True] if fitting else [])


def test_the_table_that_is_added_to_every_tensor_plan_is_reduced(context: ToolContext) -> None:
    told = [
        c for c in flow(context, "llama").communication if "embed_tokens" in c.what and "weights" not in c.primitive
    ]
    assert [(c.primitive.split()[0], c.bytes) for c in told] == [
        ("all_reduce", "{batch_size} * {seq_len} * {hidden_size} * {a_bytes}")
    ]


@pytest.mark.parametrize(
    ("target", "tied", "said"),
    [
        ("llama", True, ["`embed_tokens` split as `keep_full_weight`"]),
        ("llama", False, ["`embed_tokens` split as `free_full_weight`", "`lm_head` split as `keep_full_weight`"]),
        # no entry for the head: the table is wrapped with the whole
        ("lfm2_vl", True, ["what no entry names split as the root"]),
        # layers of two kinds, which have other weights
        pytest.param(
            "qwen3_next", False, ["`embed_tokens` split as `free_full_weight`", "`lm_head` split as `keep_full_weight`"],
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_ranks_that_keep_a_part_gather_each_weight_once(
    context: ToolContext, target: str, tied: bool, said: list[str]
) -> None:
    """As transformers resolves the plan: the entry of a head that is the table of tokens is the table's."""
    config: dict[str, Any] = {**SMALL, "tie_word_embeddings": tied} if target == "llama" else {}
    held = inspect_model(InspectArguments(model=target, config=config), context).parameters
    found = flow(context, target, config=config, phase="prefill")
    values = {v.name: v.default for v in found.document.variables if v.default is not None}
    rows = [row for row in found.communication if row.primitive.startswith("all_gather of its weights")]
    assert sum(evaluate(row.bytes, {"w_bytes": 1}) * evaluate(row.calls, values) for row in rows) == held
    assert [
        row.what for row in rows if "embed_tokens" in row.what or "lm_head" in row.what or "no entry" in row.what
    ] == said


def test_what_a_model_returns_is_named_as_its_result_names_it(context: ToolContext) -> None:
    """What an output class holds inside another one too."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {
        "text_config": {**sizes, "vocab_size": 99, "max_position_embeddings": 16},
        "vision_config": {**sizes, "image_size": 32, "patch_size": 16},
    }
    given = {"target": "siglip", "phase": "prefill", "config": config, "values": {"batch_size": 1, "seq_len": 8}}
    document = trace_dataflow(DataflowArguments.model_validate(given), context).document
    names = {t.name for t in document.tensors if t.kind == "output"}
    of_towers = {
        f"{tower}_model_output.{name}"
        for tower in ("text", "vision")
        for name in ("last_hidden_state", "pooler_output")
    }
    assert names == {"logits_per_image", "text_embeds", "image_embeds", *of_towers}
    assert not any(t.name for t in document.tensors if t.kind != "output")


def test_what_a_layer_reads_last_is_no_output_of_the_pass(context: ToolContext) -> None:
    """Deberta ends with its last layer: the mask that this reads is let go, and the states that it makes are returned."""
    config = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": 99, "pos_att_type": ["c2p", "p2c"], "relative_attention": True}  # fmt: skip
    asked = DataflowArguments.model_validate({"target": "deberta-v2", "config": config})
    flow = trace_dataflow(asked, context).document
    model = transformers.DebertaV2Model(transformers.DebertaV2Config(**config)).eval()
    with torch.no_grad():
        returned = model(torch.ones(2, 7, dtype=torch.int64))
    assert [len(t.shape) for t in flow.tensors if t.kind == "output"] == [t.dim() for t in returned.values()]


def test_products_of_one_line_with_different_weights_are_two_tasks(context: ToolContext) -> None:
    """Of a pooling head's queries and of its result, both in torch's attention: no task reads what a later one makes."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    text, vision = (
        {**sizes, "vocab_size": 99, "max_position_embeddings": 16},
        {**sizes, "image_size": 32, "patch_size": 16},
    )
    config, values = {"text_config": text, "vision_config": vision}, {"batch_size": 1, "seq_len": 8}
    asked = {"target": "siglip", "config": config, "values": values}
    flow = trace_dataflow(DataflowArguments.model_validate(asked), context).document
    document = expand_refs(ExpandArguments.model_validate(asked), context).document
    pooling = [o.weights for o in flow.operators if o.operator == "aten.addmm" and o.module.endswith("head.attention")]
    assert set(pooling[0]) == {"in_proj_bias", "in_proj_weight"}
    assert set(pooling[-1]) == {"out_proj.bias", "out_proj.weight"}
    assert all(number < task.number for task in tasks(document, flow) for number in (*task.after, *task.again))
