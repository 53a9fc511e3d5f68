"""Toy tools that behave as real ones do, and as real ones must not: the server is tested against both."""

from __future__ import annotations

import sys
import threading
from typing import Literal

from opscope_schemas.common import ToolArguments, ToolResult
from opscope_schemas.errors import SourceError
from opscope_tools.running.tool import AnyTool, Tool, ToolContext
from pydantic import Field


class RowsArguments(ToolArguments):
    target: str = Field(description="Text that each row repeats.")
    rows: int = Field(default=1, ge=0, description="Number of rows.")
    detail: Literal["full", "names"] = Field(default="full", description="How much to tell.")
    values: dict[str, int] | None = Field(default=None, description="Variable values.")


class RowsResult(ToolResult):
    rows: tuple[str, ...]
    total: int
    remark: str | None = None


class EmptyArguments(ToolArguments):
    pass


#: calls of the handler, to see what the cache spares
CALLS: list[RowsArguments] = []
#: set by a waiting tool when it has begun, and when it has seen that it was cancelled
BEGUN = threading.Event()
STOPPED = threading.Event()


def _rows(arguments: RowsArguments, context: ToolContext) -> RowsResult:
    CALLS.append(arguments)
    if arguments.target == "broken":
        raise SourceError("The class has no forward.", next_step="Name a module.", location="a/b.py:7")
    for number in range(arguments.rows):
        context.checkpoint()
        context.progress(number + 1, arguments.rows, f"row {number + 1}")
    return RowsResult(rows=tuple(f"{arguments.target} {n}" for n in range(arguments.rows)), total=arguments.rows)


def _half(result: RowsResult) -> RowsResult:
    kept = result.rows[: len(result.rows) // 2]
    return result.model_copy(update={"rows": kept, "shortened": f"{len(kept)} of {result.total} rows; lower rows."})


def _none(result: RowsResult) -> RowsResult:
    return result.model_copy(update={"rows": (), "shortened": "Rows left out; lower rows."})


def _crash(_arguments: EmptyArguments, _context: ToolContext) -> RowsResult:
    raise RuntimeError("secret: the password is swordfish")


def _exit(_arguments: EmptyArguments, _context: ToolContext) -> RowsResult:
    sys.exit(3)


def _wait(_arguments: EmptyArguments, context: ToolContext) -> RowsResult:
    BEGUN.set()
    sys.stderr.write("begun\n")
    sys.stderr.flush()
    if context.cancelled.wait(30):
        STOPPED.set()
    context.checkpoint()
    return RowsResult(rows=(), total=0)


def _chatter(_arguments: EmptyArguments, _context: ToolContext) -> RowsResult:
    sys.stdout.write("this must not reach the wire\n")
    sys.stdout.flush()
    return RowsResult(rows=("said",), total=1)


ROWS = Tool("rows", "Rows", "Repeat a text.", RowsArguments, RowsResult, _rows, shorter=(_half, _none))
CRASH = Tool("crash", "Crash", "Raise what nobody foresaw.", EmptyArguments, RowsResult, _crash, positional=())
EXIT = Tool("exit", "Exit", "Try to end the process.", EmptyArguments, RowsResult, _exit, positional=())
WAIT = Tool("wait", "Wait", "Work until cancelled.", EmptyArguments, RowsResult, _wait, positional=(), cached=False)
CHATTER = Tool("chatter", "Chatter", "Print to stdout.", EmptyArguments, RowsResult, _chatter, positional=())

TOYS: tuple[AnyTool, ...] = (ROWS, CRASH, EXIT, WAIT, CHATTER)
