"""Formulas for a model that bears no symbols: runs on plain numbers at several points, and the sizes that fit them all.

Every session here ran with numbers (or with the run's sizes alone as symbols), at points where the sizes differ. Where
the same operators ran at every point, each dimension of each tensor is fitted as an exact formula, on some of the
points, and checked at the others; costs then follow from the dimensions by the operators' own rules, and are checked
against the numbers of every point too. What does not fit is refused: the record then stays one of numbers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from opscope_schemas.errors import OpscopeError, TraceError
from opscope_schemas.formula import Call, Formula

from opscope_tools.trace import operators
from opscope_tools.trace.fitting import Fitter
from opscope_tools.trace.variables import CONFIG, RUN_HINTS, is_depth
from opscope_tools.trace.worker.recorder import weight_reads

#: points that choose a formula together with those that only check it, and how many of them check
_POINTS, _HELD_OUT = 12, 3
#: looking for points ends after so many seconds, or runs that the model refuses
_SECONDS, _REFUSALS = 20.0, 14

Point = dict[str, int]
Run = Callable[[Point], Any]


class MisfitError(TraceError):
    """Runs at two points do not have the same operators, or no formula fits their sizes."""


def fitted(base: Any, run: Run) -> bool:
    """Put formulas in the place of `base`'s numbers, from runs at other points; False where there are none that fit."""
    begun = time.process_time()
    origin = _origin(base)
    if not origin:
        return False
    names = _variable(base, origin, run, begun)
    if not names:
        return False
    sessions, points = [base], [origin]
    draw = random.Random(0)
    refused = 0
    while len(points) < _POINTS and refused < _REFUSALS and time.process_time() - begun < 2 * _SECONDS:
        point = {**origin, **{n: draw.choice(names[n]) for n in names}}
        if point in points:
            refused += 1
            continue
        session = _tried(base, run, point)
        if session is None:
            refused += 1
        else:
            sessions.append(session)
            points.append(point)
    if len(points) < _POINTS:
        return False
    chosen = [{n: p[n] for n in names} for p in points]
    try:
        _Fit(sessions, Fitter(chosen, held_out=_HELD_OUT)).apply()
    except MisfitError:
        return False
    base.fitted = frozenset(names)
    return True


def _origin(base: Any) -> Point:
    """The sizes that are numbers: those of the run where the others are symbols, of the config too where it has none."""
    if base.symbolic:
        asked = base.request.hints  # a size that the request asked for is to be that number
        return {n: base.symbols.hints[n] for n in base.symbols.settled() if n in RUN_HINTS and n not in asked}
    sizes = {n: v for n, v in base.configured.items() if type(v) is int and v >= 2 and not is_depth(n)}
    return {**sizes, **base.settled}


def _variable(base: Any, origin: Point, run: Run, begun: float) -> dict[str, list[int]]:
    """The sizes that may differ from the base's, with values that the model takes each by itself."""
    found: dict[str, list[int]] = {}
    ordered = sorted(origin, key=lambda n: (n not in base.settled, n not in CONFIG, n))
    for name in ordered:
        value = origin[name]
        more = [value + 3, value + 8, value + 1] if name in RUN_HINTS else [2 * value, 3 * value, value // 2]
        taken = []
        for other in more:
            if time.process_time() - begun > _SECONDS:
                return found
            if other >= 1 and _tried(base, run, {**origin, name: other}) is not None:
                taken.append(other)
            elif not taken:
                break
        if taken:
            found[name] = list(range(2, 30)) if name in RUN_HINTS else [value, *taken]
    if len(found) == 1:  # of one size alone, so few values make too few points
        (name, values) = next(iter(found.items()))
        found[name] = list(dict.fromkeys([*values, *(n * origin[name] for n in range(4, 2 * _POINTS))]))
    return found


def _tried(base: Any, run: Run, point: Point) -> Any:
    """A session at a point, where the model runs there and runs the same operators."""
    try:
        session = run(point)
        _aligned(base, session)
    except OpscopeError:  # the configuration's class may be what refuses
        return None
    taken = all(session.configured.get(name, value) == value for name, value in point.items())
    return session if taken else None  # a class makes some of its sizes from others, whatever it is given


def _aligned(base: Any, other: Any) -> None:
    mine, theirs = base.recorder, other.recorder
    same_calls = [(c.path, c.parent, c.repeat, c.members, type(c.module)) for c in mine.calls] == [
        (c.path, c.parent, c.repeat, c.members, type(c.module)) for c in theirs.calls
    ]
    same_ops = [_kind(op) for op in mine.ops] == [_kind(op) for op in theirs.ops]
    if not (same_calls and same_ops):
        raise MisfitError("The model runs other operators at other sizes.")


def _kind(op: Any) -> Any:
    """What an operator's record must share at every point: all but the sizes."""
    call = op.ran
    shapes = [(len(t.shape), t.dtype, t.weight) for t in (*call.inputs, *call.outputs)]
    return (op.operator, op.site.file, op.site.line, op.call, shapes, op.masks, op.cost is None)


class _Fit:
    """Formulas over sessions that are aligned; the first session is the one that takes them."""

    def __init__(self, sessions: Sequence[Any], fitter: Fitter) -> None:
        self._sessions = sessions
        self._fitter = fitter
        self.conditions: dict[str, None] = {}
        self._known: dict[tuple[Formula, ...], Formula] = {}
        #: whether every operator reads the same tensors at all points
        self.read_alike = True

    def apply(self) -> None:
        base = self._sessions[0]
        recorders = [s.recorder for s in self._sessions]
        ops = [self._op(events) for events in zip(*(r.ops for r in recorders), strict=True)]
        calls = [self._call(events) for events in zip(*(r.calls for r in recorders), strict=True)]
        shapes = dict(self._weights())
        given = [self._all([i.shape for i in same]) for same in zip(*(s.given for s in self._sessions), strict=True)]
        base.recorder.ops = ops if self.read_alike else [replace(op, views=()) for op in ops]
        base.recorder.calls = calls
        base.shapes, base.given_shapes = shapes, given
        # smaller sizes may run otherwise: one of 1 is contiguous as it is, an interval comes to be reached
        points = self._fitter.points
        least = {name: max(2, min(point[name] for point in points)) for name in points[0]}
        base.fit_conditions = (*self.conditions, *(f"{{{name}}} >= {value}" for name, value in least.items()))
        base.agreed = self._agreed()

    def _agreed(self) -> frozenset[str]:
        """Decisions that were taken alike at every point, as text."""
        decided = [set(s.symbols.conditions()) for s in self._sessions]
        return frozenset(set.intersection(*decided))

    # ---- one quantity at all points

    def formula(self, forms: Sequence[Formula]) -> Formula:
        """The one formula that has all the values; raises `MisfitError`."""
        key = tuple(forms)
        if key not in self._known:
            self._known[key] = self._fitted(key)
        return self._known[key]

    def _fitted(self, forms: tuple[Formula, ...]) -> Formula:
        first = forms[0]
        if all(f == first for f in forms):
            return first
        numbers = [f.constant() for f in forms]
        if all(n is not None for n in numbers):
            return self._number([Fraction(n or 0) for n in numbers])
        rows = [sorted(f.terms.items(), key=lambda item: _skeleton(item[0])) for f in forms]
        if len({tuple(_skeleton(m) for m, _ in row) for row in rows}) != 1:
            raise MisfitError("A size has another form at other points.")
        total = Formula({})
        for terms in zip(*rows, strict=True):
            term = self._number([c for _, c in terms])
            for atoms in zip(*(m for m, _ in terms), strict=True):
                term = term * self._atom([a for a, _ in atoms]) ** atoms[0][1]
            total = total + term
        return total

    def _atom(self, atoms: Sequence[Any]) -> Formula:
        first = atoms[0]
        if isinstance(first, str):
            return Formula.var(first)
        arguments = tuple(self.formula(list(same)) for same in zip(*(a.args for a in atoms), strict=True))
        return Formula({((Call(first.op, arguments), 1),): 1})

    def _number(self, values: Sequence[Fraction]) -> Formula:
        if len(set(values)) == 1:
            return Formula.const(values[0])
        if any(v.denominator != 1 for v in values):
            raise MisfitError("A size is no whole number.")
        fit = self._fitter.fit([int(v) for v in values])
        if fit is None:
            raise MisfitError("No formula fits a size at every point.")
        self.conditions.update(dict.fromkeys(fit.conditions))
        return fit.formula

    def _all(self, shapes: Sequence[Sequence[Any]]) -> tuple[Formula, ...]:
        symbols = [s.symbols for s in self._sessions]
        forms = [[s.formula(size) for size in shape] for s, shape in zip(symbols, shapes, strict=True)]
        return tuple(self.formula(list(same)) for same in zip(*forms, strict=True))

    # ---- records

    def _op(self, events: Sequence[Any]) -> Any:
        first = events[0]
        inputs = [
            self._tensor(same, mask)
            for same, mask in zip(zip(*(e.ran.inputs for e in events), strict=True), first.masks, strict=False)
        ]
        outputs = [self._tensor(same, None) for same in zip(*(e.ran.outputs for e in events), strict=True)]
        call = replace(first.ran, inputs=inputs, outputs=outputs)
        cost = operators.cost_of(call) if first.cost is not None else None
        if cost is not None:
            figures = [self._checked(getattr(cost, n), [getattr(e.cost, n) for e in events]) for n in _FIGURES]
            flops, matmul, read, write, causal = figures
            cost = operators.Cost(flops, matmul, read, write, cost.derivation, causal_saving=causal)
        experts = self.formula([e.experts for e in events])
        return replace(
            first, cost=cost, ran=call, experts=experts, inputs=self._infos([e.inputs for e in events]),
            outputs=self._infos([e.outputs for e in events]),
            weights={storage: size * experts for storage, size in weight_reads(call, cost).items()}, repeat=self.formula([e.repeat for e in events]), views=self._views([e.views for e in events]),
        )  # fmt: skip

    def _views(self, rows: Sequence[Sequence[tuple[int, int, Formula]]]) -> tuple[tuple[int, int, Formula], ...]:
        """What an operator reads of which tensors, with the bytes of each; of none where one reads others at another point."""
        self.read_alike = (
            self.read_alike and len({tuple((tensor, view) for tensor, view, _ in row) for row in rows}) == 1
        )
        if not self.read_alike:
            return ()
        sizes = zip(*([size for _, _, size in row] for row in rows), strict=True)
        return tuple(
            (tensor, view, self.formula(list(same))) for (tensor, view, _), same in zip(rows[0], sizes, strict=True)
        )

    def _checked(self, formula: Formula, figures: Sequence[Formula]) -> Formula:
        """The rule's formula where it has the figure of every point; else one fitted to the figures themselves."""
        try:
            same = all(formula.substitute(p) == f for p, f in zip(self._fitter.points, figures, strict=True))
        except (TraceError, ZeroDivisionError):
            same = False
        return formula if same else self.formula(list(figures))

    def _tensor(self, same: Sequence[Any], mask: Any) -> Any:
        first = same[0]
        shape = tuple(self.formula(list(sizes)) for sizes in zip(*(t.shape for t in same), strict=True))
        stored = Formula.const(1)
        for size, kept in zip(shape, mask or (True,) * len(shape), strict=True):
            stored = stored * size if kept else stored
        return replace(first, shape=shape, stored=stored, scales=self.formula([t.scales for t in same]))

    def _infos(self, rows: Sequence[Any]) -> Any:
        return tuple(
            infos[0].model_copy(
                update={"shape": tuple(self._text(sizes) for sizes in zip(*(i.shape for i in infos), strict=True))}
            )
            for infos in zip(*rows, strict=True)
        )

    def _text(self, sizes: Sequence[str]) -> str:
        return "?" if "?" in sizes else str(self.formula([Formula.parse(s) for s in sizes]))

    def _call(self, events: Sequence[Any]) -> Any:
        names = ("input_bytes", "output_bytes", "cache_read", "cache_written", "loops")
        figures = {n: self.formula([getattr(e, n) for e in events]) for n in names}
        infos = {n: self._infos([getattr(e, n) for e in events]) for n in ("inputs", "outputs")}
        return replace(events[0], **figures, **infos)

    def _weights(self) -> Iterator[tuple[int, tuple[Formula, ...]]]:
        """Identity of each parameter of the base -> its shape."""
        for same in zip(*(s.model.named_parameters() for s in self._sessions), strict=True):
            if len({name for name, _ in same}) != 1:
                raise MisfitError("The model has other weights at other sizes.")
            yield id(same[0][1]), self._all([p.shape for _, p in same])


_FIGURES = ("flops", "matmul_flops", "read", "write", "causal_saving")


def _skeleton(monomial: Any) -> str:
    """A product without the numbers inside its calls: alike at every point."""
    return " ".join(f"{a if isinstance(a, str) else a.op}^{e}" for a, e in monomial)


__all__ = ["fitted"]
