"""The store: bytes and text by key, on disk, bounded, safe under several processes, rebuilt when damaged.

`Store` is the small Protocol that the rest of opscope sees; `DiskStore` implements it over diskcache (SQLite), and
`MemoryStore` serves tests and read-only machines.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import platformdirs
from opscope_schemas.errors import OutputError

#: bytes that the cache may take on disk before the least recently used entries go
SIZE_LIMIT = 1 << 30

#: seconds that a reader or writer waits for another process's transaction
_BUSY_SECONDS = 5

T = TypeVar("T")


@dataclass(frozen=True)
class StoreInfo:
    """What `opscope cache info` prints."""

    location: str
    entries: int
    size_bytes: int
    limit_bytes: int


class Store(Protocol):
    """Text values by key. `folder` is where the cache lies, for what keeps files of its own there; None in memory."""

    @property
    def folder(self) -> Path | None: ...
    def get(self, key: str) -> str | None: ...
    def put(self, key: str, value: str) -> None: ...
    def keys(self) -> Iterator[str]: ...
    def clear(self) -> int: ...
    def info(self) -> StoreInfo: ...
    def close(self) -> None: ...


class MemoryStore:
    """A store that lives as long as the process."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._values: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def put(self, key: str, value: str) -> None:
        self._values[key] = value

    def keys(self) -> Iterator[str]:
        return iter(list(self._values))

    def clear(self) -> int:
        count = len(self._values)
        self._values.clear()
        return count

    def info(self) -> StoreInfo:
        size = sum(len(value.encode()) for value in self._values.values())
        return StoreInfo("memory", len(self._values), size, 0)

    def close(self) -> None:
        """Nothing to release."""


class DiskStore:
    """diskcache behind `Store`, in a subfolder of its own: nothing else in the folder is ever touched.

    A damaged database is set aside (renamed) and an empty one takes its place. A database that is busy, full or read-only is
    not damaged: then reading finds nothing and writing keeps nothing, and the answer is computed.
    """

    def __init__(self, folder: Path, size_limit: int = SIZE_LIMIT) -> None:
        self.folder = folder
        self._place = folder / "store-1"
        self._size_limit = size_limit
        self._cache: Any = None
        try:
            self._place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"The cache folder {folder} cannot be used: {error.strerror or error}.",
                next_step="Name another one with --cache-dir or OPSCOPE_CACHE_DIR.",
            ) from error
        self._guarded(lambda: self._opened().get("probe"), None)

    def _opened(self) -> Any:
        if self._cache is None:
            import diskcache  # here: 30 ms that commands without a cache need not pay

            self._ask_whether_busy()
            # values are JSON text: diskcache keeps text as it is and never unpickles it
            self._cache = diskcache.Cache(
                str(self._place),
                size_limit=self._size_limit,
                eviction_policy="least-recently-used",
                timeout=_BUSY_SECONDS,
            )
        return self._cache

    def _ask_whether_busy(self) -> None:
        """Raise `sqlite3.OperationalError` where another process does not let go of the database within our patience:
        diskcache itself would try for a minute each time it opens one."""
        database = self._place / "cache.db"
        if database.exists():
            probe = sqlite3.connect(database, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                probe.execute("BEGIN IMMEDIATE")
                probe.execute("ROLLBACK")
            finally:
                probe.close()

    def _guarded(self, operation: Callable[[], T], default: T) -> T:
        """Run `operation`; a cache may forget, so whatever is wrong with it the answer is `default`."""
        from diskcache import Timeout

        try:
            return operation()
        except (sqlite3.OperationalError, Timeout, OSError):
            return default
        except sqlite3.DatabaseError:
            self._set_aside()
            return default

    def _set_aside(self) -> None:
        """Rename the damaged store; of those set aside before, keep none."""
        with contextlib.suppress(Exception):
            self._cache.close()
        self._cache = None
        for old in self.folder.glob("store-1.damaged-*"):
            shutil.rmtree(old, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process may have been quicker
            self._place.rename(self.folder / f"store-1.damaged-{os.getpid()}-{time.time_ns()}")
        with contextlib.suppress(OSError):
            self._place.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> str | None:
        value = self._guarded(lambda: self._opened().get(key), None)
        return value if isinstance(value, str) else None

    def put(self, key: str, value: str) -> None:
        self._guarded(lambda: self._opened().set(key, value), True)

    def keys(self) -> Iterator[str]:
        nothing: list[str] = []
        return iter(self._guarded(lambda: [key for key in self._opened() if isinstance(key, str)], nothing))

    def clear(self) -> int:
        return int(self._guarded(lambda: self._opened().clear(), 0))

    def info(self) -> StoreInfo:
        count, size = self._guarded(lambda: (len(self._opened()), int(self._opened().volume())), (0, 0))
        return StoreInfo(str(self.folder), count, size, self._size_limit)

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()


def default_folder() -> Path:
    """`OPSCOPE_CACHE_DIR`, or the platform's cache folder for opscope."""
    named = os.environ.get("OPSCOPE_CACHE_DIR")
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("opscope", appauthor=False))


def open_store(folder: Path | None = None) -> Store:
    """The disk store at `folder`, or at the default place."""
    return DiskStore((folder or default_folder()).expanduser().absolute())
