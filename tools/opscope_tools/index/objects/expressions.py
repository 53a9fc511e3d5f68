"""Expressions: `full` keeps choices (what an assignment stores), `ev` gives the value to compute with."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from opscope_tools.index.objects.attributes import Attributes
from opscope_tools.index.objects.calls import Calls
from opscope_tools.index.objects.classes import Names
from opscope_tools.index.objects.operations import Operations
from opscope_tools.index.objects.state import State
from opscope_tools.index.objects.values import (
    MISSING,
    Args,
    Choice,
    ClassValue,
    ExhaustedError,
    Frame,
    FunctionValue,
    Instance,
    Kwargs,
    Option,
    RaisedError,
    Site,
    Super,
    Uncertain,
    UndecidedError,
    Unknown,
    absent,
    choice,
    plain,
)
from opscope_tools.source.python.syntax import Text

#: evaluates one kind of expression
Handler = Callable[[Any, Frame], Any]
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
#: errors of Python's own operations that the interpreted code may catch
_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)
#: a table of more classes than this is not spelled out as alternatives
ALTERNATIVES = 8
_SILENT = {"logger", "logging", "warnings"}


@dataclass(eq=False)
class Expressions:
    """Evaluation of expressions."""

    names: Names
    operations: Operations
    attributes: Attributes
    calls: Calls
    state: State

    def __post_init__(self) -> None:
        #: literals.py adds its own
        self.handlers: dict[type[ast.expr], Handler] = {
            ast.Name: self._name, ast.Attribute: self._attribute, ast.Subscript: self._subscript, ast.Slice: self._slice,
            ast.BinOp: self._binary, ast.UnaryOp: self._unary, ast.BoolOp: self._boolean, ast.Compare: self._compare,
            ast.IfExp: self._conditional, ast.Call: self._call,
        }  # fmt: skip

    def ev(self, node: ast.expr, frame: Frame) -> Any:
        """The plain value of an expression, a choice settled; raises `RaisedError` where Python would miss an
        attribute."""
        value = plain(self.full(node, frame))
        if value is MISSING:
            raise RaisedError("AttributeError")
        return value

    def full(self, node: ast.expr, frame: Frame) -> Any:
        """The value with its alternatives kept; one step of the limit. Raises `ExhaustedError` behind the last."""
        kind = type(node)
        if kind is ast.Constant:
            return node.value  # type: ignore[attr-defined]
        state = self.state
        state.steps += 1
        if state.steps > state.limit:
            raise ExhaustedError
        handler = self.handlers.get(kind)
        if handler is None:
            return Unknown(self.text(node, frame))
        try:
            return handler(node, frame)
        except UndecidedError:
            return Unknown(self.text(node, frame))
        except _ERRORS as error:
            raise RaisedError(type(error).__name__) from None

    def text(self, node: ast.AST, frame: Frame) -> str:
        """The expression as written."""
        code: Text = frame.code
        return code.text(node)[:400]

    def head(self, loop: ast.For | ast.comprehension, frame: Frame) -> str:
        """What a loop runs over, as written."""
        return f"for {self.text(loop.target, frame)} in {self.text(loop.iter, frame)}"

    def test(self, node: ast.expr, frame: Frame) -> bool | None:
        """The truth of a condition."""
        if isinstance(node, ast.BoolOp):
            stop = isinstance(node.op, ast.Or)
            seen: list[bool | None] = []
            for value in node.values:
                found = self.test(value, frame)
                if found is stop:
                    return stop
                seen.append(found)
            return None if None in seen else not stop
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.test(node.operand, frame)
            return None if inner is None else not inner
        try:
            return self.operations.truth(self.ev(node, frame))
        except RaisedError:
            if self.state.trying:
                raise
            return None

    # names and attributes

    def _name(self, node: ast.Name, frame: Frame) -> Any:
        here: Frame | None = frame
        while here is not None:
            if node.id in here.local:
                value = here.local[node.id]
                if type(value) is not Choice or not absent(value):
                    return value
            here = here.closure
        value = self.names.name(frame.unit, node.id, frame.before)
        return Unknown(node.id) if value is MISSING else value

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        return self.attributes.get(self.ev(node.value, frame), node.attr)

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        value = self.ev(node.value, frame)
        key = self.ev(node.slice, frame)
        before = self.state.serial
        try:
            found = self._table(value, key, node, frame)
        except UndecidedError:
            return Unknown(self.text(node, frame), classes=_table_classes(value))
        if isinstance(found, Unknown) and not found.classes:
            return Unknown(self.text(node, frame), classes=_table_classes(value))
        self.mark(found, node, frame, None, before)
        return found

    def _table(self, value: Any, key: Any, node: ast.Subscript, frame: Frame) -> Any:
        if isinstance(value, dict) and value and len(value) <= ALTERNATIVES:
            held = list(value.items())
            if all(isinstance(item, ClassValue) for _, item in held):
                shown = self.text(node.slice, frame)
                known = not isinstance(key, Unknown | Choice)
                if isinstance(node.slice, ast.Constant):
                    return value[key]
                return choice([Option(f"{shown} == {k!r}", v, (k == key) if known else None) for k, v in held])
        return self.operations.item(value, key)

    def _slice(self, node: ast.Slice, frame: Frame) -> slice:
        parts = [None if part is None else self.ev(part, frame) for part in (node.lower, node.upper, node.step)]
        if any(isinstance(part, Unknown | Choice) for part in parts):
            raise UndecidedError
        return slice(*parts)

    # operations

    def _binary(self, node: ast.BinOp, frame: Frame) -> Any:
        return self.operations.binary(node.op, self.ev(node.left, frame), self.ev(node.right, frame))

    def _unary(self, node: ast.UnaryOp, frame: Frame) -> Any:
        if isinstance(node.op, ast.Not):
            found = self.test(node.operand, frame)
            if found is None:
                raise UndecidedError
            return not found
        return _UNARY[type(node.op)](self.ev(node.operand, frame))

    def _boolean(self, node: ast.BoolOp, frame: Frame) -> Any:
        stop = isinstance(node.op, ast.Or)
        value: Any = None
        for part in node.values:
            value = self.ev(part, frame)
            found = self.operations.truth(value)
            if found is None:
                rest = node.values[node.values.index(part) + 1 :]
                if any(self.test(later, frame) is stop for later in rest if not stop):
                    return stop
                raise UndecidedError
            if found is stop:
                return value
        return value

    def _compare(self, node: ast.Compare, frame: Frame) -> Any:
        left = self.ev(node.left, frame)
        for step, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.ev(right_node, frame)
            if not self.operations.compared(step, left, right):
                return False
            left = right
        return True

    def _conditional(self, node: ast.IfExp, frame: Frame) -> Any:
        taken = self.test(node.test, frame)
        shown = self.text(node.test, frame)
        made = []
        for value, condition, live in (
            (node.body, shown, taken),
            (node.orelse, f"not ({shown})", None if taken is None else not taken),
        ):
            if live is False and not (isinstance(frame.this, Instance) and frame.this.module and makes(value)):
                continue
            with self.state.within(live):
                made.append(Option(condition, self.safe(value, frame), live))
        return made[0].value if len(made) == 1 and not _modular(made[0].value) else choice(made)

    def safe(self, node: ast.expr, frame: Frame, *, when_open: bool = True) -> Any:
        """The value; what fails in a branch that is not taken (or open) is not known: another configuration has it."""
        try:
            return self.full(node, frame)
        except RaisedError:
            if self.state.live or (self.state.live is None and not when_open):
                raise
            return Unknown(self.text(node, frame))

    # calls

    def _call(self, node: ast.Call, frame: Frame) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return self._super(node, frame)
        root: ast.expr = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in _SILENT and isinstance(node.func, ast.Attribute):
            return Unknown(root.id)
        function = self.full(node.func, frame)
        whole = isinstance(function, ClassValue) and bool(function.container())
        args, kwargs = self.arguments(node, frame, whole=whole)
        before = self.state.serial
        try:
            value = self.calls.call(function, args, kwargs)
        except UndecidedError:
            value = Unknown(self.text(node, frame))
        if isinstance(value, Unknown) and not value.text:
            value.text = self.text(node, frame)
        self.mark(value, node, frame, function, before)
        return value

    def _super(self, node: ast.Call, frame: Frame) -> Any:
        holder, this = frame.holder, frame.this
        if len(node.args) == 2:
            given = self.ev(node.args[0], frame)
            holder, this = (given if isinstance(given, ClassValue) else holder), self.ev(node.args[1], frame)
        if holder is None or not isinstance(this, Instance | ClassValue):
            raise UndecidedError
        return Super(holder, this)

    def arguments(self, node: ast.Call, frame: Frame, *, whole: bool = False) -> tuple[Args, Kwargs]:
        """Positional and keyword arguments; `whole`: spread lists with what branches that are not taken put into them."""
        args: list[Any] = []
        kwargs: Kwargs = {}
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                value = self.ev(argument.value, frame)
                try:
                    args.extend(value if whole and isinstance(value, list) else self.operations.iterate(value))
                except UndecidedError:
                    kwargs["**"] = Unknown(self.text(argument, frame))
            else:
                args.append(self.safe(argument, frame, when_open=False))
        for keyword in node.keywords:
            if keyword.arg is not None:
                kwargs[keyword.arg] = self.safe(keyword.value, frame, when_open=False)
                continue
            value = self.ev(keyword.value, frame)
            value = value.data if isinstance(value, Instance) and value.data is not None else value
            if isinstance(value, dict):
                kwargs.update({str(key): held for key, held in value.items()})
            else:
                kwargs["**"] = Unknown(self.text(keyword.value, frame))
        return tuple(args), kwargs

    def mark(self, value: Any, node: ast.expr, frame: Frame, function: Any, before: int) -> None:
        """Note on new instances where, and in what words, they were asked for."""
        if isinstance(value, Choice):
            for option in value.options:
                self.mark(option.value, node, frame, function, before)
            return
        if not isinstance(value, Instance) or not value.module or value.serial <= before:
            return
        code: Text = frame.code
        arguments, dispatch = "", ""
        if isinstance(node, ast.Call):
            if node.args or node.keywords:
                arguments = (
                    code.text(node)[len(code.text(node.func)) :].strip().removeprefix("(").removesuffix(")").strip()
                )
            direct = isinstance(function, ClassValue) or (
                isinstance(function, Choice) and isinstance(node.func, ast.Name)
            )
            if not direct or isinstance(node.func, ast.Subscript | ast.Call):
                dispatch = code.text(node.func) if isinstance(node.func, ast.Subscript) else code.text(node)
        else:
            dispatch = code.text(node)
        owner = frame.this if isinstance(frame.this, Instance) else None
        repeat = " ".join(frame.repeat)
        value.sites.append(
            Site(owner, frame.unit, code.line(node), arguments[:400], dispatch[:400], repeat, node.col_offset)
        )

    # targets of assignments

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        """Bind a target of any form: a name, an attribute, an item, or several of them unpacked."""
        if isinstance(target, ast.Name):
            self.state.bind(frame, target.id, value)
        elif isinstance(target, ast.Attribute):
            self.attributes.put(self.ev(target.value, frame), target.attr, value)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, plain(value), frame)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, frame)
        elif isinstance(target, ast.Subscript):
            self._put_item(self.ev(target.value, frame), target, value, frame)

    def _unpack(self, targets: Sequence[ast.expr], value: Any, frame: Frame) -> None:
        try:
            items: list[Any] = self.operations.iterate(value)
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
            self.attributes.put(owner, key if isinstance(key, str) else "*", value)
            return
        if isinstance(owner, Instance) and owner.data is not None:
            owner = owner.data
        if isinstance(key, Unknown | Choice) and isinstance(owner, dict):
            key = "*"
        if isinstance(owner, dict | list):
            self.state.touch(owner)
            owner[key] = value

    def assign_unknown(self, target: ast.expr, frame: Frame) -> None:
        """Bind the names of a target to nothing known."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.assign(node, Unknown(node.id), frame)

    def delete(self, node: ast.Delete, frame: Frame) -> None:
        """`del`: what is not there is passed over."""
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                self.attributes.remove(self.ev(target.value, frame), target.attr)
            elif isinstance(target, ast.Name):
                self.state.touch(frame.local)
                frame.local.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                owner = self.ev(target.value, frame)
                key = self.ev(target.slice, frame)
                if isinstance(owner, dict | list):
                    self.state.touch(owner)
                    del owner[key]
                elif isinstance(owner, Instance) and owner.module:
                    names = list(owner.attrs)
                    self.attributes.remove(owner, names[key] if isinstance(key, int) else key)


def _table_classes(value: Any) -> list[ClassValue]:
    """The module classes in a table."""
    held = value.data if isinstance(value, Instance) else value
    found: list[ClassValue] = []
    if isinstance(held, dict) and not isinstance(held, Uncertain):
        for entry in held.values():
            first = entry[0] if isinstance(entry, tuple) and entry else entry
            if isinstance(first, ClassValue) and first.is_module() and first not in found:
                found.append(first)
    return found


def makes(node: ast.AST) -> bool:
    """Whether the expression may make or name a module."""
    known: bool | None = getattr(node, "_makes", None)
    if known is None:
        known = any(
            isinstance(inner, ast.Call) or (isinstance(inner, ast.Name) and inner.id[:1].isupper())
            for inner in ast.walk(node)
        )
        node._makes = known  # type: ignore[attr-defined]
    return known


def _modular(value: Any) -> bool:
    return isinstance(value, ClassValue | Choice | FunctionValue) or (isinstance(value, Instance) and value.module)
