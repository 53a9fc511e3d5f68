"""What an agent is told at the start of a conversation is short, and can be made shorter."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client, StdioServerParameters
from opscope_schemas.errors import UnknownNameError
from opscope_server.binding import arguments_schema
from opscope_tools.catalog import ALL_TOOLS, TOOLSETS, toolset
from opscope_tools.running.runner import validate
from opscope_tools.running.tool import AnyTool


def listed(*options: str) -> tuple[list[Any], str]:
    """Tools and instructions of a server started with `options`."""

    async def main() -> tuple[list[Any], str]:
        server = StdioServerParameters(command=sys.executable, args=["-m", "opscope_server", *options])
        async with Client(server) as client:
            return list((await client.list_tools()).tools), client.instructions or ""

    return anyio.run(main)


def test_a_toolset_serves_its_tools_only_and_the_instructions_say_what_is_missing(tmp_path: Path) -> None:
    tools, instructions = listed("--cache-dir", str(tmp_path), "--toolset", "kernels,find_forward")
    assert [tool.name for tool in tools] == ["find_forward", "extract_config", "cuda_kernel_tiling"]
    first = instructions.partition("\n")[0]
    assert "without map_repo, resolve_class, find_references, inspect_model" in first
    assert "find_forward" not in first


def test_without_a_toolset_every_tool_is_served_and_nothing_is_said_to_be_missing(tmp_path: Path) -> None:
    tools, instructions = listed("--cache-dir", str(tmp_path))
    assert [tool.name for tool in tools] == [tool.name for tool in ALL_TOOLS]
    assert "started without" not in instructions
    assert len(instructions) < 4096


def test_toolsets_together_leave_no_tool_out_and_an_unknown_one_is_named() -> None:
    assert toolset(list(TOOLSETS)) == ALL_TOOLS
    with pytest.raises(UnknownNameError, match=r"No toolset is called 'kernel'\. Nearest names: kernels"):
        toolset(["kernel"])


def test_the_whole_list_costs_an_agent_less_than_five_thousand_tokens() -> None:
    """Name (Claude Code's, the server's put before it), description and arguments are what hosts hand on to the model; no output schema.

    Four characters a token is on the safe side: the tokenizer that Anthropic published with its SDK up to 0.38 finds 4.2
    in these texts.
    """
    texts = [
        json.dumps(
            [f"mcp__opscope__{tool.name}", tool.description, arguments_schema(tool.arguments)], separators=(",", ":")
        )
        for tool in ALL_TOOLS
    ]
    assert sum(map(len, texts)) / 4 < 5000


@pytest.mark.parametrize("tool", ALL_TOOLS, ids=lambda tool: tool.name)
def test_what_the_short_schema_asks_for_is_what_the_tool_takes(tool: AnyTool) -> None:
    """The defaults that it shows, alone and all together, pass it and the tool's own validation; so do nulls, there."""
    schema = arguments_schema(tool.arguments)
    given: dict[str, object] = dict.fromkeys(schema["required"], "x")
    shown = {name: field["default"] for name, field in schema["properties"].items() if "default" in field}
    jsonschema.validate(given | shown, schema)
    assert validate(tool, given | shown) == validate(tool, given)
    nulls = {name: None for name, field in tool.arguments.model_fields.items() if field.default is None}
    assert validate(tool, given | nulls) == validate(tool, given)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**given, "nonsense": 1}, schema)
