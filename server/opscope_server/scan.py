"""Looks at a JSON text without parsing it: how deep it nests, and what can be told of a message that no parser takes.

Works piece by piece and keeps next to nothing, so that a line of any length can be looked at; finds the id that stands at the
top of an object however the rest is broken.
"""

from __future__ import annotations

import json
import re

_OUTSIDE = re.compile(rb'["{}\[\]:,]')
_INSIDE = re.compile(rb'["\\]')
#: bytes of a member at the top that are looked at: an id that is longer is none that is answered
_LOOKED_AT = 1100


class Scan:
    """What was seen so far of one JSON text."""

    def __init__(self) -> None:
        self.deepest = 0
        #: the top is a list
        self.batch = False
        #: names of the members at the top
        self.members: set[str] = set()
        self.id: str | int | float | None = None
        self._depth = 0
        self._in_string = False
        self._skip = False
        self._name = ""
        self._piece = bytearray()

    @classmethod
    def of(cls, raw: bytes) -> Scan:
        """A whole text, looked at."""
        scan = cls()
        scan.feed(raw)
        return scan

    def feed(self, raw: bytes) -> None:
        """Look at the next piece."""
        at = 0
        if self._skip and raw:
            at = self._escaped(raw, 0)
        while at < len(raw):
            found = (_INSIDE if self._in_string else _OUTSIDE).search(raw, at)
            end = found.end() if found else len(raw)
            if self._depth == 1 and len(self._piece) < _LOOKED_AT:
                self._piece += raw[at:end][:_LOOKED_AT]
            if found is None:
                return
            at = end
            if self._in_string:
                if found[0] == b"\\":
                    at = self._escaped(raw, at)
                else:
                    self._in_string = False
            else:
                self._take(found[0])

    def _escaped(self, raw: bytes, at: int) -> int:
        """Pass over the byte after a backslash, which may come with the next piece only."""
        self._skip = at == len(raw)
        if self._depth == 1:
            self._piece += raw[at : at + 1]
        return at + 1

    def _take(self, token: bytes) -> None:
        if token == b'"':
            self._in_string = True
        elif token in b"{[":
            self.batch = self.batch or (self._depth == 0 and token == b"[")
            self._depth += 1
            self.deepest = max(self.deepest, self._depth)
            if self._depth == 1:
                self._piece.clear()
        elif self._depth == 1:
            self._member(token)
            if token in b"}]":
                self._depth = 0
        elif token in b"}]":
            self._depth -= 1

    def _member(self, token: bytes) -> None:
        """The end of a name or of a value at the top."""
        piece = _value(bytes(self._piece[:-1]))
        self._piece.clear()
        if token == b":":
            self._name = piece if isinstance(piece, str) else ""
            self.members.add(self._name)
        else:
            if self._name == "id" and isinstance(piece, str | int | float) and not isinstance(piece, bool):
                self.id = piece
            self._name = ""


def _value(piece: bytes) -> object:
    if len(piece) >= _LOOKED_AT:
        return None
    try:
        return json.loads(piece)
    except ValueError:
        return None
