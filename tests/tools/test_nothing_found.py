"""A search that finds nothing says what it searched and what to try next, whichever tool it is and whatever was asked."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import OpscopeError
from opscope_tools.catalog import TOOL_NAMES, all_tools, tool_named
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import AnyTool, ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository

#: tools whose answer is one thing that is there or refused with a sentence, and check_report, whose empty list is good news
NO_SEARCH = {
    "find_forward", "inspect_model", "count_flops", "expand_refs", "trace_dataflow", "estimate_roofline", "plan",
    "sweep", "compare", "write_report", "check_report", "collect_evidence", "import_evidence",
}  # fmt: skip


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    """A repository of next to nothing, one of nothing but a text, and no other."""
    (tmp_path / "few").mkdir()
    (tmp_path / "few/plain.py").write_text("class Plain:\n    pass\n\n\nclass Other(Plain):\n    pass\n")
    (tmp_path / "few/lone.py").write_text("def lone():\n    return None\n")
    (tmp_path / "few/one.cu").write_text("__global__ void one(float* x) { x[0] = 1; }\n")
    (tmp_path / "none").mkdir()
    (tmp_path / "none/read.txt").write_text("nothing\n")
    named = {name: folder_repository(name, tmp_path / name) for name in ("few", "none")}
    return ToolContext(Workspace(repositories=named, output=tmp_path, store=MemoryStore(tmp_path)))


#: for each tool: what it is asked about, and what narrows it, in every combination of these with their absence
ASKED: dict[str, tuple[list[dict[str, Any]], dict[str, list[Any]]]] = {
    "resolve_class": ([{"name": n} for n in ("Plain", "Zzz", "a.b.Zzz", "a::Zzz")], {"repo": ["few", "none"], "offset": [9]}),
    "find_references": (
        [{"target": t} for t in ("Plain", "Other", "lone")],
        {"repo": ["few", "none"], "kind": ["read", "subclass"], "verified_only": [True], "offset": [9]},
    ),
    "search_source": (
        [{"query": q} for q in ("Plain", "lone", "zzz", "calls:Plain", "calls:lone")], {"repo": ["few", "none"], "offset": [9]},
    ),
    "extract_config": (
        [{"target": t} for t in ("few", "none", "lone.py", "plain.py")],
        {"section": ["kernels", "constants", "constraints", "hyperparameters"], "repo": ["few", "none"], "offset": [9]},
    ),
    "cuda_kernel_tiling": ([{"target": t} for t in ("few", "none", "lone.py")], {"repo": ["few", "none"], "offset": [9]}),
    "map_repo": (
        [{"repo": "few"}, {"repo": "none"}],
        {"section": ["modules", "entry_points", "commands", "flags", "config", "loop", "kernels", "extensions"], "offset": [9]},
    ),
}  # fmt: skip


def test_every_tool_searches_or_is_known_not_to() -> None:
    searching = {tool.name for tool in all_tools() if tool.finds}
    assert searching == set(ASKED)
    assert searching | NO_SEARCH == set(TOOL_NAMES)
    for tool in all_tools():
        assert set(tool.finds) <= set(tool.result.model_fields)
        assert bool(tool.finds) == bool(tool.otherwise)


def answered(tool: AnyTool, given: dict[str, Any], context: ToolContext) -> Any:
    """The whole result, or the text of the refusal."""
    try:
        return run_tool(tool, given, context)
    except OpscopeError as refusal:
        return str(refusal)


@pytest.mark.parametrize("name", ASKED)
def test_an_empty_answer_says_what_was_searched_and_what_to_try_next(name: str, context: ToolContext) -> None:
    tool = tool_named(name)
    targets, narrowing = ASKED[name]
    empty = 0
    for asked, *chosen in itertools.product(targets, *([None, *values] for values in narrowing.values())):
        given = {**asked, **{key: value for key, value in zip(narrowing, chosen, strict=True) if value is not None}}
        answer = answered(tool, given, context)
        if isinstance(answer, str):
            assert re.search(r"\. .+\.", answer), given  # what is wrong, and a next step
            continue
        hints = [note for note in answer.notes if note.startswith("Nothing found: searched ")]
        defaults = {name: tool.result.model_fields[name].get_default(call_default_factory=True) for name in tool.finds}
        if any(getattr(answer, name) not in ((), default) for name, default in defaults.items()):
            assert not hints, given
            continue
        empty += 1
        assert len(hints) == 1, given
        said, _, following = hints[0].partition(" Next: ")
        for repository in [given["repo"]] if "repo" in given else ["few", "none"]:
            assert repository in said, given
        for key in narrowing.keys() & given.keys():
            assert f"{key}={given[key]!r}" in said, given
            assert key in following, given
        assert following.endswith("."), given
    assert empty
