"""The tool `resolve_class`: what a name means, and what the class is made of."""

from __future__ import annotations

from collections.abc import Callable

from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import UnknownNameError
from opscope_schemas.index import ClassMatch, ClassPlace, ClassUser, ForwardPlace, ResolveClassResult, SubmoduleInfo
from pydantic import Field

from opscope_tools.costing.checkpoints import plain_target
from opscope_tools.decided import decided_attributes
from opscope_tools.find_forward import AUTO_CONFIG, source_notes
from opscope_tools.index import ClassSymbol, HeldModule, Index, Target
from opscope_tools.index.names.subclasses import Subclasses
from opscope_tools.index.references.references import find
from opscope_tools.index.references.subject import sought_class
from opscope_tools.resolve_class.cpp import only_cpp, resolve_cpp, without_methods, without_signatures
from opscope_tools.running.config_files import Config, read_config
from opscope_tools.running.engines import index_of
from opscope_tools.running.tool import Tool, ToolContext

#: places read for users in any case, and at most while too few are found
_USERS_READ, _USERS_MOST = 400, 1500


class ResolveClassArguments(ToolArguments):
    """What `resolve_class` takes."""

    name: str = Field(
        min_length=1,
        max_length=1000,
        description="Class name, short, dotted or re-exported; model type (`llama`); `path.py:line`, `path.py:Name`; C++: "
        "`at::Tensor`, `path.h:line`.",
    )
    config: Config = Field(default=None, description=AUTO_CONFIG)
    repo: str | None = Field(default=None, description="Repository to look in; default: all.")
    offset: int = Field(default=0, ge=0, description="Matches to skip.")
    limit: int = Field(default=5, ge=1, le=50, description="Matches to return.")
    subclass_offset: int = Field(default=0, ge=0, description="Subclasses to skip.")
    subclass_limit: int = Field(default=50, ge=0, description="Subclasses to list of each match.")
    user_offset: int = Field(default=0, ge=0, description="Users to skip.")
    user_limit: int = Field(default=10, ge=0, le=500, description="Users to list of each match; 0: do not look.")


def run(arguments: ResolveClassArguments, context: ToolContext) -> ResolveClassResult:
    """Every class that the name may mean; none, with suggestions, where the name is unknown."""
    if only_cpp(arguments.name):
        return _in_cpp(arguments, context)
    index = index_of(context.workspace)
    with index.question(context.checkpoint):
        return _answer(index, arguments, context)


def _answer(index: Index, arguments: ResolveClassArguments, context: ToolContext) -> ResolveClassResult:
    try:
        targets = index.targets(
            plain_target(arguments.name), arguments.repo, read_config(context.workspace, arguments.config)
        )
    except UnknownNameError as error:
        if error.kind != "class" or ":" in arguments.name:
            raise
        if arguments.name.strip().isidentifier():
            found = _in_cpp(arguments, context)
            if found.matches:
                return found
        return ResolveClassResult(
            name=arguments.name,
            suggestions=tuple(error.nearest),
            sources=tuple(context.workspace.source(r) for r in context.workspace.select(arguments.repo)),
            notes=(str(error),),
        )
    page = targets[arguments.offset : arguments.offset + arguments.limit]
    matches = []
    derived = Subclasses(index.resolver, context.checkpoint)
    for target in page:
        context.checkpoint()
        matches.append(_match(index, target, derived, arguments, context))
    notes = [note for target in page for note in source_notes(index, target.symbol)]
    if len(targets) > 1:
        notes.insert(0, f"{len(targets)} classes bear this name; give a qualified name to mean one of them.")
    if any(target.symbol.unit.template for target in targets):
        notes.append(
            "Definitions in modular_*.py are listed last: they are templates of the modeling files, which run."
        )
    left_out = "" if len(page) == len(targets) else f"{len(page)} of {len(targets)} matches; the rest with offset."
    return ResolveClassResult(
        name=arguments.name,
        model_type=next((target.model_type for target in page if target.model_type), ""),
        matches=tuple(matches),
        match_count=len(targets),
        sources=tuple(
            context.workspace.source(r) for r in {t.symbol.repository.name: t.symbol.repository for t in page}.values()
        ),
        notes=tuple(dict.fromkeys(notes)),
        shortened=left_out,
    )


def _in_cpp(arguments: ResolveClassArguments, context: ToolContext) -> ResolveClassResult:
    return resolve_cpp(
        arguments.name, context, arguments.repo, arguments.offset, arguments.limit, arguments.subclass_limit
    )


def _match(
    index: Index, target: Target, derived: Subclasses, arguments: ResolveClassArguments, context: ToolContext
) -> ClassMatch:
    symbol = target.symbol
    subclasses = derived.direct(symbol)
    listed = subclasses[arguments.subclass_offset :][: arguments.subclass_limit]
    users, read_all = _users(index, symbol, arguments, context)
    forward = index.forward(symbol)
    modules = index.submodules(symbol)
    decided = decided_attributes(index, symbol, (m.attribute for m in modules), context.workspace, arguments.config)
    return ClassMatch(
        qualified_name=symbol.qualified_name,
        file=symbol.file,
        line=symbol.line,
        end_line=symbol.end_line,
        repository=symbol.repository.name,
        decorators=symbol.row.decorators,
        bases=tuple(index.bases(symbol)),
        mro=tuple(index.mro(symbol)),
        submodules=tuple(
            submodule_info(symbol, module).model_copy(update={"decided": decided.get(module.attribute, ())})
            for module in modules
        ),
        subclasses=tuple(inner.qualified_name for inner in listed),
        subclass_places=tuple(
            ClassPlace(qualified_name=inner.qualified_name, file=inner.file, line=inner.line) for inner in listed
        ),
        subclass_count=len(subclasses),
        descendant_count=derived.count(symbol),
        users=tuple(users[arguments.user_offset :][: arguments.user_limit]),
        user_count=len(users),
        users_complete=read_all,
        exported_as=tuple(index.exported_as(symbol)),
        condition=symbol.row.guard.condition,
        forward=ForwardPlace(
            defined_in=forward.defined_in.qualified_name,
            file=forward.file,
            line=forward.line,
            end_line=forward.end_line,
        )
        if forward is not None
        else None,
        method=target.method,
        generated_from=index.template_of(symbol),
    )


def _users(
    index: Index, symbol: ClassSymbol, arguments: ResolveClassArguments, context: ToolContext
) -> tuple[list[ClassUser], bool]:
    """Who builds the class or calls a method on it, verified; and whether every place that bears its name was read."""
    if not arguments.user_limit:
        return [], True
    found = find(
        index,
        sought_class(symbol),
        wanted=arguments.user_offset + arguments.user_limit + 1,
        wants=lambda reference: reference.verified and reference.kind in {"instantiate", "call"},
        budget=_USERS_READ,
        most=_USERS_MOST,
        step=lambda _done, _total: context.checkpoint(),
    )
    users = [
        ClassUser(kind=reference.kind, file=reference.file, line=reference.line, within=reference.within)
        for reference in found.found
        if reference.verified and (reference.kind == "instantiate" or reference.kind == "call")
    ]
    return users, found.complete


def submodule_info(symbol: ClassSymbol, module: HeldModule) -> SubmoduleInfo:
    """A submodule as results show it; the file is given where the line stands outside the class's own file."""
    return SubmoduleInfo(
        attribute=module.attribute,
        class_name=module.class_name,
        arguments=module.arguments,
        line=module.line,
        condition=module.condition,
        repeat=module.repeat,
        dispatch=module.dispatch,
        file=module.file if module.file != symbol.file else "",
        at_default=module.at_default,
        candidates=module.candidates,
    )


def _without_arguments(result: ResolveClassResult) -> ResolveClassResult:
    def short(match: ClassMatch) -> ClassMatch:
        modules = tuple(
            m.model_copy(update={"arguments": "", "repeat": "", "candidates": (), "decided": ()})
            for m in match.submodules
        )
        facts = without_signatures(match.cpp)
        return match.model_copy(
            update={
                "submodules": modules,
                "subclasses": match.subclasses[:10],
                "subclass_places": (),
                "users": match.users[:5],
                "cpp": facts,
            }
        )

    return _with(
        result,
        short,
        "Arguments of submodules, places of subclasses and all but ten of them were left out; ask with limit=1.",
    )


def _names_only(result: ResolveClassResult) -> ResolveClassResult:
    def short(match: ClassMatch) -> ClassMatch:
        modules = tuple(
            SubmoduleInfo(attribute=m.attribute, class_name=m.class_name, line=m.line, at_default=m.at_default)
            for m in match.submodules[:60]
        )
        return match.model_copy(
            update={
                "submodules": modules,
                "subclasses": (),
                "subclass_places": (),
                "users": (),
                "mro": match.mro[:12],
                "decorators": (),
                "cpp": without_methods(match.cpp),
            }
        )

    return _with(result, short, "Only names and lines were kept; ask with limit=1 and offset for one match at a time.")


def _places_only(result: ResolveClassResult) -> ResolveClassResult:
    def short(match: ClassMatch) -> ClassMatch:
        return ClassMatch(
            qualified_name=match.qualified_name, file=match.file, line=match.line, end_line=match.end_line,
            repository=match.repository, subclass_count=match.subclass_count, language=match.language, kind=match.kind,
        )  # fmt: skip

    return _with(result, short, "Only the place of each match was kept; ask with limit=1 and offset for the others.")


def _with(result: ResolveClassResult, short: Callable[[ClassMatch], ClassMatch], said: str) -> ResolveClassResult:
    return result.model_copy(update={"matches": tuple(short(match) for match in result.matches), "shortened": said})


RESOLVE_CLASS: Tool[ResolveClassArguments, ResolveClassResult] = Tool(
    name="resolve_class",
    title="Resolve a class name",
    description=(
        "What a class name means and what the class is made of: file, line, bases, MRO, submodules (attribute, "
        "class, condition), direct subclasses, who builds it, where it is exported. Python by any name; C++ and CUDA "
        "definitions by `::` or path. None: the nearest names. Read statically."
    ),
    arguments=ResolveClassArguments,
    result=ResolveClassResult,
    run=run,
    shorter=(_without_arguments, _names_only, _places_only),
    finds=("matches",),
    otherwise="name it in full (`package.module.Class`) or as `path.py:line`; a session takes other source as --repo NAME=PATH.",
    positional=("name",),
)
