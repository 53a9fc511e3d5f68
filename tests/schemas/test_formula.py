"""The formula language: what is read is safe and exact, what is written reads back the same."""

from __future__ import annotations

import doctest
import re
from fractions import Fraction
from types import ModuleType

import opscope_schemas.errors
import opscope_schemas.formula
import opscope_schemas.units
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import Formula, evaluate, holds, variables

NAMES = ("batch_size", "seq_len", "hidden_size", "num_heads", "a_bytes", "lambda")
values = st.fixed_dictionaries({name: st.integers(1, 60) for name in NAMES})


def _combined(children: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    number = st.integers(1, 7)
    return st.one_of(
        st.tuples(children, children).map(lambda p: p[0] + p[1]),
        st.tuples(children, children).map(lambda p: p[0] - p[1]),
        st.tuples(children, children).map(lambda p: p[0] * p[1]),
        st.tuples(children, children).map(lambda p: Formula.minimum(*p)),
        st.tuples(children, children).map(lambda p: Formula.maximum(*p)),
        st.tuples(children, number).map(lambda p: p[0] // p[1]),
        st.tuples(children, number).map(lambda p: p[0] % p[1]),
        st.tuples(children, number).map(lambda p: p[0].ceildiv(p[1])),
    )


formulas = st.recursive(
    st.one_of(st.sampled_from(NAMES).map(Formula.var), st.integers(-9, 9).map(Formula.const)), _combined, max_leaves=8
)


@settings(max_examples=300)
@given(formulas, values)
def test_a_formula_reads_back_as_the_same_number(formula: Formula, at: dict[str, int]) -> None:
    assert Formula.parse(str(formula)).evaluate(at) == evaluate(str(formula), at)


@settings(max_examples=200)
@given(formulas, formulas, values)
def test_algebra_agrees_with_arithmetic(a: Formula, b: Formula, at: dict[str, int]) -> None:
    x, y = a.evaluate(at), b.evaluate(at)
    assert (a + b).evaluate(at) == x + y
    assert (a * b).evaluate(at) == x * y
    assert (a - b).evaluate(at) == x - y
    assert (a // 3).evaluate(at) == x // 3
    assert (a % 5).evaluate(at) == x % 5
    if y:
        assert (a // b).evaluate(at) == x // y


@settings(max_examples=100)
@given(formulas, formulas, st.integers(1, 6), st.integers(1, 6))
def test_coefficients_stay_exact_and_are_whole_numbers_where_they_can_be(
    a: Formula, b: Formula, one: int, other: int
) -> None:
    """A quotient of two of them is never a float, which would be a number like it."""
    part = (a * one).divided(Formula.const(other))
    assert part is not None
    assert part * other == a * one
    for formula in (a, b, part, a + part, a - b, a * part, part.substitute({NAMES[0]: b})):
        for coefficient in formula.terms.values():
            assert type(coefficient) is int or (type(coefficient) is Fraction and coefficient.denominator > 1)


@settings(max_examples=100)
@given(formulas, formulas, values)
def test_substitution_agrees_with_evaluation(one: Formula, other: Formula, at: dict[str, int]) -> None:
    """Inside every kind of call too, in its first and in its second place."""
    b, s = Formula.var("batch_size"), Formula.var("seq_len")
    calls = [one // (s + 7), (one + s) % 5, (s * 3).ceildiv(b), Formula.minimum(one, s), Formula.maximum(s, other)]
    for formula in (one, other, sum(calls, one * other)):
        replaced = formula.substitute({"seq_len": b + 2})
        assert replaced.evaluate(at) == formula.evaluate({**at, "seq_len": at["batch_size"] + 2})


@pytest.mark.parametrize(
    "text",
    [
        "(((9**64)**64)**64)**64", "v_a + {b}", "+".join(["{a}"] * 1100), "(" * 300 + "1" + ")" * 300,
        "__import__('os').system('true')", "{a}.__class__", "[1, 2]", "{a} if {b} else 1", "lambda: 1", "'x'", "1.5",
        "{a} << 2", "open('x')", "min()", "{a} ** 1000", "2 ** {a} ** 2 ** 9", "seq_len * 2", "{a", "", "True", "f'{a}'",
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValuesError) as caught:
        evaluate(text, {"a": 70, "b": 1})
    assert "\n" not in str(caught.value)


def test_a_fraction_is_not_rounded_silently() -> None:
    assert evaluate("{a} * {b} / 2", {"a": 3, "b": 4}) == 6
    with pytest.raises(ValuesError, match="not an integer"):
        evaluate("{a} / 2", {"a": 3})


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(ValuesError, match=r"\{seq_len\} has no value"):
        evaluate("{batch_size} * {seq_len}", {"batch_size": 1})


def test_division_by_zero_is_told() -> None:
    with pytest.raises(ValuesError, match="divides by zero"):
        evaluate("4 // {a}", {"a": 0})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("{a} < {b} + 1", True), ("{a} == 2 * {b}", False), ("({a} != 3 or {b} >= 4)", True),
        ("not ({a} % 2 == 0)", True), ("{a} <= 3 and {b} > 5", False),
    ],
)  # fmt: skip
def test_conditions_compare_exactly(condition: str, expected: bool) -> None:
    assert holds(condition, {"a": 3, "b": 4}) is expected


def test_products_name_their_factors_in_the_standard_order_and_common_factors_once() -> None:
    b, s, h, i = (Formula.var(n) for n in ("batch_size", "seq_len", "hidden_size", "intermediate_size"))
    assert str(i * h * s * 2 * b) == "2 * {batch_size} * {seq_len} * {hidden_size} * {intermediate_size}"
    assert (
        str(6 * b * s * h * i + 4 * b * s * h)
        == "2 * {batch_size} * {seq_len} * {hidden_size} * (3 * {intermediate_size} + 2)"
    )


@pytest.mark.parametrize(
    ("terms", "printed"),
    [
        ("b*s + b*h + s*h", "{batch_size} * ({seq_len} + {hidden_size}) + {seq_len} * {hidden_size}"),
        ("b*s + s*h + h*n + z", "{seq_len} * ({batch_size} + {hidden_size}) + {num_heads} * {hidden_size} + {zeta}"),
        ("s*s*b + s*b + 7", "{batch_size} * {seq_len} * ({seq_len} + 1) + 7"),
        ("b*s + b", "{batch_size} * ({seq_len} + 1)"),
        ("7 - b - s*s + z*h*n", "{num_heads} * {hidden_size} * {zeta} + 7 - {seq_len}**2 - {batch_size}"),
        ("z*h*a*n*s*b", "{batch_size} * {seq_len} * {num_heads} * {hidden_size} * {zeta} * {a_bytes}"),
        ("a*w*z*(s//n)", "{zeta} * ({seq_len} // {num_heads}) * {w_bytes} * {a_bytes}"),
    ],
)  # fmt: skip
def test_sums_are_printed_from_the_highest_degree_down_and_grouped_by_what_most_terms_share(
    terms: str, printed: str
) -> None:
    names = {"b": "batch_size", "s": "seq_len", "h": "hidden_size", "n": "num_heads", "z": "zeta", "a": "a_bytes", "w": "w_bytes"}  # fmt: skip
    text = re.sub(r"[a-z]", lambda m: "{" + names[m[0]] + "}", terms)
    assert str(Formula.parse(text)) == printed


def test_exact_divisions_are_carried_out() -> None:
    h, n = Formula.var("hidden_size"), Formula.var("num_heads")
    assert (h * n + h) // h == n + 1
    assert (h * n * 6) % (n * 3) == 0
    assert (h // n).variables() == {"hidden_size", "num_heads"}


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 9), st.booleans(), st.integers(0, 40), st.integers(1, 40))
def test_a_division_that_leaves_a_rest_is_rounded_as_arithmetic_rounds(
    m: int, n: int, divisor: int, by_variable: bool, x: int, y: int
) -> None:
    """`(m * x * y + n * y + x) // d`, also where one term divides exactly and where the divisor holds a variable."""
    a, b = Formula.var("x"), Formula.var("y")
    whole, by = m * a * b + n * b + a, divisor * b if by_variable else Formula.const(divisor)
    number, denominator = m * x * y + n * y + x, divisor * y if by_variable else divisor
    at = {"x": x, "y": y}
    assert (whole // by).evaluate(at) == number // denominator
    assert (whole % by).evaluate(at) == number % denominator
    assert whole.ceildiv(by).evaluate(at) == -(-number // denominator)


def test_variables_are_found_inside_calls() -> None:
    assert variables("min({a}, {b} // 2)") == {"a", "b"}


@pytest.mark.parametrize("module", [opscope_schemas.formula, opscope_schemas.errors, opscope_schemas.units])
def test_examples_in_docstrings_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_no_example_of_a_property_is_timed() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
