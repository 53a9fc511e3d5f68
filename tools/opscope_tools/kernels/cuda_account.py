"""What the abstract run of a CUDA kernel puts down: FLOPs and bytes with their lines, what is assumed and what is missing.

`read` is where an access costs: a place in global memory becomes a value.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.kernels.cuda_guards import Guards
from opscope_tools.kernels.cuda_nodes import Call, Cast, Index, Member, Name, Node, Number, Unary
from opscope_tools.kernels.cuda_record import Entry, Record
from opscope_tools.kernels.cuda_scopes import Scope
from opscope_tools.kernels.cuda_threads import Threads
from opscope_tools.kernels.cuda_values import (
    Value,
)  # fmt: skip

_DATA = frozenset({"data"})


class Account:
    """The record, as one function writes to it."""

    def __init__(self, record: Record, scope: Scope, block: dict[str, Any], file: str, via: str) -> None:
        self.record, self.scope, self.block_sizes, self.file, self.via = record, scope, block, file, via
        self.threads: Threads
        #: how often what is met runs in every thread
        self.times = Formula.const(1)
        self.guards = Guards(record)
        self._total: tuple[Threads | None, Formula, int] = (None, self.times, 0)

    def line(self, node: Node) -> int:
        return self.scope.function.code.source.line(node.position)

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
            entry = Entry(self.file, self.line(node), self.via, operation, self.total(), flops, product, read, written)
            self.record.entries[entry] += 1

    def missing(self, what: str, node: Node) -> None:
        """Say that something is not counted."""
        where = f"{self.file}:" if self.file else "line "
        self.record.not_counted.setdefault(f"{what} ({where}{self.line(node)})")

    def condition(self, text: str, node: Node) -> None:
        """Say what is taken for granted."""
        where = f"{self.file}:" if self.file else "line "
        self.record.conditions.setdefault(f"{text} ({where}{self.line(node)})")

    def read(self, found: Value, node: Node) -> Value:
        """A place as a value."""
        if found.type.kind == "array" or not found.where:
            return found
        if found.where == "unknown":
            self.missing(f"the access through `{self.shown(node)}`", node)
        elif found.where == "global":
            self.access(node, found, "load")
        return replace(
            found, where="", varies=found.varies | _DATA, digits=(), number=found.number if found.root else None
        )

    def access(self, node: Node, found: Value, operation: str) -> None:
        size = found.type.size
        if not size:
            self.missing(f"the {operation} of `{self.shown(node)}`, of a size that is not told", node)
        elif operation == "load":
            self.put(node, "load", read=size)
        else:
            self.put(node, "store", written=size)

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
