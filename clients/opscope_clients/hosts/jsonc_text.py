"""JSON with the comments and trailing commas that editors allow, read with the place of every value.

The standard library reads JSON without places and without comments; what is needed here is small. Strings and numbers are
left to the standard library once their extent is known.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from opscope_clients.hosts.edits import UnreadableError, line_at

#: deeper than any config file, far from Python's own limit
_DEPTH = 200
_SPACE = re.compile(r"[ \t\r\n]+")
_COMMENT = re.compile(r"//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null")


@dataclass(frozen=True)
class Node:
    """A value from `start` to `end`; an object also has its members, in order."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] = ()

    def member(self, key: str) -> Member | None:
        """The member called `key`; of several the last, as JSON readers take it."""
        return next((member for member in reversed(self.members) if member.key == key), None)


@dataclass(frozen=True)
class Member:
    """`"key": value` of an object."""

    key: str
    start: int
    node: Node


class Reader:
    """Reads one text; `plain` refuses comments and trailing commas, which some hosts do not read."""

    def __init__(self, text: str, *, plain: bool = False) -> None:
        self.text = text
        self.plain = plain

    def document(self) -> Node | None:
        """The one value of the text; None where there is nothing but space and comments."""
        position = self.skip(0)
        if position == len(self.text):
            return None
        node = self._value(position, 0)
        end = self.skip(node.end)
        if end != len(self.text):
            raise self._wrong("nothing may follow the closing brace", end)
        return node

    def skip(self, position: int) -> int:
        """The next position that is neither space nor comment."""
        while True:
            start = position
            if found := _SPACE.match(self.text, position):
                position = found.end()
            if found := _COMMENT.match(self.text, position):
                if self.plain:
                    raise self._wrong("a comment, which this host's JSON does not allow", position)
                position = found.end()
            if position == start:
                return position

    def _value(self, at: int, depth: int) -> Node:
        if depth > _DEPTH:
            raise self._wrong(f"nested deeper than {_DEPTH} levels", at)
        if self.text.startswith("{", at):
            return self._object(at, depth)
        if self.text.startswith("[", at):
            return self._array(at, depth)
        found = _STRING.match(self.text, at) or _SCALAR.match(self.text, at)
        if found is None:
            raise self._wrong("expected a value", at)
        return Node(at, found.end(), self._loaded(found.group(), at))

    def _object(self, at: int, depth: int) -> Node:
        members: list[Member] = []
        position = self.skip(at + 1)
        while not self.text.startswith("}", position):
            found = _STRING.match(self.text, position)
            if found is None:
                raise self._wrong("expected a name in double quotes", position)
            colon = self.skip(found.end())
            if not self.text.startswith(":", colon):
                raise self._wrong("expected a colon", colon)
            node = self._value(self.skip(colon + 1), depth + 1)
            members.append(Member(self._loaded(found.group(), position), position, node))
            position = self._separated(node.end, "}")
        return Node(at, position + 1, {member.key: member.node.value for member in members}, tuple(members))

    def _array(self, at: int, depth: int) -> Node:
        values: list[Any] = []
        position = self.skip(at + 1)
        while not self.text.startswith("]", position):
            node = self._value(position, depth + 1)
            values.append(node.value)
            position = self._separated(node.end, "]")
        return Node(at, position + 1, values)

    def _separated(self, end: int, closing: str) -> int:
        """The position after a comma, or of the closing bracket."""
        position = self.skip(end)
        if self.text.startswith(closing, position):
            return position
        if not self.text.startswith(",", position):
            raise self._wrong(f"expected a comma or {closing}", position)
        after = self.skip(position + 1)
        if self.plain and self.text.startswith(closing, after):
            raise self._wrong("a comma before the closing bracket, which this host's JSON does not allow", position)
        return after

    def _loaded(self, token: str, at: int) -> Any:
        try:
            return json.loads(token)
        except ValueError as error:
            raise self._wrong(str(error).partition(":")[0].lower(), at) from None

    def _wrong(self, reason: str, position: int) -> UnreadableError:
        end = len(self.text.rstrip())
        if position >= end:
            return UnreadableError(f"{reason}, found the end of the file", line_at(self.text, end))
        return UnreadableError(reason, line_at(self.text, position))
