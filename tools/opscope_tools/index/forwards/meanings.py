"""What an expression of a forward may stand for: the submodule at a path, a function or class, an object of a class, an
entry of a table.

An expression gives all that it may be, each with the key or condition that picks it; nothing where source does not
tell. Answers follow declarations: annotations, constructor calls, what `__init__` puts on `self`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from opscope_tools.index.forwards.local_names import Bindings
from opscope_tools.index.forwards.members import Holdings, is_tensor
from opscope_tools.index.forwards.tables import instantiates, is_lookup
from opscope_tools.index.forwards.values import (
    BUILT_IN,
    PLAIN,
    Value,
    Values,
    arguments_of,
    body_of,
    distinct,
    together,
)
from opscope_tools.source.python.names import ClassSymbol, Found, Resolver
from opscope_tools.source.python.parse import Node, dotted, named, parse, text_of
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import AssignRow, FunctionRow

_CODE_LIMIT = 300
_DEPTH = 12
#: how deep in an expression, and how long, a function may be that is read for what it returns
_INLINED, _INLINED_LINES = 5, 120
#: things that an expression may stand for: the largest table of functions has some hundreds
_MOST = 2000
_BLOCKS = {
    "if_statement", "elif_clause", "else_clause", "block", "for_statement", "with_statement", "try_statement",
    "except_clause",
}  # fmt: skip
#: functions that hand on what they are given, as far as its items go
_SAME = {"list", "tuple", "reversed", "iter", "sorted", "set", "next"}


class Scope(Bindings):
    """One function body, with what its expressions stand for."""

    def evaluate(self, node: Node, depth: int = 0) -> Values:
        """All that the expression may stand for; nothing where source does not tell, or tells of more than anybody reads."""
        if depth > _DEPTH:
            return ()
        outermost = self.known is None
        known = self.known = {} if self.known is None else self.known
        try:
            if node.id not in known:
                known[node.id] = (node, ())  # of an expression that depends on itself nothing is known
                known[node.id] = (node, self._read(node, depth))
            return known[node.id][1]
        finally:
            if outermost:
                self.known = None

    def _read(self, node: Node, depth: int) -> Values:
        handler = _HANDLERS.get(node.type)
        found = handler(self, node, depth + 1) if handler is not None else ()
        found = found or (PLAIN if self.describes(node) else ())
        return found if len(found) <= _MOST else ()

    def is_scalar(self, node: Node) -> bool:
        """Whether an attribute is declared, or set, to be a number, a flag or a string."""
        values = [inner for value in self._attribute(node, 1) for inner in self._held(value)]
        return bool(values) and all(value.kind == "plain" for value in values)

    def _held(self, value: Value) -> Values:
        """What is at a path, where that is no submodule."""
        if value.kind != "path" or not value.path:
            return (value,)
        head, *rest = value.path.split(".")
        if head in self.holdings.modules(self.symbol):
            return (value,)
        values = self.holdings.member(self.symbol, head)
        for part in rest:
            values = tuple(inner for one in values for inner in self.attribute(one, part))
        return values

    def _name(self, node: Node, depth: int) -> Values:
        del depth
        name = text_of(node)
        if name in self.local:
            return self.local[name]
        if name == self.self_name:
            return (Value("path"),)
        if name in self.variadic:
            return PLAIN
        if name in self.annotations:
            return self.holdings.declared(self.unit, self.annotations[name])
        found = self.resolver.lookup(self.unit, name)
        return self._named(found) if found is not None else ()

    def _attribute(self, node: Node, depth: int) -> Values:
        held, name = node.child_by_field_name("object"), text_of(node.child_by_field_name("attribute"))
        if held is None:
            return ()
        return tuple(one for value in self.evaluate(held, depth) for one in self.attribute(value, name))

    def attribute(self, value: Value, name: str) -> Values:
        """`value.name`."""
        picked: Values = ()
        if value.kind == "path":
            return (replace(value, path=f"{value.path}.{name}" if value.path else name),)
        if value.kind == "super":
            picked = self.holdings.member(self.symbol, name, after=value.symbol)
        elif value.kind == "found" and value.found is not None:
            made = self._made(value.found)
            if made is not None:
                picked = self.holdings.member(made, name)
            else:
                member = self.resolver.member(value.found, name)
                picked = tuple(replace(one, owner=value.found) for one in self._named(member))
        elif value.kind == "object" and value.symbol is not None:
            held = self.holdings.modules(value.symbol).get(name)
            inner = [m.symbol for m in held or [] if m.symbol is not None]
            picked = tuple(Value("object", symbol=s, exact=True) for s in inner)
            picked = picked or self.holdings.member(value.symbol, name)
            if not value.exact and picked and picked[0].kind == "found":
                picked = (*picked, *self.holdings.overrides(value.symbol, name, self.unit))
        elif value.kind == "plain" or any(hasattr(kind, name) for kind in (list, dict, set)):
            picked = PLAIN
        return tuple(replace(one, key=one.key or value.key, dispatch=one.dispatch or value.dispatch) for one in picked)

    def _named(self, found: Found) -> Values:
        """A definition; for a module-level `name = TABLE[key]` what it is set to."""
        row = found.row
        picks = isinstance(row, AssignRow) and (
            row.value.endswith("]") or self._is_function_call(found.unit, row.value)
        )
        if found.kind == "value" and isinstance(row, AssignRow) and picks and found.unit is not None:
            outside = Scope(
                self.holdings, self.symbol, self.holder, found.unit, structs.replace(self.function, parameter_text="()")
            )
            made = outside.read(row.value)
            if made:
                return made
        return (Value("found", found=found),)

    def _is_function_call(self, unit: Unit | None, text: str) -> bool:
        called = re.match(r"([A-Za-z_][\w.]*)\(.*\)$", text)
        maker = self.resolver.dotted(unit, called[1]) if called and unit is not None else None
        return maker is not None and maker.kind == "function"

    def read(self, text: str) -> Values:
        """What an expression given as text may stand for; nothing where it was cut."""
        nodes = named(parse(text.encode()))
        if len(nodes) != 1 or nodes[0].has_error or not named(nodes[0]):
            return ()
        return self.evaluate(named(nodes[0])[0])

    def _made(self, found: Found) -> ClassSymbol | None:
        """The class of a module-level object: the class called to make it, or the one it is declared as."""
        row = found.row
        if found.kind != "value" or not isinstance(row, AssignRow) or found.unit is None:
            return None
        called = re.match(r"([A-Za-z_][\w.]*)\(", row.value)
        for text in (called[1] if called else "", row.annotation):
            made = self.resolver.dotted(found.unit, text) if re.fullmatch(r"[A-Za-z_][\w.]*", text) else None
            if made is not None and made.symbol is not None:
                return made.symbol
        return None

    def _subscript(self, node: Node, depth: int) -> Values:
        held, keys = node.child_by_field_name("value"), node.children_by_field_name("subscript")
        if held is None or not keys:
            return ()
        key, shown = self.strings.get(text_of(keys[0]), text_of(keys[0])), text_of(node)[:_CODE_LIMIT]
        found: list[Value] = []
        for value in self.evaluate(held, depth):
            if (
                value.kind == "items"
                and re.fullmatch(r"-?\d+", key)
                and -len(value.items) <= int(key) < len(value.items)
            ):
                found.extend(value.items[int(key)])
            elif value.kind == "path" and value.path:
                if not self.holdings.is_container(self.symbol, value.path):
                    continue
                exact = f"{value.path}.{key.strip(chr(34) + chr(39))}"
                known = exact in self.holdings.modules(self.symbol)
                path = value.path if keys[0].type == "slice" else exact if known else f"{value.path}.*"
                found.append(replace(value, path=path))
            elif value.kind == "found" and value.found is not None:
                found.extend(self._table(value.found, key, shown))
            elif value.kind in {"items", "plain"}:
                found.extend(self.items(value) if keys[0].type != "slice" else (value,))
        return tuple(found)

    def _table(self, table: Found, key: str, shown: str, default: Values = ()) -> Values:
        """The entries of a table, the one under `key` where that is a literal that the table has."""
        entries = [(name, self._entry(table, found)) for name, found in self.holdings.entries(table)]
        fixed = [value for name, value in entries if key[:1] in "\"'" and name == key[1:-1]]
        if fixed:
            return (fixed[-1],)
        picked = tuple(replace(value, key=name, dispatch=shown) for name, value in entries)
        return (*picked, *(replace(value, key="(default)", dispatch=shown) for value in default)) if picked else ()

    def _entry(self, table: Found, found: Found) -> Value:
        """An entry as looking it up gives it: some tables hold classes and hand out objects."""
        if found.symbol is not None and instantiates(self.resolver, table):
            return Value("object", symbol=found.symbol, exact=True)
        return Value("found", found=found)

    def _call(self, node: Node, depth: int) -> Values:
        function, arguments = node.child_by_field_name("function"), arguments_of(node)
        if function is None:
            return ()
        name = dotted(function)
        if name == "super":
            return (Value("super", symbol=self._super_of(arguments)),)
        if name == "getattr" and arguments:
            return self._getattr(arguments, depth)
        if name in _SAME and arguments and name not in self.local:
            return self.evaluate(arguments[0], depth)
        if name in {"nn.ModuleList", "torch.nn.ModuleList"} and arguments:
            return self.evaluate(arguments[0], depth)
        if function.type == "attribute" and arguments:
            looked_up = self._lookup(function, arguments, text_of(node)[:_CODE_LIMIT], depth)
            if looked_up:
                return looked_up
        found: list[Value] = []
        for value in self.evaluate(function, depth):
            if (
                value.kind == "found"
                and value.found is not None
                and value.found.name in {"functools.partial", "copy.copy", "copy.deepcopy"}
            ):
                return self.evaluate(arguments[0], depth) if arguments else ()
            found.extend(self.result(value) or self._inlined(value, node, depth))
        return tuple(found)

    def _inlined(self, value: Value, node: Node, depth: int) -> Values:
        """What a function in source returns, read from its body with the arguments of this call."""
        bound = self._function_of(value)
        if bound is None or depth > _INLINED:
            return ()
        holder, found = bound
        row, unit = found.row, found.unit
        if not isinstance(row, FunctionRow) or unit is None or row.end_line - row.line > _INLINED_LINES:
            return ()
        body = body_of(unit, row)
        if body is None:
            return ()
        inner = Scope(self.holdings, self.symbol, holder or self.holder, unit, row)
        names = [p.name for p in row.parameters][1 if holder is not None else 0 :]
        if holder is None:
            inner.self_name = ""
        if "classmethod" in row.decorators and names and value.owner is not None:
            inner.local[names.pop(0)] = (Value("found", found=value.owner),)
        for name, argument in zip(names, arguments_of(node), strict=False):
            inner.local[name] = self.evaluate(argument, depth + 4)
            if argument.type == "string":
                inner.strings[name] = text_of(argument)
        return inner.returned(body, depth + 4)

    def _function_of(self, value: Value) -> tuple[ClassSymbol | None, Found] | None:
        """The function that calling a value runs, with the class that holds it where it is a method of the object."""
        if value.kind == "found" and value.found is not None and value.found.kind == "function":
            return None, value.found
        if value.kind == "path" and value.path and "." not in value.path:
            member = self.holdings.class_member(self.symbol, value.path)
            if member is not None and member[1].kind == "function" and not self.holdings.at(self.symbol, value.path)[0]:
                return member
        return None

    def returned(self, block: Node, depth: int) -> Values:
        """What the return statements of a body may give; assignments on the way are followed."""
        found: list[Value] = []
        for node in named(block):
            if node.type == "return_statement":
                found.extend(one for child in named(node) for one in self.evaluate(child, depth))
            elif node.type == "expression_statement" and named(node)[0].type == "assignment":
                value = named(node)[0].child_by_field_name("right")
                if value is not None:
                    self.assign(named(node)[0].child_by_field_name("left"), self.evaluate(value, depth))
            elif node.type in _BLOCKS:
                found.extend(self.returned(node, depth))
        return tuple(found)

    def _super_of(self, arguments: list[Node]) -> ClassSymbol:
        found = self.resolver.dotted(self.unit, dotted(arguments[0])) if arguments and dotted(arguments[0]) else None
        return found.symbol if found is not None and found.symbol is not None else self.holder

    def _getattr(self, arguments: list[Node], depth: int) -> Values:
        """`getattr(value, name)`: a literal, an f-string as a pattern, or a class attribute that is a literal."""
        name = self.string(arguments[1]) if len(arguments) > 1 else ""
        if not name:
            return ()
        return tuple(one for value in self.evaluate(arguments[0], depth) for one in self.attribute(value, name))

    def string(self, node: Node) -> str:
        """The text of a string, its replaced parts as `*`; of a class attribute that is set to a literal."""
        if node.type == "string":
            return "".join("*" if part.type == "interpolation" else text_of(part) for part in named(node)[1:-1])
        name = dotted(node)
        if name.startswith(f"{self.self_name}.") and name.count(".") == 1:
            member = self.holdings.class_member(self.symbol, name.partition(".")[2])
            row = member[1].row if member is not None else None
            if isinstance(row, AssignRow) and re.fullmatch(r"\"\w+\"|'\w+'", row.value):
                return row.value[1:-1]
        return ""

    def _lookup(self, function: Node, arguments: list[Node], shown: str, depth: int) -> Values:
        """`TABLE.get(key, default)`, and methods that look up as `get` does."""
        held, method = function.child_by_field_name("object"), text_of(function.child_by_field_name("attribute"))
        if held is None or not method.startswith("get"):
            return ()
        for value in self.evaluate(held, depth):
            if value.kind != "found" or value.found is None or value.found.kind != "value":
                continue
            made = self._made(value.found)
            if method == "get" or (made is not None and is_lookup(self.resolver, made, method)):
                default = self.evaluate(arguments[1], depth) if len(arguments) > 1 else ()
                return self._table(value.found, text_of(arguments[0]), shown, default)
        return ()

    def result(self, value: Value) -> Values:
        """What calling a value gives, as far as the class called or the declared return type tells."""
        if value.kind == "found" and value.found is not None:
            if value.found.symbol is not None:
                return () if is_tensor(value.found) else (Value("object", symbol=value.found.symbol, exact=True),)
            if isinstance(value.found.row, FunctionRow) and value.found.unit is not None:
                return self.holdings.declared(value.found.unit, value.found.row.returns)
        modules: list[ClassSymbol] = []
        if value.kind == "path" and value.path:
            held, left = self.holdings.at(self.symbol, value.path)
            modules = distinct(m.symbol for m in held if m.symbol is not None)
            if not held:
                found = [one for owner, rest in left if "." not in rest for one in self.holdings.member(owner, rest)]
                return tuple(result for one in found if one.kind == "found" for result in self.result(one))
        elif value.kind == "object" and value.symbol is not None:
            modules = [value.symbol]
        results: list[Value] = []
        for symbol in modules:
            forward = self.holdings.class_member(symbol, "forward")
            if forward is not None and isinstance(forward[1].row, FunctionRow) and forward[1].unit is not None:
                results.extend(self.holdings.declared(forward[1].unit, forward[1].row.returns))
        return tuple(results)

    def _either(self, node: Node, depth: int) -> Values:
        chosen, test, other = named(node)
        yes = [replace(v, key=v.key or text_of(test)) for v in self.evaluate(chosen, depth)]
        no = [replace(v, key=v.key or f"not ({text_of(test)})") for v in self.evaluate(other, depth)]
        shown = text_of(node)[:_CODE_LIMIT]
        return tuple(replace(v, dispatch=v.dispatch or shown) for v in together([tuple(yes), tuple(no)]))

    def _any(self, node: Node, depth: int) -> Values:
        return together([self.evaluate(side, depth) for side in named(node)])

    def _sequence(self, node: Node, depth: int) -> Values:
        if any(child.type == "list_splat" for child in named(node)):
            return PLAIN if self.describes(node) else BUILT_IN
        if self.describes(node):
            return PLAIN
        return (Value("items", items=tuple(self.evaluate(child, depth) for child in named(node))),)

    def _comprehension(self, node: Node, depth: int) -> Values:
        body, *clauses = named(node)
        with self.inner():
            for clause in clauses:
                left, right = clause.child_by_field_name("left"), clause.child_by_field_name("right")
                if left is not None and right is not None:
                    self.loop(left, right)
            item = self.evaluate(body, depth)
        return (Value("items", items=(item,)),) if item else BUILT_IN

    def _container(self, node: Node, depth: int) -> Values:
        del node, depth
        return BUILT_IN

    def _first(self, node: Node, depth: int) -> Values:
        return self.evaluate(named(node)[-1], depth) if named(node) else ()

    def _function(self, node: Node, depth: int) -> Values:
        del depth
        return self.defined(node)


_Handler = Callable[[Scope, Node, int], Values]
_HANDLERS: dict[str, _Handler] = {
    "identifier": Scope._name,
    "attribute": Scope._attribute,
    "subscript": Scope._subscript,
    "call": Scope._call,
    "conditional_expression": Scope._either,
    "boolean_operator": Scope._any,
    "parenthesized_expression": Scope._first,
    "named_expression": Scope._first,
    "await": Scope._first,
    "tuple": Scope._sequence,
    "list": Scope._sequence,
    "expression_list": Scope._sequence,
    "list_comprehension": Scope._comprehension,
    "generator_expression": Scope._comprehension,
    "lambda": Scope._function,
    "dictionary": Scope._container,
    "dictionary_comprehension": Scope._container,
    "set": Scope._container,
    "set_comprehension": Scope._container,
}


def holdings_of(resolver: Resolver) -> Holdings:
    """What objects hold, for one question."""
    return Holdings(resolver, _in_constructor)


def _in_constructor(
    holdings: Holdings, symbol: ClassSymbol, holder: ClassSymbol, init: FunctionRow, text: str
) -> Values:
    return Scope(holdings, symbol, holder, holder.unit, init).read(text)
