"""Formulas: C++ size expressions, Python arithmetic, and the conditions that results are listed under."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.errors import InputError
from opscope_tools.kernels import describe, parse_arch, scan, select
from opscope_tools.kernels.cuda.launch.host_expressions import formula_text
from opscope_tools.kernels.cuda.source_text import CSource, split_arguments
from opscope_tools.kernels.host.worlds import Oracle, worlds
from opscope_tools.kernels.values.conditions import negated, when_text
from opscope_tools.kernels.values.expressions import Quantity, combine, leaf, render
from opscope_tools.kernels.values.notation import product


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("(n + 127) / 128", "cdiv({n}, 128)"),
        ("(n + B - 1) / B", "cdiv({n}, B)"),
        ("(B - 1 + n) / B", "cdiv({n}, B)"),
        ("ceil_div(n * 2, 64)", "cdiv({n} * 2, 64)"),
        ("at::ceil_div((int64_t) n, (int64_t) 32)", "cdiv({n}, 32)"),
        ("n / 128", "{n} // 128"),
        ("1 << 10", "1024"),
        ("0x10 * 2u", "32"),
        ("-7 / 2", "-3"),  # C++ truncates towards zero
        ("7 - 2 - 1", "4"),
        ("n - (m - 1)", "{n} - ({m} - 1)"),
        ("std::min(n, 4096L)", "min({n}, 4096)"),
        ("static_cast<int>(n) * 2", "{n} * 2"),
        ("params.n->x[3] * 2", "{params.n->x[3]} * 2"),
        ("big ? n : 1", "({n} if {big} else 1)"),
        ("f(n, m) + 1", "{f({n}, {m})} + 1".replace("{f({n}, {m})}", "{f(n, m)}")),
    ],
)
def test_a_size_expression_becomes_a_formula(written: str, expected: str) -> None:
    assert formula_text(written, lambda name: Quantity(name) if name == "B" else None) == expected


def test_text_that_is_no_size_expression_stays_one_quantity() -> None:
    assert formula_text("[&] { return 1; }()", lambda _: None).startswith("{")


@pytest.mark.parametrize(("a", "b"), list(itertools.product((1, 5, 128), (1, 4, 64))))
def test_the_ceiling_form_keeps_its_value(a: int, b: int) -> None:
    n, one = leaf("n"), 1
    written = combine("//", combine("-", combine("+", n, b), one), b)
    text = render(written)
    ours = eval(text.replace("{n}", str(a)), {"cdiv": lambda x, y: -(-x // y)})
    assert ours == (a + b - 1) // b


def test_a_product_of_dimensions_puts_sums_in_parentheses() -> None:
    assert product(["cdiv({M}, B)", "{n} - 1", "1", "{h} * 2"]) == "cdiv({M}, B) * ({n} - 1) * {h} * 2"
    assert product(["1", "1"]) == "1"


def test_worlds_are_every_way_in_which_the_questions_can_be_answered() -> None:
    def run(oracle: Oracle) -> str:
        if oracle.ask("is_hip()"):
            return "hip"
        return "wide" if oracle.ask("{n} >= 8") else "narrow"

    outcomes, complete = worlds(run)
    assert complete
    assert {(o.value, when_text([o.trail])) for o in outcomes} == {
        ("hip", "is_hip()"), ("wide", "not is_hip() and n >= 8"), ("narrow", "not is_hip() and n < 8"),
    }  # fmt: skip


def test_a_question_and_its_negation_are_never_answered_alike() -> None:
    def run(oracle: Oracle) -> tuple[bool, bool, bool]:
        return oracle.ask("{n} < 8"), oracle.ask("{n} >= 8"), oracle.ask("not {n} < 8")

    outcomes, _ = worlds(run)
    assert sorted(o.value for o in outcomes) == [(False, True, True), (True, False, False)]


def test_too_many_worlds_are_reported_as_incomplete() -> None:
    outcomes, complete = worlds(lambda oracle: [oracle.ask(f"q{i}()") for i in range(10)], limit=32)
    assert (len(outcomes), complete) == (32, False)


def test_conditions_are_negated_readably() -> None:
    assert negated("n >= 8") == "n < 8"
    assert negated("is_hip()") == "not is_hip()"
    assert negated("a and b") == "not (a and b)"


def test_braces_that_differ_between_preprocessor_branches_close_once() -> None:
    source = CSource("x.cu", "void f() {\n#if A\n if (x) {\n#else\n if (y) {\n#endif\n }\n}\nvoid g() {}\n")
    assert source.line(source.block_end(source.code.index("{"))) == 8


def test_arguments_split_at_their_own_level_only() -> None:
    assert split_arguments("f<a, b>(c, d), e < 2, h") == ["f<a, b>(c, d)", "e < 2", "h"]
    assert split_arguments("K::n <= 128 && x, Traits<1, 2>") == ["K::n <= 128 && x", "Traits<1, 2>"]


@pytest.mark.parametrize("spelled", ["sm_90", "sm90", "9.0", "sm_90a", "compute_90"])
def test_an_architecture_is_read_in_its_usual_spellings(spelled: str) -> None:
    arch = parse_arch(spelled)
    assert arch is not None
    assert (arch.name, arch.capability) == ("sm_90", (9, 0))
    assert arch.decides("IS_NVIDIA_HOPPER") is True
    assert arch.decides("utils.is_hip()") is False
    assert arch.decides("use_fast_path()") is None


def test_an_unknown_architecture_is_refused_with_examples() -> None:
    with pytest.raises(InputError, match="sm_80, sm_90"):
        parse_arch("hopper")


_MACROS = """#define F(a) a + 1
#define G(a) (a * 2)
#define H(a) ((a) * 2)
#define P(a) (a) + (a)
#define TWICE(a) F(a) * F(a)
#define UP(m, n) ((m) + (n) - 1) / (n)
#define SELF(a) SELF(a) + 1
#define BOTH (4) + (4)
#ifdef WIDE
#define EITHER(a) a * 2
#else
#define EITHER(a) a * 4
#endif
__global__ void k(float * x) { x[0] = 1.f; }
void launch(float * x, int n) { k<<<GRID, 32>>>(x); }
"""


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("F(2) * 3", "5"),  # 2 + 1 * 3
        ("3 * F(2)", "7"),  # 3 * 2 + 1
        ("F(2)", "3"),
        ("(F(2)) * 3", "9"),
        ("G(2 + 3) * 2", "16"),  # (2 + 3 * 2) * 2
        ("H(2 + 3) * 2", "20"),
        ("P(2) * 5", "12"),  # (2) + (2) * 5
        ("TWICE(3)", "7"),  # 3 + 1 * 3 + 1
        ("F(F(1)) * 4", "6"),  # 1 + 1 + 1 * 4
        ("F(n) * 2", "{n} + 2"),
        ("UP(n, 64) * 2", "cdiv({n}, 64) * 2"),
        ("SELF(1) * 2", "{SELF(1)} * 2"),
        ("BOTH * 2", "BOTH * 2"),  # no value by itself, so none is told
        ("EITHER(3) * 2", "{EITHER(3)} * 2"),  # which one holds, a condition decides
    ],
)
def test_a_macro_is_put_in_as_the_preprocessor_does(tmp_path: Path, written: str, expected: str) -> None:
    (tmp_path / "k.cu").write_text(_MACROS.replace("GRID", written))
    own = Repository(name="own", root=tmp_path, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(own, MemoryStore(), **quiet)
    (kernel,) = describe(own, inventory, select(inventory, "k"), **quiet)
    assert kernel.grid[0].dimensions == (expected,)


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler is the reference")
def test_a_c_compiler_gives_these_macros_the_same_values(tmp_path: Path) -> None:
    written = [
        "F(2) * 3",
        "3 * F(2)",
        "F(2)",
        "(F(2)) * 3",
        "G(2 + 3) * 2",
        "H(2 + 3) * 2",
        "P(2) * 5",
        "TWICE(3)",
        "F(F(1)) * 4",
    ]
    macros = _MACROS.partition("__global__")[0]
    prints = "".join(f'printf("%d ", {w});' for w in written)
    (tmp_path / "m.c").write_text(f"#include <stdio.h>\n{macros}int main(void) {{ {prints} return 0; }}\n")
    subprocess.run(["cc", "-o", tmp_path / "m", tmp_path / "m.c"], check=True)
    said = subprocess.run([tmp_path / "m"], check=True, capture_output=True, text=True).stdout.split()
    assert said == ["5", "7", "3", "9", "16", "20", "12", "7", "6"]


def test_a_block_that_ends_inside_a_condition_ends_there() -> None:
    source = CSource("f.cu", "void f() {\n#if A\n  x();\n}\n#else\n  y();\n}\n#endif\nvoid g() {}\n")
    assert source.line(source.block_end(source.statements.index("{"))) == 7
