"""Fits what ships in tools/opscope_tools/hardware/calibrations: `make calibrate`, with the extra `silicon`. Arguments: systems."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from opscope_tools.hardware import measured as tables
from opscope_tools.hardware.calibration import FOLDER, Calibration, Fitted, rates
from opscope_tools.hardware.devices import shipped
from opscope_tools.hardware.forms import COLLECTIVES
from silicon_fitting import fitted

_SOURCE = "measured kernels of aiconfigurator-core {} (PyPI), NVIDIA Corporation & Affiliates"
_READ = "2026-11-23"


def calibrated(system: str) -> Calibration:
    """All classes of one device."""
    device = shipped()[system]
    found: list[Fitted] = []
    for rows in tables.every(system):
        ranks = 2 if rows.form in COLLECTIVES else 1
        one = fitted(rows, rates(device, rows.precision, ranks))
        found.append(one)
        print(
            f"{system:20} {one.form:18} {one.backend:7} {one.precision:10} {one.head_dim or '':4} {one.unseen.rows:7,} unseen rows: "
            f"MAPE {one.unseen.mape:5.1f} %, median {one.unseen.median:5.1f}, bias {one.unseen.bias:+5.1f}",
            flush=True,
        )
    return Calibration(
        device=system, source=_SOURCE.format(version("aiconfigurator-core")), licence="Apache-2.0", date=_READ,
        tables={table: tables.digest(table) for table in sorted({c.table for c in found})}, classes=tuple(found),
    )  # fmt: skip


def written(calibration: Calibration) -> str:
    """As it is kept: a class of kernels on a line."""
    held = calibration.model_dump(mode="json", exclude_defaults=True)
    classes = ",\n".join(json.dumps(one, separators=(",", ":")) for one in held.pop("classes"))
    return f'{json.dumps(held, indent=1)[:-2]},\n "classes": [\n{classes}\n]}}\n'


def main() -> None:
    for system in sys.argv[1:] or [s for s in tables.systems() if s in shipped()]:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{system}.json").write_text(written(calibrated(system)))


if __name__ == "__main__":
    main()
