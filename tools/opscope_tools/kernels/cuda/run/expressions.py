"""Expressions in the abstract run of a CUDA kernel: what each comes to, and the FLOPs and bytes of computing it.

`value` is an expression as it is used, `place` one that may be written to or have its address taken. Reading global
memory costs where a place becomes a value. Calls are in calls.py, statements in statements.py.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from opscope_tools.kernels.cuda.names.values import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    UNKNOWN,
    UNTOLD,
    Type,
    Value,
    arithmetic,
    computed,
    lane_step,
    named_type,
    pointer,
    thread_index,
    told,
    whole,
)  # fmt: skip
from opscope_tools.kernels.cuda.run.accesses import FLOPS, MEMORY, Account
from opscope_tools.kernels.cuda.run.decisions import Decision
from opscope_tools.kernels.cuda.syntax.nodes import (
    Assign,
    Binary,
    Braced,
    Call,
    Cast,
    Conditional,
    Index,
    Lambda,
    Member,
    Name,
    Node,
    Number,
    Sequence,
    SizeOf,
    Unary,
    spelled,
)
from opscope_tools.kernels.host.worlds import COMPARISON, Sym, leaf, negated, render
from opscope_tools.kernels.run.log import Apart
from opscope_tools.kernels.run.paths import Status

_COMPARES = frozenset({"<", "<=", ">", ">=", "==", "!="})
_DATA = frozenset({"data"})
#: what reading through a pointer into a memory reads
_WHERE = {"global": "global", "local": "", "shared": "shared", "constant": "constant", "parameter": ""}


class Expressions(Account, ABC):
    """The expressions of one function."""

    # what is put down --------------------------------------------------------------------------------------------

    # values ------------------------------------------------------------------------------------------------------

    def value(self, node: Node) -> Value:
        """What an expression comes to, its costs put down."""
        return self.read(self.place(node), node)

    def place(self, node: Node) -> Value:
        """What an expression stands for; reading it is not yet put down."""
        self.record.step()
        match node:
            case Name():
                return self.named(node)
            case Number():
                return number(node.text)
            case Binary():
                return self.binary(node)
            case Call():
                return self.call(node)
            case Index():
                return self.indexed(node)
            case Member():
                return self.member(node)
            case Assign():
                return self.assign(node)
            case Unary():
                return self.unary(node)
            case Cast():
                return self.cast(node)
            case Conditional():
                return self.conditional(node)
            case Braced():
                return self.braced(node)
            case Sequence(parts=parts):
                return [self.value(p) for p in parts][-1]
            case SizeOf(text=text):
                return self.size_of(text)
            case Lambda():
                return Value(UNKNOWN, function=(node, self))
        return Value(UNKNOWN, varies=_DATA)

    def named(self, node: Name) -> Value:
        for block in reversed(self.scope.blocks):
            if node.text in block:
                found = block[node.text]
                if found.root != node.text:
                    found = block[node.text] = replace(found, root=node.text)
                return found
        return self.scope.constant(node.text if node.arguments is None else f"{node.text}<{', '.join(node.arguments)}>")  # fmt: skip

    def size_of(self, text: str) -> Value:
        kind = self.scope.read_type(text)
        if kind is None and (found := self.scope.find(text.strip())) is not None:
            kind = found.type
        if kind is None or not kind.size:
            return whole(None, LONG)
        return whole(int(kind.size) if kind.size.isdigit() else Sym(kind.size, leaf=True), LONG)

    def member(self, node: Member) -> Value:
        if isinstance(node.base, Name) and self.scope.find(node.base.text) is None:
            built = self.built_in(node, node.base.text, node.name)
            if built is not None:
                return built
        base = self.value(node.base) if node.arrow else self.place(node.base)
        if node.name in base.parts and not node.arrow:
            return replace(base.parts[node.name], root=base.root)
        of = base.type.of if node.arrow and base.type.kind == "pointer" else base.type
        where = (base.space or "unknown") if node.arrow else base.where
        where = "" if where in {"local", "shared"} else where
        kind = UNKNOWN
        if of is not None:
            kind = of.fields.get(node.name) or (
                of.of if of.kind == "vector" and node.name in {"x", "y"} and of.of else UNKNOWN
            )
        if kind is UNKNOWN and not where:  # of a parameter: not told, but the same in every thread
            given = base.space == "global" and not base.varies
            number = leaf(self.shown(node)) if given else None
            varies = base.varies | (frozenset() if given else _DATA)
            return Value(kind, number, varies=varies, root=base.root, origin=base.origin)
        space = base.space if kind.kind != "pointer" or where == "" else "global"
        number = (
            leaf(self.shown(node))
            if base.space == "global" and not where and not base.varies and kind.kind == "int"
            else None
        )
        if kind.kind == "array":  # of a parameter: it lies beside the kernel's other parameters
            space = where or ("parameter" if base.space == "global" else base.space)
        known = where or base.space == "global"  # the fields of what threads make need not be alike
        return Value(
            kind,
            number,
            varies=base.varies | (_DATA if where else frozenset()),
            space=space,
            where=where,
            root=base.root,
            step=told(lane_step(base)) if known else UNTOLD,
            origin=base.origin,
        )

    def built_in(self, node: Member, name: str, axis: str) -> Value | None:
        """`threadIdx.x` and its like."""
        known = name in {"threadIdx", "blockDim", "blockIdx", "gridDim"} and axis in {"x", "y", "z"}
        return self.index_of(node, name, axis) if known else None

    def index_of(self, node: Node, name: str, axis: str) -> Value:
        """An index of thread or block along an axis, or how many there are."""
        if name == "threadIdx":
            lanes = next((a for a in "xyz" if self.block_sizes[a] != 1), "x")
            return thread_index(axis, self.block_sizes[axis], lanes)
        if name == "blockDim":
            return whole(self.block_sizes[axis])
        if name == "blockIdx":
            self.record.of_blocks.add(f"blockIdx.{axis}")
            self.used_in_place(node, f"blockIdx.{axis}")
            return whole(leaf(f"blockIdx.{axis}"), INT, frozenset({"block"}))
        return whole(leaf(f"gridDim.{axis}"))

    def indexed(self, node: Index) -> Value:
        base, index = self.value(node.base), self.value(node.index)
        varies = base.varies | index.varies
        if base.type.kind not in {"pointer", "array"} or base.type.of is None:
            if base.type.kind in {"vector", "object"} and base.space != "global" and base.type.of is not None:
                return Value(base.type.of, varies=varies, root=base.root, step=UNTOLD)
            known = base.type.kind in {"int", "float"}
            where = "" if known else "unknown"
            return Value(UNKNOWN, varies=varies | _DATA, where=where, root=base.root, origin=base.origin)
        return self.pointed(base, varies, moved(base, "+", index))

    def pointed(self, base: Value, varies: frozenset[str], step: Any) -> Value:
        """What a pointer or array leads to; `step`: how far the next lane's lies from it, in bytes."""
        kind = base.type.of or UNKNOWN
        where = _WHERE.get(base.space, "unknown")
        if base.type.kind == "array" and not base.space:
            where = ""
        inner = base.space if kind.kind == "array" else ""
        if kind.kind == "pointer":  # where a pointer in memory leads to: what the host hands over is global
            inner = "global" if base.space in {"global", "parameter"} else base.held or self.record_space(base.root)
        more = _DATA if where in {"global", "shared"} else frozenset[str]()
        return Value(
            kind, varies=varies | more, space=inner, where=where if kind.kind != "array" else "", root=base.root,
            step=told(step) if where or kind.kind == "array" or (base.space == "parameter" and step == 0) else UNTOLD, origin=base.origin, assumed=base.assumed,
        )  # fmt: skip

    @abstractmethod
    def on(self, node: Node, test: str, holds: bool, status: Status) -> AbstractContextManager[None]:
        """What is met meanwhile is met where the test went so."""

    @abstractmethod
    def maps(self, node: Node, name: str, value: Node, made: Value) -> None:
        """Put down that a variable is made of the indices of thread and block, where it is."""

    @abstractmethod
    def used_in_place(self, node: Node, axis: str) -> None:
        """Put down that a statement asks for the index of the block."""

    @abstractmethod
    def record_space(self, root: str) -> str:
        """The memory that pointers in a local array lead to."""

    # operators ---------------------------------------------------------------------------------------------------

    def unary(self, node: Unary) -> Value:
        if node.operator == "&":
            found = self.place(node.operand)
            if found.type.kind == "array" and found.where == "":
                return replace(found, type=pointer(found.type), where="")
            held = found.type.kind in {"pointer", "array"} and not found.where  # a variable, not what it leads to
            space = "local" if held else found.where or found.space or "local"
            return Value(
                pointer(found.type),
                varies=found.varies - _DATA,
                space=space if space != "unknown" else "",
                root=found.root,
                step=told(lane_step(found)) if found.where else 0,
                held=found.space if held and found.type.kind == "pointer" else "",
                origin=() if held else found.origin,
            )
        if node.operator in {"++", "--"}:
            return self.step(node)
        found = self.value(node.operand)
        match node.operator:
            case "*":
                if found.type.kind not in {"pointer", "array"}:
                    return Value(UNKNOWN, varies=found.varies | _DATA, where="unknown")
                return self.pointed(found, found.varies, lane_step(found))
            case "!":
                return Value(
                    BOOL,
                    int(not found.number) if isinstance(found.number, int) else None,
                    varies=found.varies,
                    test=("not", found),
                )
            case "-":
                if found.type.arithmetic:
                    if not found.literal:
                        self.put(node, "arithmetic", found.type.lanes)
                    return Value(found.type, varies=found.varies, literal=found.literal)
                if found.type.kind == "unknown":
                    self.missing(f"`{self.shown(node)}`, of a type that is not told", node, FLOPS)
                return replace(arithmetic("-", whole(0), found, found.type), literal=found.literal)
            case "~":
                return Value(found.type, ~found.number if isinstance(found.number, int) else None, varies=found.varies)
        return found

    def step(self, node: Unary) -> Value:
        """`++` and `--`."""
        place = self.place(node.operand)
        old = self.read(place, node.operand)
        if old.type.arithmetic:
            self.put(node, "arithmetic", old.type.lanes)
        if place.where:
            self.access(node.operand, place, "store", f"store {node.operator}")
        new = arithmetic(node.operator[0], old, whole(1), old.type) if old.type.kind == "int" else old
        if isinstance(node.operand, Name):
            self.bind(node.operand.text, replace(new, space=old.space))
        return old if node.postfix else new

    def binary(self, node: Binary) -> Value:
        if node.operator in {"&&", "||"}:
            return self.joined(node)
        a, b = self.value(node.left), self.value(node.right)
        return self.operate(node, node.operator, a, b)

    def operate(self, node: Node, operator: str, a: Value, b: Value) -> Value:
        """An operator on two values."""
        varies = a.varies | b.varies
        if operator in _COMPARES:
            made = computed(operator, a.number, b.number) if a.type.kind != "pointer" else None
            return Value(BOOL, made if isinstance(made, int) else None, varies=varies, test=(operator, a, b))
        kinds = {a.type.kind, b.type.kind}
        if kinds & {"pointer", "array"}:
            base = a if a.type.kind in {"pointer", "array"} else b
            if kinds <= {"pointer", "array"}:
                return Value(LONG, varies=varies)
            kind = base.type if base.type.kind == "pointer" else pointer(base.type.of or UNKNOWN)
            step = told(moved(base, operator, b if base is a else a))
            return replace(base, type=kind, varies=varies, number=None, digits=(), literal=False, step=step)
        if a.type.arithmetic or b.type.arithmetic:
            return self.floating(node, operator, a, b)
        if kinds == {"int"}:
            wide = a.type if int(a.type.size or 4) >= int(b.type.size or 4) else b.type
            return arithmetic(operator, a, b, wide if int(wide.size or 4) > 4 else INT)
        if operator in {"%", "<<", ">>", "&", "|", "^"} and "object" not in kinds:
            return replace(arithmetic(operator, a, b, INT), digits=(), offset=None)
        if kinds <= {"int", "unknown"} and not (a.varies | b.varies) & _DATA:  # of sizes and indices
            return replace(arithmetic(operator, a, b, UNKNOWN), type=UNKNOWN)
        self.missing(f"`{operator}` of {a.type.name or b.type.name or 'a type that is not told'}", node, FLOPS)
        return Value(a.type if a.type.kind == "object" else UNKNOWN, varies=varies)

    def floating(self, node: Node, operator: str, a: Value, b: Value) -> Value:
        varies, literal = a.varies | b.varies, a.literal and b.literal
        if {a.type.kind, b.type.kind} & {"unknown", "object"}:
            other = a if a.type.kind in {"unknown", "object"} else b
            self.missing(f"`{operator}` of {other.type.name or 'a type that is not told'}", node, FLOPS)
            return Value(UNKNOWN, varies=varies)
        kind = _wider(a.type, b.type)
        if not literal:
            self.put(node, "arithmetic", kind.lanes)
        if kind.kind == "generic":
            self.record.assumptions.setdefault(f"{kind.name} is a floating-point type: its arithmetic counts.")
        return Value(kind, varies=varies, literal=literal)

    def joined(self, node: Binary) -> Value:
        """`&&` and `||`: the right side is looked at where the left one leaves it open."""
        a = self.value(node.left)
        decision = self.decide(a)
        holds = node.operator == "&&"
        if decision.outcome is (not holds):
            return Value(BOOL, int(not holds), varies=a.varies, test=a.test)
        kept, threads = self.record.aside(), self.threads
        left = decision.yes if holds else decision.no
        if decision.outcome == "threads" and left is not None:
            self.threads = left
        with self.on(node, spelled(node.left), holds, _status(decision, holds)):
            b = self.value(node.right)
        self.threads = threads
        apart = self.record.back(kept)
        open_ = decision.outcome == "open" or (decision.outcome == "threads" and left is None)
        if open_ and not apart.nothing:
            self.missing("what stands behind `&&` or `||` of a test that data decides", node, apart.parts)
        else:
            self.record.add(apart)
        number = None
        if isinstance(a.number, int) and isinstance(b.number, int):
            number = int(bool(a.number) and bool(b.number)) if holds else int(bool(a.number) or bool(b.number))
        elif isinstance(a.number, int):
            number = b.number
        return Value(BOOL, number, varies=a.varies | b.varies, test=("and" if holds else "or", a, b))

    def conditional(self, node: Conditional) -> Value:
        test = self.value(node.test)
        decision = self.decide(test)
        if decision.outcome in {True, False} and not decision.assumed:
            return self.value(node.first if decision.outcome else node.second)
        threads, made = self.threads, list[tuple[Value, Apart]]()
        for part, left in ((node.first, decision.yes), (node.second, decision.no)):
            kept, first_ = self.record.aside(), part is node.first
            self.threads = left if decision.outcome == "threads" and left is not None else threads
            with self.on(node, node.text, first_, _status(decision, first_)):
                made.append((self.value(part), self.record.back(kept)))
        self.threads = threads
        (first, one), (second, other) = made
        if decision.outcome == "threads" and decision.yes is not None and decision.no is not None:
            self.record.add(one)
            self.record.add(other)
        elif one.same(other):
            self.record.add(one)
        elif decision.outcome in {True, False}:
            self.rely(decision, node, node.text)
            self.record.add(one if decision.outcome else other)
            return first if decision.outcome else second
        else:
            self.missing(f"what `{node.text}` chooses", node, one.parts | other.parts)
        kind = _wider(first.type, second.type) if first.type.arithmetic or second.type.arithmetic else first.type
        kind = second.type if kind.kind == "unknown" or (first.literal and first.type.kind == "int") else kind
        number = self.chosen(test, first, second)
        space = (
            first.space
            if first.space == second.space or second.number == 0
            else second.space
            if first.number == 0
            else ""
        )
        steps = (lane_step(first), lane_step(second))
        return Value(
            kind, number, varies=test.varies | first.varies | second.varies, space=space,
            step=told(steps[0]) if steps[0] == steps[1] and lane_step(test) == 0 else UNTOLD,
            origin=tuple(dict.fromkeys((*first.origin, *second.origin))),
        )  # fmt: skip

    def chosen(self, test: Value, first: Value, second: Value) -> Any:
        """The formula of a conditional between two whole numbers."""
        if first.number is None or second.number is None or len(test.test) != 3 or test.test[0] not in _COMPARES:
            return None
        a, b = test.test[1].number, test.test[2].number
        if a is None or b is None or test.varies & {"thread", "loop"}:
            return None
        asked = f"{render(a, COMPARISON + 1)} {test.test[0]} {render(b, COMPARISON + 1)}"
        return Sym(f"({render(first.number)} if {asked} else {render(second.number)})")

    def decide(self, test: Value) -> Decision:
        return self.guards.decide(test, self.threads)

    def rely(self, decision: Decision, node: Node, text: str) -> None:
        """Put down what a decision takes for granted; `text` is the test as written."""
        if decision.conditions and len(text) <= 120 and isinstance(decision.outcome, bool):
            plain = re.sub(r"^! ?(?=[\w.]+$)", "not ", text)
            self.condition(
                plain if decision.outcome else plain[4:] if plain.startswith("not ") else negated(plain), node
            )
            return
        for one in decision.conditions:
            self.condition(one, node)

    # casts and assignments ---------------------------------------------------------------------------------------

    def cast(self, node: Cast) -> Value:
        kind = self.scope.type_of(node.type)
        if node.type.reference and kind.kind != "unknown":
            return replace(self.place(node.operand), type=kind)
        found = self.value(node.operand)
        return self.converted(found, kind)

    def converted(self, found: Value, kind: Type) -> Value:
        """A value as one of another type."""
        if kind.kind == "unknown" or kind is found.type:
            return found
        if kind.kind == "pointer":
            space = found.space if found.type.kind in {"pointer", "array"} or found.origin else ""
            return replace(found, type=kind, space=space, number=found.number if found.number == 0 else None, where="")
        if kind.kind == "int" and found.type.kind in {"int", "unknown"} and kind.name != "bool":
            return replace(found, type=kind)
        if kind.name == "bool":
            return replace(found, type=BOOL)
        made = Value(kind, varies=found.varies, literal=found.literal and kind.kind == "float")
        return replace(made, origin=found.origin, space=found.space) if kind.kind == "object" else made

    def braced(self, node: Braced) -> Value:
        values = [self.value(item) for item in node.items]
        varies = frozenset[str]().union(*(v.varies for v in values))
        kind = self.scope.type_of(node.type) if node.type is not None else UNKNOWN
        if len(values) == 1 and kind.kind in {"int", "float", "unknown"}:
            return self.converted(values[0], kind)
        return Value(kind, varies=varies)

    def assign(self, node: Assign) -> Value:
        compound = node.operator[:-1]
        new = self.value(node.value)
        target = self.place(node.target)
        if compound:
            new = self.operate(node, compound, self.read(target, node.target), new)
        elif target.type.kind == "object" and new.type.kind in {"int", "float"} and not target.type.fields:
            self.missing(f"`=` of {target.type.name}", node, FLOPS)
        if target.where == "unknown":
            self.missing(f"the store through `{self.shown(node.target)}`", node, MEMORY, self.shown(node.target))
        elif target.where:
            self.access(node.target, target, "store", f"store {node.operator}" if compound else "store")
        made = self.converted(new, target.type)
        if isinstance(node.target, Name):
            if not compound:
                self.maps(node, node.target.text, node.value, made)
            self.bind(node.target.text, made)
        elif isinstance(node.target, Member) and target.root and not target.where:
            self.set_part(target.root, node.target.name, replace(made, where="", root=""))
        elif target.root and new.type.kind in {"pointer", "array"} and not target.where:
            self.keep_space(target.root, made.space)
        return replace(made, where="", root="")

    @abstractmethod
    def keep_space(self, root: str, space: str) -> None:
        """Put down where a pointer that is stored in a local array leads to."""

    @abstractmethod
    def set_part(self, root: str, name: str, value: Value) -> None:
        """Put down what a field of a variable is set to."""

    @abstractmethod
    def bind(self, name: str, value: Value) -> None:
        """Give a variable a value."""

    @abstractmethod
    def call(self, node: Call) -> Value:
        """A call."""


def _status(decision: Decision, holds: bool) -> Status:
    """What a decision makes of a side."""
    if decision.outcome == "threads":
        return "some"
    if decision.outcome == "open":
        return "open"
    if not decision.assumed:
        return "taken"
    return "assumed" if decision.outcome is holds else "other"


def moved(base: Value, operator: str, by: Value) -> Any:
    """The step in bytes of an address that a number is added to; None where it is not told."""
    start, step = lane_step(base), lane_step(by)
    if start is None or step is None:
        return None
    if step == 0:
        return start
    kind = base.type.of or UNKNOWN
    size = kind.size or f"sizeof({UNTOLD}{kind.name})"
    return computed(operator, start, computed("*", step, int(size) if size.isdigit() else Sym(size, leaf=True)))


def number(text: str) -> Value:
    """A literal."""
    plain = text.replace("'", "")
    if re.fullmatch(r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uUlL]*", plain):
        digits = plain.rstrip("uUlL")
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        kind = LONG if "l" in plain.lower() and "x" not in plain.lower() else INT
        return replace(
            whole(
                int(digits, 8) if octal and not set(digits) & {"8", "9"} else int(digits, 0) if not octal else None,
                kind,
            ),
            literal=True,
        )
    return Value(FLOAT if plain[-1:] in {"f", "F"} else DOUBLE, literal=True)


def _wider(a: Type, b: Type) -> Type:
    """The type of arithmetic on two."""
    for kind in ("vector", "generic"):
        for one in (a, b):
            if one.kind == kind:
                return one if kind == "vector" or (b if one is a else a).kind != "float" else (b if one is a else a)
    if a.kind != "float":
        return b
    if b.kind != "float":
        return a
    return a if int(a.size or 4) >= int(b.size or 4) else b


__all__ = ["Expressions", "named_type", "number"]
