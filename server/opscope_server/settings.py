"""Settings of a server: what an operator may choose, with its default and its environment variable.

Imports nothing heavy: the command line reads it before it knows whether a server is wanted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opscope_schemas.errors import InputError
from opscope_tools.running.runner import BUDGET
from opscope_tools.running.tool import Lane

from opscope_server.lanes import LaneRules

if TYPE_CHECKING:
    from opscope_server.access import Token

#: seconds that reading and resolving source may take: the first map of a repository of thousands of files takes a third of it
STATIC_SECONDS = 120.0
#: seconds for what is compiled: each compiler has a limit of its own, and one call may ask for several kernels
COMPILE_SECONDS = 600.0
#: a topic has some twenty commands, each of which imports torch
MEASURE_SECONDS = 1800.0
#: seconds beside its trace that a call about a trace may take
MARGIN_SECONDS = 60.0
#: traces wait for one worker process; of two calls one prepares or writes while the other traces
_TRACES = 2
_KINDS: Mapping[Lane, str] = {
    "static": "questions about source",
    "trace": "traces",
    "compile": "compilations",
    "measure": "measurements",
}


@dataclass(frozen=True)
class Settings:
    """How the server answers."""

    #: characters of structured JSON that one answer may take (OPSCOPE_OUTPUT_BUDGET)
    budget: int = BUDGET
    #: questions about source that are answered at the same time; the others wait (OPSCOPE_WORKERS)
    workers: int = max(2, os.cpu_count() or 2)
    #: calls of one kind that may wait; the next one is told that opscope is busy (OPSCOPE_QUEUE)
    queue: int = 32
    #: seconds for a call of each kind, the wait included (OPSCOPE_DEADLINE_STATIC, _TRACE, _COMPILE, _MEASURE, or --deadline KIND=SECONDS)
    deadlines: Mapping[str, float] = field(default_factory=dict)
    #: seconds that a tool gets to stop: at its deadline, where its caller cancels, when the server ends
    grace: float = 3.0
    #: seconds after which a caller that has heard nothing hears that the call goes on
    heartbeat: float = 1.5
    #: whether the first call that nothing kept answers also starts the trace worker, whose imports take seconds (OPSCOPE_WARM=0: not);
    #: a process of its own does, which ends its workers with itself, a server inside another program does not
    warm: bool = False
    #: level of the log on stderr (OPSCOPE_LOG_LEVEL)
    log_level: str = "WARNING"
    #: HTTP: address to bind; loopback unless the operator says otherwise
    host: str = "127.0.0.1"
    #: HTTP: port, 0 for any free one
    port: int = 8000
    #: HTTP: NAME or NAME:PORT beside loopback that a Host header may bear, e.g. behind a proxy
    allowed_hosts: tuple[str, ...] = ()
    #: HTTP: what a client has to know; needed beyond loopback (--token-file, or OPSCOPE_HTTP_TOKEN)
    token: Token | None = field(default=None, repr=False)
    #: HTTP: connections and sessions at the same time
    connections: int = 1024
    sessions: int = 512
    #: HTTP: seconds for the head of a request, for its body, and after which a session that nobody uses ends
    head_seconds: float = 15.0
    body_seconds: float = 30.0
    session_seconds: float = 900.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **given: object) -> Settings:
        """The environment's settings, overridden by what is given and not None. Raises `InputError`."""
        found: dict[str, object] = {}
        for variable, name, low in (
            ("OPSCOPE_OUTPUT_BUDGET", "budget", 1000),
            ("OPSCOPE_WORKERS", "workers", 1),
            ("OPSCOPE_QUEUE", "queue", 0),
        ):
            if text := environment.get(variable):
                if not text.isdecimal() or int(text) < low:
                    raise InputError(f"{variable} is {text!r}; it must be a whole number of at least {low}.")
                found[name] = int(text)
        found["warm"] = environment.get("OPSCOPE_WARM") != "0"
        if level := environment.get("OPSCOPE_LOG_LEVEL"):
            if level.upper() not in LEVELS:
                raise InputError(f"OPSCOPE_LOG_LEVEL is {level!r}; it must be one of {', '.join(LEVELS)}.")
            found["log_level"] = level.upper()
        found.update({key: value for key, value in given.items() if value is not None})
        return cls(**found)  # type: ignore[arg-type] # names and types are checked above and by the callers

    def lanes(self, trace_seconds: float) -> dict[Lane, LaneRules]:
        """The rules of each lane, where one trace may take `trace_seconds`."""
        seconds = {
            "static": STATIC_SECONDS,
            "trace": trace_seconds + MARGIN_SECONDS,
            "compile": COMPILE_SECONDS,
            "measure": MEASURE_SECONDS,
        }
        slots = {"static": self.workers, "trace": _TRACES, "compile": max(1, self.workers // 2), "measure": 1}
        return {
            lane: LaneRules(
                kind,
                slots[lane],
                self.queue,
                self.deadlines.get(lane, seconds[lane]),
                f"OPSCOPE_DEADLINE_{lane.upper()}",
            )
            for lane, kind in _KINDS.items()
        }


def deadlines_of(environment: Mapping[str, str], given: Sequence[str] = ()) -> dict[str, float]:
    """Deadlines by kind: the environment's, overridden by what `--deadline KIND=SECONDS` gives. Raises `InputError`."""
    found: dict[str, float] = {}
    for lane in _KINDS:
        if text := environment.get(f"OPSCOPE_DEADLINE_{lane.upper()}"):
            found[lane] = _seconds(f"OPSCOPE_DEADLINE_{lane.upper()}", text)
    for option in given:
        kind, _, text = option.partition("=")
        if kind not in _KINDS:
            raise InputError(f"--deadline {option!r} names no kind of call.", next_step=f"Kinds: {', '.join(_KINDS)}.")
        found[kind] = _seconds(f"--deadline {kind}", text)
    return found


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"{name} is {text!r}; it must be a positive number of seconds.")
    return seconds


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
