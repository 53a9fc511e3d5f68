"""What a call inside a forward calls: a submodule, a function or method in source, an operation of torch, or one of
several that is decided at run time.

values.py says what the called expression may be; here that becomes the callee as a result shows it, with the candidates
where there are several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from opscope_schemas.index import Call, Candidate

from opscope_tools.index.forwards.meanings import Scope, holdings_of
from opscope_tools.index.forwards.tables import made_from
from opscope_tools.index.forwards.tensors import METADATA, TENSOR_METHODS
from opscope_tools.index.forwards.values import Value
from opscope_tools.index.modules.held_modules import HeldModule
from opscope_tools.index.names.torch_modules import MODULE, is_module
from opscope_tools.source.python.names import ClassSymbol, Found, Resolver
from opscope_tools.source.python.parse import Node, dotted, line_of, named, text_of
from opscope_tools.source.python.rows import AssignRow, FunctionRow

Kind = Literal["op", "submodule_call", "helper_call"]
_CODE_LIMIT = 300
#: candidates of one call that a result names
CANDIDATES = 40
_NAMED_AT_ONCE = 4
_LOGGER = re.compile(r"[\w.]*\bget_?[lL]ogger\(")
#: ends a list of candidates that is not complete: a parameter may bring others
UNTOLD = Candidate(key="(other)", callee="")
_PLAIN_MODULES = re.compile(
    r"(logging|warnings|functools|typing|math|sys|os|itertools|collections|copy|inspect|builtins|time|re|operator\.attrgetter)\b"
)


@dataclass(frozen=True)
class _Target:
    """One thing that a call may run."""

    callee: str
    file: str = ""
    line: int = 0
    key: str = ""
    module: bool = False


#: stands for a callee that source does not tell
_OPEN = _Target("")


@dataclass
class Callees:
    """The calls of one function body: `symbol` is the class of the object, `holder` the class whose body binds the
    function."""

    resolver: Resolver
    symbol: ClassSymbol
    holder: ClassSymbol
    function: FunctionRow
    _picking: set[tuple[str, int]] = field(default_factory=set)

    @cached_property
    def scope(self) -> Scope:
        """What names in the forward are resolved from: the module that holds its text, which may be another than the
        class's."""
        bound = self.holder.members.get(self.function.name)
        unit = self.holder.unit
        if bound is not self.function:  # `forward = function` or a function of another module
            member = self.resolver.class_member(self.symbol, "forward")
            if member is not None and member[1].row is self.function and member[1].unit is not None:
                unit = member[1].unit
        return Scope(holdings_of(self.resolver), self.symbol, self.holder, unit, self.function)

    @cached_property
    def _source(self) -> list[str]:
        unit = self.scope.unit
        return unit.tree.source(unit.file).decode("utf-8", "replace").split("\n")

    def line_text(self, line: int) -> str:
        """The text of a 1-based line, trimmed; empty behind the file's end."""
        return self._source[line - 1].strip() if line <= len(self._source) else ""

    def classify(self, node: Node) -> Call | None:
        """The call as a computation; None for what computes nothing (`len`, `isinstance`, `x.size(0)`, logging)."""
        function = node.child_by_field_name("function")
        if function is None:
            return None
        if self._logs(dotted(function)):
            return None
        code, line = text_of(node)[:_CODE_LIMIT], _line(node, function)
        shown, name = text_of(function)[:_CODE_LIMIT], dotted(function)
        if name == "super" or self.scope.is_builtin(name):
            return None
        values = self.scope.evaluate(function)
        targets, plain = self._targets(values)
        if plain and not targets:
            return None
        attribute = next((v.path for v in values if v.kind == "path"), "") if any(t.module for t in targets) else ""
        dispatch = next((v.dispatch for v in values if v.dispatch), "")
        if not targets:
            return self._unknown(function, values, code, line)
        if attribute:
            held, _ = self.scope.holdings.at(self.scope.symbol, attribute)
            dispatch = dispatch or next((m.dispatch for m in held if m.dispatch), "")
        told = [t for t in targets if t.callee]
        if not told:
            return self._unknown(function, values, code, line)
        distinct = _distinct(told)
        names = list(dict.fromkeys(t.callee for t in distinct))
        kind = _kind(targets)
        is_open = len(told) < len(targets)
        one = len(distinct) == 1 and not is_open
        known = names if len(names) <= _NAMED_AT_ONCE and not is_open else []
        return Call(
            kind=kind, code=code, callee=" | ".join(known), callee_file=distinct[0].file if one else "",
            callee_line=distinct[0].line if one else 0, attribute=attribute,
            dispatch=dispatch if dispatch or one else shown, line=line,
            candidates=() if one else (*map(_candidate, distinct[:CANDIDATES]), *([UNTOLD] if is_open else [])),
            candidate_count=0 if one else len(distinct),
        )  # fmt: skip

    def _logs(self, name: str) -> bool:
        """Whether the call is one of a module-level logger's."""
        root = name.partition(".")[0]
        found = self.resolver.lookup(self.scope.unit, root) if root and root not in self.scope.local else None
        row = found.row if found is not None else None
        return isinstance(row, AssignRow) and _LOGGER.match(row.value) is not None

    def _unknown(self, function: Node, values: tuple[Value, ...], code: str, line: int) -> Call | None:
        """A call on a value of unknown type: a method of tensors by its name, else only the expression is told."""
        dispatch = next((v.dispatch for v in values if v.dispatch), "")
        if function.type == "attribute":
            method = text_of(function.child_by_field_name("attribute"))
            if method in METADATA:
                return None
            if method in TENSOR_METHODS:
                file, at = self._tensor_method(method)
                return Call(
                    kind="op", code=code, callee=f"torch.Tensor.{method}", callee_file=file, callee_line=at, line=line
                )
        path = next((v.path for v in values if v.kind == "path" and self._held(v.path)), "")
        held = self._held(path)
        shown = self.scope.origins.get(text_of(function), text_of(function))[:_CODE_LIMIT]
        dispatch = dispatch or next((m.dispatch for m in held if m.dispatch), "") or shown
        return Call(
            kind="submodule_call" if held else "helper_call",
            code=code,
            dispatch=dispatch,
            attribute=path if held else "",
            line=line,
        )

    def definition(self, call: Call) -> Found | None:
        """The function that a resolved call runs: the forward of a submodule, else the callee itself."""
        for found in self.resolver.absolute(call.callee):
            if found.symbol is not None:
                member = self.scope.holdings.class_member(found.symbol, "forward")
                return member[1] if member is not None else None
            return found
        return None

    def _held(self, path: str) -> list[HeldModule]:
        return self.scope.holdings.at(self.scope.symbol, path)[0] if path else []

    def _tensor_method(self, name: str) -> tuple[str, int]:
        """Where torch.Tensor defines a method in Python; empty where it is built in."""
        for found in self.resolver.absolute("torch._tensor.Tensor"):
            row = found.symbol.members.get(name) if found.symbol is not None else None
            if isinstance(row, FunctionRow) and found.symbol is not None:
                return found.symbol.file, row.line
        return "", 0

    def _targets(self, values: tuple[Value, ...]) -> tuple[list[_Target], bool]:
        """What the values lead to when called, and whether any of them computes nothing."""
        targets: list[_Target] = []
        plain = False
        for value in values:
            here = list(self._of(value))
            plain = plain or not all(here)
            targets.extend(target for target in here if target)
        return targets, plain

    def _of(self, value: Value) -> Iterator[_Target | None]:
        """None stands for a callee that computes nothing."""
        if value.kind in {"plain", "items"}:
            yield None
        elif value.kind == "path":
            yield from self._of_path(value)
        elif value.kind == "object" and value.symbol is not None and value.symbol.qualified_name != MODULE:
            yield from self._object(value)
        elif value.kind == "local" and value.node is not None:
            name = text_of(value.node.child_by_field_name("name")) or "<lambda>"
            outer = f"{self.scope.holder.qualified_name}.{self.scope.function.name}.<locals>"
            yield _Target(f"{outer}.{name}", self.scope.unit.file, line_of(value.node), value.key)
        elif value.kind == "found" and value.found is not None:
            yield from self._of_found(value.found, value.key)

    def _of_path(self, value: Value) -> Iterator[_Target | None]:
        if not value.path:
            yield self._instance(self.scope.symbol, value.key)
            return
        held, left = self.scope.holdings.at(self.scope.symbol, value.path)
        for module in held:
            if module.symbol is not None:
                target = self._instance(module.symbol, module.condition or value.key)
                yield _Target(module.class_name or target.callee, target.file, target.line, target.key, True)
            if module.dispatch:  # what stands at the default, or at none, is one of several
                picked = list(self._picked(module))
                yield from picked if picked or module.symbol is not None else (_OPEN,)
        for row in self.scope.holdings.others(self.scope.symbol, value.path) if held else ():
            told = list(self._of_value(self.scope.holdings.of_row(self.scope.symbol, row)))
            yield from told if told and all(told) else (_OPEN,)
        for owner, rest in left:
            if "." in rest:
                head, _, tail = rest.rpartition(".")
                for one in self._walk(owner, head):
                    yield from self._of_value(self.scope.attribute(one, tail))
            else:
                yield from self._of_value(self.scope.holdings.member(owner, rest))

    def _walk(self, owner: ClassSymbol, path: str) -> list[Value]:
        """`object.a.b` by what constructors and annotations say."""
        head, _, rest = path.partition(".")
        values = list(self.scope.holdings.member(owner, head))
        for part in rest.split(".") if rest else ():
            values = [inner for value in values for inner in self.scope.attribute(value, part)]
        return values

    def _of_value(self, values: tuple[Value, ...]) -> Iterator[_Target | None]:
        for value in values:
            yield from self._of(value)

    def _picked(self, module: HeldModule) -> Iterator[_Target]:
        """What a submodule may be whose class a table, a function or a parameter picks."""
        key = (module.attribute, module.line)
        if key in self._picking:  # `self.conv = weight_norm(self.conv)` leads back to itself
            return
        self._picking.add(key)
        for value in self.scope.holdings.of_row(self.symbol, module):
            for target in self._of(value):
                if target is not None:
                    yield self._as_module(value, target)
        self._picking.discard(key)

    def _as_module(self, value: Value, target: _Target) -> _Target:
        """A class that a table holds stands for the module that is made of it."""
        made = value.found.symbol if value.kind == "found" and value.found is not None else None
        place = self._instance(made, value.key) if made is not None else target
        return _Target(place.callee, place.file, place.line, target.key, place.module or target.module)

    def _object(self, value: Value) -> Iterator[_Target]:
        """Calling an object of a class or, unless that is certain, of a subclass with a forward of its own."""
        assert value.symbol is not None
        member = self.scope.holdings.class_member(value.symbol, "forward")
        stub = member is not None and isinstance(member[1].row, FunctionRow) and member[1].row.stub
        if value.exact or not stub:
            yield self._instance(value.symbol, value.key)
        if not value.exact:
            name = "forward" if is_module(self.resolver, value.symbol) else "__call__"
            for one in self.scope.holdings.subclasses(value.symbol, self.scope.unit):
                if name in one.members:
                    yield self._instance(one, one.qualified_name)
            if stub:
                yield _OPEN

    def _instance(self, symbol: ClassSymbol, key: str) -> _Target:
        """Calling an object: the forward of a module, else `__call__`."""
        if is_module(self.resolver, symbol):
            file, line = self.forward_place(symbol)
            return _Target(symbol.qualified_name, file, line, key, True)
        member = self.scope.holdings.class_member(symbol, "__call__")
        if member is not None and member[1].unit is not None and member[1].row is not None:
            return _Target(member[1].name, member[1].unit.file, member[1].row.line, key)
        return _Target(f"{symbol.qualified_name}.__call__", key=key)

    def forward_place(self, symbol: ClassSymbol) -> tuple[str, int]:
        """File and line of the forward that a call of the module runs."""
        member = self.scope.holdings.class_member(symbol, "forward")
        if member is None or member[1].unit is None or not isinstance(member[1].row, FunctionRow):
            return "", 0
        return member[1].unit.file, member[1].row.line

    def _of_found(self, found: Found, key: str) -> Iterator[_Target | None]:
        if _PLAIN_MODULES.match(found.name) or re.search(r"\.(logger|log)\.\w+$", found.name):
            yield None
            return
        chosen = made_from(self.resolver, found) if found.kind == "value" else []
        if chosen:
            for parameter, function in chosen:
                yield _target(function, parameter)
            return
        yield _target(found, key)


def _distinct(targets: list[_Target]) -> list[_Target]:
    """Each callee once, under all the keys that pick it."""
    found: dict[tuple[str, str, int], _Target] = {}
    for target in targets:
        place = (target.callee, target.file, target.line)
        known = found.get(place)
        keys = [k for k in (known.key if known is not None else "", target.key) if k]
        found[place] = replace(target, key=" | ".join(dict.fromkeys(keys)))
    return list(found.values())


def _target(found: Found, key: str) -> _Target:
    row = found.row
    there = found.unit is not None and row is not None and not (isinstance(row, AssignRow) and found.kind == "external")
    return _Target(found.name, found.unit.file if there and found.unit else "", row.line if there and row else 0, key)


def _kind(targets: list[_Target]) -> Kind:
    if any(target.module for target in targets):
        return "submodule_call"
    return "op" if all(map(_is_torch, targets)) else "helper_call"


def _is_torch(target: _Target) -> bool:
    """Whether a callee is an operation of torch's own."""
    return target.callee.startswith("torch.") and not target.module


def _candidate(target: _Target) -> Candidate:
    return Candidate(key=target.key, callee=target.callee, file=target.file, line=target.line)


def _line(node: Node, function: Node) -> int:
    """The line that the interpreter gives a call: that of the name after the last dot, but that of the expression's
    start where arguments are unpacked into it (CPython's `maybe_optimize_method_call`)."""
    attribute = function.child_by_field_name("attribute") if function.type == "attribute" else None
    arguments = node.child_by_field_name("arguments")
    unpacked = arguments is not None and any(
        child.type in {"list_splat", "dictionary_splat"} for child in named(arguments)
    )
    return line_of(attribute) if attribute is not None and not unpacked else line_of(node)
