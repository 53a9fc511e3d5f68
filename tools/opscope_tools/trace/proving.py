"""What follows from what is known of sizes: each within its bounds, exact divisions as products, a difference without a negative term.

What is not proven may hold all the same: a proof tries a few steps and gives up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from opscope_schemas.formula import Call, Formula, Monomial, over

from opscope_tools.trace.relations import (
    ONE,
    ZERO,
    Relation,
    defined_by,
    division_in,
    equal_products,
    equated,
    filled_up,
    is_whole,
    least_call,
    lowest,
    plain_product,
    single_in,
    span_of,
    variable_of,
)

__all__ = ["Known"]

#: how many steps a proof takes back from a difference to what is known
_STEPS = 2
#: how often equal products are put in each other's place
_ROUNDS = 8
#: forms that one proof tries on its way, and that all proofs of a set of guards do
_EFFORT, _EFFORT_IN_ALL = 40, 1500


@dataclass
class Bounds:
    """What is known of one size: its ends, and numbers between them that it is not."""

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


class Known:
    """What is known of sizes so far, and what follows from it."""

    def __init__(self) -> None:
        self.bounds: dict[str, Bounds] = {}
        #: relations of several variables that are shown
        self.facts: list[Relation] = []
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

    def bound(self, name: str) -> Bounds:
        """The bounds of a size, from 1 on where nothing is known."""
        return self.bounds.setdefault(name, Bounds())

    def learn(self, relation: Relation) -> None:
        """Take a relation that holds into account."""
        self._forget()
        if (division := division_in(relation)) is not None:
            self._divides(*division)
        elif (single := single_in(relation)) is not None:
            self._narrow(*single)
        else:
            fact = Relation(relation.kind, self.plain(relation.form))
            single = single_in(fact)
            if single is not None and single[0] in self._quotients:
                self._narrow(*single)
            if fact.kind == "eq" and (defined := defined_by(fact.form)) is not None:
                self._products[defined[0]] = defined[1]
                self._kept_bounds(defined[0])
                return
            if fact.kind == "eq" and (products := equal_products(fact.form)) is not None:
                self._equal.append(self._directed(*products))
                self._forget()
                self.facts = [Relation(one.kind, self.plain(one.form)) for one in self.facts]
                return
            if fact.kind == "eq" and (same := equated(fact.form)) is not None:
                self._same[same[0]] = same[1]
            if (least := least_call(fact.form)) is not None:
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
        name = variable_of(dividend)
        if name and name not in self._products and name not in self._reach(divisor):
            rounded = Call("floordiv", (dividend, divisor))
            quotient = variable_of(self._same.get(rounded, ZERO)) or f"{name} over {divisor}"
            number = divisor.constant()
            if quotient not in self.bounds:
                least = 1 if number is None else -(-self.bound(name).low // int(number))
                self.bounds[quotient] = Bounds(low=max(1, least))
            self._products[name] = divisor * Formula.var(quotient)
            self._quotients[quotient] = (dividend, divisor)
            self._kept_bounds(name)

    def _kept_bounds(self, name: str) -> None:
        """A variable that stands for something else from now on: its bounds become facts."""
        self._forget()
        bound, own = self.bound(name), Formula.var(name)
        ends = [own - bound.low] + ([] if bound.high is None else [bound.high - own])
        facts = (*self.facts, *(Relation("ge", end) for end in ends))
        self.facts = [Relation(fact.kind, self.plain(fact.form)) for fact in facts]

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
            if variable_of(dividend) == name and number is not None:
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
        total = ZERO
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
        total, changed = ZERO, False
        for monomial, coefficient in form.terms.items():
            term = Formula({monomial: coefficient})
            found = ((rest, other) for product, other in equal if (rest := term.divided(product)) is not None)
            rest, other = next(found, (term, ONE))
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
        if not self.at_least(b - ONE):
            return again
        if call.op == "mod" and (filled := filled_up(a, b)) is not None and self.at_least(filled):
            return self.plain(filled.ceildiv(b)) * b - filled
        for dividend, divisor in self._undivided():
            quotient, times = dividend // divisor, a.divided(dividend)
            if times is not None and is_whole(times) and (b == quotient or (b == divisor and call.op == "mod")):
                return ZERO if call.op == "mod" else times * divisor  # a dividend over its exact quotient
        if self.at_least(a) and self.at_least(b - a - ONE, 1):  # 0 <= a < b
            if call.op == "ceildiv":
                return ONE if self.at_least(a - ONE) else again
            return ZERO if call.op == "floordiv" else a
        if call.op == "floordiv" and self.at_least(-a - ONE) and self.at_least(a + b):  # -b <= a < 0
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

    def simplest(self, relation: Relation) -> list[Relation]:
        """Relations that say the same as one where all that is known holds, in fewer words where they can be had."""
        plain = Relation(relation.kind, lowest(self.plain(relation.form)))
        if plain.kind == "eq" and (span := span_of(plain.form)) is not None and span[0] not in self._quotients:
            name, low, high = span
            return [Relation("ge", Formula.var(name) - low), Relation("ge", high - Formula.var(name))]
        single = single_in(plain)
        if single is not None and plain.kind == "ge" and single[0] in self._quotients:
            dividend, divisor = self._quotients[single[0]]
            if number := divisor.constant():
                whole = {single[0]: dividend * Formula.const(1 / number)}
                plain = Relation("ge", lowest(plain.form.substitute(whole)))
        if plain.form.variables() & self._quotients.keys() or not plain.form.variables():
            return [relation]
        if (division := division_in(plain)) is not None and all(map(plain_product, division)):
            return [Relation("eq", division[0] % division[1])]
        return [plain if len(str(plain.form)) < len(str(relation.form)) else relation]

    # ---- proving

    def proves(self, relation: Relation) -> bool:
        """Whether the relation holds at every point that meets what is known."""
        self._effort = _EFFORT if self._spent < _EFFORT_IN_ALL else 0
        if (division := division_in(relation)) is not None and self._exact(*division):
            return True
        form = self.plain(relation.form)
        if relation.kind == "eq":
            return form == ZERO or (self.at_least(form) and self.at_least(-form))
        if relation.kind == "ge":
            return self.at_least(form, _STEPS)
        single = single_in(Relation("ne", relation.form))
        if single is not None:
            bound, value = self.bounds.get(single[0], Bounds()), single[2]
            return (
                value is None
                or value < bound.low
                or value in bound.holes
                or (bound.high is not None and value > bound.high)
            )
        if any(f.kind == "ne" and form in (f.form, -f.form) for f in self.facts):
            return True
        reduced = lowest(form)
        return self.at_least(reduced - ONE, _STEPS) or self.at_least(-reduced - ONE, _STEPS)

    def _exact(self, dividend: Formula, divisor: Formula) -> bool:
        """Whether a shown division says that this one has no remainder."""
        for known, by in self.exact:
            multiple = dividend.divided(known) if by == divisor else None
            if multiple is not None and is_whole(multiple):
                return True
        return False

    def at_least(self, form: Formula, steps: int = 0) -> bool:
        """Whether a form is proven not to be negative."""
        form = lowest(form)
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
            bound = self.bounds.get(atom, Bounds())
            return bound.low, bound.high
        if atom.op in ("min", "max"):
            ends = [end for argument in atom.args if (end := self._least(argument)) is not None]
            known = ends and (atom.op == "max" or len(ends) == len(atom.args))
            return (math.ceil((max if atom.op == "max" else min)(ends)), None) if known else (-(1 << 62), None)
        if any(not self._positive(argument) for argument in atom.args):
            return -(1 << 62), None
        low = max(1 if atom.op == "ceildiv" else 0, self._lows.get(atom, 0))
        own = Formula({((atom, 1),): 1})
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
                    share = min(left[other], over(need, times))
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
                    part = Formula({monomial: 1}).divided(Formula({other: 1}))
                    if part is not None:
                        yield form - fact * part * Formula.const(over(coefficient, negative))

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
                own = Formula({((atom, 1),): 1})
                yield atom.args[0] - own * atom.args[1]  # the remainder
                yield atom.args[0] - own
            if isinstance(atom, Call) and atom.op == "ceildiv" and all(map(self._positive, atom.args)):
                filled = Formula({((atom, 1),): 1}) * atom.args[1]
                yield filled - atom.args[0]
                yield atom.args[0] + atom.args[1] - ONE - filled
            if isinstance(atom, Call) and atom.op == "min":
                yield from (argument - Formula({((atom, 1),): 1}) for argument in atom.args)
