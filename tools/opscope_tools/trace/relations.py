"""Comparisons of sizes as relations to zero, and what they are: bounds of one size, exact divisions, products that are equal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd, lcm

from opscope_schemas.formula import Call, Formula, over

__all__ = [
    "ONE", "ZERO", "Relation", "defined_by", "division", "division_in", "equal_products", "equated", "filled_up", "is_whole", "least_call",
    "lowest", "plain_product", "relation_of", "single_in", "span_of", "variable_of",
]  # fmt: skip

ZERO, ONE = Formula({}), Formula.const(1)


@dataclass(frozen=True)
class Relation:
    """`form` is zero, is not zero, or is at least zero; whole at every point."""

    kind: str  # "eq", "ne", "ge"
    form: Formula


def variable_of(form: Formula) -> str:
    """The variable that a formula is; '' where it is more."""
    if len(form.terms) == 1:
        (monomial, coefficient), *_ = form.terms.items()
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], str):
            return monomial[0][0]
    return ""


def _whole(form: Formula) -> Formula:
    """A multiple without fractions."""
    return form * lcm(*(c.denominator for c in form.terms.values())) if form.terms else form


@lru_cache(maxsize=1 << 14)
def lowest(form: Formula) -> Formula:
    """The form without the factor that all its terms share: it has the same sign, since sizes are positive.

    A call may be zero, so none is taken out.
    """
    if not form.terms or form.constant() is not None:
        return form
    form = _whole(form)
    shared = {a: e for a, e in next(iter(form.terms)) if isinstance(a, str)}
    for monomial in form.terms:
        powers = dict(monomial)
        shared = {a: min(e, powers[a]) for a, e in shared.items() if a in powers}
    number = gcd(*(int(c) for c in form.terms.values()))
    found = form
    for name, exponent in shared.items():
        divided = found.divided(Formula.var(name) ** exponent)
        assert divided is not None
        found = divided
    return Formula({m: over(c, number) for m, c in found.terms.items()})


def relation_of(left: Formula, sign: str, right: Formula) -> Relation:
    """A comparison as a relation to zero."""
    if sign in ("<", "<="):
        left, right, sign = right, left, {"<": ">", "<=": ">="}[sign]
    form = lowest(left - right)
    if sign == ">":
        return Relation("ge", form - ONE)
    return Relation({">=": "ge", "==": "eq", "!=": "ne"}[sign], form)


def single_in(relation: Relation) -> tuple[str, str, int | None, int | None] | None:
    """Variable, kind, least and greatest value, of a relation of one variable by itself."""
    form = relation.form
    names = form.variables()
    if len(names) != 1 or any(m and (len(m) > 1 or m[0] != (next(iter(names)), 1)) for m in form.terms):
        return None
    name = next(iter(names))
    slope, at_zero = form.terms[((name, 1),)], form.terms.get((), 0)
    edge = over(-at_zero, slope)
    if relation.kind == "ge":
        return (name, "ge", -(-edge.numerator // edge.denominator), None) if slope > 0 else (
            name, "ge", None, edge.numerator // edge.denominator)  # fmt: skip
    value = int(edge) if edge.denominator == 1 else None
    if relation.kind == "ne":
        return name, "ne", value, value
    return (name, "eq", value, value) if value is not None else None


def division(left: Formula, right: Formula) -> tuple[Formula, Formula] | None:
    """Dividend and divisor, where an equality says that a remainder is zero, in whatever words."""
    return division_in(relation_of(left, "==", right))


def division_in(relation: Relation) -> tuple[Formula, Formula] | None:
    """Dividend and divisor, where the relation says that a remainder is zero: also in the words of rounded quotients."""
    terms = list(relation.form.terms.items())
    if relation.kind != "eq" or not 1 <= len(terms) <= 2:
        return None
    calls = [(m, c, m[0][0]) for m, c in terms if len(m) == 1 and isinstance(m[0][0], Call)]
    if len(terms) == 1 and calls and calls[0][2].op == "mod":
        return _shortened(*calls[0][2].args)
    for monomial, coefficient, call in calls:
        number = call.args[-1].constant()
        if call.op not in ("floordiv", "ceildiv") or number is None:
            continue
        rest = relation.form - Formula({monomial: coefficient})
        quotient = rest * Formula.const(over(-1, coefficient))  # the call is equal to this
        divisor = Formula.const(number)
        if call.op == "ceildiv" and quotient * divisor == call.args[0]:
            return call.args[0], divisor
        if call.op == "ceildiv":
            continue
        for dividend in (call.args[0], call.args[0] - divisor + ONE):  # rounded down, rounded up
            alike = quotient == dividend // divisor and dividend != call.args[0]
            if quotient * divisor == dividend or alike:
                return dividend, divisor
    return None


def _shortened(dividend: Formula, divisor: Formula) -> tuple[Formula, Formula]:
    """Both without the factor that they share, which changes nothing about whether one divides the other."""
    if len(divisor.terms) != 1 or not dividend.terms or not is_whole(dividend) or not is_whole(divisor):
        return dividend, divisor
    (own, _), *_ = divisor.terms.items()
    shared = dict(own)
    for monomial in dividend.terms:
        powers = dict(monomial)
        shared = {a: min(e, powers[a]) for a, e in shared.items() if isinstance(a, str) and a in powers}
    number = gcd(*(int(c) for form in (dividend, divisor) for c in form.terms.values()))
    factor = Formula.const(number)
    for name, exponent in shared.items():
        factor = factor * Formula({((name, exponent),): 1})
    a, b = dividend.divided(factor), divisor.divided(factor)
    return (a, b) if a is not None and b is not None else (dividend, divisor)


def is_whole(form: Formula) -> bool:
    return all(c.denominator == 1 for c in form.terms.values())


def defined_by(form: Formula) -> tuple[str, Formula] | None:
    """A variable and what it is where the form is zero: one that stands nowhere else in it."""
    for monomial, coefficient in form.terms.items():
        own = Formula({monomial: coefficient})
        rest = (form - own) * Formula.const(over(-1, coefficient))
        name = variable_of(own * Formula.const(over(1, coefficient)))
        if name and abs(coefficient) == 1 and name not in rest.variables() and plain_product(rest):
            return name, rest
    return None


def equal_products(form: Formula) -> tuple[Formula, Formula] | None:
    """Two products of variables that are equal where the form is zero, the longer first."""
    if len(form.terms) != 2 or not plain_product(form) or () in form.terms or sum(form.terms.values()) != 0:
        return None
    one, other = (Formula({monomial: 1}) for monomial in form.terms)
    return (one, other) if (len(str(one)), str(one)) > (len(str(other)), str(other)) else (other, one)


def filled_up(dividend: Formula, divisor: Formula) -> Formula | None:
    """What is filled up to a multiple, where `dividend % divisor` says how much that takes: `(n - x % n) % n`."""
    rest = divisor - dividend
    ((monomial, coefficient), *others) = [*rest.terms.items()] or [((), 0)]
    atom = monomial[0][0] if not others and coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1 else None
    taken = isinstance(atom, Call) and atom.op == "mod" and atom.args[1] == divisor
    return atom.args[0] if taken and isinstance(atom, Call) else None


def span_of(form: Formula) -> tuple[str, int, int] | None:
    """A size and its ends, where a form is zero because a quotient of the size by a number, rounded, is some number."""
    found = least_call(lowest(form))
    if found is None or found[1] < 1:
        return None
    call, number = found
    name, divisor = variable_of(call.args[0]), call.args[-1].constant()
    if not name or divisor is None or call.op not in ("floordiv", "ceildiv"):
        return None
    first = int(divisor) * number - (int(divisor) - 1 if call.op == "ceildiv" else 0)
    return name, first, first + int(divisor) - 1


def least_call(form: Formula) -> tuple[Call, int] | None:
    """(a call, a number) where a form is the call less the number."""
    calls = [m[0][0] for m, c in form.terms.items() if c == 1 and len(m) == 1 and m[0][1] == 1]
    number = -form.terms.get((), 0)
    known = len(calls) == 1 and len(form.terms) == 1 + (number != 0) and number.denominator == 1
    return (calls[0], int(number)) if known and isinstance(calls[0], Call) else None


def equated(form: Formula) -> tuple[Call, Formula] | None:
    """A call and what it is equal to where the form is zero, the longest call first."""
    found = [(m[0][0], c) for m, c in form.terms.items() if len(m) == 1 and m[0][1] == 1 and isinstance(m[0][0], Call)]
    for call, coefficient in sorted(found, key=lambda one: -len(str(one[0]))):
        own = Formula({((call, 1),): 1})
        rest = form * Formula.const(over(-1, coefficient)) + own
        if is_whole(rest) and not _within(call, rest):
            return call, rest
    return None


def _within(call: Call, form: Formula) -> bool:
    return str(call) in str(form)


def plain_product(form: Formula) -> bool:
    return all(isinstance(atom, str) for monomial in form.terms for atom, _ in monomial)
