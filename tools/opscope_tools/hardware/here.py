"""The processor at hand as a device: its ceilings measured, once for each process.

Products of float32 matrices through NumPy's BLAS on all cores it uses, and copies and sums of products that are too large for any
cache. A ceiling is the best of a few repeats, since a bound must be below whatever runs later; how far the repeats lie apart stands in the
source of the figures. Nothing else of the machine should be at work meanwhile.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

from opscope_tools.hardware.devices import Device, Provenance

#: rows of the matrices, bytes of what is copied, repeats of each
_ROWS, _COPIED, _REPEATS = 1536, 1 << 28, 7
NAME = "cpu"


@cache
def this_processor() -> Device:
    """Measured when it is first asked for, in about two seconds. Rates are per second; a copy reads and writes its bytes, a sum reads."""
    import numpy as np

    left = np.random.default_rng(0).random((_ROWS, _ROWS), dtype=np.float32)
    made = np.empty_like(left)
    source, target = np.ones(_COPIED, dtype=np.uint8), np.empty(_COPIED, dtype=np.uint8)
    peak, peak_spread = _rate(lambda: np.matmul(left, left, out=made), 2.0 * _ROWS**3)
    copied, copy_spread = _rate(lambda: np.copyto(target, source), 2.0 * _COPIED)
    ones = np.ones(_COPIED // 4, dtype=np.float32)
    read, read_spread = _rate(lambda: np.dot(ones, ones), float(_COPIED))
    bandwidth = max(copied, read)
    return Device(
        id=NAME, name=f"this machine's processor ({platform.processor() or platform.machine()}, {os.cpu_count()} cores)", vendor="",
        kind="cpu", peak_flops={"fp32": peak}, bandwidth=bandwidth, capacity=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        sources=(
            Provenance(
                what="peak_flops, bandwidth, capacity", date=datetime.now(UTC).date().isoformat(),
                source=f"measured here: the best of {_REPEATS} float32 products, copies and reads, which spread by {peak_spread:.0%}, "
                f"{copy_spread:.0%} and {read_spread:.0%} of that",
            ),
        ),
    )  # fmt: skip


def _rate(work: Callable[[], object], amount: float) -> tuple[float, float]:
    """Amount a second at best, and how far the repeats lie apart, of it."""
    work()
    rates = []
    for _ in range(_REPEATS):
        before = time.perf_counter()
        work()
        rates.append(amount / (time.perf_counter() - before))
    return max(rates), (max(rates) - min(rates)) / max(rates)


__all__ = ["NAME", "this_processor"]
