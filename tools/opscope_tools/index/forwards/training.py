"""What runs, or has an effect, in training only: branches on `self.training`, and functions that hand back their first
argument in inference (dropout, stochastic depth), as their own source says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from opscope_tools.index.forwards.values import body_of
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.parse import Node, dotted, named, text_of
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import FunctionRow

Flags = Mapping[str, bool | None]
_FLAG = re.compile(r"(^|\.)(training|gradient_checkpointing)$")
_ENDS = {"return_statement", "raise_statement", "continue_statement", "break_statement"}
_DEPTH = 4


def truth(node: Node | None, flags: Flags) -> bool | None:
    """Whether a condition holds in inference, where `training` and `gradient_checkpointing` are False; None where that
    depends on something else. `flags` are local names and parameters with what they hold."""
    if node is None:
        return None
    kind, inner = node.type, named(node)
    if kind == "parenthesized_expression" and inner:
        return truth(inner[0], flags)
    if kind in {"true", "false"}:
        return kind == "true"
    if kind == "not_operator" and inner:
        held = truth(inner[0], flags)
        return None if held is None else not held
    if kind == "boolean_operator":
        sides = [truth(side, flags) for side in inner]
        decisive = text_of(node.child_by_field_name("operator")) == "or"
        if decisive in sides:
            return decisive
        return None if None in sides else not decisive
    if kind == "identifier":
        return flags.get(text_of(node))
    if kind == "attribute":
        return False if _FLAG.search(dotted(node)) else None
    if kind == "call" and dotted(node.child_by_field_name("function")) in {"getattr", "hasattr"}:
        arguments = named(node.child_by_field_name("arguments") or node)
        is_flag = len(arguments) > 1 and _FLAG.search(text_of(arguments[1]).strip("\"'")) is not None
        return False if is_flag and text_of(node).startswith("getattr") else None
    return None


def ends(block: Node | None) -> bool:
    """Whether a block leaves the ones around it: it closes with return, raise, continue or break."""
    statements = named(block) if block is not None else []
    return bool(statements) and statements[-1].type in _ENDS


class Vanishing:
    """Which functions hand back their first argument in inference."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver

    def module(self, unit: Unit, row: FunctionRow) -> bool:
        """Whether a module with this forward does, `self.training` being False."""
        return self._function(unit, row, {}, 1, 0)

    def call(self, unit: Unit, row: FunctionRow, arguments: Node | None, flags: Flags) -> bool:
        """Whether this call of a function does."""
        return self._function(unit, row, _bound(row, arguments, flags), 0, 0)

    def _function(self, unit: Unit, row: FunctionRow, flags: dict[str, bool | None], first: int, depth: int) -> bool:
        names = [p.name for p in row.parameters]
        if len(names) <= first or depth > _DEPTH:
            return False
        source = unit.tree.source(unit.file).split(b"\n")[row.line - 1 : row.end_line]
        if not any(b"training" in line for line in source):
            return False
        body = body_of(unit, row)
        return body is not None and self._body(unit, body, names[first], flags, depth)

    def _body(self, unit: Unit, body: Node, given: str, flags: dict[str, bool | None], depth: int) -> bool:
        """Whether the statements that run in inference come down to `return given`."""
        for statement in named(body):
            if statement.type == "return_statement":
                return self._returns(unit, named(statement), given, flags, depth)
            if statement.type == "if_statement":
                holds = truth(statement.child_by_field_name("condition"), flags)
                if holds is None:
                    if not _raises(statement):
                        return False
                elif holds:
                    consequence = statement.child_by_field_name("consequence")
                    return consequence is not None and self._body(unit, consequence, given, flags, depth)
            elif statement.type != "expression_statement" or named(statement)[0].type != "string":
                return False
        return False

    def _returns(self, unit: Unit, values: list[Node], given: str, flags: Flags, depth: int) -> bool:
        if len(values) != 1:
            return False
        if text_of(values[0]) == given:
            return True
        if values[0].type != "call":
            return False
        arguments = values[0].child_by_field_name("arguments")
        passed = named(arguments) if arguments is not None else []
        name = dotted(values[0].child_by_field_name("function"))
        found = self.resolver.dotted(unit, name) if name and passed and text_of(passed[0]) == given else None
        if found is None or found.unit is None or not isinstance(found.row, FunctionRow):
            return False
        return self._function(found.unit, found.row, _bound(found.row, arguments, flags), 0, depth + 1)


def _raises(statement: Node) -> bool:
    body = statement.child_by_field_name("consequence")
    return body is not None and [child.type for child in named(body)] == ["raise_statement"]


def _bound(row: FunctionRow, arguments: Node | None, flags: Flags) -> dict[str, bool | None]:
    """What the parameters of a called function hold."""
    names = [p.name for p in row.parameters]
    bound = {p.name: {"True": True, "False": False}.get(p.default) for p in row.parameters}
    for position, argument in enumerate(named(arguments) if arguments is not None else []):
        if argument.type == "keyword_argument":
            bound[text_of(argument.child_by_field_name("name"))] = truth(argument.child_by_field_name("value"), flags)
        elif position < len(names):
            bound[names[position]] = truth(argument, flags)
    return bound
