"""One trace for all who ask for it at the same time: the worker is asked once, and stopped when the last of them gives up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from opscope_schemas.errors import CancelledError

#: seconds between two looks at whether the caller has given up
_POLL_SECONDS = 0.05
#: seconds that the worker gets to end when the last caller has given up
_ENDING_SECONDS = 10.0


@dataclass(frozen=True)
class Running:
    """How a caller hears of progress and stops the work."""

    cancelled: threading.Event
    progress: Callable[[str], None]


@dataclass(eq=False)
class _Flight:
    """One piece of work under way and those who wait for it."""

    waiting: list[Running] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    found: Any = None
    failure: Exception | None = None

    def tell(self, text: str) -> None:
        for caller in list(self.waiting):
            caller.progress(text)


class Flights:
    """Work by key. Each piece runs in a thread of its own, so that no caller has to stay for the sake of the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, _Flight] = {}

    def shared(self, key: str, work: Callable[[Running], Any], caller: Running) -> Any:
        """What `work` gives, or gave to the first of those who asked under this key. Raises what it raises; `CancelledError`
        where this caller gives up, which stops the work only if nobody else waits for it."""
        with self._lock:
            flight = self._under_way.get(key)
            if flight is None:
                flight = self._under_way[key] = _Flight()
                thread = threading.Thread(target=self._fly, args=(key, flight, work), name="opscope trace", daemon=True)
            else:
                thread = None
            flight.waiting.append(caller)
        if thread is not None:
            thread.start()
        try:
            while not flight.done.wait(_POLL_SECONDS):
                if caller.cancelled.is_set():
                    raise CancelledError("The call was cancelled.")
        except BaseException:  # Ctrl-C on a command line too
            self._leave(key, flight, caller)
            raise
        if flight.failure is not None:
            raise flight.failure
        return flight.found

    def _leave(self, key: str, flight: _Flight, caller: Running) -> None:
        with self._lock:
            flight.waiting.remove(caller)
            last = not flight.waiting
            if last and self._under_way.get(key) is flight:
                del self._under_way[key]  # whoever asks now begins anew
        if last:
            flight.cancelled.set()
            flight.done.wait(_ENDING_SECONDS)

    def _fly(self, key: str, flight: _Flight, work: Callable[[Running], Any]) -> None:
        try:
            flight.found = work(Running(flight.cancelled, flight.tell))
        except Exception as error:
            flight.failure = error
        finally:
            with self._lock:
                if self._under_way.get(key) is flight:
                    del self._under_way[key]
            flight.done.set()
