"""A Python file as text, lines and tree, with the definitions around each line."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import cached_property

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def parsed(text: str) -> ast.Module:
    """The tree of a file; raises `SyntaxError`, `ValueError`, `RecursionError` or `MemoryError` where Python cannot read it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about the analysed source's own literals are not ours
        return ast.parse(text)


def tree_of(text: str) -> ast.Module | None:
    """The tree of a file; None where Python cannot read it."""
    try:
        return parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def expression_of(text: str) -> ast.expr | None:
    """The tree of an expression; None where the text is none."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class PythonSource:
    """One file; `tree` is None where Python cannot read it."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.lines = text.split("\n")

    @cached_property
    def tree(self) -> ast.Module | None:
        """The syntax tree."""
        return tree_of(self.text)

    def line(self, number: int) -> str:
        """The 1-based line; empty outside the file."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    @cached_property
    def definitions(self) -> list[tuple[str, Definition]]:
        """Every class and function with its dotted path, outer before inner."""
        return list(definitions(self.tree)) if self.tree is not None else []

    def class_at(self, line: int) -> ast.ClassDef | None:
        """The class whose `class` keyword stands on the line."""
        return next((n for _, n in self.definitions if isinstance(n, ast.ClassDef) and n.lineno == line), None)

    def around(self, line: int) -> str:
        """Path of the innermost definition that a line stands in; empty at module level."""
        inside = [
            (node.lineno, path)
            for path, node in self.definitions
            if node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
        return max(inside)[1] if inside else ""


def definitions(node: ast.AST, path: str = "") -> Iterator[tuple[str, Definition]]:
    """Every class and function below a node with its dotted path, outer before inner."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{path}.{child.name}" if path else child.name
            yield inner, child
            yield from definitions(child, inner)
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from definitions(child, path)
