"""What people read of a trace's guards: the fewest conditions that say all of them.

torch records several hundred decisions, most of which every positive size satisfies (`a < a * b`). A guard is left out
only where it is *proven* from what is shown: each variable lies within its shown bounds, what a shown division leaves
without remainder is a product, and a difference that has no negative term left is not negative. What cannot be proven is
shown. So a point that meets the shown conditions meets every guard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm

from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import Call, Formula, Monomial, Rational, comparisons, holds, variables

__all__ = ["bounds_of", "division", "shown"]

_ZERO, _ONE = Formula({}), Formula.const(1)
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
#: how many steps a proof takes back from a difference to what is known
_STEPS = 2
#: how often equal products are put in each other's place
_ROUNDS = 8
#: forms that one proof tries on its way, and that all proofs of a set of guards do
_EFFORT, _EFFORT_IN_ALL = 40, 1500
#: sets of conditions up to this size are looked through for one that follows from the others
_FEW = 24


@dataclass(frozen=True)
class _Relation:
    """`form` is zero, is not zero, or is at least zero; whole at every point."""

    kind: str  # "eq", "ne", "ge"
    form: Formula


@dataclass
class _Bounds:
    low: int = 1
    high: int | None = None
    holes: set[int] = field(default_factory=set)

    def settle(self) -> None:
        """Holes at an end move the end."""
        while self.low in self.holes:
            self.low += 1
        while self.high is not None and self.high in self.holes:
            self.high -= 1
        self.holes = {h for h in self.holes if h > self.low and (self.high is None or h < self.high)}


class _Known:
    """What is known of sizes so far, and what follows from it."""

    def __init__(self) -> None:
        self.bounds: dict[str, _Bounds] = {}
        #: relations of several variables that are shown
        self.facts: list[_Relation] = []
        #: (dividend, divisor) without remainder
        self.exact: list[tuple[Formula, Formula]] = []
        #: variable -> the product that it is, where a shown division has no remainder
        self._products: dict[str, Formula] = {}
        self._quotients: dict[str, tuple[Formula, Formula]] = {}
        #: call -> what it is equal to by a relation that is shown
        self._same: dict[Call, Formula] = {}
        #: call -> a number that it is never below, by a relation that is shown
        self._lows: dict[Call, int] = {}
        #: products of variables and others that they are equal to
        self._equal: list[tuple[Formula, Formula]] = []
        self._simple: dict[Formula, Formula] = {}
        self._rest: list[tuple[Formula, Formula]] | None = None
        self._effort, self._spent = 0, 0

    # ---- learning

    def bound(self, name: str) -> _Bounds:
        return self.bounds.setdefault(name, _Bounds())

    def learn(self, relation: _Relation) -> None:
        self._forget()
        if (division := _division(relation)) is not None:
            self._divides(*division)
        elif (single := _single(relation)) is not None:
            self._narrow(*single)
        else:
            fact = _Relation(relation.kind, self.plain(relation.form))
            single = _single(fact)
            if single is not None and single[0] in self._quotients:
                self._narrow(*single)
            if fact.kind == "eq" and (defined := _defined(fact.form)) is not None:
                self._products[defined[0]] = defined[1]
                self._kept_bounds(defined[0])
                return
            if fact.kind == "eq" and (products := _equal_products(fact.form)) is not None:
                self._equal.append(self._directed(*products))
                self._forget()
                self.facts = [_Relation(one.kind, self.plain(one.form)) for one in self.facts]
                return
            if fact.kind == "eq" and (same := _equated(fact.form)) is not None:
                self._same[same[0]] = same[1]
            if (least := _least_call(fact.form)) is not None:
                call, number = least
                if fact.kind == "ge":
                    self._lows[call] = max(number, self._lows.get(call, 0))
                elif fact.kind == "ne" and number == self._ends(call)[0]:
                    self._lows[call] = number + 1
            self.facts.append(fact)

    def _directed(self, left: Formula, right: Formula) -> tuple[Formula, Formula]:
        """Of two products that are equal the one that is replaced, and the other: one that is divided by a factor of the other goes."""
        for ours, other in ((right, left), (left, right)):
            if any(self.plain(a) == ours and other.divided(self.plain(b)) is not None for a, b in self.exact):
                return ours, other
        return left, right

    def _divides(self, dividend: Formula, divisor: Formula) -> None:
        self.exact.append((dividend, divisor))
        name = _variable(dividend)
        if name and name not in self._products and name not in self._reach(divisor):
            rounded = Call("floordiv", (dividend, divisor))
            quotient = _variable(self._same.get(rounded, _ZERO)) or f"{name} over {divisor}"
            number = divisor.constant()
            if quotient not in self.bounds:
                least = 1 if number is None else -(-self.bound(name).low // int(number))
                self.bounds[quotient] = _Bounds(low=max(1, least))
            self._products[name] = divisor * Formula.var(quotient)
            self._quotients[quotient] = (dividend, divisor)
            self._kept_bounds(name)

    def _kept_bounds(self, name: str) -> None:
        """A variable that stands for something else from now on: its bounds become facts."""
        self._forget()
        bound, own = self.bound(name), Formula.var(name)
        ends = [own - bound.low] + ([] if bound.high is None else [bound.high - own])
        facts = (*self.facts, *(_Relation("ge", end) for end in ends))
        self.facts = [_Relation(fact.kind, self.plain(fact.form)) for fact in facts]

    def _reach(self, form: Formula) -> frozenset[str]:
        """The variables that a formula names, also through products."""
        names = form.variables()
        while more := {v for n in names if n in self._products for v in self._products[n].variables()} - names:
            names = names | more
        return frozenset(names)

    def _narrow(self, name: str, kind: str, low: int | None, high: int | None) -> None:
        bound = self.bound(name)
        if kind == "ne":
            bound.holes.update(() if low is None else (low,))
        else:
            bound.low = max(bound.low, low if low is not None else bound.low)
            if high is not None:
                bound.high = high if bound.high is None else min(bound.high, high)
        bound.settle()
        for quotient, (dividend, divisor) in self._quotients.items():
            number = divisor.constant()
            if _variable(dividend) == name and number is not None:
                inner = self.bounds[quotient]
                inner.low = max(inner.low, -(-bound.low // int(number)))
                inner.high = None if bound.high is None else bound.high // int(number)

    # ---- rewriting

    def plain(self, form: Formula) -> Formula:
        """The same value with products in the place of their multiples, and calls that are decided carried out."""
        if form not in self._simple:
            self._simple[form] = self._rewritten(form)
        return self._simple[form]

    def _rewritten(self, form: Formula) -> Formula:
        total = _ZERO
        for monomial, coefficient in form.terms.items():
            term = Formula.const(coefficient)
            for atom, exponent in monomial:
                base = self._called(atom) if isinstance(atom, Call) else self._named(atom)
                term = term * base**exponent
            total = total + term
        return self._multiplied(total)

    def _multiplied(self, form: Formula, rounds: int = _ROUNDS) -> Formula:
        """The same value, with what products are equal to in their place: a quotient times its divisor is the dividend."""
        exact = [((a // b) * b, a) for a, b in self._undivided()]
        equal = [(product, a) for product, a in exact if len(product.terms) == 1 and product != a] + self._equal
        total, changed = _ZERO, False
        for monomial, coefficient in form.terms.items():
            term = Formula({monomial: coefficient})
            found = ((rest, other) for product, other in equal if (rest := term.divided(product)) is not None)
            rest, other = next(found, (term, _ONE))
            changed = changed or rest is not term
            total = total + rest * other
        return self._multiplied(total, rounds - 1) if changed and rounds else total

    def _undivided(self) -> list[tuple[Formula, Formula]]:
        """The divisions without remainder whose dividends no product stands for, rewritten."""
        if self._rest is None:
            self._rest = []  # while they are rewritten
            standing = list(self._quotients.values())
            self._rest = [(self.plain(a), self.plain(b)) for a, b in self.exact if (a, b) not in standing]
            self._simple.clear()
        return self._rest

    def _forget(self) -> None:
        """What follows from what is known has to be found anew."""
        self._simple.clear()
        self._rest = None

    def _named(self, name: str) -> Formula:
        bound = self.bounds.get(name)
        if bound is not None and bound.low == bound.high:
            return Formula.const(bound.low)
        return self.plain(self._products[name]) if name in self._products else Formula.var(name)

    def _called(self, call: Call) -> Formula:
        if call in self._same:
            return self._same[call]
        arguments = [self.plain(argument) for argument in call.args]
        if call.op in ("min", "max"):
            return self._extreme(call.op, arguments)
        a, b = arguments
        again = {"floordiv": a.__floordiv__, "mod": a.__mod__, "ceildiv": a.ceildiv}[call.op](b)
        if not self.at_least(b - _ONE):
            return again
        if call.op == "mod" and (filled := _filled(a, b)) is not None and self.at_least(filled):
            return self.plain(filled.ceildiv(b)) * b - filled
        for dividend, divisor in self._undivided():
            quotient, times = dividend // divisor, a.divided(dividend)
            if times is not None and _is_whole(times) and (b == quotient or (b == divisor and call.op == "mod")):
                return _ZERO if call.op == "mod" else times * divisor  # a dividend over its exact quotient
        if self.at_least(a) and self.at_least(b - a - _ONE, 1):  # 0 <= a < b
            if call.op == "ceildiv":
                return _ONE if self.at_least(a - _ONE) else again
            return _ZERO if call.op == "floordiv" else a
        if call.op == "floordiv" and self.at_least(-a - _ONE) and self.at_least(a + b):  # -b <= a < 0
            return Formula.const(-1)
        return again

    def _extreme(self, op: str, arguments: Sequence[Formula]) -> Formula:
        sign = 1 if op == "max" else -1
        kept: list[Formula] = []
        for a in dict.fromkeys(arguments):
            if any(self.at_least((b - a) * sign) for b in kept):
                continue
            kept = [b for b in kept if not self.at_least((a - b) * sign)] + [a]
        return kept[0] if len(kept) == 1 else (Formula.maximum if op == "max" else Formula.minimum)(*kept)

    def simplest(self, relation: _Relation) -> list[_Relation]:
        """Relations that say the same as one where all that is known holds, in fewer words where they can be had."""
        plain = _Relation(relation.kind, _reduced(self.plain(relation.form)))
        if plain.kind == "eq" and (span := _spanned(plain.form)) is not None and span[0] not in self._quotients:
            name, low, high = span
            return [_Relation("ge", Formula.var(name) - low), _Relation("ge", high - Formula.var(name))]
        single = _single(plain)
        if single is not None and plain.kind == "ge" and single[0] in self._quotients:
            dividend, divisor = self._quotients[single[0]]
            if number := divisor.constant():
                whole = {single[0]: dividend * Formula.const(1 / number)}
                plain = _Relation("ge", _reduced(plain.form.substitute(whole)))
        if plain.form.variables() & self._quotients.keys() or not plain.form.variables():
            return [relation]
        if (division := _division(plain)) is not None and all(map(_plain_product, division)):
            return [_Relation("eq", division[0] % division[1])]
        return [plain if len(str(plain.form)) < len(str(relation.form)) else relation]

    # ---- proving

    def proves(self, relation: _Relation) -> bool:
        """Whether the relation holds at every point that meets what is known."""
        self._effort = _EFFORT if self._spent < _EFFORT_IN_ALL else 0
        if (division := _division(relation)) is not None and self._exact(*division):
            return True
        form = self.plain(relation.form)
        if relation.kind == "eq":
            return form == _ZERO or (self.at_least(form) and self.at_least(-form))
        if relation.kind == "ge":
            return self.at_least(form, _STEPS)
        single = _single(_Relation("ne", relation.form))
        if single is not None:
            bound, value = self.bounds.get(single[0], _Bounds()), single[2]
            return (
                value is None
                or value < bound.low
                or value in bound.holes
                or (bound.high is not None and value > bound.high)
            )
        if any(f.kind == "ne" and form in (f.form, -f.form) for f in self.facts):
            return True
        reduced = _reduced(form)
        return self.at_least(reduced - _ONE, _STEPS) or self.at_least(-reduced - _ONE, _STEPS)

    def _exact(self, dividend: Formula, divisor: Formula) -> bool:
        """Whether a shown division says that this one has no remainder."""
        for known, by in self.exact:
            multiple = dividend.divided(known) if by == divisor else None
            if multiple is not None and _is_whole(multiple):
                return True
        return False

    def at_least(self, form: Formula, steps: int = 0) -> bool:
        """Whether a form is proven not to be negative."""
        form = _reduced(form)
        number = form.constant()
        if number is not None:
            return number >= 0
        low = self._least(form)
        if low is not None and low >= 0:
            return True
        if self._dominated(form):
            return True
        if steps == 0 or self._effort <= 0:
            return False
        for rest in self._without(form):
            self._effort -= 1
            self._spent += 1
            if self.at_least(rest, steps - 1):
                return True
        return False

    def _least(self, form: Formula) -> Fraction | None:
        """A number below which a form never lies, term by term."""
        total = Fraction(0)
        for monomial, coefficient in form.terms.items():
            part = coefficient
            for atom, exponent in monomial:
                low, high = self._ends(atom)
                end = low if coefficient > 0 else high
                if end is None or low < 0:
                    return None
                part *= end**exponent
            total += part
        return total

    def _ends(self, atom: str | Call) -> tuple[int, int | None]:
        """Bounds of a variable or a call; what is known of no call is that it is not negative where its arguments are not."""
        if isinstance(atom, str):
            bound = self.bounds.get(atom, _Bounds())
            return bound.low, bound.high
        if atom.op in ("min", "max"):
            ends = [end for argument in atom.args if (end := self._least(argument)) is not None]
            known = ends and (atom.op == "max" or len(ends) == len(atom.args))
            return (math.ceil((max if atom.op == "max" else min)(ends)), None) if known else (-(1 << 62), None)
        if any(not self._positive(argument) for argument in atom.args):
            return -(1 << 62), None
        low = max(1 if atom.op == "ceildiv" else 0, self._lows.get(atom, 0))
        own = Formula({((atom, 1),): Fraction(1)})
        if atom.op == "floordiv" and any(a // b == own for a, b in (*self.exact, *self._undivided())):
            low = max(low, 1)
        number, least = atom.args[-1].constant(), self._least(atom.args[0])
        if number and least is not None and atom.op in ("floordiv", "ceildiv"):
            low = max(low, math.floor(least / number) if atom.op == "floordiv" else math.ceil(least / number))
        number = number if atom.op == "mod" else None
        return low, None if number is None else int(number) - 1

    def _positive(self, form: Formula) -> bool:
        low = self._least(form)
        return low is not None and low >= 1

    def _dominated(self, form: Formula) -> bool:
        """Whether the positive terms outweigh the negative ones, each by its share of a multiple of it."""
        left = {m: c for m, c in form.terms.items() if c > 0}
        for monomial, coefficient in form.terms.items():
            need = -coefficient
            for other in list(left) if need > 0 else ():
                times = self._multiple(other, monomial)
                if times:
                    share = min(left[other], need / times)
                    left[other] -= share
                    need -= share * times
            if need > 0:
                return False
        return True

    def _multiple(self, product: Monomial, part: Monomial) -> int:
        """At least how many times `part` a product is; 0 where it is no multiple."""
        powers, times = dict(product), 1
        for atom, exponent in part:
            if powers.get(atom, 0) < exponent or self._ends(atom)[0] < 0:
                return 0
            powers[atom] -= exponent
        for atom, exponent in powers.items():
            times *= max(0, self._ends(atom)[0]) ** exponent
        return times

    def _without(self, form: Formula) -> Iterator[Formula]:
        """The form less a multiple of something that is not negative, so that one of its negative terms goes."""
        for monomial, coefficient in form.terms.items():
            if coefficient > 0:
                continue
            for fact in self._not_negative(monomial):
                for other, negative in fact.terms.items():
                    if negative >= 0:
                        continue
                    over = Formula({monomial: Fraction(1)}).divided(Formula({other: Fraction(1)}))
                    if over is not None:
                        yield form - fact * over * Formula.const(coefficient / negative)

    def _not_negative(self, monomial: Monomial) -> Iterator[Formula]:
        """Forms that are known not to be negative and have something to do with a product."""
        for fact in self.facts:
            if fact.kind != "ne":
                yield fact.form
            if fact.kind == "eq":
                yield -fact.form
        for dividend, divisor in self._undivided():
            if not self._positive(dividend) or not self._positive(divisor):
                continue
            quotients = [monomial for monomial in (dividend // divisor).terms if monomial]
            if len(quotients) == 1 and len(quotients[0]) == 1:
                yield dividend - divisor * Formula.const(self._ends(quotients[0][0][0])[0])
                yield dividend - (dividend // divisor) * Formula.const(self._least(divisor) or 0)
        for atom, _ in monomial:
            if isinstance(atom, Call) and atom.op == "floordiv" and all(map(self._positive, atom.args)):
                own = Formula({((atom, 1),): Fraction(1)})
                yield atom.args[0] - own * atom.args[1]  # the remainder
                yield atom.args[0] - own
            if isinstance(atom, Call) and atom.op == "ceildiv" and all(map(self._positive, atom.args)):
                filled = Formula({((atom, 1),): Fraction(1)}) * atom.args[1]
                yield filled - atom.args[0]
                yield atom.args[0] + atom.args[1] - _ONE - filled
            if isinstance(atom, Call) and atom.op == "min":
                yield from (argument - Formula({((atom, 1),): Fraction(1)}) for argument in atom.args)


# ---------------------------------------------------------------- relations


def _variable(form: Formula) -> str:
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
def _reduced(form: Formula) -> Formula:
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
    return Formula({m: c / number for m, c in found.terms.items()})


def _relation(left: Formula, sign: str, right: Formula) -> _Relation:
    """A comparison as a relation to zero."""
    if sign in ("<", "<="):
        left, right, sign = right, left, {"<": ">", "<=": ">="}[sign]
    form = _reduced(left - right)
    if sign == ">":
        return _Relation("ge", form - _ONE)
    return _Relation({">=": "ge", "==": "eq", "!=": "ne"}[sign], form)


def _single(relation: _Relation) -> tuple[str, str, int | None, int | None] | None:
    """Variable, kind, least and greatest value, of a relation of one variable by itself."""
    form = relation.form
    names = form.variables()
    if len(names) != 1 or any(m and (len(m) > 1 or m[0] != (next(iter(names)), 1)) for m in form.terms):
        return None
    name = next(iter(names))
    slope, at_zero = form.terms[((name, 1),)], form.terms.get((), Fraction(0))
    edge = -at_zero / slope
    if relation.kind == "ge":
        return (name, "ge", -(-edge.numerator // edge.denominator), None) if slope > 0 else (
            name, "ge", None, edge.numerator // edge.denominator)  # fmt: skip
    value = int(edge) if edge.denominator == 1 else None
    if relation.kind == "ne":
        return name, "ne", value, value
    return (name, "eq", value, value) if value is not None else None


def division(left: Formula, right: Formula) -> tuple[Formula, Formula] | None:
    """Dividend and divisor, where an equality says that a remainder is zero, in whatever words."""
    return _division(_relation(left, "==", right))


def _division(relation: _Relation) -> tuple[Formula, Formula] | None:
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
        quotient = rest * Formula.const(-1 / coefficient)  # the call is equal to this
        divisor = Formula.const(number)
        if call.op == "ceildiv" and quotient * divisor == call.args[0]:
            return call.args[0], divisor
        if call.op == "ceildiv":
            continue
        for dividend in (call.args[0], call.args[0] - divisor + _ONE):  # rounded down, rounded up
            alike = quotient == dividend // divisor and dividend != call.args[0]
            if quotient * divisor == dividend or alike:
                return dividend, divisor
    return None


def _shortened(dividend: Formula, divisor: Formula) -> tuple[Formula, Formula]:
    """Both without the factor that they share, which changes nothing about whether one divides the other."""
    if len(divisor.terms) != 1 or not dividend.terms or not _is_whole(dividend) or not _is_whole(divisor):
        return dividend, divisor
    (own, _), *_ = divisor.terms.items()
    shared = dict(own)
    for monomial in dividend.terms:
        powers = dict(monomial)
        shared = {a: min(e, powers[a]) for a, e in shared.items() if isinstance(a, str) and a in powers}
    number = gcd(*(int(c) for form in (dividend, divisor) for c in form.terms.values()))
    factor = Formula.const(number)
    for name, exponent in shared.items():
        factor = factor * Formula({((name, exponent),): Fraction(1)})
    a, b = dividend.divided(factor), divisor.divided(factor)
    return (a, b) if a is not None and b is not None else (dividend, divisor)


def _is_whole(form: Formula) -> bool:
    return all(c.denominator == 1 for c in form.terms.values())


def _defined(form: Formula) -> tuple[str, Formula] | None:
    """A variable and what it is where the form is zero: one that stands nowhere else in it."""
    for monomial, coefficient in form.terms.items():
        own = Formula({monomial: coefficient})
        rest = (form - own) * Formula.const(-1 / coefficient)
        name = _variable(own * Formula.const(1 / coefficient))
        if name and abs(coefficient) == 1 and name not in rest.variables() and _plain_product(rest):
            return name, rest
    return None


def _equal_products(form: Formula) -> tuple[Formula, Formula] | None:
    """Two products of variables that are equal where the form is zero, the longer first."""
    if len(form.terms) != 2 or not _plain_product(form) or () in form.terms or sum(form.terms.values()) != 0:
        return None
    one, other = (Formula({monomial: Fraction(1)}) for monomial in form.terms)
    return (one, other) if (len(str(one)), str(one)) > (len(str(other)), str(other)) else (other, one)


def _filled(dividend: Formula, divisor: Formula) -> Formula | None:
    """What is filled up to a multiple, where `dividend % divisor` says how much that takes: `(n - x % n) % n`."""
    rest = divisor - dividend
    ((monomial, coefficient), *others) = [*rest.terms.items()] or [((), Fraction(0))]
    atom = monomial[0][0] if not others and coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1 else None
    taken = isinstance(atom, Call) and atom.op == "mod" and atom.args[1] == divisor
    return atom.args[0] if taken and isinstance(atom, Call) else None


def _spanned(form: Formula) -> tuple[str, int, int] | None:
    """A size and its ends, where a form is zero because a quotient of the size by a number, rounded, is some number."""
    found = _least_call(_reduced(form))
    if found is None or found[1] < 1:
        return None
    call, number = found
    name, divisor = _variable(call.args[0]), call.args[-1].constant()
    if not name or divisor is None or call.op not in ("floordiv", "ceildiv"):
        return None
    first = int(divisor) * number - (int(divisor) - 1 if call.op == "ceildiv" else 0)
    return name, first, first + int(divisor) - 1


def _least_call(form: Formula) -> tuple[Call, int] | None:
    """(a call, a number) where a form is the call less the number."""
    calls = [m[0][0] for m, c in form.terms.items() if c == 1 and len(m) == 1 and m[0][1] == 1]
    number = -form.terms.get((), Fraction(0))
    known = len(calls) == 1 and len(form.terms) == 1 + (number != 0) and number.denominator == 1
    return (calls[0], int(number)) if known and isinstance(calls[0], Call) else None


def _equated(form: Formula) -> tuple[Call, Formula] | None:
    """A call and what it is equal to where the form is zero, the longest call first."""
    found = [(m[0][0], c) for m, c in form.terms.items() if len(m) == 1 and m[0][1] == 1 and isinstance(m[0][0], Call)]
    for call, coefficient in sorted(found, key=lambda one: -len(str(one[0]))):
        own = Formula({((call, 1),): Fraction(1)})
        rest = form * Formula.const(-1 / coefficient) + own
        if _is_whole(rest) and not _within(call, rest):
            return call, rest
    return None


def _within(call: Call, form: Formula) -> bool:
    return str(call) in str(form)


# ---------------------------------------------------------------- guards


Read = list[list[tuple[Formula, str, Formula]]]


@lru_cache(maxsize=1 << 14)
def _read(guard: str) -> Read | None:
    """A guard as alternatives of comparisons that all hold; None for what is neither."""
    try:
        return comparisons(guard)
    except ValuesError:
        return None


def _order(guard: str, read: Read | None) -> tuple[object, ...]:
    """Simple guards are shown before, and prove, the others: divisions first, alternatives last."""
    first = _relation(*read[0][0]) if read is not None and len(read) == 1 else None
    kind = "" if first is None else first.kind
    if first is not None and (division := _division(first)) is not None:
        kind = "divides" if all(_plain_product(part) for part in division) else "remainder"
    return (_KINDS.index(kind), guard.count("{"), len(guard), guard)


_SIGNS = {"eq": "==", "ne": "!=", "ge": ">="}
_KINDS = ("divides", "eq", "remainder", "ge", "ne", "")


def _plain_product(form: Formula) -> bool:
    return all(isinstance(atom, str) for monomial in form.terms for atom, _ in monomial)


def shown(guards: Sequence[str], point: Mapping[str, Rational], always: Sequence[str]) -> tuple[str, ...]:
    """The conditions under which every guard holds, bounds of single sizes merged; `point` meets all of them.

    `always` are conditions that hold without being shown.

    Where rounded quotients make many conditions and all of them follow from the quotients being exact, as they are at the
    point, that is what is shown: it admits a few points less.
    """
    return _shown(tuple(dict.fromkeys(guards)), tuple(sorted(point.items())), tuple(always))


@lru_cache(maxsize=64)
def bounds_of(guards: tuple[str, ...]) -> tuple[str, ...]:
    """What guards say of single sizes."""
    alone = (g for g in guards if (read := _read(g)) is not None and len(read) == 1)
    return tuple(g for g in alone if all(_single(_relation(*c)) for alternative in _read(g) or () for c in alternative))


@lru_cache(maxsize=256)
def _shown(guards: tuple[str, ...], at: tuple[tuple[str, Rational], ...], always: Sequence[str]) -> tuple[str, ...]:
    found = _reduced_to(guards, always)
    point = dict(at)
    for guess in _exact_quotients(found, point):
        simpler = _reduced_to((guess, *found), always)
        if len(simpler) < len(found) - 1:
            found = simpler
    return found


def _exact_quotients(conditions: Iterable[str], point: Mapping[str, Rational]) -> Iterator[str]:
    """Divisions that conditions round, of plain products, that leave no remainder at a point."""
    calls: dict[Call, None] = {}
    for condition in conditions:
        for alternative in _read(condition) or ():
            for left, _, right in alternative:
                calls.update(dict.fromkeys((*_calls(left), *_calls(right))))
    for call in sorted(calls, key=lambda one: (len(str(one)), str(one))):
        if call.op == "floordiv" and all(map(_plain_product, call.args)) and call.args[0].constant() is None:
            text = f"{call.args[0]._factor_text()} % {call.args[1]._factor_text()} == 0"
            if variables(text) <= point.keys() and holds(text, point):
                yield text


def _calls(form: Formula) -> Iterator[Call]:
    for monomial in form.terms:
        for atom, _ in monomial:
            if isinstance(atom, Call):
                yield atom
                for argument in atom.args:
                    yield from _calls(argument)


def _reduced_to(guards: Sequence[str], always: Sequence[str]) -> tuple[str, ...]:
    known = _told(always)
    kept: list[str] = []
    seen: dict[str, None] = {}
    waiting = []
    for guard in dict.fromkeys(guards):
        read = _read(guard)
        if read is not None and len(read) == 1 and all(_single(_relation(*c)) for c in read[0]):
            for comparison in read[0]:
                relation = _relation(*comparison)
                known.learn(relation)
                seen.update(dict.fromkeys(relation.form.variables()))
        else:
            waiting.append((guard, read))
    for guard, read in sorted(waiting, key=lambda one: _order(*one)):
        kept += _kept(known, seen, guard, read)
    bounds = tuple(_bounds(known, seen))
    return (*bounds, *_needed(bounds, kept, always))


def _told(conditions: Iterable[str]) -> _Known:
    """What is known from conditions that all hold."""
    known = _Known()
    for condition in conditions:
        read = _read(condition)
        for comparison in read[0] if read is not None and len(read) == 1 else ():
            known.learn(_relation(*comparison))
    return known


def _needed(bounds: Sequence[str], kept: list[str], always: Sequence[str]) -> list[str]:
    """The conditions that do not follow from the others: one may have been shown before one that implies it.

    `bounds` are those that are shown: what is known of any other size came from these conditions themselves.
    """
    for condition in list(kept):
        read = _read(condition)
        if read is None or len(read) != 1 or len(read[0]) != 1 or len(kept) > _FEW:
            continue
        others = _told((*bounds, *always, *(c for c in kept if c != condition)))
        if others.proves(_relation(*read[0][0])):
            kept.remove(condition)
    return kept


def _kept(known: _Known, seen: dict[str, None], guard: str, read: Read | None) -> Iterator[str]:
    """What of a guard does not follow from what is known."""
    if read is None:
        yield guard
        return
    open_: list[list[tuple[Formula, str, Formula]]] = []
    for alternative in read:
        left = [c for c in alternative if not known.proves(_relation(*c))]
        if not left:
            return
        # where there is no other the only alternative is the one that was taken
        if len(read) == 1 or not any(known.proves(_relation(a, _NEGATED[sign], b)) for a, sign, b in left):
            open_.append(left)
    if len(open_) != 1:
        yield guard if len(open_) == len(read) or not open_ else _text(open_)
        return
    for comparison in open_[0]:
        told = _relation(*comparison)
        for relation in known.simplest(told):
            known.learn(relation)
            if _single(relation):  # a bound, which is shown with its like
                seen.update(dict.fromkeys(relation.form.variables()))
            else:
                yield _text([[comparison if relation is told else (relation.form, _SIGNS[relation.kind], _ZERO)]])


def _text(alternatives: Read) -> str:
    texts = [" and ".join(_sides(*comparison) for comparison in alternative) for alternative in alternatives]
    return texts[0] if len(texts) == 1 else "(" + " or ".join(texts) + ")"


def _sides(left: Formula, sign: str, right: Formula) -> str:
    """A comparison without negative terms, the smaller side first; a remainder of zero as such."""
    if (division := _division(_relation(left, sign, right))) is not None:
        return f"{division[0]._factor_text()} % {division[1]._factor_text()} == 0"
    if sign in (">", ">="):
        left, right, sign = right, left, {">": "<", ">=": "<="}[sign]
    form = left - right
    ours, theirs = ({m: c for m, c in form.terms.items() if c * turn > 0} for turn in (1, -1))
    small, large = Formula(ours), Formula({m: -c for m, c in theirs.items()})
    if small.constant() is not None and sign in ("<", "<="):
        return f"{large} {sign.replace('<', '>')} {small}"
    return f"{small} {sign} {large}"


def _bounds(known: _Known, names: Iterable[str]) -> Iterator[str]:
    """The bounds of single sizes as text, those that are numbers first."""
    ordered = sorted(name for name in names if " " not in name)
    for name in ordered:
        bound = known.bounds[name]
        if bound.low == bound.high:
            yield f"{{{name}}} == {bound.low}"
    for name in ordered:
        bound = known.bounds[name]
        if bound.low == bound.high:
            continue
        if bound.low > 1:
            yield f"{{{name}}} >= {bound.low}"
        if bound.high is not None:
            yield f"{{{name}}} <= {bound.high}"
        yield from (f"{{{name}}} != {hole}" for hole in sorted(bound.holes))
