"""The opscope server that an agent works with, asked by this client itself: what the trace says, whole.

The same server is attached to the agent: over stdio a process of its own with the same options, over HTTP the one that
listens.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp import StdioServerParameters
from opscope_schemas.errors import OpscopeError

from opscope_clients import connection
from opscope_clients.agents.environment import for_server
from opscope_clients.session_options import SessionOptions

__all__ = ["TOOLS", "Server"]

#: what an agent may call; none of them writes
TOOLS = ("resolve_class", "find_forward", "find_references", "inspect_model", "count_flops", "expand_refs",
         "trace_dataflow", "extract_config")  # fmt: skip


@dataclass(frozen=True)
class Server:
    """Where the server is: at `url`, or in a process started as `session` says."""

    session: SessionOptions
    url: str = ""

    def process(self) -> StdioServerParameters:
        """The process that serves over stdio; it gets no key."""
        toolset = [part for name in TOOLS for part in ("--toolset", name)]
        own = connection.servers_of_others([*self.session.server_arguments(), *toolset])
        return own.model_copy(update={"env": {**(own.env or {}), **for_server(os.environ)}})

    async def document(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The whole document of `count_flops` or `expand_refs`; raises `OpscopeError` with the server's sentence."""
        server = connection.server_at(self.url) if self.url else self.process()
        answers: list[dict[str, Any]] = []

        async def story() -> None:
            async with connection.connected(server) as connected:
                answer = await connected.call(tool, dict(arguments))
                if answer.get("shortened"):
                    answer = json.loads(await connected.read(str(answer["artifact"])))
                answers.append(answer)

        await connection.translated(story, server)
        if not answers:
            raise OpscopeError(f"The opscope server gave no answer to {tool}.", next_step="Try again.")
        document: dict[str, Any] = answers[0]["document"]
        return document

    async def is_model(self, target: str) -> bool:
        """Whether `target` runs by itself and is made of submodules, rather than being a module of a model."""
        document = await self.document("count_flops", {"target": target, "detail": "formulas"})
        whole = document["class_name"] == document.get("model_class")
        return whole and any(kernel["kernel_type"] == "composite" for kernel in document["kernels"])
