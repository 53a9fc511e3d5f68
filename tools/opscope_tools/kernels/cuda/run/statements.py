"""Statements in the abstract run of a CUDA kernel: one after the other, and the sides of branches.

A side that is not taken is run on a copy of what is known, on the path of its other answer: what stands there is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from opscope_tools.kernels.cuda.names.values import UNKNOWN, UNTOLD, Value, lane_step
from opscope_tools.kernels.cuda.run.calls import Calls
from opscope_tools.kernels.cuda.run.decisions import OPEN, Decision, Guards
from opscope_tools.kernels.cuda.run.expressions import rely
from opscope_tools.kernels.cuda.run.instructions import instructions_of_type
from opscope_tools.kernels.cuda.run.loops import Loops, unknown_trips
from opscope_tools.kernels.cuda.run.state import Flow, State, Values
from opscope_tools.kernels.cuda.run.variables import Declarations, even, forget, writes
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
    Name,
    Node,
    Number,
    Return,
    Switch,
    Unpack,
    Unread,
    While,
    leaves,
    spelled,
)
from opscope_tools.kernels.run.events import TooManyStepsError, Unknown
from opscope_tools.kernels.values.conditions import negated
from opscope_tools.kernels.values.expressions import render
from opscope_tools.kernels.values.turns import Turns

#: of a text that others are joined to: what binds less
_SEVERAL = re.compile(r"\bor\b|\|\||\?")


class Statements:
    """Statements, one after the other."""

    def __init__(self, values: Values, guards: Guards, calls: Calls, declarations: Declarations, loops: Loops) -> None:
        self.value, self.place, self.guards = values.value, values.place, guards
        self.calls, self.declarations, self.loops = calls, declarations, loops

    def run(self, state: State, statements: Sequence[Node]) -> Flow:
        """Run statements until one ends the list; says how."""
        for statement in statements:
            flow = self.statement(state, statement)
            if flow:
                return flow
        return ""

    def inner(self, state: State, node: Node | None) -> Flow:
        """A statement with a block of names of its own."""
        if node is None:
            return ""
        state.scope.blocks.append({})
        flow = self.run(state, node.statements) if isinstance(node, Block) else self.statement(state, node)
        state.scope.blocks.pop()
        return flow

    def statement(self, state: State, node: Node) -> Flow:
        """Run one statement, one step of the limit; says how it ended."""
        state.step()
        if isinstance(node, Evaluate | Unpack | Declare | Return | Assembly | Alias):
            state.statement = node
        match node:
            case Evaluate(expression=expression):
                self.place(state, expression)
            case Declare():
                self.declarations.declare(state, node)
            case Block():
                return self.inner(state, node)
            case If():
                return self.branch(state, node)
            case For() | While():
                return self.loops.loop(state, node)
            case Each():
                self.loops.met(state, node, node.name, "")
                state.scope.blocks.append({node.name: Value(UNKNOWN, varies=frozenset({"loop", "data"}))})
                self.loops.repeat(state, node, unknown_trips(state, node, node.text), state.threads)
                state.scope.blocks.pop()
            case Switch():
                return self.switch(state, node)
            case Return(value=value):
                if value is not None:
                    given = self.place if state.gives_place else self.value
                    state.returned.append(given(state, value))
                return "return"
            case Jump(word=word):
                if word == "goto":
                    state.missing("what `goto` leads to", node)
                return "break" if word == "break" else "continue" if word == "continue" else ""
            case Assembly():
                self.calls.assembly(state, node)
            case Unpack(names=names, value=value):
                self.calls.tensors.unpack(state, names, self.value(state, value))
            case Alias(name=name, type=kind):
                instructions_of_type(state, node)
                state.scope.types[name] = state.scope.type_of(kind) if kind is not None else UNKNOWN
                self.calls.tensors.alias(state, name, kind)
            case Unread(text=text):
                state.missing(f"`{text[:60]}`, which is not read", node, through=text[:60])
        return ""

    def branch(self, state: State, node: If) -> Flow:
        """Run an `if`: both sides, each for the threads that take it; says how it ended."""
        state.statement = node.test
        test = self.value(state, node.test)
        ending = state.ending if state.ending is not None and state.ending[0] is node else None
        if (split := ending[1:] if ending is not None else state.split(test)) is not None:
            return self._turns(state, node, *split)
        left = leaves(node.then) or (node.other is None and _gives_up(node.then))
        decision = OPEN
        if not state.shares(test):
            decision = self.guards.decide(test, state.threads, not (left or _idle(node.then)), left, state.deep > 0)
        if decision.outcome == "threads" and decision.yes is not None and decision.no is not None:
            return self._by_threads(state, node, decision)
        if decision.outcome in {"open", "threads"}:
            return self._open(state, node, test)
        rely(state, decision, node, node.text)
        taken, other = (node.then, node.other) if decision.outcome else (node.other, node.then)
        if not decision.assumed:
            return self.inner(state, taken)
        changed = _changed(state, taken, other)
        flow, ends = self.suppose(state, node, node.text, not decision.outcome, decision, other)
        if other is None:
            ends = [{name: found for name in changed if (found := state.scope.find(name)) is not None}]
        with state.on(node, node.text, bool(decision.outcome), "assumed"):
            made = self.inner(state, taken)
        if not flow:
            _join(state, changed, ends)
        return made

    def suppose(
        self, state: State, node: Node, test: str, holds: bool, decision: Decision, side: Node | None
    ) -> tuple[Flow, list[dict[str, Value]]]:
        """Run the side of a branch that is not taken, for what stands there; how it ends, and the variables there."""
        flow: Flow = ""
        if side is None:
            return flow, []
        scope, kept = state.scope, {**vars(state)}
        blocks, types = scope.blocks, scope.types
        state.returned, state.spaces, state.left, state.loops = [], dict(state.spaces), set(), list(state.loops)
        scope.blocks, scope.types = [dict(b) for b in blocks], dict(types)
        with state.log.supposed(), state.on(node, test, holds, "other"):
            self.guards.turn(decision)
            try:
                flow = self.inner(state, side)
            except (TooManyStepsError, RecursionError):
                what = f"what stands where `{test}` goes the other way"
                state.log.met(Unknown(**state.at(node), what=what, reason="too much"))
        state.elsewhere += state.returned
        ends, scope.blocks, scope.types = scope.blocks, blocks, types
        vars(state).update(kept)
        return flow, ends

    def _turns(self, state: State, node: If, place: int, met: Turns, others: Turns) -> Flow:
        """Each side in its turns of a loop around; says how it ended."""
        nest, changed, flows = state.nest, _changed(state, node.then, node.other), dict[bool, Flow]()
        before, gone = state.gone, dict[bool, str]()
        threads, running, untold, lost = state.threads, state.running, state.untold, ""
        fewer, state.running = False, None
        for holds, side, turns in ((True, node.then, met), (False, node.other, others)):
            if turns.count == 0:
                continue
            asked = (*nest[:place], turns, *nest[place + 1 :])
            state.repeat(asked)
            state.gone = ""
            with state.on(node, node.text, holds, "some"):
                flows[holds] = self.inner(state, side)
            gone[holds] = state.gone
            fewer = fewer or state.threads is not threads or state.nest is not asked
            lost, state.untold, state.threads = lost or state.untold, untold, threads
        state.repeat(nest)
        state.running, state.untold, state.gone = running, lost, before
        forget(state, changed, "loop", even(state, changed, [node.then, node.other], kept=True))
        if fewer or len(set(flows.values()) - {""}) > 1:
            state.left.update(flow for flow in flows.values() if flow)
            state.lose_track(node, node.text, _goes(node, flows, gone))
        elif len(set(flows.values())) == 1:
            return next(iter(flows.values()))
        elif flows:
            leaving, staying = (met, others) if flows[True] else (others, met)
            self._leave(state, node, place, leaving, staying, flows[True] or flows[False])
        return ""

    @staticmethod
    def _leave(state: State, node: If, place: int, leaving: Turns, staying: Turns, flow: Flow) -> None:
        """Behind a branch that some turns leave: what follows is met in the others."""
        nest = state.nest
        all_here = place == len(nest) - 1 and state.threads is state.running and state.ended is None
        if flow != "continue":
            found = nest[place].up_to(leaving) if all_here else None
            if all_here and state.ending is not None and state.ending[0] is node:
                found = nest[place], leaving, staying
            if found is None:
                state.left.add(flow)
                state.lose_track(node, node.text)
                return
            state.ended, leaving, staying = found
            state.returns, state.ending = flow == "return", (node, place, leaving, staying)
        state.repeat((*nest[:place], staying, *nest[place + 1 :]))

    def _by_threads(self, state: State, node: If, decision: Decision) -> Flow:
        """Each side with its threads."""
        assert decision.yes is not None
        assert decision.no is not None
        rely(state, decision, node, node.text)
        before, changed, untold = state.threads, _changed(state, node.then, node.other), state.untold
        state.threads, nest, before_gone = decision.yes, state.nest, state.gone
        state.gone = ""
        with state.on(node, node.text, True, "some"):
            first = self.inner(state, node.then)
        after, lost, gone = state.threads, state.untold, state.gone
        state.threads, state.untold, state.gone = decision.no, untold, ""
        with state.on(node, node.text, False, "some"):
            second = self.inner(state, node.other)
        left, state.gone = _goes(node, {True: first, False: second}, {True: gone, False: state.gone}), before_gone
        if left:
            state.leave(left)
        if first and second:
            if first == second:
                return first
            state.left.update((first, second))
            state.lose_track(node, node.text)
            return "continue"
        if not first:
            state.untold = lost if second else lost or state.untold
        if state.nest is not nest:  # some turns of some threads
            state.repeat(nest)
            state.lose_track(node, node.text, left)
        forget(state, changed, "thread", even(state, changed, [node.then, node.other], kept=True))
        if first:
            state.left.add(first)
            return ""
        if second:
            state.left.add(second)
            state.threads = after
            return ""
        if after is decision.yes and state.threads is decision.no:
            state.threads = before
        elif after.members is not None and state.threads.members is not None:
            state.threads = before.of(after.members | state.threads.members)
        else:
            state.threads = before
            state.lose_track(node, node.text, left)
        return ""

    def _open(self, state: State, node: If, test: Value) -> Flow:
        """A branch that data or the block decides: counted where both sides cost the same."""
        made = []
        flows: list[Flow] = []
        threads, untold, nest, running, fewer = state.threads, state.untold, state.nest, state.running, False
        state.running, before, gone = None, state.gone, dict[bool, str]()
        for side in (node.then, node.other):
            state.gone = ""
            with state.log.apart() as apart, state.on(node, node.text, side is node.then, "open"):
                flows.append(self.inner(state, side))
            made.append(apart)
            gone[side is node.then] = state.gone
            fewer = fewer or state.threads is not threads or state.untold != untold or state.nest is not nest
            state.threads, state.untold = threads, untold
            state.repeat(nest)
        state.running, state.gone = running, before
        changed = _changed(state, node.then, node.other)
        alike = lane_step(test) == 0  # all threads go the same way
        forget(state, changed, "data", even(state, changed, [node.then, node.other], kept=not alike))
        one, other = made
        if fewer or (any(flows) and test.varies & {"thread", "loop"} and "data" not in test.varies):
            state.uncounted(f"what `{node.text}` decides", node, one, other)
            state.left.update(flow for flow in flows if flow)
            state.lose_track(node, node.text, _goes(node, {True: flows[0], False: flows[1]}, gone))
            return flows[0] if flows[0] and flows[0] == flows[1] else ""
        if any(flows) and "block" in test.varies and "data" not in test.varies:
            state.log.uneven[node.text] = None
        if flows[0] and not flows[1] and one.nothing:
            state.condition(negated(node.text), node)
            state.log.add(other)
        elif flows[1] and not flows[0] and other.nothing and node.other is not None:
            state.condition(node.text, node)
            state.log.add(one)
        elif one.same(other):
            state.log.add(one, other)
            if any(flows):
                state.condition(negated(node.text), node)
        else:
            state.uncounted(f"what `{node.text}` decides", node, one, other)
            if bool(flows[0]) is not bool(flows[1]):  # what follows is counted where it goes on
                state.condition(negated(node.text) if flows[0] else node.text, node)
        return flows[0] if flows[0] and flows[0] == flows[1] else ""

    def switch(self, state: State, node: Switch) -> Flow:
        """Run the case that is chosen; where nothing tells it, the first counts for all threads alike, else every case."""
        subject = self.value(state, node.subject)
        chosen = None
        if isinstance(subject.number, int):
            for index, (values, default, _) in enumerate(node.cases):
                if any(self.value(state, v).number == subject.number for v in values) or (
                    default
                    and chosen is None
                    and not any(self.value(state, v).number == subject.number for c in node.cases for v in c[0])
                ):
                    chosen = index
            if chosen is None:
                return ""
        elif not subject.varies and node.cases:
            chosen = self._settled_case(state, node, subject)
            state.condition(f"{node.text} is the first case of the switch", node)
            for index, (reached, (_, _, statements)) in enumerate(zip(_reaching(node), node.cases, strict=True)):
                if index != chosen:
                    self.suppose(state, node, reached, True, OPEN, Block(node.position, statements))
        if chosen is None:
            threads, untold, gone = state.threads, state.untold, list[str]()
            with state.log.apart() as apart:
                for reached, (_, _, statements) in zip(_reaching(node), node.cases, strict=True):
                    with state.on(node, reached, True, "open"):
                        flow = self.inner(state, Block(node.position, statements))
                    if flow in {"return", "continue"}:
                        state.left.add(flow)
                    if flow in {"return", "continue"} or state.threads is not threads or state.untold != untold:
                        gone.append(reached)
                    state.threads, state.untold = threads, untold
            state.uncounted(f"what the switch on `{node.text}` decides", node, apart)
            forget(state, writes(state, node), "data")
            if gone:
                by_value = not any(text.endswith("is no other case") for text in gone)
                state.lose_track(node, node.text, " or ".join(gone) if by_value else f"a case of `{node.text}` leaves")
            return ""
        for _, _, statements in node.cases[chosen:]:
            flow = self.inner(state, Block(node.position, statements))
            if flow == "break":
                return ""
            if flow:
                return flow
        return ""

    def _settled_case(self, state: State, node: Switch, subject: Value) -> int:
        """The case that an earlier test decides, else the first, which is then taken to be so."""
        name = render(subject.number)
        numbers = [[self.value(state, v).number for v in values] for values, _, _ in node.cases]
        if name in state.log.answers.equal:
            known = state.log.answers.equal[name]
            default = next((i for i, (_, default, _) in enumerate(node.cases) if default), len(node.cases))
            return next((i for i, values in enumerate(numbers) if known in values), default)
        if subject.number is not None and numbers[0]:
            state.log.answers.equal[name] = numbers[0][0]
        return 0


def _goes(node: If, flows: Mapping[bool, Flow], gone: Mapping[bool, str]) -> str:
    """The condition of what leaves by a branch, as a whole side or some of it; empty: nothing does."""
    made = []
    for holds, flow in flows.items():
        side = node.text if holds else negated(node.text)
        if flow:
            made.append(side)
        elif inner := gone.get(holds):
            made.append(" and ".join(f"({text})" if _SEVERAL.search(text) else text for text in (side, inner)))
    return " or ".join(made)


def _join(state: State, names: Iterable[str], ends: list[dict[str, Value]]) -> None:
    """Behind a branch: steps are those of both sides where these are alike, addresses may start from either's."""
    for name in names:
        one = state.scope.find(name)
        other = next((block[name] for block in reversed(ends) if name in block), None)
        if one is None or other is None or one is other or one.where:
            continue
        step = one.step if lane_step(one) == lane_step(other) else UNTOLD
        origin = tuple(dict.fromkeys((*one.origin, *other.origin)))
        state.scope.change(name, replace(one, step=step, origin=origin))


def _changed(state: State, *sides: Node | None) -> frozenset[str]:
    """Names that the sides of a branch may change."""
    return frozenset[str]().union(*(writes(state, side) for side in sides if side is not None))


def _reaching(node: Switch) -> list[str]:
    """When each case of a switch runs: for its own values, and for those of the cases before it that fall through to it."""
    made, falling = list[str](), list[str]()
    for values, default, statements in node.cases:
        falling += [f"{node.text} == {spelled(v)}" for v in values]
        falling += [f"{node.text} is no other case"] if default and not values else []
        made.append(" or ".join(falling))
        if statements and (leaves(statements[-1]) or isinstance(statements[-1], Return)):
            falling = []
    return made


def _gives_up(node: Node) -> bool:
    """Whether all that a side does is to give back that there is nothing: the exception, as leaving early is."""
    if isinstance(node, Block):
        return len(node.statements) == 1 and _gives_up(node.statements[0])
    if not isinstance(node, Return):
        return False
    given = node.value
    return (isinstance(given, Name) and given.text in {"false", "nullptr"}) or (
        isinstance(given, Number) and given.text == "0"
    )


def _idle(node: Node) -> bool:
    return isinstance(node, Block) and not node.statements
