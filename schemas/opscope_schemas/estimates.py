"""Time and memory on named hardware: what a pass takes at least, and what measured kernels of its kinds took.

Two numbers are never mixed. `bound_seconds`: exact FLOPs and bytes against the device's peak and memory bandwidth, nothing
fitted. `calibrated_seconds`: what kernels of that class were measured to take on that device, between `low_seconds` and
`high_seconds` in eight of ten cases. Times are seconds, sizes bytes, rates per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from opscope_schemas.common import Frozen, ToolResult
from opscope_schemas.formula import Rational

Limit = Literal["compute", "memory"]


class Hardware(Frozen):
    """The device as the estimate uses it; `sources` say where its figures stand."""

    id: str
    name: str
    peak_flops: float = Field(description="Dense operations per second in the precision of most of the products.")
    peak_precision: str
    bandwidth: float = Field(description="Bytes per second of device memory.")
    capacity: int = Field(description="Bytes of device memory.")
    ridge: float = Field(description="FLOPs per byte above which products are limited by compute.")
    sources: tuple[str, ...] = ()


class OperatorTime(Frozen):
    """One kernel of the pass, all its runs together."""

    promised: ClassVar[tuple[str, ...]] = ("calibrated_seconds", "limited_by")

    operation: str
    module: str = Field(default="", description="Path of the submodule that issues it.")
    file: str
    line: int
    count: int = Field(description="How often it runs in the pass.")
    flops: int
    bytes: int
    intensity: float = Field(description="FLOPs per byte.")
    bound_seconds: float
    calibrated_seconds: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    limited_by: Limit | None = Field(default=None, description="Of the bound; null: it moves and computes nothing.")
    fits_l2: bool = Field(
        default=False,
        description="What one run moves fits in the L2 cache: it may be faster than device memory allows.",
    )
    measured_as: str = Field(
        default="", description="Class of measured kernels that its calibrated time is of; empty: none."
    )
    outside: tuple[str, ...] = Field(default=(), description="Sizes beyond those that were measured.")


class TimeTotals(Frozen):
    """Sums over the pass, kernels one after the other."""

    promised: ClassVar[tuple[str, ...]] = ("calibrated_seconds", "low_seconds", "high_seconds")

    flops: int
    bytes: int
    bound_seconds: float
    calibrated_seconds: float | None = None
    low_seconds: float | None = Field(default=None, description="As if every kernel were as fast as its fastest tenth.")
    high_seconds: float | None = None
    limited_by: Limit = Field(description="What limits most of the bound's time.")
    tokens_per_second: float | None = Field(
        default=None,
        description="New tokens of all sequences over the calibrated time; null: unknown, or it does not fit.",
    )
    bound_tokens_per_second: float | None = Field(
        default=None, description="The same of the bound: no device does more."
    )


class ClassTime(Frozen):
    """What is spent on one class of kernels."""

    name: str
    share: float = Field(description="Of the time: calibrated where that is known, else bound.")
    bound_seconds: float
    calibrated_seconds: float | None = None


class RecomputedMemory(Frozen):
    """The step where every layer keeps its inputs alone and runs forward again on the way back."""

    saved_bytes: int = Field(description="The layers' inputs, what is saved outside of them, and all of one layer.")
    flops: int = Field(description="Of forward, backward and the layers' second forward.")
    fits: bool
    largest_batch: int | None = None


class TrainingMemory(Frozen):
    """What a training step has in memory beside weights and saved activations."""

    gradient_bytes: int
    optimizer_bytes: int = Field(description="AdamW: fp32 weights and two moments.")
    recomputed: RecomputedMemory | None = Field(default=None, description="Null: the forward has no layers in lists.")


class MemoryUse(Frozen):
    """Bytes on one device against what it has."""

    promised: ClassVar[tuple[str, ...]] = ("fits", "largest_batch")

    weights_bytes: int
    cache_bytes: int = Field(description="Of all sequences, as the pass leaves it.")
    cache_bytes_per_token: int | None = Field(default=None, description="Of one sequence.")
    activation_bytes: int | None = Field(
        description="Peak of the eager pass, of a training step what is saved for its way back; null: not known."
    )
    capacity_bytes: int
    fits: bool
    largest_batch: int | None = Field(
        default=None,
        description="Sequences of this length that fit beside the weights; 0: the weights alone do not fit.",
    )
    longest_context: int | None = Field(default=None, description="Tokens that each sequence of this batch may have.")
    training: TrainingMemory | None = None


class CalibrationNote(Frozen):
    """Where calibrated times come from; `error`: mean absolute error on shapes that the fit has not seen, per cent, by class."""

    device: str
    source: str
    licence: str
    digest: str = Field(description="Of the tables that the parameters were fitted on.")
    valid: bool = Field(description="Every kernel lies within the sizes that were measured.")
    error: Mapping[str, float] = Field(default_factory=dict)


class RooflineResult(ToolResult):
    """Answer of `estimate_roofline`."""

    promised: ClassVar[tuple[str, ...]] = ("calibration",)

    model_class: str
    phase: str
    view: str
    precision: Mapping[str, str]
    hardware: Hardware
    values: Mapping[str, Rational] = Field(description="The point of the estimate.")
    totals: TimeTotals
    spent: tuple[ClassTime, ...] = Field(description="By class of kernels, most first.")
    memory: MemoryUse
    operators: tuple[OperatorTime, ...]
    calibration: CalibrationNote | None = None
    assumptions: tuple[str, ...] = ()
    not_counted: tuple[str, ...] = ()


__all__ = [
    "CalibrationNote", "ClassTime", "Hardware", "MemoryUse", "OperatorTime", "RecomputedMemory", "RooflineResult", "TimeTotals",
    "TrainingMemory",
]  # fmt: skip
