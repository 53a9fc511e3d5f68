"""A machine of its own for tests of hosts: an environment whose home, config, state and cache lie below one folder."""

from __future__ import annotations

import os
from pathlib import Path

_MOVED = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "UV_CACHE_DIR")


def environment(folder: Path) -> dict[str, str]:
    """This process' environment without what leads to the real machine's configs."""
    home = folder / "home"
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPSCOPE_", "XDG_")) and name not in _MOVED
    }
    moved = {"HOME": home, "USERPROFILE": home, "APPDATA": home / "AppData", "LOCALAPPDATA": home / "AppData",
             "XDG_STATE_HOME": folder / "state", "XDG_CACHE_HOME": folder / "cache"}  # fmt: skip
    return kept | {name: str(path) for name, path in moved.items()} | {"COLUMNS": "120", "NO_COLOR": "1"}
