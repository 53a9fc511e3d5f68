"""What an expression of the source comes to, as far as the source and the installed packages tell.

A small interpreter for two questions: does a guard hold here (`is_x_available()`, `HAS_X`, `sys.version_info >= (3,
10)`), and what does a module's `__getattr__` serve for a name. Nothing is run or imported; what is not known is
`UNKNOWN`, and spreads. Values are constants, tuples, `Table` for dicts, and `Found` for what a name leads to.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opscope_tools.source.python.file_rows import VALUE_LIMIT
from opscope_tools.source.python.found import Found
from opscope_tools.source.python.imports import imported
from opscope_tools.source.python.looks import Looks, noting, pass_on
from opscope_tools.source.python.plain_values import (
    UNKNOWN,
    RaisedError,
    Table,
    bind,
    bound_arguments,
    call_method,
    compared,
    item_at,
)
from opscope_tools.source.python.rows import AssignRow, FunctionRow
from opscope_tools.source.python.trees import expression_of, tree_of

if TYPE_CHECKING:
    from opscope_tools.source.python.names import Resolver
    from opscope_tools.source.python.repository import SourceTree, Unit


#: calls inside one another that are followed; statements that one question may run
_DEPTH, _STEPS = 8, 4000

_FACTS: Mapping[str, Any] = {
    "sys.version_info": tuple(sys.version_info[:3]), "sys.platform": sys.platform, "sys.maxsize": sys.maxsize,
    "os.name": "nt" if sys.platform == "win32" else "posix", "typing.TYPE_CHECKING": False,
}  # fmt: skip


#: by condition: whether it holds, the modules that were read for it, and what was looked at
_Answers = dict[str, tuple[bool | None, frozenset["Unit"], Looks]]


class _Returned(Exception):  # noqa: N818 (control flow, no error)
    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass(frozen=True)
class _Scope:
    """Where an expression stands: the module, the names bound so far, the calls that lead here."""

    unit: Unit
    names: dict[str, Any]
    depth: int


class _State(threading.local):
    """Of one thread: statements run for the question at hand, and the modules read for it (None: nobody asks)."""

    steps = 0
    read: set[Unit] | None = None


class Evaluator:
    """Answers for the units of one resolver."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        #: by tree and file: the module that was asked about, and its answers, which name modules, itself among them
        self._known: dict[tuple[SourceTree, str], tuple[Unit, _Answers]] = {}
        self._state = _State()

    def reads(self, unit: Unit) -> None:
        """Note that what is being evaluated depends on `unit`; the resolver tells of every module it looks into."""
        if self._state.read is not None:
            self._state.read.add(unit)

    def holds(self, unit: Unit, condition: str) -> bool | None:
        """Whether a guard of `unit` holds; None where source does not tell. Kept until a file it depends on changes."""
        place = unit.tree, unit.file
        asked, known = self._known.get(place, (None, {}))
        if asked is not unit:
            known = {}
            self._known[place] = unit, known
        kept = known.get(condition)
        outer = self._state.read
        if kept is None or any(other.tree.unit(other.file) is not other for other in kept[1]):
            known[condition] = None, frozenset(), {}  # as long as it depends on itself
            self._state.read = set()
            # a guard names the branches of `try` beside the conditions of `if`
            text = re.sub(r"(^|\band )try(?= and |$)", r"\1True", condition)
            looks: Looks = {}
            with self._resolver.question(apart=True), noting(looks):  # so that every module it depends on is told of
                value = self.value(unit, re.sub(r"(^|\band )except\b.*$", r"\1...", text))
            kept = known[condition] = None if value is UNKNOWN else bool(value), frozenset(self._state.read), looks
        else:
            pass_on(kept[2])
        self._state.read = None if outer is None else outer | kept[1]
        return kept[0]

    def value(self, unit: Unit, text: str, depth: int = 0) -> Any:
        """What an expression of `unit` comes to, or `UNKNOWN`."""
        if not depth:
            self._state.steps = 0
        tree = expression_of(text)
        if tree is None or depth > _DEPTH:
            return UNKNOWN
        self.reads(unit)
        try:
            return self._value(tree, _Scope(unit, {}, depth))
        except (RaisedError, RecursionError):
            return UNKNOWN

    def served(self, unit: Unit, row: FunctionRow, name: str) -> Found | None:
        """What `__getattr__` (PEP 562) of the module answers for `name`; None where it has none or is not understood."""
        self._state.steps = 0
        try:
            value = self._run(unit, row, [name], {}, 0)
        except (RaisedError, RecursionError):
            return None
        return value if isinstance(value, Found) and value.kind != "external" else None

    def assigned(self, found: Found) -> Any:
        """What the assignment that was found gives its name, or `UNKNOWN`."""
        self._state.steps = 0
        try:
            return self._of_found(found, 0)
        except (RaisedError, RecursionError):
            return UNKNOWN

    # expressions

    def _value(self, node: ast.expr, scope: _Scope) -> Any:
        if isinstance(node, ast.Constant):
            return UNKNOWN if node.value is ... else node.value
        if isinstance(node, ast.Name):
            return scope.names[node.id] if node.id in scope.names else self._name(node.id, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        if isinstance(node, ast.BoolOp):
            return self._connected(node, scope)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            value = self._value(node.operand, scope)
            return value if value is UNKNOWN else not value
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return compared(self._value(node.left, scope), node.ops[0], self._value(node.comparators[0], scope))
        if isinstance(node, ast.IfExp):
            test = self._value(node.test, scope)
            return UNKNOWN if test is UNKNOWN else self._value(node.body if test else node.orelse, scope)
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return tuple(self._value(item, scope) for item in node.elts)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            return item_at(self._value(node.value, scope), self._value(node.slice, scope))
        if isinstance(node, ast.Dict):
            return self._table(node, scope)
        if isinstance(node, ast.JoinedStr | ast.BinOp):
            return self._joined(node, scope)
        return self._call(node, scope) if isinstance(node, ast.Call) else UNKNOWN

    def _connected(self, node: ast.BoolOp, scope: _Scope) -> Any:
        """`and`, `or`: a part that decides does so beside unknown ones."""
        decides = isinstance(node.op, ast.Or)
        unknown = False
        value: Any = None
        for part in node.values:
            value = self._value(part, scope)
            if value is UNKNOWN:
                unknown = True
            elif bool(value) is decides:
                return value
        return UNKNOWN if unknown else value

    def _joined(self, node: ast.JoinedStr | ast.BinOp, scope: _Scope) -> Any:
        """Strings put together: `f"{a}.b"`, `a + b`."""
        if isinstance(node, ast.BinOp):
            if not isinstance(node.op, ast.Add):
                return UNKNOWN
            left, right = self._value(node.left, scope), self._value(node.right, scope)
            same = isinstance(left, str | tuple) and type(left) is type(right)
            return left + right if same else UNKNOWN
        parts = []
        for part in node.values:
            value = self._value(part.value if isinstance(part, ast.FormattedValue) else part, scope)
            if not isinstance(value, str):
                return UNKNOWN
            parts.append(value)
        return "".join(parts)

    def _table(self, node: ast.Dict, scope: _Scope) -> Any:
        entries: dict[str, str] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                return UNKNOWN
            entries[key.value] = ast.unparse(value)
        return Table(entries, lambda text: self.value(scope.unit, text, scope.depth + 1))

    def _name(self, name: str, scope: _Scope) -> Any:
        if name in {"__name__", "__package__"}:
            return scope.unit.name if name == "__name__" else scope.unit.package
        if name == "__all__":
            exports = self._resolver.exports(scope.unit)
            return UNKNOWN if exports is None or not exports.complete else tuple(exports.names)
        if scope.depth > _DEPTH:
            return UNKNOWN
        found = self._resolver.lookup(scope.unit, name)
        return UNKNOWN if found is None else self._of_found(found, scope.depth)

    def _of_found(self, found: Found, depth: int) -> Any:
        if found.kind == "external":
            return _FACTS.get(found.name, found)
        if found.kind != "value" or found.unit is None or not isinstance(found.row, AssignRow):
            return found if found.in_source else UNKNOWN
        unit, row = found.unit, found.row
        if row.entries:
            entries = dict(row.entries)
            return UNKNOWN if "**" in entries else Table(entries, lambda text: self.value(unit, text, depth + 1))
        text = row.value if len(row.value) < VALUE_LIMIT else _whole_value(unit, row)
        return self.value(unit, text, depth + 1)

    def _attribute(self, node: ast.Attribute, scope: _Scope) -> Any:
        value = self._value(node.value, scope)
        return (
            self._of_found(self._resolver.member(value, node.attr), scope.depth)
            if isinstance(value, Found)
            else UNKNOWN
        )

    # calls

    def _call(self, node: ast.Call, scope: _Scope) -> Any:
        given = [self._value(argument, scope) for argument in node.args]
        keywords = {k.arg: self._value(k.value, scope) for k in node.keywords if k.arg}
        if isinstance(node.func, ast.Attribute):
            holder = self._value(node.func.value, scope)
            if isinstance(holder, str | Table):
                return call_method(holder, node.func.attr, given)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "isinstance" and len(given) == 2:
            kind = {"str": str, "tuple": tuple, "list": tuple, "dict": Table}.get(ast.unparse(node.args[1]))
            return UNKNOWN if kind is None or given[0] is UNKNOWN else isinstance(given[0], kind)
        if name in {"getattr", "bool", "globals", "str"} and name not in scope.names:
            return self._builtin(name, given, scope)
        called = self._value(node.func, scope)
        if not isinstance(called, Found) or scope.depth > _DEPTH:
            return UNKNOWN
        if called.name in {"importlib.util.find_spec", "importlib.import_module"}:
            return self._library(called.name, [*given, *keywords.values()], scope)
        if called.kind == "function" and called.unit is not None and isinstance(called.row, FunctionRow):
            return self._run(called.unit, called.row, given, keywords, scope.depth + 1)
        return UNKNOWN

    def _builtin(self, name: str, given: Sequence[Any], scope: _Scope) -> Any:
        first = given[0] if given else UNKNOWN
        if name == "getattr" and len(given) > 1 and isinstance(first, Found) and isinstance(given[1], str):
            return self._of_found(self._resolver.member(first, given[1]), scope.depth)
        if name == "bool" and first is not UNKNOWN:
            return bool(first)
        return first if name == "str" and isinstance(first, str) else UNKNOWN

    def _library(self, name: str, given: Sequence[Any], scope: _Scope) -> Any:
        """`find_spec(module)`, `import_module(module, package)`."""
        if not given or not isinstance(given[0], str):
            return UNKNOWN
        module = given[0]
        if module.startswith("."):
            package = given[1] if len(given) > 1 and isinstance(given[1], str) else scope.unit.package
            dots = len(module) - len(module.lstrip("."))
            parts = package.split(".")
            module = ".".join([*parts[: len(parts) - dots + 1], module.lstrip(".")])
        if not self._resolver.available(module):
            if name.endswith("find_spec"):
                return None
            raise RaisedError
        return self._resolver.module_found(module)

    def _run(self, unit: Unit, row: FunctionRow, given: Sequence[Any], keywords: Mapping[str, Any], depth: int) -> Any:
        """What a function of the source returns, where its way through its body is known."""
        tree = _definition(unit, row)
        if tree is None or depth > _DEPTH:
            return UNKNOWN
        try:
            self._block(tree.body, _Scope(unit, bound_arguments(tree.args, given, keywords), depth))
        except _Returned as returned:
            return returned.value
        return None

    # statements

    def _block(self, body: Sequence[ast.stmt], scope: _Scope) -> None:
        for statement in body:
            self._state.steps += 1
            if self._state.steps > _STEPS:
                raise _Returned(UNKNOWN)
            self._statement(statement, scope)

    def _statement(self, statement: ast.stmt, scope: _Scope) -> None:
        """Run one statement; raises `_Returned`, with UNKNOWN where the way on is not known."""
        if isinstance(statement, ast.Return):
            raise _Returned(None if statement.value is None else self._value(statement.value, scope))
        if isinstance(statement, ast.Assign):
            value = self._value(statement.value, scope)
            for target in statement.targets:
                bind(target, value, scope.names)
        elif isinstance(statement, ast.If):
            self._if(statement, scope)
        elif isinstance(statement, ast.Try):
            try:
                self._block(statement.body, scope)
            except RaisedError:
                self._block([inner for handler in statement.handlers[:1] for inner in handler.body], scope)
            self._block(statement.finalbody, scope)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            self._import(statement, scope)
        elif isinstance(statement, ast.For):
            self._for(statement, scope)
        elif isinstance(statement, ast.With):
            self._block(statement.body, scope)
        elif isinstance(statement, ast.Raise):
            raise RaisedError
        elif not isinstance(statement, ast.Expr | ast.Pass | ast.Global):
            raise _Returned(UNKNOWN)

    def _if(self, statement: ast.If, scope: _Scope) -> None:
        test = self._value(statement.test, scope)
        if test is not UNKNOWN:
            self._block(statement.body if test else statement.orelse, scope)
            return
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Return | ast.Raise):
                raise _Returned(UNKNOWN)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                scope.names[inner.id] = UNKNOWN

    def _for(self, statement: ast.For, scope: _Scope) -> None:
        items = self._value(statement.iter, scope)
        if isinstance(items, Table):
            items = tuple(items.entries)
        if not isinstance(items, tuple) or any(isinstance(n, ast.Break | ast.Continue) for n in ast.walk(statement)):
            raise _Returned(UNKNOWN)
        for item in items:
            bind(statement.target, item, scope.names)
            self._block(statement.body, scope)

    def _import(self, statement: ast.Import | ast.ImportFrom, scope: _Scope) -> None:
        for one in imported(statement, scope.unit.package):
            there = one.member or self._resolver.available(one.module)
            found = self._resolver.binds(scope.unit, one) if there else None
            if found is None:
                raise RaisedError
            scope.names[one.name] = self._of_found(found, scope.depth)


def _definition(unit: Unit, row: FunctionRow) -> ast.FunctionDef | None:
    """The syntax tree of one function, read from its lines alone."""
    lines = unit.tree.source(unit.file).decode("utf-8", "replace").split("\n")[row.line - 1 : row.end_line]
    tree = tree_of(textwrap.dedent("\n".join(lines)))
    first = tree.body[0] if tree is not None and tree.body else None
    return first if isinstance(first, ast.FunctionDef) else None


def _whole_value(unit: Unit, row: AssignRow) -> str:
    """The value of an assignment that is too long for its row."""
    tree = tree_of(unit.tree.source(unit.file).decode("utf-8-sig", "replace"))
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno == row.line and node.value is not None:
            return ast.unparse(node.value)
    return "..."
