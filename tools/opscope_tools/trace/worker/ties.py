"""Which numbers of a configuration its class makes from its sizes, found by changing one after the other and looking.

A size that keeps what it is given only follows where nobody gives it (`head_dim`, often `hidden_size // num_heads`). One
that the class overwrites whatever it is given (`qk_head_dim`, a sum) is no size of its own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from opscope_schemas.formula import Call, Formula

from opscope_tools.trace.fitting import Fitter
from opscope_tools.trace.protocol import ModelSpec
from opscope_tools.trace.variables import is_depth
from opscope_tools.trace.worker import configs, fields

#: configurations that choose the formula of a size together with those that only check it, and how many of them check
_POINTS, _HELD_OUT = 9, 2
_TRIES = 40
#: a size that follows from more others than this is none that a formula is sought for
_MOVERS = 3

Sizes = dict[str, int]


@dataclass(frozen=True)
class Tie:
    """What a size is by its class: a formula of others; `always` where it takes no value of its own, or is none of its own to trace."""

    formula: Formula
    always: bool


def paths(config: Any, found: dict[str, Tie]) -> dict[str, str]:
    """Variable -> path in the config, of every size and of whatever follows from some."""
    return {**{n: p for n, p in fields.sizes(config, any_number=True).items() if n in found}, **fields.sizes(config)}


def ties(config_class: Any, spec: ModelSpec) -> dict[str, Tie]:
    """Variable -> how it follows from others."""
    return _ties(config_class, spec.model_dump_json())


@lru_cache(maxsize=32)
def _ties(config_class: Any, spec_text: str) -> dict[str, Tie]:
    looking = _Looking(config_class, ModelSpec.model_validate_json(spec_text))
    movers: dict[str, list[str]] = {}
    kept: set[str] = set()
    for name in looking.sizes:
        changed = looking.moved(name)
        if changed is None:
            continue
        if changed.get(name) != looking.base[name]:
            kept.add(name)
        for other, value in changed.items():
            if other != name and value != looking.base[other] and other in looking.base:
                movers.setdefault(other, []).append(name)
    for name in movers.keys() - looking.sizes.keys():
        changed = looking.moved(name)
        if changed is not None and changed.get(name) != looking.base[name]:
            kept.add(name)
    found = {}
    for name, by in movers.items():
        # two that follow one another are one size under two names: the later one follows
        own = [m for m in by if name not in movers.get(m, ()) or looking.order[m] < looking.order[name]]
        formula = looking.formula(name, own) if 0 < len(own) <= _MOVERS else None
        if formula is not None:
            # of the number of layers: it says which of them are which, and what was decided of those traced is of no other depth
            found[name] = Tie(formula, name not in kept or any(map(is_depth, formula.variables())))
    return found


class _Looking:
    """The sizes of a configuration class under changes."""

    def __init__(self, config_class: Any, spec: ModelSpec) -> None:
        self._class, self._spec = config_class, spec
        config = configs.make_config(config_class, spec)
        #: what is changed; any other number may follow (`time_step_rank`, a sixteenth of `hidden_size`)
        self.sizes = fields.sizes(config)
        self._names = {**fields.sizes(config, any_number=True), **self.sizes}
        self.base = self._sizes(config)
        self.order = {name: i for i, name in enumerate(self.base)}

    def _sizes(self, config: Any) -> Sizes:
        found = {name: fields.at(config, path) for name, path in self._names.items()}
        return {name: value for name, value in found.items() if type(value) is int and value >= 1}

    def at(self, changes: Sizes) -> Sizes | None:
        """The sizes that the class makes with some of them given; None where it refuses."""
        overrides = {**self._spec.overrides, **{self._names[n]: v for n, v in changes.items()}}
        try:
            return self._sizes(configs.made(self._class, self._spec.model_copy(update={"overrides": overrides})))
        except Exception:  # foreign code says in its own way that it does not take a value
            return None

    def moved(self, name: str) -> Sizes | None:
        value = self.base.get(name)
        if value is None:
            return None
        tried = (self.at({name: other}) for other in (2 * value, 3 * value, value + 1))
        return next((found for found in tried if found is not None), None)

    def formula(self, name: str, movers: list[str]) -> Formula | None:
        """The formula over `movers` that a size has at every configuration that was looked at."""
        draw, points, values = random.Random(0), [{m: self.base[m] for m in movers}], [self.base[name]]
        for turn in range(_TRIES):
            if len(points) == _POINTS:
                break
            rest = turn % 2  # a class may refuse what does not divide, and round where it takes it
            point = {m: self.base[m] * draw.randint(1, 9) + rest * draw.randint(1, self.base[m]) for m in movers}
            found = self.at(point) if point not in points else None
            if found is not None and name in found and all(found.get(m) == v for m, v in point.items()):
                points.append(point)
                values.append(found[name])
        if len(points) < _POINTS:
            return None
        fit = Fitter(points, held_out=_HELD_OUT).fit(values)
        return fit.formula if fit is not None and fit.formula.variables() else None


def of_symbols(formula: Formula, sizes: dict[str, Any]) -> Any:
    """The value that a formula has at sizes that may be symbols."""
    total: Any = 0
    for monomial, coefficient in formula.terms.items():
        term: Any = int(coefficient)
        for atom, exponent in monomial:
            base = _called(atom, sizes) if isinstance(atom, Call) else sizes[atom]
            for _ in range(exponent):
                term = term * base
        total = total + term
    return total


def _called(call: Call, sizes: dict[str, Any]) -> Any:
    arguments = [of_symbols(argument, sizes) for argument in call.args]
    if call.op in ("min", "max"):
        return (min if call.op == "min" else max)(arguments)
    a, b = arguments
    return a // b if call.op == "floordiv" else a % b if call.op == "mod" else -(-a // b)


__all__ = ["Tie", "of_symbols", "paths", "ties"]
