"""Counts one thread block of a cuTile kernel by running its source as plain Python, with a language that only counts.

Nothing of opscope is used: arrays and tiles are shapes, loops are run turn by turn, a test is taken as its numbers say.
"""

from __future__ import annotations

import ast
import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

_UNARY = "exp exp2 log log2 rsqrt sqrt tanh sin cos".split()
_FREE = "abs floor ceil".split()


class Array:
    """A tensor of the caller."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "float16") -> None:
        self.shape, self.dtype = shape, dtype
        self.bytes = int("".join(c for c in dtype if c.isdigit())) // 8
        self.floating = dtype.startswith(("float", "bfloat"))


class Tile:
    """A tile that is computed with, or (`floating` False) one of indices or truths."""

    def __init__(self, language: Language, shape: tuple[int, ...], floating: bool) -> None:
        self.language, self.shape, self.floating = language, shape, floating
        self.ndim, self.dtype = len(shape), "float32"

    def reshape(self, *shape: Any) -> Tile:
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        assert math.prod(shape) == math.prod(self.shape)
        return Tile(self.language, shape, self.floating)

    def astype(self, dtype: Any) -> Tile:
        return Tile(self.language, self.shape, "int" not in str(dtype) and "bool" not in str(dtype))

    def permute(self, axes: tuple[int, ...]) -> Tile:
        return Tile(self.language, tuple(self.shape[a] for a in axes), self.floating)

    def transpose(self) -> Tile:
        return Tile(self.language, self.shape[::-1], self.floating)

    def item(self) -> Tile:
        return Tile(self.language, (), self.floating)

    def __getitem__(self, index: Any) -> Tile:
        left = list(self.shape)
        shape = [1 if one is None else left.pop(0) for one in (index if isinstance(index, tuple) else (index,))]
        return Tile(self.language, (*shape, *left), self.floating)

    def __neg__(self) -> Tile:
        if self.floating:
            self.language.counted["flops"] += math.prod(self.shape)
        return self


def _shape(x: Any) -> tuple[int, ...]:
    return x.shape if isinstance(x, Tile) else ()


def _common(*parts: Any) -> tuple[int, ...]:
    found: list[int] = []
    for shape in map(_shape, parts):
        found = [1] * (len(shape) - len(found)) + found
        for back in range(1, len(shape) + 1):
            assert shape[-back] == found[-back] or 1 in (shape[-back], found[-back])
            found[-back] = max(found[-back], shape[-back])
    return tuple(found)


def _arithmetic(one: Any, other: Any) -> Any:
    tiles = [t for t in (one, other) if isinstance(t, Tile)]
    made = Tile(tiles[0].language, _common(one, other), any(t.floating for t in tiles))
    made.floating = made.floating or (made.shape != () and any(isinstance(x, float) for x in (one, other)))
    if made.floating:
        made.language.counted["flops"] += math.prod(made.shape)
    return made


def _whole(one: Any, other: Any) -> Any:
    tile = one if isinstance(one, Tile) else other
    return Tile(tile.language, _common(one, other), False)


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Tile, f"__{_name}__", lambda a, b: _arithmetic(a, b))
    setattr(Tile, f"__r{_name}__", lambda a, b: _arithmetic(b, a))
for _name in ("floordiv", "mod", "and", "or", "xor", "lshift", "rshift"):
    setattr(Tile, f"__{_name}__", lambda a, b: _whole(a, b))
    setattr(Tile, f"__r{_name}__", lambda a, b: _whole(b, a))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Tile, f"__{_name}__", lambda a, b: _whole(a, b))


class Language:
    """What `cuda.tile` gives, for one block: `ids` are the block's, `blocks` the grid."""

    PaddingMode = SimpleNamespace(ZERO=0, UNDETERMINED=1, NEG_INF=2)
    RoundingMode = SimpleNamespace(APPROX=0, RN=1)

    def __init__(self, ids: tuple[int, ...], blocks: tuple[int, ...]) -> None:
        self.ids, self.blocks = ids, blocks
        self.counted: Counter[str] = Counter()
        for name in ("float16", "bfloat16", "float32", "tfloat32", "int32", "int64", "bool_"):
            setattr(self, name, name)
        for name in _UNARY:
            setattr(self, name, self._each)
        for name in _FREE:
            setattr(self, name, lambda x, **_: x)
        for name, made in {
            "add": operator.add,
            "sub": operator.sub,
            "mul": operator.mul,
            "truediv": operator.truediv,
        }.items():
            setattr(self, name, lambda a, b, made=made, **_: made(a, b))

    def _each(self, x: Any, **_: Any) -> Any:
        if isinstance(x, Tile) and x.floating:
            self.counted["flops"] += math.prod(x.shape)
        return x

    def bid(self, axis: int) -> int:
        return self.ids[axis]

    def num_blocks(self, axis: int) -> int:
        return self.blocks[axis]

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        return -(-a // b)

    def num_tiles(self, array: Array, axis: int, shape: tuple[int, ...]) -> int:
        return self.cdiv(array.shape[axis], shape[axis])

    def load(self, array: Array, shape: Any, **_: Any) -> Tile:
        shape = shape if isinstance(shape, tuple) else (shape,)
        self.counted["read"] += math.prod(shape) * array.bytes
        return Tile(self, shape, array.floating)

    def store(self, array: Array, tile: Any, **_: Any) -> None:
        self.counted["write"] += math.prod(tile.shape) * array.bytes

    def gather(self, array: Array, indices: Any, **_: Any) -> Tile:
        shape = _common(*(indices if isinstance(indices, tuple) else (indices,)))
        self.counted["read"] += math.prod(shape) * array.bytes
        return Tile(self, shape, array.floating)

    def scatter(self, array: Array, indices: Any, value: Any, **_: Any) -> None:
        shape = _common(value, *(indices if isinstance(indices, tuple) else (indices,)))
        self.counted["write"] += math.prod(shape) * array.bytes

    def mma(self, a: Tile, b: Tile, acc: Any) -> Tile:
        assert a.shape[-1] == b.shape[-2]
        shape = (*a.shape[:-1], b.shape[-1])
        assert _shape(acc) in (shape, ())
        self.counted["flops"] += 2 * math.prod(shape) * a.shape[-1]
        self.counted["matmul"] += 2 * math.prod(shape) * a.shape[-1]
        return Tile(self, shape, True)

    def full(self, shape: Any, _value: Any, dtype: Any = "float32") -> Tile:
        return Tile(self, shape if isinstance(shape, tuple) else (shape,), "int" not in str(dtype))

    def zeros(self, shape: Any, dtype: Any = "float32") -> Tile:
        return self.full(shape, 0, dtype)

    def arange(self, size: int, **_: Any) -> Tile:
        return Tile(self, (size,), False)

    def sum(self, x: Tile, axis: Any = None, keepdims: bool = False, **_: Any) -> Tile:
        if x.floating:
            self.counted["flops"] += math.prod(x.shape)
        return self.max(x, axis, keepdims)

    def max(self, x: Tile, axis: Any = None, keepdims: bool = False, **_: Any) -> Tile:
        axes = range(len(x.shape)) if axis is None else [axis % len(x.shape)]
        shape = tuple(1 if n in axes else s for n, s in enumerate(x.shape) if keepdims or n not in axes)
        return Tile(self, shape, x.floating)

    min = max  # noqa: A003

    def maximum(self, a: Any, b: Any, **_: Any) -> Any:
        if not isinstance(a, Tile) and not isinstance(b, Tile):
            return max(a, b)
        return Tile(self, _common(a, b), any(isinstance(x, Tile) and x.floating for x in (a, b)))

    def minimum(self, a: Any, b: Any, **_: Any) -> Any:
        return self.maximum(a, b) if isinstance(a, Tile) or isinstance(b, Tile) else min(a, b)

    def where(self, test: Any, a: Any, b: Any) -> Tile:
        data = any((isinstance(x, Tile) and x.floating) or isinstance(x, float) for x in (a, b))
        return Tile(self, _common(test, a, b), data)

    def astype(self, x: Any, dtype: Any) -> Any:
        return x.astype(dtype) if isinstance(x, Tile) else x

    def reshape(self, x: Tile, shape: tuple[int, ...]) -> Tile:
        return x.reshape(shape)

    def transpose(self, x: Tile, *axes: int) -> Tile:
        order = list(range(len(x.shape)))
        one, other = axes or (0, 1)
        order[one], order[other] = order[other], order[one]
        return x.permute(tuple(order))

    def permute(self, x: Tile, axes: tuple[int, ...]) -> Tile:
        return x.permute(axes)

    def broadcast_to(self, x: Tile, shape: tuple[int, ...]) -> Tile:
        return Tile(self, shape, x.floating)

    def expand_dims(self, x: Tile, axis: int) -> Tile:
        shape = list(x.shape)
        shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 1)
        return Tile(self, tuple(shape), x.floating)


def counted(
    source: str, kernel: str, given: Mapping[str, Any], *, ids: tuple[int, ...], blocks: tuple[int, ...] = (1, 1, 1)
) -> dict[str, int]:  # fmt: skip
    """FLOPs, those of products, bytes read and written of the block `ids` of a kernel that is handed what `given` says."""
    language = Language(ids, blocks)
    tree = ast.parse(source)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    constants = [
        n for n in tree.body if isinstance(n, ast.Assign) and not any(isinstance(c, ast.Dict) for c in ast.walk(n))
    ]
    space: dict[str, Any] = {
        "ct": language, "math": math, "max": language.maximum, "min": language.minimum, "RMd": language.RoundingMode,
        "PAD_ZERO": 0,
    }  # fmt: skip
    for function in functions:
        function.decorator_list, function.returns = [], None
        for argument in (*function.args.args, *function.args.kwonlyargs):
            argument.annotation = None
    for node in (*constants, *functions):
        try:
            made = compile(ast.fix_missing_locations(ast.Module([node], [])), kernel, "exec", dont_inherit=True)
            exec(made, space)
        except (NameError, AttributeError, TypeError):  # a constant of the host
            continue
    run: Callable[..., Any] = space[kernel]
    run(**given)
    return {"flops": 0, "matmul": 0, "read": 0, "write": 0, **language.counted}
