"""Inputs that once hung or crashed a reader, most of them found by `make fuzz`: each is answered now.

A case is a file `TARGET.what-it-is.txt` in tests/corpus/fuzz/; `tests/fuzz/fuzz.py` writes new ones there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from targets import TARGETS, held

CASES = sorted((Path(__file__).parents[1] / "corpus" / "fuzz").glob("*.txt"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_found_case_is_answered(case: Path) -> None:
    target = case.name.partition(".")[0]
    assert target in TARGETS
    held(target, case.read_bytes().decode("utf-8", "surrogatepass"))
