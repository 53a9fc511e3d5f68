"""What the list of tools costs: characters on the wire by tool and field, and what three hosts hand to a model of it.

A real client over stdio asks the server that hosts start. Tokens are characters divided by four: no tokenizer of these
models works without a network, and the one that Anthropic published up to its SDK 0.38 finds 4.2 in these texts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

#: characters that the whole list may take on the wire
MOST = 43_000
#: tokens that a model of Claude Code may be shown for it
MOST_TOKENS = 6_000
FIELDS = ("description", "inputSchema", "outputSchema")
Listed = list[dict[str, Any]]
#: how hosts name a tool, and whether its model is shown the schema of answers
HOSTS: dict[str, Callable[[dict[str, Any]], list[Any]]] = {
    "Claude Code": lambda tool: [f"mcp__opscope__{tool['name']}", tool["description"], tool["inputSchema"]],
    "opencode": lambda tool: [f"opscope_{tool['name']}", tool["description"], tool["inputSchema"]],
    "a host that hands on all": lambda tool: [f"opscope_{tool['name']}", *(tool[field] for field in FIELDS)],
}


def listed(*options: str) -> Listed:
    """The tools as they come over the wire, of a server started with `options`."""

    async def main() -> Listed:
        server = StdioServerParameters(command=sys.executable, args=["-m", "opscope_server", *options])
        async with Client(server) as client:
            tools = (await client.list_tools()).tools
            return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]

    return anyio.run(main)


def size(value: object) -> int:
    """Characters of compact JSON."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def tokens(host: str, tools: Listed) -> float:
    """Tokens that `host` spends on the list, at four characters each."""
    return sum(size(HOSTS[host](tool)) for tool in tools) / 4


def main() -> int:
    """Print the tables; 1 where the list is longer than promised."""
    tools = listed()
    print(f"{'':20}", *(f"{field:>13}" for field in FIELDS), f"{'all':>8}")
    for tool in tools:
        print(f"{tool['name']:20}", *(f"{size(tool[field]):13,}" for field in FIELDS), f"{size(tool):8,}")
    print(f"{'together':20}", *(f"{sum(size(t[f]) for t in tools):13,}" for f in FIELDS), f"{size(tools):8,}")
    print(f"on the wire {size(tools):,} characters (promised: at most {MOST:,})")
    for host in HOSTS:
        print(f"{host}: about {tokens(host, tools):,.0f} tokens (characters / 4)")
    print(f"promised to a model of Claude Code: at most {MOST_TOKENS:,} tokens")
    return 0 if size(tools) <= MOST and tokens("Claude Code", tools) <= MOST_TOKENS else 1


if __name__ == "__main__":
    sys.exit(main())
