"""Builds behind the answers: a server that is asked about a repository without an index starts one, and goes on answering.

One build runs at a time, in a process of its own at low priority, which ends when this one does.
"""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path

from opscope_tools.children import NOTHING, Child, python_module, start
from opscope_tools.source.python.repository import SourceTree

#: seconds until a build that ended is tried again, should its index still be missing (another process may be at it)
_PATIENCE = 10.0


class BackgroundBuilds:
    """Called with a tree whose index is missing."""

    def __init__(self) -> None:
        self._asked: dict[Path, float] = {}
        self._waiting: queue.SimpleQueue[list[str] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: Child | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def __call__(self, tree: SourceTree) -> None:
        place = tree.place
        with self._lock:
            if place is None or self._closed or time.monotonic() - self._asked.get(place, -_PATIENCE) < _PATIENCE:
                return
            self._asked[place] = float("inf")  # until it has ended
            repository = tree.repository
            self._waiting.put([str(place), str(repository.root), *repository.packages])
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="index builds", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while (arguments := self._waiting.get()) is not None:
            with self._lock:
                if self._closed:
                    return
                self._running = start(
                    python_module("opscope_tools.index.build.build", *arguments), kept=False, stdout=NOTHING
                )
            self._running.wait()
            with self._lock:
                self._asked[Path(arguments[0])] = time.monotonic()

    def close(self) -> None:
        """End the build that runs; what it has read is kept."""
        with self._lock:
            self._closed = True
            running, thread = self._running, self._thread
            self._waiting.put(None)
            if running is not None:
                running.stdin.close()  # it stops its workers and ends
        if thread is not None:
            thread.join(timeout=5)
        if running is not None:
            running.end()
