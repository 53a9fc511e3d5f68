"""A connection to an opscope server: one of its own over stdio, or one that runs already over HTTP.

Order: how to reach a server, one connection with its calls, failures as sentences. Answers are the tools' structured JSON.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TextIO
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent, TextResourceContents
from opscope_schemas.errors import InputError, OpscopeError
from opscope_tools.children import environment_for, python_module, started_by_others

__all__ = [
    "Address",
    "CallError",
    "Connection",
    "Progress",
    "Server",
    "connected",
    "own_server",
    "server_at",
    "servers_of_others",
    "translated",
]

# what goes wrong is told here in a sentence; without a handler Python would print the client's own log, tracebacks and all
logging.getLogger("mcp").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Address:
    """Where a server runs, and the bearer token that it asks for, if any."""

    url: str
    token: str = field(default="", repr=False)


#: what reaches a server: the command that starts one, or the address of one
Server = StdioServerParameters | Address
#: the environment's name for the token
_TOKEN = "OPSCOPE_HTTP_TOKEN"
#: as the SDK's own client: a stream may be silent for long
_PATIENCE = httpx2.Timeout(30.0, read=300.0)
#: told what a running tool says about its progress
Progress = Callable[[str], None]


class CallError(OpscopeError):
    """A tool refused a call; the message is the tool's own sentence."""


def own_server(arguments: Sequence[str]) -> StdioServerParameters:
    """A server started with `arguments` of `python -m opscope_server`, which ends with the connection and with us."""
    return _serving(started_by_others(python_module("opscope_server", *arguments)))


def servers_of_others(arguments: Sequence[str]) -> StdioServerParameters:
    """The same for a program that starts the server itself, such as an agent's."""
    return _serving(python_module("opscope_server", *arguments))


def _serving(command: Sequence[str]) -> StdioServerParameters:
    return StdioServerParameters(command=command[0], args=[*command[1:]], env=environment_for(own=True))


def server_at(url: str, token: str | None = None) -> Address:
    """A running server, with its token or the environment's (OPSCOPE_HTTP_TOKEN); raises `InputError` for what is no HTTP
    address."""
    try:
        parts = urlsplit(url)
        address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        address = False
    if not address or any(character.isspace() for character in url):
        raise InputError(f"{url!r} is no address of a server.", next_step="Give one as in http://127.0.0.1:8000/mcp.")
    return Address(url, (os.environ.get(_TOKEN, "") if token is None else token).strip())


class Connection:
    """Calls tools over a client that is connected."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, arguments: dict[str, Any], say: Progress | None = None) -> dict[str, Any]:
        """The structured answer of `tool`; raises `CallError` with the tool's own sentence where it refuses."""

        async def told(progress: float, total: float | None, message: str | None) -> None:
            del progress, total
            if say is not None and message:
                say(message)

        result = await self._client.call_tool(tool, arguments, progress_callback=told)
        if result.is_error or result.structured_content is None:
            raise CallError(_text(result) or f"{tool} gave no answer.")
        content: dict[str, Any] = result.structured_content
        return content

    async def read(self, uri: str) -> str:
        """The text of a resource; raises `CallError` where there is none."""
        try:
            found = await self._client.read_resource(uri)
        except MCPError as error:
            raise CallError(str(error)) from None
        return "".join(part.text for part in found.contents if isinstance(part, TextResourceContents))


def _text(result: CallToolResult) -> str:
    return " ".join(block.text for block in result.content if isinstance(block, TextContent))


def _log() -> TextIO:
    """Where a server's log goes: to our own errors, or where these are no file, as in a notebook, to those of the process."""
    try:
        sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return sys.__stderr__ or Path(os.devnull).open("w")
    return sys.stderr


@contextlib.asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Connection]:
    """A connection while inside."""
    if isinstance(server, StdioServerParameters):
        async with Client(stdio_client(server, errlog=_log())) as client:
            yield Connection(client)
        return
    refused: list[int] = []  # the SDK says only that the server returned an error

    async def note(response: httpx2.Response) -> None:
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            refused.append(response.status_code)

    headers = {"Authorization": f"Bearer {server.token}"} if server.token else None
    try:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=_PATIENCE, event_hooks={"response": [note]}) as http,
            Client(streamable_http_client(server.url, http_client=http)) as client,
        ):
            yield Connection(client)
    except Exception:
        if refused:
            raise _unauthorized(server) from None
        raise


# ---- failures as sentences -----------------------------------------------------------------------------------------

_ENDED = (MCPError, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, httpx2.HTTPError)


async def translated(story: Callable[[], Awaitable[None]], server: Server) -> None:
    """Run `story`; a failure inside a task group leaves as the failure itself, a lost connection as a sentence."""
    try:
        await story()
    except BaseExceptionGroup as group:
        _raise(list(_leaves(group)), server, group)
    except OpscopeError:
        raise
    except _ENDED as error:
        raise _lost(error, server) from None


def _raise(errors: list[BaseException], server: Server, group: BaseException) -> NoReturn:
    for error in errors:
        if isinstance(error, OpscopeError | KeyboardInterrupt | SystemExit):
            raise error from None
    if isinstance(errors[0], _ENDED):
        raise _lost(errors[0], server) from None
    raise group


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _lost(error: BaseException, server: Server) -> OpscopeError:
    said = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
    if isinstance(server, Address):
        return OpscopeError(
            f"The opscope server at {server.url} cannot be reached, or went away: {said}.",
            next_step="Start one with `opscope serve --http`, and give the address that it prints.",
        )
    return OpscopeError(
        f"The connection to the opscope server ended: {said}.",
        next_step="Its own message stands above; OPSCOPE_LOG_LEVEL=INFO shows more.",
    )


def _unauthorized(server: Address) -> OpscopeError:
    return OpscopeError(
        f"The opscope server at {server.url} {'does not take this token' if server.token else 'asks for a token'}.",
        next_step=f"Give the token that it was started with: {_TOKEN}, or Session(url, token=...).",
    )
