"""What one file says, as plain rows: classes, functions, imports, assignments, in source order.

Rows hold text and lines only, never a resolved name, so that they depend on the file's bytes alone and may be kept on
disk under their digest. `guard` is the condition a row stands under; `fallback` marks the branch that serves as a
substitute (`except ImportError`, the `else` of `if is_x_available()`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Guard:
    """Where a statement stands."""

    condition: str = ""
    fallback: bool = False
    type_checking: bool = False


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """One parameter; `name` carries its stars, `/` and `*` stand for themselves."""

    name: str
    annotation: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True)
class ImportRow:
    """`from module import member as name`; `name` is `*` for a star import, `member` empty for `import module`."""

    name: str
    module: str
    member: str
    line: int
    guard: Guard


@dataclass(frozen=True, slots=True)
class AssignRow:
    """`name = value`; `entries` holds the pairs of a dict literal or of a call on a list of pairs."""

    name: str
    value: str
    line: int
    guard: Guard
    annotation: str = ""
    entries: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AttributeRow:
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


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A `def`; `stub` where all it does is raise NotImplementedError; `classes` are those defined inside it."""

    name: str
    line: int
    end_line: int
    decorators: tuple[str, ...]
    parameters: tuple[ParameterRow, ...]
    returns: str
    stub: bool
    guard: Guard
    classes: tuple[ClassRow, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A `class`; `init_calls` are the constructors that its `__init__` runs (`super`, `super:Name`, `Name`)."""

    name: str
    line: int
    end_line: int
    first_line: int
    decorators: tuple[str, ...]
    bases: tuple[str, ...]
    body: tuple[Row, ...]
    attributes: tuple[AttributeRow, ...]
    init_calls: tuple[str, ...]
    guard: Guard


Row = ClassRow | FunctionRow | ImportRow | AssignRow


@dataclass(frozen=True, slots=True)
class FileRows:
    """A whole file. `exports` is `__all__` (None where there is none); `lazy` the folders, relative to the file's
    own, whose exports a lazily filled package serves (None where the package is not lazy)."""

    rows: tuple[Row, ...]
    exports: tuple[str, ...] | None
    lazy: tuple[str, ...] | None
    syntax_errors: tuple[int, ...] = ()
    utf8: bool = True


_TYPES: tuple[type[Any], ...] = (
    Guard,
    ParameterRow,
    ImportRow,
    AssignRow,
    AttributeRow,
    FunctionRow,
    ClassRow,
    FileRows,
)
_TAGS = {cls: number for number, cls in enumerate(_TYPES)}
_FIELDS = {cls: tuple(field.name for field in fields(cls)) for cls in _TYPES}


def to_json(value: FileRows) -> str:
    """Compact text: a row is `{"": [type number, *fields]}`, a tuple a list."""
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    tag = _TAGS.get(type(value))
    return value if tag is None else {"": [tag, *(_plain(getattr(value, name)) for name in _FIELDS[type(value)])]}


def from_json(text: str) -> FileRows | None:
    """The rows that `to_json` wrote; None where the text is damaged."""
    try:
        value = _rows(json.loads(text))
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return value if isinstance(value, FileRows) else None


def _rows(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rows(item) for item in value)
    if isinstance(value, dict):
        tag, *parts = value[""]
        return _TYPES[tag](*(_rows(part) for part in parts))
    return value
