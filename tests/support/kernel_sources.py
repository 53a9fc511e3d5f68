"""The wheels of tests/kernel-sources.txt, unpacked: real kernels to read."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

LISTED = Path(__file__).parents[1] / "kernel-sources.txt"
#: where `make setup` leaves them
WHEELS = Path(sys.prefix) / "sources"


def kernel_sources(folder: Path) -> dict[str, Path]:
    """Package -> its root, unpacked below `folder` where it is not yet."""
    found = {}
    for line in LISTED.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name = line.partition("==")[0]
        root = folder.resolve() / name
        if not root.is_dir():
            (wheel,) = WHEELS.glob(f"{line.replace('-', '_').replace('==', '-')}-*.whl")
            zipfile.ZipFile(wheel).extractall(root)
        found[name] = root
    return found
