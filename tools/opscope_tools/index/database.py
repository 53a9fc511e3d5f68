"""The index on disk: one SQLite file for each repository, a blob of rows for each of its files, and the tables by which a
name is found without opening the others: classes, base names, exports, words.

A file's entry holds under its signature only, so an entry may be old but never wrongly trusted. Words come as one
segment, written by a build; files that changed since are not in it and are searched as text. Several processes may share
the file: readers never wait, a writer that finds it busy keeps nothing. Damage makes an empty one of it.
"""

from __future__ import annotations

import contextlib
import marshal
import sqlite3
import threading
import weakref
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from opscope_cache.trees import Signature

from opscope_tools.index.places import remove, touch

BUCKETS = 4096
#: seconds that a single entry waits for another process's transaction, and that a build waits
_BUSY, _BUSY_BUILD = 0.05, 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files(
    id INTEGER PRIMARY KEY, path TEXT UNIQUE, signature BLOB, rows BLOB, details BLOB);
CREATE INDEX IF NOT EXISTS signatures ON files(path, signature);
CREATE TABLE IF NOT EXISTS classes(name TEXT, file INTEGER, path TEXT, line INTEGER);
CREATE TABLE IF NOT EXISTS bases(name TEXT, file INTEGER, class TEXT);
CREATE TABLE IF NOT EXISTS exports(name TEXT, file INTEGER);
CREATE INDEX IF NOT EXISTS classes_by_name ON classes(name);
CREATE INDEX IF NOT EXISTS classes_by_file ON classes(file);
CREATE INDEX IF NOT EXISTS bases_by_name ON bases(name);
CREATE INDEX IF NOT EXISTS bases_by_file ON bases(file);
CREATE INDEX IF NOT EXISTS exports_by_name ON exports(name);
CREATE INDEX IF NOT EXISTS exports_by_file ON exports(file);
CREATE TABLE IF NOT EXISTS words(bucket INTEGER PRIMARY KEY, files BLOB);
CREATE TABLE IF NOT EXISTS segment(file INTEGER PRIMARY KEY, path TEXT, signature BLOB);
"""
_NAMED = ("classes", "bases", "exports")

T = TypeVar("T")


class Entry(NamedTuple):
    """What the index keeps of one file. `classes`: (name, path inside the module, line); `bases`: (last name of a base
    expression, class); `exports`: the names of `__all__`; `rows` and `details` as rows.py encodes them."""

    path: str
    signature: Signature
    rows: bytes
    classes: tuple[tuple[str, str, int], ...]
    bases: tuple[tuple[str, str], ...]
    exports: tuple[str, ...]


class Place(NamedTuple):
    """A class definition: its file, its name inside the module, the line of its `class` keyword."""

    file: str
    path: str
    line: int


class Database:
    """The index of one repository at `place`, or in memory only where `place` is None or cannot be written."""

    def __init__(self, place: Path | None) -> None:
        self.place = place
        self._lock = threading.RLock()
        self._version = -1
        self._signatures: dict[str, Signature] | None = None
        self._segment: dict[str, tuple[int, Signature]] | None = None
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        if self.place is not None:
            for _ in range(2):
                try:
                    self.place.parent.mkdir(parents=True, exist_ok=True)
                    connection = self._connected(str(self.place))
                    touch(self.place)
                    return connection
                except sqlite3.OperationalError:
                    break  # busy, full or read-only: not damaged
                except sqlite3.DatabaseError:
                    remove(self.place)
                except OSError:
                    break
        return self._connected(":memory:")

    def _connected(self, name: str) -> sqlite3.Connection:
        connection = sqlite3.connect(name, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        try:
            # a lost transaction costs a parse, so nothing is ever waited for
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=OFF")
            connection.executescript(_SCHEMA)
        except sqlite3.Error:
            connection.close()
            raise
        weakref.finalize(self, connection.close)
        return connection

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _guarded(self, operation: Callable[[], T], default: T) -> T:
        """Run `operation`; an index may forget, so whatever is wrong with the file the answer is `default`."""
        with self._lock:
            try:
                return operation()
            except sqlite3.OperationalError:
                return default
            except sqlite3.DatabaseError:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
                if self.place is not None:
                    remove(self.place)
                self._signatures = self._segment = None
                self._connection = self._open()
                return default

    # ---- what is there

    def signatures(self) -> Mapping[str, Signature]:
        """Path -> the signature that its entry holds for; what other processes wrote is seen."""
        self._guarded(self._refresh, None)
        if self._signatures is None:
            self._signatures = dict(self._all("SELECT path, signature FROM files", ()))
        return self._signatures

    def segment(self) -> Mapping[str, tuple[int, Signature]]:
        """Path -> its number in the words' segment and the signature that its words hold for."""
        self._guarded(self._refresh, None)
        if self._segment is None:
            rows = self._all("SELECT path, file, signature FROM segment", ())
            self._segment = {path: (number, signature) for path, number, signature in rows}
        return self._segment

    def _refresh(self) -> None:
        """Forget what was read before another process wrote."""
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._version = version
            self._signatures = self._segment = None

    def rows(self, path: str, signature: Signature) -> bytes | None:
        return self._blob("rows", path, signature)

    def details(self, path: str, signature: Signature) -> bytes | None:
        return self._blob("details", path, signature)

    def _blob(self, column: str, path: str, signature: Signature) -> bytes | None:
        query = f"SELECT {column} FROM files WHERE path=? AND signature=?"
        found = self._guarded(lambda: self._connection.execute(query, (path, signature)).fetchone(), None)
        return found[0] if found is not None and isinstance(found[0], bytes) else None

    def places(self, name: str) -> list[Place]:
        """Where a class of that name is defined, as of the entries."""
        query = "SELECT f.path, c.path, c.line FROM classes c JOIN files f ON f.id=c.file WHERE c.name=? ORDER BY 1, 3"
        return [Place(*row) for row in self._all(query, (name,))]

    def with_base(self, name: str) -> list[tuple[str, str]]:
        """(class, file) of the classes with a base expression that ends in `name`."""
        query = "SELECT b.class, f.path FROM bases b JOIN files f ON f.id=b.file WHERE b.name=? ORDER BY 2, 1"
        return [(row[0], row[1]) for row in self._all(query, (name,))]

    def exporting(self, name: str) -> list[str]:
        """Files whose `__all__` holds `name`."""
        query = "SELECT f.path FROM exports e JOIN files f ON f.id=e.file WHERE e.name=? ORDER BY 1"
        return [row[0] for row in self._all(query, (name,))]

    def class_names(self) -> list[str]:
        return [row[0] for row in self._all("SELECT DISTINCT name FROM classes", ())]

    def mentioning(self, word: str) -> set[int]:
        """Numbers of the segment's files that hold the identifier."""
        raw = word.encode()
        row = self._guarded(
            lambda: self._connection.execute("SELECT files FROM words WHERE bucket=?", (bucket_of(raw),)).fetchone(),
            None,
        )
        if row is None:
            return set()
        blob = row[0] if isinstance(row[0], bytes) else b""
        if zlib.crc32(blob[4:]).to_bytes(4, "big") != blob[:4]:
            self._guarded(self._drop_words, None)
            return set()
        numbers = array("I")
        numbers.frombytes(marshal.loads(blob[4:]).get(raw, b""))
        return set(numbers)

    def _drop_words(self) -> None:
        self._connection.executescript("DELETE FROM segment; DELETE FROM words;")
        self._segment = None

    def _all(self, query: str, values: tuple[object, ...]) -> list[Any]:
        nothing: list[Any] = []
        return self._guarded(lambda: self._connection.execute(query, values).fetchall(), nothing)

    # ---- writing

    def put(self, entries: Sequence[Entry]) -> bool:
        """Keep the entries, in one transaction; False where the database is busy or cannot be written."""

        def write() -> bool:
            self._refresh()
            with self._transaction():
                for entry in entries:
                    self._write(entry)
            if self._signatures is not None:
                self._signatures.update((entry.path, entry.signature) for entry in entries)
            return True

        return self._guarded(write, False)

    def put_details(self, path: str, signature: Signature, details: bytes) -> None:
        query = "UPDATE files SET details=? WHERE path=? AND signature=?"
        self._guarded(lambda: self._connection.execute(query, (details, path, signature)), None)

    def forget(self, paths: Iterable[str]) -> None:
        """Drop the entries of files that are gone."""
        gone = list(paths)

        def write() -> None:
            with self._transaction():
                for path in gone:
                    row = self._connection.execute("SELECT id FROM files WHERE path=?", (path,)).fetchone()
                    if row is not None:
                        self._clear(row[0])
                        self._connection.execute("DELETE FROM files WHERE id=?", row)
            self._signatures = None

        self._guarded(write, None)

    def put_words(self, files: Mapping[str, tuple[int, Signature]], words: Mapping[bytes, bytes]) -> None:
        """Replace the segment: path -> (number, signature), and word -> numbers as an array of 32-bit integers."""
        buckets: list[dict[bytes, bytes]] = [{} for _ in range(BUCKETS)]
        for word, numbers in words.items():
            buckets[bucket_of(word)][word] = numbers

        def write() -> None:
            with self._transaction():
                run = self._connection
                run.execute("DELETE FROM segment")
                run.execute("DELETE FROM words")
                run.executemany(
                    "INSERT INTO segment VALUES(?, ?, ?)",
                    ((number, path, signature) for path, (number, signature) in files.items()),
                )
                run.executemany("INSERT INTO words VALUES(?, ?)", enumerate(map(_sealed, buckets)))
            self._segment = None

        self._guarded(write, None)

    def wait_longer(self) -> None:
        """Let writes wait for other processes, as a build may."""
        self._connection.execute(f"PRAGMA busy_timeout={int(_BUSY_BUILD * 1000)}")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _write(self, entry: Entry) -> None:
        run = self._connection
        row = run.execute("SELECT id FROM files WHERE path=?", (entry.path,)).fetchone()
        if row is not None:
            number = row[0]
            self._clear(number)
            run.execute(
                "UPDATE files SET signature=?, rows=?, details=NULL WHERE id=?",
                (entry.signature, entry.rows, number),
            )
        else:
            number = run.execute(
                "INSERT INTO files(path, signature, rows) VALUES(?, ?, ?)",
                (entry.path, entry.signature, entry.rows),
            ).lastrowid
        run.executemany("INSERT INTO classes VALUES(?, ?, ?, ?)", ((n, number, p, at) for n, p, at in entry.classes))
        run.executemany("INSERT INTO bases VALUES(?, ?, ?)", ((base, number, name) for base, name in entry.bases))
        run.executemany("INSERT INTO exports VALUES(?, ?)", ((name, number) for name in entry.exports))

    def _clear(self, number: int) -> None:
        for table in _NAMED:
            self._connection.execute(f"DELETE FROM {table} WHERE file=?", (number,))


def bucket_of(word: bytes) -> int:
    return zlib.crc32(word) % BUCKETS


def _sealed(bucket: dict[bytes, bytes]) -> bytes:
    blob = marshal.dumps(bucket)
    return zlib.crc32(blob).to_bytes(4, "big") + blob
