"""What one file says, as plain rows: classes, functions, imports, assignments, in source order.

Rows hold text and lines only, never a resolved name, so that they depend on the file's bytes alone and may be kept on
disk: msgspec writes them as MessagePack and reads them back by their types, so bytes that are anything else are refused.
`guard` is the condition a row stands under; `fallback` marks the branch that serves as a substitute (`except
ImportError`, the `else` of `if is_x_available()`). `FileRows` comes from reading a file without its function bodies.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec

from opscope_tools.source.python.parse import parameters


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What can be written to disk: its fields in order, checked by their types when they are read. Rows form no cycles."""


class Guard(Kept, frozen=True):
    """Where a statement stands; `block` is the line of the `try` whose clause it is a statement of, else 0."""

    condition: str = ""
    fallback: bool = False
    type_checking: bool = False
    block: int = 0


class ParameterRow(NamedTuple):
    """One parameter; `name` carries its stars, `/` and `*` stand for themselves."""

    name: str
    annotation: str = ""
    default: str = ""


class ImportRow(Kept, frozen=True, tag=2):
    """`from module import member as name`; `name` is `*` for a star import, `member` empty for `import module`."""

    name: str
    module: str
    member: str
    line: int
    guard: Guard


class AssignRow(Kept, frozen=True, tag=3):
    """`name = value`; `entries` holds the pairs of a dict literal or of a call on a list of pairs. With neither value,
    entries nor annotation: `del name`."""

    name: str
    value: str
    line: int
    guard: Guard
    annotation: str = ""
    entries: tuple[tuple[str, str], ...] = ()


class FunctionRow(Kept, frozen=True, tag=1):
    """A `def`; `stub` where all it does is raise NotImplementedError; `classes` are those defined inside it, and
    the functions inside it that hold some; `parameter_text` is the parenthesised list as written."""

    name: str
    line: int
    end_line: int
    decorators: tuple[str, ...]
    parameter_text: str
    returns: str
    stub: bool
    guard: Guard
    classes: tuple[ClassRow | FunctionRow, ...] = ()

    @property
    def parameters(self) -> tuple[ParameterRow, ...]:
        """Name, annotation and default of each, in order; starred names keep their stars."""
        return _parameters(self.parameter_text)


class ClassRow(Kept, frozen=True, tag=0):
    """A `class`; `first_line` is that of its first decorator."""

    name: str
    line: int
    end_line: int
    first_line: int
    decorators: tuple[str, ...]
    bases: tuple[str, ...]
    body: tuple[Row, ...]
    guard: Guard


Row = ClassRow | FunctionRow | ImportRow | AssignRow


class FileRows(Kept, frozen=True):
    """A whole file. `exports` is `__all__` (None where there is none): names, and for parts that are not spelt out
    `*module` (its `__all__`), `$name` (a variable) and `?` (computed); `lazy` the folders, relative to the file's
    own, whose exports a lazily filled package serves (None where the package is not lazy); `problem` says why a file
    was not read at all."""

    rows: tuple[Row, ...]
    exports: tuple[str, ...] | None
    lazy: tuple[str, ...] | None
    utf8: bool = True
    problem: str = ""


@lru_cache(maxsize=4096)
def _parameters(text: str) -> tuple[ParameterRow, ...]:
    return tuple(ParameterRow(*parts) for parts in parameters(text))


# ---- on disk

T = TypeVar("T")
_WRITER = msgspec.msgpack.Encoder()
_ROWS = msgspec.msgpack.Decoder(FileRows)
_LINES = msgspec.msgpack.Decoder(tuple[int, ...])


def encode(rows: FileRows | tuple[int, ...]) -> bytes:
    """Rows, or numbers of lines, as bytes that `decode` or `decode_lines` reads."""
    return _WRITER.encode(rows)


def decode(blob: bytes) -> FileRows | None:
    """The rows that `encode` wrote; None where the bytes are anything else."""
    return _read(_ROWS, blob)


def decode_lines(blob: bytes) -> tuple[int, ...] | None:
    """The numbers of lines that `encode` wrote; None where the bytes are anything else."""
    return _read(_LINES, blob)


def _read(reader: msgspec.msgpack.Decoder[T], blob: bytes) -> T | None:
    try:
        return reader.decode(blob)
    except (
        ValueError,
        RecursionError,
        MemoryError,
    ):  # msgspec's errors are ValueErrors; the others are sizes beyond reason
        return None
