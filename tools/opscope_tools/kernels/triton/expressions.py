"""Expressions in the abstract run of a Triton kernel: names, arithmetic, subscripts, calls and what a test comes to.

The operations of the language are in operations.py, the statements around these in run.py.
"""

from __future__ import annotations

import ast
import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opscope_tools.kernels.host.modules import Modules, PyModule
from opscope_tools.kernels.run.events import Branch
from opscope_tools.kernels.run.paths import Answers, Status, Step, Test
from opscope_tools.kernels.run.ways import Ways
from opscope_tools.kernels.triton.definitions import FunctionNode, dotted_name, of_language
from opscope_tools.kernels.triton.operations import Asked, Operation, Operations
from opscope_tools.kernels.triton.tiles import (
    Value,
    broadcast,
    combined,
    compare,
    computed,
    folded,
    literal,
    padded,
    sources_of,
)  # fmt: skip
from opscope_tools.kernels.values.expressions import (
    COMPARISONS,
    SYMBOLS,
    Expression,
    Quantity,
    Size,
    joined,
    leaf,
    negative,
    operand,
    render,
)
from opscope_tools.kernels.values.expressions import Operation as Joined
from opscope_tools.kernels.values.notation import evaluate, names_of, of_run
from opscope_tools.kernels.values.notation import holds as holds_at
from opscope_tools.kernels.values.turns import as_test, opposite

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_IDS = {"program_id", "num_programs"}
#: ids and sizes at which a test is tried, and of how many
_FIRST, _LARGE, _MOST_IDS, _MOST_SIZES = 8, (1_000, 1_000_000_000), 2, 5

#: a callable that finds the device function of a name: (module, function), or None
Finder = Callable[[PyModule, str], tuple[PyModule, FunctionNode] | None]


@dataclass(frozen=True)
class Surroundings:
    """What all functions of a kernel share: where names lead, and what is a test in other words."""

    modules: Modules
    find: Finder
    #: names that the compiler is given
    compile_time: frozenset[str] = frozenset()
    #: a flag -> the test that it is the answer to
    rules: dict[str, str] = field(default_factory=dict)


class Expressions(Operations, Ways):
    """What one function's walk does with expressions."""

    module: PyModule
    around: Surroundings
    env: dict[str, Value]
    answers: Answers
    arguments: frozenset[str]

    @abstractmethod
    def called(self, op: Operation) -> Value:
        """A function that is no operation of the language."""

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; what computing it costs is put down."""
        match node:
            case ast.Constant(value=constant):
                return literal(constant)
            case ast.Name(id=name):
                found = self.env[name] if name in self.env else replace(self.of_module(name), number=Quantity(name))
                self.asked.ids = self.asked.ids or found.ids
                self.asked.data = self.asked.data or (found.data and found.shape != ())
                return found
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return Value(items=tuple(self.value(e) for e in elements))
            case ast.BinOp(op=op, left=left, right=right):
                return self.binary(op, *self.operands(node, left, right), node)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, self.value(operand), node)
            case ast.Compare(left=left, comparators=others) | ast.BoolOp(values=[left, *others]):
                parts = [self.value(p) for p in (left, *others)]
                return Value(broadcast(parts), self.truth(node, parts), sources=sources_of(parts))
            case ast.IfExp():
                return self.choice(node)
            case ast.Subscript(value=base, slice=index):
                return self.subscript(self.value(base), index)
            case ast.Attribute(value=base, attr=name):
                return self.attribute(node, base, name)
            case ast.Call():
                return self.call(node)
        return Value(None)

    def asking(self, node: ast.expr) -> tuple[Value, Asked]:
        """The value of a whole expression, and what it asked for."""
        kept, self.asked = self.asked, Asked(node)
        found, asked = self.value(node), self.asked
        self.asked = kept
        return replace(found, ids=asked.ids and not asked.data), asked

    def operands(self, node: ast.BinOp, left: ast.expr, right: ast.expr) -> tuple[Value, Value]:
        """Both sides; a product of the program's id and a compile-time name is kept in mind."""
        kept, found, ids = self.asked.ids, [], []
        for side in (left, right):
            self.asked.ids = False
            found.append(self.value(side))
            ids.append(self.asked.ids)
        self.asked.ids = kept or any(ids)
        if isinstance(node.op, ast.Mult):
            for other, size, order in ((0, 1, (left, right)), (1, 0, (right, left))):
                if ids[other] and render(found[size].number) in self.around.compile_time:
                    product = " * ".join(
                        ast.unparse(n) if not isinstance(n, ast.BinOp) else f"({ast.unparse(n)})" for n in order
                    )
                    self.asked.scaled.append((render(found[size].number), product))
        return found[0], found[1]

    def unary(self, op: ast.unaryop, found: Value, node: ast.expr) -> Value:
        """The value of `-a`, `~a` or `not a`."""
        if isinstance(op, ast.USub):
            if found.data:
                self.compute(node, found.shape, found.sources, 1)
            elif found.known and isinstance(found.constant, int | float):
                return literal(-found.constant)
            number = None if found.number is None else negative(found.number)
            return replace(found, number=number, constant=None, known=False, name="", roots=(), product=False)
        number = self.truth(node, [found]) if isinstance(op, ast.Not) else None
        return replace(found, number=number, data=False, known=False, name="", roots=())

    def choice(self, node: ast.IfExp) -> Value:
        """The side that a test takes; the other is met on its path."""
        if self.by_turns(node.test):
            ways = [self.value(node.body if holds else node.orelse) for holds in self.both_ways(node.test)]
            return ways[0] if ways[0] == ways[-1] else replace(ways[0], number=None, constant=None, known=False)
        holds, status = self.answer(node.test, usual=True)
        test, (taken, other) = self.test(node.test), (node.body, node.orelse) if holds else (node.orelse, node.body)
        kept = self.path, self.answers
        self.path = (*kept[0], self.step(node.test, holds, status))
        found = self.value(taken)
        self.path = (*kept[0], self.step(node.test, not holds, "other"))
        if not isinstance(test, bool):
            self.answers = self.answers.supposing(test, not holds)
        self.value(other)
        self.path, self.answers = kept
        return found

    # tests of loops' counters --------------------------------------------------------------------------------------

    def by_turns(self, test: ast.expr) -> bool:
        """Whether a test that is not settled asks for the counter of a loop around it."""
        return self.asks_turns(test) and not isinstance(self.test(test), bool)

    def asks_turns(self, test: ast.expr) -> bool:
        """Whether a test names what differs from turn to turn: the counter of a loop around it, or what a loop carries on."""
        return any(
            self.changing & set(names_of(self.env[node.id].number or 0))
            for node in ast.walk(test)
            if isinstance(node, ast.Name) and node.id in self.env
        )

    def truth(self, node: ast.expr, parts: list[Value]) -> Expression | None:
        """A scalar that is a test of counters, as what it asks; `parts`: what it is made of. None of others."""
        numbers = [part.number for part in parts if part.shape == () and part.number is not None]
        if len(numbers) < len(parts) or not self.asks_turns(node):
            return None
        asked = [as_test(number) for number in numbers if isinstance(number, Expression)]
        match node:
            case ast.UnaryOp():
                return opposite(asked[0]) if asked else None
            case ast.BoolOp(op=op):
                return joined(SYMBOLS[type(op)], asked) if len(asked) == len(numbers) else None
            case ast.Compare(ops=ops) if set(symbols := [SYMBOLS[type(op)] for op in ops]) <= set(COMPARISONS):
                return joined("and", list(map(Joined, symbols, numbers, numbers[1:])))
        return None

    def of_turns(self, test: ast.expr) -> Expression | bool | None:
        """A test as an expression of counters; parts that ask for none are answered by themselves, and may settle it. None: not told."""
        if not self.asks_turns(test):
            return self.answer(test, usual=True)[0]
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                found = self.of_turns(inner)
                return opposite(found) if isinstance(found, Expression) else None if found is None else not found
            case ast.BoolOp(op=op, values=values):
                ends, parts = isinstance(op, ast.Or), [self.of_turns(value) for value in values]
                left = [part for part in parts if isinstance(part, Expression)]
                if ends in parts or not (left or None in parts):
                    return ends if ends in parts else not ends
                return None if None in parts else joined(SYMBOLS[type(op)], left)
        number = self.value(test).number
        return None if not isinstance(number, Expression) else as_test(number)

    def both_ways(self, test: ast.expr) -> Iterator[bool]:
        """Both answers to a test of counters, or the one that its other parts leave."""
        asked, known, answers = self.of_turns(test), self.test(test), self.answers
        if isinstance(asked, bool):
            yield asked
            return
        for holds in self.ways(test, asked):
            self.answers = answers if isinstance(known, bool) else answers.supposing(known, holds)
            yield holds
            self.answers = answers

    # tests of the program's id ---------------------------------------------------------------------------------------

    def by_program(self, test: ast.expr) -> bool:
        """Whether programs of one launch may answer a test otherwise, by where they stand."""
        found = [self.quiet(node, plain=True) for node in ast.walk(test) if isinstance(node, ast.Name | ast.Call)]
        return any(
            value.ids and not value.sources and not any("num_programs(" in name for name in names_of(value.number or 0))
            for value in found
        )

    def of_all(self, test: ast.expr, holds: bool) -> bool:
        """Whether all programs may give a test that answer, as they do where it bounds their tiles; one value of an id is not of all."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self.of_all(inner, not holds)
            case ast.BoolOp(values=values):
                return all(self.of_all(value, holds) for value in values if self.by_program(value))
            case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() as op], comparators=[right]):
                one, other = self.quiet(left).number, self.quiet(right).number
                if one is None or other is None:
                    return True
                asked = Joined(SYMBOLS[type(op)], one, other)
                ids = [n for n in names_of(asked) if n.startswith("program_id(") or (n in self.env and self.env[n].ids)]
                return _may_all(asked, ids, holds)
        return False

    # tests -------------------------------------------------------------------------------------------------------

    def step(self, test: ast.expr, holds: bool, status: Status) -> Step:
        """One test of a path, and whether it holds there."""
        return Step(ast.unparse(test), holds, status, test.lineno)

    def answer(self, test: ast.expr, usual: bool) -> tuple[bool, Status]:
        """How a test goes, and whether a constant says so; where nothing does, `usual` is taken for granted from here on."""
        asked = self.test(test)
        if isinstance(asked, bool):
            self.short(test, asked)
            return asked, "taken"
        self.asking(test)
        known = self.answers.implied(asked)
        if known is not None:
            return known, "assumed"
        self.suppose(test, asked, self.answers, usual)
        self.put(Branch, test, test=ast.unparse(test), holds=usual)
        return usual, "assumed"

    def short(self, test: ast.expr, holds: bool) -> None:
        """The parts of a test that constants settle: those behind the part that does are met on its other path."""
        if not isinstance(test, ast.BoolOp):
            return
        kept = self.path
        for part in test.values:
            self.asking(part)
            if self.path is kept and self.test(part) is holds and holds == isinstance(test.op, ast.Or):
                self.path = (*kept, self.step(part, not holds, "other"))
        self.path = kept

    def suppose(self, test: ast.expr, asked: Test, answers: Answers, holds: bool) -> None:
        """Enter an answer, and the one value that it leaves a quantity."""
        answers.put(asked, holds)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, holds = test.operand, not holds
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.NotEq):
            name, other = self.key(self.quiet(test.left, plain=True)), self.quiet(test.comparators[0])
            if holds != isinstance(test.ops[0], ast.Eq):
                answers.equal.pop(name, None)  # what it is on the other side of the same test
            elif name and other.known:
                answers.equal[name] = other.constant

    def test(self, node: ast.expr) -> Test | bool:
        """A test by the quantities that it asks for; True or False where constants settle it."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.test(node.operand)
            return not inner if isinstance(inner, bool) else ("not", inner)
        if isinstance(node, ast.BoolOp):
            ends = isinstance(node.op, ast.Or)
            parts = [self.test(v) for v in node.values]
            if ends in parts:
                return ends
            left = [p for p in parts if not isinstance(p, bool)]
            return ("or" if ends else "and", *left) if len(left) > 1 else left[0] if left else not ends
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self.comparison(node)
        found = self.quiet(node, plain=True)
        name = self.key(found)
        rule = self.around.rules.get(name, name)
        if name and self.answers.known(rule) is not None:
            return rule
        if name in self.answers.equal:
            return bool(self.answers.equal[name])
        return bool(found.constant) if found.known else rule or self.own(node)

    def comparison(self, node: ast.Compare) -> Test | bool:
        """A comparison as the test that paths are told by, or its outcome where both sides are known."""
        op, sides = node.ops[0], [self.quiet(s, plain=True) for s in (node.left, node.comparators[0])]
        names = [self.key(s) or (render(s.number) if s.known else "") for s in sides]
        said = f"{names[0]} {SYMBOLS[type(op)]} {names[1]}" if all(names) else ""
        if said and self.answers.known(said) is not None:
            return said
        left, right = (self.settled(s) for s in sides)
        if isinstance(op, ast.Is | ast.IsNot) and left.known and right.known and right.constant is None:
            return (left.constant is None) == isinstance(op, ast.Is)
        decided = compare(op, left.constant, right.constant) if left.known and right.known else None
        return decided if decided is not None else said or self.own(node)

    def own(self, node: ast.expr) -> str:
        """A test that no other one is compared with."""
        return f"{ast.unparse(node)}@{self.via}:{node.lineno}"

    def key(self, found: Value) -> str:
        """By what name the answers know a scalar; '' where they do not."""
        if found.name or found.known or found.number is None or found.shape != () or found.items is not None:
            return found.name
        plain = render(found.number).replace("{", "").replace("}", "")
        local = found.sources or self.log.names.keys() & set(names_of(found.number))
        return f"{plain}@{self.via}{sorted(found.sources)}" if local else plain

    def settled(self, found: Value) -> Value:
        """A scalar with the value that an answer leaves it."""
        name = self.key(found)
        if name in self.answers.equal:
            return replace(found, constant=self.answers.equal[name], known=True)
        answer = self.answers.known(self.around.rules.get(name, name)) if name else None
        return found if answer is None else replace(found, constant=answer, known=True)

    def quiet(self, node: ast.expr, plain: bool = False) -> Value:
        """A value without what computing it costs: constants only. `plain`: not as the answers to tests leave it."""
        match node:
            case ast.Constant(value=value):
                return literal(value)
            case ast.Name(id=name):
                found = self.env[name] if name in self.env else self.of_module(name)
                return found if plain else self.settled(found)
            case ast.Call(func=func, args=[left, right]) if ast.unparse(func).rpartition(".")[2] == "cdiv":
                a, b = self.quiet(left, plain), self.quiet(right, plain)
                return Value(number=self.ceiling(a, b))
            case ast.Call(func=func, args=[ast.Constant() as axis]) if ast.unparse(func).rpartition(".")[2] in _IDS:
                return Value(number=leaf(f"{ast.unparse(func).rpartition('.')[2]}({ast.unparse(axis)})"), ids=True)
            case ast.BinOp(op=op, left=left, right=right):
                a, b = self.quiet(left, plain), self.quiet(right, plain)
                known = self.constants(op, a, b)
                scalars = a.shape == b.shape == () and not (a.data or b.data)
                return (
                    known or Value(number=self.made(op, a.number, b.number), sources=a.sources | b.sources)
                    if scalars
                    else Value(None)
                )
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                return literal(-value)
            case ast.Attribute():
                named = of_language(dotted_name(node, self.module))
                return literal(f"tl.{named}") if named else Value(None)
        return Value(None)

    # names -------------------------------------------------------------------------------------------------------

    def defined(self, name: str) -> tuple[PyModule, str] | None:
        """The file that defines a name of this one, and what it is called there; None where that is not here."""
        dotted = "" if self.module.bindings(name) else self.module.leads_to(name)
        return self.around.modules.resolve(dotted, self.module.path) if dotted else (self.module, name)

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
            return (
                literal(plain, Quantity(local) if isinstance(plain, int) else None)
                if value is not None
                else Value(name=name)
            )
        return Value(name=name)

    def attribute(self, node: ast.Attribute, base: ast.expr, name: str) -> Value:
        """The value of `base.name`: of the language, a transposed tile, its shape, or itself as a name."""
        if self.language is not None and (made := self.language.attribute(self, base, name)) is not None:
            return made
        if named := of_language(dotted_name(node, self.module)):
            return literal(f"tl.{named}")
        found = self.value(base) if isinstance(base, ast.Name) and base.id in self.env else Value(None)
        if name == "T" and found.shape is not None:
            return replace(found, shape=found.shape[::-1], strides=found.strides[::-1])
        if name == "shape" and found.shape is not None:
            return Value(items=tuple(Value(number=s) for s in found.shape))
        return Value(number=leaf(ast.unparse(node)))

    def subscript(self, found: Value, index: ast.expr) -> Value:
        """An item of a tuple, or a tile with axes added by `None`; anything else is unknown."""
        parts = list(index.elts) if isinstance(index, ast.Tuple) else [index]
        if found.items is not None and len(parts) == 1 and isinstance(parts[0], ast.Constant):
            position = parts[0].value
            if isinstance(position, int) and -len(found.items) <= position < len(found.items):
                return found.items[position]
        if (
            found.name and found.shape == () and not isinstance(index, ast.Slice | ast.Tuple)
        ):  # of several handed as one
            if self.language is not None and found.roots:
                alike = f"The arrays of {found.name} are taken to be alike: {found.name}.shape and {found.name}.strides are those of each."
                self.log.assumptions.setdefault(alike)
            return Value(number=leaf(f"{found.name}[{ast.unparse(index)}]"), roots=found.roots)
        if found.shape is None or not all(
            isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and p.value is None) for p in parts
        ):
            return Value(None, data=found.data, sources=found.sources)
        axes: list[tuple[Size, Size | None]] = []
        left = list(zip(found.shape, padded(found), strict=True))
        for part in parts:
            axes += [(1, 0)] if isinstance(part, ast.Constant) else [left.pop(0)] if left else []
        axes += left
        return replace(found, shape=tuple(s for s, _ in axes), strides=tuple(s for _, s in axes), number=None)

    def constants(self, op: ast.operator, a: Value, b: Value) -> Value | None:
        """The result for two whole numbers that are known; else None."""
        if not (a.known and b.known and isinstance(a.constant, int) and isinstance(b.constant, int)):
            return None
        made = folded(op, a.constant, b.constant)
        if made is None:
            return None
        plain = all(v.number == operand(v.constant) for v in (a, b))
        return literal(made, None if plain else computed(op, a.number, b.number))

    def binary(self, op: ast.operator, a: Value, b: Value, node: ast.AST) -> Value:
        """`a op b`, broadcast; arithmetic on data is put down, arithmetic of addresses is not."""
        if self.language is not None and (made := self.language.binary(self, op, a, b, node)) is not None:
            return made
        if (known := self.constants(op, a, b)) is not None:
            return known
        shape = broadcast([a, b])
        whole = isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.LShift | ast.RShift | ast.FloorDiv | ast.Mod)
        constant = any(isinstance(v.constant, float) for v in (a, b))
        floats = constant or (shape == () and isinstance(op, ast.Div))
        data = not whole and (a.data or b.data or (floats and (shape != () or _at_run(a) or _at_run(b))))
        if a.block or b.block:
            return a if a.block else b
        accumulates = isinstance(op, ast.Add) and self.accumulates(a, b, node)
        sources = a.sources | b.sources
        if isinstance(op, ast.Div) or constant:
            self.of_floats(a, b)
        if data and isinstance(op, _ARITHMETIC) and not accumulates:
            self.compute(node, shape, sources, 1)
        scalar = shape == () and not a.data and not b.data
        number = self.made(op, a.number, b.number) if scalar else None
        steps = combined(op, a, b, shape) if shape is not None else ()
        roots = a.roots + b.roots if isinstance(op, ast.Add) else a.roots if isinstance(op, ast.Sub) else ()
        into = accumulates or (isinstance(op, ast.Mult) and (a.accumulator or b.accumulator))
        return Value(
            shape, number, data, sources, tuple(dict.fromkeys(roots)), strides=steps, element=a.element or b.element,
            accumulator=into,
        )  # fmt: skip

    def accumulates(self, a: Value, b: Value, node: ast.AST) -> bool:
        """Whether a sum is a product's own: onto what the sum is assigned to again, or onto an accumulator where it is written."""
        sides = _sides(node)
        for found, onto, written, other in ((a, b, *sides), (b, a, *sides[::-1])):
            name, names = written.id if isinstance(written, ast.Name) else "", _names_in(other)
            again = self.into in names and name not in names
            if found.product and (again or (onto.accumulator and not name)):
                return True
        return False

    # calls -------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Value:
        """A call: an operation of the language, or a function of the repository, which is followed."""
        name, receiver = self.operation(node)
        arguments = [*receiver, *(a for a in node.args if not isinstance(a, ast.Starred))]
        given = {k.arg: k.value for k in node.keywords if k.arg}
        operation = Operation(name, node, arguments, given, method=bool(receiver))
        return self.operate(operation) if name else self.called(operation)

    def operation(self, node: ast.Call) -> tuple[str, list[ast.expr]]:
        """(`load`, what it is a method of) of `tl.load` and `descriptor.load`; ('', []) of calls of other functions."""
        if self.language is not None:
            return self.language.operation(self, node)
        dotted = dotted_name(node.func, self.module)
        if name := self.wrapped(node, dotted):
            return name, []
        if name := self.alias(node.func):
            return name, []
        if self.around.find(self.module, node.func.id if isinstance(node.func, ast.Name) else dotted) is not None:
            return "", []
        if dotted in {"min", "max"} or (dotted := of_language(dotted)):
            return dotted, []
        return (node.func.attr, [node.func.value]) if isinstance(node.func, ast.Attribute) else ("", [])

    def wrapped(self, node: ast.Call, dotted: str) -> str:
        """`program_id` of a helper module that stands for `tl.program_id`: `tle.program_id(0)`."""
        if isinstance(node.func, ast.Name):
            dotted = self.module.imports.get(node.func.id, "")
        last = dotted.rpartition(".")[2]
        if last not in _IDS or of_language(dotted) or "." not in dotted or dotted.split(".")[0] in self.arguments:
            return ""
        found = self.around.find(self.module, dotted)
        if found is None:
            what = f"{dotted}, of which no device function was found here; it is taken for tl.{last}"
        elif any(
            isinstance(n, ast.Attribute | ast.Name) and dotted_name(n, found[0]).endswith(f".{last}")
            for n in ast.walk(found[1])
        ):
            what = f"a device function over tl.{last} ({found[0].path}:{found[1].lineno})"
        else:
            return ""
        self.log.wrapped.setdefault(ast.unparse(node.func), what)
        return last

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


def _may_all(test: Joined, ids: Sequence[str], holds: bool) -> bool:
    """Whether a comparison may go so for all ids: at some of all large sizes it does for the first ones, which move it one way alone."""
    sizes = [name for name in names_of(test) if name not in ids]
    programs = [dict(zip(ids, each, strict=True)) for each in itertools.product(range(_FIRST), repeat=len(ids))]
    if len(sizes) > _MOST_SIZES or len(ids) > _MOST_IDS:
        return True
    return any(
        all(holds_at(test, {**at, **program}) in (None, holds) for program in programs) and _one_way(test, ids, at)
        for at in (
            {n: _FIRST if n.startswith("num_programs(") else size for n, size in zip(sizes, each, strict=True)}
            for each in itertools.product(_LARGE, repeat=len(sizes))
        )
    )


def _one_way(test: Joined, ids: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Whether none of the ids moves the sides of a comparison apart while another moves them together."""
    apart = Joined("-", test.left, test.right)
    start = dict.fromkeys(ids, 0)
    moved = [evaluate(render(apart), {**sizes, **start, **one}) for one in ({}, *({name: 1} for name in ids))]
    told = [value for value in moved if value is not None]
    return len(told) < len(moved) or not any(a < told[0] < b for a in told for b in told)


def _at_run(scalar: Value) -> bool:
    """Whether a run tells a scalar, the compiler alone does not: what is handed to a kernel, loaded or counted."""
    return bool(scalar.roots or scalar.sources) or scalar.number is None or of_run(scalar.number)


def _sides(node: ast.AST) -> tuple[ast.expr, ast.expr]:
    """What a sum is written of: `a + b`, `a += b`, `add(a, b)`."""
    match node:
        case (
            ast.BinOp(left=left, right=right)
            | ast.AugAssign(target=left, value=right)
            | ast.Call(args=[left, right, *_])
        ):
            return left, right
    raise TypeError(node)


def _names_in(node: ast.expr) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
