"""The file of an index is as its last writer left it, or it is removed; so is each blob in it.

SQLite tells damaged pages, but not a letter that changed in a cell: a class would be missing under its name, and nobody would
know. So beside each database stands a seal, the size, times and inode that it had when the last writer was done. Pages reach
the file only here (`checkpoint`, and closing the last connection), under a lock of the folder; between times, what is written
stands in the write-ahead log, whose frames have checksums. Who finds a file that differs from its seal builds it anew: an
index is made from sources that are still there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from opscope_cache import private
from opscope_cache.databases import Schema, is_damage, schema_of
from opscope_cache.keys import digest
from opscope_cache.trees import signature

#: what belongs to an index; a build holds the last
PARTS = ("", *private.BESIDE, ".seal", ".lock")


def seal_of(place: Path) -> Path:
    """The file that says how the last writer left the index at `place`; its own time is that of the last use."""
    return place.with_name(place.name + ".seal")


def make_folder(folder: Path) -> None:
    """Make the folder of indexes; one that others could have written goes first."""
    try:
        private.make_folder(folder)
    except private.NotOursError:
        private.remove(folder)
        private.make_folder(folder)


def connect(place: Path, schema: str, busy: float) -> sqlite3.Connection:
    """A connection to the index at `place`, which is new where there was none, or none that can be trusted.

    Raises `OSError` or `sqlite3.Error` where there cannot be one now.
    """
    make_folder(place.parent)
    with private.locked(place.parent):
        if not _intact(place):
            _remove(place)
        try:
            return _connected(place, schema, busy)
        except Exception as error:
            if not is_damage(error):
                raise
            _remove(place)
            return _connected(place, schema, busy)


def checkpoint(connection: sqlite3.Connection, place: Path) -> None:
    """Bring what was written into the file, and seal it."""
    with contextlib.suppress(OSError, sqlite3.OperationalError), private.locked(place.parent):
        intact = _intact(place)
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if intact and not busy:
            _seal(place)


def close(connection: sqlite3.Connection, place: Path | None) -> None:
    """Close a connection; the last one brings what was written into the file."""
    if place is not None:
        with contextlib.suppress(OSError), private.locked(place.parent):
            intact = _intact(place)
            connection.close()
            if intact:
                _seal(place)
    connection.close()


def remove(place: Path) -> None:
    """Remove an index; who has it open keeps reading what it opened."""
    with contextlib.suppress(OSError), private.locked(place.parent):
        _remove(place, PARTS)


def _remove(place: Path, parts: Sequence[str] = PARTS[:-1]) -> None:
    for part in parts:
        private.remove(place.with_name(place.name + part))


def _connected(place: Path, schema: str, busy: float) -> sqlite3.Connection:
    private.make_database(place)
    connection = sqlite3.connect(place, timeout=busy, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("PRAGMA synchronous=NORMAL")  # waits for the disk at a checkpoint only
        connection.executescript(schema)
        if schema_of(connection) != _expected(schema):
            raise private.NotOursError("The index defines what this version does not.")
        _seal(place)
    except BaseException:
        connection.close()
        raise
    return connection


@cache
def _expected(schema: str) -> Schema:
    with contextlib.closing(sqlite3.connect(":memory:")) as sample:
        sample.executescript(schema)
        return schema_of(sample)


def _intact(place: Path) -> bool:
    """Whether the database is ours and as its seal says."""
    try:
        private.make_database(place)
        private.check_file(seal_of(place))
        found = place.stat()
        return found.st_size > 0 and seal_of(place).read_bytes() == signature(found)
    except (private.NotOursError, OSError):
        return False


def _seal(place: Path) -> None:
    """Write the seal anew, in place of whatever lies there."""
    if _intact(place):
        os.utime(seal_of(place))
        return
    found, seal = signature(place.stat()), seal_of(place)
    private.remove(seal)
    seal.touch(mode=0o600, exist_ok=False)
    seal.write_bytes(found)


def stamped(blob: bytes, *about: str | bytes) -> bytes:
    """`blob` behind a digest of it and of what it belongs to: no other blob may take its place."""
    return digest(blob, *about).encode() + blob


def unstamped(kept: object, *about: str | bytes) -> bytes | None:
    """The blob that `stamped` wrote; None where it is damaged, or another's."""
    if not isinstance(kept, bytes):
        return None
    blob = kept[40:]
    return blob if digest(blob, *about).encode() == kept[:40] else None
