"""What the abstract run of a CuTe-DSL kernel meets beside values: copies, products, allocations and barriers, put down as events."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opscope_tools.kernels.cutedsl import library
from opscope_tools.kernels.cutedsl.definitions import Marked
from opscope_tools.kernels.cutedsl.values import (
    Allocator,
    Class,
    Either,
    Pointer,
    Range,
    Storage,
    Tensor,
    Threaded,
    Tiled,
    chosen,
)  # fmt: skip
from opscope_tools.kernels.host.evaluate import Scope
from opscope_tools.kernels.host.interpreter import LocalScope
from opscope_tools.kernels.host.modules import Modules, PyModule
from opscope_tools.kernels.run.events import Access, Allocation, Event, Instruction, Loop, Unknown
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.run.paths import Path, Step
from opscope_tools.kernels.values.expressions import Expression, Quantity, leaf, render
from opscope_tools.kernels.values.layouts import Layout

#: functions that copy from their first tensor to their second, and how many arguments stand before
COPIES = {"copy": 1, "copy_atom_call": 1, "autovec_copy": 0, "basic_copy": 0, "basic_copy_if": 1}
#: words in names of `cute.arch` and `cute.nvgpu` that decide how a tile is computed
_INSTRUCTIONS = ("barrier", "mbar", "sync", "fence", "cp_async", "commit", "wait", "cluster", "wgmma", "warpgroup", "tcgen05", "elect", "tmem", "shuffle", "reduce", "setmaxregister")  # fmt: skip
#: methods of pipelines
_PIPELINE = {"producer_acquire", "producer_commit", "producer_tail", "consumer_wait", "consumer_release", "producer_try_acquire", "consumer_try_wait"}  # fmt: skip
#: methods of tensors, tiled copies and products that give a view of the tensor that they are handed
_PARTITIONS = {
    "partition_S",
    "partition_D",
    "partition_A",
    "partition_B",
    "partition_C",
    "retile",
    "retile_S",
    "retile_D",
    "partition_S_bulk",
}
#: characters up to which a call is shown
LONGEST = 160
#: columns that a line does not have
_STORED = 1000


@dataclass(frozen=True)
class Launched:
    """A launch as it was reached."""

    node: ast.Call
    kernel: ast.Call
    given: Mapping[str, Any]
    path: Path


@dataclass(frozen=True)
class Tile:
    """A tile that a line cuts from a tensor."""

    name: str
    shape: tuple[Any, ...]
    text: str
    line: int
    file: str


class Effects(ABC):
    """The state of a run, and what it puts down."""

    def __init__(self, modules: Modules, module: PyModule, one: Marked, log: Log) -> None:
        self.modules, self.source, self.one, self.log = modules, module, one, log
        self.launches: list[Launched] = []
        self.tiles: list[Tile] = []
        #: parameters of the class: (argument, annotation, default)
        self.settings: list[tuple[ast.arg, str, str]] = []
        #: parameters that were taken to be as their defaults say
        self.defaults: dict[str, str] = {}
        #: optional tensors that are taken to be given
        self.present: dict[str, None] = {}
        #: long formulas, by the names of the source that stand for them
        self.names: dict[str, str] = {}
        #: whether a turn of a loop is tried for what it changes
        self._dry = False
        #: whether names are bound to what a loop runs over
        self._plain = False
        #: types of elements, as asserts say that they are: those of tensors by how they are called
        self._types: dict[str, Any] = {}
        #: whether the kernel's own body was run
        self.entered = False
        self._inside = False
        self._path: Path = ()
        self._via: tuple[str, ...] = ()
        self._file = ""
        self._around = 0
        #: scopes of functions that are run, outermost first
        self._frames: list[LocalScope] = []
        #: names of parameters, which a formula's own names are none of; names that loops count by, with their lines
        self._parameters: set[str] = set()
        self._counters: dict[str, int] = {}

    @abstractmethod
    def eval(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression."""

    @abstractmethod
    def arguments(self, node: ast.Call, scope: Scope) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword values of a call."""

    @abstractmethod
    def _elements(self, nodes: Iterable[ast.expr], scope: Scope) -> list[Any]:
        """The values of expressions, those with a star opened."""

    def _each(self, value: Either, action: Callable[[Any], Any], name: str) -> Any:
        """What an action makes of one of two values: of the one that is there, or of each on its own path."""
        if value.present is not None:
            return action(value.present)
        if value.first is None or value.second is None:
            return action(value.second if value.first is None else value.first)
        made = []
        for side, holds in ((value.first, True), (value.second, False)):
            with self._taking(render(value.test), holds, 0):
                made.append(action(side))
        return chosen(value.test, made[0], made[1], name)

    @contextmanager
    def _taking(self, text: str, holds: bool, line: int) -> Iterator[None]:
        path, answers = self._path, self.log.answers
        self._path = (*path, Step(text, holds, "open", line))
        self.log.answers = answers.supposing(text, holds)
        try:
            yield
        finally:
            self._path, self.log.answers = path, answers

    # what the kernel does --------------------------------------------------------------------------------------------

    def _method_of(self, holder: Any, name: str, node: ast.Call, scope: Scope) -> tuple[Any] | None:
        """The value of a method that is known, in a tuple."""
        text = shortened(ast.unparse(node))
        if isinstance(holder, Either):
            return (
                self._each(holder, lambda one: (self._method_of(one, name, node, scope) or (leaf(text),))[0], text),
            )
        if isinstance(holder, Tensor | Pointer) and name in ("load", "store", "fill", "to"):
            self._elements(node.args, scope)
            tensor = holder.tensor if isinstance(holder, Pointer) else holder
            if name != "to":
                self._access("load" if name == "load" else "store", tensor, node, name)
            return (leaf(text),)
        if isinstance(holder, Tensor) and name == "get_tensor":  # a field of the storage, looked at through a layout
            layout = next((v for v in self._elements(node.args, scope)[:1] if isinstance(v, Layout)), None)
            return (
                holder.seen_as(
                    holder.text, layout.shape if layout is not None and isinstance(layout.shape, tuple) else None
                ),
            )
        if isinstance(holder, Tensor) and name == "data_ptr":
            return (Pointer(holder),)
        if isinstance(holder, Pointer) and name in ("align", "data_ptr"):
            return (holder,)
        if isinstance(holder, Allocator):
            return (self._allocated(name, node, scope),)
        if name in _PARTITIONS and isinstance(holder, Tiled | Quantity):
            given = next(iter(self._elements(node.args, scope)), None)
            if isinstance(given, Either):
                return (self._each(given, lambda one: _part(one, name, text), text),)
            return (_part(given, name, text),) if isinstance(given, Tensor) else None
        if name == "get_slice" and isinstance(holder, Tiled | Quantity):
            self._elements(node.args, scope)
            return (holder if isinstance(holder, Tiled) else Quantity(f"{holder.name}.get_slice", holder.run_time),)
        if name in _PIPELINE and self._inside:
            self._elements(node.args, scope)
            self._put(Instruction, node, operation=name, text=text)
            return (leaf(text),)
        if isinstance(holder, Quantity):
            given = [*self._elements(node.args, scope), *(self.eval(k.value, scope) for k in node.keywords)]
            if touches(given):
                self._unfollowed(node)
            shown = ", ".join(map(render, given))
            return (holder.with_text(shortened(f"{holder.name}.{name}({shown})")),)
        if isinstance(holder, Expression | Pointer | Threaded | Layout | Tiled):
            if touches(self._elements(node.args, scope)):
                self._unfollowed(node)
            return (leaf(text),)
        return None

    def _allocated(self, name: str, node: ast.Call, scope: Scope) -> Any:
        """What `SmemAllocator` hands out, by the name that it is bound to."""
        positional, keywords = self.arguments(node, scope)
        text = shortened(ast.unparse(node))
        if name == "allocate" and not (positional and isinstance(positional[0], Class)):
            self._unfollowed(node)
        elif name == "allocate":
            self._fields(positional[0])
            return Storage(positional[0])
        called = self._named(node)
        if name == "allocate_tensor":
            dtype, layout = [*positional, None, None][:2]
            dtype, layout = keywords.get("element_type", dtype), keywords.get("layout", layout)
            shape = layout.shape if isinstance(layout, Layout) else None
            self._allocation(node, text, dtype, layout.cosize if isinstance(layout, Layout) else None, shape, called)
            return Tensor(called, "shared", called, shape if isinstance(shape, tuple) else None, dtype)
        if name == "allocate_array":
            dtype, count = (
                keywords.get("element_type", positional[0] if positional else None),
                keywords.get("num_elems", positional[1] if len(positional) > 1 else 1),
            )
            sizes = (count,) if isinstance(count, Expression | int) else None
            self._allocation(node, text, dtype, count, sizes, called)
            return Pointer(Tensor(called, "shared", called, None, dtype))
        return leaf(text)

    def _named(self, node: ast.Call) -> str:
        """The variable that a call's value is bound to, else the call."""
        for module in (self.modules.load(self._file) if self._file else None, self.source):
            for each in ast.walk(module.tree) if module is not None else ():
                if isinstance(each, ast.Assign) and each.value is node and isinstance(each.targets[0], ast.Name):
                    return each.targets[0].id
        return shortened(ast.unparse(node))

    def _allocation(self, node: ast.AST, text: str, dtype: Any, elements: Any, shape: Any, name: str) -> None:
        size = library.bytes_of(dtype, elements) if elements is not None else None
        dimensions = tuple(map(render, shape)) if isinstance(shape, tuple) else ()
        self._put(
            Allocation, node, name=name, space="shared",
            type=render(dtype) if dtype is not None else "", dimensions=dimensions, bytes=size if type(size) is int else None,
            formula=render(size) if isinstance(size, Expression) else "", text=text,
        )  # fmt: skip

    def _fields(self, of: Class) -> None:
        """The fields of a `@cute.struct`: `MemRange[type, count]`, a struct within, or one element of a type."""
        for field in of.node.body:
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            made = of.fields.get(field.target.id)
            if isinstance(made, Class) and made.is_struct:
                self._fields(made)
                continue
            dtype, count = (made.dtype, made.count) if isinstance(made, Range) else (made, 1)
            known = count if isinstance(count, Expression | int) else None
            sizes = (known,) if known is not None else ()
            self._allocation(field, ast.unparse(field), dtype, known, sizes, field.target.id)

    def _met(self, last: str, positional: list[Any], keywords: Mapping[str, Any], node: ast.Call) -> None:
        """Put down what a call of the library does beside its value."""
        text = shortened(ast.unparse(node))
        if last in COPIES:
            tensors = positional[COPIES[last] :][:2]
            if len(tensors) < 2 or not all(map(_lies_somewhere, tensors)):
                self._lost(f"where `{text}` copies from and to", node)
            mask = render(keywords["pred"]) if keywords.get("pred") is not None else ""
            for what, tensor in zip(("load", "store"), tensors, strict=False):
                self._access(what, tensor, node, f"cute.{last}", mask)
        elif last in ("alloc_smem", "get_dyn_smem"):
            dtype, count = [*positional, None, None][:2]
            self._allocation(node, text, dtype, count if last == "alloc_smem" else None, None, self._named(node))
        elif last == "gemm":
            self._put(Instruction, node, operation="cute.gemm", text=text)
        elif (
            any(word in last for word in _INSTRUCTIONS)
            and not library.known(f"cute.{last}")
            and not last.startswith("make_")
        ):
            self._put(Instruction, node, operation=last, text=text)

    def _access(self, what: str, tensor: Any, node: ast.AST, operation: str, mask: str = "") -> None:
        """Note what is read or written; of one of two tensors each on its own path."""
        if isinstance(tensor, Either):
            self._each(tensor, lambda one: self._access(what, one, node, operation, mask), "")
        elif self._inside and isinstance(tensor, Tensor) and tensor.space in ("global", "shared"):
            self._put(
                Access, node, what=what, operation=operation, space=tensor.space, roots=(tensor.root,), text=shortened(tensor.text), shape=None,
                mask=mask,
            )  # fmt: skip

    # the log ---------------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return "" if self._file in ("", self.source.path) else self._file

    def _put(self, event: type[Event], node: ast.AST, **facts: Any) -> None:
        """Put down an event at a node; a copy stands twice, as what it reads and as what it writes."""
        place = getattr(node, "col_offset", 0) + (_STORED if facts.get("what") == "store" else 0)
        self.log.put(
            event(
                file=self._where,
                line=getattr(node, "lineno", 0),
                node=place,
                via=" > ".join(self._via),
                path=self._path,
                loop=0 if self._via or event is Loop else self._around,
                **facts,
            )
        )

    def _unfollowed(self, node: ast.Call) -> None:
        """Say that what a call does with tensors is not read."""
        if self._inside:
            self._lost(f"what `{shortened(ast.unparse(node))}` does", node)

    def _lost(self, what: str, node: ast.AST) -> None:
        self._put(Unknown, node, what=what)


def _part(tensor: Any, name: str, text: str) -> Any:
    return tensor.seen_as(f"{name}({tensor.text})") if isinstance(tensor, Tensor) else leaf(text)


def _lies_somewhere(tensor: Any) -> bool:
    """Whether it is known in which memory a tensor lies, or which of two it is."""
    if isinstance(tensor, Either):
        return all(one is None or _lies_somewhere(one) for one in (tensor.first, tensor.second))
    return isinstance(tensor, Tensor) and tensor.space != "unknown"


def touches(given: Iterable[Any]) -> bool:
    """Whether something of them lies in memory that loads and stores are listed of."""
    return any(
        (isinstance(one, Tensor) and one.space in ("global", "shared", "unknown")) or isinstance(one, Pointer)
        or (isinstance(one, tuple | list) and touches(one))
        or (isinstance(one, Either) and touches([one.first, one.second]))
        for one in given
    )  # fmt: skip


def shortened(text: str) -> str:
    """A text as far as it is shown."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


__all__ = ["COPIES", "LONGEST", "Effects", "Launched", "Tile", "shortened", "touches"]
