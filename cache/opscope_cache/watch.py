"""Asking the kernel whether anything changed, instead of every file: inotify, where there is one.

The kernel queues an event before the call that changed a file returns, so a queue that is empty means that nothing has
changed. That holds for file systems that only this machine writes; on others (NFS, FUSE) there is no watch.
"""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs", "bcachefs"})
#: watches of a process before those of trees that nobody holds any more are looked for: a user has 128 of all processes
_MANY = 8
_OPEN: weakref.WeakSet[Watch] = weakref.WeakSet()


class Watch:
    """Watched folders; only their own entries count, not what lies in folders below them. `close` ends it."""

    def __init__(self, queue: Any, folders: dict[int, str]) -> None:
        self._queue = queue
        self._folders = folders
        self.close = weakref.finalize(self, queue.close)
        _OPEN.add(self)

    def changed(self) -> set[tuple[str, bool]] | None:
        """(path, is a folder) of the entries that changed since the last question; None where too much did to say."""
        from inotify_simple import flags

        lost = flags.Q_OVERFLOW | flags.UNMOUNT | flags.IGNORED | flags.DELETE_SELF | flags.MOVE_SELF
        found = set()
        try:
            events = self._queue.read(timeout=0)
        except (OSError, ValueError):
            return None
        for event in events:
            if event.mask & lost:
                return None
            if event.name:
                found.add((f"{self._folders[event.wd]}/{event.name}", bool(event.mask & flags.ISDIR)))
        return found


def open_watch(root: Path, folders: Iterable[str]) -> Watch | None:
    """A watch on the folders (absolute paths below `root`); None where the platform or its limits refuse one."""
    if sys.platform != "linux" or _file_system(root) not in _LOCAL:
        return None
    from inotify_simple import flags

    mask = (
        flags.MODIFY | flags.ATTRIB | flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO
        | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR | flags.DONT_FOLLOW
    )  # fmt: skip
    if len(_OPEN) >= _MANY and len(_OPEN).bit_count() == 1:  # at 8, 16, 32: many that are held cost no collection each
        gc.collect()  # trees are parts of circles, which end so
    try:
        queue = _queue()
    except OSError:
        return None
    try:
        return Watch(queue, {queue.add_watch(folder, mask): folder for folder in folders})
    except OSError:  # the limit of watches, or a folder that is gone
        queue.close()
        return None


def _queue() -> Any:
    """Raises `OSError` where too many are open; of those, some may be of trees that nobody holds any more, and are given back first."""
    from inotify_simple import INotify

    try:
        return INotify(nonblocking=True)
    except OSError:
        gc.collect()
        return INotify(nonblocking=True)


def _file_system(path: Path) -> str:
    """The type of the file system that `path` lies on; empty where it cannot be told."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    best = ("", "")
    for line in lines:
        _, place, kind, *_ = line.split(" ")
        place = place.encode().decode("unicode_escape")  # a space is written \040
        inside = str(path) == place or str(path).startswith(place.rstrip("/") + os.sep)
        if inside and len(place) >= len(best[0]):
            best = (place, kind)
    return best[1]
