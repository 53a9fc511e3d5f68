"""Symbolic sizes: named symbols in a ShapeEnv, their expressions as formulas, guards as conditions.

torch decides a branch on a symbolic size by the symbol's hint and records the decision as a guard; each guard becomes a
condition of the trace. `Symbols.formula` turns a sympy expression into a `Formula`, then uses the divisions that the
guards prove exact to write `heads * (hidden // heads)` and its like plainly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy
import torch
from opscope_schemas.errors import TraceError
from opscope_schemas.formula import Call, Formula
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic
from torch.utils._sympy import functions as sympy_functions

from opscope_tools.trace.relations import division
from opscope_tools.trace.variables import CONFIG
from opscope_tools.trace.worker.environment import HintedEnv

ONE = Formula.const(1)


class NoFormulaError(TraceError):
    """A size that the formula language cannot write."""

    depends_on_data = False


class DataSizeError(NoFormulaError):
    """A size that depends on data."""

    depends_on_data = True


def _positive(formula: Formula) -> bool:
    """Certainly at least 1 for positive variables: a sum of products with positive whole coefficients, no calls."""
    return bool(formula.terms) and all(
        c >= 1 and c.denominator == 1 and all(isinstance(a, str) for a, _ in m) for m, c in formula.terms.items()
    )


class Symbols:
    """The symbols of one trace."""

    def __init__(self) -> None:
        self.env = HintedEnv()
        self._names: dict[Any, str] = {}
        self._cache: dict[Any, Formula] = {}
        self.hints: dict[str, int] = {}
        self._divisible: set[tuple[Formula, Formula]] = set()
        self._aliases: dict[Call, Formula] = {}
        self._simplifying = False
        #: condition -> what was running or being built when its decision was asked for
        self.askers: dict[str, set[Any]] = {}

    def create(self, name: str, hint: int, *, chosen: bool = False) -> Any:
        """A symbolic integer called `name` whose branches are decided as for `hint`.

        Where two sizes must be equal, formulas name one that the run chooses before one of the config, and one by a standard name
        (`hidden_size` of a part of the config too) before others.
        """
        source = ConstantSource(name)
        symbol = self.env.create_symbol(
            hint, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None, do_not_specialize_zero_one=True
        )
        self.hints[name] = hint
        if isinstance(symbol, sympy.Symbol):
            self._names[symbol] = name
            if chosen or any(f"_{name}".endswith(f"_{standard}") for standard in CONFIG):
                self.env.ranks[symbol] = 0 if chosen else 1
        return self.env.create_symintnode(symbol, hint=hint, source=source)

    def name_of(self, symbol: Any) -> str:
        """What a torch symbol is called here; '' for one that torch made itself."""
        return self._names.get(symbol, "")

    def settled(self) -> list[str]:
        """Symbols that a decision made numbers."""
        return [self._names[s] for s, e in self.env.equal.items() if e.is_number and s in self._names]

    # ---- expressions

    def converted(self, expr: Any) -> Formula:
        """The formula of a sympy expression; raises `NoFormulaError`."""
        return self._convert(expr)

    def formula(self, size: Any) -> Formula:
        """The formula of an int or SymInt; raises `NoFormulaError`."""
        if isinstance(size, torch.SymInt):
            return self._convert(size.node.expr)
        return Formula.const(int(size))

    def one_size(self, a: Any, b: Any) -> bool:
        """Whether two ints or SymInts are one number wherever the decisions so far hold."""
        if a is b:
            return True
        sizes = [size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(int(size)) for size in (a, b)]
        if sizes[0] == sizes[1]:
            return True
        left, right = [size.xreplace(self.env.equal) for size in sizes]
        return bool(left == right) or self.same(self._convert(left), self._convert(right))

    def same(self, a: Formula, b: Formula) -> bool:
        """Whether two formulas agree wherever they were tried: at the hints, and at sizes beyond these."""
        return all(
            a.substitute(at).constant() == b.substitute(at).constant()
            for step in range(3)
            for at in [{name: hint + 8 * step * (place + 1) for place, (name, hint) in enumerate(self.hints.items())}]
        )

    def _convert(self, expr: Any) -> Formula:
        found = self._cache.get(expr)
        if found is None:
            found = self._cache[expr] = self._expression(expr)
        return found

    def _expression(self, e: Any) -> Formula:
        f = sympy_functions
        if e.is_Integer:
            return Formula.const(int(e))
        if e.is_Rational:
            return Formula.const(Fraction(int(e.p), int(e.q)))
        if e.is_Symbol:
            if e not in self._names:
                raise DataSizeError(f"The size {e} depends on data.")
            return Formula.var(self._names[e])
        args = [self._convert(a) for a in e.args] if not isinstance(e, _INEXACT) else []
        if e.is_Add:
            return sum(args, Formula({}))
        if e.is_Mul:
            product = ONE
            for arg in args:
                product = product * arg
            return product
        if e.is_Pow or isinstance(e, f.PowByNatural):
            exponent = args[1].constant()
            if exponent is not None and exponent.denominator == 1 and exponent >= 0:
                return args[0] ** int(exponent)
        if isinstance(e, f.FloorDiv | f.CleanDiv):
            if args[0].terms and all(c < 0 for c in args[0].terms.values()):  # -(-a // b) rounds up
                return Formula.const(-1) * (Formula.const(-1) * args[0]).ceildiv(args[1])
            return args[0] // args[1]
        if isinstance(e, f.Mod | f.PythonMod) or e.func.__name__ == "Mod":
            return args[0] % args[1]
        if isinstance(e, f.ModularIndexing):
            return (args[0] // args[1]) % args[2]
        if isinstance(e, f.Max | sympy.Max):
            kept = [a for a in args if a != ONE]
            if len(kept) < len(args) and len(kept) == 1 and _positive(kept[0]):
                return kept[0]
            return Formula.maximum(*args)
        if isinstance(e, f.Min | sympy.Min):
            return Formula.minimum(*args)
        if isinstance(e, f.Identity):
            return args[0]
        if isinstance(e, f.TruncToInt | f.FloorToInt | f.CeilToInt):
            numerator, denominator = self._ratio(e.args[0])
            return numerator.ceildiv(denominator) if isinstance(e, f.CeilToInt) else numerator // denominator
        raise NoFormulaError(f"The size {e} has no formula.")

    def _ratio(self, e: Any) -> tuple[Formula, Formula]:
        """A float expression as an exact ratio: products of whole sizes and short decimal fractions."""
        f = sympy_functions
        if isinstance(e, f.ToFloat):
            return self._convert(e.args[0]), ONE
        if isinstance(e, f.IntTrueDiv | f.FloatTrueDiv):
            (a, b), (c, d) = (
                self._ratio(arg) if arg.is_Float or arg.args else (self._convert(arg), ONE) for arg in e.args
            )
            return a * d, b * c
        if e.is_Integer or e.is_Symbol:
            return self._convert(e), ONE
        if e.is_Float or e.is_Rational:
            fraction = Fraction(float(e)).limit_denominator(1 << 20)
            if abs(float(fraction) - float(e)) <= 1e-12 * abs(float(e)):
                return Formula.const(fraction.numerator), Formula.const(fraction.denominator)
        if e.is_Mul:
            top, bottom = ONE, ONE
            for arg in e.args:
                a, b = self._ratio(arg)
                top, bottom = top * a, bottom * b
            return top, bottom
        if e.is_Add:
            top, bottom = Formula({}), ONE
            for arg in e.args:
                a, b = self._ratio(arg)
                top, bottom = top * b + a * bottom, bottom * b
            return top, bottom
        with contextlib.suppress(NoFormulaError):
            if e.is_integer:
                return self._convert(e), ONE
        raise NoFormulaError(f"The size {e} has no exact formula.")

    # ---- guards

    def conditions(self) -> list[str]:
        """Every decision taken, as a condition, written with the exact divisions that the decisions prove."""
        for decision in self.env.decisions:
            self._condition(decision)  # learns what divides what
        found: dict[str, None] = {
            f"{a._factor_text()} % {b._factor_text()} == 0": None for a, b in sorted(self._divisible, key=str)
        }
        for decision in self.env.decisions:
            text = self._condition(decision)
            if text:
                found[text] = None
                self.askers.setdefault(text, set()).update(self.env.askers.get(decision, ()))
        for a, b in self._divisible:  # told by any of the decisions that name all its sizes
            named = a.variables() | b.variables()
            whole = (d for d in self.env.decisions if named <= {self._names.get(s) for s in d.free_symbols})
            text = f"{a._factor_text()} % {b._factor_text()} == 0"
            self.askers.setdefault(text, set()).update(*(self.env.askers.get(d, ()) for d in whole))
        return list(found)

    def _condition(self, e: Any) -> str:
        """The condition's text; empty for what always holds. One that has no text pins the sizes that it names."""
        if isinstance(e, sympy.And | sympy.Or):
            parts = [self._condition(arg) for arg in e.args]
            word = " and " if isinstance(e, sympy.And) else " or "
            return "" if not all(parts) else "(" + word.join(parts) + ")"
        if isinstance(e, sympy.Not):
            inner = self._condition(e.args[0])
            return f"not ({inner})" if inner else ""
        for kind, sign in _RELATIONS.items():
            if isinstance(e, kind):
                try:
                    left, right = self._sides(e.lhs, e.rhs)
                except NoFormulaError:
                    return self._pinned(e)
                if (sign == "<=" and _is_rest(left, right)) or (sign == ">=" and _is_rest(right, left)):
                    sign = "=="  # a rest is not negative
                if sign == "==":
                    self._learn(left, right)
                left, right = self.simplified(left), self.simplified(right)
                if sign == "==" and (left == right or (Formula({}) in (left, right) and self._is_learnt(left, right))):
                    return ""
                if sign in ("<", "<=") and (right.constant() or 0) >= _UNBOUNDED:
                    return ""
                if sign in ("==", "!=") and left.constant() is not None:
                    left, right = right, left
                return f"{left} {sign} {right}"
        return ""

    def _sides(self, left: Any, right: Any) -> tuple[Formula, Formula]:
        """Both sides of a relation as formulas; of floats, with their denominators multiplied out."""
        try:
            return self._convert(left), self._convert(right)
        except NoFormulaError:
            (a, b), (c, d) = self._ratio(left), self._ratio(right)
            return a * d, c * b

    def _pinned(self, e: Any) -> str:
        """`{size} == hint` for every size that a relation without a formula names."""
        names = sorted(self._names[s] for s in e.free_symbols if s in self._names)
        return " and ".join(f"{{{name}}} == {self.hints[name]}" for name in names)

    def _learn(self, left: Formula, right: Formula) -> None:
        """From `a % b == 0`, or `a == k * (a // b)`-like equalities: that b divides a."""
        if (found := division(left, right)) is not None:
            self._divisible.add(_without_rest(*found))
        for one, other in ((left, right), (right, left)):
            if len(one.terms) != 1:
                continue
            (monomial, coefficient), *_ = one.terms.items()
            calls = [a for a, e in monomial if isinstance(a, Call) and e == 1]
            if other == Formula({}) and len(monomial) == 1 and calls and calls[0].op == "mod":
                self._divisible.add(_without_rest(*calls[0].args))
            if len(calls) == 1 and calls[0].op == "floordiv":
                call = calls[0]
                rest = Formula({tuple((a, e) for a, e in monomial if a != call): coefficient})
                if rest != call.args[1]:
                    continue
                if other == call.args[0]:
                    self._divisible.add((other, rest))
                elif other.variables() and (call.args[0] - other).constant() is not None:
                    slack = (call.args[0] - other).constant()
                    divisor = rest.constant()
                    if slack is not None and divisor is not None and 0 <= slack < divisor:
                        self._divisible.add((other, rest))

    def _is_learnt(self, left: Formula, right: Formula) -> bool:
        """`a % b == 0` for a known division: listed once already."""
        other = right if left == Formula({}) else left
        return any(other == _call_of("mod", a, b) for a, b in self._divisible)

    # ---- writing divisions plainly

    def alias(self, dividend: str, divisor: str, name: str) -> None:
        """Write `dividend // divisor` as the variable `name`."""
        self._aliases[Call("floordiv", (Formula.var(dividend), Formula.var(divisor)))] = Formula.var(name)

    def merge(self, merged: Mapping[str, Formula]) -> None:
        """Use the aliases for quotients in which these stand for others too."""
        for call, name in list(self._aliases.items()):
            self._aliases[Call(call.op, tuple(size.substitute(merged) for size in call.args))] = name

    def simplified(self, formula: Formula) -> Formula:
        """The same value under the trace's conditions, with exact divisions carried out and aliases used."""
        calls = {a for m in formula.terms for a, _ in m if isinstance(a, Call)}
        if not calls:
            return formula
        total = Formula({})
        for monomial, coefficient in formula.terms.items():
            term, quotients = Formula.const(coefficient), []
            for atom, exponent in monomial:
                if isinstance(atom, Call) and atom.op == "floordiv" and exponent == 1:
                    quotients.append(atom)
                else:
                    base = self._call(atom) if isinstance(atom, Call) else Formula.var(atom)
                    term = term * base**exponent
            for quotient in quotients:
                dividend, divisor = quotient.args
                cancelled = term.divided(divisor) if (dividend, divisor) in self._divisible else None
                if cancelled is not None and quotient not in self._aliases:
                    term = cancelled * self.simplified(dividend)
                else:
                    term = term * self._call(quotient)
            total = total + term
        return total

    def _call(self, call: Call) -> Formula:
        if call in self._aliases:
            return self._aliases[call]
        if call.op == "floordiv":
            dividend, divisor = call.args
            exact = self._quotient(dividend, divisor)
            if exact is not None:
                return exact
        args = [self.simplified(arg) for arg in call.args]
        match call.op:
            case "floordiv":
                return args[0] // args[1]
            case "mod":
                return Formula({}) if call.args in self._divisible else args[0] % args[1]
            case "ceildiv":
                return args[0].ceildiv(args[1])
            case "min":
                return Formula.minimum(*args)
            case _:
                return Formula.maximum(*args)

    def _divides(self, dividend: Formula, divisor: Formula) -> bool:
        if (dividend, divisor) in self._divisible:
            return True
        if self._simplifying:  # the dividends themselves are being simplified: only what is known as it stands counts
            return False
        self._simplifying = True
        try:
            return any(b == divisor and self.simplified(a) == dividend for a, b in list(self._divisible))
        finally:
            self._simplifying = False

    def _quotient(self, dividend: Formula, divisor: Formula) -> Formula | None:
        number = divisor.constant()
        if number is not None:
            inner = self.simplified(dividend)
            for candidate in (inner, dividend):
                slack = candidate.terms.get((), Fraction(0))
                base = candidate - Formula.const(slack)
                if base.terms and 0 <= slack < number and self._divides(base, divisor):
                    return self.simplified(base) * Formula.const(1 / number)
            return None
        if len(divisor.terms) == 1:
            (monomial, coefficient), *_ = divisor.terms.items()
            if coefficient > 1 and coefficient.denominator == 1:  # a // (c * b) = (a // b) // c
                inner = self.simplified(dividend // Formula({monomial: 1}))
                return self._quotient(inner, Formula.const(coefficient)) or inner // Formula.const(coefficient)
            if len(monomial) == 1 and isinstance(monomial[0][0], Call):  # a // (a // b) = b where b divides a
                nested = monomial[0][0]
                if nested.op == "floordiv" and nested.args[0] == dividend and nested.args in self._divisible:
                    return self.simplified(nested.args[1])
        return None


def _is_rest(one: Formula, other: Formula) -> bool:
    """Whether the one is a remainder and the other zero."""
    calls = [m[0][0] for m, c in one.terms.items() if c > 0 and len(m) == 1]
    return (
        other == Formula({})
        and len(calls) == len(one.terms) == 1
        and isinstance(calls[0], Call)
        and calls[0].op == "mod"
    )


def _without_rest(dividend: Formula, divisor: Formula) -> tuple[Formula, Formula]:
    """Of `(n - x % n) % n`, which fills x up to a multiple of n, x and n: it is 0 where n divides x."""
    rest = divisor - dividend
    calls = [m[0][0] for m, c in rest.terms.items() if c == 1 and len(m) == 1 and m[0][1] == 1]
    filled = calls[0] if len(calls) == len(rest.terms) == 1 else None
    if isinstance(filled, Call) and filled.op == "mod" and filled.args[1] == divisor:
        return filled.args[0], filled.args[1]
    return dividend, divisor


def _call_of(op: str, *args: Formula) -> Formula:
    return Formula({((Call(op, args), 1),): 1})


_INEXACT = (sympy_functions.TruncToInt, sympy_functions.FloorToInt, sympy_functions.CeilToInt)
#: no size is larger
_UNBOUNDED = 2**62
_RELATIONS: dict[Any, str] = {
    sympy.Eq: "==", sympy.Ne: "!=", sympy.StrictLessThan: "<", sympy.LessThan: "<=",
    sympy.StrictGreaterThan: ">", sympy.GreaterThan: ">=",
}  # fmt: skip
