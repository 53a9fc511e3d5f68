"""What an expression speaks of: the last name of what is called or held, and the names in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["handed", "last_name", "last_of", "loose_chain", "names", "own_name"]

#: characters of a name that are read
_LONGEST = 200


def handed(call: ast.Call) -> Iterator[str]:
    """The names that a call is given."""
    for one in (*call.args, *(keyword.value for keyword in call.keywords)):
        yield from names(one)


def last_of(call: ast.Call) -> str:
    """The last name of what is called."""
    return last_name(call.func) if isinstance(call.func, ast.Attribute | ast.Name | ast.IfExp) else ""


def last_name(node: ast.AST) -> str:
    """The last name of `a.b[i].c`; of a call that of what is called, of a choice that of the last."""
    while isinstance(node, ast.Subscript | ast.Call | ast.Await | ast.IfExp):
        node = node.func if isinstance(node, ast.Call) else node.orelse if isinstance(node, ast.IfExp) else node.value
    return str(node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", ""))[:_LONGEST]


def own_name(node: ast.AST) -> str:
    """As `last_name`, with `self.` before an object's own attribute."""
    while isinstance(node, ast.Subscript | ast.Call | ast.Await):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Attribute):
        return f"self.{last_name(node)}" if getattr(node.value, "id", "") == "self" else last_name(node)
    return last_name(node)


def names(node: ast.AST) -> Iterator[str]:
    """The names that an expression speaks of, those of attributes among them."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name | ast.Attribute):
            yield last_name(inner)


def loose_chain(node: ast.AST) -> str:
    """A chain of names through subscripts and calls: `self.workers.run` of `self.workers[i].run`."""
    parts: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript | ast.Await):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return ".".join(["?", *reversed(parts)]) if parts else ""
    return ".".join([node.id, *reversed(parts)])
