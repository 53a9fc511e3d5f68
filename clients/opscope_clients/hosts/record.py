"""What was installed into which file, kept in the platform's state folder: one JSON file for each config file.

Without it an uninstall could not tell a file that nobody touched since, which is restored, from one that was edited, out
of which only our entry is taken.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock, Timeout
from opscope_schemas.errors import OutputError

from opscope_clients.hosts import files

_VERSION = 1


@dataclass
class Record:
    """One config file. `entries`: by name, what we wrote; `previous`: what --force replaced of the user's own.

    `existed`: whether there was a file, whose copy is `backup`; `made` lists containers inside it and `folders` folders that
    were not there. `digest` is the file as we left it, empty once it was edited.
    """

    host: str
    scope: str
    file: str
    entries: dict[str, Any] = field(default_factory=dict)
    previous: dict[str, Any] = field(default_factory=dict)
    existed: bool = True
    backup: str = ""
    backup_digest: str = ""
    digest: str = ""
    made: list[list[str]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    #: other files of the host, by path: the same facts about each
    extras: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = _VERSION

    def containers(self) -> list[tuple[str, ...]]:
        """`made` as paths."""
        return [tuple(path) for path in self.made]


def _folder() -> Path:
    return Path(platformdirs.user_state_dir("opscope", appauthor=False)) / "hosts"


def _place(file: Path) -> Path:
    return _folder() / f"{files.digest(str(file.absolute()).encode())[:32]}.json"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One process at a time from reading what is there to writing it; raises `OutputError` where that cannot be had."""
    place = _folder() / ".lock"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place, timeout=30)
        lock.acquire()
    except Timeout:
        raise OutputError(
            f"Another opscope has been installing for 30 seconds, and holds {place}.",
            next_step="Run the command again.",
        ) from None
    except OSError as error:
        raise OutputError(
            f"The note of what is installed cannot be kept below {place.parent}: {error.strerror}."
        ) from None
    with lock:
        lock.release()  # of the acquiring above; the block holds it still
        yield


def load(file: Path) -> Record | None:
    """What is known of a config file; None where nothing is, or nothing legible."""
    return _read(_place(file))


def _read(place: Path) -> Record | None:
    try:
        found = json.loads(place.read_bytes())
        record = Record(**found)
    except (OSError, ValueError, TypeError):
        return None
    return record if record.version == _VERSION and record.entries else None


def recorded() -> Iterator[Record]:
    """Every record."""
    for place in sorted(_folder().glob("*.json")):
        if (record := _read(place)) is not None:
            yield record


def save(record: Record) -> None:
    """Keep a record, or forget one that has no entries left; raises `OutputError`."""
    place = _place(Path(record.file))
    try:
        if record.entries:
            place.parent.mkdir(parents=True, exist_ok=True)
            files.replace(place, json.dumps(asdict(record), indent=1).encode(), 0o600 if place.exists() else None)
        else:
            place.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"The note about {record.file} cannot be kept at {place}: {error.strerror}.") from None


def ours(command: list[str]) -> bool:
    """Whether a command starts opscope's server, whoever wrote it down."""
    name = Path(command[0].replace("\\", "/")).name.removesuffix(".exe") if command else ""
    module = any(part in {"opscope_clients", "opscope_server"} for part in command)
    return (name == "opscope" and "serve" in command) or module


def entry_of(value: Any) -> Mapping[str, Any]:
    """An entry as a mapping, whatever a user wrote there."""
    return value if isinstance(value, Mapping) else {}
