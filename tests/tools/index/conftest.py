"""Indexes to ask: one over the installed packages, and small packages written for one test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_tools.index import Index, open_index
from opscope_tools.running.workspace import folder_repository, installed_repository

Package = Callable[[Mapping[str, str | bytes]], Index]


@pytest.fixture(scope="session")
def installed() -> list[Repository]:
    found = [installed_repository("transformers", "transformers"), installed_repository("pytorch", "torch")]
    return [repository for repository in found if repository is not None]


@pytest.fixture(scope="session")
def installed_index(installed: list[Repository], index_folder: Path) -> Index:
    """The installed packages, their index built."""
    return open_index(installed, MemoryStore(index_folder))


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """Write files and open an index over their folder."""

    def write(files: Mapping[str, str | bytes]) -> Index:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return open_index([folder_repository("mine", tmp_path)], MemoryStore())

    return write
