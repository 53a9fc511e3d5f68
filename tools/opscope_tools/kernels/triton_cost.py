"""What one program of a Triton kernel computes and moves: shapes, strides, FLOPs and bytes of every operation, as formulas.

An abstract run over the kernel and the device functions that it calls. A `Value` knows the shape of a tile, the pointer
that it leads back to and how its offset steps along each axis; nothing is executed. A branch that constants decide is
followed so; of any other the first is, and `assumed` says it. Conventions: a product of m x k by k x n is 2*m*n*k, adding
it to an accumulator is part of it; arithmetic on data is 1 per element of its result, a sum 1 per element that goes in;
index arithmetic, comparisons, casts and moves are 0. Masked elements count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.kernels.counts import Counts, names_of
from opscope_tools.kernels.pymodule import Modules, PyModule
from opscope_tools.kernels.symbols import negated
from opscope_tools.kernels.triton_body import Finder, parameters, trip_count
from opscope_tools.kernels.triton_find import FunctionNode, dotted_name, of_language
from opscope_tools.kernels.triton_tiles import (
    Shape,
    Value,
    broadcast,
    combined,
    combined_text,
    compare,
    is_address,
    literal,
    padded,
    permuted,
    sources_of,
)  # fmt: skip

#: FLOPs per element of the result, by the arithmetic of the definition
_PER_ELEMENT = {
    **dict.fromkeys(
        "exp exp2 log log2 sqrt sqrt_rn rsqrt sin cos tan tanh erf pow div_rn fdiv expm1 log1p sinh cosh asin acos atan atan2 "
        "fast_expf fast_logf fast_dividef fast_cosf fast_sinf fast_powf fast_exp10f log10 exp10 ex2".split(), 1,
    ),
    "fma": 2, "sigmoid": 4, "softmax": 4, "silu": 5, "gelu": 8, "cumsum": 1, "cumprod": 1,
}  # fmt: skip
#: what these are given is data, whatever it was made from
_OF_FLOATS = {
    "exp",
    "exp2",
    "log",
    "log2",
    "sin",
    "cos",
    "sqrt",
    "rsqrt",
    "tanh",
    "sigmoid",
    "erf",
    "fast_cosf",
    "fast_sinf",
}
#: the result has the shape of the arguments together and costs nothing
_FREE = {
    "where", "maximum", "minimum", "max_contiguous", "multiple_of", "max_constancy", "cast", "abs", "clamp", "floor", "ceil",
    "round", "isnan", "rint", "optimization_barrier", "assume", "umulhi", "trunc", "load_tensor_descriptor",
}  # fmt: skip
_REDUCE = {"sum": 1, "max": 0, "min": 0, "argmax": 0, "argmin": 0, "xor_sum": 0, "reduce_or": 0}
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_DEPTH = 6


@dataclass(frozen=True)
class Operation:
    """A call of Triton's language: `tl.sum(x, axis=0)` and `x.sum(axis=0)` alike."""

    name: str
    node: ast.Call
    arguments: list[ast.expr]
    given: dict[str, ast.expr]


@dataclass
class Event:
    """One operation, as often as it runs in one program."""

    node: int
    file: str
    line: int
    via: str
    kind: str
    value: Value
    times: Formula
    flops: Formula | None = None
    #: line of the innermost loop around it, 0: none
    loop: int = 0


@dataclass
class Run:
    """What the abstract run of a kernel leaves."""

    counts: Counts
    modules: Modules
    events: list[Event] = field(default_factory=list)
    #: what branches are taken for granted, and what is not counted
    assumed: dict[str, None] = field(default_factory=dict)
    not_counted: dict[str, None] = field(default_factory=dict)
    #: loads whose values are addresses, bounds or masks
    indices: set[int] = field(default_factory=set)
    #: of each product: its loop, and the loads that its operands are as they came (-1: computed)
    products: list[tuple[int, int, int]] = field(default_factory=list)
    #: run-time quantities of the formulas that only this run names
    variables: dict[str, str] = field(default_factory=dict)
    #: names that differ between programs or iterations, and trip counts that depend on one
    varying: set[str] = field(default_factory=set)
    uneven: dict[str, None] = field(default_factory=dict)
    #: counters of loops
    counters: set[str] = field(default_factory=set)


def run_kernel(
    function: FunctionNode, module: PyModule, find: Finder, modules: Modules, pointers: Collection[str],
    fixed: Mapping[str, Any],
) -> Run:  # fmt: skip
    """Run a kernel abstractly; `pointers` are parameters that hold addresses, `fixed` constexprs of one value."""
    run = Run(Counts(), modules)
    walk = _Walk(function, module, find, run, "", 0)
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


class _Walk:
    def __init__(
        self, function: FunctionNode, module: PyModule, find: Finder, run: Run, via: str, depth: int,
        times: Formula | None = None, line: int = 0,
    ) -> None:  # fmt: skip
        self.function, self.module, self.find, self.run, self.via, self.depth = function, module, find, run, via, depth
        self.file = module.path if via else ""
        self.env: dict[str, Value] = {}
        self.times = times if times is not None else Formula.const(1)
        self.returned: Value | None = None
        #: line of the innermost loop
        self.line = line

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
                name = f"iterations of the loop at line {statement.lineno}"
                self.run.variables[name] = ast.unparse(statement.test)
                self.repeat("{" + name + "}", statement)
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
                return self.folded(op, a, b) or Value(None)
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
            name = f"iterations of the loop at line {statement.lineno}"
            self.run.variables[name] = ast.unparse(statement.iter)
            self.bind(statement.target, Value(None))
            self.repeat("{" + name + "}", statement)
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
            name = f"iterations of the loop at line {statement.lineno}"
            self.run.variables[name] = ast.unparse(call)
            trip = "{" + name + "}"
        target = ast.unparse(statement.target)
        self.run.varying.add(target)
        self.run.counters.add(target)
        self.bind(statement.target, Value(text="{" + target + "}"))
        self.repeat(trip, statement)

    def repeat(self, trip: str, loop: ast.For | ast.While) -> None:
        if self.run.counters & set(names_of(trip)):  # another count in each iteration around it: its mean
            name = f"mean iterations of the loop at line {loop.lineno}"
            self.run.variables[name] = trip
            trip = "{" + name + "}"
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

    def of_module(self, name: str) -> Value:
        """A constant that the file defines or imports: `MODE: tl.constexpr = tl.constexpr(0)`."""
        where, local = self.module, name
        if name in where.imports and not where.bindings(name):
            resolved = self.run.modules.resolve(where.imports[name], where.path)
            if resolved is None:
                return Value()
            where, local = resolved
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

    def folded(self, op: ast.operator, a: Value, b: Value) -> Value | None:
        if not (a.known and b.known and isinstance(a.constant, int) and isinstance(b.constant, int)):
            return None
        made = _folded(op, a.constant, b.constant)
        if made is None:
            return None
        plain = a.text == repr(a.constant) and b.text == repr(b.constant)
        return literal(made, "" if plain else combined_text(op, a, b))

    def binary(self, op: ast.operator, a: Value, b: Value, node: ast.AST) -> Value:
        if (known := self.folded(op, a, b)) is not None:
            return known
        shape = broadcast([a, b])
        whole = isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.LShift | ast.RShift | ast.FloorDiv | ast.Mod)
        data = not whole and (a.data or b.data or (shape != () and any(isinstance(v.constant, float) for v in (a, b))))
        pointer = a.pointer if a.pointer and not (a.text == "" and b.pointer) else b.pointer
        if isinstance(op, ast.Add | ast.Sub) and (a.pointer or b.pointer) and not data:
            self.run.indices |= a.sources | b.sources
        if a.block or b.block:
            return a if a.block else b
        address = (a.pointer and is_address(a)) or (b.pointer and is_address(b))
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
        if not name:
            return self.called(operation)
        handler = getattr(self, f"op_{name}", None)
        if handler is not None:
            return handler(operation)  # type: ignore[no-any-return]  # one of those below
        values = [self.value(a) for a in arguments] + [self.value(v) for v in given.values()]
        if name in _REDUCE:
            return self.reduced(operation, values, _REDUCE[name])
        shape = broadcast([v for v in values if v.items is None])
        data = any(v.data for v in values) or name in _OF_FLOATS
        if name in _PER_ELEMENT:
            if data:
                self.compute(node, shape, Value(sources=sources_of(values)), _PER_ELEMENT[name])
            return Value(shape, data=data, sources=sources_of(values))
        if name in _FREE:
            text = f"{name}({', '.join(v.text for v in values)})" if shape == () and all(v.text for v in values) else ""
            first = values[0] if values else Value(None)
            return Value(shape, text, data, sources_of(values), first.pointer)
        if data:
            self.run.not_counted.setdefault(f"tl.{name} (line {node.lineno})")
        return Value(None, data=data, sources=sources_of(values))

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
        where, local = self.module, node.id
        if local in where.imports and not where.bindings(local):
            resolved = self.run.modules.resolve(where.imports[local], where.path)
            if resolved is None:
                return ""
            where, local = resolved
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
        inner = _Walk(function, module, self.find, self.run, via, self.depth + 1, self.times, self.line)
        specs = parameters(function)
        handed = {**dict(zip([a.arg for a, *_ in specs], values, strict=False)), **named}
        for argument, _, default, _ in specs:
            if argument.arg in handed:
                inner.env[argument.arg] = handed[argument.arg]
            elif default:
                inner.env[argument.arg] = inner.value(ast.parse(default, mode="eval").body)
        inner.block(function.body)
        return inner.returned or Value()

    def compute(self, node: ast.AST, shape: Shape | None, of: Value, per_element: int) -> None:
        line = getattr(node, "lineno", 0)
        if shape is None:
            self.run.not_counted.setdefault(f"arithmetic on a tile of unknown shape (line {line})")
            return
        self.event(node, "flops", replace(of, shape=shape), per_element * self.size(shape))

    def event(self, node: ast.AST, kind: str, value: Value, flops: Formula | None = None) -> None:
        line = getattr(node, "lineno", 0)
        self.run.events.append(Event(id(node), self.file, line, self.via, kind, value, self.times, flops, self.line))

    def size(self, shape: Shape) -> Formula:
        total = Formula.const(1)
        for part in shape:
            total = total * self.run.counts.factor(part)
        return total

    # operations, by triton's names -------------------------------------------------------------------------------

    def op_program_id(self, op: Operation) -> Value:
        return Value(text=f"{{program_id({ast.unparse(op.arguments[0]) if op.arguments else 0})}}")

    def op_num_programs(self, op: Operation) -> Value:
        return Value(text=f"{{num_programs({ast.unparse(op.arguments[0]) if op.arguments else 0})}}")

    def op_cdiv(self, op: Operation) -> Value:
        a, b = (self.value(x) for x in op.arguments[:2])
        shape = broadcast([a, b])
        text = f"cdiv({a.text}, {b.text})" if shape == () and a.text and b.text else ""
        return Value(shape, text, sources=a.sources | b.sources, strides=("",) * len(shape or ()))

    def op_arange(self, op: Operation) -> Value:
        bounds = [self.value(a) for a in [*op.arguments, *op.given.values()]]
        if len(bounds) != 2 or not all(b.text for b in bounds):
            return Value(None)
        length = bounds[1].text if bounds[0].text == "0" else combined_text(ast.Sub(), bounds[1], bounds[0])
        return Value((length,), strides=("1",))

    def _filled(self, op: Operation) -> Value:
        shape = self.shape(op.given.get("shape") or (op.arguments[0] if op.arguments else None))
        kind = op.given.get("dtype") or (op.arguments[-1] if len(op.arguments) > 1 else None)
        integer = kind is not None and (".int" in ast.unparse(kind) or ".uint" in ast.unparse(kind))
        return Value(shape, data=not integer)

    op_zeros = op_full = op_zeros_like = op_full_like = _filled

    def shape(self, node: ast.expr | None) -> Shape | None:
        """The sizes that a list of them names."""
        if node is None:
            return None
        found = self.value(node)
        if found.items is None:
            return (found.text,) if found.text else found.shape
        sizes = tuple(item.text for item in found.items)
        return sizes if all(sizes) else None

    def op_load(self, op: Operation) -> Value:
        address = self.value(op.arguments[0] if op.arguments else next(iter(op.given.values())))
        for mask in [*op.arguments[1:2], *(v for k, v in op.given.items() if k == "mask")]:
            self.run.indices |= self.value(mask).sources
        return self.loaded(op.node, address)

    def loaded(self, node: ast.Call, address: Value) -> Value:
        self.run.indices |= address.sources
        self.event(node, "load", address)
        source = len(self.run.events) - 1
        steps = ("",) * len(address.shape or ())
        return Value(address.shape, data=True, sources=frozenset({source}), strides=steps, loaded=source)

    def op_store(self, op: Operation) -> Value:
        address = self.value(op.arguments[0] if op.arguments else op.given["pointer"])
        of_descriptor = isinstance(op.node.func, ast.Attribute) and address.block and len(op.arguments) > 2
        what = op.given.get("value") or (op.arguments[2 if of_descriptor else 1] if len(op.arguments) > 1 else None)
        stored = self.value(what) if what is not None else Value()
        for mask in [*op.arguments[1 if of_descriptor else 2 :][:1], *(v for k, v in op.given.items() if k == "mask")]:
            self.run.indices |= self.value(mask).sources
        self.run.indices |= address.sources
        if address.shape == () and stored.shape and not address.block:
            address = replace(address, shape=stored.shape, strides=("0",) * len(stored.shape))
        self.event(op.node, "store", address)
        return Value()

    def _atomic(self, op: Operation) -> Value:
        address = self.value(op.arguments[0])
        stored = [self.value(a) for a in op.arguments[1:2]]
        for mask in [*op.arguments[2:3], *(v for k, v in op.given.items() if k == "mask")]:
            self.run.indices |= self.value(mask).sources
        shape = address.shape if address.shape != () or not stored else stored[0].shape
        if any(v.data for v in stored) and op.name == "atomic_add":
            self.compute(op.node, shape, Value(sources=sources_of(stored)), 1)
        self.event(op.node, "atomic", replace(address, shape=shape))
        return Value(shape, sources=frozenset(), data=bool(stored and stored[0].data))

    op_atomic_add = op_atomic_max = op_atomic_min = op_atomic_xchg = op_atomic_cas = op_atomic_and = op_atomic_or = (
        _atomic
    )

    def op_dot(self, op: Operation) -> Value:
        a, b = self.value(op.arguments[0]), self.value(op.arguments[1])
        for other in [*op.arguments[2:], *op.given.values()]:
            self.value(other)
        if not a.shape or not b.shape or len(a.shape) < 2 or len(a.shape) != len(b.shape):
            self.run.not_counted.setdefault(f"tl.dot of tiles of unknown shape (line {op.node.lineno})")
            return Value(None, data=True)
        shape = (*a.shape[:-1], b.shape[-1])
        self.run.products.append((self.line, a.loaded, b.loaded))
        self.event(op.node, "dot", Value(shape, sources=a.sources | b.sources), 2 * self.size((*shape, a.shape[-1])))
        return Value(shape, data=True, sources=a.sources | b.sources, product=True)

    def op_dot_scaled(self, op: Operation) -> Value:
        values = [self.value(a) for a in (*op.arguments, *op.given.values())]
        self.run.not_counted.setdefault(f"tl.dot_scaled, whose operands are packed (line {op.node.lineno})")
        a, b = values[0], values[3]
        return Value((a.shape[0], b.shape[-1]) if a.shape and b.shape else None, data=True)

    def reduced(self, op: Operation, values: list[Value], flops: int) -> Value:
        found = values[0] if values else Value(None)
        if found.items is not None or (len(op.arguments) > 1 and found.shape == () and "axis" not in op.given):
            # of two scalars, as Python's own max(a, b)
            text = f"{op.name}({', '.join(v.text for v in values)})" if all(v.text for v in values) else ""
            return Value(broadcast(values), text, any(v.data for v in values), sources_of(values))
        if flops and found.data:
            self.compute(op.node, found.shape, found, flops)
        where = op.given.get("axis") or (op.arguments[1] if len(op.arguments) > 1 else None)
        axis = self.quiet(where).constant if where is not None else None
        keeps = "keep_dims" in op.given and self.quiet(op.given["keep_dims"]).constant is True
        if found.shape is None or (where is not None and not isinstance(axis, int)):
            return Value(None, data=found.data, sources=found.sources)
        if axis is None:
            shape: Shape = ("1",) * len(found.shape) if keeps else ()
        else:
            sizes = list(found.shape)
            if not -len(sizes) <= axis < len(sizes):
                return Value(None, data=found.data, sources=found.sources)
            sizes[axis] = "1"
            if not keeps:
                del sizes[axis]
            shape = tuple(sizes)
        made = Value(shape, data=found.data, sources=found.sources, strides=("",) * len(shape))
        both = "return_indices" in op.given and self.quiet(op.given["return_indices"]).constant is True
        return Value(items=(made, replace(made, data=False))) if both else made

    def op_reduce(self, op: Operation) -> Value:
        self.run.not_counted.setdefault(f"what {op.name} combines (line {op.node.lineno})")
        found = self.value(op.arguments[0])
        return self.reduced(op, [found if found.items is None else found.items[0]], 0)

    def op_associative_scan(self, op: Operation) -> Value:
        self.run.not_counted.setdefault(f"what associative_scan combines (line {op.node.lineno})")
        return self.value(op.arguments[0])

    def _same(self, op: Operation) -> Value:
        return self.value(op.arguments[0]) if op.arguments else Value(None)

    def op_to(self, op: Operation) -> Value:
        found = self._same(op)
        kinds = [ast.unparse(a) for a in (*op.arguments[1:], *op.given.values())]
        if pointed := next(
            (m for kind in kinds if (m := re.search(r"pointer_type\(\s*[\w.]*?(\d+)\s*\)", kind))), None
        ):
            return replace(found, element=str(max(int(pointed[1]) // 8, 1)))
        if any(re.search(r"\bu?int\d+$", kind) for kind in kinds) and not found.pointer:
            return replace(found, data=False, loaded=-1, product=False)  # whole numbers from here on
        floats = any("float" in kind for kind in kinds)
        return replace(found, data=True, text="", loaded=-1) if floats and not found.pointer else found

    op_to_tensor = op_logical_not = op_advance = _same
    op_cast = op_to

    def op_flip(self, op: Operation) -> Value:
        return replace(self._same(op), strides=())

    op_sort = op_flip
    op_max_contiguous = op_multiple_of = op_max_constancy = op_constexpr = _same

    def op_where(self, op: Operation) -> Value:
        test, first, second = (self.value(a) for a in op.arguments[:3])
        shape = broadcast([test, first, second])
        same = second.shape == () or first.strides == second.strides  # a scalar: where the mask leaves out
        steps = first.strides if first.shape == shape and same else ()
        return Value(
            shape, "", first.data or second.data, first.sources | second.sources, first.pointer or second.pointer, steps
        )

    def op_trans(self, op: Operation) -> Value:
        order = [self.quiet(a).constant for a in op.arguments[1:]]
        return permuted(self.value(op.arguments[0]), order or None)

    def op_permute(self, op: Operation) -> Value:
        found = self.value(op.arguments[0])
        order = self.value(op.given["dims"] if "dims" in op.given else op.arguments[1])
        items = order.items or tuple(self.value(a) for a in op.arguments[1:])
        return permuted(found, [i.constant for i in items])

    def op_reshape(self, op: Operation) -> Value:
        shape = self.wanted(op)
        return replace(self.value(op.arguments[0]), shape=shape, strides=("",) * len(shape or ()), text="")

    op_view = op_reshape

    def wanted(self, op: Operation) -> Shape | None:
        """The shape that is asked for: one list of sizes, or the sizes one by one."""
        rest = op.arguments[1:]
        if len(rest) > 1:
            return self.shape(ast.Tuple(elts=list(rest), ctx=ast.Load()))
        return self.shape(rest[0] if rest else op.given.get("shape"))

    def op_broadcast_to(self, op: Operation) -> Value:
        found, shape = self.value(op.arguments[0]), self.wanted(op)
        if shape is None or found.shape is None or len(shape) != len(found.shape):
            return replace(found, shape=shape, strides=(), text="")
        return replace(found, shape=shape, strides=padded(found), text="")

    def op_broadcast(self, op: Operation) -> Value:
        values = [self.value(a) for a in op.arguments]
        shape = broadcast(values)
        return Value(items=tuple(replace(v, shape=shape) for v in values))

    def op_expand_dims(self, op: Operation) -> Value:
        found = self.value(op.arguments[0])
        where = op.given.get("axis") or (op.arguments[1] if len(op.arguments) > 1 else None)
        axis = self.quiet(where).constant if where is not None else None
        if found.shape is None or not isinstance(axis, int):
            return Value(None, data=found.data, sources=found.sources)
        sizes, steps = list(found.shape), list(padded(found))
        place = axis if axis >= 0 else len(sizes) + 1 + axis
        sizes.insert(place, "1")
        steps.insert(place, "0")
        return replace(found, shape=tuple(sizes), strides=tuple(steps), text="")

    def op_join(self, op: Operation) -> Value:
        a, b = (self.value(x) for x in op.arguments[:2])
        shape = broadcast([a, b])
        return Value(None if shape is None else (*shape, "2"), data=a.data or b.data, sources=a.sources | b.sources)

    def op_cat(self, op: Operation) -> Value:
        a, b = (self.value(x) for x in op.arguments[:2])
        known = a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape) == 1
        shape = (
            (combined_text(ast.Add(), Value(text=a.shape[0]), Value(text=b.shape[0])),)
            if known and a.shape and b.shape
            else None
        )
        return Value(shape, data=a.data or b.data, sources=a.sources | b.sources)

    def op_split(self, op: Operation) -> Value:
        found = self.value(op.arguments[0])
        half = replace(found, shape=found.shape[:-1] if found.shape else None, strides=())
        return Value(items=(half, half))

    def op_make_block_ptr(self, op: Operation) -> Value:
        names = ("base", "shape", "strides", "offsets", "block_shape", "order")
        parts = {**dict(zip(names, op.arguments, strict=False)), **op.given}
        return self.blocked(parts, "base")

    def op_make_tensor_descriptor(self, op: Operation) -> Value:
        names = ("base", "shape", "strides", "block_shape")
        return self.blocked({**dict(zip(names, op.arguments, strict=False)), **op.given}, "base")

    def blocked(self, parts: dict[str, ast.expr], base: str) -> Value:
        found = self.value(parts[base]) if base in parts else Value(None)
        shape, strides = (
            self.shape(parts.get("block_shape")),
            self.value(parts["strides"]) if "strides" in parts else Value(None),
        )
        for name in ("offsets", "shape"):
            if name in parts:
                self.run.indices |= sources_of(list(self.value(parts[name]).items or ()))
        steps = tuple(i.text for i in strides.items) if strides.items is not None else ()
        return Value(shape, pointer=found.pointer, strides=steps, block=True)

    def _nothing(self, op: Operation) -> Value:
        del op
        return Value()

    def op_swizzle2d(self, op: Operation) -> Value:
        del op
        return Value(items=(Value(), Value()))

    def _number(self, op: Operation) -> Value:
        del op
        return Value(data=True)

    op_float32 = op_float16 = op_bfloat16 = op_float64 = _number

    op_static_assert = op_device_assert = op_device_print = op_static_print = op_debug_barrier = _nothing


def _folded(op: ast.operator, x: int, y: int) -> int | None:
    match op:
        case ast.Add():
            return x + y
        case ast.Sub():
            return x - y
        case ast.Mult():
            return x * y
        case ast.BitAnd():
            return x & y
        case ast.BitOr():
            return x | y
        case ast.FloorDiv() if y:
            return x // y
        case ast.Mod() if y:
            return x % y
    return None
