"""Functions that the abstract run of a CUDA kernel enters: device functions, methods, constructors and lambdas.

Each is run in a `State` of its own with what it is handed: types of arguments settle its template parameters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opscope_tools.kernels.cuda.checks import assertions
from opscope_tools.kernels.cuda.names.functions import Function
from opscope_tools.kernels.cuda.names.scope import Scope
from opscope_tools.kernels.cuda.names.structures import Method
from opscope_tools.kernels.cuda.names.values import (
    UNKNOWN,
    UNTOLD,
    VOID,
    Type,
    Value,
    converted,
    named_type,
    pointer,
    whole,
)
from opscope_tools.kernels.cuda.run.state import Runs, State, Values
from opscope_tools.kernels.cuda.run.variables import forget, writes
from opscope_tools.kernels.cuda.syntax.expressions import UnreadError
from opscope_tools.kernels.cuda.syntax.nodes import Lambda, Name, TypeName
from opscope_tools.kernels.cuda.syntax.statements import Reader
from opscope_tools.kernels.cuda.syntax.tokens import Token, words
from opscope_tools.kernels.run.events import Check

DEPTH = 8


class Functions:
    """Functions, run with what they are handed."""

    statements: Runs

    def __init__(self, values: Values) -> None:
        self.value = values.value
        #: functions whose assertions are put down, each with the way to it
        self._asserted: set[tuple[int, str]] = set()

    def run(self, state: State) -> None:
        """The body of the function, with what the `#if`s in it take for granted and what it asserts."""
        function = state.scope.function
        if (key := (id(function), state.via)) not in self._asserted:
            self._asserted.add(key)
            decided = tuple(
                step for step in state.path if step.status not in {"some", "open"}
            )  # threads decide nothing of types
            for c in assertions(function.code.source, function.start, function.end, state.file, state.via):
                path = decided if c.kind == "static_assert" else state.path
                state.log.met(
                    Check(
                        file=c.file, line=c.line, node=len(state.log.events), via=c.via, path=path, kind=c.kind,
                        condition=c.condition, message=c.message,
                    )
                )  # fmt: skip
        for place, text in function.code.tests_of(function.start, function.end):
            state.log.sums.conditions.setdefault(f"{text} ({state.named(function.code.source.line(place))})")
        self.statements.run(state, function.body)

    def closure(self, state: State, found: Value, values: list[Value]) -> Value:
        """A lambda, run among the variables of where it was written."""
        node, owner = found.function
        if not isinstance(node, Lambda) or state.depth >= DEPTH:
            return Value(UNKNOWN, varies=frozenset({"data"}))
        scope = owner.scope
        given = {
            name: _handed(kind, value, scope.type_of(kind))
            for (kind, name), value in zip(node.parameters, values, strict=False)
        }
        inner = replace(
            owner, threads=state.threads, times=state.times, path=state.path, depth=state.depth + 1, returned=[], left=set(),
            nest=state.nest if state is owner else (), base=state.base if state is owner else state.times, untold=state.untold, loops_around=state.deep - len(owner.loops), gives_place=node.reference,
            ended=None, ending=None, returns=False, running=None,  # leaving it ends no loop around its call
        )  # fmt: skip
        deep = len(scope.blocks)
        scope.blocks.append(given)
        try:
            self.statements.inner(inner, node.body)
        finally:
            del scope.blocks[deep:]
        forget(owner, writes(owner, node.body), "loop")  # what it captures, perhaps in each of many calls
        return _one(inner.returned)

    def function(self, state: State, function: Function, arguments: tuple[str, ...], values: list[Value]) -> Value:
        """A device function; `arguments`: of its template."""
        settled = self._settled(state, function, arguments, values)
        types = {n: t for n, t in settled.items() if isinstance(t, Type)}
        names = {n: v for n, v in settled.items() if isinstance(v, Value)}
        compile_time = state.scope.compile_time - {p.name for p in function.template}
        scope = Scope(function, state.scope.library, types, [names], compile_time)
        for (kind, name), value in zip(function.parameters, values, strict=False):
            made = value if value.function is not None else _handed(kind, value, scope.type_of(kind))
            scope.declare(name, replace(made, root=""))
        for (kind, name), text in zip(function.parameters[len(values) :][::-1], function.defaults[::-1], strict=False):
            scope.declare(name, converted(whole(scope.number_of(text)), scope.type_of(kind)))
        inner = state.entered(scope, function.name, function.returns)
        self.run(inner)
        return replace(_returned(inner, function.returns), root="")

    def method_of(self, state: State, base: Value, name: str, count: int) -> Method | None:
        """The method that a call of an object means; None where its structure is not known, or has none."""
        if base.type.struct is None or state.depth >= DEPTH:
            return None
        found: Method | None = base.type.struct[0].called(name, count)
        return found

    def method(self, state: State, base: Value, method: Method, values: list[Value]) -> Value:
        """A method of an object whose structure is known."""
        struct, scope = base.type.struct
        fields = {}
        where = base.where if base.where in {"global", "unknown"} else ""
        for field, of in base.type.fields.items():
            leads = of.kind in {"pointer", "array"}
            fields[field] = base.parts.get(field) or Value(
                of, varies=base.varies, space=base.space or where if leads else "",
                where=where if of.kind != "array" else "", origin=base.origin if leads else (),
            )  # fmt: skip
        given: dict[str, Value] = {}
        inner = _within(state, scope, [fields, given], f"{struct.name}.{method.name}", method.returns)
        inner.this = base
        for (kind, parameter), value in zip(method.parameters, values, strict=True):
            made = _handed(kind, value, inner.scope.type_of(kind))
            given[parameter] = replace(made, root="", where=made.where if kind.reference else "")
        self.statements.run(inner, method.body)
        return replace(_returned(inner, method.returns), root="")

    def built(self, state: State, kind: Type, values: list[Value]) -> Value:
        """An object of a structure, from what its constructor or its braces are given."""
        struct, scope = kind.struct
        method = struct.called(struct.name, len(values))
        if method is None:
            if len(values) == 1 and values[0].type.name == kind.name:
                return values[0]
            names = [f.name for f in struct.fields]
            parts = dict(zip(names, values, strict=False)) if struct.whole and not struct.methods else {}
            return Value(kind, parts={n: converted(v, kind.fields[n]) for n, v in parts.items()})
        given = {name: replace(v, root="", where="") for (_, name), v in zip(method.parameters, values, strict=True)}
        inner = _within(state, scope, [{}, given], struct.name, None)
        parts = {n: converted(self.value(inner, v), kind.fields[n]) for n, v in method.starts if n in kind.fields}
        self.statements.run(inner, method.body)
        return Value(kind, parts={n: replace(v, root="", where="") for n, v in parts.items()})

    def _settled(
        self, state: State, function: Function, arguments: tuple[str, ...], values: list[Value]
    ) -> dict[str, Any]:
        """What the template parameters of a callee stand for: a type, a value or a function."""
        made: dict[str, Any] = {}
        for parameter, text in zip(function.template, arguments, strict=False):
            found = state.scope.read_type(text) if parameter.type else self._argument(state, text)
            if found is not None:
                made[parameter.name] = found
        for parameter in function.template:
            if parameter.type and parameter.name not in made:
                deduced = _deduced(parameter.name, function, values)
                if deduced is not None:
                    made[parameter.name] = deduced
            if parameter.name not in made and parameter.default and not parameter.type:
                default = self._argument(state, parameter.default, made)
                if default is not None:
                    made[parameter.name] = default
            elif parameter.name not in made and parameter.default:
                kind = made.get(parameter.default) or named_type(parameter.default)
                if kind is not None:
                    made[parameter.name] = kind
        return made

    def specialisation(
        self, state: State, function: Function, special: list[Function], arguments: tuple[str, ...], values: list[Value]
    ) -> Function | None:  # fmt: skip
        """The one of a template's specialisations that is for its arguments, else the template; None where that is not told."""
        given = self._settled(state, function, arguments, values) if special else {}
        answers = [self._is_for(state, function, one, given) for one in special]
        if True in answers:
            return special[answers.index(True)]
        return None if None in answers else function

    def _is_for(self, state: State, function: Function, special: Function, given: dict[str, Any]) -> bool | None:
        """Whether a specialisation of a template is for its arguments; None where that is not told."""
        answers: list[bool | None] = []
        for place, parameter in enumerate(function.template):
            text = (special.special or ())[place : place + 1] or _taken_for(parameter.name, function, special)
            wanted: Any = None
            found: Any = None
            if text and parameter.type:
                wanted, found = state.scope.read_type(text[0]), given.get(parameter.name)
                found = None if isinstance(found, Type) and found.kind in {"generic", "unknown"} else found
            elif text:
                wanted, found = (
                    None if one is None else one.number if isinstance(one.number, int) else None
                    for one in (self._argument(state, text[0]), given.get(parameter.name))
                )  # fmt: skip
            answers.append(None if wanted is None or found is None else _one_type(wanted, found))
        return False if False in answers else None if None in answers else True

    def _argument(self, state: State, text: str, made: dict[str, Any] | None = None) -> Value | None:
        """A template argument that is no type: a number, or the function that it names."""
        if made and text in made:
            found = made[text]
            return found if isinstance(found, Value) else None
        try:
            reader = Reader([Token(w, state.scope.function.start) for w in words(text)], lambda _: False)
            node = reader.expression()
        except (UnreadError, RecursionError):
            return None
        if isinstance(node, Name):
            variable = state.scope.find(node.text)
            if variable is None and state.scope.called(node.text):
                return Value(UNKNOWN, function=node.text)
        with state.log.apart():
            found = self.value(state, node)
        return replace(found, root="", varies=frozenset())


def _within(
    state: State, scope: Scope, blocks: list[dict[str, Value]], name: str, returns: TypeName | None
) -> State:  # fmt: skip
    """Inside a structure's method."""
    inner = Scope(scope.function, state.scope.library, dict(scope.types), [*scope.blocks, *blocks], scope.compile_time)
    return state.entered(inner, name, returns)


def _handed(kind: TypeName, value: Value, of: Type) -> Value:
    """What a parameter of a type is handed: a reference stays the place that it means."""
    if kind.reference:
        return value if value.type.kind != "unknown" else replace(value, type=of)
    return converted(value, of)


def by_types(functions: list[Function], values: list[Value]) -> list[Function]:
    """Of several functions of one name those whose parameters are of the types that are given; one that is no template before others."""
    found = []
    for function in functions:
        own = {p.name for p in function.template}
        fits = True
        for (kind, _), value in zip(function.parameters, values, strict=False):
            if kind.name in own:
                fits = fits and (kind.pointers == 0 or value.type.kind in {"pointer", "array"})
                continue
            wanted = named_type(kind.name)
            given = value.type
            for _ in range(kind.pointers):
                given = given.of if given.kind in {"pointer", "array"} and given.of is not None else VOID
            fits = (
                fits
                and wanted is not None
                and (wanted.kind, wanted.size, wanted.lanes) == (given.kind, given.size, given.lanes)
            )
        if fits:
            found.append(function)
    return [function for function in found if not function.template] or found


def _one_type(one: Any, other: Any) -> bool | None:
    """Whether two types, or two numbers, are the same; None where names of types may mean one."""
    if not isinstance(one, Type) or not isinstance(other, Type) or one == other:
        return bool(one == other)
    if (one.kind, one.size, one.lanes) != (other.kind, other.size, other.lanes):
        return False
    halves = one.kind in {"float", "vector"} and one.size == str(2 * one.lanes)
    return ("bfloat" in one.name) == ("bfloat" in other.name) if halves else None


def _taken_for(name: str, function: Function, special: Function) -> tuple[str, ...]:
    """What a specialisation has for a type of its template, as its parameters tell: `float` of `const float*` for `const T*`."""
    for (kind, _), (own, _) in zip(function.parameters, special.parameters, strict=True):
        if kind.name == name and not kind.arguments and kind.pointers == own.pointers:
            return (own.name,)
    return ()


def _deduced(name: str, function: Function, values: list[Value]) -> Type | None:
    for (kind, _), value in zip(function.parameters, values, strict=False):
        if kind.name != name or kind.arguments:
            continue
        of: Type | None = value.type
        for _ in range(kind.pointers):
            of = of.of if of is not None and of.kind in {"pointer", "array"} else None
        if of is not None and of.kind == "array" and of.of is not None:
            of = pointer(of.of)
        if of is not None and of.kind != "unknown":
            return of
    return None


def _returned(state: State, returns: TypeName | None) -> Value:
    """What a function gives back, as the type that its heading says."""
    found = _one(state.returned)
    if any(other.number != found.number for other in state.elsewhere):
        found = replace(found, one_of_several=True)
    told = len(state.returned) > 1 and all(isinstance(value.number, int) for value in state.returned)
    if told and "return" in state.left:  # which of them is given back depends on the thread
        found = replace(found, varies=found.varies - {"data"} | {"thread"})
    of = UNKNOWN if returns is None or returns.reference else state.scope.type_of(returns)
    return found if found.type.kind == "void" or of.kind in {"unknown", "pointer"} else converted(found, of)


def _one(values: list[Value]) -> Value:
    """What a function gives back."""
    if not values:
        return Value(VOID)
    if len(values) == 1:
        return replace(values[0], root="")
    varies = frozenset[str]().union(*(v.varies for v in values)) | {"data"}
    spaces, places = {v.space for v in values}, {v.where for v in values}
    numbers = {v.number for v in values}
    known = next((v.type for v in values if v.type.kind != "unknown"), UNKNOWN)
    return Value(
        known,
        values[0].number if len(numbers) == 1 else None,
        varies=varies,
        space=spaces.pop() if len(spaces) == 1 else "",
        where=places.pop() if len(places) == 1 else "unknown",
        step=UNTOLD,
        origin=tuple(dict.fromkeys(o for v in values for o in v.origin)),
    )
