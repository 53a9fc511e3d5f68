"""Variables in the abstract run of a CUDA kernel: declarations, what is known of each, and what is forgotten.

Where a number is no formula the variable's own name stands for it, and `Record.variables` says what that is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from opscope_tools.kernels.cuda_calls import Calls
from opscope_tools.kernels.cuda_nodes import Braced, Declare, Lambda, Node, written
from opscope_tools.kernels.cuda_scopes import with_size
from opscope_tools.kernels.cuda_values import Type, Value, pointer
from opscope_tools.kernels.symbols import leaf


class Variables(Calls):
    """The variables of one function."""

    #: where pointers that local arrays hold lead to
    spaces: dict[str, str]

    def declare(self, node: Declare) -> None:
        kind = self.scope.type_of(node.type)
        for _ in range(node.pointers):
            kind = pointer(kind)
        space = ""
        for dimension in reversed(node.dimensions):
            length = self.value(dimension) if dimension is not None else None
            kind = with_size(kind, length.number if length is not None else None)
        shared = "__shared__" in node.type.words
        if shared:
            space = "shared" if kind.kind != "pointer" else ""
            self.scope.declare(node.name, Value(kind, space=space, where="" if kind.kind == "array" else "shared"))
            return
        if kind.kind == "array":
            if isinstance(node.value, Braced):
                self.items(node.value)
            self.scope.declare(node.name, Value(kind, space="local"))
            return
        if node.value is None and node.arguments:
            values = [self.value(a) for a in node.arguments]
            if kind.struct is not None:
                made = self.built(kind, values)
            else:
                made = self.converted(values[0], kind) if len(values) == 1 else Value(kind)
        elif node.value is None:
            made = Value(kind)
        elif node.reference or (node.type.name == "auto" and isinstance(node.value, Lambda)):
            made = self.place(node.value)
            if kind.kind != "unknown" and made.type.kind == "unknown":
                made = replace(made, type=kind)
            self.scope.declare(node.name, replace(made, root=""))
            return
        else:
            made = self.initial(node, kind)
        self.named_value(node, made)

    def items(self, node: Braced) -> None:
        for item in node.items:
            if isinstance(item, Braced):
                self.items(item)
            else:
                self.value(item)

    def initial(self, node: Declare, kind: Type) -> Value:
        assert node.value is not None
        if isinstance(node.value, Braced) and node.value.type is None and kind.struct is not None:
            return self.built(kind, [self.value(i) for i in node.value.items])
        if isinstance(node.value, Braced) and node.value.type is None:
            self.items(node.value)
            single = self.value(node.value.items[0]) if len(node.value.items) == 1 and kind.kind == "int" else None
            return self.converted(single, kind) if single is not None else Value(kind)
        found = self.value(node.value)
        if node.type.name == "auto":
            if found.type.kind == "array" and found.type.of is not None:
                found = replace(found, type=pointer(found.type.of))
            elif node.pointers and found.type.kind == "pointer":
                return found
            return found
        return self.converted(found, kind)

    def named_value(self, node: Declare, made: Value) -> None:
        """Declare a variable: where its number is no formula, its own name stands for it."""
        made = replace(made, root="", where="", literal=False)
        whole = made.type.kind in {"int", "unknown"} and made.number is None and not made.test
        if whole and node.value is not None:
            made = replace(made, number=self.own_name(node, made.varies))
        self.scope.declare(node.name, made)

    def own_name(self, node: Declare, varies: frozenset[str]) -> Any:
        """The name of a variable as a quantity of formulas; of several variables of a name, with its line."""
        line = f"{self.file}:{self.line(node)}" if self.file else f"line {self.line(node)}"
        name = node.name if self.record.quantities.setdefault(node.name, line) == line else f"{node.name} of {line}"
        if varies & {"thread", "loop"}:
            self.record.counters.add(name)
        else:
            self.record.variables.setdefault(name, f"{node.name} ({line}), the same in every thread of a block")
            if varies & {"block", "data"}:
                self.record.of_blocks.add(name)
        return leaf(name)

    def bind(self, name: str, value: Value) -> None:
        old = self.scope.find(name)
        if old is None:
            return
        if old.where:  # a reference into memory, or a shared variable: it stays what it is
            return
        value = replace(value, root="", where="", literal=False)
        if old.type.kind == "pointer" and old.space and value.space and old.space != value.space:
            value = replace(value, space="")
        self.scope.change(name, replace(value, type=old.type if old.type.kind != "unknown" else value.type))

    def set_part(self, root: str, name: str, value: Value) -> None:
        old = self.scope.find(root)
        if old is not None and old.type.kind == "object" and old.type.struct is not None and not old.where:
            known = old.type.fields.get(name)
            if known is not None and known.kind == "pointer":
                self.scope.change(root, replace(old, parts={**old.parts, name: replace(value, type=known)}))
            else:  # set again and again: no one value
                self.scope.change(root, replace(old, parts={n: v for n, v in old.parts.items() if n != name}))

    def record_space(self, root: str) -> str:
        return self.spaces.get(root, "")

    def keep_space(self, root: str, space: str) -> None:
        self.spaces[root] = space if self.spaces.get(root, space) == space else ""

    def writes(self, node: Node) -> frozenset[str]:
        """Names that a statement may change."""
        return written(node, self.changed_by, self.library.writes[0])

    def counts_only(self, node: Node) -> frozenset[str]:
        """Names that a statement changes, calls of functions that are not known left out: none changes a counter."""
        return written(node, lambda call: self.changed_by(call) if self.known(call) else (), self.library.writes[1])

    def forget(self, names: Iterable[str], why: str) -> None:
        """What is changed in a loop or on one side of a branch has no one value."""
        for name in names:
            old = self.scope.find(name)
            if old is None or old.where:
                continue
            if old.type.kind in {"int", "unknown"}:
                varies = old.varies | {why}
                self.scope.change(name, replace(old, number=leaf(name), digits=(), offset=None, test=(), varies=varies))
                self.record.counters.add(name)
            elif old.type.kind in {"pointer"}:
                self.scope.change(name, replace(old, varies=old.varies | {why}, number=None))
