"""What editing a config file as text has in common: the pieces to replace, the reasons to leave a file alone.

A format is a module with `get`, `line_of`, `put` and `take`; every edit of theirs is checked by reading the result again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

#: what `get` says where nothing is
MISSING: Any = object()
#: the name of a server, in every host's file; it needs no quotes in any of them
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

Path = tuple[str, ...]


class UnreadableError(Exception):
    """A text that is not of its format, or holds something else where the servers belong; with the line."""

    def __init__(self, reason: str, line: int) -> None:
        self.reason, self.line = reason, line
        super().__init__(f"{reason} in line {line}")


class Format(Protocol):
    """How text of one format is read and edited; every method raises `UnreadableError`."""

    def get(self, text: str, path: Path) -> Any:
        """The value at `path`, or MISSING."""

    def has(self, text: str, path: Path) -> bool:
        """Whether there is a container at `path`; always, where the format needs none."""

    def line_of(self, text: str, path: Path) -> int:
        """The line at which the value of `path`, or what holds it, begins."""

    def put(self, text: str, path: Path, value: Mapping[str, Any]) -> str:
        """The text with `value` at `path`, in place of what was there."""

    def take(self, text: str, path: Path, made: Iterable[Path]) -> str:
        """The text without what is at `path`, and without the containers of `made` that this leaves empty."""


@dataclass(frozen=True)
class Edit:
    """`text` in place of what stands from `start` to `end`."""

    start: int
    end: int
    text: str


def applied(text: str, edits: Iterable[Edit]) -> str:
    """`text` after edits that do not overlap."""
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def line_at(text: str, position: int) -> int:
    """The line of a position, from 1."""
    return text.count("\n", 0, position) + 1


def newline_of(text: str) -> str:
    """The line end that a text uses."""
    return "\r\n" if "\r\n" in text else "\n"


def with_value(document: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A document with another value at `path`; MISSING takes it out, and containers that this leaves empty."""
    key, rest = path[0], path[1:]
    changed = dict(document)
    inner = with_value(changed.get(key) or {}, rest, value) if rest else value
    if inner is MISSING or (rest and not inner):
        changed.pop(key, None)
    else:
        changed[key] = inner
    return changed


def checked(
    before: str, after: str, path: Path, value: Any, load: Callable[[str], Mapping[str, Any]], line: int
) -> str:
    """`after`, once read again and found to hold what `before` held, with `value` at `path`, and nothing else.

    Raises `UnreadableError` otherwise: a file in a form that the edit did not foresee is left alone.
    """
    try:
        same = with_value(load(after), path, MISSING) == with_value(load(before), path, MISSING)
        found: Any = load(after)
        for key in path:
            found = found.get(key, MISSING) if isinstance(found, Mapping) else MISSING
        same = same and (found is MISSING if value is MISSING else found == value)
    except (UnreadableError, ValueError):
        same = False
    if not same:
        raise UnreadableError(f"{'.'.join(path[:-1])} is written in a form that cannot be edited in place", line)
    return after
