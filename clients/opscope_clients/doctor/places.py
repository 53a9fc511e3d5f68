"""Checks of what is read and written: each repository with its version and index, and the cache."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from opscope_cache.store import default_folder
from opscope_schemas.common import Repository
from opscope_schemas.errors import OpscopeError
from opscope_tools.running.session import interpreter, listed, parse_repository
from opscope_tools.running.workspace import DEFAULT_PACKAGES, folder_repository, installed_repository, repositories_of
from opscope_tools.source.storage.places import index_place

from opscope_clients.doctor.findings import Finding
from opscope_clients.session_options import SessionOptions

_PURPOSE = "source that is read"


def repositories(session: SessionOptions) -> Iterator[Finding]:
    """Each repository that this session has; a wrong one does not hide the others."""
    folder, found = _cache_folder(session), dict[str, Repository]()
    try:
        python = interpreter(session.python or os.environ.get("OPSCOPE_PYTHON"))
    except OpscopeError:
        python = None  # told by the check of interpreters
    for name, package in DEFAULT_PACKAGES.items():
        if (installed := installed_repository(name, package)) is not None:
            found[name] = installed
    found.update(repositories_of(python) if python else {})
    for text in (*listed("OPSCOPE_REPO"), *session.repo):
        try:
            name, path = parse_repository(text)
            found[name] = folder_repository(name, path)
        except OpscopeError as error:
            yield Finding("repositories", text, "failed", error.message, _PURPOSE, required=True, fix=error.next_step)
    trusted = {*listed("OPSCOPE_TRUST"), *session.trust}
    yield from (_repository(repository, folder, repository.name in trusted) for repository in found.values())
    for name in sorted(set(DEFAULT_PACKAGES) - set(found)):
        yield Finding(
            "repositories", name, "missing", "not installed", _PURPOSE,
            fix=f"pip install {DEFAULT_PACKAGES[name]}, or give --repo {name}=PATH of a checkout.",
        )  # fmt: skip
    for name in sorted(trusted - set(found)):
        yield Finding(
            "repositories", name, "failed", "trusted, but not a repository", _PURPOSE, required=True,
            fix=f"Register it with --repo {name}=PATH, or leave its --trust out.",
        )  # fmt: skip


def _repository(repository: Repository, cache: Path, trusted: bool) -> Finding:
    failure = next((said for place in _tops(repository) if (said := _unreadable(place))), "")
    files, size = _index(index_place(cache, repository))
    index = f"index of {files:,} files, {size / 2**20:,.1f} MiB" if files else "no index yet (opscope index builds it)"
    imported = "installed" if repository.installed else "trusted" if trusted else "read only, not imported"
    parts = [str(repository.root), repository.version or "no version", imported, index]
    return Finding(
        "repositories", repository.name, "failed" if failure else "ok", failure or ", ".join(parts), _PURPOSE,
        required=True, fix="Look at its permissions, or leave the repository out." if failure else "",
        facts={
            "root": str(repository.root), "packages": list(repository.packages), "version": repository.version,
            "installed": repository.installed, "trusted": trusted, "indexed_files": files, "index_bytes": size,
        },
    )  # fmt: skip


def _tops(repository: Repository) -> list[Path]:
    return [repository.root / package for package in repository.packages] or [repository.root]


def _unreadable(folder: Path) -> str:
    """Why a folder cannot be listed; '' where it can."""
    try:
        with os.scandir(folder) as entries:
            next(entries, None)
    except OSError as error:
        return f"{folder} cannot be read: {error.strerror}"
    return ""


def _index(place: Path) -> tuple[int, int]:
    """Files in an index, and its bytes; read without making one, and without waiting for who writes it."""
    try:
        size = place.stat().st_size
        connection = sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True, timeout=1)
    except (OSError, sqlite3.Error):
        return 0, 0
    try:
        return int(connection.execute("SELECT count(*) FROM files").fetchone()[0]), size
    except sqlite3.Error:
        return 0, size
    finally:
        connection.close()


# ---- the cache


def _cache_folder(session: SessionOptions) -> Path:
    return (Path(session.cache_dir) if session.cache_dir else default_folder()).expanduser().absolute()


def cache(session: SessionOptions) -> Finding:
    """Whether results can be kept: the folder, what it takes, whether a file can be written there."""
    folder, purpose = _cache_folder(session), "keeps results and indexes"
    there = next(place for place in (folder, *folder.parents) if place.exists())
    failure = _unwritable(there)
    size = sum(_size(Path(top) / name) for top, _, names in os.walk(folder) for name in names)
    said = failure or f"{folder}, {size / 2**20:,.1f} MiB" + ("" if folder.exists() else ", made at first use")
    return Finding(
        "cache", "folder", "failed" if failure else "ok", said, purpose, required=True,
        fix="Name another one with --cache-dir or OPSCOPE_CACHE_DIR." if failure else "",
        facts={"folder": str(folder), "bytes": size, "writable": not failure},
    )  # fmt: skip


def _unwritable(folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0
