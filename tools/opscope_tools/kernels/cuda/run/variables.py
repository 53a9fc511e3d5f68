"""Variables in the abstract run of a CUDA kernel: declarations, what is known of each, and what is forgotten.

Where a number is no formula the variable's own name stands for it, and `Record.variables` says what that is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping as Mapping_
from dataclasses import replace
from typing import Any

from opscope_tools.kernels.cuda.names.scope import with_size
from opscope_tools.kernels.cuda.names.values import Type, Value, computed, lane_step, pointer, told
from opscope_tools.kernels.cuda.run.calls import Calls
from opscope_tools.kernels.cuda.run.expressions import number
from opscope_tools.kernels.cuda.run.instructions import instructions_named
from opscope_tools.kernels.cuda.source_text import squeeze
from opscope_tools.kernels.cuda.syntax.nodes import (
    Alias,
    Assembly,
    Assign,
    Binary,
    Braced,
    Call,
    Declare,
    Index,
    Lambda,
    Member,
    Name,
    Node,
    Number,
    TypeName,
    Unary,
    children,
    spelled,
    within,
    written,
)
from opscope_tools.kernels.host.worlds import Sym, leaf, product, render
from opscope_tools.kernels.run.events import Allocation, Instruction, Mapping
from opscope_tools.kernels.run.log import Size

#: sizes that their own spelling tells
_CONSTANT = re.compile(r"k[A-Z]\w*|[A-Z][A-Z0-9_]{2,}|\w+::k[A-Z]\w*")
_TILE = re.compile(r"k(?:Block|Head|Tile)\w*|\w*(?:TILE|BLOCK)\w*")
_INDICES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})


class Variables(Calls):
    """The variables of one function."""

    #: where pointers that local arrays hold lead to
    spaces: dict[str, str]
    #: the statement that is run
    statement_node: Node
    #: numbers that are made of the indices of thread and block
    indices: set[str]

    def declare(self, node: Declare) -> None:
        self.instructions_of_type(node)
        kind = element = self.scope.type_of(node.type)
        for _ in range(node.pointers):
            kind = element = pointer(kind)
        space = ""
        lengths: list[Value | None] = []
        for dimension in reversed(node.dimensions):
            length = self.value(dimension) if dimension is not None else None
            kind = with_size(kind, length.number if length is not None else None)
            lengths.insert(0, length)
        shared = "__shared__" in node.type.words
        if shared:
            self._allocated(node, element, lengths)
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
                if kind.kind in {"object", "unknown"}:
                    made = replace(made, origin=tuple(dict.fromkeys(o for v in values for o in v.origin)))
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
            self.maps(node, node.name, node.value, made)
        self.named_value(node, made)

    # what is put down ----------------------------------------------------------------------------------------

    def instructions(self, node: Node, text: str) -> None:
        if "_" not in text and "." not in text and "gemm" not in text and "::" not in text and "atomic" not in text:
            return
        for name in instructions_named(text):
            self.record.met(Instruction(**self.at(node), operation=name, text=self._statement()))

    def instructions_of_type(self, node: Declare | Alias) -> None:
        if node.type is not None and node.type.arguments:
            self.instructions(node, f"{node.type.name}<{', '.join(node.type.arguments)}>")
        elif node.type is not None:
            self.instructions(node, node.type.name)

    def _statement(self) -> str:
        """The statement that is run, on one line; of assembly with its text."""
        node = self.statement_node
        if isinstance(node, Assembly):
            source = self.scope.function.code.source.original[node.position : node.end]
            return squeeze(re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.DOTALL))[:240]
        return spelled(node)[:240]

    def _allocated(self, node: Declare, element: Type, lengths: list[Value | None]) -> None:
        """An array, or a variable, in shared memory."""
        dynamic = "extern" in node.type.words
        numbers = [
            self._of_the_kernel(d, v.number) for d, v in zip(node.dimensions, lengths, strict=True) if d is not None and v is not None
        ]  # fmt: skip
        written = [spelled(d).replace("/", "//") for d in node.dimensions if d is not None]
        shown = [w if n is None else render(n) for n, w in zip(numbers, written, strict=True)]
        total: int | None = None
        if not dynamic and element.size.isdigit() and all(isinstance(n, int) for n in numbers):
            total = int(element.size)
            for number in numbers:
                total *= number
        untold = f"sizeof({node.name})" if node.type.name == "?" else f"sizeof({type_text(node.type)})"
        formula = "given at the launch" if dynamic else product([*shown, element.size or untold])
        self.record.met(
            Allocation(
                **self.at(node), name=node.name, space="shared", type=type_text(node.type) + "*" * node.pointers,
                dimensions=tuple(shown), bytes=total, formula=formula, dynamic=dynamic, text=spelled(node),
            )
        )  # fmt: skip
        for dimension in node.dimensions:
            if dimension is not None:
                self.measures(dimension, within(dimension), spelled(node))

    def _of_the_kernel(self, node: Node, found: Any) -> Any:
        """A number in which the template parameters of the kernel keep their names, whatever launches give them."""
        if not any(isinstance(one, Name) and one.text in self.scope.compile_time for one in within(node)):
            return found
        match node:
            case Name(text=text) if text in self.scope.compile_time:
                return Sym(text, leaf=True)
            case Binary(operator=operator, left=left, right=right):
                numbers = (self._of_the_kernel(side, self.value(side).number) for side in (left, right))
                return computed(operator, *numbers)
        return None

    def measures(self, node: Node, parts: Iterable[Node], use: str) -> None:
        """Put down the compile-time names that measure a tile."""
        for one in parts:
            name = _constant_name(one)
            if name in self.scope.compile_time or _CONSTANT.fullmatch(name):
                self._measure(name, self.line(node), use, one)

    def _measure(self, name: str, line: int, use: str, node: Node) -> None:
        if self.via:
            return
        found = number(node.text) if isinstance(node, Number) else self.scope.find(name) or self.scope.constant(name)
        shown = "" if found.number is None else render(found.number).strip("{}")
        self.record.sizes.setdefault(name, Size({}, shown if shown != name else "")).uses.setdefault(use[:160], line)

    def maps(self, node: Node, name: str, value: Node, made: Value) -> None:
        """Put down a line that makes an index of those of thread and block."""
        parts = list(within(value))
        asked = ids_in(parts)
        used = {one.text for one in parts if isinstance(one, Name)}
        if not asked and not (used & self.indices and is_arithmetic(value)):
            return
        if made.type.kind != "pointer":
            self.indices.add(name)
        text = spelled(value)
        self.record.met(Mapping(**self.at(node), axis=", ".join(asked), variable=name, text=text))
        if any(axis.startswith("blockIdx") for axis in asked) or used & self.indices:
            factors = [
                side for one in parts if isinstance(one, Binary) and one.operator == "*" for side in (one.left, one.right)
            ]  # fmt: skip
            self.measures(node, factors, f"{name} = {text}")

    def used_in_place(self, node: Node, axis: str) -> None:
        self.record.met(Mapping(**self.at(node), axis=axis, variable="", text=self._statement()))

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
        made = replace(made, root="", where="", literal=False, definition=self._defined(node))
        if "constexpr" in node.type.words and _TILE.fullmatch(node.name):
            self.scope.declare(node.name, made)
            self._measure(node.name, self.line(node), spelled(node), node)
        whole = made.type.kind in {"int", "unknown"} and made.number is None and not made.test
        if whole and node.value is not None:
            made = replace(made, number=self.own_name(node, made.varies))
        self.scope.declare(node.name, made)

    def _defined(self, node: Node) -> str:
        return f"{spelled(node)[:240]} ({self.scope.function.file}:{self.line(node)})"

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
        value = replace(value, root="", where="", literal=False, definition=old.definition)
        if old.type.kind == "pointer" and not old.space and not old.origin:
            value = replace(value, definition=self._defined(self.statement_node))
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

    def forget(self, names: Iterable[str], why: str, even: Mapping_[str, Any] | None = None) -> None:
        """What is changed in a loop or on one side of a branch has no one value; `even`: steps that stay what they are."""
        for name in names:
            old = self.scope.find(name)
            if old is None or old.where:
                continue
            varies, step = old.varies | {why}, told((even or {}).get(name))
            if old.type.kind in {"int", "unknown"}:
                self.scope.change(
                    name, replace(old, number=leaf(name), digits=(), offset=None, test=(), varies=varies, step=step)
                )
                self.record.counters.add(name)
            elif old.type.kind in {"pointer"}:
                self.scope.change(name, replace(old, varies=varies, number=None, step=step))

    def even(self, names: Iterable[str], parts: Iterable[Node | None], *, kept: bool = False) -> dict[str, Any]:
        """The steps of those names that parts of a loop change by amounts which all threads have alike.

        `kept`: of those whose value the parts do not change at all, as a pointer that is stored through.
        """
        changed = set(names)
        nodes = [
            one for part in parts if part is not None for one in within(part)
            if isinstance(one, Assign | Call | Assembly) or (isinstance(one, Unary) and one.operator in {"++", "--", "&"})
        ]  # fmt: skip
        found: dict[str, Any] = {}
        for name in changed:
            old = self.scope.find(name)
            if old is None or old.type.kind not in {"int", "unknown", "pointer"}:
                continue
            if kept and any(_sets(one, name) for one in nodes):
                continue
            if all(self._evenly(one, name, changed) for one in nodes):
                found[name] = lane_step(old)
        return found

    def _evenly(self, node: Node, name: str, changed: set[str]) -> bool:
        """Whether a node leaves a variable, or changes it by what is alike in all threads."""
        if isinstance(node, Assign):
            if not isinstance(node.target, Name):  # through a pointer, or a field of an object
                return not (isinstance(node.target, Member) and _starts_from(node.target, name))
            if node.target.text != name:
                return True
            amount: Node | None = node.value if node.operator in {"+=", "-="} else None
            if node.operator == "=" and isinstance(node.value, Binary) and node.value.operator in {"+", "-"}:
                amount = (
                    node.value.right if isinstance(node.value.left, Name) and node.value.left.text == name else None
                )
            return amount is not None and self._alike(amount, changed)
        if isinstance(node, Unary) and node.operator == "&":
            return not _starts_from(node.operand, name)
        if isinstance(node, Call | Assembly):
            given = self.changed_by(node) if isinstance(node, Call) else node.arguments
            return not any(_starts_from(one, name) for one in given)
        return True

    def _alike(self, node: Node, changed: set[str]) -> bool:
        """Whether an expression has one value in all threads, in every turn of a loop that changes some names."""
        for one in within(node):
            if isinstance(one, Call | Index | Lambda | Assign | Braced) or (
                isinstance(one, Unary) and one.operator == "*"
            ):
                return False
            if isinstance(one, Name):
                found = self.scope.find(one.text)
                if one.text == "threadIdx" or one.text in changed or (found is not None and lane_step(found) != 0):
                    return False
        return True


def _constant_name(node: Node) -> str:
    """The name that a node is written as: its own, or that of the macro which stands for a number."""
    if isinstance(node, Name):
        return node.text
    if isinstance(node, Number) and node.tokens is not None:
        return node.tokens[0][node.tokens[1]].written or ""
    return ""


def _sets(node: Node, name: str) -> bool:
    """Whether a node gives a variable another value."""
    target = node.target if isinstance(node, Assign) else None
    if isinstance(node, Unary) and node.operator in {"++", "--"}:
        target = node.operand
    return isinstance(target, Name) and target.text == name


def _starts_from(node: Node, name: str) -> bool:
    """Whether what is written to belongs to a variable."""
    at: Node | None = node
    while at is not None and not isinstance(at, Name):
        at = next(iter(children(at)), None)
    return at is not None and at.text == name


def type_text(kind: TypeName) -> str:
    """A type without its qualifiers."""
    return kind.name + (f"<{', '.join(kind.arguments)}>" if kind.arguments else "") if kind.name != "?" else "union"


def ids_in(parts: Iterable[Node]) -> list[str]:
    """The indices of thread and block, and their sizes, that the nodes of an expression ask for."""
    found: dict[str, None] = {}
    for one in parts:
        if isinstance(one, Member) and isinstance(one.base, Name) and one.base.text in _INDICES:
            found.setdefault(f"{one.base.text}.{one.name}")
        elif isinstance(one, Member) and isinstance(one.base, Call) and isinstance(one.base.function, Member):
            group = {"thread_index": "threadIdx", "group_index": "blockIdx"}.get(one.base.function.name)
            if group is not None:
                found.setdefault(f"{group}.{one.name}")
        elif isinstance(one, Call) and isinstance(one.function, Member) and one.function.name == "thread_rank":
            found.setdefault("thread_rank()")
        elif isinstance(one, Name) and one.text in {"cluster_ctarank", "get_group_id", "get_global_id"}:
            found.setdefault(one.text)
    return list(found)


def is_arithmetic(node: Node) -> bool:
    """Index arithmetic: no access, no call but minima and maxima."""
    for one in within(node):
        if isinstance(one, Index | Lambda | Braced) or (isinstance(one, Unary) and one.operator in {"*", "&"}):
            return False
        if isinstance(one, Call) and not (
            isinstance(one.function, Name) and one.function.text.rpartition("::")[2] in {"min", "max", "__umulhi"}
        ):
            return False
    return True
