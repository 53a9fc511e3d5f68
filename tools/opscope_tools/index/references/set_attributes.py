"""What constructors set attributes to, in the words of their code: `self.x = ...` in `__init__` and in the methods that it
calls.

A search for references asks this of every class whose objects a file uses, hundreds in one answer, of which one in ten
would take half a second to interpret; it wants no more than the class that an attribute is made of. What an object of
one class holds is told by `index/modules/held_modules.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from opscope_schemas.errors import SourceError

from opscope_tools.index.forwards.values import definition_of
from opscope_tools.source.python.names import ClassSymbol
from opscope_tools.source.python.parse import Node, dotted, line_of, named, text_of
from opscope_tools.source.python.rows import FunctionRow

_CONTAINERS = {"ModuleList", "Sequential", "ModuleDict"}
_LISTS = {
    "list",
    "tuple",
    "set",
    "list_comprehension",
    "generator_expression",
    "dictionary",
    "dictionary_comprehension",
}
_TEXT = 400
#: values that one expression may have, and rows of one class
_MOST, _MOST_ROWS = 200, 5000


@dataclass(frozen=True)
class SetAttribute:
    """`self.attribute = callee(arguments)` where `made`, else `self.attribute = callee`, any expression; empty for None
    and for what is deleted. The items of a container are those of `attribute.*`."""

    attribute: str
    callee: str
    line: int
    made: bool = False
    arguments: str = ""


@dataclass
class _Reading:
    """One class being read: what its local names stand for in the method at hand, and the methods that are called."""

    first: int = 0
    found: list[SetAttribute] = field(default_factory=list)
    local: dict[str, list[SetAttribute]] = field(default_factory=dict)
    called: list[str] = field(default_factory=list)


def set_attributes(symbol: ClassSymbol) -> tuple[SetAttribute, ...]:
    """What the class's own constructor sets, in order; raises `SourceError` where expressions nest beyond reason."""
    reading = _Reading(called=["__init__"])
    for name in reading.called:  # grows on the way
        row = symbol.members.get(name)
        definition = definition_of(symbol.unit, row) if isinstance(row, FunctionRow) else None
        body = definition.child_by_field_name("body") if definition is not None else None
        if body is not None and isinstance(row, FunctionRow):
            reading.first, reading.local = row.line - 1, {}
            try:
                _block(body, reading, sure=True)
            except RecursionError:
                raise SourceError(
                    f"{symbol.file} nests expressions too deeply to be read.", location=symbol.file
                ) from None
    return tuple(reading.found)


def _block(block: Node, reading: _Reading, *, sure: bool) -> None:
    for node in named(block):
        if node.type == "expression_statement":
            for inner in named(node):
                _statement(inner, reading, sure=sure)
        elif node.type == "delete_statement":
            for target in named(node):
                _record(target, [SetAttribute("", "", line_of(node))], reading)
        elif node.type == "block" or node.type.endswith(("_statement", "_clause")):
            _block(node, reading, sure=node.type == "block" and sure)


def _statement(node: Node, reading: _Reading, *, sure: bool) -> None:
    if node.type == "assignment":
        targets: list[Node | None] = []
        value: Node | None = node
        while value is not None and value.type == "assignment":
            targets.append(value.child_by_field_name("left"))
            value = value.child_by_field_name("right")
        values = _values(value, reading) if value is not None else []
        for target in targets:
            if value is not None and target is not None and target.type == "identifier":
                earlier = [] if sure else reading.local.get(text_of(target), [])
                reading.local[text_of(target)] = [*earlier, *values][:_MOST]
            elif value is not None:
                _record(target, values, reading)
    elif node.type == "augmented_assignment":
        _grow(node.child_by_field_name("left"), node.child_by_field_name("right"), reading, whole=True)
    elif node.type == "call":
        _called(node, reading)


def _called(node: Node, reading: _Reading) -> None:
    """A call for its effect: a container grows, an attribute is set by its name, a method goes on."""
    function, arguments = node.child_by_field_name("function"), _arguments(node)
    name = dotted(function)
    if name == "setattr" and len(arguments) == 3:
        name, arguments = f"{text_of(arguments[0])}.add_module", arguments[1:]
    if name in {"self.add_module", "self.register_module"} and len(arguments) == 2:
        _add(text_of(arguments[0]).strip("\"'"), _values(arguments[1], reading), reading)
    elif name.rpartition(".")[2] in {"append", "extend", "insert"} and function is not None and arguments:
        _grow(function.child_by_field_name("object"), arguments[-1], reading, whole=name.endswith(".extend"))
    elif name.startswith("self.") and name.count(".") == 1 and name[5:] not in reading.called:
        reading.called.append(name[5:])


def _grow(target: Node | None, value: Node | None, reading: _Reading, *, whole: bool) -> None:
    """A container grows by `value`: by its items where it is taken as a `whole`."""
    if target is None or value is None:
        return
    values = _values(value, reading)
    items = (
        [v for v in values if v.attribute] if whole else [replace(v, attribute="*") for v in values if not v.attribute]
    )
    if target.type == "identifier":
        reading.local[text_of(target)] = [*reading.local.get(text_of(target), []), *items][:_MOST]
    else:
        _record(target, items, reading)


def _record(target: Node | None, values: list[SetAttribute], reading: _Reading) -> None:
    name = dotted(target)
    if name.startswith("self.") and name.count(".") == 1:
        _add(name[5:], values, reading)
        reading.local[name] = values


def _add(attribute: str, values: list[SetAttribute], reading: _Reading) -> None:
    room = _MOST_ROWS - len(reading.found)
    reading.found += [
        replace(v, attribute=f"{attribute}.*" if v.attribute else attribute, line=v.line + reading.first)
        for v in values[:room]
    ]


def _values(node: Node, reading: _Reading) -> list[SetAttribute]:
    """What an expression may be: without attribute for itself, with `*` for an item of a container."""
    found = list(_each(node, reading))
    return found if len(found) <= _MOST else [SetAttribute("", text_of(node)[:_TEXT], line_of(node))]


def _each(node: Node, reading: _Reading) -> Iterator[SetAttribute]:
    kind, text, line = node.type, text_of(node)[:_TEXT], line_of(node)
    parts = named(node)
    if kind == "parenthesized_expression" and parts:
        yield from _values(parts[0], reading)
    elif kind == "none":
        yield SetAttribute("", "", line)
    elif kind == "conditional_expression":
        yield from [*_values(parts[0], reading), *_values(parts[2], reading)]
    elif kind in _LISTS:
        items = parts[:1] if kind.endswith(("comprehension", "generator_expression")) else parts
        yield SetAttribute("", text, line)
        for item in items:
            value = item.child_by_field_name("value") if item.type == "pair" else item
            yield from (replace(v, attribute="*") for v in _values(value or item, reading) if not v.attribute)
    elif kind == "binary_operator":  # [Block()] * depth
        yield SetAttribute("", text, line)
        yield from (v for side in parts for v in _values(side, reading) if v.attribute)
    elif kind == "call":
        yield from _call(node, reading)
    else:
        yield from reading.local.get(dotted(node)) or [SetAttribute("", text, line)]


def _call(node: Node, reading: _Reading) -> Iterator[SetAttribute]:
    name, line = dotted(node.child_by_field_name("function")), line_of(node)
    written = text_of(node.child_by_field_name("arguments")).removeprefix("(").removesuffix(")").strip()[:_TEXT]
    for known in reading.local.get(name) or [SetAttribute("", name, line)]:  # norm = A if flag else B; norm(size)
        if not known.attribute and not known.made:
            yield SetAttribute("", known.callee, line, True, written)
    if name.rpartition(".")[2] in _CONTAINERS:
        for argument in _arguments(node):
            inner = _values(argument, reading)
            nested = [v for v in inner if v.attribute]
            yield from nested or [replace(v, attribute="*") for v in inner]


def _arguments(call: Node) -> list[Node]:
    node = call.child_by_field_name("arguments")
    if node is None:
        return []
    return [node] if node.type == "generator_expression" else named(node)
