"""What a reader must know of a class beyond its rows: several definitions of its name, a deleted name, decorators that
may put something else in its place, bases that source does not tell, auto classes that stand for others.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from opscope_tools.index.names.auto_classes import AutoClasses
from opscope_tools.index.names.torch_modules import MODULE
from opscope_tools.source.python.bindings import deletes
from opscope_tools.source.python.found import ClassSymbol
from opscope_tools.source.python.made_classes import call_of
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.outside import is_standard
from opscope_tools.source.python.rows import AssignRow, ClassRow, FunctionRow, Row

_EXPRESSION = re.compile(r"[^\w.]")
_PATCH = re.compile(r"\s*(?P<what>\w+)\.forward\s*=[^=]")


def remarks(resolver: Resolver, auto: AutoClasses, symbol: ClassSymbol) -> list[str]:
    """Sentences, most important first; empty for a plain class."""
    return [
        *_picks(auto, symbol),
        *_bindings(resolver, symbol),
        *patches(resolver, symbol),
        *_decorators(resolver, symbol),
        *_bases(resolver, symbol),
    ]


def patches(resolver: Resolver, symbol: ClassSymbol) -> Iterator[str]:
    """Assignments that put another forward into the class, or into its objects, when they run."""
    for holder in resolver.mro(symbol):
        if isinstance(holder, str) or holder.qualified_name == MODULE:
            continue
        source = holder.unit.tree.source(holder.file)
        if b".forward" not in source:
            continue
        lines = source.decode("utf-8", "replace").split("\n")
        for number, line in enumerate(lines, 1):
            found = _PATCH.match(line)
            inside = holder.line <= number <= holder.end_line
            if found and (found["what"] == holder.name or (inside and found["what"] in {"self", "cls"})):
                whose = "its objects'" if found["what"] == "self" else "the class's"
                yield f"{holder.file}:{number} assigns {whose} forward when it runs: {line.strip()[:80]}."


def _picks(auto: AutoClasses, symbol: ClassSymbol) -> Iterator[str]:
    table = auto.table(symbol)
    if table is not None:
        yield (
            f"{symbol.name} is never built itself: it picks one of {len(table.classes)} model types' classes by the "
            'configuration. Give `config` (a config.json, or {"model_type": "llama"}) to see which.'
        )


def _bindings(resolver: Resolver, symbol: ClassSymbol) -> Iterator[str]:
    """What else the module does with the name of a top-level class."""
    if "." in symbol.path:
        return
    rows = symbol.unit.bindings.get(symbol.name, [])
    others = [row for row in rows if isinstance(row, ClassRow) and row.line != symbol.line]
    if others:
        lines = ", ".join(f"{row.line}{_under(row)}" for row in others)
        counts = min(
            (row for row in rows if isinstance(row, ClassRow)), key=lambda row: resolver.rank(symbol.unit, row)
        )
        yield f"{symbol.file} defines {symbol.name} again at line {lines}; the one at line {counts.line} counts here."
    for row in rows:
        if row.line <= symbol.line or isinstance(row, ClassRow):
            continue
        if deletes(row):
            yield f"{symbol.module} deletes the name {symbol.name} at line {row.line}{_under(row)}."
        elif isinstance(row, AssignRow) and row.value and _replaces(resolver, symbol, row):
            yield f"{symbol.module} binds {symbol.name} anew at line {row.line}{_under(row)}: {row.value[:80]}."


def _replaces(resolver: Resolver, symbol: ClassSymbol, row: AssignRow) -> bool:
    """Whether an assignment puts something else under the class's name; `A = register(A)` may hand the class back."""
    if resolver.rank(symbol.unit, row) > resolver.rank(symbol.unit, symbol.row):
        return False
    called = call_of(row.value)
    if called is None or not called[1].args or ast.unparse(called[1].args[0]) != symbol.name:
        return True
    return _handed_back(resolver, symbol, called[0], called=False) != "same"


def _under(row: Row) -> str:
    return f" (under `{row.guard.condition}`)" if row.guard.condition else ""


def _bases(resolver: Resolver, symbol: ClassSymbol) -> Iterator[str]:
    mro = [base for base in resolver.mro(symbol) if isinstance(base, str)]
    for base in mro:
        if _EXPRESSION.search(base):
            yield f"Source does not tell what the base `{base}` is; what it adds to the MRO is missing."
    outside = [base for base in mro if "." in base and not _EXPRESSION.search(base) and not is_standard(base)]
    if outside:
        names = ", ".join(outside)
        yield f"Not in the Python source of a registered repository, so that its own bases are not known: {names}."


def _decorators(resolver: Resolver, symbol: ClassSymbol) -> Iterator[str]:
    for text in symbol.row.decorators:
        name = text.split("(", 1)[0].strip()
        if _handed_back(resolver, symbol, name, called="(" in text) == "other":
            yield f"The decorator @{text} returns another class than the one it is given: the name leads to that."


def _handed_back(resolver: Resolver, symbol: ClassSymbol, name: str, *, called: bool) -> str:
    """What the function `name`, given the class, returns; see `_returned`."""
    found = resolver.dotted(symbol.unit, name)
    if found is None or found.unit is None or not isinstance(found.row, FunctionRow):
        return ""
    lines = found.unit.tree.source(found.unit.file).decode("utf-8", "replace").split("\n")
    return _returned("\n".join(lines[found.row.line - 1 : found.row.end_line]), called)


def _returned(source: str, called: bool) -> str:
    """What a class decorator hands back: `same` class, an `other` one, or "" where its source does not tell.

    `called`: written with arguments, so that the function makes the decorator.
    """
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError):
        return ""
    function = tree.body[0] if tree.body else None
    if isinstance(function, ast.FunctionDef) and called:
        inner = {node.name: node for node in function.body if isinstance(node, ast.FunctionDef)}
        names = [node.value.id for node in _returns(function) if isinstance(node.value, ast.Name)]
        function = next((inner[name] for name in names if name in inner), None)
    if not isinstance(function, ast.FunctionDef) or not function.args.args:
        return ""
    given = function.args.args[0].arg
    classes = {node.name for node in function.body if isinstance(node, ast.ClassDef)}
    kinds = set()
    for node in _returns(function):
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        kinds.add("same" if name == given else "other" if name in classes else "")
    return kinds.pop() if len(kinds) == 1 else ""


def _returns(function: ast.FunctionDef) -> Iterator[ast.Return]:
    """The return statements of a function itself, not of those inside it."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Return):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))
