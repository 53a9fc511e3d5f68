"""Folders for work that is thrown away: removed when the work ends, or by the next start where a kill prevented that.

They lie in one folder of the user's in the temporary folder. Each holds a lock for as long as the process that made it lives;
a folder whose lock can be had has no owner any more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout
from opscope_schemas.errors import OutputError

__all__ = ["scratch_folder", "sweep"]

_OWNER = ".owner"


@contextlib.contextmanager
def scratch_folder(what: str) -> Iterator[Path]:
    """A new folder for `what`, gone afterwards. Raises `OutputError` where there is no place for it."""
    home = _home()
    sweep(home)
    folder = Path(tempfile.mkdtemp(prefix=f"{what}-", dir=home))
    lock = FileLock(folder / _OWNER)
    lock.acquire(timeout=0)
    try:
        yield folder
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


@cache
def sweep(home: Path) -> None:
    """Remove the folders below `home` whose owners have ended; once a process."""
    for folder in home.iterdir():
        if not folder.is_dir() or folder.is_symlink():
            continue
        if not (folder / _OWNER).exists() and _young(folder):
            continue  # somebody is just making it
        with contextlib.suppress(Timeout, OSError), FileLock(folder / _OWNER, timeout=0):
            shutil.rmtree(folder, ignore_errors=True)


def _young(folder: Path) -> bool:
    import time

    try:
        return time.time() - folder.stat().st_mtime < 60
    except OSError:
        return True


def _home() -> Path:
    """The user's folder in the temporary folder; one that is somebody else's, or open to others, is not used."""
    home = Path(tempfile.gettempdir()) / f"opscope-{os.getuid()}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        found = home.lstat()
    except OSError as error:
        raise OutputError(
            f"No scratch folder can be made at {home}: {error.strerror or error}.",
            next_step="Point TMPDIR at a folder that can be written.",
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OutputError(
            f"{home} is not a folder of yours alone, so nothing is written there.",
            next_step="Remove it, or point TMPDIR at another folder.",
        )
    return home
