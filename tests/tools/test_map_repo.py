"""The tool: what stands in each section, every fact on its line, sections and pages, the short form, refusals."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import threading
from pathlib import Path
from typing import Any, get_args

import pytest
from map_facts import CORPUS, context_of, fact_count, mapped, wrong_facts
from opscope_schemas.errors import CancelledError, InputError, SourceError, UnknownNameError
from opscope_schemas.repo_map import RepoMapResult, Section
from opscope_tools.map_repo import MAP_REPO, MapRepoArguments
from opscope_tools.running.runner import run_tool, to_json
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import folder_repository, installed_repository

ENGINE = CORPUS / "engine"


def at(path: str, text: str, nth: int = 0) -> str:
    """The pointer of the nth line of a file of the engine that holds `text`."""
    lines = [n for n, line in enumerate((ENGINE / path).read_text().splitlines(), 1) if text in line]
    return f"{path}:{lines[nth]}"


@pytest.fixture
def engine(tmp_path: Path) -> RepoMapResult:
    return mapped("engine", tmp_path)


@pytest.mark.parametrize("name", ["engine", "click_tool", "typer_tool", "jax_model", "image_tool"])
def test_every_fact_stands_on_its_line(name: str, tmp_path: Path) -> None:
    result = mapped(name, tmp_path)
    assert fact_count(result) >= 5
    assert wrong_facts(result, CORPUS / name) == []


@pytest.mark.parametrize("package", ["rich", "starlette", "huggingface_hub", "jinja2", "triton"])
def test_every_fact_about_an_installed_package_stands_on_its_line(package: str, tmp_path: Path) -> None:
    repository = installed_repository(package, package)
    assert repository is not None
    result = MAP_REPO.run(MapRepoArguments(repo=package, detail="full"), context_of(repository, tmp_path))
    assert fact_count(result) >= 30
    assert wrong_facts(result, repository.root) == []
    assert result.llm is not None
    assert not result.llm.related, result.llm
    assert result.loops == ()


# sections -------------------------------------------------------------------------------------------------------------


def test_frameworks_and_execution_are_counted(engine: RepoMapResult) -> None:
    assert engine.framework == "PyTorch + Triton + CUDA (hybrid)"
    counted = {one.name: one.count for one in engine.frameworks}
    assert counted == {
        "PyTorch": 2,
        "CUDA": 2,
        "Triton": 1,
    }  # `import torch`, `from torch import nn`; a comment is no kernel
    modes = {one.name: one for one in engine.execution}
    assert {name for name, one in modes.items() if one.count} == {
        "eager modules", "torch.compile", "CUDA graphs", "custom operators", "persistent kernels",
    }  # fmt: skip
    assert modes["torch.compile"].places[0].at == at("pocket/layers.py", "@torch.compile")
    assert modes["persistent kernels"].places[0].at == at("csrc/ops.cu", "persistent_decode_kernel")


def test_a_mode_that_is_not_there_says_what_was_searched(tmp_path: Path) -> None:
    modes = {one.name: one for one in mapped("click_tool", tmp_path).execution}
    assert modes["CUDA graphs"].count == 0
    assert "torch.cuda.CUDAGraph" in modes["CUDA graphs"].searched


def test_jax_is_told_from_torch(tmp_path: Path) -> None:
    result = mapped("jax_model", tmp_path)
    assert result.framework == "JAX"
    modes = {one.name: one.count for one in result.execution}
    assert (modes["jax.jit"], modes["jax control flow"], modes["eager modules"]) == (1, 1, 0)


def test_every_source_package_is_in_the_module_map_or_skipped(engine: RepoMapResult) -> None:
    files = {
        p.relative_to(ENGINE).as_posix()
        for s in ("*.py", "*.cu")
        for p in ENGINE.rglob(s)
        if "__pycache__" not in str(p)
    }
    rows = {row.path: row for row in engine.modules}
    skipped = {one.path for one in engine.skipped}
    for file in files:
        assert any(file.startswith(f"{path}/") for path in (*rows, *skipped)), file
    assert rows["pocket"].files == sum(file.startswith("pocket/") for file in files)
    assert rows["pocket"].lines == sum(
        len((ENGINE / f).read_text().splitlines()) for f in files if f.startswith("pocket/")
    )
    assert rows["pocket"].classes == sum(
        len(re.findall(r"^class ", (ENGINE / f).read_text(), re.MULTILINE)) for f in files if f.startswith("pocket/")
    )
    assert skipped == {"tests", "benchmarks"}


def test_entry_points_of_every_kind(engine: RepoMapResult) -> None:
    found = {(entry.kind, entry.at): entry for entry in engine.entry_points}
    assert {kind: sum(k == kind for k, _ in found) for kind, _ in found} == {
        "console script": 2, "plugin": 1, "main module": 1, "server": 2, "route": 3, "benchmark": 1,
    }  # fmt: skip
    assert found["console script", at("pyproject.toml", "pocket = ")].target == at("pocket/cli.py", "def main")
    assert found["plugin", at("pyproject.toml", "greedy")].target == at(
        "pocket/engine/sampler.py", "class GreedySampler"
    )
    assert found["route", at("pocket/server.py", "@app.post(")].name == "POST /generate -> generate"


def test_console_scripts_of_an_installed_package_are_those_of_its_metadata(tmp_path: Path) -> None:
    repository = installed_repository("huggingface_hub", "huggingface_hub")
    assert repository is not None
    result = MAP_REPO.run(MapRepoArguments(repo="huggingface_hub", detail="full"), context_of(repository, tmp_path))
    points = importlib.metadata.distribution("huggingface_hub").entry_points
    real = {e.name: e.value for e in points if e.group == "console_scripts"}
    found = {e.name: e.text for e in result.entry_points if e.kind == "console script"}
    assert real
    assert found == real


def test_commands_are_quoted_and_comments_are_none(engine: RepoMapResult) -> None:
    found = {(command.kind, command.source): command.command for command in engine.commands}
    assert [c.command for c in engine.commands if c.source == "readme"] == [
        "pip install -e .", "python -m pocket --model tiny", "pocket --max-seqs 4",
    ]  # fmt: skip
    assert found["build", "makefile"] == "cmake -S csrc -B build"
    assert found["test", "makefile"] == "python -m pytest tests"
    assert found["test", "ci"] == "pytest -q tests"
    assert not any("nothing" in command.command for command in engine.commands)


def test_signals_of_several_kinds_make_it_a_language_model(engine: RepoMapResult) -> None:
    assert engine.llm is not None
    assert engine.llm.related
    kinds = {signal.name for signal in engine.llm.signals if signal.count}
    assert {"class names", "KV cache", "sampling", "dependencies", "attention and kernels"} <= kinds
    assert all(signal.searched for signal in engine.llm.signals if not signal.count)


@pytest.mark.parametrize("name", ["image_tool", "click_tool", "jax_model"])
def test_names_alone_make_no_language_model(name: str, tmp_path: Path) -> None:
    """The image tool has a Sampler, an Attention, a Tokenizer, a BlockCache and a `temperature`."""
    result = mapped(name, tmp_path)
    assert result.llm is not None
    assert not result.llm.related
    roles = {component.role: component for component in result.components}
    assert not roles["sampling"].candidates
    assert "not looked for" in roles["sampling"].searched
    assert (result.kv_cache, result.loops) == ((), ())


def test_roles_are_played_by_the_classes_of_the_engine(engine: RepoMapResult) -> None:
    best = {component.role: component.candidates[0].name for component in engine.components if component.candidates}
    assert best == {
        "runtime loop": "LLMEngine", "scheduler": "Scheduler", "KV cache": "BlockManager", "sampling": "Sampler",
        "attention backend": "Attention", "config parser": "EngineArgs", "model runner": "ModelRunner",
        "most imported": "SamplingParams",
    }  # fmt: skip
    assert all(component.searched for component in engine.components if not component.candidates)
    importers = {c.name: c.importers for component in engine.components for c in component.candidates}
    assert importers["SamplingParams"] == 3  # the package, the command line, the engine; not tests
    assert importers["Scheduler"] == 1


def test_every_question_of_the_deep_dive_has_places_or_a_search(engine: RepoMapResult) -> None:
    questions = [q for s in (engine.kv_cache, engine.scheduler, engine.sampling, engine.kernels) for q in s]
    assert len(questions) >= 14
    assert all(bool(question.places) != bool(question.searched) for question in questions)
    parameters = next(question for question in engine.sampling if question.name == "parameters")
    assert [place.name for place in parameters.places] == [
        f"SamplingParams.{name}" for name in ("temperature", "top_p", "seed", "max_tokens")
    ]


def test_extension_points_name_a_sibling(engine: RepoMapResult) -> None:
    found = {(fact.kind, fact.name): fact for fact in engine.extensions}
    assert found["register decorator", "register_sampler"].at == at("pocket/engine/sampler.py", "def register_sampler")
    assert [s.name for s in found["register decorator", "register_sampler"].siblings] == [
        "GreedySampler",
        "LastSampler",
    ]
    assert found["abstract base", "Sampler"].count == 2
    assert found["abstract base", "SchedulerInterface"].count == 1


def test_pitfalls_are_lines_that_warn(engine: RepoMapResult) -> None:
    found = {one.name: one for one in engine.pitfalls}
    assert found["warnings"].places[0].text == "An empty batch costs a launch."
    assert found["not implemented"].places[0].at == at("pocket/engine/model_runner.py", "raise NotImplementedError")
    assert found["TODO, FIXME, XXX"].count == 1
    assert found["deprecations"].searched


# the answer's form ----------------------------------------------------------------------------------------------------


def ask(context: ToolContext, **arguments: object) -> RepoMapResult:
    result = run_tool(MAP_REPO, {"repo": "engine", **arguments}, context)
    assert isinstance(result, RepoMapResult)
    return result


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return context_of(folder_repository("engine", ENGINE), tmp_path)


def test_the_short_form_is_short_and_says_how_much_there_is(context: ToolContext) -> None:
    short, whole = ask(context), ask(context, detail="full")
    assert len(to_json(short)) < 25_000
    assert short.totals == whole.totals
    assert short.totals["entry_points"] == len(whole.entry_points)
    assert "section" in short.shortened
    assert all(len(getattr(short, name)) <= count for name, count in short.totals.items() if "." not in name)


@pytest.mark.parametrize("section", get_args(Section))
def test_pages_of_a_section_together_are_the_whole(context: ToolContext, section: str) -> None:
    whole = ask(context, section=section, detail="full")
    seen: dict[str, list[Any]] = {}
    offset = 0
    while True:
        page = ask(context, section=section, limit=5, offset=offset)
        for name, held in _lists(page).items():
            seen.setdefault(name, []).extend(held)
        if page.next_offset is None:
            break
        offset = page.next_offset
    for name, held in _lists(whole).items():
        known = set(_pointers(held))
        assert known <= set(_pointers(seen[name])), name


def _lists(result: RepoMapResult) -> dict[str, tuple[Any, ...]]:
    lists = {
        n: v
        for n in RepoMapResult.model_fields
        if isinstance(v := getattr(result, n), tuple) and n not in {"notes", "sources"}
    }
    lists |= {"variables": result.environment.variables, "flags": result.flags.flags}
    return lists | {"signals": result.llm.signals if result.llm else ()}


def _pointers(held: Any) -> list[str]:
    return [one.at for one in held if hasattr(one, "at")]


def test_a_section_holds_nothing_else(context: ToolContext) -> None:
    page = ask(context, section="commands")
    assert page.commands
    assert not page.entry_points
    assert set(page.totals) == {"commands"}


def test_an_edit_shows_in_the_next_answer(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    shutil.copytree(ENGINE, folder)
    context = context_of(folder_repository("engine", folder), tmp_path)
    assert len(ask(context, section="environment", detail="full").environment.variables) == 17
    (folder / "pocket/late.py").write_text('import os\n\nLATE = os.environ["POCKET_LATE"]\n')
    (folder / "Makefile").write_text("run:\n\tpython -m pocket\n")
    after = ask(context, section="environment", detail="full")
    assert "POCKET_LATE" in {variable.name for variable in after.environment.variables}
    assert [c.command for c in ask(context, section="commands").commands if c.source == "makefile"] == [
        "python -m pocket"
    ]


def test_sections_share_one_survey(context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(context)
    monkeypatch.setattr("opscope_tools.map_repo.survey", None)
    assert ask(context, section="flags").flags.flags
    assert ask(context, section="loop", limit=3).loops[0].lines


def test_a_file_that_does_not_parse_is_said_so(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    shutil.copytree(ENGINE, folder)
    (folder / "pocket/broken.py").write_text("import os\nif True\n    pass\n")
    result = ask(context_of(folder_repository("engine", folder), tmp_path), detail="full")
    assert [place.at for place in result.unread] == ["pocket/broken.py:2"]
    assert any("do not parse" in note for note in result.notes)


def test_refusals_say_what_to_do(context: ToolContext, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="engine"):
        ask(context, repo="engin")
    with pytest.raises(InputError, match="section"):
        ask(context, section="prose")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="--repo NAME=PATH"):
        run_tool(MAP_REPO, {"repo": "empty"}, context_of(folder_repository("empty", tmp_path / "empty"), tmp_path))


@pytest.mark.parametrize("package", ["jinja2", "huggingface_hub"])
def test_a_survey_tells_progress_and_can_be_cancelled(package: str, tmp_path: Path) -> None:
    """The larger one is read in other processes."""
    repository = installed_repository(package, package)
    assert repository is not None
    context = context_of(repository, tmp_path)
    told: list[tuple[float, float | None, str]] = []
    cancelled = threading.Event()

    def progress(done: float, total: float | None, message: str) -> None:
        told.append((done, total, message))
        cancelled.set()

    context = ToolContext(context.workspace, progress, cancelled)
    with pytest.raises(CancelledError):
        run_tool(MAP_REPO, {"repo": package}, context)
    assert told
