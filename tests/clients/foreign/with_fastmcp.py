"""fastmcp's client. Run in its own environment: with_fastmcp.py OPSCOPE CACHE, or with_fastmcp.py URL."""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError


async def main(server: str, *cache: str) -> None:
    transport = StdioTransport(server, ["serve", "--cache-dir", *cache]) if cache else server
    async with Client(transport) as client:
        tools = await client.list_tools()
        found = await client.call_tool("find_forward", {"target": "LlamaMLP"})
        try:
            await client.call_tool("find_forward", {"target": "LlamaMPL"})
            refused = ""
        except ToolError as error:
            refused = str(error)
        prompt = await client.get_prompt("analyze", {"target": "llama"})
    said = {"tools": [tool.name for tool in tools], "found": found.structured_content, "refused": refused}
    sys.stdout.write(json.dumps({**said, "prompt": prompt.messages[0].content.text}))


asyncio.run(main(*sys.argv[1:]))
