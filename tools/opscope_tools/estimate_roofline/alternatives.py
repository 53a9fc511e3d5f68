"""What else could be done about a pass: narrower weights, a narrower cache; and how large a batch makes compute its limit.

Nothing is traced again: kernels are what they were, with other widths. An estimate with that `precision` says the same, from a trace.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from opscope_schemas.estimates import Alternative

from opscope_tools.estimate_roofline.kernels import Kernel
from opscope_tools.estimate_roofline.times import Estimate, bound, class_of, errors, estimates
from opscope_tools.hardware.calibration import BACKENDS, Calibration
from opscope_tools.hardware.devices import Device
from opscope_tools.hardware.forms import (
    BYTES,
    DECODE_ATTENTION,
    EXPERTS,
    LATENT_DECODE,
    PREFILL_ATTENTION,
    PRODUCT,
    WINDOW_DECODE,
    WINDOW_PREFILL,
)

_WEIGHTS = ("fp8", "fp8_block", "int4", "mxfp4", "nvfp4")
#: what may be narrowed alone
_PARTS = {"experts": EXPERTS, "dense": PRODUCT}
#: of activations that are narrowed before a product
_NARROW = {"fp8": 1.0, "fp8_block": 1.0, "nvfp4": BYTES["nvfp4"]}
#: precisions that weights are widened to where a device multiplies in no narrower one
_WIDE = ("bf16", "fp16", "fp32")
#: times a batch at which computing has to limit so many times what memory does
_LARGER, _CLEARLY = 16, 1.2
#: a batch beyond this is no answer
_MOST = 2**20


def alternatives(
    every: Sequence[Kernel],
    device: Device,
    calibration: Calibration | None,
    backend: str,
    vocabulary: float,
    cached: bool,
) -> tuple[tuple[Alternative, ...], dict[str, float]]:
    """What saves time, what calibrated times can judge first, then what only bounds can, most saved first in each; and how far off the
    fits are that this rests on, per cent by class. `cached`: a cache is kept.

    Calibrated times are compared where every kernel has one both ways, else the two bounds; what saves nothing by either is left out.
    Where only another backend's kernels were measured with the change, those of the pass as it is are taken of that one, too: what two
    backends differ in is no saving.
    """
    as_it_is = {backend: estimates(every, device, calibration, backend)}
    found: list[Alternative] = []
    off: dict[str, float] = {}
    for name, changed in changes(every, vocabulary, cached=cached):
        after_it = estimates(changed, device, calibration, backend)
        whose = _backends(name.rpartition(" ")[2], after_it)
        like = backend if not whose or backend in whose else whose[0]
        if like not in as_it_is:
            as_it_is[like] = estimates(every, device, calibration, like)
        if like != backend:
            after_it = estimates(changed, device, calibration, like)
        now, then = _sums(as_it_is[like]), _sums(after_it)
        known = not now.unmeasured and not then.unmeasured
        before, after = (now.calibrated, then.calibrated) if known else (now.bound, then.bound)
        kind, _, precision = name.partition(" ")
        if kind in _PARTS and not (known and before - after > _saved(found, f"weights {precision}")):
            continue
        if before > after or now.bound > then.bound:
            error_share = round(_off(as_it_is[like], after_it) / before, 4) if known else 0.0
            other, saved = "", 0.0
            if known and calibration is not None and 1 - after / before <= error_share:
                other, saved = _elsewhere(every, changed, device, calibration, like)
            off |= errors(after_it) if known else {}
            found.append(
                Alternative(
                    name=name, seconds=after, saved_seconds=before - after, share=round(1 - after / before, 4),
                    basis="calibrated" if known else "bound", bound_share=round(1 - then.bound / now.bound, 4),
                    error_share=error_share, other_backend=other, other_share=saved,
                    outside=_outside(as_it_is[like], after_it) if known else (), widened_to=_widened_to(name, device), backends=_backends(name.rpartition(" ")[2], after_it) if known else (),
                    unmeasured=tuple(dict.fromkeys((*now.unmeasured, *then.unmeasured))) if calibration is not None else (),
                )
            )  # fmt: skip
    return tuple(sorted(found, key=lambda one: (one.basis == "bound", -one.saved_seconds))), off


def _saved(found: Iterable[Alternative], name: str) -> float:
    """Seconds that a change was measured to save, which one of a part is told beside where it saves more; 0 where it was not."""
    return max((one.saved_seconds for one in found if one.name == name and one.basis == "calibrated"), default=0.0)


def _elsewhere(
    every: Sequence[Kernel], changed: Sequence[Kernel], device: Device, calibration: Calibration, like: str
) -> tuple[str, float]:
    """The other backend that gains most by a change, all kernels that it touches measured with it before and after, and its share
    of the pass; empty where none gains more than its fits are off by."""
    best, share = "", 0.0
    for backend in (one for one in BACKENDS if one != like):
        before, after = (estimates(kernels, device, calibration, backend) for kernels in (every, changed))
        touched = [one for pair in zip(before, after, strict=True) if pair[0].kernel != pair[1].kernel for one in pair]
        if any(one.measured is None or one.measured.by.backend != backend for one in touched):
            continue
        now, then = _sums(before).calibrated, _sums(after).calibrated
        saved = 1 - then / now
        if saved > max(share, _off(before, after) / now):
            best, share = backend, round(saved, 4)
    return best, share


def _backends(precision: str, found: Sequence[Estimate]) -> tuple[str, ...]:
    """Whose kernels of that precision stand for those of a pass."""
    times = [one.measured for one in found if one.kernel.precision == precision and one.measured is not None]
    return tuple(sorted({time.by.backend for time in times}))


def _outside(before: Sequence[Estimate], after: Sequence[Estimate]) -> tuple[str, ...]:
    """Sizes of the kernels that differ beyond those that were measured with the change."""
    changed = (then for now, then in zip(before, after, strict=True) if now.kernel != then.kernel)
    return tuple(dict.fromkeys(name for one in changed if one.measured is not None for name in one.measured.outside))


def _off(before: Sequence[Estimate], after: Sequence[Estimate]) -> float:
    """Seconds by which the fits of the kernels that differ are off on average, those before and those after independent."""
    changed = [pair for pair in zip(before, after, strict=True) if pair[0].kernel != pair[1].kernel]
    return math.hypot(*(sum(map(_off_by, side)) for side in zip(*changed, strict=True))) if changed else 0.0


def _off_by(one: Estimate) -> float:
    return (
        one.measured.seconds * one.kernel.count * one.measured.by.unseen.mape / 100 if one.measured is not None else 0.0
    )


def _widened_to(name: str, device: Device) -> str:
    """The precision in which products of such weights run on a device without units for them; empty: it has them."""
    kind, _, precision = name.partition(" ")
    units = device.peak(precision)[1] if kind in ("weights", *_PARTS) else ""
    return units if units in _WIDE else ""


@dataclass(frozen=True)
class _Sums:
    """Of a pass, seconds; `calibrated` is of the whole only where nothing is `unmeasured`."""

    bound: float
    calibrated: float
    unmeasured: tuple[str, ...]


def _sums(found: Sequence[Estimate]) -> _Sums:
    times = [(one.measured, one.kernel.count) for one in found if one.measured is not None]
    missing = (one.kernel for one in found if one.measured is None and one.limit is not None)
    return _Sums(
        sum(one.bound * one.kernel.count for one in found),
        sum(time.seconds * count for time, count in times),
        tuple(dict.fromkeys(f"{class_of(kernel)} {kernel.precision}" for kernel in missing)),
    )


def changes(every: Sequence[Kernel], vocabulary: float, *, cached: bool) -> Iterable[tuple[str, list[Kernel]]]:
    """Each alternative's name and the kernels with it; `vocabulary`: the head's width on a rank, which stays as it is, and so does
    what stands outside of layers that repeat, where the model has such."""
    repeats = any("*" in k.module for k in every)
    held = [k.form in (PRODUCT, EXPERTS) and k.precision == "bf16" and ("*" in k.module or not repeats) for k in every]
    if any(held):
        for precision in _WEIGHTS:
            yield (
                f"weights {precision}",
                [_narrower(k, precision, vocabulary) if one else k for k, one in zip(every, held, strict=True)],
            )
    if {k.form for k, one in zip(every, held, strict=True) if one} == {PRODUCT, EXPERTS}:
        for (part, form), precision in itertools.product(_PARTS.items(), _WEIGHTS):
            yield (
                f"{part} {precision}",
                [
                    _narrower(k, precision, vocabulary) if one and k.form is form else k
                    for k, one in zip(every, held, strict=True)
                ],
            )
    if cached and any(_cached(k) for k in every):
        yield "cache fp8", [_with_cache(k) if _cached(k) else k for k in every]


def _narrower(kernel: Kernel, precision: str, vocabulary: float) -> Kernel:
    """The head stays as it is, as checkpoints leave it, and so do products without weights."""
    sizes = kernel.sizes
    assert sizes is not None
    if kernel.form is EXPERTS:
        then = {**sizes, "weight_bytes": BYTES[precision]}
        weights = max(0.0, kernel.moved - EXPERTS.work({**sizes, "weight_bytes": 0.0})[1])
        saved = weights * (1 - BYTES[precision] / sizes["weight_bytes"])
        return replace(kernel, precision=precision, sizes=then, moved=kernel.moved - saved)
    if not kernel.joins or sizes["n"] == vocabulary:
        return kernel
    saved = (sizes["weight_bytes"] - BYTES[precision]) * sizes["n"] * sizes["k"]
    then = {**sizes, "weight_bytes": BYTES[precision], "activation_bytes": _NARROW.get(precision, 2.0)}
    return replace(kernel, precision=precision, sizes=then, moved=max(0.0, kernel.moved - saved))


def _cached(kernel: Kernel) -> bool:
    kept = (DECODE_ATTENTION, LATENT_DECODE, PREFILL_ATTENTION, WINDOW_DECODE, WINDOW_PREFILL)
    return kernel.form in kept and kernel.precision == "bf16"


def _with_cache(kernel: Kernel) -> Kernel:
    assert kernel.sizes is not None
    sizes = kernel.sizes
    width = (
        sizes["rank"] + sizes["rope"] if kernel.form is LATENT_DECODE else 2 * sizes.get("kv", 0) * sizes.get("d", 0)
    )
    saved = sizes["b"] * min(sizes["context"], sizes.get("window", math.inf)) * width
    return replace(kernel, precision="fp8", sizes={**sizes, "cache_bytes": 1.0}, moved=max(0.0, kernel.moved - saved))


def turning_batch(kernels: Callable[[int], Sequence[Kernel]], device: Device, now: int) -> int | None:
    """The smallest batch at which most of the bound is compute, and of larger ones clearly so; None: none is."""

    def computes(batch: int, times: float = 1.0) -> bool:
        spent = {"compute": 0.0, "memory": 0.0, "link": 0.0}
        for kernel in kernels(batch):
            seconds, limit = bound(kernel, device)
            if limit is not None:
                spent[limit] += seconds * kernel.count
        return spent["compute"] >= times * max(spent["memory"], spent["link"])

    low, high = 1, max(2, now)
    while not computes(high):
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if computes(middle) else (middle, high)
    found = high if not computes(low) else low
    return found if computes(_LARGER * found, _CLEARLY) else None  # else both grow alike, near a half each


__all__ = ["alternatives", "changes", "turning_batch"]
