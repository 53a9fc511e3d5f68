"""One workspace for all tests of a process that trace: its worker imports torch once, and traces are kept on disk for all processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory, index_folder: Path) -> Iterator[Workspace]:
    found = Workspace.create(cache_folder=index_folder, output=tmp_path_factory.mktemp("output"))
    found.config_places = (tmp_path_factory.getbasetemp(),)
    yield found
    close_engines(found)
    found.store.close()


@pytest.fixture(scope="session")
def context(workspace: Workspace) -> ToolContext:
    return ToolContext(workspace)
