"""The tool `map_repo`: reconnaissance of a repository."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeVar

from opscope_cache.keys import digest, engine_version
from opscope_cache.store import recall
from opscope_schemas.common import Frozen, Repository, ToolArguments
from opscope_schemas.repo_map import EntryPoint, NestLine, RepoMapResult, Section
from pydantic import Field

from opscope_tools.running.distributions import console_scripts_of, described
from opscope_tools.running.runner import PAGE, to_json
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.source.call_nesting import shortened
from opscope_tools.survey.begun import Begun
from opscope_tools.survey.gather import SOURCES
from opscope_tools.survey.survey import survey


class MapRepoArguments(ToolArguments):
    """What `map_repo` takes."""

    repo: str = Field(min_length=1, max_length=200, description="Name of a registered repository.")
    section: Section | None = Field(default=None, description="Only this section, paged.")
    entry: str | None = Field(
        default=None,
        max_length=1000,
        description="Where the call nesting starts (Class.method, function, path.py:line); default: the best engine entry.",
    )
    detail: Literal["summary", "full"] = Field(default="summary", description="full: every entry of each list.")
    offset: int = Field(default=0, ge=0, description="Entries to skip.")
    limit: int = Field(default=50, ge=1, le=500, description="Entries of each list to return.")


#: section -> the fields of the result that it shows
_SECTIONS: dict[str, tuple[str, ...]] = {
    "overview": (
        "distribution",
        "framework",
        "frameworks",
        "execution",
        "files",
        "lines",
        "languages",
        "directories",
        "unread",
        "llm",
    ),
    "modules": ("directories", "modules", "skipped", "unread"),
    "entry_points": ("entry_points",),
    "commands": ("commands", "distribution"),
    "environment": ("environment",),
    "flags": ("flags",),
    "config": ("config_classes", "config_files"),
    "llm": ("llm",),
    "components": ("components",),
    "loop": ("loops", "loop_candidates"),
    "kv_cache": ("kv_cache",),
    "scheduler": ("scheduler",),
    "sampling": ("sampling",),
    "kernels": ("kernels",),
    "extensions": ("extensions",),
    "pitfalls": ("pitfalls",),
}
_ALWAYS = frozenset(
    {"repository", "sources", "notes", "totals", "shortened", "artifact", "section", "offset", "next_offset"}
)
#: lists inside an entry that are paged together with the section: the lists themselves are short
_INNER = frozenset({"components", "loops", "kv_cache", "scheduler", "sampling", "kernels", "pitfalls", "llm"})


def run(arguments: MapRepoArguments, context: ToolContext) -> RepoMapResult:
    """Raises `UnknownNameError` for a repository or an entry that is not there, `SourceError` where there is no source."""
    repository = context.workspace.repository(arguments.repo)
    whole = _whole(arguments, repository, context)
    whole = whole.model_copy(
        update={
            "sources": (context.workspace.source(repository),),
            "totals": totals(whole),
            "distribution": described(repository.root, repository.packages),
            "notes": tuple(_notes(whole, arguments)),
        }
    )
    if arguments.section is not None:
        whole = _section(whole, arguments.section)
    if arguments.detail == "full":
        return whole
    return summary(whole) if arguments.section is None else page(whole, arguments)


def _whole(arguments: MapRepoArguments, repository: Repository, context: ToolContext) -> RepoMapResult:
    """The whole map, from the store where the files are those that it was made of: sections and pages share it."""
    scripts = _installed_scripts(repository)
    tree = context.workspace.tree(repository, SOURCES).now()
    key = "map/" + digest(
        engine_version(),
        str(repository.root),
        repr(repository.packages),
        tree.fingerprint,
        repr(scripts),
        arguments.entry or "",
    )
    store = context.workspace.store
    known = recall(store, key, RepoMapResult.model_validate_json)
    if known is not None:
        return known
    made = survey(
        repository,
        entry=arguments.entry,
        installed_scripts=scripts,
        checkpoint=context.checkpoint,
        progress=context.progress,
        begun=Begun(store, "map begun/" + digest(engine_version(), str(repository.root), repr(repository.packages))),
    )
    store.put(key, made.model_dump_json(exclude_defaults=True))
    return made


def _installed_scripts(repository: Repository) -> dict[str, str]:
    """Console scripts of package folders, which the metadata beside them declares and not their source."""
    found: dict[str, str] = {}
    for name in repository.packages:
        found.update(console_scripts_of(repository.root, name))
    return found


# what is said beside the facts ----------------------------------------------------------------------------------------


def _notes(whole: RepoMapResult, arguments: MapRepoArguments) -> list[str]:
    notes = []
    environment, flags = whole.environment, whole.flags
    if environment.dynamic:
        notes.append(
            f"{len(environment.dynamic)} reads of the environment make the name at run time, the first at {environment.dynamic[0]}: not in the list."
        )
    if environment.unexplained:
        prefixes = ", ".join(environment.prefixes)
        notes.append(
            f"{len(environment.unexplained)} names with a prefix of the project ({prefixes}) stand in source that no mechanism read here explains."
        )
    if flags.dynamic:
        notes.append(
            f"{len(flags.dynamic)} declarations of flags make the name at run time, the first at {flags.dynamic[0]}: not in the list."
        )
    if whole.unread:
        notes.append(
            f"{len(whole.unread)} files do not parse, the first {whole.unread[0].at}; nothing of them is counted."
        )
    if not whole.commands:
        notes.append(
            f"No commands: no Makefile, Dockerfile, CI file, script or README fence among {whole.files} files holds one."
        )
    if whole.llm is not None and not whole.llm.related and not arguments.entry:
        notes.append(
            "Nothing shows a language model, so that loop, KV cache, scheduler, sampling and kernels are left out."
        )
    if whole.loops:
        notes.append(
            "loops leave out calls that neither belong to a stage of an engine nor lead to one; `note` says where a call leads to several definitions."
        )
    return notes


def totals(whole: RepoMapResult) -> dict[str, int]:
    """How many entries each list has in all."""
    counted = {
        name: len(held) for name in RepoMapResult.model_fields if isinstance(held := getattr(whole, name), tuple)
    }
    counted |= {
        "environment.variables": len(whole.environment.variables),
        "environment.unexplained": len(whole.environment.unexplained),
    }
    counted |= {
        "flags.flags": len(whole.flags.flags),
        "flags.dynamic": len(whole.flags.dynamic),
        "environment.dynamic": len(whole.environment.dynamic),
    }
    return {name: count for name, count in counted.items() if count and name not in {"sources", "notes"}}


# what is shown --------------------------------------------------------------------------------------------------------


def _section(whole: RepoMapResult, section: str) -> RepoMapResult:
    shown = {*_SECTIONS[section], *_ALWAYS}
    empty = {
        name: field.get_default(call_default_factory=True)
        for name, field in RepoMapResult.model_fields.items() if name not in shown
    }  # fmt: skip
    wanted = {n: c for n, c in whole.totals.items() if n.partition(".")[0] in shown}
    notes = tuple(
        n
        for n in whole.notes
        if section in {"overview", "modules"} or any(w in n for w in (section, section.rstrip("s")))
    )
    return whole.model_copy(update={**empty, "totals": wanted, "notes": notes})


Cut = Callable[[str, tuple[object, ...]], tuple[object, ...]]
F = TypeVar("F", bound=Frozen)


def _cut(value: F, cut: Cut, path: str = "") -> F:
    """A result with every list put through `cut(path of the field, list)`; texts stay."""
    changed: dict[str, object] = {}
    for name in type(value).model_fields:
        held, inner = getattr(value, name), f"{path}.{name}".removeprefix(".")
        if isinstance(held, tuple):
            changed[name] = tuple(_cut(one, cut, inner) if isinstance(one, Frozen) else one for one in cut(inner, held))
        elif isinstance(held, Frozen):
            changed[name] = _cut(held, cut, inner)
    return value.model_copy(update=changed) if changed else value


def page(whole: RepoMapResult, arguments: MapRepoArguments) -> RepoMapResult:
    """One page of every list of the section; `next_offset` where one of them goes on."""
    asked = whole.model_copy(update={"section": arguments.section or "", "offset": arguments.offset})
    return _paged(asked, arguments.offset, arguments.limit)


def _paged(held: RepoMapResult, skipped: int, limit: int) -> RepoMapResult:
    """`limit` entries of every list of a section after the first `skipped`."""
    depth = 1 if held.section in _INNER else 0
    more = []

    def cut(path: str, entries: tuple[object, ...]) -> tuple[object, ...]:
        if path in {"sources", "notes"}:
            return entries
        level = path.count(".") - (held.section in {"environment", "flags"})
        if level == depth:
            more.append(len(entries) > skipped + limit)
            return entries[skipped : skipped + limit]
        return entries if level < depth else entries[: _inner(path)]

    paged = _cut(held, cut)
    goes_on = held.offset + limit if any(more) else held.next_offset
    return paged.model_copy(update={"next_offset": goes_on})


def _inner(path: str) -> int:
    return 12 if path.endswith((".fields", ".places", ".siblings", ".methods", ".keys")) else 40


#: how many entries of a list the short form shows
_SHOWN: Mapping[str, int] = {
    "distribution.requires": 4, "frameworks": 6, "frameworks.places": 1, "execution": 10, "execution.places": 2, "directories": 12, "modules": 24, "skipped": 6,
    "unread": 2, "entry_points": 14, "commands": 10, "environment.variables": 14, "environment.dynamic": 1,
    "environment.unexplained": 4, "flags.flags": 12, "flags.files": 3, "flags.files.places": 1, "flags.dynamic": 1,
    "config_classes": 6, "config_classes.fields": 5, "config_files": 3, "config_files.keys": 5, "llm.signals": 8, "llm.signals.places": 1,
    "components": 12, "components.candidates": 2, "components.candidates.methods": 2, "loops": 2, "loops.lines": 26,
    "loop_candidates": 4, "kv_cache": 6, "kv_cache.places": 3, "scheduler": 6, "scheduler.places": 3, "sampling": 6,
    "sampling.places": 3, "kernels": 8, "kernels.places": 2, "extensions": 8, "extensions.siblings": 1, "pitfalls": 4, "pitfalls.places": 1,
}  # fmt: skip
_SAID = "The first entries of each list (`totals` says how many there are); ask with section=... for the rest, or detail=full."


def summary(whole: RepoMapResult) -> RepoMapResult:
    """The short form: the first entries of each list, fewer where that is still too long."""
    for share in (1.0, 0.75, 0.5, 0.34, 0.2):
        shorter = _shortened(whole, share)
        if len(to_json(shorter)) <= PAGE:
            break
    return shorter


def _shortened(whole: RepoMapResult, share: float) -> RepoMapResult:
    def cut(path: str, entries: tuple[object, ...]) -> tuple[object, ...]:
        if path in {"sources", "notes"}:
            return entries
        if path == "loops.lines":
            lines = [line for line in entries if isinstance(line, NestLine)]
            return tuple(_short_texts(one) for one in shortened(lines, max(1, round(_SHOWN[path] * share))))
        if path == "entry_points":
            entries = _mixed(entry for entry in entries if isinstance(entry, EntryPoint))
        keep = max(1, round(_SHOWN.get(path, 8) * share)) if path not in {"components", "llm.signals"} else len(entries)
        kept = entries[:keep]
        return tuple(_short_texts(one) for one in kept)

    shorter = _cut(whole, cut)
    return shorter.model_copy(update={"shortened": _SAID})


def _mixed(entries: Iterable[EntryPoint]) -> tuple[EntryPoint, ...]:
    """A few of each kind before more of one."""
    places: dict[str, int] = {}
    ranked = []
    for number, entry in enumerate(entries):
        places[entry.kind] = places.get(entry.kind, 0) + 1
        ranked.append((max(0, places[entry.kind] - 2), number, entry))
    return tuple(entry for _, _, entry in sorted(ranked, key=lambda e: e[:2]))


def _short_texts(one: object) -> object:
    """Texts that only quote the line are cut: the pointer leads there."""
    if not isinstance(one, Frozen):
        return one
    changed: dict[str, object] = {}
    for name in ("text", "says", "note", "code", "searched", "default"):
        held = getattr(one, name, "")
        if isinstance(held, str) and len(held) > 70:
            changed[name] = held[:67] + "..."
    return one.model_copy(update=changed) if changed else one


#: entries of a page that has to be shorter, before the ladder's shares
_PAGE = 20

# the ladder of shorter forms ------------------------------------------------------------------------------------------


def _fewer(share: float) -> Callable[[RepoMapResult], RepoMapResult]:
    def rung(result: RepoMapResult) -> RepoMapResult:
        if not result.section:
            return _shortened(result, share)
        most = max(1, round(_PAGE * share))  # a shorter page, whole in itself: nothing that it goes on with is skipped
        return _paged(result, 0, most).model_copy(update={"shortened": f"A page of {most}: go on at next_offset."})

    return rung


MAP_REPO: Tool[MapRepoArguments, RepoMapResult] = Tool(
    name="map_repo",
    title="Map a repository",
    description=(
        "Reconnaissance of a repository: what it is written in, how it is entered, built and configured, which "
        "definitions play which role, and how its engine loops. Start here with an unknown repository. Each "
        "fact with path:line. Lists are cut, best first; `section` pages one."
    ),
    arguments=MapRepoArguments,
    result=RepoMapResult,
    run=run,
    shorter=(_fewer(4.0), _fewer(2.0), _fewer(1.0), _fewer(0.5), _fewer(0.2)),
    finds=tuple(dict.fromkeys(name for names in _SECTIONS.values() for name in names)),
    otherwise="map it without a section: the overview says what it is made of.",
    positional=("repo",),
    sources=SOURCES,
)
