"""Folders for work that is thrown away: removed when the work ends, or by the next start where a kill prevented that.

They lie in one folder of the user's in the temporary folder. Each holds a lock for as long as the process that made it lives;
a folder whose lock can be had has no owner any more.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from opscope_schemas.errors import BusyError, OutputError

__all__ = ["alone", "remove", "scratch_folder", "sweep"]

_OWNER = ".owner"
#: ending of the lock of what only one process does at a time
_ALONE = ".alone"


@contextlib.contextmanager
def scratch_folder(what: str) -> Iterator[Path]:
    """A new folder for `what`, gone afterwards. Raises `OutputError` where there is no place for it."""
    from filelock import FileLock  # here: most processes that may start another one never do

    home = _home()
    sweep(home)
    folder = Path(tempfile.mkdtemp(prefix=f"{what}-", dir=home))
    lock = FileLock(_owner(folder))
    lock.acquire(timeout=0)
    try:
        yield folder
    finally:
        remove(folder)
        lock.release()
        _owner(folder).unlink(missing_ok=True)


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Nobody else of this user does `what` meanwhile, in whatever process; raises `BusyError` where somebody does."""
    from filelock import FileLock, Timeout

    lock = FileLock(_home() / f"{what}{_ALONE}")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(
            f"Another {what} runs on this machine, and the two would disturb each other.",
            next_step="Wait until it is done.",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _owner(folder: Path) -> Path:
    """The lock of a folder's owner: beside it, where what works in the folder cannot reach."""
    return folder.with_name(f"{folder.name}{_OWNER}")


@cache
def sweep(home: Path) -> None:
    """Remove the folders below `home` whose owners have ended, and locks without a folder; once a process."""
    from filelock import FileLock, Timeout

    for found in home.iterdir():
        if found.name.endswith(_ALONE):
            continue
        folder = found.with_suffix("") if found.name.endswith(_OWNER) else found
        if folder.is_symlink() or (not _owner(folder).exists() and _young(folder)):
            continue  # somebody is just making it
        with contextlib.suppress(Timeout, OSError), FileLock(_owner(folder), timeout=0):
            remove(folder)
            _owner(folder).unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Remove a folder and all below it, however deep it goes and whatever modes it has; what cannot be removed stays."""
    names = itertools.count()
    with contextlib.suppress(OSError):
        while inner := _emptied(folder):  # folders in it: what they hold is moved up, one level a time
            for one in inner:
                one.chmod(0o700)
                for deeper in _emptied(one):
                    deeper.rename(folder / f"{next(names)}.up")
                one.rmdir()
        folder.rmdir()


def _emptied(folder: Path) -> list[Path]:
    """The folders in a folder, whose files are gone."""
    folders = []
    for one in list(folder.iterdir()):
        if one.is_dir() and not one.is_symlink():
            folders.append(one)
        else:
            one.unlink()
    return folders


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
