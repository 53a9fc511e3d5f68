"""The server through a real client in memory, in both protocol eras: answers, errors, progress, cancellation."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
import toys
from mcp import Client, MCPError
from mcp.types import CallToolResult, PromptReference, ResourceTemplateReference, TextContent
from opscope_cache.store import MemoryStore
from opscope_server.server import OpscopeServer, build_server
from opscope_server.settings import Settings
from opscope_tools.running.workspace import Workspace

ERAS = ("legacy", "2026-07-28")


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(tmp_path: Path) -> OpscopeServer:
    workspace = Workspace(repositories={}, output=tmp_path, store=MemoryStore())
    return build_server(workspace, Settings(budget=2000, workers=2, log_level="CRITICAL"), tools=toys.TOYS)


def talk(server: OpscopeServer, era: str, story: Callable[[Client], Awaitable[Any]]) -> Any:
    """Connect, tell the story, return what it returns."""

    async def main() -> Any:
        async with Client(server, mode=era) as client:
            return await story(client)

    return anyio.run(main)


def text_of(result: CallToolResult) -> str:
    first = result.content[0]
    assert isinstance(first, TextContent)
    return first.text


def test_a_tool_is_listed_with_closed_arguments_an_output_schema_and_annotations(
    server: OpscopeServer, era: str
) -> None:
    listed = talk(server, era, lambda client: client.list_tools()).tools
    assert [tool.name for tool in listed] == ["rows", "crash", "exit", "wait", "chatter"]
    rows = listed[0]
    assert rows.title == "Rows"
    assert rows.input_schema["additionalProperties"] is False
    assert rows.input_schema["required"] == ["target"]
    assert "title" not in rows.input_schema["properties"]["target"]
    assert rows.output_schema["required"] == ["rows", "total"]
    hints = rows.annotations
    assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint) == (
        True, False, True, False,
    )  # fmt: skip


def test_both_channels_carry_the_same_compact_facts_that_the_schema_describes(server: OpscopeServer, era: str) -> None:
    async def story(client: Client) -> tuple[Any, CallToolResult]:
        return (await client.list_tools()).tools[0], await client.call_tool("rows", {"target": "x", "rows": 2})

    tool, result = talk(server, era, story)
    assert json.loads(text_of(result)) == result.structured_content
    assert "\n" not in text_of(result)
    assert result.structured_content["rows"] == ["x 0", "x 1"]
    jsonschema.validate(result.structured_content, tool.output_schema)


def test_an_unknown_argument_is_refused_by_name(server: OpscopeServer, era: str) -> None:
    result = talk(server, era, lambda client: client.call_tool("rows", {"target": "x", "row": 2}))
    assert result.is_error
    assert text_of(result) == "rows has no argument 'row'. Did you mean 'rows'? It takes: target, rows, detail, values."


def test_a_foreseen_failure_reaches_the_caller_as_its_own_sentence(server: OpscopeServer, era: str) -> None:
    result = talk(server, era, lambda client: client.call_tool("rows", {"target": "broken"}))
    assert result.is_error
    assert text_of(result) == "The class has no forward. (a/b.py:7) Name a module."


def test_a_refusal_that_quotes_a_huge_argument_stays_within_the_budget(server: OpscopeServer, era: str) -> None:
    result = talk(server, era, lambda client: client.call_tool("rows", {"target": "x", "row" * 20_000: 2}))
    assert result.is_error
    assert len(text_of(result)) < 25_000
    assert text_of(result).startswith("rows has no argument 'row")
    assert text_of(result).endswith("It takes: target, rows, detail, values.")


@pytest.mark.parametrize("tool", ["crash", "exit"])
def test_an_unforeseen_failure_is_masked_logged_and_survived(
    server: OpscopeServer, era: str, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(client: Client) -> tuple[CallToolResult, CallToolResult]:
        return await client.call_tool(tool, {}), await client.call_tool("rows", {"target": "alive"})

    with caplog.at_level("ERROR"):
        broken, alive = talk(server, era, story)
    assert broken.is_error
    assert text_of(broken).startswith(f"{tool} stopped on a defect of opscope itself")
    assert "swordfish" not in text_of(broken)
    logged = caplog.text
    assert ("swordfish" if tool == "crash" else "SystemExit") in logged
    assert not alive.is_error


def test_an_unknown_tool_gets_the_nearest_names(server: OpscopeServer, era: str) -> None:
    result = talk(server, era, lambda client: client.call_tool("rowz", {}))
    assert result.is_error
    assert text_of(result) == "No tool is called 'rowz'. Nearest names: rows."


def test_a_long_answer_is_shortened_and_its_artifact_holds_the_whole(server: OpscopeServer, era: str) -> None:
    async def story(client: Client) -> tuple[CallToolResult, Any]:
        result = await client.call_tool("rows", {"target": "long", "rows": 300})
        assert result.structured_content
        return result, await client.read_resource(result.structured_content["artifact"])

    result, whole = talk(server, era, story)
    assert len(json.dumps(result.structured_content, separators=(",", ":"))) <= 2000
    assert result.structured_content["shortened"]
    assert result.content[1].type == "resource_link"
    assert len(json.loads(whole.contents[0].text)["rows"]) == 300


def test_progress_arrives_in_order_before_the_answer(server: OpscopeServer, era: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    talk(server, era, lambda client: client.call_tool("rows", {"target": "p", "rows": 3}, progress_callback=note))
    assert seen == [(1, 3, "row 1"), (2, 3, "row 2"), (3, 3, "row 3")]


def test_cancelling_a_call_stops_its_work_and_the_server_goes_on(server: OpscopeServer, era: str) -> None:
    toys.BEGUN.clear()
    toys.STOPPED.clear()

    async def story(client: Client) -> CallToolResult:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait", {})
            await anyio.to_thread.run_sync(toys.BEGUN.wait, 10)
            group.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(toys.STOPPED.wait, 10)
        return await client.call_tool("rows", {"target": "after"})

    assert talk(server, era, story).structured_content["rows"] == ["after 0"]


def test_more_busy_tools_than_workers_do_not_hold_up_a_listing(server: OpscopeServer, era: str) -> None:
    async def story(client: Client) -> int:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                toys.BEGUN.clear()
                for _ in range(5):
                    group.start_soon(client.call_tool, "wait", {})
                await anyio.to_thread.run_sync(toys.BEGUN.wait, 10)
                count = len((await client.list_tools()).tools)
                group.cancel_scope.cancel()
        return count

    assert talk(server, era, story) == 5


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("analyse", {}, "Unknown prompt: analyse. Nearest names: analyze"),
        ("analyze", {}, "The prompt analyze needs the argument 'target'"),
        ("analyze", {"target": "two words"}, "must be one word without spaces"),
        ("analyze", {"target": "x", "tarhet": "y"}, "has no argument 'tarhet'; it takes: target."),
    ],
)
def test_a_bad_prompt_request_is_invalid_params_with_a_sentence(
    server: OpscopeServer, era: str, name: str, arguments: dict[str, str], sentence: str
) -> None:
    async def story(client: Client) -> MCPError:
        with pytest.raises(MCPError) as caught:
            await client.get_prompt(name, arguments)
        return caught.value

    error = talk(server, era, story)
    assert error.code == -32602
    assert sentence in error.message


def test_a_prompt_is_filled_and_keeps_the_braces_of_formulas(server: OpscopeServer, era: str) -> None:
    prompt = talk(server, era, lambda client: client.get_prompt("analyze_module_forward", {"module": "LlamaMLP"}))
    text = prompt.messages[0].content.text
    assert "LlamaMLP" in text
    assert "<<" not in text
    assert "${{qualified.ClassName}}" in text
    assert "{batch_size}" in text


@pytest.mark.parametrize(
    "uri",
    [
        "opscope://report/..%2f..%2fsecret",
        "opscope://report/../../secret",
        "opscope://artifact/../../../etc/passwd",
        "opscope://schema/%2e%2e",
        "opscope://report/linked",
        "opscope://template/none",
    ],
)
def test_a_resource_outside_what_is_served_does_not_exist(
    server: OpscopeServer, era: str, uri: str, tmp_path: Path
) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-secret.md"
    outside.write_text("secret")
    folder = server.workspace.output / "reports/implementations"
    folder.mkdir(parents=True)
    (folder / "linked.md").symlink_to(outside)

    async def story(client: Client) -> MCPError:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)
        return caught.value

    error = talk(server, era, story)
    assert error.code == -32602
    assert "secret" not in error.message.replace(uri, "")


def test_a_saved_report_is_listed_read_and_completed(server: OpscopeServer, era: str) -> None:
    folder = server.workspace.output / "reports/implementations"
    folder.mkdir(parents=True)
    (folder / "llama-analysis.md").write_text("# Llama\n")

    async def story(client: Client) -> tuple[list[str], str, list[str]]:
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        read = (await client.read_resource("opscope://report/llama-analysis")).contents[0]
        ref = ResourceTemplateReference(type="ref/resource", uri="opscope://report/{name}")
        completed = await client.complete(ref, {"name": "name", "value": "LLA"})
        return listed, getattr(read, "text", ""), completed.completion.values

    listed, text, completed = talk(server, era, story)
    assert "opscope://report/llama-analysis" in listed
    assert text == "# Llama\n"
    assert completed == ["llama-analysis"]


def test_completion_of_an_unknown_argument_is_empty(server: OpscopeServer, era: str) -> None:
    ref = PromptReference(type="ref/prompt", name="analyze")
    done = talk(server, era, lambda client: client.complete(ref, {"name": "nothing", "value": "x"}))
    assert done.completion.values == []


def test_instructions_fit_what_hosts_show_and_name_only_real_tools(server: OpscopeServer) -> None:
    assert server.instructions
    assert len(server.instructions) < 4096


def test_every_argument_of_every_prompt_says_what_it_is(server: OpscopeServer) -> None:
    async def story(client: Client) -> list[str | None]:
        listed = (await client.list_prompts()).prompts
        return [argument.description for prompt in listed for argument in prompt.arguments or []]

    assert all(talk(server, "legacy", story))


def test_an_answer_with_a_name_that_is_no_text_is_sent_all_the_same() -> None:
    from opscope_server.binding import answer

    found = answer(toys.ROWS, toys.RowsResult(rows=("caf\udce9",), total=1), 2000)
    assert found.structured_content == json.loads(text_of(found)) == {"rows": ["caf?"], "total": 1}
    assert found.model_dump_json()


def test_a_picture_goes_beside_the_answer_and_into_none_of_its_facts(tmp_path: Path, era: str) -> None:
    drawn = dataclasses.replace(
        toys.ROWS, picture=lambda asked, result: f"{asked.target} {result.total}".encode() if asked.rows > 1 else None
    )
    workspace = Workspace(repositories={}, output=tmp_path, store=MemoryStore())
    server = build_server(workspace, Settings(log_level="CRITICAL"), [drawn])

    async def story(client: Client) -> list[CallToolResult]:
        asked = ({"target": "x", "rows": 2}, {"target": "x", "rows": 2}, {"target": "x", "rows": 1})
        return [await client.call_tool("rows", arguments) for arguments in asked]

    computed, kept, without = talk(server, era, story)
    for result in (computed, kept):
        assert [part.type for part in result.content] == ["text", "image", "resource_link"]
        assert result.content[1].mime_type == "image/png"
        assert base64.b64decode(result.content[1].data) == b"x 2"
        assert json.loads(text_of(result)) == result.structured_content
        assert result.content[1].data not in text_of(result)
    assert [part.type for part in without.content] == ["text", "resource_link"]


def test_a_refusal_that_quotes_control_characters_stays_one_line(server: OpscopeServer, era: str) -> None:
    result = talk(server, era, lambda client: client.call_tool("rows", {"target": "x", "ro\n\x1b[31m\u202ew": 2}))
    assert text_of(result).startswith("rows has no argument 'ro\\n\\x1b[31m")
    assert text_of(result).isprintable()
