"""Statements: what runs, what a branch would have done, and what the two leave behind."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from typing import Any

from opscope_tools.index.objects.branches import (
    ADDING,
    BREAK,
    CONTINUE,
    NEXT,
    RETURN,
    Branches,
    Changes,
    differences,
    modular,
    store,
)
from opscope_tools.index.objects.containers import Uncertain
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
    UndecidedError,
    Unknown,
    choice,
    plain,
    turn,
)
from opscope_tools.source.python.imports import imported
from opscope_tools.source.python.syntax import Function, Text

_TURNS = 4000


class Statements(Branches):
    """Execution of function bodies."""

    def body(self, function: FunctionValue, frame: Frame) -> Any:
        node = function.code.node
        if isinstance(node, ast.Lambda):
            return self.full(node.body, frame)
        try:
            self.block(node.body, frame)
        except RaisedError:
            if not (frame.open and frame.returns):
                raise  # what fails after a branch that may have returned is not sure to be reached
        return choice(frame.returns) if frame.returns else None

    def block(self, statements: Sequence[ast.stmt], frame: Frame) -> int:
        for number, statement in enumerate(statements):
            if self.strict and frame.open:  # an earlier branch may have returned
                self.lose(statement, frame)
            handler = _HANDLERS.get(type(statement))
            if handler is None:
                continue
            try:
                ended: int = handler(self, statement, frame)
            except UndecidedError:
                self.lose(statement, frame)
                if self.strict and any(isinstance(inner, ast.Return) for inner in ast.walk(statement)):
                    raise  # what the function returns is not known
                continue
            except RaisedError as error:
                # inside `try` the handler decides; a constructor goes on with what else it sets
                if self.trying or not self._goes_on(error, frame):
                    raise
                self._forget(statement, frame)
                self.lose(statement, frame)
                continue
            if ended != NEXT:
                if ended == RETURN and isinstance(statement, ast.If) and self.live is True:
                    self._unreached(statement, statements[number + 1 :], frame)
                return ended
        return NEXT

    def _unreached(self, left_by: ast.If, rest: Sequence[ast.stmt], frame: Frame) -> None:
        """What stands behind a branch that returned is the other alternative."""
        if self.worth(rest, frame):
            failed = f"not ({self.text(left_by.test, frame)})"
            self.leave(self.skipped(rest, failed, frame), failed)

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
        if self.live is True and frame.code.name == "__init__" and _sets(statement):
            self.failures += 1
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
            targets = [statement.target]
        value = getattr(statement, "value", None)
        shown = self.text(value, frame) if isinstance(value, ast.expr) else ""
        for target in targets:
            try:
                self.assign(target, Unknown(shown, failed=True), frame)
            except (RaisedError, UndecidedError):
                continue

    # simple statements

    def _assign(self, node: ast.Assign, frame: Frame) -> int:
        value = self.full(node.value, frame)
        for target in node.targets:
            self.set_to(target, value, node.value, frame)
        return NEXT

    def _annotated(self, node: ast.AnnAssign, frame: Frame) -> int:
        if node.value is not None:
            self.set_to(node.target, self.full(node.value, frame), node.value, frame)
        return NEXT

    def set_to(self, target: ast.expr, value: Any, node: ast.expr, frame: Frame) -> None:
        """`target = value`, noting of an attribute by which expression it was set."""
        self.assign(target, value, frame)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = frame.local.get(target.value.id)
            if isinstance(owner, Instance):
                options = [option.value for option in value.options] if isinstance(value, Choice) else [value]
                for option in options:
                    owner.places[target.attr, id(option)] = Place(option, frame.holder, frame.code, node)

    def _augmented(self, node: ast.AugAssign, frame: Frame) -> int:
        target, value = node.target, self.ev(node.value, frame)
        known = self.ev(target, frame)
        if isinstance(known, Instance) and known.module:
            self.call(self.get(known, "extend"), (value,), {})
            return NEXT
        if isinstance(known, list) and isinstance(node.op, ast.Add) and not isinstance(known, Uncertain):
            self.touch(known)
            known.extend(self.iterate(value))
            return NEXT
        load = ast.BinOp(left=_load(target), op=node.op, right=node.value)
        self.assign(target, self.full(ast.copy_location(load, node), frame), frame)
        return NEXT

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            self.touch(frame.local)
            frame.local[target.id] = value
        elif isinstance(target, ast.Attribute):
            self.put(self.ev(target.value, frame), target.attr, value)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, plain(value), frame)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, frame)
        elif isinstance(target, ast.Subscript):
            self._put_item(self.ev(target.value, frame), target, value, frame)

    def _unpack(self, targets: Sequence[ast.expr], value: Any, frame: Frame) -> None:
        try:
            items: list[Any] = self.iterate(value)
        except (UndecidedError, TypeError):
            items = []
        stars = [number for number, target in enumerate(targets) if isinstance(target, ast.Starred)]
        if stars and len(items) >= len(targets) - 1:
            first, after = stars[0], len(targets) - stars[0] - 1
            last = len(items) - after
            items = [*items[:first], items[first:last], *items[last:]]
        if len(items) != len(targets):
            items = [Unknown(self.text(target, frame)) for target in targets]
        for target, item in zip(targets, items, strict=True):
            self.assign(target, item, frame)

    def _put_item(self, owner: Any, target: ast.Subscript, value: Any, frame: Frame) -> None:
        key = self.ev(target.slice, frame)
        if isinstance(owner, Instance) and owner.module:
            names = list(owner.attrs)
            if isinstance(key, int) and -len(names) <= key < len(names):
                key = names[key]
            self.put(owner, key if isinstance(key, str) else "*", value)
            return
        if isinstance(owner, Instance) and owner.data is not None:
            owner = owner.data
        if isinstance(key, Unknown | Choice) and isinstance(owner, dict):
            key = "*"
        if isinstance(owner, dict | list):
            self.touch(owner)
            owner[key] = value

    def _expression(self, node: ast.Expr, frame: Frame) -> int:
        if not isinstance(node.value, ast.Constant):
            self.full(node.value, frame)
        return NEXT

    def _delete(self, node: ast.Delete, frame: Frame) -> int:
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                self.remove(self.ev(target.value, frame), target.attr)
            elif isinstance(target, ast.Name):
                self.touch(frame.local)
                frame.local.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                owner = self.ev(target.value, frame)
                key = self.ev(target.slice, frame)
                if isinstance(owner, dict | list):
                    self.touch(owner)
                    del owner[key]
                elif isinstance(owner, Instance) and owner.module:
                    names = list(owner.attrs)
                    self.remove(owner, names[key] if isinstance(key, int) else key)
        return NEXT

    def _return(self, node: ast.Return, frame: Frame) -> int:
        value = self.full(node.value, frame) if node.value is not None else None
        frame.returns.append(Option(frame.passed, value, self._open_or_live(frame)))
        return RETURN

    def _open_or_live(self, frame: Frame) -> bool | None:
        return None if frame.open and self.live is True else self.live

    def _raise(self, node: ast.Raise, _: Frame) -> int:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        kind = raised.id if isinstance(raised, ast.Name) else "Exception"
        raise RaisedError(kind, explicit=True)

    def _import(self, node: ast.Import | ast.ImportFrom, frame: Frame) -> int:
        for one in imported(node, frame.unit.package):
            value = self.found(self.resolver.binds(frame.unit, one), one.member)
            self.touch(frame.local)
            frame.local[one.name] = self.external(one.stands) if value is MISSING else value
        return NEXT

    def _def(self, node: ast.FunctionDef, frame: Frame) -> int:
        code: Text = frame.code
        self.touch(frame.local)
        frame.local[node.name] = FunctionValue(
            Function(frame.unit, code.lines, code.first, node, node.name), frame, frame.holder
        )
        return NEXT

    def _class(self, node: ast.ClassDef, frame: Frame) -> int:
        code: Text = frame.code
        line = code.line(node)
        found: Any = Unknown(node.name)
        for path, row in frame.unit.classes():
            if row.name == node.name and line <= row.line <= line + 3 + len(node.decorator_list):
                found = self.class_value(_symbol(frame.unit, path, row))
        self.touch(frame.local)
        frame.local[node.name] = found
        return NEXT

    # loops and the rest

    def _for(self, node: ast.For, frame: Frame) -> int:
        source = self.ev(node.iter, frame)
        frame.repeat.append(f"for {self.text(node.target, frame)} in {self.text(node.iter, frame)}")
        try:
            try:
                values = self.iterate(source)
            except (UndecidedError, TypeError):
                values, source = [], Uncertain()
            if not values:
                return self._no_turn(node, frame, known=not isinstance(source, Uncertain))
            return self._turns(node, source, values, frame)
        finally:
            frame.repeat.pop()

    def _no_turn(self, node: ast.For, frame: Frame, *, known: bool) -> int:
        self.assign_unknown(node.target, frame)
        if known:
            if self.worth(node.body, frame):
                self.leave(self.skipped(node.body, "", frame), "")
            return NEXT
        changes, _ = self.tried(node.body, "", frame)
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
        for number, value in enumerate(values[:_TURNS]):
            self.assign(node.target, turn(value, loop) if isinstance(source, range) else value, frame)
            if folds and number < 2:
                self.begin()
            ended = self.block(node.body, frame)
            if folds and number < 2:
                shown = _shape(self.end(undo=False), frame, node.target)
                if number and not loop.used and shown is not None and shown == previous:
                    return self._repeat(shown, len(values) - 2)
                previous = shown
            if ended == BREAK:
                break
            if ended == RETURN:
                return RETURN
        return NEXT

    def _repeat(self, shown: list[tuple[int, Any, Any]], times: int) -> int:
        """The turns that are left, all like the second: what it appended is appended as often."""
        for _, container, added in shown:
            if isinstance(container, list):
                self.touch(container)
                container.extend(container[-added:] * times)
            elif added:
                self.touch(container)
                last = list(container.values())[-added:]
                for value in last * times:
                    container[str(len(container))] = value
        return NEXT

    def _while(self, node: ast.While, frame: Frame) -> int:
        for _ in range(200):
            taken = self.test(node.test, frame)
            if taken is not True:
                if taken is None:
                    self.lose(node, frame)
                return NEXT
            ended = self.block(node.body, frame)
            if ended == BREAK:
                return NEXT
            if ended == RETURN:
                return RETURN
        self.lose(node, frame)
        return NEXT

    def _with(self, node: ast.With, frame: Frame) -> int:
        for item in node.items:
            if item.optional_vars is not None:
                self.assign_unknown(item.optional_vars, frame)
        return self.block(node.body, frame)

    def _try(self, node: ast.Try, frame: Frame) -> int:
        trying = self.trying
        self.trying += 1
        unknown = Unknown.made
        try:
            ended = self.block(node.body, frame)
        except RaisedError as error:
            self.trying = trying
            if self.strict and not error.explicit and Unknown.made != unknown:
                raise UndecidedError from None  # it may be our not knowing that failed
            for handler in node.handlers:
                if _catches(handler.type, error.kind):
                    ended = self.block(handler.body, frame)
                    break
            else:
                raise
        else:
            self.trying = trying
            if ended == NEXT:
                ended = self.block(node.orelse, frame)
        finally:
            self.trying = trying
        if node.finalbody:
            later = self.block(node.finalbody, frame)
            ended = later if later != NEXT else ended
        return ended

    def _break(self, *_: Any) -> int:
        return BREAK

    def _continue(self, *_: Any) -> int:
        return CONTINUE


def _symbol(unit: Any, path: str, row: Any) -> Any:
    from opscope_tools.source.python.names import ClassSymbol

    return ClassSymbol(unit, path, row)


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


def _load(target: ast.expr) -> ast.expr:
    return target


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


_HANDLERS: dict[type[ast.stmt], Callable[[Any, Any, Frame], int]] = {
    ast.Assign: Statements._assign, ast.AnnAssign: Statements._annotated, ast.AugAssign: Statements._augmented,
    ast.Expr: Statements._expression, ast.If: Branches.run_if, ast.For: Statements._for, ast.While: Statements._while,
    ast.With: Statements._with, ast.Try: Statements._try, ast.Return: Statements._return, ast.Raise: Statements._raise,
    ast.Delete: Statements._delete, ast.Import: Statements._import, ast.ImportFrom: Statements._import,
    ast.FunctionDef: Statements._def, ast.ClassDef: Statements._class, ast.Break: Statements._break,
    ast.Continue: Statements._continue,
}  # fmt: skip
