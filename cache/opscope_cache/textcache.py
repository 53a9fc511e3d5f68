"""diskcache, held to text: no pickle is made or read, and no file is opened or removed but the database itself.

diskcache keeps large values in files that a row names, reads other types by unpickling them, and takes settings from the
file. Here every value is a row's text behind a digest of key and text, so that a value which was cut, changed or put under
another key is told; a row of any other kind is no value. Import this only where a cache is opened: diskcache takes 30 ms.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import diskcache
from diskcache.core import DEFAULT_SETTINGS, METADATA, MODE_RAW, UNKNOWN

from opscope_cache.databases import Schema, schema_of
from opscope_cache.keys import digest
from opscope_cache.private import NotOursError

_DIGITS = len(digest())
#: settings that are words; every other one is a number
_WORDS = frozenset({"eviction_policy", "sqlite_journal_mode"})
_POLICY = "least-recently-used"


class TextDisk(diskcache.Disk):  # type: ignore[misc] # diskcache ships no types
    """Keys and values as text in the row itself. What is not text reads as "", which no digest stands in front of."""

    def put(self, key: str) -> tuple[str, bool]:
        """A key as it stands in the database: text, never pickled."""
        assert type(key) is str
        return key, True

    def get(self, key: object, raw: object) -> str:
        """A key of the database; empty for what `put` never writes."""
        return key if isinstance(key, str) and raw == 1 else ""

    def store(self, value: str, read: bool, key: str = UNKNOWN) -> tuple[int, int, None, str]:
        """A value as it stands in the row: behind the digest that `fetch` compares."""
        assert type(value) is str
        assert not read
        return 0, MODE_RAW, None, f"{digest(key, value)}{value}"

    def fetch(self, mode: object, filename: object, value: object, read: bool) -> str:
        """A row's value, digest included; empty for what `store` never writes."""
        return value if mode == MODE_RAW and filename is None and isinstance(value, str) and not read else ""

    def remove(self, file_path: object) -> None:
        """No value of ours lies in a file, so a row that names one does not get it removed."""


def unsealed(key: str, kept: str) -> str | None:
    """The text that was kept under `key`; None where it is not what was written."""
    text = kept[_DIGITS:]
    try:
        return text if kept[:_DIGITS] == digest(key, text) else None
    except UnicodeEncodeError:
        return None


def open_cache(folder: Path, size_limit: int, timeout: float) -> diskcache.Cache:
    """The cache in `folder`, whose database `check` has been through: every setting is ours, none is the file's."""
    settings = {**DEFAULT_SETTINGS, "eviction_policy": _POLICY, "size_limit": size_limit}
    # a file that is cut short while it is mapped kills the process that reads it
    settings["sqlite_mmap_size"] = 0
    return diskcache.Cache(str(folder), timeout=timeout, disk=TextDisk, **settings)


def check(database: sqlite3.Connection, now: float) -> None:
    """Raise `NotOursError` where the database holds anything that `open_cache` would not have made.

    A part of it will do: who made it may have been killed. Rows are judged when they are read; those that nobody could ask
    for go now. Those that claim to have been used later than `now` become the first to go: a clock that was ahead for a
    day, or a forger, must not make entries that outlive all others.
    """
    found = schema_of(database)
    if database.execute("PRAGMA auto_vacuum").fetchone()[0] != DEFAULT_SETTINGS["sqlite_auto_vacuum"]:
        raise NotOursError("The file would not shrink when rows go, so its size would have every new row evicted.")
    if not found <= _schema():
        raise NotOursError("The database defines what diskcache does not.")
    tables = {name for kind, name, _ in found if kind == "table"}
    if "Settings" in tables:
        # a damaged index there has each setting written a second time, and the counts run wild only later
        if database.execute("PRAGMA integrity_check(Settings)").fetchone()[0] != "ok":
            raise NotOursError("The table of settings is damaged.")
        for key, value in database.execute("SELECT key, value FROM Settings"):
            if key not in DEFAULT_SETTINGS | METADATA or type(value) is not (str if key in _WORDS else int):
                raise NotOursError(f"The setting {key!r} is none of diskcache's.")
            if (key == "size" and value) or (key == "count" and int(value) < 0):
                raise NotOursError("Values lie in files, or rows were counted that are not there.")
    if {"Cache_access_time", "Cache_key_raw"} <= {name for _, name, _ in found}:
        database.execute("DELETE FROM Cache WHERE raw IS NOT 1 OR typeof(key) <> 'text'")
        database.execute("UPDATE Cache SET access_time = 0 WHERE access_time > ?", (now,))


class _InMemory(diskcache.Cache):  # type: ignore[misc]
    """A cache without a file, made to see what diskcache defines."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        super().__init__("/", disk=TextDisk, eviction_policy=_POLICY)

    @property
    def _con(self) -> sqlite3.Connection:
        return self.connection


def _schema() -> Schema:
    """What this version of diskcache defines in a database."""
    sample = _InMemory()
    try:
        return schema_of(sample.connection)
    finally:
        sample.connection.close()
