"""The index on disk: one SQLite file for each repository, a blob of rows for each of its files, and the tables by which a
name is found without opening the others: classes, base names, exports, words.

A file's entry holds under its signature only, so an entry may be old but never wrongly trusted. Words come as one
segment, written by a build; files that changed since are not in it and are searched as text. Several processes may share
the file: readers never wait, a writer that finds it busy keeps nothing. Damage makes an empty one of it, and each blob stands
behind a digest of itself and of what it belongs to.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
import weakref
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from opscope_cache import private
from opscope_cache.databases import is_damage
from opscope_cache.trees import Signature

from opscope_tools.source.storage import sealed_files as sealed

BUCKETS = 4096
#: seconds that a single entry waits for another process's transaction, and that a build waits
_BUSY, _BUSY_BUILD = 0.05, 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files(
    id INTEGER PRIMARY KEY, path TEXT UNIQUE, signature BLOB, rows BLOB, errors BLOB);
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
CREATE TABLE IF NOT EXISTS held(
    file TEXT, path TEXT, line INTEGER, question TEXT, answer BLOB, PRIMARY KEY(file, path, line, question));
CREATE TABLE IF NOT EXISTS segment(file INTEGER PRIMARY KEY, path TEXT, signature BLOB);
"""
# SQLite keeps whatever it is given, so each question says what type its answers are of
_PLACES = """
SELECT f.path, c.path, c.line FROM classes c JOIN files f ON f.id=c.file
WHERE c.name=? AND typeof(f.path)='text' AND typeof(c.path)='text' AND typeof(c.line)='integer' ORDER BY 1, 3"""
_WITH_BASE = """
SELECT b.class, f.path FROM bases b JOIN files f ON f.id=b.file
WHERE b.name=? AND typeof(b.class)='text' AND typeof(f.path)='text' ORDER BY 2, 1"""
_EXPORTING = """
SELECT f.path FROM exports e JOIN files f ON f.id=e.file WHERE e.name=? AND typeof(f.path)='text' ORDER BY 1"""
_NAMED = ("classes", "bases", "exports")
#: writes of single entries after which they are brought into the file
_MANY = 500
#: seconds between two looks at whether the file is still the one that was opened
_LOOK = 1.0
_WRITER = msgspec.msgpack.Encoder()
_BUCKET = msgspec.msgpack.Decoder(dict[bytes, bytes])

T = TypeVar("T")


class Entry(NamedTuple):
    """What the index keeps of one file. `classes`: (name, path inside the module, line); `bases`: (last name of a base
    expression, class); `exports`: the names of `__all__`; `rows` as rows.py encodes them."""

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
        self._identity: tuple[int, int] | None = None
        self._looked = time.monotonic()
        self._writes = 0
        #: in memory, the entries that could not be written: the file is busy, read-only, or has no room
        self._unwritten: Database | None = None
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        connection, place = None, self.place
        if place is not None:
            with contextlib.suppress(OSError, sqlite3.Error, private.NotOursError):
                connection = sealed.connect(place, _SCHEMA, _BUSY)
            self._identity = private.identity(place)
        if connection is None:
            connection, place = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False), None
            connection.executescript(_SCHEMA)
        self._end = weakref.finalize(self, sealed.close, connection, place)
        return connection

    def close(self) -> None:
        """Close the file and give up its lock."""
        with self._lock:
            self._end()

    def _reopen(self) -> None:
        self._end()
        self._signatures = self._segment = None
        self._version = -1
        self._connection = self._open()

    def _guarded(self, operation: Callable[[], T], default: T) -> T:
        """Run `operation`; an index may forget, so whatever is wrong with the file the answer is `default`."""
        with self._lock:
            try:
                return operation()
            except sqlite3.Error as error:
                if is_damage(error):
                    if self.place is not None and private.identity(self.place) == self._identity:
                        sealed.remove(self.place)
                    self._reopen()
                return default

    # ---- what is there

    def signatures(self) -> Mapping[str, Signature]:
        """Path -> the signature that its entry holds for; what other processes wrote is seen."""
        self._guarded(self._refresh, None)
        if self._signatures is None:
            query = "SELECT path, signature FROM files WHERE typeof(path)='text' AND typeof(signature)='blob'"
            self._signatures = dict(self._all(query, ()))
            if self._unwritten is not None:
                self._signatures.update(self._unwritten.signatures())
        return self._signatures

    def segment(self) -> Mapping[str, tuple[int, Signature]]:
        """Path -> its number in the words' segment and the signature that its words hold for."""
        self._guarded(self._refresh, None)
        if self._segment is None:
            rows = self._all("SELECT path, file, signature FROM segment WHERE typeof(path)='text'", ())
            self._segment = {path: (number, signature) for path, number, signature in rows}
        return self._segment

    def _refresh(self) -> None:
        """Forget what was read before another process wrote; open the file anew where it was removed or replaced."""
        if self.place is not None and time.monotonic() - self._looked > _LOOK:  # a lookup takes 20 µs, looking takes 2
            self._looked = time.monotonic()
            if private.identity(self.place) != self._identity:
                self._reopen()
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._version = version
            self._signatures = self._segment = None

    def rows(self, path: str, signature: Signature) -> bytes | None:
        """The kept rows of a file as they were encoded; None where the signature is another or the entry is damaged."""
        return self._blob("rows", path, signature)

    def errors(self, path: str, signature: Signature) -> bytes | None:
        """The kept lines of a file's syntax errors, encoded; None as of `rows`."""
        return self._blob("errors", path, signature)

    def _blob(self, column: str, path: str, signature: Signature) -> bytes | None:
        query = f"SELECT {column} FROM files WHERE path=? AND signature=?"
        rows = self._all(query, (path, signature))
        if not rows and self._unwritten is not None:
            return self._unwritten._blob(column, path, signature)
        return sealed.unstamped(rows[0][0], path, signature, column) if rows else None

    def held(self, file: str, path: str, line: int, question: str) -> bytes | None:
        """What is kept of the class at that place; whether it holds still is for the caller to find out."""
        query = "SELECT answer FROM held WHERE file=? AND path=? AND line=? AND question=?"
        rows = self._all(query, (file, path, line, question))
        return sealed.unstamped(rows[0][0], file, path, str(line), question) if rows else None

    def places(self, name: str) -> list[Place]:
        """Where a class of that name is defined, as of the entries."""
        found = [Place(*row) for row in self._all(_PLACES, (name,))]
        return self._with_unwritten(found, Database.places, name, lambda place: place.file)

    def with_base(self, name: str) -> list[tuple[str, str]]:
        """(class, file) of the classes with a base expression that ends in `name`."""
        found: list[tuple[str, str]] = self._all(_WITH_BASE, (name,))
        return self._with_unwritten(found, Database.with_base, name, lambda row: row[1])

    def exporting(self, name: str) -> list[str]:
        """Files whose `__all__` holds `name`."""
        found = [row[0] for row in self._all(_EXPORTING, (name,))]
        return self._with_unwritten(found, Database.exporting, name, str)

    def class_names(self) -> list[str]:
        """Names of all classes, without repetition, also of what is not written yet."""
        found = [row[0] for row in self._all("SELECT DISTINCT name FROM classes WHERE typeof(name)='text'", ())]
        return found if self._unwritten is None else [*found, *self._unwritten.class_names()]

    def _with_unwritten(
        self, found: list[T], ask: Callable[[Database, str], list[T]], name: str, file_of: Callable[[T], str]
    ) -> list[T]:
        """What was found in the file, those of its rows left out that an entry in memory has overtaken; by file."""
        if self._unwritten is None:
            return found
        newer = self._unwritten.signatures()
        return sorted([*(row for row in found if file_of(row) not in newer), *ask(self._unwritten, name)], key=file_of)

    def mentioning(self, word: str) -> set[int]:
        """Numbers of the segment's files that hold the identifier."""
        raw = word.encode()
        number = bucket_of(raw)
        rows = self._all("SELECT files FROM words WHERE bucket=?", (number,))
        if not rows:
            return set()
        try:
            bucket = _BUCKET.decode(sealed.unstamped(rows[0][0], "words", str(number)) or b"")
            return set(array("I", bucket.get(raw, b"")))
        except (ValueError, MemoryError):  # msgspec's errors are ValueErrors
            self._guarded(self._drop_words, None)
            return set()

    def _drop_words(self) -> None:
        self._connection.executescript("DELETE FROM segment; DELETE FROM words;")
        self._segment = None

    def _all(self, query: str, values: tuple[object, ...]) -> list[Any]:
        nothing: list[Any] = []
        return self._guarded(lambda: self._connection.execute(query, values).fetchall(), nothing)

    # ---- writing

    def put(self, entries: Sequence[Entry]) -> None:
        """Keep the entries, in one transaction; in memory where the file is busy or cannot be written."""

        def write() -> bool:
            self._refresh()
            with self._transaction():
                for entry in entries:
                    self._write(entry)
            self._count_write()
            return True

        with self._lock:
            if self._guarded(write, False):
                if self._unwritten is not None:
                    self._unwritten.forget(entry.path for entry in entries)
            elif self.place is not None:
                self._unwritten = self._unwritten or Database(None)
                self._unwritten.put(entries)
            if self._signatures is not None:
                self._signatures.update((entry.path, entry.signature) for entry in entries)

    def put_errors(self, path: str, signature: Signature, lines: bytes) -> None:
        """Keep the encoded lines of a file's syntax errors; nothing happens where its rows are not kept."""
        query = "UPDATE files SET errors=? WHERE path=? AND signature=?"
        kept = sealed.stamped(lines, path, signature, "errors")
        self._guarded(lambda: self._connection.execute(query, (kept, path, signature)), None)

    def keep_held(self, file: str, path: str, line: int, question: str, answer: bytes) -> None:
        """Keep what an object of the class at that place holds; what is kept of places where no class stands any more
        goes with the file's next entry."""
        kept = sealed.stamped(answer, file, path, str(line), question)
        query = "REPLACE INTO held VALUES(?, ?, ?, ?, ?)"
        self._guarded(lambda: self._connection.execute(query, (file, path, line, question, kept)), None)

    def forget(self, paths: Iterable[str]) -> None:
        """Drop the entries of files that are gone."""
        gone = list(paths)
        if self._unwritten is not None:
            self._unwritten.forget(gone)

        def write() -> None:
            with self._transaction():
                for path in gone:
                    row = self._connection.execute("SELECT id FROM files WHERE path=?", (path,)).fetchone()
                    if row is not None:
                        self._clear(row[0])
                        self._connection.execute("DELETE FROM held WHERE file=?", (path,))
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
                run.executemany(
                    "INSERT INTO words VALUES(?, ?)",
                    ((n, sealed.stamped(_WRITER.encode(bucket), "words", str(n))) for n, bucket in enumerate(buckets)),
                )
            self._segment = None

        self._guarded(write, None)

    def _count_write(self) -> None:
        """A process that runs for days writes an entry for each file that changes: bring them into the file at times."""
        self._writes += 1
        if self._writes % _MANY == 0:
            self.settle()

    def settle(self) -> None:
        """Bring what was written into the file, out of the log beside it."""
        if self.place is not None:
            with self._lock:
                sealed.checkpoint(self._connection, self.place)

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
        rows = sealed.stamped(entry.rows, entry.path, entry.signature, "rows")
        row = run.execute("SELECT id FROM files WHERE path=?", (entry.path,)).fetchone()
        if row is not None:
            number = row[0]
            self._clear(number)
            run.execute("DELETE FROM held WHERE file=?", (entry.path,))
            run.execute(
                "UPDATE files SET signature=?, rows=?, errors=NULL WHERE id=?",
                (entry.signature, rows, number),
            )
        else:
            number = run.execute(
                "INSERT INTO files(path, signature, rows) VALUES(?, ?, ?)",
                (entry.path, entry.signature, rows),
            ).lastrowid
        run.executemany("INSERT INTO classes VALUES(?, ?, ?, ?)", ((n, number, p, at) for n, p, at in entry.classes))
        run.executemany("INSERT INTO bases VALUES(?, ?, ?)", ((base, number, name) for base, name in entry.bases))
        run.executemany("INSERT INTO exports VALUES(?, ?)", ((name, number) for name in entry.exports))

    def _clear(self, number: int) -> None:
        for table in _NAMED:
            self._connection.execute(f"DELETE FROM {table} WHERE file=?", (number,))


def bucket_of(word: bytes) -> int:
    """The row of table `words` that a word's files are in."""
    return zlib.crc32(word) % BUCKETS
