"""Kernels compiled without a GPU: what the tool says against the compilers asked directly, and against closed forms."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.errors import InputError
from opscope_schemas.resources import Resources
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING
from opscope_tools.kernels import Inventory, compiled, describe, launches_of, parse_arch, scan, select, static_resources
from opscope_tools.kernels.compiled import nvcc_build, process, sass, triton_build
from opscope_tools.kernels.compiled.process import compiled_by
from opscope_tools.kernels.compiled.sass import kind_of
from opscope_tools.kernels.compiled.triton_slice import sliced
from opscope_tools.kernels.host.modules import Modules
from opscope_tools.kernels.triton.decorators import Context
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on this machine")

HELPERS = """import triton
import triton.language as tl

@triton.jit
def clipped(x, bound: tl.constexpr):
    return tl.minimum(x, bound)
"""

MATMUL = """import triton
import triton.language as tl
from .helpers import clipped
try:
    from triton.language.extra.nowhere import tanh
except ImportError:
    from triton.language.extra.libdevice import tanh

BOUND = tl.constexpr(6.0)
WIDE = 128

@triton.autotune(configs=[
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=3),
    triton.Config({"BM": WIDE, "BN": 128, "BK": 64}, num_warps=8, num_stages=4),
], key=["M", "N", "K"])
@triton.jit
def matmul(A, B, C, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a = A + m[:, None] * sam + k[None, :] * sak
    b = B + k[:, None] * sbk + n[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BK * sak
        b += BK * sbk
    acc = tanh(clipped(acc, BOUND))
    tl.store(C + m[:, None] * scm + n[None, :] * scn, acc.to(C.dtype.element_ty))

@triton.jit
def broken(A, N: tl.constexpr):
    tl.store(A + tl.arange(0, 16), tl.dot(1, 2, 3, 4, 5))

@triton.jit
def gather(X, Ids, Out, eps, D: tl.constexpr):
    row = tl.load(Ids + tl.program_id(0))
    x = tl.load(X + row * D + tl.arange(0, D))
    tl.store(Out + tl.program_id(0) * D + tl.arange(0, D), x + eps)

def launch(a, b, c):
    grid = lambda meta: (triton.cdiv(a.shape[0], meta["BM"]), triton.cdiv(b.shape[1], meta["BN"]))
    matmul[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], a.stride(0), a.stride(-1), b.stride(0), b.stride(-1),
                 c.stride(0), c.stride(-1))
    broken[(1,)](a, N=16)
    gather[(8,)](a, b, c, 1e-6, D=128)
"""

CUDA = """template <typename T, int BLOCK>
__global__ void __launch_bounds__(BLOCK) row_sum(T* out, const T* x, int n) {
  __shared__ float part[BLOCK / 32];
  float s = 0.f;
  for (int i = threadIdx.x; i < n; i += BLOCK) s += (float)x[blockIdx.x * n + i];
  for (int o = 16; o; o /= 2) s += __shfl_xor_sync(~0u, s, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) { for (int w = 1; w < BLOCK / 32; ++w) s += part[w]; out[blockIdx.x] = (T)s; }
}
__global__ void scale(float* x, float a, int n) {
  __shared__ float tile[256];
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) { tile[threadIdx.x] = x[i]; x[i] = tile[threadIdx.x] * a; }
}
template <typename T> __global__ void unnamed(T* x) { *x = T(1); }
__global__ void wrong(float* x) { x[0] = undeclared_name; }
void launches(float* o, const float* x, int rows, int n) {
  row_sum<float, 256><<<rows, 256>>>(o, x, n);
  scale<<<(n + 255) / 256, 256>>>(o, 2.f, n);
}
"""

HUGE = """__global__ void huge(float* x) { __shared__ float tile[20000]; tile[threadIdx.x] = x[0]; x[1] = tile[0]; }
void launch_huge(float* x) { huge<<<1, 128>>>(x); }
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    root = tmp_path_factory.mktemp("kernels")
    (root / "ops").mkdir()
    (root / "ops/__init__.py").write_text("")
    (root / "ops/helpers.py").write_text(HELPERS)
    (root / "ops/matmul.py").write_text(MATMUL)
    (root / "good.cu").write_text(CUDA.replace("__global__ void wrong(float* x) { x[0] = undeclared_name; }\n", ""))
    (root / "bad.cu").write_text(CUDA)
    (root / "huge.cu").write_text(HUGE)
    return Repository(name="kernels", root=root, packages=())


def scanned(repository: Repository) -> Inventory:
    return scan(repository, MemoryStore(), checkpoint=lambda: None, progress=lambda *_: None)


@pytest.fixture(scope="module")
def inventory(repository: Repository) -> Inventory:
    return scanned(repository)


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    return MemoryStore()


def resources(
    repository: Repository, inventory: Inventory, store: Any, target: str, archs: str, values: Any = None, instance: str = "",
) -> Resources:  # fmt: skip
    (reference,) = select(inventory, target)
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    (kernel,) = describe(repository, inventory, [reference], **quiet)
    wanted = [arch for part in archs.split(",") if (arch := parse_arch(part)) is not None]
    launches = launches_of(inventory, reference)
    return compiled(repository, reference, kernel, launches, wanted, values or {}, instance, store, **quiet)


# ---- Triton


def test_shared_memory_of_a_matmul_is_its_stages_of_tiles(
    repository: Repository, inventory: Inventory, store: MemoryStore
) -> None:
    found = resources(repository, inventory, store, "matmul", "sm_80,sm_90")
    assert found.compiled
    assert [b.error for b in found.builds] == [""] * 4
    for build in found.builds:
        tile = (64 + 64) * 32 * 2 if build.config == 0 else (128 + 128) * 64 * 2  # bf16, both operands
        stages = build.options["num_stages"]
        # asynchronous copies keep one stage in registers' stead; wgmma reads every stage from shared memory
        expected = (stages - 1) * tile if build.arch == "sm_80" else stages * tile
        assert build.shared_bytes is not None
        assert expected <= build.shared_bytes <= expected + 256
        assert build.threads == 32 * build.options["num_warps"]
        assert any(name.startswith("tensor-core product, ") for name in build.instructions)
        assert build.specialisation["sak"].startswith("1 (the launch passes a.stride(-1)")
        assert build.specialisation["sam"] == "i32, divisible by 16 (by its use)"
        assert build.specialisation["BM"] == f"{64 if build.config == 0 else 128} (autotune)"


def test_the_estimate_of_a_pipelines_shared_memory_is_what_the_compiler_takes(
    repository: Repository, inventory: Inventory, store: MemoryStore
) -> None:
    archs = "sm_80,sm_89,sm_90,sm_120"
    built = resources(repository, inventory, store, "matmul", archs)
    (reference,) = select(inventory, "matmul")
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    (kernel,) = describe(repository, inventory, [reference], **quiet)
    estimated = static_resources(kernel, [a for part in archs.split(",") if (a := parse_arch(part))])
    assert kernel.cost is not None
    assert kernel.cost.stage_bytes == "BK * (BM * {A.element_size()} + BN * {B.element_size()})"
    ours = {(f.arch, f.config): (f.shared_bytes, f.fits) for f in estimated.fits}
    assert ours == {(f.arch, f.config): (f.shared_bytes, f.fits) for f in built.fits}
    assert {f.basis for f in estimated.fits} == {"estimated"}
    wide = static_resources(
        kernel, [a for a in (parse_arch("sm_89"),) if a], {"A.element_size()": 4, "B.element_size()": 4}
    )
    assert [f.fits for f in wide.fits] == [True, False]  # 3 stages of 64 KiB
    assert wide.fits[1].breaks == "shared memory: 196608 bytes, at most 101376"


def test_a_configuration_that_does_not_fit_says_what_breaks_it(
    repository: Repository, inventory: Inventory, store: MemoryStore
) -> None:
    found = resources(repository, inventory, store, "matmul", "sm_86,sm_90", {"num_stages": 5})
    rows = {(f.arch, f.config): f for f in found.fits}
    assert rows[("sm_86", 1)].fits is False
    assert rows[("sm_86", 1)].breaks.startswith("shared memory: 131")
    assert rows[("sm_86", 1)].breaks.endswith("at most 101376")
    assert rows[("sm_86", 0)].fits
    assert rows[("sm_90", 1)].fits
    assert {f.basis for f in found.fits} == {"compiled"}


def test_machine_instructions_lead_back_to_the_lines_of_the_source(
    repository: Repository, inventory: Inventory, store: MemoryStore
) -> None:
    build = resources(repository, inventory, store, "matmul", "sm_80").builds[0]
    lines = MATMUL.splitlines()
    spoken = {(place.file, place.line) for place in build.lines}
    assert {file for file, _ in spoken} <= {"ops/matmul.py", "ops/helpers.py"}
    dot = next(i for i, line in enumerate(lines, 1) if "tl.dot(tl.load(a)" in line)
    assert ("ops/matmul.py", dot) in spoken
    (reference,) = select(inventory, "matmul")
    assert all(reference.line <= line <= reference.end_line for file, line in spoken if file == "ops/matmul.py")


def test_what_a_pointer_holds_is_told_by_its_use_and_a_given_type_wins(
    repository: Repository, inventory: Inventory, store: MemoryStore
) -> None:
    said = resources(repository, inventory, store, "gather", "sm_80").builds[0].specialisation
    assert said["Ids"] == "*i32, divisible by 16 (what it holds is used in an address or a bound)"
    assert said["X"] == "*bf16, divisible by 16 (the default)"
    launch = next(i for i, line in enumerate(MATMUL.splitlines(), 1) if "gather[(8,)]" in line)
    assert said["eps"] == f"fp32 (1e-06: launch, line {launch})"
    assert said["D"] == f"128 (launch, line {launch})"
    given = resources(repository, inventory, store, "gather", "sm_80", {"X": "*fp32", "Ids": "*i64", "D": 256}).builds[
        0
    ]
    assert given.specialisation["X"] == "*fp32, divisible by 16 (given)"
    assert given.specialisation["D"] == "256 (given, though no case of the launch was found that passes it)"  # D=128
    assert given.error == ""
    assert any(kind.startswith("global load, 8") for kind in given.instructions)  # the 64-bit id


def test_a_kernel_that_does_not_compile_gives_the_compilers_error(
    repository: Repository, inventory: Inventory, store: MemoryStore
) -> None:
    found = resources(repository, inventory, store, "broken", "sm_80")
    assert not found.compiled
    assert found.builds[0].error
    assert found.statement.startswith("Compiled 0 of 1; the first error: ")


def test_a_second_call_compiles_nothing(
    repository: Repository, inventory: Inventory, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = resources(repository, inventory, store, "gather", "sm_80")

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(triton_build, "compiled_by", never)
    assert resources(repository, inventory, store, "gather", "sm_80") == first


def test_what_cannot_be_compiled_says_why(
    repository: Repository, inventory: Inventory, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "below sm_80" in resources(repository, inventory, store, "gather", "sm_75").statement
    assert "gfx942 is no NVIDIA architecture" in resources(repository, inventory, store, "gather", "gfx942").statement
    assert (
        "has no parameter nosuch" in resources(repository, inventory, store, "gather", "sm_80", {"nosuch": 1}).statement
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    lacking = resources(repository, inventory, store, "gather", "sm_80")
    assert "pip install 'opscope[kernels]'" in lacking.statement
    assert not lacking.compiled


def test_an_answer_with_builds_is_worked_out_anew_each_time(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    context = ToolContext(Workspace.create(repositories=[("kernels", repository.root)], cache_folder=tmp_path))
    arguments = {"target": "gather", "repo": "kernels", "compile": True, "arch": "sm_80"}
    with monkeypatch.context() as without:
        without.setattr(triton_build, "missing", lambda: "Nothing here compiles.")
        lacking: Any = run_tool(CUDA_KERNEL_TILING, arguments, context)
    found: Any = run_tool(CUDA_KERNEL_TILING, arguments, context)
    assert "Nothing here compiles" in lacking.kernels[0].resources.statement
    assert found.kernels[0].resources.compiled
    context.workspace.store.close()


# ---- CUDA


@nvcc
def test_registers_and_shared_bytes_are_what_nvcc_says_itself(
    repository: Repository, inventory: Inventory, store: MemoryStore, tmp_path: Path
) -> None:
    said = subprocess.run(
        ["nvcc", "-cubin", "-arch=sm_90", "-Xptxas", "-v", "-o", str(tmp_path / "x"), str(repository.root / "good.cu")],
        capture_output=True, text=True, check=True, timeout=120,
    ).stderr  # fmt: skip
    for name, instance in (("row_sum", "row_sum<float, 256>"), ("scale", "scale")):
        text = said[said.index(name) :]
        registers = re.search(r"Used (\d+) registers", text)
        smem = re.search(r"(\d+) bytes smem", text)
        assert registers is not None
        assert smem is not None
        (build,) = resources(repository, inventory, store, f"good.cu::{name}", "sm_90").builds
        assert build.specialisation["instance"] == instance
        assert build.specialisation["entry"].removeprefix("void ").startswith(f"{instance}(")
        assert (build.registers, build.shared_bytes, build.spill_store_bytes) == (int(registers[1]), int(smem[1]), 0)
        assert build.threads == 256
        assert build.occupancy is not None
        assert build.occupancy.percent == 100.0
        assert any(place.file == "good.cu" for place in build.lines)


@nvcc
def test_a_template_is_compiled_for_the_instance_that_is_given(
    repository: Repository, inventory: Inventory, store: MemoryStore
) -> None:
    open_ = resources(repository, inventory, store, "good.cu::unnamed", "sm_80")
    assert "give instance" in open_.statement
    given = resources(repository, inventory, store, "good.cu::unnamed", "sm_80", instance="unnamed<double>")
    assert given.builds[0].registers


@nvcc
def test_a_file_that_does_not_compile_gives_nvccs_first_error(
    repository: Repository, inventory: Inventory, store: MemoryStore
) -> None:
    found = resources(repository, inventory, store, "bad.cu::scale", "sm_80")
    line = next(i for i, text in enumerate(CUDA.splitlines(), 1) if "undeclared_name" in text)
    assert found.builds[0].error == f'bad.cu:{line}: identifier "undeclared_name" is undefined'
    assert found.occupancy  # what source tells stays
    assert found.fits[0].basis == "evaluated"


def test_without_nvcc_the_source_still_tells_what_fits(
    repository: Repository, inventory: Inventory, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvcc_build, "tool", lambda _: "")
    found = resources(repository, inventory, store, "huge", "sm_75,sm_80")
    assert "nvcc is not on PATH" in found.statement
    assert [(f.arch, f.fits, f.breaks) for f in found.fits] == [
        (arch, False, "static shared memory: 80000 bytes, at most 49152") for arch in ("sm_75", "sm_80")
    ]
    (reference,) = select(inventory, "good.cu::scale")
    (kernel,) = describe(repository, inventory, [reference], checkpoint=lambda: None, progress=lambda *_: None)
    steps = static_resources(kernel, [a for a in (parse_arch("sm_80"),) if a]).occupancy
    assert [s.percent for s in steps if s.registers in (32, 64, 128)] == [100.0, 50.0, 25.0]
    with pytest.raises(InputError):
        parse_arch("sm_")


@pytest.mark.parametrize("with_nvcc", [False, pytest.param(True, marks=nvcc)])
def test_launches_that_differ_are_each_their_own_row_and_one_set_at_run_time_is_none(
    tmp_path: Path, store: MemoryStore, with_nvcc: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k.cu").write_text("""__global__ void k(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1.f; }
void launches(float* x, int n, size_t bytes) {
  k<<<n, 128>>>(x);
  k<<<n, 1024, 60000>>>(x);
  k<<<n, 256, bytes>>>(x);
}
""")
    own = Repository(name="own", root=tmp_path, packages=())
    found = resources(own, scanned(own), store, "k", "sm_75,sm_90") if with_nvcc else None
    if found is None:
        monkeypatch.setattr(nvcc_build, "tool", lambda _: "")
        found = resources(own, scanned(own), store, "k", "sm_75,sm_90")
    assert {(f.arch, f.threads, f.shared_bytes, f.blocks) for f in found.fits} == {
        ("sm_75", 128, 0, 8), ("sm_75", 1024, 60000, 1), ("sm_90", 128, 0, 16), ("sm_90", 1024, 60000, 2),
    }  # fmt: skip
    assert {f.basis for f in found.fits} == ({"compiled"} if with_nvcc else {"evaluated"})
    assert any("k.cu:5" in said and "run time" in said for said in found.assumptions)
    assert all(b.occupancy is None for b in found.builds)  # a build is of no one launch


def test_a_first_configuration_that_does_not_compile_does_not_stop_the_others(
    tmp_path: Path, store: MemoryStore
) -> None:
    (tmp_path / "ops.py").write_text("""import triton
import triton.language as tl

@triton.autotune([triton.Config({"B": 48}), triton.Config({"B": 64}), triton.Config({"B": 128})], key=[])
@triton.jit
def filled(X, B: tl.constexpr):
    tl.store(X + tl.program_id(0) * B + tl.arange(0, B), 1.0)
""")
    own = Repository(name="own", root=tmp_path, packages=())
    found = resources(own, scanned(own), store, "filled", "sm_80")
    assert [bool(b.error) for b in found.builds] == [True, False, False]  # 48 is no power of two
    assert [f.config for f in found.fits] == [1, 2]


def test_a_function_that_is_jitted_by_a_call_is_cut_out_at_its_lines(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text("""def filled(X, B):
    tl.store(X + tl.program_id(0) * B + tl.arange(0, B), one())
def one():
    return 1.0
import triton
import triton.language as tl
one = triton.jit(one)
filled = triton.jit(filled)
""")
    own = Repository(name="own", root=tmp_path, packages=())
    inventory = scanned(own)
    (reference,) = select(inventory, "filled")
    modules = Modules(own)
    cut = sliced(reference, Context(modules, None, lambda: None), lambda path: (tmp_path / path).read_text())
    text = cut.files["ops.py"].splitlines()
    assert text[:4] == ["def filled(X, B):", text[1], "def one():", "    return 1.0"]
    assert text[-2:] == ["filled = triton.jit(filled, noinline=False)", "one = triton.jit(one, noinline=False)"]


@pytest.mark.parametrize("value", ["many", 0, True, 2.5])
def test_a_number_of_warps_that_is_none_is_refused(
    repository: Repository, inventory: Inventory, store: MemoryStore, value: Any
) -> None:
    said = resources(repository, inventory, store, "gather", "sm_80", {"num_warps": value}).statement
    assert said == f"Not compiled: num_warps is {value!r}."


@nvcc
def test_constants_that_only_a_compiler_can_tell_are_its_word(tmp_path: Path, store: MemoryStore) -> None:
    (tmp_path / "t.cu").write_text("""template <int M, int N> struct Traits {
  struct Storage { double d; char c; float tile[M][N]; };
  static constexpr int kSmemSize = sizeof(Storage) > 1024 ? M * N * 4 : -1;
};
__global__ void k(float* x) {
  __shared__ typename Traits<64, 32>::Storage s;
  s.tile[threadIdx.x % 64][threadIdx.y] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s.tile[threadIdx.x / 2 % 64][threadIdx.y];
}
void launch(float* x) { k<<<1, 128, Traits<8, 32>::kSmemSize>>>(x); }
""")
    own = Repository(name="own", root=tmp_path, packages=())
    inventory = scanned(own)
    (reference,) = select(inventory, "k")
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    (kernel,) = describe(own, inventory, [reference], **quiet)
    archs = [arch for arch in (parse_arch("sm_90"),) if arch]
    asked = ["Traits<64, 32>::kSmemSize", "sizeof(Traits<2, 3>::Storage)", "Traits<1>::none", "-(1LL << 40)"]
    whole = compiled(own, reference, kernel, [], archs, {}, "", store, probe=asked, **quiet)
    found = whole.constants
    values = {c.expression: c.value for c in found}
    assert values["Traits<64, 32>::kSmemSize"] == 64 * 32 * 4
    assert values["sizeof(Traits<2, 3>::Storage)"] == 40  # 8 + 1, padded to 12, + 24, padded to 8
    assert values["-(1LL << 40)"] == -(1 << 40)
    assert values["Traits<1>::none"] is None
    assert "t.cu" in next(c.error for c in found if c.value is None) or "too few arguments" in str(found)
    assert values["Traits<8,32>::kSmemSize"] == 8 * 32 * 4  # what the launch asks for, unasked
    assert [(f.threads, f.shared_bytes) for f in whole.fits] == [(128, 8 * 32 * 4 + 16 + 64 * 32 * 4)]
    assert all(c.arch == "sm_90" and c.compiler.startswith("nvcc ") for c in found)


# ---- machinery


def ended(process: str, until: float) -> bool:
    """Whether a process has ended, or does so by then: a kill takes effect a moment later."""
    stat = Path(f"/proc/{process.strip()}/stat")
    while stat.exists() and stat.read_text().split()[2] != "Z":
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_a_cancelled_compilation_ends_its_processes(tmp_path: Path) -> None:
    child = tmp_path / "child"

    class CancelledError(Exception):
        pass

    def checkpoint() -> None:
        if child.exists() and child.read_text().strip():
            raise CancelledError

    with pytest.raises(CancelledError):
        compiled_by(["sh", "-c", "sleep 60 & echo $! > child; wait"], tmp_path, seconds=30, checkpoint=checkpoint)
    assert ended(child.read_text(), time.monotonic() + 30)


def test_a_compilation_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from opscope_tools.kernels.compiled.process import compiled_by\n"
        f"compiled_by(['sh', '-c', 'echo $$ > child; exec sleep 60'], Path({str(tmp_path)!r}), seconds=50, checkpoint=lambda: None)"
    )
    asking = subprocess.Popen([sys.executable, "-c", code])
    child, ends = tmp_path / "child", time.monotonic() + 30
    try:
        while not (child.exists() and child.read_text().strip()) and time.monotonic() < ends:
            time.sleep(0.05)
        assert Path(f"/proc/{child.read_text().strip()}").exists()
    finally:
        asking.kill()
        asking.wait()
    assert ended(child.read_text(), ends)


def test_a_compilation_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    done = process.compiled_by(["sleep", "60"], tmp_path, seconds=0.2, checkpoint=lambda: None)
    assert done.timed_out


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("HMMA.16816.F32.BF16", "tensor-core product, 16x8x16"), ("HGMMA.64x128x16.F32", "tensor-core product, 64x128x16"),
        ("IMMA.16832.S8.S8", "tensor-core product, 16x8x32"), ("DMMA.8x8x4", "tensor-core product, 8x8x4"),
        ("LDG.E.128", "global load, 16 bytes"), ("LDG.E.U16", "global load, 2 bytes"), ("STG.E", "global store, 4 bytes"),
        ("LDGSTS.E.BYPASS.128", "asynchronous copy to shared, 16 bytes"), ("LDSM.16.M88.4", "matrix load from shared"),
        ("LDL.64", "local load (spill)"), ("UTMALDG.2D", "tensor memory access (TMA)"), ("MUFU.EX2", "special function"),
        ("SHFL.BFLY", "warp shuffle"), ("BAR.SYNC.DEFER_BLOCKING", "barrier"), ("FFMA", "float arithmetic"),
        ("IMAD.WIDE", "integer and address arithmetic"), ("F2FP.BF16.F32.PACK_AB", "conversion"), ("BRA", "branch"),
    ],
)  # fmt: skip
def test_instructions_are_named_by_what_they_do(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_a_tool_that_is_nowhere_is_not_found() -> None:
    assert sass.tool("opscope-has-no-such-tool") == ""
