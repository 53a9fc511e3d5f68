"""What a cost analysis says in numbers: totals at one point, what makes them up, most first."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from opscope_schemas.common import Frozen
from opscope_schemas.formula import Rational


class Ranked(Frozen):
    """A part of the pass, all its runs together; FLOPs and bytes, shares of the totals."""

    name: str = Field(description="Path of the module; for an operator also its name.")
    file: str
    line: int
    count: int
    flops: int
    bytes: int
    flops_share: float
    bytes_share: float
    bound_seconds: float | None = Field(default=None, description="With `hardware`: at least so long.")
    limited_by: Literal["memory", "compute"] | None = None


class Numbers(Frozen):
    """The pass at one point, exact; `said` in a sentence."""

    said: str
    at: dict[str, Rational] = Field(description="Sizes of the run; the configuration's are its own.")
    assumed: tuple[str, ...] = Field(default=(), description="Sizes that nobody gave.")
    flops: int
    matmul_flops: int
    bytes_read: int
    bytes_written: int
    flops_per_token: int | None = Field(default=None, description="Of one new token of one sequence.")
    parameters: int
    active_parameters: int | None = Field(default=None, description="Of those, what one token meets: chosen experts.")
    weights_bytes: int
    cache_bytes_per_token: int | None = Field(default=None, description="Of one sequence, all layers.")
    bound_seconds: float | None = Field(default=None, description="With `hardware`: operators one after the other.")
    hardware: str = ""
    operators: tuple[Ranked, ...] = Field(
        description="Those that dominate; by time with `hardware`, else by FLOPs and bytes."
    )
    modules: tuple[Ranked, ...] = Field(description="Parts of the model that do not overlap.")


__all__ = ["Numbers", "Ranked"]
