"""What import statements bind, in a file that is read as Python's own `ast`: names, and the dotted names that they stand for.

Where a file binds a name more than once, `heads` goes by the ranks that rows of a file have (bindings.py): substitutes
(`except ImportError`, `else`) last, then what only a type checker sees; of statements alike, the later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opscope_tools.source.python.rows import Guard


class Imported(NamedTuple):
    """One name that `from module import member as name` binds, and what it `stands` for. `member` is empty where a module is
    imported (`import a.b` binds `a`, which stands for `a`), and both names are `*` for a star."""

    module: str
    member: str
    name: str
    stands: str
    line: int


def absolute(package: str, module: str) -> str:
    """The absolute name of a module as `from module import ...` in a file of `package` means it."""
    stem = module.lstrip(".")
    dots = len(module) - len(stem)
    if not dots:
        return module
    parts = package.split(".") if package else []
    parts = parts[: max(0, len(parts) - (dots - 1))]
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


def heads(tree: ast.Module, package: str, statements: Iterable[ast.Import | ast.ImportFrom]) -> dict[str, str]:
    """Name -> what it stands for, for every name that the import statements of a file bind, at whatever depth."""
    found: dict[str, str] = {}
    several = False
    for node in statements:
        for one in imported(node, package):
            several = several or found.get(one.name, one.stands) != one.stands
            found[one.name] = one.stands
    if several:  # which is rare, so that other files are spared the walk
        ranked = sorted(_standing(tree.body, Guard(), 0), key=lambda each: each[0], reverse=True)
        found |= {one.name: one.stands for _, node in ranked for one in imported(node, package)}
    found.pop("*", None)
    return found


def branches(condition: str, outside: Guard) -> tuple[Guard, Guard]:
    """How the two sides of an `if` rank: which is the substitute, and what only a type checker sees."""
    checking = condition in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
    negated = condition.startswith("not ")
    body = Guard("", outside.fallback or negated, outside.type_checking or checking)
    return body, Guard("", outside.fallback or not (negated or checking), outside.type_checking)


#: how deep in functions, whether a substitute, whether for type checkers only, the line counted backwards
_Rank = tuple[int, bool, bool, int]


def _standing(
    body: Iterable[ast.stmt], guard: Guard, depth: int
) -> Iterator[tuple[_Rank, ast.Import | ast.ImportFrom]]:
    """Every import statement below `body` with its rank, the best of which is the least."""
    for node in body:
        inside, other, deeper = guard, guard, depth
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield (depth, guard.fallback, guard.type_checking, -node.lineno), node
        elif isinstance(node, ast.If):
            inside, other = branches(ast.unparse(node.test), guard)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            deeper += 1
        for name, held in (("body", inside), ("orelse", other), ("finalbody", guard)):
            yield from _standing(getattr(node, name, ()), held, deeper)
        for handler in getattr(node, "handlers", ()):
            yield from _standing(handler.body, Guard("", True, guard.type_checking), deeper)
        for case in getattr(node, "cases", ()):
            yield from _standing(case.body, guard, deeper)
