"""Declarations of constants: each name has its own initialiser, however many stand in one declaration; held against how they were put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import describe, scan, select
from opscope_tools.kernels.cuda.declarations import constants
from opscope_tools.kernels.cuda.source_text import CSource

_INITIAL = st.sampled_from(
    [
        "3",
        "-1",
        "a + b",
        "f(a, b)",
        "std::is_same_v<T, float>",
        "max(1, g<2, 3>(x))",
        "a < b",
        "1 << 7",
        "x[2]",
        "c ? 1 : 2",
    ]
)
_WORDS = st.sampled_from(
    [
        "constexpr int",
        "static constexpr int",
        "constexpr static unsigned int",
        "const int",
        "static const auto",
        "inline constexpr ns::Size",
    ]
)
_BLANK = st.sampled_from([" ", "", "\n  ", " /* , = */ "])
DECLARATIONS = st.lists(
    st.tuples(_WORDS, st.lists(st.tuples(_INITIAL, st.booleans(), _BLANK), min_size=1, max_size=4)), max_size=6
)


@given(DECLARATIONS)
def test_every_name_of_a_declaration_has_its_own_initialiser(
    declarations: list[tuple[str, list[tuple[str, bool, str]]]],
) -> None:
    text = "int g;\n"
    expected: list[tuple[str, str, str, str]] = []
    for words, names in declarations:
        parts = []
        for initial, braces, blank in names:
            name = f"k{len(expected)}"
            expected.append((name, words, "{" if braces else "=", initial))
            parts.append(f"{name}{blank}{{{initial}}}" if braces else f"{name}{blank}= {initial}")
        text += f"{words} {', '.join(parts)};\nvoid f();\n"
    found = constants(CSource("a.cu", text))
    assert [(one.name, one.words.strip(), one.sign, one.text) for one in found] == expected
    for one in found:
        assert text.startswith(one.name, one.position)


def test_tables_pointers_and_defaults_of_parameters_take_no_name_of_another() -> None:
    text = "const int t[2] = {1, 2}, *p = t, q = 3; void f(const int a = 1, const int b = 2) { const int c{a}; }"
    assert [(one.name, one.sign, one.text) for one in constants(CSource("a.cu", text))] == [
        ("t", "[", "[2] = {1, 2}"), ("q", "=", "3"), ("a", "=", "1"), ("b", "=", "2"), ("c", "{", "a"),
    ]  # fmt: skip


def copy_in(folder: Path) -> KernelTiling:
    """The kernel `copy` of the sources in a folder."""
    repository = Repository(name="own", root=folder, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(repository, MemoryStore(), **quiet)
    (kernel,) = describe(repository, inventory, select(inventory, "copy"), **quiet)
    return kernel


KERNEL = """
constexpr int TILE_M = 64, TILE_N{32};
template <int BM, int BN = TILE_N, int BK = BM / 4, typename T = float, int BQ = BK + OTHER>
__global__ void copy(const float* a, float* b, int n) { if (threadIdx.x < n) b[threadIdx.x] = a[threadIdx.x]; }
"""


@pytest.mark.parametrize(
    ("launch", "told"),
    [
        ("copy<TILE_M><<<1, 128>>>(a, b, n);", ["64", "32", "16", "float", "BK + OTHER"]),
        ("copy<8, 4><<<1, 128>>>(a, b, n);", ["8", "4", "2", "float", "BK + OTHER"]),
        ("copy<8, 4, 1, int, 9><<<1, 128>>>(a, b, n);", ["8", "4", "1", "int", "9"]),
    ],
)
def test_defaults_of_a_template_are_worked_out_from_constants_and_the_arguments_before(
    launch: str, told: list[str], tmp_path: Path
) -> None:
    text = f"{KERNEL}void launch(const float* a, float* b, int n) {{ {launch} }}\n"
    (tmp_path / "a.cu").write_text(text)
    kernel = copy_in(tmp_path)
    assert [value.value for one in kernel.constexpr for value in one.values] == told


@pytest.mark.parametrize(
    ("header", "before", "used", "block"),
    [
        ("constexpr int K = 64;", "", "K", "64"),
        ('#include "deep/g.h"\nconstexpr int K = 2 * G;', "", "K", "64"),
        ("namespace n { constexpr int K = 64; }", "using namespace n;", "K", "64"),
        ("namespace n { constexpr int K = 64; }", "using n::K;", "K", "64"),
        ("namespace n { constexpr int K = 64; }", "", "n::K", "64"),
        ("namespace m { namespace n { const int K = 64; } }", "", "m::n::K", "64"),
        ("namespace { constexpr int K = 64; }", "", "K", "64"),
        # seen, but not the one that is meant
        ("namespace n { constexpr int K = 64; }", "constexpr int K = 8;", "K", "8"),
        # not seen, or not told which
        ("namespace n { constexpr int K = 64; }", "", "K", "{K}"),
        ("namespace n { constexpr int K = 64; }", "using o::K;", "K", "{K}"),
        ("namespace n { constexpr int K = 64; }", "", "o::K", "o::K"),
        ("struct S { static constexpr int K = 64; };", "", "K", "{K}"),
        ("inline int f() { constexpr int K = 64; return K; }", "", "K", "{K}"),
        ("namespace n { constexpr int K = 64; } namespace o { constexpr int K = 32; }", "using namespace n; using namespace o;", "K", "{K}"),
        ("extern const int K;", "", "K", "{K}"),
        ("constexpr int K = L; constexpr int L = K;", "", "K", "{K}"),
        ("constexpr int K = runtime();", "", "K", "{K}"),
    ],
)  # fmt: skip
def test_a_constant_of_a_header_is_what_a_file_sees_there(
    header: str, before: str, used: str, block: str, tmp_path: Path
) -> None:
    """In a launch, in a loop on the device and as a default of a template alike."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/g.h").write_text("constexpr int G = 32;\n")
    (tmp_path / "h.h").write_text(f"{header}\n")
    (tmp_path / "a.cu").write_text(
        f'#include "h.h"\n{before}\ntemplate <int N = {used}>\n__global__ void copy(float* a) {{\n'
        f"  for (int i = 0; i < {used}; ++i) a[i * 1024 + threadIdx.x] = 1.0f;\n}}\n"
        f"void launch(float* a) {{ copy<<<1, {used}>>>(a); }}\n"
    )
    kernel = copy_in(tmp_path)
    assert [list(one.block) for one in kernel.grid] == [[block]]
    (loop,) = kernel.loops
    told = block.strip("{}")
    assert loop.trip_count.replace("{", "").replace("}", "").rpartition("::")[2] == told.rpartition("::")[2]
    assert [value.value for one in kernel.constexpr for value in one.values] == [told]
