"""One declaration at a time: its tokens up to the `;`, `{` or `=` that ends its head.

Bracketed stretches are one token each: `(` a parenthesis, `<` the angles of a template, `[` an attribute or an array,
`template` with its list. What stands behind the head (an initialiser, the list of member initialisers, base classes) is
skipped here, so that a `{` that comes back opens a body.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from opscope_tools.source.cpp.text import CppText, matching

_TOKEN = re.compile(r"\s*([A-Za-z_$][\w$]*|::|->|\.\.\.|\d[\w.']*|\S)")
_OPERATOR = re.compile(
    r'operator\s*(?:"\s*"\s*\w+|(?:\(\s*\)|\[\s*\]|(?:new|delete)\b(?:\s*\[\s*\])?|co_await\b|[^\s\w(\[";{:]+)\s*(?=[(<;]))'
)
_CONVERSION_PART = re.compile(r"[<(;{}]")
_ACCESS = re.compile(r"\s*(?:(?:slots|Q_SLOTS)\s*)?:(?!:)")
_PLAIN_ANGLES = re.compile(r"<[^<>(){}\[\];]*>")
_PLAIN_PARENS = re.compile(r"\([^()]*\)")
_ANGLE_PART = re.compile(r"->|<<|>=|[<>(){};]")
_INITIALISER_PART = re.compile(r"[;{}(]")
_BASE_PART = re.compile(r"[;{}(<]")
_LONGEST_NAME = 400  # characters up to the next bracket in the type that an operator converts to
#: characters that a bracket may span, and that all brackets of a file that nothing closes may cost: what has more is no
#: source, and is read without matching those brackets
_FARTHEST, _WASTE = 200_000, 1_000_000

ACCESSES = frozenset({"public", "private", "protected"})
CLASS_KEYS = frozenset({"class", "struct", "union", "enum"})


_EFFECTS = dict.fromkeys(("BEGIN", "OPEN", "START", "ENTER", "PUSH"), "opens") | dict.fromkeys(
    ("END", "CLOSE", "STOP", "EXIT", "POP"), "closes"
)


def namespace_macro(name: str) -> str:
    """`opens` or `closes` where a macro does so with a namespace, told by its name alone, as its definition stands in
    another file; else empty."""
    if "NAMESPACE" not in name or not name.isupper():
        return ""
    return next((_EFFECTS[part] for part in reversed(name.split("_")) if part in _EFFECTS), "")


class Token(NamedTuple):
    """Text, or the opening bracket of a group, and its range of positions."""

    text: str
    start: int
    end: int

    @property
    def word(self) -> bool:
        """Whether it is an identifier or keyword, not a sign or number."""
        return self.text[0].isalpha() or self.text[0] in "_$"


class Statement(NamedTuple):
    """`ending` is `;`, `{`, `=`, `}` (the scope ends), `:` (an access specifier), `macro` (a macro of namespaces
    follows) or empty at the file's end; `end` is
    the ending's position and `head_end` that where the head ends; `clause` is the range of base classes or None."""

    tokens: list[Token]
    ending: str
    end: int
    head_end: int
    clause: tuple[int, int] | None = None


class StatementReader:
    """Reads the statements of one file."""

    def __init__(self, text: CppText) -> None:
        self._code = text.statements
        self._closing = text.closing
        self._waste = _WASTE

    def read(self, position: int, *, in_class: bool) -> Statement:
        """The statement that starts at a position."""
        code, match = self._code, _TOKEN.match
        tokens: list[Token] = []
        keyed = grouped = False
        while True:
            found = match(code, position)
            if found is None:
                return Statement(tokens, "", len(code), len(code))
            text = found[1]
            start, position = found.span(1)
            first = text[0]
            if first.isalpha() or first in "_$":
                if text in ACCESSES and in_class and (after := _ACCESS.match(code, position)):
                    return Statement([Token(text, start, position)], ":", after.end() - 1, start)
                if text == "operator":
                    tokens.append(self._operator(start, position))
                    position = tokens[-1].end
                    continue
                if text == "template":
                    if tokens and tokens[-1].text == "::":
                        continue  # `T::template rebind<U>`
                    after = _TOKEN.match(code, position)
                    if after is not None and after[1] == "<":
                        end = self._angles(after.start(1))
                        position = end if end > 0 else after.end()
                elif text in CLASS_KEYS:
                    keyed = True
                elif "NAMESPACE" in text and tokens and namespace_macro(text):
                    return Statement([], "macro", start - 1, start)
                tokens.append(Token(text, start, position))
            elif first == "(":
                end = self._parens(start)
                position = end if end > 0 else position
                grouped = True
                tokens.append(Token("(", start, position))
            elif first == "<":
                end = self._angles(start) if tokens and tokens[-1].word else -1
                position = end if end > 0 else position
                tokens.append(Token("<" if end > 0 else "less", start, position))
            elif first == "[":
                end = self._bracket(start)
                position = end if end > 0 else position
                tokens.append(Token("[", start, position))
            elif first == ";" or first == "}":
                return Statement(tokens, first, start, start)
            elif first == "{":
                if not _in_requires(tokens):
                    return Statement(tokens, "{", start, start)
                position = self._closing.get(start, start) + 1
                tokens.append(Token("{", start, position))
            elif first == "=" and code[position : position + 1] != "=":
                return Statement(tokens, "=", self.initialiser(position), start)
            elif first == ":" and text == ":" and keyed:
                end = self._bases(position)
                return Statement(tokens, code[end : end + 1], end, start, (position, end))
            elif first == ":" and text == ":" and grouped:
                end = self._member_initialisers(position)
                return Statement(tokens, code[end : end + 1], end, start)
            else:
                tokens.append(Token(text, start, position))

    def _operator(self, start: int, position: int) -> Token:
        """`operator+`, `operator()` or the conversion `operator std::vector<T> &`, as one word."""
        code = self._code
        symbol = _OPERATOR.match(code, start)
        if symbol is not None:
            return Token(re.sub(r"\s+", "", symbol[0]), start, symbol.end())
        end = position
        while (found := _CONVERSION_PART.search(code, end, end + _LONGEST_NAME)) is not None and found[0] == "<":
            behind = self._angles(found.start())
            if behind < 0:
                break
            end = behind
        end = found.start() if found is not None else position
        return Token(re.sub(r" ([*&])", r"\1", " ".join(code[start:end].split())), start, end)

    def initialiser(self, position: int) -> int:
        """Position of the `;` (or of the scope's `}`) behind an initialiser."""
        return self._skip(position, _INITIALISER_PART, ";}")

    def _bases(self, position: int) -> int:
        return self._skip(position, _BASE_PART, ";{}")

    def _skip(self, position: int, part: re.Pattern[str], stops: str) -> int:
        code = self._code
        while True:
            found = part.search(code, position)
            if found is None:
                return len(code)
            at = found.start()
            if found[0] in stops:
                return at
            if found[0] == "{":
                end = self._closing.get(at, at) + 1
            else:
                end = self._parens(at) if found[0] == "(" else self._angles(at)
            position = end if end > 0 else at + 1

    def _member_initialisers(self, position: int) -> int:
        """Position of the `{` of the body behind `: a(1), b{2}`; of a bit field, of its `;`."""
        code, before = self._code, ""
        while True:
            found = _TOKEN.match(code, position)
            if found is None:
                return len(code)
            text, (start, position) = found[1], found.span(1)
            if text in ";}" or (text == "{" and not (before and (before[0].isalnum() or before[0] in "_<"))):
                return start
            end = -1
            if text == "{":
                end = self._closing.get(start, start) + 1
            elif text == "(":
                end = self._parens(start)
            elif text == "<":
                end = self._angles(start)
            position = end if end > 0 else position
            before = text

    def _parens(self, start: int) -> int:
        """Position behind the `)` of a `(`; -1 where there is none."""
        plain = _PLAIN_PARENS.match(self._code, start)
        return plain.end() if plain is not None else self._bracket(start)

    def _bracket(self, start: int) -> int:
        stop = start + min(_FARTHEST, self._waste)
        end = matching(self._code, start, stop)
        return end + 1 if end >= 0 else self._unclosed(start, stop)

    def _unclosed(self, start: int, stop: int) -> int:
        self._waste -= min(stop, len(self._code)) - start
        return -1

    def _angles(self, start: int) -> int:
        """Position behind the `>` of a template's `<`; -1 where it opens no template."""
        plain = _PLAIN_ANGLES.match(self._code, start)
        if plain is not None:
            end = plain.end()
            if self._code[end - 2] != "-" and self._code[end : end + 1] != "=":  # neither `->` nor `>=`
                return end
        code, depth, position = self._code, 0, start
        stop = start + min(_FARTHEST, self._waste)
        while True:
            found = _ANGLE_PART.search(code, position, stop)
            if found is None:
                return self._unclosed(start, stop)
            text, position = found[0], found.end()
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return position
            elif text == "(":
                position = self._parens(position - 1)
                if position < 0:
                    return self._unclosed(start, start)
            elif text == "{":
                position = self._closing.get(position - 1, position - 1) + 1
            elif text in "});":
                return self._unclosed(start, position)


def _in_requires(tokens: list[Token]) -> bool:
    """Whether a `{` opens the body of a requires-expression inside a head."""
    last = [token.text for token in tokens[-2:]]
    return last[-1:] == ["requires"] or last == ["requires", "("]
