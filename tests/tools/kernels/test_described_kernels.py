"""Kernels described in full: the files of tests/corpus/kernels_described hold every fact, each read against its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from described_kernels import EXPECTED, KERNELS, described
from kernel_sources import kernel_sources


@pytest.fixture(scope="module")
def sources() -> dict[str, Path]:
    return kernel_sources()


@pytest.mark.parametrize("name", KERNELS)
def test_every_fact_of_the_kernel_is_the_one_written_down(name: str, sources: dict[str, Path]) -> None:
    assert described(name, sources) == (EXPECTED / f"{name}.txt").read_text().splitlines()


def test_every_description_is_of_a_kernel_that_is_tested() -> None:
    assert {path.stem for path in EXPECTED.glob("*.txt")} == set(KERNELS)
