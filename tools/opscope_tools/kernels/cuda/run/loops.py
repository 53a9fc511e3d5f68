"""Loops in the abstract run of a CUDA kernel: which of trips.py each is, and its body that many times.

A body is looked at once; one by one where the counter takes known values and tests in the body depend on it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from opscope_tools.kernels.cuda.names.values import (
    Value,
    arithmetic,
    computed,
    converted,
    lane_step,
    may_wrap,
    told,
    unsigned,
    usual,
    whole,
    wrapped,
)
from opscope_tools.kernels.cuda.run.state import Flow, Runs, State, Values, mean_of
from opscope_tools.kernels.cuda.run.trips import (
    MOST_UNROLLED,
    Trip,
    depends,
    in_one_thread,
    loop_parts,
    meets,
    simulated,
    step_of,
    trip,
    trips_of,
)
from opscope_tools.kernels.cuda.run.variables import counts_only, even, forget, writes
from opscope_tools.kernels.cuda.syntax.nodes import (
    Binary,
    Block,
    Conditional,
    Each,
    For,
    If,
    Jump,
    Lambda,
    Name,
    Node,
    Return,
    Switch,
    While,
    children,
    spelled,
    within,
)
from opscope_tools.kernels.run.events import Loop
from opscope_tools.kernels.run.paths import Path
from opscope_tools.kernels.values.expressions import Expression, Operation, call, combine, leaf, render, settled
from opscope_tools.kernels.values.quotients import least, may_be_negative
from opscope_tools.kernels.values.turns import Counter, Turns

#: nodes up to which loops are taken one iteration at a time
_MOST_UNROLLED_STEPS = 60_000


class Loops:
    """Loops, each body as often as it runs."""

    statements: Runs

    def __init__(self, values: Values) -> None:
        self.value, self.place = values.value, values.place
        #: of loops that were looked at: whether something leaves them early
        self._early: dict[Node, bool] = {}

    def loop(self, state: State, node: For | While) -> Flow:
        """Run a loop: turn by turn where its test is known each time, else its body once, counted as often; says how it ended."""
        state.scope.blocks.append({})
        if isinstance(node, For) and node.start is not None:
            self.statements.run(state, node.start.statements if isinstance(node.start, Block) else [node.start])
        flow = self._counted(state, node)
        state.scope.blocks.pop()
        return flow

    def _counted(self, state: State, node: For | While) -> Flow:
        parts = loop_parts(node, lambda part: counts_only(state, part))
        start = state.scope.find(parts[0]) if parts is not None else None
        if parts is None and (tried := self._by_test(state, node)) is not None:
            self.met(state, node, tried[0], str(len(tried[1])))
            return self._constant(state, node, *tried)
        name = parts[0] if parts is not None else ""
        untold = start is not None and start.number == leaf(name)  # its own name stands for it
        if parts is None or start is None or start.where or untold:
            self.met(state, node, name if untold else "", "")
            if node.test is not None:
                self.aside_of(state, node.test)
            return self.repeat(state, node, unknown_trips(state, node, node.text or "for (;;)"), state.threads)
        name, operator, bound_node, step = parts
        several = isinstance(node.test, Binary) and node.test.operator == "&&"
        if several and node.test is not None:
            self.aside_of(state, node.test)
        with state.log.apart() as around:
            bound = self.value(state, bound_node)
            amount = self.value(state, step.amount) if step.amount is not None else whole(1)
        state.uncounted(f"the head of the loop `{node.text}`, which computes", node, around)
        start, bound = self._compared(state, node, start, operator, bound)
        after = isinstance(node, While) and node.after
        self.met(state, node, name, "" if after else in_one_thread(start, operator, bound, step.operator, amount))
        numbers = start.number, bound.number, amount.number
        made = shared = (
            _of_grid(state, name, start, operator, bound, amount) if step.operator == "+" and not after else None
        )
        if shared is None:
            made = trip(name, start, operator, bound, step.operator, amount, state.threads, state.log.counts)
        if operator == "!=" and leaves_early(node.body) and not meets(start.number, bound.number, amount.number):
            made = None  # what leaves it may be all that ends it
        if after and unsigned(start.type) and may_wrap(arithmetic(step.operator, start, amount, start.type)):
            made = None  # before its first test
        turns = Turns(made.loop) if made is not None and not after else None
        shorter = self._until(state, node, name, start, turns) if several and turns is not None else None
        if several and shorter is None:
            state.condition(f"the loop `{node.text}` runs until `{name}` ends it", node)
        turns = shorter or turns
        if all(isinstance(n, int) for n in numbers) and not after and shorter is None:
            values = simulated(start.number, operator, bound.number, step.operator, amount.number)
            if values is not None:
                return self._constant(state, node, name, values)
        if shared is not None:
            even_step = told(lane_step(start))
            state.scope.change(name, replace(start, varies=frozenset({"thread", "block", "loop"}), step=even_step))
        if made is None or (after and made.threads is not state.threads):
            return self.repeat(state, node, unknown_trips(state, node, node.text), state.threads, name)
        each = made.loop.trips if turns is None else mean_of(turns)
        if after:
            each = max(each, 1) if isinstance(each, int) else call("max", each, 1)
        varied = (bound.varies | amount.varies | (start.varies if not start.digits else frozenset())) & {"loop"}
        if varied or depends(each, state.log.counters):
            return self.repeat(
                state, node, unknown_trips(state, node, node.text, "mean iterations"), state.threads, name
            )
        for text in made.conditions:
            state.condition(text, node)
        flow = self.repeat(state, node, each, made.threads, name, turns)
        if shorter is not None and turns is not None and turns.loop.at_once == 1:
            _runs(state, node, turns.count)
        return flow

    @staticmethod
    def _compared(state: State, node: For | While, start: Value, operator: str, bound: Value) -> tuple[Value, Value]:
        """Where a counter starts and its bound, as their types compare: that an unsigned one is not below none is taken for granted."""
        if start.type.kind != "int" or bound.type.kind != "int" or operator == "!=":
            return start, bound
        kind = usual(start.type, bound.type)
        for end in (start, bound):
            told = end.number is not None and not isinstance(end.number, int)
            if unsigned(kind) and told and may_be_negative(end.number):
                state.condition(Operation(">=", end.number, 0).text.replace("{", "").replace("}", ""), node)
        first, last = (
            wrapped(converted(end, kind)).number if isinstance(end.number, int) else end.number
            for end in (start, bound)
        )
        if first != start.number and not unsigned(start.type):
            first = None  # in the loop it is another number than in its test
        return replace(start, number=first), replace(bound, number=last)

    def _until(self, state: State, node: For | While, name: str, start: Value, turns: Turns) -> Turns | None:
        """The turns of a loop before the first in which a part of its test does not hold; None where that is not told."""
        assert node.test is not None
        nest, others = state.nest, start.varies | {"loop"}
        state.log.counters.add(name)
        state.scope.change(name, replace(start, number=leaf(name), digits=(), offset=None, varies=others))
        state.repeat((*nest, turns))
        with state.log.apart():
            found = state.split(self.value(state, node.test))
        state.repeat(nest)
        state.scope.change(name, start)
        upto = None if found is None or found[0] < len(nest) else turns.up_to(found[2])
        told_apart = turns.loop.listed is None
        return Turns(replace(turns.loop, trips=upto[2].count)) if upto is not None and told_apart else None

    def _by_test(self, state: State, node: For | While) -> tuple[str, list[int]] | None:
        """The counter of a loop whose test is of constants and the counter, `(1 << u) < 1024`, tried value by value."""
        changed = writes(state, node.step) if isinstance(node, For) and node.step is not None else frozenset()
        name = next(iter(changed), "")
        start = state.scope.find(name)
        step = step_of(node.step, name) if isinstance(node, For) else None
        if len(changed) != 1 or start is None or step is None or node.test is None or name in writes(state, node.body):
            return None
        values, at, holds = list[int](), start.number, None
        with state.log.apart():
            amount = self.value(state, step.amount).number if step.amount is not None else 1
            while isinstance(at, int) and isinstance(amount, int) and len(values) <= MOST_UNROLLED:
                state.scope.change(name, replace(start, number=at, digits=(), varies=frozenset()))
                holds = self.value(state, node.test).number
                if not isinstance(holds, int) or not holds:
                    break
                values.append(at)
                at = computed(step.operator, at, amount)
            else:
                holds = None
        state.scope.change(name, start)
        return (name, values) if holds == 0 else None

    def _constant(self, state: State, node: For | While, name: str, values: list[int]) -> Flow:
        """A loop whose counter takes known values: one by one where a test in it depends on the counter."""
        if not values:
            return ""
        one_by_one = _tests(node.body, name) and not _by_sizes(state, node.body, name)
        if len(values) > MOST_UNROLLED or not one_by_one or not _affordable(state, node, len(values)):
            steps = {b - a for a, b in pairwise(values)} or {1}
            by = steps.pop() if len(steps) == 1 else None
            counter = Counter(name, values[0], by or 0, len(values), listed=None if by else tuple(values))
            return self.repeat(state, node, len(values), state.threads, name, Turns(counter))
        before, left, untold, way = state.threads, state.left, state.untold, (state.path, state.gone)
        state.left = set()
        steady = even(state, writes(state, node.body), [node.body])
        forget(state, writes(state, node.body) - {name}, "loop", steady)
        state.loops.append(state.line(node))
        flow: Flow = ""
        nest, running, state.running = state.nest, state.running, None
        for turn, value in enumerate(values, 1):
            old = state.scope.find(name)
            if old is None:
                break
            state.scope.change(name, replace(old, number=value, digits=(), varies=frozenset()))
            threads, path = state.threads, state.path
            state.repeat((*nest, _untold(1)))
            state.left.discard("continue")
            flow = self.statements.inner(state, node.body)
            if isinstance(node, For) and node.step is not None and not flow:
                self.place(state, node.step)
            if flow in {"return", "break"} and "continue" in state.left:  # some threads go on
                state.left.add(flow)
                state.lose_track(node, node.text)
            elif flow in {"return", "break"}:
                if not state.left:
                    _runs(state, node, turn)
                break
            if "break" not in state.left and "return" not in state.left:
                state.threads, state.untold, state.path = threads, untold, path
        state.loops.pop()
        state.running = running
        state.repeat(nest)
        whole = flow == "return" and "break" not in state.left
        _ended(state, node, before, left, untold, way)
        forget(state, writes(state, node.body) | {name}, "loop", steady)
        return "return" if whole else ""

    def met(self, state: State, node: For | While | Each, name: str, trips: str) -> None:
        """Put down a loop; `trips`: of one thread."""
        kind, text = "while" if isinstance(node, While) else "for", node.text
        if isinstance(node, For):
            start = node.start.statements[0] if isinstance(node.start, Block) else node.start
            text = "; ".join("" if part is None else spelled(part) for part in (start, node.test, node.step))
        elif isinstance(node, While):
            text = spelled(node.test)
        if (early := self._early.get(node)) is None:
            early = self._early[node] = leaves_early(node.body)
        state.log.met(Loop(**state.at(node), variable=name, text=text[:240], trips=trips, kind=kind, left_early=early))

    def aside_of(self, state: State, node: Node) -> None:
        """An expression whose cost is not of one execution: where it has one, that is said."""
        with state.log.apart() as apart:
            self.value(state, node)
        state.uncounted("the test of the loop, which computes", node, apart)

    def repeat(
        self, state: State, node: Any, each: Any, threads: Any, name: str = "", turns: Turns | None = None
    ) -> Flow:
        """A body as often as its loop runs, looked at once."""
        changed = writes(state, node.body) | ({name} if name else frozenset())
        if isinstance(node, For) and node.step is not None:
            changed |= writes(state, node.step)
        if isinstance(node, For | While) and node.test is not None:
            changed |= writes(state, node.test)
        if depends(each, state.log.varying) or depends(threads.factor, state.log.varying):
            state.log.uneven[render(each if not isinstance(each, int) else threads.factor)] = None
        parts = [node.body, node.test if isinstance(node, While | For) else None]
        steady = even(state, changed, [*parts, node.step if isinstance(node, For) else None])
        forget(state, changed, "loop", steady)
        before, left, untold, path, gone = state.threads, state.left, state.untold, state.path, state.gone
        nest, running, ended, ending = state.nest, state.running, state.ended, state.ending
        state.ending = None
        turns = turns or _untold(each)
        if name:
            state.log.counters.add(name)
        state.loops.append(state.line(node))
        for _ in range(2):  # what leaves the loop tells how often it runs
            state.left, state.untold, state.path, state.ended, state.returns = set(), untold, path, None, False
            state.threads = state.running = threads
            state.repeat((*nest, turns))
            with state.log.apart() as body:
                flow = self.statements.inner(state, node.body)
                if isinstance(node, For) and node.step is not None and not flow:
                    self.place(state, node.step)
            if flow in {"break", "return"} and "continue" in state.left:  # some threads go on
                state.left.add(flow)
            elif flow in {"break", "return"}:
                state.ended, state.returns = turns.before(turns.loop.at_once), flow == "return"
                state.ending = None
            if state.ended is None or state.ended == turns:
                break
            turns = state.ended
            forget(state, changed, "loop", steady)
        state.loops.pop()
        if state.left & {"break", "return"}:  # they make fewer turns than the others
            state.missing(f"the loop `{node.text}`, which some threads or turns leave early", node, body.parts)
            body.entries.clear()
        elif state.ended is not None and turns.loop.at_once == 1:
            _runs(state, node, turns.count)
        state.log.add(body)
        returns = state.ended is not None and state.returns
        leaving = turns if state.ending is None else state.ending[2]
        state.ended, state.ending, state.running = ended, ending, running
        state.repeat(nest)
        if "return" in state.left and (threads is not before or not _surely_runs(node, turns)):
            state.lose_track(node, node.text)
        _ended(state, node, before, left, untold, (path, gone))
        forget(state, changed, "loop", steady)
        if not returns:
            return ""
        if turns.loop.at_once == 1 and _surely_runs(node, leaving):
            return "return"
        state.lose_track(node, node.text)
        return ""


def _untold(trips: Any) -> Turns:
    """So many turns of a loop that nothing tells apart."""
    return Turns(Counter("", 0, 1, trips))


def _surely_runs(node: Any, turns: Turns) -> bool:
    """Whether a loop makes a turn: its count says so, or nothing is asked before one."""
    return (least(turns.count) or 0) > 0 or (not isinstance(node, Each) and node.test is None)


def _runs(state: State, node: Node, count: Any) -> None:
    """Put down how often a loop runs that is left before its counter ends it."""
    place = state.file, state.line(node), state.via, node.position
    for number, event in enumerate(state.log.events):
        if isinstance(event, Loop) and event.place == place and event.trips:
            state.log.events[number] = replace(event, trips=render(count), left_early=False)


def unknown_trips(state: State, node: Node, text: str, what: str = "iterations") -> Any:
    """A quantity of its own for a number of iterations that is no formula: the mean of the threads."""
    name = f"{what} of the loop at line {state.line(node)}" + (f" of {state.file}" if state.file else "")
    state.log.variables[name] = f"`{text}`, the mean of the threads that come to it"
    return leaf(name)


def _of_grid(state: State, name: str, start: Value, operator: str, bound: Value, amount: Value) -> Trip | None:
    """The turns of a loop that the whole grid shares; None for other loops."""
    size = state.block["x"]
    counts = state.log.counts
    if operator != "<" or bound.number is None or amount.number is None or bound.varies:
        return None
    if not {"thread", "block"} >= start.varies >= {"block"} or start.number is None:
        return None
    block, grid, thread = map(leaf, ("blockIdx.x", "gridDim.x", "threadIdx.x"))
    one = start.digits == () and start.number == block and amount.number == grid
    every = counts.read(start.number) == counts.read(combine("+", settled("*", block, size), thread))
    if every and counts.read(amount.number) != counts.read(settled("*", size, grid)):
        return None
    if not (one or every):
        return None
    state.log.assumptions.setdefault("Blocks that share a loop over the grid cost the mean of them.")
    loop = Counter(name, 0, 1, trips_of(0, bound.number, 1), at_once=grid, among=grid)
    if one:
        if state.counted:
            state.log.shared_tiles.setdefault(render(bound.number))
        return Trip(loop, state.threads)
    split = state.threads.split(("x", 1, None))
    if split is None or any(d.left != "first" or not d.full for d in split[1]):
        return None
    return Trip(replace(loop, at_once=settled("*", size, grid)), split[0].taken(split[1], 1))


def _affordable(state: State, node: Node, times: int) -> bool:
    """Whether there is time left to look at a loop's iterations one by one."""
    size, pending = 0, [node]
    while pending:
        one = pending.pop()
        size += 1
        pending += children(one)
    return state.counted and state.log.steps + 3 * size * times < _MOST_UNROLLED_STEPS


def _ended(
    state: State, node: Any, before: Any, left: set[str], untold: str, way: tuple[Path, str]
) -> None:  # fmt: skip
    """Behind a loop: the threads that came to it, those that gave up the function in it left out."""
    returned = "return" in state.left
    if returned and state.left != {"return"}:
        state.lose_track(node, node.text)
    elif not returned:
        state.threads, state.untold = before, untold
        state.path, state.gone = way
    state.left = left | {"return"} if returned else left


def leaves_early(body: Node, inner: bool = False) -> bool:
    """Whether something in the body of a loop leaves it before the last turn."""
    if isinstance(body, Return) or (
        isinstance(body, Jump) and (body.word == "goto" or (body.word == "break" and not inner))
    ):
        return True
    inner = inner or isinstance(body, For | While | Each | Switch)
    return not isinstance(body, Lambda) and any(leaves_early(child, inner) for child in children(body))


def _tests(body: Node, name: str) -> bool:
    """Whether a branch or loop in a body depends on a name."""
    pending = [body]
    while pending:
        one = pending.pop()
        heads: list[Node | None] = []
        if isinstance(one, If | Conditional | Switch):
            heads = [one.test if not isinstance(one, Switch) else one.subject]
        elif isinstance(one, For | While):
            heads = [one.test, *([one.start, one.step] if isinstance(one, For) else [])]
        if any(head is not None and _mentions(head, name) for head in heads):
            return True
        pending += children(one)
    return False


def _by_sizes(state: State, body: Node, name: str) -> bool:
    """Whether a test in a body holds a counter against sizes that are not numbers: how many turns meet it is a formula."""
    for one in within(body):
        if isinstance(one, If | Conditional) and _mentions(one.test, name):
            names = {part.text for part in within(one.test) if isinstance(part, Name)} - {name}
            values = [state.scope.find(text) or state.scope.constant(text) for text in names]
            if values and not any(v.varies for v in values) and any(isinstance(v.number, Expression) for v in values):
                return not names & {"threadIdx", "blockIdx"}
    return False


def _mentions(node: Node, name: str) -> bool:
    return (isinstance(node, Name) and node.text == name) or any(_mentions(c, name) for c in children(node))
