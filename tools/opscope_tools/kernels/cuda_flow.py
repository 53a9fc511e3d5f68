"""Statements in the abstract run of a CUDA kernel: declarations, branches, loops, and the bodies of functions.

Nothing is executed. A branch that constants decide is followed so; one that threads decide is run for those threads;
of one that parameters decide the first is, and `conditions` says it; what data decides is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opscope_tools.kernels.cuda_functions import Function, Library
from opscope_tools.kernels.cuda_guards import Decision
from opscope_tools.kernels.cuda_nodes import (
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
)
from opscope_tools.kernels.cuda_record import Record, TooManyStepsError
from opscope_tools.kernels.cuda_repeat import Flow, Repeats
from opscope_tools.kernels.cuda_scopes import Scope, generic
from opscope_tools.kernels.cuda_threads import whole as whole_block
from opscope_tools.kernels.cuda_values import INT, UNKNOWN, VOID, Type, Value, whole
from opscope_tools.kernels.symbols import Sym, leaf, negated, render


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
                self.scope.types[name] = self.scope.type_of(kind) if kind is not None else UNKNOWN
            case Unread(text=text):
                self.missing(f"`{text[:60]}`, which is not read", node)
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
        walk.depth, walk.threads, walk.times = self.depth + 1, self.threads, self.times
        return walk

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
        test = self.value(node.test)
        left = leaves(node.then)
        decision = self.guards.decide(test, self.threads, not (left or _idle(node.then)), left)
        if decision.outcome == "threads" and decision.yes is not None and decision.no is not None:
            return self._by_threads(node, decision)
        if decision.outcome in {"open", "threads"}:
            return self._open(node, test)
        self.rely(decision, node, node.text)
        return self.inner(node.then if decision.outcome else node.other)

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
        first = self.inner(node.then)
        after = self.threads
        self.threads = decision.no
        second = self.inner(node.other)
        if first and second:
            return first
        self.forget(changed, "thread")
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
            flows.append(self.inner(side))
            made.append(self.record.back(kept))
            self.threads = threads
        self.forget(
            self.writes(node.then) | (self.writes(node.other) if node.other is not None else frozenset()), "data"
        )
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
            self.missing(f"what `{node.text}` decides", node)
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
        if chosen is None:
            kept = self.record.aside()
            for _, _, statements in node.cases:
                self.inner(Block(node.position, statements))
            if not self.record.back(kept).nothing:
                self.missing(f"what the switch on `{node.text}` decides", node)
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
        owner.scope.blocks.append(given)
        owner.inner(node.body)
        owner.scope.blocks.pop()
        owner.forget(owner.writes(node.body), "loop")  # what it captures, perhaps in each of many calls
        returned = owner.returned
        owner.threads, owner.times, owner.returned, owner.depth, owner.left = kept
        return _one(returned)

    def run_function(self, function: Function, values: list[Value], settled: dict[str, Any]) -> Value:
        types = {n: t for n, t in settled.items() if isinstance(t, Type)}
        names = {n: v for n, v in settled.items() if isinstance(v, Value)}
        scope = Scope(
            function, self.library, types, [names], self.scope.compile_time - {p.name for p in function.template}
        )
        via = f"{self.via} > {function.name}" if self.via else function.name
        walk = Walk(self.record, scope, self.block_sizes, self.library, function.file, via)
        walk.depth, walk.threads, walk.times = self.depth + 1, self.threads, self.times
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
        """What the `#if`s inside a body take for granted."""
        function = self.scope.function
        for place, text in function.code.tests_of(function.start, function.end):
            where = f"{self.file}:" if self.file else "line "
            self.record.conditions.setdefault(f"{text} ({where}{function.code.source.line(place)})")


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
    )


def _idle(node: Node) -> bool:
    return isinstance(node, Block) and not node.statements


def run_cuda(
    function: Function, library: Library, block: Mapping[str, Any], given: Mapping[str, Any], compile_time: frozenset[str]
) -> Record:  # fmt: skip
    """Run a kernel abstractly. `block`: threads along x, y, z; `given`: template parameters of one value."""
    record = Record()
    if function.unread:
        record.not_counted.setdefault(function.unread)
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
        scope.declare(name, Value(of, number, space=space))
    walk.file_tests()
    try:
        walk.run(function.body)
    except TooManyStepsError:
        record.not_counted.setdefault("what comes behind the first steps of a very long run")
    except RecursionError:
        record.not_counted.setdefault("expressions that are nested too deeply")
    if not record.entries and function.code.left_out(function.start, function.end):
        record.not_counted.setdefault("what stands in branches of #if that are not taken: the rest does nothing")
    return record
