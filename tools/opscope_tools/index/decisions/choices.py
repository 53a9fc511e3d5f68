"""Which config fields the choices of a class hang on: of its forward's branches, and of what its constructor builds.

A choice is a test (`if`, `x if test else y`, a comprehension's filter), a loop's range, a key into a table. From there names
are followed back: locals to what they were set to, attributes to the constructor, until a field of a configuration is read. What
a call returns is not followed, so that a tensor hangs on nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from opscope_tools.source.python.names import ClassSymbol, Resolver
from opscope_tools.source.python.rows import FunctionRow
from opscope_tools.source.python.syntax import Function, function, parameters

__all__ = ["Choices", "Read"]

_CONFIG = re.compile(r"(?i)(\w*_)?(config|cfg|configuration|hparams|args)$")
#: tables of classes and functions go by names in capitals
_TABLE = re.compile(r"_?[A-Z][A-Z0-9_]+$")
#: calls whose result is as plain as what they get
_PLAIN = frozenset("bool int float str len min max abs any all range enumerate zip isinstance set list tuple".split())
_DEEPEST = 8
#: names that are followed for one choice
_MOST = 40
#: what stands for attributes among the names that were followed: their values
_VALUE = -1


@dataclass(frozen=True)
class Read:
    """A read of a config field: `path` from the configuration `root` (a parameter's name, with the class that declares it in
    `holder`), the file and the line."""

    root: str
    path: tuple[str, ...]
    holder: ClassSymbol
    file: str
    line: int


@dataclass(frozen=True)
class _Set:
    """`name = value` in a function, the tests around it."""

    value: ast.expr
    tests: tuple[ast.expr, ...]
    code: Function
    holder: ClassSymbol


@dataclass(frozen=True)
class _Here:
    """The function that an expression stands in, and the names that were followed on the way: each is followed once."""

    code: Function
    holder: ClassSymbol
    seen: set[tuple[int, str]] = field(default_factory=set)

    def follows(self, name: str, kind: int = 0) -> bool:
        """Whether the name (`kind`: that of an attribute where negative) was not followed yet; it is from now on."""
        key = kind or id(self.code.node), name
        new = key not in self.seen and len(self.seen) < _MOST
        self.seen.add(key)
        return new

    def within(self, each: _Set) -> _Here:
        return _Here(each.code, each.holder, self.seen)


class Choices:
    """The choices of one class; answers are in order of source."""

    def __init__(self, resolver: Resolver, symbol: ClassSymbol) -> None:
        self.resolver, self.symbol = resolver, symbol
        self._locals: dict[int, dict[str, list[_Set]]] = {}
        self._chosen_by: dict[str, list[Read]] = {}

    def of_forward(self, code: Function, holder: ClassSymbol) -> Iterator[tuple[int, Read]]:
        """(line of the choice, field) for everything that the function chooses or uses as chosen at construction."""
        for node in ast.walk(code.node):
            here, found = _Here(code, holder), list[Read]()
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                found += self._reads(node.test, here)
            elif isinstance(node, ast.For | ast.comprehension):
                found += self._reads(node.iter, here)
                for name in (n for n in ast.walk(node.iter) if _own(n)):
                    assert isinstance(name, ast.Attribute)
                    found += self.of_attribute(name.attr)
            elif isinstance(node, ast.Match):
                found += self._reads(node.subject, here)
            elif isinstance(node, ast.Subscript | ast.Call):
                for key in _keys(node):
                    found += self._reads(key, here)
            elif _own(node) and isinstance(node, ast.Attribute):
                found += self.of_attribute(node.attr)
            line = node.iter.lineno if isinstance(node, ast.comprehension) else getattr(node, "lineno", 0)
            for read in dict.fromkeys(found):
                yield line + code.first - 1, read

    def of_attribute(self, name: str) -> list[Read]:
        """The fields that decide what the constructor puts under `self.name`, where it chooses."""
        if name not in self._chosen_by:
            found = [
                r for each in self._attributes.get(name, ()) for r in self._chosen(_Here(each.code, each.holder), each)
            ]
            self._chosen_by[name] = list(dict.fromkeys(found))
        return self._chosen_by[name]

    def _chosen(self, here: _Here, each: _Set) -> Iterator[Read]:
        for test in each.tests:
            yield from self._reads(test, here)
        if isinstance(each.value, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield from self._reads(each.value, here)
        for node in ast.walk(each.value):
            if isinstance(node, ast.IfExp):
                yield from self._reads(node.test, here)
            elif isinstance(node, ast.comprehension):
                for part in (node.iter, *node.ifs):
                    yield from self._reads(part, here)
            elif isinstance(node, ast.Subscript | ast.Call):
                for key in _keys(node):
                    yield from self._reads(key, here)
            # layer = A if flag else B; self.layer = layer(config)
            name = node.func if isinstance(node, ast.Call) else node if node is each.value else None
            if isinstance(name, ast.Name) and here.follows(f"{name.id}()"):
                for made in self._of_local(name.id, here):
                    yield from self._chosen(here, made)

    # reads

    def _reads(self, node: ast.AST, here: _Here) -> Iterator[Read]:
        """Fields that the value of an expression hangs on."""
        place = here.code.unit.file, here.code.line(node)
        if isinstance(node, ast.Attribute):
            path = self._config(node.value, here)
            if path is not None:
                yield Read(path[0], (*path[1], node.attr), path[2], *place)
            elif _own(node) and here.follows(node.attr, _VALUE):
                for each in self._attributes.get(node.attr, ()):
                    for part in (*each.tests, each.value):
                        yield from self._reads(part, here.within(each))
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name in {"getattr", "hasattr"} and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                path = self._config(node.args[0], here)
                if path is not None and name == "getattr":
                    yield Read(path[0], (*path[1], str(node.args[1].value)), path[2], *place)
            elif name in _PLAIN:
                for argument in node.args:
                    yield from self._reads(argument, here)
        elif isinstance(node, ast.Name):
            for each in self._of_local(node.id, here) if here.follows(node.id) else ():
                for part in (*each.tests, each.value):
                    yield from self._reads(part, here)
        else:
            for child in ast.iter_child_nodes(node):
                yield from self._reads(child, here)

    def _config(self, node: ast.expr, here: _Here, depth: int = 0) -> tuple[str, tuple[str, ...], ClassSymbol] | None:
        """The configuration that an expression is: its root, the way from there, and who declares the root."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, ast.Name):
            if any(node.id == p.arg for p, _ in parameters(here.code.node.args)):
                return (node.id, (), here.holder) if _CONFIG.match(node.id) else None
            sets = self._of_local(node.id, here)
            return self._config(sets[0].value, here, depth + 1) if len(sets) == 1 else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get_text_config":
            return self._config(node.func.value, here, depth + 1)
        if not isinstance(node, ast.Attribute):
            return None
        if _own(node):
            sets = self._attributes.get(node.attr, [])
            if not sets:
                return ("config", (), self.symbol) if node.attr == "config" else None
            found = self._config(sets[0].value, here.within(sets[0]), depth + 1)
            # what a base keeps of its parameter is what this class declares
            return (found[0], (), self.symbol) if found is not None and not found[1] else found
        inner = self._config(node.value, here, depth + 1) if _CONFIG.match(node.attr) else None
        return (inner[0], (*inner[1], node.attr), inner[2]) if inner is not None else None

    # what is set

    def _of_local(self, name: str, here: _Here) -> list[_Set]:
        key = id(here.code.node)
        if key not in self._locals:
            self._locals[key] = {}
            for target, each in _assignments(here.code, here.holder):
                if isinstance(target, ast.Name):
                    self._locals[key].setdefault(target.id, []).append(each)
        return self._locals[key].get(name, [])

    @cached_property
    def _attributes(self) -> dict[str, list[_Set]]:
        """What constructors set, those of the nearest class of the MRO that sets a name."""
        found: dict[str, list[_Set]] = {}
        for holder in self.resolver.mro(self.symbol):
            row = None if isinstance(holder, str) else holder.members.get("__init__")
            code = function(holder.unit, row) if not isinstance(holder, str) and isinstance(row, FunctionRow) else None
            if code is None or isinstance(holder, str) or holder.module.startswith("torch."):
                continue
            own: dict[str, list[_Set]] = {}
            for target, each in _assignments(code, holder):
                if _own(target) and isinstance(target, ast.Attribute):
                    own.setdefault(target.attr, []).append(each)
            found = own | found
        return found


def _own(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _keys(node: ast.Subscript | ast.Call) -> list[ast.expr]:
    """What picks from a table: `TABLE[key]`, `names[key]`, `TABLE.get(key, default)`."""
    if isinstance(node, ast.Subscript):
        return [node.slice] if not isinstance(node.slice, ast.Slice | ast.Tuple) else []
    function = node.func
    owner = function.value if isinstance(function, ast.Attribute) else None
    return node.args[:1] if isinstance(owner, ast.Name) and _TABLE.match(owner.id) else []


def _assignments(code: Function, holder: ClassSymbol) -> Iterator[tuple[ast.expr, _Set]]:
    """Every assignment of a function with the tests that it stands under."""

    def block(statements: list[ast.stmt], tests: tuple[ast.expr, ...]) -> Iterator[tuple[ast.expr, _Set]]:
        for node in statements:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    yield target, _Set(node.value, tests, code, holder)
            inner = (*tests, node.test) if isinstance(node, ast.If) else tests
            if isinstance(node, ast.For):
                yield node.target, _Set(node.iter, tests, code, holder)
            for part in ("body", "orelse", "finalbody"):
                yield from block([s for s in getattr(node, part, []) if isinstance(s, ast.stmt)], inner)

    body = code.node.body
    yield from block(body if isinstance(body, list) else [], ())
