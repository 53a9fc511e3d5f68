"""What one program of a Triton kernel computes and moves: shapes, strides, FLOPs and bytes of every operation, as formulas.

An abstract run over the kernel and the device functions that it calls. A `Value` knows the shape of a tile, the pointer
that it leads back to and how its offset steps along each axis; nothing is executed. A branch that constants decide is
followed so; of any other the first is, and `assumed` says it. Conventions: a product of m x k by k x n is 2*m*n*k, adding
it to an accumulator is part of it; arithmetic on data is 1 per element of its result, a sum 1 per element that goes in;
index arithmetic, comparisons, casts and moves are 0. Masked elements count. The operations are in triton_operations.py.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.kernels.counts import Counts, names_of
from opscope_tools.kernels.pymodule import Modules, PyModule
from opscope_tools.kernels.symbols import negated
from opscope_tools.kernels.triton_body import Finder, parameters, trip_count
from opscope_tools.kernels.triton_find import FunctionNode, dotted_name, of_language
from opscope_tools.kernels.triton_operations import Operation, Operations, Run
from opscope_tools.kernels.triton_tiles import (
    Value,
    broadcast,
    combined,
    combined_text,
    compare,
    folded,
    literal,
    padded,
    sources_of,
)  # fmt: skip

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_DEPTH = 6


def run_kernel(
    function: FunctionNode, module: PyModule, find: Finder, modules: Modules, pointers: Collection[str],
    fixed: Mapping[str, Any],
) -> Run:  # fmt: skip
    """Run a kernel abstractly; `pointers` are parameters that hold addresses, `fixed` constexprs of one value."""
    run = Run(Counts(), modules)
    walk = _Walk(module, find, run, "", 0, Formula.const(1), 0)
    for argument, _, _, constexpr in parameters(function):
        name = argument.arg
        shown = name if constexpr else "{" + name + "}"
        if name in fixed:
            whole = isinstance(fixed[name], int) and not isinstance(fixed[name], bool)
            walk.env[name] = literal(fixed[name], shown if whole else "")
        else:
            walk.env[name] = Value(text=shown, pointer=name if name in pointers else "")
    walk.block(function.body)
    return run


class _Walk(Operations):
    def __init__(
        self, module: PyModule, find: Finder, run: Run, via: str, depth: int, times: Formula, line: int
    ) -> None:  # fmt: skip
        super().__init__(run, module.path if via else "", via, times, line)
        self.module, self.find, self.depth = module, find, depth
        self.env: dict[str, Value] = {}
        self.returned: Value | None = None

    # statements --------------------------------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)
            if self.returned is not None:
                return

    def statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                found = self.value(value)
                for target in targets:
                    self.bind(target, found)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.bind(target, self.value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self.bind(target, self.binary(op, self.value(target), self.value(value), statement))
            case ast.Expr(value=value):
                self.value(value)
            case ast.Return(value=value):
                self.returned = self.value(value) if value is not None else Value()
            case ast.If():
                self.branch(statement)
            case ast.For():
                self.loop(statement)
            case ast.While():
                self.value(statement.test)
                self.repeat(self.unknown(statement.lineno, ast.unparse(statement.test)), statement)
            case ast.With():
                self.block(statement.body)
            case _:
                return

    def branch(self, statement: ast.If) -> None:
        decided = self.decide(statement.test)
        if decided is None:
            self.value(statement.test)
            ends = isinstance(statement.body[-1], ast.Return | ast.Continue | ast.Break)
            leaves = ends or all(isinstance(s, ast.Pass) for s in statement.body)  # an early exit is the exception
            decided = not leaves
            self.assume(statement.test, decided)
        other = statement.orelse if decided else statement.body
        self.block(statement.body if decided else statement.orelse)
        for node in (n for s in other for n in ast.walk(s)):  # what only the other branch defines stays unknown
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.env.setdefault(node.id, Value(None))

    def assume(self, test: ast.expr, holds: bool) -> None:
        """Take a test for granted, and what follows for the name in it: no later test may say otherwise."""
        shown = ast.unparse(test)
        self.run.assumed.setdefault(f"{shown if holds else negated(shown)} (line {test.lineno})")
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, holds = test.operand, not holds
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and holds:
            for part in test.values:
                if isinstance(part, ast.Name):
                    self.settle(part.id, True)
        elif isinstance(test, ast.Name):
            self.settle(test.id, holds)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
            other = self.quiet(test.comparators[0])
            if other.known and isinstance(test.ops[0], ast.Eq if holds else ast.NotEq):
                self.settle(test.left.id, other.constant)

    def settle(self, name: str, value: Any) -> None:
        """Give a scalar the one value that an assumption leaves it; in formulas it keeps its name."""
        old = self.env.get(name)
        if old is not None and old.shape == () and old.items is None and not old.data and not old.pointer:
            self.env[name] = replace(old, constant=value, known=True)

    def decide(self, test: ast.expr) -> bool | None:
        """Whether constants settle a test."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.decide(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            parts = [self.decide(v) for v in test.values]
            ends = isinstance(test.op, ast.Or)
            if ends in parts:
                return ends
            return None if None in parts else not ends
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            if isinstance(test.ops[0], ast.Is | ast.IsNot) and isinstance(test.comparators[0], ast.Constant):
                found = self.quiet(test.left)
                return (found.constant is None) == isinstance(test.ops[0], ast.Is) if found.known else None
            left, right = self.quiet(test.left), self.quiet(test.comparators[0])
            if left.known and right.known:
                return compare(test.ops[0], left.constant, right.constant)
            return None
        found = self.quiet(test)
        return bool(found.constant) if found.known else None

    def quiet(self, node: ast.expr) -> Value:
        """A value without what computing it costs: constants only."""
        match node:
            case ast.Constant(value=value):
                return literal(value)
            case ast.Name(id=name):
                return self.env[name] if name in self.env else self.of_module(name)
            case ast.BinOp(op=op, left=left, right=right):
                a, b = self.quiet(left), self.quiet(right)
                return self.constants(op, a, b) or Value(None)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                return literal(-value)
            case ast.Attribute():
                named = of_language(dotted_name(node, self.module))
                return literal(f"tl.{named}") if named else Value(None)
        return Value(None)

    def loop(self, statement: ast.For) -> None:
        call = statement.iter
        last = dotted_name(call.func, self.module).rpartition(".")[2] if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or last not in {"range", "static_range"}:
            self.bind(statement.target, Value(None))
            self.repeat(self.unknown(statement.lineno, ast.unparse(statement.iter)), statement)
            return
        bounds = [self.value(a) for a in call.args]
        for bound in bounds:
            self.run.indices |= bound.sources
        texts = [b.text for b in bounds]
        if all(texts) and texts:
            trip = trip_count(texts)
            if len(texts) > 1 and texts[0] != "0" and not trip.lstrip("-").isdigit():
                trip = f"max({trip}, 0)"  # an empty loop runs no times
            elif trip.startswith("-"):
                trip = "0"
        else:
            trip = self.unknown(statement.lineno, ast.unparse(call))
        target = ast.unparse(statement.target)
        self.run.varying.add(target)
        self.run.counters.add(target)
        self.bind(statement.target, Value(text="{" + target + "}"))
        self.repeat(trip, statement)

    def unknown(self, line: int, written: str, what: str = "iterations") -> str:
        """A quantity of its own for a trip count that is no formula."""
        name = f"{what} of the loop at line {line}"
        self.run.variables[name] = written
        return "{" + name + "}"

    def repeat(self, trip: str, loop: ast.For | ast.While) -> None:
        if self.run.counters & set(names_of(trip)):  # another count in each iteration around it: its mean
            trip = self.unknown(loop.lineno, trip, "mean iterations")
        if "program_id(" in trip or self.run.varying & set(names_of(trip)):
            self.run.uneven[trip] = None
        stored = {
            node.id for statement in loop.body for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }  # fmt: skip
        self.forget(stored)
        kept, env, done = (self.times, self.line), dict(self.env), (len(self.run.events), len(self.run.products))
        self.times, self.line = self.times * self.run.counts.factor(trip), loop.lineno
        self.block(loop.body)
        moved = [
            n for n in stored & set(env) if env[n].strides != self.env[n].strides and env[n].shape == self.env[n].shape
        ]
        if moved:  # steps that change from iteration to iteration: none is told
            del self.run.events[done[0] :], self.run.products[done[1] :]
            self.env = {**env, **{n: replace(env[n], strides=("",) * len(env[n].shape or ())) for n in moved}}
            self.block(loop.body)
        self.times, self.line = kept
        self.forget(stored)

    def forget(self, names: set[str]) -> None:
        """What a loop changes has no one value, in it and after it."""
        for name in names & set(self.env):
            old = self.env[name]
            if old.shape == () and not old.pointer and old.items is None:
                self.env[name] = replace(old, text="{" + name + "}", constant=None, known=False)

    def bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            if value.shape == () and value.items is None and not value.known and not 0 < len(value.text) <= 120:
                if value.sources or "program_id(" in value.text or self.run.varying & set(names_of(value.text)):
                    self.run.varying.add(target.id)
                value = replace(value, text="{" + target.id + "}")
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = value.items or ()
            for index, element in enumerate(target.elts):
                self.bind(element, items[index] if index < len(items) else Value(None, data=value.data))

    # expressions -------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=constant):
                return literal(constant)
            case ast.Name(id=name):
                return self.env[name] if name in self.env else replace(self.of_module(name), text=name)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return Value(items=tuple(self.value(e) for e in elements))
            case ast.BinOp(op=op, left=left, right=right):
                return self.binary(op, self.value(left), self.value(right), node)
            case ast.UnaryOp(op=op, operand=operand):
                found = self.value(operand)
                if isinstance(op, ast.USub):
                    if found.data:
                        self.compute(node, found.shape, found, 1)
                    elif found.known and isinstance(found.constant, int | float):
                        return literal(-found.constant)
                    return replace(found, text=f"-{found.text}" if found.text else "", constant=None, known=False)
                return replace(found, text="", data=False, known=False)
            case ast.Compare(left=left, comparators=comparators):
                parts = [self.value(p) for p in (left, *comparators)]
                return Value(broadcast(parts), sources=sources_of(parts))
            case ast.BoolOp(values=values):
                parts = [self.value(p) for p in values]
                return Value(broadcast(parts), sources=sources_of(parts))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                decided = self.decide(test)
                if decided is None:
                    self.assume(test, True)
                return self.value(orelse if decided is False else body)
            case ast.Subscript(value=base, slice=index):
                return self.subscript(self.value(base), index)
            case ast.Attribute(value=base, attr=name):
                return self.attribute(node, base, name)
            case ast.Call():
                return self.call(node)
        return Value(None)

    def defined(self, name: str) -> tuple[PyModule, str] | None:
        """The file that defines a name of this one, and what it is called there; None where that is not here."""
        if name in self.module.imports and not self.module.bindings(name):
            return self.run.modules.resolve(self.module.imports[name], self.module.path)
        return self.module, name

    def of_module(self, name: str) -> Value:
        """A constant that the file defines or imports: `MODE: tl.constexpr = tl.constexpr(0)`."""
        where, local = self.defined(name) or (self.module, "")
        for statement in reversed(where.bindings(local)):
            value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("constexpr") and value.args:
                value = value.args[0]
            try:
                plain = ast.literal_eval(value) if value is not None else None
            except ValueError:
                break
            return literal(plain, local if isinstance(plain, int) else "") if value is not None else Value()
        return Value()

    def attribute(self, node: ast.Attribute, base: ast.expr, name: str) -> Value:
        if named := of_language(dotted_name(node, self.module)):
            return literal(f"tl.{named}")
        found = self.value(base) if isinstance(base, ast.Name) and base.id in self.env else Value(None)
        if name == "T" and found.shape is not None:
            return replace(found, shape=found.shape[::-1], strides=found.strides[::-1])
        if name == "shape" and found.shape is not None:
            return Value(items=tuple(Value(text=s) for s in found.shape))
        return Value(text="{" + ast.unparse(node) + "}")

    def subscript(self, found: Value, index: ast.expr) -> Value:
        parts = list(index.elts) if isinstance(index, ast.Tuple) else [index]
        if found.items is not None and len(parts) == 1 and isinstance(parts[0], ast.Constant):
            position = parts[0].value
            if isinstance(position, int) and -len(found.items) <= position < len(found.items):
                return found.items[position]
        if found.shape is None or not all(
            isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and p.value is None) for p in parts
        ):
            return Value(None, data=found.data, sources=found.sources)
        shape, strides, left = [], [], list(zip(found.shape, padded(found), strict=True))
        for part in parts:
            if isinstance(part, ast.Constant):
                shape.append("1")
                strides.append("0")
            elif left:
                size, stride = left.pop(0)
                shape.append(size)
                strides.append(stride)
        for size, stride in left:
            shape.append(size)
            strides.append(stride)
        return replace(found, shape=tuple(shape), strides=tuple(strides), text="")

    def constants(self, op: ast.operator, a: Value, b: Value) -> Value | None:
        if not (a.known and b.known and isinstance(a.constant, int) and isinstance(b.constant, int)):
            return None
        made = folded(op, a.constant, b.constant)
        if made is None:
            return None
        plain = a.text == repr(a.constant) and b.text == repr(b.constant)
        return literal(made, "" if plain else combined_text(op, a, b))

    def binary(self, op: ast.operator, a: Value, b: Value, node: ast.AST) -> Value:
        if (known := self.constants(op, a, b)) is not None:
            return known
        shape = broadcast([a, b])
        whole = isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.LShift | ast.RShift | ast.FloorDiv | ast.Mod)
        data = not whole and (a.data or b.data or (shape != () and any(isinstance(v.constant, float) for v in (a, b))))
        pointer = a.pointer if a.pointer and not (a.text == "" and b.pointer) else b.pointer
        if isinstance(op, ast.Add | ast.Sub) and (a.pointer or b.pointer) and not data:
            self.run.indices |= a.sources | b.sources
        if a.block or b.block:
            return a if a.block else b
        address = any(v.pointer and not v.data for v in (a, b))
        if data and address and isinstance(op, ast.Add | ast.Sub):  # what is added to an address is an index
            self.run.indices |= a.sources | b.sources
            data = False
        accumulates = isinstance(op, ast.Add) and (a.product or b.product)
        if data and isinstance(op, _ARITHMETIC) and not accumulates:
            self.compute(node, shape, Value(sources=a.sources | b.sources), 1)
        text = combined_text(op, a, b) if shape == () and not data and not a.data and not b.data else ""
        steps = combined(op, a, b, shape) if shape is not None else ()
        return Value(
            shape, text, data, a.sources | b.sources, pointer, steps, element=a.element if a.pointer else b.element
        )

    # calls -------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Value:
        name, receiver = self.operation(node)
        arguments = [*receiver, *(a for a in node.args if not isinstance(a, ast.Starred))]
        given = {k.arg: k.value for k in node.keywords if k.arg}
        operation = Operation(name, node, arguments, given)
        return self.operate(operation) if name else self.called(operation)

    def operation(self, node: ast.Call) -> tuple[str, list[ast.expr]]:
        """(`load`, what it is a method of) of `tl.load` and `descriptor.load`; ('', []) of calls of other functions."""
        dotted = dotted_name(node.func, self.module)
        if self.find(self.module, node.func.id if isinstance(node.func, ast.Name) else dotted) is not None:
            return "", []
        if dotted in {"min", "max"} or (dotted := of_language(dotted) or self.alias(node.func)):
            return dotted, []
        return (node.func.attr, [node.func.value]) if isinstance(node.func, ast.Attribute) else ("", [])

    def alias(self, node: ast.expr) -> str:
        """`exp` of a file that says `exp = tl.exp`, here or where the name is imported from; '' for other names."""
        if not isinstance(node, ast.Name):
            return ""
        where, local = self.defined(node.id) or (self.module, "")
        for statement in reversed(where.bindings(local)):
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == local for t in inner.targets
                ):
                    found = of_language(dotted_name(inner.value, where))
                    if found:
                        return found
        return ""

    def called(self, op: Operation) -> Value:
        """A device function, run with what it is handed."""
        spelled = op.node.func.id if isinstance(op.node.func, ast.Name) else dotted_name(op.node.func, self.module)
        if spelled in {"float", "int", "bool", "len"}:
            return Value(known=isinstance(op.arguments[0], ast.Constant) if op.arguments else False)
        found = self.find(self.module, spelled)
        values = [self.value(a) for a in op.arguments]
        named = {name: self.value(v) for name, v in op.given.items()}
        if found is None or self.depth >= _DEPTH:
            if any(v.data or v.pointer for v in (*values, *named.values())):
                self.run.not_counted.setdefault(f"{ast.unparse(op.node.func)} (line {op.node.lineno})")
            return Value(None)
        module, function = found
        via = f"{self.via} > {function.name}" if self.via else function.name
        inner = _Walk(module, self.find, self.run, via, self.depth + 1, self.times, self.line)
        specs = parameters(function)
        handed = {**dict(zip([a.arg for a, *_ in specs], values, strict=False)), **named}
        for argument, _, default, _ in specs:
            if argument.arg in handed:
                inner.env[argument.arg] = handed[argument.arg]
            elif default:
                inner.env[argument.arg] = inner.value(ast.parse(default, mode="eval").body)
        inner.block(function.body)
        return inner.returned or Value()
