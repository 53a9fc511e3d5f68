"""CUTLASS 3 operators: launched through CUTLASS' own launchers, followed through `using` to the tiles that they spell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import describe, scan, select

HEADER = """#pragma once
namespace cutlass {
template <typename Operator>
__global__ __launch_bounds__(Operator::MaxThreadsPerBlock, Operator::MinBlocksPerMultiprocessor)
void device_kernel(const typename Operator::Params params) {
  extern __shared__ char smem[];
  Operator op;
  op(params, smem);
}
}
"""

PROGRAM = """#include "device_kernel.h"
using namespace cute;
template <typename Element>
struct Config {
  using TileShape = Shape<_128, _256, _64>;
  using ClusterShape = cute::Shape<cute::_2, cute::_1, cute::_1>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<Element, TileShape, ClusterShape>::CollectiveOp;
};

void direct(Params const& params, dim3 grid, cudaStream_t stream) {
  using TileShape = Shape<Int<64>, Int<128>, Int<32>>;
  using Epilogue = Builder<float, Shape<_64, _32>>;
  using Mainloop = Builder<TileShape, Shape<_1, _1, _1>>;
  using GemmKernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
  dim3 const block(384, 1, 1);
  cutlass::kernel_launch<GemmKernel>(grid, block, 1024, stream, params, false);
}

void clustered(cutlass::half_t* p, Params params, int tiles, int smem, cudaStream_t stream) {
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Config<half_t>::Mainloop>;
  dim3 const cluster(2, 1, 1);
  void* kernel_params[] = {&params};
  [[maybe_unused]] void const* kernel = (void const*) cutlass::device_kernel<Kernel>;
  cutlass::ClusterLauncher::launch(dim3(tiles, 4), cluster, dim3(256), smem, stream, kernel, kernel_params);
}

void on_cluster(Params params, int tiles, int smem, cudaStream_t stream) {
  using Kernel = Attention<decltype(cute::make_shape(Int<80>{}, Int<96>{}, Int<128>{}))>;
  dim3 cluster_dims(1, 2, 1);
  void const* kernel = (void const*) cutlass::device_kernel<Kernel>;
  cutlass::ClusterLaunchParams launch_params{dim3(tiles), dim3(128), cluster_dims, smem, stream};
  cutlass::launch_kernel_on_cluster(launch_params, kernel, params);
}

template <class Anything>
struct Adapter {
  static void run(Params const& params, dim3 grid, cudaStream_t stream) {
    cutlass::device_kernel<Anything><<<grid, 96, 0, stream>>>(params);
  }
};
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> KernelTiling:
    root: Path = tmp_path_factory.mktemp("cutlass")
    (root / "device_kernel.h").write_text(HEADER)
    (root / "program.cu").write_text(PROGRAM)
    own = Repository(name="own", root=root, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(own, MemoryStore(), **quiet)
    (found,) = describe(own, inventory, select(inventory, "device_kernel"), **quiet)
    return found


def test_every_launcher_is_a_launch_with_its_own_arguments(kernel: KernelTiling) -> None:
    launches = {
        g.function: (g.kernel, g.dimensions, g.block, g.shared_memory, g.stream, g.cluster) for g in kernel.grid
    }
    assert launches == {
        "direct": ("device_kernel<GemmKernel>", ("{grid}",), ("384", "1", "1"), "1024", "stream", ""),
        "clustered": ("device_kernel<Kernel>", ("{tiles}", "4"), ("256",), "{smem}", "stream", "2, 1, 1"),
        "on_cluster": ("device_kernel<Kernel>", ("{tiles}",), ("128",), "{smem}", "stream", "1, 2, 1"),
        "run": ("device_kernel<Anything>", ("{grid}",), ("96",), "0", "stream", ""),
    }


def test_an_operators_aliases_lead_to_the_shapes_that_they_spell(kernel: KernelTiling) -> None:
    lines = PROGRAM.splitlines()
    found = {(t.name, t.values, t.file, t.line) for t in kernel.tile}
    at = {text: number for number, line in enumerate(lines, 1) for text in (line.strip(),)}
    assert found == {
        ("TileShape", ("64 x 128 x 32",), "program.cu", at["using TileShape = Shape<Int<64>, Int<128>, Int<32>>;"]),
        ("Shape<_64, _32> in Epilogue", ("64 x 32",), "program.cu", at["using Epilogue = Builder<float, Shape<_64, _32>>;"]),
        ("Shape<_1, _1, _1> in Mainloop", ("1 x 1 x 1",), "program.cu", at["using Mainloop = Builder<TileShape, Shape<_1, _1, _1>>;"]),
        ("TileShape", ("128 x 256 x 64",), "program.cu", at["using TileShape = Shape<_128, _256, _64>;"]),
        ("ClusterShape", ("2 x 1 x 1",), "program.cu", at["using ClusterShape = cute::Shape<cute::_2, cute::_1, cute::_1>;"]),
        (
            "make_shape(Int<80>{}, Int<96>{}, Int<128>{}) in Kernel", ("80 x 96 x 128",), "program.cu",
            at["using Kernel = Attention<decltype(cute::make_shape(Int<80>{}, Int<96>{}, Int<128>{}))>;"],
        ),
    }  # fmt: skip


def test_an_operator_that_is_a_template_parameter_is_said_to_be_one(kernel: KernelTiling) -> None:
    line = next(i for i, text in enumerate(PROGRAM.splitlines(), 1) if "device_kernel<Anything>" in text)
    assert (
        f"Anything is a template parameter of Adapter (program.cu:{line}): its tiles are the caller's." in kernel.notes
    )


def test_a_launch_whose_kernel_is_in_no_file_is_listed_as_not_analysed(tmp_path: Path) -> None:
    (tmp_path / "program.cu").write_text(PROGRAM)
    own = Repository(name="own", root=tmp_path, packages=())
    inventory = scan(own, MemoryStore(), checkpoint=lambda: None, progress=lambda *_: None)
    expected = [
        i for i, text in enumerate(PROGRAM.splitlines(), 1)
        if "kernel_launch<" in text or "::launch" in text or "<<<" in text
    ]  # fmt: skip
    assert sorted(u.line for u in inventory.not_analysed) == expected
    assert {(u.name, u.form) for u in inventory.not_analysed} == {
        ("device_kernel", "CUTLASS operator whose kernel is outside the repository")
    }
