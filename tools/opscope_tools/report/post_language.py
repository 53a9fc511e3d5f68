"""The little language in which a post speaks of its records: `record.field` names, arithmetic, comparisons, `and`, `within(a, b, percent)`.

A claim is an expression that is true or not: `attention-caches.naive_512_l1_misses > 10 * attention-caches.blocked_512_l1_misses`. A derived number is one
that comes to a number. Texts stand in single quotes: `products.decode_path == 'mkl_blas_def_xsgemv'`. Nothing else is read, and
nothing of it is ever handed to Python.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["NAME", "ExpressionError", "UnheldError", "names_in", "value_of"]

Value = float | int | str | bool
#: a fact: a record and one of its fields, or a number that the post derives (`post.field`)
NAME = r"[a-z][a-z0-9-]*\.[A-Za-z0-9_]+"
_TOKEN = re.compile(
    rf"(?P<name>{NAME})|(?P<number>\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?)|'(?P<text>[^']*)'|(?P<word>and|within)\b|(?P<sign><=|>=|==|!=|[-+*/()<>,])"
)
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


class ExpressionError(ValueError):
    """What is wrong with an expression."""


class UnheldError(LookupError):
    """A fact that no record has here; its name."""


def names_in(text: str) -> tuple[str, ...]:
    """The facts that an expression names, in order, each once."""
    return tuple(dict.fromkeys(found["name"] for found in _TOKEN.finditer(text) if found["name"]))


def value_of(text: str, facts: Mapping[str, Value]) -> Value:
    """What an expression comes to. Raises `ExpressionError` for what is none, and `UnheldError` for a fact that is not there."""
    reader = _Reader(text, facts)
    found = reader.conjunction()
    if reader.at < len(reader.tokens):
        raise ExpressionError(f"`{text}`: nothing is expected at {reader.tokens[reader.at][1]!r}.")
    return found


@dataclass
class _Reader:
    """Reads tokens from the left; one method for each strength of binding."""

    text: str
    facts: Mapping[str, Value]
    at: int = 0
    tokens: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        place, end = 0, len(self.text)
        while place < end:
            if self.text[place].isspace():
                place += 1
                continue
            found = _TOKEN.match(self.text, place)
            if found is None or found.lastgroup is None:
                raise ExpressionError(f"`{self.text}`: {self.text[place : place + 20]!r} is no part of an expression.")
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            place = found.end()

    def _next(self, *wanted: str) -> str:
        """The next token where it is one of those, else ''."""
        if (
            self.at < len(self.tokens)
            and self.tokens[self.at][0] in ("sign", "word")
            and self.tokens[self.at][1] in wanted
        ):
            self.at += 1
            return self.tokens[self.at - 1][1]
        return ""

    def _expect(self, sign: str) -> None:
        if not self._next(sign):
            raise ExpressionError(f"`{self.text}`: {sign!r} is expected.")

    def conjunction(self) -> Value:
        found = self.comparison()
        while self._next("and"):
            other = self.comparison()
            found = bool(found) and bool(other)
        return found

    def comparison(self) -> Value:
        left = self.sum()
        held, compared = True, False
        while sign := self._next(*_COMPARED):
            right, compared = self.sum(), True
            if isinstance(left, str) != isinstance(right, str):
                raise ExpressionError(f"`{self.text}`: a text is compared with a number.")
            held = held and _COMPARED[sign](left, right)
            left = right
        return held if compared else left

    def sum(self) -> Value:
        found = self.product()
        while sign := self._next("+", "-"):
            one, other = _number(found, self.text), _number(self.product(), self.text)
            found = one + other if sign == "+" else one - other
        return found

    def product(self) -> Value:
        found = self.single()
        while sign := self._next("*", "/"):
            one, other = _number(found, self.text), _number(self.single(), self.text)
            if sign == "/" and other == 0:
                raise ExpressionError(f"`{self.text}` divides by zero.")
            found = one * other if sign == "*" else one / other
        return found

    def single(self) -> Value:
        if self._next("("):
            found = self.conjunction()
            self._expect(")")
            return found
        if self._next("within"):
            return self._within()
        if self._next("-"):
            return -_number(self.single(), self.text)
        if self.at >= len(self.tokens):
            raise ExpressionError(f"`{self.text}` ends too early.")
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "name":
            if text not in self.facts:
                raise UnheldError(text)
            return self.facts[text]
        if kind == "number":
            return float(text.replace("_", "")) if re.search(r"[.e]", text) else int(text.replace("_", ""))
        if kind == "text":
            return text
        raise ExpressionError(f"`{self.text}`: {text!r} is not expected there.")

    def _within(self) -> bool:
        """`within(a, b, percent)`: a differs from b by at most so many percent of b."""
        self._expect("(")
        parts = [_number(self.sum(), self.text)]
        for _ in range(2):
            self._expect(",")
            parts.append(_number(self.sum(), self.text))
        self._expect(")")
        one, other, percent = parts
        return abs(one - other) <= percent / 100 * abs(other)


def _number(value: Value, text: str) -> float | int:
    if isinstance(value, str):
        raise ExpressionError(f"`{text}` calculates with a text.")
    return value
