"""Starts the very command that hosts get, speaks MCP with it over stdio, and lists its tools."""

from __future__ import annotations

import os
import shlex
import time
from typing import Any

from opscope_schemas.errors import OpscopeError
from opscope_tools.children import environment_for

from opscope_clients.doctor.findings import Finding
from opscope_clients.hosts.command import launch
from opscope_clients.session_options import SessionOptions

#: seconds until the tools are listed, and then for ending the server, which the SDK ends by force before that
START, END = 60.0, 20.0
_PURPOSE = "what hosts start"


def server(session: SessionOptions, *, seconds: float = START) -> Finding:
    """Whether the server starts and answers in time."""
    try:
        command = launch(session)
    except OpscopeError as error:
        return Finding("server", "stdio", "failed", error.message, _PURPOSE, required=True, fix=error.next_step)
    start = time.monotonic()
    tools, failure = _listed(command, seconds)
    took = time.monotonic() - start
    if failure:
        return Finding(
            "server", "stdio", "failed", f"{shlex.join(command)}: {failure}", _PURPOSE, required=True,
            fix="Run that command in a terminal: what it says on standard error is the reason.",
        )  # fmt: skip
    return Finding(
        "server", "stdio", "ok", f"{shlex.join(command)}: {len(tools)} tools in {took:.1f} s", _PURPOSE, required=True,
        facts={"command": command, "tools": tools, "seconds": round(took, 2)},
    )  # fmt: skip


def _listed(command: list[str], seconds: float) -> tuple[list[str], str]:
    """The names of the server's tools, and why there are none."""
    import anyio  # here: no other check needs the SDK
    from mcp import Client, MCPError, StdioServerParameters
    from mcp.client.stdio import stdio_client

    found: list[str] = []

    async def listing(log: Any) -> None:
        parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment_for(own=True))
        with anyio.fail_after(seconds) as limit:
            async with Client(stdio_client(parameters, errlog=log)) as client:
                found.extend(tool.name for tool in (await client.list_tools()).tools)
                limit.deadline = anyio.current_time() + END

    with open(os.devnull, "w", encoding="utf-8") as log:  # noqa: PTH123 -- devnull is no path on every platform
        try:
            anyio.run(listing, log)
        except BaseExceptionGroup as group:
            if group.subgroup((KeyboardInterrupt, SystemExit)):
                raise KeyboardInterrupt from None
            return [], _reason(group)
        except (MCPError, OSError) as error:
            return [], _reason(error)
    return found, ""


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "no list of tools in time"
    return f"it ended without a list of tools ({str(error) or type(error).__name__})"
