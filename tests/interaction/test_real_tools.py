"""The real catalogue through a client, on the installed packages: what a host meets first, and completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client
from mcp.types import PromptReference
from opscope_cache.store import MemoryStore
from opscope_server.server import OpscopeServer, build_server
from opscope_server.settings import Settings
from opscope_tools.catalog import TOOL_NAMES
from opscope_tools.running.workspace import Workspace


@pytest.fixture
def server(tmp_path: Path, index_folder: Path) -> OpscopeServer:
    workspace = Workspace.create(output=tmp_path, cache_folder=tmp_path / "cache")
    workspace.store.close()
    workspace.store = MemoryStore(index_folder)
    return build_server(workspace, Settings(log_level="CRITICAL"))


def run(server: OpscopeServer, story: Any) -> Any:
    async def main() -> Any:
        async with Client(server) as client:
            return await story(client)

    return anyio.run(main)


def test_the_listing_is_the_catalogue_in_its_order(server: OpscopeServer) -> None:
    listed = run(server, lambda client: client.list_tools()).tools
    assert [tool.name for tool in listed] == list(TOOL_NAMES)
    assert all(tool.output_schema and tool.annotations and tool.title for tool in listed)
    assert all(len(tool.description or "") < 4096 for tool in listed)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("resolve_class", {"name": "LlamaAttention"}),
        ("resolve_class", {"name": "LlamaAtention"}),
        ("resolve_class", {"name": "Module"}),
        ("find_forward", {"target": "LlamaForCausalLM"}),
    ],
)
def test_an_answer_fits_its_own_schema_and_the_budget(
    server: OpscopeServer, tool: str, arguments: dict[str, str]
) -> None:
    async def story(client: Client) -> Any:
        schema = next(entry.output_schema for entry in (await client.list_tools()).tools if entry.name == tool)
        return schema, await client.call_tool(tool, arguments)

    schema, result = run(server, story)
    if not result.is_error:
        jsonschema.validate(result.structured_content, schema)
        assert len(result.content[0].text) <= 25_000


def test_a_target_is_completed_with_model_types_and_class_names(server: OpscopeServer) -> None:
    ref = PromptReference(type="ref/prompt", name="analyze")

    async def story(client: Client) -> Any:
        types = await client.complete(ref, {"name": "target", "value": "qwen3_m"})
        classes = await client.complete(ref, {"name": "target", "value": "llamarms"})
        return types.completion.values, classes.completion.values

    types, classes = run(server, story)
    assert types[0] == "qwen3_moe"
    assert classes[0] == "LlamaRMSNorm"
