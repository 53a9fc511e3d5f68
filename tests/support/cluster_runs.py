"""Tasks on the workers of a Dask cluster, each task in a process that may die without taking the others along.

Local processes unless an address says otherwise. A task whose worker died is tried once more, on another worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import dask
from distributed import Client, KilledWorker, LocalCluster, as_completed

T = TypeVar("T")
#: seconds after its time is up in which a task may still end by itself; then its worker ends
_GRACE = 60.0
#: how many times its limit a task may take by the clock, on a machine that others use too
_WAITING = 4


@contextlib.contextmanager
def cluster(scheduler: str, workers: int, scratch: Path, memory: str = "auto") -> Iterator[Client]:
    """A client of the scheduler at that address, or of as many local processes as `workers` says.

    One that takes more than `memory` ("6GiB"; else its share of the machine's) is ended.
    """
    if scheduler:
        with Client(scheduler) as client:
            yield client
        return
    settings = {"distributed.scheduler.allowed-failures": 1, "distributed.scheduler.worker-saturation": 1.0}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            local_directory=str(scratch), memory_limit=memory,
        ) as local,
        Client(local) as client,
    ):  # fmt: skip
        yield client


def run(
    client: Client, work: Callable[..., T], tasks: Mapping[str, tuple[object, ...]]
) -> Iterator[tuple[str, T | Exception]]:
    """The name and result of each task as it ends; `KilledWorker` where its worker died twice, else what `work` raised.

    No more tasks wait at the workers than these can run: one that dies takes none along but its own.
    """
    waiting = iter(tasks.items())
    names: dict[str, str] = {}
    running = as_completed()

    def start() -> None:
        threads = sum(client.nthreads().values())
        while running.count() < max(1, threads) and (task := next(waiting, None)) is not None:
            future = client.submit(work, *task[1], pure=False)
            names[future.key] = task[0]
            running.add(future)

    start()
    for future in running:
        error = future.exception() if future.status == "error" else None
        name, result = names.pop(future.key), future.result() if error is None else error
        future.release()  # or it is done again when the worker that holds its result dies
        yield name, result
        start()


class TimeUpError(BaseException):
    """Raised in a task whose time is up; no `except Exception` of foreign code stops it."""


@contextlib.contextmanager
def limited(seconds: float, spent: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Raises `TimeUpError` in this thread once `spent` has grown by so many seconds; the process ends soon after if it goes on.

    A task that waits without spending has four times as long. Signals reach the main thread alone, and a Dask worker's tasks
    run in another.
    """
    thread = ctypes.c_ulong(threading.get_ident())
    # a prototype of our own: other packages give the shared one argument types
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)
    raise_in = prototype(("PyThreadState_SetAsyncExc", ctypes.pythonapi))
    ended, begun, before = threading.Event(), time.monotonic(), spent()

    def over() -> bool:
        return max(spent() - before, (time.monotonic() - begun) / _WAITING) > seconds

    def watch() -> None:
        while not over():
            if ended.wait(min(1.0, seconds / 2)):
                return
        raise_in(thread, id(TimeUpError))
        if not ended.wait(_GRACE):
            os._exit(1)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        raise_in(thread, None)  # one that was on its way


__all__ = ["KilledWorker", "TimeUpError", "cluster", "limited", "run"]
