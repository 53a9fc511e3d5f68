"""Random points inside the conditions that a cost document states, and what a concrete run at each of them says.

A point is reached from the sizes of the document's own config by steps that change one or two variables at a time; a step
that breaks a stated condition is not taken. Nothing but the document's text is asked: its formulas are evaluated as a
reader would, and the model is built anew with every value of the point in its config.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import trace_reference as reference
from cost_comparison import LargeError, concrete, filling_at, overrides, shallow, walked
from opscope_schemas.analysis import is_element
from opscope_schemas.errors import OpscopeError, ValuesError
from opscope_schemas.formula import Rational, evaluate, holds
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.document import assignment
from opscope_tools.trace.variables import is_depth
from transformers.models.auto import configuration_auto

_RUN = {"batch_size": 3, "seq_len": 11, "cache_len": 17, "encoder_seq_len": 13}
#: a concrete run has at most this many weights, and writes and computes at most so much
_WEIGHTS, _WRITTEN, _FLOPS = 60_000_000, 2_000_000_000, 200_000_000_000


@dataclass
class Inside:
    """What was found for one document: points that equal a concrete run, that do not, and that no model takes."""

    target: str
    phase: str
    equal: int = 0
    wrong: list[str] = field(default_factory=list)
    unbuilt: list[str] = field(default_factory=list)
    refused: str = ""
    incomplete: bool = False

    def line(self) -> str:
        said = [self.refused[:200]] if self.refused else [f"{self.equal} equal"]
        said += [f"WRONG {w}" for w in self.wrong] + [f"unbuilt {u}" for u in self.unbuilt]
        return f"{self.target:28} {self.phase:8} {'; '.join(said)}"


def inside(document: Any, values: Mapping[str, Rational]) -> bool:
    """Whether a point meets every condition that the document states."""
    try:
        return all(holds(condition, values) for condition in document.conditions)
    except ValuesError:
        return False


def _step(value: int, name: str, draw: random.Random) -> int:
    if name in _RUN:
        return draw.randint(2, 40)
    if is_depth(name):
        return draw.choice((value + 1, value + 2, 2 * value + 1, max(1, value - 1)))
    return draw.choice((2 * value, 3 * value, value // 2, value + 1, value - 1, value + value // 2, value // 4))


def _small(document: Any, values: Mapping[str, Rational]) -> bool:
    """Whether a concrete run at the point is cheap."""
    totals = document.totals
    bounds = ((document.parameters, _WEIGHTS), (totals.memory_access.write, _WRITTEN), (totals.flops, _FLOPS))
    return all(evaluate(text, values) <= most for text, most in bounds)


def _first(document: Any, start: dict[str, int], draw: random.Random) -> dict[str, int]:
    """A point inside: that of the config, or one near it (grouped heads where the config has as many of both)."""
    here = dict(start)
    for _ in range(2000):
        if inside(document, assignment(document.variables, here)):
            return here
        here = dict(start)
        for name in draw.sample(sorted(start), min(len(start), draw.choice((1, 1, 2)))):
            here[name] = max(2, _step(here[name], name, draw))
    raise AssertionError(f"no point is inside {document.conditions}")


def points(document: Any, draw: random.Random, count: int) -> Iterator[dict[str, int]]:
    """Points inside the document's conditions, each far from the others: variables are given, the rest follows."""
    free = [v for v in document.variables if v.kind != "fixed" and v.kind != "derived" and not is_element(v.name)]
    start = _first(document, {v.name: v.default or _RUN[v.name] for v in free}, draw)
    for _ in range(count):
        here = dict(start)
        for _ in range(6 * len(free)):
            names = draw.sample(sorted(here), min(len(here), draw.choice((1, 1, 2))))
            there = {**here, **{n: _step(here[n], n, draw) for n in names}}
            if len(names) == 2 and draw.random() < 0.5:
                factor = draw.choice((2, 3))
                there = {**here, **{n: here[n] * factor for n in names}}
            if min(there.values()) < 1 or max(there.values()) >= 70_000:
                continue
            values = assignment(document.variables, there)
            if inside(document, values) and (_small(document, values) or there[names[0]] < here[names[0]]):
                here = there
        yield here


def _document(target: str, phase: Any, context: ToolContext) -> tuple[Any, dict[str, Any]]:
    """The document of a narrow model, else of a shallow one, else as the class has it."""
    first: OpscopeError | None = None
    for base in (overrides(target), shallow(target), {}):
        try:
            return count_flops(CostArguments(target=target, phase=phase, config=base), context).document, base
        except OpscopeError as error:
            first = first or error
    assert first is not None
    raise first


def check(target: str, phase: Any, context: ToolContext, *, count: int = 3, seed: int = 0) -> Inside:
    """`count` points inside the conditions of the document of one model type and phase."""
    found = Inside(target, phase)
    draw = random.Random(f"{target} {phase} {seed}")
    try:
        document, base = _document(target, phase, context)
    except OpscopeError as error:
        found.refused = str(error)
        return found
    found.incomplete = bool(document.not_counted)
    config_class = configuration_auto.CONFIG_MAPPING[target]
    keys = {v.name: v.config_key for v in document.variables if v.config_key and v.kind != "derived"}

    def ask(values: dict[str, Rational] | None = None) -> Any:
        return count_flops(CostArguments(target=target, config=base, values=values), context)

    before = ask().document if phase == "decode" else None
    for given in points(document, draw, count):
        values = assignment(document.variables, given)
        changed = {key: values[name] for name, key in keys.items()}
        where = dict(given)
        try:
            config = concrete(config_class, {**base, **changed})
            filling = document if before is None else filling_at(before, values, ask)
            run = walked(document, filling, config, values)
        except LargeError:
            continue
        except Exception as error:
            found.unbuilt.append(f"{_said(error)} at {where}")
        else:
            totals = document.totals
            moved = totals.memory_access
            texts = (totals.matmul_flops, totals.flops, moved.read, moved.write, document.parameters)
            ours = [evaluate(text, values) for text in texts]
            theirs = [run.products, run.flops, run.read, run.write, parameters(document, config)]
            names = ("products", "flops", "read", "written", "parameters")
            off = [f"{n} {a} for {b}" for n, a, b in zip(names, ours, theirs, strict=True) if a != b]
            if off:
                found.wrong.append(f"{'; '.join(off)} at {where}")
            else:
                found.equal += 1
    return found


def parameters(document: Any, config: Any) -> int:
    """Weights of the model as transformers builds it, or of its encoder in that phase; shared ones once."""
    model = reference.build(reference.Recipe(document.model_class, config, document.attention), "meta")
    ran = model.get_encoder() if document.phase == "encode" else model
    return sum(p.numel() for p in ran.parameters())


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
