"""A ShapeEnv that decides by the hints, at once.

torch's own first tries to prove every question about sizes from ranges and earlier answers, which takes most of the time
of a symbolic trace and is not needed here: every symbol has a hint, the answer at the hint is the one that is taken, and
it is written down as a condition. Expressions that depend on data (unbacked symbols) go torch's own way. While
`remembered_results` holds, what operators give of sizes is kept with the environment.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import BooleanAtom
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions as f

_RELATIONS: dict[Any, Callable[[Any, Any], bool]] = {
    sympy.Eq: operator.eq, sympy.Ne: operator.ne, sympy.StrictLessThan: operator.lt, sympy.LessThan: operator.le,
    sympy.StrictGreaterThan: operator.gt, sympy.GreaterThan: operator.ge,
}  # fmt: skip
#: rank of a symbol that none was given
_LAST = 2


class HintedEnv(ShapeEnv):  # type: ignore[misc]  # torch is untyped here
    """`decisions` lists what was decided, as expressions that hold; `equal` the symbols that were found equal to others."""

    def __init__(self) -> None:
        super().__init__(specialize_zero_one=False, duck_shape=False)
        self.decisions: list[Any] = []
        self.equal: dict[Any, Any] = {}
        #: by symbol how readily formulas keep it where two are equal: the lower the sooner
        self.ranks: dict[Any, int] = {}
        #: what is running or being built, and by decision all that asked for it
        self.where: Callable[[], Any] = lambda: None
        self.askers: dict[Any, set[Any]] = {}
        self._asked: dict[Any, set[Any]] = {}
        self._answers: dict[Any, Any] = {}
        self._numbers: dict[Any, Any] = {}
        self._backed: dict[Any, bool] = {}
        #: operator and the two sizes that it was asked of -> what it gave
        self.results: dict[Any, Any] = {}

    # ---- values at the hints

    @property
    def _hints(self) -> Any:
        """By symbol its value; older releases of torch (2.9) call the table otherwise."""
        return self.backed_var_to_val if hasattr(self, "backed_var_to_val") else self.var_to_val

    def number(self, e: Any) -> Any:
        """The value of an expression at the hints: an int, a float, a Fraction-like sympy number or a bool."""
        if e not in self._numbers:
            self._numbers[e] = self._computed(e)
        return self._numbers[e]

    def _computed(self, e: Any) -> Any:
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            return int(self._hints[e])
        kind = type(e)
        if e.is_Add:
            return sum(map(self.number, e.args))
        if e.is_Mul:
            return reduce(operator.mul, map(self.number, e.args), 1)
        if kind in _RELATIONS:
            return bool(_RELATIONS[kind](self.number(e.lhs), self.number(e.rhs)))
        if kind in (f.FloorDiv, f.CleanDiv):
            a, b = map(self.number, e.args)
            if isinstance(a, int) and isinstance(b, int):
                return a // b
        if kind in (f.Mod, f.PythonMod):
            a, b = map(self.number, e.args)
            if isinstance(a, int) and isinstance(b, int):
                return a % b
        found = e.xreplace(self._hints)
        if isinstance(found, BooleanAtom):
            return bool(found)
        return int(found) if found.is_Integer else found

    def _known(self, e: Any) -> bool:
        """Whether every symbol of an expression has a hint."""
        if e not in self._backed:
            self._backed[e] = e.free_symbols <= self._hints.keys()
        return self._backed[e]

    # ---- what torch asks

    def evaluate_expr(
        self, orig_expr: Any, hint: Any = None, fx_node: Any = None, size_oblivious: bool = False,
        fallback_value: Any = None, *, forcing_spec: bool = False,
    ) -> Any:  # fmt: skip
        if isinstance(orig_expr, BooleanAtom) or orig_expr.is_number:
            return orig_expr
        if not self._known(orig_expr):
            return super().evaluate_expr(
                orig_expr, hint, fx_node, size_oblivious, fallback_value, forcing_spec=forcing_spec
            )
        self._asked.setdefault(orig_expr, set()).add(self.where())
        if orig_expr not in self._answers:
            self._answers[orig_expr] = sympy.sympify(self.number(orig_expr))
            if not ShapeEnv._suppress_guards_tls():
                self._decide(orig_expr, self._answers[orig_expr])
        return self._answers[orig_expr]

    def _decide(self, e: Any, answer: Any) -> None:
        if answer is sympy.true:
            holds = e
        elif answer is sympy.false:
            holds = sympy.Not(e)
        else:
            holds = sympy.Eq(e, answer)
        self.decisions.append(holds)
        self.askers.setdefault(holds, set()).update(self._asked[e])
        self._asked[e] = self.askers[holds]  # who asks again is one of them
        if isinstance(holds, sympy.Eq):
            self._note_equal(holds.lhs, holds.rhs)

    def forget(self, since: int) -> None:
        """Take back the decisions from a number of them on."""
        taken = self.decisions[since:]
        del self.decisions[since:]
        self._answers = {e: a for e, a in self._answers.items() if e not in taken and sympy.Not(e) not in taken}
        self.equal = {}
        for decision in self.decisions:
            if isinstance(decision, sympy.Eq):
                self._note_equal(decision.lhs, decision.rhs)

    def _note_equal(self, left: Any, right: Any) -> None:
        """Remember a symbol that equals something else, so that formulas name one of the two."""
        left, right = left.xreplace(self.equal), right.xreplace(self.equal)
        for symbol, other in ((left, right), (right, left)):
            if symbol.is_Symbol and symbol not in other.free_symbols:
                if other.is_Symbol and self._order(symbol) < self._order(other):
                    continue  # the later one follows the earlier
                self.equal = {k: v.xreplace({symbol: other}) for k, v in self.equal.items()}
                self.equal[symbol] = other
                return

    def _order(self, symbol: Any) -> tuple[int, int]:
        return self.ranks.get(symbol, _LAST), list(self._hints).index(symbol)

    def guard_or_defer_runtime_assert(self, orig_expr: Any, msg: str, fx_node: Any = None) -> bool:
        if isinstance(orig_expr, BooleanAtom) or self._known(orig_expr):
            return bool(self.evaluate_expr(orig_expr))
        return bool(super().guard_or_defer_runtime_assert(orig_expr, msg, fx_node))

    def _maybe_evaluate_static(self, expr: Any, **options: Any) -> Any:
        if isinstance(expr, BooleanAtom) or expr.is_number:
            return expr
        if not self._known(expr):
            return super()._maybe_evaluate_static(expr, **options)
        if options.get("compute_hint"):
            return sympy.sympify(self.number(expr))
        if options.get("unbacked_only"):
            return expr
        # eager execution knows every size: what torch would only like to know is answered, and noted, like any question
        return self.evaluate_expr(expr) if expr.is_Boolean else self._answers.get(expr)

    def simplify(self, expr: Any, size_oblivious: bool = False) -> Any:
        return expr if self._known(expr) else super().simplify(expr, size_oblivious)

    def replace(self, expr: Any) -> Any:
        return expr if not self.replacements or self._known(expr) else super().replace(expr)


_OPERATORS = "add sub mul mod int_floordiv eq ne gt lt le ge".split()
#: what is asked of a node, and of the number that Python code has
_OF_NODES = [f"_{name}" for name in (*_OPERATORS, "and_", "or_", "sym_min", "sym_max")]
_OF_NUMBERS = [f"__{name}__" for name in (*_OPERATORS, "radd", "rsub", "rmul")]


def _node_remembers(name: str, operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def asked(self: Any, other: Any) -> Any:
        env = self.shape_env
        if type(env) is not HintedEnv or self._hint is None or other._hint is None:
            return operate(self, other)
        summed = self._optimized_summation, other._optimized_summation
        key = name, self._expr, self.pytype, other._expr, other.pytype, summed
        found = env.results.get(key)
        if found is None:
            found = env.results[key] = operate(self, other)
        return found

    return asked


def _number_remembers(name: str, operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def asked(self: Any, other: Any) -> Any:
        one: Any = self.node
        two: Any = other.node if type(other) is torch.SymInt else None
        if type(one) is not SymNode or type(one.shape_env) is not HintedEnv or one._hint is None:
            return operate(self, other)
        key: tuple[Any, ...] = name, one._expr, one._optimized_summation
        if type(two) is SymNode and two._hint is not None:
            key = *key, two._expr, two._optimized_summation
        elif type(other) is int:
            key = *key, other
        else:
            return operate(self, other)
        results = one.shape_env.results
        found = results.get(key)
        if found is None:
            found = results[key] = operate(self, other)
        return found

    return asked


@contextlib.contextmanager
def remembered_results() -> Iterator[None]:
    """What an operator gave of two sizes that have hints is given again: a trace asks a thousand questions some hundred thousand times."""
    replaced = [
        (kind, name, getattr(kind, name), remembers)
        for kind, names, remembers in (
            (SymNode, _OF_NODES, _node_remembers), (torch.SymInt, _OF_NUMBERS, _number_remembers)
        )
        for name in names
    ]  # fmt: skip
    for kind, name, operate, remembers in replaced:
        setattr(kind, name, remembers(name, operate))
    try:
        yield
    finally:
        for kind, name, operate, _ in replaced:
            setattr(kind, name, operate)


for _name in ("_maybe_evaluate_static", "simplify", "replace"):  # torch empties the caches of its own
    vars(HintedEnv)[_name].cache_clear = getattr(ShapeEnv, _name).cache_clear


__all__ = ["HintedEnv", "remembered_results"]
