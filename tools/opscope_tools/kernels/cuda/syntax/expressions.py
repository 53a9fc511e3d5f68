"""Syntax of the C++ that stands in CUDA bodies: nodes, and a tolerant recursive-descent parser of types and expressions.

No symbol table: what `a<b>(c)` and `(a)b` mean is told by their form. Whatever does not parse raises `UnreadError`,
which the reader of statements (statements.py) turns into a statement that says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from opscope_tools.kernels.cuda.syntax.nodes import (
    Assign,
    Binary,
    Braced,
    Call,
    Cast,
    Conditional,
    Index,
    Lambda,
    Member,
    Name,
    Node,
    Number,
    Sequence,
    SizeOf,
    TypeName,
    Unary,
)
from opscope_tools.kernels.cuda.syntax.tokens import Token, tidied

_BUILTIN = frozenset(
    "void bool char short int long float double unsigned signed auto half __half wchar_t size_t".split()
)
_QUALIFIERS = frozenset(
    "const constexpr static volatile extern typename register inline mutable __restrict__ __restrict struct class union enum "
    "__shared__ __device__ __constant__ __forceinline__ __host__ thread_local __grid_constant__ consteval __global__".split()
)
#: how a macro is spelled that stands for an attribute (`CUTLASS_GRID_CONSTANT`)
_MACRO = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+")
_MARKS = frozenset({"*", "&", "&&", "const", "volatile", "__restrict__", "__restrict", "..."})
_WITH_PARENTHESES = frozenset({"alignas", "__align__", "__attribute__", "__launch_bounds__"})
_CASTS = frozenset("static_cast reinterpret_cast const_cast dynamic_cast bit_cast".split())
_BINARY = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_ASSIGN = frozenset("= += -= *= /= %= &= |= ^= <<= >>=".split())
_PREFIX = frozenset("- + ! ~ * & ++ --".split())
_NO_OPERAND = frozenset("return else case goto delete new if for while do switch break continue throw".split())
_WORD = re.compile(r"[A-Za-z_]\w*")
#: tokens that are looked at ahead
_AHEAD = 5
#: tokens that a template argument list may be long
_LONGEST_LIST = 300


N = TypeVar("N", bound=Node)


class UnreadError(Exception):
    """Tokens that are no expression or statement of the language that is read."""


@dataclass(slots=True, eq=False)
class Parser:
    """Types and expressions over a list of tokens."""

    tokens: list[Token]
    #: whether a name is known to be a type
    is_type: Callable[[str], bool]
    at: int = 0
    #: what stands in no template list outside of brackets
    no_list: ClassVar[frozenset[str]] = frozenset({"&&", "||", "=", "+=", "?"})
    _lists: dict[int, int] = field(default_factory=dict)
    _words: list[str] = field(default_factory=list)
    _positions: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._words = [*(t.text for t in self.tokens), *[""] * _AHEAD]
        last = self.tokens[-1].position if self.tokens else 0
        self._positions = [*(t.position for t in self.tokens), *[last] * _AHEAD]

    def peek(self, offset: int = 0) -> str:
        """The word that comes next, or some words on; empty at the end."""
        return self._words[self.at + offset]

    def position(self) -> int:
        """Position in the file of the token that comes next."""
        return self._positions[self.at]

    def take(self, expected: str = "") -> str:
        """The word that comes next, passed over; raises `UnreadError` where it is not the expected one."""
        text = self.peek()
        if not text or (expected and text != expected):
            raise UnreadError(text)
        self.at += 1
        return text

    def text(self, start: int, end: int) -> str:
        """The tokens of a range as one line."""
        return tidied(" ".join(t.text for t in self.tokens[start:end]))

    def placed(self, node: N, start: int) -> N:
        """A node, with the tokens that it was read from."""
        node.tokens = self.tokens, start, self.at
        return node

    # types -------------------------------------------------------------------------------------------------------

    def skip_bracketed(self) -> None:
        """Past the bracket that closes the one here."""
        depth = 0
        while True:
            word = self.take()
            depth += (word in "([{") - (word in ")]}")
            if depth == 0:
                return

    def type_name(self) -> TypeName | None:
        """The type that starts here, or None with nothing read."""
        start, words = self.at, set[str]()
        found = self._type_name(words)
        if found is None:
            self.at = start
        return found

    def _type_name(self, words: set[str]) -> TypeName | None:
        name: list[str] = []
        arguments: tuple[str, ...] = ()
        while True:
            word = self.peek()
            if word in _WITH_PARENTHESES and self.peek(1) == "(":
                self.at += 1
                self.skip_bracketed()
            elif word in _QUALIFIERS:
                words.add(word)
                self.at += 1
            elif word in _BUILTIN and (not name or name[-1] in _BUILTIN):
                name.append(word)
                self.at += 1
            elif name:
                break
            elif word == "decltype" and self.peek(1) == "(":
                self.at += 1
                begun = self.at
                self.skip_bracketed()
                name = [f"decltype{self.text(begun, self.at)}"]
            elif word == "::" or (_WORD.fullmatch(word) and word not in _NO_OPERAND):
                spelled, arguments = self._qualified()
                if not spelled:
                    return None
                name = [spelled]
            else:
                return None
        pointers, reference = 0, False
        while (word := self.peek()) in _MARKS or (pointers and self.qualifies()):
            pointers += word == "*"
            reference = reference or word in {"&", "&&"}
            self.at += 1
        return TypeName(" ".join(name), arguments, pointers, reference, frozenset(words))

    def qualifies(self) -> bool:
        """Whether the word here, behind a `*`, is a qualifier that a macro spells."""
        word, following = self.peek(), self.peek(1)
        if not _WORD.fullmatch(word) or word in _NO_OPERAND:
            return False
        if word.upper().endswith("RESTRICT") or following == "const":
            return True
        return _WORD.fullmatch(following) is not None and self.peek(2) in {"=", ";", ",", "(", "{", "[", ")"}

    def _qualified(self) -> tuple[str, tuple[str, ...]]:
        """A name with `::` and template lists; the arguments are those of its last part."""
        text, arguments = "", tuple[str, ...]()
        if self.peek() == "::":
            self.at += 1
        while True:
            if not _WORD.fullmatch(self.peek()):
                return "", ()
            text += self.take()
            arguments = ()
            if self.peek() == "<" and (end := self.list_end(self.at)):
                arguments = self._list(end)
            if self.peek() == "::" and (_WORD.fullmatch(self.peek(1)) or self.peek(1) == "template"):
                self.at += 1
                if self.peek() == "template":
                    self.at += 1
                text += (f"<{', '.join(arguments)}>" if arguments else "") + "::"
                continue
            return text, arguments

    def list_end(self, start: int) -> int:
        """Index after the `>` that closes the `<` at `start`; 0 where it is no template list."""
        if start in self._lists:
            return self._lists[start]
        depth, brackets, found = 0, 0, 0
        for index in range(start, min(len(self.tokens), start + _LONGEST_LIST)):
            word = self.tokens[index].text
            if word in "([":
                brackets += 1
            elif word in ")]":
                brackets -= 1
                if brackets < 0:
                    break
            elif word in {";", "{", "}"} or (not brackets and word in self.no_list):
                break
            elif not brackets and word == "<":
                depth += 1
            elif not brackets and word in {">", ">>"}:  # `>>` closes two lists; shifts in lists stand in parentheses
                depth -= len(word)
                if depth <= 0:
                    found = index + 1 if depth == 0 else 0
                    break
        self._lists[start] = found
        return found

    def _list(self, end: int) -> tuple[str, ...]:
        """The arguments of the template list that ends at `end`."""
        parts, depth, begun = [], 0, self.at + 1
        for index in range(self.at, end):
            word = self.tokens[index].text
            depth += (word in "<([{") - (word in ")]}") - (len(word) if word in {">", ">>"} else 0)
            if (word == "," and depth == 1) or index == end - 1:
                parts.append(self.text(begun, index))
                begun = index + 1
        self.at = end
        return tuple(p for p in parts if p)

    # expressions -------------------------------------------------------------------------------------------------

    def sequence(self) -> Node:
        """An expression, with commas."""
        start, position, parts = self.at, self.position(), [self.expression()]
        while self.peek() == ",":
            self.at += 1
            parts.append(self.expression())
        return parts[0] if len(parts) == 1 else self.placed(Sequence(position, parts), start)

    def expression(self) -> Node:
        """An assignment, a conditional, or anything that binds tighter."""
        start, position = self.at, self.position()
        left = self._binary(1)
        word = self.peek()
        if word == "?":
            text = self.text(start, self.at)
            self.at += 1
            first = self.sequence()
            self.take(":")
            return self.placed(Conditional(position, left, first, self.expression(), text), start)
        if word in _ASSIGN:
            self.at += 1
            value = self.braced() if self.peek() == "{" else self.expression()
            return self.placed(Assign(position, word, left, value), start)
        return left

    def _operator(self) -> str:
        word = self.peek()
        if (
            word == ">"
            and self.peek(1) == ">"
            and self.tokens[self.at + 1].position == self.tokens[self.at].position + 1
        ):
            return ">>"
        return word

    def _binary(self, least: int) -> Node:
        start, left = self.at, self.unary()
        while (level := _BINARY.get(word := self._operator(), 0)) >= least:
            self.at += 1 if self.peek() == word else 2
            left = self.placed(Binary(left.position, word, left, self._binary(level + 1)), start)
        return left

    def unary(self) -> Node:
        """An expression that binds as closely as a sign or a cast."""
        start, word, position = self.at, self.peek(), self.position()
        if word in _PREFIX:
            self.at += 1
            return self.placed(Unary(position, word, self.unary()), start)
        if word == "(" and (cast := self._cast()) is not None:
            operand = self.braced() if self.peek() == "{" else self.unary()
            return self.placed(Cast(position, cast, operand), start)
        if word == "sizeof":
            self.at += 1
            if self.peek() == "...":
                self.at += 1
            begun = self.at
            if self.peek() == "(":
                self.skip_bracketed()
                return SizeOf(position, self.text(begun + 1, self.at - 1))
            self.unary()
            return SizeOf(position, self.text(begun, self.at))
        return self._postfix(self._primary(), start)

    def _cast(self) -> TypeName | None:
        """The type of a `(type)` here, taken; None with nothing read where the parentheses hold an expression."""
        start = self.at
        self.at += 1
        found = self.type_name()
        if found is not None and self.peek() == ")":
            after = self.peek(1)
            operand = _WORD.match(after) is not None or after[:1].isdigit() or after[:1] == "."
            plain = found.name.split(" ")[0] in _BUILTIN or found.pointers > 0 or found.reference
            plain = plain or self.is_type(found.name) or after == "{"
            if (plain or found.arguments) and (operand or after in {"(", "{", "-", "+", "*", "&", "!", "~"}):
                self.at += 1
                return found
            if operand and after not in _BINARY:
                self.at += 1
                return found
        self.at = start
        return None

    def _primary(self) -> Node:
        word, position = self.peek(), self.position()
        if word == "(":
            self.at += 1
            inner = self.sequence()
            self.take(")")
            return inner
        if word == "[":
            return self._lambda()
        if word == "{":
            return self.braced()
        if word[:1].isdigit() or (word[:1] == "." and word[1:2].isdigit()):
            self.at += 1
            return Number(position, word)
        if word in _NO_OPERAND or not (_WORD.fullmatch(word) or word == "::"):
            raise UnreadError(word)
        if word in _BUILTIN or word in {"typename", "const"}:
            found = self.type_name()
            if found is not None and self.peek() == "(":
                self.at += 1
                inner = self.sequence() if self.peek() != ")" else Number(position, "0")
                self.take(")")
                return Cast(position, found, inner)
            if found is not None and self.peek() == "{":
                return Braced(position, found, self.braced().items)
            raise UnreadError(word)
        return self._name()

    def _name(self) -> Node:
        position, text = self.position(), ""
        arguments: tuple[str, ...] | None = None
        if self.peek() == "::":
            self.at += 1
        while True:
            text += self.take()
            arguments = None
            if self.peek() == "<" and (end := self.list_end(self.at)):
                follows = self.tokens[end].text if end < len(self.tokens) else ""
                if follows in {"(", "::", "{", ")", ",", ";", "", "?", "&&", "||", "]", "}", ":", "<<"}:
                    cast = text.rpartition("::")[2] in _CASTS
                    begun = self.at
                    arguments = self._list(end)
                    if cast and follows == "(":
                        return self._named_cast(position, text.rpartition("::")[2], begun + 1, end)
            if self.peek() == "::" and _WORD.fullmatch(self.peek(1)):
                self.at += 1
                if self.peek() == "template":
                    self.at += 1
                text += (f"<{', '.join(arguments)}>" if arguments else "") + "::"
                continue
            if self.peek() == "{":
                return Braced(position, TypeName(text, arguments or ()), self.braced().items)
            return Name(position, text, arguments)

    def _named_cast(self, position: int, word: str, start: int, end: int) -> Node:
        inner = Parser(self.tokens[start : end - 1], self.is_type).type_name()
        self.take("(")
        operand = self.sequence()
        self.take(")")
        if inner is None:
            raise UnreadError(word)
        return Cast(position, inner, operand, word)

    def _postfix(self, node: Node, start: int) -> Node:
        while True:
            if node.tokens is None:
                self.placed(node, start)
            word, position = self.peek(), self.position()
            if word == "(":
                node = self.placed(Call(node.position, node, self.arguments()), start)
            elif word == "[":
                self.at += 1
                index = self.sequence()
                self.take("]")
                node = self.placed(Index(node.position, node, index), start)
            elif word in {".", "->"}:
                self.at += 1
                if self.peek() == "template":
                    self.at += 1
                name = self.take()
                end = self.list_end(self.at) if self.peek() == "<" else 0
                if end and end < len(self.tokens) and self.tokens[end].text == "(":
                    self.at = end
                node = self.placed(Member(node.position, node, name, word == "->"), start)
            elif word in {"++", "--"}:
                self.at += 1
                node = self.placed(Unary(position, word, node, postfix=True), start)
            else:
                return node

    def arguments(self) -> list[Node]:
        """What stands between parentheses; strings were blanked, so that places may be empty."""
        self.take("(")
        found: list[Node] = []
        while self.peek() != ")":
            if self.peek() == ",":
                self.at += 1
                continue
            found.append(self.braced() if self.peek() == "{" else self.expression())
            if self.peek() not in {",", ")"}:
                if self.peek() == "...":
                    self.at += 1
                    continue
                raise UnreadError(self.peek())
        self.take(")")
        return found

    def braced(self) -> Braced:
        """`{a, b}`, designators left out."""
        position = self.position()
        self.take("{")
        items: list[Node] = []
        while self.peek() != "}":
            if self.peek() == "." and self.peek(2) == "=":
                self.at += 3
            items.append(self.braced() if self.peek() == "{" else self.expression())
            if self.peek() == ",":
                self.at += 1
            elif self.peek() != "}":
                raise UnreadError(self.peek())
        self.take("}")
        return Braced(position, None, items)

    def _lambda(self) -> Node:
        position = self.position()
        self.skip_bracketed()
        while _WORD.fullmatch(self.peek()) or self.peek() == "<":  # `__device__`, parameters of a template
            self.at = self.list_end(self.at) or self.at + 1
        parameters = self.parameters() if self.peek() == "(" else []
        behind = self.at
        while self.peek() not in {"{", ""}:
            self.at += 1
        given = [token.text for token in self.tokens[behind : self.at]]
        reference = "->" in given and bool({"&", "&&"} & {given[-1]})
        return Lambda(position, parameters, self.block(), reference)

    def parameters(self) -> list[tuple[TypeName, str]]:
        """(type, name) of each parameter between parentheses."""
        self.take("(")
        found: list[tuple[TypeName, str]] = []
        while self.peek() != ")":
            while _MACRO.fullmatch(self.peek()) and _WORD.fullmatch(self.peek(1)) and self._marked():
                self.at += 1
            kind = self.type_name()
            if kind is None:
                raise UnreadError(self.peek())
            name, dimensions = "", 0
            if self.peek() == "(" and self.peek(1) in {"&", "*"} and self.peek(3) == ")":  # float (&x)[4]
                name = self.peek(2)
                self.at += 4
                if self.peek() == "(":  # a pointer to a function
                    self.skip_bracketed()
            elif _WORD.fullmatch(self.peek()):
                name = self.take()
            while self.peek() == "[":
                self.skip_bracketed()
                dimensions += 1
            if self.peek() == "=":
                self.at += 1
                self.expression()
            pointers, rows = kind.pointers + (dimensions > 0), max(dimensions - 1, 0)
            found.append((TypeName(kind.name, kind.arguments, pointers, kind.reference, kind.words, rows), name))
            if self.peek() == ",":
                self.at += 1
        self.take(")")
        return found

    def _marked(self) -> bool:
        """Whether a word before a parameter is no type but what a macro puts there: type and name follow it."""
        start, self.at = self.at, self.at + 1
        kind = self.type_name()
        named = kind is not None and _WORD.fullmatch(self.peek()) is not None
        self.at = start
        return named

    def block(self) -> Node:
        """A compound statement: of the reader of statements."""
        raise UnreadError("{")
