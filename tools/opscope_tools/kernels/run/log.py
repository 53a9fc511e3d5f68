"""What the abstract run of a CUDA kernel leaves: FLOPs and bytes by line, and all that the sums rest on or lack."""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.kernels.run.events import Access, Call, Event, Loop, Part, TooManyStepsError
from opscope_tools.kernels.run.paths import Path, counted
from opscope_tools.kernels.values.notation import Counts

#: nodes that one run looks at: more is generated text, or loops in loops that are taken one iteration at a time
MOST_STEPS = 120_000
#: of these, nodes of branches that are not taken
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
    #: how often, in the block: a place in `Record.times`
    times: int
    flops: int = 0
    #: FLOPs of a matrix product; a fraction, since a warp makes it together
    product: Fraction = Fraction(0)
    read: str = ""
    written: str = ""
    #: loops around it
    loops: int = 0


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
class Record:
    """Of one kernel; shared by the runs of its functions."""

    counts: Counts = field(default_factory=Counts)
    entries: Counter[Entry] = field(default_factory=Counter)
    conditions: dict[str, None] = field(default_factory=dict)
    not_counted: dict[str, Lost] = field(default_factory=dict)
    #: what was met, each expression once on its way
    events: dict[tuple[Any, ...], Event] = field(default_factory=dict)
    #: compile-time names that measure a tile
    sizes: dict[str, Size] = field(default_factory=dict)
    #: functions whose assertions are put down
    checked: set[tuple[int, str]] = field(default_factory=set)
    #: the way to what is met
    path: Path = ()
    #: functions that were entered in branches that are not taken
    entered: set[tuple[int, str]] = field(default_factory=set)
    assumptions: dict[str, None] = field(default_factory=dict)
    #: quantities of the formulas that only this run names
    variables: dict[str, str] = field(default_factory=dict)
    #: amounts that differ between blocks
    uneven: dict[str, None] = field(default_factory=dict)
    #: how many tiles the blocks share, of each loop from a block's index by steps of the grid
    shared_tiles: dict[str, None] = field(default_factory=dict)
    #: tests that were taken to be so, by their formula
    settled: dict[str, bool] = field(default_factory=dict)
    #: quantities that a test was taken to give one value, and that value
    equal: dict[str, Any] = field(default_factory=dict)
    #: names that differ between blocks, and counters of loops
    of_blocks: set[str] = field(default_factory=set)
    counters: set[str] = field(default_factory=set)
    #: names of quantities, and where each is declared
    quantities: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    steps_aside: int = 0
    #: every formula of how often something runs, once
    times: list[Formula] = field(default_factory=list)
    _places: dict[Formula, int] = field(default_factory=dict)

    def place(self, times: Formula) -> int:
        """Where a formula of how often something runs stands."""
        if times not in self._places:
            self._places[times] = len(self.times)
            self.times.append(times)
        return self._places[times]

    def step(self) -> None:
        """Count a node. Raises `TooManyStepsError`."""
        self.steps += 1
        if not counted(self.path):
            self.steps_aside += 1
        if self.steps > MOST_STEPS or self.steps_aside > _MOST_ASIDE:
            raise TooManyStepsError

    def met(self, event: Event) -> None:
        """Put down an event; of an expression that is met again what is alike each time."""
        key = type(event), event.place, getattr(event, "what", ""), getattr(event, "text", "")
        known = self.events.get(key)
        if known is None or (event.counted and not known.counted):
            self.events[key] = event
        elif known != event and event.counted == known.counted:
            self.events[key] = _alike(known, event)

    def supposed(self) -> Supposed:
        """Begin to run the side of a branch that is not taken: what it changes here is undone by `restore`."""
        kept = {name: copy(getattr(self, name)) for name in _OF_A_SIDE}
        return Supposed(self.aside(), kept)

    def restore(self, supposed: Supposed) -> None:
        """End what `supposed` began."""
        self.back(supposed.aside)
        for name, value in supposed.kept.items():
            setattr(self, name, value)

    def aside(self) -> tuple[Any, ...]:
        """Begin to record apart from what there is; `back` ends it."""
        kept = self.entries, self.not_counted, self.conditions
        self.entries, self.not_counted, self.conditions = Counter(), {}, {}
        return kept

    def back(self, kept: tuple[Any, ...]) -> Apart:
        """End what `aside` began, and give what was recorded since."""
        made = Apart(self.entries, self.not_counted, self.conditions)
        self.entries, self.not_counted, self.conditions = kept
        return made

    def add(self, apart: Apart) -> None:
        """Put to the record what was kept apart."""
        self.entries.update(apart.entries)
        self.not_counted.update(apart.not_counted)
        self.conditions.update(apart.conditions)


#: what the side of a branch that is not taken leaves as it was
_OF_A_SIDE = ("path", "settled", "equal", "of_blocks", "counters", "uneven", "assumptions", "variables", "quantities")


@dataclass(frozen=True)
class Supposed:
    """What there was before a branch that is not taken."""

    aside: tuple[Any, ...]
    kept: dict[str, Any]


def _alike(one: Event, other: Event) -> Event:
    """Of two events of one expression what both say: on the way that they have in common."""
    path = tuple(a for a, b in zip(one.path, other.path, strict=False) if a == b)
    changes: dict[str, Any] = {"path": path}
    if isinstance(one, Access) and isinstance(other, Access):
        roots = tuple(dict.fromkeys((*one.roots, *other.roots)))
        changes |= {"roots": roots, "steps": one.steps if one.steps == other.steps else ()}
        changes |= {"width": one.width if one.width == other.width else None}
        changes |= {"element_bytes": one.element_bytes if one.element_bytes == other.element_bytes else ""}
        changes |= {"space": one.space if one.space == other.space else "unknown"}
    elif isinstance(one, Loop) and isinstance(other, Loop):
        changes |= {"trips": one.trips if one.trips == other.trips else ""}
    elif isinstance(one, Call) and isinstance(other, Call):
        changes |= {"followed": one.followed or other.followed}
    return replace(one, **changes)


@dataclass(frozen=True)
class Apart:
    entries: Counter[Entry]
    not_counted: dict[str, Lost]
    conditions: dict[str, None]

    @property
    def nothing(self) -> bool:
        """Whether it costs nothing, for certain."""
        return not self.entries and not self.not_counted

    @property
    def parts(self) -> frozenset[Part]:
        """The parts of a cost that it has something of."""
        found = {part for lost in self.not_counted.values() for part in lost.parts}
        for entry in self.entries:
            told: dict[Part, Any] = {
                "flops": entry.flops or entry.product, "matmul": entry.product, "read": entry.read, "write": entry.written
            }  # fmt: skip
            found |= {part for part, amount in told.items() if amount}
        return frozenset(found)

    def same(self, other: Apart) -> bool:
        """Whether two cost the same: on other lines perhaps, but all of it counted."""
        return not (self.not_counted or other.not_counted) and self._sums() == other._sums()

    def _sums(self) -> dict[tuple[Any, ...], int]:
        made: Counter[tuple[Any, ...]] = Counter()
        for entry, count in self.entries.items():
            made["flops", entry.times] += entry.flops * count
            for kind, size in (("read", entry.read), ("written", entry.written)):
                if size:
                    made[kind, size, entry.times] += count
            if entry.product:
                made["product", entry.product, entry.times] += count
        return {k: v for k, v in made.items() if v}
