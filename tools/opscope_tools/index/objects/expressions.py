"""Expressions: `full` keeps choices (what an assignment stores), `ev` gives the value to compute with."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from opscope_tools.index.objects import containers
from opscope_tools.index.objects.attributes import Args, Kwargs
from opscope_tools.index.objects.containers import Uncertain
from opscope_tools.index.objects.memo import same
from opscope_tools.index.objects.objects import Objects
from opscope_tools.index.objects.sizes import check_binary
from opscope_tools.index.objects.values import (
    MISSING,
    Choice,
    ClassValue,
    ExhaustedError,
    Frame,
    FunctionValue,
    Instance,
    Option,
    RaisedError,
    Site,
    Super,
    UndecidedError,
    Unknown,
    absent,
    choice,
    plain,
)
from opscope_tools.source.python.syntax import Text

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
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
_TURNS = 4000
_SILENT = {"logger", "logging", "warnings"}


class Expressions(Objects):
    """Evaluation of expressions."""

    def ev(self, node: ast.expr, frame: Frame) -> Any:
        value = plain(self.full(node, frame))
        if value is MISSING:
            raise RaisedError("AttributeError")
        return value

    def full(self, node: ast.expr, frame: Frame) -> Any:
        kind = type(node)
        if kind is ast.Constant:
            return node.value  # type: ignore[attr-defined]
        self.steps += 1
        if self.steps > self.limit:
            raise ExhaustedError
        handler = HANDLERS.get(kind)
        if handler is None:
            return Unknown(self.text(node, frame))
        try:
            return handler(self, node, frame)
        except UndecidedError:
            return Unknown(self.text(node, frame))
        except _ERRORS as error:
            raise RaisedError(type(error).__name__) from None

    def text(self, node: ast.AST, frame: Frame) -> str:
        """The expression as written."""
        code: Text = frame.code
        return code.text(node)[:400]

    def truth(self, value: Any) -> bool | None:
        """The truth of a value; None where source does not tell."""
        kind = type(value)
        if kind is Unknown:
            return None
        if kind is Choice:
            found = {self.truth(plain(o.value)) for o in value.options if o.live is not False}
            return found.pop() if len(found) == 1 else None
        if kind is Uncertain:
            return None
        if kind is Instance:
            if value.module:
                return bool(containers.items(value)) if self.container(value.cls) else True
            if value.data is not None:
                return bool(value.data)
            return None if self.member(value.cls, "__bool__")[0] or self.member(value.cls, "__len__")[0] else True
        try:
            return bool(value)
        except UndecidedError:
            return None

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
            return self.truth(self.ev(node, frame))
        except RaisedError:
            if self.trying:
                raise
            return None

    def iterate(self, value: Any) -> list[Any]:
        """The items of a value; raises `UndecidedError` where source does not tell."""
        if isinstance(value, Instance):
            if value.module and self.container(value.cls):
                if self.container(value.cls) == "ModuleDict":
                    return list(value.attrs)
                return containers.items(value)
            if value.data is not None:
                return list(value.data)
            if self._is_enum(value.cls):
                raise UndecidedError
            found = self.member(value.cls, "__iter__")[1]
            if isinstance(found, FunctionValue):
                return self.iterate(plain(self.run(found, (value,), {}, value)))
            raise UndecidedError
        if isinstance(value, ClassValue | Unknown | Choice | FunctionValue):
            raise UndecidedError
        if isinstance(value, range) and len(value) > _TURNS:
            raise UndecidedError
        found_items = list(value)
        return [item for item in found_items if not absent(item)]

    # names and attributes

    def _name(self, node: ast.Name, frame: Frame) -> Any:
        here: Frame | None = frame
        while here is not None:
            if node.id in here.local:
                value = here.local[node.id]
                if not absent(value):
                    return value
            here = here.closure
        value = self.name(frame.unit, node.id, frame.before)
        if value is MISSING:
            return Unknown(node.id)
        return value

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        return self.get(self.ev(node.value, frame), node.attr)

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        value = self.ev(node.value, frame)
        key = self.ev(node.slice, frame)
        before = self.serial
        try:
            found = self._table(value, key, node, frame)
        except UndecidedError:
            return Unknown(self.text(node, frame), classes=self.table_classes(value))
        if isinstance(found, Unknown) and not found.classes:
            return Unknown(self.text(node, frame), classes=self.table_classes(value))
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
        return self.item(value, key)

    def item(self, value: Any, key: Any) -> Any:
        """`value[key]`."""
        if isinstance(value, Instance):
            if value.module and self.container(value.cls):
                return containers.item(value, key)
            found = self.member(value.cls, "__getitem__")[1]
            if isinstance(found, FunctionValue):
                return self.run(found, (value, key), {}, value)
            if value.data is not None:
                return value.data[key]
            raise UndecidedError
        if isinstance(value, ClassValue) and not self._is_enum(value):
            return value  # a generic class with its parameters
        if isinstance(value, type):
            return value
        if isinstance(value, Uncertain):
            if value and all(same(item, value[0]) for item in value):
                return value[0]
            raise UndecidedError
        if isinstance(key, Unknown | Choice):
            raise UndecidedError
        return value[key]

    def table_classes(self, value: Any) -> list[ClassValue]:
        """The module classes in a table."""
        held = value.data if isinstance(value, Instance) else value
        found: list[ClassValue] = []
        if isinstance(held, dict) and not isinstance(held, Uncertain):
            for entry in held.values():
                first = entry[0] if isinstance(entry, tuple) and entry else entry
                if isinstance(first, ClassValue) and self.is_module(first) and first not in found:
                    found.append(first)
        return found

    def _slice(self, node: ast.Slice, frame: Frame) -> slice:
        parts = [None if part is None else self.ev(part, frame) for part in (node.lower, node.upper, node.step)]
        if any(isinstance(part, Unknown | Choice) for part in parts):
            raise UndecidedError
        return slice(*parts)

    # operations

    def _binary(self, node: ast.BinOp, frame: Frame) -> Any:
        left, right = self.ev(node.left, frame), self.ev(node.right, frame)
        made = _BINARY.get(type(node.op))
        if made is None or isinstance(left, Instance) or isinstance(right, Instance):
            raise UndecidedError
        check_binary(node.op, left, right)
        result = made(left, right)
        if isinstance(left, Uncertain) or isinstance(right, Uncertain):
            return Uncertain(result)
        return result

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
            found = self.truth(value)
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
            if not self._compared(step, left, right):
                return False
            left = right
        return True

    def _compared(self, step: ast.cmpop, left: Any, right: Any) -> bool:
        if isinstance(step, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
            return self.equal(left, right, isinstance(step, ast.Is | ast.IsNot)) is isinstance(step, ast.Eq | ast.Is)
        if isinstance(step, ast.In | ast.NotIn):
            return self._within(left, right) is isinstance(step, ast.In)
        return bool(_ORDER[type(step)](data_of(left), data_of(right)))

    def equal(self, left: Any, right: Any, identity: bool = False) -> bool:
        if isinstance(left, Unknown) and isinstance(right, Unknown) and left.name and left.name == right.name:
            return True
        if isinstance(left, Unknown | Choice) or isinstance(right, Unknown | Choice):
            raise UndecidedError
        if left is right:
            return True
        if identity and (left is None or right is None):
            return False
        return bool(data_of(left) == data_of(right))

    def _within(self, left: Any, right: Any) -> bool:
        if isinstance(right, Instance):
            found = self.member(right.cls, "__contains__")[1]
            if isinstance(found, FunctionValue):
                answer = self.truth(plain(self.run(found, (right, left), {}, right)))
                if answer is None:
                    raise UndecidedError
                return answer
            if right.module:
                return isinstance(left, str) and left in right.attrs
            right = right.data if right.data is not None else self.iterate(right)
        if isinstance(right, list | tuple | dict | set) and not right and not isinstance(right, Uncertain):
            return False
        if isinstance(left, Unknown | Choice) or isinstance(right, Unknown | Choice | ClassValue | Uncertain):
            raise UndecidedError
        return bool(data_of(left) in right)

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
            made.append(Option(condition, self.under(live, partial(self._safe, value, frame)), live))
        return made[0].value if len(made) == 1 and not _modular(made[0].value) else choice(made)

    def _safe(self, node: ast.expr, frame: Frame) -> Any:
        try:
            return self.full(node, frame)
        except RaisedError:
            if self.live:
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
        whole = isinstance(function, ClassValue) and bool(self.container(function))
        args, kwargs = self.arguments(node, frame, whole=whole)
        before = self.serial
        try:
            value = self.call(function, args, kwargs)
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
                    args.extend(value if whole and isinstance(value, list) else self.iterate(value))
                except UndecidedError:
                    kwargs["**"] = Unknown(self.text(argument, frame))
            else:
                args.append(self._argument(argument, frame))
        for keyword in node.keywords:
            if keyword.arg is not None:
                kwargs[keyword.arg] = self._argument(keyword.value, frame)
                continue
            value = self.ev(keyword.value, frame)
            value = value.data if isinstance(value, Instance) and value.data is not None else value
            if isinstance(value, dict):
                kwargs.update({str(key): held for key, held in value.items()})
            else:
                kwargs["**"] = Unknown(self.text(keyword.value, frame))
        return tuple(args), kwargs

    def _argument(self, node: ast.expr, frame: Frame) -> Any:
        """An argument; what fails in a branch that is not taken (a field that another configuration has) is not known."""
        try:
            return self.full(node, frame)
        except RaisedError:
            if self.live is not False:
                raise
            return Unknown(self.text(node, frame))

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

    # of the part above

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        raise NotImplementedError

    def assign_unknown(self, target: ast.expr, frame: Frame) -> None:
        """Bind the names of a target to nothing known."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.assign(node, Unknown(node.id), frame)


def data_of(value: Any) -> Any:
    """An enum member or a dict subclass by what it holds."""
    return value.data if isinstance(value, Instance) and value.data is not None else value


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


#: how each kind of expression is evaluated; literals.py adds its own
HANDLERS: dict[type[ast.expr], Callable[[Any, Any, Frame], Any]] = {
    ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute,
    ast.Subscript: Expressions._subscript,
    ast.Slice: Expressions._slice,
    ast.BinOp: Expressions._binary,
    ast.UnaryOp: Expressions._unary,
    ast.BoolOp: Expressions._boolean,
    ast.Compare: Expressions._compare,
    ast.IfExp: Expressions._conditional,
    ast.Call: Expressions._call,
}
