"""Quantities as people say them are the quantities."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opscope_schemas.units import amount, counted, seconds

SCALES = {
    "P": 1e15,
    "T": 1e12,
    "G": 1e9,
    "B": 1e9,
    "M": 1e6,
    "k": 1e3,
    "K": 1e3,
    "": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "s": 1.0,
}


def _read(text: str, unit: str) -> float:
    found = re.fullmatch(r"([\d,]+(?:\.\d+)?) ?(\w*)", text)
    assert found, text
    digits = found[1].replace(",", "")
    assert len(digits.replace(".", "").lstrip("0")) <= 3 or float(digits) >= 999.5, text
    return float(digits) * SCALES[found[2].removesuffix(unit) if unit else found[2]]


@given(st.floats(min_value=1.0, max_value=1e18))
def test_three_digits_say_an_amount_to_half_a_percent(value: float) -> None:
    assert _read(amount(value, "FLOP"), "FLOP") == pytest.approx(value, rel=0.0051)
    if value < 1e15:
        assert _read(counted(round(value)), "") == pytest.approx(round(value), rel=0.0051)


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_three_digits_say_a_time_to_half_a_percent(value: float) -> None:
    assert _read(seconds(value), "") == pytest.approx(value, rel=0.0051)
