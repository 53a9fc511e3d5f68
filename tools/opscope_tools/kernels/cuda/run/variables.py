"""Variables in the abstract run of a CUDA kernel: declarations, what is known of each, and what is forgotten.

Where a number is no formula the variable's own name stands for it, and the log's `variables` say what that is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Protocol

from opscope_tools.kernels.cuda.launch.host_expressions import CEIL_DIV
from opscope_tools.kernels.cuda.names.functions import Function, fitting
from opscope_tools.kernels.cuda.names.scope import with_size
from opscope_tools.kernels.cuda.names.values import (
    Type,
    Value,
    computed,
    converted,
    lane_step,
    named_type,
    pointer,
    told,
)
from opscope_tools.kernels.cuda.run.instructions import instructions_of_type, maps, measure, measures
from opscope_tools.kernels.cuda.run.language import LOADS, STORES, effect
from opscope_tools.kernels.cuda.run.state import State, Values
from opscope_tools.kernels.cuda.syntax.nodes import (
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
    TypeName,
    Unary,
    children,
    spelled,
    within,
    written,
)
from opscope_tools.kernels.run.events import Allocation
from opscope_tools.kernels.values.expressions import Quantity, leaf, render, settled
from opscope_tools.kernels.values.notation import product, read_size

_TILE = re.compile(r"k(?:Block|Head|Tile)\w*|\w*(?:TILE|BLOCK)\w*")


class Objects(Protocol):
    """Objects of structures."""

    def built(self, state: State, kind: Type, values: list[Value]) -> Value: ...


class Declarations:
    """What declarations declare."""

    def __init__(self, values: Values, objects: Objects) -> None:
        self.value, self.place, self.built = values.value, values.place, objects.built

    def declare(self, state: State, node: Declare) -> None:
        """A new variable, in the memory that its qualifiers name; its value is run."""
        instructions_of_type(state, node)
        kind = element = state.scope.type_of(node.type)
        for _ in range(node.pointers):
            kind = element = pointer(kind)
        space = ""
        lengths: list[Value | None] = []
        for dimension in reversed(node.dimensions):
            length = self.value(state, dimension) if dimension is not None else None
            kind = with_size(kind, length.number if length is not None else None)
            lengths.insert(0, length)
        shared = "__shared__" in node.type.words
        if shared:
            self._allocated(state, node, element, lengths)
            space = "shared" if kind.kind != "pointer" else ""
            state.scope.declare(node.name, Value(kind, space=space, where="" if kind.kind == "array" else "shared"))
            return
        if kind.kind == "array":
            if isinstance(node.value, Braced):
                self.items(state, node.value)
            state.scope.declare(node.name, Value(kind, space="local"))
            return
        if node.value is None and node.arguments:
            values = [self.value(state, a) for a in node.arguments]
            if kind.struct is not None:
                made = self.built(state, kind, values)
            else:
                made = converted(values[0], kind) if len(values) == 1 else Value(kind)
                if kind.kind in {"object", "unknown"}:
                    made = replace(made, origin=tuple(dict.fromkeys(o for v in values for o in v.origin)))
        elif node.value is None:
            made = Value(kind)
        elif node.reference or (node.type.name == "auto" and isinstance(node.value, Lambda)):
            made = self.place(state, node.value)
            if kind.kind != "unknown" and made.type.kind == "unknown":
                made = replace(made, type=kind)
            state.scope.declare(node.name, replace(made, root=""))
            return
        else:
            made = self.initial(state, node, kind)
            maps(state, node, node.name, node.value, made)
        _named(state, node, made)

    def _allocated(self, state: State, node: Declare, element: Type, lengths: list[Value | None]) -> None:
        """An array, or a variable, in shared memory."""
        dynamic = "extern" in node.type.words
        numbers = [
            self._of_the_kernel(state, d, v.number) for d, v in zip(node.dimensions, lengths, strict=True) if d is not None and v is not None
        ]  # fmt: skip
        written = [spelled(d).replace("/", "//") for d in node.dimensions if d is not None]
        shown = [w if n is None else render(n) for n, w in zip(numbers, written, strict=True)]
        told = bool(element.size) and not dynamic and None not in numbers
        total = reduce(partial(settled, "*"), numbers, read_size(element.size)) if told else None
        untold = f"sizeof({node.name})" if node.type.name == "?" else f"sizeof({_type_text(node.type)})"
        formula = "given at the launch" if dynamic else product([*shown, element.size or untold])
        state.log.met(
            Allocation(
                **state.at(node), name=node.name, space="shared", type=_type_text(node.type) + "*" * node.pointers,
                dimensions=tuple(shown), bytes=total if isinstance(total, int) else None, formula=formula, dynamic=dynamic, text=spelled(node),
            )
        )  # fmt: skip
        for dimension in node.dimensions:
            if dimension is not None:
                measures(state, dimension, within(dimension), spelled(node))

    def _of_the_kernel(self, state: State, node: Node, found: Any) -> Any:
        """A number in which the template parameters of the kernel keep their names, whatever launches give them."""
        if not any(isinstance(one, Name) and one.text in state.scope.compile_time for one in within(node)):
            return found
        match node:
            case Name(text=text) if text in state.scope.compile_time:
                return Quantity(text)
            case Binary(operator=operator, left=left, right=right):
                numbers = (self._of_the_kernel(state, side, self.value(state, side).number) for side in (left, right))
                return computed(operator, *numbers)
        return None

    def items(self, state: State, node: Braced) -> list[Value]:
        """What stands in braces, however deep."""
        made = []
        for item in node.items:
            made += self.items(state, item) if isinstance(item, Braced) else [self.value(state, item)]
        return made

    def initial(self, state: State, node: Declare, kind: Type) -> Value:
        """The value that a declaration gives, read as the declared type; there must be one."""
        assert node.value is not None
        if isinstance(node.value, Braced) and node.value.type is None and kind.struct is not None:
            return self.built(state, kind, [self.value(state, i) for i in node.value.items])
        if isinstance(node.value, Braced) and node.value.type is None:
            values = self.items(state, node.value)
            return converted(values[0], kind) if len(values) == 1 and kind.kind == "int" else Value(kind)
        found = self.value(state, node.value)
        if node.type.name == "auto":
            if found.type.kind == "array" and found.type.of is not None:
                found = replace(found, type=pointer(found.type.of))
            elif node.pointers and found.type.kind == "pointer":
                return found
            return found
        return converted(found, kind)


def _named(state: State, node: Declare, made: Value) -> None:
    """Declare a variable: where its number is no formula, its own name stands for it."""
    made = replace(made, root="", where="", literal=False, definition=_defined(state, node))
    if "constexpr" in node.type.words and _TILE.fullmatch(node.name):
        state.scope.declare(node.name, made)
        measure(state, node.name, state.line(node), spelled(node), node)
    whole = made.type.kind in {"int", "unknown"} and made.number is None and not made.test
    if whole and node.value is not None:
        made = replace(made, number=_own_name(state, node, made.varies))
    state.scope.declare(node.name, made)


def _defined(state: State, node: Node) -> str:
    return f"{spelled(node)[:240]} ({state.scope.function.file}:{state.line(node)})"


def _own_name(state: State, node: Declare, varies: frozenset[str]) -> Any:
    """The name of a variable as a quantity of formulas; of several variables of a name, with its line."""
    line = f"{state.file}:{state.line(node)}" if state.file else f"line {state.line(node)}"
    name = node.name if state.log.names.setdefault(node.name, line) == line else f"{node.name} of {line}"
    if varies & {"thread", "loop"}:
        state.log.counters.add(name)
    else:
        state.log.variables.setdefault(name, f"{node.name} ({line}), the same in every thread of a block")
        if varies & {"block", "data"}:
            state.log.varying.add(name)
    return leaf(name)


def bind(state: State, name: str, value: Value) -> None:
    """Another value for a variable that is there; a reference into memory stays what it is."""
    old = state.scope.find(name)
    if old is None:
        return
    if old.where:  # a reference into memory, or a shared variable: it stays what it is
        return
    value = replace(value, root="", where="", literal=False, definition=old.definition)
    if old.type.kind == "pointer" and not old.space and not old.origin:
        value = replace(value, definition=_defined(state, state.statement))
    if old.type.kind == "pointer" and old.space and value.space and old.space != value.space:
        value = replace(value, space="")
    state.scope.change(name, replace(value, type=old.type if old.type.kind != "unknown" else value.type))


def set_part(state: State, root: str, name: str, value: Value) -> None:
    """Another value for one field of a structure that a variable holds."""
    old = state.scope.find(root)
    if old is not None and old.type.kind == "object" and old.type.struct is not None and not old.where:
        known = old.type.fields.get(name)
        if known is not None and known.kind == "pointer":
            state.scope.change(root, replace(old, parts={**old.parts, name: replace(value, type=known)}))
        else:  # set again and again: no one value
            state.scope.change(root, replace(old, parts={n: v for n, v in old.parts.items() if n != name}))


def keep_space(state: State, root: str, space: str) -> None:
    """Note which memory a pointer leads to; none (`''`) where it leads to several."""
    state.spaces[root] = space if state.spaces.get(root, space) == space else ""


def writes(state: State, node: Node) -> frozenset[str]:
    """Names that a statement may change."""
    return written(node, lambda call: changed_by(state, call), state.scope.library.writes[0])


def counts_only(state: State, node: Node) -> frozenset[str]:
    """Names that a statement changes, calls of functions that are not known left out: none changes a counter."""
    return written(
        node, lambda call: changed_by(state, call) if known(state, call) else (), state.scope.library.writes[1]
    )


def known(state: State, node: Call) -> list[Function] | bool:
    """The functions of the repository that a call means; True for those of the language, False for others."""
    if not isinstance(node.function, Name):
        return False
    plain = node.function.text.rpartition("::")[2]
    if state.scope.find(node.function.text) is not None:
        return False
    if (
        plain in LOADS | STORES
        or effect(plain) is not None
        or CEIL_DIV.match(plain)
        or state.scope.types.get(plain)
        or named_type(plain)
    ):
        return True
    return state.scope.called(plain) or False


def changed_by(state: State, node: Call) -> list[Node]:
    """The arguments that a call may change: all, where its function is not known."""
    found = known(state, node)
    if isinstance(found, bool):
        first = [node.function.base] if isinstance(node.function, Member) else []
        return [] if found else [*node.arguments, *first]
    return [
        argument
        for function in fitting(found, len(node.arguments))
        for (kind, _), argument in zip(function.parameters, node.arguments, strict=False)
        if (kind.reference and "const" not in kind.words) or function.unread
    ]


def forget(state: State, names: Iterable[str], why: str, even: Mapping[str, Any] | None = None) -> None:
    """What is changed in a loop or on one side of a branch has no one value; `even`: steps that stay what they are."""
    for name in names:
        old = state.scope.find(name)
        if old is None or old.where:
            continue
        varies, step = old.varies | {why}, told((even or {}).get(name))
        if old.type.kind in {"int", "unknown"}:
            state.scope.change(
                name, replace(old, number=leaf(name), digits=(), offset=None, test=(), varies=varies, step=step)
            )
            state.log.counters.add(name)
        elif old.type.kind in {"pointer"}:
            state.scope.change(name, replace(old, varies=varies, number=None, step=step))


def even(state: State, names: Iterable[str], parts: Iterable[Node | None], *, kept: bool = False) -> dict[str, Any]:
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
        old = state.scope.find(name)
        if old is None or old.type.kind not in {"int", "unknown", "pointer"}:
            continue
        if kept and any(_sets(one, name) for one in nodes):
            continue
        if all(_evenly(state, one, name, changed) for one in nodes):
            found[name] = lane_step(old)
    return found


def _evenly(state: State, node: Node, name: str, changed: set[str]) -> bool:
    """Whether a node leaves a variable, or changes it by what is alike in all threads."""
    if isinstance(node, Assign):
        if not isinstance(node.target, Name):  # through a pointer, or a field of an object
            return not (isinstance(node.target, Member) and _starts_from(node.target, name))
        if node.target.text != name:
            return True
        amount: Node | None = node.value if node.operator in {"+=", "-="} else None
        if node.operator == "=" and isinstance(node.value, Binary) and node.value.operator in {"+", "-"}:
            amount = node.value.right if isinstance(node.value.left, Name) and node.value.left.text == name else None
        return amount is not None and _alike(state, amount, changed)
    if isinstance(node, Unary) and node.operator == "&":
        return not _starts_from(node.operand, name)
    if isinstance(node, Call | Assembly):
        given = changed_by(state, node) if isinstance(node, Call) else node.arguments
        return not any(_starts_from(one, name) for one in given)
    return True


def _alike(state: State, node: Node, changed: set[str]) -> bool:
    """Whether an expression has one value in all threads, in every turn of a loop that changes some names."""
    for one in within(node):
        if isinstance(one, Call | Index | Lambda | Assign | Braced) or (isinstance(one, Unary) and one.operator == "*"):
            return False
        if isinstance(one, Name):
            found = state.scope.find(one.text)
            if one.text == "threadIdx" or one.text in changed or (found is not None and lane_step(found) != 0):
                return False
    return True


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


def _type_text(kind: TypeName) -> str:
    """A type without its qualifiers."""
    return kind.name + (f"<{', '.join(kind.arguments)}>" if kind.arguments else "") if kind.name != "?" else "union"
