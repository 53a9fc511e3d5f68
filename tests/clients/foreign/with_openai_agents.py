"""openai-agents with a model that says what it is told: the agent calls a tool and sees its answer.

Run in its own environment: with_openai_agents.py OPSCOPE CACHE, or with_openai_agents.py URL.
"""

import asyncio
import json
import sys

from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)
ASKED = ({"target": "LlamaMLP"}, {"target": "LlamaMPL"})


class Scripted(Model):
    """Calls find_forward twice, then ends."""

    def __init__(self) -> None:
        self.seen = []
        self.tools = []

    async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):  # noqa: A002, ARG002
        turn = len(self.seen)
        self.seen.append(input)
        self.tools = [tool.name for tool in tools]
        if turn < len(ASKED):
            call = ResponseFunctionToolCall(
                type="function_call", call_id=f"call_{turn}", name="find_forward", arguments=json.dumps(ASKED[turn])
            )
            return ModelResponse(output=[call], usage=Usage(), response_id=None)
        text = ResponseOutputText(type="output_text", text="done", annotations=[])
        message = ResponseOutputMessage(type="message", id="m", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError  # the interface asks for it; Runner.run never streams


async def main(server: str, *cache: str) -> None:
    if cache:
        held = MCPServerStdio(
            {"command": server, "args": ["serve", "--cache-dir", *cache]}, client_session_timeout_seconds=120
        )
    else:
        held = MCPServerStreamableHttp({"url": server}, client_session_timeout_seconds=120)
    model = Scripted()
    async with held:
        agent = Agent(
            name="reader",
            instructions="",
            model=model,
            mcp_servers=[held],
            mcp_config={"convert_schemas_to_strict": True},
        )
        await Runner.run(agent, "go")
        prompt = await held.get_prompt("analyze", {"target": "llama"})
    outputs = [item["output"] for item in model.seen[-1] if item.get("type") == "function_call_output"]
    texts = [
        output if isinstance(output, str) else "".join(part.get("text", "") for part in output) for output in outputs
    ]
    found, _ = json.JSONDecoder().raw_decode(texts[0])  # a link to the whole result follows
    said = {"tools": model.tools, "found": found, "refused": texts[1], "prompt": prompt.messages[0].content.text}
    sys.stdout.write(json.dumps(said))


asyncio.run(main(*sys.argv[1:]))
