# ruff: noqa: N802, N803 — the names are those of the language
"""Counts one thread block of a TileLang kernel by running its source as plain Python, with a language that only counts.

Nothing of opscope is used: tensors are shapes, elements are marks that count what is done with them, loops are run turn by
turn. A test on elements holds for each (masked elements count), one on the block or on sizes is taken as it comes.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

_ARITHMETIC = ("add", "sub", "mul", "truediv", "pow")


class Lane(int):
    """The number of an element: what is asked of it holds for all."""

    def _always(self, _other: object) -> bool:
        return True

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _always
    __hash__ = int.__hash__


for _name in ("add", "sub", "mul", "floordiv", "mod", "radd", "rsub", "rmul"):

    def _made(self: Lane, other: Any, name: str = f"__{_name}__") -> Any:
        found = getattr(int, name)(self, int(other)) if isinstance(other, int) else NotImplemented
        return found if found is NotImplemented else Lane(found)

    setattr(Lane, f"__{_name}__", _made)


class Language:
    """What `tilelang.language` gives, for one block: `ids` are the block's, `dynamic` the sizes of a run."""

    def __init__(
        self, ids: tuple[int, ...], dynamic: Mapping[str, int], data: Mapping[str, Callable[..., int]]
    ) -> None:
        self.ids, self.sizes, self.data = ids, dynamic, data
        self.counted: Counter[str] = Counter()
        self.GemmWarpPolicy = SimpleNamespace(FullRow=0, FullCol=1, Square=2)
        for name in ("float16", "bfloat16", "float32", "int32", "int8", "uint8", "float8_e4m3fn"):
            setattr(self, name, Dtype(name))

    def dynamic(self, names: str) -> Any:
        found = tuple(self.sizes[name.strip()] for name in names.split(","))
        return found[0] if len(found) == 1 else found

    def Tensor(self, shape: Any, dtype: Any = "float32") -> Tile:
        return Tile(self, "", True, shape, dtype)

    def alloc_shared(self, shape: Any, dtype: Any = "float32", **_: Any) -> Tile:
        return Tile(self, "", False, shape, dtype)

    alloc_fragment = alloc_local = alloc_shared

    def alloc_var(self, dtype: Any, *_: Any, **__: Any) -> Any:
        return 0 if "int" in str(dtype) else Element(self)

    @contextmanager
    def Kernel(self, *grid: int, **_: Any) -> Iterator[Any]:
        assert len(grid) == len(self.ids)
        assert all(0 <= i < n for i, n in zip(self.ids, grid, strict=True))
        self.counted["blocks"] = math.prod(grid)
        yield self.ids if len(grid) > 1 else self.ids[0]

    @staticmethod
    def Parallel(*extents: int) -> Iterator[Any]:
        found = itertools.product(*(range(n) for n in extents))
        return (tuple(map(Lane, one)) if len(extents) > 1 else Lane(one[0]) for one in found)

    @staticmethod
    def Pipelined(*bounds: int, **_: Any) -> range:
        return range(*bounds)

    serial = unroll = Pipelined

    def copy(self, source: Any, target: Any, **_: Any) -> None:
        if source.tile.is_global:
            self.counted["read"] += source.elements(target) * source.tile.bytes
        if target.tile.is_global:
            self.counted["write"] += target.elements(source) * target.tile.bytes

    def clear(self, target: Any) -> None:
        assert not target.tile.is_global

    def fill(self, target: Any, _value: Any) -> None:
        assert not target.tile.is_global

    def gemm(self, a: Any, b: Any, c: Any, transpose_A: bool = False, transpose_B: bool = False, **_: Any) -> None:
        rows, columns = c.tile.shape[-2:]
        depth = a.tile.shape[-2] if transpose_A else a.tile.shape[-1]
        assert depth == (b.tile.shape[-1] if transpose_B else b.tile.shape[-2])
        self.counted["matmul"] += 2 * rows * columns * depth
        self.counted["flops"] += 2 * rows * columns * depth

    def reduce_sum(self, source: Any, _target: Any, **_: Any) -> None:
        self.counted["flops"] += math.prod(source.tile.shape)

    def cumsum(self, source: Any, *_: Any, **__: Any) -> None:
        self.counted["flops"] += math.prod(source.tile.shape)

    def reduce_max(self, *_: Any, **__: Any) -> None:
        """Comparisons are no arithmetic."""

    def exp2(self, x: Any) -> Any:
        x = read(x)
        self.counted["flops"] += isinstance(x, Element)
        return x

    exp = log = log2 = rsqrt = sqrt = exp2

    @staticmethod
    def max(a: Any, b: Any) -> Any:
        a, b = read(a), read(b)
        return max(a, b) if isinstance(a, int) and isinstance(b, int) else a if isinstance(a, Element) else b

    @staticmethod
    def min(a: Any, b: Any) -> Any:
        a, b = read(a), read(b)
        return min(a, b) if isinstance(a, int) and isinstance(b, int) else a if isinstance(a, Element) else b

    @staticmethod
    def if_then_else(test: Any, a: Any, b: Any) -> Any:
        a, b = read(a), read(b)
        return a if isinstance(a, Element) else b if isinstance(b, Element) else a if test else b

    @staticmethod
    def Cast(_dtype: Any, x: Any) -> Any:
        return read(x)

    @staticmethod
    def cast(x: Any, _dtype: Any) -> Any:
        return read(x)

    @staticmethod
    def ceildiv(a: int, b: int) -> int:
        return -(-a // b)

    @staticmethod
    def infinity(_dtype: Any) -> float:
        return math.inf

    @staticmethod
    def macro(function: Any) -> Any:
        return function

    prim_func = macro

    @staticmethod
    def Fragment(*_: Any, **__: Any) -> None:
        """How threads share a tile changes no count."""

    annotate_layout = use_swizzle = sync_threads = Fragment


class Dtype(str):
    """A type of elements; as a call it casts."""

    def __call__(self, x: Any) -> Any:
        return read(x)


class Tile:
    """A tensor or tile; named without an index it stands for all of it."""

    def __init__(self, language: Language, name: str, is_global: bool, shape: Any, dtype: Any) -> None:
        self.language, self.name, self.is_global = language, name, is_global
        self.shape = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        self.dtype = dtype
        found = re.search(r"(\d+)", str(dtype))
        assert found is not None
        self.bytes = int(found[1]) // 8
        self.tile = self

    def elements(self, _other: Any) -> int:
        return math.prod(self.shape)

    def __getitem__(self, index: Any) -> Part:
        return Part(self, index if isinstance(index, tuple) else (index,))

    def __setitem__(self, index: Any, value: Any) -> None:
        read(value)
        if self.is_global:
            self.language.counted["write"] += self.bytes


class Part:
    """An element or a slice, not read yet."""

    def __init__(self, tile: Tile, index: tuple[Any, ...]) -> None:
        self.tile, self.index = tile, index

    def __neg__(self) -> Any:
        return -read(self)

    def elements(self, other: Any) -> int:
        slices = [i for i in self.index if isinstance(i, slice)]
        if not slices:
            return math.prod(other.shape) if isinstance(other, Tile) else 1
        sizes = zip(self.index, self.tile.shape, strict=False)
        return math.prod(
            (i.stop if i.stop is not None else n) - (i.start or 0) for i, n in sizes if isinstance(i, slice)
        )


def read(x: Any) -> Any:
    """An element once it is needed; of whole numbers the number."""
    if not isinstance(x, Part):
        return x
    if x.tile.is_global:
        x.tile.language.counted["read"] += x.tile.bytes
    if "int" in str(x.tile.dtype):
        return x.tile.language.data[x.tile.name](*x.index)
    return Element(x.tile.language)


class Element:
    """A number that a kernel computes with."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def __neg__(self) -> Element:
        self.language.counted["flops"] += 1
        return self


def _of_elements(self: Any, other: Any) -> Any:
    one, two = read(self), read(other)
    if isinstance(one, int) and isinstance(two, int | float):
        raise AssertionError("whole numbers are read where they are named")
    language = one.language if isinstance(one, Element) else two.language
    language.counted["flops"] += 1
    return Element(language)


def _compared(self: Any, other: Any) -> bool:
    read(self), read(other)
    return True


for _kind in (Element, Part):
    for _name in _ARITHMETIC:
        setattr(_kind, f"__{_name}__", _of_elements)
        setattr(_kind, f"__r{_name}__", _of_elements)
    for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(_kind, f"__{_name}__", _compared)


class _Named(ast.NodeTransformer):
    """Whole numbers of tensors are read where a name is bound: `i = chunk_indices[c, 0]`."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Subscript | ast.BinOp):
            node.value = ast.Call(ast.Name("read", ast.Load()), [node.value], [])
        return node


def counted(
    source: str, factory: str, parameters: Mapping[str, Any], *, ids: tuple[int, ...], dynamic: Mapping[str, int] | None = None,
    data: Mapping[str, Callable[..., int]] | None = None, constants: Mapping[str, Any] | None = None,
) -> dict[str, int]:  # fmt: skip
    """FLOPs, those of products, bytes read and written of the block `ids` of the kernel that `factory` makes."""
    language = Language(ids, dynamic or {}, data or {})
    tree = ast.parse(source)
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == factory)
    function.decorator_list = []
    inner = next((n for n in ast.walk(function) if isinstance(n, ast.FunctionDef) and n is not function), None)
    tree.body = [_Named().visit(function)]
    space = {
        "T": language,
        "tilelang": SimpleNamespace(cdiv=Language.ceildiv),
        "math": math,
        "read": read,
        **(constants or {}),
    }
    exec(compile(ast.fix_missing_locations(tree), factory, "exec", dont_inherit=True), space)
    made = space[factory](**parameters)
    assert inner is not None
    arguments = []
    for name, one in made.__annotations__.items():
        if isinstance(one, Tile):
            one.name = name
        arguments.append(one if isinstance(one, Tile) else Element(language))
    made(*arguments)
    return {"flops": 0, "matmul": 0, "read": 0, "write": 0, **language.counted}
