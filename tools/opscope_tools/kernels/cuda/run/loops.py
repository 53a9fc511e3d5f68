"""Loops in the abstract run of a CUDA kernel: which of trips.py each is, and its body that many times.

A body is looked at once; one by one where the counter takes known values and tests in the body depend on it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal

from opscope_tools.kernels.cuda.names.values import Value, computed, lane_step, told, whole
from opscope_tools.kernels.cuda.run.trips import (
    MOST_UNROLLED,
    depends,
    in_one_thread,
    loop_parts,
    simulated,
    step_of,
    trip,
)
from opscope_tools.kernels.cuda.run.variables import Variables
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
)
from opscope_tools.kernels.host.worlds import Sym, leaf, render
from opscope_tools.kernels.run.events import Loop
from opscope_tools.kernels.run.paths import counted
from opscope_tools.kernels.values.threads import times

#: nodes up to which loops are taken one iteration at a time
_MOST_UNROLLED_STEPS = 60_000
Flow = Literal["", "return", "break", "continue"]


class Repeats(Variables):
    """The loops of one function."""

    #: ways in which some threads left early
    left: set[str]

    @abstractmethod
    def run(self, statements: list[Node] | tuple[Node, ...]) -> Flow:
        """Statements one after the other, up to one that leaves."""

    @abstractmethod
    def inner(self, node: Node | None) -> Flow:
        """A statement with a block of names of its own."""

    def unknown_trips(self, node: Node, text: str, what: str = "iterations") -> Any:
        """A quantity of its own for a number of iterations that is no formula: the mean of the threads."""
        name = f"{what} of the loop at line {self.line(node)}" + (f" of {self.file}" if self.file else "")
        self.record.variables[name] = f"`{text}`, the mean of the threads that come to it"
        return leaf(name)

    def loop(self, node: For | While) -> Flow:
        self.scope.blocks.append({})
        if isinstance(node, For) and node.start is not None:
            self.run(node.start.statements if isinstance(node.start, Block) else [node.start])
        flow = self._counted(node)
        self.scope.blocks.pop()
        return flow

    def _counted(self, node: For | While) -> Flow:
        parts = loop_parts(node, self.counts_only)
        start = self.scope.find(parts[0]) if parts is not None else None
        if parts is None and (tried := self._by_test(node)) is not None:
            self.met_loop(node, tried[0], str(len(tried[1])))
            return self._constant(node, *tried)
        untold = (
            start is not None and parts is not None and start.number == leaf(parts[0])
        )  # its own name stands for it
        if parts is None or start is None or start.where or untold:
            self.met_loop(node, parts[0] if untold and parts is not None else "", "")
            if node.test is not None:
                self.aside_of(node.test)
            return self.repeat(node, self.unknown_trips(node, node.text or "for (;;)"), self.threads)
        name, operator, bound_node, step = parts
        if isinstance(node.test, Binary) and node.test.operator == "&&":
            self.aside_of(node.test)
            self.condition(f"the loop `{node.text}` runs until `{name}` ends it", node)
        kept = self.record.aside()
        bound = self.value(bound_node)
        amount = self.value(step.amount) if step.amount is not None else whole(1)
        around = self.record.back(kept)
        if around.entries or around.not_counted:
            self.missing(f"the head of the loop `{node.text}`, which computes", node, around.parts)
        after = isinstance(node, While) and node.after
        self.met_loop(node, name, "" if after else in_one_thread(start, operator, bound, step.operator, amount))
        numbers = start.number, bound.number, amount.number
        if all(isinstance(n, int) for n in numbers) and not after:
            values = simulated(start.number, operator, bound.number, step.operator, amount.number)
            if values is not None:
                return self._constant(node, name, values)
        strided = self._of_grid(start, operator, bound, amount) if step.operator == "+" and not after else None
        if strided is not None:
            step = told(lane_step(start))
            self.scope.change(name, replace(start, varies=frozenset({"thread", "block", "loop"}), step=step))
            return self.repeat(node, 1, strided, name)
        made = trip(start, operator, bound, step.operator, amount, self.threads, self.record.counts)
        if made is None or (after and made.threads is not self.threads):
            return self.repeat(node, self.unknown_trips(node, node.text), self.threads, name)
        each = made.each
        if after:
            each = max(each, 1) if isinstance(each, int) else Sym(f"max({render(each)}, 1)")
        varied = (bound.varies | amount.varies | (start.varies if not start.digits else frozenset())) & {"loop"}
        if varied or depends(each, self.record.counters) or depends(made.threads.factor, self.record.counters):
            return self.repeat(node, self.unknown_trips(node, node.text, "mean iterations"), self.threads, name)
        for text in made.conditions:
            self.condition(text, node)
        return self.repeat(node, each, made.threads, name)

    def _by_test(self, node: For | While) -> tuple[str, list[int]] | None:
        """The counter of a loop whose test is of constants and the counter, `(1 << u) < 1024`, tried value by value."""
        changed = self.writes(node.step) if isinstance(node, For) and node.step is not None else frozenset()
        name = next(iter(changed), "")
        start = self.scope.find(name)
        step = step_of(node.step, name) if isinstance(node, For) else None
        if len(changed) != 1 or start is None or step is None or node.test is None or name in self.writes(node.body):
            return None
        kept, values, at = self.record.aside(), list[int](), start.number
        amount = self.value(step.amount).number if step.amount is not None else 1
        while isinstance(at, int) and isinstance(amount, int) and len(values) <= MOST_UNROLLED:
            self.scope.change(name, replace(start, number=at, digits=(), varies=frozenset()))
            holds = self.value(node.test).number
            if not isinstance(holds, int) or not holds:
                break
            values.append(at)
            at = computed(step.operator, at, amount)
        else:
            holds = None
        self.record.back(kept)
        self.scope.change(name, start)
        return (name, values) if holds == 0 else None

    def met_loop(self, node: For | While | Each, name: str, trips: str) -> None:
        """Put down a loop; `trips`: of one thread."""
        kind, text = "while" if isinstance(node, While) else "for", node.text
        if isinstance(node, For):
            start = node.start.statements[0] if isinstance(node.start, Block) else node.start
            text = "; ".join("" if part is None else spelled(part) for part in (start, node.test, node.step))
        elif isinstance(node, While):
            text = spelled(node.test)
        early = leaves_early(node.body)
        self.record.met(Loop(**self.at(node), variable=name, text=text[:240], trips=trips, kind=kind, left_early=early))

    def _of_grid(self, start: Value, operator: str, bound: Value, amount: Value) -> Any:
        """The threads of a loop that the whole grid shares: its mean over the blocks; None for other loops."""
        size = self.block_sizes["x"]
        counts = self.record.counts
        if operator != "<" or bound.number is None or amount.number is None or bound.varies:
            return None
        if not {"thread", "block"} >= start.varies >= {"block"} or start.number is None:
            return None
        block = render(leaf("blockIdx.x"))
        grid = render(leaf("gridDim.x"))
        one = start.digits == () and start.number == leaf("blockIdx.x") and render(amount.number) == grid
        every = counts.read(render(start.number)) == counts.read(f"{block} * {render(size)} + {{threadIdx.x}}")
        if every and counts.read(render(amount.number)) != counts.read(f"{render(size)} * {grid}"):
            return None
        if not (one or every):
            return None
        mean = Sym(f"{render(bound.number, 5)} / {grid}", 3)
        self.record.assumptions.setdefault("Blocks that share a loop over the grid cost the mean of them.")
        if one:
            if counted(self.record.path):
                self.record.shared_tiles.setdefault(render(bound.number))
            return replace(self.threads, factor=times(self.threads.factor, mean))
        split = self.threads.split(("x", 1, None))
        if split is None or any(d.left != "first" or not d.full for d in split[1]):
            return None
        return split[0].taken(split[1], mean)

    def _constant(self, node: For | While, name: str, values: list[int]) -> Flow:
        """A loop whose counter takes known values: one by one where a test in it depends on the counter."""
        if not values:
            return ""
        if len(values) > MOST_UNROLLED or not _tests(node.body, name) or not self._affordable(node, len(values)):
            return self.repeat(node, len(values), self.threads, name)
        before, left = self.threads, self.left
        self.left = set()
        even = self.even(self.writes(node.body), [node.body])
        self.forget(self.writes(node.body) - {name}, "loop", even)
        self.loops.append(self.line(node))
        for value in values:
            old = self.scope.find(name)
            if old is None:
                break
            self.scope.change(name, replace(old, number=value, digits=(), varies=frozenset()))
            within = self.threads
            flow = self.inner(node.body)
            if isinstance(node, For) and node.step is not None and not flow:
                self.place(node.step)
            if flow in {"return", "break"}:
                self.left = left
                self.loops.pop()
                return "return" if flow == "return" else ""
            if "break" not in self.left and "return" not in self.left:
                self.threads = within
        self.loops.pop()
        self._ended(node, before, left)
        self.forget(self.writes(node.body) | {name}, "loop", even)
        return ""

    def _affordable(self, node: Node, times: int) -> bool:
        """Whether there is time left to look at a loop's iterations one by one."""
        size, pending = 0, [node]
        while pending:
            one = pending.pop()
            size += 1
            pending += children(one)
        return counted(self.record.path) and self.record.steps + 3 * size * times < _MOST_UNROLLED_STEPS

    def aside_of(self, node: Node) -> None:
        """An expression whose cost is not of one execution: where it has one, that is said."""
        kept = self.record.aside()
        self.value(node)
        apart = self.record.back(kept)
        if not apart.nothing:
            self.missing("the test of the loop, which computes", node, apart.parts)

    def repeat(self, node: Any, each: Any, threads: Any, name: str = "") -> Flow:
        """A body as often as its loop runs, looked at once."""
        changed = self.writes(node.body) | ({name} if name else frozenset())
        if isinstance(node, For) and node.step is not None:
            changed |= self.writes(node.step)
        if isinstance(node, For | While) and node.test is not None:
            changed |= self.writes(node.test)
        if depends(each, self.record.of_blocks) or depends(threads.factor, self.record.of_blocks):
            self.record.uneven[render(each if not isinstance(each, int) else threads.factor)] = None
        parts = [node.body, node.test if isinstance(node, While | For) else None]
        even = self.even(changed, [*parts, node.step if isinstance(node, For) else None])
        self.forget(changed, "loop", even)
        before, times, left = self.threads, self.times, self.left
        self.loops.append(self.line(node))
        self.left = set()
        self.threads = threads
        self.times = times * (each if isinstance(each, int) else self.record.counts.factor(render(each)))
        if name:
            self.record.counters.add(name)
        flow = self.inner(node.body)
        if isinstance(node, For) and node.step is not None and not flow:
            self.place(node.step)
        self.loops.pop()
        self.times = times
        self._ended(node, before, left)
        self.forget(changed, "loop", even)
        if flow in {"break", "return"}:
            self.missing(f"the loop `{node.text}`, which its first iteration leaves: all of them are counted", node)
        return "return" if flow == "return" and not isinstance(node, For | While) else ""

    def _ended(self, node: Any, before: Any, left: set[str]) -> None:
        if "return" in self.left or "break" in self.left:
            self.condition(f"no thread leaves the loop `{node.text}` early", node)
        self.threads, self.left = before, left


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


def _mentions(node: Node, name: str) -> bool:
    return (isinstance(node, Name) and node.text == name) or any(_mentions(c, name) for c in children(node))
