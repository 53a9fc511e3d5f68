"""How far one question has come: what it may still do, in what branch it stands, what it has changed and made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opscope_tools.index.objects.values import Frame, Instance

#: how many expressions one question may evaluate
STEPS = 400_000
_NOTHING = nullcontext()
#: (container, content before, content after)
Changes = list[tuple[Any, Any, Any]]


class State:
    """Shared by all parts; `reset` forgets the objects of a question."""

    def __init__(self) -> None:
        #: whether what may not have run counts as undecided: for values, where a likely one will not do
        self.strict = False
        self.failures = 0
        self.made = 0
        self.serial = 0
        self.changes = 0
        self.limit = self.ceiling = STEPS
        self.journals: list[dict[int, tuple[Any, Any]]] = []
        self.log: list[Instance] = []  # the modules built so far
        self.built: dict[Any, tuple[Instance, list[Instance], Any, Any]] = {}  # by what decides how they are built
        #: statements that could not be followed, with the object (no module) that they might have changed
        self.lost: list[tuple[ast.stmt, Instance]] = []
        self.reset()

    def reset(self) -> None:
        """Forget the constructor that was run, before the next."""
        self.deep = False  # whether the constructors of the modules that are made run as well
        self.exhausted = False
        self.steps = 0
        self.at_top()
        self.journals.clear()
        self.log.clear()
        self.lost.clear()
        self.built.clear()

    def at_top(self) -> None:
        """Stand outside of every call and branch."""
        self.live: bool | None = True
        self.depth = self.branch = self.trying = 0

    def allow(self) -> None:
        """Let the next part of a question take as many steps as one may."""
        self.limit = self.ceiling = self.steps + STEPS

    # changes: every container (attributes, locals, lists, dicts) is noted before it changes while a branch is tried

    def touch(self, container: Any) -> None:
        """Keep what a container holds before it is changed, so that the innermost open branch can undo it."""
        if self.journals:
            journal = self.journals[-1]
            if id(container) not in journal:
                journal[id(container)] = (container, container.copy())

    def bind(self, frame: Frame, name: str, value: Any) -> None:
        """Set a local variable."""
        self.touch(frame.local)
        frame.local[name] = value

    def begin(self) -> None:
        """Open a stretch whose changes `end` tells or undoes."""
        self.journals.append({})

    def end(self, *, undo: bool) -> Changes:
        """What changed since `begin`."""
        journal = self.journals.pop()
        changed = []
        outer = self.journals[-1] if self.journals else None
        for key, (container, before) in journal.items():
            changed.append((container, before, container.copy()))
            if undo:
                _restore(container, before)
            elif outer is not None and key not in outer:
                outer[key] = (container, before)
        return changed

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Evaluate what is the same for every question: in no branch, its changes not noted."""
        journals, self.journals = self.journals, []
        live, self.live = self.live, True
        try:
            yield
        finally:
            self.journals, self.live = journals, live

    def within(self, live: bool | None) -> AbstractContextManager[Any]:
        """Where a branch is taken (True), not taken or open; what one that is not taken changes is undone."""
        return _NOTHING if live is True else self.branching(live, undo=live is False)

    @contextmanager
    def branching(self, live: bool | None, *, undo: bool) -> Iterator[Changes]:
        """Run a branch that is not taken (False) or open (None); gives the list that holds its changes afterwards."""
        changed: Changes = []
        branch, before = self.branch, self.live
        if before is True:
            self.branch = self.depth
        self.live = False if before is False or live is False else None
        self.begin()
        try:
            yield changed
        finally:
            changed += self.end(undo=undo)
            self.live, self.branch = before, branch


def _restore(container: Any, content: Any) -> None:
    """Put the content back in place."""
    if isinstance(container, list):
        container[:] = content
    else:
        container.clear()
        container.update(content)
