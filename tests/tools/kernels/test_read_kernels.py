"""Kernels of other packages, read by a person first: every fact that was written down is the one that the tool says."""

from __future__ import annotations

import pytest
from read_kernels import CORPUS, FACTS, differences

#: kernel -> why a fact of it is not found yet
OPEN = dict.fromkeys(
    ("relocation_kernel", "kernel_mm_seq_fp16i8", "kernel_mm_one_fp32i8"),
    "a grid that is worked out of a field of another `dim3` (`threads.x`) keeps that field's name",
)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.xfail(reason=OPEN[name], strict=True)) if name in OPEN else name
    for name in FACTS
])  # fmt: skip
def test_every_fact_of_the_kernel_is_the_one_that_was_read(name: str) -> None:
    assert differences(name) == []


def test_every_source_has_its_origin_and_licence() -> None:
    told = (CORPUS / "ORIGINS.md").read_text()
    sources = [path for path in CORPUS.rglob("*") if path.suffix in {".py", ".cu", ".cuh"}]
    assert len(sources) > 20
    assert [str(path.relative_to(CORPUS)) for path in sources if f"`{path.relative_to(CORPUS)}`" not in told] == []
