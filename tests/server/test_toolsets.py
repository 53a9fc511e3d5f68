"""What an agent is told at the start of a conversation is short, and can be made shorter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import opscope_schemas
import pytest
import tool_list
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import UnknownNameError
from opscope_server import listing
from opscope_server.definitions import answer_schema, arguments_schema, schema_of
from opscope_server.listing import Listing, kept_listing
from opscope_tools.catalog import TOOL_NAMES, all_tools, toolset
from opscope_tools.running.runner import validate
from opscope_tools.running.tool import AnyTool
from opscope_tools.toolsets import TOOLSETS


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
    assert "without map_repo, resolve_class, find_references, search_source" in first
    assert "find_forward" not in first


def test_without_a_toolset_every_tool_is_served_and_nothing_is_said_to_be_missing(tmp_path: Path) -> None:
    tools, instructions = listed("--cache-dir", str(tmp_path))
    assert [tool.name for tool in tools] == list(TOOL_NAMES)
    assert "started without" not in instructions
    assert len(instructions) < 4096


def test_toolsets_together_leave_no_tool_out_and_an_unknown_one_is_named() -> None:
    assert toolset(list(TOOLSETS)) == all_tools()
    with pytest.raises(UnknownNameError, match=r"No toolset is called 'kernel'\. Nearest names: kernels"):
        toolset(["kernel"])


def test_the_whole_list_costs_at_most_what_is_promised_on_the_wire_and_to_a_model(tmp_path: Path) -> None:
    """A model of Claude Code is shown names, descriptions and arguments; benchmarks/tools.py prints what makes up the list."""
    measured = tool_list.measured()
    tools = measured.listed("--cache-dir", str(tmp_path))
    assert measured.size(tools) <= measured.MOST
    assert measured.tokens("Claude Code", tools) <= measured.MOST_TOKENS


# ---- the short schema of an answer ---------------------------------------------------------------------------------


def instances(schema: dict[str, Any], held: dict[str, Any], depth: int = 3) -> st.SearchStrategy[Any]:
    """Whatever fits one of our schemas (bounds aside); lists and maps are empty from some depth on."""
    if "$ref" in schema:
        named = held[schema["$ref"].rpartition("/")[2]]
        return st.deferred(lambda: instances(named, held, depth - 1))
    if choices := schema.get("anyOf", schema.get("oneOf")):
        chosen = sorted(choices, key=lambda choice: "$ref" in choice)
        return st.one_of([instances(choice, held, depth) for choice in (chosen if depth > 0 else chosen[:1])])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema["enum"] if "enum" in schema else [schema["const"]])
    if "properties" in schema:
        fields = {name: instances(field, held, depth) for name, field in schema["properties"].items()}
        always = {name: fields.pop(name) for name in schema.get("required", ())}
        return st.fixed_dictionaries(always, optional=fields)
    inner = schema.get("items", schema.get("additionalProperties"))
    most = 1 if isinstance(inner, dict) and depth > 0 else 0
    fitting = instances(inner, held, depth - 1) if isinstance(inner, dict) and most else st.none()
    kinds = {
        "object": st.dictionaries(st.text(max_size=3), fitting, max_size=most), "array": st.lists(fitting, max_size=most),
        "string": st.text(max_size=3), "integer": st.integers(), "number": st.integers() | st.floats(allow_nan=False),
        "boolean": st.booleans(), "null": st.none(),
    }  # fmt: skip
    if "prefixItems" in schema:
        return st.tuples(*(instances(item, held, depth) for item in schema["prefixItems"])).map(list)
    return kinds[schema["type"]] if "type" in schema else st.none() | st.integers() | st.text(max_size=3)


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
@settings(max_examples=10, phases=[Phase.generate])
@given(data=st.data())
def test_whatever_an_answer_may_be_fits_the_short_schema_and_nothing_beside_it_does(
    tool: AnyTool, data: st.DataObject
) -> None:
    whole, short = schema_of(tool.result), answer_schema(tool.result)
    found = data.draw(instances(whole, whole.get("$defs", {})))
    jsonschema.Draft202012Validator(short).validate(found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(short).validate({**found, "nonsense": 1})
    for needed in whole["required"]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({name: value for name, value in found.items() if name != needed}, short)


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_a_short_schema_spells_out_the_same_fields_as_closed_as_the_models(tool: AnyTool) -> None:
    def objects(schema: Any) -> Iterator[dict[str, Any]]:
        if isinstance(schema, dict):
            yield from [schema] if "properties" in schema else []
            for inner in schema.values():
                yield from objects(inner)
        elif isinstance(schema, list):
            for inner in schema:
                yield from objects(inner)

    short = answer_schema(tool.result)
    assert set(short["properties"]) == set(tool.result.model_fields)
    assert all(found["additionalProperties"] is False for found in objects(short))
    assert not {"title", "description", "default", "$ref", "$defs"} & {key for found in objects(short) for key in found}


# ---- the list that is kept -----------------------------------------------------------------------------------------


def test_a_kept_list_is_the_list_and_costs_no_import_of_a_tool(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from opscope_cache.store import open_store\n"
        "from opscope_server.listing import kept_listing\n"
        "listing = kept_listing(open_store(Path(sys.argv[1])), ['cost'])\n"
        "print(len(listing.definitions), hash(repr(listing.definitions)), listing.missing)\n"
        "print(any(f'opscope_tools.{name}' in sys.modules for name in ('count_flops', 'sweep')), list(listing.tools()) == listing.names)"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": "1"},
        ).stdout.splitlines()
        for _ in range(2)
    ]  # fmt: skip
    assert said[0][0] == said[1][0]
    assert [lines[1] for lines in said] == ["True True", "False True"]


def test_an_edit_of_our_source_a_damaged_row_and_another_choice_of_tools_each_make_another_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "any_imported", lambda: False)  # as in a process that has just begun
    monkeypatch.setattr(opscope_schemas, "__path__", [str(tmp_path)])
    source, store = tmp_path / "results.py", MemoryStore()
    source.write_text("a = 1")

    def listed_now(*names: str) -> int:
        with monkeypatch.context() as fresh:
            fresh.setattr(listing, "listing_of", lambda _: Listing((), (), dict))
            fresh.setattr(listing, "_tools", lambda _: {})
            kept_listing(store, names)
        return len(list(store.keys()))

    assert [listed_now(), listed_now(), listed_now("cost")] == [1, 1, 2]
    source.write_text("a = 2")
    assert [listed_now(), listed_now()] == [3, 3]
    (key,) = list(store.keys())[-1:]
    store.put(key, '[[{"name": 1}], []]')
    assert listed_now() == 3
    assert json.loads(store.get(key) or "") == [[], []]


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_what_the_short_schema_asks_for_is_what_the_tool_takes(tool: AnyTool) -> None:
    """The defaults that it shows, alone and all together, pass it and the tool's own validation; so do nulls, there."""
    schema = arguments_schema(tool.arguments)
    asked = {name: schema["properties"][name] for name in schema["required"]}
    given: dict[str, object] = {
        name: ["x"] if field["type"] == "array" else field.get("enum", ["x"])[0] for name, field in asked.items()
    }
    shown = {name: field["default"] for name, field in schema["properties"].items() if "default" in field}
    jsonschema.validate(given | shown, schema)
    assert validate(tool, given | shown) == validate(tool, given)
    nulls = {name: None for name, field in tool.arguments.model_fields.items() if field.default is None}
    assert validate(tool, given | nulls) == validate(tool, given)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**given, "nonsense": 1}, schema)
