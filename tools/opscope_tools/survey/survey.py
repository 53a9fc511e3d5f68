"""The whole reconnaissance of one repository: files are read once (gather.py), then every section is put together."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from opscope_cache.trees import Signature, tree_at
from opscope_schemas.common import Repository
from opscope_schemas.errors import SourceError
from opscope_schemas.repo_map import (
    CallNest,
    Command,
    Component,
    EnvironmentSurface,
    EnvironmentVariable,
    Place,
    RepoMapResult,
)

from opscope_tools.survey import configuration, extensions, frameworks, layout
from opscope_tools.survey.begun import Begun
from opscope_tools.survey.behaviour import Behaviour
from opscope_tools.survey.components import Ranking, components
from opscope_tools.survey.engine_loop import EngineLoops
from opscope_tools.survey.entries import Manifests, entry_points
from opscope_tools.survey.environment import environment_of
from opscope_tools.survey.gather import SOURCES, Progress, gather
from opscope_tools.survey.holdings import Holdings, Scanned, at
from opscope_tools.survey.signals import llm_verdict
from opscope_tools.survey.subjects import Subjects

_COMMAND_ORDER = ("install", "build", "run", "test", "other")
_SOURCE_ORDER = ("readme", "guide", "makefile", "dockerfile", "script", "ci")


def survey(
    repository: Repository,
    *,
    entry: str | None = None,
    installed_scripts: Mapping[str, str] | None = None,
    checkpoint: Callable[[], None],
    progress: Progress,
    begun: Begun | None = None,
) -> RepoMapResult:
    """Everything that `map_repo` says of a repository, unshortened.

    `installed_scripts` are the console scripts of an installed package; `begun` keeps what was read where `checkpoint` raises. Raises `SourceError` where there is no source, and
    `UnknownNameError` where `entry` names no function.
    """
    with _uncollected():
        return _survey(repository, entry, installed_scripts or {}, checkpoint, progress, begun)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the collector of cycles: facts form none, and going through millions of them took a tenth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _survey(
    repository: Repository,
    entry: str | None,
    installed_scripts: Mapping[str, str],
    checkpoint: Callable[[], None],
    progress: Progress,
    begun: Begun | None,
) -> RepoMapResult:
    files = tree_at(repository.root, repository.packages, SOURCES).now().files
    held, manifests = _read(repository, files, installed_scripts, checkpoint, progress, begun)
    progress(len(held.files), len(held.files), "Putting the sections together")
    verdict = llm_verdict(held, manifests)
    checkpoint()
    ranking = Ranking(held, Behaviour(held, checkpoint) if verdict.related else None)
    roles = components(ranking, related=verdict.related)
    checkpoint()
    loops = EngineLoops(held, ranking, checkpoint)
    nests, others = ([loops.named(entry)], []) if entry else loops.best() if verdict.related else ([], [])
    if nests and not entry:
        roles = loops.first_in_role(roles, nests[0])
    subjects = Subjects(held, roles)
    found = frameworks.frameworks(held)
    rows, skipped = layout.modules(held)
    near = {c.at.rpartition(":")[0] for role in roles for c in role.candidates[:3]}
    result = RepoMapResult(
        repository=repository.name,
        framework=frameworks.verdict(found, sum(f.language == "python" for f in held.source)),
        frameworks=tuple(found),
        execution=tuple(frameworks.execution(held)),
        files=len(held.files),
        lines=sum(facts.lines for facts in held.files),
        languages=layout.languages(held),
        directories=tuple(layout.directories(held)),
        modules=tuple(rows),
        skipped=tuple(skipped),
        unread=tuple(layout.unread(held)),
        entry_points=tuple(entry_points(held, manifests, _engine_files(roles, nests))),
        commands=tuple(_commands(held)),
        environment=_environment(held),
        flags=configuration.flag_surface(held),
        config_classes=tuple(configuration.config_classes(held)),
        config_files=tuple(configuration.config_files(held)),
        llm=verdict,
        components=tuple(roles),
        loops=tuple(nests),
        loop_candidates=tuple(others),
        extensions=tuple(extensions.extensions(held)),
        pitfalls=tuple(extensions.pitfalls(held, near)),
        **{
            name: tuple(subjects.of(name)) if verdict.related else ()
            for name in ("kv_cache", "scheduler", "sampling", "kernels")
        },  # type: ignore[arg-type]  # each of these fields holds subjects
    )
    checkpoint()
    return result


def _engine_files(roles: list[Component], nests: list[CallNest]) -> list[str]:
    """The files of the loop that was read and of the likeliest runtime loops."""
    loop = next(role for role in roles if role.role == "runtime loop")
    places = [*(nest.at for nest in nests[:1]), *(one.at for one in loop.candidates[:3])]
    return list(dict.fromkeys(place.rpartition(":")[0] for place in places))


def _read(
    repository: Repository,
    files: Mapping[str, Signature],
    installed: Mapping[str, str],
    checkpoint: Callable[[], None],
    progress: Progress,
    begun: Begun | None,
) -> tuple[Holdings, Manifests]:
    root, tree = Path(repository.root), Scanned(repository, files)
    names = {file: tree.module_name(file) for file in files if file.endswith(".py")}
    if not files:
        raise SourceError(
            f"The repository {repository.name} holds no file that can be read.",
            next_step="Register the folder that holds its source with --repo NAME=PATH.",
        )
    manifests = Manifests(root, files, installed)
    facts = gather(root, files, names, manifests.names, checkpoint=checkpoint, progress=progress, begun=begun)
    return Holdings(tree, facts, manifests.folders, manifests.modules), manifests


def _commands(held: Holdings) -> list[Command]:
    """Commands by kind, those of the README first; the same command once."""
    found: dict[tuple[str, str], tuple[tuple[int, int, int, str, int], Command]] = {}
    for facts in held.files:
        for one in facts.commands if held.roles[facts.path] != "third party" else ():
            order = (
                _COMMAND_ORDER.index(one.kind), _SOURCE_ORDER.index(one.source), facts.path.count("/"), facts.path, one.line,
            )  # fmt: skip
            command = Command(kind=one.kind, command=one.text, at=at(facts.path, one.line), source=one.source)
            key = (one.kind, one.text)
            if key not in found or order < found[key][0]:
                found[key] = (order, command)
    return [command for _, command in sorted(found.values(), key=lambda e: e[0])]


def _environment(held: Holdings) -> EnvironmentSurface:
    found = environment_of(held)
    read = sum(role not in {"tests", "third party"} for role in held.roles.values())
    variables = sorted(
        found.variables.values(), key=lambda v: (v.set_only, not v.name.startswith(found.prefixes), -v.reads, v.name)
    )
    return EnvironmentSurface(
        variables=tuple(
            EnvironmentVariable(name=v.name, at=v.at, how=v.mechanism, default=v.default, reads=v.reads) for v in variables
        ),
        by_mechanism=dict(found.mechanisms.most_common()),
        dynamic=tuple(found.dynamic),
        prefixes=found.prefixes,
        unexplained=tuple(Place(name=name, at=where) for name, where in sorted(found.unexplained.items())),
        searched="" if variables else f"os.environ, os.getenv, settings classes and getenv in {read} files, tests and third party left out",
    )  # fmt: skip
