"""Host functions of CUDA sources as syntax trees: launches, and the C++ around them that device code does not hold.

Macros that hold statements or lambdas are expanded; one that only computes stays a call, which a formula names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from opscope_tools.kernels.cuda.names.definitions import template_list
from opscope_tools.kernels.cuda.names.values import named_type
from opscope_tools.kernels.cuda.source_text import CSource, matching
from opscope_tools.kernels.cuda.syntax.expressions import UnreadError
from opscope_tools.kernels.cuda.syntax.nodes import (
    Assign,
    Block,
    Braced,
    Call,
    Declare,
    Evaluate,
    Name,
    Node,
    Return,
    TypeName,
)
from opscope_tools.kernels.cuda.syntax.statements import Reader
from opscope_tools.kernels.cuda.syntax.tokens import DeviceCode, TooLongError, joined
from opscope_tools.kernels.records import MacroRef

#: brackets in brackets that are read
_DEEPEST = 256
_COMPUTES = re.compile(r"[\w\s()+\-*/%<>=!&|?:,.]*")
_STATEMENT = re.compile(r"<<<|\b(?:return|constexpr|using|if|for|while|else)\b|##")
#: what may stand where the text of a string was
_AFTER_TEXT = frozenset(") , ; << ] } : + ==".split())


@dataclass(slots=True, eq=False)
class Launch(Node):
    """`function<<<configuration>>>(arguments)`; its position is that of `<<<`."""

    function: Node
    configuration: list[Node]
    arguments: list[Node]
    #: the macro that writes it, and where in that
    origin: tuple[str, int] | None = None


class HostCode(DeviceCode):
    """A file whose macros are expanded where they hold more than an expression."""

    deepest = 40

    def expanded(self, known: dict[str, MacroRef]) -> dict[str, MacroRef]:
        """Those that hold more than an expression: the others stay calls and names, which a formula names."""
        kept = {n for n, m in known.items() if _COMPUTES.fullmatch(m.body) and not _STATEMENT.search(m.body)}
        while more := {
            n for n in kept if not kept.issuperset(set(re.findall(r"[A-Za-z_]\w*", known[n].body)) & known.keys())
        }:
            kept -= more
        return {n: m for n, m in known.items() if n not in kept}


class HostReader(Reader):
    """Statements of a host function. What does not parse is one operand of which nothing is known."""

    no_list = frozenset({"=", "+=", "?"})

    def list_end(self, start: int) -> int:
        """As of any reader; conditions are template arguments where something else shows that it is a list."""
        end = super().list_end(start)
        held = self._words[start:end]
        plain = not {"&&", "||"} & set(held)
        return end if plain or "," in held or self._words[end] in {";", "<<", ":", ",", ")"} else 0

    def _postfix(self, node: Node, start: int) -> Node:
        node = super()._postfix(node, start)
        while self.peek() == "<<" and self.peek(1) == "<":
            node = super()._postfix(self.placed(self._launch(node), start), start)
        return node

    def _launch(self, function: Node) -> Launch:
        position, begun, origin = self.position(), self.at + 2, self.tokens[self.at].origin
        end, depth = begun, 0
        while depth or self._words[end : end + 3] != [">", ">", ">"] or self._words[end + 3] == ">":
            depth += (self._words[end] in {"(", "[", "{"}) - (self._words[end] in {")", "]", "}"})
            end += 1
            if end + 3 >= len(self._words):
                raise UnreadError("<<<")
        inner = HostReader(self.tokens[begun:end], self.is_type)
        configuration = inner.listed("")
        self.at = end + 3
        return Launch(position, function, configuration, self.arguments() if self.peek() == "(" else [], origin)

    def text(self, start: int, end: int) -> str:
        """The tokens of a range as text, the last exclusive."""
        return joined(self.tokens, start, end)

    def listed(self, end: str) -> list[Node]:
        """Expressions up to a bracket; the place of a string is an operand too."""
        found: list[Node] = []
        while self.peek() != end:
            found.append(self._one())
            if self.peek() == "," or self.peek() == "...":
                self.at += 1
            elif self.peek() != end:
                raise UnreadError(self.peek())
        return found

    def _one(self) -> Node:
        start = self.at
        try:
            if self.peek() == "." and self.peek(2) == "=":
                position, name = self.position(), self.peek(1)
                self.at += 3
                return Assign(position, "=", Name(position, name), self._one())
            return self.braced() if self.peek() == "{" else self.expression()
        except UnreadError:
            return self._passed(start, {",", ")", "}", ";"})

    def arguments(self) -> list[Node]:
        """What stands in the parentheses that come next; raises `UnreadError` where none do."""
        self.take("(")
        found = self.listed(")")
        self.take(")")
        return found

    def braced(self) -> Braced:
        """The list in the braces that come next, its type unknown; raises `UnreadError` where none do."""
        position, start = self.position(), self.at
        self.take("{")
        items = self.listed("}")
        self.take("}")
        return self.placed(Braced(position, None, items), start)

    def sequence(self) -> Node:
        """An expression; what does not parse is passed over up to the bracket or `;` that ends it."""
        start = self.at
        try:
            return super().sequence()
        except UnreadError:
            return self._passed(start, {")", "]", "}", ";"})

    def _passed(self, start: int, ends: set[str]) -> Node:
        """What stands before one of some tokens, as one name."""
        self.at, depth = start, 0
        while depth or self.peek() not in ends:
            depth += (self.peek() in {"(", "[", "{"}) - (self.peek() in {")", "]", "}"})
            self.take()
        if self.at == start:
            raise UnreadError(self.peek())
        return self.placed(Name(self._positions[start], self.text(start, self.at)), start)

    def _declarator(self, kind: TypeName, pointers: int, reference: bool) -> Declare:
        start = self.at
        try:
            return super()._declarator(kind, pointers, reference)
        except UnreadError:
            self.at = start
            position, name = self.position(), self.take()
            self.take("=")
            return Declare(position, kind, name, [], pointers, reference, self._passed(self.at, {",", ";"}))

    def unary(self) -> Node:
        """As of a device function, with the tokens that it was read from."""
        start, node = self.at, super().unary()
        return node if node.tokens is not None else self.placed(node, start)

    def _primary(self) -> Node:
        if self.peek() in _AFTER_TEXT and not (self.peek() == "<<" and self.peek(1) == "<"):
            return self.placed(Name(self.position(), '""'), self.at)
        return super()._primary()

    def statement(self) -> list[Node]:
        """One statement, as several where it stands for them: of a `try`, what it tries."""
        position = self.position()
        if self.peek() == "try" and self.peek(1) == "{":
            self.at += 1
            found = self.block()
            while self.peek() == "catch":
                self.at += 1
                self.skip_bracketed()
                self.skip_bracketed()
            return [found]
        if self.peek() == "throw":
            self._until(";")
            return [Return(position, None)]
        return super().statement()

    def _headed(self) -> list[Node] | None:
        """`MACRO(...)` without a `;` behind it."""
        start, position = self.at, self.position()
        if not re.fullmatch(r"[A-Z][A-Z0-9_]+", self.peek()) or self.peek(1) != "(":
            return None
        self.at += 1
        self.skip_bracketed()
        ends = self.peek() == "}" or re.fullmatch(r"[A-Za-z_]\w*", self.peek()) is not None
        self.at = start
        return [Evaluate(position, self.expression())] if ends else None


@dataclass(frozen=True)
class HostFunction:
    """A definition in host code; `unread` says why there is no body."""

    name: str
    code: HostCode
    start: int
    template: tuple[str, ...]
    parameters: tuple[tuple[TypeName, str], ...]
    body: Block
    unread: str = ""

    @property
    def gives_dims(self) -> bool:
        """Whether it returns a `dim3`."""
        text = self.code.source.statements
        return re.search(rf"\bdim3\s+(?:\w+::)*{self.name}\s*\(", text[self.start : self.body.position]) is not None


@dataclass
class HostFunctions:
    """The host functions of a repository's files, parsed once."""

    load: Callable[[str], CSource | None]
    macros: Mapping[str, MacroRef]
    #: the file and those that it includes, and the code of the latter
    headers: Callable[[CSource], list[CSource]]
    included: Callable[[CSource], Iterable[DeviceCode]]
    _codes: dict[tuple[str, int], HostCode] = field(default_factory=dict)
    _parsed: dict[tuple[str, int, bool], HostFunction] = field(default_factory=dict)

    def code(self, source: CSource, wanted: int = -1) -> HostCode:
        """A file in which the branches of `#if` that hold a position are taken."""
        key = source.path, wanted
        if key not in self._codes:
            self._codes[key] = HostCode(source, self.macros, lambda: self.included(source), 0, wanted)
        return self._codes[key]

    def around(self, source: CSource, position: int) -> HostFunction | None:
        """The outermost function that holds a position."""
        found = source.function_around(position)
        if found is None:
            return None
        inside = self.code(source).inside(position)
        return self._function(source, *found, -1 if inside else position)

    def named(self, source: CSource, name: str, count: int, holder: str = "") -> list[HostFunction]:
        """The functions of a name, free or of the class `holder`, that a file sees and that take so many arguments."""
        found = []
        for header in self.headers(source):
            if name not in header.statements:
                continue
            for heading, brace, end, other in header.functions:
                around = header.class_around(heading) if other == name else None
                stands = other == name and (around[0] if around is not None else "") == holder
                if stands and self.code(header).inside(brace):
                    made = self._function(header, heading, brace, end, name, -1)
                    if made.unread or len(made.parameters) >= count:
                        found.append(made)
        exact = [f for f in found if len(f.parameters) == count]
        return exact or found

    def _function(self, source: CSource, heading: int, brace: int, end: int, name: str, wanted: int) -> HostFunction:
        key = source.path, brace, wanted >= 0
        if key not in self._parsed or wanted >= 0:
            self._parsed[key] = self._parse(self.code(source, wanted), heading, brace, end, name)
        return self._parsed[key]

    def _parse(self, code: HostCode, heading: int, brace: int, end: int, name: str) -> HostFunction:
        template, start = template_list(code.source, heading, brace)
        unread, body = "", Block(brace, [])
        parameters: tuple[tuple[TypeName, str], ...] = ()

        def is_type(word: str) -> bool:
            return word in template or named_type(word) is not None or word.endswith("_t")

        try:
            opening = code.source.statements.find("(", start, brace)
            closing = matching(code.source.statements, opening)
            if 0 <= opening < closing < brace:
                parameters = tuple(HostReader(code.tokens(opening, closing + 1), is_type).parameters())
            if code.source.nesting(brace, end) > _DEEPEST:
                unread = f"{name} is nested more than {_DEEPEST} brackets deep"
            else:
                body = Block(brace, HostReader(code.tokens(brace + 1, end), is_type).body())
        except TooLongError:
            unread = f"{name} is too long with its macros expanded"
        except (UnreadError, RecursionError):
            unread = f"{name} does not parse"
        return HostFunction(name, code, heading, template, parameters, body, unread)


def called_at(node: Node) -> tuple[int, tuple[str, int] | None]:
    """(place, place in its macro) of the bracket that opens a call's arguments or a launch's configuration."""
    if isinstance(node, Launch):
        return node.position, node.origin
    if not isinstance(node, Call) or node.function.tokens is None:
        return node.position, None
    tokens, _, end = node.function.tokens
    token = tokens[end] if end < len(tokens) else tokens[-1]
    return token.position, token.origin


__all__ = ["Evaluate", "HostCode", "HostFunction", "HostFunctions", "HostReader", "Launch", "called_at"]
