"""Short forms of long documents say the same as the whole ones: with the configuration's numbers in, or with nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from opscope_schemas.formula import evaluate, holds, variables
from opscope_tools.catalog import tool_named
from opscope_tools.costing.long_formulas import LEFT_OUT, LONG, configured
from opscope_tools.running.runner import BUDGET, compact, run_tool, shorten_to, to_json
from opscope_tools.running.tool import ToolContext

#: a layer more of each kind changes no formula, and makes the run that checks them longer
FEW = {"num_hidden_layers": 8}


def pairs(whole: Any, short: Any) -> Iterator[tuple[str, str]]:
    """Texts that stand at the same place of both and differ."""
    if isinstance(short, dict) and isinstance(whole, dict):
        for key in short.keys() & whole.keys():
            yield from pairs(whole[key], short[key])
    elif isinstance(short, list) and isinstance(whole, list) and len(short) == len(whole):
        for a, b in zip(whole, short, strict=True):
            yield from pairs(a, b)
    elif isinstance(short, str) and isinstance(whole, str) and short != whole:
        yield whole, short


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("name", ["count_flops", "trace_dataflow"])
def test_numbers_put_into_long_formulas_change_no_value(context: ToolContext, name: str, phase: str) -> None:
    """A hybrid of two kinds of layers, whose totals have thousands of characters."""
    tool = tool_named(name)
    whole = run_tool(tool, {"target": "qwen3_next", "config": FEW, "phase": phase, "detail": "formulas"}, context)
    shown = next(short for rung in tool.shorter if "numbers are put in" in (short := rung(whole)).shortened)
    field = "document"
    document, short = compact(whole)[field], compact(shown)[field]
    defaults = configured(whole)
    changed = list(pairs(document.get("totals", document.get("peaks")), short.get("totals", short.get("peaks"))))
    assert changed
    draw = random.Random(0)
    for long, brief in changed:
        assert len(brief) < len(long) > LONG
        run_time = sorted(variables(long) - defaults.keys())
        assert variables(brief) <= set(run_time)
        for _ in range(5):
            values = {variable: draw.randint(2, 4096) for variable in run_time}
            assert evaluate(long, values | defaults) == evaluate(brief, values)
    assert all(holds(c, defaults) for c in document["conditions"] if variables(c) <= defaults.keys())


def test_no_numbers_are_put_in_where_the_configuration_breaks_a_condition(context: ToolContext) -> None:
    """llama's own configuration has as many key as query heads, and the formulas hold for groups of several."""
    whole = run_tool(tool_named("count_flops"), {"target": "llama", "detail": "formulas"}, context)
    grouped = "({num_heads} // {num_kv_heads}) > 1"
    assert grouped in compact(whole)["document"]["conditions"]
    assert configured(whole) == {}
    other = run_tool(
        tool_named("count_flops"),
        {"target": "llama", "config": {"num_key_value_heads": 8}, "detail": "formulas"},
        context,
    )
    assert configured(other)["num_kv_heads"] == 8


@pytest.mark.parametrize("name", ["count_flops", "expand_refs", "trace_dataflow"])
def test_the_answer_on_a_hybrid_fits_into_the_budget_and_says_what_is_left_out(context: ToolContext, name: str) -> None:
    tool = tool_named(name)
    whole = run_tool(tool, {"target": "qwen3_next", "config": FEW, "detail": "formulas"}, context)
    short = shorten_to(tool, whole)
    assert len(to_json(whole)) > 1.5 * BUDGET
    assert len(to_json(short)) <= BUDGET
    assert short.shortened
    last = tool.shorter[-1](whole)
    assert LEFT_OUT in last.shortened
    assert len(to_json(last)) < 0.7 * BUDGET
