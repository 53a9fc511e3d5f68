"""Where calls are computed: a lane for each kind of work, with slots, a bounded queue and a deadline that is kept.

Order: what a lane allows, one computation and those who wait for it, the lanes themselves. A computation runs in a thread of its
own. One thread, the keeper, starts them and watches the clock: at the deadline the callers are answered and the tool
is told to stop; a thread that goes on is interrupted, and one that still goes on is given up, its slot with it. Callers that ask for
the same result at the same time wait for one computation.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from opscope_schemas.errors import BusyError, CancelledError, DeadlineError
from opscope_tools.running.tool import Lane, ToolContext
from opscope_tools.running.workspace import Workspace

from opscope_server.interrupt import Interrupted, interrupt, withdraw

#: progress: done, of how much, and a message
Note = tuple[float, float | None, str]
#: how often a thread that ignores its end is interrupted before it is given up
_INTERRUPTIONS = 3
_NO_THREAD = "opscope is busy: the system gives it no more threads; try again later."
#: durations of past calls that an estimate looks at
_REMEMBERED = 16


@dataclass(frozen=True)
class LaneRules:
    """What one kind of work may take."""

    #: as a sentence names it
    kind: str
    #: calls that run at the same time, and that wait for a slot
    slots: int
    room: int
    #: seconds for each call, the wait included
    deadline: float
    #: where an operator sets the deadline
    variable: str


@dataclass(frozen=True)
class Outcome:
    """How a computation ended: with a value, or with what it raised."""

    value: object = None
    error: Exception | None = None

    def get(self) -> object:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


class Listener(Protocol):
    """Somebody who waits for a computation. Called from any thread; must not block."""

    def tell(self, note: Note) -> None: ...
    def settle(self, outcome: Outcome) -> None: ...


@dataclass(eq=False)
class Job:
    """One computation and who waits for it. The lanes' lock guards what is not said to be guarded otherwise."""

    body: Callable[[ToolContext], object]
    lane: Lane
    key: str
    deadline: float
    listeners: list[Listener]
    stop: threading.Event = field(default_factory=threading.Event)
    begun: float | None = None
    #: the thread that may be interrupted, and what guards it: a plain lock, which `with` takes in one instruction, so that an
    #: interruption cannot come between taking it and knowing so
    thread: int | None = None
    guard: threading.Lock = field(default_factory=threading.Lock)
    #: when it was told to stop, and how often it has been interrupted since
    stopped: float | None = None
    interruptions: int = 0

    def due(self, grace: float) -> float:
        """When the keeper has to look at it again."""
        if self.stopped is None:
            return self.deadline
        return self.stopped + grace * (1 + self.interruptions)

    def tell(self, note: Note) -> None:
        """Pass progress on to whoever waits."""
        for listener in list(self.listeners):
            listener.tell(note)

    def settle(self, outcome: Outcome) -> None:
        """Answer whoever still waits; later outcomes find nobody."""
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener.settle(outcome)


@dataclass(eq=False)
class _State:
    rules: LaneRules
    running: set[Job] = field(default_factory=set)
    waiting: deque[Job] = field(default_factory=deque)
    #: given up: their threads run on, outside every slot
    stuck: set[Job] = field(default_factory=set)
    took: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class Lanes:
    """All lanes of a server. Every method may be called from any thread, and returns at once but `stop`."""

    def __init__(
        self, workspace: Workspace, rules: Mapping[Lane, LaneRules], *, grace: float,
        on_interrupt: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._workspace = workspace
        self._states = {lane: _State(given) for lane, given in rules.items()}
        self._grace = grace
        self._on_interrupt = on_interrupt
        self._changed = threading.Condition()
        self._flights: dict[str, Job] = {}
        self._keeper: threading.Thread | None = None

    # ---- for callers -----------------------------------------------------------------------------------------------

    def enter(self, lane: Lane, body: Callable[[ToolContext], object], listener: Listener, key: str = "") -> Job:
        """Have `body` computed, or wait for the computation of that key that is under way. Raises `BusyError`."""
        with self._changed:
            shared = self._flights.get(key)
            if shared is not None:
                shared.listeners.append(listener)
                return shared
            state = self._states[lane]
            self._refuse_if_full(state)
            job = Job(body, lane, key, time.monotonic() + state.rules.deadline, [listener])
            state.waiting.append(job)
            if key:
                self._flights[key] = job
            self._wake_keeper()
            return job

    def leave(self, job: Job, listener: Listener) -> None:
        """`listener` waits no longer; the last one to leave stops the computation."""
        with self._changed:
            if listener not in job.listeners:
                return  # it has its answer
            job.listeners.remove(listener)
            if not job.listeners:
                self._tell_to_stop(job, time.monotonic())
                self._wake_keeper()

    def position(self, job: Job) -> int | None:
        """How many wait before it; None where it waits no longer."""
        with self._changed:
            waiting = self._states[job.lane].waiting
            return waiting.index(job) if job in waiting else None

    def stop(self, grace: float) -> bool:
        """Stop everything and wait for at most `grace` seconds; whether all of it has ended."""
        with self._changed:
            for job in self._jobs():
                job.stop.set()
            return self._changed.wait_for(lambda: not any(s.running for s in self._states.values()), max(0.0, grace))

    # ---- the keeper ------------------------------------------------------------------------------------------------

    def _jobs(self) -> list[Job]:
        return [job for state in self._states.values() for job in (*state.waiting, *state.running)]

    def _wake_keeper(self) -> None:
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, name="opscope lanes", daemon=True)
            self._keeper.start()
        self._changed.notify_all()

    def _keep(self) -> None:
        """Start what has a slot and see to what is due, as long as there is anything."""
        while True:
            with self._changed:
                for job in self._jobs():
                    if job.due(self._grace) <= time.monotonic():
                        self._overdue(job)
                started = self._take_slots()
                jobs = self._jobs()
                if not jobs:
                    self._keeper = None
                    return
                if not started:
                    self._changed.wait(max(0.0, min(job.due(self._grace) for job in jobs) - time.monotonic()))
            for job in started:  # outside the lock: a start waits for the new thread
                try:
                    threading.Thread(target=self._run, args=(job,), name=f"opscope {job.lane}", daemon=True).start()
                except RuntimeError:  # the system gives no more threads
                    with self._changed:
                        self._end(job, Outcome(error=BusyError(_NO_THREAD)))

    def _take_slots(self) -> list[Job]:
        started: list[Job] = []
        for state in self._states.values():
            while state.waiting and len(state.running) < state.rules.slots:
                job = state.waiting.popleft()
                job.begun = time.monotonic()
                state.running.add(job)
                started.append(job)
        return started

    def _overdue(self, job: Job) -> None:
        """The deadline has come, or the grace after it."""
        now = time.monotonic()
        if job.stopped is None:
            rules = self._states[job.lane].rules
            waited = now - (job.deadline - rules.deadline) if job.begun is None else 0.0
            job.settle(Outcome(error=_late(rules, waited)))
            self._tell_to_stop(job, now)
        elif job.interruptions < _INTERRUPTIONS:
            job.interruptions += 1
            with job.guard:
                if job.thread is not None:
                    interrupt(job.thread)
        else:
            state = self._states[job.lane]
            state.running.discard(job)
            state.stuck.add(job)

    def _tell_to_stop(self, job: Job, now: float) -> None:
        job.stop.set()
        job.stopped = now
        if self._flights.get(job.key) is job:
            del self._flights[job.key]
        with contextlib.suppress(ValueError):
            self._states[job.lane].waiting.remove(job)

    # ---- a computation's thread ------------------------------------------------------------------------------------

    def _run(self, job: Job) -> None:
        outcome: Outcome | None = None
        while True:  # an interruption may come at any point up to the end of `_close`
            try:
                if outcome is None:
                    outcome = self._computed(job)
                self._close(job)
                break
            except Interrupted:
                outcome = outcome or Outcome(error=CancelledError("The call was cancelled."))
        if job.interruptions:
            self._on_interrupt()
        with self._changed:
            self._end(job, outcome)

    def _computed(self, job: Job) -> Outcome:
        def progress(done: float, total: float | None, message: str) -> None:
            if not job.stop.is_set():
                job.tell((done, total, message))

        with job.guard:
            job.thread = threading.get_ident()
        try:
            return Outcome(job.body(ToolContext(self._workspace, progress=progress, cancelled=job.stop)))
        except Exception as error:
            return Outcome(error=error)
        except Interrupted:
            raise
        except BaseException as error:  # a tool that exits must not take the server with it
            return Outcome(error=RuntimeError(f"the tool ended with {type(error).__name__}: {error}"))

    def _close(self, job: Job) -> None:
        """From here on nothing interrupts the thread."""
        with job.guard:
            withdraw(threading.get_ident())
            job.thread = None

    def _end(self, job: Job, outcome: Outcome) -> None:
        state = self._states[job.lane]
        state.running.discard(job)
        state.stuck.discard(job)
        if self._flights.get(job.key) is job:
            del self._flights[job.key]
        if job.begun is not None and job.stopped is None:
            state.took.append(time.monotonic() - job.begun)
        job.settle(outcome)
        self._changed.notify_all()

    # ---- sentences -------------------------------------------------------------------------------------------------

    def _refuse_if_full(self, state: _State) -> None:
        rules, running, waiting = state.rules, len(state.running), len(state.waiting)
        if len(state.stuck) >= max(2, rules.slots):
            raise BusyError(
                f"opscope is busy: {len(state.stuck)} {rules.kind} have not stopped at their deadline.",
                next_step="Try again later, or restart the server.",
            )
        if running + waiting >= rules.slots + rules.room:
            raise BusyError(
                f"opscope is busy with {rules.kind}: {running} running, {waiting} waiting; "
                f"try again in about {self._estimate(state)} s."
            )

    def _estimate(self, state: _State) -> int:
        """Seconds until a call that came now would have a slot, from how long calls took lately; at most the deadline."""
        now = time.monotonic()
        known = list(state.took) or [now - job.begun for job in state.running if job.begun is not None]
        each = sum(known) / len(known) if known else 1.0
        return max(1, math.ceil(min(each * (len(state.waiting) + 1) / state.rules.slots, state.rules.deadline)))


def _late(rules: LaneRules, waited: float) -> DeadlineError:
    what = f"waited {waited:.0f} s for a slot" if waited else "took longer"
    return DeadlineError(
        f"The call {what}, and {rules.kind} may take {rules.deadline:g} s; it was stopped.",
        next_step=f"Ask for less (a narrower target, one repository, fewer rows), or have {rules.variable} raised.",
    )
