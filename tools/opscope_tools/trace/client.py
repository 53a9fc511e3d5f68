"""The worker's keeper: starts it, asks it, bounds its time, ends it; the server never waits on a dead worker.

One worker serves one request at a time and stays warm between them. It runs foreign code on purpose, and therefore in a cage:
it reads the interpreter's installation and the source it imports, writes its scratch folder, and reaches nothing else. Cancelling or running over time kills it; the next
request starts a new one. Whatever it prints goes to a scratch file, whose end explains a death.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import queue
import secrets
import select
import sys
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
from opscope_tools.children import UNLIMITED, Cage, Child, Done, Limits, run, scratch_folder, start

_OFFLINE = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8",
    "PYTHONSAFEPATH": "1",  # what lies in the current folder or beside start.py is no package of the interpreter's
}  # fmt: skip
_POLL_SECONDS = 0.05
#: notes of progress that may wait to be read, characters of one, bytes of a reply: traced code could write without end
_WAITING, _LONGEST_NOTE, _LONGEST_REPLY = 64, 500, 256 << 20
#: says where an interpreter's code lies, and whether torch lies there as some installers leave it: without bytecode, which could be written
_PLACES = """
import importlib.util, json, os, sys
torch = importlib.util.find_spec("torch")
plain = bool(torch and torch.cached and not os.path.exists(torch.cached) and os.access(os.path.dirname(torch.origin), os.W_OK))
places = [*sys.path, sys.prefix, sys.base_prefix, sys.exec_prefix]
print(json.dumps({"places": places, "plain": plain}))
"""
#: has Python write the bytecode of what every trace imports
_COMPILES = """
import torch.fx.experimental.symbolic_shapes
import transformers.cache_utils, transformers.masking_utils, transformers.modeling_utils
"""
_START = Path(__file__).with_name("start.py")


class Worker:
    """A trace worker in the interpreter `python`."""

    def __init__(
        self, python: str, *, packages: Sequence[Path] = (), roots: Sequence[Path] = (),
        installed: Sequence[Path] = (), timeout: float = 600.0,
        limits: Limits = UNLIMITED,
    ) -> None:  # fmt: skip
        self._python = python
        #: folders of packages, and of loose modules, that it imports before what is installed
        self._packages = list(map(str, packages))
        self._roots = list(map(str, roots))
        #: packages that the interpreter finds by itself, wherever they lie
        self._installed = list(map(str, installed))
        self._timeout = timeout
        self._limits = limits
        self._lock = threading.Lock()
        self._process: Child | None = None
        self._replies: queue.Queue[dict[str, Any] | None] = queue.Queue()
        #: the mark of the request under way
        self._mark = [""]
        self._log: IO[bytes] | None = None
        self._seen: list[str] = []
        #: the worker's scratch folder and log, for as long as it lives
        self._held = contextlib.ExitStack()

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
        wait = self._patience(cancelled)
        try:
            process = self._running(wait, progress)
            try:
                self._send(process.stdin.fileno(), {"kind": kind, "payload": dict(payload), "id": self._expect()}, wait)
            except OSError:
                raise self._death() from None
            return self._await(wait, progress)
        except BaseException as error:
            # an answered error leaves the worker as good as before; anything else leaves a reply outstanding
            if not isinstance(error, OpscopeError) or isinstance(error, WorkerError | CancelledError):
                self._end()
            raise
        finally:
            self._lock.release()

    def _patience(self, cancelled: threading.Event) -> Callable[[], None]:
        """What raises where the caller has given up, or the time for one request is over."""
        deadline = time.monotonic() + self._timeout

        def wait() -> None:
            if cancelled.is_set():
                raise CancelledError("The call was cancelled.")
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"The trace took longer than {self._timeout:.0f} s and was stopped.",
                    next_step="Raise OPSCOPE_TRACE_TIMEOUT, or analyse a smaller module.",
                )

        return wait

    def _expect(self) -> str:
        """The mark that replies to the next request bear; nobody knows it before."""
        self._mark[0] = secrets.token_hex(16)
        return self._mark[0]

    @staticmethod
    def _send(pipe: int, request: Mapping[str, object], wait: Callable[[], None]) -> None:
        """Write a request; a worker that reads nothing is not waited for longer than one that says nothing."""
        os.set_blocking(pipe, False)
        left = memoryview((json.dumps(request) + "\n").encode())
        while left:
            wait()
            if select.select([], [pipe], [], _POLL_SECONDS)[1]:
                left = left[os.write(pipe, left) :]

    def _await(self, wait: Callable[[], None], progress: Callable[[str], None]) -> Any:
        while True:
            wait()
            try:
                reply = self._replies.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if reply is None:
                raise self._death()
            if "result" in reply:
                return reply["result"]
            if "error" in reply:
                raise _rebuilt(reply["error"])
            progress(reply["progress"][:_LONGEST_NOTE])

    def _running(self, wait: Callable[[], None], progress: Callable[[str], None]) -> Child:
        if self._process is not None and self._process.running:
            return self._process
        self._end()  # what a dead one left open
        ours = [str(Path(m.__path__[0])) for m in (opscope_tools, opscope_schemas, opscope_cache)]
        try:
            seen = self._readable(wait, progress)
            scratch = self._held.enter_context(scratch_folder("trace"))
            cage = Cage(
                read=(*seen, *ours, str(_START.parents[1]), *self._packages, *self._roots, *self._installed), write=(str(scratch),),
                sealed=not self._limits.processes,
            )  # fmt: skip
            given = {"seal": cage.seal(), "packages": [*ours, *self._packages], "roots": self._roots}
            environment = {
                **_OFFLINE, "PYTHONPATH": "",
                **dict.fromkeys(("HOME", "TMPDIR", "HF_HOME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"), str(scratch)),
            }  # fmt: skip
            self._log = self._held.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 -- it enters one
            self._process = start(
                [self._python, str(_START), json.dumps(given)],
                folder=scratch, environment=environment, limits=self._limits, cage=cage, stderr=self._log,
            )  # fmt: skip
        except OSError as error:
            self._held.close()
            raise WorkerError(
                f"The trace worker could not be started with {self._python}: {error.strerror or error}.",
                next_step="Give --python the path of an interpreter that has torch and transformers.",
            ) from None
        self._replies = queue.Queue()
        threading.Thread(target=_pump, args=(self._process.stdout, self._replies, self._mark), daemon=True).start()
        return self._process

    def _readable(self, wait: Callable[[], None], progress: Callable[[str], None]) -> list[str]:
        """Where the interpreter's own code lies: its installation, and what its search path names.

        A worker writes nothing there: without bytecode each would compile torch anew, for longer than it takes to trace.
        """
        if not self._seen:
            done = self._says(_PLACES, 60, wait)
            try:
                said = json.loads(done.out)
            except ValueError:
                last = (done.err.strip().splitlines() or ["it gave no answer"])[-1]
                raise OSError(errno.ENOEXEC, last[:200]) from None
            if said["plain"] and not sys.dont_write_bytecode:
                progress("compiling torch and transformers, once")
                self._says(_COMPILES, 300, wait)
            self._seen = [place for place in said["places"] if place not in ("", "/")]
        return self._seen

    def _says(self, program: str, seconds: float, wait: Callable[[], None]) -> Done:
        """What the interpreter prints that runs a few lines of ours."""
        return run([self._python, "-P", "-c", program], seconds=seconds, environment=_OFFLINE, checkpoint=wait)

    def _death(self) -> WorkerError:
        """Why the worker is gone, in one sentence."""
        process, tail = self._process, ""
        code = process.wait(1) if process is not None else None
        if self._log is not None:
            self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, self._log.tell() - 4000))
            lines = self._log.read().decode(errors="replace").strip().splitlines()
            tail = lines[-1].strip() if lines else ""
        if process is not None and code is None:  # it lives, and is ended now
            return WorkerError(
                "The trace worker said something that is no answer, and was ended.",
                next_step="Try again; a new worker is started.",
            )
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        return WorkerError(
            f"The trace worker {how}{': ' + tail[:300] if tail else ''}.",
            next_step="Try again; a new worker is started.",
        )

    def _end(self) -> None:
        process, self._process, self._log = self._process, None, None
        if process is not None:
            process.end()
        self._held.close()

    def close(self) -> None:
        """End the worker; a request under way fails."""
        self._end()


def _pump(stream: IO[bytes], replies: queue.Queue[dict[str, Any] | None], mark: Sequence[str]) -> None:
    """Pass on what the worker says to the request under way; what is no reply of a worker's ends the reading, and the worker."""
    with (
        contextlib.suppress(ValueError, OSError, RecursionError),
        io.BufferedReader(stream) as lines,  # type: ignore[type-var] # a raw stream
    ):
        while line := lines.readline(_LONGEST_REPLY):
            reply = json.loads(line)
            if not _is_reply(reply):
                break
            if reply.get("id") == mark[0] and ("progress" not in reply or replies.qsize() < _WAITING):
                replies.put(reply)
    replies.put(None)


def _is_reply(said: object) -> bool:
    """Whether it is one of the three things that a worker says."""
    if not isinstance(said, dict):
        return False
    error = said.get("error")
    return (
        isinstance(said.get("progress"), str)
        or (isinstance(error, dict) and isinstance(error.get("message"), str))
        or "result" in said
    )


def _rebuilt(described: Mapping[str, Any]) -> OpscopeError:
    """The worker's error as the same kind here."""
    named = getattr(errors, str(described.get("type")), None)
    kind = named if isinstance(named, type) and issubclass(named, OpscopeError) else errors.TraceError
    error = OpscopeError.__new__(kind)
    OpscopeError.__init__(
        error,
        str(described["message"]),
        next_step=str(described.get("next_step", "")),
        location=str(described.get("location", "")),
    )
    return error
