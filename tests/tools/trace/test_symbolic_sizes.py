"""Sizes with a hint: operators of them are worked out once, and what is asked of them is written down each time."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from opscope_tools.costing.arguments import model_spec
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.protocol import TraceRequest
from opscope_tools.trace.worker.attempts import trace
from opscope_tools.trace.worker.environment import remembered_results
from opscope_tools.trace.worker.symbols import Symbols
from torch.fx.experimental.sym_node import SymNode

OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.mod, operator.floordiv, operator.eq, operator.ne, operator.gt,
    operator.lt, operator.le, operator.ge, torch.sym_min, torch.sym_max,
]  # fmt: skip


@pytest.fixture
def sizes() -> tuple[Symbols, Any, Any]:
    symbols = Symbols()
    return symbols, symbols.create("rows", 12), symbols.create("columns", 5)


@pytest.mark.parametrize("ask", OPERATORS, ids=lambda ask: str(ask.__name__))
@pytest.mark.parametrize("other", ["symbol", 5, 1])
def test_an_operator_of_two_sizes_gives_what_it_gives_without_memory(
    sizes: tuple[Symbols, Any, Any], ask: Callable[[Any, Any], Any], other: Any
) -> None:
    _, rows, columns = sizes
    pairs = [(rows, columns), (columns, rows)] if other == "symbol" else [(rows, other), (other, rows)]
    plain = [str(ask(*pair)) for pair in pairs]
    with remembered_results():
        assert [str(ask(*pair)) for pair in pairs * 2] == plain * 2


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Products and comparisons that torch works out: the operator and what the two sizes are, of which trace."""
    found: list[tuple[Any, ...]] = []

    def noted(name: str, operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def work_out(one: Any, two: Any) -> Any:
            found.append((name, one.expr, two.expr, one.shape_env))
            return operate(one, two)

        return work_out

    for name in ("_mul", "_eq"):
        monkeypatch.setattr(SymNode, name, noted(name, getattr(SymNode, name)))
    return found


def test_torch_is_asked_once_for_each_pair_of_sizes(
    sizes: tuple[Symbols, Any, Any], asked: list[tuple[Any, ...]]
) -> None:
    _, rows, columns = sizes
    with remembered_results():
        for _ in range(3):
            asks = (rows * columns == 60, rows * 5 == 60, rows * columns == rows)
            assert [bool(answer) for answer in asks] == [True, True, False]
    assert sorted(name for name, *_ in asked) == ["_eq"] * 3 + ["_mul"] * 2


def test_a_trace_asks_torch_for_no_product_twice(context: ToolContext, asked: list[tuple[Any, ...]]) -> None:
    trace(TraceRequest(model=model_spec(context.workspace, "llama", {"num_layers": 2})), lambda _: None)
    products = [question for question in asked if question[0] == "_mul"]
    assert len(products) > 100
    assert len(products) <= 1.1 * len(
        set(products)
    )  # a sum that torch has put in order by itself counts as another size


def test_what_depends_on_data_is_asked_anew(sizes: tuple[Symbols, Any, Any]) -> None:
    symbols, rows, _ = sizes
    with remembered_results():
        found = symbols.env.create_unbacked_symint()
        assert found * rows is not found * rows
        assert not symbols.env.results


def test_whoever_asks_again_is_written_down_beside_who_asked_first(
    sizes: tuple[Symbols, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    symbols, rows, columns = sizes
    with remembered_results():
        for who in ("first", "second"):
            monkeypatch.setattr(symbols.env, "where", partial(str, who))
            assert rows > columns
    (decision,) = symbols.env.decisions
    assert symbols.env.askers[decision] == {"first", "second"}
