"""The command line prints the screen of a kernel, and every list of it where that is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_clients.commands import tool_command
from opscope_clients.session_options import SessionOptions
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING
from opscope_tools.running.workspace import Workspace, folder_repository

SOURCE = """
__global__ void scale(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2.0f; }
void run(float* x, int n) { scale<<<(n + 255) / 256, 256>>>(x, n); }
"""


class Session(SessionOptions):
    """The session's options of one repository, that of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def naming(self, *_: object) -> Session:
        return self

    def workspace(self) -> Workspace:
        return Workspace({"own": folder_repository("own", self.folder)}, self.folder, MemoryStore())


def test_people_get_the_screen_of_a_kernel_and_every_list_when_they_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "scale.cu").write_text(SOURCE)
    callback: Any = tool_command(CUDA_KERNEL_TILING).callback

    def printed(**given: object) -> str:
        assert callback(Session(tmp_path), target="scale", **{"as_json": False, **given}) == 0
        return capsys.readouterr().out

    short, full = printed(), printed(detail="full")
    assert short.startswith("scale (cuda) scale.cu:2\n\ngrid   cdiv({n}, 256)   one cell: one thread block\n")
    assert "parameters" not in short
    assert full.startswith("scale (cuda) scale.cu:2\n\ngrid ")
    assert "parameters" in full
    assert json.loads(printed(as_json=True))["kernels"][0]["loads"]
