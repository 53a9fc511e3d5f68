"""The abstract run of a CuTe-DSL kernel: its class is made, the host function is run to the launch, then the kernel's body.

Here are values: tests, attributes, items, objects of classes, and calls, which are followed. statements.py has the order of
statements, effects.py what the kernel does beside computing values.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

from opscope_tools.kernels.cutedsl import library
from opscope_tools.kernels.cutedsl.classes import Classes, bound_to, field_default, kind_of
from opscope_tools.kernels.cutedsl.definitions import FunctionNode, Marked, launch_of
from opscope_tools.kernels.cutedsl.effects import COPIES, Launched, Tile, touches
from opscope_tools.kernels.cutedsl.statements import Statements
from opscope_tools.kernels.cutedsl.values import (
    BITS,
    Class,
    Either,
    Instance,
    Method,
    Partial,
    Pointer,
    Range,
    Storage,
    Tensor,
    Threaded,
    Tiled,
    chosen,
    is_none,
    opposite,
    same,
)  # fmt: skip
from opscope_tools.kernels.cutedsl.written import written
from opscope_tools.kernels.host.interpreter import Interpreter, LocalScope, ModuleScope, Scope
from opscope_tools.kernels.host.library import call_library, call_method
from opscope_tools.kernels.host.modules import Modules, PyModule, with_defaults
from opscope_tools.kernels.host.worlds import Function, ImportRef, Oracle, UnresolvedError, is_concrete
from opscope_tools.kernels.run.events import Call, TooManyStepsError
from opscope_tools.kernels.run.events import Mapping as Mapped
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.values.expressions import Expression, Opaque, Quantity, leaf, render
from opscope_tools.kernels.values.layouts import Layout
from opscope_tools.kernels.values.notation import names_of

_DEPTH = 12
#: modules whose functions compute with what they are handed, and touch no memory
_PLAIN = ("builtins.", "math.", "functools.", "operator.", "typing.", "itertools.", "dataclasses.", "torch.", "enum.")
#: functions of the library that touch no memory of a tensor that they are handed
_HARMLESS = (
    "make_",
    "gemm",
    "print",
    "prefetch",
    "get_",
    "is_",
    "has_",
    "leading_dim",
    "max_",
    "depth",
    "crd2idx",
    "idx2crd",
    "tma_",
)
#: what is no memory but sizes, coordinates or ids
_SIZES = re.compile(r"\.(shape|stride|layout|size)\b|\b(shape|stride|layout|size|coord)\b|Idx\.|_idx")
#: characters up to which a formula stands for itself where it is used
_SHORT = 40


class Run(Interpreter, Classes, Statements):
    """One kernel."""

    def __init__(self, modules: Modules, module: PyModule, one: Marked, log: Log) -> None:
        Interpreter.__init__(self, modules, Oracle())
        Classes.__init__(self)
        Statements.__init__(self, modules, module, one, log)
        #: by a scope's id, names that its function binds in a scope around it
        self._lent: dict[int, set[str]] = {}

    # the way to the kernel -------------------------------------------------------------------------------------------

    def go(self, given: Mapping[str, Any]) -> None:
        """Make the kernel's object, run what launches it, and the kernel."""
        given = {name: _typed(value) for name, value in given.items()}
        outside = ModuleScope(self.source)
        instance = None
        if self.one.owner is not None:
            of = self.one.holder if self.one.holder is not None and self._is_below(self.one.holder) else self.one.owner
            instance = self._made(Class(of, outside), given)
        if self.one.host is not None:
            self._guarded(self.one.host, self.one.host, instance, outside, given)
        if not self.entered:
            self._guarded(self.one.function, self.one.function, instance, outside, given)

    def _is_below(self, holder: ast.ClassDef) -> bool:
        """Whether the class that launches the kernel is made from the kernel's own."""
        own = Class(holder, ModuleScope(self.source))
        return any(base.node is self.one.owner for base in self._bases(own))

    def _guarded(
        self, function: FunctionNode, node: ast.AST, instance: Instance | None, around: Scope, given: Mapping[str, Any]
    ) -> None:
        if function is self.one.function:
            self._inside = self.entered = True
        try:
            values = {a.arg: self._parameter(a, default, given) for a, default in with_defaults(function)}
            if instance is not None and function.args.args:
                values[function.args.args[0].arg] = instance
            self._parameters |= values.keys()
            scope = LocalScope(around, values)
            if instance is not None:
                owner = self._method(instance.of, function.name)
                scope.values["__class__"] = owner[0] if owner is not None else instance.of
            self._frames.append(scope)
            self._flow(list(function.body), scope)
            self._frames.pop()
        except (TooManyStepsError, RecursionError):
            self._lost("what comes behind the first steps of a very long run", node)
        except UnresolvedError as error:
            self._lost(f"what stands behind `{error}`", node)

    def _made(self, of: Class, given: Mapping[str, Any]) -> Instance:
        """The object whose kernel it is: the parameters of its class stay names where nobody gives them."""
        made, found = Instance(of, own=True), self._method(of, "__init__")
        with suppress(UnresolvedError, RecursionError, TooManyStepsError):  # attributes not reached stay names
            if found is not None:
                owner, function = found
                arguments = with_defaults(function.node)[1:]  # type: ignore[arg-type]  # a method is no lambda
                values = {argument.arg: self._setting(argument, default, given) for argument, default in arguments}
                self._parameters |= values.keys()
                self._run(function, values, owner, made)
            elif fields := self._fields_of(of):
                for name, (statement, _) in fields.items():
                    argument = ast.copy_location(ast.arg(name, statement.annotation), statement)
                    made.values[name] = self._setting(argument, statement.value, given)
                self._parameters |= fields.keys()
                self._after_init(made)
        return made

    def _setting(self, argument: ast.arg, default: ast.expr | None, given: Mapping[str, Any]) -> Any:
        name = argument.arg
        shown = ast.unparse(argument.annotation) if argument.annotation is not None else ""
        self.settings.append((argument, shown, ast.unparse(default) if default is not None else ""))
        if name in given:
            return given[name]
        if isinstance(default, ast.Constant) and (default.value is None or isinstance(default.value, bool)):
            self.defaults[name] = repr(default.value)
            return default.value
        return Quantity(name)

    def _parameter(self, argument: ast.arg, default: ast.expr | None, given: Mapping[str, Any]) -> Any:
        """A parameter of the host function, or of a kernel that nothing launches."""
        name, shown = argument.arg, ast.unparse(argument.annotation) if argument.annotation is not None else ""
        if name in given:
            return given[name]
        if "Constexpr" in shown or "TiledMma" in shown or "TiledCopy" in shown or "Layout" in shown:
            return Quantity(name)
        if re.fullmatch(r"(\w+\.)*Pointer", shown):
            return Pointer(Tensor(name, "global", name))
        if re.fullmatch(r"(\w+\.)*(Optional\[)?(\w+\.)*Tensor\]?( \| None)?", shown):
            if isinstance(default, ast.Constant) and default.value is None:
                self.defaults[name] = "None"
                return None
            if "Optional" in shown or "None" in shown:
                self.present[name] = None
            return Tensor(name, "global", name)
        if isinstance(default, ast.Constant) and (default.value is None or isinstance(default.value, bool)):
            self.defaults[name] = repr(default.value)
            return default.value
        return leaf(name)

    def _execute_one(self, statement: ast.stmt, scope: LocalScope) -> None:
        if isinstance(statement, ast.ClassDef):
            made = Class(statement, scope)
            if made.is_struct:  # its sizes are those of now
                for field in statement.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        with suppress(UnresolvedError):
                            made.fields[field.target.id] = self.eval(field.annotation, scope)
            scope.values[statement.name] = made
        elif isinstance(statement, ast.Nonlocal):
            self._lent.setdefault(id(scope), set()).update(statement.names)
        elif isinstance(statement, ast.Delete):
            return
        elif isinstance(statement, ast.AugAssign) and not isinstance(statement.target, ast.Name):
            self.assign(statement.target, self._aug(statement, scope), scope)
        else:
            super()._execute_one(statement, scope)
            if self._inside and isinstance(statement, ast.Assign):
                self._mapped(statement, scope)

    def _aug(self, statement: ast.AugAssign, scope: LocalScope) -> Any:
        source = copy.deepcopy(statement.target)
        source.ctx = ast.Load()
        return self.eval(ast.copy_location(ast.BinOp(source, statement.op, statement.value), statement), scope)

    def _mapped(self, statement: ast.Assign, scope: LocalScope) -> None:
        """Note a line that turns the id of a block into where its tile lies."""
        names = [n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
        for name in filter(lambda name: name != "_", names):
            value = scope.values.get(name)
            ids = [n for n in names_of(value) if n.startswith("blockIdx.")] if isinstance(value, Expression) else []
            if ids:
                axis = ids[0] if isinstance(value, Quantity) else ""
                self._put(Mapped, statement, axis=axis, variable=name, text=ast.unparse(statement.value))

    # expressions ----------------------------------------------------------------------------------------------------

    def eval(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression; one that stays as it is written is written with the values that its names have now."""
        value = super().eval(node, scope)
        if isinstance(value, Quantity) and not isinstance(node, ast.Name) and value.name == ast.unparse(node):
            return Quantity(written(node, scope), value.run_time)
        return value

    # tests -----------------------------------------------------------------------------------------------------------

    def _test(self, test: ast.expr, scope: Scope) -> Any:
        """A truth where reading settles it, else the expression that is asked."""
        try:
            value = self.eval(test, scope)
        except UnresolvedError:
            value = leaf(written(test, scope))
        if isinstance(value, Expression):
            known = self.log.answers.known(render(value))
            return value if known is None else known
        if isinstance(value, Either):
            return leaf(written(test, scope))
        if isinstance(value, ImportRef):
            return Opaque(written(test, scope))
        return bool(value) if is_concrete(value) else True

    def decide(self, test: ast.expr, scope: Scope) -> bool:
        """The truth of a test; raises `UnresolvedError` where reading does not settle it."""
        value = self._test(test, scope)
        if isinstance(value, bool):
            return value
        raise UnresolvedError(ast.unparse(test))

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        value = self._test(node.test, scope)
        if isinstance(value, bool):
            return self.eval(node.body if value else node.orelse, scope)
        text = render(value)
        with self._taking(text, True, node.lineno):
            one = self.eval(node.body, scope)
        with self._taking(text, False, node.lineno):
            other = self.eval(node.orelse, scope)
        return chosen(value, one, other, ast.unparse(node)[:60])

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        """Values one after the other, each asked for where those before it do not decide."""
        values, taken = [], ExitStack()
        stop = isinstance(node.op, ast.Or)
        with taken:
            for part in node.values:
                value = self.eval(part, scope)
                values.append(value)
                if isinstance(value, Expression):
                    taken.enter_context(self._taking(render(value), not stop, part.lineno))
                elif is_concrete(value) and bool(value) == stop:
                    break
        if all(isinstance(value, bool | Expression) for value in values):
            return self.joined(node, values)
        if not any(isinstance(value, Expression) for value in values):
            return values[-1]
        made = values[-1]
        for value in reversed(values[:-1]):
            if isinstance(value, Expression):
                made = chosen(value, value, made, "") if stop else chosen(value, made, value, "")
            elif isinstance(value, Either):
                return leaf(written(node, scope))
        return made

    def _compare(self, node: ast.Compare, scope: Scope) -> Any:
        if len(node.ops) == 1:
            left, right = self.eval(node.left, scope), self.eval(node.comparators[0], scope)
            if isinstance(node.ops[0], ast.Is | ast.IsNot) and right is None:
                value = is_none(left)
                return value if isinstance(node.ops[0], ast.Is) else opposite(value)
            if (
                isinstance(left, ImportRef)
                and isinstance(right, ImportRef)
                and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot)
            ):
                return (left.dotted == right.dotted) == isinstance(node.ops[0], ast.Eq | ast.Is)
            if isinstance(node.ops[0], ast.In | ast.NotIn) and not (is_concrete(left) and is_concrete(right)):
                within = right if isinstance(right, list | tuple) else []
                if isinstance(left, ImportRef) and within and all(isinstance(v, ImportRef) for v in within):
                    return any(same(left, v) for v in within) == isinstance(node.ops[0], ast.In)
                return leaf(ast.unparse(node))
            return self.compared(node, [left, right])
        return super()._compare(node, scope)

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.eval(node.operand, scope)
        if isinstance(node.op, ast.Not):
            if isinstance(value, Expression):
                return opposite(value)
            if isinstance(value, Either | ImportRef):
                return leaf(ast.unparse(node))
            return not value if is_concrete(value) else False
        return self.unary(node, value) if isinstance(value, Expression | int | float) else leaf(ast.unparse(node))

    # names, attributes, items ----------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """As the interpreter does, and into attributes of objects and elements of tensors."""
        if isinstance(target, ast.Attribute):
            holder = self.eval(target.value, scope)
            if isinstance(holder, Instance):
                holder.values[target.attr] = self._called_by(holder.attribute(target.attr), value)
            return
        if isinstance(target, ast.Subscript):
            holder = self.eval(target.value, scope)
            if isinstance(holder, Tensor | Either | Pointer):
                self.eval(target.slice, scope)
                self._access("store", holder.tensor if isinstance(holder, Pointer) else holder, target, "element")
                return
            if isinstance(holder, Expression) and self._inside:
                self._lost(f"where `{ast.unparse(target)}` is stored to", target)
        if isinstance(target, ast.Name):
            value = self._called_by(target.id, value)
            around = scope
            while isinstance(around, LocalScope) and target.id in self._lent.get(id(scope), ()):
                around = around.parent
                if isinstance(around, LocalScope) and target.id in around.values:
                    around.values[target.id] = value
                    return
        super().assign(target, value, scope)

    def _called_by(self, name: str, value: Any) -> Any:
        """A long formula under the name that it is bound to; where that stands for another already, with a number."""
        if not isinstance(value, Expression) or len(value.text) <= _SHORT or self._plain:
            return value
        known, number, used = name, 1, set(re.findall(r"(?<![\w.])[A-Za-z_][\w.]*", value.text))
        while known in self._parameters | used or self.names.setdefault(known, value.text) != value.text:
            number += 1
            known = f"{name}_{number}"
        return leaf(known) if "{" in value.text else Quantity(known)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        return self._of(self.eval(node.value, scope), node.attr, node, scope)

    def _of(self, holder: Any, name: str, node: ast.expr, scope: Scope) -> Any:
        match holder:
            case Either():
                return self._each(holder, lambda one: self._of(one, name, node, scope), ast.unparse(node))
            case Instance():
                return self._member(holder, name)
            case Tensor():
                if name == "shape":
                    return holder.shape if holder.shape is not None else leaf(f"{holder.text}.shape")
                if name in ("element_type", "dtype"):
                    unknown = Quantity(f"{holder.root}.element_type")
                    return holder.dtype if holder.dtype is not None else self._types.get(unknown.text, unknown)
                return Pointer(holder) if name in ("iterator", "ptr") else leaf(f"{holder.text}.{name}")
            case Pointer():
                return leaf(f"{holder}.{name}")
            case Tiled():
                if name == "layout_tv_tiled":
                    return holder.layout if holder.layout is not None else Threaded(f"{holder}.{name}", holder.threads)
                return holder.threads if name == "size" else leaf(f"{holder}.{name}")
            case Threaded():
                return leaf(f"{holder}.{name}")
            case Layout():
                return {"shape": holder.shape, "stride": holder.stride}.get(name, leaf(ast.unparse(node)))
            case Storage():
                inner = holder.of.fields.get(name)
                if isinstance(inner, Class) and inner.is_struct:
                    return Storage(inner)
                return Tensor(name, "shared", name, dtype=inner.dtype if isinstance(inner, Range) else None)
            case Class():
                found = self._method(holder, name)
                if found is not None:
                    return bound_to(found[1], kind_of(found[1]), holder)
                held = self._of_class(holder, name)
                return held[0] if held is not None else Quantity(f"{holder}.{name}")
            case ImportRef():
                if name == "width" and (bits := BITS.get(holder.dotted.rpartition(".")[2])) is not None:
                    return bits
                if name == "WARP_SIZE":
                    return library.WARP
                return self.imported(f"{holder.dotted}.{name}", scope.module)
            case Quantity():
                return holder.with_text(f"{holder.name}.{name}")
        return leaf(ast.unparse(node))

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        return self._item(self.eval(node.value, scope), node, scope)

    def _item(self, holder: Any, node: ast.Subscript, scope: Scope) -> Any:
        if isinstance(holder, Either):
            return self._each(holder, lambda one: self._item(one, node, scope), ast.unparse(node))
        if isinstance(holder, Tensor | Pointer):
            tensor = holder.tensor if isinstance(holder, Pointer) else holder
            index = self.eval(node.slice, scope) if not isinstance(node.slice, ast.Slice) else None
            text = f"{tensor.text}[{ast.unparse(node.slice)}]"
            if index is None or _open(index):
                return tensor.seen_as(text)
            self._access("load", tensor, node, "element")
            return leaf(f"{tensor.text}[{render(index)}]")
        if isinstance(holder, ImportRef) and holder.dotted.rpartition(".")[2] in ("MemRange", "Align"):
            parts = self.eval(node.slice, scope)
            if isinstance(parts, tuple) and len(parts) == 2:
                return Range(*parts) if holder.dotted.endswith("MemRange") else parts[0]
        if isinstance(holder, Class | Function | Method | Instance | Tiled | Layout | ImportRef):
            return leaf(written(node, scope))
        if isinstance(holder, tuple | list) and not isinstance(node.slice, ast.Slice):
            index = self.eval(node.slice, scope)
            if isinstance(index, int) and not isinstance(index, bool) and -len(holder) <= index < len(holder):
                return holder[index]
            if self._inside and touches(holder):
                self._lost(f"what `{ast.unparse(node)}` is", node)
            return leaf(written(node, scope))
        if isinstance(holder, Quantity) and self._inside and not _SIZES.search(holder.name):
            index = self.eval(node.slice, scope) if not isinstance(node.slice, ast.Slice) else None
            if not _open(index):
                self._lost(f"what `{ast.unparse(node)}` reads", node)
        return super()._subscript(node, scope)

    def _binop(self, node: ast.BinOp, scope: Scope) -> Any:
        left, right = self.eval(node.left, scope), self.eval(node.right, scope)
        if isinstance(left, Pointer) and isinstance(node.op, ast.Add | ast.Sub):
            return left
        plain = (Expression, int, float, str, tuple, list)
        if isinstance(left, plain) and isinstance(right, plain):
            return self.binary(node, left, right)
        return leaf(ast.unparse(node))

    # calls -----------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, scope: Scope) -> Any:
        """The value of a call: followed in the repository, known from a table, or left as text."""
        if (inner := launch_of(node)) is not None and self._is_own(inner, scope):
            return self._launch(node, inner, scope)
        func = node.func
        if isinstance(func, ast.Attribute):
            if (
                isinstance(func.value, ast.Call)
                and isinstance(func.value.func, ast.Name)
                and func.value.func.id == "super"
            ):
                return self._super(func.attr, node, scope)
            holder = self.eval(func.value, scope)
            if isinstance(holder, list | dict | str | tuple):
                return call_method(holder, func.attr, self._elements(node.args, scope), node)
            if (made := self._method_of(holder, func.attr, node, scope)) is not None:
                return made[0]
            function = self._of(holder, func.attr, func, scope)
        else:
            function = self.eval(func, scope)
        return self._called(function, node, scope)

    def _is_own(self, inner: ast.Call, scope: Scope) -> bool:
        try:
            function = self.eval(inner.func, scope)
        except UnresolvedError:
            return False
        found = function.function if isinstance(function, Method) else function
        return isinstance(found, Function) and found.node is self.one.function

    def _called(self, function: Any, node: ast.Call, scope: Scope) -> Any:
        extra: tuple[list[Any], dict[str, Any]] = [], {}
        while isinstance(function, Partial):
            extra = [*function.positional, *extra[0]], {**function.keywords, **extra[1]}
            function = function.function
        match function:
            case Method(function=found, owner=owner, instance=instance):
                positional, keywords = self.arguments(node, scope)
                return self._entered(found, [*extra[0], *positional], {**extra[1], **keywords}, node, owner, instance)
            case Function():
                positional, keywords = self.arguments(node, scope)
                return self._entered(function, [*extra[0], *positional], {**extra[1], **keywords}, node)
            case Class():
                return self._constructed(function, node, scope)
            case ImportRef():
                return self._outside(function.dotted, node, scope, extra)
        given = [*self._elements(node.args, scope), *(self.eval(k.value, scope) for k in node.keywords)]
        if isinstance(node.func, ast.Name) or touches(given):
            self._unfollowed(node)
        return self._opaque(node)

    def _super(self, name: str, node: ast.Call, scope: Scope) -> Any:
        owner, instance = scope.lookup("__class__", self), scope.lookup("self", self)
        if not isinstance(instance, Instance) or not isinstance(owner, Class):
            raise UnresolvedError(ast.unparse(node))
        found = self._method(instance.of, name, behind=owner)
        if found is None:
            return None
        positional, keywords = self.arguments(node, scope)
        return self._entered(found[1], positional, keywords, node, found[0], instance)

    def _constructed(self, of: Class, node: ast.Call, scope: Scope) -> Any:
        if of.is_struct:
            return Storage(of)
        made, found = Instance(of), self._method(of, "__init__")
        positional, keywords = self.arguments(node, scope)
        if found is not None:
            self._entered(found[1], positional, keywords, node, found[0], made)
            return made
        fields = self._fields_of(of)
        given = {**dict(zip(fields, positional, strict=False)), **keywords}
        for name, (statement, owner) in fields.items():
            if name not in given and statement.value is not None:
                given[name] = self.eval(field_default(statement.value), owner.scope)
        made.values.update(given)
        self._after_init(made)
        return made

    def _entered(
        self, function: Function, positional: list[Any], keywords: dict[str, Any], node: ast.Call, owner: Class | None = None,
        instance: Instance | None = None,
    ) -> Any:  # fmt: skip
        """What a function of the repository gives; its lines are told with the way to them."""
        if isinstance(function.node, ast.Lambda):
            return self.eval(function.node.body, LocalScope(function.scope, self._bind(function, positional, keywords)))
        name = function.node.name
        if self._inside:
            self._put(Call, node, name=name, followed=self.depth < _DEPTH)
        if instance is not None:
            positional = [instance, *positional]
        outer = self._via
        if self._inside:
            self._via = (*self._via, name)
        try:
            return self._run(function, self._bind(function, positional, keywords), owner, None)
        except UnresolvedError:
            if self._inside:
                self._lost(f"what {name} does", node)
            return self._opaque(node)
        finally:
            self._via = outer

    def _run(self, function: Function, values: dict[str, Any], owner: Class | None, instance: Instance | None) -> Any:
        node = function.node
        if isinstance(node, ast.Lambda):
            return self.eval(node.body, LocalScope(function.scope, values))
        if self.depth >= _DEPTH or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(node)):
            raise UnresolvedError(node.name)
        scope = LocalScope(function.scope, dict(values))
        if instance is not None and node.args.args:
            scope.values[node.args.args[0].arg] = instance
        if owner is not None:
            scope.values["__class__"] = owner
        outer, self._file = self._file, function.scope.module.path
        self.depth += 1
        self._frames.append(scope)
        try:
            ended = self._flow(list(node.body), scope)
        finally:
            self._frames.remove(scope)
            self.depth, self._file = self.depth - 1, outer
        if ended is not None and ended.dropped:
            raise UnresolvedError(node.name)
        return ended.value if ended is not None else None

    def invoke(self, function: Function, positional: list[Any], keywords: dict[str, Any]) -> Any:
        """What a function of the analysed source returns."""
        return self._run(function, self._bind(function, positional, keywords), None, None)

    def _outside(self, dotted: str, node: ast.Call, scope: Scope, extra: tuple[list[Any], dict[str, Any]]) -> Any:
        last = dotted.rpartition(".")[2]
        if dotted == "functools.partial":
            positional, keywords = self.arguments(node, scope)
            return Partial(positional[0], positional[1:], keywords) if positional else self._opaque(node)
        if not dotted.startswith(("cutlass.", "cute.")):
            if not dotted.startswith(_PLAIN):
                self._unfollowed(node)
            made = call_library(self, dotted, node, scope)
            return library.whole(made) if dotted == "builtins.int" else made
        positional, keywords = self.arguments(node, scope)
        positional, keywords = [*extra[0], *positional], {**extra[1], **keywords}
        text = written(node, scope)
        if self._inside:
            self._met(last, positional, keywords, node)
        if last in ("alloc_smem", "get_dyn_smem"):
            called = self._named(node)
            return Pointer(Tensor(called, "shared", called, dtype=next(iter(positional), None)))
        if name := library.known(dotted):
            made = self._applied(name, positional, keywords, text)
            if name == "local_tile" and isinstance(made, Tensor) and made.shape is not None and self._inside:
                tiler = node.args[1] if len(node.args) > 1 else node
                self.tiles.append(Tile(ast.unparse(tiler), made.shape, ast.unparse(node), node.lineno, self._where))
            return made
        if last not in COPIES and not last.startswith(_HARMLESS) and touches([*positional, *keywords.values()]):
            self._unfollowed(node)
        named = any(isinstance(n, ast.Name) for a in node.args for n in ast.walk(a))
        return Quantity(text, run_time=named)

    def _applied(self, name: str, positional: list[Any], keywords: Mapping[str, Any], text: str) -> Any:
        """What a function of the library gives; of one of two arguments, for each."""
        for place, value in enumerate(positional):
            if isinstance(value, Either) and value.first is not None and value.second is not None:

                def with_one(one: Any, place: int = place) -> Any:
                    return self._applied(name, [*positional[:place], one, *positional[place + 1 :]], keywords, text)

                return self._each(value, with_one, text)
        try:
            return library.apply(name, positional, keywords, text)
        except UnresolvedError:
            return leaf(text)

    def _launch(self, node: ast.Call, inner: ast.Call, scope: Scope) -> Any:
        """The launch, and the kernel as the first launch runs it."""
        given: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg:
                try:
                    given[keyword.arg] = self.eval(keyword.value, scope)
                except UnresolvedError:
                    given[keyword.arg] = Opaque(ast.unparse(keyword.value))
        self.launches.append(Launched(node, inner, given, self._path))
        if self.entered:
            return None
        function = self.eval(inner.func, scope)
        positional, keywords = self.arguments(inner, scope)
        owner = function.owner if isinstance(function, Method) else None
        if isinstance(function, Method):
            positional, function = [function.instance, *positional], function.function
        values = self._bind(function, positional, keywords)
        self.entered = self._inside = True
        path, self._path = self._path, ()
        self._parameters |= values.keys()
        try:
            self._run(function, values, owner, None)
        except UnresolvedError as error:
            self._lost(f"what stands behind `{error}`", node)
        finally:
            self._inside, self._path = False, path
        return None


def _open(index: Any) -> bool:
    """Whether a coordinate leaves a mode open."""
    return any(map(_open, index)) if isinstance(index, tuple | list) else index is None


def _typed(value: Any) -> Any:
    """A value that somebody gives: `cutlass.Float16` and `Float16` mean the type."""
    last = value.rpartition(".")[2] if isinstance(value, str) else ""
    return ImportRef(f"cutlass.{last}") if last in BITS else value


__all__ = ["Run"]
