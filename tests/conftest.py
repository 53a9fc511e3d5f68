"""What tests of several packages share."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock
from opscope_tools.index.build import build
from opscope_tools.index.places import index_place
from opscope_tools.workspace import DEFAULT_PACKAGES, installed_repository


@pytest.fixture(scope="session")
def index_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with the whole index of the installed packages, built once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "opscope-index"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "first"):
        for name, package in DEFAULT_PACKAGES.items():
            repository = installed_repository(name, package)
            assert repository is not None
            assert build(index_place(folder, repository), repository.root, repository.packages)
    return folder
