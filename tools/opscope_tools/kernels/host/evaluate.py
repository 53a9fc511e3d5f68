"""Expressions of the analysed Python, worked out without executing any of it: the lower half of interpreter.py.

`Evaluator.eval` has one method per kind of node; names, calls, decisions and assignments are left to `Interpreter`.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from opscope_tools.kernels.host.modules import PyModule
from opscope_tools.kernels.host.worlds import (
    DEFAULT_OPTIONS,
    ConfigValue,
    DroppedError,
    Function,
    ImportRef,
    Meta,
    UnresolvedError,
    is_concrete,
)  # fmt: skip
from opscope_tools.kernels.values.expressions import (
    ARITHMETIC,
    COMPARISONS,
    SYMBOLS,
    Expression,
    Opaque,
    Operation,
    Prefix,
    Quantity,
    combine,
    leaf,
    negative,
    operand,
    render,
)  # fmt: skip

if TYPE_CHECKING:
    from opscope_tools.kernels.host.interpreter import Interpreter

_STEPS = 60_000
#: of an iterable or a comprehension
_MOST_ITEMS = 20_000
_LARGE = 1 << 64


class Scope(Protocol):
    """Where names are looked up."""

    module: PyModule

    def lookup(self, name: str, run: Interpreter) -> Any:
        """The value of `name`; raises `KeyError` where the scope does not know it."""


class Evaluator(ABC):
    """Expressions in one world."""

    def __init__(self) -> None:
        self.steps = 0

    @abstractmethod
    def name(self, name: str, scope: Scope) -> Any:
        """The value of a name."""

    @abstractmethod
    def call(self, node: ast.Call, scope: Scope) -> Any:
        """The value of a call."""

    @abstractmethod
    def imported(self, dotted: str, importer: PyModule) -> Any:
        """What a dotted name outside the file stands for."""

    @abstractmethod
    def decide(self, test: ast.expr, scope: Scope) -> bool:
        """The truth of a test."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Bind a value."""

    @abstractmethod
    def local(self, scope: Scope) -> Scope:
        """A scope inside another."""

    def eval(self, node: ast.expr, scope: Scope) -> Any:
        """The value of `node`; an `Expression` where reading does not settle it."""
        self.steps += 1
        if self.steps > _STEPS:
            raise UnresolvedError("too many steps")
        method = getattr(self, "_" + type(node).__name__.lower().lstrip("_"), None)
        return method(node, scope) if method else leaf(ast.unparse(node))

    def _quoted(self, node: ast.Constant, _scope: Scope) -> Any:
        return node.value

    def _constant(self, node: ast.Constant, _scope: Scope) -> Any:
        return node.value

    def _name(self, node: ast.Name, scope: Scope) -> Any:
        return self.name(node.id, scope)

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        return self.call(node, scope)

    def _tuple(self, node: ast.Tuple, scope: Scope) -> Any:
        return tuple(self._elements(node.elts, scope))

    def _list(self, node: ast.List, scope: Scope) -> Any:
        return list(self._elements(node.elts, scope))

    def _set(self, node: ast.Set, scope: Scope) -> Any:
        return list(dict.fromkeys(self._elements(node.elts, scope)))

    def _elements(self, nodes: Iterable[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found.extend(self.iterate(self.eval(node.value, scope), node))
            else:
                found.append(self.eval(node, scope))
        return found

    def _dict(self, node: ast.Dict, scope: Scope) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.eval(value, scope)
                if not isinstance(inner, dict):
                    raise UnresolvedError(ast.unparse(node))
                found.update(inner)
            else:
                found[hashable(self.eval(key, scope))] = self.eval(value, scope)
        return found

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Any:
        parts = []
        for part in node.values:
            value = self.eval(part.value, scope) if isinstance(part, ast.FormattedValue) else self.eval(part, scope)
            if not is_concrete(value) or (isinstance(part, ast.FormattedValue) and part.format_spec):
                return leaf(ast.unparse(node))
            parts.append(str(value))
        return "".join(parts)

    def _binop(self, node: ast.BinOp, scope: Scope) -> Any:
        return self.binary(node, self.eval(node.left, scope), self.eval(node.right, scope))

    def binary(self, node: ast.BinOp, left: Any, right: Any) -> Any:
        """What an operator makes of two values."""
        if isinstance(left, Expression | ImportRef | Function) or isinstance(right, Expression | ImportRef | Function):
            if isinstance(left, list | tuple) or isinstance(right, list | tuple):
                raise UnresolvedError(ast.unparse(node))
            return combine(SYMBOLS[type(node.op)], left, right)
        if isinstance(left, list | tuple) and isinstance(right, list | tuple) and isinstance(node.op, ast.Add):
            return (*left, *right) if isinstance(left, tuple) else [*left, *right]
        action = ARITHMETIC.get(SYMBOLS[type(node.op)])
        try:
            if action is None or (isinstance(node.op, ast.Pow | ast.LShift) and abs(right) > 128):
                return leaf(ast.unparse(node))
            value = action(left, right)
        except Exception:  # whatever the analysed arithmetic raises, it has no value
            return leaf(ast.unparse(node))
        big = (isinstance(value, int) and abs(value) > _LARGE) or (
            isinstance(value, str | list) and len(value) > 10_000
        )
        return leaf(ast.unparse(node)) if big else value

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        return self.unary(node, self.eval(node.operand, scope))

    def unary(self, node: ast.UnaryOp, value: Any) -> Any:
        """What an operator makes of a value."""
        if isinstance(node.op, ast.Not):
            return Prefix("not", value) if isinstance(value, Expression) else not value
        if isinstance(value, int | float):
            return -value if isinstance(node.op, ast.USub) else +value if isinstance(node.op, ast.UAdd) else ~int(value)
        return negative(operand(value)) if isinstance(node.op, ast.USub) else leaf(ast.unparse(node))

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        return self.joined(node, (self.eval(part, scope) for part in node.values))

    def joined(self, node: ast.BoolOp, values: Iterable[Any]) -> Any:
        """What `and` or `or` makes of values, none asked for behind the one that decides."""
        stop = isinstance(node.op, ast.Or)
        unsettled: list[Any] = []
        value: Any = None
        for value in values:
            if isinstance(value, Expression):
                unsettled.append(value)
            elif bool(value) == stop:
                return value if not unsettled else _joined([*unsettled, value], stop)
        return _joined(unsettled, stop) if unsettled else value

    def _compare(self, node: ast.Compare, scope: Scope) -> Any:
        return self.compared(node, (self.eval(part, scope) for part in (node.left, *node.comparators)))

    def compared(self, node: ast.Compare, values: Iterable[Any]) -> Any:
        """What comparisons make of values, none asked for behind the one that decides."""
        every = iter(values)
        left = next(every)
        result: Any = True
        for op, right in zip(node.ops, every, strict=False):
            symbol = SYMBOLS[type(op)]
            if is_concrete(left) and is_concrete(right):
                try:
                    result = COMPARISONS[symbol](left, right)
                except TypeError:
                    return leaf(ast.unparse(node))
                if not result:
                    return False
            elif len(node.ops) == 1:
                return Operation(symbol, operand(left), operand(right))
            else:
                return Opaque(ast.unparse(node))
            left = right
        return result

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        return self.eval(node.body if self.decide(node.test, scope) else node.orelse, scope)

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        value = self.eval(node.value, scope)
        self.assign(node.target, value, scope)
        return value

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        return Function(node, scope)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        value = self.eval(node.value, scope)
        if isinstance(value, Meta):
            key = self.eval(node.slice, scope)
            return Opaque(str(key) if isinstance(key, str) else render(key))
        if isinstance(node.slice, ast.Slice):
            bounds = [
                None if p is None else self.eval(p, scope)
                for p in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            if isinstance(value, list | tuple | str) and all(b is None or isinstance(b, int) for b in bounds):
                return value[slice(*bounds)]
            return leaf(ast.unparse(node))
        key = self.eval(node.slice, scope)
        try:
            if isinstance(value, list | tuple | str) and isinstance(key, int):
                return value[key]
            if isinstance(value, dict) and is_concrete(key):
                return value[hashable(key)]
        except (KeyError, IndexError):
            raise DroppedError(ast.unparse(node)) from None
        if isinstance(value, Quantity):
            return leaf(f"{value.name}[{render(key)}]")
        return leaf(ast.unparse(node))

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        value = self.eval(node.value, scope)
        if isinstance(value, Meta):
            name = node.attr if value.names is None else dict(value.names).get(node.attr)
            return leaf(ast.unparse(node)) if name is None else Opaque(name)
        if node.attr == "value" and isinstance(value, bool | int | float):  # of a constexpr, which is read as its value
            return value
        if isinstance(value, ImportRef):
            return self.imported(f"{value.dotted}.{node.attr}", scope.module)
        if isinstance(value, ConfigValue):
            of_triton = {**DEFAULT_OPTIONS, **value.options, "kwargs": value.values}
            given = value.values if value.plain else of_triton
            return given.get(node.attr, leaf(ast.unparse(node)))
        if isinstance(value, Quantity):
            return value.with_text(f"{value.name}.{node.attr}")
        return leaf(ast.unparse(node))

    def _listcomp(self, node: ast.ListComp, scope: Scope) -> Any:
        return [self.eval(node.elt, inner) for inner in self._comprehend(node.generators, scope)]

    def _generatorexp(self, node: ast.GeneratorExp, scope: Scope) -> Any:
        return [self.eval(node.elt, inner) for inner in self._comprehend(node.generators, scope)]

    def _setcomp(self, node: ast.SetComp, scope: Scope) -> Any:
        return list(dict.fromkeys(self.eval(node.elt, inner) for inner in self._comprehend(node.generators, scope)))

    def _dictcomp(self, node: ast.DictComp, scope: Scope) -> Any:
        return {
            hashable(self.eval(node.key, inner)): self.eval(node.value, inner)
            for inner in self._comprehend(node.generators, scope)
        }

    def _comprehend(self, generators: list[ast.comprehension], scope: Scope) -> list[Scope]:
        scopes: list[Scope] = [self.local(scope)]
        for generator in generators:
            produced: list[Scope] = []
            for outer in scopes:
                for item in self.iterate(self.eval(generator.iter, outer), generator.iter):
                    inner = self.local(outer)
                    self.assign(generator.target, item, inner)
                    if all(self.decide(test, inner) for test in generator.ifs):
                        produced.append(inner)
                    if len(produced) > _MOST_ITEMS:
                        raise UnresolvedError(f"a comprehension of over {_MOST_ITEMS} items")
            scopes = produced
        return scopes

    def iterate(self, value: Any, node: ast.AST) -> list[Any]:
        """The items of a settled iterable."""
        if isinstance(value, list | tuple | range | str) and len(value) <= _MOST_ITEMS:
            return list(value)
        if isinstance(value, dict):
            return list(value)
        raise UnresolvedError(ast.unparse(node))


def hashable(value: Any) -> Any:
    """A key for a dict of the analysed source."""
    return tuple(value) if isinstance(value, list) else value


def _joined(values: list[Any], either: bool) -> Any:
    return reduce(lambda a, b: Operation("or" if either else "and", a, b), map(operand, values))
