"""Whoever is told that totals are too low finds a concrete run that does more, and where nothing is said they are equal."""

from __future__ import annotations

from typing import Any

import pytest
from cost_comparison import compare
from opscope_schemas.analysis import Site
from opscope_schemas.formula import Formula
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace import operators
from opscope_tools.trace.document import CallTree, module_analysis, not_counted
from opscope_tools.trace.protocol import CallRecord, OpRecord, Trace

#: those that look for padding, to warn, and one that does so only where it is told a padding token
WARNING = "megatron-bert rembert gpt2".split()


@pytest.mark.parametrize("model_type", WARNING)
def test_a_look_that_only_serves_a_warning_is_counted_and_nothing_is_missing(
    model_type: str, context: ToolContext
) -> None:
    outcome = compare(model_type, "prefill", context, count=1)
    assert (outcome.state, outcome.not_counted) == ("exact", ()), outcome.line()


def _op(call: int, *, counted: bool) -> OpRecord:
    one = "1" if counted else "0"
    return OpRecord(
        order=call, call=call, site=Site(file="a.py", line=call), operator="aten.nonzero", counted=counted,
        derivation="its size depends on data", flops=one, matmul_flops=one, read=one, write=one,
    )  # fmt: skip


def test_a_module_lacks_what_runs_in_it_and_not_what_runs_elsewhere() -> None:
    calls = [
        CallRecord(index=i, order=i, parent=p, path=f"m{i}", class_name=f"M{i}", file="a.py", line=1)
        for i, p in ((0, -1), (1, 0), (2, 0))
    ]
    trace = Trace(
        model_class="m.M0", config_class="", model_type="", phase="forward", attention="sdpa", calls=tuple(calls),
        ops=(_op(1, counted=True), _op(2, counted=False)), variables=(), guards=(), point={},
    )  # fmt: skip
    tree = CallTree(trace)
    said = ("aten.nonzero at a.py:2: its size depends on data",)
    assert [module_analysis(tree, call).not_counted for call in calls] == [said, (), said]
    assert not_counted(trace.ops) == said


@pytest.mark.parametrize("name", ["aten.view", "aten._local_scalar_dense", "aten._assert_async", "aten.resize_"])
def test_what_costs_nothing_is_not_missing_where_its_sizes_depend_on_data(name: str) -> None:
    found: Any = operators.free(name)
    assert found.free
    assert found.flops == Formula.const(0)
    assert operators.free("aten.nonzero") is None
