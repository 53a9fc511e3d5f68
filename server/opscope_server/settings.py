"""Settings of a server: what an operator may choose, with its default and its environment variable.

Imports nothing heavy: the command line reads it before it knows whether a server is wanted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from opscope_schemas.errors import InputError
from opscope_tools.runner import BUDGET


@dataclass(frozen=True)
class Settings:
    """How the server answers."""

    #: characters of structured JSON that one answer may take (OPSCOPE_OUTPUT_BUDGET)
    budget: int = BUDGET
    #: tool calls that run at the same time; the others wait (OPSCOPE_WORKERS)
    workers: int = max(2, os.cpu_count() or 2)
    #: seconds that running tools get to stop when the server ends
    grace: float = 3.0
    #: level of the log on stderr (OPSCOPE_LOG_LEVEL)
    log_level: str = "WARNING"
    #: HTTP: address to bind; loopback unless the operator says otherwise
    host: str = "127.0.0.1"
    #: HTTP: port, 0 for any free one
    port: int = 8000
    #: HTTP: names beside loopback that a Host header may bear, e.g. behind a proxy
    allowed_hosts: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **given: object) -> Settings:
        """The environment's settings, overridden by what is given and not None. Raises `InputError`."""
        found: dict[str, object] = {}
        for variable, field, low in (
            ("OPSCOPE_OUTPUT_BUDGET", "budget", 1000),
            ("OPSCOPE_WORKERS", "workers", 1),
        ):
            if text := environment.get(variable):
                if not text.isdecimal() or int(text) < low:
                    raise InputError(f"{variable} is {text!r}; it must be a whole number of at least {low}.")
                found[field] = int(text)
        if level := environment.get("OPSCOPE_LOG_LEVEL"):
            if level.upper() not in LEVELS:
                raise InputError(f"OPSCOPE_LOG_LEVEL is {level!r}; it must be one of {', '.join(LEVELS)}.")
            found["log_level"] = level.upper()
        found.update({name: value for name, value in given.items() if value is not None})
        return cls(**found)  # type: ignore[arg-type] # names and types are checked above and by the callers


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
