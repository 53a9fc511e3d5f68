"""What has been looked up already: on the way to one name (`Trail`), and for the question that a thread is asked.

Imports may lead to one module on a hundred ways, and classes to one ancestor on a thousand; each is followed once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from opscope_tools.source.python.exports import Exports
    from opscope_tools.source.python.found import Base, Found, Identity
    from opscope_tools.source.python.repository import SourceTree

#: tree, file, name and the line that a name is seen from (0: the end)
Step: TypeAlias = "tuple[SourceTree, str, str, int]"
_Key = TypeVar("_Key")
_Kept = TypeVar("_Kept")
#: lookups inside one another that are followed
_LONGEST = 60
#: what is kept of each kind: modules would not be let go of as long as something found in them is held
_MOST = 4000


class Trail:
    """The lookups that one leads through, and what those that ended gave: a way that crosses another goes no further."""

    def __init__(self) -> None:
        self._open = 0
        self.found: dict[Step, Found | None] = {}
        self.exports: dict[Step, Exports | None] = {}

    @contextmanager
    def at(self, known: dict[_Key, _Kept | None], step: _Key) -> Iterator[bool]:
        """Whether the step may be taken: the way is not too long. Until it ends, `known` says that it leads nowhere, which
        is what a circle comes to."""
        known[step] = None
        self._open += 1
        try:
            yield self._open <= _LONGEST
        finally:
            self._open -= 1


def _go_on() -> None:
    """Nobody ends this question."""


class Memory(threading.local):
    """Lookups and linearisations of the question that a thread is at."""

    def __init__(self) -> None:
        self._open = False
        self.found: dict[Step, Found | None] = {}
        self.orders: dict[Identity, list[Base]] = {}
        #: called with every lookup; raises where nobody waits for the answer any more
        self.checkpoint: Callable[[], None] = _go_on

    @contextmanager
    def question(self, checkpoint: Callable[[], None] | None = None, *, apart: bool = False) -> Iterator[None]:
        """What is found inside is kept until the end, so the files count as they were when they were first read. A question
        inside another one shares what that one knows, unless it is kept `apart`, and ends with its `checkpoint`."""
        if self._open and not apart:
            for kept in (self.found, self.orders):
                if len(kept) > _MOST:
                    kept.clear()
            yield
            return
        outer = self._open, self.found, self.orders
        before = self.checkpoint
        self._open, self.found, self.orders = True, {}, {}
        self.checkpoint = checkpoint or before
        try:
            yield
        finally:
            self._open, self.found, self.orders = outer
            self.checkpoint = before
