"""Modules that a test writes: to trace them as a user's repository, and to run them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace


def trusted(folder: Path, cache: Path) -> Iterator[ToolContext]:
    """A session in which the code of a folder may be traced; it ends when it is asked for more."""
    workspace = Workspace.create(repositories=[("mine", folder)], cache_folder=cache, trusted=["mine"])
    yield ToolContext(workspace)
    close_engines(workspace)
    workspace.store.close()


def imported(file: Path) -> Any:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
