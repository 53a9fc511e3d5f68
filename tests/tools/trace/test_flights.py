"""One trace for all who ask at the same time; who gives up takes nothing from the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
from opscope_schemas.errors import CancelledError, TraceError
from opscope_tools.trace.flights import Flights, Running

LONG = 60.0


class Asking(threading.Thread):
    """One caller, in a thread of its own."""

    def __init__(self, flights: Flights, work: Callable[[Running], str]) -> None:
        super().__init__(daemon=True)
        self.cancelled = threading.Event()
        self.heard: list[str] = []
        self.found: str | Exception | None = None
        self._ask = partial(flights.shared, "key", work, Running(self.cancelled, self.heard.append))
        self.start()

    def run(self) -> None:
        try:
            self.found = self._ask()
        except Exception as error:
            self.found = error

    def result(self) -> object:
        self.join(LONG)
        return self.found


class Worker:
    """Work that ends when it is told to, or when it is cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.opened = threading.Event()
        self.count = 0
        self.looked = 0

    def __call__(self, running: Running) -> str:
        self.count += 1
        running.progress("tracing")
        self.begun.release()
        while not self.opened.wait(0.005):
            if running.cancelled.is_set():
                raise CancelledError("The call was cancelled.")
            self.looked += 1
        running.progress("traced")
        return "trace"


def joined(flights: Flights, work: Worker, count: int) -> list[Asking]:
    """So many callers of the same trace, all of whom wait."""
    first = Asking(flights, work)
    assert work.begun.acquire(timeout=LONG)
    callers = [first, *(Asking(flights, work) for _ in range(count - 1))]
    waiting = flights._under_way["key"].waiting
    while len(waiting) < count:
        threading.Event().wait(0.001)
    return callers


def test_callers_at_the_same_time_get_one_trace_and_hear_its_progress() -> None:
    flights, work = Flights(), Worker()
    callers = joined(flights, work, 3)
    work.opened.set()
    assert [caller.result() for caller in callers] == ["trace"] * 3
    assert work.count == 1
    assert all(caller.heard[-1] == "traced" for caller in callers)


def test_the_first_caller_may_leave_without_the_others_losing_anything() -> None:
    flights, work = Flights(), Worker()
    first, second = joined(flights, work, 2)
    first.cancelled.set()
    assert isinstance(first.result(), CancelledError)
    before = work.looked
    while second.is_alive() and work.looked < before + 2:
        threading.Event().wait(0.001)
    work.opened.set()
    assert second.result() == "trace"
    assert work.count == 1


def test_when_all_have_left_the_work_is_stopped_and_the_next_caller_begins_anew() -> None:
    flights, work = Flights(), Worker()
    for caller in joined(flights, work, 2):
        caller.cancelled.set()
        assert isinstance(caller.result(), CancelledError)
    work.opened.set()
    assert Asking(flights, work).result() == "trace"
    assert work.count == 2


def test_a_failure_reaches_every_caller_and_is_not_kept() -> None:
    flights = Flights()

    def broken(running: Running) -> str:
        del running
        raise TraceError("The forward stops.")

    for _ in range(2):
        with pytest.raises(TraceError, match="The forward stops"):
            flights.shared("key", broken, Running(threading.Event(), lambda _: None))
    assert not flights._under_way
