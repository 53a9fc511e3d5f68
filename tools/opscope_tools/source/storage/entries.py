"""A file's bytes to its entry in the index, and to the words in it. Whatever the bytes are, there is an entry: a file that
cannot be read as Python has one without rows that says why.
"""

from __future__ import annotations

import codecs
import os
import re
import string
from collections.abc import Iterator

from opscope_cache.trees import Signature, signature

from opscope_tools.source.python.file_rows import extract
from opscope_tools.source.python.rows import ClassRow, FileRows, FunctionRow, Row, encode
from opscope_tools.source.storage.database import Entry

#: bytes; the largest file of torch has 1.2 million, a generated table may have any number
SIZE_LIMIT = 8_000_000
_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_TAIL = re.compile(r"(?<!\w)([A-Za-z_]\w*+)\s*+(?:\[|\(|$)")
#: bytes of words; those beyond ASCII belong to them
IDENTIFIER = frozenset([*string.ascii_letters.encode(), *string.digits.encode(), ord("_"), *range(128, 256)])
_SPACED = bytes(byte if byte in IDENTIFIER else 32 for byte in range(256))


def readable(source: bytes) -> bytes:
    """`source` as UTF-8 with "\\n" line ends and without a byte order mark; one that declares another encoding is converted."""
    if b"\r" in source:  # Python ends a line there too, the parser only with "\n"
        source = source.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if source.startswith(codecs.BOM_UTF8):
        return source[3:]
    declared = next((found for line in source.split(b"\n", 2)[:2] if (found := _CODING.match(line))), None)
    if declared is None or declared[1].lower().replace(b"_", b"-") in {b"utf-8", b"utf8"}:
        return source
    try:
        return source.decode(declared[1].decode("ascii", "replace")).encode("utf-8", "replace")
    except (LookupError, UnicodeDecodeError):
        return source


def read_rows(source: bytes) -> FileRows:
    """The rows of a file; none, and the reason, where it cannot be read."""
    if len(source) > SIZE_LIMIT:
        return _unread(f"has {len(source):,} bytes; files beyond {SIZE_LIMIT:,} are not read")
    if b"\0" in source:
        return _unread("holds NUL bytes and is no Python source")
    try:
        return extract(source)
    except RecursionError:
        return _unread("nests expressions too deeply to be read")


def _unread(problem: str) -> FileRows:
    return FileRows((), None, None, True, problem)


def entry_of(path: str, taken: Signature, rows: FileRows) -> Entry:
    """The entry of a file with these rows."""
    found = list(classes(rows.rows))
    return Entry(
        path,
        taken,
        encode(rows),
        tuple((row.name, name, row.line) for name, row in found),
        tuple({(tail[1], row.name) for _, row in found for base in row.bases if (tail := _TAIL.search(base))}),
        rows.exports or (),
    )


def classes(rows: tuple[Row, ...], prefix: str = "") -> Iterator[tuple[str, ClassRow]]:
    """Every class with its name inside the module, nested ones and those inside functions included."""
    for row in rows:
        if isinstance(row, ClassRow):
            yield prefix + row.name, row
            yield from classes(row.body, f"{prefix}{row.name}.")
        elif isinstance(row, FunctionRow):
            yield from classes(row.classes, f"{prefix}{row.name}.<locals>.")


def words(source: bytes) -> set[bytes]:
    """The identifiers and numbers of a file's text, comments and strings included."""
    return set(source.translate(_SPACED).split())


def signature_now(path: str) -> Signature:
    """The signature of a file; raises `OSError`."""
    return signature(os.stat(path))  # noqa: PTH116 (asked thousands of times: a Path costs more than the question)
