"""Kernels of other packages, read by a person first: every fact that was written down is the one that the tool says."""

from __future__ import annotations

import pytest
from read_kernels import CORPUS, FACTS, differences


@pytest.mark.parametrize("name", FACTS)
def test_every_fact_of_the_kernel_is_the_one_that_was_read(name: str) -> None:
    assert differences(name) == []


def test_every_source_has_its_origin_and_licence() -> None:
    told = (CORPUS / "ORIGINS.md").read_text()
    sources = [path for path in CORPUS.rglob("*") if path.suffix in {".py", ".cu", ".cuh"}]
    assert len(sources) > 20
    assert [str(path.relative_to(CORPUS)) for path in sources if f"`{path.relative_to(CORPUS)}`" not in told] == []
