"""A small abstract interpreter for the Python around Triton kernels: configuration lists, grids, launch settings.

It follows literals, comprehensions, module constants, local and imported helper functions, loops and branches. What it
cannot settle becomes an `Expression`; a branch on such a value asks the oracle. Nothing of the analysed source is executed:
evaluate.py has the expressions, library.py the library functions; here are scopes, decisions, calls and statements.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable
from typing import Any

from opscope_tools.kernels.architectures import Arch
from opscope_tools.kernels.host.evaluate import Evaluator, Scope, hashable
from opscope_tools.kernels.host.library import call_library, call_method
from opscope_tools.kernels.host.modules import Modules, PyModule, bound_names
from opscope_tools.kernels.host.worlds import DroppedError, Function, ImportRef, Oracle, UnresolvedError, is_concrete
from opscope_tools.kernels.values.expressions import Expression, Opaque, Quantity, call, leaf, render

_DEPTH = 16
#: characters up to which what a helper comes to stands for its call
_LONGEST = 240


class ModuleScope:
    """The globals of a file, each worked out when it is first asked for."""

    def __init__(self, module: PyModule) -> None:
        self.module = module

    def lookup(self, name: str, run: Interpreter) -> Any:
        """What the module binds to a name, imports followed; raises `KeyError` where it binds nothing."""
        key = (self.module.path, name)
        if key in run.globals:
            return run.globals[key]
        statements = self.module.bindings(name)
        if not statements:
            dotted = self.module.leads_to(name)
            if name in self.module.imports or (self.module.stars and run.modules.resolve(dotted, self.module.path)):
                return run.imported(dotted, self.module)
            raise KeyError(name)
        run.globals[key] = Quantity(name)  # a definition that needs itself stays a name
        scope = LocalScope(self, {})
        scope.values.pop(name, None)
        try:
            for statement in statements:
                run.execute_for(name, statement, scope)
            value = scope.values.get(name, Quantity(name))
        except UnresolvedError:
            value = Quantity(name)
        if isinstance(value, Expression):  # a predicate is best known by its own name
            value = Quantity(name)
        run.globals[key] = value
        return value


class LocalScope:
    """A function call in progress."""

    def __init__(self, parent: Scope, values: dict[str, Any]) -> None:
        self.parent = parent
        self.module = parent.module
        self.values = values

    def lookup(self, name: str, run: Interpreter) -> Any:
        """A local value, or what the scope around knows; raises `KeyError` where neither does."""
        if name in self.values:
            return self.values[name]
        return self.parent.lookup(name, run)


class _ReturnError(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _BreakError(Exception):
    pass


class _ContinueError(Exception):
    pass


def _yields(body: Iterable[ast.AST]) -> list[bool]:
    """For each `yield` of a function's own body: whether it is a statement by itself."""
    found: list[bool] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.YieldFrom):
            found += [node.value.value is not None, *_yields(ast.iter_child_nodes(node.value))]
            continue
        found += [False] if isinstance(node, ast.Yield | ast.YieldFrom) else []
        found += _yields(ast.iter_child_nodes(node))
    return found


class Interpreter(Evaluator):
    """One run in one world."""

    def __init__(self, modules: Modules, oracle: Oracle, arch: Arch | None = None) -> None:
        super().__init__()
        self.modules = modules
        self.oracle = oracle
        self.arch = arch
        self.globals: dict[tuple[str, str], Any] = {}
        #: > 0 while evaluating a predicate as a whole: its own branches must not ask
        self.quiet = 0
        #: what the generator that runs has given so far
        self.yielded: list[Any] = []
        self.depth = 0

    # decisions ---------------------------------------------------------------------------------------------------

    def decide(self, test: ast.expr, scope: Scope) -> bool:
        """The truth of a test: settled by reading, by the architecture, or by the oracle."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return not self.decide(test.operand, scope)
        if isinstance(test, ast.BoolOp):
            stop = isinstance(test.op, ast.Or)
            return stop if any(self.decide(part, scope) == stop for part in test.values) else not stop
        if isinstance(test, ast.Name) and (parts := self._conjunction(test.id, scope)) is not None:
            return self.decide(parts, ModuleScope(scope.module))
        self.quiet += 1
        try:
            value = self.eval(test, scope)
        except UnresolvedError:
            value = Opaque(ast.unparse(test))
        finally:
            self.quiet -= 1
        if not isinstance(value, Expression | ImportRef | Function):
            return bool(value)
        # a predicate function is best known by its own call: `is_hip()`, not what it asks the driver
        named = isinstance(test, ast.Call) and not any(isinstance(n, ast.Name) for a in test.args for n in ast.walk(a))
        text = ast.unparse(test) if named or isinstance(value, Function) else render(value)
        if self.quiet:
            raise UnresolvedError(text)
        if self.arch is not None and (known := self.arch.decides(text)) is not None:
            self.oracle.assumed[f"{text} is {known} on {self.arch.name}"] = None
            return known
        return self.oracle.ask(text)

    def _conjunction(self, name: str, scope: Scope) -> ast.expr | None:
        """The definition of a global flag that only combines other flags: `RACE = IS_BLACKWELL and not NEW_TRITON`."""
        statements = scope.module.bindings(name)
        if (
            len(statements) != 1
            or not isinstance(statements[0], ast.Assign)
            or (isinstance(scope, LocalScope) and name in scope.values)
        ):
            return None
        value = statements[0].value
        operands = value.values if isinstance(value, ast.BoolOp) else []
        plain = [o.operand if isinstance(o, ast.UnaryOp) and isinstance(o.op, ast.Not) else o for o in operands]
        return value if plain and all(isinstance(o, ast.Name) for o in plain) else None

    # names -------------------------------------------------------------------------------------------------------

    def name(self, name: str, scope: Scope) -> Any:
        """The value of a name; one that nothing binds is a builtin."""
        try:
            return scope.lookup(name, self)
        except KeyError:
            return ImportRef(f"builtins.{name}")

    def local(self, scope: Scope) -> Scope:
        """A scope inside another."""
        return LocalScope(scope, {})

    def imported(self, dotted: str, importer: PyModule) -> Any:
        """A name from another file of the repository, or a reference to one outside it."""
        if self.arch is not None:
            known, value = self.arch.attribute(dotted)
            if known and not dotted.endswith("get_device_capability"):
                self.oracle.assumed[f"{dotted} is {value} on {self.arch.name}"] = None
                return value
        found = self.modules.resolve(dotted, importer.path)
        if found is None:
            return ImportRef(dotted)
        module, name = found
        try:
            value = ModuleScope(module).lookup(name, self)
        except KeyError:
            return ImportRef(dotted)
        return value

    # calls -------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, scope: Scope) -> Any:
        """The value of a call: followed in the repository, known from the library table, or left as text."""
        function = None
        if isinstance(node.func, ast.Attribute):
            holder = self.eval(node.func.value, scope)
            if isinstance(holder, list | dict | str | tuple):
                return call_method(holder, node.func.attr, self._elements(node.args, scope), node)
            if isinstance(holder, ImportRef):
                function = self.imported(f"{holder.dotted}.{node.func.attr}", scope.module)
            elif isinstance(holder, Quantity):
                shown = ", ".join(render(a) for a in self._elements(node.args, scope))
                text = f"{holder.text}.{node.func.attr}({shown})"
                return holder.with_text(text)
            elif isinstance(holder, Expression):  # `(n - 1).bit_length()`, in the names of whoever asks
                shown = ", ".join(render(a) for a in self._elements(node.args, scope))
                text = f"({holder.text}).{node.func.attr}({shown})"
                return leaf(text) if "{" in text else Quantity(text)
        else:
            function = self.eval(node.func, scope)
        if isinstance(function, Function):
            return self._call_function(function, node, scope)
        if isinstance(function, ImportRef):
            return call_library(self, function.dotted, node, scope)
        return self._opaque(node)

    def _opaque(self, node: ast.Call) -> Quantity:
        """A call that is not followed, with what is known of its arguments."""
        named = any(isinstance(n, ast.Name) for a in node.args for n in ast.walk(a))
        return Quantity(ast.unparse(node), run_time=named)

    def arguments(self, node: ast.Call, scope: Scope) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword values of a call."""
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value, scope)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif isinstance(value, dict):
                keywords.update(value)
            else:
                raise UnresolvedError(ast.unparse(node))
        return self._elements(node.args, scope), keywords

    def _call_function(self, function: Function, node: ast.Call, scope: Scope) -> Any:
        if any("jit" in ast.unparse(d) for d in getattr(function.node, "decorator_list", [])):
            return self._opaque(node)
        try:
            positional, keywords = self.arguments(node, scope)
            value = self.invoke(function, positional, keywords)
            long = isinstance(value, Expression) and len(value.text) > _LONGEST
            if long and not keywords and not isinstance(function.node, ast.Lambda):
                return call(function.node.name, *positional)  # the call says more than what it comes to
            return value
        except UnresolvedError:
            return self._opaque(node)

    def invoke(self, function: Function, positional: list[Any], keywords: dict[str, Any]) -> Any:
        """What a function of the analysed source returns."""
        if self.depth >= _DEPTH:
            raise UnresolvedError("calls nested too deeply")
        values = self._bind(function, positional, keywords)
        inner = LocalScope(function.scope, values)
        self.depth += 1
        try:
            if isinstance(function.node, ast.Lambda):
                return self.eval(function.node.body, inner)
            if gives := _yields(function.node.body):
                if not all(gives):
                    raise UnresolvedError(function.node.name)
                return self._generate(function.node.body, inner)
            self.execute(function.node.body, inner)
        except _ReturnError as returned:
            return returned.value
        finally:
            self.depth -= 1
        return None

    def _generate(self, body: list[ast.stmt], scope: LocalScope) -> list[Any]:
        """All that a generator gives, one after the other."""
        before, self.yielded = self.yielded, []
        try:
            with contextlib.suppress(_ReturnError):
                self.execute(body, scope)
            return self.yielded
        finally:
            self.yielded = before

    def _bind(self, function: Function, positional: list[Any], keywords: dict[str, Any]) -> dict[str, Any]:
        spec = function.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        values: dict[str, Any] = {}
        for name, default in zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True):
            values[name] = self.eval(default, function.scope)
        for argument, kw_default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if kw_default is not None:
                values[argument.arg] = self.eval(kw_default, function.scope)
        values.update(zip(names, positional, strict=False))
        if spec.vararg:
            values[spec.vararg.arg] = tuple(positional[len(names) :])
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        values.update({k: v for k, v in keywords.items() if k in known})
        if spec.kwarg:
            values[spec.kwarg.arg] = {k: v for k, v in keywords.items() if k not in known}
        for name in known - values.keys():
            values[name] = leaf(name)
        return values

    # statements --------------------------------------------------------------------------------------------------

    def execute(self, body: Iterable[ast.stmt], scope: LocalScope) -> None:
        """Run statements; returns, breaks and raises travel as exceptions of this module."""
        for statement in body:
            self._execute_one(statement, scope)

    def execute_for(self, name: str, statement: ast.stmt, scope: LocalScope) -> None:
        """Run as much of a top-level statement as can bind `name`."""
        if isinstance(statement, ast.If):
            chosen = statement.body if self.decide(statement.test, scope) else statement.orelse
            for inner in chosen:
                if name in set(bound_names(inner)):
                    self.execute_for(name, inner, scope)
        elif isinstance(statement, ast.Try | ast.With):
            for inner in statement.body:
                if name in set(bound_names(inner)):
                    self.execute_for(name, inner, scope)
        else:
            self._execute_one(statement, scope)

    def _execute_one(self, statement: ast.stmt, scope: LocalScope) -> None:
        self.steps += 1
        match statement:
            case ast.Expr(value=ast.Yield(value=value)) if value is not None:
                self.yielded.append(self.eval(value, scope))
            case ast.Expr(value=ast.YieldFrom(value=value)):
                self.yielded += self.iterate(self.eval(value, scope), value)
            case ast.Assign(targets=targets, value=value):
                settled = self.eval(value, scope)
                for target in targets:
                    self.assign(target, settled, scope)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self.assign(target, self.eval(value, scope), scope)
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                self.assign(target, self.eval(ast.BinOp(ast.Name(target.id), op, value), scope), scope)
            case ast.Return(value=value):
                raise _ReturnError(None if value is None else self.eval(value, scope))
            case ast.If(test=test, body=body, orelse=orelse):
                self.execute(body if self.decide(test, scope) else orelse, scope)
            case ast.For(target=target, iter=iterator, body=body, orelse=orelse):
                self._loop(target, self.iterate(self.eval(iterator, scope), iterator), body, scope)
                self.execute(orelse, scope)
            case ast.Expr(value=value):
                self.eval(value, scope)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                scope.values[name] = Function(statement, scope)
            case ast.Raise() | ast.Assert(test=ast.Constant(value=False)):
                raise DroppedError(ast.unparse(statement))
            case ast.With(body=body):
                self.execute(body, scope)
            case ast.Try(body=body):
                self.execute(body, scope)
            case ast.Break():
                raise _BreakError
            case ast.Continue():
                raise _ContinueError
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Assert() | ast.Global() | ast.Nonlocal():
                pass
            case ast.ClassDef(name=name):
                scope.values[name] = Quantity(name)
            case _:
                raise UnresolvedError(ast.unparse(statement))

    def _loop(self, target: ast.expr, items: list[Any], body: list[ast.stmt], scope: LocalScope) -> None:
        for item in items:
            self.assign(target, item, scope)
            try:
                self.execute(body, scope)
            except _ContinueError:
                continue
            except _BreakError:
                break

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Bind `value` to a name, a pattern of names, or an item of a settled dict."""
        if not isinstance(scope, LocalScope):
            return
        if isinstance(target, ast.Name):
            scope.values[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            known = isinstance(value, list | tuple) and not any(isinstance(e, ast.Starred) for e in target.elts)
            for index, element in enumerate(target.elts):
                item = value[index] if known and index < len(value) else leaf(ast.unparse(element))
                self.assign(element, item, scope)
        elif isinstance(target, ast.Subscript):
            holder, key = self.eval(target.value, scope), self.eval(target.slice, scope)
            if isinstance(holder, dict) and is_concrete(key):
                holder[hashable(key)] = value
            elif isinstance(holder, list) and isinstance(key, int) and -len(holder) <= key < len(holder):
                holder[key] = value


__all__ = ["Interpreter", "LocalScope", "ModuleScope", "Scope"]
