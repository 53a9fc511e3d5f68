"""Statements in the abstract run of a CUDA kernel: declarations, branches, loops, and the bodies of functions.

Nothing is executed. A branch that constants decide is followed so; one that threads decide is run for those threads;
of one that parameters decide the side that does the work is counted, `conditions` says so, and the other one is run on a copy
of the state for what stands there; what data decides is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from opscope_tools.kernels.cuda.checks import assertions
from opscope_tools.kernels.cuda.names.functions import Function, Library
from opscope_tools.kernels.cuda.names.scope import Scope, generic
from opscope_tools.kernels.cuda.names.values import INT, UNKNOWN, UNTOLD, VOID, Type, Value, lane_step, whole
from opscope_tools.kernels.cuda.run.decisions import OPEN, Decision
from opscope_tools.kernels.cuda.run.loops import Flow, Repeats
from opscope_tools.kernels.cuda.syntax.nodes import (
    Alias,
    Assembly,
    Block,
    Declare,
    Each,
    Evaluate,
    For,
    If,
    Jump,
    Lambda,
    Node,
    Return,
    Switch,
    Unread,
    While,
    leaves,
    spelled,
)
from opscope_tools.kernels.host.worlds import Sym, leaf, negated, render
from opscope_tools.kernels.run.events import Check, TooManyStepsError, Unknown
from opscope_tools.kernels.run.log import EVERY, Lost, Record
from opscope_tools.kernels.run.paths import Status, Step
from opscope_tools.kernels.values.threads import whole as whole_block


class Walk(Repeats):
    """The statements of one function."""

    def __init__(
        self, record: Record, scope: Scope, block: dict[str, Any], library: Library, file: str = "", via: str = ""
    ) -> None:
        super().__init__(record, scope, block, file, via)
        self.library = library
        self.returned: list[Value] = []
        #: where pointers that local arrays hold lead to
        self.spaces: dict[str, str] = {}
        #: ways in which some threads left early
        self.left: set[str] = set()
        self.statement_node: Node = Block(scope.function.start, [])
        #: numbers that are made of the indices of thread and block
        self.indices: set[str] = set()

    # statements --------------------------------------------------------------------------------------------------

    def run(self, statements: list[Node] | tuple[Node, ...]) -> Flow:
        for statement in statements:
            flow = self.statement(statement)
            if flow:
                return flow
        return ""

    def inner(self, node: Node | None) -> Flow:
        """A statement with a block of names of its own."""
        if node is None:
            return ""
        self.scope.blocks.append({})
        flow = self.run(node.statements) if isinstance(node, Block) else self.statement(node)
        self.scope.blocks.pop()
        return flow

    def statement(self, node: Node) -> Flow:
        self.record.step()
        if isinstance(node, Evaluate | Declare | Return | Assembly | Alias):
            self.statement_node = node
        match node:
            case Evaluate(expression=expression):
                self.place(expression)
            case Declare():
                self.declare(node)
            case Block():
                return self.inner(node)
            case If():
                return self.branch(node)
            case For() | While():
                return self.loop(node)
            case Each():
                self.met_loop(node, node.name, "")
                self.scope.blocks.append({node.name: Value(UNKNOWN, varies=frozenset({"loop", "data"}))})
                self.repeat(node, self.unknown_trips(node, node.text), self.threads)
                self.scope.blocks.pop()
            case Switch():
                return self.switch(node)
            case Return(value=value):
                if value is not None:
                    self.returned.append(self.value(value))
                return "return"
            case Jump(word=word):
                if word == "goto":
                    self.missing("what `goto` leads to", node)
                return "break" if word == "break" else "continue" if word == "continue" else ""
            case Assembly():
                self.assembly(node)
            case Alias(name=name, type=kind):
                self.instructions_of_type(node)
                self.scope.types[name] = self.scope.type_of(kind) if kind is not None else UNKNOWN
            case Unread(text=text):
                self.missing(f"`{text[:60]}`, which is not read", node, through=text[:60])
        return ""

    def built(self, kind: Type, values: list[Value]) -> Value:
        """An object of a structure, from what its constructor or its braces are given."""
        struct, inner = kind.struct
        method = struct.called(struct.name, len(values))
        if method is None:
            if len(values) == 1 and values[0].type.name == kind.name:
                return values[0]
            names = [f.name for f in struct.fields]
            parts = dict(zip(names, values, strict=False)) if struct.whole and not struct.methods else {}
            return Value(kind, parts={n: self.converted(v, kind.fields[n]) for n, v in parts.items()})
        given = {name: replace(v, root="", where="") for (_, name), v in zip(method.parameters, values, strict=True)}
        walk = self.walk_in(inner, [{}, given], struct.name)
        parts = {n: walk.converted(walk.value(v), kind.fields[n]) for n, v in method.starts if n in kind.fields}
        walk.run(method.body)
        return Value(kind, parts={n: replace(v, root="", where="") for n, v in parts.items()})

    def walk_in(self, scope: Scope, blocks: list[dict[str, Value]], name: str) -> Walk:
        """A run inside a structure's method."""
        inner = Scope(scope.function, self.library, dict(scope.types), [*scope.blocks, *blocks], scope.compile_time)
        via = f"{self.via} > {name}" if self.via else name
        walk = Walk(self.record, inner, self.block_sizes, self.library, scope.function.file, via)
        self._enters(walk)
        return walk

    def _enters(self, walk: Walk) -> None:
        """Begin the run of a function where this one is."""
        walk.depth, walk.threads, walk.times = self.depth + 1, self.threads, self.times
        walk.loops_around = self.loops_around + len(self.loops)

    def run_method(self, base: Value, name: str, values: list[Value]) -> Value | None:
        """A method of a structure that is known; None where it is not."""
        if base.type.struct is None or self.depth >= 8:
            return None
        struct, scope = base.type.struct
        method = struct.called(name, len(values))
        if method is None:
            return None
        fields = {}
        for field_, kind in base.type.fields.items():
            where = "global" if base.where == "global" else ""
            space = base.space or where
            fields[field_] = base.parts.get(field_) or Value(
                kind,
                varies=base.varies,
                space=space if kind.kind in {"pointer", "array"} else "",
                where=where if kind.kind != "array" else "",
            )
        given: dict[str, Value] = {}
        walk = self.walk_in(scope, [fields, given], f"{struct.name}.{name}")
        walk.this = base
        for (kind_, parameter), value in zip(method.parameters, values, strict=True):
            of = walk.scope.type_of(kind_)
            made = value if kind_.reference and value.type.kind != "unknown" else walk.converted(value, of)
            given[parameter] = replace(made, root="", where=made.where if kind_.reference else "")
        walk.run(method.body)
        found = _one(walk.returned)
        of = walk.scope.type_of(method.returns) if method.returns is not None else UNKNOWN
        if (
            found.type.kind != "void"
            and of.kind not in {"unknown", "pointer"}
            and method.returns is not None
            and not method.returns.reference
        ):
            found = walk.converted(found, of)
        return replace(found, root="")

    # branches ----------------------------------------------------------------------------------------------------

    def branch(self, node: If) -> Flow:
        self.statement_node = node.test
        test = self.value(node.test)
        left = leaves(node.then)
        decision = self.guards.decide(test, self.threads, not (left or _idle(node.then)), left)
        if decision.outcome == "threads" and decision.yes is not None and decision.no is not None:
            return self._by_threads(node, decision)
        if decision.outcome in {"open", "threads"}:
            return self._open(node, test)
        self.rely(decision, node, node.text)
        taken, other = (node.then, node.other) if decision.outcome else (node.other, node.then)
        if not decision.assumed:
            return self.inner(taken)
        changed = frozenset[str]().union(*(self.writes(side) for side in (taken, other) if side is not None))
        flow, ends = self.suppose(node, node.text, not decision.outcome, decision, other)
        if other is None:
            ends = [{name: found for name in changed if (found := self.scope.find(name)) is not None}]
        with self.on(node, node.text, bool(decision.outcome), "assumed"):
            made = self.inner(taken)
        if not flow:
            self._join(changed, ends)
        return made

    @contextmanager
    def on(self, node: Node, test: str, holds: bool, status: Status) -> Iterator[None]:
        """What is met meanwhile is met where the test went so."""
        kept = self.record.path
        self.record.path = (*kept, Step(test, holds, status, self.line(node)))
        try:
            yield
        finally:
            self.record.path = kept

    def suppose(
        self, node: Node, test: str, holds: bool, decision: Decision, side: Node | None
    ) -> tuple[Flow, list[dict[str, Value]]]:
        """Run the side of a branch that is not taken, for what stands there; how it ends, and the variables there."""
        if side is None:
            return "", []
        record, scope = self.record, self.scope
        supposed = record.supposed()
        kept = self.threads, self.times, self.left, self.returned, self.spaces, self.loops, scope.blocks, scope.types
        self.returned, self.spaces, self.left, self.loops = [], dict(self.spaces), set(), list(self.loops)
        scope.blocks, scope.types = [dict(b) for b in scope.blocks], dict(scope.types)
        self.guards.turn(decision)
        record.path = (*record.path, Step(test, holds, "other", self.line(node)))
        flow: Flow = ""
        try:
            flow = self.inner(side)
        except (TooManyStepsError, RecursionError):
            record.met(
                Unknown(**self.at(node), what=f"what stands where `{test}` goes the other way", reason="too much")
            )
        ends = scope.blocks
        self.threads, self.times, self.left, self.returned, self.spaces, self.loops, scope.blocks, scope.types = kept
        record.restore(supposed)
        return flow, ends

    def _join(self, names: Iterable[str], ends: list[dict[str, Value]]) -> None:
        """Behind a branch: steps are those of both sides where these are alike, addresses may start from either's."""
        for name in names:
            one = self.scope.find(name)
            other = next((block[name] for block in reversed(ends) if name in block), None)
            if one is None or other is None or one is other or one.where:
                continue
            step = one.step if lane_step(one) == lane_step(other) else UNTOLD
            origin = tuple(dict.fromkeys((*one.origin, *other.origin)))
            self.scope.change(name, replace(one, step=step, origin=origin))

    def _by_threads(self, node: If, decision: Decision) -> Flow:
        """Each side with its threads."""
        assert decision.yes is not None
        assert decision.no is not None
        self.rely(decision, node, node.text)
        before, changed = (
            self.threads,
            self.writes(node.then) | (self.writes(node.other) if node.other is not None else frozenset()),
        )
        self.threads = decision.yes
        with self.on(node, node.text, True, "some"):
            first = self.inner(node.then)
        after = self.threads
        self.threads = decision.no
        with self.on(node, node.text, False, "some"):
            second = self.inner(node.other)
        if first and second:
            return first
        self.forget(changed, "thread", self.even(changed, [node.then, node.other], kept=True))
        if first:
            self.left.add(first)
            return ""
        if second:
            self.left.add(second)
            self.threads = after
            return ""
        if after is not decision.yes or self.threads is not decision.no:
            self.condition(f"no thread of `{node.text}` leaves early", node)
        self.threads = before
        return ""

    def _open(self, node: If, test: Value) -> Flow:
        """A branch that data or the block decides: counted where both sides cost the same."""
        made = []
        flows: list[Flow] = []
        threads = self.threads
        for side in (node.then, node.other):
            kept = self.record.aside()
            with self.on(node, node.text, side is node.then, "open"):
                flows.append(self.inner(side))
            made.append(self.record.back(kept))
            self.threads = threads
        changed = self.writes(node.then) | (self.writes(node.other) if node.other is not None else frozenset())
        alike = lane_step(test) == 0  # all threads go the same way
        self.forget(changed, "data", self.even(changed, [node.then, node.other], kept=not alike))
        one, other = made
        if any(flows) and "thread" in test.varies and "data" not in test.varies:
            self.missing(f"which threads leave where `{node.text}` decides: all are counted as if they stayed", node)
        if flows[0] and not flows[1] and one.nothing:
            self.condition(negated(node.text), node)
            self.record.add(other)
        elif flows[1] and not flows[0] and other.nothing and node.other is not None:
            self.condition(node.text, node)
            self.record.add(one)
        elif one.same(other):
            self.record.add(one)
            if any(flows):
                self.condition(negated(node.text), node)
        else:
            self.missing(f"what `{node.text}` decides", node, one.parts | other.parts)
        return flows[0] if flows[0] and flows[0] == flows[1] else ""

    def _settled_case(self, node: Switch, subject: Value) -> int:
        """The case that an earlier test decides, else the first, which is then taken to be so."""
        name = render(subject.number)
        numbers = [[self.value(v).number for v in values] for values, _, _ in node.cases]
        if name in self.record.equal:
            known = self.record.equal[name]
            default = next((i for i, (_, default, _) in enumerate(node.cases) if default), len(node.cases))
            return next((i for i, values in enumerate(numbers) if known in values), default)
        if subject.number is not None and numbers[0]:
            self.record.equal[name] = numbers[0][0]
        return 0

    def switch(self, node: Switch) -> Flow:
        subject = self.value(node.subject)
        chosen = None
        if isinstance(subject.number, int):
            for index, (values, default, _) in enumerate(node.cases):
                if any(self.value(v).number == subject.number for v in values) or (
                    default
                    and chosen is None
                    and not any(self.value(v).number == subject.number for c in node.cases for v in c[0])
                ):
                    chosen = index
            if chosen is None:
                return ""
        elif not subject.varies and node.cases:
            chosen = self._settled_case(node, subject)
            self.condition(f"{node.text} is the first case of the switch", node)
            for index, (values, _, statements) in enumerate(node.cases):
                if index != chosen:
                    self.suppose(node, _case(node, values), True, OPEN, Block(node.position, statements))
        if chosen is None:
            kept = self.record.aside()
            for values, _, statements in node.cases:
                with self.on(node, _case(node, values), True, "open"):
                    self.inner(Block(node.position, statements))
            apart = self.record.back(kept)
            if not apart.nothing:
                self.missing(f"what the switch on `{node.text}` decides", node, apart.parts)
            self.forget(self.writes(node), "data")
            return ""
        for _, _, statements in node.cases[chosen:]:
            flow = self.inner(Block(node.position, statements))
            if flow == "break":
                return ""
            if flow:
                return flow
        return ""

    # loops -------------------------------------------------------------------------------------------------------

    # functions ---------------------------------------------------------------------------------------------------

    def run_closure(self, owner: Any, node: Lambda, given: dict[str, Value]) -> Value:
        kept = owner.threads, owner.times, owner.returned, owner.depth, owner.left
        owner.threads, owner.times, owner.returned, owner.depth, owner.left = (
            self.threads,
            self.times,
            [],
            self.depth + 1,
            set(),
        )
        deep, loops = len(owner.scope.blocks), owner.loops_around
        owner.loops_around = self.loops_around + len(self.loops) - len(owner.loops)
        owner.scope.blocks.append(given)
        try:
            owner.inner(node.body)
            returned = owner.returned
        finally:
            del owner.scope.blocks[deep:]
            owner.threads, owner.times, owner.returned, owner.depth, owner.left = kept
            owner.loops_around = loops
        owner.forget(owner.writes(node.body), "loop")  # what it captures, perhaps in each of many calls
        return _one(returned)

    def run_function(self, function: Function, values: list[Value], settled: dict[str, Any]) -> Value:
        types = {n: t for n, t in settled.items() if isinstance(t, Type)}
        names = {n: v for n, v in settled.items() if isinstance(v, Value)}
        scope = Scope(
            function, self.library, types, [names], self.scope.compile_time - {p.name for p in function.template}
        )
        via = f"{self.via} > {function.name}" if self.via else function.name
        walk = Walk(self.record, scope, self.block_sizes, self.library, function.file, via)
        self._enters(walk)
        for (kind, name), value in zip(function.parameters, values, strict=False):
            of = scope.type_of(kind)
            as_is = value.function is not None or (kind.reference and value.type.kind != "unknown")
            made = value if as_is else walk.converted(value, of)
            scope.declare(name, replace(made, root=""))
        walk.file_tests()
        walk.run(function.body)
        if "return" in walk.left and len(walk.returned) == 0:
            walk.left.clear()
        found = _one(walk.returned)
        if function.returns is not None and found.type.kind != "void":
            of = scope.type_of(function.returns)
            if of.kind not in {"unknown", "pointer"} and not function.returns.reference:
                found = walk.converted(found, of)
        return replace(found, root="", where=found.where)

    def file_tests(self) -> None:
        """What the `#if`s inside a body take for granted, and what it asserts."""
        function = self.scope.function
        if (key := (id(function), self.via)) not in self.record.checked:
            self.record.checked.add(key)
            for c in assertions(function.code.source, function.start, function.end, self.file, self.via):
                self.record.met(
                    Check(
                        file=c.file, line=c.line, node=len(self.record.events), via=c.via, path=self.record.path,
                        kind=c.kind, condition=c.condition, message=c.message,
                    )
                )  # fmt: skip
        for place, text in function.code.tests_of(function.start, function.end):
            where = f"{self.file}:" if self.file else "line "
            self.record.conditions.setdefault(f"{text} ({where}{function.code.source.line(place)})")


def _case(node: Switch, values: list[Node]) -> str:
    return " or ".join(f"{node.text} == {spelled(v)}" for v in values) or f"{node.text} is no other case"


def _one(values: list[Value]) -> Value:
    """What a function gives back."""
    if not values:
        return Value(VOID)
    if len(values) == 1:
        return replace(values[0], root="")
    varies = frozenset[str]().union(*(v.varies for v in values)) | {"data"}
    spaces = {v.space for v in values}
    numbers = {render(v.number) for v in values}
    known = next((v.type for v in values if v.type.kind != "unknown"), UNKNOWN)
    return Value(
        known,
        values[0].number if len(numbers) == 1 else None,
        varies=varies,
        space=spaces.pop() if len(spaces) == 1 else "",
        step=UNTOLD,
        origin=tuple(dict.fromkeys(o for v in values for o in v.origin)),
    )


def _idle(node: Node) -> bool:
    return isinstance(node, Block) and not node.statements


def run_cuda(
    function: Function, library: Library, block: Mapping[str, Any], given: Mapping[str, Any], compile_time: frozenset[str]
) -> Record:  # fmt: skip
    """Run a kernel abstractly. `block`: threads along x, y, z; `given`: template parameters of one value."""
    record = Record()
    if function.unread:
        record.not_counted.setdefault(function.unread, Lost())
        record.met(Unknown(line=function.code.source.line(function.start), what=function.unread, loses=EVERY))
        return record
    types: dict[str, Type] = {}
    scope = Scope(function, library, types, compile_time=compile_time)
    for parameter in function.template:
        if parameter.type:
            told = scope.read_type(str(given[parameter.name])) if parameter.name in given else None
            types[parameter.name] = told or generic(parameter.name)
        elif parameter.name in given and isinstance(given[parameter.name], int):
            scope.declare(parameter.name, whole(int(given[parameter.name])))
        elif isinstance(given.get(parameter.name), str) and library.called(
            given[parameter.name].rpartition("::")[2], function.code.source
        ):
            scope.declare(parameter.name, Value(UNKNOWN, function=given[parameter.name]))
        else:
            scope.declare(parameter.name, Value(INT, Sym(parameter.name, leaf=True)))
    walk = Walk(record, scope, dict(block), library)
    walk.threads = whole_block(dict(block))
    for kind, name in function.parameters:
        of = scope.type_of(kind)
        space = "global" if of.kind in {"pointer", "object", "unknown"} else ""
        number = leaf(name) if of.kind in {"int", "unknown"} else None
        record.quantities[name] = ""
        if number is not None and isinstance(given.get(name), int):  # it decides tests, and formulas keep the name
            record.equal[render(number)] = int(given[name])
        origin = (name,) if space and not re.fullmatch(r"dim3|\w+\d", of.name) else ()
        scope.declare(name, Value(of, number, space=space, origin=origin))
    walk.file_tests()
    try:
        walk.run(function.body)
    except TooManyStepsError:
        record.not_counted.setdefault("what comes behind the first steps of a very long run", Lost())
    except RecursionError:
        record.not_counted.setdefault("expressions that are nested too deeply", Lost())
    if not record.entries and function.code.left_out(function.start, function.end):
        record.not_counted.setdefault(
            "what stands in branches of #if that are not taken: the rest does nothing", Lost()
        )
    return record
