"""The abstract run of a TileLang kernel: what one thread block computes and moves, and everything else that its lines tell.

The functions around the grid are run as far as they lead to it, then the grid's block. Tensors and tiles know shape and type,
elements of data whether they are numbers; nothing is executed. Conventions are those of Triton's run: a product 2*m*n*k, other
arithmetic on data 1 per element, index arithmetic, comparisons, casts and moves between tiles 0. Elements beyond a tile's edge count,
those that a test of their own number leaves out do not.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opscope_tools.kernels.host.evaluate import Scope
from opscope_tools.kernels.host.interpreter import Interpreter, LocalScope, ModuleScope
from opscope_tools.kernels.host.modules import Modules, PyModule, with_defaults
from opscope_tools.kernels.host.worlds import DroppedError, Function, Oracle, UnresolvedError, is_concrete
from opscope_tools.kernels.run.events import Branch, Call, Check, Loop, TooManyStepsError
from opscope_tools.kernels.run.events import Mapping as Mapped
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.run.paths import Status, Step
from opscope_tools.kernels.run.ways import Ways
from opscope_tools.kernels.tilelang.definitions import Opened, grid_of, of_language
from opscope_tools.kernels.tilelang.operations import Operations
from opscope_tools.kernels.tilelang.values import Buffer, Datum, Region, Space, bits_of, floating, of_thread, sizes_of
from opscope_tools.kernels.values.expressions import (
    SYMBOLS,
    Expression,
    Operation,
    Quantity,
    Size,
    joined,
    leaf,
    operand,
    render,
    settled,
)  # fmt: skip
from opscope_tools.kernels.values.notation import holds as holds_at
from opscope_tools.kernels.values.notation import names_of
from opscope_tools.kernels.values.trips import at_least_none, trip_count
from opscope_tools.kernels.values.turns import Counter, Turns, as_test

_MOST_THREADS = 2048
#: how many times longer the side of a test is that is taken for the work
_MUCH_MORE = 3
_THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_SERIAL = {"serial", "unroll", "vectorized", "range", "Pipelined", "Serial", "Unroll", "Vectorized"}
_PARALLEL = {"Parallel", "grid"}
_TENSORS = {"Tensor", "StridedTensor", "Buffer", "SharedBuffer", "FragmentBuffer", "LocalBuffer", "MeshTensor"}
#: where what is declared so lies; else in global memory
_DECLARED: dict[str, Space] = {"SharedBuffer": "shared", "FragmentBuffer": "fragment", "LocalBuffer": "local"}
_SCALAR = re.compile(r"u?int\d|b?float\d|bool|handle|ptr|Ref")
#: characters of a size that goes on in formulas; a longer one goes on under its own name
_LONGEST = 100


class _ReachedError(Exception):
    """The grid has been run: what stands behind it is another kernel's, or the host's."""


class Run(Interpreter, Operations, Ways):
    """One kernel."""

    def __init__(self, modules: Modules, module: PyModule, one: Opened, log: Log) -> None:
        Interpreter.__init__(self, modules, Oracle())
        Operations.__init__(self, log, module.path)
        self.source, self.one = module, one
        #: the grid and what is given beside it, once it is reached
        self.grid: tuple[Size, ...] | None = None
        self.given: dict[str, Any] = {}
        #: parameters of the functions around the grid that are no tensors: (argument, annotation, default)
        self.settings: list[tuple[ast.arg, str, str]] = []
        self.tensors: list[tuple[ast.arg, ast.expr]] = []
        #: parameters that were taken to be as their defaults say
        self.defaults: dict[str, str] = {}

    # the way to the grid -------------------------------------------------------------------------------------------

    def go(self, fixed: Mapping[str, Any]) -> None:
        """Run the functions around the grid, and the grid."""
        try:
            self._enter(0, ModuleScope(self.source), fixed)
        except _ReachedError:
            return
        except (TooManyStepsError, RecursionError):
            self.lost("what comes behind the first steps of a very long run", self.one.block)
        except UnresolvedError as error:
            self.lost(f"what stands behind `{error}`", self.one.block)

    def _enter(self, depth: int, around: Scope, fixed: Mapping[str, Any]) -> None:
        function = self.one.functions[depth]
        scope = LocalScope(around, {})
        typed = {s.target.id: s.annotation for s in function.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name) and s.value is None}  # fmt: skip
        for argument, default in with_defaults(function):
            annotation = typed.get(argument.arg, argument.annotation)
            scope.values[argument.arg] = self._parameter(argument, annotation, default, scope, fixed)
        self._towards(function.body, scope, depth, fixed)

    def _parameter(
        self, argument: ast.arg, annotation: ast.expr | None, default: ast.expr | None, scope: LocalScope, fixed: Mapping[str, Any]
    ) -> Any:  # fmt: skip
        name = argument.arg
        if annotation is not None and (buffer := self.typed(name, annotation, scope)) is not None:
            self.tensors.append((argument, annotation))
            return buffer
        if annotation is not None and _SCALAR.match(of_language(annotation, scope.module)):  # `x: T.int32`
            self.tensors.append((argument, annotation))
            return leaf(name)
        shown = ast.unparse(annotation) if annotation is not None else ""
        self.settings.append((argument, shown, ast.unparse(default) if default is not None else ""))
        if name in fixed:
            return fixed[name]
        if default is None:
            return Quantity(name)
        try:
            value = self.eval(default, scope)
        except UnresolvedError:
            return Quantity(name)
        if isinstance(value, int | float | Expression) and not isinstance(value, bool):
            return Quantity(name)  # a size is better left one
        if value is None:  # whoever asks whether it is given is told no; else it is one
            self.log.answers.put(f"{name} is None", True)
            self.defaults[name] = "None"
            return Quantity(name)
        self.defaults[name] = ast.unparse(default)
        return value

    def typed(self, name: str, annotation: ast.expr, scope: Scope) -> Buffer | None:
        """The tensor that an annotation declares: `T.Tensor((M, K), dtype)`, `T.Tensor[[M, K], dtype]`."""
        if isinstance(annotation, ast.Call):
            head, parts, named = annotation.func, list(annotation.args), {k.arg: k.value for k in annotation.keywords}
        elif isinstance(annotation, ast.Subscript):
            inner = annotation.slice
            head, parts, named = annotation.value, list(inner.elts) if isinstance(inner, ast.Tuple) else [inner], {}
        else:
            return None
        kind = of_language(head, scope.module)
        if kind not in _TENSORS:
            return None
        strided = kind == "StridedTensor"
        sized = named.get("shape") or (parts[0] if parts else None)
        shape = self._quietly(sized, scope) if sized is not None else ()
        dtype = named.get("dtype") or (parts[2 if strided else 1] if len(parts) > (2 if strided else 1) else None)
        steps = self._quietly(parts[1], scope) if strided and len(parts) > 1 else None
        made = self._quietly(dtype, scope) if dtype is not None else "float32"
        return Buffer(
            name, _DECLARED.get(kind, "global"), sizes_of(shape), made, sizes_of(steps) if isinstance(steps, tuple | list) else None
        )  # fmt: skip

    def _quietly(self, node: ast.expr, scope: Scope) -> Any:
        try:
            return self.eval(node, scope)
        except (UnresolvedError, DroppedError):
            return leaf(ast.unparse(node))

    def _towards(self, statements: list[ast.stmt], scope: LocalScope, depth: int, fixed: Mapping[str, Any]) -> None:
        """Run statements up to the one that holds the grid, and that one."""
        functions = self.one.functions
        goal: ast.AST = functions[depth + 1] if depth + 1 < len(functions) else self.one.block
        for statement in statements:
            if statement is not goal and not any(inner is goal for inner in ast.walk(statement)):
                if not (isinstance(statement, ast.With) and grid_of(statement, scope.module) is not None):
                    self.run_one(statement, scope)
                continue
            if statement is goal:
                if isinstance(statement, ast.With):
                    self._open(statement, scope)
                    raise _ReachedError
                self._enter(depth + 1, scope, fixed)
            elif isinstance(statement, ast.If):
                inside = any(inner is goal for one in statement.body for inner in ast.walk(one))
                value = self._test(statement.test, scope)
                if not isinstance(value, bool):
                    text = self._text(value, statement.test)
                    self.log.answers.put(text, inside)
                    self.put(Branch, statement, test=text, holds=inside)
                self._towards(statement.body if inside else statement.orelse, scope, depth, fixed)
            else:
                for block in ("body", "orelse", "finalbody"):
                    self._towards(getattr(statement, block, []), scope, depth, fixed)

    def _open(self, block: ast.With, scope: LocalScope) -> None:
        """The grid: ids of the block, threads, then the body."""
        positional, given = self.arguments(self.one.call, scope)
        self.grid, self.given = tuple(map(operand, positional)), given
        threads = given.get("threads", 128)
        parts = threads if isinstance(threads, tuple | list) else [threads]
        self.threads = 1
        self.axes = tuple(operand(128 if part is None else part) for part in parts)
        for size in self.axes:
            self.threads = settled("*", self.threads, size)
        if isinstance(self.threads, int) and self.threads <= _MOST_THREADS:
            self.here = frozenset(range(self.threads))
        target = next((item.optional_vars for item in block.items if item.context_expr is self.one.call), None)
        names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target] if target is not None else []
        for axis, name in enumerate(names):
            if isinstance(name, ast.Name):
                self.ids.add(name.id)
                scope.values[name.id] = self.varied(name.id)
                self.put(Mapped, block, axis=f"blockIdx.{'xyz'[axis] if axis < 3 else axis}", variable=name.id, text=ast.unparse(self.one.call))  # fmt: skip
        self.block(block.body, scope)
        self.finish(0)

    # statements --------------------------------------------------------------------------------------------------

    def block(self, statements: Iterable[ast.stmt], scope: LocalScope) -> bool:
        """Run statements; whether the way ends in them."""
        return any(self.run_one(s, scope) for s in statements)

    def run_one(self, statement: ast.stmt, scope: LocalScope) -> bool:
        """Run one statement; what reading does not follow leaves its names open, and is said where the grid is open."""
        self.log.step()
        try:
            return self._run(statement, scope)
        except (UnresolvedError, DroppedError):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    scope.values[node.id] = leaf(node.id)
            if self.grid is not None:
                self.lost(ast.unparse(statement).partition("\n")[0][:80], statement)
            return False

    def _run(self, statement: ast.stmt, scope: LocalScope) -> bool:
        match statement:
            case ast.Assign(targets=[ast.Subscript() as place], value=value):
                self._store(place, self.eval(value, scope), scope)
            case ast.Assign(targets=targets, value=value):
                self.into = ast.unparse(targets[0])
                made = self.eval(value, scope)
                self.into = ""
                for target in targets:
                    self._assigned(target, made, value, scope)
            case ast.AnnAssign(target=ast.Name(id=name) as target, annotation=annotation, value=value):
                if value is not None:
                    self._assigned(target, self.eval(value, scope), value, scope)
                elif (buffer := self.typed(name, annotation, scope)) is not None:
                    scope.values[name] = buffer
            case ast.AugAssign(target=target, op=op, value=value):
                made = self._binop(
                    ast.BinOp(_read(target), op, value, lineno=statement.lineno, col_offset=statement.col_offset), scope
                )
                if isinstance(target, ast.Subscript):
                    self._store(target, made, scope)
                else:
                    self._assigned(target, made, value, scope)
            case ast.If():
                return self._branch(statement, scope)
            case ast.For():
                self._for(statement, scope)
            case ast.While():
                text = ast.unparse(statement.test)
                self.put(Loop, statement, variable="", text=text, kind="while")
                self._repeat(Counter("", 0, 1, self._unknown(statement, text)), statement, scope)
            case ast.With():
                if grid_of(statement, scope.module) is None:
                    return self.block(statement.body, scope)
            case ast.Return() | ast.Continue() | ast.Break():
                return True
            case ast.Raise():
                return True
            case ast.Assert(test=test, msg=message):
                shown = message.value if isinstance(message, ast.Constant) else ast.unparse(message) if message else ""
                self.put(Check, statement, kind="assert", condition=ast.unparse(test), message=str(shown))
            case ast.Expr(value=value):
                self.eval(value, scope)
            case _:
                self._execute_one(statement, scope)
        return False

    def _assigned(self, target: ast.expr, value: Any, source: ast.expr, scope: LocalScope) -> None:
        """Bind a name; a long size goes on under its own name, and a line that an id of the block is used in is noted."""
        if isinstance(target, ast.Name) and isinstance(value, Expression):
            names = set(names_of(value))
            if self.grid is not None and names & self.ids:
                self.put(Mapped, source, axis="", variable=target.id, text=ast.unparse(source))
            if len(render(value)) > _LONGEST:
                differs, known_as = self.log.varying & names, self._named(target.id, target.lineno)
                moves = bool(self.changing & names)
                self.carried = self.carried | {known_as} if moves else self.carried - {known_as}
                if moves or self.log.changed & names:
                    self.log.changed.add(known_as)
                value = (
                    self.varied(known_as)
                    if differs
                    else value.with_text(known_as)
                    if isinstance(value, Quantity)
                    else leaf(known_as)
                )
                self.log.names.setdefault(known_as, "")
        self.assign(target, value, scope)

    def _named(self, name: str, line: int) -> str:
        """What is said for the value that a name has from a line on: the name, where no parameter has it."""
        return f"{name} of line {line}" if name in {argument.arg for argument, _, _ in self.settings} else name

    def _store(self, target: ast.Subscript, value: Any, scope: LocalScope) -> None:
        """`buffer[i, j] = value`."""
        region = self.region(target, scope)
        if not isinstance(region, Region):
            self.assign(target, value, scope)
            return
        if region.buffer.space == "global":
            self.element("store", region, target, ast.unparse(target))
        else:
            self.fill(region.buffer)
            self.made.setdefault(self.line, {})[region.buffer.name] = None

    # branches ----------------------------------------------------------------------------------------------------

    def _test(self, test: ast.expr, scope: Scope) -> Any:
        """A truth where reading settles it, else what is asked: an expression, or data."""
        try:
            value = self.eval(test, scope)
        except UnresolvedError:
            value = leaf(ast.unparse(test))
        if not isinstance(value, Expression | Datum | Function) and is_concrete(value):
            return bool(value)
        if isinstance(value, Expression):
            known = self.log.answers.known(self._text(value, test))
            return value if known is None else known
        return value if isinstance(value, Datum | Expression) else True

    @staticmethod
    def _text(value: Any, test: ast.expr) -> str:
        return render(value) if isinstance(value, Expression) else ast.unparse(test)

    def _asked(self, value: Any) -> tuple[Status, bool]:
        """(who decides a test, whether blocks differ by it)."""
        names = set(names_of(value)) if isinstance(value, Expression) else set()
        if isinstance(value, Datum) or names & self._element_names:
            return "open", False
        if of_thread(value):
            return "some" if names <= set(_THREADS) else "open", False
        if names & self.log.varying:
            return "open", bool(names & (self.log.varying - self.log.counters))
        return "assumed", False

    def _branch(self, statement: ast.If, scope: LocalScope) -> bool:
        value = self._test(statement.test, scope)
        if isinstance(value, bool):
            return self.block(statement.body if value else statement.orelse, scope)
        text = self._text(value, statement.test)
        status, differs = self._asked(value)
        if status == "open" and isinstance(value, Expression) and self._of_turns(value):
            return self._parted(statement, self.ways(statement.test, as_test(value)), value, scope)
        if isinstance(value, Expression) and self._of_elements(value):
            return self._parted(statement, self._by_elements(statement.test, value), value, scope)
        leaves = isinstance(statement.body[-1], ast.Return | ast.Continue | ast.Break | ast.Raise)
        holds = not leaves and not (differs and _much_more(statement.orelse, statement.body))
        before, values = self.path, dict(scope.values)
        if status == "some":  # each side is run by its threads
            ends = []
            here, some = self.here, self.some
            for side, how in ((statement.body, True), (statement.orelse, False)):
                self.path = (*before, Step(text, how, "some", statement.lineno))
                self.here = self._threads_of(value, how, here)
                self.some = some or self.here is None
                ends.append(self.block(side, scope))
                self.path, self.here, self.some = before, here, some
            return all(ends)
        masks = status == "open" and not differs and not statement.orelse and (bool(self.elements) or of_thread(value))
        if not masks:
            self.put(Branch, statement, test=text, holds=holds)
            if differs:
                self.log.uneven[text] = None
        if status == "assumed":
            self.log.answers.put(text, holds)
        self.path = (*before, Step(text, holds, status, statement.lineno))
        ended = self.block(statement.body if holds else statement.orelse, scope)
        taken = dict(scope.values)
        scope.values.clear()
        scope.values.update(values)
        self.path = (*before, Step(text, not holds, "other", statement.lineno))
        filled = dict(self.filled)
        with self.log.supposed():
            self.log.answers.put(text, not holds)
            other = self.block(statement.orelse if holds else statement.body, scope)
        self.filled = filled
        scope.values.update(taken)
        self.path = before
        return ended and other

    def _of_turns(self, test: Expression) -> bool:
        """Whether a test asks for what differs from turn to turn of the loops around it, and for no element or thread."""
        names = set(names_of(test))
        return bool(names & self.changing) and not of_thread(test) and not names & self._element_names

    @property
    def _element_names(self) -> frozenset[str]:
        return frozenset(some.loop.name for some in self.elements)

    def _of_elements(self, test: Expression) -> bool:
        """Whether a test asks for elements of the loops around it, and for nothing that differs from tile to tile, as an edge does."""
        names = set(names_of(test))
        return bool(names & self._element_names) and not of_thread(test) and not names & self.log.varying

    def _by_elements(self, node: ast.expr, test: Expression) -> Iterator[bool]:
        """Both answers to a test of elements, each for those that give it; what rests on another than of one loop is not told."""
        kept, path, names = self.elements, self.path, names_of(test)
        places = [place for place, some in enumerate(kept) if some.loop.name in names]
        sides = kept[places[0]].split(test) if len(places) == 1 else None
        if sides is None:
            yield from self.ways(node, None)
            return
        for holds, some in zip((True, False), sides, strict=True):
            self.elements = (*kept[: places[0]], some, *kept[places[0] + 1 :])
            self.path = (*path, Step(self._text(test, node), holds, "some", node.lineno))
            yield holds
        self.elements, self.path = kept, path

    def _parted(self, statement: ast.If, ways: Iterator[bool], test: Expression, scope: LocalScope) -> bool:
        """Both sides of a test of counters, each in the turns that take it; behind them go on those that leave by none."""
        around, values, filled, answers = len(self.turns.tests), dict(scope.values), self.filled, self.log.answers
        ended, on = False, {}
        for holds in ways:
            scope.values.clear()
            scope.values.update(values)
            self.filled, self.log.answers = dict(filled), answers.supposing(render(test), holds)
            if self.block(statement.body if holds else statement.orelse, scope):
                ended = True
            else:
                on[holds] = dict(scope.values), self.filled, self.turns.tests[around:]
        self.log.answers, self.cut = answers, self.cut or self.leaving(statement)
        sides = [way[0] for way in on.values()]
        for name in {name for side in sides for name in side if any(side[name] != other.get(name) for other in sides)}:
            self._forget({name}, scope, f"behind the test at line {statement.lineno}")
        self.filled = {
            name: place for name, place in self.filled.items() if all(way[1].get(name) == place for way in on.values())
        }
        if on and (ended or any(len(way[2]) > 1 for way in on.values())):
            self.go_on(statement.test, {holds: way[2] for holds, way in on.items()})
        return not on

    def _threads_of(self, test: Any, holds: bool, threads: frozenset[int] | None) -> frozenset[int] | None:
        """Which of some threads a test of their numbers leaves; None where that is not told."""
        if threads is None or not all(isinstance(size, int) for size in self.axes):
            return None
        answers = {thread: holds_at(test, self._numbers(thread)) for thread in threads}
        return None if None in answers.values() else frozenset(t for t, answer in answers.items() if answer == holds)

    def _numbers(self, thread: int) -> dict[str, int]:
        """The number of a thread along each axis."""
        found = dict.fromkeys(_THREADS, 0)
        for name, size in zip(_THREADS, self.axes, strict=False):
            found[name], thread = thread % int(str(size)), thread // int(str(size))
        return found

    def decide(self, test: ast.expr, scope: Scope) -> bool:
        """The side of a conditional expression, or of a test of the host."""
        value = self._test(test, scope)
        if isinstance(value, bool):
            return value
        text = self._text(value, test)
        self.put(Branch, test, test=text, holds=True)
        status, differs = self._asked(value)
        if differs:
            self.log.uneven[text] = None
        if status == "assumed":
            self.log.answers.put(text, True)
        return True

    # loops -------------------------------------------------------------------------------------------------------

    def _for(self, statement: ast.For, scope: LocalScope) -> None:
        source = statement.iter
        name = ""
        if isinstance(source, ast.Call):
            name = of_language(source.func, scope.module) or (
                source.func.id if isinstance(source.func, ast.Name) else ""
            )
        if isinstance(source, ast.Call) and name in _PARALLEL:
            self._elementwise(statement, source, scope)
        elif isinstance(source, ast.Call) and name in _SERIAL and (self.grid is not None or name != "range"):
            self._serial(name, statement, source, scope)
        elif isinstance(source, ast.Call) and name == "Persistent":
            self.put(
                Loop, statement, variable=ast.unparse(statement.target), text=ast.unparse(source), kind="T.Persistent"
            )
            self.log.uneven[ast.unparse(source)] = None
            for target in statement.target.elts if isinstance(statement.target, ast.Tuple) else [statement.target]:
                scope.values[ast.unparse(target)] = self.varied(ast.unparse(target))
            self._repeat(Counter("", 0, 1, self._unknown(statement, ast.unparse(source))), statement, scope)
        else:
            for item in self.iterate(self.eval(source, scope), source):
                self.assign(statement.target, item, scope)
                self.block(statement.body, scope)

    def _elementwise(self, statement: ast.For, source: ast.Call, scope: LocalScope) -> None:
        """`for i, j in T.Parallel(a, b)`: the body of each element."""
        extents = [operand(e) for e in self._elements(source.args, scope)]
        targets = statement.target.elts if isinstance(statement.target, ast.Tuple) else [statement.target]
        names = [ast.unparse(t) for t in targets]
        kept = self.elements
        self.elements = (*kept, *(Turns(Counter(name, 0, 1, size)) for name, size in zip(names, extents, strict=False)))
        for name in names:
            scope.values[name] = leaf(name)
        self.block(statement.body, scope)
        self.elements = kept

    def _serial(self, name: str, statement: ast.For, source: ast.Call, scope: LocalScope) -> None:
        bounds = [operand(b) for b in self._elements(source.args, scope)]
        options = {k.arg: self._quietly(k.value, scope) for k in source.keywords if k.arg}
        if not bounds:
            bounds = [operand(options[name]) for name in ("start", "stop") if name in options]
        if name == "Pipelined" and len(bounds) > 2:  # (start, stop, num_stages)
            options["num_stages"], bounds = bounds[2], bounds[:2]
        target, text = ast.unparse(statement.target), ast.unparse(source)
        trips = trip_count(bounds) if bounds else None
        if isinstance(trips, Expression):
            trips = self.difference(trips, 0)
            trips = at_least_none(trips)
        told = trips is not None and not self.log.changed & set(names_of(trips))
        self.put(Loop, statement, variable=target, text=text, trips=render(trips) if told else "",
                 kind=name if name == "range" else f"T.{name}")  # fmt: skip
        if name == "Pipelined":
            self.stages[statement.lineno] = operand(options.get("num_stages", 0))
        counter = self._named(target, statement.lineno)
        self.log.varying.add(counter)
        self.log.counters.add(counter)
        self.log.names.setdefault(counter, "")
        scope.values[target] = leaf(counter)
        start, step = (0, 1) if len(bounds) < 2 else (bounds[0], (*bounds, 1)[2])
        trip = self._unknown(statement, text) if trips is None else trips
        self._repeat(
            Counter(counter, start, step, trip, frozenset({counter} if trips is None else ())), statement, scope
        )

    def _unknown(self, loop: ast.For | ast.While, written: str, what: str = "iterations") -> Size:
        name = f"{what} of the loop at line {loop.lineno}"
        self.log.variables[name] = written
        return leaf(name)

    def _repeat(self, counter: Counter, loop: ast.For | ast.While, scope: LocalScope) -> None:
        """Run a body once, counted as often as it turns; scalars that it changes have no one value in it and behind it."""
        if asks := (self.log.counters | self.log.changed) & set(names_of(counter.trips)):
            what = "mean iterations" if self.turns.loops else "iterations"
            mean = self._unknown(loop, render(counter.trips), what)
            counter = replace(counter, trips=mean, asks=counter.asks | asks)
        changed = {
            n.id for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        carried = self.carried
        targets = (
            {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)} if isinstance(loop, ast.For) else set()
        )
        self._forget(changed - targets, scope, f"in the loop at line {loop.lineno}")
        self.carried -= {counter.name}
        if isinstance(loop, ast.While):
            self._quietly(loop.test, scope)
        kept, place = (self.turns, self.times, self.line, self.path), len(self.log.events)
        self.line = loop.lineno
        self.enter(counter, loop)
        self.block(loop.body, scope)
        self.turns, self.times, self.line, self.path = kept
        self._forget(changed | targets, scope, f"behind the loop at line {loop.lineno}")
        self.carried = self.carried if self.turns.loops else carried
        self.leave(place)

    def _forget(self, names: set[str], scope: LocalScope, where: str) -> None:
        """What a loop changes has no one value, in it and behind it: of these it is another, by which no cost counts."""
        for name in names:
            if self._bound(name, scope):
                scope.values[name] = self._forgotten(scope.lookup(name, self), f"{name} {where}")

    def _forgotten(self, old: Any, name: str) -> Any:
        """A value without the numbers in it."""
        if isinstance(old, tuple | list):
            return type(old)([self._forgotten(part, f"{name}, part {place}") for place, part in enumerate(old)])
        if not isinstance(old, int | Expression):
            return old
        self.carried |= {name}
        self.log.changed.add(name)
        return self.varied(name)

    # expressions -------------------------------------------------------------------------------------------------

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        region = self._part_of(node, scope)
        if region is None:
            return super()._subscript(node, scope)
        if region.told() is not None and not all(isinstance(s, int) and s == 1 for s in region.told() or ()):
            return region.buffer  # a slice in arithmetic: the tile
        each = region.buffer.space == "local" or any(of_thread(start) for start in region.starts)
        if region.buffer.space == "global":
            self.element("load", region, node, ast.unparse(node))
        if floating(region.buffer.dtype):
            return Datum(each=each)
        return Datum(False, each) if self.elements else self.varied(ast.unparse(node), each)

    def _part_of(self, node: ast.Subscript, scope: Scope) -> Region | None:
        base = node.value
        held = scope.lookup(base.id, self) if isinstance(base, ast.Name) and self._bound(base.id, scope) else None
        return self.part(held, node.slice, scope) if isinstance(held, Buffer) else None

    def _bound(self, name: str, scope: Scope) -> bool:
        try:
            scope.lookup(name, self)
        except KeyError:
            return False
        return True

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        if node.attr in {"bits", "itemsize"} and (bits := bits_of(self._quietly(node.value, scope))) is not None:
            return bits if node.attr == "bits" else bits // 8
        if isinstance(node.value, ast.Name) and self._bound(node.value.id, scope):
            value = scope.lookup(node.value.id, self)
            if isinstance(value, Buffer):
                found: dict[str, Any] = {"shape": value.shape, "dtype": value.dtype, "data": value}
                return found.get(node.attr, leaf(ast.unparse(node)))
        return super()._attribute(node, scope)

    def _binop(self, node: ast.BinOp, scope: Scope) -> Any:
        left, right = self.eval(node.left, scope), self.eval(node.right, scope)
        pair = [v for v in (left, right) if isinstance(v, Datum | Buffer)]
        if not pair:
            return self.binary(node, left, right)
        made = _of_data(pair)
        if made is None:
            raise UnresolvedError(ast.unparse(node))
        if any(isinstance(v, float) for v in (left, right)):
            made = Datum(each=made.each)
        if isinstance(node.op, _ARITHMETIC) and made.floating:
            self.compute(node, SYMBOLS[type(node.op)], 1, made.each)
        return made

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.eval(node.operand, scope)
        if not isinstance(value, Datum):
            return self.unary(node, value)
        if isinstance(node.op, ast.USub) and value.floating:
            self.compute(node, "-", 1, value.each)
        return Datum(False, value.each) if isinstance(node.op, ast.Not) else value

    def _compare(self, node: ast.Compare, scope: Scope) -> Any:
        values = [self.eval(n, scope) for n in (node.left, *node.comparators)]
        made = _of_data([v for v in values if isinstance(v, Datum)])
        if made is not None:
            return Datum(False, made.each)
        if len(node.ops) == 1 or is_concrete(values):
            return self.compared(node, values)
        symbols = [SYMBOLS[type(op)] for op in node.ops]
        tests = map(Operation, symbols, map(operand, values[:-1]), map(operand, values[1:]))
        return joined("and", tests)

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        values = [self.eval(n, scope) for n in node.values]
        made = _of_data([v for v in values if isinstance(v, Datum)])
        return self.joined(node, values) if made is None else Datum(False, made.each)

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        value = self._test(node.test, scope)
        if isinstance(value, Datum) or (
            isinstance(value, Expression) and self._asked(value)[0] in {"open", "some"} and self.grid is not None
        ):
            sides = [self.eval(node.body, scope), self.eval(node.orelse, scope)]
            data = [v for v in sides if isinstance(v, Datum)]
            if data:
                return Datum(any(v.floating for v in data), any(v.each for v in data))
            asked = value if isinstance(value, Expression) else leaf(ast.unparse(node.test))
            return self.of_sizes("if_then_else", [asked, *sides], ast.unparse(node))
        return self.eval(node.body if self.decide(node.test, scope) else node.orelse, scope)

    # calls -------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, scope: Scope) -> Any:
        """An operation of the language, a function that is followed, or a call of the host."""
        name = of_language(node.func, scope.module)
        root = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        local = isinstance(root, ast.Name) and isinstance(scope, LocalScope) and root.id in scope.values
        if name and not local:
            return self.operate(name, node, scope)
        if isinstance(node.func, ast.Attribute):
            value = self._quietly(node.func.value, scope)
            if isinstance(value, Datum | Expression) and node.func.attr in {"astype", "cast"}:
                return self.cast(node.func.attr, [value, *(self.eval(a, scope) for a in node.args)])
            if isinstance(value, Buffer):
                return Region(value, whole=True) if node.func.attr == "access_ptr" else leaf(ast.unparse(node))
        if isinstance(node.func, ast.Name) and node.func.id in {"max", "min"} and self.grid is not None:
            return self.of_values(node.func.id, [self.eval(a, scope) for a in node.args], node)
        return super().call(node, scope)

    def _call_function(self, function: Function, node: ast.Call, scope: Scope) -> Any:
        """A macro or helper, run with what it is handed."""
        if self.grid is None or isinstance(function.node, ast.Lambda):
            return super()._call_function(function, node, scope)
        via, file = self.via, self.file
        named = function.node.name
        if named in via.split(" > "):
            raise UnresolvedError(ast.unparse(node))
        self.put(Call, node, name=named, followed=True)
        positional = [self._handed(a, scope) for a in node.args if not isinstance(a, ast.Starred)]
        keywords = {k.arg: self._handed(k.value, scope) for k in node.keywords if k.arg}
        inner = LocalScope(function.scope, self._bind(function, positional, keywords))
        self.via, self.file = f"{via} > {named}" if via else named, function.scope.module.path
        try:
            return self._body(function.node.body, inner)
        finally:
            self.via, self.file = via, file

    def _handed(self, node: ast.expr, scope: Scope) -> Any:
        value = self.handed(node, scope)
        return value.buffer if isinstance(value, Region) else value

    def _body(self, statements: Sequence[ast.stmt], scope: LocalScope) -> Any:
        """The statements of a function, and what it gives back."""
        for statement in statements:
            if isinstance(statement, ast.Return):
                return None if statement.value is None else self.eval(statement.value, scope)
            if isinstance(statement, ast.If) and any(isinstance(n, ast.Return) for n in ast.walk(statement)):
                value = self._test(statement.test, scope)
                holds = value if isinstance(value, bool) else self.decide(statement.test, scope)
                side = statement.body if holds else statement.orelse
                if any(isinstance(n, ast.Return) for s in side for n in ast.walk(s)):
                    return self._body(side, scope)
                self.block(side, scope)
                continue
            self.run_one(statement, scope)
        return None


def _of_data(values: Sequence[Any]) -> Datum | None:
    """What comes of elements of data; None where there is none, or where one is a tile."""
    if not values or not all(isinstance(v, Datum) for v in values):
        return None
    return Datum(any(v.floating for v in values), any(v.each for v in values))


def _much_more(one: list[ast.stmt], other: list[ast.stmt]) -> bool:
    """Whether the work is on one side: the other is what is left to do where there is none."""
    first, second = (sum(1 for s in side for _ in ast.walk(s)) for side in (one, other))
    return first > _MUCH_MORE * second


def _read(target: ast.expr) -> ast.expr:
    """What is written, as it is read: the left side of `+=`."""
    made = copy.copy(target)
    if isinstance(made, ast.Name | ast.Subscript | ast.Attribute):
        made.ctx = ast.Load()
    return made


__all__ = ["Run"]
