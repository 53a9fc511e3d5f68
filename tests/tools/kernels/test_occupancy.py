"""Occupancy against NVIDIA's own calculator, compiled from its header where a CUDA toolkit or Triton brings it."""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.errors import InputError
from opscope_schemas.resources import Fit, Resources
from opscope_tools.kernels import describe, parse_arch, scan, select, static_resources
from opscope_tools.kernels.compiled.occupancy import LIMITS, by_registers, limits_of, occupancy

CASES = 20_000
_PROGRAM = r"""
#include <cstdio>
#include <cstddef>
#include "cuda_occupancy.h"
int main() {
  int major, minor, threads, registers, barriers; size_t fixed, dynamic, sm; int per_sm, blocks_per_sm; size_t reserved;
  while (scanf("%d %d %d %d %d %zu %zu %zu %d %zu %d", &major, &minor, &threads, &registers, &barriers, &fixed, &dynamic,
               &sm, &per_sm, &reserved, &blocks_per_sm) == 11) {
    cudaOccDeviceProp p; cudaOccFuncAttributes a; cudaOccDeviceState s; cudaOccResult r;
    p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = per_sm;
    p.regsPerBlock = 65536; p.regsPerMultiprocessor = 65536; p.warpSize = 32; p.sharedMemPerBlock = 49152;
    p.sharedMemPerMultiprocessor = sm; p.numSms = 1; p.sharedMemPerBlockOptin = sm - reserved;
    p.reservedSharedMemPerBlock = reserved;
    a.maxThreadsPerBlock = 1024; a.numRegs = registers; a.sharedSizeBytes = fixed; a.partitionedGCConfig = PARTITIONED_GC_OFF;
    a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; a.maxDynamicSharedSizeBytes = dynamic; a.numBlockBarriers = barriers;
    int e = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, dynamic);
    printf("%d %d\n", e, e ? 0 : r.activeBlocksPerMultiprocessor);
  }
}
"""


def _header() -> Path | None:
    nvcc = shutil.which("nvcc")
    beside = [Path(nvcc).resolve().parents[1] / "include"] if nvcc else []
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin:
        beside.append(Path(triton.origin).parent / "backends/nvidia/include")
    return next(
        (folder for folder in [Path("/usr/local/cuda/include"), *beside] if (folder / "cuda_occupancy.h").is_file()),
        None,
    )


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NVIDIA's calculator as a program: a line of sizes in, the number of blocks out."""
    header, compiler = _header(), shutil.which("g++") or shutil.which("c++")
    if header is None or compiler is None:
        pytest.skip("no cuda_occupancy.h or no C++ compiler on this machine")
    folder = tmp_path_factory.mktemp("calculator")
    (folder / "main.cpp").write_text(_PROGRAM)
    subprocess.run(
        [compiler, "-O1", "-w", f"-I{header}", "main.cpp", "-o", "main"], cwd=folder, check=True, timeout=120
    )
    return folder / "main"


def test_blocks_are_those_of_nvidias_calculator(calculator: Path) -> None:
    draw = random.Random(5)
    cases, lines = [], []
    for _ in range(CASES):
        arch = draw.choice(list(LIMITS))
        limits, number = LIMITS[arch], arch.removeprefix("sm_")
        threads, registers, barriers = draw.randint(1, 1024), draw.randint(1, 255), draw.choice((1, 1, 2, 5, 16))
        fixed = draw.choice((0, draw.randint(0, 49152)))
        dynamic = draw.choice((0, draw.randint(0, limits.shared)))
        cases.append((arch, threads, registers, fixed, dynamic, barriers))
        lines.append(
            f"{number[:-1]} {number[-1]} {threads} {registers} {barriers} {fixed} {dynamic} {limits.shared} "
            f"{limits.threads} {limits.reserved} {limits.blocks}"
        )
    done = subprocess.run([calculator], input="\n".join(lines), capture_output=True, text=True, check=True, timeout=120)
    theirs = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(theirs) == CASES
    assert all(error == 0 for error, _ in theirs)
    wrong = [
        (case, ours, blocks)
        for case, (_, blocks) in zip(cases, theirs, strict=True)
        if (ours := occupancy(*case[:3], case[3], case[4], case[5]).blocks) != blocks
    ]
    assert wrong == []
    assert len({blocks for _, blocks in theirs}) > 10  # the cases differ


def test_what_limits_is_named() -> None:
    register_bound = occupancy("sm_80", 128, 128, 0)
    assert (register_bound.blocks, register_bound.limited_by, register_bound.percent) == (4, ("registers",), 25.0)
    shared_bound = occupancy("sm_89", 256, 32, 48 * 1024)
    assert (shared_bound.blocks, shared_bound.limited_by) == (2, ("shared memory",))
    assert occupancy("sm_90", 1024, 32, 0).limited_by == ("warps", "registers")


def test_a_block_that_does_not_run_says_what_breaks() -> None:
    broken = occupancy("sm_120", 256, 128, 0, 131072)
    assert (broken.fits, broken.blocks) == (False, 0)
    assert broken.breaks == "shared memory: 131072 bytes, at most 101376"
    assert occupancy("sm_90", 256, 32, 49153).breaks == "static shared memory: 49153 bytes, at most 49152"
    assert occupancy("sm_90", 1024, 80, 0).breaks == "registers: 81920 per block, at most 65536"


def test_steps_by_registers_cover_every_number_of_them() -> None:
    steps = by_registers("sm_86", 256, 16384)
    assert steps[-1].registers == 255
    for registers in range(1, 256):
        step = next(s for s in steps if s.registers is not None and registers <= s.registers)
        assert step.blocks == occupancy("sm_86", 256, registers, 16384).blocks


def test_an_unknown_architecture_is_refused_with_those_that_are_known() -> None:
    assert limits_of("sm_90a") == LIMITS["sm_90"]
    with pytest.raises(InputError, match="sm_42") as refused:
        limits_of("sm_42")
    assert "sm_121" in str(refused.value)


_REFUSED = """
__global__ void __launch_bounds__(128) bounded(float* x) { x[threadIdx.x] = 1.f; }
template <int N> __global__ void __launch_bounds__(2 * N) twice(float* x) { x[threadIdx.x] = N; }
__global__ void open(float* x) { x[threadIdx.x] = 1.f; }
__global__ void __launch_bounds__(UNKNOWN) asked(float* x) { x[threadIdx.x] = 1.f; }
void launches(float* x, int n) {
  bounded<<<n, 128>>>(x);
  bounded<<<n, 129>>>(x);
  twice<64><<<n, 128>>>(x);
  twice<32><<<n, 128>>>(x);
  open<<<dim3(n, 65535, 65535), dim3(8, 1, 64)>>>(x);
  open<<<n, dim3(2, 4, 65)>>>(x);
  open<<<n, dim3(64, 16, 2)>>>(x);
  open<<<dim3(1, 65536), 32>>>(x);
  open<<<dim3(1, 1, 70000), 64>>>(x);
  open<<<2147483648, 96>>>(x);
  asked<<<n, 512>>>(x);
}
"""


@pytest.mark.parametrize(
    ("kernel", "rows"),
    [
        ("bounded", {128: "", 129: "threads: 129 per block, at most 128 by __launch_bounds__"}),
        ("asked", {512: ""}),
        (
            "open",
            {
                512: "", 520: "blockDim.z: 65, at most 64", 2048: "threads: 2048 per block, at most 1024",
                32: "gridDim.y: 65536, at most 65535", 64: "gridDim.z: 70000, at most 65535",
                96: "gridDim.x: 2147483648, at most 2147483647",
            },
        ),
    ],
)  # fmt: skip
def test_a_launch_that_cuda_refuses_does_not_fit(tmp_path: Path, kernel: str, rows: dict[int, str]) -> None:
    fits = _static(tmp_path, kernel)
    assert {f.threads: f.breaks for f in fits} == rows
    assert all(f.fits == (not f.breaks) and (f.blocks > 0) == f.fits for f in fits)


def test_launch_bounds_in_a_template_argument_are_those_of_the_launch(tmp_path: Path) -> None:
    assert [f.breaks for f in _static(tmp_path, "twice")] == [
        "", "threads: 128 per block, at most 64 by __launch_bounds__",
    ]  # fmt: skip


def _static(tmp_path: Path, kernel: str) -> tuple[Fit, ...]:
    (tmp_path / "k.cu").write_text(_REFUSED)
    own = Repository(name="own", root=tmp_path, packages=())
    inventory = scan(own, MemoryStore(), checkpoint=lambda: None, progress=lambda *_: None)
    (found,) = describe(own, inventory, select(inventory, kernel), checkpoint=lambda: None, progress=lambda *_: None)
    return static_resources(found, [arch for arch in (parse_arch("sm_90"),) if arch]).fits


@pytest.mark.parametrize("how", ["attribute", "launch", "none"])
def test_blocks_in_clusters_run_from_sm_90_on(tmp_path: Path, how: str) -> None:
    attribute = "__cluster_dims__(2, 1, 1) " if how == "attribute" else ""
    launch = """cudaLaunchConfig_t cfg = {}; cfg.gridDim = dim3(8); cfg.blockDim = 96; cudaLaunchAttribute at[1];
  at[0].id = cudaLaunchAttributeClusterDimension; at[0].val.clusterDim.x = 4; at[0].val.clusterDim.y = 1; at[0].val.clusterDim.z = 1;
  cfg.attrs = at; cfg.numAttrs = 1; cudaLaunchKernelEx(&cfg, k, x);"""
    plain = "k<<<8, 96>>>(x);"
    text = f"__global__ void {attribute}k(float* x) {{ x[threadIdx.x] += 1.f; }}\nvoid go(float* x) {{ {launch if how == 'launch' else plain} }}"
    found = {fit.arch: fit.fits for fit in _resources(tmp_path, text).fits}
    assert found == {name: how == "none" or name not in {"sm_80", "sm_89"} for name in found}
    assert {"sm_80", "sm_90"} <= set(found)


@pytest.mark.parametrize(
    ("fixed", "dynamic", "asked"), [(60, 0, False), (40, 0, False), (40, 20, True), (0, 60, True), (1, 40, False)]
)
def test_only_dynamic_shared_memory_can_be_asked_for(tmp_path: Path, fixed: int, dynamic: int, asked: bool) -> None:
    declared = f"__shared__ float s[{fixed} * 256]; s[0] = 1;" if fixed else ""
    text = f"__global__ void k(float* x) {{ extern __shared__ float d[]; {declared} x[0] = d[0]; }}\nvoid go(float* x) {{ k<<<8, 96, {dynamic * 1024}>>>(x); }}"
    found = _resources(tmp_path, text)
    assert any("cudaFuncSetAttribute" in said for said in found.assumptions) is asked
    assert all(fit.fits for fit in found.fits if fit.arch == "sm_90") is (fixed <= 48)


def _resources(folder: Path, text: str) -> Resources:
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    (folder / "k.cu").write_text(text)
    repository = Repository(name="r", root=folder, packages=())
    inventory = scan(repository, MemoryStore(), **quiet)
    (kernel,) = describe(repository, inventory, select(inventory, "k"), **quiet)
    return static_resources(kernel, [])
