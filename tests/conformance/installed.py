"""Where .ci/install-node has put Node and the npm packages that tests run."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

__all__ = ["MODULES", "NODE"]

MODULES = Path(__file__).parent / "node/node_modules"
_MACHINE = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}.get(platform.machine(), "none")
_PINNED = MODULES / f"node-{_MACHINE}/bin/node"
#: the pinned Node; where npm has none for the machine, the machine's own, which must be 22.19 or newer
NODE = _PINNED if _PINNED.is_file() else Path(shutil.which("node") or "node")
