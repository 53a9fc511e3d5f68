"""Edits of TOML text: a table appended or taken out, every other byte left as it is.

tomlkit 0.15 keeps formatting, but deleting a table takes the comments in front of the next one with it. So tables are
found by a scan of statements, and the standard library's reader judges the text before and after.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opscope_clients.hosts.edits import MISSING, Edit, Path, UnreadableError, applied, checked, line_at, newline_of

_LINE = re.compile(r"\(at line (\d+)")
_STRINGS = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'[^'\n]*'",
    re.DOTALL,
)


@dataclass(frozen=True)
class Statement:
    """A header or a `key = value`, from its first character to its line's end, the line end included."""

    start: int
    end: int
    path: Path
    header: bool


class Toml:
    """The format."""

    def get(self, text: str, path: Path) -> Any:
        """The value at `path`, or MISSING."""
        found: Any = _load(text)
        for index, key in enumerate(path):
            if not isinstance(found, Mapping):
                raise UnreadableError(f"{path[index - 1]} is not a table", self.line_of(text, path[:index]))
            if key not in found:
                return MISSING
            found = found[key]
        return found

    def has(self, text: str, path: Path) -> bool:
        """A header names its table's whole path, so no container is ever made."""
        del text, path
        return True

    def line_of(self, text: str, path: Path) -> int:
        """The line of the first statement about `path` or about what holds it."""
        found = [s for s in _statements(text) if s.path[: len(path)] == path or path[: len(s.path)] == s.path]
        return line_at(text, found[0].start) if found else 1

    def put(self, text: str, path: Path, value: Mapping[str, Any]) -> str:
        """The text with the table `path`, in its old place or at the end."""
        _load(text)  # what follows relies on a text that can be read
        nl = newline_of(text)
        old = _regions(text, path)
        block = nl.join([f"[{'.'.join(path)}]", *(f"{key} = {_rendered(item)}" for key, item in value.items())]) + nl
        if old and _header_at(text, old[0].start):
            # what followed a key keeps its distance; sub-tables of the old entry go
            edits = [Edit(old[0].start, old[0].end, block), *(_with_blank(text, region) for region in old[1:])]
        else:
            end = "" if not text or text.endswith("\n") else nl
            edits = [*old, Edit(len(text), len(text), f"{end}{nl if text.strip() else ''}{block}")]
        return checked(text, applied(text, edits), path, value, _load, self.line_of(text, path))

    def take(self, text: str, path: Path, made: Iterable[Path]) -> str:
        """The text without the table `path`. Comments behind its last key stay."""
        del made  # tables that a header implies are gone with it
        _load(text)
        edits = [_with_blank(text, region) for region in _regions(text, path)]
        return checked(text, applied(text, edits), path, MISSING, _load, self.line_of(text, path))


def _load(text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise UnreadableError(str(error).partition(" (at")[0].lower(), line) from None
    except RecursionError:
        raise UnreadableError("nested too deeply", 1) from None


def _statements(text: str) -> Iterator[Statement]:
    """The statements of a text that the reader has taken; keys carry their table's path."""
    table: Path = ()
    position = 0
    while position < len(text):
        start = position + len(text[position:]) - len(text[position:].lstrip())
        if start >= len(text):
            return
        if text[start] == "#":
            position = _line_end(text, start)
            continue
        end = _statement_end(text, start)
        if text[start] == "[":
            opening = 2 if text.startswith("[[", start) else 1
            table = _key(text, start + opening, "]")
            yield Statement(start, end, table, header=True)
        else:
            yield Statement(start, end, table + _key(text, start, "="), header=False)
        position = end


def _line_end(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found + 1


def _statement_end(text: str, position: int) -> int:
    """Behind the line end of a statement; brackets, strings and comments may hold others."""
    depth = 0
    while position < len(text):
        character = text[position]
        if character in "\"'" and (found := _STRINGS.match(text, position)):
            position = found.end()
            continue
        if character == "#":
            position = _line_end(text, position) - 1
            if position == len(text) - 1 and text[position] != "\n":
                return len(text)
            continue
        depth += (character in "[{") - (character in "]}")
        position += 1
        if character == "\n" and depth <= 0:
            return position
    return len(text)


def _key(text: str, position: int, closing: str) -> Path:
    """The parts of a dotted key that ends before `closing`."""
    start = position
    while not text.startswith(closing, position):
        found = _STRINGS.match(text, position)
        position = found.end() if found else position + 1
    parts: list[str] = []
    found_keys: Any = tomllib.loads(f"{text[start:position].strip()} = 0")
    while isinstance(found_keys, dict):
        part = next(iter(found_keys))
        parts.append(part)
        found_keys = found_keys[part]
    return tuple(parts)


def _regions(text: str, path: Path) -> list[Edit]:
    """Removals of all that is said about `path`: tables to the end of their last key, or single keys."""
    found: list[Edit] = []
    inside = False
    for statement in _statements(text):
        about = statement.path[: len(path)] == path
        if statement.header:
            inside = about
        if about and not statement.header and inside:
            found[-1] = Edit(found[-1].start, statement.end, "")
        elif about:
            found.append(Edit(statement.start, statement.end, ""))
    return found


def _with_blank(text: str, region: Edit) -> Edit:
    """A removal with the blank line in front of it."""
    before = re.search(r"(?<=\n)\r?\n\Z", text[: region.start])
    return Edit(before.start(), region.end, "") if before else region


def _header_at(text: str, position: int) -> bool:
    return text.startswith("[", position)


def _rendered(value: Any) -> str:
    """A value as TOML; a JSON string of printable text is a TOML basic string too."""
    if isinstance(value, list):
        return f"[{', '.join(map(_rendered, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
