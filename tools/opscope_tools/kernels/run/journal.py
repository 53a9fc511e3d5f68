"""The events of one kernel in the order in which its run met them, with what their formulas rest on."""

from __future__ import annotations

from dataclasses import dataclass, field

from opscope_tools.kernels.run.events import Event, TooManyStepsError
from opscope_tools.kernels.values.notation import Counts

#: statements that one run looks at: more is generated text
MOST_STEPS = 60_000


@dataclass
class Journal:
    """Shared by the runs of all functions of a kernel."""

    counts: Counts = field(default_factory=Counts)
    events: list[Event] = field(default_factory=list)
    #: places in `events` of the loads whose values are addresses, bounds or masks
    indices: set[int] = field(default_factory=set)
    #: quantities of the formulas that are no names of the source, and what they are
    variables: dict[str, str] = field(default_factory=dict)
    #: amounts that differ between programs
    uneven: dict[str, None] = field(default_factory=dict)
    #: iterations of a loop from the program's index -> (axis, bound, step): where the step is the grid, programs share the bound
    from_index: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    #: names that a function of the kernel gives to what has no formula
    local_names: set[str] = field(default_factory=set)
    #: names that differ between programs or iterations, and counters of loops
    varying: set[str] = field(default_factory=set)
    counters: set[str] = field(default_factory=set)
    #: what stands for a word of the language: how it is spelled, and what that is
    wrapped: dict[str, str] = field(default_factory=dict)
    steps: int = 0

    def step(self) -> None:
        """Count a statement. Raises `TooManyStepsError`."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooManyStepsError

    def put(self, event: Event) -> int:
        """Where the event now stands."""
        self.events.append(event)
        return len(self.events) - 1
