"""Source text to syntax trees of Python's own `ast`, for single functions and assignments.

A function that does not parse whole is read without the lines that stand in the way; `text` gives expressions as they
are written.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field
from functools import cached_property

from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import AssignRow, FunctionRow
from opscope_tools.source.python.trees import expression_of, parsed

_VALUE_LIMIT = 400
_REPAIRS = 8


@dataclass(eq=False)
class Source:
    """The lines of a file, and what was parsed of them."""

    lines: list[bytes]
    functions: dict[int, Function | None] = field(default_factory=dict)
    values: dict[int, Value | None] = field(default_factory=dict)


@dataclass(eq=False)
class Text:
    """A piece of a file: `first` is the file's line that line 1 of the tree stands for, `column` what was cut off."""

    unit: Unit
    lines: list[bytes]
    first: int

    def line(self, node: ast.AST) -> int:
        """The node's line in the file."""
        found: int = getattr(node, "lineno", 1)
        return found + self.first - 1

    def text(self, node: ast.AST) -> str:
        """The node as written, on one line."""
        known: str | None = getattr(node, "_text", None)
        if known is None:
            known = self._text(node)
            node._text = known  # type: ignore[attr-defined]
        return known

    def _text(self, node: ast.AST) -> str:
        start: int = getattr(node, "lineno", 0)
        end: int = getattr(node, "end_lineno", 0)
        if not start or not end or end > len(self.lines):
            return ""
        left: int = getattr(node, "col_offset", 0)
        right: int = getattr(node, "end_col_offset", 0)
        if start == end:
            piece = self.lines[start - 1][left:right]
            return piece.decode("utf-8", "replace")
        rows = [self.lines[start - 1][left:], *self.lines[start : end - 1], self.lines[end - 1][:right]]
        return " ".join(b"\n".join(rows).decode("utf-8", "replace").split())


@dataclass(eq=False)
class Function(Text):
    """A `def` (or lambda) as a tree."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    name: str
    row: FunctionRow | None = None

    @cached_property
    def yields(self) -> bool:
        """Whether it is a generator."""
        pending: list[ast.AST] = list(self.node.body) if isinstance(self.node.body, list) else [self.node.body]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Yield | ast.YieldFrom):
                return True
            if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
                pending.extend(ast.iter_child_nodes(node))
        return False


@dataclass(eq=False)
class Value(Text):
    """The right side of an assignment as a tree."""

    node: ast.expr


def parameters(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """The named parameters in order, each with its default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*([None] * (len(positional) - len(arguments.defaults))), *arguments.defaults]
    return [*zip(positional, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]


def _source(unit: Unit) -> Source:
    return unit.kept.of(Source, lambda: Source(unit.tree.source(unit.file).split(b"\n")))


def function(unit: Unit, row: FunctionRow) -> Function | None:
    """The tree of a `def`; None where nothing of it parses."""
    source = _source(unit)
    if row.line not in source.functions:
        source.functions[row.line] = _function(unit, source, row)
    return source.functions[row.line]


def _function(unit: Unit, source: Source, row: FunctionRow) -> Function | None:
    piece = source.lines[row.line - 1 : row.end_line]
    lines, first = (piece, row.line) if piece and not piece[0][:1].isspace() else ([b"if 1:", *piece], row.line - 1)
    tree = _parsed(lines)
    pending: list[ast.stmt] = list(tree.body) if tree is not None else []
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == row.name:
            return Function(unit, lines, first, node, row.name, row)
        if isinstance(node, ast.If):
            pending.extend(node.body)
    return None


def _parsed(lines: list[bytes]) -> ast.Module | None:
    """The tree of the lines; a line that Python cannot read gives way to `pass`, a few times."""
    lines = list(lines)
    for _ in range(_REPAIRS):
        try:
            return parsed(b"\n".join(lines).decode("utf-8", "replace"))
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            if not 0 <= at < len(lines):
                return None
            stripped = lines[at].lstrip()
            replaced = lines[at][: len(lines[at]) - len(stripped)] + b"pass"
            if lines[at] == replaced:
                return None
            lines[at] = replaced
        except (ValueError, RecursionError, MemoryError):
            return None
    return None


def value(unit: Unit, row: AssignRow) -> Value | None:
    """The tree of what is assigned; None where it does not parse."""
    source = _source(unit)
    if row.line not in source.values:
        source.values[row.line] = _value(unit, source, row)
    return source.values[row.line]


def _value(unit: Unit, source: Source, row: AssignRow) -> Value | None:
    if len(row.value) < _VALUE_LIMIT and "#" not in row.value:
        spelt = expression_of(row.value)
        if spelt is not None:
            return Value(unit, [row.value.encode()], row.line, spelt)
    lines = _statement(source.lines, row.line - 1)
    tree = _parsed([lines[0].lstrip(), *lines[1:]]) if lines else None
    node = tree.body[0] if tree is not None and tree.body else ast.Pass()
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        return Value(unit, [lines[0].lstrip(), *lines[1:]], row.line, node.value)
    return None


@dataclass(eq=False)
class Statements(Text):
    """A module-level statement as a tree."""

    body: list[ast.stmt]


def additions(unit: Unit, name: str) -> list[tuple[int, Statements]]:
    """(line, tree) of the module-level statements that add to the table called `name`."""
    source = _source(unit)
    found = []
    pattern = re.compile(
        rb"%s(\.(update|append|extend|setdefault|add|insert|register)\(|\[[^=]*\] *=[^=])" % name.encode()
    )
    head = name.encode()
    for number, text in enumerate(source.lines):
        if text.startswith(head) and pattern.match(text):
            lines = _statement(source.lines, number)
            tree = _parsed(lines) if lines else None
            if tree is not None:
                found.append((number + 1, Statements(unit, lines, number + 1, tree.body)))
    return found


def _statement(lines: list[bytes], start: int) -> list[bytes]:
    """The logical line that begins at `start`."""
    reading = iter(lines[start:])
    head = next(reading, None)
    if head is None:
        return []
    rest = io.BytesIO(b"\n".join([head.lstrip(), *lines[start + 1 : start + 4000]]))
    try:
        for token in tokenize.tokenize(rest.readline):
            if token.type == tokenize.NEWLINE:
                return lines[start : start + token.end[0]]
    except (tokenize.TokenError, SyntaxError, IndentationError):
        pass
    return []
