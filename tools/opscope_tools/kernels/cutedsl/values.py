"""Values of CuTe-DSL programs as reading knows them: objects of the source's classes, tensors by where they lie, tiled atoms."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from opscope_tools.kernels.host.worlds import Function, ImportRef
from opscope_tools.kernels.run.events import Space
from opscope_tools.kernels.values.conditions import negated
from opscope_tools.kernels.values.expressions import Choice, Expression, Opaque, Operation, leaf, render
from opscope_tools.kernels.values.layouts import Layout

#: bits of an element, by the type's name in `cutlass`
BITS = {
    "Float64": 64, "Int64": 64, "Uint64": 64, "Float32": 32, "TFloat32": 32, "Int32": 32, "Uint32": 32, "Float16": 16, "BFloat16": 16,
    "Int16": 16, "Uint16": 16, "Int8": 8, "Uint8": 8, "Boolean": 8, "Float8E4M3FN": 8, "Float8E4M3": 8, "Float8E5M2": 8,
    "Float8E8M0FNU": 8, "Float4E2M1FN": 4, "Int4": 4,
}  # fmt: skip


@dataclass(eq=False, repr=False)
class Class:
    """A class of the source, with the scope that it stands in."""

    node: ast.ClassDef
    scope: Any
    #: of a `@cute.struct`: what its annotations were when it was made
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def is_struct(self) -> bool:
        """Whether it lays out memory."""
        return any(ast.unparse(d).rpartition(".")[2] == "struct" for d in self.node.decorator_list)

    @property
    def is_dataclass(self) -> bool:
        """Whether its annotations are the parameters of its constructor."""
        return any(re.search(r"\bdataclass\b", ast.unparse(d)) for d in self.node.decorator_list)

    def __repr__(self) -> str:
        return self.node.name


@dataclass(frozen=True, eq=False, repr=False)
class Range:
    """`MemRange[type, count]` of a struct."""

    dtype: Any
    count: Any

    def __repr__(self) -> str:
        return f"MemRange[{render(self.dtype)}, {render(self.count)}]"


@dataclass(eq=False, repr=False)
class Instance:
    """An object of such a class."""

    of: Class
    values: dict[str, Any] = field(default_factory=dict)
    #: whether it is the kernel's own object
    own: bool = False

    def attribute(self, name: str) -> str:
        """How formulas call an attribute: of the kernel's own object as its source does."""
        return f"{'self' if self.own else self.of}.{name}"

    def __repr__(self) -> str:
        return f"a {self.of.node.name}"


@dataclass(eq=False, repr=False)
class Method:
    """A function of a class, bound to an object."""

    function: Function
    owner: Class
    instance: Instance

    def __repr__(self) -> str:
        return self.function.node.name if not isinstance(self.function.node, ast.Lambda) else "lambda"


@dataclass(eq=False, repr=False)
class Partial:
    """`functools.partial`."""

    function: Any
    positional: list[Any]
    keywords: dict[str, Any]

    def __repr__(self) -> str:
        return f"partial({render(self.function)})"


@dataclass(frozen=True, eq=False, repr=False)
class Tensor:
    """A tensor, or a view of one: the parameter or allocation that it looks into, and where that lies."""

    root: str
    space: Space
    #: how formulas call it
    text: str
    #: elements along each mode; None: not known
    shape: tuple[Any, ...] | None = None
    dtype: Any = None

    def seen_as(self, text: str, shape: tuple[Any, ...] | None = None) -> Tensor:
        """A view of it."""
        return Tensor(self.root, self.space, text, shape, self.dtype)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False, repr=False)
class Pointer:
    """Where a tensor begins."""

    tensor: Tensor

    def __repr__(self) -> str:
        return f"{self.tensor.text}.iterator"


@dataclass(frozen=True, eq=False, repr=False)
class Tiled:
    """A tiled copy by so many threads; `layout`: of threads and values, where it is known."""

    text: str
    threads: Any
    layout: Layout | None = None

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False, repr=False)
class Threaded:
    """A layout of threads and values of which the threads alone are known."""

    text: str
    threads: Any

    def __repr__(self) -> str:
        return self.text


@dataclass(eq=False, repr=False)
class Storage:
    """What `@cute.struct` declares, laid into shared memory: its fields, each a tensor's place."""

    of: Class

    def __repr__(self) -> str:
        return self.of.node.name


class Allocator:
    """`SmemAllocator`: what it hands out lies in shared memory."""

    def __repr__(self) -> str:
        return "SmemAllocator()"


@dataclass(frozen=True, eq=False, repr=False)
class Either:
    """One of two values that are no sizes, by a test."""

    test: Any
    first: Any
    second: Any

    def __repr__(self) -> str:
        return f"({render(self.first)} if {render(self.test)} else {render(self.second)})"

    @property
    def present(self) -> Any:
        """What it is where it is not None, if that is one value: whoever uses it takes it not to be None."""
        sides = [one.present if isinstance(one, Either) else one for one in (self.first, self.second)]
        known = [one for one in sides if one is not None]
        return known[0] if len(known) == 1 and None in (self.first, self.second) else None


def is_size(value: Any) -> bool:
    """Whether a value is a number or a formula."""
    return isinstance(value, Expression | int | float | bool)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same for certain."""
    if one is other:
        return True
    if isinstance(one, ImportRef) and isinstance(other, ImportRef):
        return one.dotted == other.dotted
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Layout) or isinstance(other, Layout):
        return isinstance(one, Layout) and isinstance(other, Layout) and str(one) == str(other)
    return is_size(one) and is_size(other) and type(one) is type(other) and bool(one == other)


def chosen(test: Any, one: Any, other: Any, name: str) -> Any:
    """What a name holds behind a test: the one value where it holds, else the other; itself where that cannot be said."""
    if same(one, other):
        return one
    if is_size(one) and is_size(other):
        if isinstance(one, bool) and isinstance(other, bool):
            return test if one else opposite(test)
        return Choice(one, test, other)
    if type(one) is type(other) and isinstance(one, tuple | list) and len(one) == len(other):
        return type(one)(chosen(test, a, b, f"{name}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True)))
    if isinstance(one, Tensor) and isinstance(other, Tensor) and (one.root, one.space) == (other.root, other.space):
        return one.seen_as(name)
    if isinstance(one, Instance) and isinstance(other, Instance) and one.of.node is other.of.node:
        held = one.values.keys() & other.values.keys()
        return Instance(
            one.of, {key: chosen(test, one.values[key], other.values[key], f"{name}.{key}") for key in held}
        )
    return Either(test, one, other)


def is_none(value: Any) -> Any:
    """Whether a value is None: a truth, or the test that says so."""
    if value is None:
        return True
    if isinstance(value, Either):
        one, other = is_none(value.first), is_none(value.second)
        if isinstance(one, bool) and isinstance(other, bool):
            return one if one == other else value.test if one else opposite(value.test)
        if isinstance(one, bool):
            return Operation("or", value.test, other) if one else Operation("and", opposite(value.test), other)
        if isinstance(other, bool):
            return Operation("or", opposite(value.test), one) if other else Operation("and", value.test, one)
        return leaf(f"{render(value)} is None")
    return Operation("is", value, Opaque("None")) if isinstance(value, Expression) else False


def opposite(test: Any) -> Any:
    """What holds where a test does not."""
    return not test if isinstance(test, bool) else Opaque(negated(render(test)))


__all__ = [
    "BITS", "Allocator", "Class", "Either", "Instance", "Method", "Partial", "Pointer", "Range", "Storage", "Tensor", "Threaded", "Tiled", "chosen",
    "is_none", "is_size", "opposite", "same",
]  # fmt: skip
