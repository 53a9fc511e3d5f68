"""The vocabulary of what an expression may stand for (`Value`), and small readers that its users share."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from opscope_tools.source.python.names import ClassSymbol, Found
from opscope_tools.source.python.parse import Node, dotted, named, parse
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import FunctionRow


@dataclass(frozen=True, eq=False)
class Value:
    """One thing that an expression may be. `key` is the table's key or the condition that picks it.

    `path`: what is held at `path` of the object whose forward is read. `found`: a definition, or a name outside the
    source. `object`: an instance of `symbol` or, unless `exact`, of a subclass. `local`: the function that `node`
    defines in the forward. `items`: a sequence, or a container whose items are not known. `super`: the object as the class after `symbol` sees it. `plain`: sizes, flags and literals.
    `owner` is the class or module that a definition was reached through.
    """

    kind: Literal["path", "found", "object", "local", "items", "super", "plain"]
    path: str = ""
    found: Found | None = None
    symbol: ClassSymbol | None = None
    node: Node | None = None
    items: tuple[tuple[Value, ...], ...] = ()
    key: str = ""
    dispatch: str = ""
    exact: bool = False
    owner: Found | None = None


Values = tuple[Value, ...]
PLAIN: Values = (Value("plain"),)
#: a list, dict or the like whose items are not known
BUILT_IN: Values = (Value("items"),)
#: annotations of such
CONTAINER = re.compile(r"(typing\.)?(dict|list|set|tuple|Dict|List|Set|Tuple|OrderedDict|defaultdict|Mapping)\b")


def together(sides: list[Values]) -> Values:
    """What one of several expressions may be: plain only where all of them are."""
    if all(side and all(v.kind == "plain" for v in side) for side in sides):
        return PLAIN
    return tuple(value for side in sides for value in side if value.kind != "plain")


def alternatives(annotation: str) -> list[str]:
    """The sides of `A | B[C | D]`, of `Optional[A]` and of `Union[A, B]`."""
    outer = re.match(r"(?:typing\.)?(Optional|Union)\[(.*)\]$", annotation)
    text, signs = (outer[2], ",|") if outer else (annotation.strip("\"'"), "|")
    parts, depth = [""], 0
    for sign in text:
        depth += {"[": 1, "]": -1}.get(sign, 0)
        if sign in signs and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def definition_of(unit: Unit, row: FunctionRow) -> Node | None:
    """The `def` of a function, parsed by itself; lines count from the `def`."""
    lines = unit.tree.source(unit.file).split(b"\n")[row.line - 1 : row.end_line]
    nodes = named(parse(textwrap.dedent(b"\n".join(lines).decode("utf-8", "replace")).encode()))
    return nodes[0] if nodes else None


def body_of(unit: Unit, row: FunctionRow) -> Node | None:
    """The body of a function, parsed by itself."""
    definition = definition_of(unit, row)
    return definition.child_by_field_name("body") if definition is not None else None


def called(node: Node) -> str:
    """The dotted name that a call calls (`self.mlp`); empty for other nodes and for callees that are no name."""
    return dotted(node.child_by_field_name("function")) if node.type == "call" else ""


def arguments_of(node: Node) -> list[Node]:
    """The positional arguments of a call, a lone generator included; none for other nodes."""
    arguments = node.child_by_field_name("arguments") if node.type == "call" else None
    if arguments is None:
        return []
    inner = [arguments] if arguments.type == "generator_expression" else named(arguments)
    return [child for child in inner if child.type != "keyword_argument"]


def distinct(symbols: Iterable[ClassSymbol]) -> list[ClassSymbol]:
    """The classes without repetition, in the order of their first mention."""
    found: list[ClassSymbol] = []
    for symbol in symbols:
        if not any(symbol.same(other) for other in found):
            found.append(symbol)
    return found
