"""Some of many cases where time is short, all of them where there is time (`make slow`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int = 3) -> list[Any]:
    """The first of each `every` cases as they are, the others marked slow; a case is a value, or a tuple of several."""
    return [
        case if number % every == 0 else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]  # fmt: skip
