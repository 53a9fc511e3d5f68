"""The abstract run of a Triton kernel: what one program computes and moves, and everything else that its lines tell.

One run over the kernel and the device functions that it calls puts down events (`kernels/run/events.py`); all that is
told of the kernel is worked out from them. A `Value` knows the shape of a tile, the parameters that its address starts
from and how its offset steps along each axis; nothing is executed. Both sides of a branch are run: the one that constants
decide or that is assumed is counted, the other stands on a path of its own. Conventions: a product of m x k by k x n is
2*m*n*k, adding it to an accumulator is part of it; arithmetic on data is 1 per element of its result, a sum 1 per element
that goes in; index arithmetic, comparisons, casts and moves are 0. Masked elements count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.kernels.host.modules import PyModule
from opscope_tools.kernels.run.events import Access, Call, Event, Loop, Product, TooManyStepsError, parts_of
from opscope_tools.kernels.run.events import Mapping as Mapped
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.run.paths import Answers, Path, Step, counted, when
from opscope_tools.kernels.run.ways import Nest
from opscope_tools.kernels.triton.definitions import FunctionNode, dotted_name
from opscope_tools.kernels.triton.expressions import Expressions, Surroundings
from opscope_tools.kernels.triton.operations import Asked, Language, Operation, clip
from opscope_tools.kernels.triton.parameters import parameters
from opscope_tools.kernels.triton.tiles import Value, literal, texts
from opscope_tools.kernels.values.conditions import canonical
from opscope_tools.kernels.values.expressions import SYMBOLS, Quantity, Size, leaf, negative, render, settled
from opscope_tools.kernels.values.expressions import call as call_of
from opscope_tools.kernels.values.notation import names_of, of_run
from opscope_tools.kernels.values.trips import at_least_none, trip_count, turns
from opscope_tools.kernels.values.turns import Counter

_DEPTH = 6
#: statements that one run looks at: more is generated text
_MOST_STEPS = 60_000
#: characters of a number that goes on in formulas; a longer one goes on under its own name
_LONGEST = 120


def run_kernel(
    function: FunctionNode, module: PyModule, around: Surroundings, fixed: Mapping[str, Any], language: Language | None = None
) -> Log:  # fmt: skip
    """Run a kernel abstractly; `fixed`: parameters of one value; `language`: where it is another than Triton's."""
    log = Log(_MOST_STEPS)
    walk = Walk(module, function, around, log, log.answers)
    walk.language = language
    log.parameters = frozenset(argument.arg for argument, *_ in parameters(function))
    for argument, _, _, constexpr in parameters(function):
        name = argument.arg
        shown = Quantity(name, run_time=not constexpr)
        if name in fixed:
            whole = isinstance(fixed[name], int) and not isinstance(fixed[name], bool)
            value = literal(fixed[name], shown if whole else None)
        else:
            value = Value(number=shown)
        walk.env[name] = replace(value, name=name, roots=() if constexpr else (name,))
    try:
        walk.block(function.body)
    except TooManyStepsError:
        walk.lost("what comes behind the first steps of a very long run", function, "flops", "matmul", "read", "write")
    except RecursionError:
        walk.lost("expressions that are nested too deeply", function, "flops", "matmul", "read", "write")
    walk.finish(0)
    return log


class Walk(Expressions):
    """The statements of one function."""

    def __init__(
        self, module: PyModule, function: FunctionNode, around: Surroundings, log: Log, answers: Answers,
        caller: Walk | None = None, via: str = "",
    ) -> None:  # fmt: skip
        path, times, line = (caller.path, caller.times, caller.line) if caller else ((), Formula.const(1), 0)
        super().__init__(log, module.path if via else "", via, path, times, line)
        self.turns = caller.turns if caller else Nest()
        self.carried = caller.carried if caller else frozenset()
        self.outside = len(self.turns.loops)
        self.module, self.around, self.answers = module, around, answers
        self.depth: int = caller.depth + 1 if caller else 0
        self.arguments = frozenset(a.arg for a, *_ in parameters(function))
        self.env: dict[str, Value] = {}
        #: how much of `path` the caller's is, and what is given back there and on paths that are not taken
        self.entered = len(path)
        self.returned: Value | None = None
        self.returned_aside: Value | None = None
        #: what the side of a test that is not taken left in names: a later branch on the same test finds it so
        self.sides: dict[tuple[str, bool], tuple[dict[str, Value], dict[str, str]]] = {}

    # statements --------------------------------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> bool:
        """Run statements; whether every way through them leaves the block."""
        return any(self.statement(s) for s in statements)

    def statement(self, statement: ast.stmt) -> bool:
        """Run one statement, one step of the limit; whether nothing is run behind it."""
        self.log.step()
        match statement:
            case ast.Assign(targets=targets, value=value):
                self.assign(targets, value, statement)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.assign([target], value, statement)
            case ast.AugAssign(target=target, op=op, value=value):
                self.into, kept = ast.unparse(target), self.asked
                self.asked = Asked(value)
                made = self.binary(op, *self.operands(ast.BinOp(target, op, value), target, value), statement)
                self.bind(
                    target, replace(made, ids=self.asked.ids and not self.asked.data), ast.BinOp(target, op, value)
                )
                self.into, self.asked = "", kept
            case ast.Expr(value=value):
                self.asking(value)
            case ast.Return(value=value):
                self.give_back(self.asking(value)[0] if value is not None else Value())
                return True
            case ast.Continue() | ast.Break():
                return True
            case ast.If():
                return self.branch(statement)
            case ast.For():
                self.loop(statement)
            case ast.While():
                self.until(statement)
            case ast.With():
                return self.block(statement.body)
            case ast.Assert(test=test, msg=message):
                self.check("assert", statement, test, message)
        return False

    def give_back(self, value: Value) -> None:
        """Note what a function returns: the first value counts, those of paths that do not count stand aside."""
        if counted(self.path[self.entered :]):
            self.returned = self.returned or value
        else:
            self.returned_aside = self.returned_aside or value

    def assign(self, targets: list[ast.expr], value: ast.expr, statement: ast.stmt) -> None:
        """Run a value and bind its targets; of tuples, part by part."""
        self.into = ", ".join(ast.unparse(t) for t in targets)
        pairs = [pair for target in targets for pair in _matched(target, value)]
        found: dict[int, tuple[Value, Asked]] = {}
        for _, part in pairs:
            if id(part) not in found:
                found[id(part)] = self.asking(part)
        for target, part in pairs:
            made, asked = found[id(part)]
            for name in _names(target):
                self.definitions[name] = f"{clip(ast.unparse(part))} ({self.module.path}:{statement.lineno})"
                if made.ids:
                    self.put(
                        Mapped, statement, axis=", ".join(asked.axes), variable=name, text=ast.unparse(part),
                        scaled=tuple(asked.scaled), sources=made.sources,
                    )  # fmt: skip
            self.bind(target, made, part)
        self.into = ""

    def bind(self, target: ast.expr, value: Value, written: ast.expr | None = None) -> None:
        """Give a name its value, `written` so; a long scalar goes on under its own name."""
        if isinstance(target, ast.Name):
            told = value.number is not None and len(render(value.number)) <= _LONGEST
            if value.shape == () and value.items is None and not value.known and not told:
                number = self.quantity(target.id, target.lineno)
                if value.sources or self.differs(value.number):
                    self.log.varying.add(number.name)
                self.carry(target.id, number.name, value, written)
                value = replace(value, number=number)
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = value.items or ()
            for index, element in enumerate(target.elts):
                found = items[index] if index < len(items) else Value(None, data=value.data)
                self.bind(element, replace(found, ids=found.ids or value.ids), written)

    def quantity(self, name: str, line: int) -> Quantity:
        """What a name holds from a line on, where that has no formula: under its own name, which a parameter's is not."""
        made = leaf(f"{name} of line {line}" if name in self.log.parameters else name)
        self.log.names.setdefault(made.name, "")
        return made

    def carry(self, name: str, known_as: str, value: Value, written: ast.expr | None) -> None:
        """Keep in mind whether an untold scalar differs from turn to turn; what is loaded anew is data, which does not count as that."""
        again = written is not None and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(written))
        if self.log.changed & set(names_of(value.number or 0)):
            self.log.changed.add(known_as)
        if written is not None:
            moves = self.asks_turns(written) and (again or not value.sources)
            self.carried = self.carried | {known_as} if moves else self.carried - {known_as}
            self.log.changed |= {known_as} if moves else set()

    # branches ----------------------------------------------------------------------------------------------------

    def branch(self, statement: ast.If) -> bool:
        """Both sides, the one that is taken first; the rest is on the path of the side that does not leave."""
        if self.clamped(statement):
            return False
        if self.by_turns(statement.test):
            return self.parted(statement)
        leaves = isinstance(statement.body[-1], ast.Return | ast.Continue | ast.Break)
        idle = leaves or all(isinstance(s, ast.Pass) for s in statement.body)  # an early exit is the exception
        test = self.test(statement.test)
        holds, status = self.answer(statement.test, usual=not idle)
        before, answers, place = self.path, self.answers, len(self.log.events)
        sides = (statement.body, statement.orelse) if holds else (statement.orelse, statement.body)
        env, definitions = dict(self.env), dict(self.definitions)
        self.path = (*before, self.step(statement.test, holds, status))
        first = self.block(sides[0])
        middle = len(self.log.events)
        rest = self.path[len(before) + 1 :]  # where a way through it left: what goes on is what did not
        taken = self.env, self.definitions
        other: Step = self.step(statement.test, not holds, "other")
        key = canonical(ast.unparse(statement.test))
        written = self.sides.setdefault((key[0], key[1] != holds), ({}, {}))
        self.env, self.definitions, self.path = {**env, **written[0]}, {**definitions, **written[1]}, (*before, other)
        self.answers = answers if isinstance(test, bool) else answers.supposing(test, not holds)
        if not isinstance(test, bool):
            self.suppose(statement.test, test, self.answers, not holds)
        second = self.block(sides[1])
        costs = [parts_of(self.log.events[place:middle]), parts_of(self.log.events[middle:])]
        matters = status == "assumed" and counted(before) and (leaves or any(costs)) and self.by_program(statement.test)
        if matters and (all(costs) or not self.of_all(statement.test, holds)):
            self.log.uneven[ast.unparse(statement.test)] = None
        written[0].update({n: v for n, v in self.env.items() if env.get(n) is not v})
        written[1].update({n: v for n, v in self.definitions.items() if definitions.get(n) != v})
        if first and not second:
            return False  # what follows is gone to on the other path only
        taken[0].update(_joined(taken[0], self.env))
        self.answers, (self.env, self.definitions) = answers, taken
        self.path = before
        if rest:
            self.path = (*before, *rest) if second else (*before, _either(rest, (other,)))
        return first and second

    def parted(self, statement: ast.If) -> bool:
        """Both sides of a test of loops' counters, each in the turns that take it; behind them go on those that leave by none."""
        around, env, definitions = len(self.turns.tests), self.env, self.definitions
        ended, on = False, {}
        for holds in self.both_ways(statement.test):
            self.env, self.definitions = dict(env), dict(definitions)
            if self.block(statement.body if holds else statement.orelse):
                ended = True
            else:
                on[holds] = self.env, self.definitions, self.turns.tests[around:]
        self.cut = self.cut or self.leaving(statement)
        if on:
            ways = list(on.values())
            self.env, self.definitions = self.merged([way[0] for way in ways], statement.lineno), ways[0][1]
            if ended or any(len(way[2]) > 1 for way in ways):
                self.go_on(statement.test, {holds: way[2] for holds, way in on.items()})
        return not on

    def merged(self, sides: list[dict[str, Value]], line: int) -> dict[str, Value]:
        """Names behind two ways that are both gone: what differs of them is not told."""
        first, *others = sides
        found = {name: value for side in reversed(sides) for name, value in side.items()}
        for name, one in first.items():
            for other in (side[name] for side in others if name in side and side[name] != one):
                scalar = one.shape == other.shape == () and one.items is None
                found[name] = replace(
                    one, number=self.untold_value(name, f"behind the test at line {line}") if scalar else None, constant=None, known=False, name="", sources=one.sources | other.sources,
                    product=False, accumulator=one.accumulator and other.accumulator, ids=one.ids or other.ids,
                    strides=one.strides if one.strides == other.strides else (None,) * len(one.shape or ()),
                )  # fmt: skip
        return found

    def clamped(self, statement: ast.If) -> bool:
        """Whether it is `if x > bound: x = bound`, which gives the smaller of two numbers (or the larger) and takes no side."""
        match statement:
            case ast.If(test=ast.Compare(left=left, ops=[op], comparators=[right]),
                        body=[ast.Assign(targets=[ast.Name() as target], value=value)], orelse=[]):  # fmt: skip
                name, bound = ast.unparse(target), ast.unparse(value)
                larger = isinstance(op, ast.Gt | ast.GtE)
                if (ast.unparse(left), ast.unparse(right)) == (bound, name):
                    larger = not larger
                elif (ast.unparse(left), ast.unparse(right)) != (name, bound):
                    return False
            case _:
                return False
        asked = self.test(statement.test)
        sides = [self.quiet(left), self.quiet(right)]
        if (
            not isinstance(op, ast.Gt | ast.GtE | ast.Lt | ast.LtE)
            or isinstance(asked, bool)
            or any(s.shape != () or s.number is None for s in sides)
        ):
            return False
        if self.answers.implied(asked) is not None:
            return False
        self.asking(statement.test)
        one, other = sides
        number = call_of("min" if larger else "max", one.number, other.number)
        made = Value(number=number, sources=one.sources | other.sources, ids=one.ids or other.ids)
        if made.ids:
            text = f"{'min' if larger else 'max'}({name}, {bound})"
            self.put(Mapped, statement, axis="", variable=name, text=text, scaled=(), sources=made.sources)
        self.definitions[name] = f"{clip(ast.unparse(statement))} ({self.module.path}:{statement.lineno})"
        self.bind(target, made)
        return True

    # loops -------------------------------------------------------------------------------------------------------

    def loop(self, statement: ast.For) -> None:
        """Run a `for`: its body once, as many times as its `range` says; a name of its own where that is not known."""
        call, target = statement.iter, ast.unparse(statement.target)
        name = dotted_name(call.func, self.module) if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or name.rpartition(".")[2] not in {"range", "static_range"}:
            self.asking(call)
            self.bind(statement.target, Value(None))
            self.put(Loop, statement, variable=target, text=ast.unparse(call), kind="for")
            self.repeat(Counter("", 0, 1, self.unknown(statement.lineno, ast.unparse(call))), statement)
            return
        bounds = [self.asking(a)[0] for a in call.args]
        for bound in bounds:
            self.index(bound)
        numbers = [b.number for b in bounds if b.number is not None]
        trips = trip_count(numbers) if bounds and len(numbers) == len(bounds) else None
        told = None if self.log.changed & set(names_of(trips or 0)) else trips
        self.put(Loop, statement, variable=target, text=ast.unparse(call), trips=texts((told,))[0], kind=name)
        number = self.quantity(target, statement.lineno)
        self.log.varying.add(number.name)
        self.log.counters.add(number.name)
        self.bind(statement.target, Value(number=number))
        written = ast.unparse(call)
        trip = self.unknown(statement.lineno, written) if trips is None else at_least_none(trips)
        if told is not None and len(numbers) == 3:
            self.from_index(trip, *numbers)
        start, step = (0, 1) if len(numbers) < 2 else (numbers[0], (*numbers, 1)[2])
        asks = frozenset({number.name} if trips is None else ())
        self.repeat(Counter(number.name, start, step, trip, asks), statement)

    def from_index(self, trip: Size, start: Size, bound: Size, step: Size) -> None:
        """Put down a loop that begins at the program's own index."""
        if axis := re.fullmatch(r"\{program_id\((\d)\)\}", render(start)):
            self.log.from_index[render(trip)] = int(axis[1]), render(bound), render(step)

    def until(self, statement: ast.While) -> None:
        """A loop with a test: as often as what the body adds to a side of a comparison lets it hold."""
        text, (name, found) = ast.unparse(statement.test), self.counted_turns(statement) or ("", None)
        told = None if found is None or self.log.changed & set(names_of(found.trips)) else found.trips
        self.put(Loop, statement, variable="", text=text, trips=texts((told,))[0], kind="while")
        self.asking(statement.test)
        counter = found or Counter("", 0, 1, self.unknown(statement.lineno, text))
        self.repeat(replace(counter, trips=at_least_none(found.trips)) if found else counter, statement, name)

    def counted_turns(self, statement: ast.While) -> tuple[str, Counter] | None:
        """How often `while name + more < bound` runs where its body adds the same to the name once; None for other loops."""
        test = statement.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return None
        changed = _stored(statement.body)
        moving = [n.id for n in ast.walk(test) if isinstance(n, ast.Name) and n.id in changed]
        added = [s for s in statement.body if isinstance(s, ast.AugAssign) and ast.unparse(s.target) in moving]
        writes = [
            n
            for s in statement.body
            for n in ast.walk(s)
            if isinstance(n, ast.Name) and n.id in moving and isinstance(n.ctx, ast.Store)
        ]
        leaves = any(isinstance(n, ast.Break | ast.Continue | ast.Return) for s in statement.body for n in ast.walk(s))
        if (
            len(moving) != 1
            or len(added) != 1
            or len(writes) != 1
            or leaves
            or not isinstance(added[0].op, ast.Add | ast.Sub)
        ):
            return None
        if not _is_term(test.left, moving[0]) or changed & {
            n.id for n in ast.walk(added[0].value) if isinstance(n, ast.Name)
        }:
            return None
        asked = (test.left, test.comparators[0], added[0].value, ast.Name(moving[0]))
        first, bound, step, start = (self.quiet(n).number for n in asked)
        if first is None or bound is None or step is None or start is None:
            return None
        if isinstance(added[0].op, ast.Sub):
            if of_run(step):
                return None
            step = negative(step)
        trips = turns(first, test.ops[0], bound, step)
        changing = self.log.changed & set(names_of(0 if trips is None else trips))
        if trips is not None and not changing and isinstance(test.ops[0], ast.Lt) and isinstance(test.left, ast.Name):
            self.from_index(at_least_none(trips), first, bound, step)
        number = self.quantity(moving[0], statement.lineno)
        return None if trips is None else (moving[0], Counter(number.name, start, step, trips))

    def unknown(self, line: int, written: str, what: str = "iterations") -> Size:
        """A quantity of its own for a trip count that is no formula."""
        name = f"{what} of the loop at line {line}"
        self.log.variables[name] = written
        return leaf(name)

    def repeat(self, counter: Counter, loop: ast.For | ast.While, by: str = "") -> None:
        """Run a loop's body once, counted as often as it turns; what it stores is not known at its beginning. `by`: the name that counts a `while`."""
        log = self.log
        if asks := (log.counters | log.changed) & set(names_of(counter.trips)):  # another count in each turn around it
            what = "mean iterations" if self.turns.loops else "iterations"
            mean = self.unknown(loop.lineno, render(counter.trips), what)
            counter = replace(counter, trips=mean, asks=counter.asks | asks)
        stored, carried = _stored(loop.body), self.carried
        targets = set(_names(loop.target)) if isinstance(loop, ast.For) else set()
        sums = self.sums(counter, loop, stored | targets)
        self.forget(stored - targets, f"in the loop at line {loop.lineno}")
        if by:
            self.env[by] = replace(self.env[by], number=leaf(counter.name))
        self.carried -= {counter.name}
        kept, env, place = (self.turns, self.times, self.line, self.path), dict(self.env), len(log.events)
        answers, self.line = self.answers.copy(), loop.lineno
        self.enter(counter, loop)
        inside = self.turns, self.times, self.path, self.carried
        self.block(loop.body)
        self.turns, self.times, self.path, self.carried = inside
        moved = [
            n for n in stored & set(env) if env[n].strides != self.env[n].strides and env[n].shape == self.env[n].shape
        ]
        if moved:  # steps that change from iteration to iteration: none is told
            del log.events[place:]
            self.answers = answers
            self.env = {**env, **{n: replace(env[n], strides=(None,) * len(env[n].shape or ())) for n in moved}}
            self.block(loop.body)
        self.turns, self.times, self.line, self.path = kept
        self.forget((stored | targets) - set(sums), f"behind the loop at line {loop.lineno}")
        for name, number in sums.items():
            plain = literal(number) if isinstance(number, int) else Value(number=number)
            self.env[name] = replace(plain, ids=self.env[name].ids)
        self.carried = self.carried if self.turns.loops else carried
        self.leave(place)

    def sums(self, counter: Counter, loop: ast.For | ast.While, changed: set[str]) -> dict[str, Size]:
        """Names behind a loop that adds the same to them once in each of its turns, whose number is told, with what they are there."""
        found: dict[str, Size] = {}
        leaves = any(isinstance(n, ast.Break | ast.Continue | ast.Return) for s in loop.body for n in ast.walk(s))
        if leaves or counter.asks or set(names_of(counter.trips)) & (set(self.log.variables) | self.log.changed):
            return found
        every = [
            n.id for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        ]
        for statement in loop.body:
            match statement:
                case ast.AugAssign(target=ast.Name(id=name), op=ast.Add() | ast.Sub() as op, value=added):
                    old = self.env.get(name)
                    if old is None or every.count(name) != 1 or changed & _read(added) or old.items or old.shape != ():
                        continue
                    start, step = old.number, self.quiet(added).number
                    if start is None or step is None or old.data or old.sources or self.quiet(added).sources:
                        continue
                    if set(names_of(step)) & (self.log.changed | self.carried) or not (_whole(start) and _whole(step)):
                        continue
                    total = settled(SYMBOLS[type(op)], start, settled("*", step, counter.trips))
                    if len(render(total)) <= _LONGEST:
                        found[name] = total
        return found

    def forget(self, names: set[str], where: str) -> None:
        """What a loop changes has no one value, in it and after it: of these it is another."""
        for name in names & set(self.env):
            self.env[name] = self.forgotten(self.env[name], name, where)

    def forgotten(self, old: Value, name: str, where: str) -> Value:
        """A value without the numbers in it."""
        if old.items is not None:
            return replace(old, items=tuple(self.forgotten(v, f"{name}[{n}]", where) for n, v in enumerate(old.items)))
        if old.shape != ():
            return old
        return replace(old, number=self.untold_value(name, where), name="", constant=None, known=False)

    def untold_value(self, name: str, where: str) -> Quantity:
        """A quantity for what a name holds there, by which no cost counts."""
        made = leaf(f"{name} {where}")
        self.log.names.setdefault(made.name, "")
        self.log.changed.add(made.name)
        self.carried |= {made.name}
        return made

    # calls of device functions -----------------------------------------------------------------------------------

    def called(self, op: Operation) -> Value:
        """A device function, run with what it is handed."""
        spelled = op.node.func.id if isinstance(op.node.func, ast.Name) else dotted_name(op.node.func, self.module)
        if spelled in {"float", "int", "bool", "len"}:
            for plain in op.arguments:
                self.value(plain)
            return Value(known=isinstance(op.arguments[0], ast.Constant) if op.arguments else False)
        found = self.around.find(self.module, spelled)
        values = [self.handed(a) for a in op.arguments]
        named = {name: self.handed(v) for name, v in op.given.items()}
        followed = found is not None and self.depth < _DEPTH and found[1].name not in self.via.split(" > ")
        if found is not None:
            self.put(Call, op.node, name=spelled, followed=followed)
        if found is None or not followed:
            handed = [*values, *named.values()]
            roots = () if any(v.data for v in handed) else tuple(r for v in handed for r in v.roots)
            strict = self.language is not None and self.language.strict
            if strict and any(v.roots or v.data or v.shape is None or (v.shape and not v.known) for v in _each(handed)):
                self.lost(ast.unparse(op.node.func), op.node, "flops", "matmul", "read", "write")
            elif roots or any(v.data for v in handed):
                self.lost(ast.unparse(op.node.func), op.node, "flops", "matmul", "read", "write", roots=roots)
            return Value(None)
        module, function = found
        via = f"{self.via} > {function.name}" if self.via else function.name
        inner = Walk(module, function, self.around, self.log, self.answers, self, via)
        inner.language = self.language
        specs = parameters(function)
        given = {**dict(zip([a.arg for a, *_ in specs], values, strict=False)), **named}
        for argument, _, default, _ in specs:
            if argument.arg in given:
                inner.env[argument.arg] = given[argument.arg]
            elif default:
                inner.env[argument.arg] = inner.value(ast.parse(default, mode="eval").body)
        place = len(self.log.events)
        inner.block(function.body)
        inner.leave(place)
        inner.finish(place)
        self.carried |= inner.carried
        self.asked.data = self.asked.data or any(_is_data(e) for e in self.log.events[place:])
        result = inner.returned or inner.returned_aside or Value()
        self.asked.ids = self.asked.ids or result.ids
        return result

    def handed(self, node: ast.expr) -> Value:
        """An argument, which by itself may be told by the program's id."""
        found, asked = self.asking(node)
        self.asked.data = self.asked.data or asked.data
        self.asked.axes += asked.axes
        return found


def _each(values: Iterable[Value]) -> Iterator[Value]:
    """Values, those of tuples one by one."""
    for value in values:
        yield from _each(value.items) if value.items is not None else (value,)


def _joined(taken: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    """What a branch adds to the names of the side that is taken: what only the other side defines, and what it says of ids."""
    return {
        name: replace(taken[name], ids=True) if name in taken else value for name, value in other.items()
        if name not in taken or (value.ids and not taken[name].ids)
    }  # fmt: skip


def _either(path: Path, other: Path) -> Step:
    """One step for two ways of which both go on."""
    test = when([path, other])
    return Step(test, True, "other")


def _matched(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment with what each is given: `a, b = x, y` one by one."""
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        starred = any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
        if len(target.elts) != len(value.elts) or starred:
            return [(target, value)]
        return [pair for t, v in zip(target.elts, value.elts, strict=True) for pair in _matched(t, v)]
    return [(target, value)]


def _names(target: ast.expr) -> list[str]:
    if isinstance(target, ast.Name):
        return [target.id]
    return [n for e in target.elts for n in _names(e)] if isinstance(target, ast.Tuple | ast.List) else []


def _stored(statements: list[ast.stmt]) -> set[str]:
    """Names that statements change."""
    return {
        node.id for statement in statements for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }  # fmt: skip


def _read(node: ast.expr) -> set[str]:
    """Names that an expression asks for."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _whole(number: Size) -> bool:
    """Whether a number is made of whole ones by whole steps."""
    return not (isinstance(number, float) or re.search(r"\d\.|\.\d|(?<!/)/(?!/)|\*\*", render(number)))


def _is_term(node: ast.expr, name: str) -> bool:
    """Whether an expression is a name, or a sum in which it stands once and alone."""
    if isinstance(node, ast.Name):
        return node.id == name
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        inside = [
            side
            for side in (node.left, node.right)
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(side))
        ]
        return (
            len(inside) == 1
            and _is_term(inside[0], name)
            and not (isinstance(node.op, ast.Sub) and inside[0] is node.right)
        )
    return False


def _is_data(event: Event) -> bool:
    """Whether something is loaded or multiplied here, so that what comes of it is data."""
    return isinstance(event, Product) or (isinstance(event, Access) and event.what != "store")
