"""Where the abstract run of a CUDA kernel is: one function that was entered, and how what it meets is put down.

The parts of the run are handed a `State`. kernel.py joins those that need one another, through the Protocols here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, Protocol

from opscope_schemas.formula import Formula

from opscope_tools.kernels.cuda.names.scope import Scope
from opscope_tools.kernels.cuda.names.values import Value, asked
from opscope_tools.kernels.cuda.syntax.nodes import Block, Braced, Call, Name, Node, TypeName
from opscope_tools.kernels.run.events import Part, Unknown
from opscope_tools.kernels.run.log import EVERY, Entry, Log, Lost, Sums
from opscope_tools.kernels.run.paths import Path, Status, Step, counted
from opscope_tools.kernels.values.expressions import combine
from opscope_tools.kernels.values.notation import names_of
from opscope_tools.kernels.values.threads import Threads
from opscope_tools.kernels.values.turns import Turns

_INDICES = ("threadIdx.", "blockIdx.")
#: how statements end
Flow = Literal["", "return", "break", "continue"]


@dataclass
class State:
    """One function that is run."""

    log: Log
    scope: Scope
    #: threads of a block along x, y and z
    block: dict[str, Any]
    #: which of them come to what is met, and how often it runs in each
    threads: Threads
    times: Formula = field(default_factory=lambda: Formula.const(1))
    path: Path = ()
    file: str = ""
    #: functions that were entered, joined by " > "
    via: str = ""
    depth: int = 0
    #: the object whose method this is
    this: Value | None = None
    #: what it gives back is a place: whoever calls it reads it, or writes to it
    gives_place: bool = False
    #: lines of the loops of this function that are open, and how many are around its call
    loops: list[int] = field(default_factory=list)
    loops_around: int = 0
    #: of the loops around, and how often the outermost is come to
    nest: tuple[Turns, ...] = ()
    base: Formula = field(default_factory=lambda: Formula.const(1))
    #: all turns of the innermost, up to the one that ends it; None: nothing does
    ended: Turns | None = None
    #: the branch that ends it, with which of the loops that is, the turn that leaves and those before it
    ending: tuple[Node, int, Turns, Turns] | None = None
    #: what ends it gives up the function too
    returns: bool = False
    #: the threads that run the body of the innermost, where every turn of it comes here
    running: Threads | None = None
    returned: list[Value] = field(default_factory=list)
    #: what is given back on ways that are not taken
    elsewhere: list[Value] = field(default_factory=list)
    #: ways in which some threads left early
    left: set[str] = field(default_factory=set)
    #: why it is not told which threads come here; what they do is then not counted
    untold: str = ""
    #: the tests by which some threads or turns left, for reading
    gone: str = ""
    #: where pointers that local arrays hold lead to
    spaces: dict[str, str] = field(default_factory=dict)
    #: numbers that are made of the indices of thread and block
    indices: set[str] = field(default_factory=set)
    #: the statement that is run
    statement: Node = field(default_factory=lambda: Block(0, []))
    _total: tuple[Threads | None, Formula | None, int] = (None, None, 0)

    def entered(self, scope: Scope, name: str, returns: TypeName | None) -> State:
        """Inside a function that is called here."""
        return State(
            self.log, scope, self.block, self.threads, self.times, self.path, scope.function.file,
            f"{self.via} > {name}" if self.via else name, self.depth + 1, loops_around=self.deep, untold=self.untold, base=self.times,
            gives_place=returns is not None and returns.reference,
        )  # fmt: skip

    @property
    def deep(self) -> int:
        """Loops around what is met."""
        return self.loops_around + len(self.loops)

    @property
    def counted(self) -> bool:
        """Whether a cost counts what is met."""
        return counted(self.path)

    @contextmanager
    def on(self, node: Node, test: str, holds: bool, status: Status) -> Iterator[None]:
        """What is met meanwhile is met where the test went so."""
        kept = self.path
        self.path = (*kept, Step(test, holds, status, self.line(node)))
        try:
            yield
        finally:
            self.path = kept

    def step(self) -> None:
        """Count a node. Raises `TooManyStepsError`."""
        self.log.step(self.counted)

    # what is put down --------------------------------------------------------------------------------------------

    def line(self, node: Node) -> int:
        """1-based line of a node in the file of the function that is run."""
        return self.scope.function.code.source.line(node.position)

    def at(self, node: Node) -> dict[str, Any]:
        """Where an event is, and on which way."""
        return {
            "file": self.file, "line": self.line(node), "node": node.position, "via": self.via, "path": self.path,
            "loop": self.loops[-1] if self.loops else 0,
        }  # fmt: skip

    def total(self) -> int:
        """How often what is met runs in the block, as its place in the log."""
        threads, times, total = self._total
        if threads is not self.threads or times is not self.times:
            total = self.log.place(self.threads.total(self.log.counts) * self.times)
            for text in self.threads.assumed:
                self.log.assumptions.setdefault(text + ".")
            self._total = self.threads, self.times, total
        return total

    def put(
        self, node: Node, operation: str, flops: int = 0, *, product: Fraction = Fraction(0), read: str = "", written: str = ""
    ) -> None:  # fmt: skip
        """FLOPs and bytes of one execution."""
        if not (flops or product or read or written):
            return
        entry = Entry(
            self.file, self.line(node), self.via, operation, self.total(), flops, product, read, written, self.deep
        )
        if self.untold:
            self.log.sums.lose(self.untold, Lost(entry.parts, self.deep))
        else:
            self.log.sums.entries[entry] += 1

    def repeat(self, nest: tuple[Turns, ...]) -> None:
        """What follows is met in these turns of the loops around."""
        self.nest, self.times = nest, self.base
        for turns in nest:
            self.times = self.times * self.log.counts.factor(mean_of(turns))

    def split(self, test: Value) -> tuple[int, Turns, Turns] | None:
        """(which of the loops around, its turns in which a test is met, the others); None where the test is not of one counter."""
        expression = asked(test)
        every = set(names_of(expression))
        names = self.log.counters & every
        places = [place for place, turns in enumerate(self.nest) if turns.loop.name in names]
        if len(places) != 1 or len(names) != 1 or "loop" not in test.varies:
            return None
        turns = self.nest[places[0]]
        own = {"loop", *(["thread"] if turns.loop.at_once != 1 else ()), *(["block"] if turns.loop.among != 1 else ())}
        if not test.varies <= own or any(name.startswith(_INDICES) for name in every):
            return None
        found = turns.split(expression)
        return None if found is None else (places[0], *found)

    def shares(self, test: Value) -> bool:
        """Whether a test asks for the counter of a loop whose turns threads share, and for none of their indices: it bounds no tile."""
        names = set(names_of(asked(test)))
        shared = {turns.loop.name for turns in self.nest if turns.loop.at_once != 1}
        return bool(shared & names) and not any(name.startswith(_INDICES) for name in names)

    def leave(self, test: str) -> None:
        """Some threads or turns leave by a test."""
        self.gone = f"{self.gone} or {test}" if self.gone else test

    def lose_track(self, node: Node, test: str, gone: str = "") -> None:
        """From here on it is not told which threads, or turns of a loop, a test has let go on; `gone`: what the others meet."""
        self.untold = self.untold or f"what `{test}` decides: what of it goes on ({self.named(self.line(node))})"
        self.path = (*self.path, Step(gone or test, False, "open", self.line(node)))
        self.leave(gone or test)

    def missing(self, what: str, node: Node, loses: frozenset[Part] = EVERY, through: str = "") -> None:
        """Say that something is not counted; `through`: how an access that may hide in it is spelled."""
        self.log.sums.lose(f"{what} ({self.named(self.line(node))})", Lost(loses, self.deep))
        self.log.met(Unknown(**self.at(node), what=through, reason=what, loses=loses))

    def uncounted(self, what: str, node: Node, *apart: Sums) -> None:
        """Say that what was kept apart is not counted: of what it leaves out itself, and of what goes on behind it, its conditions tell."""
        if parts := frozenset[Part]().union(*(one.parts for one in apart)):
            self.missing(what, node, parts)
        for one in apart:
            self.log.sums.conditions.update(one.conditions)

    def condition(self, text: str, node: Node) -> None:
        """Say what is taken for granted."""
        self.log.sums.conditions.setdefault(f"{text} ({self.named(self.line(node))})")

    def named(self, line: int) -> str:
        """A line, for reading."""
        return f"{self.file}:{line}" if self.file else f"line {line}"


def mean_of(turns: Turns) -> Any:
    """How many turns these are in each of the blocks that share them."""
    return turns.count if turns.loop.among == 1 else combine("/", turns.count, turns.loop.among)


class Values(Protocol):
    """What expressions come to."""

    def value(self, state: State, node: Node) -> Value: ...
    def place(self, state: State, node: Node) -> Value: ...


class Calls(Protocol):
    """What calls come to."""

    def call(self, state: State, node: Call) -> Value: ...
    def of_object(
        self, state: State, node: Node, base: Value, name: str, arguments: Sequence[Node], places: list[Value]
    ) -> Value: ...  # fmt: skip

    @property
    def tensors(self) -> Tensors: ...


class Tensors(Protocol):
    """What CuTe's expressions come to."""

    def read(self, state: State, node: Name | Braced) -> Value | None: ...


class Runs(Protocol):
    """Statements, one after the other or with a block of names of their own."""

    def run(self, state: State, statements: Sequence[Node]) -> Flow: ...
    def inner(self, state: State, node: Node | None) -> Flow: ...


__all__ = ["Calls", "Flow", "Runs", "State", "Values", "mean_of"]
