"""C++ size expressions as formulas.

A small recursive-descent parser over `+ - * / % << >> ?: && || comparisons`, calls and casts. Integer constants fold,
`(a + b - 1) / b` becomes `cdiv(a, b)`, and a name is settled by the `Resolver` (a local definition, a constant, a
macro), or stays: bare if it is a compile-time name, in braces if it is a run-time one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from opscope_tools.kernels.values.expressions import (
    Call,
    Choice,
    Opaque,
    Operation,
    Prefix,
    Quantity,
    Size,
    call,
    ceil_div,
    combine,
    folded,
    leaf,
    operand,
    render,
)  # fmt: skip
from opscope_tools.kernels.values.quotients import cut

_TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?[uUlLfF]*|[A-Za-z_]\w*|::|->|<<|>>|<=|>=|==|!=|&&|\|\||.)"
)
_CAST = {
    "int",
    "unsigned",
    "long",
    "short",
    "size_t",
    "int64_t",
    "int32_t",
    "uint32_t",
    "uint64_t",
    "uint",
    "float",
    "double",
    "std",
    "const",
    "char",
    "bool",
    "dim3",
    "auto",
}
CEIL_DIV = re.compile(r"^(ceil_?div|div_?up|div_?ceil|cdiv|div_?round_?up|round_up_div|divup|ceildiv)$", re.IGNORECASE)
#: how tightly C++ binds its operators, and how formulas write those that are spelled otherwise
_LEVELS = {o: i for i, one in enumerate("|| && | ^ & ==,!= <,>,<=,>= <<,>> +,- *,/,%".split()) for o in one.split(",")}
_WRITTEN = {"||": "or", "&&": "and", "/": "//"}

#: (name) -> value or None where the name is not known; value: int or Expression
Resolver = Callable[[str], Any]


_FLOAT = "float"
_ROUNDED = frozenset({"ceil", "ceilf", "floor", "floorf"})
#: characters of a size expression
_LONGEST = 4000


class NotAnExpressionError(Exception):
    """Text that this parser does not read."""


def formula(text: str, resolve: Resolver) -> Any:
    """An int or an `Expression`; text that is no size expression, or too long for one, stays one leaf."""
    if len(text) > _LONGEST:
        return leaf(f"{text.strip()[:80]}...")
    textual = getattr(resolve, "textual", None)  # macros are put in as the preprocessor does, before anything is read
    text = text if textual is None else textual(text)
    try:
        parser = _Parser(_TOKEN.findall(text.strip()), resolve)
        value = parser.ternary()
        if parser.position != len(parser.tokens):
            raise NotAnExpressionError(text)
        return _as_whole(value)
    except (NotAnExpressionError, IndexError, RecursionError):
        return leaf(text.strip())


def formula_text(text: str, resolve: Resolver) -> str:
    """The formula of an expression as text."""
    return render(formula(text, resolve))


class _Parser:
    def __init__(self, tokens: list[str], resolve: Resolver) -> None:
        self.tokens = [t for t in tokens if t.strip()]
        self.position = 0
        self.resolve = resolve

    def peek(self, offset: int = 0) -> str:
        index = self.position + offset
        return self.tokens[index] if index < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise NotAnExpressionError(token)
        self.position += 1
        return token

    def ternary(self) -> Any:
        test = self.binary(0)
        if self.peek() != "?":
            return test
        self.take()
        first = self.ternary()
        self.take(":")
        second = self.ternary()
        if isinstance(test, int):
            return first if test else second
        return first if first == second else Choice(first, test, second)

    def binary(self, least: int) -> Any:
        left = self.unary()
        while (level := _LEVELS.get(self.peek(), -1)) >= least:
            token = self.take()
            operator, right = _WRITTEN.get(token, token), self.binary(level + 1)
            if token == "/" and (_real(left) or _real(right)):  # no quotient of whole numbers
                left = Operation("/", _plain(left), _plain(right))
                continue
            left = _operated(operator, left, right)
        return left

    def unary(self) -> Any:
        token = self.peek()
        if token in {"-", "+", "!", "~", "&", "*"}:
            self.take()
            value = self.unary()
            if isinstance(value, int) and token in {"-", "+", "!"}:
                return {"-": -value, "+": value, "!": int(not value)}[token]
            return Prefix("not" if token == "!" else token, value)
        if token == "(" and (length := self._cast()):
            cast = self.tokens[self.position : self.position + length]
            self.position += length
            return _cast_to(cast, self.unary())
        return self.primary()

    def _cast(self) -> int:
        """The number of tokens of a `(type)` in front, 0 where there is none."""
        offset = 1
        while self.peek(offset) in _CAST or (self.peek(offset) in {"::", "*"} and offset > 1):
            offset += 1
        if offset == 1 or self.peek(offset) != ")":
            return 0
        return offset + 1 if re.match(r"[\w(]", self.peek(offset + 1)) else 0

    def primary(self) -> Any:
        token = self.take()
        if token == "(":
            value = self.ternary()
            self.take(")")
            return leaf(f"({render(value)}){self.take()}{self.take()}") if self.peek() in {".", "->"} else value
        if token[0].isdigit():
            return _number(token)
        if not re.match(r"[A-Za-z_]", token):
            raise NotAnExpressionError(token)
        return self.name(token)

    def name(self, first: str) -> Any:
        """A qualified name, with template arguments, members and calls."""
        text = first
        while True:
            following = self.peek()
            if following in {"::", ".", "->"} and re.match(r"[A-Za-z_]", self.peek(1)):
                text += self.take() + self.take()
            elif following == "<" and (length := self._template()):
                text += "".join(self.tokens[self.position : self.position + length])
                self.position += length
            elif following == "[":
                text += self._bracketed("[", "]")
            elif following == "(":
                value = self._called(text)
                if not (isinstance(value, Quantity) and self.peek() in {"::", ".", "->", "["}):
                    return value
                text = value.name
            else:
                break
        if text in {"true", "false"}:
            return int(text == "true")
        known = self.resolve(text)
        return known if known is not None else leaf(text)

    def _template(self) -> int:
        """The number of tokens of a `<...>` that is followed by `(`, `::` or an end; 0 where `<` compares."""
        depth, offset = 0, 0
        while token := self.peek(offset):
            depth += {"<": 1, "<<": 2, ">": -1, ">>": -2}.get(token, 0)
            offset += 1
            if depth <= 0:
                return offset if self.peek(offset) in {"(", "::", "", ",", ")"} and depth == 0 else 0
            if token in {";", "&&", "||", "?", "=="}:
                return 0
        return 0

    def _bracketed(self, opening: str, closing: str) -> str:
        depth, text = 0, ""
        while True:
            token = self.take()
            depth += (token == opening) - (token == closing)
            text += token
            if depth == 0:
                return text

    def _called(self, name: str) -> Any:
        start = self.position
        self.take("(")
        arguments: list[Any] = []
        while self.peek() != ")":
            arguments.append(self.ternary())
            if self.peek() == ",":
                self.take()
        self.take(")")
        last = re.sub(r"<.*", "", name).rpartition("::")[2]
        if last in {"static_cast", "reinterpret_cast"} or last in _CAST:
            return (
                _cast_to(re.findall(r"\w+", name), arguments[0])
                if len(arguments) == 1
                else leaf(f"{name}({', '.join(map(render, arguments))})")
            )
        if CEIL_DIV.match(last) and len(arguments) == 2:
            return ceil_div(*arguments)
        if last in {"min", "max"} and len(arguments) >= 2:
            if all(isinstance(a, int) for a in arguments):
                return min(arguments) if last == "min" else max(arguments)
            return call(last, *arguments)
        if (
            last in _ROUNDED
            and len(arguments) == 1
            and isinstance(arguments[0], Operation)
            and arguments[0].operator == "/"
        ):
            above, below = arguments[0].left, arguments[0].right
            if not _real(above) and not _real(below):
                return ceil_div(above, below) if last.startswith("ceil") else combine("//", above, below)
        arguments = [_plain(argument) for argument in arguments]
        known = self.resolve(name + " ".join(self.tokens[start : self.position]))
        if known is not None:
            return known
        text = f"{name}({', '.join(render(a) for a in arguments)})"
        compile_time = last in {"sizeof", "size", "cosize_v", "alignof"} and "{" not in text
        return Quantity(text) if compile_time else leaf(text)


def _operated(operator: str, left: Any, right: Any) -> Any:
    """What an operator makes of whole numbers: quotients are cut towards none, by divisors that are taken to be above it."""
    both = isinstance(left, int) and isinstance(right, int)
    found: Size | None = folded(operator, left, right) if both else None
    if found is None and operator in {"//", "%"}:
        found = cut(operator, operand(left), operand(right))
    return combine(operator, left, right) if found is None else found


def _real(value: Any) -> bool:
    """Whether arithmetic on it is of real numbers."""
    if isinstance(value, Opaque):
        return re.fullmatch(r"[\d.]+(?:[eE][-+]?\d+)?[fF]?", value.written) is not None
    if isinstance(value, Operation):
        return value.operator == "/" or _real(value.left) or _real(value.right)
    return isinstance(value, Call) and value.function == _FLOAT


def _plain(value: Any) -> Any:
    """Without the cast that made it real; a literal that is whole as such."""
    if isinstance(value, Call) and value.function == _FLOAT:
        return _plain(value.arguments[0])
    if isinstance(value, Opaque) and _real(value) and (number := float(value.written.rstrip("fF"))).is_integer():
        return int(number)
    if isinstance(value, Operation):
        return Operation(value.operator, _plain(value.left), _plain(value.right))
    return value


def _cast_to(words: list[str], value: Any) -> Any:
    """A value as one of another type, where that makes another division of it."""
    if {"float", "double"} & set(words):
        return value if _real(value) else Call(_FLOAT, (value,))
    return _as_whole(value)


def _as_whole(value: Any) -> Any:
    """A real number as an integer holds it: a quotient is rounded off."""
    if isinstance(value, Operation) and value.operator == "/" and not _real(value.left) and not _real(value.right):
        return _operated("//", value.left, value.right)
    return _plain(value) if isinstance(value, Call) else value


def _number(token: str) -> Any:
    digits = token.rstrip("uUlL")
    try:
        return int(digits, 0)
    except ValueError:
        return Opaque(token)


__all__ = ["Resolver", "formula", "formula_text"]
