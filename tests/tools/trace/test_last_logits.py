"""`logits="last"`: the pass that generation makes, held against concrete runs with `logits_to_keep=1`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import trace_reference as reference
from opscope_schemas.analysis import ModelAnalysisResult
from opscope_schemas.formula import Formula
from opscope_tools.costing.arguments import CostArguments, find
from opscope_tools.count_flops import count_flops
from opscope_tools.expand_refs import ExpandArguments, expand_refs
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.document import assignment
from opscope_tools.trace.heads import saved
from opscope_tools.trace.serving import kernels

SMALL = {"hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 999, "head_dim": 16}  # fmt: skip
POINT = {"batch_size": 3, "seq_len": 23}


def asked(context: ToolContext, model: str, logits: str, phase: str = "prefill", **values: int) -> ModelAnalysisResult:
    given = {"target": model, "phase": phase, "logits": logits, "config": SMALL, "values": {**POINT, **values}}
    return expand_refs(ExpandArguments.model_validate(given), context)


def run(model_type: str, **keep: Any) -> reference.Walk:
    kind = reference._class_of(model_type)
    recipe = reference.Recipe(f"{kind.__module__}.{kind.__qualname__}", reference.config_of(model_type, SMALL),
                              reference.attention_of(model_type))  # fmt: skip
    model = reference.build(recipe, "cpu")
    ids = torch.ones((POINT["batch_size"], POINT["seq_len"]), dtype=torch.int64)
    return reference.walked(lambda: model(input_ids=ids, use_cache=True, **keep))


@pytest.mark.parametrize("model", ["llama", "gemma2"])
def test_the_pass_with_the_last_logits_is_the_one_that_generation_runs(model: str, context: ToolContext) -> None:
    found = asked(context, model, "last")
    ran = run(model, logits_to_keep=1)
    assert found.evaluated is not None
    assert found.document.logits == "last"
    assert "Logits of the last position alone, as generation asks for them." in found.document.assumptions
    assert (found.evaluated.flops, found.evaluated.matmul_flops) == (ran.flops, ran.products)
    assert (found.evaluated.memory_read, found.evaluated.memory_write) == (ran.read, ran.write)
    assert not any(note.startswith("Logits of every position") for note in found.notes)


@pytest.mark.parametrize("model", ["llama", "gemma2"])
def test_the_note_beside_all_logits_says_exactly_what_the_last_ones_save(model: str, context: ToolContext) -> None:
    whole, last = asked(context, model, "all"), asked(context, model, "last")
    assert whole.evaluated is not None
    assert last.evaluated is not None
    less = whole.evaluated.flops - last.evaluated.flops
    assert less >= 2 * 3 * 22 * 64 * 999
    (note,) = (note for note in whole.notes if note.startswith("Logits of every position"))
    assert f": {less:,} of {whole.evaluated.flops:,} here." in note


def test_decoding_one_token_has_nothing_to_save(context: ToolContext) -> None:
    found = asked(context, "llama", "all", "decode", seq_len=1, cache_len=9)
    assert not any("Logits of every position" in note for note in found.notes)


def test_a_forward_that_cannot_leave_logits_out_says_so_and_computes_all(context: ToolContext) -> None:
    given = {"target": "WhisperForConditionalGeneration", "logits": "last", "values": {"batch_size": 1, "seq_len": 4}}
    last = count_flops(CostArguments.model_validate(given), context)
    every = count_flops(CostArguments.model_validate({**given, "logits": "all"}), context)
    (said,) = (text for text in last.document.assumptions if "logits_to_keep" in text)
    assert said.startswith("The forward of WhisperForConditionalGeneration has no logits_to_keep")
    assert last.evaluated == every.evaluated


def test_a_part_of_a_model_says_nothing_of_logits_that_it_does_not_make(context: ToolContext) -> None:
    found = find(CostArguments.model_validate({"target": "LlamaMLP"}), context)
    assert saved(found.tree, found.call) is None


def test_a_model_without_a_head_says_nothing_of_logits(context: ToolContext) -> None:
    small = {"hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": 4}
    found = count_flops(CostArguments.model_validate({"target": "vit", "logits": "last", "config": small}), context)
    assert not any("logits" in assumption for assumption in found.document.assumptions)


def test_the_last_norm_writes_every_row_that_it_reads(context: ToolContext) -> None:
    given = {"target": "llama", "logits": "last", "config": SMALL}
    found = find(CostArguments.model_validate(given), context)
    point = assignment(found.tree.trace.variables, found.tree.trace.point)
    last = [k for k in kernels(found.tree, found.call) if k.rule == "fused norm"][-1]
    assert last.repeat == Formula.const(1)
    states = point["batch_size"] * point["seq_len"] * SMALL["hidden_size"] * point["a_bytes"]
    assert last.cost.write.evaluate(point) == states
    assert last.cost.read.evaluate(point) == states + SMALL["hidden_size"] * point["w_bytes"]
