"""What a target of `extract_config` means: a model with its configuration, a configuration, kernels, files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from opscope_schemas.common import Repository
from opscope_schemas.errors import InputError, PathRefusedError, SourceError, UnknownNameError
from opscope_schemas.extracted_config import TargetKind

from opscope_tools.index import ClassSymbol, Index
from opscope_tools.index.references.subject import config_classes
from opscope_tools.running.tool import ToolContext

MODULE = "torch.nn.modules.module.Module"
PYTHON = ".py"
NATIVE = (".cu", ".cuh", ".inl", ".h", ".hpp", ".hip", ".cc", ".cpp")
_AT_LINE = re.compile(r"\A(?P<path>.+\.\w+):(?P<line>\d+)$")
_FILE = re.compile(r"\.(py|cu|cuh|inl|h|hpp|hip|cc|cpp)$")
#: classes that are configurations by their name where they are no records
CONFIG_NAME = re.compile(r"(Config|Configuration|Args|Arguments|Settings|Options|Params|HParams|Hyperparameters)$")


@dataclass
class Subject:
    """What is asked about. `files`: (repository, path) whose reads and checks belong to it."""

    kind: TargetKind
    model: ClassSymbol | None = None
    config: ClassSymbol | None = None
    model_type: str = ""
    files: list[tuple[Repository, str]] = field(default_factory=list)
    kernels: str = ""
    function: tuple[str, int] | None = None


def find_subject(
    index: Index, context: ToolContext, target: str, repo: str | None, given: Mapping[str, object] | None
) -> Subject:
    """`given` picks the class of an auto class. Raises `UnknownNameError` with the nearest names where nothing bears the name, `PathRefusedError` for a path
    outside the repositories."""
    target = target.strip()
    if not target:
        raise InputError(
            "An empty target names nothing.",
            next_step="Give a model type, a configuration or model class, path.py:line, a kernel, a file or a folder.",
        )
    at = _AT_LINE.match(target)
    if at is not None:
        return _at_line(index, context, target, at["path"], repo)
    if "::" in target:
        return Subject("kernels", kernels=target)
    placed = _files(context, target, repo)
    if placed is not None:
        return placed
    typed = _of_model_type(index, target, repo)
    if typed is not None:
        return typed
    try:
        found = index.target(target, repo, given if target.rpartition(".")[2].startswith("Auto") else None)
    except UnknownNameError:
        return Subject("kernels", kernels=target)
    except SourceError as error:
        if "is a function" not in error.message:
            raise
        return Subject("kernels", kernels=target.rpartition(".")[2])
    return of_class(index, found.symbol, found.model_type or "")


def _of_model_type(index: Index, target: str, repo: str | None) -> Subject | None:
    if target != target.lower() or ("." in target and "/" in target):
        return None
    named = index.names.auto.config_class(target, index.names.trees(repo))
    if named is None:
        return None
    model_type, symbol = named
    subject = Subject("configuration", config=symbol, model_type=model_type)
    try:
        model = index.target(target, repo).symbol
    except (UnknownNameError, SourceError, InputError):
        subject.files = model_files(index, symbol)
        return subject
    subject.kind, subject.model = "model", model
    subject.files = [(model.repository, model.file)]
    return subject


def of_class(index: Index, symbol: ClassSymbol, model_type: str = "") -> Subject:
    """A class as a subject: a module with the configuration that it declares, or a configuration."""
    if MODULE not in index.mro(symbol):
        return Subject("configuration", config=symbol, files=model_files(index, symbol))
    declared = config_classes(index, symbol) or _by_constructor(index, symbol)
    config = declared[0] if declared else None
    return Subject("model", symbol, config or symbol, model_type, [(symbol.repository, symbol.file)])


def _by_constructor(index: Index, symbol: ClassSymbol) -> list[ClassSymbol]:
    """The configuration class that a parameter of the constructor is annotated with."""
    from opscope_tools.index.references.receivers import declared

    init = index.method(symbol, "__init__")
    if init is None or init.defined_in.qualified_name.startswith("torch.nn.modules."):
        return []
    for parameter in init.row.parameters:
        for found in declared(index.resolver, init.unit, parameter.annotation) if parameter.annotation else ():
            if MODULE not in index.mro(found) and _configures(found):
                return [found]
    return []


def _configures(symbol: ClassSymbol) -> bool:
    return CONFIG_NAME.search(symbol.name) is not None or any("dataclass" in d for d in symbol.row.decorators)


def model_files(index: Index, config: ClassSymbol) -> list[tuple[Repository, str]]:
    """The files beside a configuration class that name it and define modules; its own file among them."""
    tree = config.unit.tree
    folder = config.file.rpartition("/")[0]
    word = re.compile(rb"\b%s\b" % config.name.encode())
    found = []
    for file in tree.files_below(folder) if folder else tree.files():
        name = file.rpartition("/")[2]
        if (
            file.rpartition("/")[0] != folder
            or not file.endswith(PYTHON)
            or name.startswith(("convert_", "modular_", "test_"))
        ):
            continue
        if not word.search(tree.source(file)):
            continue
        unit = tree.unit(file)
        if any(MODULE in index.mro(ClassSymbol(unit, path, row)) for path, row in unit.classes() if "." not in path):
            found.append((config.repository, file))
    return found


# places --------------------------------------------------------------------------------------------------------------


def _at_line(index: Index, context: ToolContext, target: str, path: str, repo: str | None) -> Subject:
    if not path.endswith(PYTHON):
        _resolved(context, path, repo)
        return Subject("kernels", kernels=target)
    try:
        return of_class(index, index.target(target, repo).symbol)
    except PathRefusedError:
        raise
    except SourceError:
        return Subject("kernels", kernels=target)


def _resolved(context: ToolContext, path: str, repo: str | None) -> tuple[Repository, str]:
    """The repository and the path that a path means; the end of one path alone is enough."""
    try:
        repository, place = context.workspace.resolve_inside(path)
        if repo is None or repository.name == repo:
            return repository, repository.relative(place)
    except PathRefusedError:
        pass
    ending = [
        (repository, file) for repository in context.workspace.select(repo)
        for file in context.workspace.tree(repository).now().ending(*((PYTHON, *NATIVE))) if file.endswith(f"/{path}")
    ]  # fmt: skip
    if len(ending) == 1:
        return ending[0]
    known = ", ".join(file for _, file in ending[:8])
    raise PathRefusedError(
        f"{path!r} is not a file of a registered repository.",
        next_step=f"Did you mean one of: {known}?" if ending else
        "Give a path relative to a repository's root, or register its folder with --repo NAME=PATH.",
    )  # fmt: skip


def _files(context: ToolContext, target: str, repo: str | None) -> Subject | None:
    """The files that a file, a folder or the name of a repository means; None where the target is no path."""
    workspace = context.workspace
    if target in workspace.repositories and repo in {None, target}:
        repository = workspace.repositories[target]
        return Subject("files", files=[(repository, file) for file in _below(context, repository, "")], kernels=target)
    folder = "/" in target or _is_folder(context, target, repo)
    if not _FILE.search(target) and not folder:
        return None
    if _FILE.search(target):
        repository, path = _resolved(context, target, repo)
        return Subject("files", files=[(repository, path)], kernels=path)
    found = [
        (repository, file) for repository in workspace.select(repo) for file in _below(context, repository, target.strip("/") + "/")
    ]  # fmt: skip
    if not found:
        raise PathRefusedError(
            f"{target!r} is no folder of a registered repository with Python, C++ or CUDA files.",
            next_step=f"Give a path relative to the root of {', '.join(sorted(workspace.repositories))}, or a class name.",
        )
    return Subject("files", files=found, kernels=target.strip("/"))


def _is_folder(context: ToolContext, target: str, repo: str | None) -> bool:
    return any(
        re.fullmatch(r"\w+", target) and (repository.root / target).is_dir() and not repository.packages
        for repository in context.workspace.select(repo)
    )


def _below(context: ToolContext, repository: Repository, folder: str) -> Iterable[str]:
    for file in context.workspace.tree(repository).now().ending(PYTHON, *NATIVE):
        if file.startswith(folder):
            yield file
