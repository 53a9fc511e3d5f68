"""What a check found, and how a program is asked without ever waiting long for it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "missing", "failed", "stale"]


@dataclass(frozen=True)
class Finding:
    """One thing looked for. A `required` one that is not ok makes the whole fail; `fix` says what to do then."""

    section: str
    name: str
    status: Status
    found: str
    purpose: str
    required: bool = False
    fix: str = ""
    #: the same as data, for --json
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        """Whether opscope does not work like this."""
        return self.required and self.status != "ok"


def asked(command: Sequence[str], *, seconds: float, environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """What a program prints, and why it did not answer ('' where it did); its whole process group ends in time.

    Output goes to a file: a pipe that a grandchild holds open would be waited for.
    """
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        except OSError as error:
            return "", f"cannot be started: {error.strerror}"
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return "", f"gave no answer in {seconds:g} s"
        finally:
            _end(process)
        out.seek(0)
        text = out.read(100_000).decode(errors="replace").strip()
    if process.returncode:
        last = text.splitlines()[-1][:200] if text else "no output"
        return text, f"exit status {process.returncode}: {last}"
    return text, ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and, where the platform has them, its group."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        elif process.poll() is None:
            process.kill()
    except (ProcessLookupError, PermissionError):  # all of it has ended
        pass
    process.wait(10)
