"""What the abstract run of a CUDA kernel puts down: events on their way, FLOPs and bytes with their lines, what is assumed
and what is missing.

`read` is where an access costs: a place in memory becomes a value. Every access is listed and counted here, in one step.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

from opscope_schemas.formula import Formula

from opscope_tools.kernels.cuda.names.scope import Scope
from opscope_tools.kernels.cuda.names.values import UNTOLD, Type, Value, lane_step
from opscope_tools.kernels.cuda.run.decisions import Guards
from opscope_tools.kernels.cuda.syntax.nodes import (
    Call,
    Cast,
    Index,
    Member,
    Name,
    Node,
    Number,
    Unary,
    spelled,
    within,
)
from opscope_tools.kernels.host.worlds import render
from opscope_tools.kernels.run.events import Access, Part, Space, Unknown
from opscope_tools.kernels.run.log import EVERY, FLOPS, MEMORY, Entry, Lost, Record
from opscope_tools.kernels.values.notation import Counts
from opscope_tools.kernels.values.threads import Threads

_DATA = frozenset({"data"})
_SPACES: dict[str, Space] = {"global": "global", "shared": "shared", "constant": "constant"}


class Account:
    """The record, as one function writes to it."""

    def __init__(self, record: Record, scope: Scope, block: dict[str, Any], file: str, via: str) -> None:
        self.record, self.scope, self.block_sizes, self.file, self.via = record, scope, block, file, via
        self.threads: Threads
        #: how often what is met runs in every thread
        self.times = Formula.const(1)
        self.guards = Guards(record)
        #: lines of the loops of this function that are open, and how many are around its call
        self.loops: list[int] = []
        self.loops_around = 0
        self._total: tuple[Threads | None, Formula, int] = (None, self.times, 0)

    def line(self, node: Node) -> int:
        return self.scope.function.code.source.line(node.position)

    def at(self, node: Node) -> dict[str, Any]:
        """Where an event is, and on which way."""
        return {
            "file": self.file, "line": self.line(node), "node": node.position, "via": self.via,
            "path": self.record.path, "loop": self.loops[-1] if self.loops else 0,
        }  # fmt: skip

    def total(self) -> int:
        """How often what is met runs in the block, as its place in the record."""
        threads, times, total = self._total
        if threads is not self.threads or times is not self.times:
            total = self.record.place(self.threads.total(self.record.counts) * self.times)
            for text in self.threads.assumed:
                self.record.assumptions.setdefault(text + ".")
            self._total = self.threads, self.times, total
        return total

    def put(
        self, node: Node, operation: str, flops: int = 0, *, product: Fraction = Fraction(0), read: str = "", written: str = ""
    ) -> None:  # fmt: skip
        """FLOPs and bytes of one execution."""
        if flops or product or read or written:
            loops = self.loops_around + len(self.loops)
            entry = Entry(
                self.file, self.line(node), self.via, operation, self.total(), flops, product, read, written, loops
            )
            self.record.entries[entry] += 1

    def missing(self, what: str, node: Node, loses: frozenset[Part] = EVERY, through: str = "") -> None:
        """Say that something is not counted; `through`: how an access that may hide in it is spelled."""
        where = f"{self.file}:" if self.file else "line "
        lost = Lost(loses, self.loops_around + len(self.loops))
        self.record.not_counted.setdefault(f"{what} ({where}{self.line(node)})", lost)
        self.record.met(Unknown(**self.at(node), what=through, reason=what, loses=loses))

    def condition(self, text: str, node: Node) -> None:
        """Say what is taken for granted."""
        where = f"{self.file}:" if self.file else "line "
        self.record.conditions.setdefault(f"{text} ({where}{self.line(node)})")

    def read(self, found: Value, node: Node, operation: str = "load", written: Node | None = None) -> Value:
        """A place as a value; `written`: the address, where that is not the node."""
        if found.type.kind == "array" or not found.where:
            return found
        if found.where == "unknown":
            shown = self.shown(node)
            self.missing(f"the access through `{shown}`", node, MEMORY, shown)
        else:
            self.access(node, found, "load", operation, written=written)
        step = 0 if lane_step(found) == 0 else UNTOLD
        return replace(
            found,
            where="",
            varies=found.varies | _DATA,
            digits=(),
            number=found.number if found.root else None,
            step=step,
        )

    def access(
        self, node: Node, found: Value, what: Literal["load", "store", "atomic", "copy"], operation: str = "",
        moved: tuple[str, str] | None = None, written: Node | None = None,
    ) -> None:  # fmt: skip
        """An access, listed and counted; `moved`: bytes read and written where they are not those of its type."""
        size = found.type.size
        self._list(node, found, what, operation or what, written or node)
        if found.where != "global":
            return
        if moved is None and not size:
            self.missing(f"the {what} of `{self.shown(node)}`, of a size that is not told", node, MEMORY)
            return
        reads, writes = moved or ("" if what == "store" else size, "" if what in {"load", "copy"} else size)
        self.put(node, "load" if what == "copy" else what, read=reads, written=writes)

    def _list(
        self, node: Node, found: Value, what: Literal["load", "store", "atomic", "copy"], operation: str, written: Node
    ) -> None:
        if found.where not in _SPACES:
            return
        size = found.type.size
        step = _elements(lane_step(found), found.type, self.record.counts)
        self.record.met(
            Access(
                **self.at(node), what=what, operation=operation, space=_SPACES[found.where], roots=found.origin, element_bytes=size,
                text=spelled(written) or self.shown(written), steps=(step,) if step else (), width=int(size) if size.isdigit() else None,
                definition=self._definition(written), assumes=found.assumed,
            )
        )  # fmt: skip

    def _definition(self, node: Node) -> str:
        """How the variable from which an address starts was set."""
        for one in within(node):
            if isinstance(one, Name) and (found := self.scope.find(one.text)) is not None:
                if found.type.kind in {"pointer", "array", "object"}:
                    return found.definition
            elif isinstance(one, Name) and (declared := self.scope.constant(one.text)).type.kind == "array":
                return declared.definition
        return ""

    def shown(self, node: Node) -> str:
        """An expression as a reader recognises it."""
        match node:
            case Name(text=text) | Number(text=text):
                return text
            case Index(base=base):
                return f"{self.shown(base)}[...]"
            case Member(base=base, name=name, arrow=arrow):
                return f"{self.shown(base)}{'->' if arrow else '.'}{name}"
            case Call(function=function):
                return f"{self.shown(function)}(...)"
            case Unary(operator=operator, operand=operand):
                return f"{operator}{self.shown(operand)}"
            case Cast(operand=operand):
                return self.shown(operand)
        return "..."


def _elements(step: object, kind: Type, counts: Counts) -> str:
    """A step in bytes as one in elements of a type; '' where it is not told or no whole number of them."""
    if step is None or not kind.size:
        return ""
    if isinstance(step, int) and kind.size.isdigit():
        size = int(kind.size)
        return str(step // size) if size and step % size == 0 else ""
    found, unit = counts.read(render(step)), counts.read(kind.size)
    if len(unit.terms) != 1:
        return ""
    ((names, size_),) = unit.terms.items()
    made: dict[Any, Fraction] = {}
    for monomial, coefficient in found.terms.items():
        left = dict(monomial)
        for name, power in names:
            if left.get(name, 0) < power:
                return ""
            left[name] -= power
        made[tuple((n, p) for n, p in left.items() if p)] = Fraction(coefficient) / size_
    if any(c.denominator != 1 for c in made.values()):
        return ""
    text = counts.show(Formula(made))
    return "" if UNTOLD in text else text.replace("{", "").replace("}", "")


__all__ = ["EVERY", "FLOPS", "MEMORY", "Account"]
