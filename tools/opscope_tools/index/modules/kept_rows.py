"""What classes hold, kept in the index of their repository: the rows of an answer beside all that it looked at (looks.py).

An answer that names a class which cannot be found again by its place is not kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec
from opscope_cache import keys

from opscope_tools.index.modules.rows_of_objects import HeldModule, Kind
from opscope_tools.source.python.looks import Looks
from opscope_tools.source.python.names import ClassSymbol, Resolver
from opscope_tools.source.python.rows import Kept

#: bytes of an answer, unpacked: none comes near
_LARGEST = 1 << 24
#: repository, file, name in the module and line of a class; all empty where there is none
_At = tuple[str, str, str, int]
_NOWHERE: _At = ("", "", "", 0)


class _Row(Kept, frozen=True):
    attribute: str
    class_name: str
    symbol: _At
    file: str
    line: int
    arguments: str
    condition: str
    repeat: str
    dispatch: str
    at_default: bool | None
    candidates: tuple[str, ...]
    kind: Kind
    holder: _At
    method: str
    text: str


class _Answer(Kept, frozen=True):
    looks: tuple[tuple[str, str, str, bytes], ...]
    rows: tuple[_Row, ...]


_WRITER = msgspec.msgpack.Encoder()
_READER = msgspec.msgpack.Decoder(_Answer)


def question(resolver: Resolver) -> str:
    """What the answers depend on beside what they look at: which repositories are registered."""
    registered = [(r.name, str(r.root), *r.packages) for r in (tree.repository for tree in resolver.trees)]
    return keys.digest("attributes", repr(registered))


def kept(resolver: Resolver, symbol: ClassSymbol) -> tuple[list[HeldModule], Looks] | None:
    """The rows of the class and what they depend on; None where none are kept, or they do not hold any more."""
    blob = symbol.unit.tree.held(symbol.file, symbol.path, symbol.line, question(resolver))
    try:
        unpacked = zlib.decompressobj().decompress(blob, _LARGEST) if blob is not None else b""
        answer = _READER.decode(unpacked) if unpacked else None
    except (zlib.error, ValueError, RecursionError, MemoryError):  # msgspec's errors are ValueErrors
        return None
    if answer is None:
        return None
    looks: Looks = {(kind, repository, about): gave for kind, repository, about, gave in answer.looks}
    if not resolver.unchanged(looks):
        return None
    rows = [_read(resolver, row) for row in answer.rows]
    found = [row for row in rows if row is not None]
    return (found, looks) if len(found) == len(rows) else None


def keep(resolver: Resolver, symbol: ClassSymbol, rows: Sequence[HeldModule], looks: Looks) -> None:
    """Keep the rows, where all their classes can be found again."""
    written = [_written(row) for row in rows]
    if all(_found(resolver, at) is not None for row in written for at in (row.symbol, row.holder) if at != _NOWHERE):
        answer = _Answer(tuple((*look, gave) for look, gave in looks.items()), tuple(written))
        symbol.unit.tree.keep_held(
            symbol.file, symbol.path, symbol.line, question(resolver), zlib.compress(_WRITER.encode(answer), 1)
        )


def _written(row: HeldModule) -> _Row:
    return _Row(
        row.attribute, row.class_name, _at(row.symbol), row.file, row.line, row.arguments, row.condition, row.repeat,
        row.dispatch, row.at_default, row.candidates, row.kind, _at(row.holder), row.method, row.text,
    )  # fmt: skip


def _read(resolver: Resolver, row: _Row) -> HeldModule | None:
    symbol, holder = _found(resolver, row.symbol), _found(resolver, row.holder)
    if (symbol is None and row.symbol != _NOWHERE) or (holder is None and row.holder != _NOWHERE):
        return None
    return HeldModule(
        row.attribute, row.class_name, symbol, row.file, row.line, row.arguments, row.condition, row.repeat,
        row.dispatch, row.at_default, row.candidates, row.kind, holder, row.method, row.text,
    )  # fmt: skip


def _at(symbol: ClassSymbol | None) -> _At:
    return (symbol.repository.name, symbol.file, symbol.path, symbol.line) if symbol is not None else _NOWHERE


def _found(resolver: Resolver, at: _At) -> ClassSymbol | None:
    repository, file, path, line = at
    tree = next((tree for tree in resolver.trees if tree.repository.name == repository), None)
    if tree is None or not tree.registered(file):
        return None
    unit = tree.unit(file)
    return next((ClassSymbol(unit, p, row) for p, row in unit.classes() if row.line == line and p == path), None)
