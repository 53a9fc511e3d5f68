"""Running a tool: arguments, cache, artifacts, compact JSON, the ladder of shorter forms."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import toys
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.errors import CancelledError, InputError, OpscopeError, UnknownNameError
from opscope_tools.catalog import tool_named
from opscope_tools.running import runner
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.py").write_text("x = 1\n")
    repository = Repository(name="own", root=source)
    return Workspace(repositories={"own": repository}, output=tmp_path, store=MemoryStore())


def calls(workspace: Workspace, **arguments: object) -> int:
    """How often the handler runs for one call of the toy."""
    before = len(toys.CALLS)
    runner.run_tool(toys.ROWS, arguments, ToolContext(workspace))
    return len(toys.CALLS) - before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "rows needs the argument 'target'. It takes: target, rows, detail, values."),
        (
            {"target": "x", "row": 1},
            "rows has no argument 'row'. Did you mean 'rows'? It takes: target, rows, detail, values.",
        ),
        (
            {"target": "x", "detail": "most"},
            "The argument 'detail' of rows cannot be 'most': input should be 'full' or 'names'.",
        ),
        (
            {"target": "x", "rows": -1},
            "The argument 'rows' of rows cannot be -1: input should be greater than or equal to 0.",
        ),
    ],
)
def test_a_bad_argument_is_named_with_what_it_may_be(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        runner.validate(toys.ROWS, arguments)
    assert str(caught.value) == sentence


def test_all_bad_arguments_are_told_at_once() -> None:
    with pytest.raises(InputError, match=r"'target'.*'rows'.*'detial'"):
        runner.validate(toys.ROWS, {"rows": "many", "detial": 1})


def test_an_object_sent_as_json_text_is_read_but_plain_text_never_is() -> None:
    checked = runner.validate(toys.ROWS, {"target": '{"a": 1}', "values": '{"a": 1}'})
    assert checked.model_dump()["values"] == {"a": 1}
    assert checked.model_dump()["target"] == '{"a": 1}'


def test_the_second_call_is_answered_from_the_store(workspace: Workspace) -> None:
    assert calls(workspace, target="cached", rows=2) == 1
    assert calls(workspace, target="cached", rows=2) == 0
    assert calls(workspace, target="cached", rows=3) == 1


def test_an_edited_source_a_new_file_and_a_header_each_make_the_answer_anew(workspace: Workspace) -> None:
    root = workspace.repositories["own"].root
    assert calls(workspace, target="edited") == 1
    (root / "a.py").write_text("x = 2\n")
    assert calls(workspace, target="edited") == 1
    (root / "kernel.cuh").write_text("#define TILE 64\n")
    assert calls(workspace, target="edited") == 1
    assert calls(workspace, target="edited") == 0


def test_a_config_file_that_an_argument_names_is_part_of_the_key(workspace: Workspace, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"a": 1}')
    stamp = config.stat()
    assert calls(workspace, target=str(config)) == 1
    config.write_text('{"a": 2}')
    os.utime(config, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert calls(workspace, target=str(config)) == 1
    assert calls(workspace, target=str(tmp_path)) == 1
    config.write_text('{"a": 3}')
    assert calls(workspace, target=str(tmp_path)) == 1


def test_another_interpreter_or_another_trust_is_another_answer(workspace: Workspace) -> None:
    checked = runner.validate(toys.ROWS, {"target": "x"})
    keys = {runner.result_key(toys.ROWS, checked, workspace)}
    workspace.trusted = frozenset({"own"})
    keys.add(runner.result_key(toys.ROWS, checked, workspace))
    workspace.python = "/usr/bin/python3"
    keys.add(runner.result_key(toys.ROWS, checked, workspace))
    assert len(keys) == 3


def test_the_artifact_holds_the_whole_result_and_reads_back_equal(workspace: Workspace) -> None:
    result = runner.run_tool(toys.ROWS, {"target": "kept", "rows": 5}, ToolContext(workspace))
    text = workspace.store.get(result.artifact.removeprefix("opscope://"))
    assert text is not None
    assert toys.RowsResult.model_validate_json(text) == result


def test_a_damaged_entry_is_computed_anew(workspace: Workspace) -> None:
    assert calls(workspace, target="damaged") == 1
    for key in list(workspace.store.keys()):
        workspace.store.put(key, '{"rows": 3')
    assert calls(workspace, target="damaged") == 1
    assert calls(workspace, target="damaged") == 0


def test_a_cancelled_call_keeps_nothing(workspace: Workspace) -> None:
    context = ToolContext(workspace)
    context.cancelled.set()
    with pytest.raises(CancelledError):
        runner.run_tool(toys.ROWS, {"target": "x"}, context)
    assert list(workspace.store.keys()) == []


def test_compact_json_drops_what_says_nothing_and_keeps_the_promised_fields() -> None:
    from opscope_schemas.analysis import Kernel, MemoryAccess

    kernel = Kernel(
        kernel_type="basic", operation="aten.mm", analysis="", flops="2", matmul_flops="2",
        memory_access=MemoryAccess(read="1", write="1"), file="a.py", line=1,
    )  # fmt: skip
    assert runner.compact(kernel) == {
        "kernel_type": "basic", "operation": "aten.mm", "analysis": "", "flops": "2", "matmul_flops": "2",
        "memory_access": {"read": "1", "write": "1"}, "file": "a.py", "line": 1, "code": "", "class_name": "",
        "attribute": "",
    }  # fmt: skip
    assert Kernel.model_validate(runner.compact(kernel)) == kernel


def test_the_ladder_takes_the_first_form_that_fits(workspace: Workspace) -> None:
    whole = runner.run_tool(toys.ROWS, {"target": "wide", "rows": 100}, ToolContext(workspace))
    size = len(runner.to_json(whole))
    assert runner.shorten_to(toys.ROWS, whole, size) is whole
    half = runner.shorten_to(toys.ROWS, whole, size - 1)
    assert half.shortened == "50 of 100 rows; lower rows."
    assert len(runner.to_json(half)) < size
    assert runner.shorten_to(toys.ROWS, whole, size // 3).shortened == "Rows left out; lower rows."


def test_a_result_that_no_form_fits_says_how_to_ask_for_less(workspace: Workspace) -> None:
    whole = runner.run_tool(toys.ROWS, {"target": "wide", "rows": 100}, ToolContext(workspace))
    with pytest.raises(OpscopeError) as caught:
        runner.shorten_to(toys.ROWS, whole, 20)
    assert "Ask for less with target or detail" in str(caught.value)
    assert whole.artifact in str(caught.value)


def test_an_unknown_tool_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="Nearest names: map_repo"):
        tool_named("map_rep")


def test_the_key_of_a_result_is_forty_hex_digits(workspace: Workspace) -> None:
    key = runner.result_key(toys.ROWS, runner.validate(toys.ROWS, {"target": "x"}), workspace)
    assert len(key) == 40
    assert int(key, 16) >= 0
    assert json.dumps(key)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ('{"a": ' * 100 + "1" + "}" * 100, "nests deeper than 60 levels"),
        ('{"a": NaN}', "holds nan, which is no number of JSON"),
        ('{"a": 1e999}', "holds inf, which is no number of JSON"),
        ('{"a": "\\ud800"}', "holds half of a surrogate pair"),
        ({"\udcff": 1}, "holds half of a surrogate pair"),
    ],
)
def test_what_can_be_neither_kept_nor_sent_back_is_refused_wherever_it_hides(value: object, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^The argument 'values' of rows {sentence}"):
        runner.validate(toys.ROWS, {"target": "x", "values": value})


def test_text_that_utf8_cannot_hold_never_leaves_as_it_is() -> None:
    result = toys.RowsResult(rows=("caf\udce9",), total=1)
    assert json.loads(runner.to_json(result).encode())["rows"] == ["caf?"]
