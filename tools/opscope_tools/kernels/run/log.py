"""What the abstract run of a kernel leaves: the events that it met, and all that their formulas rest on or lack.

Costs of CUDA are added up on the way (`Sums`), since a line of it runs in many turns, calls and threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.kernels.run.events import Access, Call, Event, Loop, Part, TooManyStepsError
from opscope_tools.kernels.run.paths import Answers
from opscope_tools.kernels.values.notation import Counts

#: steps of branches that are not taken
_MOST_ASIDE = 40_000
EVERY: frozenset[Part] = frozenset({"flops", "matmul", "read", "write"})
MEMORY: frozenset[Part] = frozenset({"read", "write"})
FLOPS: frozenset[Part] = frozenset({"flops"})


@dataclass(frozen=True, slots=True)
class Entry:
    """FLOPs and bytes of one kind that a line adds to a block."""

    file: str
    line: int
    via: str
    operation: str
    #: how often, in the block: a place in `Log.times`
    times: int
    flops: int = 0
    #: FLOPs of a matrix product; a fraction, since a warp makes it together
    product: Fraction = Fraction(0)
    read: str = ""
    written: str = ""
    #: loops around it
    loops: int = 0

    @property
    def parts(self) -> frozenset[Part]:
        """The parts of a cost that it adds to."""
        told: dict[Part, object] = {
            "flops": self.flops or self.product, "matmul": self.product, "read": self.read, "write": self.written
        }  # fmt: skip
        return frozenset(part for part, amount in told.items() if amount)


@dataclass(frozen=True, slots=True)
class Lost:
    """What something that is not counted takes from the sums: parts of them, and how many loops deep."""

    parts: frozenset[Part] = EVERY
    loops: int = 0


@dataclass
class Size:
    """What says that a name measures a tile, with its line, and what the name stands for."""

    uses: dict[str, int]
    value: str = ""


@dataclass
class Sums:
    """What a part of a run adds up to."""

    entries: Counter[Entry] = field(default_factory=Counter)
    not_counted: dict[str, Lost] = field(default_factory=dict)
    conditions: dict[str, None] = field(default_factory=dict)

    @property
    def nothing(self) -> bool:
        """Whether it costs nothing, for certain."""
        return not self.entries and not self.not_counted

    def lose(self, what: str, lost: Lost) -> None:
        """Note that something is not counted, beside what is known of it."""
        known = self.not_counted.get(what, Lost(frozenset(), 0))
        self.not_counted[what] = Lost(known.parts | lost.parts, max(known.loops, lost.loops))

    @property
    def parts(self) -> frozenset[Part]:
        """The parts of a cost that it has something of."""
        found = {part for lost in self.not_counted.values() for part in lost.parts}
        return frozenset(found).union(*(entry.parts for entry in self.entries))

    def same(self, other: Sums) -> bool:
        """Whether two cost the same: on other lines perhaps, but all of it counted."""
        return not (self.not_counted or other.not_counted) and self._sums() == other._sums()

    def _sums(self) -> dict[tuple[object, ...], int]:
        made: Counter[tuple[object, ...]] = Counter()
        for entry, count in self.entries.items():
            made["flops", entry.times] += entry.flops * count
            for kind, size in (("read", entry.read), ("written", entry.written)):
                if size:
                    made[kind, size, entry.times] += count
            if entry.product:
                made["product", entry.product, entry.times] += count
        return {k: v for k, v in made.items() if v}


@dataclass
class Log:
    """Of one kernel; shared by the runs of its functions."""

    #: steps that a run takes: more is generated text, or loops in loops that are taken one iteration at a time
    most_steps: int
    counts: Counts = field(default_factory=Counts)
    #: in the order in which they were met first
    events: list[Event] = field(default_factory=list)
    #: places in `events` of the loads whose values are addresses, bounds or masks
    indices: set[int] = field(default_factory=set)
    #: of those whose values floating-point operations compute with: data, even where a mask is made of them too
    floats: set[int] = field(default_factory=set)
    sums: Sums = field(default_factory=Sums)
    #: every formula of how often something runs, once
    times: list[Formula] = field(default_factory=list)
    #: compile-time names that measure a tile
    sizes: dict[str, Size] = field(default_factory=dict)
    answers: Answers = field(default_factory=Answers)
    assumptions: dict[str, None] = field(default_factory=dict)
    #: quantities of the formulas that are no names of the source, and what they are
    variables: dict[str, str] = field(default_factory=dict)
    #: amounts that differ between programs or blocks
    uneven: dict[str, None] = field(default_factory=dict)
    #: how many tiles the blocks share, of each loop from a block's index by steps of the grid (CUDA)
    shared_tiles: dict[str, None] = field(default_factory=dict)
    #: iterations of a loop from the program's index -> (axis, bound, step): where the step is the grid, programs share the bound (Triton)
    from_index: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    #: names that a function of the kernel gives to what has no formula, and where
    names: dict[str, str] = field(default_factory=dict)
    #: names that differ between programs or blocks, and counters of loops
    varying: set[str] = field(default_factory=set)
    counters: set[str] = field(default_factory=set)
    #: names of what a loop changes, in it and behind it: no cost counts by them (languages of Python)
    changed: set[str] = field(default_factory=set)
    #: the kernel's parameters: what else has such a name goes on under one of its own (Triton)
    parameters: frozenset[str] = frozenset()
    #: what stands for a word of the language: how it is spelled, and what that is
    wrapped: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    steps_aside: int = 0
    #: of events that may be met again, and of formulas
    _places: dict[Hashable, int] = field(default_factory=dict)

    def only_indices(self, sources: frozenset[int]) -> bool:
        """Whether what is computed from these loads is an address, a bound or a mask, and no data."""
        return bool(sources) and sources <= self.indices - self.floats

    def step(self, counts: bool = True) -> None:
        """Count a step; `counts`: whether a cost counts what it does. Raises `TooManyStepsError`."""
        self.steps += 1
        self.steps_aside += not counts
        if self.steps > self.most_steps or self.steps_aside > _MOST_ASIDE:
            raise TooManyStepsError

    def put(self, event: Event) -> int:
        """Put down an event, and say where it stands."""
        self.events.append(event)
        return len(self.events) - 1

    def met(self, event: Event) -> None:
        """Put down an event; of an expression that is met again what is alike each time."""
        key = (
            type(event), event.place, getattr(event, "what", ""), getattr(event, "text", ""), getattr(event, "space", "")
        )  # fmt: skip
        place = self._places.setdefault(key, len(self.events))
        if place == len(self.events):
            self.events.append(event)
            return
        known = self.events[place]
        if event.counted and not known.counted:
            self.events[place] = event
        elif known != event and event.counted == known.counted:
            self.events[place] = _alike(known, event)

    def place(self, times: Formula) -> int:
        """Where a formula of how often something runs stands."""
        place = self._places.setdefault(times, len(self.times))
        if place == len(self.times):
            self.times.append(times)
        return place

    @contextmanager
    def supposed(self) -> Iterator[None]:
        """A side that is not taken: of what it puts down the events are kept."""
        kept = {name: getattr(self, name).copy() for name in _OF_A_SIDE}
        with self.apart():
            yield
        vars(self).update(kept)

    @contextmanager
    def apart(self) -> Iterator[Sums]:
        """Sums of what is met meanwhile, which `add` puts to the others."""
        kept, self.sums = self.sums, Sums()
        try:
            yield self.sums
        finally:
            self.sums = kept

    def add(self, apart: Sums, *alike: Sums) -> None:
        """Put to the sums what was kept apart; `alike`: what costs the same on conditions of its own."""
        self.sums.entries.update(apart.entries)
        for what, lost in apart.not_counted.items():
            self.sums.lose(what, lost)
        for one in (apart, *alike):
            self.sums.conditions.update(one.conditions)


#: what the side of a branch that is not taken leaves as it was
_OF_A_SIDE = ("answers", "varying", "counters", "uneven", "assumptions", "variables", "names")


def _alike(one: Event, other: Event) -> Event:
    """Of two events of one expression what both say: on the way that they have in common."""
    path = tuple(a for a, b in zip(one.path, other.path, strict=False) if a == b)
    changes: dict[str, Any] = {"path": path}
    if isinstance(one, Access) and isinstance(other, Access):
        roots = tuple(dict.fromkeys((*one.roots, *other.roots)))
        changes |= {"roots": roots, "steps": one.steps if one.steps == other.steps else ()}
        changes |= {"width": one.width if one.width == other.width else None}
        changes |= {"element_bytes": one.element_bytes if one.element_bytes == other.element_bytes else ""}
    elif isinstance(one, Loop) and isinstance(other, Loop):
        changes |= {"trips": one.trips if one.trips == other.trips else ""}
    elif isinstance(one, Call) and isinstance(other, Call):
        changes |= {"followed": one.followed or other.followed}
    return replace(one, **changes)
