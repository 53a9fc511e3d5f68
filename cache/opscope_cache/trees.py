"""The files of a folder and whether any of them changed: the one listing that keys, index and kernel scans share.

A file's signature is its size, mtime, ctime and inode (ctime cannot be set back by a user, so an edit that keeps size and
mtime still shows); reading 100 MB to hash it would take longer than most answers. From the second question on a tree is
watched where the platform can (watch.py), and then an unchanged tree costs nothing to ask.

Left out: folders that tools make (`SKIPPED`), virtual environments, what a `.gitignore` names, links that lead out of the
tree or to a folder.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from opscope_cache.watch import Watch, open_watch

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

#: what some tool reads; a tree changes when one of these does
SUFFIXES = (
    ".py", ".pyi", ".cu", ".cuh", ".h", ".hpp", ".hh", ".hxx", ".inl", ".c", ".cc", ".cpp", ".cxx", ".json", ".toml",
    ".jinja", ".jinja2", ".hip",
)  # fmt: skip
PYTHON = (".py",)
#: what code that is imported and run may read: itself, and the data beside it
IMPORTED = (".py", ".json", ".yaml", ".yml", ".toml", ".txt", ".cfg", ".ini", ".csv")
#: files that say which others count
_RULES = frozenset({".gitignore", "pyvenv.cfg"})
SKIPPED = frozenset({"__pycache__", ".git", ".hg", ".svn", ".venv", "node_modules", ".mypy_cache", ".ruff_cache"})

#: size in bytes, mtime and ctime in nanoseconds, inode, packed: thousands are kept, compared and stored
Signature = bytes
_PACKED = struct.Struct("<QqqQ")


def signature(found: os.stat_result) -> Signature:
    """The signature of a file with this status."""
    return _PACKED.pack(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def size_of(signature: Signature) -> int:
    """The file's size in bytes."""
    size: int = _PACKED.unpack(signature)[0]
    return size


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The files of a tree at one moment: path relative to the root -> signature, in path order."""

    root: Path
    files: Mapping[str, Signature]
    _by_suffix: dict[tuple[str, ...], dict[str, Signature]] = field(default_factory=dict, repr=False)

    def ending(self, *suffixes: str) -> Mapping[str, Signature]:
        """The files whose names end in one of `suffixes`."""
        found = self._by_suffix.get(suffixes)
        if found is None:
            found = {path: kept for path, kept in self.files.items() if path.endswith(suffixes)}
            self._by_suffix[suffixes] = found
        return found

    @cached_property
    def fingerprint(self) -> str:
        """40 hex digits that change whenever a file does."""
        sha = hashlib.sha256(str(self.root).encode())
        sha.update(repr(list(self.files.items())).encode("utf-8", "surrogateescape"))
        return sha.hexdigest()[:40]


class Tree:
    """The files below `root`, or below its `packages` only. Every question is answered as of now."""

    def __init__(self, root: Path, packages: Sequence[str] = (), suffixes: tuple[str, ...] = SUFFIXES) -> None:
        self.root = root.resolve()
        self.packages = tuple(packages)
        self.suffixes = suffixes
        self._listing: _Listing | None = None
        self._snapshot = Snapshot(self.root, {})
        self._watch: Watch | None = None
        self._watchable = True
        self._lock = threading.Lock()  # tools run in several threads

    def now(self) -> Snapshot:
        """The tree as it is now; the same object as long as nothing changed."""
        with self._lock:
            if self._watch is not None and self._listing is not None:
                changed = self._watch.changed()
                in_place = self._listing.starts == _identities(self.root, self.packages)
                if in_place and changed is not None and not any(self._uncertain(*entry) for entry in changed):
                    self._update([path for path, _ in changed])
                    return self._snapshot
                self._watch.close()
                self._watch = None
            if self._listing is not None and self._watchable:
                self._start_watch()
            else:  # a command that asks once should not pay for a watch
                self._list()
            return self._snapshot

    def _uncertain(self, path: str, is_folder: bool) -> bool:
        """Whether the change may concern more than one file."""
        name = path.rpartition("/")[2]
        return name in _RULES or (is_folder and name not in SKIPPED) or Path(path).is_symlink()

    def _start_watch(self) -> None:
        """Folders are watched before they are listed, so that what changes from then on is seen."""
        for _ in range(3):
            assert self._listing is not None
            watched = self._listing.folders
            self._watch = open_watch(self.root, watched)
            self._list()
            if self._watch is None or self._listing.folders == watched:
                break
            self._watch.close()  # a folder came or went in between
            self._watch = None
        self._watchable = self._watch is not None

    def _list(self) -> None:
        self._listing = _Listing(self.root, self.packages, self.suffixes)
        self._take(dict(sorted(self._listing.files.items())))

    def _update(self, changed: Sequence[str]) -> None:
        """Take over the signatures of the changed files; of links, whose targets are not watched, always."""
        assert self._listing is not None
        known = self._snapshot.files
        fresh: dict[str, Signature | None] = {}
        for path in [*changed, *self._listing.links]:
            file = path[len(str(self.root)) + 1 :]
            if file in known or self._listing.takes(path):
                fresh[file] = signature_of(self.root, path)
        differing = {file: now for file, now in fresh.items() if known.get(file) != now}
        if differing:
            merged = {**known, **differing}
            self._take({file: now for file in sorted(merged) if (now := merged[file]) is not None})

    def _take(self, files: dict[str, Signature]) -> None:
        if files != self._snapshot.files:
            self._snapshot = Snapshot(self.root, files)


class _Listing:
    """One walk over a tree: the files, the folders that were entered, the links among the files."""

    def __init__(self, root: Path, packages: Sequence[str], suffixes: tuple[str, ...]) -> None:
        self.root = root
        self._suffixes = suffixes
        self.starts = _identities(root, packages)
        self.files: dict[str, Signature] = {}
        self.folders: list[str] = []
        self.links: list[str] = []
        self._ignored: dict[str, GitIgnoreSpec] = {}
        for start in [root / package for package in packages] or [root]:
            self._walk(str(start))

    def _walk(self, start: str) -> None:
        pending = [start]
        cut = len(str(self.root)) + 1
        while pending:
            here = pending.pop()
            try:
                with os.scandir(here) as opened:
                    entries = list(opened)
            except OSError:
                continue
            self.folders.append(here)
            files, folders = [], []
            for entry in entries:
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    if name not in SKIPPED:
                        folders.append(entry)
                elif name.endswith(self._suffixes):
                    files.append(entry)
                elif name == ".gitignore":
                    self._read_ignored(here)
                elif name == "pyvenv.cfg":  # a virtual environment
                    break
            else:
                pending += [entry.path for entry in folders if not (self._ignored and self.ignores(entry.path + "/"))]
                for entry in files:
                    self._take(entry, cut)

    def _take(self, entry: os.DirEntry[str], cut: int) -> None:
        path = entry.path
        if not path.isascii() and "\udc80" <= max(path) <= "\udcff":  # a name that is no text: nobody can ask for it
            return
        if self._ignored and self.ignores(path):
            return
        taken: Signature | None
        if entry.is_symlink():
            self.links.append(path)
            taken = signature_of(self.root, path)
        elif entry.is_file(follow_symlinks=False):
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                return
            taken = signature(found)
        else:
            return
        if taken is not None:
            self.files[path[cut:]] = taken

    def takes(self, path: str) -> bool:
        """Whether a file at `path` would be listed."""
        return path.endswith(self._suffixes) and not self.ignores(path)

    def _read_ignored(self, folder: str) -> None:
        from pathspec import GitIgnoreSpec

        try:
            lines = Path(folder, ".gitignore").read_text(errors="replace").splitlines()
            self._ignored[folder] = GitIgnoreSpec.from_lines(lines)
        except (OSError, ValueError):
            return

    def ignores(self, path: str) -> bool:
        """Whether a `.gitignore` of a folder above names `path`; a folder's path ends in `/`."""
        return any(
            path.startswith(folder + "/") and spec.match_file(path[len(folder) + 1 :])
            for folder, spec in self._ignored.items()
        )


def _identities(root: Path, packages: Sequence[str]) -> list[tuple[int, int] | None]:
    """Device and inode of the folders that a walk starts from: a folder put in their place has others."""
    found: list[tuple[int, int] | None] = []
    for start in packages or [""]:
        try:
            status = os.stat(f"{root}/{start}")  # noqa: PTH116 (asked with every question)
            found.append((status.st_dev, status.st_ino))
        except OSError:
            found.append(None)
    return found


def signature_of(root: Path, path: str) -> Signature | None:
    """The signature of a regular file; None where there is none at `path`, or a link leads out of `root`."""
    try:
        file = Path(path)
        found = file.stat()
        inside = not file.is_symlink() or file.resolve().is_relative_to(root)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode) or not inside:
        return None
    return signature(found)


_TREES: WeakValueDictionary[tuple[Path, tuple[str, ...], tuple[str, ...]], Tree] = WeakValueDictionary()
_TREES_LOCK = threading.Lock()


def tree_at(root: Path, packages: Sequence[str] = (), suffixes: tuple[str, ...] = SUFFIXES) -> Tree:
    """The tree at `root`, shared by all who ask for it while one of them holds it."""
    key = (root.resolve(), tuple(packages), suffixes)
    with _TREES_LOCK:
        tree = _TREES.get(key)
        if tree is None:
            tree = _TREES[key] = Tree(*key)
        return tree
