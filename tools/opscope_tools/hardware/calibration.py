"""How long a kernel takes on a device by what was measured there: base times table, with the spread on shapes left out of the fit.

`calibrations/DEVICE.json` holds the parameters, made by `make calibrate` from public tables of measured kernels
(benchmarks/silicon says how); the source, its licence and the digests of the tables stand in each file.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from opscope_schemas.common import Frozen

from opscope_tools.hardware.devices import Device, shipped
from opscope_tools.hardware.forms import FORMS, Form, Rates, Sizes
from opscope_tools.hardware.grids import interpolated

FOLDER = Path(__file__).with_name("calibrations")
#: name of the file for devices that nobody measured
ELSEWHERE = "uncalibrated"
#: what serves where nobody says otherwise
BACKENDS = ("vllm", "trtllm", "sglang", "nccl")
#: kernels that stand first for a precision of weights: where units of 4 bits are, activations go down to 8 bits before mxfp4 weights
_FIRST = {"mxfp4": ("mxfp4_mxfp8", "mxfp4")}


class Unseen(Frozen):
    """Errors on rows whose shapes no fit has seen, per cent: mean and median of absolute values, median of signed ones."""

    rows: int
    mape: float
    median: float
    bias: float


class Spread(Frozen):
    """Kernels that take up to so many seconds: one in ten took less than `low` times the estimate, one in ten more than `high`."""

    seconds: float | None = None
    low: float
    high: float


class Fitted(Frozen):
    """One class of kernels as measured on one device, by one backend in one precision."""

    form: str
    backend: str
    precision: str
    head_dim: int | None = None
    kernels: tuple[str, ...]
    table: str
    rows: int
    parameters: tuple[float, ...]
    factors: tuple[float, ...]
    sizes: Mapping[str, tuple[float, float]]
    unseen: Unseen
    spread: tuple[Spread, ...]
    #: what the rows of `unseen` have that the fit's lack; "token counts" where every measured shape is in the fit
    held_out: str = "shapes"


class Calibration(Frozen):
    """What one device was measured to do. `tables`: file -> sha256."""

    device: str
    source: str
    licence: str
    date: str
    tables: Mapping[str, str]
    classes: tuple[Fitted, ...]

    @cached_property
    def by_kind(self) -> dict[tuple[str, str, str], list[Fitted]]:
        """Form, precision and backend -> the classes, one for each head width."""
        found: dict[tuple[str, str, str], list[Fitted]] = {}
        for one in self.classes:
            found.setdefault((one.form, one.precision, one.backend), []).append(one)
        return found


@dataclass(frozen=True)
class Timed:
    """Seconds of a kernel: the estimate, and between what eight of ten measured kernels of its kind lie.

    `outside` names sizes beyond those that were measured; `by` the class of kernels that was asked; `launch` the part of the
    seconds that it takes however little it does; `beside` those of the nearest head width on the other side of one that was not
    measured, the time then lying between both.
    """

    seconds: float
    low: float
    high: float
    by: Fitted
    outside: tuple[str, ...] = ()
    launch: float = 0.0
    beside: Fitted | None = None


def calibration_for(device: Device) -> Calibration | None:
    """What ships for the device as the shipped table has it: figures of a user's own were not measured with it."""
    return calibration_of(device.id) if shipped().get(device.id) == device else None


@cache
def calibration_of(device: str) -> Calibration | None:
    """What ships for that device; None: no measurements."""
    file = FOLDER / f"{device}.json"
    return Calibration.model_validate(json.loads(file.read_text("utf-8"))) if file.is_file() else None


def generic(device: Device) -> Calibration:
    """What kernels may take on a device without measurements, by devices of other generations; `source` says that it is uncalibrated.

    Its spread is that on measured devices by the others alone: wide, and of NVIDIA's GPUs only.
    """
    file = FOLDER / f"{ELSEWHERE}.json"
    return Calibration.model_validate(json.loads(file.read_text("utf-8"))).model_copy(update={"device": device.id})


def chosen(
    calibration: Calibration, form: Form, precision: str, backend: str = "", head_dim: int | None = None
) -> Fitted | None:
    """The class of kernels for that form and precision: of that backend if it has one, and of the nearest head width."""
    order = dict.fromkeys((backend, *BACKENDS)) if backend else dict.fromkeys(BACKENDS)
    for name, kind in itertools.product(order, _FIRST.get(precision, (precision,))):
        if found := calibration.by_kind.get((form.name, kind, name)):
            return min(found, key=lambda c: _away(c, head_dim))
    return None


def _away(fitted: Fitted, head_dim: int | None) -> float:
    """How far its head width is from another, in logarithms."""
    return abs(math.log((fitted.head_dim or 1) / (head_dim or fitted.head_dim or 1)))


def beyond(calibration: Calibration, fitted: Fitted, head_dim: int) -> Fitted | None:
    """The same kernels with the nearest head width on the other side of one that was not measured; None where there are none."""
    if fitted.head_dim is None or fitted.head_dim == head_dim:
        return None
    others = [
        one
        for one in calibration.by_kind[fitted.form, fitted.precision, fitted.backend]
        if one.head_dim and (one.head_dim > head_dim) == (fitted.head_dim < head_dim) and one.kernels == fitted.kernels
    ]
    return min(others, key=lambda c: _away(c, head_dim), default=None)


def between(fitted: Fitted, other: Fitted, sizes: Sizes, offered: Rates) -> Timed:
    """The time of attention of a head width between those of both, from what it takes with either: linear in logarithms."""
    ends = [timed(one, {**sizes, "d": float(one.head_dim or 1)}, offered) for one in (fitted, other)]
    low, high = (math.log(one.head_dim or 1) for one in (fitted, other))
    share = (math.log(sizes["d"]) - low) / (high - low)

    def mean(first: float, second: float) -> float:
        return math.exp((1 - share) * math.log(first) + share * math.log(second))

    seconds, fast, slow, launch = (
        mean(*(getattr(end, name) for end in ends)) for name in ("seconds", "low", "high", "launch")
    )
    return Timed(seconds, fast, slow, fitted, ends[0].outside, launch, other)


def rates(device: Device, precision: str, ranks: int = 1) -> Rates:
    """What the device offers kernels of that precision."""
    link = device.link(ranks) if ranks > 1 else None
    return Rates(
        device.peak(precision)[0], device.bandwidth, float(device.sms or 1), link.bytes_per_second if link else 1.0
    )


def timed(fitted: Fitted, sizes: Sizes, offered: Rates) -> Timed:
    """The time of one kernel."""
    form = FORMS[fitted.form]
    factor = math.exp(interpolated(form.axes, fitted.factors, form.features(sizes)))
    seconds = form.base(fitted.parameters, sizes, offered) * factor
    spread = next(s for s in fitted.spread if s.seconds is None or seconds <= s.seconds)
    outside = tuple(n for n, (low, high) in fitted.sizes.items() if not low <= sizes[n] <= high)
    launch = fitted.parameters[form.parameters.index("launch")] * factor
    return Timed(seconds, seconds * spread.low, seconds * spread.high, fitted, outside, min(launch, seconds))


__all__ = [
    "BACKENDS",
    "ELSEWHERE",
    "FOLDER",
    "Calibration",
    "Fitted",
    "Spread",
    "Timed",
    "Unseen",
    "between",
    "beyond",
    "calibration_for",
    "calibration_of",
    "chosen",
    "generic",
    "rates",
    "timed",
]
