"""Runs tool calls beside the event loop and tells the caller about them: looking up what is kept, computing what is not.

What is kept is looked up in threads of its own, which never do anything else: an answer that the store has waits for nobody.
What has to be computed goes to its lane (lanes.py). While a call waits or runs, its caller hears something every
two seconds: what the tool says, or, where the tool says nothing, the last of it again with the time that has passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar, cast

import anyio
from opscope_schemas.errors import DeadlineError
from opscope_tools.running.tool import Lane, ToolContext
from opscope_tools.running.workspace import Workspace

from opscope_server.lanes import Lanes, Note, Outcome
from opscope_server.settings import Settings

T = TypeVar("T")
Report = Callable[[float, float | None, str], Awaitable[None]]
#: progress notes that may wait for a slow client before the oldest are dropped
BACKLOG = 64
#: threads that look up what is kept
_LOOKING = 4


class Work:
    """The calls that are looked up, wait, or run."""

    def __init__(self, workspace: Workspace, settings: Settings) -> None:
        self.workspace = workspace
        self._settings = settings
        rules = settings.lanes(workspace.trace_timeout)
        self._patience = rules["static"].deadline
        self._lanes = Lanes(workspace, rules, grace=settings.grace, on_interrupt=partial(_forget, workspace))
        self._lookers = ThreadPoolExecutor(_LOOKING, thread_name_prefix="opscope kept")

    async def look(self, body: Callable[[], T], report: Report | None = None) -> T:
        """What `body` says; it may look things up, and computes nothing. Raises what it raises."""
        caller: _Caller[T] = _Caller(report, self._settings.heartbeat)

        def settle(done: Future[T]) -> None:
            error = done.exception()
            if error is None:
                caller.settle(Outcome(done.result()))
            else:
                caller.settle(Outcome(error=error if isinstance(error, Exception) else RuntimeError(repr(error))))

        self._lookers.submit(body).add_done_callback(settle)
        with anyio.move_on_after(self._patience):
            return await caller.outcome(lambda: "looking for a kept answer")
        raise DeadlineError(
            f"Looking for a kept answer took longer than {self._patience:g} s.",
            next_step="Try again: the disk that holds the sources or the cache is slow.",
        )

    async def run(
        self, lane: Lane, body: Callable[[ToolContext], T], report: Report | None = None, *, key: str = ""
    ) -> T:
        """What `body` computes in its lane, once for all who ask under the same `key`. Raises what it raises, `BusyError`,
        `DeadlineError`. Cancelling stops the computation where nobody else waits for it."""
        caller: _Caller[T] = _Caller(report, self._settings.heartbeat)
        job = self._lanes.enter(lane, body, caller, key)

        def doing() -> str:
            before = self._lanes.position(job)
            return "working" if before is None else f"waiting for a slot, {before} before you"

        try:
            return await caller.outcome(doing)
        finally:
            self._lanes.leave(job, caller)

    def stop(self, grace: float) -> bool:
        """Cancel every running call and wait for at most `grace` seconds; whether all of them have ended."""
        return self._lanes.stop(grace)


def _forget(workspace: Workspace) -> None:
    """What an interrupted call may have left half built."""
    from opscope_tools.running.engines import (
        forget_indexes,  # here: the engines are loaded by the first call, not at start
    )

    forget_indexes(workspace)


class _Caller(Generic[T]):
    """One call's end of the line: takes progress and the outcome from any thread, and passes them on in its own loop."""

    def __init__(self, report: Report | None, heartbeat: float) -> None:
        self._report = report
        self._heartbeat = heartbeat
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._notes: deque[Note] = deque(maxlen=BACKLOG)
        self._outcome: Outcome | None = None
        self._begun = time.monotonic()
        self._last = -1.0

    def tell(self, note: Note) -> None:
        self._notes.append(note)
        self._wake()

    def settle(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody listens any more
            self._loop.call_soon_threadsafe(self._news.set)

    async def outcome(self, doing: Callable[[], str]) -> T:
        """Pass on what is told until there is an outcome; `doing` names what goes on where the tool has said nothing."""
        said: Note | None = None
        while True:
            try:
                async with asyncio.timeout(self._heartbeat):
                    await self._news.wait()
            except TimeoutError:
                await self._say(self._again(said, doing()))
                continue
            self._news.clear()
            while self._notes:
                said = self._notes.popleft()
                await self._say(said)
            if self._outcome is not None:
                return cast(T, self._outcome.get())

    def _again(self, said: Note | None, doing: str) -> Note:
        done, total, message = said or (0.0, None, "")
        return done, total, f"{message or doing} ({time.monotonic() - self._begun:.0f} s)"

    async def _say(self, note: Note) -> None:
        """Tell the client. The protocol wants progress to grow, so a note that does not advance creeps."""
        if self._report is None:
            return
        done, total, message = note
        self._last = done if done > self._last else self._last + 1e-3
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the client has gone
            await self._report(self._last, total, message)
