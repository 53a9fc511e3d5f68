"""The language of claims: it says what Python says of the same expression, and reads nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opscope_tools.report.post_language import ExpressionError, UnheldError, names_in, value_of

FACTS: dict[str, int | float | str | bool] = {
    "one.calls": 3,
    "two.step_seconds": 0.25,
    "hot-loop.symbol": "gemv",
    "post.ratio": -2.5,
    "big.bytes": 10**18,
}
NUMBERS = {name: value for name, value in FACTS.items() if not isinstance(value, str)}


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, str]:
    """An expression of the language, and the same in Python with its facts written out."""
    if depth == 0 or draw(st.booleans()):
        if draw(st.booleans()):
            name = draw(st.sampled_from(sorted(NUMBERS)))
            return name, f"({NUMBERS[name]!r})"
        number = draw(st.one_of(st.integers(0, 10**9), st.floats(0.001, 1000).map(lambda value: round(value, 3))))
        return str(number), repr(number)
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    sign = draw(st.sampled_from("+-*/"))
    inner = f"{left[0]} {sign} {right[0]}", f"{left[1]} {sign} {right[1]}"
    return tuple(f"({part})" for part in inner) if draw(st.booleans()) else inner  # type: ignore[return-value]


@settings(max_examples=500, deadline=None)
@given(expressions(), st.sampled_from(["<", ">", "<=", ">=", "==", "!="]), expressions())
def test_comparisons_come_to_what_python_says(left: tuple[str, str], sign: str, right: tuple[str, str]) -> None:
    try:
        expected = eval(f"{left[1]} {sign} {right[1]}")
    except (ZeroDivisionError, OverflowError):
        with pytest.raises((ExpressionError, OverflowError)):
            value_of(f"{left[0]} {sign} {right[0]}", FACTS)
        return
    assert value_of(f"{left[0]} {sign} {right[0]}", FACTS) is expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("one.calls == 3 and two.step_seconds < 1", True), ("one.calls == 3 and two.step_seconds > 1", False), ("hot-loop.symbol == 'gemv'", True),
        ("hot-loop.symbol != 'gemv'", False), ("within(one.calls, 3.1, 5)", True), ("within(one.calls, 4, 5)", False), ("1 < one.calls < 3", False), ("-one.calls", -3),
        ("hot-loop.symbol", "gemv"), ("one.calls - 1 - 1", 1), ("12 / 2 / 3", 2.0),
    ],
)  # fmt: skip
def test_what_it_reads(text: str, value: object) -> None:
    assert value_of(text, FACTS) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "one.calls >", "one.calls)", "(one.calls", "__import__('os')", "one.calls; 1", "open", "1 if one.calls else 2", "one.calls ** 9999", "one.calls / 0",
        "hot-loop.symbol + 1", "hot-loop.symbol < 3", "within(1, 2)", "'a", "one.calls or 1", "lambda: 1", "one.calls 3",
    ],
)  # fmt: skip
def test_what_it_refuses(text: str) -> None:
    with pytest.raises(ExpressionError):
        value_of(text, FACTS)


def test_a_fact_that_is_not_there_is_named() -> None:
    with pytest.raises(UnheldError, match=r"nowhere\.calls"):
        value_of("nowhere.calls > 1", FACTS)
    assert names_in("a-b.c > 2 * d.e_f and within(a-b.c, 1, 2) and x.y == 'z.w'") == ("a-b.c", "d.e_f", "x.y")
