"""Files that are written whole or not at all: a finished copy beside the target, then one rename.

A kill between the two leaves the copy; its name says which process made it, and the next writer of that target removes the
copies of processes that are gone.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["ordinary_mode", "write_whole", "written_beside"]

_ENDING = ".part"


def write_whole(target: Path, data: bytes, mode: int) -> None:
    """Let a new file of that content take the place of `target`; raises `OSError` and leaves everything as it was."""
    copy = written_beside(target, data, mode)
    try:
        copy.replace(target)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise


def written_beside(target: Path, data: bytes, mode: int) -> Path:
    """A finished copy of `data` in the folder of `target`, on disk, for the caller to rename; raises `OSError`."""
    _remove_abandoned(target)
    handle, name = tempfile.mkstemp(prefix=f"{_stem(target)}{os.getpid()}-", suffix=_ENDING, dir=target.parent)
    copy = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        copy.chmod(mode)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    return copy


def ordinary_mode() -> int:
    """The mode of a new file that anybody would make here."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _stem(target: Path) -> str:
    return f".{target.name[:100]}."


def _remove_abandoned(target: Path) -> None:
    stem = _stem(target)
    for left in target.parent.iterdir():
        if not (left.name.startswith(stem) and left.name.endswith(_ENDING)):
            continue
        maker = left.name.removeprefix(stem).partition("-")[0]
        if maker.isdecimal() and not _lives(int(maker)):
            with contextlib.suppress(OSError):
                left.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
