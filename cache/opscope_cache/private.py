"""Folders and files that only their owner may read or write: everything opscope keeps lies in these.

What others could have written, a link that leads elsewhere, a file with a second name: none is ours, and whoever finds one
sets it aside and begins anew. Modes are set outright, so the umask has no say.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover (not POSIX: no modes or owners either)
    fcntl = None  # type: ignore[assignment]

#: what SQLite makes beside a database
BESIDE = ("-wal", "-shm", "-journal")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PATIENCE = 5.0


class NotOursError(Exception):
    """What lies there may hold what somebody else wrote, or leads out of the folder."""


def make_folder(folder: Path) -> None:
    """Make `folder`, or see that the one that is there is ours; mode 0700.

    Raises `NotOursError` where others could have written into it or it is no folder, `OSError` where it cannot be made or
    belongs to another user, who may well be using it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotOursError(f"{folder} is no folder.")
    if os.name == "posix" and found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", str(folder))
    _tighten(folder, found, 0o700)


def make_database(file: Path) -> None:
    """Make the empty file of an SQLite database, or see that the one that is there is ours, with what SQLite put beside
    it (which takes the mode of the file itself); mode 0600. Its folder is private already.

    Raises `NotOursError`. A rollback journal is never ours: these databases keep a write-ahead log, and a journal may name
    another file for SQLite to delete.
    """
    with contextlib.suppress(FileExistsError):
        file.touch(mode=0o600, exist_ok=False)
        file.chmod(0o600)
    for name in (file.name, *(file.name + beside for beside in BESIDE)):
        check_file(file.with_name(name))


def check_file(file: Path) -> None:
    """Raise `NotOursError` where there is a file that is not ours alone; mode 0600."""
    try:
        found = file.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or file.name.endswith("-journal"):
        raise NotOursError(f"{file} is no file of ours.")
    _tighten(file, found, 0o600)


def _tighten(path: Path, found: os.stat_result, mode: int) -> None:
    """Take others' right to read. What they could write is not ours any more: they may have."""
    if os.name != "posix":
        return
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
        raise NotOursError(f"Others may have written {path}.")
    if stat.S_IMODE(found.st_mode) != mode:
        path.chmod(mode)


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None where there is nothing."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` against other processes and threads that do the same; raises `OSError` where one does not let go."""
    if fcntl is None:  # pragma: no cover
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.002)
        yield
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a folder with all that is in it, a file, or a link itself; what a link leads to stays."""
    with contextlib.suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path, ignore_errors=True)
