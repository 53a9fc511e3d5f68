"""Statements of a CuTe-DSL program: branches, loops, and what they leave.

A test that reading does not settle has both its sides run, each on its own path; what they leave different becomes a choice between
the two. So a number of threads that depends on N is one formula of N. Loops over what is known are unrolled where the source is
Python (host code, `range_constexpr`); loops of the device are gone through once.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from opscope_tools.kernels.cutedsl.effects import LONGEST, Effects, shortened
from opscope_tools.kernels.cutedsl.values import (
    Class,
    Either,
    Instance,
    Method,
    Partial,
    chosen,
    opposite,
    same,
)  # fmt: skip
from opscope_tools.kernels.host.interpreter import LocalScope, Scope
from opscope_tools.kernels.host.worlds import DroppedError, Function, ImportRef, UnresolvedError
from opscope_tools.kernels.run.events import Check, Loop
from opscope_tools.kernels.values.expressions import Expression, Opaque, Operation, Quantity, leaf, render

#: turns of a loop over what is known that are taken one by one
_MOST_TURNS = 64
_TURNS_ON_DEVICE = 8


@dataclass(frozen=True)
class Ended:
    """How a function ended: with a value, or with an exception of the source."""

    value: Any = None
    dropped: bool = False


#: by its id, what holds something, and what it held
State: TypeAlias = dict[int, tuple[Any, Any]]


class _Bound(ast.Assign):
    """The item of a turn, bound to what a loop calls it."""


class Statements(Effects):
    """Statements of a run."""

    steps: int

    @abstractmethod
    def _test(self, test: ast.expr, scope: Scope) -> Any:
        """A truth where reading settles it, else the expression that is asked."""

    @abstractmethod
    def _execute_one(self, statement: ast.stmt, scope: LocalScope) -> None:
        """A statement without others in it."""

    @abstractmethod
    def _of_class(self, of: Class, name: str) -> tuple[Any] | None:
        """What a class sets a name to, in a tuple."""

    @abstractmethod
    def _called_by(self, name: str, value: Any) -> Any:
        """A long formula under the name that it is bound to."""

    # statements ------------------------------------------------------------------------------------------------------

    def _flow(self, todo: list[ast.stmt], scope: LocalScope) -> Ended | None:
        """Run statements to the end of a function, or of a list of them: None where they are gone through."""
        while todo:
            statement = todo.pop(0)
            self.log.step()
            self.steps = 0  # of one statement
            match statement:
                case ast.If(test=test, body=body, orelse=orelse):
                    value = self._test(test, scope)
                    if isinstance(value, bool):
                        todo[:0] = body if value else orelse
                        continue
                    leaves = any(isinstance(n, ast.Return | ast.Raise) for n in _own(statement))
                    ended = self._branch(value, statement, todo if leaves else [], scope)
                    if leaves or (ended is not None):
                        return ended
                case ast.For():
                    ended = self._for(statement, todo, scope)
                    if ended is not None:
                        return ended
                case ast.While(test=test, body=body, orelse=orelse):
                    self._put(Loop, statement, variable="", text=ast.unparse(test), kind="while")
                    self._turn(statement, body, scope)
                    todo[:0] = orelse
                case ast.With(body=body):
                    todo[:0] = body
                case ast.Try(body=body, orelse=orelse, finalbody=finalbody):
                    todo[:0] = [*body, *orelse, *finalbody]
                case ast.Return(value=value):
                    return Ended(None if value is None else self.eval(value, scope))
                case ast.Raise():
                    return Ended(dropped=True)
                case ast.Break() | ast.Continue():
                    raise UnresolvedError(ast.unparse(statement))
                case _:
                    self._plain = isinstance(statement, _Bound)
                    self._one(statement, scope)
                    self._plain = False
        return None

    def _one(self, statement: ast.stmt, scope: LocalScope) -> None:
        """A statement without others in it; one that reading does not follow leaves its names open."""
        try:
            if isinstance(statement, ast.Assert):
                self._assert(statement, scope)
            else:
                self._execute_one(statement, scope)
        except (UnresolvedError, DroppedError):
            self._open_names(statement, scope)
            if self._inside:
                self._lost(ast.unparse(statement).partition("\n")[0][:80], statement)

    def _open_names(self, statement: ast.AST, scope: LocalScope) -> None:
        source = (
            ast.unparse(statement.value)
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value
            else ""
        )
        line = getattr(statement, "lineno", 0)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                scope.values[node.id] = leaf(f"{node.id} of line {line}")
                if source and not self._inside:
                    self.names.setdefault(f"{node.id} of line {line}", shortened(source))
            elif (
                isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
            ):
                holder = scope.values.get(node.value.id)
                if isinstance(holder, Instance):
                    holder.values[node.attr] = leaf(f"{holder.attribute(node.attr)} of line {line}")

    def _assert(self, statement: ast.Assert, scope: LocalScope) -> None:
        try:
            value = self._test(statement.test, scope)
        except UnresolvedError:
            value = Opaque("")
        if value is True:
            return
        if isinstance(value, Operation) and value.operator == "==" and not self._path:
            self._learnt(statement.test, scope)
        message = (
            statement.msg.value
            if isinstance(statement.msg, ast.Constant)
            else ast.unparse(statement.msg)
            if statement.msg
            else ""
        )
        self._put(Check, statement, kind="assert", condition=ast.unparse(statement.test), message=str(message))

    def _learnt(self, test: ast.expr, scope: LocalScope) -> None:
        """Of `assert mX.element_type == dtype`: what the type is."""
        if isinstance(test, ast.Compare):
            left, right = self.eval(test.left, scope), self.eval(test.comparators[0], scope)
            for one, other in ((left, right), (right, left)):
                if (
                    isinstance(one, Quantity)
                    and one.name.endswith(".element_type")
                    and isinstance(other, ImportRef | Quantity)
                ):
                    self._types.setdefault(one.text, other)
                    return

    def _branch(self, test: Any, statement: ast.If, rest: list[ast.stmt], scope: LocalScope) -> Ended | None:
        """Both sides, each with what comes behind where one may leave; what they leave is a choice between them."""
        text = render(test)
        before = self._state()
        with self._taking(text, True, statement.lineno):
            one = self._flow([*statement.body, *rest], scope)
            first = self._state()
        _back(before)
        with self._taking(text, False, statement.lineno):
            other = self._flow([*statement.orelse, *rest], scope)
        if one is not None and one.dropped:
            self._put(Check, statement, kind="raise", condition=render(opposite(test)))
            return other
        if other is not None and other.dropped:
            self._put(Check, statement, kind="raise", condition=text)
            _back(first)
            return one
        self._merge(test, first, statement.lineno)
        if one is None and other is None:
            return None
        left, right = (ended.value if ended is not None else None for ended in (one, other))
        return Ended(chosen(test, left, right, f"what line {statement.lineno} gives"))

    def _state(self) -> State:
        """What names, attributes and containers hold, of all that the functions that are run can reach."""
        found: State = {}
        pending: list[Any] = list(self._frames)
        while pending:
            one = pending.pop()
            if id(one) in found:
                continue
            match one:
                case LocalScope() | Instance():
                    found[id(one)] = one, dict(one.values)
                    pending += one.values.values()
                    if isinstance(one, LocalScope):
                        pending.append(one.parent)
                case list():
                    found[id(one)] = one, list(one)
                    pending += one
                case dict():
                    found[id(one)] = one, dict(one)
                    pending += one.values()
                case tuple():
                    pending += one
                case Function(scope=inner):
                    pending.append(inner)
                case Method(function=function, instance=instance):
                    pending += [function, instance]
                case Partial(function=function, positional=positional, keywords=keywords):
                    pending += [function, *positional, *keywords.values()]
                case Either(first=first, second=second):
                    pending += [first, second]
        return found

    def _merge(self, test: Any, first: State, line: int) -> None:
        """Into what the other side left, what the first side did."""
        for one, held in first.values():
            if isinstance(one, list):
                if len(one) == len(held):
                    one[:] = [
                        chosen(test, a, b, f"item {i} of line {line}")
                        for i, (a, b) in enumerate(zip(held, one, strict=True))
                    ]
                else:
                    self._blur(one, line)
                continue
            values = one if isinstance(one, dict) else one.values
            for name in {**held, **values}:
                label = one.attribute(name) if isinstance(one, Instance) else str(name)
                sides = [self._of_side(one, name, side) for side in (held, values)]
                known = [side[0] for side in sides if side is not None]
                made = chosen(test, known[0], known[1], label) if len(known) == 2 else known[0]
                long = isinstance(made, Expression) and len(made.text) > LONGEST
                values[name] = self._called_by(label, made) if long else made

    def _of_side(self, one: Any, name: str, held: Mapping[str, Any]) -> tuple[Any] | None:
        """What a name holds on one side, in a tuple: an attribute that is not set there is the class' own."""
        if name in held:
            return (held[name],)
        return self._of_class(one.of, name) if isinstance(one, Instance) else None

    def _blur(self, container: Any, line: int) -> None:
        """Of a container whose length is not known nothing is."""
        for one, held in self._state().values():
            if not isinstance(one, list):
                values = one if isinstance(one, dict) else one.values
                for name in [name for name, value in held.items() if value is container]:
                    values[name] = leaf(f"{name} of line {line}")

    # loops -----------------------------------------------------------------------------------------------------------

    def _for(self, statement: ast.For, todo: list[ast.stmt], scope: LocalScope) -> Ended | None:
        items = self._items(statement, scope)
        if items is not None:
            todo[:0] = _unrolled(statement, items)
            return None
        trips = self._trips(statement.iter, scope)
        self._put(
            Loop,
            statement,
            variable=ast.unparse(statement.target),
            text=ast.unparse(statement.iter),
            trips=trips,
            kind="for",
        )
        self._turn(statement, statement.body, scope)
        todo[:0] = statement.orelse
        return None

    def _items(self, statement: ast.For, scope: LocalScope) -> list[Any] | None:
        """What a loop that Python unrolls runs over; None of one that runs on the device, or over what is not known."""
        head = statement.iter
        called = ast.unparse(head.func).rpartition(".")[2] if isinstance(head, ast.Call) else ""
        on_device = self._inside and (called == "range" or called.startswith("range_dynamic"))
        if on_device:
            return None
        try:
            if called == "range_constexpr" and isinstance(head, ast.Call):
                bounds = [self.eval(a, scope) for a in head.args]
                value: Any = list(range(*bounds)) if all(type(b) is int for b in bounds) else None
            else:
                value = self.eval(head, scope)
        except UnresolvedError:
            return None
        if not isinstance(value, list | tuple) or len(value) > (_TURNS_ON_DEVICE if self._inside else _MOST_TURNS):
            return None
        return list(value)

    def _trips(self, head: ast.expr, scope: LocalScope) -> str:
        """How often a loop over a range of sizes turns, where it starts at 0 and goes by 1; '' of another."""
        if not isinstance(head, ast.Call) or not ast.unparse(head.func).rpartition(".")[2].startswith("range"):
            return ""
        if len(head.args) != 1:
            return ""
        try:
            bound = self.eval(head.args[0], scope)
        except UnresolvedError:
            return ""
        return render(bound) if isinstance(bound, Expression | int) else ""

    def _turn(self, statement: ast.For | ast.While, body: list[ast.stmt], scope: LocalScope) -> None:
        """One turn for all: what a turn changes is not known at its begin, nor behind the loop."""
        line, loop = statement.lineno, self._around
        counters = (
            [n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)]
            if isinstance(statement, ast.For)
            else []
        )
        before = self._state()
        if self._dry:
            self._go_through(statement, body, scope, counters)
            return
        places, tiles, launches, self._dry = len(self.log.events), len(self.tiles), len(self.launches), True
        try:
            self._go_through(statement, body, scope, counters)
        finally:
            self._dry = False
            del self.log.events[places:], self.tiles[tiles:], self.launches[launches:]
        changed = [(one, name) for one, held in before.values() for name in _changes(one, held)]
        _back(before)
        self._around = line
        try:
            self._forget(changed, line)
            self._go_through(statement, body, scope, counters)
        finally:
            self._around = loop
        self._forget(changed, line)
        for name in counters:
            scope.values[name] = leaf(f"{name} of line {line}")

    def _go_through(
        self, statement: ast.For | ast.While, body: list[ast.stmt], scope: LocalScope, counters: Sequence[str]
    ) -> None:
        for name in counters:
            own = self._counters.setdefault(name, statement.lineno) == statement.lineno and name not in self._parameters
            scope.values[name] = leaf(name if own else f"{name} of line {statement.lineno}")
        if not any(isinstance(n, ast.Return | ast.Break | ast.Continue) for n in _own(statement)):
            self._flow(list(body), scope)
            return
        for each in body:
            self._flow_of_a_turn(each, scope, f"in the loop at line {statement.lineno}")

    def _flow_of_a_turn(self, statement: ast.stmt, scope: LocalScope, text: str) -> None:
        if any(isinstance(n, ast.Return | ast.Break | ast.Continue) for n in (statement, *_own(statement))):
            self._lost(f"what leaves {text} early", statement)
            self._open_names(statement, scope)
        else:
            self._flow([statement], scope)

    def _forget(self, changed: Sequence[tuple[Any, Any]], line: int) -> None:
        """What a loop changes is something else from here on."""
        for one, name in changed:
            if isinstance(one, list):
                self._blur(one, line)
            else:
                values = one if isinstance(one, dict) else one.values
                label = one.attribute(name) if isinstance(one, Instance) else name
                values[name] = leaf(f"{label} of line {line}")


def _back(state: State) -> None:
    """Let everything hold again what it held."""
    for one, held in state.values():
        if isinstance(one, list):
            one[:] = held
        elif isinstance(one, dict):
            one.clear()
            one.update(held)
        else:
            one.values = dict(held)


def _changes(one: Any, held: Any) -> Iterator[Any]:
    """The names of what holds something else than before; of a list that does, one."""
    if isinstance(one, list):
        if len(one) != len(held) or not all(map(same, one, held)):
            yield 0
        return
    values = one if isinstance(one, dict) else one.values
    for name, value in held.items():
        if name not in values or not same(values[name], value):
            yield name


def _unrolled(loop: ast.For, items: Sequence[Any]) -> list[ast.stmt]:
    """The turns of a loop one after the other; what stands behind a way out of a turn runs where that is not gone."""

    def turn(number: int) -> list[ast.stmt]:
        if number == len(items):
            return list(loop.orelse)
        bound = _Bound([loop.target], ast.copy_location(ast.Constant(items[number]), loop.iter))
        return [ast.copy_location(bound, loop), *behind(loop.body, number)]

    def behind(statements: Sequence[ast.stmt], number: int) -> list[ast.stmt]:
        for place, statement in enumerate(statements):
            before = list(statements[:place])
            if isinstance(statement, ast.Break):
                return before
            if isinstance(statement, ast.Continue):
                return [*before, *turn(number + 1)]
            if _leaves(statement):
                if not isinstance(statement, ast.If):
                    raise UnresolvedError(ast.unparse(statement))
                rest = statements[place + 1 :]
                sides = [behind([*side, *rest], number) for side in (statement.body, statement.orelse)]
                made = ast.If(statement.test, *sides)
                return [*before, ast.copy_location(made, statement)]
        return [*statements, *turn(number + 1)]

    return turn(0)


def _leaves(statement: ast.stmt) -> bool:
    """Whether a statement may end a turn of the loop that it stands in."""
    if isinstance(statement, ast.For | ast.While):
        return False
    return isinstance(statement, ast.Break | ast.Continue) or any(
        _leaves(inner) for inner in ast.iter_child_nodes(statement) if isinstance(inner, ast.stmt)
    )


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """What stands in a statement, without the functions and classes in it."""
    pending: list[ast.AST] = list(ast.iter_child_nodes(statement))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        yield node
        pending.extend(ast.iter_child_nodes(node))


__all__ = ["Ended", "Statements"]
