"""The measured row that is nearest to a kernel, with the extra `silicon`: evidence beside an estimate.

python benchmarks/silicon/nearest_row.py h100_sxm product bf16 m=64 n=4096 k=4096
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import silicon_tables as tables


@dataclass(frozen=True)
class Nearest:
    """One measured row: its sizes, seconds, and how far it lies: the mean factor between its sizes and those asked for."""

    sizes: Mapping[str, float]
    seconds: float
    factor: float
    backend: str
    kernels: tuple[str, ...]
    table: str


def nearest_row(
    system: str, form: str, precision: str, sizes: Mapping[str, float], backend: str = ""
) -> Nearest | None:
    """The row of that class whose sizes are nearest in logarithms; None: nothing of it was measured. Raises `NoTablesError`."""
    best: Nearest | None = None
    for rows in tables.every(system):
        if (rows.form, rows.precision) != (form, precision) or (backend and rows.backend != backend):
            continue
        asked = [n for n in sizes if n in rows.sizes]
        factors = [np.abs(np.log((rows.sizes[n] + 1e-9) / (sizes[n] + 1e-9))) for n in asked]
        away = np.mean([np.zeros(len(rows.seconds)), *factors], axis=0) * (len(asked) + 1) / max(1, len(asked))
        at = int(np.argmin(away))
        found = Nearest(
            {n: float(v[at]) for n, v in rows.sizes.items()}, float(rows.seconds[at]), float(np.exp(away[at])), rows.backend,
            rows.kernels, rows.table,
        )  # fmt: skip
        if best is None or found.factor < best.factor:
            best = found
    return best


def main() -> None:
    system, form, precision, *sizes = sys.argv[1:]
    print(nearest_row(system, form, precision, {n: float(v) for n, _, v in (s.partition("=") for s in sizes)}))


if __name__ == "__main__":
    main()
