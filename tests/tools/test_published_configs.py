"""A whole published configuration is taken as it is; what nothing reads of it is said; a misspelt override is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opscope_schemas.errors import ConfigError
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.inspect_model import InspectArguments, inspect_model
from opscope_tools.running.tool import ToolContext

#: of Qwen/Qwen3-30B-A3B, but for how many layers and rows of the vocabulary there are; bogus is ours
PUBLISHED: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1,
    "decoder_sparse_step": 1, "eos_token_id": 2, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
    "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": True,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 2,
    "num_key_value_heads": 4, "output_router_logits": False, "rms_norm_eps": 1e-06, "rope_scaling": None,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": None, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 1000, "bogus": 48,
}  # fmt: skip
#: weights of a layer: attention with heads of 128 (and not hidden_size / heads = 64), its norms, router, experts
_LAYER = 2 * 2048 * 32 * 128 + 2 * 2048 * 4 * 128 + 2 * 128 + 2 * 2048 + 128 * 2048 + 128 * 3 * 2048 * 768
WEIGHTS = 2 * _LAYER + 2 * 1000 * 2048 + 2048


def _notes(context: ToolContext, model: str, config: dict[str, Any] | str) -> str:
    return " ".join(inspect_model(InspectArguments(model=model, config=config), context).notes)


def test_fields_that_only_code_reads_count(context: ToolContext) -> None:
    tree = inspect_model(InspectArguments(model="qwen3_moe", config=PUBLISHED), context)
    assert tree.parameters == WEIGHTS


def test_what_nothing_reads_is_listed_as_ignored_and_nothing_else_is(context: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(PUBLISHED))
    for given in (PUBLISHED, str(file)):
        said = _notes(context, "qwen3_moe", given)
        assert {"max_window_layers", "bogus"} == set(said.rpartition(": ")[2].rstrip(".").split(", "))


def test_how_attention_and_experts_run_is_told_as_it_is_followed(context: ToolContext) -> None:
    small = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 99, "num_experts": 8,
             "num_experts_per_tok": 2, "moe_intermediate_size": 16}  # fmt: skip

    def decoded(**more: str) -> tuple[int, str]:
        given = {"target": "qwen3_moe", "phase": "decode", "config": {**small, **more},
                 "values": {"batch_size": 3, "seq_len": 1, "cache_len": 9}}  # fmt: skip
        found = count_flops(CostArguments.model_validate(given), context)
        assert found.evaluated is not None
        return found.evaluated.memory_write, " ".join((*found.document.assumptions, *found.notes))

    (written, plain), (batched, said), (as_before, other) = (
        decoded(), decoded(experts_implementation="batched_mm"), decoded(_attn_implementation="eager")
    )  # fmt: skip
    copies = 2 * 3 * 2 * 3 * 64 * 16 * 2  # 2 layers, 3 tokens of 2 experts each, 3 matrices
    assert batched - written > 0.9 * copies  # less what sorts tokens for the grouped products
    assert "`generate` decodes otherwise on a GPU" in plain
    assert "Ignored" not in plain + said
    assert "grouped" not in said
    assert as_before == written
    assert "is told by attention= how attention runs: _attn_implementation" in other


def test_what_nothing_reads_is_no_size_of_the_model(context: ToolContext) -> None:
    found = count_flops(CostArguments(target="qwen3_moe", config=PUBLISHED), context)
    assert not {"bogus", "max_window_layers"} & {v.name for v in found.document.variables}
    assert any("bogus" in assumption for assumption in found.document.assumptions)
    assert any("bogus" in note for note in found.notes)  # an answer in numbers has no assumptions


def test_a_handful_of_overrides_may_hold_what_code_reads(context: ToolContext) -> None:
    without = inspect_model(InspectArguments(model="qwen3_moe"), context).parameters
    assert inspect_model(InspectArguments(model="qwen3_moe", config={"head_dim": 128}), context).parameters > without
    assert "Ignored" not in _notes(context, "qwen3_moe", {"head_dim": 128, "rope_theta": 10_000.0})


@pytest.mark.parametrize(("name", "near"), [("head_dimm", "head_dim"), ("hiden_size", "hidden_size"), ("bogus", "")])
def test_a_misspelt_override_is_refused_with_the_nearest_name(context: ToolContext, name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"has no field '{name}'") as found:
        inspect_model(InspectArguments(model="qwen3_moe", config={name: 128}), context)
    assert near in str(found.value.next_step)


def test_most_of_a_configuration_is_a_whole_one_without_its_model_type(context: ToolContext) -> None:
    most = {name: value for name, value in PUBLISHED.items() if name not in ("model_type", "architectures")}
    assert "bogus" in _notes(context, "qwen3_moe", most)


def test_a_file_of_something_else_shows_no_name_that_it_holds(context: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"database_password": "x", "hidden_size": 64}))
    said = _notes(context, "llama", str(file))
    assert "database_password" not in said
    assert "1 more" in said
