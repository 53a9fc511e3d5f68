"""Kernels that are classes behind `cutlass::device_kernel`: in sources made for it, and against what was read by hand in CUTLASS' examples."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from kernel_sources import inventory_of, kernel_sources
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import describe, scan

BY_HAND = json.loads((Path(__file__).parents[2] / "corpus/cutlass/classes.json").read_text())
QUIET: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}

KERNEL = """
#pragma once
namespace mine::kernel {
template <class Mainloop_, int kWarps, bool Causal = false>
struct Attention {
    using Mainloop = Mainloop_;
    using TileShape = typename Mainloop::TileShape;
    using ClusterShape = cute::Shape<cute::_2, cute::_1, cute::_1>;
    static constexpr int Stages = Mainloop::Stages;
    static const int NumLoadWarps = 4;
    static constexpr int MaxThreadsPerBlock = (kWarps + NumLoadWarps) * 32;
    static constexpr int Registers = kWarps == 8 ? 240 : 160;
    struct SharedStorage { char bytes[64]; static constexpr int Nested = 7; };
    static constexpr int SharedStorageSize = sizeof(SharedStorage);
    struct Params { int tiles; };
    static dim3 get_grid_shape(Params const& params) { return dim3(params.tiles, 1, 1); }
    static dim3 get_block_shape() { return dim3(MaxThreadsPerBlock, 1, 1); }
    CUTLASS_DEVICE void operator()(Params const& params, char* smem) {
        cutlass::arch::warpgroup_reg_dealloc<24>();
        auto& storage = *reinterpret_cast<SharedStorage*>(smem);
        char held = smem[threadIdx.x];
        for (int tile = blockIdx.x; tile < params.tiles; tile += gridDim.x) { __syncthreads(); }
    }
};
struct Plain {
    static constexpr int MaxThreadsPerBlock = 128;
    struct Params { float* out; };
    static constexpr int SharedStorageSize = 0;
    static dim3 get_block_shape() { dim3 block(16, 8, 1); return block; }
    CUTLASS_DEVICE void operator()(Params const& params, char*) { __syncthreads(); }
};
struct Functor {
    CUTLASS_DEVICE float operator()(float a, float b) const { return a + b; }
    void operator()(Plain::Params const& params, char* host) { }
};
}
"""
LAUNCH = """
#include "kernel.hpp"
template <int kStages> struct Loop {
    static constexpr int Stages = kStages;
    using TileShape = cute::Shape<cute::Int<128>, cute::_64, cute::C<32>>;
};
template <bool Wide>
void run(Args args, cudaStream_t stream) {
    using Kernel = mine::kernel::Attention<Loop<3>, 8>;
    auto params = Kernel::to_underlying_arguments(args);
    dim3 grid = Kernel::get_grid_shape(params);
    cutlass::kernel_launch<Kernel>(grid, Kernel::get_block_shape(), Kernel::SharedStorageSize, stream, params);
}
void plain(Args args, cudaStream_t stream) {
    using Kernel = mine::kernel::Plain;
    cutlass::device_kernel<Kernel><<<args.blocks, Kernel::get_block_shape(), 0, stream>>>(args.params);
}
"""
DEVICE = """
template <class Kernel_> struct Device {
    using Kernel = Kernel_;
    void run(Params params, cudaStream_t stream) {
        cutlass::device_kernel<Kernel><<<Kernel::get_grid_shape(params), Kernel::get_block_shape(), 0, stream>>>(params);
    }
};
"""


def described(root: Path, **files: str) -> dict[str, KernelTiling]:
    for name, text in files.items():
        (root / name.replace("_", ".")).write_text(text)
    repository = Repository(name="own", root=root, packages=())
    inventory = scan(repository, MemoryStore(), **QUIET)
    chosen = [k for k in inventory.kernels if k.role == "kernel"]
    return {k.name: k for k in describe(repository, inventory, chosen, **QUIET)}


def constants(kernel: KernelTiling) -> dict[str, list[str]]:
    return {c.name: [v.value for v in c.values] for c in kernel.constexpr}


def test_a_class_is_a_kernel_with_what_its_uses_and_constants_say(tmp_path: Path) -> None:
    found = described(tmp_path, kernel_hpp=KERNEL, launch_cu=LAUNCH)
    assert set(found) == {"Attention", "Plain"}  # a functor is none, nor is what runs on the host
    kernel = found["Attention"]
    said = constants(kernel)
    assert said["kWarps"] == ["8"]
    assert said["Causal"] == ["0"]
    assert (said["Stages"], said["MaxThreadsPerBlock"], said["Registers"]) == (["3"], ["384"], ["240"])
    assert "Nested" not in said
    assert {t.name: t.values for t in kernel.tile if "Shape" in t.name} == {
        "TileShape": ("128 x 64 x 32",),
        "ClusterShape": ("2 x 1 x 1",),
    }
    assert [v.value for v in kernel.num_stages] == ["3"]
    assert [v.value for v in kernel.num_warps] == ["12"]
    (launch,) = kernel.grid
    assert (launch.file, launch.kernel, launch.expression) == ("launch.cu", "device_kernel<Kernel>", "grid")
    assert (launch.block, launch.threads, launch.shared_memory, launch.when) == (
        ("384", "1", "1"),
        384,
        "sizeof(SharedStorage)",
        "",
    )
    assert any(
        "get_grid_shape = dim3(params.tiles, 1, 1)" in d or "params.tiles, 1, 1" in d for d in launch.definitions
    )
    line = next(n for n, text in enumerate(KERNEL.splitlines(), 1) if "__syncthreads(); }" in text)
    assert {(i.operation, i.line) for i in kernel.instructions} == {("barrier", line), ("setmaxnreg", line - 3)}
    assert not any(
        o.level == "global" for o in (*kernel.loads, *kernel.stores)
    )  # what it is handed beside its parameters is shared
    assert len(kernel.loops) == 1
    assert kernel.cost is None
    (other,) = found["Plain"].grid
    assert (other.block, other.threads, other.shared_memory) == (("16", "8", "1"), 128, "0")


@pytest.mark.parametrize("warps", [4, 8, 12])
def test_a_constant_is_a_number_only_where_every_step_to_it_is_written(tmp_path: Path, warps: int) -> None:
    """With another use the numbers that depend on it are both; with one that a template leaves open they are those that are told."""
    another = LAUNCH + f"using Other = mine::kernel::Attention<Loop<2>, {warps}>;\n"
    kernel = described(tmp_path, kernel_hpp=KERNEL, launch_cu=another)["Attention"]
    said = constants(kernel)
    assert set(said["MaxThreadsPerBlock"]) == {"384", str((warps + 4) * 32)}
    assert set(said["Stages"]) == {"3", "2"}
    (launch,) = kernel.grid
    assert launch.block[0] == ("384" if warps == 8 else "MaxThreadsPerBlock")
    assert launch.threads == (384 if warps == 8 else None)
    open_ = LAUNCH.replace("Attention<Loop<3>, 8>", "Attention<Loop<3>, Wide ? 8 : 4>")
    kernel = described(tmp_path, kernel_hpp=KERNEL, launch_cu=open_)["Attention"]
    assert constants(kernel)["MaxThreadsPerBlock"] == []
    assert kernel.grid[0].threads is None


def test_a_launch_whose_operator_callers_choose_says_so_and_one_of_another_class_is_not_listed(tmp_path: Path) -> None:
    kernel = described(tmp_path, kernel_hpp=KERNEL, device_hpp=DEVICE)["Attention"]
    (launch,) = kernel.grid
    assert launch.when == "Kernel, which is left to callers, is Attention"
    both = described(tmp_path, kernel_hpp=KERNEL, device_hpp=DEVICE, launch_cu=LAUNCH)
    assert [(g.file, g.when) for g in both["Attention"].grid] == [("launch.cu", "")]
    assert [(g.file, g.when) for g in both["Plain"].grid] == [("launch.cu", "")]

    only_plain = LAUNCH[: LAUNCH.index("template <bool Wide>")] + LAUNCH[LAUNCH.index("void plain") :]
    kernel = described(tmp_path, kernel_hpp=KERNEL, device_hpp="", launch_cu=only_plain)["Attention"]
    assert kernel.grid == ()


def test_a_launch_of_what_is_spelled_with_a_class_says_with_what(tmp_path: Path) -> None:
    """A class among the arguments of another, or on one side of a choice, need not be what runs."""
    for spelled, sure in (
        ("mine::kernel::Attention<Loop<3>, 8>", True),
        ("mine::kernel::Other<mine::kernel::Attention<Loop<3>, 8>>", False),
        ("std::conditional_t<Wide, mine::kernel::Attention<Loop<3>, 8>, mine::kernel::Other<int>>", False),
        ("std::conditional_t<true, mine::kernel::Attention<Loop<3>, 8>, mine::kernel::Other<int>>", True),
    ):
        text = LAUNCH.replace("using Kernel = mine::kernel::Attention<Loop<3>, 8>;", f"using Kernel = {spelled};")
        (launch,) = described(tmp_path, kernel_hpp=KERNEL, launch_cu=text)["Attention"].grid
        assert (launch.when == "") is sure
        assert sure or launch.when.startswith("Kernel comes to Attention: ")


def small(
    constants: str = "static constexpr int T = 32;", block: str = "return dim3(T, 1, 1);", head: str = "struct K"
) -> str:
    return f"""{head} {{
    struct Params {{ int n; }};
    static dim3 get_block_shape() {{ {block} }}
    {constants}
    CUTLASS_DEVICE void operator()(Params const& params, char* smem) {{ }}
}};
"""


def launched(spelled: str, block: str = "K::get_block_shape()") -> str:
    return f"\nvoid go(cudaStream_t s) {{ using Kernel = {spelled}; cutlass::device_kernel<Kernel><<<1, {block}, 0, s>>>(p); }}\n"


@pytest.mark.parametrize(
    ("constants", "told"),
    [
        ("static constexpr int A = 1 << 7, T = 1;", 1), ("static constexpr int T = 0x1F;", 31), ("static constexpr int T = -7 / 2;", -3),
        ("static constexpr int T = -7 % 4;", -3), ("static const unsigned T = 3u - 5u;", None), ("static constexpr bool T = 5;", None),
        ("static constexpr int8_t T = 300;", None), ("static constexpr uint32_t T = 0xFFFFFFFF + 2;", None), ("static constexpr float T = 7 / 2.0f;", None),
        ("static constexpr bool A = false; static constexpr int T = A ? 1 : A ? 2 : 3;", 3), ("static constexpr int T = sizeof(float) * 2;", 8),
        ("struct In { static constexpr int T = 5; }; static constexpr int T = In::T + 1;", 6), ("static int N = 3; static constexpr int T = N;", None),
        ("\n#if A\nstatic constexpr int T = 64;\n#else\nstatic constexpr int T = 128;\n#endif\n", None), ("static constexpr int T = Base::T;", None),
        ("/* static constexpr int T = 4; */ static constexpr int T = /* 5 */ 6;", 6), ("static constexpr int T = f(3);", None),
        ("static constexpr int T = (float)5 / 2 * 4;", None), ("static constexpr int T = static_cast<uint8_t>(300);", None), ("static constexpr int T = 'a' + 1;", None),
        ("static constexpr float X = 5; static constexpr int T = X / 2 * 2;", None),
        ("static constexpr int T = sizeof(cutlass::int4b_t) * 64;", 64), ("static constexpr bool T = -1 > 0u;", None), ("static constexpr int M = 3, T = 9;", 9), ("static constexpr int M = 3, N{5}, T = M * N;", 15),
        ("static constexpr int T = is_same_v<a::X, b::X> ? 64 : 32;", None), ("static constexpr int T = is_same_v<half_t, float> ? 64 : 32;", 32),
    ],
)  # fmt: skip
def test_a_constant_is_what_the_language_makes_of_it_or_left_open(
    tmp_path: Path, constants: str, told: int | None
) -> None:
    kernel = described(tmp_path, k_hpp=small(constants), go_cu='#include "k.hpp"' + launched("K"))["K"]
    values = [v.value for c in kernel.constexpr if c.name == "T" for v in c.values]
    assert values == ([] if told is None else [str(told)])
    assert kernel.grid[0].block == (str(told) if told is not None else "T", "1", "1")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return dim3(T, 2, 1);", ("32", "2", "1")), ("return {T, 2, 1};", ("32", "2", "1")), ("return dim3(T);", ("32", "1", "1")),
        ("return T;", ("32", "1", "1")), ("return dim3(cute::max(T, 64), 1, 1);", ("64", "1", "1")),
        ("if (T > 16) { return dim3(T, 2, 1); } return dim3(T, 1, 1);", ()), ("int n = T * 2; return dim3(n, 1, 1);", ()),
        ("int T = 64; return dim3(T, 1, 1);", ("64", "1", "1")), ("dim3 b(T, 1, 1); b.x *= 2; return b;", ()), ("dim3 b(T, 1, 1); return b;", ("32", "1", "1")),
        ("dim3 other(1, 1, 1); dim3 b(T, 1, 1); return b;", ()), ("return make(dim3(T, 1, 1));", ()), ("helper(dim3(7, 7, 7)); return other();", ()),
    ],
)  # fmt: skip
def test_a_block_is_what_its_function_returns_where_it_returns_one_thing(
    tmp_path: Path, body: str, told: tuple[str, ...]
) -> None:
    (launch,) = described(tmp_path, k_hpp=small(block=body), go_cu='#include "k.hpp"' + launched("K"))["K"].grid
    assert launch.block == told
    (given,) = described(tmp_path, k_hpp=small(block=body), go_cu='#include "k.hpp"' + launched("K", "96"))["K"].grid
    assert (given.block, given.threads) == (("96", "1", "1"), 96)  # the launch's own number stands before


@pytest.mark.parametrize(
    ("given", "block", "shared"),
    [
        ("1, K::get_block_shape(), K::SharedStorageSize", ("32", "1", "1"), "64"), ("1, dim3(64, 2, 1), 4096", ("64", "2", "1"), "4096"),
        ("1, 96", ("96", "1", "1"), "0"), ("1, blocks, size", ("{blocks}", "1", "1"), "{size}"), ("1, made, held", ("64", "2", "1"), "64"), ("1, of_class, held", ("32", "1", "1"), "64"),
    ],
)  # fmt: skip
def test_what_a_launch_gives_stands_before_what_the_class_says(
    tmp_path: Path, given: str, block: tuple[str, ...], shared: str
) -> None:
    constants_ = "static constexpr int T = 32; static constexpr int SharedStorageSize = 64;"
    body = f"dim3 made(64, 2, 1); dim3 of_class = K::get_block_shape(); int held = K::SharedStorageSize; cutlass::device_kernel<K><<<{given}>>>(p);"
    go = f'#include "k.hpp"\nvoid go(int blocks, int size) {{ {body} }}\n'
    (launch,) = described(tmp_path, k_hpp=small(constants_), go_cu=go)["K"].grid
    assert (launch.block, launch.shared_memory) == (block, shared)
    assert not any("get_grid_shape" in one for one in launch.unresolved)


def test_a_name_that_a_base_may_have_is_left_open(tmp_path: Path) -> None:
    outer = "constexpr int S = 3;\nstruct Base { static constexpr int S = 5; };\n"
    derived = small("static constexpr int T = S * 32;", head="struct K : Base")
    kernel = described(tmp_path, k_hpp=outer + derived, go_cu='#include "k.hpp"' + launched("K"))["K"]
    assert constants(kernel)["T"] == []
    kernel = described(
        tmp_path, k_hpp=outer + small("static constexpr int T = S * 32;"), go_cu='#include "k.hpp"' + launched("K")
    )["K"]
    assert constants(kernel)["T"] == ["96"]


def test_a_class_of_the_same_name_in_another_folder_has_its_own_uses_and_launches(tmp_path: Path) -> None:
    for number, folder in ((4, "one"), (8, "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.hpp").write_text(
            small("static constexpr int T = N * 32;", head="template <int N> struct K")
        )
        (tmp_path / folder / "go.cu").write_text(
            '#include "k.hpp"' + launched(f"K<{number}>", "Kernel::get_block_shape()")
        )
    repository = Repository(name="own", root=tmp_path, packages=())
    inventory = scan(repository, MemoryStore(), **QUIET)
    found = describe(repository, inventory, [k for k in inventory.kernels if k.entry], **QUIET)
    assert [(k.file, constants(k)["T"], [(g.file, g.block[0]) for g in k.grid]) for k in found] == [
        ("one/k.hpp", ["128"], [("one/go.cu", "128")]),
        ("two/k.hpp", ["256"], [("two/go.cu", "256")]),
    ]


@pytest.mark.parametrize(
    "head", ["struct alignas(16) K final", "class CUTLASS_ALIGN(16) K", "struct __attribute__((packed)) K"]
)
def test_attributes_before_a_name_are_not_the_name(tmp_path: Path, head: str) -> None:
    text = small(head=head).replace("CUTLASS_DEVICE void", "CUTLASS_HOST_DEVICE void")
    assert list(described(tmp_path, k_hpp=text, go_cu='#include "k.hpp"' + launched("K"))) == ["K"]


def test_a_use_whose_arguments_hold_a_test_is_a_use(tmp_path: Path) -> None:
    """Numbers are those of all uses: one that cannot be read leaves them open."""
    text = small("static constexpr int T = W * 32;", head="template <int W, bool C = false> struct K")
    go = '#include "k.hpp"\nusing Other = K<4>;' + launched("K<8, kOne && kTwo>", "Kernel::get_block_shape()")
    kernel = described(tmp_path, k_hpp=text, go_cu=go)["K"]
    assert sorted(constants(kernel)["T"]) == ["128", "256"]
    assert kernel.grid[0].threads is None
    many = "".join(f"using A{n} = K<4, f({n})>;\n" for n in range(70)) + launched("K<8>", "Kernel::get_block_shape()")
    assert described(tmp_path, k_hpp=text, go_cu='#include "k.hpp"\n' + many)["K"].grid[0].threads is None


def test_namesakes_are_told_apart_or_left_open(tmp_path: Path) -> None:
    """Of two namespaces by what stands before the name; a class and its specialisation are given no uses; overloads are one kernel."""
    spaces = f"namespace a {{ {small()} }}\nnamespace b {{ {small('static constexpr int T = 64;')} }}\n"
    (tmp_path / "one.cu").write_text(spaces + launched("a::K", "a::K::get_block_shape()"))
    repository = Repository(name="own", root=tmp_path, packages=())
    inventory = scan(repository, MemoryStore(), **QUIET)
    first, second = describe(repository, inventory, [k for k in inventory.kernels if k.entry], **QUIET)
    assert (constants(first)["T"], constants(second)["T"]) == (["32"], ["64"])
    assert (len(first.grid), len(second.grid)) == (1, 0)
    several = small("static constexpr int T = N;", head="template <int N> struct K") + small(
        head="template <> struct K<1>"
    )
    (tmp_path / "one.cu").write_text(several + "using A = K<1>; using B = K<2>;\n")
    inventory = scan(repository, MemoryStore(), **QUIET)
    primary, _ = describe(repository, inventory, [k for k in inventory.kernels if k.entry], **QUIET)
    assert constants(primary) == {"N": [], "T": []}
    twice = small("CUTLASS_DEVICE void operator()(Params const& params, char* smem) const { }")
    (tmp_path / "one.cu").write_text(twice)
    assert len([k for k in scan(repository, MemoryStore(), **QUIET).kernels if k.entry]) == 1


def test_device_kernel_is_outside_only_where_no_class_is_inside(tmp_path: Path) -> None:
    def outside(root: Path) -> list[str]:
        inventory = scan(Repository(name="own", root=root, packages=()), MemoryStore(), **QUIET)
        return [one.form for one in inventory.not_analysed]

    (tmp_path / "launch.cu").write_text(LAUNCH)
    assert outside(tmp_path) == ["CUTLASS operator whose kernel is outside the repository"] * 2
    (tmp_path / "kernel.hpp").write_text(KERNEL)
    assert outside(tmp_path) == []


def test_a_member_of_a_member_of_a_parameter_is_said_whole(tmp_path: Path) -> None:
    """What a parameter leaves open is told as it is spelled, no step of it left out."""
    nested = "template <class Kernel_> struct Uses { using K = Kernel_; using R = mine::kernel::Attention<Loop<2>, K::Shape::value>; };"
    kernel = described(tmp_path, kernel_hpp=KERNEL, launch_cu=LAUNCH + nested)["Attention"]
    assert constants(kernel)["kWarps"] == ["8", "Kernel_::Shape::value"]


@pytest.fixture(scope="module")
def classes() -> dict[tuple[str, str], KernelTiling]:
    root = kernel_sources()["nvidia-cutlass"] / "cutlass_library/source"
    repository = Repository(name="cutlass", root=root, packages=())
    inventory = inventory_of(repository)
    folders = ("examples/77_blackwell_fmha/", "examples/88_hopper_fmha/", BY_HAND[-1]["file"])
    chosen = [k for k in inventory.kernels if k.entry and k.file.startswith(folders)]
    return {(k.file, k.name): k for k in describe(repository, inventory, chosen, **QUIET)}


def test_every_class_that_was_read_by_hand_is_found_and_no_other(classes: dict[tuple[str, str], KernelTiling]) -> None:
    assert {(one["file"], one["name"]): one["line"] for one in BY_HAND} == {at: k.line for at, k in classes.items()}


@pytest.mark.parametrize("one", BY_HAND, ids=[f"{o['name']}:{o['file'][9:11]}" for o in BY_HAND])
def test_a_class_is_what_was_read_by_hand(one: dict[str, Any], classes: dict[tuple[str, str], KernelTiling]) -> None:
    """0 facts wrong, whatever is left open."""
    kernel = classes[one["file"], one["name"]]
    assert [c.name for c in kernel.constexpr if c.kind == "template"] == one["template"]
    told = {c.name: [v.value for v in c.values] for c in kernel.constexpr if c.kind == "constexpr"}
    assert set(one["constants"]) <= set(told)
    for name, value in one["constants"].items():
        if value is not None:
            assert told[name] in ([], [str(int(value))]), name
    for launch in (each for each in kernel.grid if each.definitions):
        assert all(
            side in (str(by_hand), launch.block[n])
            for n, (side, by_hand) in enumerate(zip(launch.block, one["threads"], strict=True))
        )
        assert not all(side.isdigit() for side in launch.block) or list(map(int, launch.block)) == one["threads"]
        assert launch.shared_memory in (str(one["shared"]), "sizeof(SharedStorage)")
        squeezed = re.sub(r"\s+", "", one["grid"])
        assert any(
            re.sub(r"\s+", "", d.partition(" = ")[2].rpartition(" (")[0]) in squeezed for d in launch.definitions
        )
        assert all(d.endswith(f":{one['grid_line']})") for d in launch.definitions)
    tiles = {t.name: t.values for t in kernel.tile}
    for name, sizes in one["tiles"].items():
        if all(isinstance(size, int) for size in sizes):
            assert tiles[name] == (" x ".join(map(str, sizes)),)
    lines = [i.line for i in kernel.instructions if i.expression.startswith("__syncthreads") and not i.file]
    assert lines == one["barriers"]


def test_of_the_constants_that_source_tells_nine_in_ten_are_told(classes: dict[tuple[str, str], KernelTiling]) -> None:
    asked = [
        bool(next(c for c in classes[one["file"], one["name"]].constexpr if c.name == name).values)
        for one in BY_HAND for name, value in one["constants"].items() if value is not None
    ]  # fmt: skip
    assert len(asked) > 70
    assert sum(asked) >= 0.9 * len(asked)
