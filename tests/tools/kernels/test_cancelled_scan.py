"""A scan for kernels that is cancelled keeps what it has read."""

from __future__ import annotations

from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.errors import CancelledError
from opscope_tools.kernels import inventory, scan
from opscope_tools.kernels.records import FileFacts

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def kernel_{number}(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 0.0)
"""


def test_the_scan_after_a_cancelled_one_reads_only_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        (tmp_path / f"k{number:03}.py").write_text(KERNEL.replace("{number}", str(number)))
    repository, store = Repository(name="own", root=tmp_path), MemoryStore()
    read: list[str] = []
    original = inventory._python

    def noted(path: str, data: bytes) -> FileFacts:
        read.append(path)
        return original(path, data)

    monkeypatch.setattr(inventory, "_python", noted)
    asked = 0

    def checkpoint() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise CancelledError("The call was cancelled.")

    with pytest.raises(CancelledError):
        scan(repository, store, checkpoint=checkpoint, progress=lambda *_: None)
    before = len(read)
    assert 0 < before < 100
    found = scan(repository, store, checkpoint=lambda: None, progress=lambda *_: None)
    assert len(found.kernels) == 100
    assert len(read) == 100
    assert len(set(read)) == 100
