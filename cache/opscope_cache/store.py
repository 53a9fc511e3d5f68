"""The store: text by key, on disk, bounded, safe under several processes, rebuilt when damaged.

`Store` is the small Protocol that the rest of opscope sees; `DiskStore` implements it over diskcache (SQLite), and
`MemoryStore` serves tests and read-only machines. Whoever keeps more than text reads it back with `recall`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import platformdirs
from opscope_schemas.errors import OutputError

from opscope_cache import private
from opscope_cache.databases import is_damage

#: bytes that the cache may take on disk before the least recently used entries go
SIZE_LIMIT = 1 << 30

#: seconds that a reader or writer waits for another process's transaction
_BUSY_SECONDS = 5

#: the folder's name counts up with what lies in it: rows of another form are left alone, never read
_NAME = "store-2"

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


def recall(store: Store, key: str, parse: Callable[[str], T]) -> T | None:
    """What `parse` makes of the text under `key`; None where there is none, or `parse` refuses it: then it was kept by
    another version or is damaged, and the caller makes it anew."""
    text = store.get(key)
    if text is None:
        return None
    try:
        return parse(text)
    except (ValueError, RecursionError):  # pydantic's and json's errors are ValueErrors
        return None


class MemoryStore:
    """A store that lives as long as the process."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._values: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        """The kept value; None where there is none."""
        return self._values.get(key)

    def put(self, key: str, value: str) -> None:
        """Keep a value for the life of the process, without a limit."""
        self._values[key] = value

    def keys(self) -> Iterator[str]:
        """The keys of this moment, in the order in which they were put."""
        return iter(list(self._values))

    def clear(self) -> int:
        """Forget everything; says how many values."""
        count = len(self._values)
        self._values.clear()
        return count

    def info(self) -> StoreInfo:
        """Its size is that of the values in bytes; the limit of 0 stands for none."""
        size = sum(len(value.encode()) for value in self._values.values())
        return StoreInfo("memory", len(self._values), size, 0)

    def close(self) -> None:
        """Nothing to release."""


class DiskStore:
    """diskcache behind `Store`, in a subfolder of its own that only the user may enter: nothing else in the folder is ever
    touched, and what an older opscope left there is not read.

    A store that is damaged, or that others could have written, is set aside (renamed) and an empty one takes its place. A
    database that is busy, full or read-only is not damaged: then reading finds nothing and writing keeps nothing, and the
    answer is computed.
    """

    def __init__(self, folder: Path, size_limit: int = SIZE_LIMIT) -> None:
        self.folder = folder
        self._place = folder / _NAME
        self._database = self._place / "cache.db"
        self._size_limit = size_limit
        self._cache: Any = None
        self._identity: tuple[int, int] | None = None
        try:
            self._make_place()
        except OSError as error:
            raise OutputError(
                f"The cache folder {folder} cannot be used: {error.strerror or error}.",
                next_step="Name another one with --cache-dir or OPSCOPE_CACHE_DIR.",
            ) from error
        self._guarded(self._opened, None)

    def _make_place(self) -> None:
        try:
            private.make_folder(self._place)
        except private.NotOursError:
            self._set_aside()
            private.make_folder(self._place)

    def _opened(self) -> Any:
        """The cache; opened anew where its folder was removed or replaced."""
        if self._cache is not None and private.identity(self._database) != self._identity:
            self._forget()
        if self._cache is None:
            self._make_place()
            with private.locked(self.folder):
                try:
                    self._open()
                except Exception as error:
                    if not is_damage(error):
                        raise
                    self._set_aside()
                    private.make_folder(self._place)
                    self._open()
        return self._cache

    def _open(self) -> None:
        from opscope_cache import textcache  # here: 30 ms that commands without a cache need not pay

        private.make_database(self._database)
        if self._database.stat().st_size:
            with contextlib.closing(
                sqlite3.connect(self._database, timeout=_BUSY_SECONDS, isolation_level=None)
            ) as probe:
                # raises where another process does not let go within our patience: diskcache would try for a minute
                probe.execute("BEGIN IMMEDIATE")
                textcache.check(probe, time.time())
                probe.execute("COMMIT")
        self._cache = textcache.open_cache(self._place, self._size_limit, _BUSY_SECONDS)
        self._identity = private.identity(self._database)

    def _guarded(self, operation: Callable[[], T], default: T) -> T:
        """Run `operation`; a cache may forget, so whatever is wrong with it the answer is `default`."""
        from diskcache import Timeout

        try:
            return operation()
        except Timeout:
            return default
        except Exception as error:  # diskcache unpacks what it finds, so a row of another's may raise anything
            if is_damage(error):
                self._discard()
            return default

    def _discard(self) -> None:
        """Set the damaged store aside, unless another process was quicker: then a new one lies there already."""
        with contextlib.suppress(OSError), private.locked(self.folder):
            if self._cache is None or private.identity(self._database) == self._identity:
                self._set_aside()
        self._forget()

    def _set_aside(self) -> None:
        """Rename the store, and remove what was set aside before."""
        self._forget()
        for old in self.folder.glob(f"{_NAME}.damaged-*"):
            private.remove(old)
        with contextlib.suppress(FileNotFoundError):
            self._place.rename(self.folder / f"{_NAME}.damaged-{os.getpid()}-{time.time_ns()}")

    def _forget(self) -> None:
        with contextlib.suppress(Exception):
            self._cache.close()
        self._cache = None

    def get(self, key: str) -> str | None:
        """The kept value; None where there is none, or the disk does not give it."""
        return self._guarded(lambda: self._read(key), None)

    def _read(self, key: str) -> str | None:
        """The text under `key`; a row that is not what was written is dropped."""
        from opscope_cache.textcache import unsealed

        cache = self._opened()
        try:
            found: str | None = cache.get(key)
        except sqlite3.OperationalError as error:
            if not is_damage(error):
                raise
            found = ""  # its text is no UTF-8
        if found is None:
            return None
        text = unsealed(key, found)
        if text is None:
            cache.delete(key)
        return text

    def put(self, key: str, value: str) -> None:
        """Keep a value; where the disk does not take it, it is only not kept."""
        self._guarded(lambda: self._opened().set(key, value), None)

    def keys(self) -> Iterator[str]:
        """The keys of this moment; none where the disk does not give them."""
        nothing: list[str] = []
        return iter(self._guarded(lambda: [key for key in self._opened() if key], nothing))

    def clear(self) -> int:
        """Delete everything; says how many values."""
        return self._guarded(lambda: int(self._opened().clear()), 0)

    def info(self) -> StoreInfo:
        """Sizes in bytes, of the whole folder; 0 where the disk does not tell."""
        count, size = self._guarded(lambda: (len(self._opened()), int(self._opened().volume())), (0, 0))
        return StoreInfo(str(self.folder), count, size, self._size_limit)

    def close(self) -> None:
        """Close the database; the next question opens it again."""
        self._forget()


def default_folder() -> Path:
    """`OPSCOPE_CACHE_DIR`, or the platform's cache folder for opscope."""
    named = os.environ.get("OPSCOPE_CACHE_DIR")
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("opscope", appauthor=False))


def open_store(folder: Path | None = None) -> Store:
    """The disk store at `folder`, or at the default place."""
    return DiskStore((folder or default_folder()).expanduser().absolute())
