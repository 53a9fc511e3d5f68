"""The bound and the calibrated time of each kernel on a device, their sums, and what the time is spent on."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opscope_schemas.estimates import UNLIKE, CalibrationNote, ClassTime, Limit, NearestRow, OperatorTime, TimeTotals

from opscope_tools.estimate_roofline.kernels import Kernel
from opscope_tools.hardware.calibration import Calibration, Fitted, Timed, between, beyond, chosen, rates, timed
from opscope_tools.hardware.devices import Device
from opscope_tools.hardware.forms import (
    BYTES,
    COLLECTIVES,
    DECODE_ATTENTION,
    ENCODER_ATTENTION,
    EXPERTS,
    LATENT_DECODE,
    PREFILL_ATTENTION,
    PRODUCT,
    WINDOW_DECODE,
)

#: classes as people call them
_NAMES = {
    "product": "matrix products", "decode_attention": "attention", "prefill_attention": "attention", "encoder_attention": "attention", "latent_decode": "attention",
    "latent_prefill": "attention", "window_decode_attention": "attention", "window_prefill_attention": "attention",
    "gated_delta_prefill": "linear attention", "gated_delta_decode": "linear attention", "short_convolution": "short convolutions",
    "short_convolution_step": "short convolutions", "experts": "experts", **dict.fromkeys(COLLECTIVES, "communication"),
}  # fmt: skip
#: precision of weights -> that of the activations with which its kernels were measured, where it is not bf16
_ACTIVATIONS = {"fp8": "fp8", "fp8_block": "fp8", "mxfp4_mxfp8": "fp8", "nvfp4": "nvfp4"}
#: what a rank has to be told all of
_WHOLE = ("all_reduce", "send")
#: how far the time of what only moves data may be off: chosen, not measured
_LOOSE = (0.6, 1.5)


@dataclass(frozen=True)
class Estimate:
    """One kernel's times, seconds of one run."""

    kernel: Kernel
    bound: float
    limit: Limit | None
    measured: Timed | None
    fits_l2: bool


def bound(kernel: Kernel, device: Device) -> tuple[float, Limit | None]:
    """Matrix-product FLOPs at the peak of their precision, or bytes at the bandwidth of memory: whichever takes longer."""
    if kernel.ranks > 1:
        link = device.link(kernel.ranks)
        # of a sum every element holds what others have, whoever adds it up, and what is sent is sent whole; else a rank has its own part
        others = 1.0 if kernel.operation in _WHOLE else (kernel.ranks - 1) / kernel.ranks
        shared = kernel.exchanged * others
        return (shared / link.bytes_per_second if link else 0.0), "link"
    compute = kernel.matmul_flops / device.peak(kernel.units)[0]
    memory = kernel.moved / device.bandwidth
    if not compute and not memory:
        return 0.0, None
    return (compute, "compute") if compute > memory else (memory, "memory")


def estimates(every: Iterable[Kernel], device: Device, calibration: Calibration | None, backend: str) -> list[Estimate]:
    """One for each kernel that moves or computes something, or is not counted."""
    found = []
    for kernel in every:
        seconds, limit = bound(kernel, device)
        fits = device.l2_bytes is not None and kernel.moved <= device.l2_bytes
        measured = None if calibration is None or limit is None else _measured(kernel, device, calibration, backend)
        if (
            measured is not None and not fits
        ):  # nothing is faster than memory: neither the time nor the end of its range
            middle, low, high = (max(seconds, one) for one in (measured.seconds, measured.low, measured.high))
            measured = replace(measured, seconds=middle, low=low, high=high)
        found.append(Estimate(kernel, seconds, limit, measured, fits))
    return found


def _measured(kernel: Kernel, device: Device, calibration: Calibration, backend: str) -> Timed | None:
    if kernel.form is None or kernel.sizes is None:
        moves = (kernel.hub or kernel.depthwise) and bound(kernel, device)[
            1
        ] == "memory"  # its products wait for what it moves
        if kernel.matmul_flops and not moves:  # a product or an attention of a kind that no table has
            return None
        return _small(kernel, device, calibration, backend)
    sizes = _sizes(kernel)
    width = int(sizes["d"]) if "d" in sizes else None
    fitted = chosen(calibration, kernel.form, kernel.precision, backend, width)
    if fitted is None and kernel.form is WINDOW_DECODE:  # that many positions are read, and no others
        fitted = chosen(calibration, DECODE_ATTENTION, kernel.precision, backend, width)
        sizes["context"] = min(sizes["context"], sizes["window"])
    if fitted is None and kernel.form is ENCODER_ATTENTION:  # a causal one with as many pairs
        fitted = chosen(calibration, PREFILL_ATTENTION, kernel.precision, backend, width)
        sizes |= {"new": math.sqrt(2 * sizes["new"] * sizes["context"])}
    if fitted is None:  # kernels of another precision say nothing of it: they are limited elsewhere
        return None
    if kernel.activations and kernel.form in (PRODUCT, EXPERTS):
        measured = _ACTIVATIONS.get(fitted.precision, "bf16")
        if BYTES[kernel.activations] != BYTES[measured]:
            return None
    offered = rates(device, fitted.precision, kernel.ranks)
    other = beyond(calibration, fitted, width) if width is not None else None
    return timed(fitted, sizes, offered) if other is None else between(fitted, other, sizes, offered)


def _sizes(kernel: Kernel) -> dict[str, float]:
    """As kernels of its form were measured."""
    sizes = dict(kernel.sizes or {})
    if kernel.form in (
        DECODE_ATTENTION,
        LATENT_DECODE,
        WINDOW_DECODE,
    ):  # new tokens are as query heads: they read the same keys and values
        sizes["h"] *= sizes.pop("new")
    return sizes


def _small(kernel: Kernel, device: Device, calibration: Calibration, backend: str) -> Timed | None:
    """What only moves data: the launch of a product and its share of the bandwidth; nothing like it is in the tables."""
    fitted = chosen(calibration, PRODUCT, "bf16", backend)
    if fitted is None:
        return None
    named = dict(zip(PRODUCT.parameters, fitted.parameters, strict=True))
    seconds = named["launch"] + kernel.moved / (device.bandwidth * named["memory"])
    return Timed(seconds, seconds * _LOOSE[0], seconds * _LOOSE[1], fitted, launch=named["launch"])


#: form, precision, sizes and backend of a measured kernel -> the row that is nearest to it
Beside = Callable[[str, str, Mapping[str, float], str], NearestRow | None]


def rows(found: Sequence[Estimate], beside: Beside | None = None) -> tuple[OperatorTime, ...]:
    """Each kernel's row, all its runs together, with what was measured `beside` it."""
    return tuple(_row(one, beside) for one in found if one.limit is not None or not one.kernel.counted)


def _row(one: Estimate, beside: Beside | None) -> OperatorTime:
    kernel, measured = one.kernel, one.measured
    times = {
        "calibrated_seconds": measured.seconds * kernel.count, "low_seconds": measured.low * kernel.count,
        "high_seconds": measured.high * kernel.count, "launch_seconds": measured.launch * kernel.count,
    } if measured is not None else {}  # fmt: skip
    nearest = None
    if beside is not None and measured is not None and kernel.form is not None:
        nearest = beside(measured.by.form, measured.by.precision, _sizes(kernel), measured.by.backend)
    return OperatorTime(
        nearest=nearest,
        operation=kernel.operation, kind=class_of(kernel), module=kernel.module, classes=kernel.classes, file=kernel.file, line=kernel.line, count=kernel.count,
        flops=round(kernel.flops * kernel.count), bytes=round(kernel.moved * kernel.count), exchanged_bytes=round(kernel.exchanged * kernel.count),
        intensity=round(kernel.flops / kernel.moved, 3) if kernel.moved else 0.0, bound_seconds=one.bound * kernel.count,
        limited_by=one.limit, wide=kernel.wide, fits_l2=one.fits_l2, measured_as=_measured_as(one), outside=measured.outside if measured and kernel.form else (),
        **times,
    )  # fmt: skip


def _measured_as(one: Estimate) -> str:
    if one.measured is None:
        return ""
    by: Fitted = one.measured.by
    if one.kernel.form is None:
        return f"{UNLIKE} of {by.backend} products"
    beside = one.measured.beside
    width = f", head_dim {by.head_dim}" if by.head_dim else ""
    width += f" and {beside.head_dim}" if beside is not None else ""
    return f"{by.form.replace('_', ' ')}, {by.precision}, {by.backend}{width}"


def totals(found: Sequence[Estimate], tokens: float, fits: bool) -> TimeTotals:
    """Kernels one after the other. `tokens`: new tokens of all sequences; a rate is given only for what fits."""
    counted = [(one, one.kernel.count) for one in found]
    bounds = sum(one.bound * n for one, n in counted)
    kinds: tuple[Limit, ...] = ("memory", "compute", "link")
    by_limit = {kind: sum(one.bound * n for one, n in counted if one.limit == kind) for kind in kinds}
    known = all(one.measured is not None for one, _ in counted if one.limit is not None)
    times = [(one.measured, n) for one, n in counted if one.measured is not None] if known else []
    calibrated = sum(t.seconds * n for t, n in times)
    return TimeTotals(
        flops=round(sum(one.kernel.flops * n for one, n in counted)), bytes=round(sum(one.kernel.moved * n for one, n in counted)),
        bound_seconds=bounds, limited_by=max(kinds, key=lambda k: by_limit[k]),
        calibrated_seconds=calibrated if times else None,
        low_seconds=sum(t.low * n for t, n in times) if times else None,
        high_seconds=sum(t.high * n for t, n in times) if times else None,
        launch_seconds=sum(t.launch * n for t, n in times) if times else None,
        tokens_per_second=tokens / calibrated if fits and calibrated and tokens else None,
        bound_tokens_per_second=tokens / bounds if fits and bounds and tokens else None,
    )  # fmt: skip


def class_of(kernel: Kernel) -> str:
    """The class that people call it by."""
    if kernel.hub:
        return "scans of states"
    if kernel.depthwise:
        return "depthwise convolutions"
    if kernel.form is None:
        return "other products" if kernel.matmul_flops else "norms, elementwise work and copies"
    return _NAMES[kernel.form.name]


def spent(found: Sequence[Estimate]) -> tuple[ClassTime, ...]:
    """By class of kernels, most first."""
    classes: dict[str, list[Estimate]] = {}
    for one in found:
        if one.limit is not None:
            classes.setdefault(class_of(one.kernel), []).append(one)
    known = all(one.measured is not None for kinds in classes.values() for one in kinds)

    def seconds(one: Estimate) -> float:
        return (one.measured.seconds if known and one.measured is not None else one.bound) * one.kernel.count

    whole = sum(seconds(one) for kinds in classes.values() for one in kinds)
    found_ = [
        ClassTime(
            name=name, share=round(sum(map(seconds, kinds)) / whole, 4), bound_seconds=sum(k.bound * k.kernel.count for k in kinds),
            calibrated_seconds=sum(map(seconds, kinds)) if known else None,
        )
        for name, kinds in classes.items()
    ]  # fmt: skip
    return tuple(sorted(found_, key=lambda c: -c.share))


def _timed_by(found: Iterable[Estimate]) -> Iterator[tuple[Estimate, Fitted]]:
    """Each time with the fits that it follows."""
    for one in found:
        if one.measured is not None:
            yield from ((one, by) for by in (one.measured.by, one.measured.beside) if by is not None)


def errors(found: Iterable[Estimate]) -> dict[str, float]:
    """How far off the fits that times follow are, on shapes that none has seen, per cent; by class."""
    used, widths = {}, defaultdict[str, set[int]](set)
    for one, by in _timed_by(found):
        used[by.model_dump_json()] = by
        if width := (one.kernel.sizes or {}).get("d"):
            widths[by.model_dump_json()].add(int(width))
    return {_judged(by, widths[key]): by.unseen.mape for key, by in used.items()}


def note(found: Sequence[Estimate], calibration: Calibration, beside: Mapping[str, float]) -> CalibrationNote:
    """Whose measurements the calibrated times rest on; `beside`: errors of fits that what is told beside them rests on."""
    tables = {by.table for _, by in _timed_by(found)}
    whole = hashlib.sha256("".join(calibration.tables[t] for t in sorted(tables)).encode()).hexdigest()
    return CalibrationNote(
        device=calibration.device, source=calibration.source, licence=calibration.licence, digest=whole[:16],
        valid=not any(one.measured.outside for one in found if one.measured is not None and one.kernel.form is not None),
        error={**beside, **errors(found)},
    )  # fmt: skip


def _judged(by: Fitted, widths: set[int]) -> str:
    """Which class, and for which other widths of a head it stands in; one that no unseen shape was left to judge says by what its
    error was found."""
    others = sorted(widths - {by.head_dim})
    stands = f" (taken for {' and '.join(map(str, others))}, not measured itself)" if by.head_dim and others else ""
    said = f"{by.form} {by.precision} {by.backend}" + (f" head_dim {by.head_dim}{stands}" if by.head_dim else "")
    return said if by.held_out == "shapes" else f"{said} (of measured shapes, at unseen {by.held_out})"


__all__ = ["Beside", "Estimate", "bound", "class_of", "errors", "estimates", "note", "rows", "spent", "totals"]
