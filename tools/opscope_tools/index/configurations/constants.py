"""Constants of a Python file: what its module level assigns to names in capitals."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Literal

from opscope_tools.index.modules.held_modules import interpreting
from opscope_tools.index.modules.shown_values import OPEN, Shown, shown
from opscope_tools.source.python.found import ClassSymbol
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import AssignRow, ClassRow, Guard
from opscope_tools.source.python.syntax import value as code_of

__all__ = ["FileConstant", "file_constants"]

_NAME = re.compile(r"_?[A-Z][A-Z0-9_]*+$")
_DEEPEST = 6
_COMPUTING = frozenset(
    "int float str bool len min max sum abs round range list tuple dict set frozenset sorted pow divmod math.ceil math.floor math.sqrt "
    "math.log math.log2 math.exp math.prod".split()
)
_SIMPLE = (bool, int, float, str, type(None), list)


@dataclass(frozen=True)
class FileConstant:
    """One assignment. `basis`: as written, worked out, or not decided by source."""

    name: str
    expression: str
    line: int
    condition: str
    value: Shown
    basis: Literal["source", "evaluated", "open"]


def file_constants(resolver: Resolver, repository: str, file: str) -> list[FileConstant]:
    """In order of lines; values that are neither numbers, text nor lists of such are left out."""
    tree = next(tree for tree in resolver.trees if tree.repository.name == repository)
    unit = tree.unit(file)
    rows = [row for row in unit.rows.rows if isinstance(row, AssignRow) and _NAME.match(row.name) and row.value]
    if not rows:
        return []
    found = []
    with interpreting(resolver, _anchor(unit), strict=True) as (interpreter, _):
        for row in rows:
            interpreter.state.allow()
            value = OPEN
            if _plain(resolver, unit, row, 0):
                value = shown(interpreter.names.global_value(unit, row, f"{unit.name}.{row.name}"))
            literal = _literal(row.value)
            if value.known and not isinstance(value.data, _SIMPLE):
                continue
            if not value.known and re.match(r"[\w.]*(getLogger|get_logger|TypeVar|import_module)", row.value):
                continue
            basis: Literal["source", "evaluated", "open"] = (
                "open" if not value.known else "source" if literal else "evaluated"
            )
            found.append(FileConstant(row.name, row.value, row.line, row.guard.condition, value, basis))
    return found


def _plain(resolver: Resolver, unit: Unit, row: AssignRow, depth: int) -> bool:
    """Whether a value follows from constants of the source alone: no condition around it, and no call but of functions
    that compute numbers and text (what others return may depend on the machine)."""
    if (
        row.guard.condition
        or depth > _DEEPEST
        or sum(r.name == row.name for r in unit.rows.rows if isinstance(r, AssignRow)) > 1
    ):
        return False
    parsed = code_of(unit, row)
    if parsed is None:
        return False
    called = {id(node.func) for node in ast.walk(parsed.node) if isinstance(node, ast.Call)}
    for node in ast.walk(parsed.node):
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in _COMPUTING:
            return False
        if isinstance(node, ast.Attribute) and not (id(node) in called or ast.unparse(node).startswith("math.")):
            return False
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and id(node) not in called
            and node.id != "math"
        ):
            bound = {n.id for n in ast.walk(parsed.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            found = None if node.id in bound else resolver.lookup(unit, node.id)
            if node.id not in bound and not (
                found is not None and found.unit is not None and isinstance(found.row, AssignRow)
                and _plain(resolver, found.unit, found.row, depth + 1)
            ):  # fmt: skip
                return False
    return True


def _anchor(unit: Unit) -> ClassSymbol:
    """A class that stands for the file where an interpreter is asked for by class."""
    return ClassSymbol(unit, "", ClassRow("", 1, 1, 1, (), (), (), Guard()))


def _literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True
