"""Tool arguments as command-line parameters, and back; documents written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import pytest
import toys
from click.testing import CliRunner
from opscope_clients import options
from opscope_clients.commands import tool_command
from opscope_clients.documents import write_document
from opscope_clients.options import Kind, kind_of, parse_object
from opscope_clients.session_options import SessionOptions
from opscope_schemas.common import ToolArguments, ToolResult
from opscope_schemas.errors import InputError, OutputError
from opscope_tools.running.tool import Tool, ToolContext
from pydantic import Field


class Every(ToolArguments):
    target: str
    phase: Literal["prefill", "decode"] = "prefill"
    depth: int | None = None
    ratio: float = 1.0
    deep: bool = False
    names: tuple[str, ...] = ()
    values: Annotated[dict[str, int] | None, Field(description="Values.")] = None
    config: str | dict[str, Any] | None = None
    repo: str | None = None


class Echo(ToolResult):
    given: dict[str, Any]


def _echo(arguments: Every, _context: ToolContext) -> Echo:
    return Echo(given=arguments.model_dump(exclude_unset=True))


EVERY = Tool("every_kind", "Every", "Echo. Of every kind.", Every, Echo, _echo, cached=False)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("target", Kind.TEXT), ("phase", Kind.CHOICE), ("depth", Kind.INTEGER), ("ratio", Kind.NUMBER),
        ("deep", Kind.FLAG), ("names", Kind.TEXTS), ("values", Kind.OBJECT), ("config", Kind.OBJECT_OR_TEXT),
    ],
)  # fmt: skip
def test_a_field_becomes_the_parameter_that_its_type_asks_for(name: str, kind: Kind) -> None:
    assert kind_of(Every.model_fields[name])[0] is kind


def invoke(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(tool_command(EVERY), [*arguments, "--json"], obj=SessionOptions(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    given: dict[str, Any] = json.loads(done.output)["given"]
    return given


def test_what_is_not_given_is_left_to_the_tool() -> None:
    assert invoke("T") == {"target": "T"}


def test_every_kind_of_option_arrives_as_its_type(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert invoke(
        "T", "--phase", "decode", "--depth", "2", "--ratio", "0.5", "--deep", "--names", "a", "--names", "b",
        "--values", "batch_size=2", "--values", '{"seq_len": 7}', "--config", "hidden_act=silu",
    ) == {
        "target": "T", "phase": "decode", "depth": 2, "ratio": 0.5, "deep": True, "names": ["a", "b"],
        "values": {"batch_size": 2, "seq_len": 7}, "config": {"hidden_act": "silu"},
    }  # fmt: skip
    assert invoke("T", "--no-deep", "--config", str(tmp_path / "config.json"))["deep"] is False


def test_a_repository_given_to_a_tool_with_a_repo_is_registered_and_selected(tmp_path: Path) -> None:
    assert invoke("T", "--repo", f"mine={tmp_path}")["repo"] == "mine"


def test_a_source_named_by_its_path_is_registered_and_searched_alone(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("")
    assert invoke(f"{tmp_path}/own.py:3") == {"target": "own.py:3", "repo": tmp_path.name}
    assert invoke(f"{tmp_path}/own.py", "--repo", f"mine={tmp_path}") == {"target": "own.py", "repo": "mine"}


def test_usual_sizes_have_short_names_and_what_is_spelled_out_counts() -> None:
    assert invoke("T", "--batch", "2", "--seq", "7", "--values", "seq_len=9") == {
        "target": "T", "values": {"batch_size": 2, "seq_len": 9},
    }  # fmt: skip
    assert invoke("T", "--context", "5")["values"] == {"cache_len": 5}
    with pytest.raises(click.BadParameter):
        tool_command(EVERY).make_context("every-kind", ["T", "--batch", "0"], obj=SessionOptions())


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (["a=1", "b=two", 'c=[1, "x"]', "d=true"], {"a": 1, "b": "two", "c": [1, "x"], "d": True}),
        (['{"a": 1}', "a=2"], {"a": 2}),
        (["a=b=c"], {"a": "b=c"}),
    ],
)
def test_objects_are_read_from_json_and_pairs(texts: list[str], read: dict[str, Any]) -> None:
    assert parse_object("values", texts) == read


def test_a_path_stays_a_path_even_with_an_equals_sign(tmp_path: Path) -> None:
    odd = tmp_path / "a=b.json"
    odd.write_text("{}")
    assert parse_object("config", [str(odd)], path=True) == str(odd)
    assert parse_object("config", ["missing.json"], path=True) == "missing.json"
    assert parse_object("config", ["a=1"], path=True) == {"a": 1}


def test_a_value_may_be_the_text_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "prose.md").write_text("Long.\n")
    assert parse_object("sections", [f"summary=@{tmp_path / 'prose.md'}"]) == {"summary": "Long.\n"}
    with pytest.raises(InputError, match="cannot be read: No such file"):
        parse_object("sections", ["summary=@/does/not/exist"])


@pytest.mark.parametrize("text", ["seven", "=7", '{"a": 1'])
def test_an_object_that_is_neither_json_nor_a_pair_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_object("values", [text])


def test_every_parameter_of_a_toy_is_on_its_command() -> None:
    made = options.parameters(toys.ROWS)
    assert [parameter.name for parameter in made] == ["target", "rows", "detail", "values"]
    assert isinstance(made[0], click.Argument)


def test_a_document_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "module_analysis.json").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        write_document(tmp_path, "module_analysis.json", {"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["module_analysis.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Name another folder with -o"):
        write_document(tmp_path / "file", "module_analysis.json", {})


def test_a_document_is_an_ordinary_readable_file(tmp_path: Path) -> None:
    path = write_document(tmp_path / "new/folder", "model_analysis.json", {"é": 1})
    assert json.loads(path.read_text(encoding="utf-8")) == {"é": 1}
    (tmp_path / "plain").write_text("")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
