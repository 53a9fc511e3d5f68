"""Branches: what the one that is taken does, what another would have done, and what both leave where none is sure."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opscope_tools.index.objects.expressions import Expressions, makes
from opscope_tools.index.objects.parts import Execution
from opscope_tools.index.objects.state import Changes, State
from opscope_tools.index.objects.values import (
    MISSING,
    Choice,
    ClassValue,
    Frame,
    Instance,
    Option,
    RaisedError,
    UndecidedError,
    Unknown,
    both,
    choice,
)

#: how a block ended
NEXT, RETURN, BREAK, CONTINUE = range(4)
#: methods that add modules to a container
ADDING = {"append", "extend", "insert", "update", "add_module", "register_module"}


@dataclass(eq=False)
class Branches:
    """Execution of `if`."""

    expressions: Expressions
    state: State
    execution: Execution

    def run_if(self, node: ast.If, frame: Frame) -> int:
        """Run an `if`: the side that is taken, or both where its test is open; says how it ended, as `block` does."""
        taken = self.expressions.test(node.test, frame)
        shown = self.expressions.text(node.test, frame)
        failed = f"not ({shown})"
        if taken is None:
            return self._open(node, shown, failed, frame)
        yes, no = (node.body, node.orelse) if taken else (node.orelse, node.body)
        condition, other = (shown, failed) if taken else (failed, shown)
        skipped = self.skipped(no, other, frame) if self.worth(no, frame) else []
        if not isinstance(frame.this, Instance) or not frame.this.module:
            ended = self.execution.block(yes, frame)
        else:
            ended = self._conditioned(yes, condition, other, frame)
        self.leave(skipped, other)
        return ended

    def _conditioned(self, block: Sequence[ast.stmt], condition: str, other: str, frame: Frame) -> int:
        """Run a branch that is taken; the modules that it sets carry its condition, those that it takes away (`other`
        is then the condition under which they stay) are kept as what another configuration would have."""
        self.state.begin()
        passed, frame.passed = frame.passed, both(frame.passed, condition)
        try:
            ended = self.execution.block(block, frame)
        finally:
            frame.passed = passed
            changed = self.state.end(undo=False)
        for container, before, after in changed:
            for key, old, new in differences(container, before, after):
                if modular(new):
                    store(container, key, _extended(new, old, condition, True))
                elif modular(old) and (new is None or new is MISSING) and isinstance(container, dict):
                    store(
                        container,
                        key,
                        choice([*([Option(condition, None, True)] if new is None else []), Option(other, old, False)]),
                    )
        return ended

    def worth(self, block: Sequence[ast.stmt], frame: Frame) -> bool:
        """Whether a branch that is not taken might set modules or return one."""
        if not block or (self.state.live is False and self.state.depth > 3):
            return False
        module = isinstance(frame.this, Instance) and frame.this.module
        if not module and not any(isinstance(s, ast.Return) for s in block):
            return False
        if not module and isinstance(frame.this, Instance | ClassValue):
            return False
        return any(builds(statement) or (module and _sets_attribute(statement)) for statement in block)

    def skipped(self, block: Sequence[ast.stmt], condition: str, frame: Frame) -> Changes:
        """What a branch that is not taken would have changed."""
        state = self.state
        trying, limit, passed = state.trying, state.limit, frame.passed
        state.trying, frame.passed = 0, both(passed, condition)
        try:
            with state.branching(False, undo=True) as changed:
                self.execution.block(block, frame)
        except (RaisedError, UndecidedError):
            pass
        finally:
            state.trying, state.limit, frame.passed = trying, limit, passed
        return changed

    def leave(self, skipped: Changes, condition: str) -> None:
        """Store what a branch that is not taken would have set, as options that do not count."""
        for container, before, after in skipped:
            for key, _, new in differences(container, before, after):
                held = _held(container, key)
                other = new is not None and new is not MISSING and isinstance(container, dict)
                if modular(new) or (other and modular(held)):
                    store(container, key, _extended(new, held, condition, False))

    def _open(self, node: ast.If, shown: str, failed: str, frame: Frame) -> int:
        """Both branches of a condition that source does not decide."""
        first, ended_first = self.tried(node.body, shown, frame)
        second, ended_second = self.tried(node.orelse, failed, frame)
        stops = (ended_first in {RETURN, -1}, ended_second in {RETURN, -1})
        if ended_first == ended_second == -1:
            raise RaisedError("Exception", explicit=True)
        if all(stops):
            return RETURN
        if stops[0] or stops[1]:
            changes, condition, ended = (second, failed, ended_second) if stops[0] else (first, shown, ended_first)
            for container, _, after in changes:
                for key, _, new in differences(container, container, after):
                    store(container, key, new)
            if RETURN in (ended_first, ended_second):
                self.lose(node, frame)
                frame.open = True
                frame.passed = both(frame.passed, condition)
            return ended if ended in {BREAK, CONTINUE} else NEXT
        self._merge(first, second, shown, failed)
        return NEXT

    def tried(self, block: Sequence[ast.stmt], condition: str, frame: Frame) -> tuple[Changes, int]:
        """What a branch changes and how it ends (-1: it raises); the changes are undone."""
        passed, was_open = frame.passed, frame.open
        frame.passed = both(passed, condition)
        with self.state.branching(None, undo=True) as changed:
            try:
                ended = self.execution.block(block, frame)
            except RaisedError:
                ended = -1
            finally:
                frame.passed, frame.open = passed, was_open
        return changed, ended

    def lose(self, statement: ast.stmt, frame: Frame) -> None:
        """Note a statement that could not be followed: what it would have changed of an object is not known."""
        if self.state.live is not False and isinstance(frame.this, Instance) and not frame.this.module:
            self.state.lost.append((statement, frame.this))

    def _merge(self, first: Changes, second: Changes, shown: str, failed: str) -> None:
        slots: dict[int, tuple[Any, dict[Any, list[Any]]]] = {}
        for number, changes in enumerate((first, second)):
            for container, before, after in changes:
                _, keys = slots.setdefault(id(container), (container, {}))
                for key, old, new in differences(container, before, after):
                    keys.setdefault(key, [old, old])[number] = new
        for container, keys in slots.values():
            for key, (yes, no) in keys.items():
                options = [Option(c, v, None) for c, v in ((shown, yes), (failed, no)) if v is not MISSING]
                if isinstance(container, list):
                    container.extend(choice([option]) for option in options)
                elif options:
                    store(container, key, choice(options))


def builds(statement: ast.stmt) -> bool:
    """Whether a statement may make a module: it assigns, returns or adds what a call or a class name gives."""
    known: bool | None = getattr(statement, "_builds", None)
    if known is None:
        known = any(
            _adds(node.value)
            if isinstance(node, ast.Expr)
            else isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return)
            and node.value is not None
            and makes(node.value)
            for node in ast.walk(statement)
        )
        statement._builds = known  # type: ignore[attr-defined]
    return known


def _sets_attribute(statement: ast.stmt) -> bool:
    """Whether a statement sets an attribute to more than a constant: it may stand for the module of another branch."""
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Attribute)
        and not isinstance(statement.value, ast.Constant)
    )


def _adds(node: ast.expr) -> bool:
    """Whether a call for its effect may add modules: `x.append(...)`, `self.method(...)`, `setattr(...)`."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Attribute):
        own = isinstance(function.value, ast.Name) and function.value.id == "self"
        return own or function.attr in ADDING
    return isinstance(function, ast.Name) and function.id == "setattr"


def modular(value: Any) -> bool:
    """Whether a value is, or may lead to, a module."""
    if isinstance(value, Instance):
        return value.module
    if isinstance(value, Choice):
        return any(modular(option.value) for option in value.options)
    if isinstance(value, list):
        return any(modular(item) for item in value[:4])
    if isinstance(value, Unknown):
        return bool(value.classes)
    return isinstance(value, ClassValue)


def _held(container: Any, key: Any) -> Any:
    if isinstance(container, list):
        return container[key] if isinstance(key, int) and key < len(container) else MISSING
    return container.get(key, MISSING) if isinstance(container, dict) else MISSING


def store(container: Any, key: Any, value: Any) -> None:
    """Put a value into a dict, list or set; behind the end of a list it is appended."""
    if isinstance(container, dict):
        container[key] = value
    elif isinstance(container, list):
        if isinstance(key, int) and key < len(container):
            container[key] = value
        else:
            container.append(value)
    elif isinstance(container, set):
        container.add(value)


def _extended(new: Any, held: Any, condition: str, live: bool) -> Any:
    """The value of a slot that a branch sets: with the branch's condition, beside what other branches would set."""
    options = [Option(condition, new, live)]
    if isinstance(held, Choice):
        options += [o for o in held.options if not live or o.live is False]
    elif held is not MISSING and not live:
        options.insert(0, Option("", held, True))
    return choice(options)


def differences(container: Any, before: Any, after: Any) -> list[tuple[Any, Any, Any]]:
    """(key, old, new) of what differs; keys of a list are positions."""
    if isinstance(container, dict):
        found = [(k, before.get(k, MISSING), v) for k, v in after.items() if before.get(k, MISSING) is not v]
        return found + [(k, v, MISSING) for k, v in before.items() if k not in after]
    if isinstance(container, list):
        return [
            (n, before[n] if n < len(before) else MISSING, v)
            for n, v in enumerate(after)
            if n >= len(before) or before[n] is not v
        ]
    return []
