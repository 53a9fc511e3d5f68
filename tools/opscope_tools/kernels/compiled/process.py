"""Runs a compiler in a process group of its own, with limits of time and memory, and ends it when the call is cancelled."""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

_MEMORY = 8 << 30
_POLL = 0.05
#: the process is to end with the thread that started it, even where that is killed (Linux: prctl's PR_SET_PDEATHSIG)
_PR_SET_PDEATHSIG = 1
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)


@dataclass(frozen=True)
class Done:
    """How a process ended: its output as far as it came, and whether it ran out of time."""

    code: int
    out: str
    err: str
    timed_out: bool


def run(
    command: Sequence[str], folder: Path, *, seconds: float, checkpoint: Callable[[], None], text: str = "",
    environment: Mapping[str, str] | None = None,
) -> Done:  # fmt: skip
    """Run `command` in `folder` with `text` as its input; `checkpoint` may raise to cancel."""
    (folder / "stdin").write_text(text)
    with (
        (folder / "stdin").open("rb") as source,
        (folder / "stdout").open("wb") as out,
        (folder / "stderr").open("wb") as err,
    ):
        process = subprocess.Popen(
            list(command), cwd=folder, stdin=source, stdout=out, stderr=err, start_new_session=True,
            preexec_fn=partial(_limit, math.ceil(seconds) + 5),
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        ends, timed_out = time.monotonic() + seconds, False
        try:
            while process.poll() is None:
                checkpoint()
                if time.monotonic() > ends:
                    timed_out = True
                    break
                try:
                    process.wait(_POLL)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    read = [(folder / name).read_text(errors="replace") for name in ("stdout", "stderr")]
    return Done(process.returncode, read[0], read[1], timed_out)


def _limit(seconds: int) -> None:
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
