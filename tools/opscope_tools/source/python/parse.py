"""Source bytes to a concrete syntax tree: the only module that imports tree_sitter.

tree-sitter recovers from syntax errors, so a broken file still yields what parses. The import waits for the first
parse, because listing the tools must not pay for it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser
else:
    Node = object  # annotations only

__all__ = ["Node", "dotted", "line_of", "named", "parameters", "parse", "text_of"]


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_python

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))


def parse(source: bytes) -> Node:
    """The module node of `source`; `has_error` tells whether anything did not parse."""
    return _parser().parse(source).root_node


def text_of(node: Node | None) -> str:
    """The node's source on one line: line breaks and indentation become single spaces."""
    if node is None or node.text is None:
        return ""
    text = node.text.decode("utf-8", "replace")
    return " ".join(text.split()) if "\n" in text else text


def line_of(node: Node) -> int:
    """First line of the node, 1-based."""
    return node.start_point[0] + 1


def named(node: Node) -> list[Node]:
    """Named children without comments."""
    return [child for child in node.named_children if child.type != "comment"]


def dotted(node: Node | None) -> str:
    """`a.b.c` where the node is a plain name or attribute chain, else an empty string."""
    if node is None:
        return ""
    if node.type == "identifier":
        return text_of(node)
    if node.type == "attribute":
        head = dotted(node.child_by_field_name("object"))
        tail = text_of(node.child_by_field_name("attribute"))
        return f"{head}.{tail}" if head else ""
    return ""


def parameters(text: str) -> list[tuple[str, str, str]]:
    """(name with its stars, annotation, default) of each parameter of a `def` with the parenthesised list `text`."""
    definition = parse(f"def f{text}: 0".encode()).named_children[0]
    found = []
    for child in named(definition.child_by_field_name("parameters") or definition):
        default = text_of(child.child_by_field_name("value"))
        annotation = text_of(child.child_by_field_name("type"))
        if child.type in {"default_parameter", "typed_default_parameter"}:
            name = text_of(child.child_by_field_name("name"))
        elif child.type == "typed_parameter":
            name = text_of(child.named_children[0])
        else:
            name = text_of(child)
        found.append((name, annotation, default))
    return found
