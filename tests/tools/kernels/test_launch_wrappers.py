"""Launches through a project's own functions and macros: what such a launch asks for is what the wrapper makes of the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling, Launch
from opscope_tools.kernels import describe, scan, select

WRAPPERS = """#pragma once
struct how {
  dim3 blocks; dim3 threads; size_t bytes; cudaStream_t stream;
  how(const dim3 & blocks_, const dim3 & threads_, const size_t bytes_, const cudaStream_t stream_)
    : blocks(blocks_), threads(threads_), bytes((size_t) bytes_), stream(stream_) {}
};
struct plain { unsigned n; int stream_index; };

template <typename Kernel, typename... Args>
static inline void go(Kernel kernel, const how & with, Args &&... args) {
#ifdef LATE
  cudaLaunchConfig_t cfg = {};
  cfg.gridDim = with.blocks; cfg.blockDim = with.threads; cfg.dynamicSmemBytes = with.bytes; cfg.stream = with.stream;
  cudaLaunchKernelEx(&cfg, kernel, args...);
  return;
#endif
  kernel<<<with.blocks, with.threads, with.bytes, with.stream>>>(args...);
}

template <typename K, typename... A>
void for_each(cudaStream_t where, int n, K body, A... a) {
  const int threads = 256;
  body<<<(n + threads - 1) / threads, threads, 0, where>>>(a...);
}

template <typename K, typename... A>
void extended(dim3 grid, dim3 block, K f, A... a) {
  cudaLaunchConfig_t cfg;
  cfg.gridDim = grid;
  cfg.blockDim = block;
  cfg.dynamicSmemBytes = 512;
  cudaLaunchKernelEx(&cfg, f, a...);
}

#define RUN(kernel, rows, ...) kernel<<<dim3((rows), 2), 64, sizeof(float) * 64, stream>>>(__VA_ARGS__)
"""

CALLS = """#include "wrap.cuh"
template <int N> __global__ void fill(float * x) { x[blockIdx.x * N + threadIdx.x] = 1.f; }
__global__ void add(float * x, int n) { x[threadIdx.x] += n; }
__global__ void mul(float * x) { x[threadIdx.x] *= 2.f; }
__global__ void sub(float * x) { x[threadIdx.x] -= 2.f; }
__global__ void neg(float * x) { x[threadIdx.x] = -x[threadIdx.x]; }
__global__ void idle(float * x) { x[0] = 0.f; }
"""

HOST = """#include "calls.cuh"
void host(float * x, int rows, int n, cudaStream_t stream) {
  const dim3 blocks(rows, 3, 1);
  const how with = how(blocks, 128, 1024, stream);
  go(fill<128>, with, x);
  go(add, {rows + 1, 32, 0, stream}, x, n);
  for_each(stream, n * 4, mul, x);
  extended(dim3(rows, 5), dim3(16, 16), sub, x);
  RUN(neg, rows + 7, x);
}
void other(how with, float * x) { go(add, with, x, 1); }
"""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KernelTiling]:
    root: Path = tmp_path_factory.mktemp("wrapped")
    (root / "wrap.cuh").write_text(WRAPPERS)
    (root / "calls.cuh").write_text(CALLS)
    (root / "host.cu").write_text(HOST)  # no `__global__`, no `<<<`: only calls of wrappers
    own = Repository(name="own", root=root, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(own, MemoryStore(), **quiet)
    return {k.name: k for k in describe(own, inventory, select(inventory, "own"), **quiet)}


@pytest.mark.parametrize(
    ("kernel", "line", "grid", "block", "threads", "shared", "stream"),
    [
        ("fill", 5, ("{rows}", "3", "1"), ("128",), 128, "1024", "stream"),
        ("add", 6, ("{rows} + 1",), ("32",), 32, "0", "stream"),
        ("mul", 7, ("cdiv({n} * 4, 256)",), ("256",), 256, "0", "stream"),
        ("sub", 8, ("{rows}", "5"), ("16", "16"), 256, "512", ""),
        ("neg", 9, ("{rows} + 7", "2"), ("64",), 64, "256", "stream"),
    ],
)
def test_a_launch_through_a_wrapper_is_resolved_through_its_parameters(
    described: dict[str, KernelTiling], kernel: str, line: int, grid: tuple[str, ...], block: tuple[str, ...],
    threads: int, shared: str, stream: str,
) -> None:  # fmt: skip
    launch = described[kernel].grid[0]
    assert (launch.file, launch.line, launch.function) == ("host.cu", line, "host")
    assert (launch.dimensions, launch.block, launch.threads) == (grid, block, threads)
    assert (launch.shared_memory, launch.stream) == (shared, stream)
    assert launch.definitions[0].startswith("launched by ")
    assert launch.unresolved == ()


def test_what_the_callers_caller_decides_is_said_to_be_unresolved(described: dict[str, KernelTiling]) -> None:
    (_, through) = described["add"].grid
    assert through.line == 11
    assert through.threads is None
    assert through.dimensions == ()
    assert "grid" in through.unresolved
    assert through.shared_memory == "{with.bytes}"  # not 0: it is not told


def test_the_template_arguments_of_the_kernel_that_is_handed_over_count(described: dict[str, KernelTiling]) -> None:
    assert described["fill"].grid[0].kernel == "fill<128>"
    assert [v.value for v in described["fill"].constexpr[0].values] == ["128"]
    assert described["idle"].grid == ()  # nobody launches it


def test_of_wrappers_of_one_name_the_one_that_fits_is_meant_and_none_where_several_do(tmp_path: Path) -> None:
    kernel = "__global__ void k(float * x) { x[threadIdx.x] = 1.f; }\n"
    both = (
        "template <typename K> void go(K f, int n, float * x) { f<<<n, 64>>>(x); }\n"
        "template <typename K> void go(K f, int n, int t, float * x) { f<<<n, t>>>(x); }\n"
    )
    again = "template <typename K> void go(K f, int n, float * x) { f<<<n * 2, 32>>>(x); }\n"
    host = "void host(float * x) { go(k, 7, x); }\nvoid wide(float * x) { go(k, 7, 128, x); }\n"
    (tmp_path / "a.cu").write_text(kernel + both + host)
    assert [(g.dimensions, g.block) for g in _grids(tmp_path)] == [(("7",), ("64",)), (("7",), ("128",))]
    (tmp_path / "a.cu").write_text(kernel + both + again + host)  # as in two branches of an #if
    first, second = _grids(tmp_path)
    assert (first.dimensions, first.block, first.shared_memory) == ((), (), "{go()}")
    assert (second.dimensions, second.block) == (("7",), ("128",))


def _grids(root: Path) -> tuple[Launch, ...]:
    own = Repository(name="own", root=root, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(own, MemoryStore(), **quiet)
    (found,) = describe(own, inventory, select(inventory, "k"), **quiet)
    return found.grid
