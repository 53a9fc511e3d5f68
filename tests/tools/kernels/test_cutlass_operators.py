"""CUTLASS 3 operators: against what was read by hand in CUTLASS' own examples, against the compiler, and in sources made for it."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from kernel_sources import inventory_of, kernel_sources
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import compiled, describe, launches_of, scan, select
from opscope_tools.kernels.compiled import resources
from sampled import sampled

QUIET: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
BY_HAND = json.loads((Path(__file__).parents[2] / "corpus/cutlass/operators.json").read_text())
nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on this machine")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long nvcc takes is the machine's affair."""
    monkeypatch.setattr(resources, "BUDGET", 900.0)


@pytest.fixture(scope="module")
def cutlass() -> Repository:
    root = kernel_sources()["nvidia-cutlass"] / "cutlass_library/source"
    return Repository(name="cutlass", root=root, packages=())


@pytest.fixture(scope="module")
def operators(cutlass: Repository) -> dict[tuple[str, int], KernelTiling]:
    """By file and line, every operator that was read by hand."""
    inventory = inventory_of(cutlass)
    wanted = {(one["file"], one["line"]) for one in BY_HAND}
    chosen = [k for k in inventory.kernels if k.language == "cutlass" and (k.file, k.line) in wanted]
    return {(k.file, k.line): k for k in describe(cutlass, inventory, chosen, **QUIET)}


def values(kernel: KernelTiling, name: str) -> list[str]:
    """What a parameter of a collective is given, over all instances."""
    return [v.value for c in kernel.constexpr if c.name == name for v in c.values]


def listed(told: Any) -> list[str]:
    return told if isinstance(told, list) else [told]


def test_every_operator_that_was_read_by_hand_is_found(operators: dict[tuple[str, int], KernelTiling]) -> None:
    assert {(one["file"], one["line"]): one["name"] for one in BY_HAND} == {at: k.name for at, k in operators.items()}


@pytest.mark.parametrize("one", BY_HAND, ids=[f"{Path(o['file']).stem}:{o['line']}" for o in BY_HAND])
def test_an_operator_is_what_was_read_by_hand(
    one: dict[str, Any], operators: dict[tuple[str, int], KernelTiling]
) -> None:
    """0 facts wrong; at least 85 of 100 answered, over all that were read (an alias that is not followed is no answer)."""
    kernel, asked = operators[one["file"], one["line"]], list[bool]()
    tiles = {t.name: list(t.values) for t in kernel.tile}
    spelled = {
        "ElementA": one["element_a"], "ElementB": one["element_b"], "ElementAccumulator": one["accumulator"], "epilogue.ElementD": one["element_d"],
        "AlignmentA": one["alignment_a"], "AlignmentB": one["alignment_b"],
    }  # fmt: skip
    for name, told in spelled.items():
        if told is not None:
            found = [v for v in values(kernel, name.removeprefix("epilogue.")) if answered(v)]
            assert [plain(v) for v in found] in ([], [plain(str(told))]), name
            asked.append(bool(found))
    for name, told in (("TileShape_MNK", one["tile"]), ("ClusterShape_MNK", one["cluster"])):
        if told is not None:
            shapes = [v for v in tiles.get(name, []) if answered(v)]
            assert sorted(shapes) in ([], sorted(listed(told)))
            asked.append(bool(shapes))
    if one.get("tile_line"):
        assert [t.line for t in kernel.tile if t.name == "TileShape_MNK"] == [one["tile_line"]]
    if one["schedule"]:
        schedules = values(kernel, "KernelScheduleType")
        assert sorted(map(plain, schedules)) in ([], sorted(map(plain, one["schedule"])))
        asked.append(bool(schedules))
    stages = listed(one["stages"]) if one["stages"] else []
    numbers = [str(stage) for stage in stages if isinstance(stage, int)]
    assert [s.value for s in kernel.num_stages] == numbers
    for stage in stages:
        assert isinstance(stage, int) or any(note.startswith(stage) for note in kernel.notes)
    if one["scheduler"] and not one["instances"]:
        assert [plain(v) for v in values(kernel, "TileScheduler")] == [plain(one["scheduler"])]
    held = {a.name: a.formula.partition(" * ")[0] for a in kernel.shared_memory}
    if held and one["stage_bytes_a"] is not None:
        assert held == {"smem_A": str(one["stage_bytes_a"]), "smem_B": str(one["stage_bytes_b"])}
    assert sum(asked) >= 0.85 * len(asked) or one["name"] == "main.GemmKernel"  # a mainloop without a builder


def answered(text: str) -> bool:
    """Whether a value is one, not an expression that was not followed."""
    return re.search(r"conditional_t|decltype", text) is None


def plain(text: str) -> str:
    """A type without its namespaces and spaces."""
    return re.sub(r"\b(?:\w+::)+|\s", "", text)


COMPILED = [
    "48_hopper_warp_specialized_gemm.cu", "70_blackwell_fp16_gemm.cu", "49_collective_builder.cu", "54_hopper_fp8_warp_specialized_gemm.cu",
    "76_blackwell_conv_fprop.cu", "79a_blackwell_geforce_nvfp4_bf16_gemm.cu",
]  # fmt: skip


@nvcc
@pytest.mark.slow
@pytest.mark.parametrize("file", COMPILED)
def test_source_and_compiler_agree_on_the_tile_and_its_bytes(file: str, cutlass: Repository) -> None:
    check_against_the_compiler(file, cutlass)


@nvcc
@pytest.mark.parametrize("file", sampled(COMPILED)[:1])
def test_source_and_compiler_agree_on_one(file: str, cutlass: Repository) -> None:
    check_against_the_compiler(file, cutlass)


def check_against_the_compiler(file: str, cutlass: Repository) -> None:
    inventory = inventory_of(cutlass)
    (reference,) = [k for k in inventory.kernels if k.language == "cutlass" and k.file.endswith(f"/{file}")]
    (kernel,) = describe(cutlass, inventory, [reference], **QUIET)
    found = compiled(cutlass, reference, kernel, launches_of(inventory, reference), [], {}, "", MemoryStore(), **QUIET)
    (build,) = found.builds
    assert not build.error
    assert build.registers
    told = dict(text.split(": ", 1) for text in build.types)
    m, n, k = map(int, next(t.values[0] for t in kernel.tile if t.name == "TileShape_MNK").split(" x "))
    stages, blocks = build.options["stages"], build.options["blocks_per_mma"]
    assert m % (build.options["mma_m"] // blocks) == 0
    assert n % build.options["mma_n"] == 0
    assert k % build.options["mma_k"] == 0
    assert build.threads % 32 == 0
    both = 0
    for name, rows in (("A", m), ("B", n)):
        shape = re.search(r"\bLayout<(\(.*)>>$", told[f"{name} in shared memory"])
        assert shape is not None
        assert product(shape[1].partition(")), (")[0]) == rows // blocks * k * stages
        width = {"float": 4, "half_t": 2, "float_e4m3_t": 1}.get(told[f"element {name}"], 0)
        both += rows * k * width
    assert stages * both // blocks <= (build.shared_bytes or 0)
    if kernel.cost is not None and kernel.cost.stage_bytes and both:
        assert int(kernel.cost.stage_bytes) == both // blocks


def product(text: str) -> int:
    whole = 1
    for number in re.findall(r"\d+", text):
        whole *= int(number)
    return whole


# ---- sources made for it

HEAD = """#pragma once
namespace cutlass { struct half_t {}; namespace arch { struct Sm90 {}; struct Sm100 {}; struct OpClassTensorOp {}; } }
"""
COMMON = """
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor, 128 / cutlass::sizeof_bits<Element>::value,
      Element, cutlass::layout::ColumnMajor, Align, float, Tile, Cluster, Stages, Schedule>::CollectiveOp;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
      void, cutlass::layout::RowMajor, 8, Out, cutlass::layout::RowMajor, 8, cutlass::epilogue::collective::EpilogueScheduleAuto>::CollectiveOp;
"""
KERNEL = "using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;"
SETTINGS = """using Element = cutlass::half_t;
using Out = float;
constexpr int Wide = 32;
constexpr int Align = 16 / sizeof(Element);
using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
using Stages = cutlass::gemm::collective::StageCount<Wide / 8>;
using Schedule = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
"""
PLAIN = (
    HEAD
    + SETTINGS
    + "using Tile = cute::Shape<cute::_64, cute::Int<4 * Wide>, cute::C<Wide>>;\n"
    + COMMON
    + KERNEL
    + "\n"
)
OF_CLASSES = (
    HEAD + SETTINGS.replace("using Element", "using Other") .replace("sizeof(Element)", "sizeof(Other)")
    + "template <class Element, class Config, int Unused = 3>\nstruct Runner {\n  using Tile = typename Config::Tile;\n" + COMMON + KERNEL + "\n};\n"
    "template <int M>\nstruct Sizes { using Tile = cute::Shape<cute::Int<M>, cute::_128, cute::_64>; };\n"
    "void run() { Runner<cutlass::half_t, Sizes<64>> a; Runner<float, Sizes<2 * 64>> b; }\n"
)  # fmt: skip
OF_ALIASES = (
    HEAD + SETTINGS + "template <class Tile>\nusing Main = cutlass::gemm::collective::CollectiveBuilder<cutlass::arch::Sm100, cutlass::arch::OpClassTensorOp,\n"
    "  Element, cutlass::layout::RowMajor, 8, Element, cutlass::layout::ColumnMajor, 8, float, Tile, Cluster, Stages, cutlass::gemm::KernelTmaWarpSpecialized2SmSm100>;\n"
    "template <class Tile>\nusing Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int>, typename Main<Tile>::CollectiveOp, Left>;\n"
    "using Used = Kernel<cute::Shape<cute::_256, cute::_128, cute::_64>>;\n"
)  # fmt: skip


def read(root: Path, text: str, name: str = "Kernel", **sizes: int) -> KernelTiling:
    (root / "one.cu").write_text(text)
    own = Repository(name="own", root=root, packages=())
    inventory = scan(own, MemoryStore(), **QUIET)
    (found,) = describe(own, inventory, select(inventory, name), sizes=sizes, **QUIET)
    return found


def test_aliases_and_constants_are_followed_to_numbers(tmp_path: Path) -> None:
    found = read(tmp_path, PLAIN, M=100, N=300, K=70, L=3)
    assert {t.name: t.values for t in found.tile}["TileShape_MNK"] == ("64 x 128 x 32",)
    assert (values(found, "ElementA"), values(found, "AlignmentA"), values(found, "AlignmentB")) == (
        ["cutlass::half_t"],
        ["8"],
        ["8"],
    )
    assert [s.value for s in found.num_stages] == ["4"]
    assert {a.name: a.bytes for a in found.shared_memory} == {"smem_A": 64 * 32 * 2 * 4, "smem_B": 128 * 32 * 2 * 4}
    assert found.num_tiles == "cdiv({M}, 64) * cdiv({N}, 128) * {L}"
    cost = found.cost
    assert cost is not None
    turns, tiles = 3, 2 * 3 * 3
    assert cost.evaluated["launch_flops"] == 2 * 64 * 128 * 32 * turns * tiles
    assert cost.evaluated["launch_read_bytes"] == (64 + 128) * 32 * 2 * turns * tiles
    assert cost.evaluated["launch_write_bytes"] == 64 * 128 * 4 * tiles
    assert cost.not_counted == ("arithmetic of the epilogue",)


def test_each_use_of_a_class_gives_its_own_values(tmp_path: Path) -> None:
    found = read(tmp_path, OF_CLASSES, "Runner.Kernel")
    assert {t.name: set(t.values) for t in found.tile}["TileShape_MNK"] == {"64 x 128 x 64", "128 x 128 x 64"}
    assert set(values(found, "ElementA")) == {"cutlass::half_t", "float"}
    assert set(values(found, "AlignmentA")) == {"8", "4"}
    assert values(found, "Unused") == ["3"]
    assert found.cost is None
    assert {i.instance for i in found.resources.instances} == {
        "Runner<cutlass::half_t, Sizes<64>>",
        "Runner<float, Sizes<2 * 64>>",
    }


def test_a_class_of_the_same_name_in_another_file_is_another(tmp_path: Path) -> None:
    """Files side by side that each have their own `Runner` and use it: none has the tiles of the other."""
    (tmp_path / "other.cu").write_text(
        OF_CLASSES.replace("Sizes<64>", "Sizes<192>").replace("Sizes<2 * 64>", "Sizes<256>")
    )
    found = read(tmp_path, OF_CLASSES, "one.cu")
    assert {t.name: set(t.values) for t in found.tile}["TileShape_MNK"] == {"64 x 128 x 64", "128 x 128 x 64"}


def test_two_blocks_share_a_tile_where_the_schedule_says_so(tmp_path: Path) -> None:
    found = read(tmp_path, OF_ALIASES)
    (block,) = [level for level in found.levels if level.level == "block"]
    assert (block.shape, block.elements) == (("128", "128"), str(128 * 128))
    cost = found.cost
    assert cost is not None
    assert cost.flops == f"{2 * 256 * 128 * 64} * cdiv({{K}}, 64) / 2"
    assert cost.stage_bytes == str((256 + 128) * 64 * 2 // 2)
    assert any("epilogue is Left" in note for note in found.notes)


def test_what_a_function_keeps_to_itself_is_said_not_to_be_compilable(tmp_path: Path) -> None:
    text = (
        HEAD
        + SETTINGS
        + "void run() {\n using Tile = cute::Shape<cute::_64, cute::_64, cute::_64>;\n"
        + COMMON
        + KERNEL
        + "\n}\n"
    )
    (tmp_path / "one.cu").write_text(text)
    own = Repository(name="own", root=tmp_path, packages=())
    inventory = scan(own, MemoryStore(), **QUIET)
    (reference,) = select(inventory, "run.Kernel")
    (kernel,) = describe(own, inventory, [reference], **QUIET)
    assert {t.name: t.values for t in kernel.tile}["TileShape_MNK"] == ("64 x 64 x 64",)
    if shutil.which("nvcc"):
        found = compiled(own, reference, kernel, [], [], {}, "", MemoryStore(), **QUIET)
        assert "local to a function" in found.statement


BEFORE = HEAD + SETTINGS
OPERATOR = COMMON + KERNEL
SMALL, LARGE = (f"cute::Shape<cute::_{m}, cute::_128, cute::_64>" for m in (64, 128))
#: what stands before the operator, of which a compiler takes LARGE; what closes behind it
SCOPES = {
    "the alias of another function": f"using Tile = {LARGE};\nvoid other() {{ using Tile = {SMALL}; }}\n",
    "the member of a class": f"using Tile = {LARGE};\nstruct Config {{ using Tile = {SMALL}; }};\n",
    "another namespace": f"namespace a {{ using Tile = {SMALL}; }}\nusing Tile = {LARGE};\nnamespace b {{ using Tile = {SMALL}; }}\n",
    "two classes of a name": f"namespace a {{ struct C {{ using T = {SMALL}; }}; }}\nnamespace b {{ struct C {{ using T = {LARGE}; }}; }}\n"
    "using Tile = b::C::T;\n",
    "a specialisation": f"template <int N> struct P {{ using T = {SMALL}; }};\ntemplate <> struct P<2> {{ using T = {LARGE}; }};\nusing Tile = P<2>::T;\n",
    "a base class": f"struct A {{ using T = {LARGE}; }};\nstruct B : A {{ struct I {{ using T = {SMALL}; }}; }};\nusing Tile = B::T;\n",
    "branches of an #if": f"#ifdef BIG\nusing Tile = {LARGE};\n#else\nusing Tile = {SMALL};\n#endif\n",
    "a using-declaration": f"namespace a {{ using Tile = {LARGE}; }}\nnamespace c {{ using Tile = {SMALL}; }}\nusing a::Tile;\n",
    "a macro": "constexpr int TM = 64;\n#define TM 128\nusing Tile = cute::Shape<cute::Int<TM>, cute::_128, cute::_64>;\n",
    "a typedef nearer": f"using Tile = {SMALL};\nnamespace k {{\ntypedef {LARGE} Tile;\n",
    "a constant of another kind nearer": "constexpr int M = 64;\nnamespace k {\nstatic const int M = 128;\n"
    "using Tile = cute::Shape<cute::Int<M>, cute::_128, cute::_64>;\n",
    "the global one": "constexpr int M = 128;\nnamespace k {\nconstexpr int M = 64;\nusing Tile = cute::Shape<cute::Int<::M>, cute::_128, cute::_64>;\n",
    "a difference of members": "template <int N> struct V { static constexpr int v = N; };\n"
    "using Tile = cute::Shape<cute::Int<V<192>::v - V<64>::v>, cute::_128, cute::_64>;\n",
}  # fmt: skip


@pytest.mark.parametrize("case", SCOPES)
def test_no_name_is_taken_for_another(case: str, tmp_path: Path) -> None:
    """What is not worked out may be left open, but no other tile is told."""
    closing = "\n}\n" if "namespace k {" in SCOPES[case] else "\n"
    found = read(tmp_path, BEFORE + SCOPES[case] + OPERATOR + closing)
    told = [v for t in found.tile for v in t.values if t.name == "TileShape_MNK" and re.fullmatch(r"[\dx ]+", v)]
    assert told in ([], ["128 x 128 x 64"])
    if not told:
        assert found.cost is None
        assert not found.shared_memory


def test_stages_of_one_instance_are_not_those_of_all(tmp_path: Path) -> None:
    text = OF_CLASSES.replace("int Unused = 3", "class Stages")
    text = text.replace("using Stages = cutlass::gemm::collective::StageCount<Wide / 8>;\n", "")
    text = text.replace("Sizes<64>>", "Sizes<64>, cutlass::gemm::collective::StageCount<3>>")
    text = text.replace("Sizes<2 * 64>>", "Sizes<64>, cutlass::gemm::collective::StageCountAuto>")
    found = read(tmp_path, text.replace("Runner<float", "Runner<cutlass::half_t"), "Runner.Kernel")
    assert [(s.value, "StageCount<3>" in s.when) for s in found.num_stages] == [("3", True)]
    assert {a.dimensions[-1] for a in found.shared_memory} == {"Stages"}


def test_templates_of_templates_end(tmp_path: Path) -> None:
    """Each asks for the one before three times: nobody waits for three to the thirtieth."""
    chain = "template <int N> using A0 = cute::Int<N>;\n" + "".join(
        f"template <int N> using A{at} = cute::Shape<A{at - 1}<N>, A{at - 1}<N>, A{at - 1}<N>>;\n"
        for at in range(1, 31)
    )
    begun = time.monotonic()
    found = read(tmp_path, BEFORE + chain + "using Tile = A30<64>;\n" + OPERATOR + "\n")
    assert found.cost is None
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("text", [
    PLAIN.replace("using Tile = cute::Shape<", "using Tile = Unknown<"), PLAIN.replace("using Mainloop = typename", "using Mainloop = conditional_t<Flag, A, "),
    PLAIN.replace("using Element = cutlass::half_t;", "using Element = Element;"), PLAIN.replace("constexpr int Wide = 32;", "constexpr int Wide = Wide + 1;"),
    PLAIN.replace("Mainloop, Epilogue>", "Kernel, Kernel>"), PLAIN.replace("::CollectiveOp", ""),
    PLAIN.replace("cute::Shape<cute::_64,", "cute::Shape<cute::Shape<cute::_64, cute::_2>,"),
])  # fmt: skip
def test_what_leads_nowhere_is_in_no_figure(text: str, tmp_path: Path) -> None:
    found = read(tmp_path, text)
    whole = {t.name: t.values for t in found.tile}.get("TileShape_MNK") == ("64 x 128 x 32",)
    assert whole or found.cost is None
    assert whole or not found.shared_memory
