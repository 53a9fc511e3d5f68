"""A change of one file, before it is made: shown as a diff, or written.

What `install` and `uninstall` do to files is first a list of these, so that --dry-run shows exactly what would be written.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from opscope_schemas.errors import InputError

from opscope_clients.hosts import files
from opscope_clients.hosts.edits import Path as Place
from opscope_clients.hosts.edits import UnreadableError
from opscope_clients.hosts.files import Held
from opscope_clients.hosts.table import Host


@dataclass(frozen=True)
class Change:
    """What a file is to hold; None: it is to go."""

    held: Held
    after: bytes | None

    @property
    def none(self) -> bool:
        """Whether nothing would change."""
        return self.after == self.held.data

    def make(self) -> None:
        """Write or remove the file; raises `OutputError`."""
        if self.after is None:
            files.unchanged(self.held)
            files.remove(self.held.target)
        elif not self.none:
            files.write(self.held, self.after)

    def undo(self) -> None:
        """Put back what `make` changed; raises `OutputError`."""
        if not self.none:
            Change(files.read(self.held.path), self.held.data).make()

    def diff(self) -> str:
        """The change as a unified diff."""
        name = str(self.held.path)
        before, after = (_lines(data) for data in (self.held.data, self.after))
        old, new = ("/dev/null" if data is None else name for data in (self.held.data, self.after))
        return "".join(_ended(difflib.unified_diff(before, after, old, new)))


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode(errors="replace").splitlines(keepends=True)


def _ended(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


class ConfigText:
    """The text of a host's config file with the server `name` in it or not; what is wrong with it is an `InputError`."""

    def __init__(self, host: Host, held: Held, name: str) -> None:
        self.host, self.held, self.name = host, held, name
        self.text = held.text
        try:
            self.path: Place = host.path(self.text, name)
            self.entry = host.format.get(self.text, self.path)
            #: containers that the file does not have yet
            self.absent = [
                list(self.path[:depth])
                for depth in range(1, len(self.path))
                if not host.format.has(self.text, self.path[:depth])
            ]
        except UnreadableError as error:
            raise self.refusal(error) from None

    @property
    def location(self) -> str:
        """Where the entry is, for a message."""
        return f"{self.held.path}:{self.host.format.line_of(self.text, self.path)}"

    def put(self, value: dict[str, object]) -> Change:
        """The file with `value` as the entry."""
        try:
            return Change(self.held, self.held.with_text(self.host.format.put(self.text, self.path, value)))
        except UnreadableError as error:
            raise self.refusal(error) from None

    def take(self, made: list[Place]) -> Change:
        """The file without the entry."""
        try:
            return Change(self.held, self.held.with_text(self.host.format.take(self.text, self.path, made)))
        except UnreadableError as error:
            raise self.refusal(error) from None

    def refusal(self, error: UnreadableError) -> InputError:
        """What is wrong with the file, for its owner."""
        return InputError(
            f"{self.host.title}'s config cannot be edited: {error.reason}.",
            location=f"{self.held.path}:{error.line}",
            next_step="Put that right first; the file was left as it is.",
        )
