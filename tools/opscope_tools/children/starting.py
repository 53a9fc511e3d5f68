"""Starts children and ends them: `start` for one that is talked to, `run` for one that is waited for.

Children are started by one thread that lives as long as this process: the kernel's word "the parent has died" means the
thread that started a child, and threads that serve calls come and go.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from opscope_tools.children.cage import Cage
from opscope_tools.children.environment import environment_for
from opscope_tools.children.scratch import scratch_folder

if TYPE_CHECKING:  # its file is run by path, in another process
    from opscope_tools.children.launcher import Specification

__all__ = ["NOTHING", "UNLIMITED", "Child", "Done", "Limits", "python_module", "run", "start", "started_by_others"]

_LAUNCHER = Path(__file__).with_name("launcher.py")
_POLL = 0.02
#: seconds that a keeper gets to end what its program left behind, before the whole group is killed
_PATIENCE = 2.0
_PIPE = subprocess.PIPE
#: where nobody writes to or reads from a stream
NOTHING = subprocess.DEVNULL


@dataclass(frozen=True)
class Limits:
    """What a child may use; 0: no limit of ours."""

    #: seconds of CPU time
    cpu_seconds: int = 0
    #: bytes of address space, and of data (what a program writes to itself)
    address_bytes: int = 0
    data_bytes: int = 0
    open_files: int = 0
    #: processes and threads of this user in all, beyond those that run now
    processes: int = 0
    #: bytes of the largest file that it writes
    file_bytes: int = 0
    #: added to its niceness, so that answers come first
    nice: int = 0

    def described(self) -> dict[str, int]:
        """By the names of the module `resource`; a core file is never written."""
        given = {
            "RLIMIT_CPU": self.cpu_seconds, "RLIMIT_AS": self.address_bytes, "RLIMIT_DATA": self.data_bytes,
            "RLIMIT_NOFILE": self.open_files, "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_NPROC": _running_now() + self.processes if self.processes else 0,
        }  # fmt: skip
        return {"RLIMIT_CORE": 0, **{name: value for name, value in given.items() if value}}


UNLIMITED = Limits()


def _running_now() -> int:
    """Threads of this user, as the kernel counts them against the limit of processes."""
    count = 0
    for listing in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if listing.stat().st_uid == os.getuid():
                count += sum(1 for _ in (listing / "task").iterdir())
    return count


@dataclass(frozen=True)
class Done:
    """How a process ended: its output as far as it came, and whether it ran out of time."""

    code: int
    out: str
    err: str
    timed_out: bool = False


@dataclass
class Child:
    """A process that was started; `end` leaves nothing of it. What it wrote is closed by whoever reads it."""

    process: subprocess.Popen[bytes]
    kept: bool
    _ended: bool = field(default=False, repr=False)

    @property
    def stdin(self) -> IO[bytes]:
        """What it reads."""
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """What it writes."""
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def pid(self) -> int:
        """The number of its process, and of its session and group."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit status (negative: the signal that ended it); None where it still runs after `seconds`."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """End it and all that it started; idempotent."""
        if self._ended:
            return
        if self.kept and self.running:
            with contextlib.suppress(OSError):
                self.process.terminate()  # the keeper ends what is below it
            self.wait(_PATIENCE)
        # also where it has ended by itself: a group may outlive its leader
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self._ended = True
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


@cache
def _starter(process: int) -> ThreadPoolExecutor:
    """The thread that starts children, of the process with this number: a fork has none."""
    return ThreadPoolExecutor(1, thread_name_prefix=f"starts children of {process}")


def start(
    command: Sequence[str], *, folder: Path | None = None, environment: Mapping[str, str] | None = None,
    limits: Limits = UNLIMITED, cage: Cage | None = None, kept: bool = True, own: bool = False,
    stdin: int | IO[bytes] = _PIPE, stdout: int | IO[bytes] = _PIPE, stderr: int | IO[bytes] | None = NOTHING,
) -> Child:  # fmt: skip
    """Start `command` in `folder` (default: the root folder); a program without a path is looked for on PATH.

    `kept`: it may start processes of its own, and these end with it; without, it is one program that starts none, or that
    starts its own through here. `own`: it is an opscope that takes opscope's settings from the environment. `stderr=None`: ours.
    Raises `OSError`.
    """
    given = environment_for(environment, own=own)
    program = command[0] if os.sep in command[0] else shutil.which(command[0], path=given.get("PATH", os.defpath))
    if program is None or not Path(program).exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    launching = _launching([program, *command[1:]], limits, cage, kept=kept)

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            launching, cwd=folder or "/", env=given, start_new_session=True,
            stdin=stdin, stdout=stdout, stderr=stderr, bufsize=0,
        )  # fmt: skip

    return Child(_starter(os.getpid()).submit(begin).result(), kept)


def _launching(command: Sequence[str], limits: Limits, cage: Cage | None, *, kept: bool) -> list[str]:
    specification: Specification = {
        "parent": os.getpid(), "kept": kept, "limits": limits.described(), "nice": limits.nice,
        "cage": cage.described(command[0]) if cage else None, "sealing": str(_LAUNCHER.parent),
    }  # fmt: skip
    return [sys.executable, "-I", "-S", str(_LAUNCHER), json.dumps(specification), *command]


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours in this interpreter; nothing of the current folder is importable there."""
    return [sys.executable, "-P", "-m", module, *arguments]


def started_by_others(command: Sequence[str]) -> list[str]:
    """`command` as somebody else's code may start it from this process, so that it too ends when this process does."""
    return _launching(command, UNLIMITED, None, kept=False)


def run(
    command: Sequence[str], *, seconds: float, text: str = "", folder: Path | None = None,
    environment: Mapping[str, str] | None = None, limits: Limits = UNLIMITED, cage: Cage | None = None,
    checkpoint: Callable[[], None] = lambda: None, own: bool = False, most: int = 0,
) -> Done:  # fmt: skip
    """Run `command` with `text` as its input, in `folder` or one of its own, for at most `seconds`.

    `checkpoint` may raise to cancel; whatever happens nothing of the command is left running. Output goes through files, so that
    a grandchild that holds a pipe open is not waited for; of each, the first `most` bytes are read (0: all). A program that is
    not there ends with code 127. Raises `OSError` where no process can be started.
    """
    with scratch_folder("run") as own_folder:
        (own_folder / "stdin").write_text(text, encoding="utf-8")
        with (
            (own_folder / "stdin").open("rb") as source,
            (own_folder / "stdout").open("wb") as out,
            (own_folder / "stderr").open("wb") as err,
        ):
            child = start(
                command, folder=folder or own_folder, environment=environment, limits=limits, cage=cage, own=own,
                stdin=source, stdout=out, stderr=err,
            )  # fmt: skip
            try:
                timed_out = not _waited(child, seconds, checkpoint)
            finally:
                child.end()
        said = [_text(own_folder / name, most) for name in ("stdout", "stderr")]
        return Done(child.process.returncode, said[0], said[1], timed_out)


def _waited(child: Child, seconds: float, checkpoint: Callable[[], None]) -> bool:
    """Whether the child ended in time."""
    ends = time.monotonic() + seconds
    while child.wait(_POLL) is None:
        checkpoint()
        if time.monotonic() > ends:
            return False
    return True


def _text(file: Path, most: int) -> str:
    with file.open("rb") as stream:
        return stream.read(most or -1).decode(errors="replace")
