"""Models of several parts: what a pass left out is said, and `phase="encode"` counts a tower, as a concrete run does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import trace_reference as reference
from opscope_schemas.analysis import ModuleAnalysisResult
from opscope_schemas.errors import TraceError
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from transformers import Gemma3Config

KIND = "transformers.models.gemma3.modeling_gemma3.Gemma3ForConditionalGeneration"
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64,
          "patch_size": 8}  # fmt: skip
TEXT = {"hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 999, "head_dim": 16}  # fmt: skip
CONFIG = {"text_config": TEXT, "vision_config": VISION, "mm_tokens_per_image": 16}
OVERRIDES: dict[str, Any] = {
    **{f"text_config.{k}": v for k, v in TEXT.items()}, **{f"vision_config.{k}": v for k, v in VISION.items()},
    "mm_tokens_per_image": 16,
}  # fmt: skip


def counted(
    context: ToolContext, phase: str, target: str = "Gemma3ForConditionalGeneration", config: Any = None
) -> ModuleAnalysisResult:
    given = {"target": target, "phase": phase, "config": config or OVERRIDES, "values": {"batch_size": 3, "seq_len": 7}}
    return count_flops(CostArguments.model_validate(given), context)


def test_a_pass_over_tokens_names_the_tower_that_did_not_run_and_where_it_is_counted(context: ToolContext) -> None:
    # the default tower has fewer patches a side than the text wants tokens, so no picture runs
    config = {name: value for name, value in OVERRIDES.items() if "size" not in name.partition("vision_config")[2]}
    config = {**config, "vision_config.image_size": 64, "vision_config.patch_size": 8, "mm_tokens_per_image": 256}
    whole = Gemma3Config(text_config=TEXT, vision_config={**VISION, "hidden_size": 768, "intermediate_size": 3072})
    model = reference.build(reference.Recipe(KIND, whole))
    size = sum(p.numel() for p in model.model.vision_tower.parameters())
    (note,) = (n for n in counted(context, "prefill", config=config).notes if "did not run" in n)
    assert note.startswith(
        f"Of Gemma3ForConditionalGeneration, model.vision_tower (SiglipVisionModel, {size:,} parameters)"
    )
    assert "phase='encode'" in note


def test_a_pass_with_a_picture_leaves_nothing_out(context: ToolContext) -> None:
    found = counted(context, "prefill")
    assert "pixel_values" in {given.name for given in found.document.model_inputs}
    assert not any("did not run" in note for note in found.notes)


def test_encode_counts_the_tower_and_its_projection_as_a_concrete_run_does(context: ToolContext) -> None:
    model = reference.build(reference.Recipe(KIND, Gemma3Config(**CONFIG)), "cpu")
    picture = torch.ones((3, 3, 64, 64), dtype=torch.bfloat16)
    ran = reference.walked(lambda: model.get_image_features(pixel_values=picture))
    found = counted(context, "encode")
    assert found.evaluated is not None
    assert (found.evaluated.flops, found.evaluated.matmul_flops) == (ran.flops, ran.products)
    assert (found.evaluated.memory_read, found.evaluated.memory_write) == (ran.read, ran.write)
    (note,) = (n for n in found.notes if "did not run" in n)
    assert "model.language_model" in note
    assert "vision_tower" not in note


def test_a_part_of_a_model_and_a_model_of_one_part_leave_nothing_out(context: ToolContext) -> None:
    mlp = counted(context, "prefill", "Gemma3MLP")
    assert not any("did not run" in note for note in mlp.notes)
    llama = count_flops(CostArguments.model_validate({"target": "llama", "config": {"num_hidden_layers": 3}}), context)
    assert not any("did not run" in note for note in llama.notes)


def test_a_model_without_an_encoder_or_a_tower_says_so(context: ToolContext) -> None:
    with pytest.raises(TraceError, match="no encoder beside a decoder, and no tower"):
        count_flops(CostArguments.model_validate({"target": "llama", "phase": "encode"}), context)
