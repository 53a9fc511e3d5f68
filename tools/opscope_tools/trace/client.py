"""The worker's keeper: starts it, asks it, bounds its time, ends it; the server never waits on a dead worker.

One worker serves one request at a time and stays warm between them. Cancelling or running over time kills it; the next
request starts a new one. Whatever it prints goes to a scratch file, whose end explains a death.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import opscope_cache
import opscope_schemas
from opscope_schemas import errors
from opscope_schemas.errors import CancelledError, OpscopeError, WorkerError

import opscope_tools

_OFFLINE = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8",
    "PYTHONSAFEPATH": "1",  # what lies in the current folder or beside start.py is no package of the interpreter's
}  # fmt: skip
_POLL_SECONDS = 0.05
_START = Path(__file__).with_name("start.py")


class Worker:
    """A trace worker in the interpreter `python`, importing from `paths` first."""

    def __init__(self, python: str, *, paths: Sequence[Path] = (), timeout: float = 600.0, memory: int = 0) -> None:
        self._python = python
        self._paths = list(paths)
        self._timeout = timeout
        self._memory = memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._replies: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._log: IO[bytes] | None = None

    def ask(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        cancelled: threading.Event,
        progress: Callable[[str], None],
    ) -> Any:
        """The worker's answer. Raises what the worker raised, `WorkerError`, or `CancelledError`."""
        while not self._lock.acquire(timeout=_POLL_SECONDS):
            if cancelled.is_set():
                raise CancelledError("The call was cancelled.")
        try:
            process = self._running()
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps({"kind": kind, "payload": dict(payload)}) + "\n")
                process.stdin.flush()
            except (BrokenPipeError, OSError):
                raise self._death() from None
            return self._await(cancelled, progress)
        except BaseException as error:
            # an answered error leaves the worker as good as before; anything else leaves a reply outstanding
            if not isinstance(error, OpscopeError) or isinstance(error, WorkerError | CancelledError):
                self._end()
            raise
        finally:
            self._lock.release()

    def _await(self, cancelled: threading.Event, progress: Callable[[str], None]) -> Any:
        deadline = time.monotonic() + self._timeout
        while True:
            if cancelled.is_set():
                raise CancelledError("The call was cancelled.")
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"The trace took longer than {self._timeout:.0f} s and was stopped.",
                    next_step="Raise OPSCOPE_TRACE_TIMEOUT, or analyse a smaller module.",
                )
            try:
                reply = self._replies.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if reply is None:
                raise self._death()
            if "progress" in reply:
                progress(reply["progress"])
            elif "error" in reply:
                raise _rebuilt(reply["error"])
            else:
                return reply["result"]

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()  # what a dead one left open
        ours = [str(Path(m.__path__[0])) for m in (opscope_tools, opscope_schemas, opscope_cache)]
        environment = {
            **os.environ, **_OFFLINE, "OPSCOPE_WORKER_MEMORY": str(self._memory),
            "PYTHONPATH": os.pathsep.join(map(str, self._paths)),
        }  # fmt: skip
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the worker
        self._replies = queue.Queue()
        try:
            self._process = subprocess.Popen(
                [self._python, str(_START), *ours],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, encoding="utf-8",
                env=environment, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise WorkerError(
                f"The trace worker could not be started with {self._python}: {error.strerror or error}.",
                next_step="Give --python the path of an interpreter that has torch and transformers.",
            ) from None
        threading.Thread(target=_pump, args=(self._process.stdout, self._replies), daemon=True).start()
        return self._process

    def _death(self) -> WorkerError:
        """Why the worker is gone, in one sentence."""
        process, tail = self._process, ""
        code = None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=5)
        if self._log is not None:
            self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, self._log.tell() - 4000))
            lines = self._log.read().decode(errors="replace").strip().splitlines()
            tail = lines[-1].strip() if lines else ""
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        return WorkerError(
            f"The trace worker {how}{': ' + tail[:300] if tail else ''}.",
            next_step="Try again; a new worker is started.",
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def close(self) -> None:
        """End the worker; a request under way fails."""
        self._end()


def _pump(stream: IO[str] | None, replies: queue.Queue[dict[str, Any] | None]) -> None:
    assert stream is not None
    with contextlib.suppress(ValueError, OSError):
        for line in stream:
            replies.put(json.loads(line))
    replies.put(None)


def _rebuilt(described: Mapping[str, Any]) -> OpscopeError:
    """The worker's error as the same kind here."""
    kind: type[OpscopeError] = getattr(errors, str(described.get("type")), errors.TraceError)
    error = OpscopeError.__new__(kind)
    OpscopeError.__init__(
        error,
        str(described["message"]),
        next_step=str(described.get("next_step", "")),
        location=str(described.get("location", "")),
    )
    return error
