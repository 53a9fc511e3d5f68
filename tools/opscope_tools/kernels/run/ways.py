"""Ways through a loop that its own counter decides: each is gone in some of the turns, and counted as often as that.

A run that has loops goes on in `turns`. Where it is not told how many these are, what follows stands on a path that no cost
counts, and the cost says so.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from opscope_schemas.formula import Formula

from opscope_tools.kernels.run.events import Event, Unknown, parts_of
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.run.paths import Path, Step, counted
from opscope_tools.kernels.values.expressions import Expression, Size, joined, render
from opscope_tools.kernels.values.notation import holds as holds_at
from opscope_tools.kernels.values.notation import names_of
from opscope_tools.kernels.values.turns import MOST_TURNS, Counter, Turns, opposite


@dataclass(frozen=True)
class Nest:
    """The loops around a statement, outermost first, and the tests of their counters that lead to it."""

    loops: tuple[Counter, ...] = ()
    tests: tuple[Expression, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The counters that a test may ask for."""
        return frozenset(loop.name for loop in self.loops) - {""}

    def within(self, loop: Counter) -> Nest:
        """In one more loop."""
        return replace(self, loops=(*self.loops, loop))

    def where(self, test: Expression, holds: bool = True) -> Nest:
        """In the turns in which a test holds, or in the others."""
        return replace(self, tests=(*self.tests, test if holds else opposite(test)))

    def counts(self) -> tuple[Size, ...] | None:
        """Numbers whose product is how often the statement runs; None where it is not told."""
        asked = [(test, frozenset(names_of(test)) & self.names) for test in self.tests]
        every = frozenset().union(*(names for _, names in asked))
        named = [loop.name for loop in self.loops]
        if any(loop.asks & every for loop in self.loops) or any(named.count(name) > 1 for name in every):
            return None
        together = frozenset().union(*(names for _, names in asked if len(names) > 1))
        joint = [loop for loop in self.loops if loop.name in together]
        made: list[Size | None] = [_one_by_one(joint, [test for test, names in asked if names & together])]
        for loop in (loop for loop in self.loops if loop.name not in together):
            own = [test for test, names in asked if loop.name in names]
            split = Turns(loop).split(joined("and", own)) if own else None
            made.append(split[0].count if split is not None else None if own else loop.trips)
        told = tuple(size for size in made if size is not None)
        return told if len(told) == len(made) else None


def _one_by_one(loops: list[Counter], tests: list[Expression]) -> int | None:
    """In how many turns of loops in one another all tests hold; None where that is not told."""
    values = [loop.values for loop in loops if loop.values is not None]
    if len(values) < len(loops) or prod(map(len, values)) > MOST_TURNS:
        return None
    names = [loop.name for loop in loops]
    turns = [dict(zip(names, turn, strict=True)) for turn in itertools.product(*values)]
    answers = [[holds_at(test, turn) for test in tests] for turn in turns]
    return None if any(None in turn for turn in answers) else sum(map(all, answers))


class Ways:
    """What a run with loops does where their counters are asked for."""

    log: Log
    path: Path
    #: how often what is met runs: the number of turns
    times: Formula
    #: the loops around, of the callers as well, and the tests of their counters on the way
    turns: Nest = Nest()
    #: names that differ from turn to turn as nobody tells: what rests on a test of them is in no cost
    carried: frozenset[str] = frozenset()
    #: loops of the callers, and the test by which a loop of this function is left early, with what leaves it
    outside: int = 0
    cut: tuple[ast.expr, type[ast.stmt]] | None = None
    #: tests by which the function is left in a loop, each with what a path says behind that loop
    left: tuple[tuple[ast.expr, str], ...] = ()
    #: `put(event, node, **fields)` of the run
    put: Callable[..., int]

    @property
    def changing(self) -> frozenset[str]:
        """Names that differ from turn to turn: counters, and what loops carry on."""
        return self.turns.names | self.carried

    def enter(self, counter: Counter, loop: ast.For | ast.While) -> None:
        """Go into a loop; where it is not told how often that is, the loop is left as one whose test nobody knows."""
        before, test = self.path, loop.iter if isinstance(loop, ast.For) else loop.test
        self.path = (*before, Step(ast.unparse(test), True, "taken", loop.lineno))
        if self.take(self.turns.within(counter)):
            self.path = before
        else:
            self.cut = self.cut or (test, ast.Break)

    def ways(self, test: ast.expr, asked: Expression | None) -> Iterator[bool]:
        """Both answers to a test, each in the turns that give it; `asked`: the test by its counters, None where that is not told."""
        place, told = len(self.log.events), True
        asked = None if asked is None or self.carried & set(names_of(asked)) else asked
        kept = self.path, self.turns, self.times
        for holds in (True, False):
            self.path = (*kept[0], Step(ast.unparse(test), holds, "some", test.lineno))
            told = self.take(None if asked is None else self.turns.where(asked, holds)) and told
            yield holds
            self.path, self.turns, self.times = kept
        if not told:
            self.untold(test, self.log.events[place:])

    def take(self, turns: Nest | None) -> bool:
        """Go on in these turns behind the last step of the path; whether it is told how many they are."""
        counts = turns.counts() if turns is not None else None
        if turns is None or counts is None or any(self.log.changed & set(names_of(count)) for count in counts):
            self.path = (*self.path[:-1], replace(self.path[-1], status="other"))
            return False
        self.turns = turns
        self.times = reduce(lambda total, count: total * self.log.counts.factor(count), counts, Formula.const(1))
        if counted(self.path):
            self.log.uneven.update((render(count), None) for count in counts if self.differs(count))
        return True

    def differs(self, number: Size | None) -> bool:
        """Whether a number is another in other programs."""
        names = set(names_of(number)) if number is not None else set()
        return bool(self.log.varying & names) or any("program_id(" in name for name in names)

    def untold(self, test: ast.expr, events: Iterable[Event]) -> None:
        """Say that events are in no cost, since nobody knows in how many turns a test holds; nor are those that other tests leave out there."""
        if parts := parts_of(events):
            what = f"what rests on `{ast.unparse(test)}`, of whose turns the number is not told"
            self.put(Unknown, test, what=what, loses=parts)

    def go_on(self, test: ast.expr, ways: Mapping[bool, tuple[Expression, ...]]) -> None:
        """Go on behind a test by the answers that lead on, each with the tests on its way; what follows is in no cost where that is not told."""
        before = self.path
        self.path = (*before, Step(ast.unparse(test), next(iter(ways)), "some", test.lineno))
        told = [joined("and", tests) for tests in ways.values() if tests]
        if not self.take(self.turns.where(joined("or", told)) if len(told) == len(ways) else None):
            self.cut = self.cut or (test, ast.Continue)
        elif len(ways) > 1:
            self.path = before

    def leaving(self, statement: ast.If) -> tuple[ast.expr, type[ast.stmt]] | None:
        """The test of a statement by which the loop around it is left, and how."""
        how = left_early(statement) if len(self.turns.loops) > self.outside else None
        return None if how is None else (statement.test, how)

    def leave(self, place: int) -> None:
        """Take from the cost what was met since then, in a loop that is left early or in turns that are not told."""
        if self.cut is None:
            return
        (test, by), met = self.cut, self.log.events[place:]
        own, beside = ast.unparse(test), len(self.path)
        step = Step(own, True, "other", test.lineno)
        self.log.events[place:] = [replace(e, path=(*e.path[:beside], step, *e.path[beside:])) for e in met]
        self.untold(test, [e for e in met if counted(tuple(s for s in e.path[beside:] if s.test != own))])
        if by is ast.Return and len(self.turns.loops) > self.outside:
            return
        self.cut = None
        if by is ast.Return:
            said = f"the loop around line {test.lineno} ends"
            self.left, self.path = (*self.left, (test, said)), (*self.path, Step(said, True, "other", test.lineno))

    def finish(self, place: int) -> None:
        """At the end of a function that began there: what stands behind loops in which it is left is in no cost."""
        for test, said in self.left:
            behind = [e for e in self.log.events[place:] if any(said in step.test for step in e.path)]
            self.path = tuple(step for step in self.path if said not in step.test)
            self.untold(test, [e for e in behind if counted(tuple(s for s in e.path if said not in s.test))])


def left_early(statement: ast.stmt) -> type[ast.stmt] | None:
    """How the loop around a statement may be left by it; of a loop, how it may itself be left."""
    inside = statement.body if isinstance(statement, ast.For | ast.While) else [statement]
    every = [node for one in inside for node in _of_this_loop(one)]
    return next((kind for kind in (ast.Return, ast.Break) if any(_leaves(node, kind) for node in every)), None)


def _leaves(node: ast.stmt, kind: type[ast.stmt]) -> bool:
    """Whether a statement leaves a loop so, by Python's word or by a call that says it."""
    named = kind is ast.Break and isinstance(node, ast.Expr) and "loop_break" in ast.unparse(node)
    return isinstance(node, kind) or named


def _of_this_loop(statement: ast.stmt) -> Iterator[ast.stmt]:
    """A statement and those in it: of loops in it, what returns."""
    yield statement
    for inner in ast.iter_child_nodes(statement):
        if isinstance(inner, ast.stmt):
            found = _of_this_loop(inner)
            yield from (
                (s for s in found if isinstance(s, ast.Return)) if isinstance(inner, ast.For | ast.While) else found
            )


__all__ = ["Nest", "Ways", "left_early"]
