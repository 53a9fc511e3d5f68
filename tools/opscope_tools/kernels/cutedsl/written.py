"""Expressions of the source written with what their names hold, so that one text means one thing."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from typing import Any

from opscope_tools.kernels.cutedsl.effects import LONGEST
from opscope_tools.kernels.cutedsl.values import Instance
from opscope_tools.kernels.host.evaluate import Scope
from opscope_tools.kernels.host.interpreter import LocalScope
from opscope_tools.kernels.values.expressions import Expression


class _Filled(ast.NodeTransformer):
    """Names of a scope as what they hold, where that is a number, a text or a formula of other names."""

    def __init__(self, scope: Scope) -> None:
        self.values: Mapping[str, Any] = scope.values if isinstance(scope, LocalScope) else {}

    def visit_Name(self, node: ast.Name) -> ast.expr:  # as the library calls it
        """The value of a name."""
        return _shown(self.values.get(node.id, self), node, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """The value of an attribute of an object."""
        holder = self.values.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(holder, Instance) and node.attr in holder.values:
            return _shown(holder.values[node.attr], node, ast.unparse(node))
        self.generic_visit(node)
        return node


def _shown(value: Any, node: ast.expr, text: str) -> ast.expr:
    """A number, a text or a formula of other names in the place of a name; the name where it stands for something else."""
    if value is None or isinstance(value, int | float | str):
        return ast.Constant(value)
    if isinstance(value, Expression) and value.text not in (text, f"{{{text}}}"):
        plain = value.text.replace("{", "").replace("}", "")
        return ast.Name(plain if plain.replace(".", "").isidentifier() else f"({plain})")
    return node


def written(node: ast.expr, scope: Scope) -> str:
    """An expression as written, with the values that its names have: the same text means the same."""
    text = ast.unparse(_Filled(scope).visit(copy.deepcopy(node)))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… (line {node.lineno})"


__all__ = ["written"]
