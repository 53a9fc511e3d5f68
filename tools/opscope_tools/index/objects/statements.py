"""Statements: what runs, what a branch would have done, and what the two leave behind."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from opscope_tools.index.objects.attributes import Attributes
from opscope_tools.index.objects.branches import (
    ADDING,
    BREAK,
    CONTINUE,
    NEXT,
    RETURN,
    Branches,
    differences,
    modular,
    store,
)
from opscope_tools.index.objects.calls import Calls
from opscope_tools.index.objects.classes import Names, external
from opscope_tools.index.objects.expressions import Expressions
from opscope_tools.index.objects.operations import TURNS, Operations
from opscope_tools.index.objects.state import Changes, State
from opscope_tools.index.objects.values import (
    MISSING,
    Choice,
    Frame,
    FunctionValue,
    Instance,
    Loop,
    Option,
    Place,
    RaisedError,
    Uncertain,
    UndecidedError,
    Unknown,
    choice,
    turn,
)
from opscope_tools.source.python.imports import imported
from opscope_tools.source.python.names import ClassSymbol
from opscope_tools.source.python.syntax import Function


@dataclass(eq=False)
class Statements:
    """Execution of function bodies."""

    names: Names
    operations: Operations
    attributes: Attributes
    calls: Calls
    expressions: Expressions
    branches: Branches
    state: State

    def __post_init__(self) -> None:
        self.handlers: dict[type[ast.stmt], Callable[[Any, Frame], int | None]] = {
            ast.Assign: self._assign, ast.AnnAssign: self._assign, ast.AugAssign: self._augmented,
            ast.Expr: self._expression, ast.If: self.branches.run_if, ast.For: self._for, ast.While: self._while,
            ast.With: self._with, ast.Try: self._try, ast.Return: self._return, ast.Raise: self._raise,
            ast.Delete: self.expressions.delete, ast.Import: self._import, ast.ImportFrom: self._import,
            ast.FunctionDef: self._def, ast.ClassDef: self._class, ast.Break: lambda *_: BREAK,
            ast.Continue: lambda *_: CONTINUE,
        }  # fmt: skip

    def block(self, statements: Sequence[ast.stmt], frame: Frame) -> int:
        """Run statements until one ends the block; says how they ended."""
        state, handlers = self.state, self.handlers
        for number, statement in enumerate(statements):
            if state.strict and frame.open:  # an earlier branch may have returned
                self.branches.lose(statement, frame)
            handler = handlers.get(type(statement))
            if handler is None:
                continue
            try:
                ended = handler(statement, frame)
            except UndecidedError:
                self.branches.lose(statement, frame)
                if state.strict and any(isinstance(inner, ast.Return) for inner in ast.walk(statement)):
                    raise  # what the function returns is not known
                continue
            except RaisedError as error:
                # inside `try` the handler decides; a constructor goes on with what else it sets
                if state.trying or not self._goes_on(error, frame):
                    raise
                self._forget(statement, frame)
                self.branches.lose(statement, frame)
                continue
            if ended:
                if ended == RETURN and isinstance(statement, ast.If) and state.live is True:
                    self._unreached(statement, statements[number + 1 :], frame)
                return ended
        return NEXT

    def _unreached(self, left_by: ast.If, rest: Sequence[ast.stmt], frame: Frame) -> None:
        """What stands behind a branch that returned is the other alternative."""
        if self.branches.worth(rest, frame):
            failed = f"not ({self.expressions.text(left_by.test, frame)})"
            self.branches.leave(self.branches.skipped(rest, failed, frame), failed)

    def _goes_on(self, error: RaisedError, frame: Frame) -> bool:
        """Whether a failure ends no more than its statement: what a constructor sets before and after stands."""
        name = getattr(frame.code, "name", "")
        if not isinstance(frame.this, Instance):
            return False
        if name in {"__init__", "__post_init__"}:
            return True
        return frame.this.module and not name.startswith("__") and not error.explicit

    def _forget(self, statement: ast.stmt, frame: Frame) -> None:
        """A statement that failed leaves its targets unknown."""
        if (
            self.state.live is True
            and isinstance(frame.code, Function)
            and frame.code.name == "__init__"
            and _sets(statement)
        ):
            self.state.failures += 1
        value = getattr(statement, "value", None)
        shown = self.expressions.text(value, frame) if isinstance(value, ast.expr) else ""
        for target in _targets(statement):
            with suppress(RaisedError, UndecidedError):
                self.expressions.assign(target, Unknown(shown, failed=True), frame)

    # simple statements

    def _assign(self, node: ast.Assign | ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            value = self.expressions.full(node.value, frame)
            for target in _targets(node):
                self._set_to(target, value, node.value, frame)

    def _set_to(self, target: ast.expr, value: Any, node: ast.expr, frame: Frame) -> None:
        """`target = value`, noting of an attribute by which expression it was set."""
        self.expressions.assign(target, value, frame)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = frame.local.get(target.value.id)
            if isinstance(owner, Instance):
                options = [option.value for option in value.options] if isinstance(value, Choice) else [value]
                for option in options:
                    owner.places[target.attr, id(option)] = Place(option, frame.holder, frame.code, node)

    def _augmented(self, node: ast.AugAssign, frame: Frame) -> None:
        target, value = node.target, self.expressions.ev(node.value, frame)
        known = self.expressions.ev(target, frame)
        if isinstance(known, Instance) and known.module:
            self.calls.call(self.attributes.get(known, "extend"), (value,), {})
        elif isinstance(known, list) and isinstance(node.op, ast.Add) and not isinstance(known, Uncertain):
            self.state.touch(known)
            known.extend(self.operations.iterate(value))
        else:
            load = ast.BinOp(left=target, op=node.op, right=node.value)
            self.expressions.assign(target, self.expressions.full(ast.copy_location(load, node), frame), frame)

    def _expression(self, node: ast.Expr, frame: Frame) -> None:
        if not isinstance(node.value, ast.Constant):
            self.expressions.full(node.value, frame)

    def _return(self, node: ast.Return, frame: Frame) -> int:
        value = self.expressions.full(node.value, frame) if node.value is not None else None
        live = None if frame.open and self.state.live is True else self.state.live
        frame.returns.append(Option(frame.passed, value, live))
        return RETURN

    def _raise(self, node: ast.Raise, _: Frame) -> None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        raise RaisedError(raised.id if isinstance(raised, ast.Name) else "Exception", explicit=True)

    def _import(self, node: ast.Import | ast.ImportFrom, frame: Frame) -> None:
        for one in imported(node, frame.unit.package):
            value = self.names.found(self.names.resolver.binds(frame.unit, one), one.member)
            self.state.bind(frame, one.name, external(one.stands) if value is MISSING else value)

    def _def(self, node: ast.FunctionDef, frame: Frame) -> None:
        function = Function(frame.unit, frame.code.lines, frame.code.first, node, node.name)
        self.state.bind(frame, node.name, FunctionValue(function, frame, frame.holder))

    def _class(self, node: ast.ClassDef, frame: Frame) -> None:
        line = frame.code.line(node)
        found: Any = Unknown(node.name)
        for path, row in frame.unit.classes():
            if row.name == node.name and line <= row.line <= line + 3 + len(node.decorator_list):
                found = self.names.class_value(ClassSymbol(frame.unit, path, row))
        self.state.bind(frame, node.name, found)

    # loops and the rest

    def _for(self, node: ast.For, frame: Frame) -> int:
        source = self.expressions.ev(node.iter, frame)
        frame.repeat.append(self.expressions.head(node, frame))
        try:
            try:
                values = self.operations.iterate(source)
            except (UndecidedError, TypeError):
                values, source = [], Uncertain()
            if not values:
                return self._no_turn(node, frame, known=not isinstance(source, Uncertain))
            return self._turns(node, source, values, frame)
        finally:
            frame.repeat.pop()

    def _no_turn(self, node: ast.For, frame: Frame, *, known: bool) -> int:
        self.expressions.assign_unknown(node.target, frame)
        if known:
            if self.branches.worth(node.body, frame):
                self.branches.leave(self.branches.skipped(node.body, "", frame), "")
            return NEXT
        changes, _ = self.branches.tried(node.body, "", frame)
        for container, before, after in changes:
            for key, _, new in differences(container, before, after):
                if isinstance(container, list):
                    container.append(choice([Option("", new, None)]))
                else:
                    store(container, key, choice([Option("", new, None)]) if modular(new) else Unknown(str(key)))
        return NEXT

    def _turns(self, node: ast.For, source: Any, values: list[Any], frame: Frame) -> int:
        loop = Loop()
        folds = isinstance(source, range) and len(values) > 2
        previous: list[tuple[int, Any, Any]] | None = None
        for number, value in enumerate(values[:TURNS]):
            self.expressions.assign(node.target, turn(value, loop) if isinstance(source, range) else value, frame)
            if folds and number < 2:
                self.state.begin()
            ended = self.block(node.body, frame)
            if folds and number < 2:
                shown = _shape(self.state.end(undo=False), frame, node.target)
                if number and not loop.used and shown is not None and shown == previous:
                    return self._repeat(shown, len(values) - 2)
                previous = shown
            if ended in {BREAK, RETURN}:
                return RETURN if ended == RETURN else NEXT
        return NEXT

    def _repeat(self, shown: list[tuple[int, Any, Any]], times: int) -> int:
        """The turns that are left, all like the second: what it appended is appended as often."""
        for _, container, added in shown:
            self.state.touch(container)
            if isinstance(container, list):
                container.extend(container[-added:] * times)
            else:
                for value in list(container.values())[-added:] * times:
                    container[str(len(container))] = value
        return NEXT

    def _while(self, node: ast.While, frame: Frame) -> int:
        for _ in range(200):
            taken = self.expressions.test(node.test, frame)
            if taken is not True:
                if taken is None:
                    self.branches.lose(node, frame)
                return NEXT
            ended = self.block(node.body, frame)
            if ended in {BREAK, RETURN}:
                return RETURN if ended == RETURN else NEXT
        self.branches.lose(node, frame)
        return NEXT

    def _with(self, node: ast.With, frame: Frame) -> int:
        for item in node.items:
            if item.optional_vars is not None:
                self.expressions.assign_unknown(item.optional_vars, frame)
        return self.block(node.body, frame)

    def _try(self, node: ast.Try, frame: Frame) -> int:
        trying = self.state.trying
        self.state.trying += 1
        unknown = Unknown.made
        try:
            ended = self.block(node.body, frame)
        except RaisedError as error:
            self.state.trying = trying
            if self.state.strict and not error.explicit and Unknown.made != unknown:
                raise UndecidedError from None  # it may be our not knowing that failed
            for handler in node.handlers:
                if _catches(handler.type, error.kind):
                    ended = self.block(handler.body, frame)
                    break
            else:
                raise
        else:
            self.state.trying = trying
            if ended == NEXT:
                ended = self.block(node.orelse, frame)
        finally:
            self.state.trying = trying
        if node.finalbody:
            later = self.block(node.finalbody, frame)
            ended = later if later != NEXT else ended
        return ended


def _targets(statement: ast.stmt) -> list[ast.expr]:
    """What an assignment assigns to."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign | ast.AugAssign) else []


def _catches(node: ast.expr | None, kind: str) -> bool:
    if node is None:
        return True
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    raised = getattr(builtins, kind, Exception)
    for name in names:
        caught = getattr(builtins, name, None)
        if name == kind or (isinstance(caught, type) and isinstance(raised, type) and issubclass(raised, caught)):
            return True
    return False


def _sets(statement: ast.stmt) -> bool:
    """Whether a statement sets something; a call of an own method for what it does beside that is left out."""
    if not isinstance(statement, ast.Expr):
        return True
    return isinstance(statement.value, ast.Call) and getattr(statement.value.func, "attr", "") in ADDING


def _shape(changes: Changes, frame: Frame, target: ast.expr) -> list[tuple[int, Any, Any]] | None:
    """(id, container, number of items added) of a turn that did nothing but append; None where it did more."""
    names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    found = []
    for container, before, after in changes:
        if container is frame.local:
            for key, old, new in differences(container, before, after):
                if key not in names and not modular(new) and not (old is MISSING or old == new):
                    return None
            continue
        grown = len(after) - len(before)
        if isinstance(container, list):
            if grown <= 0 or any(a is not b for a, b in zip(before, after, strict=False)):
                return None
        elif not grown or list(after)[-grown:] != [str(n) for n in range(len(before), len(after))]:
            return None
        found.append((id(container), container, grown))
    return found
