"""Config files on disk: read whole, written whole or not at all, with their permissions, through symlinks.

Order: reading, writing, backups, folders. A write goes to a new file beside the target that then takes its place, so a
process that is killed leaves the old file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opscope_cache.whole_files import ordinary_mode, written_beside
from opscope_schemas.errors import InputError, OutputError

_BACKUP = ".opscope-backup"


@dataclass(frozen=True)
class Held:
    """A file as it was read: `data` is None where there is none. `target` is where a symlink leads."""

    path: Path
    target: Path
    data: bytes | None
    mode: int | None

    @property
    def text(self) -> str:
        """Its text without a byte order mark; raises `InputError`."""
        try:
            return (self.data or b"").removeprefix(b"\xef\xbb\xbf").decode()
        except UnicodeDecodeError as error:
            line = (self.data or b"").count(b"\n", 0, error.start) + 1
            raise InputError(
                "The file is not text in UTF-8.", location=f"{self.path}:{line}", next_step="It was left as it is."
            ) from None

    def with_text(self, text: str) -> bytes:
        """Other text as this file's bytes."""
        mark = b"\xef\xbb\xbf" if (self.data or b"").startswith(b"\xef\xbb\xbf") else b""
        return mark + text.encode()


def read(path: Path) -> Held:
    """The file at `path`; raises `InputError` where it is none or cannot be read."""
    target = Path(os.path.realpath(path))
    try:
        status = target.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} is not a file.", next_step="Move it away first.")
        return Held(path, target, target.read_bytes(), stat.S_IMODE(status.st_mode))
    except FileNotFoundError:
        return Held(path, target, None, None)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.", next_step="Look at its permissions.") from None


def digest(data: bytes | None) -> str:
    """What a file's content is compared by."""
    return "" if data is None else hashlib.sha256(data).hexdigest()


def write(held: Held, data: bytes) -> None:
    """Put `data` where `held` was read, in folders made as needed. Raises `OutputError`, and then nothing changed."""
    unchanged(held)
    made = missing_folders(held.target)
    try:
        held.target.parent.mkdir(parents=True, exist_ok=True)
        replace(held.target, data, held.mode, lambda: unchanged(held))
    except OSError as error:
        remove_folders(made)
        if isinstance(error, OutputError):
            raise
        raise OutputError(
            f"{held.path} cannot be written: {error.strerror}.", next_step="It was left as it is."
        ) from None


def unchanged(held: Held) -> None:
    """Raise `OutputError` where the file is no longer what was read."""
    if read(held.path).data != held.data:
        raise OutputError(
            f"{held.path} was changed by another program in this moment.", next_step="Run the command again."
        )


def replace(target: Path, data: bytes, mode: int | None, last: Callable[[], None] = lambda: None) -> None:
    """Let a new file of that content take the place of `target`, after a `last` look; raises `OSError`."""
    copy = written_beside(target, data, ordinary_mode() if mode is None else mode)
    try:
        if mode is not None and hasattr(os, "chown"):  # a file that was there: as far as one may, its owner stays
            status = target.stat()
            with contextlib.suppress(OSError):
                os.chown(copy, status.st_uid, status.st_gid)
            copy.chmod(mode)  # a change of owner takes bits away
        last()  # the disk took its time over the new file
        copy.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            copy.unlink()
        raise


def remove(path: Path) -> None:
    """Remove a file; raises `OutputError`."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{path} cannot be removed: {error.strerror}.") from None


def back_up(held: Held) -> Path:
    """A copy of the file under a free name beside it; no copy is ever written over. Raises `OutputError`."""
    assert held.data is not None, "there is a file to copy"
    for number in range(1, 1000):
        place = held.path.with_name(f"{held.path.name}{_BACKUP}{f'.{number}' if number > 1 else ''}")
        try:
            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        except OSError as error:
            raise OutputError(f"{place} cannot be written: {error.strerror}.") from None
        with os.fdopen(handle, "wb") as file:
            file.write(held.data)
        place.chmod(held.mode or 0o600)
        return place
    raise OutputError(f"There are a thousand backups beside {held.path}.", next_step="Remove those not needed.")


def missing_folders(file: Path) -> list[Path]:
    """The folders above a file that are not there, the outermost first."""
    return [place for place in reversed(file.parents) if not place.exists()]


def remove_folders(folders: Sequence[Path]) -> list[Path]:
    """Remove those of the folders that are empty, the innermost first; those removed."""
    removed = []
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()
            removed.append(folder)
    return removed
