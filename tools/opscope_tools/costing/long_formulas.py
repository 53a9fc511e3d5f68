"""Shorter forms of results whose formulas are long: with the configuration's numbers put in, then left out.

A hybrid's total has thousands of characters; with the widths of its configuration as numbers it has a hundred, and is as
exact where the formula holds there. Fields are formulas by their annotation (`FormulaText`), so every document is served alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from opscope_schemas.analysis import FORMULA
from opscope_schemas.common import ToolResult
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import Formula, holds, variables
from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)
R = TypeVar("R", bound=ToolResult)

#: characters from which a formula is long; and what stands in place of one that is left out
LONG = 280
LEFT_OUT = "..."


def with_numbers(rung: Callable[[R], R]) -> Callable[[R], R]:
    """The form that `rung` gives, its long formulas with the configuration's numbers in them."""

    def form(result: R) -> R:
        short = rung(result)
        values = configured(short)
        if not values:
            return short
        said = (
            f"In formulas of more than {LONG} characters the configuration's numbers are put in (`variables` has them)."
        )
        return numbers_in(short, values).model_copy(update={"shortened": f"{said} {short.shortened}"})

    return form


def without_long(rung: Callable[[R], R], longest: int = LONG) -> Callable[[R], R]:
    """The form that `rung` gives, without formulas that are longer than `longest`."""

    def form(result: R) -> R:
        short = rung(result)
        said = f"{short.shortened} `{LEFT_OUT}` stands for a formula that is too long; `values` gives its number."
        return left_out(short, longest).model_copy(update={"shortened": said})

    return form


def configured(result: ToolResult) -> dict[str, int]:
    """Values of the configuration's variables where formulas of the result may be read at them; none where one fails.

    A fitted variable stays a variable: its formulas are only known to hold at the sizes that were run.
    """
    document = getattr(result, "document")  # noqa: B009 - cost results have one
    values = {
        v.name: v.default for v in document.variables if v.config_key and v.default is not None and v.kind != "fitted"
    }
    decided = [c for c in document.conditions if variables(c) <= values.keys()]
    return values if all(_true(condition, values) for condition in decided) else {}


def _true(condition: str, values: Mapping[str, int]) -> bool:
    try:
        return holds(condition, values)
    except ValuesError:  # a condition in words
        return False


def numbers_in(model: M, values: Mapping[str, int], longest: int = LONG) -> M:
    """`model` with `values` put into each formula that is longer than `longest`, where that makes it shorter."""

    def shorter(text: str) -> str:
        if len(text) <= longest:
            return text
        try:
            bound = str(Formula.parse(text).substitute(values))
        except ValuesError:
            return text
        return min(text, bound, key=len)

    return _mapped(model, shorter)


def left_out(model: M, longest: int = LONG) -> M:
    """`model` with `...` for each formula that is longer than `longest`."""
    return _mapped(model, lambda text: LEFT_OUT if len(text) > longest else text)


def _mapped(model: M, change: Callable[[str], str]) -> M:
    changes: dict[str, object] = {}
    for name, field in type(model).model_fields.items():
        held = getattr(model, name)
        new = change(held) if FORMULA in field.metadata and isinstance(held, str) else _within(held, change)
        if new is not held:
            changes[name] = new
    return model.model_copy(update=changes) if changes else model


def _within(held: object, change: Callable[[str], str]) -> object:
    if isinstance(held, BaseModel):
        return _mapped(held, change)
    if isinstance(held, tuple) and any(isinstance(item, BaseModel) for item in held):
        mapped = tuple(_within(item, change) for item in held)
        return mapped if _differ(mapped, held) else held
    return held


def _differ(new: Iterable[object], old: Iterable[object]) -> bool:
    return any(a is not b for a, b in zip(new, old, strict=True))
