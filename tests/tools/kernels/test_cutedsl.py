"""CuTe-DSL kernels: found, launched as their host functions say when they are run, and what lies where."""

from __future__ import annotations

import math
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cutedsl_oracle import launch
from kernel_sources import kernel_sources
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels.cutedsl.description import describe_cutedsl
from opscope_tools.kernels.host.modules import Modules
from opscope_tools.kernels.triton.definitions import find_in_python

CORPUS = Path(__file__).parents[2] / "corpus/cutedsl"
_SIZES = (8, 64, 72, 512, 1024, 1032, 4096, 4104, 8192, 8200, 16384, 20000, 32768, 40000)
_TYPES = {"Float16": 16, "Float32": 32}


def described(root: Path, file: str, name: str, **given: Any) -> KernelTiling:
    repository = Repository(name="own", root=root, version="1", packages=())
    found = find_in_python(file, (root / file).read_text("utf-8"))
    (reference,) = [kernel for kernel in found.kernels if kernel.name == name]
    return describe_cutedsl(reference, Modules(repository), given, lambda: None)


def own(name: str, **given: Any) -> KernelTiling:
    return described(CORPUS, "rows.py", name, **given)


class _Names(dict[str, Any]):
    """Names of a formula: sizes, and what definitions say that others are."""

    def __init__(self, definitions: tuple[str, ...], **known: Any) -> None:
        super().__init__(cdiv=lambda a, b: -(-a // b), min=min, max=max, int=int, math=math, **known)
        self.definitions = dict(text.split(" = ", 1) for text in definitions)

    def __missing__(self, name: str) -> Any:
        return value(self.definitions[re.sub("^(self|Far)_", r"\1.", name)], self)


def value(text: str, names: _Names) -> Any:
    """What a formula comes to, read as Python."""
    return eval(
        re.sub(r"\b(self|Far)\.", r"\1_", text.replace("{", "(").replace("}", ")")), {"__builtins__": {}}, names
    )


def at(kernel: KernelTiling, **known: Any) -> dict[str, Any]:
    """The launch at a point."""
    (grid,) = kernel.grid
    names = _Names(grid.definitions, **known)
    return {
        "grid": [value(axis, names) for axis in grid.dimensions],
        "block": [value(axis, names) for axis in grid.block],
        "cluster": value(grid.cluster, names) if grid.cluster else None,
        "smem": value(grid.shared_memory, names) if grid.shared_memory else None,
    }


def test_kernels_are_found_and_helpers_are_none() -> None:
    found = [k.name for k in find_in_python("rows.py", (CORPUS / "rows.py").read_text()).kernels]
    assert found == ["Rows.kernel", "scale", "alone"]
    base = find_in_python("base.py", (CORPUS / "base.py").read_text())
    assert (base.kernels, base.not_analysed) == ((), ())


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", _TYPES)
def test_formulas_of_a_launch_are_what_its_host_function_launches_with_at_every_size(dtype: str, wide: bool) -> None:
    """Thresholds in loops, classes below others, configurations made by class methods: one formula for all sizes."""
    kernel = own("Rows.kernel", **({"wide": True} if wide else {}))
    x = SimpleNamespace(shape=(1000, 6), element_type=None)
    for n in _SIZES:
        tensor = SimpleNamespace(shape=(1000, 6), element_type=None)
        expected = _launched(f"Rows(cutlass.{dtype}, {n}, wide={wide})", dtype, tensor)
        told = at(kernel, n=n, dtype=SimpleNamespace(width=_TYPES[dtype]), mX=x)
        assert told == {name: expected[name] for name in told}, n


@pytest.mark.parametrize("n", _SIZES)
def test_given_sizes_leave_numbers(n: int) -> None:
    kernel = own("Rows.kernel", n=n, dtype="cutlass.Float16", wide=False)
    expected = _launched(f"Rows(cutlass.Float16, {n})", "Float16", SimpleNamespace(shape=(1000, 6), element_type=None))
    (grid,) = kernel.grid
    assert grid.definitions == ()
    assert grid.block == tuple(map(str, expected["block"]))
    assert at(kernel, mX=SimpleNamespace(shape=(1000, 6)))["grid"] == expected["grid"]
    rows, columns = (int(size) for size in kernel.shared_memory[0].dimensions)
    assert kernel.shared_memory[0].bytes == 2 * rows * columns
    assert kernel.tile[0].values == (f"{rows} x {columns}",)
    assert rows * expected["grid"][0] >= 1000 > rows * (expected["grid"][0] - 1)
    assert columns * expected["grid"][1] >= n


def _launched(make: str, dtype: str, tensor: SimpleNamespace) -> dict[str, Any]:
    from cutedsl_oracle import Type

    tensor.element_type = Type(_TYPES[dtype])
    return launch(CORPUS, make, tensor, tensor, None, 1000, None)


def test_what_is_copied_from_where_to_where() -> None:
    kernel = own("Rows.kernel")
    loads = {(o.line_text, o.level, o.parameter, o.via) for o in map(_with_text, kernel.loads)}
    stores = {(o.line_text, o.level, o.parameter, o.via) for o in map(_with_text, kernel.stores)}
    assert loads == {
        ("cute.copy(copy, tXgX, tXsX)", "global", "mX", ""),
        ("cute.autovec_copy(tXsX, tXrX)", "shared", "", ""),
        ("x = x * mW[bidx]", "global", "mW", ""),
        ("x = buffer[lane]", "shared", "", "total"),
    }
    assert stores == {
        ("cute.copy(copy, tXgX, tXsX)", "shared", "", ""),
        ("cute.copy(copy, tXrX, tYgY)", "global", "mY", ""),
        ("buffer[cute.arch.warp_idx()] = x", "shared", "", "total"),
    }
    assert {(c.file, c.condition, c.kind, c.message) for c in kernel.constraints} == {
        ("", "mX.element_type == self.dtype", "assert", ""),
        ("", "n % (128 // dtype.width) == 0", "raise", ""),
        ("base.py", "threads % cute.arch.WARP_SIZE == 0", "assert", "whole warps"),
    }
    for one in kernel.constraints:
        assert one.condition.partition(" ")[0].rpartition(".")[2] in _with_text(one).line_text
    assert any("transform(gY)" in note for note in kernel.notes), "what a stranger does with a tensor is told"
    assert any("mW" in note and "None" in note for note in kernel.notes)


def _with_text(operation: Any) -> Any:
    file = operation.file or "rows.py"
    text = (CORPUS / file).read_text().splitlines()[operation.line - 1].strip()
    told = {name: getattr(operation, name, "") for name in ("level", "parameter", "via")}
    return SimpleNamespace(line_text=text, **told)


def test_a_function_and_its_storage() -> None:
    kernel = own("scale")
    (grid,) = kernel.grid
    assert (grid.dimensions, grid.block, grid.threads) == (
        ("{size(mA.shape[0])} // 128", "2", "1"),
        ("192", "1", "1"),
        192,
    )
    assert {s.name: s.bytes for s in kernel.shared_memory} == {"mbar": 32, "sA": 128 * 64 * 3 * 2, "count": 4}
    (loop,) = kernel.loops
    assert (loop.trip_count, loop.line) == ("7", next(o.loop for o in kernel.loads if o.loop))
    assert [(o.level, o.parameter, o.loop == loop.line) for o in kernel.loads] == [("global", "mA", True)]
    stored = [(o.level, o.parameter, o.when) for o in kernel.stores]
    assert stored == [("shared", "", ""), ("global", "mB", "blockIdx.y == 0")]
    assert {(m.axis, m.variable) for m in kernel.mapping} >= {("blockIdx.x", "bidx"), ("blockIdx.y", "bidy")}
    assert [i.operation for i in kernel.instructions] == ["cute.gemm"], "who asks for its place in a cluster only asks"


def test_a_kernel_that_its_file_does_not_launch_says_so() -> None:
    kernel = own("alone")
    assert kernel.grid == ()
    assert any("No call such as" in note for note in kernel.notes)
    (places,) = kernel.shared_memory
    assert places.bytes is None
    assert re.fullmatch(r"\{places of line \d+\} \* 4", places.formula), (
        "what a loop of the device changes is no number"
    )


HOSTILE = """
import cutlass.cute as cute
{imports}
class K:
    def __init__(self, n):
        self.n = n
{init}
    @cute.jit
    def __call__(self, mX: cute.Tensor):
{host}
        self.kernel(mX).launch(grid=[self.n, 1, 1], block=[32, 1, 1])
    @cute.kernel
    def kernel(self, mX: cute.Tensor):
{body}
"""


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("init", "        self.init = self.__init__(n)"),
        ("init", "        while True:\n            n = n + 1"),
        ("host", "        self.n = self.n ** self.n ** self.n"),
        ("host", "        [self for _ in range(10**9) for _ in range(10**9)]"),
        ("host", "        import os; os.system('false')"),
        ("host", "        for k in range(self.n):\n            if k:\n                continue\n            break"),
        ("host", "        if self.n > 3:\n            return\n        elif self.n:\n            raise ValueError(self.n)"),
        ("body", "        self.kernel(mX)"),
        ("body", "        mX[mX[mX[0]]] = mX[{**{}}['a']]"),
        ("body", "        (lambda f: f(f))(lambda f: f(f))"),
        ("body", "        match mX:\n            case [a, *b]: a\n            case _: pass"),
        ("body", "        cute.copy(*mX, **mX); cute.local_tile(); cute.make_layout((-1, 0), stride=mX)"),
        ("body", "        x = " + "(" * 80 + "mX" + ")" * 80),
        ("imports", "from .. import *\nfrom K import K as cute2"),
    ],
)  # fmt: skip
def test_no_source_ends_the_reading(tmp_path: Path, part: str, text: str) -> None:
    parts = {"imports": "", "init": "", "host": "        pass", "body": "        cute.arch.sync_threads()", part: text}
    (tmp_path / "k.py").write_text(HOSTILE.format(**parts))
    kernel = described(tmp_path, "k.py", "K.kernel")
    assert kernel.name == "K.kernel"


HOSTS = """
import math
from dataclasses import dataclass, field

import cutlass
import cutlass.cute as cute
from cutlass import Int32

@dataclass
class Plain:
    threads: int = 128
    stages: int = 2

@dataclass
class More(Plain):
    extra: int = 0

@dataclass
class Checked:
    threads: int
    def __post_init__(self):
        self.threads = max(self.threads, 64)

@dataclass
class Spelled:
    threads: int = field(default=96)

class A:
    def width(self):
        return 128
class B(A):
    pass
class C(A):
    def width(self):
        return 256
class D(B, C):
    pass

class Far:
    def __init__(self, n):
        self.t = cute.ceil_div(n, 128) * 128 + (n // 64 + 3) * (n // 32 + 5)

class R:
    def __init__(self):
        self.t = 32
class P(R):
    def __init__(self):
        super().__init__()
        self.t = self.t * 2
class Q(R):
    def __init__(self):
        super().__init__()
        self.t = self.t + 32
class M(P, Q):
    pass

class K:
    threads = 128
{init}
    @cute.jit
    def __call__(self, mX: cute.Tensor):
        self.kernel(mX).launch(grid=[{grid}, 1, 1], block=[{block}, 1, 1])
    @cute.kernel
    def kernel(self, mX: cute.Tensor):
        pass
"""
#: what stands in `__init__` (an indented function stands beside it), grid, block; "?": what a loop leaves need not be told
CASES = {
    "a default of the class on one side": ("if n > 4096:\n    self.threads = 256", "1", "self.threads"),
    "a default of the class on the other": (
        "if n > 4096:\n    pass\nelse:\n    self.threads = 64",
        "1",
        "self.threads",
    ),
    "a loop that changes an attribute?": (
        "self.s = 4\nwhile self.s * n > 65536 and self.s > 1:\n    self.s -= 1",
        "1",
        "self.s * 32",
    ),
    "a loop that changes a parameter?": ("while n > 1024:\n    n = n // 2\nself.n = n", "self.n", "32"),
    "a loop that fills a list?": (
        "found = []\nfor i in range(n):\n    found.append(i)\nself.t = len(found) + 1",
        "1",
        "self.t",
    ),
    "a loop that changes an item?": ("s = [1]\nfor i in range(n % 7):\n    s[0] *= 2\nself.t = s[0]", "1", "self.t"),
    "a table that a method changes": (
        "c = {'t': 128}\nself.tune(c, n)\nself.t = c['t']\n    def tune(self, c, n):\n        if n > 4096:\n            c['t'] = 256",
        "1",
        "self.t",
    ),
    "a list that a method changes": (
        "c = [128]\nself.tune(c, n)\nself.t = c[0]\n    def tune(self, c, n):\n        if n > 4096:\n            c[0] = 256",
        "1",
        "self.t",
    ),
    "a list within a list": ("s = [[1], [2]]\nif n > 100:\n    s[0][0] = 9\nself.t = s[0][0]", "1", "self.t"),
    "a list that grows on one side?": ("s = [1]\nif n > 100:\n    s.append(2)\nself.t = len(s)", "1", "self.t"),
    "two names of one list": (
        "a = [128]\nb = a\nk = 1\nif n > 100:\n    k = 2\na[0] = 256\nself.t = b[0] * k",
        "1",
        "self.t",
    ),
    "a way out of a turn in a way out": (
        "t = 0\nfor k in (1, 2):\n    if n > 100:\n        if n > 1000:\n            continue\n        t = t * 2\n    t = t + k\nself.t = t",
        "1",
        "self.t",
    ),
    "a chain": ("if 64 <= n <= 1024:\n    self.t = 128\nelse:\n    self.t = 256", "1", "self.t"),
    "not a chain": ("self.t = 128 if not 64 <= n <= 1024 else 256", "1", "self.t"),
    "not before and": (
        "t = 32\nif not n > 100 and n > 50:\n    t = 64\nelif n > 100 and n > 50:\n    t = 128\nself.t = t",
        "1",
        "self.t",
    ),
    "a name of itself": (
        "n = cute.ceil_div(n, 128) * 128 + (n // 64 + 3) * (n // 32 + 5) + (n % 64) * 17\nself.n = n",
        "self.n",
        "32",
    ),
    "a parameter and another of its name": (
        "self.n = n\n    def pad(self, n):\n        n = cute.ceil_div(n, 128) * 128 + (n // 64 + 3) * (n // 32 + 5) + n % 64 * 17\n        return n",
        "self.pad(self.n)",
        "self.n",
    ),
    "a name used again?": (
        "t = cute.ceil_div(n, 128) * 128 + (n // 64 + 3) * (n // 32 + 5) + n % 64 * 17\nself.a = t\nfor i in range(n):\n    t = i * 2\nself.b = t",
        "self.a",
        "self.b",
    ),
    "whole numbers": ("self.n = n", "Int32(self.n / 3)", "int(self.n / 48) * 32"),
    "a name around": (
        "t = 128\ndef widen():\n    nonlocal t\n    t = 256\nif n > 9:\n    widen()\nself.t = t",
        "1",
        "self.t",
    ),
    "what is done at last": ("try:\n    t = 32\nfinally:\n    t = 64\nself.t = t", "1", "self.t"),
    "or and and as values": ("self.t = n % 8 or 128\nself.u = n % 8 and 64", "self.u", "self.t"),
    "tests as numbers": ("self.t = 32 * (1 + (n > 64) + (n > 128))", "1", "self.t"),
    "flags": (
        "big = False\nif n > 1024:\n    big = True\nodd = True\nif n % 2 == 0:\n    odd = False\nself.t, self.u = 256 if big else 128, 3 if odd else 2",
        "self.u",
        "self.t",
    ),
    "none on two ways": (
        "x = None\nif n > 100:\n    x = None\nelif n > 10:\n    x = 5\nself.t = 64 if x is None else 128",
        "1",
        "self.t",
    ),
    "dataclasses": (
        "self.a, self.b, self.c = More(32, 512).threads, Checked(8).threads, Spelled().threads",
        "self.a * self.b",
        "self.c",
    ),
    "whose method it is": ("self.a, self.b = D().width(), M().t", "self.a", "self.b"),
    "an attribute of another object": (
        "self.t = cute.ceil_div(n, 64) * 64 + (n // 16 + 1) * (n // 8 + 2)\nself.u = Far(n).t",
        "self.u",
        "self.t",
    ),
    "a walrus": ("if (k := n // 2) > 4:\n    self.t = k\nelse:\n    self.t = 2 * k", "1", "self.t"),
    "objects by a test": (
        "c = Plain(64) if n > 100 else Plain(32, stages=n)\nself.t, self.u = c.threads, c.stages",
        "self.u",
        "self.t",
    ),
    "tables by a test": (
        "c = [(10, 1), (100, 2)] if n % 2 else [(20, 3), (200, 4)]\nself.t = 8\nfor limit, t in c:\n    if n <= limit:\n        self.t = t\n        break\nelse:\n    self.t = 7",
        "1",
        "self.t",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_host_code_is_followed_as_python_runs_it(case: str, tmp_path: Path) -> None:
    """Whatever a formula says is so at every size; only what a loop over an unknown number leaves may stay open."""
    init, grid, block = CASES[case]
    own, _, beside = init.partition("\n    def ")
    body = f"    def __init__(self, n: int):\n{textwrap.indent(own, ' ' * 8)}\n"
    body += f"    def {beside}\n" if beside else ""
    (tmp_path / "rows.py").write_text(HOSTS.format(init=body, grid=grid, block=block))
    kernel = described(tmp_path, "rows.py", "K.kernel")
    (told,) = kernel.grid
    names = [*told.dimensions, *told.block, *told.definitions]
    assert ("Far" in init) == any(text.startswith("Far.t = ") for text in told.definitions), "self is the kernel's own"
    open_ = any(" of line " in text for text in names) or not told.dimensions or not told.block
    assert open_ <= case.endswith("?"), names
    for n in (1, 3, 8, 11, 64, 96, 100, 101, 500, 1000, 1001, 1024, 1025, 4096, 5000, 70000) if not open_ else ():
        expected = launch(tmp_path, f"K({n})", SimpleNamespace())
        found = at(kernel, n=n)
        assert (found["grid"], found["block"]) == (expected["grid"], expected["block"]), (n, names)


BODIES = {
    "two ways out of a test": (
        "if 0 < tidx < 32:\n    mA[0] = 1.0\nelse:\n    mB[0] = 1.0",
        [("store", "mA", "0 < tidx < 32"), ("store", "mB", "not (0 < tidx < 32)")],
    ),
    "asked for where what stands before does not decide": (
        "if tidx < n and mA[tidx] > 0.0:\n    mB[0] = 1.0",
        [("load", "mA", "threadIdx.x < n"), ("store", "mB", "threadIdx.x < n and mA[threadIdx.x] > 0.0")],
    ),
    "one of two tensors": (
        "u = mA if n > 3 else mB\nu[tidx] = 1.0",
        [("store", "mA", "n > 3"), ("store", "mB", "n <= 3")],
    ),
    "perhaps none": ("w = None\nif n > 3:\n    w = mA\nif w is not None:\n    w[0] = 1.0", [("store", "mA", "n > 3")]),
    "filled": ("mA.fill(0)\nmB.store(mA.load())", [("load", "mA", ""), ("store", "mA", ""), ("store", "mB", "")]),
    "behind a loop": (
        "for i in cutlass.range(n):\n    x = mA[i]\nelse:\n    mB[0] = 1.0",
        [("load", "mA", ""), ("store", "mB", "")],
    ),
    "a counter of the same name": (
        "for i in cutlass.range(n):\n    if i < 2:\n        helper(mA, mB, n)",
        [("load", "mA", "i < 2 and i of line 6 < 2"), ("load", "mB", "i < 2 and i of line 6 >= 2")],
    ),
    "what a loop changes": (
        "x = n\nif x > 0:\n    for j in cutlass.range(4):\n        x = x - 7\n    if x > 0:\n        y = mA[0]\n    else:\n        y = mB[0]",
        [("load", "mA", "n > 0 and x of line 16 > 0"), ("load", "mB", "n > 0 and x of line 16 <= 0")],
    ),
    "added to": ("mA[tidx] += 1.0", [("load", "mA", ""), ("store", "mA", "")]),
    "swapped by a loop": ("a, b = mA, mB\nfor i in cutlass.range(n):\n    a[0] = 1.0\n    a, b = b, a", None),
    "handed to a stranger": ("n.take(mA)", None),
    "a list of tensors": ("c = many[0]\nc[0] = 1.0", None),
}
BODY = """import cutlass
import cutlass.cute as cute
from typing import List
@cute.jit
def helper(mA, mB, n):
    for i in cutlass.range(n):
        if i < 2:
            x = mA[i]
        else:
            x = mB[i]
@cute.kernel
def kern(mA: cute.Tensor, mB: cute.Tensor, n: cutlass.Int32, many: List[cute.Tensor]):
    tidx, _, _ = cute.arch.thread_idx()
{body}
"""


@pytest.mark.parametrize("case", BODIES)
def test_what_a_body_reads_and_writes_is_listed_or_said_not_to_be_followed(case: str, tmp_path: Path) -> None:
    body, expected = BODIES[case]
    (tmp_path / "k.py").write_text(BODY.format(body=textwrap.indent(body, "    ")))
    kernel = described(tmp_path, "k.py", "kern")
    found = [("load", o.parameter, o.when) for o in kernel.loads] + [
        ("store", o.parameter, o.when) for o in kernel.stores
    ]
    if expected is None:
        assert any("Not followed" in note for note in kernel.notes)
    else:
        assert sorted(found) == sorted(expected)
    line = len(BODY.partition("{body}")[0].splitlines()) + 1
    for operation in (*kernel.loads, *kernel.stores):
        assert operation.line >= (6 if operation.via else line)


LAUNCHES = """import cutlass.cute as cute
class Base:
    def __init__(self, n):
        self.n = n
    def threads(self):
        return 128
    @cute.jit
    def __call__(self, mX: cute.Tensor):
        self.kernel(mX).launch(grid=[self.n, 1, 1], block=[self.threads(), 1, 1])
    @cute.jit
    def rows(self, mX: cute.Tensor):
        self.kernel(mX).launch(grid=[self.n, 2, 1], block=[64, 1, 1])
    @cute.kernel
    def kernel(self, mX: cute.Tensor):
        mX[0] = 1.0
class Sub(Base):
    def threads(self):
        return 64
    @cute.kernel
    def kernel(self, mX: cute.Tensor):
        mX[1] = 2.0
class Low:
    @cute.kernel
    def kernel(self, mX: cute.Tensor):
        mX[0] = 1.0
class High(Low):
    def __init__(self, n, threads):
        self.n, self.threads = n, threads
    @cute.jit
    def __call__(self, mX: cute.Tensor):
        self.kernel(mX).launch(grid=[self.n, 1, 1], block=[self.threads, 1, 1])
@cute.kernel
def twice(mX: cute.Tensor, mY: cute.Tensor):
    mY[0] = mX[0]
@cute.jit
def both(mX: cute.Tensor, mY: cute.Tensor, n):
    if n > 3:
        twice(mX, mY).launch(grid=[n, 1, 1], block=[32, 1, 1])
    else:
        twice(mY, mX).launch(grid=[1, 1, 1], block=[32, 1, 1])
"""


@pytest.mark.parametrize(
    ("name", "grid", "block", "note"),
    [
        ("Base.kernel", "n", "128", "rows (k.py:11) launches it too"),
        ("Sub.kernel", "n", "64", "rows (k.py:11) launches it too"),
        ("Low.kernel", "n", "threads", ""),
        ("twice", "{n}", "32", "as the launch at line 38 has it"),
    ],
)
def test_what_launches_a_kernel_may_stand_in_a_class_above_or_below(
    name: str, grid: str, block: str, note: str, tmp_path: Path
) -> None:
    (tmp_path / "k.py").write_text(LAUNCHES)
    kernel = described(tmp_path, "k.py", name)
    assert (kernel.grid[0].dimensions[0], kernel.grid[0].block[0]) == (grid, block)
    assert any(note in told for told in kernel.notes) if note else not kernel.notes


def test_a_test_that_is_not_followed_is_another_one_for_other_values(tmp_path: Path) -> None:
    """Of what a function makes of unknown things nothing is told; what it says of one size it need not say of the next."""
    imports = "import elsewhere\ndef fits(n, limit):\n    return any([k < limit for k in elsewhere.of(n)])"
    lines = [
        "wide = 256",
        "for limit in (64, 128):",
        "    if fits(self.n, limit):",
        "        wide = limit",
        "        break",
        "self.n = wide",
    ]
    parts = {"imports": imports, "init": "", "host": textwrap.indent("\n".join(lines), " " * 8), "body": "        pass"}
    (tmp_path / "k.py").write_text(HOSTILE.format(**parts))
    (grid,) = described(tmp_path, "k.py", "K.kernel").grid
    for answers, expected in ({0}, 256), ({128}, 128), ({64}, 64), ({64, 128}, 64):
        names = _Names(grid.definitions, n=1, fits=lambda _, limit, answers=answers: limit in answers)
        assert value(grid.dimensions[0], names) == expected, (answers, grid)


def test_kernels_of_a_library_are_read() -> None:
    """Liger's softmax at 4,096 columns of 16 bits, by hand: 64 threads a row, 2 rows a block, 512 vectors of 8."""
    root = kernel_sources()["liger-kernel"]
    file = "liger_kernel/ops/backends/_cutedsl/softmax.py"
    kernel = described(root, file, "_LigerSoftmaxCuTeDSLForward.kernel", N=4096, dtype="cutlass.Float16")
    (grid,) = kernel.grid
    assert (grid.dimensions, grid.block) == (("cdiv({mX.shape[0]}, 2)", "1", "1"), ("128", "1", "1"))
    names = [
        k.name
        for f in root.rglob("*.py")
        for k in find_in_python(str(f), f.read_text()).kernels
        if k.language == "cute_dsl"
    ]
    marked = sum(len(re.findall(r"^\s*@cute\.kernel", f.read_text(), re.MULTILINE)) for f in root.rglob("*.py"))
    assert len(names) == marked == 38
