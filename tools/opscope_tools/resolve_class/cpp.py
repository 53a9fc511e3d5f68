"""C++ and CUDA definitions as `resolve_class` shows them."""

from __future__ import annotations

from opscope_schemas.cpp import CppFacts, CppMethod, CppPlace
from opscope_schemas.index import ClassMatch, ResolveClassResult

from opscope_tools.index.cpp import AT_LINE, CLASS_KINDS, CppIndex, CppRow, CppSymbol
from opscope_tools.index.names.targets import IN_FILE
from opscope_tools.running.engines import cpp_index_of
from opscope_tools.running.tool import ToolContext

_METHODS = 60  # that a match lists
_PLACES = 20  # other places that a match lists


def only_cpp(name: str) -> bool:
    """Whether a name can mean nothing but C++ or CUDA: it holds `::`, or is a line of such a file."""
    return ("::" in name and IN_FILE.match(name.strip()) is None) or AT_LINE.match(name.strip()) is not None


def resolve_cpp(
    name: str, context: ToolContext, repo: str | None, offset: int, limit: int, subclass_limit: int
) -> ResolveClassResult:
    """Every definition that the name may mean; none, with suggestions for a qualified name, where it is unknown."""
    repositories = context.workspace.select(repo)
    index = cpp_index_of(context.workspace)
    at_line = AT_LINE.match(name.strip())
    unread = 0
    if at_line is not None:
        symbols = [index.at_line(at_line["path"], int(at_line["line"]), repo)]
    else:
        answer = index.lookup(name.strip(), repo)
        symbols, unread = answer.symbols, answer.unread
    page = symbols[offset : offset + limit]
    matches = []
    for symbol in page:
        context.checkpoint()
        matches.append(_match(index, symbol, subclass_limit))
    return ResolveClassResult(
        name=name,
        matches=tuple(matches),
        match_count=len(symbols),
        suggestions=tuple(index.nearest(name, repo)) if "::" in name and not symbols else (),
        sources=tuple(context.workspace.source(r) for r in ({s.repository.name: s.repository for s in page} or {
            r.name: r for r in repositories
        }).values()),
        notes=tuple(_notes(name, symbols, page, unread)),
        shortened="" if len(page) == len(symbols) else f"{len(page)} of {len(symbols)} matches; the rest with offset.",
    )  # fmt: skip


def _notes(name: str, symbols: list[CppSymbol], page: list[CppSymbol], unread: int) -> list[str]:
    notes = []
    if not symbols:
        notes.append(f"No C++ or CUDA file of the repositories defines or declares {name}.")
    if len(symbols) > 1:
        notes.append(f"{len(symbols)} definitions bear this name; give a qualified name or path:line to mean one.")
    if any(not symbol.row.definition for symbol in page):
        notes.append("What is only declared here is defined in a file outside of the repositories, or in none.")
    if any(symbol.row.condition for symbol in page):
        notes.append("`condition` is the preprocessor condition that a definition stands under; none was evaluated.")
    if unread:
        notes.append(f"{unread} more files may define it; give a qualified name to look into those that matter.")
    return notes


def _match(index: CppIndex, symbol: CppSymbol, subclass_limit: int) -> ClassMatch:
    row = symbol.row
    is_class = row.kind in CLASS_KINDS
    subclasses, verified = index.subclasses(symbol) if is_class else ([], True)
    members = index.members(symbol) if is_class else []
    return ClassMatch(
        qualified_name=symbol.qualified_name,
        file=symbol.file,
        line=row.line,
        end_line=row.end_line,
        repository=symbol.repository.name,
        bases=tuple(index.bases(symbol)),
        subclasses=tuple(subclasses[:subclass_limit]),
        subclass_count=len(subclasses),
        subclasses_verified=verified,
        condition=row.condition,
        method=symbol.method,
        language=symbol.language,
        kind=row.kind,
        cpp=CppFacts(
            definition=row.definition,
            template=row.template,
            arguments=row.arguments,
            signature=row.signature,
            attributes=row.attributes,
            access=row.access,
            bases_as_written=row.bases,
            methods=tuple(_method(member) for member in members[:_METHODS]),
            method_count=len(members),
            elsewhere=tuple(CppPlace(file=f, line=n, definition=d) for f, n, d in symbol.elsewhere[:_PLACES]),
            elsewhere_count=len(symbol.elsewhere),
        ),
    )


def _method(row: CppRow) -> CppMethod:
    return CppMethod(
        name=row.name, line=row.line, signature=row.signature, access=row.access, defined_here=row.definition
    )


def without_signatures(facts: CppFacts | None) -> CppFacts | None:
    """The facts with the methods' names and lines only, and the first places."""
    if facts is None:
        return None
    methods = tuple(CppMethod(name=m.name, line=m.line, defined_here=m.defined_here) for m in facts.methods)
    return facts.model_copy(update={"methods": methods, "elsewhere": facts.elsewhere[:5]})


def without_methods(facts: CppFacts | None) -> CppFacts | None:
    """The facts without methods and other places."""
    return facts.model_copy(update={"methods": (), "elsewhere": ()}) if facts is not None else None
