"""The abstract run of a CuTe-DSL kernel: its class is made, the host function is run to the launch, then the kernel's body.

A test that reading does not settle has both its sides run, each on its own path; what they leave different becomes a choice between
the two. So a number of threads that depends on N is one formula of N. Loops over what is known are unrolled where the source is
Python (host code, `range_constexpr`); loops of the device are gone through once.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opscope_tools.kernels.cutedsl.effects import LONGEST, Effects, shortened
from opscope_tools.kernels.cutedsl.values import (
    Class,
    Instance,
    Storage,
    Tensor,
    Tiled,
    chosen,
    opposite,
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


class _Bound(ast.Assign):
    """The item of a turn, bound to what a loop calls it."""


class Statements(Effects):
    """Statements of a run."""

    @abstractmethod
    def _test(self, test: ast.expr, scope: Scope) -> Any:
        """A truth where reading settles it, else the expression that is asked."""

    @abstractmethod
    def _execute_one(self, statement: ast.stmt, scope: LocalScope) -> None:
        """A statement without others in it."""

    @abstractmethod
    def _called_by(self, name: str, value: Any) -> Any:
        """A long formula under the name that it is bound to."""

    # statements ------------------------------------------------------------------------------------------------------

    def _flow(self, todo: list[ast.stmt], scope: LocalScope) -> Ended | None:
        """Run statements to the end of a function, or of a list of them: None where they are gone through."""
        while todo:
            statement = todo.pop(0)
            self.log.step()
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
                case ast.While(test=test, body=body):
                    self._put(Loop, statement, variable="", text=ast.unparse(test), kind="while")
                    self._turn(statement, body, scope)
                case ast.With(body=body) | ast.Try(body=body):
                    todo[:0] = body
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
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                scope.values[node.id] = leaf(node.id)
                if source and not self._inside:
                    self.names.setdefault(node.id, f"{shortened(source)} (line {statement.lineno})")  # type: ignore[attr-defined]
            elif (
                isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
            ):
                holder = scope.values.get(node.value.id)
                if isinstance(holder, Instance):
                    holder.values[node.attr] = Quantity(f"self.{node.attr}")

    def _assert(self, statement: ast.Assert, scope: LocalScope) -> None:
        try:
            value = self._test(statement.test, scope)
        except UnresolvedError:
            value = Opaque("")
        if value is True:
            return
        if isinstance(value, Operation) and value.operator == "==":
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
        before = self._kept(scope)
        with self._taking(text, True, statement.lineno):
            one = self._flow([*statement.body, *rest], scope)
            first = self._kept(scope)
        self._back(before, scope)
        with self._taking(text, False, statement.lineno):
            other = self._flow([*statement.orelse, *rest], scope)
        if one is not None and one.dropped:
            self._put(Check, statement, kind="raise", condition=render(opposite(test)))
            return other
        if other is not None and other.dropped:
            self._put(Check, statement, kind="raise", condition=text)
            self._back(first, scope)
            return one
        self._merge(test, first, scope)
        if one is None and other is None:
            return None
        left, right = (ended.value if ended is not None else None for ended in (one, other))
        return Ended(chosen(test, left, right, ast.unparse(statement.test)[:40]))

    def _kept(self, scope: LocalScope) -> tuple[dict[str, Any], list[tuple[Instance, dict[str, Any]]]]:
        def copied(values: Mapping[str, Any]) -> dict[str, Any]:
            return {
                n: list(v) if isinstance(v, list) else dict(v) if isinstance(v, dict) else v for n, v in values.items()
            }

        return copied(scope.values), [(each, copied(each.values)) for each in self._instances]

    def _back(self, kept: tuple[dict[str, Any], list[tuple[Instance, dict[str, Any]]]], scope: LocalScope) -> None:
        scope.values = dict(kept[0])
        for instance, values in kept[1]:
            instance.values = dict(values)

    def _merge(
        self, test: Any, first: tuple[dict[str, Any], list[tuple[Instance, dict[str, Any]]]], scope: LocalScope
    ) -> None:
        """Into what the other side left, what the first side did."""
        self._joined_values(test, first[0], scope.values, "")
        for instance, values in first[1]:
            self._joined_values(test, values, instance.values, "self.")

    def _joined_values(self, test: Any, one: Mapping[str, Any], other: dict[str, Any], prefix: str) -> None:
        for name, value in one.items():
            made = chosen(test, value, other[name], f"{prefix}{name}") if name in other else value
            long = isinstance(made, Expression) and len(made.text) > LONGEST
            other[name] = self._called_by(f"{prefix}{name}", made) if long else made

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
        changed = {
            n.id for s in [statement] for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self._forget(changed, scope)
        loop, self._around = self._around, statement.lineno
        text = f"in the loop at line {statement.lineno}"
        try:
            if not any(isinstance(n, ast.Return | ast.Break | ast.Continue) for n in _own(statement)):
                self._flow(list(body), scope)
            else:
                for each in body:
                    self._flow_of_a_turn(each, scope, text)
        finally:
            self._around = loop
        self._forget(changed, scope)

    def _flow_of_a_turn(self, statement: ast.stmt, scope: LocalScope, text: str) -> None:
        if any(isinstance(n, ast.Return | ast.Break | ast.Continue) for n in (statement, *_own(statement))):
            self._lost(f"what leaves {text} early", statement)
            self._open_names(statement, scope)
        else:
            self._flow([statement], scope)

    def _forget(self, names: set[str], scope: LocalScope) -> None:
        for name in names:
            if name in scope.values and not isinstance(
                scope.values[name], Tensor | Instance | Tiled | Storage | Function | Class
            ):
                scope.values[name] = leaf(name)


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
                sides = [
                    behind(side, number)
                    if any(map(_leaves, side))
                    else [*side, *behind(statements[place + 1 :], number)]
                    for side in (statement.body, statement.orelse)
                ]
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
