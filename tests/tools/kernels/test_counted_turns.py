"""What stands under a test of a loop's counter is counted in the turns that it is run in, as plain Python runs them; else it is said."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import Cost, KernelTiling
from opscope_tools.kernels import describe, scan, select
from opscope_tools.kernels.values.notation import evaluate, names_of

QUIET: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
SIZES = (1, 2, 3, 4, 5, 7, 12, 13)


class Language(NamedTuple):
    """A kernel around BODY, how it loads (L) and stores (S) a tile, how it calls `cdiv`, and what elements of its arrays are called."""

    kernel: str
    load: str
    store: str
    prefix: str


LANGUAGES = {
    "triton": Language(
        """
import triton
import triton.language as tl

@triton.jit
def k(X, Y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.zeros([B], tl.float32)
    BODY
    tl.store(X + o, x)
""",
        "x = tl.load(X + o)",
        "tl.store(Y + o, x)",
        "tl",
    ),
    "gluon": Language(
        """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

@gluon.jit
def k(X, Y, n, B: gl.constexpr, L: gl.constexpr):
    o = gl.program_id(0) * B + gl.arange(0, B, L)
    x = gl.zeros([B], gl.float32, L)
    BODY
    gl.store(X + o, x)
""",
        "x = gl.load(X + o)",
        "gl.store(Y + o, x)",
        "gl",
    ),
    "cutile": Language(
        """
import cuda.tile as ct

@ct.kernel
def k(X, Y, n, B: ct.Constant[int]):
    o = ct.bid(0)
    x = ct.full((B,), 0.0, dtype=ct.float32)
    BODY
    ct.store(X, index=(o,), tile=x)
""",
        "x = ct.load(X, index=(o,), shape=(B,))",
        "ct.store(Y, index=(o,), tile=x)",
        "ct",
    ),
}
LOOPS = (
    "range(10)", "range(2, 9, 3)", "range(n)", "range(0, n)", "range(0, n, 2)", "range(3, n + 3)", "range(n - 1, -1, -1)", "range(5, -1, -1)",
    "range(cdiv(n, B))", "range(0, n, B)",
)  # fmt: skip
TESTS = (
    "i < 3", "i >= 2", "i == 0", "i != 0", "i > 0", "3 > i", "not i < 3", "i", "i < n - 1", "i == n - 1", "i + 1 < n", "2 * i + 1 <= n",
    "n - i > 2", "i * B < n", "1 <= i < 4", "i > 0 and i < n - 1", "i < 2 or i > 4", "i % 2 == 0", "i % 3 != 1", "i % 2", "(i + 1) % 4 == 0",
    "i % 2 == 0 and i % 3 == 0", "later < n", "later % 3 == 0", "i // 2 == 1",
)  # fmt: skip
BLOCKS = Language(
    """
import tilelang
import tilelang.language as T

@tilelang.jit
def k(n, B):
    @T.prim_func
    def main(X: T.Tensor((n, B), "int8"), Y: T.Tensor((n, B), "int8")):
        with T.Kernel(1, threads=128) as bx:
            x = T.alloc_shared((B,), "int8")
            BODY
            T.copy(x, Y[0, 0])
    return main
""",
    "T.copy(X[0, 0], x)",
    "T.copy(x, Y[0, 0])",
    "T",
)
BODIES = {
    "sides": "for i in LOOP:\n    later = i + B - 1\n    if TEST:\n        L\n    else:\n        S",
    "continue": "for i in LOOP:\n    later = i + B - 1\n    S\n    if TEST:\n        continue\n    L",
    "nested": "for i in LOOP:\n    later = i + B - 1\n    if i > 1:\n        if TEST:\n            L\n    else:\n        S",
    "inner": "for i in LOOP:\n    later = i + B - 1\n    for j in range(3):\n        if TEST:\n            L\n        S",
    "both": "for i in LOOP:\n    later = i + B - 1\n    for j in range(n):\n        if j > 0:\n            if TEST:\n                L\n        S",
    "after": "for i in LOOP:\n    later = i + B - 1\n    if i > 2:\n        if TEST:\n            continue\n        S\n    L",
}


def described(folder: Path, language: Language, body: str) -> KernelTiling:
    written = (
        body.replace("cdiv", f"{language.prefix}.cdiv")
        .replace("L\n", f"{language.load}\n")
        .replace("S\n", f"{language.store}\n")
    )
    indent = language.kernel.partition("BODY")[0].rpartition("\n")[2]
    (folder / "kernels.py").write_text(language.kernel.replace("BODY", textwrap.indent(written, indent).lstrip()))
    own = Repository(name="own", root=folder, packages=())
    inventory = scan(own, MemoryStore(), **QUIET)
    (kernel,) = describe(own, inventory, select(inventory, "k"), **QUIET)
    return kernel


def cost(folder: Path, language: Language, body: str) -> Cost:
    found = described(folder, language, body).cost
    assert found is not None
    return found


def run(body: str, n: int, block: int) -> dict[str, int]:
    """The loop as Python runs it: how often it loads and stores."""
    counted = {"L": 0, "S": 0}
    names = {"n": n, "B": block, "cdiv": lambda a, b: -(-a // b), "counted": counted}
    exec(body.replace("L\n", "counted['L'] += 1\n").replace("S\n", "counted['S'] += 1\n"), names)
    return counted


def check(found: Cost, body: str, *, told: bool) -> None:
    if not told and found.not_counted:
        assert any("of whose turns the number is not told" in said for said in found.not_counted)
        return
    assert found.not_counted == ()
    assert found.conditions == ()
    for n in SIZES:
        meant = run(body, n, 4)
        at = {"n": n, "B": 4, "X.element_size()": 1, "Y.element_size()": 1}
        assert evaluate(found.read_bytes, at) == 4 * meant["L"], (n, found.read_bytes)
        assert evaluate(found.write_bytes, at) == 4 * (meant["S"] + 1), (n, found.write_bytes)


def is_told(form: str, loop: str, test: str) -> bool:
    """Where bounds and tests are constants, or a comparison or remainder by constants stands alone."""
    runs, asks = "n" in loop[5:], bool({"n", "B", "later"} & set(re.findall(r"\w+", test)))
    if not runs and not asks:
        return True
    if form not in {"sides", "continue", "inner"} or " or " in test or "//" in test:
        return False
    return "%" not in test or ("later" not in test and loop not in {"range(n - 1, -1, -1)", "range(0, n, B)"})


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("loop", LOOPS)
def test_each_side_is_counted_in_the_turns_that_take_it(tmp_path: Path, loop: str, test: str) -> None:
    for form, body in BODIES.items():
        written = f"{body}\n".replace("LOOP", loop).replace("TEST", test)
        check(cost(tmp_path, LANGUAGES["triton"], written), written, told=is_told(form, loop, test))


@pytest.mark.parametrize("test", ["i < 3", "i == 0", "i > 0", "later < cdiv(n, B)", "i % 2 == 0", "i != n - 1"])
@pytest.mark.parametrize("loop", ["range(10)", "range(n)", "range(cdiv(n, B))"])
@pytest.mark.parametrize("language", ["gluon", "cutile"])
def test_other_languages_of_tiles_count_turns_alike(tmp_path: Path, language: str, loop: str, test: str) -> None:
    body = f"{BODIES['sides']}\n".replace("LOOP", loop).replace("TEST", test)
    check(cost(tmp_path, LANGUAGES[language], body), body, told=True)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(
    "loop", ["range(10)", "T.serial(20)", "T.serial(n)", "T.serial(1, n + 1)", "T.Pipelined(T.ceildiv(n, B), num_stages=2)", "T.Pipelined(3)"]
)  # fmt: skip
def test_blocks_of_tilelang_count_turns_alike(tmp_path: Path, loop: str, test: str) -> None:
    plain = re.sub(
        r"T.ceildiv", "cdiv", re.sub(r"T.(serial|Pipelined)\(|, num_stages=2", lambda m: "range(" if m[1] else "", loop)
    )
    for form, body in BODIES.items():
        text = f"{body}\n".replace("TEST", test)
        written = text.replace("LOOP", loop).replace("in range(n)", "in T.serial(n)")
        check(cost(tmp_path, BLOCKS, written), text.replace("LOOP", plain), told=is_told(form, plain, test))


@pytest.mark.parametrize("test", ["i < 3", "i == 0", "i > 0", "i % 2 == 0", "i + 2 < n"])
@pytest.mark.parametrize("step", [1, 3])
def test_a_while_that_is_counted_has_turns_too(tmp_path: Path, step: int, test: str) -> None:
    body = f"i = 0\nwhile i < n:\n    if {test}:\n        L\n    else:\n        S\n    i += {step}\n"
    check(cost(tmp_path, LANGUAGES["triton"], body), body, told=True)


@pytest.mark.parametrize("leaves", ["break", "return"])
@pytest.mark.parametrize("test", ["i >= 3", "i == n - 2", "i * B > n"])
def test_a_loop_that_its_counter_ends_early_is_not_counted(tmp_path: Path, test: str, leaves: str) -> None:
    body = f"for i in range(n):\n    L\n    if {test}:\n        {leaves}\n    S\n"
    found = cost(tmp_path, LANGUAGES["cutile"], body)
    assert found.read_bytes == "", "nothing but the loop reads"
    assert any(f"`{test}`" in said for said in found.not_counted)


@pytest.mark.parametrize(
    ("test", "alike"),
    [
        ("pid == 0", False), ("pid != 0", False), ("pid % 2 == 0", False), ("row == 0", False), ("pid > 0", False), ("pid >= 1", False),
        ("pid * B < n", True), ("n > pid * B", True), ("n > 0", True), ("tl.num_programs(0) == 1", True),
        ("pid < 3", False), ("pid % n < 2", False), ("pid > n", False), ("pid <= tl.program_id(1)", False), ("tl.program_id(1) - pid < 1", False),
        ("tl.program_id(1) * B > (pid + 1) * n", False), ("pid < tl.num_programs(0) - 1", False), ("row < n", True), ("n - pid * B > 0", True),
        ("pid * B + tl.program_id(1) < n", True),
    ],
)  # fmt: skip
def test_a_launch_has_a_cost_where_all_its_programs_may_take_one_side(tmp_path: Path, test: str, alike: bool) -> None:
    body = f"pid = tl.program_id(0)\nrow = pid // 4\nif {test}:\n    L\n"
    assert (launched(tmp_path, body).launch_read_bytes != "") is alike
    both = launched(tmp_path, f"{body}else:\n    S\n")
    assert (both.launch_read_bytes != "") is (alike and re.search("pid|row", test) is None)
    assert both.read_bytes != ""
    neither = launched(tmp_path, body.replace("L\n", "row = 3\n"))
    assert neither.launch_write_bytes != ""


@pytest.mark.parametrize(("test", "alike"), [("pid * B >= n", True), ("pid == 0", False), ("pid % 2 == 1", False)])
def test_programs_that_end_early_are_those_at_the_edge(tmp_path: Path, test: str, alike: bool) -> None:
    found = launched(tmp_path, f"pid = tl.program_id(0)\nif {test}:\n    return\nL\n")
    assert (found.launch_read_bytes != "") is alike


def launched(folder: Path, body: str) -> Cost:
    """The cost of the kernel with a launch of 7 programs."""
    plain = LANGUAGES["triton"]
    launch = "\n\ndef run(x, y, n):\n    k[(7,)](x, y, n, B=64)\n"
    return cost(folder, plain._replace(kernel=plain.kernel + launch), body)


@pytest.mark.parametrize(("body", "when"), [
    ("for i in range(n):\n    if i < 3:\n        continue\n    L\n", "i >= 3"),
    ("for i in range(n):\n    if i < 3:\n        L\n", "i < 3"),
    ("for i in range(n):\n    if i < 3:\n        S\n    else:\n        L\n", "i >= 3"),
    ("for i in range(n):\n    if i < 3:\n        S\n    else:\n        S\n    L\n", ""),
])  # fmt: skip
def test_an_access_is_listed_with_the_turns_that_it_is_in(tmp_path: Path, body: str, when: str) -> None:
    (load,) = described(tmp_path, LANGUAGES["triton"], body).loads
    assert (load.counted, load.when) == (True, when)


NAMED = (
    "named = TEST\n    if named:\n        L\n    else:\n        S",
    "named = TEST\n    if not named:\n        continue\n    L\n    S",
    "named = TEST\n    again = named\n    if again and i > 1:\n        L",
    "named = not (TEST)\n    x = 1 if named else 2\n    if not named:\n        L",
)


@pytest.mark.parametrize(
    "test", ["i + 1 < n", "i == 0", "i % 3 == 0", "1 <= i < 4", "i > 0 and i < n - 1", "not i < 3"]
)
@pytest.mark.parametrize("language", ["triton", "gluon", "cutile"])
def test_a_name_of_a_test_is_that_test(tmp_path: Path, language: str, test: str) -> None:
    for form in NAMED:
        body = f"for i in range(10):\n    {form}\n".replace("TEST", test)
        check(cost(tmp_path, LANGUAGES[language], body), body, told="n" not in test.replace("not", ""))
    body = f"for i in range(n):\n    {NAMED[0]}\n".replace("TEST", test)
    check(cost(tmp_path, LANGUAGES[language], body), body, told=True)


CARRIED = (
    "b = 0\nfor i in range(n):\n    if b == 0:\n        L\n    b = 1 - b\n",
    "first = True\nfor i in range(n):\n    if first:\n        L\n        first = False\n    else:\n        L\n        L\n",
    "c = 0\nfor i in range(n):\n    c = c + 3\n    if c < n:\n        L\n",
    "c = 0\nfor i in range(n):\n    c += 3\n    more = c < n and n > 1\n    if more:\n        L\n",
    "c = 0\nfor i in range(n):\n    for j in range(2):\n        c += 1\n    if c > 4:\n        continue\n    L\n",
    "i = 0\nwhile i * 2 < n:\n    if i == 1:\n        L\n    i += 1\n",
    "m = 0\nfor i in range(n):\n    if i == 0:\n        m = 1\n    else:\n        m = 2\n    if m == 1:\n        L\n",
)


@pytest.mark.parametrize("body", CARRIED)
@pytest.mark.parametrize("language", ["triton", "gluon", "cutile", "tilelang"])
def test_what_a_loop_carries_on_decides_nothing_that_is_told(tmp_path: Path, language: str, body: str) -> None:
    found = cost(tmp_path, {**LANGUAGES, "tilelang": BLOCKS}[language], body.replace("range(n)", "T.serial(n)") if language == "tilelang" else body)  # fmt: skip
    assert (found.read_bytes, found.conditions) == ("", ())
    assert any("of whose turns the number is not told" in said for said in found.not_counted)


def test_behind_its_loop_a_value_is_one(tmp_path: Path) -> None:
    found = cost(tmp_path, LANGUAGES["triton"], "c = 0\nfor i in range(n):\n    c = c + 3\nif c < n:\n    L\n")
    assert found.not_counted == ()
    assert [said.partition(" (line")[0] for said in found.conditions] == ["c < n"]


def test_data_that_each_turn_loads_is_a_condition(tmp_path: Path) -> None:
    body = "c = 0\nfor i in range(n):\n    c = tl.load(Y + i)\n    if c != 0:\n        L\n"
    found = cost(tmp_path, LANGUAGES["triton"], body)
    assert found.not_counted == ()
    assert [said.partition(" (line")[0] for said in found.conditions] == ["c != 0"]


@pytest.mark.parametrize("test", ["tl.program_id(1) > pid", "tl.program_id(1) * B > (pid + 1) * B", "pid % n >= 2"])
def test_programs_that_end_early_by_how_their_ids_lie_have_no_launch_cost(tmp_path: Path, test: str) -> None:
    found = launched(tmp_path, f"pid = tl.program_id(0)\nif {test}:\n    return\nL\n")
    assert (found.launch_read_bytes, found.read_bytes != "") == ("", True)


def test_launches_on_one_line_have_each_their_own_grid(tmp_path: Path) -> None:
    plain = LANGUAGES["triton"]
    launches = "\n\n@triton.jit\ndef other(X):\n    tl.store(X, 1.0)\n\n\ndef run(x, y, n, m):\n    other[(n, m)](x); k[(m,)](x, y, n, B=64)\n"
    (grid,) = described(tmp_path, plain._replace(kernel=plain.kernel + launches), "L\n").grid
    assert grid.dimensions == ("{m}",)


@pytest.mark.parametrize("language", ["triton", "gluon", "cutile"])
def test_formulas_spell_the_smaller_of_two_as_python_does(tmp_path: Path, language: str) -> None:
    tiles = LANGUAGES[language]
    for word, meant in (("minimum", min), ("maximum", max)):
        found = cost(tmp_path, tiles, f"for i in range({tiles.prefix}.{word}(n, 3)):\n    L\n").read_bytes
        assert "imum" not in found
        for n in SIZES:
            assert evaluate(found, {"n": n, "B": 4, "X.element_size()": 1}) == 4 * meant(n, 3)


@pytest.mark.parametrize("language", ["triton", "gluon", "cutile", "tilelang"])
def test_what_stands_behind_a_loop_that_returns_is_in_no_cost(tmp_path: Path, language: str) -> None:
    body = "for i in range(n):\n    if i == 3:\n        return\n    L\nS\n"
    found = described(tmp_path, {**LANGUAGES, "tilelang": BLOCKS}[language], body.replace("range(n)", "T.serial(n)") if language == "tilelang" else body)  # fmt: skip
    assert found.cost is not None
    assert (found.cost.write_bytes, found.cost.read_bytes) == ("", "")
    assert any("`i == 3`" in said for said in found.cost.not_counted)
    ends = f"the loop around line {_line(tmp_path, 'if i == 3')} ends"
    assert {(store.counted, store.when) for store in found.stores} == {(False, ends)}


def test_a_function_that_returns_in_its_loop_leaves_its_caller_as_it_was(tmp_path: Path) -> None:
    plain = LANGUAGES["triton"]
    helper = "@triton.jit\ndef helper(Y, n):\n    for i in range(n):\n        if i == 3:\n            return\n    tl.store(Y, 1.0)\n\n"
    kernel = plain.kernel.replace("@triton.jit", f"{helper}@triton.jit")
    found = cost(tmp_path, plain._replace(kernel=kernel), "helper(Y, n)\nL\n")
    assert (found.read_bytes, found.write_bytes) == ("{X.element_size()} * B", "{X.element_size()} * B")
    assert any("`i == 3`" in said for said in found.not_counted)


def _line(folder: Path, text: str) -> int:
    return next(n for n, line in enumerate((folder / "kernels.py").read_text().splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    "bound", ["n - 5", "0, n - 5", "0, n - 5, 2", "cdiv(n - 5, B)", "(n - 5) // 2", "5, n", "2 * (n - 5) + 1"]
)
@pytest.mark.parametrize("language", ["triton", "gluon", "cutile", "tilelang"])
def test_no_loop_runs_less_than_no_times(tmp_path: Path, language: str, bound: str) -> None:
    body = f"for i in range({bound}):\n    if i >= 1:\n        L\n    S\n"
    blocks = body.replace("range(", "T.serial(").replace("cdiv", "ceildiv").replace("ceildiv", "T.ceildiv")
    found = cost(tmp_path, BLOCKS, blocks) if language == "tilelang" else cost(tmp_path, LANGUAGES[language], body)
    check(found, body, told=True)


@pytest.mark.parametrize("test", ["i * n > 4", "4 < n * i", "i * (n - 3) >= 2", "n * i * B < 9"])
@pytest.mark.parametrize("language", ["triton", "gluon", "cutile"])
def test_a_counter_times_what_may_be_none_or_less_is_not_told(tmp_path: Path, language: str, test: str) -> None:
    found = cost(tmp_path, LANGUAGES[language], f"for i in range(B):\n    if {test}:\n        L\n")
    assert found.read_bytes == ""
    assert any("of whose turns the number is not told" in said for said in found.not_counted)


CHANGED = (
    "for r in range(3):\n    for i in range(n):\n        L\n    n = n // 2\n",
    "while n > 4:\n    L\n    n -= 4\nfor j in range(n):\n    S\n",
    "while n > 4:\n    if n > 6:\n        L\n    n -= 4\nfor j in range(n):\n    S\n",
    "m = n\nwhile n > 4:\n    if m - n > 6:\n        L\n    n -= 4\n",
    "for i in range(n):\n    n += 1\nfor j in range(n):\n    L\n",
    "for i in range(4):\n    n = B\nfor j in range(n):\n    L\n",
    "for i in range(3):\n    if i > 1:\n        n = 2\n    else:\n        n = 3\n    for j in range(n):\n        L\n",
    "t = (n, 1)\nfor i in range(3):\n    t = (t[0] // 2, 1)\nfor j in range(t[0]):\n    L\n",
    "i = 0\nwhile i + 4 <= n:\n    L\n    i += 4\nwhile i < n:\n    S\n    i += 1\n",
    "c = 0\nfor i in range(n):\n    c += 1\nfor j in range(c):\n    L\n",
    "c = 5\nfor i in range(n):\n    c -= 2\nfor j in range(c + 9):\n    L\n",
    "c = 0\nfor i in range(n):\n    c += 1\n    for j in range(c):\n        L\n",
    "c = 0\nfor i in range(n):\n    if i > 1:\n        c += 1\nfor j in range(n):\n    if j < c:\n        L\n",
    "c = 0\nfor i in range(n):\n    if i == 1:\n        continue\n    c += 1\nfor j in range(c):\n    L\n",
    "c = 0\nfor i in range(n):\n    for j in range(2):\n        c += i\nfor j in range(c):\n    L\n",
    "c = 0\nfor i in range(3):\n    for j in range(n):\n        c += 2\nfor j in range(c):\n    L\n",
    "c = 0\nwhile c * c < n:\n    c += 1\nfor j in range(c):\n    L\n",
    "for i in range(3, n + 4):\n    L\nfor j in range(i):\n    S\n",
)


@pytest.mark.parametrize("body", CHANGED)
@pytest.mark.parametrize("language", ["triton", "gluon", "cutile", "tilelang"])
def test_what_a_loop_changes_has_behind_it_the_value_that_it_has_or_none(
    tmp_path: Path, language: str, body: str
) -> None:
    blocks = body.replace("in range", "in T.serial")
    found = cost(tmp_path, BLOCKS, blocks) if language == "tilelang" else cost(tmp_path, LANGUAGES[language], body)
    assert not {"c", "i", "m", "t"} & set(names_of(f"({found.read_bytes or 0}) + ({found.write_bytes or 0})"))
    if not any("iterations of the loop" in name for name in found.variables):
        check(found, body, told=False)


@pytest.mark.parametrize(
    "body",
    [body for body in CHANGED if "+= 4" in body or "-=" in body or body.startswith("for i in range(n):\n    n += 1")],
)
@pytest.mark.parametrize("language", ["triton", "gluon", "cutile"])
def test_what_each_turn_adds_the_same_to_is_told_behind_the_loop(tmp_path: Path, language: str, body: str) -> None:
    check(cost(tmp_path, LANGUAGES[language], body), body, told=True)


@pytest.mark.parametrize("bound", ["n", "n - 3", "n - m", "2 * n - 9", "n // 2 - 3"])
@pytest.mark.parametrize("form", ["for i in range(pid, BOUND, tl.num_programs(0)):\n    for j in range(m):\n        L\n    S\n", "i = pid\nwhile i < BOUND:\n    L\n    i += tl.num_programs(0)\n"])  # fmt: skip
def test_programs_that_share_a_loop_run_it_no_less_than_no_times(tmp_path: Path, form: str, bound: str) -> None:
    body = f"m = tl.cdiv(n, 3)\npid = tl.program_id(0)\n{form}".replace("BOUND", bound)
    found = launched(tmp_path, body)
    for n in (0, *SIZES):
        runs = [run(body.replace("tl.program_id(0)", str(p)).replace("tl.num_programs(0)", "7").replace("tl.", ""), n, 64) for p in range(7)]  # fmt: skip
        at = {"n": n, "X.element_size()": 1, "Y.element_size()": 1, "num_programs(0)": 7, "B": 64}
        assert evaluate(found.launch_read_bytes, at) == 64 * sum(each["L"] for each in runs), (
            n,
            found.launch_read_bytes,
        )
        assert evaluate(found.launch_write_bytes, at) == 64 * (7 + sum(each["S"] for each in runs))


class Cut(int):
    """A number of a program: its quotients are cut towards none, its remainders have the sign of what is divided."""

    def __add__(self, other: int) -> Cut:
        return Cut(int(self) + int(other))

    def __sub__(self, other: int) -> Cut:
        return Cut(int(self) - int(other))

    def __mul__(self, other: int) -> Cut:
        return Cut(int(self) * int(other))

    def __rmul__(self, other: int) -> Cut:
        return self * other

    def __floordiv__(self, other: int) -> Cut:
        whole = abs(int(self)) // int(other)
        return Cut(whole if self >= 0 else -whole)

    def __mod__(self, other: int) -> Cut:
        return self - self // other * other


@pytest.mark.parametrize("loop", [
    "for i in range((n - 5) // 2 + 3)", "for i in range((n - 1) // 8 + 1)", "for i in range((n - 5) // 2)", "for i in range(-4, (n - 7) % 4)",
    "for i in range(-3, (n - 9) // 4)", "for i in range((n - 9) // 4, -1, -1)", "for i in range(min((n - 9) // 2, 3) + 4)",
    "for i in range(cdiv(n - 9, B) + 3)", "for i in range((n - 9) // B // 2 + 5)", "for i in range((2 * n - 9) % B + 3)",
    "i = 0\nwhile i <= (n - 1) // 8", "for i in range(n + 1):\n    if i == (n - 1) // 8",
])  # fmt: skip
@pytest.mark.parametrize("language", ["triton", "gluon", "cutile"])
def test_quotients_of_what_is_less_than_none_are_as_the_language_rounds_them(
    tmp_path: Path, language: str, loop: str
) -> None:
    body = f"{loop}:\n{' ' * (8 if 'if i' in loop else 4)}L\n{'    i += 1' if 'while' in loop else ''}\n"
    found = cost(tmp_path, LANGUAGES[language], body)
    assert found.not_counted == ()
    for n in (0, *SIZES):
        met: list[int] = []
        number = n if language == "cutile" else Cut(n)
        names = {
            "n": number,
            "B": 4,
            "met": met,
            "cdiv": (lambda a, b: -(-a // b)) if language == "cutile" else lambda a, b: (a + (b - 1)) // b,
        }
        exec(body.replace("L\n", "met.append(0)\n"), names)
        assert evaluate(found.read_bytes, {"n": n, "B": 4, "X.element_size()": 1}) == 4 * len(met), (
            n,
            found.read_bytes,
        )


@pytest.mark.parametrize("language", ["triton", "gluon", "cutile"])
def test_in_turns_that_are_not_told_both_sides_of_a_test_are_lacking(tmp_path: Path, language: str) -> None:
    body = "for i in range(n):\n    if i // 2 < 5:\n        if B > 8:\n            L\n        else:\n            S\n"
    found = cost(tmp_path, LANGUAGES[language], body)
    lacking = {name for name in ("read_bytes", "write_bytes") if name in found.at_least or not getattr(found, name)}
    assert (lacking, len(found.not_counted)) == ({"read_bytes", "write_bytes"}, 1)
