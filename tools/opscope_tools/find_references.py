"""The tool `find_references`: who calls, imports, subclasses, reads or sets a definition."""

from __future__ import annotations

from opscope_schemas.common import ToolArguments
from opscope_schemas.references import FindReferencesResult, ReferenceCounts, ReferenceKind, ReferencePlace
from pydantic import Field

from opscope_tools.index import Index
from opscope_tools.index.references.references import Reference, References, find
from opscope_tools.index.references.subject import Sought, sought
from opscope_tools.running.engines import index_of
from opscope_tools.running.tool import Tool, ToolContext


class FindReferencesArguments(ToolArguments):
    """What `find_references` takes."""

    target: str = Field(
        min_length=1,
        max_length=1000,
        description=(
            "Class, function or module-level name; `Class.method`; config field (`LlamaConfig.hidden_size`, "
            "`llama.hidden_size`); `path.py:line`."
        ),
    )
    repo: str | None = Field(default=None, description="Repository to look in; default: all.")
    kind: ReferenceKind | None = Field(default=None, description="Only references of this kind.")
    verified_only: bool = Field(default=False, description="Leave out objects of unknown class.")
    offset: int = Field(default=0, ge=0, description="References to skip.")
    limit: int = Field(default=50, ge=1, le=500, description="References to return.")


def run(arguments: FindReferencesArguments, context: ToolContext) -> FindReferencesResult:
    """Raises `UnknownNameError`, `AmbiguousNameError`, or `SourceError` for a target that has no references."""
    index = index_of(context.workspace)
    with index.question(context.checkpoint):
        return _answer(index, arguments, context)


def _answer(index: Index, arguments: FindReferencesArguments, context: ToolContext) -> FindReferencesResult:
    target = sought(index, arguments.target)
    context.checkpoint()

    def wants(reference: Reference) -> bool:
        return arguments.kind in {None, reference.kind} and (reference.verified or not arguments.verified_only)

    def step(read: int, hits: int) -> None:
        context.checkpoint()
        context.progress(read, hits, f"{read} of {hits} places read")

    # one more than the page holds tells whether there are others
    found = find(
        index, target, wanted=arguments.offset + arguments.limit + 1, wants=wants, repo=arguments.repo, step=step
    )
    chosen = [reference for reference in found.found if wants(reference)]
    page = chosen[arguments.offset : arguments.offset + arguments.limit]
    repositories = {tree.repository.name: tree.repository for tree in index.resolver.trees}
    own = target.unit.tree.repository.name
    shown = [own, *(reference.repository for reference in page)]
    return FindReferencesResult(
        target=arguments.target,
        target_kind=target.kind,
        qualified_name=target.qualified_name,
        file=target.unit.file,
        line=target.line,
        names=tuple(names) if len(names := [*target.words, *found.aliases]) > 1 else (),
        references=tuple(_place(reference, own) for reference in page),
        reference_count=len(chosen),
        counts=_counts(found),
        hits=found.hits,
        hits_read=found.read,
        files=found.files,
        mentions=found.mentions,
        templates=found.templates,
        sources=tuple(context.workspace.source(repositories[name]) for name in dict.fromkeys(shown)),
        notes=tuple(_notes(target, found)),
        shortened=_left_out(len(page), len(chosen), found),
    )


def _place(reference: Reference, own: str) -> ReferencePlace:
    return ReferencePlace(
        file=reference.file,
        line=reference.line,
        code=reference.code,
        kind=reference.kind,
        within=reference.within,
        verified=reference.verified,
        repository=reference.repository if reference.repository != own else "",
    )


def _counts(found: References) -> tuple[ReferenceCounts, ...]:
    counted: dict[ReferenceKind, list[int]] = {}
    for reference in found.found:
        counted.setdefault(reference.kind, [0, 0])[not reference.verified] += 1
    return tuple(ReferenceCounts(kind=kind, verified=n[0], unverified=n[1]) for kind, n in sorted(counted.items()))


def _notes(target: Sought, found: References) -> list[str]:
    notes = []
    if target.holder is not None and target.symbol is not None and not target.holder.same(target.symbol):
        notes.append(
            f"{target.name} is defined in {target.holder.qualified_name}; the references are those on objects of "
            f"{target.symbol.qualified_name} and its subclasses."
        )
    if any(not reference.verified for reference in found.found):
        notes.append("verified: false marks places whose object or name source alone does not settle.")
    if target.kind == "method" and target.name in {"forward", "__call__"} and target.symbol is not None:
        notes.append(
            f"Calls of objects (`self.attribute(...)`) run it too; they are looked for where {target.symbol.name} is built."
        )
    if found.unread:
        notes.append(f"{len(found.unread)} files could not be read, the first {found.unread[0]}.")
    if not found.complete:
        notes.append(
            f"{found.read} of {found.hits} places were read, the nearest files first, so that counts are lower bounds; "
            "a larger offset or limit reads on."
        )
    return notes


def _left_out(shown: int, chosen: int, found: References) -> str:
    if shown == chosen and found.complete:
        return ""
    return f"{shown} of {chosen}{'' if found.complete else ' or more'} references; the rest with offset."


def _brief(result: FindReferencesResult) -> FindReferencesResult:
    short = tuple(place.model_copy(update={"code": place.code[:60]}) for place in result.references)
    return result.model_copy(update={"references": short, "shortened": "Code was cut; ask with a smaller limit."})


def _first(result: FindReferencesResult) -> FindReferencesResult:
    said = f"The first 10 of {result.reference_count} references; the rest with limit and offset."
    return result.model_copy(update={"references": _brief(result).references[:10], "shortened": said})


FIND_REFERENCES: Tool[FindReferencesArguments, FindReferencesResult] = Tool(
    name="find_references",
    title="Find references of a definition",
    description=(
        "Who calls a function or method, who subclasses or builds a class, where a config field is read or set, "
        "where a name is imported or exported. Unlike a text search it follows imports, aliases and the classes of "
        "objects (`verified`); look-alikes are left out. Read statically."
    ),
    arguments=FindReferencesArguments,
    result=FindReferencesResult,
    run=run,
    shorter=(_brief, _first),
    finds=("references",),
    otherwise="ask for its subclasses, or for the base that defines it (resolve_class); names made at run time leave no reference.",
)
