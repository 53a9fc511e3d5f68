"""The formula language: exact integer arithmetic over named variables, as text that is safe to read.

Two independent halves. `evaluate`, `holds` and `variables` read a formula's text with Python's own parser, allow only
the arithmetic below and compute with exact rationals; nothing is ever passed to `eval`. `Formula` is the algebra that
writes such text: a polynomial with integer (or exact rational) coefficients whose generators are variables and the
calls `//`, `%`, `ceil(a / b)`, `min`, `max`; it adds, multiplies, substitutes and prints itself factored.

Grammar: integers, `{name}`, `+ - * / // % **`, parentheses, `min max ceil floor`; conditions add one comparison
(`== != < <= > >=`), and `and`, `or`, `not` between comparisons.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, reduce
from typing import Any, TypeAlias, TypeVar, Union

from opscope_schemas.errors import ValuesError

__all__ = [
    "STANDARD_ORDER",
    "Call",
    "Formula",
    "Monomial",
    "Rational",
    "approximated",
    "comparisons",
    "evaluate",
    "exactly",
    "holds",
    "over",
    "same_form",
    "turns",
    "variables",
    "whole_bytes",
]

#: the order in which products name their factors; other variables follow alphabetically
STANDARD_ORDER = (
    "num_layers", "batch_size", "encoder_seq_len", "seq_len", "cache_len", "num_heads", "num_kv_heads", "head_dim",
    "num_experts", "num_experts_per_tok", "hidden_size", "intermediate_size", "moe_intermediate_size", "vocab_size",
    "image_height", "image_width", "num_frames",
)  # fmt: skip
_TRAILING = ("w_bytes", "a_bytes", "kv_bytes")
_PER_ELEMENT = "_bytes"
_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MAX_LENGTH = 200_000
_MAX_EXPONENT = 64
_MAX_BITS = 4096
_MAX_DEPTH = 400
_MAX_TERMS = 4000  # of formulas that are compared
_MAX_PARSED = 20_000  # of a formula that is read
_MAX_CALLS = 60  # divisions, minima and maxima inside one another
_MAX_PRODUCTS = 250_000  # of two sums multiplied out: some seconds
_MAX_POWER = 4096  # of a formula whose own exponents were within their limit
_MAX_RESULT = 8192  # bits: beyond any cost, short of what Python refuses to print
_WORDS = {"min", "max", "ceil", "floor", "and", "or", "not"}
_PREFIX = "v_"  # keeps a variable called `lambda` or `min` apart from Python's words


# ---------------------------------------------------------------- reading


@lru_cache(maxsize=4096)
def _tree(text: str) -> ast.expr:
    if len(text) > _MAX_LENGTH:
        raise ValuesError(f"The formula is {len(text)} characters long, over the limit of {_MAX_LENGTH}.")
    bare = set(re.findall(r"[A-Za-z_]\w*", _NAME.sub(" ", text))) - _WORDS
    if bare:
        raise ValuesError(f"{text[:200]!r} is not a formula: it names {sorted(bare)[0]!r} without braces.")
    try:
        parsed = ast.parse(_NAME.sub(rf" {_PREFIX}\1 ", text).strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValuesError(f"{text[:200]!r} is not a formula.", next_step="Write variables in braces.") from None
    _check_depth(parsed.body, text)
    return parsed.body


def _check_depth(root: ast.expr, text: str) -> None:
    """Refuse what the recursive readers below could not walk; sums of many terms nest one level a term."""
    level: list[ast.AST] = [root]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise ValuesError(f"The formula {text[:60]!r}... nests deeper than {_MAX_DEPTH} levels.")


def variables(text: str) -> frozenset[str]:
    """The variables that a formula or condition names.

    >>> sorted(variables("2 * {batch_size} * {seq_len}"))
    ['batch_size', 'seq_len']
    """
    return frozenset(_NAME.findall(text))


#: whole numbers stay ints, which are several times faster; only a division makes a fraction
Rational: TypeAlias = int | Fraction


def evaluate(text: str, values: Mapping[str, Rational]) -> int:
    """The exact integer that the formula has at `values`.

    Raises `ValuesError` for a variable that is not bound, a division by zero, a result that is not an integer, and
    anything outside the grammar.

    >>> evaluate("2 * {batch_size} * ({seq_len} + 1)", {"batch_size": 2, "seq_len": 3})
    16
    """
    result = exactly(text, values)
    if result.denominator != 1:
        raise ValuesError(f"The formula {text[:200]!r} is {result} at these values, which is not an integer.")
    return int(result)


def whole_bytes(text: str, values: Mapping[str, Rational]) -> int:
    """As `evaluate`, rounded up: a fraction of a byte takes a byte. Elements of 4 bits may be odd in number.

    >>> whole_bytes("{n} * {w_bytes}", {"n": 3, "w_bytes": Fraction(1, 2)})
    2
    """
    return math.ceil(exactly(text, values))


def exactly(text: str, values: Mapping[str, Rational]) -> Rational:
    """As `evaluate`, of what may be a fraction: parts of bytes add up before any is rounded.

    >>> exactly("{n} * {w_bytes}", {"n": 3, "w_bytes": Fraction(1, 2)})
    Fraction(3, 2)
    """
    return _bounded(_exact(text)(values), text)


@lru_cache(maxsize=65536)
def approximated(text: str) -> Callable[[Mapping[str, float]], float]:
    """The formula as a function for thousands of points: `evaluate` without its checks of size.

    It computes in floating point where a value or a quotient is no whole number, and gives about fifteen digits then.

    >>> approximated("2 * {n} / 3")({"n": 6})
    4
    """
    return _function(_tree(text), text, _FAST)


@lru_cache(maxsize=65536)
def _exact(text: str) -> Callable[[Mapping[str, Rational]], Rational]:
    return _function(_tree(text), text, _EXACT)


def holds(condition: str, values: Mapping[str, Rational]) -> bool:
    """Whether a condition such as `{cache_len} < {sliding_window}` is true at `values`."""
    return _condition(condition)(values)


@lru_cache(maxsize=65536)
def _condition(text: str) -> Callable[[Mapping[str, Rational]], bool]:
    return _truth(_tree(text), text)


_SIGNS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
Comparison: TypeAlias = "tuple[Formula, str, Formula]"


def comparisons(condition: str) -> list[list[Comparison]]:
    """A condition as alternatives, each a list of comparisons that all hold.

    Raises `ValuesError` for what is no condition, and for one with too many alternatives.

    >>> [[f"{a} {sign} {b}" for a, sign, b in one] for one in comparisons("{a} > 1 or not ({a} == {b})")]
    [['{a} > 1'], ['{a} != {b}']]
    """
    return _alternatives(_tree(condition), condition, turned=False)


def _alternatives(node: ast.expr, text: str, *, turned: bool) -> list[list[Comparison]]:
    match node:
        case ast.UnaryOp(op=ast.Not()):
            return _alternatives(node.operand, text, turned=not turned)
        case ast.BoolOp(op=op, values=parts):
            below = [_alternatives(part, text, turned=turned) for part in parts]
            if isinstance(op, ast.Or) is not turned:
                return [one for alternatives in below for one in alternatives]
            if math.prod(map(len, below)) > _MAX_CALLS:
                raise ValuesError(f"{text[:200]!r} has too many alternatives.")
            return [[c for part in choice for c in part] for choice in itertools.product(*below)]
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            sign = _SIGNS.get(type(op), "")
            if sign:
                return [[(_build(left, text), _OPPOSITE[sign] if turned else sign, _build(right, text))]]
    raise ValuesError(f"{text[:200]!r} is not a condition.")


def turns(text: str) -> frozenset[int]:
    """The constants at which a formula may turn: the value of every part without a variable, where it has one.

    >>> sorted(turns("max({seq_len}, 2 * 512)"))
    [2, 512, 1024]
    """
    found: set[int] = set()
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.expr) and not any(isinstance(part, ast.Name) for part in ast.walk(node)):
            with contextlib.suppress(ValuesError):
                found.add(abs(math.floor(_function(node, text, _EXACT)({}))))
    return frozenset(found)


def same_form(a: str, b: str) -> bool:
    """Whether algebra shows two formulas to be equal; one that would take long to multiply out is not tried."""
    try:
        return all(_spread(_tree(text)) <= _MAX_TERMS for text in (a, b)) and Formula.parse(a) == Formula.parse(b)
    except ValuesError:
        return False


def _spread(node: ast.AST) -> int:
    """At most how many terms a formula has once multiplied out."""
    below = [_spread(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    match node:
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int(power))):
            return min(int(below[0] ** min(abs(power), _MAX_EXPONENT)), _MAX_PARSED + 1)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return sum(below)
        case ast.Call() | ast.UnaryOp() | ast.BinOp(op=ast.FloorDiv() | ast.Mod() | ast.Div()):
            return max(below, default=1)
    return min(math.prod(below), _MAX_PARSED + 1)


Number = TypeVar("Number", Rational, float)
_Of: TypeAlias = Callable[[Mapping[str, Number]], Number]
#: of two functions of the values, and the text of an error
_Join: TypeAlias = Callable[[_Of[Number], _Of[Number], str], _Of[Number]]


def _truth(node: ast.expr, text: str) -> Callable[[Mapping[str, Rational]], bool]:
    match node:
        case ast.BoolOp(op=op, values=values):
            parts, quantifier = [_truth(part, text) for part in values], all if isinstance(op, ast.And) else any
            return lambda values: quantifier(part(values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _truth(operand, text)
            return lambda values: not inner(values)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _SIGNS:
            a, b, compare = _function(left, text, _EXACT), _function(right, text, _EXACT), _COMPARE[_SIGNS[type(op)]]
            return lambda values: compare(a(values), b(values))
    raise ValuesError(f"{text[:200]!r} is not a condition.")


def _function(node: ast.expr, text: str, arithmetic: Mapping[type[ast.operator], _Join[Number]]) -> _Of[Number]:
    """The formula, read once, as a function of the values."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in arithmetic:
            return arithmetic[type(op)](_function(left, text, arithmetic), _function(right, text, arithmetic), text)
        case ast.Name(id=name) if name.startswith(_PREFIX):
            name = name[len(_PREFIX) :]

            def value(values: Mapping[str, Number]) -> Number:
                try:
                    return values[name]
                except KeyError:
                    raise ValuesError(
                        f"The variable {{{name}}} has no value.", next_step="Give it in `values`."
                    ) from None

            return value
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return lambda _: number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _function(operand, text, arithmetic)
            return lambda values: -inner(values)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _function(operand, text, arithmetic)
        case ast.Call(func=ast.Name(id="min" | "max" | "ceil" | "floor" as name), args=args, keywords=[]) if args:
            each, called = [_function(arg, text, arithmetic) for arg in args], _CALLED[name]
            if len(each) > 1 and name in ("ceil", "floor"):
                raise ValuesError(f"{name} takes one argument in {text[:200]!r}.")
            if len(each) == 1:
                only = each[0]
                return only if name in ("min", "max") else lambda values: called(only(values))
            return lambda values: called(*(one(values) for one in each))
    raise ValuesError(f"{text[:200]!r} is not a formula: it may hold integers, {{variables}} and arithmetic only.")


def _by_zero(text: str) -> ValuesError:
    return ValuesError(f"The formula {text[:200]!r} divides by zero at these values.")


def _quotient(a: float, b: float, text: str) -> float:
    if b == 0:
        raise _by_zero(text)
    return a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b


def _bits(number: Rational) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def _bounded(number: Rational, text: str) -> Rational:
    if number.numerator.bit_length() > _MAX_RESULT or number.denominator.bit_length() > _MAX_RESULT:
        raise ValuesError(f"The formula {text[:200]!r} is a number of over {_MAX_RESULT} bits at these values.")
    return number


def _ratio(a: Rational, b: Rational, text: str) -> Rational:
    if b == 0:
        raise _by_zero(text)
    return _bounded(over(a, b), text)


def _floored(a: Rational, b: Rational, text: str) -> Rational:
    if b == 0:
        raise _by_zero(text)
    return a // b


def _rest(a: Rational, b: Rational, text: str) -> Rational:
    if b == 0:
        raise _by_zero(text)
    return a % b


def _power(a: Rational, b: Rational, text: str) -> Rational:
    if b.denominator == 1 and 0 <= b <= _MAX_EXPONENT and _bits(a) * b <= _MAX_BITS:
        return a ** int(b)
    raise ValuesError(f"{text[:200]!r} has too large an exponent, or one that is no whole number.")


# each operator as its own closure: a call fewer at every node than one that is told its operator
_EXACT: Mapping[type[ast.operator], _Join[Rational]] = {
    ast.Mult: lambda a, b, text: lambda v: _bounded(a(v) * b(v), text), ast.Add: lambda a, b, _: lambda v: a(v) + b(v),
    ast.Sub: lambda a, b, _: lambda v: a(v) - b(v), ast.Div: lambda a, b, text: lambda v: _ratio(a(v), b(v), text),
    ast.FloorDiv: lambda a, b, text: lambda v: _floored(a(v), b(v), text), ast.Mod: lambda a, b, text: lambda v: _rest(a(v), b(v), text),
    ast.Pow: lambda a, b, text: lambda v: _power(a(v), b(v), text),
}  # fmt: skip
_FAST: Mapping[type[ast.operator], _Join[float]] = {
    ast.Mult: lambda a, b, _: lambda v: a(v) * b(v), ast.Add: lambda a, b, _: lambda v: a(v) + b(v),
    ast.Sub: lambda a, b, _: lambda v: a(v) - b(v), ast.Div: lambda a, b, text: lambda v: _quotient(a(v), b(v), text),
    ast.FloorDiv: lambda a, b, _: lambda v: a(v) // b(v), ast.Mod: lambda a, b, _: lambda v: a(v) % b(v),
    ast.Pow: lambda a, b, _: lambda v: a(v) ** b(v),
}  # fmt: skip
_CALLED: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "ceil": math.ceil, "floor": math.floor}
_COMPARE: Mapping[str, Callable[[Rational, Rational], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


# ---------------------------------------------------------------- algebra


@dataclass(frozen=True)
class Call:
    """A generator that is no variable: `floordiv`, `mod`, `ceildiv`, `min` or `max` of formulas.

    Without arguments it is opaque: a text that is printed as it stands, in the order of `place` among others.
    """

    op: str
    args: tuple[Formula, ...]
    place: int = 0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.op, self.args, self.place))

    @cached_property
    def depth(self) -> int:
        """How many calls stand inside one another here."""
        inner = (
            atom.depth for arg in self.args for monomial in arg.terms for atom, _ in monomial if isinstance(atom, Call)
        )
        return 1 + max(inner, default=0)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if not self.args:
            return self.op
        if self.op in ("min", "max"):
            return f"{self.op}({', '.join(str(arg) for arg in self.args)})"
        a, b = self.args
        left, right = a._factor_text(), b._factor_text()
        match self.op:
            case "floordiv":
                return f"({left} // {right})"
            case "mod":
                return f"({left} % {right})"
            case _:
                return f"ceil({left} / {right})"


Atom: TypeAlias = str | Call
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
Operand: TypeAlias = Union["Formula", int]


@lru_cache(maxsize=8192)
def _rank(atom: Atom) -> tuple[int, int, str]:
    if isinstance(atom, Call):
        return (2, atom.place, str(atom))
    if atom in _TRAILING:
        return (3, _TRAILING.index(atom), atom)
    if atom.endswith(_PER_ELEMENT):
        return (3, len(_TRAILING), atom)
    if atom in STANDARD_ORDER:
        return (0, STANDARD_ORDER.index(atom), atom)
    return (1, 0, atom)


def _monomial(powers: Mapping[Atom, int]) -> Monomial:
    kept = [(a, e) for a, e in powers.items() if e]
    if len(kept) > 1:
        kept.sort(key=lambda item: _rank(item[0]))
    return tuple(kept)


def _times(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for atom, exponent in right:
        powers[atom] = powers.get(atom, 0) + exponent
    return _monomial(powers)


def over(a: Rational, b: Rational) -> Rational:
    """`a / b` exactly, whole where it can be; raises `ZeroDivisionError`.

    >>> over(6, 3), over(1, 2)
    (2, Fraction(1, 2))
    """
    if isinstance(a, int) and isinstance(b, int) and b and a % b == 0:
        return a // b
    found = Fraction(a, b)
    return found if found.denominator != 1 else found.numerator


class Formula:
    """An immutable polynomial over variables and calls. Build with `var`, `const`, operators and the functions below.

    >>> b, h = Formula.var("batch_size"), Formula.var("hidden_size")
    >>> str(2 * b * h + 4 * b)
    '2 * {batch_size} * ({hidden_size} + 2)'
    """

    __slots__ = ("_hash", "_text", "terms")
    #: whole coefficients are ints
    terms: Mapping[Monomial, Rational]
    _hash: int | None
    _text: str | None

    def __init__(self, terms: Mapping[Monomial, Rational]) -> None:
        plain = {m: c if type(c) is int or c.denominator != 1 else c.numerator for m, c in terms.items() if c}
        object.__setattr__(self, "terms", plain)
        object.__setattr__(self, "_hash", None)
        object.__setattr__(self, "_text", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Formula is immutable")

    @classmethod
    def const(cls, value: Rational) -> Formula:
        """A number."""
        return _const(value)

    @classmethod
    def var(cls, name: str) -> Formula:
        """One variable by its name, without braces."""
        return cls({((name, 1),): 1})

    @classmethod
    def opaque(cls, text: str, place: int) -> Formula:
        """A term with no inner meaning, printed as it stands; terms are ordered by `place`."""
        return cls({((Call(text, (), place), 1),): 1})

    @classmethod
    def of(cls, value: Operand) -> Formula:
        """A number as a formula; a formula is given back."""
        return value if isinstance(value, Formula) else cls.const(value)

    @classmethod
    def parse(cls, text: str) -> Formula:
        """The formula that `text` writes; raises `ValuesError` where it is none, or has too many terms multiplied out."""
        return _parsed(text)

    # ---- comparison

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, int):
            other = Formula.const(other)
        return isinstance(other, Formula) and self.terms == other.terms

    def __hash__(self) -> int:
        known = self._hash
        if known is None:
            known = hash(frozenset(self.terms.items()))
            object.__setattr__(self, "_hash", known)
        return known

    def constant(self) -> Fraction | None:
        """The value where the formula holds no variable, else None."""
        number = self._number()
        return None if number is None else Fraction(number)

    def _number(self) -> Rational | None:
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    def variables(self) -> frozenset[str]:
        """Names that a value must be given for, also inside of calls."""
        found: set[str] = set()
        for monomial in self.terms:
            for atom, _ in monomial:
                if isinstance(atom, Call) and atom.args:
                    found.update(*(arg.variables() for arg in atom.args))
                else:
                    found.add(str(atom))
        return frozenset(found)

    # ---- arithmetic

    def __add__(self, other: Operand) -> Formula:
        other = Formula.of(other)
        return Formula(_added(dict(self.terms), other.terms))

    __radd__ = __add__

    def __neg__(self) -> Formula:
        return Formula({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Operand) -> Formula:
        return self + (-Formula.of(other))

    def __rsub__(self, other: Operand) -> Formula:
        return Formula.of(other) - self

    def __mul__(self, other: Operand) -> Formula:
        other = Formula.of(other)
        for form, number in ((self, other._number()), (other, self._number())):
            if number == 1:
                return form
        if len(self.terms) * len(other.terms) > _MAX_PRODUCTS:
            raise ValuesError(
                f"A product of {len(self.terms)} by {len(other.terms)} terms is too large to multiply out."
            )
        terms: dict[Monomial, Rational] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                key = _times(left, right)
                found = terms[key] = terms.get(key, 0) + a * b
                if _bits(found) > _MAX_RESULT:
                    raise ValuesError(f"A coefficient has over {_MAX_RESULT} bits.")
        return Formula(terms)

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Formula:
        if exponent > _MAX_POWER:
            raise ValuesError(f"The exponent {exponent} is over the limit of {_MAX_POWER}.")
        return self if exponent == 1 else reduce(lambda acc, _: acc * self, range(exponent), Formula.const(1))

    def divided(self, other: Formula) -> Formula | None:
        """`self / other` where it is a polynomial with the same generators, else None."""
        if self == other and other.terms:
            return Formula.const(1)
        if len(other.terms) != 1:
            return _long_division(self, other)
        (divisor, d), *_ = other.terms.items()
        terms: dict[Monomial, Rational] = {}
        for monomial, coefficient in self.terms.items():
            powers = dict(monomial)
            for atom, exponent in divisor:
                powers[atom] = powers.get(atom, 0) - exponent
                if powers[atom] < 0:
                    return None
            terms[_monomial(powers)] = over(coefficient, d)
        return Formula(terms)

    def _integral(self) -> bool:
        return all(c.denominator == 1 for c in self.terms.values())

    def __floordiv__(self, other: Operand) -> Formula:
        other = Formula.of(other)
        a, b = self._number(), other._number()
        if a is not None and b:
            return Formula.const(a // b)
        exact = self.divided(other)
        if exact is not None and exact._integral():
            return exact
        # the part that divides exactly leaves the call: (a*b + c) // b = a + c // b
        if len(other.terms) == 1:
            whole: dict[Monomial, Rational] = {}
            rest: dict[Monomial, Rational] = {}
            for monomial, coefficient in self.terms.items():
                part = Formula({monomial: coefficient}).divided(other)
                if part is not None and part._integral():
                    _added(whole, part.terms)
                else:
                    rest[monomial] = coefficient
            if whole and rest:
                return Formula(whole) + (Formula(rest) // other)
        return _call("floordiv", self, other)

    def __mod__(self, other: Operand) -> Formula:
        other = Formula.of(other)
        a, b = self._number(), other._number()
        if a is not None and b:
            return Formula.const(a % b)
        exact = self.divided(other)
        if exact is not None and exact._integral():
            return Formula({})
        return _call("mod", self, other)

    def ceildiv(self, other: Operand) -> Formula:
        """`ceil(self / other)`."""
        other = Formula.of(other)
        a, b = self._number(), other._number()
        if a is not None and b:
            return Formula.const(-(-a // b))
        exact = self.divided(other)
        if exact is not None and exact._integral():
            return exact
        return _call("ceildiv", self, other)

    @staticmethod
    def minimum(*operands: Operand) -> Formula:
        """The least of the operands, their numbers taken together."""
        return _extremum("min", operands)

    @staticmethod
    def maximum(*operands: Operand) -> Formula:
        """The greatest of the operands, their numbers taken together."""
        return _extremum("max", operands)

    def substitute(self, replacements: Mapping[str, Operand]) -> Formula:
        """Replace variables, also inside calls."""
        if not self.variables() & replacements.keys():
            return self
        total: dict[Monomial, Rational] = {}
        for monomial, coefficient in self.terms.items():
            term = Formula.const(coefficient)
            for atom, exponent in monomial:
                if isinstance(atom, Call) and atom.args:
                    base = _apply(atom.op, [arg.substitute(replacements) for arg in atom.args])
                else:
                    base = Formula.of(replacements.get(str(atom), Formula({((atom, 1),): 1})))
                term = term * base**exponent
            _added(total, term.terms)
        return Formula(total)

    def evaluate(self, values: Mapping[str, Rational]) -> int:
        """Its whole number at given values; raises what `evaluate` raises where one is missing."""
        return evaluate(str(self), values)

    # ---- printing

    def __str__(self) -> str:
        known = self._text
        if known is None:
            known = _print(dict(self.terms))
            object.__setattr__(self, "_text", known)
        return known

    def __repr__(self) -> str:
        return f"Formula({str(self)!r})"

    def _factor_text(self) -> str:
        """The text, in parentheses unless it is one number, variable or call."""
        text = str(self)
        return text if re.fullmatch(r"\d+|\{\w+\}|\w+\([^()]*\)", text) else f"({text})"


@lru_cache(maxsize=8192)
def _parsed(text: str) -> Formula:
    tree = _tree(text)
    if _spread(tree) > _MAX_PARSED:
        raise ValuesError(f"The formula {text[:60]!r}... multiplies out to over {_MAX_PARSED} terms.")
    return _build(tree, text)


@lru_cache(maxsize=8192)
def _const(value: Rational) -> Formula:
    return Formula({(): value})


def _added(terms: dict[Monomial, Rational], more: Mapping[Monomial, Rational]) -> dict[Monomial, Rational]:
    """`terms`, to which `more` were added."""
    for monomial, coefficient in more.items():
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return terms


def _long_division(dividend: Formula, divisor: Formula) -> Formula | None:
    """Exact division by a sum: repeatedly divide the leading terms under one fixed monomial order."""
    if not divisor.terms:
        return None
    generators = sorted({a for f in (dividend, divisor) for m in f.terms for a, _ in m}, key=_rank)

    def order(monomial: Monomial) -> tuple[int, ...]:
        powers = dict(monomial)
        return tuple(powers.get(generator, 0) for generator in generators)

    lead = max(divisor.terms, key=order)
    lead_term = Formula({lead: divisor.terms[lead]})
    rest, quotient = dividend, Formula({})
    for _ in range(64):
        if not rest.terms:
            return quotient
        top = max(rest.terms, key=order)
        part = Formula({top: rest.terms[top]}).divided(lead_term)
        if part is None:
            return None
        quotient, rest = quotient + part, rest - part * divisor
    return None


def _call(op: str, *args: Formula) -> Formula:
    made = Call(op, args)
    if made.depth > _MAX_CALLS:
        raise ValuesError(f"A formula nests over {_MAX_CALLS} divisions, minima or maxima.")
    return Formula({((made, 1),): 1})


def _apply(op: str, args: list[Formula]) -> Formula:
    match op:
        case "floordiv":
            return args[0] // args[1]
        case "mod":
            return args[0] % args[1]
        case "ceildiv":
            return args[0].ceildiv(args[1])
        case _:
            return _extremum(op, args)


def _extremum(op: str, operands: Iterable[Operand]) -> Formula:
    flat: list[Formula] = []
    for operand in map(Formula.of, operands):
        only = next(iter(operand.terms.items()), ((), 0)) if len(operand.terms) == 1 else None
        if only and only[1] == 1 and len(only[0]) == 1 and only[0][0][1] == 1:
            atom = only[0][0][0]
            if isinstance(atom, Call) and atom.op == op:
                flat.extend(atom.args)
                continue
        flat.append(operand)
    constants = [c for c in (f._number() for f in flat) if c is not None]
    kept = list(dict.fromkeys(f for f in flat if f._number() is None))
    if constants:
        kept.append(Formula.const(min(constants) if op == "min" else max(constants)))
    if len(kept) == 1:
        return kept[0]
    return _call(op, *sorted(kept, key=str))


def _build(node: ast.expr, text: str) -> Formula:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return Formula.const(value)
        case ast.Name(id=name) if name.startswith(_PREFIX):
            return Formula.var(name[len(_PREFIX) :])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_build(operand, text)
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=args, keywords=[]) if args:
            return _extremum(name, [_build(arg, text) for arg in args])
        case ast.Call(
            func=ast.Name(id="ceil" | "floor" as name),
            args=[ast.BinOp(left=left, op=ast.Div(), right=right)],
            keywords=[],
        ):
            a, b = _build(left, text), _build(right, text)
            return a.ceildiv(b) if name == "ceil" else a // b
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(exponent))) if (
            0 <= exponent <= _MAX_EXPONENT
        ):
            return _build(left, text) ** exponent
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _build(left, text), _build(right, text)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return a // b
                case ast.Mod():
                    return a % b
                case ast.Div():
                    exact = a.divided(b)
                    if exact is not None:
                        return exact
    raise ValuesError(f"{text[:200]!r} is not a formula.")


def _common(terms: Mapping[Monomial, Rational]) -> tuple[Rational, Monomial]:
    """The largest factor of all terms: a positive rational and a monomial."""
    numerator = math.gcd(*(c.numerator for c in terms.values()))
    denominator = math.gcd(*(c.denominator for c in terms.values()))  # never a fraction over a sum of whole terms
    shared: dict[Atom, int] | None = None
    for monomial in terms:
        powers = dict(monomial)
        shared = (
            powers if shared is None else {a: min(e, powers.get(a, 0)) for a, e in shared.items() if powers.get(a, 0)}
        )
    return over(numerator, denominator), _monomial(shared or {})


def _product(coefficient: Rational, monomial: Monomial, tail: str = "") -> str:
    factors = [str(atom) if isinstance(atom, Call) else f"{{{atom}}}" for atom, _ in monomial]
    powered = [f if e == 1 else f"{f}**{e}" for f, (_, e) in zip(factors, monomial, strict=True)]
    trailing = sum(
        1 for atom, _ in monomial if isinstance(atom, str) and (atom in _TRAILING or atom.endswith(_PER_ELEMENT))
    )
    at = len(powered) - trailing  # bytes per element close a product
    powered[at:at] = [tail] if tail else []
    if coefficient.numerator != 1 or not powered:
        powered.insert(0, str(coefficient.numerator))
    text = " * ".join(powered)
    return text if coefficient.denominator == 1 else f"{text} / {coefficient.denominator}"


def _degree_key(item: tuple[Monomial, Rational]) -> tuple[object, ...]:
    monomial, coefficient = item
    return (coefficient < 0, -sum(e for _, e in monomial), [(_rank(a), -e) for a, e in monomial])


def _print(terms: dict[Monomial, Rational]) -> str:
    if not terms:
        return "0"
    factor, shared = _common(terms)
    if len(terms) == 1:
        sign = "-" if next(iter(terms.values())) < 0 else ""
        return sign + _product(factor, shared)
    scale = Formula({shared: factor})
    inner = Formula(terms).divided(scale)
    assert inner is not None, "a common factor divides every term"
    body = _print_sum(dict(inner.terms))
    return body if scale == 1 else _product(factor, shared, f"({body})")


def _print_sum(terms: dict[Monomial, Rational]) -> str:
    """A sum without common factor: terms that share the most frequent generator are grouped and factored in turn."""
    counts: dict[Atom, int] = {}
    for monomial in terms:
        for atom, _ in monomial:
            counts[atom] = counts.get(atom, 0) + 1
    repeated = [(count, atom) for atom, count in counts.items() if 1 < count < len(terms)]
    if len(terms) > 2 and repeated:
        _, chosen = min(repeated, key=lambda item: (-item[0], _rank(item[1])))
        group = {m: c for m, c in terms.items() if any(atom == chosen for atom, _ in m)}
        rest = {m: c for m, c in terms.items() if m not in group}
        return _joined([_print(group), *_addends(rest)])
    return _joined([_print({m: c}) for m, c in sorted(terms.items(), key=_degree_key)])


def _addends(terms: dict[Monomial, Rational]) -> list[str]:
    if not terms:
        return []
    factor, shared = _common(terms)
    return [_print(terms)] if shared or factor != 1 or len(terms) == 1 else [_print_sum(terms)]


def _joined(parts: list[str]) -> str:
    text = parts[0]
    for part in parts[1:]:
        text += f" - {part[1:]}" if part.startswith("-") else f" + {part}"
    return text
