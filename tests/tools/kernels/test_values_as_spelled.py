"""Values of parameters however they are spelled: one answer for each, in every language of kernels that is Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_clients.options import parse_object
from opscope_schemas.tiling import KernelTiling
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING, TilingArguments
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository

SOURCES = {
    "triton": """
import triton
import triton.language as tl

@triton.jit
def k(X, Y, {name}: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(X + at)
    if {name}:
        x = x * tl.load(Y + at)
    tl.store(X + at, x)
""",
    "gluon": """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

@gluon.jit
def k(X, Y, {name}: gl.constexpr, B: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * B + gl.arange(0, B, layout)
    x = gl.load(X + at)
    if {name}:
        x = x * gl.load(Y + at)
    gl.store(X + at, x)
""",
    "cutile": """
import cuda.tile as ct

@ct.kernel
def k(X, Y, {name}: ct.Constant[bool], B: ct.Constant[int]):
    x = ct.load(X, index=(0,), shape=(B,))
    if {name}:
        x = x * ct.load(Y, index=(0,), shape=(B,))
    ct.store(X, index=(0,), tile=x)
""",
    "tilelang": """
import tilelang
import tilelang.language as T

@tilelang.jit
def k(N, B, {name}=True):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, B), threads=128) as bx:
            x = T.alloc_fragment((B,), "float32")
            T.copy(X[bx * B], x)
            if {name}:
                for i in T.Parallel(B):
                    x[i] = x[i] * Y[bx * B + i]
            T.copy(x, X[bx * B])
    return main
""",
    "cute_dsl": """
import cutlass
import cutlass.cute as cute

@cute.kernel
def k(x: cute.Tensor, y: cute.Tensor, {name}: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    if cutlass.const_expr({name}):
        x[thread] = y[thread]

@cute.jit
def run(x: cute.Tensor, y: cute.Tensor, {name}: cutlass.Constexpr):
    k(x, y, {name}).launch(grid=[1, 1, 1], block=[64, 1, 1])
""",
}


def described(folder: Path, language: str, name: str, values: dict[str, Any]) -> KernelTiling:
    (folder / "kernels.py").write_text(SOURCES[language].replace("{name}", name))
    workspace = Workspace({"own": folder_repository("own", folder)}, folder, MemoryStore())
    asked = TilingArguments.model_validate({"target": "own", "detail": "full", "values": values})
    (kernel,) = CUDA_KERNEL_TILING.run(asked, ToolContext(workspace)).kernels
    assert kernel.language == language
    return kernel


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("name", ["CAUSAL", "has_window"])
@pytest.mark.parametrize("language", SOURCES)
def test_a_truth_is_taken_however_it_is_spelled(tmp_path: Path, language: str, name: str, holds: bool) -> None:
    meant = described(tmp_path, language, name, {name: holds})
    assert described(tmp_path, language, name, {name: not holds}) != meant
    for spelled in (str(holds), str(holds).lower()):
        assert described(tmp_path, language, name, {name: spelled}) == meant
        read = parse_object("values", [f"{name}={spelled}"])
        assert isinstance(read, dict)
        assert described(tmp_path, language, name, read) == meant


@pytest.mark.parametrize("language", ["triton", "gluon", "cutile"])
def test_what_is_not_given_is_taken_however_it_is_spelled(tmp_path: Path, language: str) -> None:
    meant = described(tmp_path, language, "EXTRA", {"EXTRA": None})
    assert [m for m in meant.loads if m.parameter == "Y" and m.counted] == []
    for spelled in ("None", "null"):
        assert described(tmp_path, language, "EXTRA", {"EXTRA": spelled}) == meant


def test_other_words_stay_words() -> None:
    values: dict[str, Any] = {"ACT": "gelu", "X": "*fp16", "MODE": "false alarm", "N": 3, "scale": 0.5}
    assert TilingArguments(target="k", values=values).values == values
