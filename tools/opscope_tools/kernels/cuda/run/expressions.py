"""Expressions in the abstract run of a CUDA kernel: what each comes to, and the FLOPs and bytes of computing it.

`value` is an expression as it is used, `place` one that may be written to or have its address taken. Reading global
memory costs where a place becomes a value. Calls are in calls.py, statements in statements.py.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from struct import pack, unpack
from typing import Any

from opscope_tools.kernels.cuda.names.values import (
    BOOL,
    INT,
    LONG,
    SIZE,
    UNKNOWN,
    UNSIGNED,
    UNTOLD,
    Type,
    Value,
    arithmetic,
    computed,
    converted,
    lane_step,
    literal,
    may_wrap,
    ordered,
    pointer,
    thread_index,
    told,
    unsigned,
    usual,
    whole,
)  # fmt: skip
from opscope_tools.kernels.cuda.run.accesses import access, pointed, read, shown
from opscope_tools.kernels.cuda.run.decisions import OPEN, Decision, Guards
from opscope_tools.kernels.cuda.run.instructions import maps, used_in_place
from opscope_tools.kernels.cuda.run.state import Calls, State
from opscope_tools.kernels.cuda.run.variables import bind, keep_space, set_part
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
from opscope_tools.kernels.run.log import FLOPS, MEMORY, Sums
from opscope_tools.kernels.run.paths import Status
from opscope_tools.kernels.values.conditions import negated
from opscope_tools.kernels.values.expressions import COMPARISONS, TURNED, Choice, Operation, leaf
from opscope_tools.kernels.values.notation import read_size

_DATA = frozenset({"data"})
#: whole numbers below it are floating-point ones too
_EXACT = 1 << 20


class Expressions:
    """What expressions come to."""

    calls: Calls

    def __init__(self, guards: Guards) -> None:
        self.guards = guards

    def value(self, state: State, node: Node) -> Value:
        """What an expression comes to, its costs put down."""
        return read(state, self.place(state, node), node)

    def place(self, state: State, node: Node) -> Value:
        """What an expression stands for; reading it is not yet put down."""
        state.step()
        match node:
            case Name():
                return self.calls.tensors.read(state, node) or _named(state, node)
            case Number():
                return literal(node.text)
            case Binary():
                return self.binary(state, node)
            case Call():
                return self.calls.call(state, node)
            case Index():
                return self.indexed(state, node)
            case Member():
                return self.member(state, node)
            case Assign():
                return self.assign(state, node)
            case Unary():
                return self.unary(state, node)
            case Cast():
                return self.cast(state, node)
            case Conditional():
                return self.conditional(state, node)
            case Braced():
                return self.braced(state, node)
            case Sequence(parts=parts):
                return [self.value(state, p) for p in parts][-1]
            case SizeOf(text=text):
                return _size_of(state, text)
            case Lambda():
                return Value(UNKNOWN, function=(node, state))
        return Value(UNKNOWN, varies=_DATA)

    def member(self, state: State, node: Member) -> Value:
        """`a.b` and `a->b`, built-in indices (`threadIdx.x`) among them."""
        if isinstance(node.base, Name) and state.scope.find(node.base.text) is None:
            built = _built_in(state, node, node.base.text, node.name)
            if built is not None:
                return built
        base = self.value(state, node.base) if node.arrow else self.place(state, node.base)
        if node.name in base.parts and not node.arrow:
            return replace(base.parts[node.name], root=base.root)
        of = base.type.of if node.arrow and base.type.kind == "pointer" else base.type
        where = (base.space or "unknown") if node.arrow else base.where
        where = "" if where == "local" else where
        kind = UNKNOWN
        if of is not None:
            kind = of.fields.get(node.name) or (
                of.of if of.kind == "vector" and node.name in {"x", "y"} and of.of else UNKNOWN
            )
        if where == "shared" and kind.kind not in {"int", "float", "generic", "vector"}:
            where = ""  # naming a part that holds others reads none
        if kind is UNKNOWN and not where:  # of a parameter: not told, but the same in every thread
            given = base.space == "global" and not base.varies
            number = leaf(shown(node)) if given else None
            varies = base.varies | (frozenset() if given else _DATA)
            return Value(kind, number, varies=varies, root=base.root, origin=base.origin)
        space = base.space if kind.kind != "pointer" or where == "" else "global"
        number = (
            leaf(shown(node))
            if base.space == "global" and not where and not base.varies and kind.kind == "int"
            else None
        )
        if kind.kind == "array":  # of a parameter: it lies beside the kernel's other parameters
            space = where or ("parameter" if base.space == "global" else base.space)
        known = not where and base.space == "global"  # the fields of what threads make need not be alike
        return Value(
            kind,
            number,
            varies=base.varies | (frozenset() if known else _DATA),
            space=space,
            where=where,
            root=base.root,
            step=told(lane_step(base)) if known or where else UNTOLD,
            origin=base.origin,
        )

    def indexed(self, state: State, node: Index) -> Value:
        """The place `a[i]`, with the step between neighbouring lanes; nothing is read yet."""
        base = self.place(state, node.base)
        if base.type.struct is not None:
            return self.calls.of_object(state, node, base, "operator[]", [node.index], [self.place(state, node.index)])
        base, index = read(state, base, node.base), self.value(state, node.index)
        varies = base.varies | index.varies
        if base.type.kind not in {"pointer", "array"} or base.type.of is None:
            if base.type.kind in {"vector", "object"} and base.space != "global" and base.type.of is not None:
                return Value(base.type.of, varies=varies, root=base.root, step=UNTOLD)
            known = base.type.kind in {"int", "float"}
            where = "" if known else "unknown"
            return Value(UNKNOWN, varies=varies | _DATA, where=where, root=base.root, origin=base.origin)
        return pointed(state, base, varies, moved(base, "+", index))

    # operators ---------------------------------------------------------------------------------------------------

    def unary(self, state: State, node: Unary) -> Value:
        """A sign, `!`, `~`, `++`, `*` or `&`; arithmetic on floats is put down."""
        if node.operator == "&":
            found = self.place(state, node.operand)
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
            return self.step(state, node)
        found = self.value(state, node.operand)
        match node.operator:
            case "*":
                if found.type.kind not in {"pointer", "array"}:
                    return Value(UNKNOWN, varies=found.varies | _DATA, where="unknown")
                return pointed(state, found, found.varies, lane_step(found))
            case "!":
                return Value(
                    BOOL,
                    int(not found.number) if isinstance(found.number, int) else None,
                    varies=found.varies,
                    test=("not", found),
                    one_of_several=found.one_of_several,
                )
            case "-":
                if found.type.arithmetic:
                    if not found.literal:
                        state.put(node, "arithmetic", found.type.lanes)
                    return Value(found.type, varies=found.varies, literal=found.literal)
                if found.type.kind == "unknown":
                    state.missing(f"`{shown(node)}`, of a type that is not told", node, FLOPS)
                return replace(arithmetic("-", whole(0), found, found.type), literal=found.literal)
            case "~":
                return Value(found.type, ~found.number if isinstance(found.number, int) else None, varies=found.varies)
        return found

    def step(self, state: State, node: Unary) -> Value:
        """`++` and `--`."""
        place = self.place(state, node.operand)
        old = read(state, place, node.operand)
        if old.type.arithmetic:
            state.put(node, "arithmetic", old.type.lanes)
        if place.where:
            access(state, node.operand, place, "store", f"store {node.operator}")
        new = arithmetic(node.operator[0], old, whole(1), old.type) if old.type.kind == "int" else old
        if isinstance(node.operand, Name):
            bind(state, node.operand.text, replace(new, space=old.space))
        return old if node.postfix else new

    def binary(self, state: State, node: Binary) -> Value:
        """The value of `a + b` and the like; arithmetic on floats is put down."""
        if node.operator in {"&&", "||"}:
            return self.joined(state, node)
        a, b = self.value(state, node.left), self.value(state, node.right)
        if node.operator in COMPARISONS and {a.type.kind, b.type.kind} == {"int", "float"}:
            left = a.type.kind == "float"
            operator, bound = TURNED[node.operator] if left else node.operator, node.left if left else node.right
            if (made := _beside(state, node, operator, b if left else a, _written(bound))) is not None:
                return made
        return _operated(state, node, node.operator, a, b)

    def joined(self, state: State, node: Binary) -> Value:
        """`&&` and `||`: the right side is looked at where the left one leaves it open."""
        a = self.value(state, node.left)
        holds, known = node.operator == "&&", dict(state.log.answers.equal)
        decision = self.guards.decide(a, state.threads, holds, repeated=state.deep > 0)
        if decision.outcome is (not holds) and not decision.assumed:
            return Value(BOOL, int(not holds), varies=a.varies, test=a.test)
        threads, left = state.threads, decision.yes if holds else decision.no
        if decision.outcome == "threads" and left is not None:
            state.threads = left
        with state.log.apart() as apart, state.on(node, spelled(node.left), holds, _status(decision, holds)):
            b = self.value(state, node.right)
        state.threads = threads
        open_ = decision.outcome == "open" or (decision.outcome == "threads" and left is None)
        if open_:
            state.uncounted("what stands behind `&&` or `||` of a test that data decides", node, apart)
        elif decision.outcome is not (not holds):
            state.log.add(apart)
            if not apart.nothing:
                rely(state, decision, node.left, spelled(node.left))
        state.log.answers.equal = known  # whoever asks for all of it says what it takes for granted
        number = None
        if isinstance(a.number, int) and isinstance(b.number, int):
            number = int(bool(a.number) and bool(b.number)) if holds else int(bool(a.number) or bool(b.number))
        elif isinstance(a.number, int):
            number = b.number
        several = a.one_of_several or b.one_of_several
        test = ("and" if holds else "or", a, b)
        return Value(BOOL, number, varies=a.varies | b.varies, test=test, one_of_several=several)

    def conditional(self, state: State, node: Conditional) -> Value:
        """`a ? b : c`: both sides are run where the test is open, each for the threads that take it."""
        test = self.value(state, node.test)
        found = state.split(test)
        decision = OPEN if state.shares(test) else self.guards.decide(test, state.threads, repeated=state.deep > 0)
        if found is None and decision.outcome in {True, False} and not decision.assumed:
            return self.value(state, node.first if decision.outcome else node.second)
        threads, nest, made = state.threads, state.nest, list[tuple[Value, Sums]]()
        for part, left in ((node.first, decision.yes), (node.second, decision.no)):
            holds = part is node.first
            state.threads = left if decision.outcome == "threads" and left is not None else threads
            if found is not None:
                state.repeat((*nest[: found[0]], found[1] if holds else found[2], *nest[found[0] + 1 :]))
            status: Status = "some" if found is not None else _status(decision, holds)
            with state.log.apart() as apart, state.on(node, node.text, holds, status):
                made.append((self.value(state, part), apart))
        state.threads = threads
        state.repeat(nest)
        (first, one), (second, other) = made
        if found is not None or (
            decision.outcome == "threads" and decision.yes is not None and decision.no is not None
        ):
            state.log.add(one)
            state.log.add(other)
        elif one.same(other):
            state.log.add(one, other)
        elif decision.outcome in {True, False}:
            rely(state, decision, node, node.text)
            state.log.add(one if decision.outcome else other)
            return first if decision.outcome else second
        else:
            state.uncounted(f"what `{node.text}` chooses", node, one, other)
        kind = _wider(first.type, second.type) if first.type.arithmetic or second.type.arithmetic else first.type
        kind = second.type if kind.kind == "unknown" or (first.literal and first.type.kind == "int") else kind
        number = _chosen(test, first, second)
        space = second.space if first.number == 0 else ""
        if first.space == second.space or second.number == 0:
            space = first.space
        steps = (lane_step(first), lane_step(second))
        return Value(
            kind, number, varies=test.varies | first.varies | second.varies, space=space,
            step=told(steps[0]) if steps[0] == steps[1] and lane_step(test) == 0 else UNTOLD,
            origin=tuple(dict.fromkeys((*first.origin, *second.origin))),
        )  # fmt: skip

    # casts and assignments ---------------------------------------------------------------------------------------

    def cast(self, state: State, node: Cast) -> Value:
        """The value as another type; as a reference, the place as another type."""
        kind = state.scope.type_of(node.type)
        if node.type.reference and kind.kind != "unknown":
            return replace(self.place(state, node.operand), type=kind)
        found = self.value(state, node.operand)
        return converted(found, kind)

    def braced(self, state: State, node: Braced) -> Value:
        """`T{...}`: a number of one item, of several an object whose parts are not told apart."""
        if (made := self.calls.tensors.read(state, node)) is not None:
            return made
        values = [self.value(state, item) for item in node.items]
        varies = frozenset[str]().union(*(v.varies for v in values))
        kind = state.scope.type_of(node.type) if node.type is not None else UNKNOWN
        if len(values) == 1 and kind.kind in {"int", "float", "unknown"}:
            return converted(values[0], kind)
        return Value(kind, varies=varies)

    def assign(self, state: State, node: Assign) -> Value:
        """`=` and `+=` and the like: the new value; the store is put down where the target is memory."""
        compound = node.operator[:-1]
        new = self.value(state, node.value)
        target = self.place(state, node.target)
        if compound:
            new = _operated(state, node, compound, read(state, target, node.target), new)
        elif target.type.kind == "object" and new.type.kind in {"int", "float"} and not target.type.fields:
            state.missing(f"`=` of {target.type.name}", node, FLOPS)
        if target.where == "unknown" or _leads_nowhere(target, node.target):
            state.missing(f"the store through `{shown(node.target)}`", node, MEMORY, shown(node.target))
        elif target.where:
            access(state, node.target, target, "store", f"store {node.operator}" if compound else "store")
        made = converted(new, target.type)
        if isinstance(node.target, Name):
            if not compound:
                maps(state, node, node.target.text, node.value, made)
            bind(state, node.target.text, made)
        elif isinstance(node.target, Member) and target.root and not target.where:
            set_part(state, target.root, node.target.name, replace(made, where="", root=""))
        elif target.root and new.type.kind in {"pointer", "array"} and not target.where:
            keep_space(state, target.root, made.space)
        return replace(made, where="", root="")


def _named(state: State, node: Name) -> Value:
    for block in reversed(state.scope.blocks):
        if node.text in block:
            found = block[node.text]
            if found.root != node.text:
                found = block[node.text] = replace(found, root=node.text)
            return found
    return state.scope.constant(node.text if node.arguments is None else f"{node.text}<{', '.join(node.arguments)}>")  # fmt: skip


def _leads_nowhere(target: Value, node: Node) -> bool:
    """Whether reading does not tell which place an expression that is written to stands for."""
    untold = isinstance(node, Call) and target.type.kind == "unknown" and target.cute is None
    return not target.where and (untold or isinstance(node, Conditional | Sequence))


def _size_of(state: State, text: str) -> Value:
    kind = state.scope.read_type(text)
    if kind is None and (found := state.scope.find(text.strip())) is not None:
        kind = found.type
    if kind is None or not kind.size:
        return whole(None, SIZE)
    return whole(read_size(kind.size), SIZE)


def _built_in(state: State, node: Member, name: str, axis: str) -> Value | None:
    """`threadIdx.x` and its like."""
    known = name in {"threadIdx", "blockDim", "blockIdx", "gridDim"} and axis in {"x", "y", "z"}
    return index_of(state, node, name, axis) if known else None


def index_of(state: State, node: Node, name: str, axis: str) -> Value:
    """An index of thread or block along an axis, or how many there are."""
    if name == "threadIdx":
        lanes = next((a for a in "xyz" if state.block[a] != 1), "x")
        return thread_index(axis, state.block[axis], lanes)
    if name == "blockDim":
        return whole(state.block[axis], UNSIGNED)
    if name == "blockIdx":
        state.log.varying.add(f"blockIdx.{axis}")
        used_in_place(state, node, f"blockIdx.{axis}")
        return whole(leaf(f"blockIdx.{axis}"), UNSIGNED, frozenset({"block"}))
    return whole(leaf(f"gridDim.{axis}"), UNSIGNED)


def _operated(state: State, node: Node, operator: str, a: Value, b: Value) -> Value:
    """An operator on two values."""
    varies = a.varies | b.varies
    if operator in COMPARISONS:
        whole_numbers = a.type.kind == b.type.kind == "int"
        test = ordered(operator, a, b) if whole_numbers else (operator, a, b)
        plain = test[0] == operator and a.type.kind != "pointer"
        made = computed(operator, test[1].number, test[2].number) if plain else None
        several = a.one_of_several or b.one_of_several
        number = made if isinstance(made, int) else None
        return Value(BOOL, number, varies=varies, test=test, one_of_several=several)
    kinds = {a.type.kind, b.type.kind}
    if kinds & {"pointer", "array"}:
        base = a if a.type.kind in {"pointer", "array"} else b
        if kinds <= {"pointer", "array"}:
            return Value(LONG, varies=varies)
        kind = base.type if base.type.kind == "pointer" else pointer(base.type.of or UNKNOWN)
        step = told(moved(base, operator, b if base is a else a))
        return replace(base, type=kind, varies=varies, number=None, digits=(), literal=False, step=step)
    if a.type.arithmetic or b.type.arithmetic:
        return _floating(state, node, operator, a, b)
    if kinds == {"int"}:
        kind = usual(a.type, b.type if operator not in {"<<", ">>"} else INT)
        return arithmetic(operator, converted(a, kind), converted(b, kind), kind)
    if operator in {"%", "<<", ">>", "&", "|", "^"} and "object" not in kinds:
        return replace(arithmetic(operator, a, b, INT), digits=(), offset=None)
    if kinds <= {"int", "unknown"} and not (a.varies | b.varies) & _DATA:  # of sizes and indices
        return replace(arithmetic(operator, a, b, UNKNOWN), type=UNKNOWN)
    state.missing(f"`{operator}` of {a.type.name or b.type.name or 'a type that is not told'}", node, FLOPS)
    return Value(a.type if a.type.kind == "object" else UNKNOWN, varies=varies)


def _written(node: Node) -> Fraction | None:
    """The floating-point number that a literal writes, as its type keeps it."""
    if isinstance(node, Unary) and node.operator == "-":
        inner = _written(node.operand)
        return None if inner is None else -inner
    if not isinstance(node, Number):
        return None
    try:
        number = float(node.text.replace("'", "").rstrip("fFlL"))
        return Fraction(unpack("f", pack("f", number))[0] if node.text[-1] in "fF" else number)
    except (ValueError, OverflowError):
        return None


def _beside(state: State, node: Node, operator: str, a: Value, bound: Fraction | None) -> Value | None:
    """How a whole number compares to a floating-point one: as to the whole number next to it; None where that is not told."""
    if bound is None or abs(bound) >= _EXACT or may_wrap(a) or (unsigned(a.type) and bound < 0):
        return None
    if operator in {"==", "!="} and bound.denominator != 1:
        return Value(BOOL, int(operator == "!="))
    return _operated(state, node, operator, a, whole(ceil(bound) if operator in {"<", ">="} else floor(bound), a.type))


def _floating(state: State, node: Node, operator: str, a: Value, b: Value) -> Value:
    varies, literal = a.varies | b.varies, a.literal and b.literal
    if {a.type.kind, b.type.kind} & {"unknown", "object"}:
        other = a if a.type.kind in {"unknown", "object"} else b
        state.missing(f"`{operator}` of {other.type.name or 'a type that is not told'}", node, FLOPS)
        return Value(UNKNOWN, varies=varies)
    kind = _wider(a.type, b.type)
    if not literal:
        state.put(node, "arithmetic", kind.lanes)
    if kind.kind == "generic":
        state.log.assumptions.setdefault(f"{kind.name} is a floating-point type: its arithmetic counts.")
    return Value(kind, varies=varies, literal=literal)


def _chosen(test: Value, first: Value, second: Value) -> Any:
    """The formula of a conditional between two whole numbers."""
    if first.number is None or second.number is None or len(test.test) != 3 or test.test[0] not in COMPARISONS:
        return None
    a, b = test.test[1].number, test.test[2].number
    if a is None or b is None or test.varies & {"thread", "loop"}:
        return None
    return Choice(first.number, Operation(test.test[0], a, b), second.number)


def rely(state: State, decision: Decision, node: Node, text: str) -> None:
    """Put down what a decision takes for granted; `text` is the test as written."""
    if decision.conditions and len(text) <= 120 and isinstance(decision.outcome, bool):
        plain = re.sub(r"^! ?(?=[\w.]+$)", "not ", text)
        state.condition(plain if decision.outcome else plain[4:] if plain.startswith("not ") else negated(plain), node)
        return
    for one in decision.conditions:
        state.condition(one, node)


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
    return computed(operator, start, computed("*", step, read_size(size)))


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


__all__ = ["Expressions", "rely"]
