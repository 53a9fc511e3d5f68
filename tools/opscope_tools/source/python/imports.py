"""What a file binds by imports and hands on in `__all__`, read off Python's own `ast`, and under which conditions.

`Guard`s are made here for both readers of files: file_rows.py goes over tree-sitter's nodes, `standing` over those of `ast`.
Where a file imports a name more than once, `heads` goes by what bindings.py goes by: substitutes (`except ImportError`,
`else`) last, then what only a type checker sees; of statements alike, the later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from opscope_tools.source.python.rows import Guard
from opscope_tools.source.python.trees import tree_of

#: characters of the conditions that a statement stands under: a row for each of a thousand branches holds them
CONDITION_LIMIT = 2000


def chain(node: ast.AST | None, known: Mapping[str, str]) -> str:
    """`a.b.c` of an expression, its head as `heads` has it; empty where it is no chain of names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([known.get(node.id, node.id), *reversed(parts)]) if isinstance(node, ast.Name) else ""


class Imported(NamedTuple):
    """One name that `from module import member as name` binds, and what it `stands` for. `member` is empty where a module is
    imported (`import a.b` binds `a`, which stands for `a`); with `import *`, it and the name are `*`."""

    module: str
    member: str
    name: str
    stands: str
    line: int


def absolute(package: str, module: str) -> str:
    """The absolute name of a module as `from module import ...` in a file of `package` means it."""
    stem = module.lstrip(".")
    above = len(module) - len(stem) - 1
    if above < 0:
        return module
    parts = package.split(".") if package else []
    parts = parts[: max(0, len(parts) - above)]
    return ".".join([*parts, stem] if stem else parts)


def imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[Imported]:
    """What a statement in a file of `package` binds."""
    if isinstance(node, ast.ImportFrom):
        module = absolute(package, "." * node.level + (node.module or ""))
        for alias in node.names:
            dotted = f"{module}.{alias.name}" if module else alias.name
            yield Imported(module, alias.name, alias.asname or alias.name, dotted, alias.lineno)
        return
    for alias in node.names:
        top = alias.name.partition(".")[0]
        yield Imported(alias.name, "", alias.asname or top, alias.name if alias.asname else top, alias.lineno)


def spelt(statement: str, package: str) -> Iterator[Imported]:
    """The same of the text of a statement."""
    tree = tree_of(statement)
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported(node, package)


def heads(tree: ast.Module, package: str, statements: Iterable[ast.Import | ast.ImportFrom]) -> dict[str, str]:
    """Name -> what it stands for, for every name that the import statements of a file bind; what its own level binds comes
    before what functions do."""
    found: dict[str, str] = {}
    several = False
    for node in statements:
        for one in imported(node, package):
            several = several or found.get(one.name, one.stands) != one.stands
            found[one.name] = one.stands
    if several:  # which is rare, so that other files are spared the walk
        own = [(g, n) for g, n in standing(tree.body) if isinstance(n, ast.Import | ast.ImportFrom)]
        own.sort(key=lambda each: (not each[0].fallback, not each[0].type_checking, each[1].lineno))
        found |= {one.name: one.stands for _, node in own for one in imported(node, package)}
    found.pop("*", None)
    return found


def exports(statements: Iterable[ast.stmt]) -> tuple[str, ...] | None:
    """`__all__`, with what `+=`, `.extend` and `.append` add to it; see `FileRows.exports` for parts not spelt out."""
    names: list[str] = []
    found = False
    for statement in statements:
        target, value = _added(statement)
        if value is not None and any(isinstance(one, ast.Name) and one.id == "__all__" for one in target):
            found = True
            names += _listed(value)
    return tuple(names) if found else None


def _added(statement: ast.stmt) -> tuple[list[ast.expr], ast.expr | None]:
    """What a statement gives a value, or adds to, and that value."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            return targets, value
        case ast.AugAssign(target=target, value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            return [target], value
        case ast.Expr(ast.Call(func=ast.Attribute(value=holder, attr="extend" | "append"), args=[value])):
            return [holder], value
    return [], None


def _listed(node: ast.expr) -> list[str]:
    """The strings of a list, tuple or sum of such; `*module` for `module.__all__`, `$name` for a name, `?` for what is
    computed."""
    match node:
        case ast.Constant(value=str() as text):
            return [text]
        case ast.Name(id="__all__"):  # what it holds so far
            return []
        case ast.Name() | ast.Attribute():
            text = ast.unparse(node)
            if not re.fullmatch(r"[\w.]+", text):
                return ["?"]
            return [f"*{text.removesuffix('.__all__')}" if text.endswith(".__all__") else f"${text}"]
        case ast.Starred(value=inner):
            return _listed(inner)
        case ast.BinOp(left=left, right=right):
            return [*_listed(left), *_listed(right)]
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [name for item in items for name in _listed(item)]
        case ast.Call(func=ast.Name(id="list" | "tuple" | "sorted" | "set"), args=items):
            return [name for item in items for name in _listed(item)]
    return ["?"]


# where statements stand

_PLAIN = Guard()


def standing(body: Iterable[ast.stmt], guard: Guard = _PLAIN) -> Iterator[tuple[Guard, ast.stmt]]:
    """Every statement of a module's own level that holds no others at that level, with what it stands under."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _of_if(node, guard)
        elif isinstance(node, ast.Try | ast.TryStar):
            yield from standing([*node.body, *node.orelse], tried(guard, node.lineno))
            for handler in node.handlers:
                caught = f"except {ast.unparse(handler.type)}" if handler.type is not None else "except"
                yield from standing(handler.body, handling(guard, node.lineno, caught))
            yield from standing(node.finalbody, guard)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                yield from standing(case.body, matched(guard, ast.unparse(node.subject), ast.unparse(case.pattern)))
        elif isinstance(node, ast.With | ast.AsyncWith | ast.For | ast.AsyncFor | ast.While):
            yield from standing(node.body, guard)
        else:
            yield guard, node


def _of_if(node: ast.If, guard: Guard) -> Iterator[tuple[Guard, ast.stmt]]:
    first, other = sides(guard, ast.unparse(node.test))
    yield from standing(node.body, first)
    rest = node.orelse
    while len(rest) == 1 and isinstance(rest[0], ast.If) and rest[0].col_offset == node.col_offset:  # elif
        case, other = further_sides(other, ast.unparse(rest[0].test))
        yield from standing(rest[0].body, case)
        rest = rest[0].orelse
    yield from standing(rest, other)


def sides(outside: Guard, condition: str) -> tuple[Guard, Guard]:
    """The guards of the two sides of an `if`: which is the substitute, and what only a type checker sees."""
    checking = condition in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
    negated = condition.startswith("not ")
    opposite = condition[4:] if negated else f"not ({condition})"
    body, checked = outside.fallback or negated, outside.type_checking or checking
    other = outside.fallback or not (negated or checking)
    return (
        Guard(both(outside.condition, condition), body, checked),
        Guard(both(outside.condition, opposite), other, outside.type_checking),
    )


def further_sides(other: Guard, condition: str) -> tuple[Guard, Guard]:
    """The guards of an `elif` and of what follows it."""
    return (
        replace(other, condition=both(other.condition, condition)),
        replace(other, condition=both(other.condition, f"not ({condition})")),
    )


def tried(outside: Guard, line: int) -> Guard:
    """The guard of what a `try` tries."""
    return Guard(both(outside.condition, "try"), outside.fallback, outside.type_checking, line)


def handling(outside: Guard, line: int, condition: str) -> Guard:
    """The guard of an `except` clause of the `try` at `line`."""
    return Guard(both(outside.condition, condition), True, outside.type_checking, line)


def matched(outside: Guard, subject: str, pattern: str) -> Guard:
    """The guard of a `case`."""
    condition = both(outside.condition, f"match {subject}: {pattern}")
    return Guard(condition, outside.fallback or pattern == "_", outside.type_checking)


def cut_short(first: str, second: str) -> str:
    """What stands for two conditions that are too long together; empty where they are not. `...` holds nobody knows when."""
    if len(first) + len(second) <= CONDITION_LIMIT:
        return ""
    return first if first.endswith("...") else f"{first} and ..." if first and len(first) <= CONDITION_LIMIT else "..."


def both(first: str, second: str) -> str:
    """The condition that two conditions hold."""
    short = cut_short(first, second)
    if short or not first:
        return short or second
    return " and ".join(f"({part})" if re.search(r"\b(or|if|lambda)\b", part) else part for part in (first, second))
