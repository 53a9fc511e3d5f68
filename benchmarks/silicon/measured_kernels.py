"""Calibrated times and bounds against measured kernels whose shapes no fit has seen: `make bench-silicon`, with the extra `silicon`.

Parameters are those that ship. A row is below the bound where a kernel was faster than the peak and the bandwidth allow; those
whose bytes fit the L2 cache are counted apart. Arguments: systems.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from opscope_schemas.errors import ConfigError
from opscope_tools.hardware import measured as tables
from opscope_tools.hardware.calibration import Fitted, calibration_of, rates
from opscope_tools.hardware.devices import Device, shipped
from opscope_tools.hardware.forms import COLLECTIVES, FORMS, Form
from silicon_fitting import errors, predicted

_SYSTEMS = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm")


def _least(form: Form, rows: tables.Rows) -> tuple[tables.Numbers, tables.Numbers]:
    """FLOPs and bytes that no routing goes below: of experts those of one token, on a rank those that no other rank can take."""
    flops, moved = cast(Any, form.work(cast(Any, rows.sizes)))
    if rows.form != "experts":
        return flops, moved
    x = rows.sizes
    here = x["experts"] / x["ep"]
    touched = np.maximum(0.0, x["topk"] - x["experts"] + here)
    matrix = x["matrices"] * x["hidden"] * x["inter"] / x["tp"]
    return 2 * x["tokens"] * touched * matrix, touched * matrix * x["weight_bytes"] + 2 * x["tokens"] * x["hidden"]


def compared(device: Device, fitted: Fitted, rows: tables.Rows) -> str:
    """One line: errors of unseen rows, and rows of all that took less time than the bound says."""
    form = FORMS[rows.form]
    offered = rates(device, rows.precision, 2 if rows.form in COLLECTIVES else 1)
    unseen = {name: rows.sizes[name][~rows.seen] for name in form.sizes}
    estimate = predicted(form, fitted.parameters, fitted.factors, unseen, offered)
    found = errors(rows.seconds[~rows.seen], estimate)
    flops, moved = _least(form, rows)
    bound = (
        np.maximum(flops / offered.peak, moved / offered.bandwidth)
        if rows.form not in COLLECTIVES
        else np.zeros(len(rows.seconds))
    )
    below = rows.seconds < bound
    distinct = moved / 2 if rows.form.endswith("delta_decode") else moved  # states are read and written in place
    in_l2 = below & (distinct <= (device.l2_bytes or 0))
    return (
        f"{device.id:12} {rows.form:18} {rows.backend:7} {rows.precision:10} {rows.head_dim or '':4} {found.rows:7,} unseen: MAPE "
        f"{found.mape:5.1f} %, median {found.median:5.1f}, bias {found.bias:+5.1f}; below the bound {below.sum() - in_l2.sum():5,} of "
        f"{len(rows.seconds):,} beyond L2, {in_l2.sum():,} within"
    )


def main() -> None:
    for system in sys.argv[1:] or _SYSTEMS:
        held = calibration_of(system)
        assert held is not None, f"{system} has no calibration: make calibrate"
        for rows in tables.every(system):
            key = (rows.form, rows.backend, rows.precision, rows.head_dim, rows.kernels)
            fitted = next(c for c in held.classes if (c.form, c.backend, c.precision, c.head_dim, c.kernels) == key)
            print(compared(shipped()[system], fitted, rows), flush=True)


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(str(error))
