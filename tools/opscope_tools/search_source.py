"""The tool `search_source`: what words and structure find in source that names cannot."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import InputError, OpscopeError
from opscope_schemas.search import SearchHit, SearchSourceResult
from pydantic import Field

from opscope_tools.index import ClassSymbol, Index
from opscope_tools.index.search.query import FORMS, Query, understood
from opscope_tools.index.search.ranking import Found, search
from opscope_tools.running.engines import cpp_index_of, index_of, texts_of
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import ClassRow, FunctionRow, Row
from opscope_tools.source.python.syntax import function

#: hits that are looked at closely, so that those whose calls lead to a definition come first; characters of a line
_FOLLOWED, _LONGEST = 60, 200


class SearchSourceArguments(ToolArguments):
    """What `search_source` takes."""

    query: str = Field(
        min_length=1,
        max_length=400,
        description="Words (where is the KV cache written), `calls:NAME`, `assigns:`, `def:`, `class:`, `decorator:`, "
        '"exact phrase".',
    )
    repo: str | None = Field(default=None, description="Default: all.")
    offset: int = Field(default=0, ge=0, description="Hits to skip.")
    limit: int = Field(default=10, ge=1, le=50, description="Hits.")


def run(arguments: SearchSourceArguments, context: ToolContext) -> SearchSourceResult:
    """Raises `InputError` for a query without a word to look for, `UnknownNameError` for an unknown repository."""
    query = understood(arguments.query)
    if not query.words and not query.forms:
        raise InputError(
            f"{arguments.query!r} holds no word to look for.",
            next_step=f"Give words as code has them, or a form: {', '.join(f'{form}:NAME' for form in FORMS)}.",
        )
    repositories = context.workspace.select(arguments.repo)
    ranked = search(texts_of(context.workspace), repositories, query, context.checkpoint)
    index = index_of(context.workspace)
    calls = [form.name for form in query.forms if form.kind == "calls"]
    with index.question(context.checkpoint):
        first = ranked.found[: max(_FOLLOWED, arguments.offset + arguments.limit)]
        hits = [hit for found in first if (hit := _hit(index, context, found, calls)) is not None]
    hits.sort(key=lambda hit: not hit.verified)  # stable: the order of the ranking otherwise
    page = hits[arguments.offset :][: arguments.limit]
    count = len(hits) + len(ranked.found) - len(first)
    named = {repository.name for repository in repositories}
    return SearchSourceResult(
        understood=query.said(),
        hits=tuple(hit if len(named) > 1 else hit.model_copy(update={"repository": ""}) for hit in page),
        hit_count=count,
        definitions=ranked.pieces,
        sources=tuple(context.workspace.source(repository) for repository in repositories),
        notes=tuple(_notes(query, hits)),
        shortened=f"{len(page)} of {count} hits; the rest with offset." if len(page) < count else "",
    )


def _hit(index: Index, context: ToolContext, found: Found, calls: list[str]) -> SearchHit | None:
    """The hit with the definition around it; None for what only looks like a call."""
    if not found.file.endswith(".py"):
        return _in_cpp(context, found, calls)
    tree = next(tree for tree in index.resolver.trees if tree.repository.name == found.repository.name)
    try:
        unit = tree.unit(found.file)
        code = _text(tree.source(found.file), found.line)
    except (OpscopeError, OSError):
        return None
    around = list(_around(unit.rows.rows, max(found.line, found.head)))
    row = around[-1] if around else None
    verified = False
    for name in calls:
        calling = _calls(unit, around, name, found.line)
        if calling is None:
            return None
        verified = _leads(index, unit, around, calling)
    kind = "" if row is None else "class" if isinstance(row, ClassRow) else "method" if len(around) > 1 else "function"
    return SearchHit(
        file=found.file, line=found.line, code=code, within=".".join((unit.name, *(r.name for r in around))),
        kind=kind, begins=row.line if row else 0, ends=row.end_line if row else 0, verified=verified, alike=found.alike,
        repository=found.repository.name,
    )  # fmt: skip


def _in_cpp(context: ToolContext, found: Found, calls: list[str]) -> SearchHit | None:
    code = ""
    within, kind = "", ""
    begins = ends = 0
    files = next(f for f in cpp_index_of(context.workspace).sources if f.repository.name == found.repository.name)
    try:
        source = files.source(found.file)
        code = _text(source, found.line)
        rows = files.rows(found.file, files.listing()[found.file], source)
    except (OpscopeError, KeyError):
        return None
    heads = {row.name for row in rows if row.kind == "function" and row.first_line <= found.line <= row.line}
    if heads.intersection(name.rpartition(".")[2] for name in calls):
        return None  # its definition or declaration
    inside = [row for row in rows if row.first_line <= found.line <= row.end_line and row.kind != "namespace"]
    if inside:
        row = min(inside, key=lambda r: r.end_line - r.first_line)
        within, kind, begins, ends = row.qualified_name, row.kind, row.line, row.end_line
    return SearchHit(
        file=found.file, line=found.line, code=code, within=within, kind=kind, begins=begins, ends=ends,
        alike=found.alike, repository=found.repository.name,
    )  # fmt: skip


def _text(source: bytes, line: int) -> str:
    lines = source.split(b"\n", line)
    text = lines[line - 1].decode("utf-8", "replace").strip() if line <= len(lines) else ""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"


def _around(rows: tuple[Row, ...], line: int) -> Iterator[ClassRow | FunctionRow]:
    """The definitions around a line, the outermost first."""
    for row in rows:
        if isinstance(row, ClassRow | FunctionRow) and row.line <= line <= row.end_line:
            yield row
            if isinstance(row, ClassRow):
                yield from _around(row.body, line)
            return


def _calls(unit: Unit, around: list[ClassRow | FunctionRow], name: str, line: int) -> ast.Call | None:
    """The call of `name` on the line; None where it stands in a text or a comment. Outside of functions any is taken."""
    row = around[-1] if around else None
    parsed = function(unit, row) if isinstance(row, FunctionRow) else None
    last = name.rpartition(".")[2]
    if parsed is None:
        return ast.Call(ast.Name(last), [], [])
    for node in ast.walk(parsed.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            spelt = ast.unparse(node.func)
            end = getattr(node.func, "end_lineno", 0) + parsed.first - 1
            if end == line and (spelt in (name, last) or spelt.endswith(f".{name}")):
                return node
    return None


def _leads(index: Index, unit: Unit, around: list[ClassRow | FunctionRow], call: ast.Call) -> bool:
    """Whether what is called is a definition in source: a name of the module, or a method of the class around it."""
    spelt = ast.unparse(call.func)
    holder = next((row for row in reversed(around) if isinstance(row, ClassRow)), None)
    if spelt.startswith("self.") and spelt.count(".") == 1 and holder is not None:
        path = ".".join(row.name for row in around[: around.index(holder) + 1])
        return index.method(ClassSymbol(unit, path, holder), spelt[5:]) is not None
    found = index.resolver.dotted(unit, spelt) if all(part.isidentifier() for part in spelt.split(".")) else None
    return found is not None and found.in_source


def _notes(query: Query, hits: list[SearchHit]) -> Iterator[str]:
    if any(form.kind == "calls" for form in query.forms) and hits:
        yield "find_references lists every verified call of one definition."


def _brief(result: SearchSourceResult) -> SearchSourceResult:
    hits = tuple(hit.model_copy(update={"code": hit.code[:80]}) for hit in result.hits[:10])
    return result.model_copy(update={"hits": hits, "shortened": "Ten hits, code cut; the rest with offset and limit."})


SEARCH_SOURCE: Tool[SearchSourceArguments, SearchSourceResult] = Tool(
    name="search_source",
    title="Search source",
    description=(
        "Finds code when no name is known: definitions (Python, CUDA, C++) ranked by words and structure, each with its best line."
    ),
    arguments=SearchSourceArguments,
    result=SearchSourceResult,
    run=run,
    shorter=(_brief,),
    finds=("hits",),
    otherwise="use fewer or other words, identifiers as code spells them, or one of the forms (query).",
    positional=("query",),
)
