"""CuTe in CUDA sources: what threads of a tile take, what kernels cost, and what launches hand them."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from cannot import CANNOT
from cute_oracle import compiled, counted, usable
from kernel_sources import inventory_of, kernel_sources
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import Cost, KernelTiling
from opscope_tools.kernels import describe, scan, select
from opscope_tools.kernels.cuda.cute import values as cute
from opscope_tools.kernels.cuda.cute.values import Atom, Slice, Tensor, TiledCopy, TiledMma
from opscope_tools.kernels.cuda.names.template_arguments import members
from opscope_tools.kernels.cuda.names.values import Value, thread_index
from opscope_tools.kernels.cuda.source_text import CSource
from opscope_tools.kernels.values import layouts
from opscope_tools.kernels.values.layouts import Layout, Swizzle
from opscope_tools.kernels.values.notation import evaluate

TUTORIAL = "examples/cute/tutorial"


@pytest.fixture(scope="module")
def cutlass() -> Path:
    return kernel_sources()["nvidia-cutlass"] / "cutlass_library/source"


@pytest.fixture(scope="module")
def told(cutlass: Path) -> Any:
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    repository = Repository(name="cutlass", root=cutlass, packages=())
    inventory = inventory_of(repository)

    def described(target: str) -> KernelTiling:
        (found,) = describe(repository, inventory, select(inventory, target), **quiet)
        return found

    return described


# ---- what each thread takes -----------------------------------------------------------------------------------------


def at(offset: Value, thread: int) -> int:
    """Where an offset lies for one thread: the sum of its digits."""
    if not offset.digits:
        assert isinstance(offset.number, int)
        return offset.number
    total = offset.offset or 0
    for (_, low, high), factor in offset.digits:
        digit = thread // low if high is None else thread % high // low
        total += digit * factor
    return int(total)


def taken(tensor: Tensor, thread: int) -> list[int]:
    layout = tensor.plain
    return [at(tensor.offset, thread) + layout(i) for i in range(layout.size)]


def test_threads_that_share_out_a_tile_take_each_element_once() -> None:
    draw = random.Random(7)
    for _ in range(400):
        spread = tuple(draw.choice((1, 2, 4, 8)) for _ in range(2))
        threads = Layout(spread, layouts.compact(spread, right=draw.random() < 0.5))
        each = tuple(draw.choice((1, 2, 4)) for _ in range(2))
        times = tuple(draw.choice((1, 2, 3)) for _ in range(2))
        index = thread_index("x", threads.size)
        shape = tuple(s * t for s, t in zip(spread, times, strict=True))
        tile = Tensor(Layout(shape, layouts.compact(shape, right=draw.random() < 0.5)))
        parts = [taken(cute.local_partition(tile, threads, index), t) for t in range(threads.size)]
        assert sorted(itertools.chain(*parts)) == list(range(tile.plain.size))
        nested = Layout(((2, spread[0]), spread[1]), ((1, 2 * spread[1]), 2))  # the first mode runs around the second
        wide = Tensor(Layout.of((2 * shape[0], shape[1])))
        index = thread_index("x", nested.size)
        parts = [taken(cute.local_partition(wide, nested, index), t) for t in range(nested.size)]
        assert sorted(itertools.chain(*parts)) == list(range(wide.plain.size))
        index = thread_index("x", threads.size)

        shape = tuple(s * t * e for s, t, e in zip(spread, times, each, strict=True))
        tile = Tensor(Layout(shape, layouts.compact(shape, right=draw.random() < 0.5)))
        copy = TiledCopy(Atom("UniversalCopy"), threads, Layout.of(each))
        copied = cute.copied_part(Slice(copy, index), tile)
        assert layouts.product(copied.plain.modes[0].shape) == each[0] * each[1]
        assert sorted(itertools.chain(*(taken(copied, t) for t in range(threads.size)))) == list(range(tile.plain.size))

        product = TiledMma(Atom("UniversalFMA"), Layout((*spread, 1), layouts.compact((*spread, 1))))
        index = thread_index("x", product.size)
        result = cute.multiplied_part(Slice(product, index), Tensor(Layout.of(shape)), "C")
        assert sorted(itertools.chain(*(taken(result, t) for t in range(product.size)))) == list(
            range(result.plain.size * product.size)
        )


@pytest.mark.parametrize(
    ("name", "shape", "threads", "results"),
    [("SM80_16x8x16_F32F16F16F32_TN", (16, 8, 16), 32, 4), ("SM70_8x8x4_F32F16F16F32_NT", (8, 8, 4), 8, 8),
     ("SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>", (64, 128, 16), 128, 64), ("UniversalFMA<float>", (1, 1, 1), 1, 1)],
)  # fmt: skip
def test_a_product_of_tensor_cores_is_shared_out_among_its_threads(
    name: str, shape: tuple[int, int, int], threads: int, results: int
) -> None:
    atom = cute.mma_atom(name)
    assert atom is not None
    assert (atom.shape, atom.threads) == (shape, threads)
    mma = TiledMma(atom, Layout((2, 2, 1), (1, 2, 0)))
    m, n, k = 4 * shape[0], 6 * shape[1], 3 * shape[2]
    c, a = (cute.multiplied_part(mma, Tensor(Layout.of(s)), o) for s, o in (((m, n), "C"), ((m, k), "A")))
    assert c.plain.modes[0].size == results
    assert c.plain.size * mma.size == m * n
    assert a.plain.modes[2].size == 3


def test_what_launches_hand_alike_is_known_and_what_differs_goes_by_its_place() -> None:
    one, other = Layout((128, 8), (1, 128)), Layout((128, 8), (8, 1))
    both = cute.common("sA", [one, other])
    assert (both.shape, both.cosize) == ((128, 8), 1024)
    assert [d.text for d in layouts.flatten(both.stride)] == ["sA_stride_0", "sA_stride_1"]
    assert cute.common("t", [(128, 64, 8), (128, 128, 8)])[1].text == "t_1"
    assert cute.common("t", [(1, 2), (1, 2, 3)]) is None
    assert cute.common("t", [cute.Swizzled(Swizzle(3, 3, 3), one), one]) is None


# ---- whole kernels --------------------------------------------------------------------------------------------------

_CALL = "{{ auto *a = buffer<Element>({m} * {k}), *b = buffer<Element>({n} * {k}), *c = buffer<Element>({m} * {n}); "
_CALL += "{function}({m}, {n}, {k}, Element(2), a, {a}, b, {b}, Element(3), c, {m}); }}"


@pytest.mark.skipif(not usable(), reason=f"{CANNOT}no g++ or no headers of CUDA's C++ library")
@pytest.mark.parametrize("file", ["sgemm_1", pytest.param("sgemm_2", marks=pytest.mark.slow)])
def test_a_kernel_costs_what_running_it_with_cutes_own_headers_counts(
    file: str, cutlass: Path, told: Any, tmp_path: Path
) -> None:
    sizes = [{"M": 256, "N": 128, "K": 24}, {"M": 128, "N": 384, "K": 8}]
    calls = [
        _CALL.format(function=f"gemm_{order}", m=s["M"], n=s["N"], k=s["K"], a=s["M"] if order == "nt" else s["K"],
                     b=s["N"] if order == "nt" else s["K"])
        for s in sizes for order in ("nt", "tn")
    ]  # fmt: skip
    found = counted(cutlass / TUTORIAL / f"{file}.cu", cutlass / "include", calls, tmp_path)
    kernel = told(f"{TUTORIAL}/{file}.cu::gemm_device")
    assert not kernel.cost.not_counted
    for one, size in zip(found, [s for s in sizes for _ in range(2)], strict=True):
        point = {**size, "sizeof(TA)": 4, "sizeof(TB)": 4, "sizeof(TC)": 4}
        blocks = evaluate(kernel.num_tiles, point) or 0
        figures = (kernel.cost.flops, kernel.cost.read_bytes, kernel.cost.write_bytes)
        assert [(evaluate(text, point) or 0) * blocks for text in figures] == [
            one["flops"], one["read_bytes"], one["write_bytes"],
        ]  # fmt: skip


def test_tiles_layouts_and_copies_are_those_that_the_launch_hands_over(told: Any) -> None:
    kernel = told(f"{TUTORIAL}/sgemm_2.cu::gemm_device")
    tiles = {t.name: t.values for t in kernel.tile}
    assert tiles["cta_tiler"] == ("(128,128,8)",)
    assert tiles["sA_layout"] == ("(128,8):(1,128)", "(128,8):(1,129)")
    assert tiles["mma"] == ("UniversalFMA, atoms (16,16,1):(1,16,0)",)
    assert tiles["copy_a"][0] == "UniversalCopy, threads (32,8):(1,32), values (4,1):(1,0)"
    assert {g.block for g in kernel.grid} == {("256",)}
    assert {g.num_tiles for g in kernel.grid} == {"cdiv({M}, 128) * cdiv({N}, 128)"}
    assert [load.coalesced for load in kernel.loads if load.parameter == "A"] == ["yes", "yes"]
    assert any("Launched as at" in text for text in kernel.cost.assumptions)


def test_swizzled_stages_and_tensor_cores_of_a_pipelined_kernel(told: Any) -> None:
    kernel = told(f"{TUTORIAL}/sgemm_sm80.cu::gemm_device")
    tiles = {t.name: t.values for t in kernel.tile}
    assert "(128,128,64)" in tiles["cta_tiler"]
    assert tiles["sA_layout"][0].startswith("Sw<3,3,3> o ((8,16),(")
    assert tiles["mma"][0] == "SM80_16x8x16_F16F16F16F16_TN, atoms (2,2):(1,2)"
    assert {g.block for g in kernel.grid} == {("128",), ("256",)}
    assert not kernel.cost.not_counted
    # 2 * 128 * 128 * 64 for each turn of the main loop, 3 for each result
    assert (
        evaluate(kernel.cost.flops, {"iterations of the loop at line 262": 5}) == 5 * 2 * 128 * 128 * 64 + 3 * 128 * 128
    )
    # two stages before the loop, one in each turn, and the result that beta scales
    point = {"iterations of the loop at line 262": 5, "sizeof(TA)": 2, "sizeof(TB)": 2, "sizeof(TC)": 2}
    assert evaluate(kernel.cost.read_bytes, point) == (5 + 2) * 2 * 128 * 64 * 2 + 128 * 128 * 2
    asynchronous = [load for load in kernel.loads if load.parameter in "AB"]
    assert {load.operation for load in asynchronous} == {"copy(SM80_CP_ASYNC_CACHEALWAYS)"}


def test_how_lanes_lie_is_not_told_where_the_width_of_an_instruction_is_not(told: Any) -> None:
    kernel = told(f"{TUTORIAL}/tiled_copy.cu::copy_kernel_vectorized")
    assert kernel.num_tiles == "2 * 8"
    assert kernel.cost.read_bytes == "8192 * sizeof(TensorS::value_type)"
    assert {load.coalesced for load in kernel.loads} == {""}  # uint_byte_t<sizeof(Element) * size(val_layout)>
    assert not [level for level in kernel.levels if level.level == "thread"]


def test_a_tile_that_several_blocks_load_for_each_other_is_not_counted(tmp_path: Path) -> None:
    body = (
        "Tensor m = tma.get_tma_tensor(make_shape(_512{{}})); __shared__ float s[64];"
        "Tensor g = local_tile(m, Shape<_64>{{}}, make_coord(_)); Tensor t = make_tensor(make_smem_ptr(s), make_shape(_64{{}}, _1{{}}));"
        "auto [from, to] = tma_partition(tma, 0, Layout<{blocks}>{{}}, t, g);"
        "if (threadIdx.x == 0) copy(tma, from(_, blockIdx.x), to(_, 0));"
    )
    text = (
        "#include <cute/tensor.hpp>\nusing namespace cute;\ntemplate <class Tma> __global__ void {name}(Tma const tma) {{ {body} }}\n"
        "void {name}_go(float* x) {{ Tensor whole = make_tensor(make_gmem_ptr(x), make_shape(_512{{}}));"
        "auto tma = make_tma_atom(SM90_TMA_LOAD{{}}, whole, make_layout(make_shape(_64{{}})), Shape<_64>{{}});"
        "{name}<<<8, 64>>>(tma); }}\n"
    )
    (tmp_path / "one.cu").write_text(text.format(name="one", body=body.format(blocks="_1")))
    (tmp_path / "two.cu").write_text(text.format(name="two", body=body.format(blocks="_2")))
    one, two = (cost_of(tmp_path, f"{name}.cu::{name}") for name in ("one", "two"))
    assert (one.read_bytes, one.not_counted) == ("256", ())
    assert not two.read_bytes
    assert two.not_counted


def test_a_warpgroup_multiplies_what_its_stages_hold(told: Any) -> None:
    kernel = told(f"{TUTORIAL}/hopper/wgmma_sm90.cu::gemm_device")
    assert {g.block for g in kernel.grid} == {("128",)}
    assert kernel.cost.flops == "16384 * (128 * cdiv({K}, 64) + 3)"


def test_one_thread_asks_for_a_tile_and_what_its_stages_hold_is_multiplied(told: Any) -> None:
    kernel = told(f"{TUTORIAL}/hopper/wgmma_tma_sm90.cu::gemm_device")
    assert [p.name for p in kernel.parameters][2:6] == ["A", "tma_a", "B", "tma_b"]
    tiles = {t.name: t.values for t in kernel.tile}
    assert tiles["tma_a"] == ("SM90_TMA_LOAD of (128,64)",)
    assert {g.cluster for g in kernel.grid} == {"2, 1, 1"}
    assert not kernel.cost.not_counted
    turns = "iterations of the loop at line 221"
    assert evaluate(kernel.cost.matmul_flops, {turns: 7}) == 7 * 2 * 128 * 128 * 64
    # three stages before the loop, one in each turn, both operands; and the result that beta scales
    point = {turns: 7, "sizeof(TA)": 2, "sizeof(TB)": 2, "sizeof(TC)": 2}
    assert evaluate(kernel.cost.read_bytes, point) == (7 + 3) * 2 * 128 * 64 * 2 + 128 * 128 * 2
    assert {load.operation for load in kernel.loads if load.parameter == "tma_a"} == {"copy(SM90_TMA_LOAD)"}


def cost_of(folder: Path, target: str) -> Cost:
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    repository = Repository(name="own", root=folder, packages=())
    inventory = scan(repository, MemoryStore(), **quiet)
    (found,) = describe(repository, inventory, select(inventory, target), **quiet)
    assert found.cost is not None
    return found.cost


def own(
    folder: Path, body: str, parameters: str = "float* x, float* y, int n", arguments: str = "x, y, n"
) -> KernelTiling:
    """A kernel of its own, launched with 4 blocks of 64 threads."""
    text = (
        "#include <cute/tensor.hpp>\nusing namespace cute;\n"
        "__device__ float product(float a, float b) { return a * b; }\n"
        "__device__ int rank(int a, int b) { return a * b; }\n"
        f"__global__ void own({parameters}) {{ {body} }}\n"
        f"void go({parameters}) {{ own<<<4, 64>>>({arguments}); }}\n"
    )
    (folder / "own.cu").write_text(text)
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    repository = Repository(name="own", root=folder, packages=())
    inventory = scan(repository, MemoryStore(), **quiet)
    (found,) = describe(repository, inventory, select(inventory, "own.cu::own"), **quiet)
    return found


@pytest.mark.parametrize(
    ("body", "figures"),
    [
        # 64 threads, each 8 of 512 elements: a product, a load and a store each
        ("Tensor t = make_tensor(make_gmem_ptr(x), make_shape(_512{}, 4)); Tensor b = t(_, blockIdx.x);"
         "Tensor p = local_partition(b, Layout<_64>{}, threadIdx.x);"
         "for (int i = 0; i < size(p); ++i) { p(i) = 2.f * p(i); }", (512, 2048, 2048)),
        # a function of the repository that is called as one of CuTe's: read once
        ("int i = threadIdx.x; y[i] = product(x[i], x[i + 64]);", (64, 512, 256)),
        # an index that is read from memory is read once
        ("Tensor t = make_tensor(make_gmem_ptr(x), make_shape(_64{})); y[threadIdx.x] = t(int(y[threadIdx.x]));", (0, 512, 256)),
        ("for (int i = 0; i < rank(2, 4); ++i) y[64 * i + threadIdx.x] = 1.f;", (0, 0, 2048)),
        # a name that CuTe gives a mode that is left out
        ("Tensor X = make_tensor(make_gmem_ptr(x), make_shape(_64{})); Tensor p = local_partition(X, Layout<_64>{}, threadIdx.x);"
         "y[threadIdx.x] = p(0);", (0, 256, 256)),
        # where a tile is may be read, and is read once
        ("Tensor t = make_tensor(make_gmem_ptr(x), make_shape(4096));"
         "Tensor b = local_tile(t, Shape<_64>{}, make_coord(int(y[threadIdx.x]))); y[threadIdx.x] = b(threadIdx.x);", (0, 512, 256)),
        # registers: copied in, added to, copied out
        ("Tensor t = make_tensor(make_gmem_ptr(x), make_layout(make_shape(_64{}, _4{}), LayoutRight{}));"
         "Tensor p = t(threadIdx.x, _); Tensor r = make_fragment_like(p); copy(p, r);"
         "for (int i = 0; i < size(r); ++i) r(i) = r(i) + 1.f; copy(r, p);", (256, 1024, 1024)),
        # nothing is read of global memory twice over shared memory
        ("__shared__ float s[cosize_v<Layout<Shape<_8, _8>, Stride<_9, _1>>>];"
         "Tensor in = make_tensor(make_gmem_ptr(x), make_layout(make_shape(_8{}, _8{})));"
         "Tensor st = make_tensor(make_smem_ptr(s), Layout<Shape<_8, _8>, Stride<_9, _1>>{});"
         "copy(local_partition(in, Layout<Shape<_8, _8>>{}, threadIdx.x), local_partition(st, Layout<Shape<_8, _8>>{}, threadIdx.x));",
         (0, 256, 0)),
        ("Tensor t = local_partition(make_tensor(make_gmem_ptr(x), make_shape(_512{})), Layout<_64>{}, threadIdx.x); clear(t); fill(t, 1.f);",
         (0, 0, 4096)),
        ("Tensor a = local_partition(make_tensor(make_gmem_ptr(x), make_shape(_512{})), Layout<_64>{}, threadIdx.x);"
         "Tensor b = local_partition(make_tensor(make_gmem_ptr(y), make_shape(_512{})), Layout<_64>{}, threadIdx.x);"
         "axpby(2.f, a, 3.f, b);", (1536, 4096, 2048)),
    ],
    ids=["elements", "namesake", "index", "of sizes", "X", "tile that is read", "registers", "shared", "filled", "both global"],
)  # fmt: skip
def test_what_a_block_does_with_tensors_is_counted_once(
    body: str, figures: tuple[int, int, int], tmp_path: Path
) -> None:
    cost = own(tmp_path, body).cost
    assert cost is not None
    assert not cost.not_counted
    assert [evaluate(t, {}) for t in (cost.flops, cost.read_bytes, cost.write_bytes)] == [*figures]


@pytest.mark.parametrize("mma", ["d, a, b, c", "a, b, d"])
def test_a_product_adds_up_along_k_wherever_its_result_is_put(mma: str, tmp_path: Path) -> None:
    body = (
        "TiledMMA<MMA_Atom<UniversalFMA<float>>, Layout<Shape<_8, _8, _1>>> mma; Tensor a = make_tensor<float>(make_shape(_1{}, _4{}, _8{}));"
        "Tensor b = make_tensor<float>(make_shape(_1{}, _2{}, _8{})); Tensor c = make_tensor<float>(make_shape(_1{}, _4{}, _2{}));"
        f"Tensor d = make_fragment_like(c); gemm(mma, {mma});"
    )
    cost = own(tmp_path, body).cost
    assert cost is not None
    assert evaluate(cost.matmul_flops, {}) == 64 * 2 * 4 * 2 * 8


def test_a_pointer_of_a_type_that_is_not_told_is_not_taken_for_shared_memory(tmp_path: Path) -> None:
    body = "Tensor t = make_tensor(make_gmem_ptr(p.from), make_shape(_64{})); y[threadIdx.x] = t(threadIdx.x);"
    cost = own(tmp_path, body, "Given p, float* y", "p, y").cost
    assert cost is not None
    assert cost.not_counted
    assert not cost.read_bytes


def test_only_a_file_that_speaks_of_cute_is_read_as_such() -> None:
    assert CSource("a.cu", "#include <cute/tensor.hpp>").of_cute
    assert not CSource("a.cu", "// blocks that execute; executed").of_cute


def test_lanes_of_a_partition_lie_side_by_side_along_the_mode_that_does(tmp_path: Path) -> None:
    body = (
        "Tensor t = make_tensor(make_gmem_ptr(x), make_layout(make_shape(_64{{}}, _64{{}}), {order}{{}}));"
        "Tensor p = local_partition(t, Layout<Shape<_32, _2>>{{}}, threadIdx.x);"
        "Tensor r = make_fragment_like(p); for (int i = 0; i < size(p); ++i) r(i) = p(i);"
    )
    along = {order: own(tmp_path, body.format(order=order)).loads for order in ("LayoutLeft", "LayoutRight")}
    assert [load.coalesced for load in along["LayoutLeft"]] == ["yes"]
    assert [load.coalesced for load in along["LayoutRight"]] == ["no: 64 elements apart"]


def test_a_kernel_knows_the_members_of_the_class_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "traits.cu").write_text(
        "#include <cute/tensor.hpp>\nusing namespace cute;\n"
        "template <int kM, int kN> struct Tile { static constexpr int kRows = kM; static constexpr int kColumns = kN;\n"
        "  using Padded = Layout<Shape<Int<kM>, Int<kN>>, Stride<Int<kN + 1>, _1>>;\n"
        "  using Threads = Layout<Shape<_8, _8>, Stride<_8, _1>>; };\n"
        "template <class Tr> __global__ void staged(float* x) {\n"
        "  using L = typename Tr::Padded; __shared__ float s[cosize_v<L>];\n"
        "  Tensor whole = make_tensor(make_gmem_ptr(x), make_shape(1024, 1024), LayoutRight{});\n"
        "  Tensor g = local_tile(whole, Shape<Int<Tr::kRows>, Int<Tr::kColumns>>{}, make_coord(blockIdx.x, blockIdx.y));\n"
        "  Tensor t = make_tensor(make_smem_ptr(s), L{}); auto threads = typename Tr::Threads{};\n"
        "  copy(local_partition(g, threads, threadIdx.x), local_partition(t, threads, threadIdx.x)); }\n"
        "void go(float* x) { auto threads = Layout<Shape<_8, _8>>{};\n"
        "  staged<Tile<32, 64>><<<dim3(1024 / 32, 16), int(size(threads))>>>(x); }\n"
    )
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    repository = Repository(name="own", root=tmp_path, packages=())
    inventory = scan(repository, MemoryStore(), **quiet)
    (found,) = describe(repository, inventory, select(inventory, "traits.cu::staged"), **quiet)
    assert [g.block for g in found.grid] == [("64",)]
    assert [a.bytes for a in found.shared_memory] == [4 * (31 * 65 + 63 + 1)]
    assert found.cost is not None
    assert not found.cost.not_counted
    assert evaluate(found.cost.read_bytes, {}) == 32 * 64 * 4
    assert {t.name: t.values for t in found.tile}["Tr::Threads"] == ("(8,8):(8,1)",)


# ---- classes of traits ----------------------------------------------------------------------------------------------

TRAITS = """
template <int kRows_, int kWarps_, typename T_>
struct Shared {
  using Element = T_;
  static constexpr bool Wide = kRows_ >= 64 || kWarps_ > 4;
  using Atom = std::conditional_t<std::is_same_v<Element, cutlass::half_t>, MMA_Atom<SM80_16x8x16_F32F16F16F32_TN>,
                                  MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>>;
};
template <int kRows_, int kColumns_, int kWarps_, typename T_ = cutlass::half_t, typename Base = Shared<kRows_, kWarps_, T_>>
struct Tiles : public Base {
  using Element = typename Base::Element;
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kPage = kColumns % 64 == 0 ? 64 : 32;
  static constexpr int kBits = kPage == 32 ? 2 : 3;
  static constexpr int kThreads = kWarps_ * 32;
  static constexpr int kEach = sizeof(cute::uint128_t) / sizeof(Element);
  using Page = decltype(composition(Swizzle<kBits, 3, 3>{},
                                    Layout<Shape<_8, Int<kPage>>, Stride<Int<kPage>, _1>>{}));
  using Whole = decltype(tile_to_shape(Page{}, Shape<Int<kRows>, Int<kColumns>>{}));
  using Turned = decltype(composition(Whole{}, make_layout(Shape<Int<kColumns>, Int<kRows>>{}, GenRowMajor{})));
  using Padded = decltype(make_layout(make_shape(Int<kRows>{}, Int<kColumns>{}), make_stride(Int<kColumns + 8>{}, Int<1>{})));
  using Threads = Layout<Shape<Int<kThreads / (kPage / kEach)>, Int<kPage / kEach>>, Stride<Int<kPage / kEach>, _1>>;
  using Product = TiledMMA<typename Base::Atom, Layout<Shape<Int<kWarps_>, _1, _1>>>;
  using Divided = decltype(zipped_divide(Padded{}, Shape<_16, Int<kPage>>{}));
  using Raked = decltype(raked_product(Threads{}, Layout<Shape<_1, Int<kEach>>>{}));
  using Ordered = decltype(make_ordered_layout(Shape<Int<kRows>, _1, Int<kColumns>>{}, Step<_2, _3, _1>{}));
  using Stepped = decltype(tile_to_shape(Page{}, Shape<Int<kRows>, Int<kColumns>, _3>{}, Step<_2, _1, _3>{}));
  using Blocked = decltype(blocked_product(Layout<Shape<_2, _4>>{}, Threads{}));
  using Within = decltype(complement(Layout<Shape<_4, Int<kPage>>, Stride<_2, _16>>{}, Int<kRows * kColumns * 64>{}));
  using Back = decltype(right_inverse(Ordered{}));
  using Tiled = decltype(tiled_divide(Ordered{}, Shape<_8, _1, _32>{}));
  using Kept = decltype(logical_divide(Padded{}, make_tile(_, Int<16>{})));
  using Grouped = decltype(group<1, 3>(Ordered{}));
  static constexpr int kSwizzledBytes = size(Whole{}) * sizeof(Element);
  static constexpr int kPaddedBytes = cosize_v<Padded> * sizeof(Element);
  static constexpr int kBytes = Base::Wide ? kSwizzledBytes + kPaddedBytes : std::max(kSwizzledBytes, kPaddedBytes);
};
"""
_LAYOUTS = (
    "Page",
    "Whole",
    "Turned",
    "Padded",
    "Threads",
    "Divided",
    "Raked",
    "Ordered",
    "Stepped",
    "Blocked",
    "Within",
    "Back",
    "Tiled",
    "Grouped",
    "Kept",
)
_CONSTANTS = ("Wide", "kPage", "kThreads", "kEach", "kSwizzledBytes", "kPaddedBytes", "kBytes")


def constants_of(spelled: str) -> dict[str, str]:
    found = members([CSource("traits.h", TRAITS)], spelled)
    assert found is not None
    return {constant.name: constant.value for constant in found.constants.values()}


@pytest.mark.skipif(not usable(), reason=f"{CANNOT}no g++ or no headers of CUDA's C++ library")
def test_members_of_traits_are_what_the_compiler_makes_of_them(cutlass: Path, tmp_path: Path) -> None:
    draw = random.Random(8)
    spelled = [
        f"Tiles<{draw.choice((16, 32, 64, 128))}, {draw.choice((32, 64, 96, 128, 192, 256))}, {draw.choice((4, 8))}, {kind}>"
        for kind in ("cutlass::half_t", "cutlass::bfloat16_t", "float") for _ in range(6)
    ]  # fmt: skip
    printed = []
    for one in spelled:
        printed += [f'print(typename {one}::{name}{{}}); std::puts("");' for name in _LAYOUTS]
        printed += [f'std::printf("%d\\n", int({one}::{name}));' for name in _CONSTANTS]
        printed.append(f'std::printf("%d\\n", int(size(typename {one}::Product{{}})));')
    out = iter(compiled(TRAITS, printed, cutlass / "include", tmp_path))
    for one in spelled:
        found = constants_of(one)
        for name in _LAYOUTS:
            assert found[name] == next(out).replace("_", "").replace(" o 0", ""), (one, name)
        for name in _CONSTANTS:
            assert found[name] == next(out), (one, name)
        atom, _, atoms = found["Product"].partition(", atoms ")
        assert ("BF16" in atom) is ("half_t" not in one)
        assert int(next(out)) == 32 * int(atoms[1 : atoms.index(",")])


def test_what_hangs_on_a_type_that_is_not_told_is_not_told() -> None:
    found = constants_of("Tiles<64, 64, 4, T>")
    assert not {"Product", "Threads", "Raked"} & set(found)
    assert found["Whole"] == "Sw<3,3,3> o ((8,8),(64,1)):((64,512),(1,0))"
    assert found["kSwizzledBytes"] == "4096 * sizeof(Element)"
