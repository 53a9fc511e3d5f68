"""What one file says, as plain rows: classes, functions, imports, assignments, in source order.

Rows hold text and lines only, never a resolved name, so that they depend on the file's bytes alone and may be kept on
disk. `guard` is the condition a row stands under; `fallback` marks the branch that serves as a substitute (`except
ImportError`, the `else` of `if is_x_available()`). `FileRows` comes from reading a file without its function bodies;
`FileDetails`, which needs them, is read when a question asks for it.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from opscope_tools.index.parse import parameters


class Guard(NamedTuple):
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


class ImportRow(NamedTuple):
    """`from module import member as name`; `name` is `*` for a star import, `member` empty for `import module`."""

    name: str
    module: str
    member: str
    line: int
    guard: Guard


class AssignRow(NamedTuple):
    """`name = value`; `entries` holds the pairs of a dict literal or of a call on a list of pairs. With neither value,
    entries nor annotation: `del name`."""

    name: str
    value: str
    line: int
    guard: Guard
    annotation: str = ""
    entries: tuple[tuple[str, str], ...] = ()


class AttributeRow(NamedTuple):
    """`self.attribute = ...` in the construction of an object, containers flattened (`layers`, `layers.*`).

    `how`: `call` (callee is the text called), `dispatch` (a table indexed, then called or not), `none` (set to None or
    deleted), `other` (anything else: callee is the expression).
    """

    attribute: str
    how: str
    callee: str
    arguments: str
    line: int
    condition: str = ""
    repeat: str = ""
    inner: str = ""


class FunctionRow(NamedTuple):
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
        return _parameters(self.parameter_text)


class ClassRow(NamedTuple):
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


class FileRows(NamedTuple):
    """A whole file. `exports` is `__all__` (None where there is none): names, and for parts that are not spelt out
    `*module` (its `__all__`), `$name` (a variable) and `?` (computed); `lazy` the folders, relative to the file's
    own, whose exports a lazily filled package serves (None where the package is not lazy); `problem` says why a file
    was not read at all."""

    rows: tuple[Row, ...]
    exports: tuple[str, ...] | None
    lazy: tuple[str, ...] | None
    utf8: bool = True
    problem: str = ""


class FileDetails(NamedTuple):
    """What reading the function bodies adds, by the line of the `class` keyword: the attribute rows of each class, and
    the constructors that its `__init__` runs (`super`, `super:Name`, `Name`); the lines that do not parse, ten at most.
    """

    attributes: Mapping[int, tuple[AttributeRow, ...]]
    init_calls: Mapping[int, tuple[str, ...]]
    syntax_errors: tuple[int, ...] = ()


@lru_cache(maxsize=4096)
def _parameters(text: str) -> tuple[ParameterRow, ...]:
    return tuple(ParameterRow(*parts) for parts in parameters(text))


# ---- on disk: marshal behind a checksum, since marshal trusts what it reads -----------------------------------------

_NO_GUARD = Guard()
_KINDS: tuple[Any, ...] = (ClassRow, FunctionRow, ImportRow, AssignRow)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_GUARD_AT = tuple(kind._fields.index("guard") for kind in _KINDS)
#: the field of each kind that holds rows itself
_ROWS_AT = (ClassRow._fields.index("body"), FunctionRow._fields.index("classes"), None, None)


def encode(rows: FileRows) -> bytes:
    """`rows` as bytes that `decode` reads."""
    return _sealed((tuple(map(_plain, rows.rows)), *rows[1:]))


def decode(blob: bytes) -> FileRows | None:
    """The rows that `encode` wrote; None where the bytes are damaged."""
    value = _unsealed(blob)
    return None if value is None else FileRows(tuple(map(_row, value[0])), *value[1:])


def encode_details(details: FileDetails) -> bytes:
    attributes = {line: tuple(map(tuple, rows)) for line, rows in details.attributes.items()}
    return _sealed((attributes, dict(details.init_calls), details.syntax_errors))


def decode_details(blob: bytes) -> FileDetails | None:
    """The details that `encode_details` wrote; None where the bytes are damaged."""
    value = _unsealed(blob)
    if value is None:
        return None
    attributes = {line: tuple(map(AttributeRow._make, rows)) for line, rows in value[0].items()}
    return FileDetails(attributes, *value[1:])


def _sealed(value: Any) -> bytes:
    blob = marshal.dumps(value)
    return zlib.crc32(blob).to_bytes(4, "big") + blob


def _unsealed(blob: bytes) -> Any:
    if zlib.crc32(blob[4:]).to_bytes(4, "big") != blob[:4]:
        return None
    return marshal.loads(blob[4:])


def _plain(row: Row) -> tuple[Any, ...]:
    kind = _NUMBERS[type(row)]
    values: list[Any] = list(row)
    guard_at, rows_at = _GUARD_AT[kind], _ROWS_AT[kind]
    values[guard_at] = None if values[guard_at] == _NO_GUARD else tuple(values[guard_at])
    if rows_at is not None:
        values[rows_at] = tuple(map(_plain, values[rows_at]))
    return (kind, *values)


def _row(value: tuple[Any, ...]) -> Any:
    kind, *values = value
    guard_at, rows_at = _GUARD_AT[kind], _ROWS_AT[kind]
    guard = values[guard_at]
    values[guard_at] = _NO_GUARD if guard is None else Guard(*guard)
    if rows_at is not None:
        values[rows_at] = tuple(map(_row, values[rows_at]))
    return _KINDS[kind]._make(values)
