"""Which class the object of `object.name` is, as far as declarations tell: the method's own class, annotations,
constructor calls, what `__init__` puts on `self`, and the `config` of a class that names its config class.

An answer is a tuple of classes, any of which the object may be; empty where source does not tell.
"""

from __future__ import annotations

import re

from opscope_tools.index.references.local_scopes import Binding, Scopes, enclosing, path_of
from opscope_tools.index.references.occurrences import Excerpt
from opscope_tools.index.references.set_attributes import SetAttribute, set_attributes
from opscope_tools.source.python.imports import spelt
from opscope_tools.source.python.names import ClassSymbol, Found, Resolver
from opscope_tools.source.python.parse import Node, dotted, named, text_of
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import AssignRow, FunctionRow, Row

Classes = tuple[ClassSymbol, ...]
_DEPTH = 8
_NAME = re.compile(r"[A-Za-z_][\w.]*$")
_CALL = re.compile(r"([A-Za-z_][\w.]*)\(")
_QUOTED = re.compile(r"[\"'](\w+)[\"']$")
_TRANSPARENT = re.compile(r"(?:typing\.)?(?:Optional|Union|Annotated|Final|ClassVar|Required|NotRequired)\[(.*)\]$")


class Lineage:
    """MROs, members and instance attributes of classes, kept for the time of one question."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self._mro: dict[tuple[str, str, int], list[ClassSymbol]] = {}
        self._sources: dict[tuple[str, str], list[bytes]] = {}
        self._set: dict[tuple[str, str, int], tuple[SetAttribute, ...]] = {}

    def mro(self, symbol: ClassSymbol) -> list[ClassSymbol]:
        """The classes of the MRO that are in source."""
        key = symbol.repository.name, symbol.file, symbol.line
        known = self._mro.get(key)
        if known is None:
            known = [base for base in self.resolver.mro(symbol) if not isinstance(base, str)]
            self._mro[key] = known
        return known

    def derives(self, symbol: ClassSymbol, base: ClassSymbol) -> bool:
        """Whether `symbol` is `base` or one of its subclasses."""
        return any(held.same(base) for held in self.mro(symbol))

    def set_in(self, symbol: ClassSymbol, word: str) -> tuple[SetAttribute, ...]:
        """All that the class's own constructor sets; nothing where the class does not have the word."""
        key = symbol.repository.name, symbol.file
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = symbol.unit.tree.source(symbol.file).split(b"\n")
        place = *key, symbol.line
        if place not in self._set:
            raw = word.encode()
            if not any(raw in line for line in source[symbol.line - 1 : symbol.end_line]):
                return ()
            self._set[place] = set_attributes(symbol)
        return self._set[place]

    def set_by(self, symbol: ClassSymbol, name: str) -> tuple[SetAttribute, ...]:
        """What the class's own constructor puts under the name."""
        rows = self.set_in(symbol, name.removesuffix(".*"))
        return tuple(row for row in rows if row.attribute == name)

    def holder(self, symbol: ClassSymbol, name: str, after: ClassSymbol | None = None) -> ClassSymbol | None:
        """The class of the MRO that defines `name`, in its body or on `self`; `after`: as `super()` of that class."""
        passed = after is None
        for held in self.mro(symbol):
            if passed and (name in held.members or self.set_by(held, name)):
                return held
            passed = passed or (after is not None and held.same(after))
        return None

    def mapped(self, symbol: ClassSymbol) -> dict[str, str]:
        """The `attribute_map` of a config class: other names of its fields, each with the field's own."""
        for holder in self.mro(symbol):
            row = holder.members.get("attribute_map")
            if isinstance(row, AssignRow):
                return {key: match[1] for key, value in row.entries if (match := _QUOTED.match(value))}
        return {}


class Receivers:
    """Types of expressions in one excerpt."""

    def __init__(self, lineage: Lineage, excerpt: Excerpt, scopes: Scopes) -> None:
        self.lineage = lineage
        self.resolver = lineage.resolver
        self.unit = excerpt.unit
        self.scopes = scopes
        self._classes = {path: ClassSymbol(self.unit, path, row) for path, row in self.unit.classes()}

    # where a place stands

    def own_class(self, node: Node) -> ClassSymbol | None:
        """The class whose method, or whose body, holds the place."""
        for definition in enclosing(node):
            if definition.type == "class_definition":
                name = definition.child_by_field_name("name")
                return self._classes.get(path_of(name)) if name is not None else None
        return None

    def meaning(self, node: Node, depth: int = 0) -> Found | None:
        """What a plain dotted expression leads to, as modules, classes and functions go; None where it is an object."""
        name = dotted(node)
        head, *rest = name.split(".") if name else [""]
        bindings = self.scopes.local(node, head) if head else []
        if bindings:
            found = self._bound(bindings, head, depth)
        else:
            found = self.resolver.lookup(self.unit, head) if head else None
        for part in rest:
            found = self.resolver.member(found, part) if found is not None else None
        return found

    def _bound(self, bindings: list[Binding], name: str, depth: int) -> Found | None:
        for binding in bindings:
            found = None
            if binding.kind == "import":
                found = imported(self.resolver, self.unit, binding.node, name)
            elif binding.kind == "assignment" and binding.exact and depth < _DEPTH:
                value = binding.node.child_by_field_name("right") or binding.node.child_by_field_name("value")
                found = (
                    self.meaning(value, depth + 1) if value is not None and dotted(value) not in {"", name} else None
                )
            elif binding.kind == "definition":
                found = self._defined(binding.node)
            if found is not None:
                return found
        return None

    def _defined(self, node: Node) -> Found | None:
        name = node.child_by_field_name("name")
        symbol = self._classes.get(path_of(name)) if name is not None and node.type == "class_definition" else None
        if symbol is None:
            return None
        return Found("class", symbol.qualified_name, self.unit, symbol.row, symbol)

    # expressions

    def of(self, node: Node | None, depth: int = 0) -> Classes:
        """The classes that the value of the expression may be an instance of, or may be itself."""
        if node is None or depth > _DEPTH:
            return ()
        if node.type == "identifier":
            return self._name(node, depth)
        if node.type == "attribute":
            inner = self.of(node.child_by_field_name("object"), depth + 1)
            if inner:
                return self.attribute(inner, text_of(node.child_by_field_name("attribute")), depth + 1)
            return _class_of(self.meaning(node))
        if node.type == "call":
            return self._call(node, depth)
        if node.type == "subscript":
            return self._items(node.child_by_field_name("value"), depth)
        if node.type in {"parenthesized_expression", "await"} and node.named_child_count == 1:
            return self.of(node.named_children[0], depth + 1)
        if node.type == "conditional_expression":
            first, _, last = named(node)
            return _all(self.of(first, depth + 1), self.of(last, depth + 1))
        return ()

    def _call(self, node: Node, depth: int) -> Classes:
        function = node.child_by_field_name("function")
        found = self.meaning(function) if function is not None else None
        if found is not None and found.symbol is not None:
            return (found.symbol,)
        row: Row | None = found.row if found is not None else None
        unit = found.unit if found is not None else None
        if found is None and function is not None and function.type == "attribute":
            for owner in self.of(function.child_by_field_name("object"), depth + 1):
                member = self.resolver.class_member(owner, text_of(function.child_by_field_name("attribute")))
                row, unit = (member[1].row, member[1].unit) if member is not None else (None, None)
        if isinstance(row, FunctionRow) and unit is not None:
            return declared(self.resolver, unit, row.returns)
        return ()

    def _items(self, container: Node | None, depth: int) -> Classes:
        if container is None or container.type == "subscript":
            return self._items(container.child_by_field_name("value"), depth + 1) if container and depth < 8 else ()
        if container.type != "attribute":
            return ()
        name = text_of(container.child_by_field_name("attribute"))
        return self.attribute(self.of(container.child_by_field_name("object"), depth + 1), f"{name}.*", depth + 1)

    def _name(self, node: Node, depth: int) -> Classes:
        name = text_of(node)
        bindings = self.scopes.local(node, name)
        if not bindings:
            return self._global(name)
        parameters = [binding for binding in bindings if binding.kind == "parameter"]
        if parameters:
            return self._parameter(parameters[0], name, depth)
        found: list[Classes] = []
        for binding in bindings:
            found.append(self._local(binding, name, depth))
            if binding.kind == "assignment" and binding.node.child_by_field_name("type") is not None:
                return found[-1]
        return _all(*found)

    def _local(self, binding: Binding, name: str, depth: int) -> Classes:
        node = binding.node
        if binding.kind == "assignment" and binding.exact:
            annotation = text_of(node.child_by_field_name("type"))
            if annotation:
                return declared(self.resolver, self.unit, annotation)
            return self.of(node.child_by_field_name("right") or node.child_by_field_name("value"), depth + 1)
        if binding.kind == "loop":
            return self._items(_iterated(node, name), depth + 1)
        if binding.kind == "as" and node.parent is not None and node.type == "as_pattern_target":
            return self.of(node.parent.named_children[0], depth + 1)
        if binding.kind == "definition":
            return _class_of(self._defined(node))
        return ()

    def _global(self, name: str) -> Classes:
        found = self.resolver.lookup(self.unit, name)
        if found is None or found.symbol is not None:
            return _class_of(found)
        row, unit = found.row, found.unit
        if not isinstance(row, AssignRow) or unit is None:
            return ()
        return declared(self.resolver, unit, row.annotation) or _made(self.resolver, unit, row.value)

    def _parameter(self, binding: Binding, name: str, depth: int) -> Classes:
        function = binding.scope
        if function is None or function.type != "function_definition":
            return ()
        annotation = text_of(binding.node.child_by_field_name("type"))
        if annotation:
            return declared(self.resolver, self.unit, annotation)
        around = enclosing(function)
        if not around or around[0].type != "class_definition":
            return ()
        title = function.child_by_field_name("name")
        owner = self.own_class(function)
        if owner is None or title is None:
            return ()
        row = owner.members.get(text_of(title))
        bound = isinstance(row, FunctionRow) and "staticmethod" not in row.decorators
        if isinstance(row, FunctionRow) and bound and [p.name for p in row.parameters[:1]] == [name]:
            return (owner,)
        return self.unannotated(owner, text_of(title), name, depth + 1)

    # attributes of objects

    def attribute(self, owners: Classes, name: str, depth: int = 0) -> Classes:
        """The classes that `object.name` may be, for an object of one of `owners`; all must be known."""
        return _all(*(self._attribute(owner, name, depth) for owner in owners)) if owners and depth <= _DEPTH else ()

    def _attribute(self, owner: ClassSymbol, name: str, depth: int) -> Classes:
        for holder in self.lineage.mro(owner):
            rows = [row for row in self.lineage.set_by(holder, name) if row.callee]
            if rows:
                return _all(*(self._set(holder, row, depth) for row in rows))
            found = self._in_body(holder, name)
            if found is not None:
                return found
        return ()

    def _in_body(self, holder: ClassSymbol, name: str) -> Classes | None:
        """What the class body says of the attribute; None where it says nothing."""
        parts = holder.members.get("sub_configs")  # of a config class: the classes of the configs that it holds
        for key, value in parts.entries if isinstance(parts, AssignRow) else ():
            if key == name:
                held = declared(self.resolver, holder.unit, value)
                # one that is no config itself, such as a factory, tells nothing
                return held if held and self._akin(holder, held[0]) else ()
        row = holder.members.get(name)
        if isinstance(row, AssignRow):
            return declared(self.resolver, holder.unit, row.annotation) or _made(self.resolver, holder.unit, row.value)
        if isinstance(row, FunctionRow):
            is_property = any("property" in decorator for decorator in row.decorators)
            return declared(self.resolver, holder.unit, row.returns) if is_property else ()
        named_class = holder.members.get("config_class") if name == "config" else None
        if isinstance(named_class, AssignRow) and _NAME.match(named_class.value):
            return _class_of(self.resolver.dotted(holder.unit, named_class.value))
        return () if row is not None else None

    def _akin(self, first: ClassSymbol, second: ClassSymbol) -> bool:
        bases = self.lineage.mro(first)[1:]
        return any(base.same(other) for base in bases for other in self.lineage.mro(second)[1:])

    def _set(self, holder: ClassSymbol, row: SetAttribute, depth: int) -> Classes:
        if not row.made:
            return self.written(holder, "__init__", row.callee, depth + 1)
        if not _NAME.match(row.callee):
            return ()
        found = self.resolver.dotted(holder.unit, row.callee)
        if found is not None and isinstance(found.row, FunctionRow) and found.unit is not None:
            return declared(self.resolver, found.unit, found.row.returns)
        return _class_of(found)

    def written(self, owner: ClassSymbol, method: str, text: str, depth: int) -> Classes:
        """The type of a dotted expression as written in a method of `owner` that may not be parsed here."""
        if depth > _DEPTH or not _NAME.match(text):
            return ()
        head, *rest = text.split(".")
        row = owner.members.get(method)
        parameters = [p.name for p in row.parameters] if isinstance(row, FunctionRow) else []
        if parameters[:1] == [head]:
            found: Classes = (owner,)
        elif head in parameters:
            found = self.unannotated(owner, method, head, depth + 1)
        else:
            return ()
        for part in rest:
            found = self.attribute(found, part, depth + 1)
        return found

    def unannotated(self, owner: ClassSymbol, method: str, name: str, depth: int) -> Classes:
        """The type of a parameter of a method: as annotated, as the class declares its `config`, else as the classes
        of the same file pass it to the constructor."""
        row = owner.members.get(method)
        if isinstance(row, FunctionRow):
            for parameter in row.parameters:
                if parameter.name == name and parameter.annotation:
                    return declared(self.resolver, owner.unit, parameter.annotation)
        if name == "config":
            for holder in self.lineage.mro(owner):
                found = self._in_body(holder, "config")
                if found:
                    return found
        if method != "__init__" or not isinstance(row, FunctionRow) or depth > _DEPTH:
            return ()
        positions = [p.name for p in row.parameters][1:]
        passed = []
        for path, other in owner.unit.classes():
            builder = ClassSymbol(owner.unit, path, other)
            for attribute in self.lineage.set_in(builder, owner.name) if other is not owner.row else ():
                if attribute.made and attribute.callee == owner.name:
                    text = _argument(attribute.arguments, name, positions)
                    if text:
                        passed.append(self.written(builder, "__init__", text, depth + 1))
        return _all(*passed)


def _iterated(loop: Node, name: str) -> Node | None:
    """The container whose items the loop binds to `name`, through `enumerate` and `zip`."""
    left, right = loop.child_by_field_name("left"), loop.child_by_field_name("right")
    if left is None or right is None or left.type == "identifier":
        return right
    names = [text_of(child) for child in named(left)]
    function, listed = text_of(right.child_by_field_name("function")), right.child_by_field_name("arguments")
    position = names.index(name) if name in names else -1
    arguments = named(listed) if listed is not None else []
    if function == "enumerate" and position == 1:
        return arguments[0] if arguments else None
    return arguments[position] if function == "zip" and 0 <= position < len(arguments) else None


def imported(resolver: Resolver, unit: Unit, node: Node, name: str) -> Found | None:
    """What an import statement binds to `name`; `node` is the imported name inside the statement."""
    found = spelt(text_of(node.parent), unit.package)
    return next((resolver.binds(unit, one) for one in found if one.name == name), None)


def declared(resolver: Resolver, unit: Unit, annotation: str) -> Classes:
    """The classes that an annotation names: `C`, `"C"`, `C | None`, `Optional[C]`; not those inside `list[C]`."""
    text = annotation.strip().strip("\"'").strip()
    if not text:
        return ()
    wrapped = _TRANSPARENT.match(text)
    if wrapped:
        parts = _split(wrapped[1], ",")
        return declared(resolver, unit, " | ".join(parts[:1] if "Annotated" in text else parts))
    arms = _split(text, "|")
    if len(arms) > 1:
        return tuple(symbol for arm in arms for symbol in declared(resolver, unit, arm))
    return _class_of(resolver.dotted(unit, text)) if _NAME.match(text) and text != "None" else ()


def _made(resolver: Resolver, unit: Unit, value: str) -> Classes:
    called = _CALL.match(value)
    return _class_of(resolver.dotted(unit, called[1])) if called and value.endswith(")") else ()


def _class_of(found: Found | None) -> Classes:
    return (found.symbol,) if found is not None and found.symbol is not None else ()


def _all(*found: Classes) -> Classes:
    """Every class of the alternatives, none where one of them is unknown."""
    if not all(found):
        return ()
    merged: list[ClassSymbol] = []
    for symbol in (symbol for classes in found for symbol in classes):
        if not any(symbol.same(other) for other in merged):
            merged.append(symbol)
    return tuple(merged)


def _split(text: str, separator: str) -> list[str]:
    """`text` at separators that stand in no bracket and no string."""
    parts, depth, start, quote = [], 0, 0, ""
    for position, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == separator and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()]


def _argument(arguments: str, name: str, positions: list[str]) -> str:
    """The text of the argument that a call passes for the parameter `name`; empty where it passes none."""
    for position, text in enumerate(_split(arguments, ",")):
        keyword = re.match(r"(\w+)\s*=(?!=)\s*(.*)", text)
        if keyword and keyword[1] == name:
            return keyword[2]
        if not keyword and position < len(positions) and positions[position] == name and not text.startswith("*"):
            return text
    return ""
