"""Sizes as expressions: what is printed is read as the same, and has the value that the arithmetic gives."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opscope_tools.kernels.cuda.launch.host_expressions import formula_text
from opscope_tools.kernels.values.expressions import (
    Choice,
    Operation,
    Quantity,
    Size,
    call,
    ceil_div,
    combine,
    leaf,
    negative,
    render,
)  # fmt: skip
from opscope_tools.kernels.values.notation import Counts, evaluate, names_of, product, read_size
from opscope_tools.kernels.values.quotients import cut, least, may_be_negative, rounded_down

_QUANTITIES = (leaf("n"), leaf("p.rows->x[3]"), leaf("f(a, b)"), *map(Quantity, ("B", "Traits<1>::kM", "sizeof(T)")))
#: a size with the value that it should have: a function of what the quantities are
Told = tuple[Size, Any]
_POINTS = st.fixed_dictionaries({q.name: st.integers(1, 60) for q in _QUANTITIES})
_ATOMS: st.SearchStrategy[Told] = st.sampled_from(_QUANTITIES).map(lambda q: (q, lambda v: v[q.name])) | st.integers(
    -9, 130
).map(lambda i: (i, lambda _: i))
_DIVISORS: st.SearchStrategy[Told] = _ATOMS.filter(lambda t: not isinstance(t[0], int) or t[0] > 0)
_PYTHON: Mapping[str, Any] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "/": Fraction, "min": min, "max": max, "cdiv": lambda a, b: math.ceil(Fraction(a, b)),
}  # fmt: skip


def _joined(symbol: str, a: Told, b: Told) -> Told:
    make = call if symbol in {"min", "max"} else combine
    made = ceil_div(a[0], b[0]) if symbol == "cdiv" else make(symbol, a[0], b[0])
    return made, lambda v: _PYTHON[symbol](a[1](v), b[1](v))


def _chosen(symbol: str, a: Told, b: Told, c: Told) -> Told:
    holds = {"<": operator.lt, "==": operator.eq, ">=": operator.ge}[symbol]
    made = Choice(b[0], Operation(symbol, a[0], b[0]), c[0])
    return made, lambda v: b[1](v) if holds(a[1](v), b[1](v)) else c[1](v)


def _larger(inner: st.SearchStrategy[Told]) -> st.SearchStrategy[Told]:
    return (
        st.builds(_joined, st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner)
        | st.builds(_joined, st.sampled_from(["//", "%", "cdiv"]), inner, _DIVISORS)
        | st.builds(_chosen, st.sampled_from(["<", "==", ">="]), inner, inner, inner)
        | inner.map(lambda t: (negative(t[0]), lambda v: -t[1](v)))
    )


_SIZES = st.recursive(_ATOMS, _larger, max_leaves=12)


@settings(max_examples=200)
@given(_SIZES, _DIVISORS, _POINTS)
def test_a_printed_size_is_read_as_the_same_and_keeps_its_value(size: Told, by: Told, at: dict[str, int]) -> None:
    for made, value in (size, _joined("/", size, by)):
        text = render(made)
        assert read_size(text) == made
        assert evaluate(text, at) == value(at)
        assert set(names_of(text)) <= set(at)


@given(_SIZES, _POINTS)
def test_counts_print_a_formula_of_the_same_value(size: Told, at: dict[str, int]) -> None:
    assert evaluate(str(Counts().read(size[0])), at) == size[1](at)


@given(st.lists(_SIZES, min_size=1, max_size=3), _POINTS)
def test_a_product_of_printed_sizes_has_the_product_of_their_values(sizes: list[Told], at: dict[str, int]) -> None:
    assert evaluate(product([render(s) for s, _ in sizes]), at) == math.prod(v(at) for _, v in sizes)


@given(_SIZES, _DIVISORS, st.permutations(range(3)), _POINTS)
def test_a_quotient_rounded_up_is_the_sum_over_the_divisor_as_people_write_it(
    size: Told, by: Told, order: list[int], at: dict[str, int]
) -> None:
    parts = [("+", size[0]), ("+", by[0]), ("-", 1)]
    ordered = [parts[i] for i in order]
    total: Size = 0
    for sign, part in ordered if ordered[0][0] == "+" else [*ordered[1:], ordered[0]]:
        total = part if total == 0 and sign == "+" else combine(sign, total, part)
    text = render(combine("//", total, by[0]))
    assert evaluate(text, at) == (size[1](at) + by[1](at) - 1) // by[1](at)


@pytest.mark.parametrize("divisor", ["B", "128", "(B + 2)", "Traits::kM", "sizeof(T)", "(2 * B)"])
def test_every_order_of_rounding_up_prints_cdiv(divisor: str) -> None:
    plain = render(read_size(divisor))
    for order in itertools.permutations(("+ {n}", f"+ {divisor}", "- 1")):
        written = " ".join(order).removeprefix("+ ")
        if not written.startswith("-"):
            assert render(read_size(f"({written}) // {divisor}")) == f"cdiv({{n}}, {plain})"


def test_a_folded_literal_rounds_up_too() -> None:
    assert render(read_size("({n} + 127) // 128")) == "cdiv({n}, 128)"
    assert render(read_size("({n} + 1 - 1) // 1")) == "{n}"
    for other in ("({n} + 126) // 128", "({n} - 3) // (-2)", "({n} - 2 - 1) // (-2)"):
        assert render(read_size(other)) == other


@pytest.mark.parametrize("text", ["", "{n} +", "a b", "{n", "[&] { return 1; }()"])
def test_text_that_is_no_expression_stays_as_it_is(text: str) -> None:
    assert render(read_size(text)) == text
    assert evaluate(text, {"n": 1}) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("ceil((float)n / 96.0f)", "-(-n // 96)"), ("std::ceil(n / 128.0)", "-(-n // 128)"), ("(int)ceilf((float)n / m)", "-(-n // m)"),
        ("ceil(static_cast<double>(n) / (m * 4))", "-(-n // (m * 4))"), ("ceil(n / double(m)) * 2", "-(-n // m) * 2"),
        ("floor(n / 32.0f)", "n // 32"), ("(int)((float)n / 7) * 2", "n // 7 * 2"), ("(float)n / 5.0f", "n // 5"),
        ("ceil(float(n / 3) / m)", "-(-(n // 3) // m)"), ("static_cast<int>(std::ceil((n + 1) / 2.0))", "-(-(n + 1) // 2)"),
    ],
)  # fmt: skip
def test_a_quotient_of_real_numbers_is_rounded_as_it_is_written(text: str, meant: str) -> None:
    found = formula_text(text, lambda _: None)
    for n, m in ((1, 3), (96, 32), (97, 5), (100, 7), (1000, 999)):
        assert evaluate(found, {"n": n, "m": m}) == eval(meant, {"n": n, "m": m}), found


def quotient(a: int, b: int) -> int:
    """A quotient as C++ cuts it."""
    return abs(a) // abs(b) * (1 if a * b >= 0 else -1)


_OF_RUN = st.fixed_dictionaries({q.name: st.integers(0 if q.run_time else 1, 40) for q in _QUANTITIES})


@settings(max_examples=300)
@given(_SIZES, _SIZES, _OF_RUN)
def test_a_size_is_no_less_than_what_is_told_and_its_quotient_is_cut_as_cpp_cuts_it(
    size: Told, by: Told, at: dict[str, int]
) -> None:
    try:
        value, divisor = size[1](at), by[1](at)
    except ZeroDivisionError:
        return
    low = least(size[0])
    assert low is None or low <= value
    for symbol in ("//", "%"):
        found = cut(symbol, size[0], by[0])
        assert found is not None or may_be_negative(by[0]) or by[0] == 0
        if found is not None and divisor:
            whole = quotient(value, divisor)
            assert evaluate(render(found), at) == (whole if symbol == "//" else value - whole * divisor)
            down = evaluate(render(rounded_down(found)), at)
            assert symbol == "%" or down == evaluate(render(found), at) or (down is not None and down < 0 >= whole)


@pytest.mark.parametrize(("text", "meant"), [
    ("(n - 9) / 4 + 3", "quotient(n - 9, 4) + 3"), ("(n - 1) / 256 + 1", "quotient(n - 1, 256) + 1"), ("(n - m) / m", "quotient(n - m, m)"),
    ("(n - m) % 4", "n - m - 4 * quotient(n - m, 4)"), ("(n - 9) / -4", "quotient(n - 9, -4)"), ("(2 * n - 9 + 8) / m", "quotient(2 * n - 1, m)"),
    ("(int)((float)(n - 9) / 4)", "quotient(n - 9, 4)"), ("int((n - 9) / 2) / 2 - n / 3", "quotient(quotient(n - 9, 2), 2) - n // 3"),
    ("(max(n, m) - 9) / m", "quotient(max(n, m) - 9, m)"), ("floor((float)(n - 9) / m)", "(n - 9) // m"), ("n / (n - m)", "n // (n - m)"),
])  # fmt: skip
def test_quotients_of_the_host_are_cut_towards_none_as_cpp_cuts_them(text: str, meant: str) -> None:
    found = formula_text(text, lambda _: None)
    for n, m in itertools.product((0, 1, 2, 5, 8, 9, 30), (1, 3, 8)):
        if n > m or "(n - m)" not in text or "/ (" not in text:  # a divisor is taken to be above none
            assert evaluate(found, {"n": n, "m": m}) == eval(meant, {"quotient": quotient, "n": n, "m": m}), (
                found,
                n,
                m,
            )
