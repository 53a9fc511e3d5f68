"""What tests of CUDA kernels share: one kernel, described from its text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import Cost, KernelTiling
from opscope_tools.kernels import describe, scan


@pytest.fixture
def described(tmp_path: Path) -> Callable[..., tuple[KernelTiling, Cost]]:
    """The kernel `k` of a text, as it is told, and its cost; of several the one at a line."""

    def made(text: str, line: int = 0, **asked: Any) -> tuple[KernelTiling, Cost]:
        quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
        (tmp_path / "k.cu").write_text(text)
        repository = Repository(name="r", root=tmp_path, packages=())
        inventory = scan(repository, MemoryStore(), **quiet)
        chosen = [
            one for one in inventory.kernels if one.name == "k" and one.role == "kernel" and line in {0, one.line}
        ]
        (kernel,) = describe(repository, inventory, chosen, **asked, **quiet)
        assert kernel.cost is not None
        return kernel, kernel.cost

    return made
