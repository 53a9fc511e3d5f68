"""Statements of CUDA bodies: declarations, control flow, inline assembly, over the expressions of expressions.py.

A statement that does not parse becomes `Unread`, and reading goes on behind it: what an answer lacks is then named.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from opscope_tools.kernels.cuda.syntax.expressions import Parser, UnreadError
from opscope_tools.kernels.cuda.syntax.nodes import (
    Alias,
    Assembly,
    Block,
    Declare,
    Each,
    Evaluate,
    For,
    If,
    Jump,
    Name,
    Node,
    Return,
    Switch,
    TypeName,
    Unpack,
    Unread,
    While,
)
from opscope_tools.kernels.cuda.syntax.tokens import Token

_WORD = re.compile(r"[A-Za-z_]\w*")
_ASM = frozenset({"asm", "__asm__", "__asm"})
_STORAGE = frozenset({"__shared__", "extern", "static", "const", "volatile"})
_IGNORED = frozenset(
    "static_assert CUTE_STATIC_ASSERT CUTE_STATIC_ASSERT_V _Pragma __pragma assert __builtin_assume __assume".split()
)


class Reader(Parser):
    """Statements of one body."""

    def __init__(self, tokens: list[Token], is_type: Callable[[str], bool]) -> None:
        super().__init__(tokens, lambda name: name in self.aliases or is_type(name))
        self.aliases: set[str] = set()

    def body(self) -> list[Node]:
        """Every statement up to the end of the tokens."""
        found: list[Node] = []
        while self.at < len(self.tokens):
            found += self._guarded()
        return found

    def _guarded(self) -> list[Node]:
        """The next statement, or that it is not read."""
        start, position = self.at, self.position()
        try:
            return self._whole(self.statement(), start)
        except UnreadError:
            self.at = start
            self._skip()
            return [Unread(position, self.text(start, min(self.at, start + 24)))]

    def _whole(self, found: list[Node], start: int) -> list[Node]:
        """Statements with the tokens from which they were read, the `;` left out."""
        end = self.at - 1 if self.tokens[self.at - 1].text == ";" else self.at
        for node in found:
            node.tokens = node.tokens or (self.tokens, start, end)
        return found

    def _skip(self) -> None:
        """Past a statement: its `;`, or the block that it ends with."""
        depth = 0
        while self.at < len(self.tokens):
            word = self.take()
            depth += (word in "([{") - (word in ")]}")
            if depth <= 0 and (word == ";" or (word == "}" and self.peek() not in {";", ")", ",", "."})):
                return

    def block(self) -> Block:
        """The statements in the braces that come next; raises `UnreadError` where they do not close."""
        position, found = self.position(), list[Node]()
        self.take("{")
        while self.peek() != "}":
            if not self.peek():
                raise UnreadError("{")
            found += self._guarded()
        self.take("}")
        return Block(position, found)

    def one(self) -> Node:
        """A statement where the grammar wants one."""
        start, position = self.at, self.position()
        found = self._whole(self.statement(), start)
        return found[0] if len(found) == 1 else Block(position, found)

    def statement(self) -> list[Node]:
        """One statement, as several nodes where it declares several variables."""
        word, position = self.peek(), self.position()
        if word == "[" and self.peek(1) == "[":  # an attribute
            self.skip_bracketed()
            return self.statement()
        match word:
            case ";":
                self.at += 1
                return []
            case "{":
                return [self.block()]
            case "if":
                return [self._if()]
            case "for":
                return [self._for()]
            case "while" | "do":
                return [self._while()]
            case "switch":
                return [self._switch()]
            case "return":
                self.at += 1
                value = None if self.peek() == ";" else self.braced() if self.peek() == "{" else self.sequence()
                self.take(";")
                return [Return(position, value)]
            case "break" | "continue" | "goto":
                self._until(";")
                return [Jump(position, word)]
            case "using" | "typedef":
                return self._alias()
            case "struct" | "union" | "enum" | "class":
                return self._written_type()
        if word in _ASM:
            return [self._assembly()]
        if word in _IGNORED and self.peek(1) == "(":
            self.at += 1
            self.skip_bracketed()
            return []
        if _WORD.fullmatch(word) and self.peek(1) in {
            "for",
            "while",
            "do",
            "if",
        }:  # a macro that is not known: a pragma
            self.at += 1
            return self.statement()
        if _WORD.fullmatch(word) and self.peek(1) == ":" and self.peek(2) != ":":
            self.at += 2  # a label
            return []
        if (headed := self._headed()) is not None:
            return headed
        declared = self._declaration()
        if declared is not None:
            return declared
        made = self.sequence()
        self.take(";")
        return [Evaluate(position, made)]

    def _headed(self) -> list[Node] | None:
        """`MACRO(i, n) { ... }` of a macro that is not found: a block that runs who knows how often."""
        start, position = self.at, self.position()
        if not re.fullmatch(r"[A-Z][A-Z0-9_]+", self.peek()) or self.peek(1) != "(":
            return None
        self.at += 1
        self.skip_bracketed()
        if self.peek() != "{":
            self.at = start
            return None
        text, name = self.text(start, self.at), self.tokens[start + 2].text
        return [Unread(position, text), Each(position, name, self.block(), text)]

    def _until(self, end: str) -> None:
        while self.take() != end:
            pass

    # declarations ------------------------------------------------------------------------------------------------

    def _declaration(self) -> list[Node] | None:
        """The declarations of a statement, or None with nothing read where it is none."""
        start = self.at
        if (storage := self._written_in_place()) is not None:  # __shared__ union { ... } name;
            return self._whole(self._of_written_type(TypeName("?", words=storage), start), start)
        kind = self.type_name()
        if kind is None or not self._declares():
            if kind is not None and {"extern", "__shared__", "static"} & kind.words:
                raise UnreadError(self.peek())
            if kind is not None and kind.name == "auto" and self.peek() == "[":
                return self._bound_structure()
            self.at = start
            return None
        found: list[Node] = []
        plain = TypeName(kind.name, kind.arguments, 0, False, kind.words)
        pointers, reference = kind.pointers, kind.reference
        while True:
            found.append(self._declarator(plain, pointers, reference))
            if self.peek() != ",":
                self.take(";")
                return self._whole(found, start)
            self.at += 1
            pointers, reference = 0, False
            while self.peek() in {"*", "&", "const", "__restrict__"} or (pointers and self.qualifies()):
                pointers, reference = pointers + (self.peek() == "*"), reference or self.peek() == "&"
                self.at += 1

    def _written_in_place(self) -> frozenset[str] | None:
        """The words before a type that is written out here, read up to its brace; None with nothing read for others."""
        start, found = self.at, set[str]()
        while self.peek() in _STORAGE:
            found.add(self.take())
        if found and self.peek() in {"struct", "union", "class"}:
            self.at += 1
            self.at += _WORD.fullmatch(self.peek()) is not None
            if self.peek() == "{":
                return frozenset(found)
        self.at = start
        return None

    def _declares(self) -> bool:
        return _WORD.fullmatch(self.peek()) is not None and self.peek(1) in {"=", ";", ",", "(", "[", "{", ":"}

    def _declarator(self, kind: TypeName, pointers: int, reference: bool) -> Declare:
        position, name = self.position(), self.take()
        dimensions: list[Node | None] = []
        while self.peek() == "[":
            self.at += 1
            dimensions.append(None if self.peek() == "]" else self.sequence())
            self.take("]")
        value: Node | None = None
        given: list[Node] | None = None
        if self.peek() == "=":
            self.at += 1
            value = self.braced() if self.peek() == "{" else self.expression()
        elif self.peek() == "(":
            given = self.arguments()
        elif self.peek() == "{":
            value = self.braced()
        return Declare(position, kind, name, dimensions, pointers, reference, value, given)

    def _bound_structure(self) -> list[Node]:
        """`auto [a, b] = f();`: the names are declared, of types that nothing tells."""
        position, found, names = self.position(), list[Node](), list[str]()
        self.take("[")
        while self.peek() != "]":
            if self.peek() != ",":
                names.append(self.peek())
                found.append(Declare(position, TypeName("?"), self.peek(), [], 0, False, None))
            self.at += 1
        self.take("]")
        self.take("=")
        found.append(Unpack(position, names, self.sequence()))
        self.take(";")
        return found

    def _of_written_type(self, kind: TypeName, start: int = -1) -> list[Node]:
        position = self.position() if start < 0 else self._positions[start]
        self.skip_bracketed()
        found: list[Node] = []
        while _WORD.fullmatch(self.peek()):
            found.append(self._declarator(TypeName("?", words=kind.words), 0, False))
            found[-1].position = position
            if self.peek() == ",":
                self.at += 1
        self.take(";")
        return found or [Unread(position, "a type")]

    def _written_type(self) -> list[Node]:
        """`struct name { ... } variable;`, or a declaration that begins with the word."""
        start = self.at
        self.at += 1
        name = self.take() if _WORD.fullmatch(self.peek()) else ""
        while self.peek() not in {"{", ";", ""} and self.peek() in {":", "alignas", "__align__"} | {name}:
            self.at += 1
        if self.peek() == "{":
            if name:
                self.aliases.add(name)
            return [n for n in self._of_written_type(TypeName("?")) if not isinstance(n, Unread)]
        self.at = start
        found = self._declaration()
        if found is None:
            raise UnreadError("struct")
        return found

    def _alias(self) -> list[Node]:
        position, word = self.position(), self.take()
        if word == "using":
            if self.peek() == "namespace" or self.peek(1) != "=":
                self._until(";")
                return []
            name = self.take()
            self.take("=")
            kind = self.type_name()
        else:
            kind = self.type_name()
            name = self.take()
        if self.peek() != ";":
            kind = None
            while self.peek() not in {";", ""}:
                self.at += 1
        self.take(";")
        self.aliases.add(name)
        return [Alias(position, name, kind)]

    # control flow ------------------------------------------------------------------------------------------------

    def _attributes(self) -> None:
        while self.peek() == "[" and self.peek(1) == "[":
            self.skip_bracketed()

    def _if(self) -> Node:
        position = self.position()
        self.take("if")
        constexpr = self.peek() == "constexpr"
        self.at += constexpr
        self.take("(")
        start, before = self.at, list[Node]()
        declared = self._declaration_until({";", ")"})
        if declared is not None:
            before.append(declared)
            if self.peek() == ";":
                self.at += 1
                start = self.at
                test = self.sequence()
            else:
                test = Name(position, declared.name)
        else:
            test = self.sequence()
        text = self.text(start, self.at)
        self.take(")")
        self._attributes()
        then, other = self.one(), None
        if self.peek() == "else":
            self.at += 1
            self._attributes()
            other = self.one()
        made = If(position, test, text, then, other, constexpr)
        return Block(position, [*before, made]) if before else made

    def _declaration_until(self, ends: set[str]) -> Declare | None:
        """One declaration with a value, in the head of an `if`."""
        start = self.at
        kind = self.type_name()
        if kind is not None and _WORD.fullmatch(self.peek()) and self.peek(1) == "=":
            plain = TypeName(kind.name, kind.arguments, 0, False, kind.words)
            made = self._declarator(plain, kind.pointers, kind.reference)
            if self.peek() in ends:
                return made
        self.at = start
        return None

    def _for(self) -> Node:
        position = self.position()
        self.take("for")
        self.take("(")
        begun = self.at
        start: Node | None = None
        kind = self.type_name()
        if kind is not None and _WORD.fullmatch(self.peek()) and self.peek(1) == ":":
            name = self.take()
            self.take(":")
            self.sequence()
            text = self.text(begun, self.at)
            self.take(")")
            return Each(position, name, self.one(), text)
        self.at = begun
        if self.peek() == ";":
            self.at += 1
        else:
            declared = self._declaration()
            if declared is not None:
                start = Block(position, declared)
            else:
                start = Evaluate(position, self.sequence())
                self.take(";")
        test = None if self.peek() == ";" else self.sequence()
        self.take(";")
        step = None if self.peek() == ")" else self.sequence()
        text = self.text(begun, self.at)
        self.take(")")
        self._attributes()
        return For(position, start, test, step, self.one(), text)

    def _while(self) -> Node:
        position, word = self.position(), self.take()
        body = self.one() if word == "do" else None
        if body is not None:
            self.take("while")
        self.take("(")
        begun = self.at
        test = self.sequence()
        text = self.text(begun, self.at)
        self.take(")")
        if body is not None:
            self.take(";")
            return While(position, test, body, text, after=True)
        return While(position, test, self.one(), text)

    def _switch(self) -> Node:
        position = self.position()
        self.take("switch")
        self.take("(")
        begun = self.at
        subject = self.sequence()
        text = self.text(begun, self.at)
        self.take(")")
        self.take("{")
        cases: list[tuple[list[Node], bool, list[Node]]] = []
        while self.peek() != "}":
            values, default = list[Node](), False
            while self.peek() in {"case", "default"}:
                if self.take() == "default":
                    default = True
                else:
                    values.append(self.expression())
                self.take(":")
            if not values and not default:
                raise UnreadError(self.peek())
            statements: list[Node] = []
            while self.peek() not in {"case", "default", "}", ""}:
                statements += self._guarded()
            cases.append((values, default, statements))
        self.take("}")
        return Switch(position, subject, text, cases)

    def _assembly(self) -> Node:
        position = self.position()
        self.at += 1
        while self.peek() in {"volatile", "__volatile__", "goto"}:
            self.at += 1
        self.take("(")
        depth, found = 1, list[Node]()
        while depth:
            if self.peek() == "(":
                inner = self.at
                self.at += 1
                found.append(self.sequence())
                if self.peek() != ")":
                    self.at = inner
                    self.skip_bracketed()
                else:
                    self.at += 1
                continue
            depth -= self.take() == ")"
        end = self.position()
        self.take(";")
        return Assembly(position, end, found)
