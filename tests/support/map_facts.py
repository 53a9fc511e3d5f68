"""What tests of `map_repo` share: asking the tool, and holding every fact of an answer against the line it points at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.repo_map import RepoMapResult
from opscope_tools.map_repo import MAP_REPO
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository

CORPUS = Path(__file__).parents[1] / "corpus" / "survey"


def context_of(repository: Repository, output: Path) -> ToolContext:
    """A context over one repository, with a store in memory."""
    return ToolContext(Workspace({repository.name: repository}, output, MemoryStore()))


def mapped(name: str, output: Path, **arguments: object) -> RepoMapResult:
    """The answer about a repository of the corpus; everything unless `arguments` say otherwise."""
    context = context_of(folder_repository(name, CORPUS / name), output)
    result = run_tool(MAP_REPO, {"repo": name, "detail": "full", **arguments}, context)
    assert isinstance(result, RepoMapResult)
    return result


def text_mapped(folder: Path, text: str, **arguments: object) -> RepoMapResult:
    """The answer about a package of one module that is about a language model."""
    (folder / "tool").mkdir(exist_ok=True)
    (folder / "tool/__init__.py").write_text("")
    (folder / "tool/core.py").write_text(f"import torch\nimport transformers\n{text}")
    (folder / "tool/net.py").write_text("class TinyForCausalLM(torch.nn.Module):\n    pass\n")
    context = context_of(folder_repository("tool", folder), folder)
    result = run_tool(MAP_REPO, {"repo": "tool", "detail": "full", **arguments}, context)
    assert isinstance(result, RepoMapResult)
    return result


def wrong_facts(result: RepoMapResult, root: Path) -> list[str]:
    """Facts whose line does not hold what they name."""
    files: dict[str, list[str]] = {}
    wrong = []
    for kind, at, words in _facts(result):
        path, _, number = at.rpartition(":")
        if path not in files:
            files[path] = (root / path).read_text(errors="replace").replace("\f", " ").split("\n")
        line = files[path][int(number) - 1] if 0 < int(number) <= len(files[path]) else ""
        if not line.strip() or not all(word in line for word in words):
            wrong.append(f"{kind} at {at}: {words} not in {line.strip()!r}")
    return wrong


def fact_count(result: RepoMapResult) -> int:
    """How many facts `wrong_facts` looks at."""
    return sum(1 for _ in _facts(result))


def _facts(result: RepoMapResult) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for component in result.components:
        for one in component.candidates:
            yield component.role, one.at, (_last(one.name),)
            yield from ((component.role, method.at, ("def", method.name)) for method in one.methods)
    for variable in result.environment.variables:
        yield "environment", variable.at, () if variable.how == "settings class" else (variable.name,)
    for place in result.environment.unexplained:
        yield "unexplained", place.at, (place.name,)
    for configuration in result.config_classes:
        yield "config class", configuration.at, ("class", _last(configuration.name))
        file = configuration.at.rpartition(":")[0]
        yield from (("config field", f"{file}:{field.line}", (field.name,)) for field in configuration.fields)
    for entry in result.entry_points:
        yield entry.kind, entry.at, ("__main__",) if entry.kind == "main block" else ()
        if entry.target:
            yield "target", entry.target, ()
    yield from (("command", command.at, (command.command,)) for command in result.commands)
    yield from (("flag", flag.at, ()) for flag in result.flags.flags)
    for fact in result.extensions:
        yield fact.kind, fact.at, (re.sub(r"\(.*", "", _last(fact.name)),)
        yield from (("sibling", s.at, ("class", s.name) if fact.kind == "abstract base" else ()) for s in fact.siblings)
    for subject in (result.kv_cache, result.scheduler, result.sampling, result.kernels, result.execution):
        for question in subject:
            yield from (
                (question.name, place.at, (re.split(r"\W", _last(place.name))[0],)) for place in question.places
            )
    for nest in result.loops:
        yield "entry", nest.at, ("def", _last(nest.entry))
        for line in nest.lines:
            yield "nesting", line.at, ("while",) if line.code.startswith("while") else ()
            if line.into:
                yield "into", line.into, ("def",)


def _last(name: str) -> str:
    return name.rpartition(".")[2]
