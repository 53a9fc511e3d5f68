"""Where indexes lie on disk: one SQLite file a repository, in a subfolder of the cache folder that only the user may enter.

A file's name says what it was built from and by which code, so an index of another version is simply not found; those
that nobody has opened for a while are removed when one is built.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from opscope_cache import keys
from opscope_schemas.common import Repository

from opscope_tools.source.storage.sealed_files import PARTS, remove, seal_of

#: the folder's name counts up with what lies in it
_FOLDER = "index-2"
#: bytes that all indexes may take, and seconds after which an unused one goes
SIZE_LIMIT = 2 << 30
_UNUSED = 30 * 86_400


def index_place(folder: Path, repository: Repository) -> Path:
    """Where the index of a repository lies below a cache folder."""
    name = keys.digest(str(repository.root.resolve()), *repository.packages, keys.index_version())
    return folder / _FOLDER / f"{name}.sqlite"


def sizes(folder: Path) -> dict[Path, int]:
    """The indexes below a cache folder, with the bytes that each takes."""
    return {place: sum(map(_size, _files(place))) for place in sorted((folder / _FOLDER).glob("*.sqlite"))}


def clear(folder: Path) -> int:
    """Remove every index below a cache folder; returns how many there were."""
    found = sizes(folder)
    for place in found:
        remove(place)
    return len(found)


def prune(kept: Path) -> None:
    """Remove the indexes beside `kept` that were not used for long, and the oldest while all take too much room."""
    others = {place: size for place, size in sizes(kept.parent.parent).items() if place != kept}
    room = SIZE_LIMIT - sum(map(_size, _files(kept)))
    for place in sorted(others, key=_used, reverse=True):
        room -= others[place]
        if room < 0 or time.time() - _used(place) > _UNUSED:
            remove(place)


def _files(place: Path) -> list[Path]:
    return [place.with_name(place.name + part) for part in PARTS]


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0


def _used(place: Path) -> float:
    """When the index was opened last: its seal's time."""
    for file in (seal_of(place), place):
        with contextlib.suppress(OSError):
            return file.lstat().st_mtime
    return 0.0
