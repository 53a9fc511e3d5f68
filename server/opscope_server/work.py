"""Runs tool calls beside the event loop: a bounded number of threads, progress relayed, cancellation that stops them.

The SDK reads stdin in the same thread pool that its own synchronous tools use, so heavy calls get a limiter of their
own; a cancelled call abandons its thread, whose context then raises at its next checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream
from opscope_tools.spec import ToolContext
from opscope_tools.workspace import Workspace

T = TypeVar("T")
Report = Callable[[float, float | None, str], Awaitable[None]]
#: progress notes that may wait for a slow client before the next ones are dropped
BACKLOG = 64


class Work:
    """The calls that are running, and the ceiling on their number."""

    def __init__(self, workspace: Workspace, ceiling: int) -> None:
        self._workspace = workspace
        self._limiter = anyio.CapacityLimiter(ceiling)
        self._changed = threading.Condition()
        self._running: set[threading.Event] = set()

    async def run(self, body: Callable[[ToolContext], T], report: Report | None = None) -> T:
        """`body` in a thread of its own. Raises what it raises; cancelling this call cancels its context."""
        loop = asyncio.get_running_loop()
        cancelled = threading.Event()
        send, receive = anyio.create_memory_object_stream[tuple[float, float | None, str]](BACKLOG)

        def deliver(note: tuple[float, float | None, str]) -> None:
            with contextlib.suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
                send.send_nowait(note)

        def sink(done: float, total: float | None, message: str) -> None:
            if report is not None and not cancelled.is_set():
                with contextlib.suppress(RuntimeError):  # the loop has ended: nobody listens any more
                    loop.call_soon_threadsafe(deliver, (done, total, message))

        def guarded() -> T | Exception:
            with self._changed:
                self._running.add(cancelled)
            try:
                return body(ToolContext(self._workspace, progress=sink, cancelled=cancelled))
            except Exception as error:
                return error  # handed over as a value, so that a task group does not wrap it
            except BaseException as error:  # a tool that exits must not take the server with it
                return RuntimeError(f"the tool ended with {type(error).__name__}: {error}")
            finally:
                with self._changed:
                    self._running.discard(cancelled)
                    self._changed.notify_all()

        try:
            async with receive, anyio.create_task_group() as group:
                if report is not None:
                    group.start_soon(_relay, receive, report)
                async with send:
                    outcome = await anyio.to_thread.run_sync(guarded, abandon_on_cancel=True, limiter=self._limiter)
                    await asyncio.sleep(0)  # notes that the thread left behind are delivered before the stream closes
        except BaseException:
            cancelled.set()
            raise
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def stop(self, grace: float) -> bool:
        """Cancel every running call and wait for at most `grace` seconds; whether all of them have ended."""
        deadline = time.monotonic() + grace
        with self._changed:
            for cancelled in self._running:
                cancelled.set()
            return self._changed.wait_for(lambda: not self._running, max(0.0, deadline - time.monotonic()))


async def _relay(notes: MemoryObjectReceiveStream[tuple[float, float | None, str]], report: Report) -> None:
    """Pass notes on in order. The protocol wants progress to grow, so a note that does not advance creeps."""
    last = -1.0
    async for done, total, message in notes:
        last = done if done > last else last + 1e-3
        try:
            await report(last, total, message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the client has gone; the call itself is about to be cancelled
