"""The wheels of tests/kernel-sources.txt, unpacked: real kernels to read."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

from filelock import FileLock
from opscope_cache.store import open_store
from opscope_schemas.common import Repository
from opscope_tools.kernels.inventory import scan
from opscope_tools.kernels.records import Inventory

LISTED = Path(__file__).parents[1] / "kernel-sources.txt"
#: where `make setup` leaves them
WHEELS = Path(sys.prefix) / "sources"


def kernel_sources() -> dict[str, Path]:
    """Package -> its root, which no test writes to: unpacked once, beside the wheels."""
    found = {}
    with FileLock(WHEELS / "unpacked.lock"):
        for line in LISTED.read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            root = WHEELS / "unpacked" / line
            if not root.is_dir():
                (wheel,) = WHEELS.glob(f"{line.replace('-', '_').replace('==', '-')}-*.whl")
                part = root.with_name(f"{line}.part")
                zipfile.ZipFile(wheel).extractall(part)
                part.rename(root)
            found[line.partition("==")[0]] = root
    return found


def inventory_of(repository: Repository) -> Inventory:
    """The kernels of a repository that no test changes, read once for all test processes."""
    store = open_store(Path(os.environ["OPSCOPE_CACHE_DIR"]))
    return scan(repository, store, checkpoint=lambda: None, progress=lambda *_: None)
