"""How many experts uniform routing is expected to read, against drawing lots."""

from __future__ import annotations

import random
from fractions import Fraction
from statistics import mean, stdev

import pytest
from opscope_schemas.analysis import ModuleAnalysisResult
from opscope_schemas.formula import Formula
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.routing import Routing

EXPERTS, CHOSEN, HIDDEN, INNER, LAYERS = 16, 3, 64, 48, 3
SMALL = {"hidden_size": HIDDEN, "moe_intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_experts": EXPERTS,
         "num_experts_per_tok": CHOSEN, "vocab_size": 99, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "mlp_only_layers": [], "decoder_sparse_step": 1}  # fmt: skip


def counted(context: ToolContext, target: str = "qwen3_moe", **values: int) -> ModuleAnalysisResult:
    given = {"target": target, "phase": "decode", "config": SMALL, "values": {"cache_len": 9, **values}}
    return count_flops(CostArguments.model_validate(given), context)


def drawn(tokens: int, draws: int = 3000) -> list[int]:
    lots = random.Random(7)
    return [len({e for _ in range(tokens) for e in lots.sample(range(EXPERTS), CHOSEN)}) for _ in range(draws)]


@pytest.mark.parametrize("batch", [1, 2, 5, 11])
def test_the_experts_expected_are_those_that_drawing_finds(batch: int, context: ToolContext) -> None:
    found = counted(context, batch_size=batch).expected
    lots = drawn(batch)
    assert found is not None
    error = stdev(lots) / len(lots) ** 0.5
    assert abs(mean(lots) - found.experts_read) <= 4 * error + 1e-9
    assert found.bound == min(EXPERTS, batch * CHOSEN)
    assert found.bound >= max(lots)


@pytest.mark.parametrize("batch", [2, 5, 700])
def test_the_bytes_expected_differ_from_the_bound_by_the_experts_between(batch: int, context: ToolContext) -> None:
    answer = counted(context, batch_size=batch)
    found = answer.expected
    assert found is not None
    assert answer.evaluated is not None
    exact = EXPERTS * (1 - (1 - Fraction(CHOSEN, EXPERTS)) ** batch)
    one = LAYERS * 3 * HIDDEN * INNER * 2  # gate, up and down projection in two bytes each
    assert answer.evaluated.memory_read - found.memory_read == pytest.approx(float((found.bound - exact) * one), abs=1)


def test_the_note_says_both_formulas_and_which_one_totals_use(context: ToolContext) -> None:
    answer = counted(context, batch_size=2)
    (note,) = (n for n in answer.notes if n.startswith("Of the experts"))
    assert "min({batch_size} * {num_experts_per_tok}, {num_experts});" in note
    assert "(1 - (1 - {num_experts_per_tok} / {num_experts}) ** ({batch_size}))" in note
    assert any(said.startswith("Grouped expert weights: totals read") for said in answer.document.assumptions)


def test_a_great_many_tokens_are_no_great_work() -> None:
    experts, chosen = Formula.const(128), Formula.const(8)
    routing = Routing(experts, chosen, Formula.var("n"), Formula.minimum(experts, 8 * Formula.var("n")))
    assert routing.experts_read({"n": 10**12}) == 128


def test_a_dense_model_expects_no_experts(context: ToolContext) -> None:
    given = {"target": "LlamaMLP", "values": {"batch_size": 1, "seq_len": 4}}
    assert count_flops(CostArguments.model_validate(given), context).expected is None
