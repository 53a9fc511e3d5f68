"""The measured row that is nearest to a kernel, with the extra `silicon`: evidence beside an estimate, which rests on many rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from opscope_schemas.estimates import NearestRow

from opscope_tools.hardware import measured

#: keeps a size of nothing (no skew) from being infinitely far
_NOTHING = 1e-9


@cache
def _rows(system: str, form: str) -> tuple[measured.Rows, ...]:
    return tuple(measured.every(system, form))


def nearest_row(
    system: str, form: str, precision: str, sizes: Mapping[str, float], backend: str = ""
) -> NearestRow | None:
    """The row of that class whose sizes are nearest in logarithms; None: nothing of it was measured.

    `backend`: only what was measured with its kernels. Raises `ConfigError` where no tables are installed.
    """
    best: NearestRow | None = None
    for rows in _rows(system, form):
        if rows.precision != precision or (backend and rows.backend != backend):
            continue
        asked = [n for n in sizes if n in rows.sizes]
        away = sum(
            (np.abs(np.log((rows.sizes[n] + _NOTHING) / (sizes[n] + _NOTHING))) for n in asked),
            np.zeros(len(rows.seconds)),
        ) / max(1, len(asked))
        at = int(np.argmin(away))
        factor = float(np.exp(away[at]))
        if best is None or factor < best.factor:
            best = NearestRow(
                sizes={n: float(v[at]) for n, v in rows.sizes.items()}, seconds=float(rows.seconds[at]), factor=factor,
                backend=rows.backend, kernels=rows.kernels, table=rows.table,
            )  # fmt: skip
    return best


__all__ = ["nearest_row"]
