"""Every `expect:` comment in the corpus is a fact that the engine finds on that very line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import Inventory, describe, parse_arch, scan
from opscope_tools.running.workspace import folder_repository

CORPUS = Path(__file__).parents[2] / "corpus" / "kernels"


@cache
def described() -> tuple[Inventory, list[KernelTiling]]:
    repository = folder_repository("corpus", CORPUS)
    inventory = scan(repository, MemoryStore(), checkpoint=lambda: None, progress=lambda *_: None)
    kernels = describe(repository, inventory, inventory.kernels, checkpoint=lambda: None, progress=lambda *_: None)
    return inventory, kernels


def kernel(name: str, file: str = "") -> KernelTiling:
    return next(k for k in described()[1] if k.name == name and file in k.file)


def expectations() -> list[tuple[str, int, str]]:
    found = []
    for path in sorted(CORPUS.rglob("*.*")):
        if path.suffix in {".py", ".cu", ".cuh", ".h"}:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if match := re.search(r"(?:#|//) expect: (.*)$", line):
                    found.append((path.relative_to(CORPUS).as_posix(), number, match[1].strip()))
    return found


def facts(k: KernelTiling) -> Iterator[tuple[str, int, str]]:
    def at(file: str) -> str:
        return file or k.file

    yield k.file, k.line, f"role {k.role}"
    for c in k.constexpr:
        yield from ((k.file, c.line, f"constexpr {c.name} = {v.value}") for v in c.values)
    yield from ((at(m.file), m.line, f"mapping {m.axis} -> {m.variable}") for m in k.mapping)
    yield from ((at(m.file), m.line, f"load {m.parameter}") for m in k.loads)
    yield from ((at(m.file), m.line, f"store {m.parameter}") for m in k.stores)
    yield from ((at(m.file), m.line, f"loop {m.trip_count}") for m in k.loops)
    yield from ((at(m.file), m.line, f"constraint {m.condition}") for m in k.constraints)
    yield from ((at(m.file), m.line, f"instruction {m.operation}") for m in k.instructions)
    yield from ((at(m.file), m.line, f"tiles {m.num_tiles}") for m in k.grid)
    for m in k.shared_memory:
        yield at(m.file), m.line, f"shared {m.formula if m.bytes is None else m.bytes}"


@pytest.mark.parametrize(("file", "line", "expected"), expectations())
def test_the_corpus_line_yields_the_fact_written_on_it(file: str, line: int, expected: str) -> None:
    found = {(f, n, text) for k in described()[1] for f, n, text in facts(k)}
    here = sorted(text for f, n, text in found if (f, n) == (file, line))
    assert (file, line, expected) in found, f"found on that line: {here}"


def test_autotune_configs_are_enumerated_once_per_answer_of_the_platform_predicate() -> None:
    tuned = kernel("matmul_kernel").autotune
    assert tuned is not None
    assert not tuned.unresolved
    listed = [(c.values["BLOCK_M"], c.values["BLOCK_N"], c.num_warps, c.num_stages, c.when) for c in tuned.configs]
    # TILES is [64, 128] off AMD and [32] on it; 128 * 64 exceeds the limit of 4096 and is left out
    assert sorted(listed) == [
        (32, 32, 2, 3, "IS_AMD"), (32, 64, 2, 3, "IS_AMD"),
        (64, 32, 4, 3, "not IS_AMD"), (64, 64, 4, 3, "not IS_AMD"), (128, 32, 8, 3, "not IS_AMD"),
    ]  # fmt: skip
    assert {(v.when, v.count) for v in tuned.variants} == {("IS_AMD", 2), ("not IS_AMD", 3)}
    assert tuned.assumptions == ("the environment variable SHOP_STAGES is not set",)
    assert tuned.key == ("M", "N", "K")


def test_products_and_concatenations_of_configs_are_enumerated_in_order() -> None:
    tuned = kernel("scale_kernel").autotune
    assert tuned is not None
    listed = [(c.values["BLOCK"], c.num_warps) for c in tuned.configs]
    assert listed == [(128, 2), (128, 4), (256, 2), (256, 4), (1024, 8)]
    assert tuned.variants == ()


def test_settings_of_a_helper_in_another_file_are_followed_case_by_case() -> None:
    row = kernel("_row_kernel")
    block = next(c for c in row.constexpr if c.name == "BLOCK")
    assert [(v.value, v.when) for v in block.values] == [("next_power_of_2({n_cols})", "")]
    warps = {v.value: v.when for v in row.num_warps}
    assert set(warps) == {"4", "8", "16"}
    # a row wider than 65536 raises before the launch
    wide = "next_power_of_2(n_cols) <= 65536 and next_power_of_2(n_cols) >= 8192"
    middle = "next_power_of_2(n_cols) < 8192 and next_power_of_2(n_cols) >= 2048"
    assert warps == {
        "4": "next_power_of_2(n_cols) < 2048",
        "8": f"({wide} and is_hip()) or ({middle})",
        "16": f"{wide} and not is_hip()",
    }


def test_an_architecture_decides_platform_predicates_and_says_so() -> None:
    repository = folder_repository("corpus", CORPUS)
    inventory, _ = described()
    rows = [k for k in inventory.kernels if k.name == "_row_kernel"]
    (row,) = describe(
        repository, inventory, rows, arch=parse_arch("sm_90"), checkpoint=lambda: None, progress=lambda *_: None
    )
    by_value = {v.value: v for v in row.num_warps}
    assert "is_hip()" not in by_value["16"].when
    assert by_value["16"].assumptions == ("is_hip() is False on sm_90",)
    matmul = [k for k in inventory.kernels if k.name == "matmul_kernel"]
    (tuned,) = describe(
        repository, inventory, matmul, arch=parse_arch("gfx942"), checkpoint=lambda: None, progress=lambda *_: None
    )
    assert tuned.autotune is not None
    assert [c.values for c in tuned.autotune.configs] == [
        {"BLOCK_M": 32, "BLOCK_N": 32}, {"BLOCK_M": 32, "BLOCK_N": 64},
    ]  # fmt: skip
    assert "IS_AMD is True on gfx942" in tuned.autotune.assumptions


def test_a_grid_that_depends_on_a_branch_is_listed_with_its_condition() -> None:
    grids = {(g.num_tiles, g.when) for g in kernel("_row_kernel").grid}
    assert grids == {("{n_cols} * {n_rows}", "columns"), ("{n_rows}", "not columns")}


def test_kernels_of_one_name_keep_their_own_launches() -> None:
    assert [g.num_tiles for g in kernel("same_name", "other.py").grid] == ["3 * 5"]
    assert len(kernel("same_name", "rows.py").grid) == 1


def test_loads_of_the_matrix_product_say_loop_mask_and_level() -> None:
    loads = kernel("matmul_kernel").loads
    assert [(m.parameter, m.level, m.mask) for m in loads] == [
        ("A", "global", "steps[None, :] < K - k"), ("B", "global", "steps[:, None] < K - k"),
    ]  # fmt: skip
    assert len({m.loop for m in loads}) == 1
    assert all(m.loop for m in loads)
    assert [p.name for p in kernel("matmul_kernel").parameters if p.pointer] == ["A", "B", "C"]


def test_macro_made_kernels_are_found_with_the_macro_that_writes_them() -> None:
    attend = kernel("attend_kernel")
    assert attend.macro.startswith("SHOP_KERNEL (shop/csrc/defines.h:")
    assert [(c.name, c.kind) for c in attend.constexpr] == [("Traits", "template"), ("Causal", "template")]
    assert kernel("fill_kernel").macro == ""
    assert [p.name for p in kernel("fill_kernel").parameters if p.pointer] == ["x"]


def test_traits_classes_give_tile_sizes_through_the_callers_of_the_launching_function() -> None:
    attend = kernel("attend_kernel")
    values = {v.value for v in attend.constexpr[0].values}
    assert values == {"ShopTraits<128, 64>", "ShopTraits<64, 32, 8>"}
    tiles = {t.name: t.values for t in attend.tile}
    assert tiles["Traits::kBlockM"] == ("128", "64")
    assert tiles["Traits::kNThreads"] == ("128", "256")  # 4 warps by default, and 8
    assert tiles["Traits::kSmemSize"] == (str(128 * 64 * 2), str(64 * 32 * 2))


def test_device_functions_are_read_along_and_asynchronous_copies_are_recognised() -> None:
    attend = kernel("attend_kernel")
    assert [(c.name, c.followed) for c in attend.calls] == [("compute", True)]
    assert [(i.operation, i.via) for i in attend.instructions] == [("cp.async", "compute")]
    assert [(m.axis, m.via) for m in attend.mapping] == [("blockIdx.x", "compute")]


def test_a_cuda_launch_says_block_threads_shared_memory_and_warps() -> None:
    sgemm = kernel("sgemm_kernel")
    (launch,) = sgemm.grid
    assert launch.block == ("16", "16")
    assert launch.threads == 256
    assert launch.kernel == "sgemm_kernel<float, 128>"
    assert [v.value for v in sgemm.num_warps] == ["8", "at most cdiv(256, 32)"]
    given = {c.name: [v.value for v in c.values] for c in sgemm.constexpr}
    assert given == {"T": ["float"], "BLOCK_M": ["128"], "BLOCK_N": ["64"]}


def test_comments_and_declarations_are_no_kernels() -> None:
    names = {k.name for k in described()[0].kernels}
    assert "commented_out" not in names
    assert "declared_elsewhere" not in names


def test_other_languages_and_source_strings_are_listed_as_not_analysed() -> None:
    unread = {(u.form, u.name) for u in described()[0].not_analysed}
    assert unread == {
        ("Numba CUDA", "numba_kernel"),
        ("Triton source in a string", "generated"),
    }


def test_a_file_that_does_not_parse_is_named_and_the_rest_is_read() -> None:
    (note,) = described()[0].notes
    assert note.startswith("shop/ops/broken.py:4 does not parse as Python")


def test_every_description_says_that_nothing_was_compiled() -> None:
    for k in described()[1]:
        assert not k.resources.compiled
        assert k.resources.statement.startswith("Not compiled")


def test_a_launch_of_what_a_function_elsewhere_chooses_means_each_kernel_that_it_may_return(tmp_path: Path) -> None:
    (tmp_path / "kernels.cuh").write_text(
        "template <int N> __global__ void wide(float* x) { x[N] = 0; }\n"
        "__global__ void narrow(float* x) { x[0] = 0; }\n"
        "__global__ void other(float* x) { x[1] = 0; }\n"
    )
    (tmp_path / "select.cu").write_text(
        '#include "kernels.cuh"\n'
        "fp pick_wide_kernel_a(int n) { if (n == 1) return wide<1>; return NULL; }\n"
        "fp pick_kernel(int n) { fp k = pick_wide_kernel_a(n); if (k) return k; return &narrow; }\n"
    )
    (tmp_path / "launch.cu").write_text(
        "void go(float* x, int n) {\n  fp kernel = pick_kernel(n);\n  kernel<<<n, 32>>>(x);\n}\n"
    )
    inventory = scan(
        folder_repository("r", tmp_path),
        MemoryStore(),
        checkpoint=lambda: None,
        progress=lambda *_: None,
    )
    (launch,) = inventory.launches
    assert {"wide", "narrow"} <= set(launch.callees)
    assert "other" not in launch.callees


def test_a_comparison_in_the_type_and_a_table_of_kernels_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(
        "template <int N> __global__ std::enable_if_t<(N == 0)> narrow(float* x) { x[0] = 0; }\n"
        "template <int N> __global__ std::enable_if_t<(N >= 1)> wide(float* x) { x[N] = 0; }\n"
        "void go(float* x, bool on) {\n"
        "  using F = void (*)(float*);\n"
        "  F table[2] = {&narrow<0>, &wide<1>};\n"
        "  auto* const kernel = table[on];\n"
        "  kernel<<<1, 32>>>(x);\n"
        "}\n"
    )
    inventory = scan(folder_repository("r", tmp_path), MemoryStore(), checkpoint=lambda: None, progress=lambda *_: None)
    assert {k.name for k in inventory.kernels} == {"narrow", "wide"}
    (launch,) = inventory.launches
    assert {"narrow", "wide"} <= set(launch.callees)
