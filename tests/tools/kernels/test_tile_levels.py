"""Tiles on every level in elements, configurations as Triton counts them, loops that programs share: each on a kernel of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.resources import Build, Resources
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import describe, scan
from opscope_tools.kernels.projections import drawing
from opscope_tools.kernels.projections.levels import of_builds
from opscope_tools.running.workspace import folder_repository

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
COPY = """
__global__ void copy4(const float* __restrict__ x, float* __restrict__ y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n / 4) reinterpret_cast<float4*>(y)[i] = reinterpret_cast<const float4*>(x)[i];
}
__global__ void assembled(const unsigned* a, const unsigned* b, float* c) {
  __shared__ unsigned tile[64][32];
  float d[4] = {0, 0, 0, 0};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0}, %1, %2, 1, 1, 1, 0, 0;" : "+f"(d[0]) : "l"(a), "l"(b));
  if (threadIdx.x == 0) c[threadIdx.x] = d[0];
}
__global__ void fragments(const half* a, const half* b, float* c) {
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 32, 8, 16, half, nvcuda::wmma::row_major> fa;
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 32, 8, 16, half, nvcuda::wmma::col_major> fb;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 32, 8, 16, float> fc;
  nvcuda::wmma::mma_sync(fc, fa, fb, fc);
}
__global__ void sharing(const float* x, float* y, int n) {
  const int tiles = (n + 1023) / 1024;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) y[tile * 1024 + i] = 2.0f * x[tile * 1024 + i];
  }
}
void run(const float* x, float* y, const half* a, const half* b, float* c, int n) {
  copy4<<<(n / 4 + 255) / 256, 256>>>(x, y, n);
  assembled<<<1, 128>>>((unsigned*)a, (unsigned*)b, c);
  fragments<<<1, 32>>>(a, b, c);
  sharing<<<132, 256>>>(x, y, n);
}
"""
TUNED = (
    HEAD
    + """
def configs():
    return [triton.Config({"BM": m, "BN": 64, "BK": 32}, num_warps=w, num_stages=s) for m in (64, 128) for w in (4, 8) for s in (2, 3)]

@triton.jit
def persistent(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, NUM_SMS: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, NUM_SMS):
        rows = (tile // tiles_n) * BM + tl.arange(0, BM)
        columns = (tile % tiles_n) * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            inner = k + tl.arange(0, BK)
            acc += tl.dot(tl.load(A + rows[:, None] * K + inner[None, :]), tl.load(B + inner[:, None] * N + columns[None, :]))
        tl.store(C + rows[:, None] * N + columns[None, :], acc)

tuned = triton.autotune(configs=configs(), key=["M", "N"])(persistent)

@triton.autotune(configs=[], key=["n"])
@triton.jit
def empty(X, n, BLOCK: tl.constexpr):
    tl.store(X + tl.arange(0, BLOCK), 0.0)

@triton.autotune(configs=[c for c in configs() if c.kwargs["BM"] > 64 and c.num_warps == 8], key=["n"])
@triton.jit
def filtered(X, n, BM: tl.constexpr):
    tl.store(X + tl.arange(0, BM), 0.0)

@triton.autotune(configs=fetched("somewhere"), key=["n"])
@triton.jit
def unread(X, n, BLOCK: tl.constexpr):
    tl.store(X + tl.arange(0, BLOCK), 0.0)

@triton.jit
def strips(X, Y, BM: tl.constexpr, S: tl.constexpr):
    off = 0
    while off + S <= BM:
        at = tl.program_id(0) * BM + off + tl.arange(0, S)
        tl.store(Y + at, tl.load(X + at) * 2.0)
        off += S

@triton.jit
def striding(X, Y, n, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    while tile < tl.cdiv(n, BLOCK):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(Y + at, tl.load(X + at) + 1.0)
        tile += tl.num_programs(0)

@triton.jit
def halved(X, Y, n, BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(n, BLOCK), 64):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(Y + at, tl.load(X + at) + 1.0)

def run(a, b, c, x, y):
    M, K = a.shape
    N = b.shape[1]
    NUM_SMS = torch.cuda.get_device_properties("cuda").multi_processor_count
    tuned[lambda meta: (min(NUM_SMS, triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])),)](a, b, c, M, N, K, NUM_SMS=NUM_SMS)
    strips[(x.numel() // 128,)](x, y, BM=128, S=48, num_warps=4)
    striding[(132,)](x, y, x.numel(), BLOCK=1024)
    halved[(132,)](x, y, x.numel(), BLOCK=1024)
"""
)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KernelTiling]:
    folder: Path = tmp_path_factory.mktemp("levels")
    (folder / "copy.cu").write_text(COPY)
    (folder / "tuned.py").write_text(TUNED)
    repository = folder_repository("levels", folder)
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(repository, MemoryStore(), **quiet)
    sizes = {"M": 1000, "N": 640, "K": 96, "BM": 128, "BN": 64, "BK": 32, "n": 5000, "S": 48, "BLOCK": 1024}
    return {k.name: k for k in describe(repository, inventory, inventory.kernels, sizes=sizes, **quiet)}


def told(kernel: KernelTiling, level: str) -> dict[str, tuple[str, ...] | str]:
    return {one.what: one.shape or one.elements for one in kernel.levels if one.level == level}


def test_a_thread_that_moves_a_float4_has_four_elements_and_a_warp_and_block_as_many_times_more(
    kernels: dict[str, KernelTiling],
) -> None:
    copy = kernels["copy4"]
    assert told(copy, "grid") == {"thread blocks": ("cdiv({n} // 4, 256)",)}
    assert told(copy, "thread") == {"x": ("4",), "y": ("4",)}
    assert told(copy, "warp") == {"x": ("128",), "y": ("128",)}
    assert told(copy, "block") == {"x": ("1024",), "y": ("1024",)}
    shown = drawing.screen(copy).splitlines()
    assert "in a warp    x 128 | y 128" in shown
    assert "in a thread  x 4 | y 4" in shown


def test_matrix_instructions_say_their_shape(kernels: dict[str, KernelTiling]) -> None:
    assembled = kernels["assembled"]
    assert told(assembled, "instruction") == {"mma.sync": ("16", "8", "16"), "wgmma": ("64", "128", "16")}
    assert told(assembled, "block") == {"tile": ("64", "32")}  # nothing of `c`, which one thread writes
    assert told(kernels["fragments"], "instruction") == {"wmma": ("32", "8", "16")}
    build = Build(
        compiler="nvcc",
        arch="sm_90",
        specialisation={},
        instructions={"tensor-core product, 64x128x16": 4, "branch": 2},
    )
    (chosen,) = of_builds(Resources(builds=(build,)))
    assert (chosen.shape, chosen.elements) == (("64", "128", "16"), "8192")


def test_a_program_says_its_tiles_and_the_even_share_of_a_warp(kernels: dict[str, KernelTiling]) -> None:
    assert told(kernels["persistent"], "block") == {"A": ("BM", "BK"), "B": ("BK", "BN"), "C": ("BM", "BN")}
    assert told(kernels["strips"], "warp") == {"X, Y": "S / 4"}
    assert told(kernels["strips"], "thread") == {"X, Y": "S / (4 * 32)"}


def test_persistent_programs_share_the_tiles_of_the_whole(kernels: dict[str, KernelTiling]) -> None:
    persistent, striding = kernels["persistent"], kernels["striding"]
    assert persistent.num_tiles == "cdiv({M}, BM) * cdiv({N}, BN)"
    assert striding.num_tiles == "cdiv({n}, BLOCK)"
    assert persistent.cost is not None
    assert striding.cost is not None
    # 8 x 10 tiles of 128 x 64, each of 3 products of 128 x 64 x 32
    assert persistent.cost.evaluated["launch_flops"] == 80 * 3 * 2 * 128 * 64 * 32
    assert striding.cost.evaluated["launch_flops"] == 5 * 1024
    assert any(note.startswith("Programs are persistent: 132 of them") for note in striding.notes)


def test_persistent_blocks_share_the_tiles_of_the_whole(kernels: dict[str, KernelTiling]) -> None:
    sharing = kernels["sharing"]
    assert sharing.num_tiles == "cdiv({n}, 1024)"
    assert sharing.notes == ("Blocks are persistent: 132 of them share the tiles.",)
    assert [(one.strides, one.coalesced) for one in (*sharing.loads, *sharing.stores)] == [(("1",), "yes")] * 2


def test_a_step_that_is_not_the_grid_shares_nothing(kernels: dict[str, KernelTiling]) -> None:
    halved = kernels["halved"]
    assert halved.num_tiles == "132"
    assert halved.cost is not None
    assert halved.cost.launch_flops == ""


def test_a_loop_whose_test_adds_before_it_compares_runs_as_often_as_a_whole_step_fits(
    kernels: dict[str, KernelTiling],
) -> None:
    strips = kernels["strips"]
    assert strips.cost is not None
    # 48 and 96 fit into 128, a third strip does not
    assert strips.cost.evaluated["flops"] == 2 * 48


@pytest.mark.parametrize(
    ("name", "count", "warps"), [("persistent", 8, {4, 8}), ("empty", 1, {4}), ("filtered", 2, {8})]
)
def test_configurations_are_counted_as_triton_tries_them(
    name: str, count: int, warps: set[int], kernels: dict[str, KernelTiling]
) -> None:
    tuned = kernels[name].autotune
    assert tuned is not None
    assert tuned.count == count
    assert {c.num_warps for c in tuned.configs} == warps
    assert all(c.when == "" for c in tuned.configs)


def test_configurations_that_reading_does_not_find_are_never_none_at_all(kernels: dict[str, KernelTiling]) -> None:
    tuned = kernels["unread"].autotune
    assert tuned is not None
    assert (tuned.count, tuned.unresolved) == (None, "fetched('somewhere')")
    assert "autotune     unresolved configurations, key n" in drawing.screen(kernels["unread"])
