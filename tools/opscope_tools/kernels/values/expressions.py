"""Sizes as kernels write them: numbers, and expressions over names of the compiler and quantities of a run.

`combine`, `ceil_div` and `call` make an expression, `render` is the one printer; `notation.read` reads what it prints.
Sums and products lean to the left, so that one printed text is one tree.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeAlias

#: how tightly an expression's outermost operator binds, as Python reads it; `and` and `or` are never mixed bare
ATOM, POWER, UNARY, PRODUCT, SUM, SHIFT, COMPARISON, CONDITION = 11, 10, 9, 8, 7, 6, 2, 1
LEVELS: Mapping[str, int] = {
    **dict.fromkeys(("or", "and"), CONDITION),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "is", "is not", "in", "not in"), COMPARISON),
    "|": 3, "^": 4, "&": 5, "<<": SHIFT, ">>": SHIFT, "+": SUM, "-": SUM,
    **dict.fromkeys(("*", "/", "//", "%", "@"), PRODUCT), "**": POWER,
}  # fmt: skip
#: how tightly operands bind at least, of operators that are not taken from the left
_SIDES = {COMPARISON: (SHIFT, SHIFT), POWER: (ATOM, UNARY)}
#: how formulas write the operators of Python's syntax
SYMBOLS: Mapping[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.MatMult: "@",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.And: "and", ast.Or: "or",
    ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not",
}  # fmt: skip
#: what the operators do with plain values
ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_,
    "|": operator.or_, "^": operator.xor,
}  # fmt: skip
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "is": operator.is_, "is not": operator.is_not, "in": lambda a, b: a in b, "not in": lambda a, b: a not in b,
}  # fmt: skip
#: a comparison -> the same with its sides exchanged
TURNED: Mapping[str, str] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
#: bits of a number that is written out
_MOST_BITS = 256


class Expression:
    """What reading does not reduce to a value. Two are the same where they print the same: one text is one tree."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _printed(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


Size: TypeAlias = int | float | Expression


@dataclass(frozen=True, eq=False)
class Quantity(Expression):
    """One quantity, by name: in braces where a run tells it, bare where the compiler does."""

    name: str
    run_time: bool = False

    def with_text(self, text: str) -> Quantity:
        """Another one that is told when this is."""
        return leaf(text) if self.run_time else Quantity(text)


@dataclass(frozen=True, eq=False)
class Opaque(Expression):
    """Text without inner meaning."""

    written: str


@dataclass(frozen=True, eq=False)
class Prefix(Expression):
    """An operator before a size: its other sign, its bits turned."""

    operator: str
    operand: Size


@dataclass(frozen=True, eq=False)
class Operation(Expression):
    """Two sizes and the operator between them."""

    operator: str
    left: Size
    right: Size


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """A function of sizes by its name (`cdiv`, `min`), as kernels write it."""

    function: str
    arguments: tuple[Size, ...]


@dataclass(frozen=True, eq=False)
class Choice(Expression):
    """The first where the test holds, else the second."""

    first: Size
    test: Size
    second: Size


def _printed(size: Expression) -> str:
    match size:
        case Quantity(name, run_time):
            return f"{{{name}}}" if run_time else name
        case Prefix(symbol, inner):
            return f"{symbol}{' ' * (symbol == 'not')}{render(inner, UNARY)}"
        case Operation(symbol, left, right):
            level = LEVELS[symbol]
            first, second = _SIDES.get(level, (level, level + 1))
            if symbol in {"*", "and", "or"} and isinstance(left, Operation) and left.operator != symbol:
                first += 1  # of others that bind alike, it is shown which comes first
            return f"{render(left, first)} {symbol} {render(right, second)}"
        case Call(function, arguments):
            return f"{function}({', '.join(map(render, arguments))})"
        case Choice(one, test, other):
            return f"({render(one)} if {render(test)} else {render(other)})"
        case Opaque(written):
            return written
    raise TypeError(size)


def _level(size: Expression) -> int:
    if isinstance(size, Operation):
        return LEVELS[size.operator]
    return ATOM if not isinstance(size, Prefix) else COMPARISON if size.operator == "not" else UNARY


def leaf(text: str) -> Quantity:
    """A run-time quantity of the caller."""
    return Quantity(text.replace("{", "").replace("}", ""), run_time=True)


def render(value: Any, precedence: int = 0) -> str:
    """A value as formula text, in parentheses where `precedence` binds tighter."""
    if isinstance(value, Expression):
        return value.text if precedence <= _level(value) else f"({value.text})"
    if isinstance(value, tuple | list):
        inner = ", ".join(render(item) for item in value)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "{a number that no size has}"
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0 and precedence > SUM:
        return f"({value!r})"
    return repr(value)


def operand(value: Any) -> Size:
    """A value of the analysed source as a part of an expression."""
    if isinstance(value, Expression) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    return Opaque(render(value))


def call(function: str, *arguments: Any) -> Call:
    """A call of plain numbers and sizes."""
    return Call(function, tuple(map(operand, arguments)))


def negative(size: Size) -> Size:
    """A size with the other sign."""
    if isinstance(size, Prefix) and size.operator == "-":
        return size.operand
    return Prefix("-", size) if isinstance(size, Expression) else -size


def combine(symbol: str, a: Any, b: Any) -> Size:
    """`left operator right`; `(a + b - 1) // b`, in whatever order it is written, becomes `cdiv(a, b)`."""
    left, right = operand(a), operand(b)
    if symbol == "*" and 1 in (left, right):
        return right if left == 1 else left
    if symbol in "+-" and isinstance(right, int | float) and right <= 0:
        symbol, right = "-" if symbol == "+" else "+", -right
    if 0 in (left, right) and (symbol == "+" or (symbol == "-" and right == 0)):
        return right if left == 0 else left
    if symbol == "//":
        above = _rounded_up(left, right)
        if above is not None:
            return call("cdiv", above, right) if right != 1 else above
        if right == 1 and isinstance(left, Expression):
            return left
    kin = next((kin for kin in ("+-", "*") if symbol in kin and symbol != "-"), "")
    if isinstance(right, Operation) and right.operator in kin:
        return _total(left, _terms(right, kin), symbol)
    return Operation(symbol, left, right)


def ceil_div(a: Any, b: Any) -> Any:
    """`a / b`, rounded up."""
    if b == 1 and isinstance(b, int):
        return a
    return -(-a // b) if isinstance(a, int) and isinstance(b, int) and b else call("cdiv", a, b)


def _rounded_up(numerator: Size, divisor: Size) -> Size | None:
    """`a` where the numerator is `a + divisor - 1`; with a literal divisor the `divisor - 1` may be folded."""
    if not isinstance(numerator, Operation) or numerator.operator not in "+-":
        return None
    if isinstance(divisor, float) or (isinstance(divisor, int) and divisor <= 0):
        return None
    rounding: list[list[tuple[bool, Size]]] = [[*_terms(divisor), (True, -1)]]
    if isinstance(divisor, int):
        rounding.append([(True, divisor - 1)])
    for parts in rounding:
        rest = list(_terms(numerator))[::-1]  # of equal ones the last is taken, as people write it behind
        if all(parts.count(part) <= rest.count(part) for part in parts):
            for part in parts:
                rest.remove(part)
            if rest and rest[-1][0]:
                return _total(rest.pop()[1], reversed(rest))
    return None


def _terms(value: Size, kin: str = "+-") -> Iterator[tuple[bool, Size]]:
    """The parts of a sum with their signs, of which numbers carry their own; or those of a product."""
    pending = [(True, value)]
    while pending:
        plus, one = pending.pop()
        if isinstance(one, Operation) and one.operator in kin:
            pending += [(plus == (one.operator != "-"), one.right), (plus, one.left)]
        else:
            yield (plus, one) if isinstance(one, Expression) else (True, one if plus else -one)


def _total(first: Size, terms: Iterable[tuple[bool, Size]], symbol: str = "+") -> Size:
    return reduce(lambda total, term: combine(symbol if term[0] else "-", total, term[1]), terms, first)


def folded(symbol: str, a: int, b: int) -> int | None:
    """What an operator of C++ makes of two whole numbers; None where that is none of 64 bits."""
    if symbol in COMPARISONS:
        return int(COMPARISONS[symbol](a, b))
    if symbol in {"or", "and"}:
        return int(bool((a or b) if symbol == "or" else (a and b)))
    if symbol in {"<<", ">>"} and not 0 <= b < 64:
        return None
    if symbol in {"/", "//", "%"}:
        if b == 0:
            return None
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # C++ truncates towards zero
        return a - quotient * b if symbol == "%" else quotient
    made: int = ARITHMETIC[symbol](a, b)
    return made if made.bit_length() <= 64 else None


def settled(symbol: str, a: Any, b: Any) -> Any:
    """As `combine`, worked out where both are whole numbers."""
    return ARITHMETIC[symbol](a, b) if isinstance(a, int) and isinstance(b, int) else combine(symbol, a, b)


def joined(symbol: str, tests: Iterable[Any]) -> Expression:
    """Tests one behind the other: `a and b and c`; of one that one."""
    found: Expression = reduce(partial(Operation, symbol), tests)
    return found
