"""What kernels take on a device that nobody measured, from those that were: `make calibrate` runs it last.

For each class of kernels the mean of the devices' parameters and tables, generation by generation, ships in
calibrations/uncalibrated.json. Its spread is that on each device by the others alone, those of its own generation left out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from calibrate import written
from opscope_tools.hardware import measured as tables
from opscope_tools.hardware.calibration import (
    BACKENDS,
    ELSEWHERE,
    FOLDER,
    Calibration,
    Fitted,
    Spread,
    calibration_of,
    rates,
)
from opscope_tools.hardware.devices import Device, shipped
from opscope_tools.hardware.forms import COLLECTIVES, FORMS
from silicon_fitting import errors, predicted

#: a class is kept where so many generations were measured
_LEAST = 3
Key = tuple[str, str, str, int | None]


def generation(device: Device) -> str:
    """GPUs of one make, whatever their memory."""
    return device.arch[:-1]


def means(held: Sequence[tuple[str, Fitted]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Parameters (geometric) and tables, each generation as much as another."""
    of: dict[str, list[Fitted]] = {}
    for name, one in held:
        of.setdefault(name, []).append(one)
    logs = np.array([np.mean([np.log(f.parameters) for f in same], axis=0) for same in of.values()]).mean(axis=0)
    factors = np.array([np.mean([f.factors for f in same], axis=0) for same in of.values()]).mean(axis=0)
    return tuple(float(f"{p:.4g}") for p in np.exp(logs)), tuple(round(float(f), 2) for f in factors)


def _rows(system: str) -> dict[Key, tables.Rows]:
    return {(r.form, r.backend, r.precision, r.head_dim): r for r in tables.every(system)}


def elsewhere(key: Key, classes: Mapping[str, Fitted], rows: Mapping[str, Mapping[Key, tables.Rows]]) -> Fitted | None:
    """One class of kernels; None: too few generations."""
    form = FORMS[key[0]]
    devices = {system: shipped()[system] for system in classes}
    if len({generation(d) for d in devices.values()}) < _LEAST:
        return None
    measured, estimated = [], []
    for system, device in devices.items():
        others = [(generation(d), classes[s]) for s, d in devices.items() if generation(d) != generation(device)]
        parameters, factors = means(others)
        mine = rows[system][key]
        unseen = np.flatnonzero(~mine.seen)
        unseen = unseen[:: max(1, len(unseen) // 2000)]
        sizes = {n: mine.sizes[n][unseen] for n in form.sizes}
        offered = rates(device, key[2], 2 if key[0] in COLLECTIVES else 1)
        measured.append(mine.seconds[unseen])
        estimated.append(predicted(form, parameters, factors, sizes, offered))
    every, estimate = np.concatenate(measured), np.concatenate(estimated)
    low, high = np.quantile(every / estimate, (0.1, 0.9))
    parameters, factors = means([(generation(d), classes[s]) for s, d in devices.items()])
    ends: Any = [[c.sizes[n] for c in classes.values()] for n in classes[next(iter(classes))].sizes]
    return Fitted(
        form=key[0], backend=key[1], precision=key[2], head_dim=key[3], kernels=(), table="", rows=0, parameters=parameters, factors=factors,
        sizes={n: (min(e[0] for e in found), max(e[1] for e in found)) for n, found in zip(classes[next(iter(classes))].sizes, ends, strict=True)},
        unseen=errors(every, estimate), spread=(Spread(low=round(float(low), 3), high=round(float(high), 3)),),
    )  # fmt: skip


def main() -> None:
    held: dict[str, Calibration] = {}
    for system in (s for s in tables.systems() if s in shipped()):
        if (calibration := calibration_of(system)) is not None:
            held[system] = calibration
    rows = {system: _rows(system) for system in held}
    by_key: dict[Key, dict[str, Fitted]] = {}
    for system, calibration in held.items():
        for one in calibration.classes:
            by_key.setdefault((one.form, one.backend, one.precision, one.head_dim), {})[system] = one
    found: dict[tuple[str, str, int | None], Fitted] = {}
    for backend in BACKENDS:
        for key, classes in by_key.items():
            kind = (key[0], key[2], key[3])
            mean = elsewhere(key, classes, rows) if key[1] == backend and kind not in found else None
            if mean is None:
                continue
            found[kind] = mean
            print(
                f"{mean.form:24} {mean.backend:7} {mean.precision:10} {mean.head_dim or '':4} {len(classes)} devices, each by other "
                f"generations: MAPE {mean.unseen.mape:5.1f} %, {mean.spread[0].low:.2f} to {mean.spread[0].high:.2f} times",
                flush=True,
            )
    first = next(iter(held.values()))
    whole = Calibration(
        device=ELSEWHERE, source=f"uncalibrated: the mean of other devices, {first.source}", licence=first.licence, date=first.date,
        tables={}, classes=tuple(found.values()),
    )  # fmt: skip
    (FOLDER / f"{ELSEWHERE}.json").write_text(written(whole))


if __name__ == "__main__":
    main()
