"""Tiles of a Triton kernel as its source writes them: the shape of a value, the pointer behind it, its steps along each axis.

`Value` is what the abstract run (run.py) computes with; the functions are the algebra of shapes and steps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from opscope_tools.kernels.values.expressions import (
    ARITHMETIC,
    COMPARISONS,
    SYMBOLS,
    Size,
    call,
    combine,
    operand,
    render,
)  # fmt: skip
from opscope_tools.kernels.values.notation import of_run

Shape = tuple[Size, ...]
#: elements that an offset steps along each axis; None: not a step that reading tells
Steps = tuple[Size | None, ...]


@dataclass(frozen=True)
class Value:
    """A tile, scalar, pointer or tuple; `shape` None: not known."""

    shape: Shape | None = ()
    #: of a scalar, where it is told
    number: Size | None = None
    #: it holds data that a kernel computes with, not an index
    data: bool = False
    #: loads that it was computed from
    sources: frozenset[int] = frozenset()
    #: parameters that it is or that are added in it: an address starts from one of them, the likeliest is first
    roots: tuple[str, ...] = ()
    strides: Steps = ()
    #: the parameter of the kernel that it is, unchanged
    name: str = ""
    #: it is told by the id of the program, and by nothing that is loaded
    ids: bool = False
    items: tuple[Value, ...] | None = None
    #: a block pointer or descriptor: loads through it have `shape` and `strides`
    block: bool = False
    constant: Any = None
    known: bool = False
    #: the load that it is as it came, transposed at most; -1: none
    loaded: int = -1
    #: it is what a matrix product gave that was handed no accumulator: adding it to one belongs to the product
    product: bool = False
    #: the kernel has filled it, or products have gone into it and nothing else since but a factor
    accumulator: bool = False
    #: bytes of what it points to, where a cast says so
    element: str = ""


def literal(value: Any, shown: Size | None = None) -> Value:
    """A constant, and how formulas show it."""
    return Value(number=operand(value) if shown is None else shown, constant=value, known=True)


def texts(sizes: Steps) -> tuple[str, ...]:
    """Sizes as events write them, '' for what is not told."""
    return tuple("" if size is None else render(size) for size in sizes)


def sources_of(values: Iterable[Value]) -> frozenset[int]:
    """The loads that any of the values was computed from."""
    return frozenset().union(*(v.sources for v in values))


def padded(value: Value) -> Steps:
    """The steps along each axis, None where they are not known."""
    assert value.shape is not None
    return value.strides if len(value.strides) == len(value.shape) else (None,) * len(value.shape)


def broadcast(values: Iterable[Value]) -> Shape | None:
    """The common shape; a size of 1 gives way."""
    result: list[Size] = []
    for value in values:
        if value.shape is None:
            return None
        sizes = list(value.shape)
        while len(result) < len(sizes):
            result.insert(0, 1)
        for back, size in enumerate(reversed(sizes), 1):
            if result[-back] == 1:
                result[-back] = size
    return tuple(result)


def combined(op: ast.operator, a: Value, b: Value, shape: Shape) -> Steps:
    """How an offset computed from two steps along each axis."""
    found: list[Size | None] = []
    for back in range(len(shape), 0, -1):
        left, right = (along(v, back) for v in (a, b))
        made: Size | None = 0 if left == right == 0 else None
        if isinstance(op, ast.Add | ast.Sub):
            made = computed(op, left, right)
        elif isinstance(op, ast.Mult) and made is None:
            if right == 0 and b.shape is not None and all(s == 1 for s in b.shape):
                made = computed(op, left, b.number)
            elif left == 0 and a.shape is not None and all(s == 1 for s in a.shape):
                made = computed(op, a.number, right)
        elif isinstance(op, ast.Mod) and (left == 0 or of_run(b.number)):
            made = left  # but for where it wraps around: far apart where the divisor is no constant
        found.append(made)
    return tuple(found)


def along(value: Value, back: int) -> Size | None:
    """The step along the axis that is `back` from the last."""
    if value.shape is None:
        return None
    if back > len(value.shape) or value.shape[-back] == 1:
        return 0
    return padded(value)[-back]


def computed(op: ast.operator, a: Size | None, b: Size | None) -> Size | None:
    """What an operator makes of two scalars; None where one is not told."""
    if a is None or b is None:
        return None
    plain = folded(op, a, b) if isinstance(a, int) and isinstance(b, int) else None
    return combine(SYMBOLS[type(op)], a, b) if plain is None else plain


def called(name: str, *values: Value) -> Size | None:
    """A function of scalars; None where one is not told."""
    numbers = [v.number for v in values]
    return None if None in numbers else call(name, *numbers)


def permuted(found: Value, order: list[Any] | None) -> Value:
    """The axes in another order, reversed where none is given."""
    if found.shape is None:
        return found
    places = list(range(len(found.shape)))[::-1] if order is None else order
    if sorted(places, key=str) != list(range(len(found.shape))):
        return replace(found, shape=None)
    steps = padded(found)
    return replace(
        found, shape=tuple(found.shape[i] for i in places), strides=tuple(steps[i] for i in places), number=None
    )


def folded(op: ast.operator, x: int, y: int) -> int | None:
    """The whole number that an operator makes of two; None where it makes none."""
    whole = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.FloorDiv, ast.Mod)
    if not isinstance(op, whole) or (isinstance(op, ast.FloorDiv | ast.Mod) and y == 0):
        return None
    return int(ARITHMETIC[SYMBOLS[type(op)]](x, y))


def compare(op: ast.cmpop, left: Any, right: Any) -> bool | None:
    """The comparison of two constants; None where they do not compare."""
    try:
        return bool(COMPARISONS[SYMBOLS[type(op)]](left, right))
    except TypeError:
        return None
