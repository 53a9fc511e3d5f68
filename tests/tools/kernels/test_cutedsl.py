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
        super().__init__(cdiv=lambda a, b: -(-a // b), min=min, max=max, math=math, **known)
        self.definitions = dict(text.split(" = ", 1) for text in definitions)

    def __missing__(self, name: str) -> Any:
        return value(self.definitions[name.replace("self_", "self.")], self)


def value(text: str, names: _Names) -> Any:
    """What a formula comes to, read as Python."""
    return eval(re.sub(r"\bself\.", "self_", text.replace("{", "(").replace("}", ")")), {"__builtins__": {}}, names)


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
    }
    assert stores == {
        ("cute.copy(copy, tXgX, tXsX)", "shared", "", ""),
        ("cute.copy(copy, tXrX, tYgY)", "global", "mY", ""),
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
    assert [i.operation for i in kernel.instructions] == ["cute.gemm"]


def test_a_kernel_that_its_file_does_not_launch_says_so() -> None:
    kernel = own("alone")
    assert kernel.grid == ()
    assert any("Nothing in its file launches it" in note for note in kernel.notes)
    (places,) = kernel.shared_memory
    assert (places.bytes, places.formula) == (None, "{places} * 4"), "what a loop of the device changes is no number"


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


def test_kernels_of_a_library_are_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Liger's softmax at 4,096 columns of 16 bits, by hand: 64 threads a row, 2 rows a block, 512 vectors of 8."""
    root = kernel_sources(tmp_path_factory.getbasetemp())["liger-kernel"]
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
