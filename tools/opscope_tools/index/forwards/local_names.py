"""The names of one function body as the reader (lines.py) passes assignments, loops and branches, so that a name is
known as it stands where it is used. What an expression stands for is told in meanings.py.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from opscope_tools.index.forwards.members import Holdings
from opscope_tools.index.forwards.tensors import METADATA
from opscope_tools.index.forwards.values import PLAIN, Value, Values, arguments_of, called
from opscope_tools.source.python.names import ClassSymbol, Resolver
from opscope_tools.source.python.parse import Node, dotted, named, text_of
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import FunctionRow

_DEPTH = 12
_COMPOSED = {
    "binary_operator",
    "unary_operator",
    "parenthesized_expression",
    "tuple",
    "pattern_list",
    "expression_list",
}


@dataclass
class Bindings(ABC):
    """The names of one function body: `symbol` is the class of the object, `holder` the class whose body binds the
    function, `unit` the module that defines it."""

    holdings: Holdings
    symbol: ClassSymbol
    holder: ClassSymbol
    unit: Unit
    function: FunctionRow
    local: dict[str, Values] = field(default_factory=dict)
    strings: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    #: what the parts of the expression at hand stand for, by their ids; the nodes are held so that ids stay theirs
    known: dict[int, tuple[Node, Values]] | None = None

    @property
    def resolver(self) -> Resolver:
        """The resolver that all holdings share."""
        return self.holdings.resolver

    @cached_property
    def annotations(self) -> dict[str, str]:
        """Parameter -> its annotation as written, empty where it has none; stars are left off the names."""
        return {p.name.lstrip("*"): p.annotation for p in self.function.parameters}

    @cached_property
    def variadic(self) -> set[str]:
        """The names of `*args` and `**kwargs`."""
        return {p.name.lstrip("*") for p in self.function.parameters if p.name.startswith("*")}

    @cached_property
    def self_name(self) -> str:
        """What the function calls its object."""
        return next((p.name for p in self.function.parameters), "self")

    @abstractmethod
    def evaluate(self, node: Node, depth: int = 0) -> Values:
        """All that the expression may stand for; nothing where source does not tell."""

    @abstractmethod
    def is_scalar(self, node: Node) -> bool:
        """Whether an attribute is declared, or set, to be a number, a flag or a string."""

    # what the reader reports

    def assign(self, target: Node | None, values: Values) -> None:
        """`target = value`; a pattern takes the items of a literal sequence, and plain values as a whole."""
        if target is None:
            return
        if target.type == "identifier":
            self.local[text_of(target)] = values
            return
        if (
            target.type == "tuple_pattern"
            and not text_of(target).rstrip(") ").endswith(",")
            and len(named(target)) == 1
        ):
            self.assign(named(target)[0], values)
            return
        if target.type not in {"pattern_list", "tuple_pattern", "list_pattern", "tuple", "list"}:
            return
        parts = named(target)
        items = next((v.items for v in values if v.kind == "items" and len(v.items) == len(parts)), None)
        plain = PLAIN if values and all(v.kind == "plain" for v in values) else ()
        for number, part in enumerate(parts):
            self.assign(part, items[number] if items is not None else plain)

    def loop(self, target: Node, iterable: Node) -> None:
        """`for target in iterable`: names bound to the items of a container."""
        if target.type == "identifier":
            self.origins[text_of(target)] = f"{text_of(target)} in {text_of(iterable)}"
        if iterable.type == "parenthesized_expression" and named(iterable):
            self.loop(target, named(iterable)[0])
            return
        function, inner, parts = called(iterable), arguments_of(iterable), named(target)
        if function == "enumerate" and len(parts) == 2 and inner:
            self.assign(parts[0], PLAIN)
            self.loop(parts[1], inner[0])
        elif function == "zip" and len(parts) == len(inner) and target.type != "identifier":
            for one, other in zip(parts, inner, strict=True):
                self.loop(one, other)
        elif function == "zip" and target.type == "identifier" and inner:
            each = tuple(tuple(i for v in self.evaluate(one) for i in self.items(v)) for one in inner)
            self.assign(target, (Value("items", items=each),))
        elif function.endswith((".items", ".named_children")) and len(parts) == 2:
            self.assign(parts[0], PLAIN)
            self.assign(parts[1], self._items(iterable.child_by_field_name("function")))
        elif function.endswith((".values", ".children")):
            self.assign(target, self._items(iterable.child_by_field_name("function")))
        elif function == "range":
            self.assign(target, PLAIN)
        else:
            values = tuple(item for value in self.evaluate(iterable) for item in self.items(value))
            self.assign(target, values)

    def _items(self, function: Node | None) -> Values:
        held = function.child_by_field_name("object") if function is not None else None
        return tuple(i for v in self.evaluate(held) for i in self.items(v)) if held is not None else ()

    def items(self, value: Value) -> Values:
        """What iterating over a value gives."""
        if value.kind == "items":
            return tuple(one for item in value.items for one in item)
        if value.kind == "path" and value.path and self.holdings.is_container(self.symbol, value.path):
            return (replace(value, path=f"{value.path}.*"),)
        return (value,) if value.kind == "plain" else ()

    @contextmanager
    def inner(self) -> Iterator[None]:
        """Bindings made inside are forgotten: a comprehension, a lambda, a nested function."""
        kept = dict(self.local)
        yield
        self.local = kept

    def shadow(self, parameters: Node | None) -> None:
        """The parameters of a nested function hide the names outside; those with a default keep its value."""
        for child in named(parameters) if parameters is not None else []:
            name = child.child_by_field_name("name") or (child if child.type == "identifier" else None)
            value = child.child_by_field_name("value")
            name = name or next((c for c in named(child) if c.type == "identifier"), None)
            if name is not None:
                self.local[text_of(name)] = self.evaluate(value) if value is not None else ()

    def defined(self, node: Node) -> Values:
        """The function that a `def` inside the body makes."""
        return (Value("local", node=node),)

    def narrow(self, test: Node) -> None:
        """`isinstance(name, Class)`: inside the branch the name is an object of the class."""
        if test.type == "boolean_operator" and text_of(test.child_by_field_name("operator")) == "and":
            for side in named(test):
                self.narrow(side)
        elif test.type == "parenthesized_expression" and named(test):
            self.narrow(named(test)[0])
        elif called(test) == "isinstance" and len(arguments_of(test)) == 2:
            name, kinds = arguments_of(test)
            if name.type == "identifier":
                narrowed = self.holdings.declared(self.unit, text_of(kinds))
                if narrowed:
                    self.local[text_of(name)] = narrowed

    # sizes, flags and literals

    def describes(self, node: Node, depth: int = 0) -> bool:
        """Whether an expression is a literal or only reads shapes, dtypes and the like."""
        kind = node.type
        if kind in {"integer", "float", "none", "true", "false", "string", "concatenated_string"}:
            return True
        if depth > _DEPTH:
            return False
        if kind == "identifier":
            values = self.local.get(text_of(node))
            return bool(values) and all(v.kind == "plain" for v in values or ())
        if kind == "attribute":
            inner = node.child_by_field_name("object")
            if text_of(node.child_by_field_name("attribute")) in METADATA or self.is_scalar(node):
                return True
            return inner is not None and inner.type in {"attribute", "call"} and self.describes(inner, depth + 1)
        if kind == "subscript":
            inner = node.child_by_field_name("value")
            return inner is not None and self.describes(inner, depth + 1)
        if kind == "call":
            function = node.child_by_field_name("function")
            if dotted(function) in {"len", "int"}:
                return True
            return function is not None and function.type == "attribute" and self.describes(function, depth + 1)
        if kind in _COMPOSED:
            return all(self.describes(child, depth + 1) for child in named(node))
        return False

    def is_table(self, node: Node) -> bool:
        """Whether indexing the expression looks up a submodule or a table, not a tensor."""
        values = self.evaluate(node)
        for value in values:
            if value.kind == "path" and value.path and self.holdings.is_container(self.symbol, value.path):
                return True
            if value.kind == "found" and value.found is not None and (value.found.kind != "external"):
                return True
        name = dotted(node)
        return (bool(values) and all(v.items for v in values)) or name.rpartition(".")[2].isupper()

    def is_builtin(self, name: str) -> bool:
        """Whether a plain name is one of Python's own functions."""
        known = name in self.local or name in self.annotations or not hasattr(builtins, name)
        return not known and self.resolver.lookup(self.unit, name) is None
