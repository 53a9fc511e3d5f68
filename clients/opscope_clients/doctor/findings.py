"""What a check found, and how a program is asked without ever waiting long for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from opscope_tools.children import run

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
    """What a program prints, and why it did not answer ('' where it did); nothing of it is left running."""
    try:
        done = run(command, seconds=seconds, environment=environment, most=100_000)
    except OSError as error:
        return "", f"cannot be started: {error.strerror}"
    if done.timed_out:
        return "", f"gave no answer in {seconds:g} s"
    text = f"{done.out}{done.err}".strip()
    if done.code:
        last = text.splitlines()[-1][:200] if text else "no output"
        return text, f"exit status {done.code}: {last}"
    return text, ""
