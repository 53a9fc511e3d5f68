"""The kernels' notation: the one reader of formula text, and what is asked of formulas: their names, numbers and sums.

A run-time quantity stands in braces and a compile-time one bare; `expressions.render` prints what `read` reads. `Counts`
adds formulas up in the exact algebra of `Formula` and keeps as one factor what that does not take apart (`cdiv({K}, BLOCK_K)`).
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial, reduce
from typing import Any

from opscope_schemas.formula import Formula, Rational, over

from opscope_tools.kernels.values.expressions import (
    ARITHMETIC,
    ATOM,
    COMPARISONS,
    SYMBOLS,
    Call,
    Choice,
    Expression,
    Opaque,
    Operation,
    Prefix,
    Quantity,
    Size,
    combine,
    joined,
    negative,
    render,
)  # fmt: skip

#: a run-time quantity, or a compile-time one that is no name of Python: `sizeof(T)`, `Traits::kBlockM`
_NAME = re.compile(r"\{([^{}]*+)\}|(sizeof\([^()]*+\)|(?<!\w)[A-Za-z_]\w*+(?:<[^<>()+*/-]*+>)?(?:::[A-Za-z_]\w*+)++)")
_STAND_IN = re.compile(r"__(\d+)__")
_MOST_BITS = 4096


@lru_cache(maxsize=8192)
def read_size(text: str) -> Size:
    """The size that a text writes; what is no expression is opaque."""
    if text.isdecimal():
        return int(text)
    names: list[Quantity] = []

    def put(match: re.Match[str]) -> str:
        names.append(Quantity(match[1] or match[2], match[1] is not None))
        return f" __{len(names) - 1}__ "

    try:
        return _size(ast.parse(_NAME.sub(put, text).strip(), mode="eval").body, names)
    except (SyntaxError, ValueError, RecursionError):
        return Opaque(text)


def _size(node: ast.expr, names: Sequence[Quantity]) -> Size:
    """The size that Python's tree tells; `names` are those that others stand in for, since Python does not have them."""

    def written(part: ast.expr) -> str:
        return _STAND_IN.sub(lambda found: names[int(found[1])].text, ast.unparse(part))

    def of(*inner: ast.expr) -> Iterator[Size]:
        return (_size(one, names) for one in inner)

    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            found = _STAND_IN.fullmatch(name)
            return names[int(found[1])] if found else Quantity(name)
        case ast.Attribute() | ast.Subscript():
            return Quantity(written(node))
        case ast.BinOp(left=left, op=op, right=right):
            return combine(SYMBOLS[type(op)], *of(left, right))
        case ast.UnaryOp(op=op, operand=operand):
            return negative(*of(operand)) if isinstance(op, ast.USub) else Prefix(SYMBOLS[type(op)], *of(operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return Operation(SYMBOLS[type(op)], *of(left, right))
        case ast.BoolOp(op=op, values=values):
            return joined(SYMBOLS[type(op)], of(*values))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return Choice(*of(body, test, orelse))
        case ast.Call(func=function, args=arguments, keywords=[]):
            return Call(written(function), tuple(of(*arguments)))
    return Opaque(written(node))


def product(texts: Sequence[str]) -> str:
    """The formulas multiplied, ones left out."""
    one: Size = 1
    return render(reduce(partial(combine, "*"), map(read_size, texts), one)) if texts else ""


def parts(size: Any) -> Iterator[Expression]:
    """An expression and all that it is made of."""
    pending = [size]
    while pending:
        one = pending.pop()
        if isinstance(one, Expression):
            yield one
        inner = vars(one).values() if isinstance(one, Expression) else one if isinstance(one, tuple) else ()
        pending += reversed(list(inner))


def of_run(number: Size | None) -> bool:
    """Whether a run tells it, the compiler alone does not."""
    return any(isinstance(part, Quantity) and part.run_time for part in parts(number))


def names_of(formula: str | Size) -> list[str]:
    """The quantities that a formula's value depends on, as they are to be given: without braces."""
    size = read_size(formula) if isinstance(formula, str) else formula
    found = [part for part in parts(size) if isinstance(part, Quantity)]
    return list(dict.fromkeys(part.name for part in sorted(found, key=lambda part: not part.run_time)))


def evaluate(text: str, values: Mapping[str, int]) -> Fraction | None:
    """The number that a formula gives, exactly; None where a quantity is not given or it is no arithmetic."""
    number = exact(read_size(text), values)
    return None if number is None else Fraction(number)


def exact(size: Size, values: Mapping[str, int], *, signs: bool = True) -> Rational | None:
    """As `evaluate`, whole numbers as such; without `signs` None where languages differ: quotients of what is negative, beyond 64 bits."""
    try:
        return _number(size, values, signs)
    except (KeyError, ValueError, TypeError, ZeroDivisionError, RecursionError):
        return None


def holds(test: Size, values: Mapping[str, int]) -> bool | None:
    """Whether a test holds where its quantities have these values; None where that is not told."""
    match test:
        case Operation(operator="and" | "or" as word, left=left, right=right):
            ends, answers = word == "or", [holds(side, values) for side in (left, right)]
            return ends if ends in answers else None if None in answers else not ends
        case Prefix(operator="not", operand=inner):
            answer = holds(inner, values)
            return None if answer is None else not answer
    number = exact(test, values, signs=False)
    return None if number is None else bool(number)


def _cdiv(a: Rational, b: Rational) -> int:
    return -(-a // b)


_FUNCTIONS: Mapping[str, Callable[..., Rational]] = {
    "cdiv": _cdiv, "min": min, "minimum": min, "max": max, "maximum": max, "ceil": math.ceil, "floor": math.floor,
    "gcd": lambda a, b: math.gcd(int(a), int(b)), "next_power_of_2": lambda a: 1 << max(math.ceil(a) - 1, 0).bit_length(),
}  # fmt: skip
#: of these one number is worked out, of the others it is itself
_OF_ONE = {"ceil", "floor", "next_power_of_2"}
#: comparisons of numbers, operators whose second number is to be small, and those that languages define otherwise for what is negative
_COMPARED, _BOUNDED, _CUT = {"==", "!=", "<", "<=", ">", ">="}, {"**", "<<", ">>"}, {"//", "%", "<<", ">>"}


def _number(size: Size, values: Mapping[str, int], signs: bool) -> Rational:
    match size:
        case int():
            return int(size)
        case Quantity(name=name):
            return values[name]
        case Prefix(operator="-", operand=operand):
            return -_number(operand, values, signs)
        case Choice(first=first, test=test, second=second):
            return _number(first if _number(test, values, signs) else second, values, signs)
        case Operation(operator=symbol, left=left, right=right):
            return _result(symbol, _number(left, values, signs), _number(right, values, signs), signs)
        case Call(function=function, arguments=arguments):
            function = function.rpartition(".")[2]
            if (known := _FUNCTIONS.get(function)) is None:
                return values[size.text]
            numbers = [_number(argument, values, signs) for argument in arguments]
            if not signs and function == "cdiv" and min(numbers) < 0:
                raise ValueError(size)
            if function in _OF_ONE:
                return known(*numbers)
            if len(numbers) == 2 or (numbers and function != "cdiv"):
                return known(*numbers) if len(numbers) > 1 else numbers[0]
    raise ValueError(size)


def _result(symbol: str, a: Rational, b: Rational, signs: bool) -> Rational:
    """What an operator makes of two numbers."""
    if max(a.numerator.bit_length(), b.numerator.bit_length()) > _MOST_BITS:
        raise ValueError("too large")
    if symbol in _COMPARED:
        return int(COMPARISONS[symbol](a, b))
    if (symbol in _BOUNDED and not (b.denominator == 1 and 0 <= b <= 64)) or (
        not signs and symbol in _CUT and min(a, b) < 0
    ):
        raise ValueError("another number in other languages")
    made: Rational = over(a, b) if symbol == "/" else ARITHMETIC[symbol](a, int(b) if symbol in _BOUNDED else b)
    if not signs and made.numerator.bit_length() > 64:
        raise ValueError("too large")
    return made


class Counts:
    """Formulas of one kernel; factors that stay whole are numbered in the order in which they turn up."""

    def __init__(self) -> None:
        self._factors: dict[str, Formula] = {}

    def whole(self, size: Size) -> Formula:
        """A factor that is not taken apart, shown as written."""
        text = render(size, ATOM)
        return self._factors.setdefault(text, Formula.opaque(text, len(self._factors)))

    def factor(self, size: str | Size) -> Formula:
        """As `read`, but a sum stays whole: products of many sums would not fit on a page, or in memory."""
        size = read_size(size) if isinstance(size, str) else size
        found = self.read(size)
        return found if len(found.terms) < 2 else self.whole(size)

    def size(self, shape: Iterable[str | Size]) -> Formula:
        """Elements of a tile."""
        return reduce(lambda total, part: total * self.factor(part), shape, Formula.const(1))

    def read(self, size: str | Size) -> Formula:
        """A size, or the text of one, as a formula."""
        match read_size(size) if isinstance(size, str) else size:
            case int(value):
                return Formula.const(value)
            case Prefix(operator="-", operand=operand):
                return -self.read(operand)
            case Operation(operator="+" | "-" | "*" as symbol, left=left, right=right):
                made: Formula = ARITHMETIC[symbol](self.read(left), self.read(right))
                return made
            case Operation(operator="//", left=int(a), right=int(b)) if b:
                return Formula.const(a // b)
            case other:
                return self.whole(other)


__all__ = ["Counts", "evaluate", "exact", "holds", "names_of", "of_run", "parts", "product", "read_size"]
