"""Exact formulas from integer samples: what a size is, from its values at a handful of points.

`Fitter.fit` walks a family of forms from the simplest on: a constant, one product (with quotients), a product and a
constant, sums of two, floors of linear forms, minima and maxima, sums of three, and each of these times a factor.
Candidates are found by looking keys up, not by trying: a product has the ratios between its values as key, modulo a
prime, so that keys multiply as products do; a sum is found by projecting known terms out of a few random linear
functionals of the values. Keys only propose. A candidate counts when integer arithmetic confirms it at every point that
chooses, and is returned when the text of its formula evaluates to the sample at the points held out as well.
"""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import repeat
from operator import mul

from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import STANDARD_ORDER, Call, Formula, Rational, evaluate, holds

__all__ = ["Fit", "Fitter", "spread"]

Vector = tuple[int, ...]
_PRIME = 1073741789  # the largest below 2**30: a product of two residues stays within two of Python's digits
_MAX_DEGREE = 4
_MAX_STEP = 1280  # the largest constant that floors divide by: strides of three convolutions and a hop
_STEPS = [b for b in range(2, _MAX_STEP + 1) if b <= 10 or b // (b & -b) in (1, 3, 5, 7, 25)]
_MAX_TRIPLES = 92  # terms from which sums of three are made: all up to degree two in twelve variables
_VERY_FEW = 3
_FEW = 5  # variables up to which the long lists of candidates are affordable
_SMALL_STEPS = (2, 3, 4, 5, 6, 7, 8, 10, 16, 20, 32)  # what sizes are halved, merged and strided by


@dataclass(frozen=True)
class Fit:
    """A formula that has the sampled values, and the conditions under which the sample supports it."""

    formula: Formula
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class _Form:
    """A candidate with its values at the choosing points."""

    formula: Formula
    values: Vector
    exact: tuple[tuple[Formula, Formula], ...] = ()  # dividend, divisor: quotients without remainder at every point
    limits: tuple[str, ...] = ()  # where the sample leaves a constant open, the sizes for which it does not matter
    names: tuple[str, ...] | None = None  # the factors of a product of plain variables

    def __mul__(self, other: _Form) -> _Form:
        names = None if self.names is None or other.names is None else (*self.names, *other.names)
        values = tuple(a * b for a, b in zip(self.values, other.values, strict=True))
        return _Form(self.formula * other.formula, values, self.exact + other.exact, self.limits + other.limits, names)

    def __add__(self, other: _Form) -> _Form:
        values = tuple(a + b for a, b in zip(self.values, other.values, strict=True))
        return _Form(self.formula + other.formula, values, self.exact + other.exact, self.limits + other.limits)

    def times(self, factor: int) -> _Form:
        values = tuple(factor * a for a in self.values)
        return _Form(self.formula * factor, values, self.exact, self.limits)


def _constant(value: int, count: int) -> _Form:
    return _Form(Formula.const(value), (value,) * count, names=() if value == 1 else None)


def _divides(divisor: Vector, dividend: Vector) -> bool:
    return all(b and a % b == 0 for a, b in zip(dividend, divisor, strict=True))


@lru_cache(maxsize=1 << 14)
def _quotient(dividend: _Form, divisor: _Form, *, up: bool = False) -> _Form:
    """`dividend // divisor`, or rounded up; an exact one says so.

    Only a multiple of the divisor tells rounding up from rounding down and adding 1, so without one it is left out.
    """
    pairs = list(zip(dividend.values, divisor.values, strict=True))
    values = tuple(-(-a // b) if up else a // b for a, b in pairs)
    a, b = dividend.formula, divisor.formula
    exact = dividend.exact + divisor.exact
    if _divides(divisor.values, dividend.values):
        return _Form(a // b, values, (*exact, (a, b)), dividend.limits)
    if not up:
        return _Form(a // b, values, exact, dividend.limits)
    limits = () if any(x % y == 0 for x, y in pairs) else (f"{a._factor_text()} % {b._factor_text()} != 0",)
    return _Form(a.ceildiv(b), values, exact, dividend.limits + limits)


# ---------------------------------------------------------------- which of two is simpler


def _calls(formula: Formula) -> set[Call]:
    own = {atom for monomial in formula.terms for atom, _ in monomial if isinstance(atom, Call)}
    return own.union(*(_calls(arg) for call in own for arg in call.args))


def _oddness(c: Rational) -> int:
    """Coefficients are powers of two more often than other small numbers, and rarely anything else."""
    odd = abs(c.numerator) * c.denominator
    while odd and odd % 2 == 0:
        odd //= 2
    return odd


def _rank(form: _Form) -> tuple[object, ...]:
    """Orders candidates of one kind: fewer variables, calls, terms and factors, plain numbers, standard variables."""
    formula, calls = form.formula, _calls(form.formula)
    terms = sum(len(f.terms) for f in (formula, *(a for k in calls for a in k.args)))
    degree = sum(e for monomial in formula.terms for _, e in monomial)
    strangers = sum(name not in STANDARD_ORDER for name in formula.variables())
    numbers = max(
        (_oddness(c) for f in (formula, *(a for k in calls for a in k.args)) for c in f.terms.values()), default=0
    )
    size = sum(abs(c.numerator) + c.denominator for c in formula.terms.values())
    return (
        len(form.limits),
        len(formula.variables()),
        len(calls),
        terms,
        degree,
        numbers,
        size,
        strangers,
        str(formula),
    )


def _free(formula: Formula) -> int:
    """How many numbers of a formula the sample had to settle: one a term, and the constants inside calls."""
    inner = [arg for call in _calls(formula) for arg in call.args]
    return len(formula.terms) + sum(1 for arg in inner for m, c in arg.terms.items() if not m or c != 1)


# ---------------------------------------------------------------- residues


def _inverses(numbers: Sequence[int]) -> list[int]:
    """The inverses modulo the prime, 0 for 0, with one inversion for all."""
    running, total = [], 1
    for n in numbers:
        running.append(total)
        total = total * n % _PRIME if n else total
    inverse, found = pow(total, -1, _PRIME), [0] * len(numbers)
    for i in range(len(numbers) - 1, -1, -1):
        if numbers[i]:
            found[i] = inverse * running[i] % _PRIME
            inverse = inverse * numbers[i] % _PRIME
    return found


def _solve(columns: Sequence[Vector], target: Vector) -> list[Fraction] | None:
    """The one combination of the columns that is the target, exactly; None where there is none or more than one."""
    rows: list[list[Fraction]] = []  # reduced: each has a 1 where the others have a 0
    for values in zip(*columns, target, strict=True):
        row = [Fraction(x) for x in values]
        for i, known in enumerate(rows):
            row = [a - row[i] * b for a, b in zip(row, known, strict=True)] if row[i] else row
        lead = len(rows)
        if not row[lead]:
            continue  # this point tells nothing new about the terms so far; the check at the end sees it
        row = [x / row[lead] for x in row]
        rows = [[a - r[lead] * b for a, b in zip(r, row, strict=True)] if r[lead] else r for r in rows] + [row]
        if len(rows) == len(columns):
            found = [r[-1] for r in rows]
            holds_at = (sum(map(mul, found, v[:-1])) == v[-1] for v in zip(*columns, target, strict=True))
            return found if all(holds_at) else None
    return None


class _Keys:
    """Keys of vectors: ratios at a few points that are far apart for products, random functionals for sums."""

    def __init__(self, points: Sequence[Mapping[str, int]]) -> None:
        self.at = _far_apart(points, 5)
        random_source = random.Random(len(points))
        self.weights = [[random_source.randrange(1, _PRIME) for _ in points] for _ in range(4)]
        self.balanced = [[*row[:-1], -sum(row[:-1]) % _PRIME] for row in self.weights[:2]]  # each row's sum is 0

    def ratios(self, values: Vector) -> Vector | None:
        """None where a value at the points of the key is zero."""
        chosen = [values[i] % _PRIME for i in self.at]
        if 0 in chosen:
            return None
        inverse = pow(chosen[0], -1, _PRIME)
        return tuple(x * inverse % _PRIME for x in chosen[1:])

    def functionals(self, values: Vector) -> Vector:
        return tuple(sum(map(mul, row, values)) % _PRIME for row in self.weights)


def _far_apart(points: Sequence[Mapping[str, int]], count: int) -> list[int]:
    """Indices of points that differ from one another in as many variables as may be."""
    found = [0]
    while len(found) < min(count, len(points)):
        found.append(
            max(
                (i for i in range(len(points)) if i not in found),
                key=lambda i: (min(sum(points[i][n] != points[j][n] for n in points[i]) for j in found), -i),
            )
        )
    return found


def _product(left: Vector, right: Vector) -> Vector:
    return tuple(a * b % _PRIME for a, b in zip(left, right, strict=True))


# ---------------------------------------------------------------- the vocabulary of a set of variables


class _Vocabulary:
    """The candidates over some variables, with their keys; every list is made when it is first needed."""

    def __init__(self, names: Sequence[str], points: Sequence[Mapping[str, int]], keys: _Keys) -> None:
        self.names, self.count, self.keys = tuple(names), len(points), keys
        self.variables = [_Form(Formula.var(n), tuple(p[n] for p in points), names=(n,)) for n in names]
        self.by_name = dict(zip(self.names, self.variables, strict=True))
        self.few = len(self.names) <= _FEW
        self.one = _constant(1, self.count)

    # ---- lists

    def product(self, names: Iterable[str]) -> _Form:
        return math.prod((self.by_name[n] for n in names), start=self.one)

    @cached_property
    def powers(self) -> list[tuple[tuple[str, ...], Vector]]:
        """Products of up to four variables with their keys, the empty one first."""
        keyed = {f.names[0]: key for f in self.variables if f.names and (key := self.keys.ratios(f.values))}
        found: list[tuple[tuple[str, ...], Vector]] = [((), (1,) * (len(self.keys.at) - 1))]
        level = list(found)
        for _ in range(_MAX_DEGREE if len(keyed) <= 16 else _MAX_DEGREE - 1):
            level = [
                ((*names, n), _product(key, keyed[n]))
                for names, key in level
                for n in keyed
                if not names or self.names.index(n) >= self.names.index(names[-1])
            ]
            found += level
        return found

    @cached_property
    def by_ratios(self) -> dict[Vector, list[tuple[str, ...]]]:
        found: dict[Vector, list[tuple[str, ...]]] = {}
        for names, key in self.powers:
            found.setdefault(key, []).append(names)
        return found

    @cached_property
    def divisors(self) -> list[tuple[tuple[str, ...], Vector]]:
        degree = _MAX_DEGREE if self.few else 2
        return [(names, key) for names, key in self.powers if 0 < len(names) <= degree]

    @cached_property
    def basis(self) -> list[_Form]:
        """1, the variables and their products by twos."""
        pairs = itertools.combinations_with_replacement(self.variables, 2)
        return [self.one, *self.variables, *(a * b for a, b in pairs)]

    @cached_property
    def rounded(self) -> list[list[_Form]]:
        """One variable over another (over a product of two where there are few), rounded down and up, by divisor."""
        under = [f for f in (self.basis[1:] if self.few else self.variables) if all(f.values)]
        if self.few:
            under += [f.times(c) for f in self.variables for c in (2, 4)]
        if len(self.names) <= _VERY_FEW:
            under += [_constant(b, self.count) for b in _SMALL_STEPS]
        found = []
        for b in under:
            tops = [a for a in self.variables if not set(a.names or ()) & set(b.names or ())]
            found.append([_quotient(a, b) for a in tops])
            found.append([_quotient(a, b, up=True) for a in tops if not _divides(b.values, a.values)])
        return [[f for f in group if len(set(f.values)) > 1] for group in found]

    @cached_property
    def quotients(self) -> list[_Form]:
        return [f for group in self.rounded for f in group]

    @cached_property
    def floors(self) -> list[tuple[_Form, Vector]]:
        """The quotients with a remainder somewhere, each with the inverse of its key: the others are products."""
        keyed = [(f, self.keys.ratios(f.values)) for f in self.quotients if not f.exact]
        return [(f, tuple(_inverses(key))) for f, key in keyed if key]

    @cached_property
    def floors_by_ratios(self) -> dict[Vector, list[_Form]]:
        found: dict[Vector, list[_Form]] = {}
        for form, inverse in self.floors:
            found.setdefault(tuple(_inverses(inverse)), []).append(form)
        return found

    @cached_property
    def products(self) -> list[tuple[_Form, ...]]:
        """Products of variables, as their factors."""
        return [tuple(self.by_name[n] for n in names) for names, _ in self.powers[1:]]

    @cached_property
    def rounded_products(self) -> list[tuple[_Form, ...]]:
        """A quotient, alone, times a variable or times its like, as their factors."""
        found: list[tuple[_Form, ...]] = [(f,) for f in self.quotients]
        found += [(f, q) for q in self.quotients for f in self.variables]
        found += [pair for group in self.rounded for pair in itertools.combinations_with_replacement(group, 2)]
        return found

    # ---- writing

    def scaled(self, form: _Form, c: Fraction) -> _Form:
        """`c * form`, whole at every point."""
        if c.denominator == 1:
            return form.times(int(c)) if c != 1 else form
        if form.names is not None:
            return self.ratio(c, form.names, ())
        return _quotient(form.times(c.numerator), _constant(c.denominator, self.count))

    def ratio(self, c: Fraction, over: Sequence[str], under: Sequence[str]) -> _Form:
        """`c * over / under`, whole at every point, with the divisions at the fewest factors that they fit."""
        if c.denominator == 1 and not under:
            return self.scaled(self.product(over), c)
        bottom = self.product(under).times(c.denominator) if c.denominator > 1 else self.product(under)
        alone, each = self._grouped(over, bottom, 1), self._matched(over, under, c.denominator)
        first = (each, alone) if len(set(under)) < len(under) else (alone, each)
        for found in (*first, *(self._grouped(over, bottom, size) for size in range(2, len(over) + 1))):
            if found is not None:
                return self.scaled(found, Fraction(c.numerator))
        return _quotient(self.product(over).times(c.numerator), bottom)

    def _grouped(self, over: Sequence[str], bottom: _Form, size: int) -> _Form | None:
        """The quotient of `size` of the factors, times the others."""
        for chosen in itertools.combinations(range(len(over)), size):
            top = self.product(over[i] for i in chosen)
            if _divides(bottom.values, top.values):
                rest = self.product(n for i, n in enumerate(over) if i not in chosen)
                return rest * _quotient(top, bottom)
        return None

    def _matched(self, over: Sequence[str], under: Sequence[str], step: int) -> _Form | None:
        """Each divisor under a factor of its own."""
        left, found = [self.by_name[n] for n in over], self.one
        divisors = [self.by_name[n] for n in under] + ([_constant(step, self.count)] if step > 1 else [])
        for divisor in divisors:
            top = next((f for f in left if _divides(divisor.values, f.values)), None)
            if top is None:
                return None
            left.remove(top)
            found = found * _quotient(top, divisor)
        return found * math.prod(left, start=self.one)

    def combined(self, coefficients: Sequence[Fraction], forms: Sequence[_Form]) -> _Form:
        """The sum of the multiples; what is not whole by itself goes over one divisor."""
        kept = [(c, f) for c, f in zip(coefficients, forms, strict=True) if c]
        whole = [(c, f) for c, f in kept if all(c * v % 1 == 0 for v in f.values)]
        rest = [(c, f) for c, f in kept if (c, f) not in whole]
        step = math.lcm(*(c.denominator for c, _ in rest))
        top = sum((f.times(int(c * step)) for c, f in rest), start=_constant(0, self.count))
        parts = [self.scaled(f, c) for c, f in whole]
        if rest:
            parts.append(_quotient(top, _constant(step, self.count)))
        return sum(parts[1:], start=parts[0])


# ---------------------------------------------------------------- forms that hold a sample


class _Search:
    """The candidates over one vocabulary for a vector of values, a method a kind of form."""

    def __init__(self, vocabulary: _Vocabulary) -> None:
        self.words, self.keys = vocabulary, vocabulary.keys
        self.projections = [self.keys.functionals(f.values) for f in self.words.basis]

    # ---- one product

    def terms(self, y: Vector) -> Iterator[_Form]:
        """`c * product / product`."""
        words, key = self.words, self.keys.ratios(y)
        if key is None:
            return
        for names in words.by_ratios.get(key, []):
            yield from self._scaled(words.product(names), y)
        for under, inverse in words.divisors:
            for over in words.by_ratios.get(_product(key, inverse), []):
                if not set(over) & set(under):
                    top, bottom = words.product(over).values, words.product(under).values
                    yield words.ratio(Fraction(y[0] * bottom[0], top[0]), over, under)

    def rounded_terms(self, y: Vector) -> Iterator[_Form]:
        """A product with one or two quotients that leave a remainder."""
        words, key = self.words, self.keys.ratios(y)
        for form, inverse in words.floors if key else ():
            rest = _product(key or (), inverse)
            for names in words.by_ratios.get(rest, []):
                yield from self._scaled(words.product(names) * form, y)
            for other in words.floors_by_ratios.get(rest, []):
                yield from self._scaled(form * other, y)

    def _scaled(self, form: _Form, y: Vector) -> Iterator[_Form]:
        c = Fraction(y[0], form.values[0])
        if all(c * v == target for v, target in zip(form.values, y, strict=True)):
            yield self.words.scaled(form, c)

    # ---- sums

    def _without(self, at: int, projection: Vector) -> list[int]:
        """The functionals but the first, with a term of the basis projected out by means of the first."""
        term = self.projections[at]
        factor = projection[0] * self._leads[at] % _PRIME
        return [(a - factor * b) % _PRIME for a, b in zip(projection[1:], term[1:], strict=True)]

    @cached_property
    def _leads(self) -> list[int]:
        return _inverses([p[0] for p in self.projections])

    @staticmethod
    def _table(residues: Sequence[Sequence[int]], indices: Iterable[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        inverses = _inverses([r[0] for r in residues])
        for residue, inverse, index in zip(residues, inverses, indices, strict=True):
            if inverse:
                found.setdefault(residue[1] * inverse % _PRIME, []).append(index)
        return found

    def _beside_one(self, products: list[tuple[_Form, ...]]) -> dict[int, list[int]]:
        residues = [self._less_one(_values(factors)) for factors in products]
        return self._table(residues, range(len(residues)))

    def _less_one(self, values: Vector) -> Vector:
        """Two functionals that are 0 for a constant."""
        return tuple(sum(map(mul, row, values)) % _PRIME for row in self.keys.balanced)

    @cached_property
    def _affine(self) -> dict[int, list[int]]:
        return self._beside_one(self.words.products)

    @cached_property
    def _affine_rounded(self) -> dict[int, list[int]]:
        return self._beside_one(self.words.rounded_products)

    def affine(self, y: Vector) -> Iterator[_Form]:
        """A product and a constant."""
        return self._shifted(y, self._affine, self.words.products)

    def affine_rounded(self, y: Vector) -> Iterator[_Form]:
        """A product with a quotient, and a constant."""
        return self._shifted(y, self._affine_rounded, self.words.rounded_products)

    def _shifted(self, y: Vector, table: dict[int, list[int]], products: list[tuple[_Form, ...]]) -> Iterator[_Form]:
        lead, second = self._less_one(y)
        for index in table.get(second * pow(lead, -1, _PRIME) % _PRIME, []) if lead else ():
            form = math.prod(products[index], start=self.words.one)
            yield from self._sum([form, self.words.one], y)

    def _sum(self, forms: list[_Form], y: Vector) -> Iterator[_Form]:
        coefficients = _solve([f.values for f in forms], y)
        if coefficients is not None and any(coefficients):
            yield self.words.combined(coefficients, forms)

    @cached_property
    def _two(self) -> list[dict[int, list[int]]]:
        size = range(len(self.projections))
        return [
            self._table([self._without(i, self.projections[k]) for k in size[i + 1 :]], size[i + 1 :]) for i in size
        ]

    def twos(self, y: Vector) -> Iterator[_Form]:
        """Sums of two terms of the basis."""
        if len(y) < 4:
            return  # nothing would be left to tell one sum from another
        projection, basis = self.keys.functionals(y), self.words.basis
        residues = [self._without(i, projection) for i in range(len(basis))]
        for i, inverse in enumerate(_inverses([r[0] for r in residues])):
            for k in self._two[i].get(residues[i][1] * inverse % _PRIME, []):
                yield from self._sum([basis[i], basis[k]], y)

    @cached_property
    def _three(self) -> list[tuple[int, int, tuple[int, int], dict[int, list[int]]]]:
        """For each two terms: what projects the second out after the first, and the third terms by their keys."""
        size, found = range(min(len(self.projections), _MAX_TRIPLES)), []
        for i in size:
            rest = [self._without(i, self.projections[k]) for k in size[i + 1 :]]
            for at, inverse in enumerate(_inverses([r[0] for r in rest])):
                factors = (rest[at][1] * inverse % _PRIME, rest[at][2] * inverse % _PRIME)
                residues = [_reduced(r, factors) for r in rest[at + 1 :]]
                found.append((i, i + 1 + at, factors, self._table(residues, size[i + at + 2 :])))
        return found

    def threes(self, y: Vector) -> Iterator[_Form]:
        """Sums of three terms of the basis, or of its beginning where it is long."""
        if len(y) < 5:
            return
        projection, basis = self.keys.functionals(y), self.words.basis
        first = [self._without(i, projection) for i in range(min(len(basis), _MAX_TRIPLES))]
        residues = [_reduced(first[i], factors) for i, _, factors, _ in self._three]
        inverses = _inverses([r[0] for r in residues])
        for (i, j, _, table), residue, inverse in zip(self._three, residues, inverses, strict=True):
            for k in table.get(residue[1] * inverse % _PRIME, []) if inverse else ():
                yield from self._sum([basis[i], basis[j], basis[k]], y)

    def beside(self, y: Vector) -> Iterator[_Form]:
        """A variable or a product of two, added or taken away, beside a product and a constant."""
        for form in self.words.basis[1:] if self.words.few else self.words.variables:
            for sign in (1, -1):
                rest = tuple(a - sign * b for a, b in zip(y, form.values, strict=True))
                for other in itertools.chain(self.affine(rest), self.affine_rounded(rest)):
                    yield form.times(sign) + other

    # ---- floors

    @cached_property
    def subjects(self) -> list[tuple[_Form, int]]:
        """What is divided: variables, sums, differences and products of two, and small multiples with their number."""
        own = self.words.variables
        pairs = list(itertools.combinations(own, 2))
        differences = [a + b.times(-1) for a, b in itertools.permutations(own, 2)]
        plain = [*own, *(a + b for a, b in pairs), *(a * b for a, b in pairs), *differences]
        return [*((f, 1) for f in plain), *((f.times(c), c) for f in own for c in (2, 3))]

    def floors(self, y: Vector) -> Iterator[_Form]:
        """`(subject + a) // b` for a number b; such floors nest into one another and stay of this form.

        ((x + a) // b + c) // d = (x + a + b*c) // (b*d), so that strided convolutions in a row are one floor.
        """
        common = math.gcd(*y)
        for factor in {1, common} - {0}:
            target = tuple(v // factor for v in y)
            for subject, multiple in self.subjects:
                found: dict[tuple[object, ...], list[_Form]] = {}
                for step in _steps(subject.values, target):
                    form = _floor(subject, _constant(step, len(y)), target)
                    if form is not None and (multiple == 1 or (step <= 32 and math.gcd(step, multiple) == 1)):
                        shape = (form.formula.terms.get(()), len(form.limits), "ceil" in str(form.formula))
                        found.setdefault(shape, []).append(form)
                # where several steps have the same values the sample does not settle which it is
                yield from (forms[0].times(factor) for forms in found.values() if len(forms) == 1)

    def ratios(self, y: Vector) -> Iterator[_Form]:
        """`(subject + a) // variable + k`: windows of a variable stride, rounding up to a variable's multiples."""
        own = [f for f in self.words.variables if all(f.values)]
        for subject, _ in self.subjects if self.words.few else self.subjects[: len(self.words.variables)]:
            for divisor in own:
                for k in _offsets(subject.values, divisor.values, y):
                    form = _floor(subject, divisor, tuple(v - k for v in y))
                    if form is not None:
                        yield form + _constant(k, len(y))

    # ---- extremes

    def extremes(self, y: Vector) -> Iterator[_Form]:
        """`min` or `max` of two simple forms, each of which decides alone at two points at least."""
        words = self.words
        pairs = itertools.combinations(words.variables, 2)
        simple = [*words.basis[1:], *(a + b for a, b in pairs), *words.quotients]
        for smallest in (True, False):
            constant = _constant(max(y) if smallest else min(y), len(y))
            touching = [(f, mask) for f in (*simple, constant) if (mask := _touching(f.values, y, smallest))]
            full = (1 << len(y)) - 1
            for (a, left), (b, right) in itertools.combinations(touching, 2):
                if left | right == full and min((left & ~right).bit_count(), (right & ~left).bit_count()) > 1:
                    extremum = Formula.minimum if smallest else Formula.maximum
                    yield _Form(extremum(a.formula, b.formula), y, a.exact + b.exact)

    # ---- a factor times another form

    @cached_property
    def factors(self) -> list[_Form]:
        floors = [f for f, _ in self.words.floors] if self.words.few else []
        return [*reversed(self.words.basis[1:]), *floors]

    def factored(self, y: Vector, kinds: Sequence[Callable[[Vector], Iterator[_Form]]]) -> Iterator[_Form]:
        common = math.gcd(*y)
        numbers = [_constant(common, len(y))] if common > 1 else []
        for factor in (*numbers, *self.factors):
            if _divides(factor.values, y):
                rest = tuple(a // b for a, b in zip(y, factor.values, strict=True))
                found = [form for kind in kinds for form in kind(rest) if form.values == rest]
                if found:
                    yield from (factor * form for form in found)
                    return


def _values(factors: Sequence[_Form]) -> Vector:
    return tuple(map(math.prod, zip(*(f.values for f in factors), strict=True)))


def _reduced(residue: Sequence[int], factors: tuple[int, int]) -> tuple[int, int]:
    return (residue[1] - factors[0] * residue[0]) % _PRIME, (residue[2] - factors[1] * residue[0]) % _PRIME


def _decided(forms: Iterable[_Form]) -> Iterator[_Form]:
    """The floors over as many variables as one another where those are the same: a small variable within a large
    step changes few values, so that others may do as well, and then the sample does not settle which it is."""
    found: dict[int, dict[frozenset[str], list[_Form]]] = {}
    for form in forms:
        names = form.formula.variables()
        found.setdefault(len(names), {}).setdefault(names, []).append(form)
    for alike in found.values():
        if len(alike) == 1:
            yield from next(iter(alike.values()))


def _touching(form: Vector, y: Vector, smallest: bool) -> int:
    """A bit for each point where the form is the value; 0 where it is on the wrong side of one."""
    mask = 0
    for i, (a, b) in enumerate(zip(form, y, strict=True)):
        if a == b:
            mask |= 1 << i
        elif (a < b) is smallest:
            return 0
    return mask


def _steps(x: Vector, y: Vector) -> Iterator[int]:
    """The plausible numbers b for which y can be (x + a) // b, from the two points furthest apart.

    Plausible are those up to ten and, as strides and hops go, powers of two times an odd number of a short list.
    Both floors lose less than one step: |dx - b * dy| < b, so b lies between dx / (dy + 1) and dx / (dy - 1).
    """
    low, high = x.index(min(x)), x.index(max(x))
    dx, dy = x[high] - x[low], y[high] - y[low]
    if dy < 1:
        return
    last = dx // (dy - 1) if dy > 1 else _STEPS[-1]
    for b in _STEPS[bisect_left(_STEPS, dx // (dy + 1)) :]:
        if b > last:
            return
        if _interval(x, repeat(b), y) is not None:
            yield b


def _interval(x: Vector, b: Iterable[int], y: Vector) -> tuple[int, int] | None:
    """The least and the greatest a for which y is (x + a) // b: y*b <= x + a < y*b + b at each point."""
    low, high = -(1 << 62), 1 << 62
    for v, step, target in zip(x, b, y, strict=False):
        least = target * step - v
        if least > low:
            low = least
        if least + step <= high:
            high = least + step - 1
        if low > high:
            return None
    return low, high


def _offsets(x: Vector, b: Vector, y: Vector) -> tuple[int, ...]:
    """The constants of at most 2 beside `x // b`, which differ by no more than the rounding."""
    lowest = highest = y[0] - x[0] // b[0]
    for v, step, target in zip(x, b, y, strict=True):
        offset = target - v // step
        lowest, highest = min(lowest, offset), max(highest, offset)
        if highest - lowest > 1:
            return ()
    return tuple(k for k in dict.fromkeys((lowest, highest)) if abs(k) <= 2)


def _floor(x: _Form, b: _Form, y: Vector) -> _Form | None:
    """`(x + a) // b` with the plainest a that has the values.

    Plain rounding down or up is taken where the interval of a holds it. Otherwise an interval of several leaves a
    open, and the form holds for the sizes where all of them agree: those whose remainder lies past its width.
    """
    interval = _interval(x.values, b.values, y)
    if interval is None:
        return None
    low, high = interval
    step = b.values[0] if b.formula.constant() is not None else 1 << 62  # a variable's multiples are tried one by one
    down, up = -(-low // step), -(-(low + 1) // step)
    if up * step - 1 <= high and (up == 1 or down * step > high):
        return _quotient(x, b, up=True) + _constant(up - 1, len(y))
    if down * step <= high:
        return _quotient(x, b) + _constant(down, len(y))
    if low > _MAX_STEP or high < -_MAX_STEP:
        return None
    # strides, paddings and hops are round
    a = max(range(max(low, -_MAX_STEP), min(high, _MAX_STEP) + 1), key=lambda a: (math.gcd(a, step), -abs(a)))
    form = _quotient(x + _constant(a, len(y)), b)
    if low == high:
        return form
    limit = f"{(x.formula + high)._factor_text()} % {b.formula._factor_text()} >= {high - low}"
    return _Form(form.formula, form.values, form.exact, (limit,))


# ---------------------------------------------------------------- fitting


class Fitter:
    """Finds formulas for integers that were seen at some points.

    The last `held_out` of the points never choose a formula, they only check the one that the others chose. `pairs`
    names, for a variable, two points that differ in it alone, and by much, since floors and minima hide small changes:
    where a size is the same at both, a formula without that variable is looked for first.
    """

    def __init__(
        self,
        points: Sequence[Mapping[str, int]],
        *,
        held_out: int = 3,
        pairs: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        if not 0 <= held_out < len(points):
            raise ValueError(f"{len(points)} points leave none to choose a formula when {held_out} are held out.")
        if any(p.keys() != points[0].keys() for p in points):
            raise ValueError("Every point must bind the same variables.")
        self.points = [dict(p) for p in points]
        self._chosen = self.points[: len(points) - held_out]
        count = len(self._chosen)
        self._pairs = {n: (i, k) for n, (i, k) in (pairs or {}).items() if i < count and k < count}
        self._names = tuple(n for n in _ordered(points[0]) if len({p[n] for p in self._chosen}) > 1)
        self._keys = _Keys(self._chosen)
        self._searches: dict[tuple[str, ...], _Search] = {}
        self._known: dict[Vector, Fit | None] = {}

    def fit(self, values: Sequence[int]) -> Fit | None:
        """The formula that is `values[i]` at point i for every i; None where the family holds none.

        A formula that has more numbers to settle than the choosing points, less two, tell apart by its variables
        counts as none, as does one that fails at a point held out.
        """
        if len(values) != len(self.points):
            raise ValueError(f"{len(values)} values for {len(self.points)} points.")
        key = tuple(values)
        if key not in self._known:
            self._known[key] = self._fit(key)
        return self._known[key]

    def _fit(self, values: Vector) -> Fit | None:
        y = values[: len(self._chosen)]
        if len(y) < 3:
            return None  # a formula holds a number at least
        for stage in self._stages(y):
            found = [f for f in stage if f.values == y and self._settled(f.formula)]
            if found:
                return self._checked(min(found, key=_rank), values)
        return None

    def _stages(self, y: Vector) -> Iterator[Iterator[_Form]]:
        """Kinds of forms, simplest first."""
        yield iter([_constant(y[0], len(y))])
        if len(set(y)) == 1:
            return
        near, wide = self._search(self._relevant(y)), self._search(self._names)
        yield from self._polynomials(near, y)
        threes = [near.threes(y), near.factored(y, (near.threes,))]
        bends = self._bends(near, y)
        yield from itertools.chain(threes, bends) if near.words.few else itertools.chain(bends, threes)
        if wide is not near:
            yield from self._polynomials(wide, y)
            yield from self._bends(wide, y)

    @staticmethod
    def _polynomials(search: _Search, y: Vector) -> Iterator[Iterator[_Form]]:
        """Products, sums of two, and the same with quotients of variables as factors."""
        yield search.terms(y)
        yield search.affine(y)
        yield search.twos(y)
        yield search.factored(y, (search.affine, search.twos))
        yield search.rounded_terms(y)
        yield search.affine_rounded(y)
        yield search.factored(y, (search.affine_rounded,))

    @staticmethod
    def _bends(search: _Search, y: Vector) -> Iterator[Iterator[_Form]]:
        """Floors, extremes, a quotient beside a product, and each of these times a factor."""
        yield _decided(itertools.chain(search.floors(y), search.ratios(y)))
        yield search.extremes(y)
        yield search.beside(y)
        yield search.factored(y, (search.floors, search.ratios, search.extremes, search.beside))

    def _relevant(self, y: Vector) -> tuple[str, ...]:
        return tuple(n for n in self._names if n not in self._pairs or y[self._pairs[n][0]] != y[self._pairs[n][1]])

    def _search(self, names: tuple[str, ...]) -> _Search:
        if names not in self._searches:
            self._searches[names] = _Search(_Vocabulary(names, self._chosen, self._keys))
        return self._searches[names]

    def _settled(self, formula: Formula) -> bool:
        """Points that a formula's variables do not tell apart are one point to it."""
        names = formula.variables()
        seen = {tuple(p[n] for n in names) for p in self._chosen} if names else self._chosen
        return _free(formula) <= len(seen) - 2

    def _checked(self, form: _Form, values: Vector) -> Fit | None:
        """The fit, where the formula's text has every value; an exact quotient's condition stays where all meet it."""
        text = str(form.formula)
        try:
            if any(evaluate(text, p) != v for p, v in zip(self.points, values, strict=True)):
                return None
        except ValuesError:  # a division by zero at a point held out
            return None
        exact = [f"{a._factor_text()} % {b._factor_text()} == 0" for a, b in form.exact]
        conditions = dict.fromkeys((*exact, *form.limits))
        # a point held out that has the formula's value has shown that a condition on remainders is none
        kept = [c for c in conditions if not c.endswith("= 0") or all(holds(c, p) for p in self.points)]
        return Fit(form.formula, tuple(kept))


def _ordered(names: Iterable[str]) -> list[str]:
    """Standard variables in their order, others after them by name."""
    place = {name: i for i, name in enumerate(STANDARD_ORDER)}
    return sorted(names, key=lambda n: (place.get(n, len(place)), n))


# ---------------------------------------------------------------- points


def spread(variables: Mapping[str, int], *, steps: Mapping[str, int], count: int, seed: int) -> list[dict[str, int]]:
    """`count` points around the values of `variables` that vary all of them at once.

    Each variable stays positive and congruent to its value modulo its step (1 where `steps` has none, fixed where it
    is 0), so that divisibilities survive. No value of a variable comes back, and within a point sizes, and products
    of two, coincide as little as may be: a coincidence would make two formulas look alike.
    """
    source = random.Random(seed)
    left = {name: _near(base, steps.get(name, 1), count) for name, base in variables.items()}
    found: list[dict[str, int]] = []
    for _ in range(count):
        drawn = [{name: source.choice(values) for name, values in left.items()} for _ in range(40)]
        point = min(drawn, key=_coincidences)
        found.append(point)
        for name, values in left.items():
            if len(values) > 1:
                values.remove(point[name])
    return found


def _near(base: int, step: int, count: int) -> list[int]:
    """The positive values congruent to the base from about half of it to one and a half, and enough of them."""
    if step == 0:
        return [base]
    size = max(2 * count + 2, base // step)
    below = min((base - 1) // step, size // 2)
    return [base + step * k for k in range(-below, size - below)]


def _coincidences(point: Mapping[str, int]) -> tuple[int, int]:
    values = list(point.values())
    products = [a * b for a, b in itertools.combinations_with_replacement(values, 2)]
    alike = [*values, *products, *(a + b for a, b in itertools.combinations(values, 2))]
    return len(values) - len(set(values)), len(alike) - len(set(alike))
