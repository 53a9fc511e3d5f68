"""Keys that change whenever an answer could: of source trees, of documents, of the engine itself.

A tree's fingerprint is taken from each file's path, size, inode, mtime and ctime (ctime cannot be set back by a user,
so an edit that keeps size and mtime still changes the key); reading 100 MB to hash it would take longer than most
answers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_SKIPPED = {"__pycache__", ".git", ".hg", ".venv", "node_modules"}


def digest(*parts: str | bytes) -> str:
    """SHA-256 of the parts, each closed by its length so that no two lists of parts collide; 40 hex digits."""
    sha = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        sha.update(len(raw).to_bytes(8, "big"))
        sha.update(raw)
    return sha.hexdigest()[:40]


def of_document(document: object) -> str:
    """Digest of a JSON-able value, independent of key order."""
    return digest(json.dumps(document, sort_keys=True, separators=(",", ":"), default=str))


def of_tree(root: Path, packages: Iterable[str] = (), suffixes: tuple[str, ...] = (".py",)) -> str:
    """Fingerprint of every file below `root` (or only below its `packages`) that ends in one of `suffixes`."""
    folders = [root / package for package in packages] or [root]
    sha = hashlib.sha256()
    for folder in folders:
        for line in _stat_lines(str(folder), suffixes):
            sha.update(line)
    return sha.hexdigest()[:40]


def _stat_lines(folder: str, suffixes: tuple[str, ...]) -> Iterator[bytes]:
    """One line a file, in sorted order; folders reached through symlinks are not entered, so no loop is possible."""
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED:
                    pending.append(entry.path)
            elif entry.name.endswith(suffixes):
                try:
                    s = entry.stat()
                except OSError:
                    continue
                yield f"{entry.path}\0{s.st_size}\0{s.st_ino}\0{s.st_mtime_ns}\0{s.st_ctime_ns}\n".encode()


@cache
def engine_version() -> str:
    """Fingerprint of opscope's own source: a cached answer never outlives the code that gave it."""
    tops = {"opscope_tools", "opscope_schemas", "opscope_cache"}
    import importlib.util  # here: only callers that cache need it

    folders = []
    for top in sorted(tops):
        spec = importlib.util.find_spec(top)
        if spec is not None and spec.submodule_search_locations:
            folders.append(Path(next(iter(spec.submodule_search_locations))))
    return digest(*(_contents(folder) for folder in folders))


def _contents(folder: Path) -> bytes:
    return b"\0".join(
        path.read_bytes() for path in sorted(folder.rglob("*")) if path.suffix in {".py", ".j2", ".md", ".json"}
    )
