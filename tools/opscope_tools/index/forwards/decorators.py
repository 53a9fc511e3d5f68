"""What the decorators of a forward and of its class do, read off their own source: is the function handed back as it is,
does the wrapper that takes its place call it, may something else run instead?

`_Application` follows one thing, the decorated function or class, through the functions that it is given to. Nothing is
known of decorators by their names, but for the few of the standard library, whose source no repository holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from opscope_schemas.index import Candidate, DecoratorEffect, ExplainedDecorator

from opscope_tools.index.forwards.tables import entries_of
from opscope_tools.index.forwards.values import arguments_of, definition_of
from opscope_tools.source.python.names import ClassSymbol, Found, Resolver
from opscope_tools.source.python.parse import Node, dotted, named, parse, text_of
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import FunctionRow

_DEPTH = 8
_LOOKUP = re.compile(r"\.get\w*$")
_STANDARD: Mapping[str, tuple[DecoratorEffect, str]] = {
    "typing.overload": ("documentation", "declares a signature; the last definition runs"),
    "typing_extensions.overload": ("documentation", "declares a signature; the last definition runs"),
    "typing.final": ("documentation", "for type checkers"),
    "typing.no_type_check": ("documentation", "for type checkers"),
    "functools.wraps": ("documentation", "copies name and docstring"),
    "functools.lru_cache": ("wraps the call", "returns what an earlier call with the same arguments gave"),
    "functools.cache": ("wraps the call", "returns what an earlier call with the same arguments gave"),
    "functools.cached_property": ("wraps the call", "calls once and keeps the value"),
    "contextlib.contextmanager": ("wraps the call", "makes the generator a context manager"),
    "abc.abstractmethod": ("marks", "subclasses must define it"),
    "dataclasses.dataclass": ("marks", "adds a constructor from the fields"),
    "staticmethod": ("marks", "takes no object"),
    "classmethod": ("marks", "takes the class"),
    "property": ("wraps the call", "runs when the attribute is read"),
}
_DOCUMENTING = {"__doc__", "__annotations__", "__signature__", "__name__", "__qualname__", "__module__"}
_RUNNING = {"forward", "__call__"}
#: from the least to the most that a decorator can do
_ORDER: tuple[DecoratorEffect, ...] = (
    "returns it unchanged", "documentation", "marks", "registers", "wraps the call", "not known",
    "replaces the implementation under a condition",
)  # fmt: skip
_FUNCTIONS = {"function_definition", "lambda"}


@dataclass(frozen=True)
class _Outcome:
    """What one way through a decorator does."""

    effect: DecoratorEffect
    detail: str = ""
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True, eq=False)
class _Thing:
    """A value inside a decorator: the decorated `target`, a function defined there, an object, or what is not known."""

    kind: Literal["target", "function", "object", "unknown"]
    node: Node | None = None
    unit: Unit | None = None
    symbol: ClassSymbol | None = None
    names: Mapping[str, _Thing] = field(default_factory=dict)
    text: str = ""


_TARGET = _Thing("target")


def explain(resolver: Resolver, unit: Unit, decorator: str, on: Literal["forward", "class"]) -> ExplainedDecorator:
    """What `@decorator`, written in `unit`, does."""
    name = re.split(r"[(\[]", decorator, maxsplit=1)[0].strip()
    found = resolver.dotted(unit, name) if re.fullmatch(r"[A-Za-z_][\w.]*", name) else None
    known = found.name if found is not None else name
    if known in _STANDARD:
        effect, detail = _STANDARD[known]
        return ExplainedDecorator(decorator=decorator, on=on, qualified_name=known, effect=effect, detail=detail)
    if found is None or found.unit is None or found.row is None:
        detail = "its source is not in the registered repositories"
        return ExplainedDecorator(decorator=decorator, on=on, qualified_name=known, effect="not known", detail=detail)
    outcome = _over_branches(resolver, found, decorator)
    return ExplainedDecorator(
        decorator=decorator, on=on, qualified_name=found.name, file=found.unit.file, line=found.row.line,
        effect=outcome.effect, detail=outcome.detail, candidates=outcome.candidates,
    )  # fmt: skip


def _over_branches(resolver: Resolver, found: Found, decorator: str) -> _Outcome:
    """The outcome of the definition that counts, together with those under other conditions (`if is_x_available()`)."""
    here = _applied(resolver, found, decorator)
    if not isinstance(found.row, FunctionRow) or found.unit is None:
        return here
    ways = [(found.row, here)]
    others = [
        row
        for row in found.unit.bindings.get(found.row.name, ())
        if isinstance(row, FunctionRow) and row is not found.row and row.guard.condition
    ]
    ways += [(row, _applied(resolver, Found("function", found.name, found.unit, row), decorator)) for row in others]
    if len({outcome.effect for _, outcome in ways}) == 1:
        return here
    told = [
        f"where `{row.guard.condition}` ({found.unit.file}:{row.line}): {outcome.detail or outcome.effect}"
        for row, outcome in ways
    ]
    candidates = tuple(c for _, outcome in ways for c in outcome.candidates)
    return _Outcome("replaces the implementation under a condition", "; ".join(told), candidates)


def _applied(resolver: Resolver, found: Found, decorator: str) -> _Outcome:
    """`@name` gives the target to `name`; `@name(...)` gives it to what `name(...)` returns."""
    application = _Application(resolver)
    made = application.thing(found)
    called = "(" in decorator
    if called:
        nodes = named(parse(decorator.encode()))
        call = named(nodes[0])[0] if nodes and named(nodes[0]) else None
        things = application.call(made, _given(call, found), 0)
    else:
        things = [made]
    outcomes = [o for thing in things for o in application.decorate(thing, 0)]
    outcomes = outcomes or [_Outcome("not known", "its source does not tell what it returns")]
    return max(reversed(outcomes), key=lambda o: _ORDER.index(o.effect))  # the last way out is the usual one


def _given(call: Node | None, found: Found) -> dict[str, _Thing]:
    """Parameters that the decorator's own call fills; what they hold does not matter, only that they are not left out."""
    if call is None or not isinstance(found.row, FunctionRow):
        return {}
    names = [p.name for p in found.row.parameters if not p.name.startswith("*") and p.name != "/"]
    return {name: _Thing("unknown", text=text_of(node)) for name, node in zip(names, arguments_of(call), strict=False)}


@dataclass
class _Application:
    """Follows the target through the source of a decorator."""

    resolver: Resolver

    def thing(self, found: Found) -> _Thing:
        if found.symbol is not None:
            return _Thing("object", symbol=found.symbol, text=found.name)
        if found.kind == "function" and isinstance(found.row, FunctionRow) and found.unit is not None:
            return _Thing("function", definition_of(found.unit, found.row), found.unit, text=found.name)
        return _Thing("unknown", text=found.name)

    # making a decorator

    def call(self, thing: _Thing, given: Mapping[str, _Thing], depth: int) -> list[_Thing]:
        """What a call that does not get the target returns."""
        if thing.kind == "object":
            return [_Thing("object", symbol=thing.symbol, text=f"{thing.text}(...)")]
        if thing.kind != "function" or thing.node is None or depth > _DEPTH:
            return [_Thing("unknown", text=f"{thing.text}(...)")]
        body = _Body(self, thing, {**_left_out(thing.node), **given})
        return [one for one, _ in body.returned(depth)]

    # handing it the target

    def decorate(self, thing: _Thing, depth: int, position: int = 0) -> list[_Outcome]:
        """What happens to the target where `thing` is called with it as the argument at `position`."""
        if depth > _DEPTH:
            return []
        if thing.kind == "object" and thing.symbol is not None:
            return self._by_class(thing.symbol, depth)
        if thing.kind != "function" or thing.node is None:
            return [_Outcome("not known", f"hands it to {thing.text}, whose source does not tell")]
        names = _parameters(thing.node)
        if position >= len(names):
            return [_Outcome("not known", f"hands it to {thing.text}")]
        given = {k: v for k, v in _left_out(thing.node).items() if k != names[position]}
        body = _Body(self, thing, {**given, names[position]: _TARGET})
        return body.outcomes(depth)

    def _by_class(self, symbol: ClassSymbol, depth: int) -> list[_Outcome]:
        """An object that is called with the function: `__call__`."""
        member = self.resolver.class_member(symbol, "__call__")
        if member is None or not isinstance(member[1].row, FunctionRow) or member[1].unit is None:
            return [_Outcome("not known", f"makes an object of {symbol.qualified_name}")]
        return self.decorate(self.thing(member[1]), depth + 1, position=1)


@dataclass
class _Body:
    """The body of a function whose parameters hold known things."""

    application: _Application
    function: _Thing
    given: Mapping[str, _Thing]

    def __post_init__(self) -> None:
        self.names: dict[str, _Thing] = {**self.function.names, **self.given}
        self.set: list[tuple[str, _Thing | None]] = []
        self.registered = ""
        self.later: dict[str, Node] = {}

    @property
    def resolver(self) -> Resolver:
        return self.application.resolver

    def returned(self, depth: int) -> list[tuple[_Thing, list[_Outcome]]]:
        """What the body may return, each with the outcomes of the calls that already got the target."""
        node = self.function.node
        assert node is not None
        body = node.child_by_field_name("body")
        if body is None:
            return []
        if node.type == "lambda":
            return list(self._chosen(body, depth))
        return list(self._block(body, depth))

    def outcomes(self, depth: int) -> list[_Outcome]:
        found: list[_Outcome] = []
        for thing, settled in self.returned(depth):
            if settled:
                found.extend(settled)
            elif thing.kind == "target":
                found.append(self._as_it_is())
            elif thing.kind == "function" and thing.node is not None:
                found.append(self._wrapper(thing))
            elif thing.text:
                found.append(_Outcome("not known", f"returns {thing.text}"))
        return found

    def _block(self, block: Node, depth: int) -> Iterator[tuple[_Thing, list[_Outcome]]]:
        for node in named(block):
            kind = node.type
            if kind == "return_statement":
                for child in named(node):
                    yield from self._chosen(child, depth)
                return
            if kind in {"function_definition", "decorated_definition"}:
                self._define(node)
            elif kind == "expression_statement":
                self._statement(named(node)[0], depth)
            elif kind == "if_statement":
                yield from self._if(node, depth)
                holds = self._truth(node.child_by_field_name("condition"))
                if holds and _returns(node.child_by_field_name("consequence")):
                    return
            elif kind in {"with_statement", "try_statement", "for_statement", "else_clause", "block"}:
                for inner in [c for c in named(node) if c.type in {"block", "except_clause", "else_clause"}]:
                    yield from self._block(inner, depth)

    def _chosen(self, node: Node, depth: int) -> Iterator[tuple[_Thing, list[_Outcome]]]:
        """The sides of `a if test else b` that may be, else the expression itself."""
        if node.type != "conditional_expression":
            yield self._value(node, depth)
            return
        yes, test, no = named(node)
        holds = self._truth(test)
        if holds is not False:
            yield from self._chosen(yes, depth)
        if holds is not True:
            yield from self._chosen(no, depth)

    def _if(self, node: Node, depth: int) -> Iterator[tuple[_Thing, list[_Outcome]]]:
        holds = self._truth(node.child_by_field_name("condition"))
        consequence = node.child_by_field_name("consequence")
        if consequence is not None and holds is not False:
            yield from self._block(consequence, depth)
        for clause in [c for c in named(node) if c.type in {"elif_clause", "else_clause"}]:
            inner = clause.child_by_field_name("consequence") or clause.child_by_field_name("body")
            if inner is not None and holds is not True:
                yield from self._block(inner, depth)

    def _truth(self, test: Node | None) -> bool | None:
        """`if func is None`, `if func`: whether the target was given."""
        text = text_of(test)
        match = re.fullmatch(r"(not )?(\w+)(?: (is|is not|==|!=) None)?", text)
        if match is None or match[2] not in self.names:
            return None
        thing = self.names[match[2]]
        absent = thing.kind == "unknown" and thing.text == "None"
        if not absent and thing.kind != "target":
            return None
        asks_absent = match[3] in {"is", "=="}
        holds = absent if asks_absent else not absent
        return not holds if match[1] else holds

    def _define(self, node: Node) -> None:
        definition = node.child_by_field_name("definition") if node.type == "decorated_definition" else node
        if definition is not None and definition.type == "function_definition":
            name = text_of(definition.child_by_field_name("name"))
            self.names[name] = _Thing("function", definition, self.function.unit, names=self.names, text=name)

    def _statement(self, node: Node, depth: int) -> None:
        if node.type == "assignment":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is None or right is None:
                return
            if left.type == "identifier" and not _mentions(right, self._aliases()):
                self.names.pop(text_of(left), None)
                self.later[text_of(left)] = right  # most names of a decorator have nothing to do with the target
                return
            thing, _ = self._value(right, depth)
            if left.type == "identifier":
                self.names[text_of(left)] = thing
            elif left.type == "attribute" and self._is_target(left.child_by_field_name("object")):
                self.set.append((text_of(left.child_by_field_name("attribute")), thing))
            elif left.type == "subscript" and thing.kind == "target":
                self.registered = text_of(left.child_by_field_name("value"))
        elif node.type == "call":
            function = node.child_by_field_name("function")
            inner = arguments_of(node)
            if text_of(function) == "setattr" and inner and self._is_target(inner[0]):
                self.set.append((text_of(inner[1]).strip("\"'") if len(inner) > 1 else "", None))
            elif any(self._is_target(argument) for argument in inner) and re.search(
                r"\.(register\w*|append|add|insert)$", text_of(function)
            ):
                self.registered = text_of(function)

    def _is_target(self, node: Node | None) -> bool:
        return node is not None and self.names.get(text_of(node), _Thing("unknown")).kind == "target"

    def _value(self, node: Node, depth: int) -> tuple[_Thing, list[_Outcome]]:
        """What an expression is; where it gives the target away, with what comes of that."""
        unknown = _Thing("unknown", text=text_of(node)[:120])
        if node.type == "identifier":
            later = self.later.pop(text_of(node), None)
            if later is not None:
                self.names[text_of(node)] = self._value(later, depth + 1)[0]
            known = self.names.get(text_of(node))
            found = self.resolver.lookup(self.function.unit, text_of(node)) if self.function.unit is not None else None
            return known or (self.application.thing(found) if found is not None else unknown), []
        if node.type == "lambda":
            return _Thing("function", node, self.function.unit, names=self.names, text="a lambda"), []
        if node.type == "parenthesized_expression" and named(node):
            return self._value(named(node)[0], depth)
        if node.type == "attribute":
            held = node.child_by_field_name("object")
            if self._is_target(held):  # cls.forward: what runs
                running = text_of(node.child_by_field_name("attribute")) in _RUNNING
                return (_TARGET if running else unknown), []
            name = dotted(node)
            found = self.resolver.dotted(self.function.unit, name) if name and self.function.unit is not None else None
            return (self.application.thing(found) if found is not None else unknown), []
        if node.type == "call":
            return self._call(node, unknown, depth)
        return unknown, []

    def _call(self, node: Node, unknown: _Thing, depth: int) -> tuple[_Thing, list[_Outcome]]:
        function = node.child_by_field_name("function")
        inner = arguments_of(node)
        name = text_of(function)
        if function is None or depth > _DEPTH:
            return unknown, []
        if name.rpartition(".")[2] == "cast" and len(inner) == 2:
            return self._value(inner[1], depth)
        called, _ = self._value(function, depth)
        if function.type == "call" and text_of(function.child_by_field_name("function")).endswith("wraps") and inner:
            return self._value(inner[0], depth)  # wraps(func)(wrapper)
        if name.rpartition(".")[2] == "partial" and inner:
            made, _ = self._value(inner[0], depth)
            return (made if made.kind == "function" else unknown), []
        at = next((n for n, argument in enumerate(inner) if self._is_target(argument)), None)
        if at is None:
            made_things = self.application.call(called, {}, depth + 1)
            return (made_things[-1] if made_things else unknown), []
        return unknown, self.application.decorate(called, depth + 1, at)

    def _as_it_is(self) -> _Outcome:
        """The target is handed back: what was done to it?"""
        running = [(name, thing) for name, thing in self.set if name in _RUNNING]
        for _, thing in running:
            if thing is not None and thing.kind == "function" and thing.node is not None:
                return self._wrapper(thing)
            return _Outcome("replaces the implementation under a condition", "sets its forward")
        if self.registered:
            return _Outcome("registers", f"enters it in {self.registered} and returns it")
        names = [name for name, _ in self.set]
        if names and all(name in _DOCUMENTING for name in names):
            return _Outcome("documentation", f"sets {', '.join(dict.fromkeys(names))} and returns it")
        if names:
            return _Outcome("marks", f"sets {', '.join(list(dict.fromkeys(names))[:4])} and returns it")
        return _Outcome("returns it unchanged", "returns what it is given")

    def _wrapper(self, thing: _Thing) -> _Outcome:
        """A function that takes the target's place: does it always call it?"""
        node = thing.node
        assert node is not None
        aliases = self._aliases()
        aliases |= self._derived(aliases)
        body = node.child_by_field_name("body")
        label = thing.text or "a function"
        if body is None:
            return _Outcome("not known")
        if _always_calls(body, aliases):
            return _Outcome("wraps the call", f"`{label}` runs in its place and calls it")
        lookup = self._looked_up(body, aliases)
        if lookup is not None:
            return lookup
        if any(_calls(inner, aliases) for inner in _walk(body)):
            return _Outcome(
                "replaces the implementation under a condition", f"`{label}` runs in its place; not every way calls it"
            )
        return _Outcome("replaces the implementation under a condition", f"`{label}` runs in its place")

    def _aliases(self) -> set[str]:
        return {name for name, one in self.names.items() if one.kind == "target"}

    def _derived(self, aliases: set[str]) -> set[str]:
        """Names bound to what a call makes of the target: `cached = lru_cache()(func)`."""
        body = self.function.node.child_by_field_name("body") if self.function.node is not None else None
        found = set()
        for node in _walk(body) if body is not None else ():
            if node.type == "assignment":
                left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
                looks_up = right is not None and _LOOKUP.search(text_of(right.child_by_field_name("function")))
                if left is None or right is None or right.type != "call" or looks_up:
                    continue
                if any(text_of(argument) in aliases for argument in arguments_of(right)):
                    found.add(text_of(left))
        return found

    def _looked_up(self, body: Node, aliases: set[str]) -> _Outcome | None:
        """`TABLE.get(key, target)`: an entry of the table runs, the target where there is none."""
        for node in _walk(body):
            arguments = arguments_of(node)
            function = node.child_by_field_name("function")
            if len(arguments) != 2 or function is None or text_of(arguments[1]) not in aliases:
                continue
            if not _LOOKUP.search(text_of(function)):
                continue
            candidates = tuple(
                Candidate(
                    key=key, callee=entry.name,
                    file=entry.unit.file if entry.unit is not None and entry.row is not None else "",
                    line=entry.row.line if entry.row is not None else 0,
                )
                for key, entry in self._entries(text_of(function.child_by_field_name("object")))
            )  # fmt: skip
            return _Outcome(
                "replaces the implementation under a condition",
                f"runs what `{text_of(node)}` gives; the definition is the default", candidates,
            )  # fmt: skip
        return None

    def _entries(self, table: str) -> list[tuple[str, Found]]:
        """Entries of a table by its name, or by that of a parameter which defaults to it."""
        unit = self.function.unit
        if unit is None:
            return []
        pending: list[_Thing] = [one for name, one in self.names.items() if name == table]
        text = pending[0].text if pending and pending[0].kind == "unknown" else table
        found = self.resolver.dotted(unit, text) if re.fullmatch(r"[A-Za-z_][\w.]*", text) else None
        return entries_of(self.resolver, found) if found is not None else []


def _parameters(function: Node) -> list[str]:
    """Names of the positional parameters of a `def` or lambda."""
    found = []
    for child in named(function.child_by_field_name("parameters") or parse(b"")):
        if child.type in {
            "keyword_separator",
            "positional_separator",
            "list_splat_pattern",
            "dictionary_splat_pattern",
        }:
            continue
        name = child.child_by_field_name("name") or (child if child.type == "identifier" else None)
        name = name or next((c for c in named(child) if c.type == "identifier"), None)
        if name is not None:
            found.append(text_of(name))
    return found


def _left_out(function: Node) -> dict[str, _Thing]:
    """Parameters that keep their default."""
    found = {}
    for child in named(function.child_by_field_name("parameters") or parse(b"")):
        value, name = child.child_by_field_name("value"), child.child_by_field_name("name")
        if value is not None and name is not None:
            found[text_of(name)] = _Thing("unknown", text=text_of(value))
    return found


def _returns(block: Node | None) -> bool:
    return block is not None and bool(named(block)) and named(block)[-1].type == "return_statement"


def _walk(node: Node) -> Iterator[Node]:
    """Every node below, functions defined inside included."""
    pending = [node]
    while pending:
        here = pending.pop()
        yield here
        pending.extend(reversed(here.named_children))


def _calls(node: Node, aliases: set[str]) -> bool:
    """Whether a node is a call of one of the names, or hands one to a call as `partial` does."""
    if node.type != "call":
        return False
    return text_of(node.child_by_field_name("function")) in aliases


def _always_calls(block: Node, aliases: set[str]) -> bool:
    """Whether every way through a block calls one of the names, as far as branches tell; a way that raises counts."""
    if block.type != "block":  # the body of a lambda
        return any(_calls(node, aliases) for node in _walk(block))
    for statement in named(block):
        kind = statement.type
        if kind == "if_statement":
            blocks = [statement.child_by_field_name("consequence")]
            clauses = [c for c in named(statement) if c.type in {"elif_clause", "else_clause"}]
            blocks += [c.child_by_field_name("consequence") or c.child_by_field_name("body") for c in clauses]
            closed = any(c.type == "else_clause" for c in clauses)
            if closed and all(b is not None and _always_calls(b, aliases) for b in blocks):
                return True
            if any(_returns(b) and b is not None and not _mentions(b, aliases) for b in blocks):
                return False
        elif kind in {"with_statement", "try_statement"}:
            inner = [c for c in named(statement) if c.type in {"block"}]
            if any(_always_calls(c, aliases) for c in inner):
                return True
        elif kind == "raise_statement" or (
            kind not in _FUNCTIONS and any(_calls(node, aliases) for node in _walk(statement))
        ):
            return True
    return False


def _mentions(block: Node, aliases: set[str]) -> bool:
    return any(node.type == "identifier" and text_of(node) in aliases for node in _walk(block))
