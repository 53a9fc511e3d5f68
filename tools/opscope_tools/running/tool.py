"""What a tool is: data (name, text, input and output types, annotations) and one handler.

`Tool` is listed once, in catalog.py; the MCP server and the command line are two thin users of that list. `ToolContext`
is what a handler may ask of whoever runs it: the workspace, progress, cancellation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from opscope_cache.trees import SUFFIXES
from opscope_schemas.common import ToolArguments, ToolResult
from opscope_schemas.errors import CancelledError

from opscope_tools.running.workspace import Workspace

A = TypeVar("A", bound=ToolArguments)
R = TypeVar("R", bound=ToolResult)


#: what a call keeps busy: this process (reading and resolving source), the trace worker, compilers, or the machine as a whole, which
#: is measured by one call at a time. A server gives each kind its own slots, queue and deadline, so that one kind never waits behind another
Lane = Literal["static", "trace", "compile", "measure"]


class ProgressSink(Protocol):
    """Receives progress: `done` of `total` (None where unknown) and a short message. Called from a worker thread."""

    def __call__(self, done: float, total: float | None, message: str) -> None: ...


def _silent(done: float, total: float | None, message: str) -> None:
    """Progress that nobody asked for."""


@dataclass
class ToolContext:
    """What a running tool may use. Long work calls `checkpoint()` often: `cancelled` is set where the caller gives up, and by a
    server at the call's deadline."""

    workspace: Workspace
    progress: ProgressSink = _silent
    cancelled: threading.Event = field(default_factory=threading.Event)

    def checkpoint(self) -> None:
        """Raise `CancelledError` if the caller has cancelled or the deadline has come."""
        if self.cancelled.is_set():
            raise CancelledError("The call was cancelled.")


@dataclass(frozen=True)
class Tool(Generic[A, R]):
    """One MCP tool and one subcommand.

    `shorter` is the ladder of shorter forms: each takes the whole result and returns a smaller one whose `shortened`
    says what was left out and how to ask for it. Whoever has an output budget takes the first that fits.
    """

    name: str
    title: str
    description: str
    arguments: type[A]
    result: type[R]
    run: Callable[[A, ToolContext], R]
    shorter: tuple[Callable[[R], R], ...] = ()
    #: what an agent is given of a whole result, however large its budget: the answer to the question, the rest in the artifact
    brief: Callable[[R], R] = lambda result: result
    read_only: bool = True
    idempotent: bool = True
    #: arguments that the command line takes without an option name, in order
    positional: tuple[str, ...] = ("target",)
    #: what the command line asks for where its user does not say, when it prints for people
    for_people: Mapping[str, object] = field(default_factory=dict)
    #: endings of the source files that an answer may depend on
    sources: tuple[str, ...] = SUFFIXES
    #: files beside the sources that an answer may depend on
    files: Callable[[Workspace], Sequence[Path]] = lambda _: ()
    #: keep the result on disk, keyed by arguments, sources and engine version
    cached: bool = True
    #: arguments whose answer depends on more than sources (an installed compiler): kept, but never served again
    fresh: Callable[[A], bool] = lambda _: False
    #: what a call with these arguments keeps busy
    lane: Callable[[A], Lane] = lambda _: "static"
    #: a PNG that a host is sent beside the answer, drawn from the whole result, where the arguments ask for one
    picture: Callable[[A, R], bytes | None] = lambda *_: None
    #: fields that hold what a search found; where all of them are empty, the answer says what was searched, and `otherwise`
    finds: tuple[str, ...] = ()
    #: what to try next where nothing was found, one sentence
    otherwise: str = ""
    #: arguments that mean something to a host alone, and are no options of the command line
    of_hosts: tuple[str, ...] = ()


AnyTool = Tool[Any, Any]
