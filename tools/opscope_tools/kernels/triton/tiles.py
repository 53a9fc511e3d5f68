"""Tiles of a Triton kernel as its source writes them: the shape of a value, the pointer behind it, its steps along each axis.

`Value` is what the abstract run (run.py) computes with; the functions are the algebra of shapes and steps.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opscope_tools.kernels.values.expressions import ARITHMETIC, COMPARISONS, SYMBOLS, combine, render
from opscope_tools.kernels.values.notation import read_size

Shape = tuple[str, ...]


@dataclass(frozen=True)
class Value:
    """A tile, scalar, pointer or tuple; `shape` None: not known."""

    shape: Shape | None = ()
    #: formula, of a scalar
    text: str = ""
    #: it holds data that a kernel computes with, not an index
    data: bool = False
    #: loads that it was computed from
    sources: frozenset[int] = frozenset()
    #: parameters that it is or that are added in it: an address starts from one of them, the likeliest is first
    roots: tuple[str, ...] = ()
    #: elements that an offset steps along each axis; "": not a step that reading tells
    strides: Shape = ()
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
    #: it is what a matrix product gave, so that adding it to an accumulator belongs to the product
    product: bool = False
    #: bytes of what it points to, where a cast says so
    element: str = ""


def literal(value: Any, text: str = "") -> Value:
    """A constant, shown as `text` in formulas."""
    return Value(text=text or repr(value), constant=value, known=True)


def sources_of(values: Iterable[Value]) -> frozenset[int]:
    """The loads that any of the values was computed from."""
    return frozenset().union(*(v.sources for v in values))


def padded(value: Value) -> Shape:
    """The steps along each axis, '' where they are not known."""
    assert value.shape is not None
    return value.strides if len(value.strides) == len(value.shape) else ("",) * len(value.shape)


def broadcast(values: Iterable[Value]) -> Shape | None:
    """The common shape; a size of 1 gives way."""
    result: list[str] = []
    for value in values:
        if value.shape is None:
            return None
        sizes = list(value.shape)
        while len(result) < len(sizes):
            result.insert(0, "1")
        for back, size in enumerate(reversed(sizes), 1):
            if result[-back] == "1":
                result[-back] = size
    return tuple(result)


def combined(op: ast.operator, a: Value, b: Value, shape: Shape) -> Shape:
    """How an offset computed from two steps along each axis."""
    found = []
    for back in range(len(shape), 0, -1):
        left, right = (along(v, back) for v in (a, b))
        if isinstance(op, ast.Add | ast.Sub):
            found.append(
                "" if "" in (left, right)
                else left if right == "0" else right if left == "0" and isinstance(op, ast.Add)
                else combined_text(op, Value(text=left), Value(text=right))
            )  # fmt: skip
        elif isinstance(op, ast.Mult):
            if left == "0" and right == "0":
                found.append("0")
            elif right == "0" and b.shape is not None and all(s == "1" for s in b.shape) and (b.text or b.shape == ()):
                found.append(combined_text(op, Value(text=left), b) if left and b.text else "")
            elif left == "0" and a.shape is not None and all(s == "1" for s in a.shape):
                found.append(combined_text(op, a, Value(text=right)) if right and a.text else "")
            else:
                found.append("")
        elif isinstance(op, ast.Mod):
            # steps on, but for where it wraps around: far apart where the divisor is no constant
            found.append(left if "{" in b.text else "0" if left == "0" else "")
        else:
            found.append("0" if left == right == "0" else "")
    return tuple(found)


def along(value: Value, back: int) -> str:
    """The step along the axis that is `back` from the last."""
    if value.shape is None:
        return ""
    if back > len(value.shape) or value.shape[-back] == "1":
        return "0"
    return padded(value)[-back]


def combined_text(op: ast.operator, a: Value, b: Value) -> str:
    """The formula of two scalars; '' where one has none."""
    if not a.text or not b.text:
        return ""
    if re.fullmatch(r"-?\d+", a.text) and re.fullmatch(r"-?\d+", b.text):
        plain = folded(op, int(a.text), int(b.text))
        if plain is not None:
            return str(plain)
    if isinstance(op, ast.Add) and a.text == "0":
        return b.text
    if isinstance(op, ast.Add | ast.Sub) and b.text == "0":
        return a.text
    return render(combine(SYMBOLS[type(op)], read_size(a.text), read_size(b.text)))


def permuted(found: Value, order: list[Any] | None) -> Value:
    """The axes in another order, reversed where none is given."""
    if found.shape is None:
        return found
    places = list(range(len(found.shape)))[::-1] if order is None else order
    if sorted(places, key=str) != list(range(len(found.shape))):
        return replace(found, shape=None)
    steps = padded(found)
    return replace(found, shape=tuple(found.shape[i] for i in places), strides=tuple(steps[i] for i in places), text="")


def folded(op: ast.operator, x: int, y: int) -> int | None:
    """The whole number that an operator makes of two; None where it makes none."""
    whole = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.FloorDiv, ast.Mod)
    if not isinstance(op, whole) or (isinstance(op, ast.FloorDiv | ast.Mod) and y == 0):
        return None
    return int(ARITHMETIC[SYMBOLS[type(op)]](x, y))


def trip_count(bounds: list[str]) -> str:
    """How often a loop over `range(*bounds)` runs, its bounds being formulas that do not lie the wrong way round."""
    start, stop, step = ("0", bounds[0], "1") if len(bounds) == 1 else (*bounds, "1")[:3] if bounds else ("0", "?", "1")
    if step.startswith("-"):  # downwards: as many as upwards the other way
        start, stop, step = stop, start, step.removeprefix("-")
    span = stop if start == "0" else combined_text(ast.Sub(), Value(text=stop), Value(text=start))
    return span if step == "1" else f"cdiv({span}, {step})"


def turns(first: str, operator: ast.cmpop, bound: str, step: str) -> str:
    """How often a loop runs while something that starts at `first` and grows by `step` compares so to a bound; '' untold."""
    if isinstance(operator, ast.Gt | ast.GtE) and step.startswith("-"):
        first, bound, step = bound, first, step.removeprefix("-")
    elif not isinstance(operator, ast.Lt | ast.LtE) or step.startswith("-") or step == "0":
        return ""
    if isinstance(operator, ast.LtE | ast.GtE):  # as often as below one more
        bound = combined_text(ast.Add(), Value(text=bound), Value(text="1"))
    return trip_count([first, bound, step])


def at_least_none(trips: str, bounds: Sequence[str]) -> str:
    """A count of turns where the bounds may lie the wrong way round: such a loop runs no times."""
    if re.fullmatch(r"-?\d+", trips):
        return str(max(int(trips), 0))
    return f"max({trips}, 0)" if len(bounds) > 1 and bounds[0] != "0" else trips


def compare(op: ast.cmpop, left: Any, right: Any) -> bool | None:
    """The comparison of two constants; None where they do not compare."""
    try:
        return bool(COMPARISONS[SYMBOLS[type(op)]](left, right))
    except TypeError:
        return None
