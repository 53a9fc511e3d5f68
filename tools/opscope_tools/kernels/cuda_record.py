"""What the abstract run of a CUDA kernel leaves: FLOPs and bytes by line, and all that the sums rest on or lack."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.kernels.counts import Counts

#: nodes that one run looks at: more is generated text, or loops in loops that are taken one iteration at a time
MOST_STEPS = 60_000


class TooManyStepsError(Exception):
    """A run that does not end soon."""


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


@dataclass
class Record:
    """Of one kernel; shared by the runs of its functions."""

    counts: Counts = field(default_factory=Counts)
    entries: Counter[Entry] = field(default_factory=Counter)
    conditions: dict[str, None] = field(default_factory=dict)
    not_counted: dict[str, None] = field(default_factory=dict)
    assumptions: dict[str, None] = field(default_factory=dict)
    #: quantities of the formulas that only this run names
    variables: dict[str, str] = field(default_factory=dict)
    #: amounts that differ between blocks
    uneven: dict[str, None] = field(default_factory=dict)
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
        if self.steps > MOST_STEPS:
            raise TooManyStepsError

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


@dataclass(frozen=True)
class Apart:
    entries: Counter[Entry]
    not_counted: dict[str, None]
    conditions: dict[str, None]

    @property
    def nothing(self) -> bool:
        """Whether it costs nothing, for certain."""
        return not self.entries and not self.not_counted

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
