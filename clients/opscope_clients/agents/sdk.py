"""One conversation with an agent on claude-agent-sdk; the only module that imports it, and only when one begins.

Order: what a turn leaves behind, the conversation, its options, what went wrong in a turn. An agent has the tools of
the opscope server and two for SCRATCHPAD.md, nothing else: no built-in tool, no settings, no other server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from opscope_schemas.errors import InputError, OpscopeError, OutputError

from opscope_clients.agents import environment
from opscope_clients.agents.scratchpad import Scratchpad
from opscope_clients.agents.server import TOOLS, Server

__all__ = ["Conversation", "Limits", "MissingError", "Turn", "conversation", "require"]

_OWN = tuple(f"mcp__opscope__{name}" for name in TOOLS)
_NOTES = ("mcp__scratchpad__read", "mcp__scratchpad__edit")
#: how the SDK delivers a structured answer
_ANSWER = "StructuredOutput"
_BUFFER = 64 * 2**20  # bytes of one message; a whole model's document is some megabytes


class MissingError(InputError):
    """claude-agent-sdk is not installed."""


def require() -> Any:
    """The SDK; raises `MissingError`."""
    try:
        import claude_agent_sdk
    except ImportError:
        raise MissingError(
            "An agent needs claude-agent-sdk, which is not installed.",
            next_step="Install it with: pip install 'opscope[agent]'; --no-agent needs none.",
        ) from None
    return claude_agent_sdk


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a run may take, and how it goes on."""

    max_turns: int | None = None
    max_budget_usd: float | None = None
    model: str | None = None
    resume: str | None = None


@dataclasses.dataclass
class Turn:
    """What one question led to. `failures` are sentences; an answer with failures is none."""

    answer: Any = None
    session: str = ""
    cost_usd: float | None = None
    failures: list[str] = dataclasses.field(default_factory=list)
    #: tools that were asked for though they are not given
    strange: set[str] = dataclasses.field(default_factory=set)


@contextlib.asynccontextmanager
async def conversation(
    server: Server,
    scratchpad: Scratchpad,
    schema: Mapping[str, Any],
    limits: Limits,
    transcript: Path | None,
    doing: Callable[[str], None],
) -> AsyncIterator[Conversation]:
    """An agent that answers in `schema`, until left; `doing` hears which tool it calls."""
    sdk = require()
    logging.getLogger("claude_agent_sdk").setLevel(logging.CRITICAL)  # failures are told here, in one sentence
    said: deque[str] = deque(maxlen=20)
    scrubbed = environment.for_agent(os.environ)
    options = _options(sdk, server, scratchpad, schema, limits, said.append, scrubbed)
    with _opened(transcript) as stream:
        client = sdk.ClaudeSDKClient(options=options)
        try:
            with environment.replaced(scrubbed):
                await client.connect()
        except sdk.ClaudeSDKError as error:
            raise _unstarted(error, said) from None
        try:
            yield Conversation(sdk, client, stream, said, doing)
        finally:
            await client.disconnect()


class Conversation:
    """Turns with one agent."""

    def __init__(self, sdk: Any, client: Any, transcript: Any, said: deque[str], doing: Callable[[str], None]) -> None:
        self._sdk = sdk
        self._client = client
        self._transcript = transcript
        self._said = said
        self._doing = doing

    async def ask(self, prompt: str) -> Turn:
        """Send `prompt`, and read until the agent is done or has failed."""
        turn = Turn()
        self._record({"type": "Prompt", "text": prompt})
        try:
            await self._client.query(prompt)
            async for message in self._client.receive_response():
                self._record({"type": type(message).__name__, **dataclasses.asdict(message)})
                self._take(message, turn)
                if turn.failures:
                    break  # before the result: a server is missing, so whatever it would answer rests on nothing
        except self._sdk.ClaudeSDKError as error:
            if not turn.failures:
                turn.failures.append(str(_unstarted(error, self._said)))
        if turn.answer is None and not turn.failures:
            turn.failures.append("The agent stopped without a structured answer.")
        return turn

    def _take(self, message: Any, turn: Turn) -> None:
        sdk = self._sdk
        if isinstance(message, sdk.SystemMessage) and message.subtype == "init":
            turn.session = str(message.data.get("session_id", ""))
            turn.failures += server_failures(message.data)
        elif isinstance(message, sdk.AssistantMessage):
            asked = {block.name for block in message.content if isinstance(block, sdk.ToolUseBlock)}
            self._doing(", ".join(sorted(name.rpartition("__")[2] for name in asked)))
            turn.strange |= asked - {*_OWN, *_NOTES, _ANSWER}
        elif isinstance(message, sdk.ResultMessage):
            turn.session = message.session_id or turn.session
            turn.cost_usd = message.total_cost_usd
            turn.failures += result_failures(message, turn.strange)
            turn.answer = message.structured_output

    def _record(self, entry: dict[str, Any]) -> None:
        if self._transcript is not None:
            self._transcript.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")
            self._transcript.flush()


def server_failures(started: Mapping[str, Any]) -> list[str]:
    """What the message that opens a session says of its servers: one that is not connected fails the run."""
    status = {entry.get("name"): str(entry.get("status")) for entry in started.get("mcp_servers") or []}
    return [
        f"The agent's server {name} is not connected: {status.get(name, 'it was not started')}."
        for name in ("opscope", "scratchpad")
        if status.get(name) != "connected"
    ]


def result_failures(result: Any, strange: Collection[str] = ()) -> list[str]:
    """Why a result is none, whatever its subtype says; `strange` are tools that were asked for and are not given."""
    found = []
    if result.subtype != "success" or result.is_error:
        why = "; ".join(result.errors or []) or str(result.result or "no reason given")
        found.append(f"The agent's run ended with {result.subtype}: {why.rstrip('.')}.")
    denied = {str(denial.get("tool_name")) for denial in result.permission_denials or []}
    found += [f"The agent was denied the tool {name}." for name in sorted(denied)]
    found += [f"The agent asked for the tool {name}, which it is not given." for name in sorted({*strange} - denied)]
    if not found and result.structured_output is None:
        found.append("The agent stopped without a structured answer.")
    return found


def _options(
    sdk: Any, server: Server, scratchpad: Scratchpad, schema: Mapping[str, Any], limits: Limits, said: Any,
    scrubbed: Mapping[str, str],
) -> Any:  # fmt: skip
    own = server.process()
    attached: dict[str, Any] = {"type": "stdio", "command": own.command, "args": own.args,
                                "env": environment.for_server(scrubbed)}  # fmt: skip
    if server.url:
        attached = {"type": "http", "url": server.url}
    return sdk.ClaudeAgentOptions(
        tools=[],
        allowed_tools=[*_OWN, *_NOTES],
        permission_mode="dontAsk",
        mcp_servers={"opscope": attached, "scratchpad": _scratchpad_server(sdk, scratchpad)},
        strict_mcp_config=True,
        setting_sources=[],
        cwd=scratchpad.path.parent,
        env=environment.FIXED,
        # the command line knows no dialects: it refuses a schema that names one
        output_format={"type": "json_schema", "schema": {n: part for n, part in schema.items() if n != "$schema"}},
        model=limits.model,
        max_turns=limits.max_turns,
        max_budget_usd=limits.max_budget_usd,
        resume=limits.resume,
        max_buffer_size=_BUFFER,
        stderr=said,
    )


def _scratchpad_server(sdk: Any, scratchpad: Scratchpad) -> Any:
    """Reading and editing the one file: no tool takes a path, so there is nothing to escape from."""

    async def read(_: dict[str, Any]) -> dict[str, Any]:
        return _reply(scratchpad.text() or "(empty)")

    async def edit(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return _reply(scratchpad.edit(str(arguments["old"]), str(arguments["new"])))
        except OpscopeError as error:
            return {**_reply(str(error)), "is_error": True}

    about = "Replace the passage `old` of SCRATCHPAD.md, which occurs once, by `new`; an empty `old` appends."
    tools = [
        sdk.tool("read", "The text of SCRATCHPAD.md, your notes.", {})(read),
        sdk.tool("edit", about, {"old": str, "new": str})(edit),
    ]
    return sdk.create_sdk_mcp_server("scratchpad", tools=tools)


def _reply(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _unstarted(error: Exception, said: deque[str]) -> OpscopeError:
    last = next((line.strip() for line in reversed(said) if line.strip()), "")
    what = str(error).partition("\n")[0].rstrip(".")
    return OpscopeError(f"The agent's process failed: {what}{f' ({last})' if last else ''}.")


@contextlib.contextmanager
def _opened(transcript: Path | None) -> Any:
    if transcript is None:
        yield None
        return
    try:
        transcript.parent.mkdir(parents=True, exist_ok=True)
        stream = transcript.open("a", encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"{transcript} cannot be written: {error.strerror or error}.", next_step="Name another file."
        ) from None
    with stream:
        yield stream
