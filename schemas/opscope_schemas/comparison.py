"""Answers of `compare`: sides of one question beside each other, and what makes them differ."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from opscope_schemas.common import Frozen, ToolResult
from opscope_schemas.formula import Rational

Figure = int | float | None


class Side(Frozen):
    """What one side is."""

    promised: ClassVar[tuple[str, ...]] = ("at",)

    name: str = ""
    target: str = ""
    class_name: str = ""
    file: str = ""
    line: int = 0
    phase: str = ""
    at: dict[str, Rational] = Field(default={}, description="Sizes of its run.")
    stack: str = Field(default="", description="Its transformers and torch, where they are not the session's.")


class TotalOfSides(Frozen):
    """One figure of every side. Differences and ratios are of each side after the first, against the first."""

    name: str = ""
    values: tuple[Figure, ...] = ()
    shown: tuple[str, ...] = Field(default=(), description="The same with units.")
    difference: tuple[Figure, ...] = ()
    ratio: tuple[float | None, ...] = ()


class FieldOfSides(Frozen):
    """A field of the configurations that differs; a side without it has null."""

    name: str = ""
    values: tuple[int | float | str | bool | None, ...] = ()
    counts: bool = Field(default=False, description="Whether it stands in a formula of the totals.")


class Difference(Frozen):
    """One operator or module in two sides; null where a side has none. `effect` is right - left."""

    promised: ClassVar[tuple[str, ...]] = ("left", "right", "effect")

    what: str = ""
    side: int = Field(default=1, description="Number of the right side; the left one is 0.")
    left: Figure = None
    right: Figure = None
    effect: int | float = 0
    only: str = Field(default="", description="The one side that has it.")
    file: str = ""
    line: int = 0
    right_at: str = Field(default="", description="file:line in the right side, where it is another.")


class Alike(Frozen):
    """What has the same figure in both sides: how many operators, and their sum."""

    promised: ClassVar[tuple[str, ...]] = ("operators", "figure")

    side: int = 1
    operators: int = 0
    figure: int | float = 0


class ForwardDifference(Frozen):
    """Lines in which two matched forwards differ: `-LINE code` of the left, `+LINE code` of the right."""

    what: str = ""
    side: int = 1
    left_at: str = ""
    right_at: str = ""
    lines: tuple[str, ...] = ()


class CompareResult(ToolResult):
    """Answer of `compare`. For each side after the first: its differences and `alike` add up to the difference of the totals."""

    promised: ClassVar[tuple[str, ...]] = ("config", "differences", "alike")

    said: str
    by: str = Field(description="The total that differences are of.")
    sides: tuple[Side, ...]
    totals: tuple[TotalOfSides, ...]
    config: tuple[FieldOfSides, ...] = ()
    modules: tuple[Difference, ...] = Field(default=(), description="Parts that do not overlap.")
    differences: tuple[Difference, ...] = Field(default=(), description="Operators; largest effect first.")
    alike: tuple[Alike, ...] = ()
    forwards: tuple[ForwardDifference, ...] = ()


__all__ = [
    "Alike",
    "CompareResult",
    "Difference",
    "FieldOfSides",
    "Figure",
    "ForwardDifference",
    "Side",
    "TotalOfSides",
]
