"""FLOPs and bytes of CUDA kernels against the kernels themselves, compiled for the host and run thread by thread."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cuda_oracle import COMPILER, CudaCase, counted, part_of
from kernel_sources import kernel_sources
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import Cost
from opscope_tools.kernels import Inventory, describe, scan, select

OWN = Path(__file__).parents[2] / "corpus/cuda_costs"
TRAPS = [
    CudaCase("strided", ("buffer<float>(1000)", "buffer<float>(1000)", "1000", "Float(2)"), sizes={"n": 1000}),
    CudaCase("grid_strided", ("buffer<float>(900)", "buffer<float>(900)", "900"), (3,), sizes={"n": 900, "gridDim.x": 3}),
    CudaCase("vectors", ("buffer<float>(512)", "buffer<float>(512)", "512"), (2,), sizes={"n": 512}),
    CudaCase("block_sum", ("buffer<float>(777)", "buffer<float>(3)", "259"), (3,), (128,), {"n": 259}),
    CudaCase("tree", ("buffer<float>(128)", "buffer<float>(2)"), (2,)),
    CudaCase("matmul<16>", ("buffer<float>(2048)", "buffer<float>(4096)", "buffer<float>(2048)", "64", "64"), (4, 2), (16, 16),
             {"k": 64, "n": 64}, {"TILE": 16}),
    CudaCase("nested<float, 1, true>", ("buffer<float>(4096)", "buffer<float>(64)", "buffer<float>(4096)", "rising<int>(1, 9) + 0",
             "4096"), sizes={"length": 0, "sizeof(T)": 4}, given={"MODE": 1, "BIAS": 1}),
    CudaCase("nested<half, 1, false>", ("buffer<half>(4096)", "buffer<half>(64)", "buffer<half>(4096)", "rising<int>(9, 9) + 5",
             "4096"), sizes={"length": 5, "sizeof(T)": 2}, given={"MODE": 1, "BIAS": 0}),
    CudaCase("nested<double, 2, false>", ("buffer<double>(4096)", "buffer<double>(64)", "buffer<double>(4096)",
             "rising<int>(9, 9) + 7", "4096"), sizes={"length": 7, "sizeof(T)": 8}, given={"MODE": 2, "BIAS": 0}),
    CudaCase("behind", ("buffer<float>(256)", "7", "true"), (2,), sizes={"n": 7}),
    CudaCase("halves", ("buffer<half>(512)", "buffer<half2>(256)", "buffer<half2>(256)", "512"), sizes={"n": 512}),
    CudaCase("rows", ("buffer<float>(1024)", "buffer<float>(16)", "100"), (2,), (128,), {"columns": 100}),
    CudaCase("moving", ("buffer<float>(512)", "buffer<int>(512)", "buffer<float>(512)", "300", "1"), sizes={"n": 300}),
    CudaCase("counters", ("buffer<float>(512)", "buffer<float>(64)", "5"), sizes={"n": 5}),
    *(CudaCase("ahead", ("buffer<float>(512)", "buffer<float>(512)", str(n)), sizes={"n": n}) for n in (1, 2, 5)),
    *(CudaCase("last_turns", ("buffer<float>(128)", "buffer<float>(64)", str(n), str(m)), sizes={"n": n, "m": m})
      for n, m in ((1, 1), (2, 4), (5, 3), (4, 9))),
]  # fmt: skip

#: of exllamav2: file, functions of it that are compiled, launches
VIEWS = "exllamav2_ext/cuda/matrix_view.cuh"
ROW = ("buffer<half>(4096)", "buffer<half>(4096)")
PACKAGE = [
    ("rms_norm.cu", (), [
        CudaCase("rms_norm_kernel<2>", ("buffer<half>(8192)", "buffer<half>(4096)", "buffer<half>(8192)", "1e-6f", "1.0f", "2",
                 "4096", "true", "false", "false"), (2,), (1024,), {"rows": 2}, {"blocks_per_warp": 2}),
    ]),
    ("layer_norm.cu", (), [
        CudaCase("layer_norm_kernel<2>", ("buffer<half>(8192)", "buffer<half>(4096)", "buffer<half>(4096)", "buffer<half>(8192)",
                 "1e-5f", "1.0f", "2", "4096", "true"), (2,), (1024,), {"rows": 2}, {"blocks_per_warp": 2}),
    ]),
    ("head_norm.cu", (), [
        CudaCase("head_norm_kernel", ("buffer<half>(2048)", "buffer<half>(512)", "buffer<half>(512)", "buffer<half>(2048)", "1e-6f",
                 "1.0f", "4", "4", "128", "true"), (4, 4), (64,), {"head_dim": 128}),
    ]),
    ("softcap.cu", (), [
        CudaCase("cuda_softcap_kernel", ("buffer<float>(512)", "512", "30.0f"), (2,), (256,), {"numel": 512}),
        CudaCase("h_cuda_softcap_kernel", ("buffer<half>(1024)", "1024", "30.0f"), (2,), (256,), {"numel": 1024}),
    ]),
    ("h_add.cu", (), [
        CudaCase("cuda_vector_add_kernel", ("buffer<half>(2048)", "buffer<half>(64)", "32", "64"), (1, 2), (32,),
                 {"height": 32, "width": 64, "blockIdx.y": 0}),
        CudaCase("cuda_vector_set_kernel", ("buffer<half>(2048)", "buffer<half>(64)", "32", "64"), (1, 2), (32,),
                 {"height": 32, "width": 64, "blockIdx.y": 1}),
        CudaCase("cuda_vector_set_int4_kernel", ("buffer<half>(4096)", "buffer<half>(1024)", "4", "1024"), (1, 2), (128,),
                 {"height": 4, "width": 1024, "blockIdx.y": 1}),
    ]),
    ("q_mlp_activation.cuh", ("silu", "act_mul_kernel"), [
        CudaCase("act_mul_kernel<true, false, false>", ("buffer<half>(512)", "buffer<half>(512)", "8", "64", "nullptr", "0"), (1, 2),
                 (32, 4), {"height": 8}, {"use_half2": 1, "use_r_weights": 0, "act_fn_gelu": 0},
                 "#define THREADS_X 32\n#define THREADS_Y 4\nstruct half_uint16 { half v; uint16_t as_uint16; half_uint16(half h) {} };"
                 "inline half gelu(half x) { return x; } inline half2 gelu(half2 x) { return x; }"),
    ]),
]  # fmt: skip


def inventory(root: Path) -> tuple[Repository, Inventory]:
    repository = Repository(name=root.name, root=root, packages=())
    return repository, scan(repository, MemoryStore(), checkpoint=lambda: None, progress=lambda *_: None)


def cost_of(found: tuple[Repository, Inventory], target: str, case: CudaCase) -> Cost:
    repository, everything = found
    sizes = {f"blockDim.{axis}": size for axis, size in zip("xyz", (*case.block, 1, 1), strict=False)}
    given: dict[str, Any] = {**case.given, "blockDim.x": case.block[0]}
    (kernel,) = describe(
        repository, everything, select(everything, target), given=given, sizes={**sizes, **case.sizes},
        checkpoint=lambda: None, progress=lambda *_: None,
    )  # fmt: skip
    assert kernel.cost is not None
    return kernel.cost


def compare(cost: Cost, case: CudaCase, expected: dict[str, int]) -> None:
    """The formulas of a block, times the blocks, are what all of them did."""
    blocks = 1
    for size in case.grid:
        blocks *= size
    assert cost.not_counted == ()
    assert {name: cost.evaluated[name] * blocks for name in expected} == expected


@pytest.fixture(scope="module")
def own() -> tuple[Repository, Inventory]:
    return inventory(OWN)


needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the host")


@pytest.fixture(scope="module")
def traps(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, int]]:
    return counted((OWN / "traps.cu").read_text(), TRAPS, tmp_path_factory.mktemp("traps"))


@needs_compiler
@pytest.mark.parametrize("number", range(len(TRAPS)), ids=lambda i: f"{i}-{TRAPS[i].name}")
def test_a_block_costs_what_its_threads_do(
    number: int, own: tuple[Repository, Inventory], traps: list[dict[str, int]]
) -> None:
    case = TRAPS[number]
    compare(cost_of(own, case.name, case), case, traps[number])


def test_turns_within_turns_are_counted_and_those_of_a_loop_elsewhere_said_not_to_be(
    own: tuple[Repository, Inventory],
) -> None:
    cost = cost_of(own, "within_turns", CudaCase("within_turns", (), sizes={"n": 9, "m": 2}))
    assert cost.conditions == ()
    assert [text for text in cost.not_counted if "k + 3 < n" in text] == list(cost.not_counted)
    # k + 2 < 9 and k + 1 < 9 hold in 7 turns of 9; the lambda's 6 * 2 stores are not counted
    assert (cost.evaluated["read_bytes"], cost.at_least, cost.write_bytes) == (7 * 64 * 4, (), "")


@pytest.fixture(scope="module")
def exllama() -> tuple[Repository, Inventory]:
    return inventory(kernel_sources()["exllamav2"] / "exllamav2")


@needs_compiler
@pytest.mark.parametrize(("file", "functions", "cases"), PACKAGE, ids=[file for file, *_ in PACKAGE])
def test_a_kernel_of_exllamav2_costs_what_its_threads_do(
    file: str, functions: tuple[str, ...], cases: list[CudaCase], exllama: tuple[Repository, Inventory], tmp_path: Path
) -> None:
    root = exllama[0].root
    path = root / "exllamav2_ext/cuda" / file
    views = re.sub(r"^#include.*$", "", (root / VIEWS).read_text(), flags=re.MULTILINE)
    source = "#define DIVIDE(x, size) (((x) + (size) - 1) / (size))\n" + views
    counts = counted(f"{source}\n{part_of(path, functions or [c.name for c in cases])}", cases, tmp_path)
    for case, expected in zip(cases, counts, strict=True):
        compare(cost_of(exllama, f"exllamav2_ext/cuda/{file}::{case.name}", case), case, expected)


def test_a_product_that_warps_make_together_is_counted_for_each_warp(tmp_path: Path) -> None:
    (tmp_path / "mma.cu").write_text(
        """
__global__ void tensor(const unsigned* a, float* c, int k) {
  float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  unsigned r;
  for (int i = 0; i < k; i += 16) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(r), "=r"(r) : "l"(a));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};\\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(r));
  }
  c[threadIdx.x] = d[0];
}
__global__ void fragments(const half* a, const half* b, float* c, int k) {
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(fa, a + i, k);
    wmma::load_matrix_sync(fb, b + i * 16, 16);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
void go(unsigned* a, float* c) { tensor<<<3, 128>>>(a, c, 64); }
void also(half* a, float* c) { fragments<<<3, 64>>>(a, a, c, 64); }
"""
    )
    found = inventory(tmp_path)
    tensor = cost_of(found, "tensor", CudaCase("tensor", (), sizes={"k": 64}))
    assert tensor.not_counted == ()
    # four warps, four steps of k, 2 * 16 * 8 * 16 each; of a, 8 bytes a thread and step
    assert (tensor.evaluated["matmul_flops"], tensor.evaluated["flops"]) == (4 * 4 * 4096, 4 * 4 * 4096)
    assert (tensor.evaluated["read_bytes"], tensor.evaluated["write_bytes"]) == (128 * 4 * 8, 512)
    fragments = cost_of(found, "fragments", CudaCase("fragments", (), sizes={"k": 64}))
    assert fragments.not_counted == ()
    # two warps, four steps, 2 * 16 * 16 * 16 each; two tiles of 16 x 16 halves a warp and step, one of floats at the end
    assert fragments.evaluated["matmul_flops"] == 2 * 4 * 8192
    assert (fragments.evaluated["read_bytes"], fragments.evaluated["write_bytes"]) == (2 * 4 * 2 * 512, 2 * 1024)


def test_what_data_decides_is_named_and_not_counted(own: tuple[Repository, Inventory]) -> None:
    cost = cost_of(own, "by_data", CudaCase("by_data", ()))
    assert cost.not_counted == ("what `v > 0.5f` decides (line 196)",)
    # the side that does arithmetic is not counted: a sum of 0 would be wrong
    assert (cost.flops, cost.read_bytes, cost.write_bytes) == ("", "4 * {blockDim.x}", "4 * {blockDim.x}")


SAID = {
    # macros that stand for two things, and loops whose own bounds they change: no number may be made of them
    "redefined": "#define W 4\nKERNEL(a) { for (int i = 0; i < W; ++i) y[i] = x[i] * 2.f; }\n#undef W\n#define W 8\nKERNEL(b) { y[0] = W; }",
    "two_ends": "KERNEL(a) { for (int i = 0, j = n - 1; i < j; ++i, --j) y[i] = x[i] * 2.f; }",
    "shrinking": "KERNEL(a) { for (int i = 0; i < n; i++) { y[i] = x[i] * 2.f; n--; } }",
    "half": "KERNEL(a) { for (int i = 0; i < n / 2; i++) { y[i] = x[i] * 2.f; n -= 2; } }",
    "doubling": "KERNEL(a) { for (int i = 0, s = 1; i < n; i += s, s *= 2) y[i] = x[i] * 2.f; }",
}


def small(tmp_path: Path, body: str, sizes: dict[str, int] | None = None, name: str = "a") -> Cost:
    head = "#define KERNEL(name) __global__ void name(const float* x, float* y, int n, int m)\n"
    (tmp_path / "k.cu").write_text(
        (head + body).replace("KERNEL(a)", f"__global__ void {name}(const float* x, float* y, int n, int m)")
    )
    repository, found = inventory(tmp_path)
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    (kernel,) = describe(repository, found, select(found, name), sizes=sizes or {}, **quiet)
    assert kernel.cost is not None
    return kernel.cost


@pytest.mark.parametrize("name", SAID)
def test_what_changes_its_own_bounds_has_no_number(tmp_path: Path, name: str) -> None:
    cost = small(tmp_path, SAID[name], {"n": 64, "blockDim.x": 32})
    assert "flops" not in cost.evaluated


def test_a_product_keeps_the_parentheses_of_a_division(tmp_path: Path) -> None:
    body = "KERNEL(a) { int h = m / 2; int t = n * h; for (int i = threadIdx.x; i < t; i += blockDim.x) y[i] = x[i] * 2.f; }"
    cost = small(tmp_path, body, {"n": 3, "m": 7, "blockDim.x": 32})
    assert cost.evaluated["flops"] == 3 * (7 // 2)


def test_the_opposite_of_two_tests_is_of_both(tmp_path: Path) -> None:
    body = "KERNEL(a) { int i = threadIdx.x; int j = threadIdx.y; if (i >= n || j >= m) return; y[i] = x[i] * 2.f; }"
    assert not [c for c in small(tmp_path, body).conditions if "i < n ||" in c]


def test_sizes_against_a_condition_give_no_number(tmp_path: Path) -> None:
    body = "KERNEL(a) { for (int i = threadIdx.x; i < n; i += 16) y[i] = x[i] * 2.f; }"
    cost = small(tmp_path, body, {"n": 520, "blockDim.x": 64})
    assert cost.evaluated == {}
    assert [a for a in cost.assumptions if "against the condition" in a]
    assert small(tmp_path, body, {"n": 512, "blockDim.x": 16}).evaluated["flops"] == 512


def test_macros_in_macros_are_never_lost(tmp_path: Path) -> None:
    nested = "#define N0 x[0]\n" + "".join(f"#define N{k} (N{k - 1} + N{k - 1})\n" for k in range(1, 41))
    cost = small(tmp_path, nested + "KERNEL(a) { y[0] = N40; }")
    assert cost.not_counted


def test_numbers_that_no_integer_holds_end_at_once(tmp_path: Path) -> None:
    squares = "long b0 = 3;" + "".join(f" const long b{k} = b{k - 1} * b{k - 1} * b{k - 1};" for k in range(1, 41))
    small(tmp_path, f"KERNEL(a) {{ {squares} for (long i = 0; i < b40; ++i) y[i] = x[i]; }}")
