"""The work of a static question grows about as its source does, whatever the source is made to do.

Each case writes sources of sizes that double and counts the calls that answering takes (support/growth.py). A power of 1 is linear;
where an answer itself is longer than its source (the order of each ancestor names all of its own), the case says which power is due.
"""

from __future__ import annotations

import contextlib
import gc
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import report_toy as toy
from cannot import CANNOT
from growth import at_most, calls, growth
from opscope_cache.store import MemoryStore
from opscope_cache.trees import Tree
from opscope_cache.watch import open_watch
from opscope_schemas.errors import CancelledError, OpscopeError
from opscope_schemas.formula import Formula, evaluate, same_form
from opscope_tools.catalog import tool_named
from opscope_tools.report.checks import Material, check
from opscope_tools.report.markdown import Page
from opscope_tools.report.sources import SourceReader
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository
from opscope_tools.source.python.repository import Unit

Files = Mapping[str, str]
#: what hashing, sorting and the like may add to linear growth
LINEAR = 1.35
NN = "import torch.nn as nn\n"
MODEL = (
    NN + "class A(nn.Module):\n    def __init__(self):\n        self.l = nn.Linear(1, 1)\n    def forward(self, x):\n"
)


def lines(pattern: str, size: int, start: int = 0) -> str:
    """`pattern` for each number: `{i}` is the number, `{b}` the one before it, `{n}` the one behind it."""
    return "".join(
        pattern.replace("{i}", str(i)).replace("{b}", str(i - 1)).replace("{n}", str(i + 1)) for i in range(start, size)
    )


def imports(size: int) -> Files:
    """Packages in storeys: each takes everything from two modules, which take everything from the next one."""
    found = {f"p/a{size}.py": "", "p/q.py": "from p.a0 import *\nclass Q(Z): pass\n"}
    for i in range(size):
        found[f"p/a{i}.py"] = f"from p.b{i} import *\nfrom p.c{i} import *\n"
        found[f"p/b{i}.py"] = found[f"p/c{i}.py"] = f"from p.a{i + 1} import *\n"
    return found


def listed(size: int) -> Files:
    """The same, each with an `__all__` put together from those that it takes from."""
    found = {f"p/a{size}.py": "class Z: pass\n__all__ = ['Z']\n", "p/q.py": "from p.a0 import *\nclass Q(Z): pass\n"}
    for i in range(size):
        takes = f"from p import b{i}, c{i}\nfrom p.b{i} import *\nfrom p.c{i} import *\n"
        found[f"p/a{i}.py"] = f"{takes}__all__ = b{i}.__all__ + c{i}.__all__\n"
        handed = f"from p import a{i + 1}\nfrom p.a{i + 1} import *\n__all__ = a{i + 1}.__all__ + []\n"
        found[f"p/b{i}.py"] = found[f"p/c{i}.py"] = handed
    return found


@dataclass(frozen=True)
class Case:
    """Sources of a size, the question about them, sizes to try, and the power by which the work may grow."""

    name: str
    tool: str
    files: Callable[[int], Files | str]
    asked: Callable[[int], Mapping[str, Any]]
    sizes: tuple[int, ...] = (25, 50, 100)
    power: float = LINEAR
    more: Mapping[str, Any] = field(default_factory=dict)


def named(name: str) -> Callable[[int], Mapping[str, Any]]:
    return lambda size: {"name": name.replace("{n}", str(size))}


def target(name: str) -> Callable[[int], Mapping[str, Any]]:
    return lambda size: {"target": name.replace("{n}", str(size - 1))}


CHAIN = "class C0: pass\n"
DIAMOND = "class L{i}(D{b}): pass\nclass R{i}(D{b}): pass\nclass D{i}(L{i}, R{i}): pass\n"
CASES = [
    Case("the top of a chain", "resolve_class", lambda n: CHAIN + lines("class C{i}(C{b}): pass\n", n, 1), named("C0")),
    Case("the end of a chain", "resolve_class", lambda n: CHAIN + lines("class C{i}(C{b}): pass\n", n + 1, 1), named("C{n}"),
         power=2.2),
    Case("the top of diamonds", "resolve_class", lambda n: "class D0: pass\n" + lines(DIAMOND, n, 1), named("D0")),
    Case("the end of diamonds", "resolve_class", lambda n: "class D0: pass\n" + lines(DIAMOND, n + 1, 1), named("D{n}"),
         (10, 20, 40), 2.2),
    Case("many subclasses", "resolve_class", lambda n: "class A: pass\n" + lines("class B{i}(A): pass\n", n), named("A")),
    Case("many bases", "resolve_class",
         lambda n: lines("class B{i}: pass\n", n) + f"class A({', '.join(f'B{i}' for i in range(n))}): pass\n", named("A")),
    Case("stars of stars", "resolve_class", imports, named("Q"), (10, 20, 40)),
    Case("lists of lists", "resolve_class", listed, named("Q"), (10, 20, 40)),
    Case("stars in a circle", "resolve_class",
         lambda n: {f"p/m{i}.py": "".join(f"from p.m{j} import *\n" for j in range(n) if j != i) + f"class X{i}(No): pass\n" for i in range(n)},
         named("X0"), (8, 16, 32), 2.2),
    Case("aliases", "resolve_class", lambda n: "class A0: pass\n" + lines("A{i} = A{b}\nclass B{i}(A{i}): pass\n", n, 1), named("A0")),
    Case("aliases under conditions", "resolve_class",
         lambda n: lines("if X:\n    A{i} = A{b}\nelse:\n    A{i} = A{b}\n", n, 1) + f"class Q(A{n - 1}): pass\n", named("Q")),
    Case("classes that metaclasses make", "resolve_class",
         lambda n: "class A0(type): pass\n" + lines("A{i} = A{b}('A{i}', (A{b},), {})\n", n, 1) + f"class Q(A{n - 1}): pass\n",
         named("Q"), (10, 20, 40), 2.2),
    Case("branches", "resolve_class", lambda n: "if X:\n    class A: pass\n" + lines("elif X == {i}:\n    class A{i}: pass\n", n), named("A")),
    Case("constructors that build each other", "resolve_class",
         lambda n: NN + lines("class A{i}(nn.Module):\n    def __init__(self):\n        self.x = A{n}()\n        self.y = A{n}()\n", n),
         named("A0")),
    Case("functions that build twice", "resolve_class",
         lambda n: NN + "def f0(c): return nn.Linear(c, c)\n" + lines("def f{i}(c): return nn.Sequential(f{b}(c), f{b}(c))\n", n, 1)
         + f"class A(nn.Module):\n    def __init__(self, c):\n        self.x = f{n - 1}(c)\n", named("A"), (20, 40, 80)),
    Case("a long forward", "find_forward", lambda n: MODEL + "        x = self.l(x) + 1\n" * n, target("A")),
    Case("values of two values", "find_forward",
         lambda n: MODEL + "        f0 = self.l\n" + lines("        f{i} = f{b} if x else f{b}\n", n, 1) + f"        return f{n - 1}(x)\n",
         target("A")),
    Case("methods of methods", "find_forward", lambda n: MODEL + "        return x" + ".y()" * n + "\n", target("A"), (10, 20, 40), 2.3),
    Case("pairs of pairs", "find_forward",
         lambda n: MODEL + "        y0 = (self.l, self.l)\n" + lines("        y{i} = (y{b}, y{b})\n", n, 1) + f"        return y{n - 1}[0](x)\n",
         target("A")),
    Case("many branches", "find_forward",
         lambda n: MODEL + "        if x:\n            y = self.l(x)\n" + lines("        elif x == {i}:\n            y = self.l(x)\n", n), target("A")),
    Case("many submodules", "find_forward",
         lambda n: NN + "class A(nn.Module):\n    def __init__(self):\n" + lines("        self.m{i} = nn.Linear({i}, 1)\n", n)
         + "    def forward(self, x):\n" + lines("        x = self.m{i}(x)\n", n), target("A")),
    Case("many references", "find_references", lambda n: "class A: pass\ndef f():\n" + "    A()\n" * n, target("p.a.A")),
    Case("many words", "search_source", lambda n: "def run(x):\n    cache = run(run(x))\n" * n, lambda _: {"query": "calls:run cache"}, (400, 800, 1600)),
    Case("one long line of calls", "search_source", lambda n: "x = " + "run(1) + " * n + "1\n", lambda _: {"query": "calls:run"}, (400, 800, 1600)),
    Case("branches on fields", "find_forward", lambda n: "class AConfig: pass\nclass A:\n    def __init__(self, config: AConfig):\n"
         + "".join(f"        self.f{i} = config.f{i} if self.f{i - 1} else self.f{i - 2}\n" for i in range(2, n)) + "    def forward(self, x):\n"
         + "".join(f"        if self.f{i}: x = x + {i}\n" for i in range(2, n)), target("p.a.A"), (20, 40, 80), 2.4),
    Case("calls inside calls", "find_references", lambda n: "class A: pass\nx = " + "A(" * n + ")" * n + "\n", target("p.a.A"), (25, 50, 100), 2.2),
    Case("functions of a map", "map_repo",
         lambda n: "class Engine:\n    def generate(self):\n        while self.has():\n            self.step0()\n"
         + lines("    def step{i}(self):\n        self.a{i}()\n        self.b{i}()\n    def a{i}(self):\n        self.step{n}()\n"
                 "    def b{i}(self):\n        self.step{n}()\n", n), lambda _: {}),
    Case("fields", "extract_config",
         lambda n: "from dataclasses import dataclass\n@dataclass\nclass MyConfig:\n" + lines("    x{i}: int = {i}\n", n), target("MyConfig")),
    Case("defaults that call each other", "extract_config",
         lambda n: lines("def f{i}():\n    return f{n}() + f{n}()\n", n) + "class MyConfig:\n    def __init__(self, x=1):\n        self.x = f0()\n",
         target("MyConfig"), (20, 40, 80)),
    Case("lists of themselves", "extract_config",
         lambda n: "class MyConfig:\n    def __init__(self, a=2):\n        x0 = [a, a]\n" + lines("        x{i} = x{b} + x{b}\n", n, 1)
         + f"        self.x = x{n - 1}\n", target("MyConfig"), (20, 40, 80)),
    Case("configurations of configurations", "extract_config",
         lambda n: "class C0Config:\n    def __init__(self, **k):\n        self.x0 = 1\n"
         + lines("class C{i}Config(C{b}Config):\n    def __init__(self, x{i}=1, **k):\n        super().__init__(**k)\n        self.x{i} = x{i}\n", n, 1),
         target("C{n}Config"), (15, 30, 60), 2.2),
    Case("structures of structures", "cuda_kernel_tiling",
         lambda n: {"k.cu": "struct S0 { float v; };\n" + lines("struct S{i} { S{b} a; S{b} b; };\n", n, 1)
                    + f"__global__ void h(S{n - 1}* x) {{ x->a.a = x->b.b; }}\n"}, lambda _: {"target": "mine"}, (10, 20, 40)),
    Case("macros of macros", "cuda_kernel_tiling",
         lambda n: {"k.cu": "#define A0 1\n" + lines("#define A{i} A{b} + A{b}\n", n, 1) + f"__global__ void h(float* x) {{ x[0] = A{n - 1}; }}\n"},
         lambda _: {"target": "mine"}, (20, 40, 80)),
    Case("statements of a kernel", "cuda_kernel_tiling",
         lambda n: {"k.cu": "__global__ void h(float* x) {\n" + lines("x[{i}] = x[{n}] * 2.f;\n", n) + "}\n"}, lambda _: {"target": "mine"},
         (25, 50, 100)),
    Case("assignments of a Triton kernel", "cuda_kernel_tiling",
         lambda n: "import triton\nimport triton.language as tl\n@triton.jit\ndef p(x, n):\n    v0 = tl.load(x)\n"
         + lines("    v{i} = v{b} + v{b}\n", n, 1) + f"    tl.store(x, v{n - 1})\n", lambda _: {"target": "mine"}, (25, 50, 100)),
    Case("configurations of a Triton kernel", "cuda_kernel_tiling",
         lambda n: "import triton\nimport triton.language as tl\n@triton.autotune(configs=[triton.Config({'B': a * b * c}) "
         + f"for a in range({n}) for b in range({n}) for c in range({n})], key=['n'])\n@triton.jit\ndef p(x, n, B: tl.constexpr):\n    tl.store(x, B)\n",
         lambda _: {"target": "mine"}, (40, 80, 160)),
]  # fmt: skip


def workspace(folder: Path, files: Files | str) -> Workspace:
    held = {"p/a.py": files} if isinstance(files, str) else files
    for name, text in {"p/__init__.py": "", **held}.items():
        path = folder / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Workspace({"mine": folder_repository("mine", folder / "mine")}, folder, MemoryStore())


def held(kind: type) -> int:
    """Objects of a type that are alive."""
    gc.collect()
    return sum(
        issubclass(type(thing), kind) for thing in gc.get_objects()
    )  # asks no object: some warn when they are asked


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_question_about_more_source_takes_about_as_much_more_work(case: Case, tmp_path: Path) -> None:
    def make(size: int, folder: Path) -> Callable[[], object]:
        context = ToolContext(workspace(folder / str(size), case.files(size)))
        given = {"repo": "mine", **case.asked(size)}
        return lambda: run_tool(tool_named(case.tool), given, context)

    power = growth(partial(make, folder=tmp_path / "first"), case.sizes)
    if power >= case.power:  # a watch may have been refused, without which each lookup walks its tree
        if open_watch(tmp_path, [str(tmp_path)]) is None:
            # a user has 128, of all processes: what others hold is no defect of the checkout
            pytest.skip(f"{CANNOT}other processes hold all watches that a user has")
        power = growth(partial(make, folder=tmp_path / "again"), case.sizes)
    assert power < case.power


def test_what_was_asked_is_let_go_with_its_workspace(tmp_path: Path) -> None:
    """The sources of a workspace are watched, and a user has 128 watches."""
    before = held(Tree)
    for case in CASES:
        context = ToolContext(workspace(tmp_path / case.name, case.files(5)))
        with contextlib.suppress(OpscopeError):
            run_tool(tool_named(case.tool), {"repo": "mine", **case.asked(5)}, context)
    assert len(context.workspace.repositories) == 1
    del context
    assert held(Tree) == before


def test_states_of_a_file_that_are_over_are_let_go(tmp_path: Path) -> None:
    """Of a module whose guards were evaluated and whose functions were parsed, each time that it is edited."""
    text = (
        NN
        + "import sys\nif sys.version_info >= (3, 0):\n"
        + textwrap.indent(MODEL + "        return self.l(x)\n", "    ")
    )
    context = ToolContext(workspace(tmp_path, text))
    counts = []
    for edit in range(6):
        (tmp_path / "mine/p/a.py").write_text(f"{text}# {edit}\n")
        for tool, asked in (("resolve_class", "name"), ("find_forward", "target")):
            run_tool(tool_named(tool), {"repo": "mine", asked: "p.a.A"}, context)
        counts.append(held(Unit))
    assert counts[-1] <= counts[1]


def test_garbage_that_others_left_is_not_counted() -> None:
    class Left:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            len("")

    def work() -> object:
        return [[] for _ in range(10_000)]  # enough new objects for the collector to come by

    alone = calls(work)
    for _ in range(500):
        Left()
    assert calls(work) == alone


@dataclass
class Ending(ToolContext):
    """A context whose caller goes away at a checkpoint."""

    left: int = 0
    passed: int = 0

    def checkpoint(self) -> None:
        self.passed += 1
        if self.passed > self.left:
            raise CancelledError("The call was cancelled.")


STATIC = [
    "the end of a chain",
    "many submodules",
    "many references",
    "functions of a map",
    "fields",
    "structures of structures",
]


@pytest.mark.parametrize("case", [case for case in CASES if case.name in STATIC], ids=lambda case: case.name)
def test_a_call_ends_at_whichever_checkpoint_its_caller_goes_away(case: Case, tmp_path: Path) -> None:
    size = case.sizes[0]
    held = workspace(tmp_path, case.files(size))
    given = {"repo": "mine", **case.asked(size)}
    for left in (0, 1, 2, 4):
        held.store = MemoryStore()  # a kept answer needs no checkpoint
        context = Ending(held, left=left)
        with pytest.raises(CancelledError):
            run_tool(tool_named(case.tool), given, context)
        assert context.passed == left + 1


# ---- reports and formulas --------------------------------------------------------------------------------------------

PIECES = [
    "<!--", "[", "(", "`", "|", "#", ">", "{{", "<a", "${{", "[a](", "![", '"', "a/", "a.", "1,", "`|", "a.py:1 ", "[Describe ", "/a", "~/a",
    "searched `", "x\n", "```\n", "# a\n", "> a\n", "| a | b |\n", "- a\n", "`a` a.py:1\n", "┌┐", "┌┐\n", "```python\nx=1\n```\n",
    "[a]: b\n", "[a](b.md)\n", "[a](#b)\n", "- [ ] a\n", "TODO ", "\n| a | b |\n|---|---|\n| 1 | 2 |\n", "<!-- fact:", "é", "\\",
]  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_checking_a_longer_report_takes_about_as_much_more_work(piece: str) -> None:
    def make(size: int) -> Callable[[], object]:
        text = piece * (size // len(piece))
        return lambda: check(Material(Page(text), SourceReader(()), exists=lambda _: False))

    assert growth(make, (1_000, 2_000, 4_000)) < LINEAR
    with at_most(5):  # a second where the work is linear, many minutes where it is not
        make(60_000)()


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000 + "1" + ")" * 100_000,
        "-" * 100_000 + "1",
        "**".join(["2"] * 300),
        "10**10**9",
        "((2**64)**64)**64",
        " * ".join(f"({{x{i}}} + {{y{i}}})" for i in range(40)),
        "({a} + {b} + {c} + {d} + 1)**64",
        "({a} + {b})**64 * ({c} + {d})**64 * ({e} + {f})**64",
        "(" * 90 + "{a}" + " // 2 + {b})" * 90,
        "min(" * 300 + "1" + ", 2)" * 300,
        "9" * 5_000,
    ],
    ids=lambda text: text[:20],
)
def test_a_formula_without_end_is_refused_in_a_sentence_or_read_at_once(text: str) -> None:
    with at_most(5):
        for ask in (
            Formula.parse,
            lambda t: str(Formula.parse(t)),
            lambda t: same_form(t, t),
            lambda t: evaluate(t, {"a": 2, "b": 3}),
        ):
            with contextlib.suppress(OpscopeError):
                ask(text)


def test_a_report_of_one_line_of_a_megabyte_is_checked(tmp_path: Path) -> None:
    context = ToolContext(toy.workspace(tmp_path))
    folder = context.workspace.output / "reports" / "implementations"
    folder.mkdir(parents=True)
    (folder / "long-analysis.md").write_text("<!-- [a](" * 110_000)
    with at_most(10):
        result: Any = run_tool(
            tool_named("check_report"), {"path": "reports/implementations/long-analysis.md"}, context
        )
    assert not result.ok
