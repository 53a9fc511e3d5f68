"""langchain's adapter. Run in its own environment: with_langchain.py OPSCOPE CACHE, or with_langchain.py URL."""

import asyncio
import json
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.prompts import load_mcp_prompt
from langchain_mcp_adapters.tools import load_mcp_tools


async def main(server: str, *cache: str) -> None:
    stdio = {"transport": "stdio", "command": server, "args": ["serve", "--cache-dir", *cache]}
    client = MultiServerMCPClient({"opscope": stdio if cache else {"transport": "http", "url": server}})
    async with client.session("opscope") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        answer = await tools["find_forward"].ainvoke({"target": "LlamaMLP"})
        refused = str(await tools["find_forward"].ainvoke({"target": "LlamaMPL"}))
        prompt = await load_mcp_prompt(session, "analyze", arguments={"target": "llama"})
    texts = [block["text"] for block in answer if block.get("type") == "text"]
    said = {"tools": list(tools), "found": json.loads(texts[0]), "refused": refused, "prompt": prompt[0].content}
    sys.stdout.write(json.dumps(said))


asyncio.run(main(*sys.argv[1:]))
