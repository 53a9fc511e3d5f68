"""What is derived from the code and kept in the tree is what the code gives now; `make golden` renews it."""

from __future__ import annotations

import json
import re

import click
import jsonschema
import pytest
import refresh
from opscope_clients import claude_code, helping
from opscope_clients.cli import opscope
from opscope_prompts import loader
from opscope_server.definitions import answer_schema, arguments_schema, schema_of
from opscope_tools.catalog import TOOL_NAMES, all_tools
from opscope_tools.running.tool import AnyTool


def test_every_derived_file_is_up_to_date_and_none_is_left_over() -> None:
    files = refresh.derived()
    stale = [path.name for path, text in files.items() if not path.is_file() or path.read_text() != text]
    assert not stale, f"run `make golden` and look at the difference: {stale}"
    assert set(refresh.TOOLS.glob("*.json")) <= set(files)


def test_the_registry_s_entry_starts_the_server_and_readme_bears_its_name() -> None:
    entry = json.loads((refresh.ROOT / "server.json").read_text())
    assert (
        f"<!-- mcp-name: {entry['name']} -->" in (refresh.ROOT / "README.md").read_text()
    )  # PyPI's page proves the owner
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert 0 < len(entry["description"]) <= 100
    started = [argument["value"] for package in entry["packages"] for argument in package["packageArguments"]]
    assert started == ["serve"]
    assert set(started) <= set(helping.below(opscope))


def test_the_reference_has_every_tool_every_argument_and_every_command() -> None:
    files = refresh.derived()
    tools, commands = files[refresh.REFERENCE / "tools.md"], files[refresh.REFERENCE / "command-line.md"]
    for tool in all_tools():
        section = tools.partition(f"\n## {tool.name}\n")[2].partition("\n## ")[0]
        assert all(f"\n| `{name}` | " in section for name in tool.arguments.model_fields), tool.name
    for name, command in helping.below(opscope).items():
        assert f"\n### opscope {name}" in commands, f"{name} has no heading in helping.COMMANDS"
        flags = [flag for one in command.params if isinstance(one, click.Option) for flag in one.opts]
        assert all(re.search(rf"`[^`]*{flag}\b", commands) for flag in flags), name


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_a_tool_definition_reads_well_alone(tool: AnyTool) -> None:
    assert len(tool.description) < 4096
    for schema in (arguments_schema(tool.arguments), schema_of(tool.result), answer_schema(tool.result)):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    for name, field in tool.arguments.model_fields.items():
        assert field.description, f"{tool.name}.{name} has no description"


@pytest.mark.parametrize("name", refresh.DOCUMENTS)
def test_a_published_schema_is_a_valid_schema(name: str) -> None:
    schema = json.loads((refresh.SCHEMAS / f"{name}_schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert {"class_name", "kernels", "totals", "variables"} <= set(schema["required"])


def test_prompts_call_tools_and_arguments_that_exist() -> None:
    tools = {tool.name: set(tool.arguments.model_fields) for tool in all_tools()}
    for name in (*loader.prompt_names(), "instructions"):
        places = {} if name == "instructions" else dict.fromkeys(loader.prompt_places(name), "X")
        text = loader.prompt_text(name, places)
        for tool, arguments in re.findall(r"`(\w+)\(([^`]*)\)`", text):
            used = set(re.findall(r"(\w+)=", arguments))
            assert tool in tools, f"{name}.md calls {tool}"
            assert used <= tools[tool], f"{name}.md calls {tool} with {used - tools[tool]}"


@pytest.mark.parametrize("command", claude_code.COMMANDS)
@pytest.mark.parametrize("prefix", ["mcp__opscope__", "mcp__plugin_opscope_opscope__"])
def test_a_command_allows_every_tool_that_its_text_names_and_analyze_those_of_the_servers_instructions(
    command: str, prefix: str
) -> None:
    _, head, body = claude_code.command_text(command, prefix).split("---", 2)
    told = body + (loader.instructions().partition("Formulas use")[0] if command == "analyze" else "")
    named = set(TOOL_NAMES) & set(re.findall(r"`(\w+)", told))
    allowed = set(re.findall(rf"{prefix}(\w+)", head))
    assert allowed == named
    assert command != "analyze" or "find_references" in allowed
