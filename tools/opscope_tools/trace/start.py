"""Starts the trace worker in whatever interpreter runs this file: `PYTHON start.py SPECIFICATION`, run by path.

SPECIFICATION is JSON: `seal`, the filter of system calls that holds from here on (hexadecimal digits, empty: none);
`packages`, the folders of opscope's own packages and of repositories that are one; `roots`, folders of loose modules.

Packages are found one by one, never through a search path: what lies beside them (where opscope is installed as a wheel: its
torch, transformers, pydantic; beside a repository: anything) must not stand in for what the interpreter has. Roots come after the
standard library and before what is installed.
"""

from __future__ import annotations

import json
import runpy
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType


class Packages:
    """Finds the packages in the given folders, and nothing else that lies beside them."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = {Path(folder).name: Path(folder) for folder in folders}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package of this name; None for all others, submodules among them: these are found in their package."""
        del target
        folder = self._folders.get(name) if path is None else None
        if folder is None:
            return None
        return spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])


def after_the_standard_library(roots: Sequence[str]) -> None:
    """Put folders on the search path where they hide nothing of the standard library."""
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    places = [i for i, entry in enumerate(sys.path) if entry in own or entry.endswith(("lib-dynload", ".zip"))]
    at = max(places, default=-1) + 1
    sys.path[at:at] = roots


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given["seal"]:  # before anything starts a thread
        sealing = runpy.run_path(str(Path(__file__).parents[1] / "children/seal.py"))
        sealing["seal"](bytes.fromhex(given["seal"]))
    sys.meta_path.insert(0, Packages(given["packages"]))
    after_the_standard_library(given["roots"])
    runpy.run_module("opscope_tools.trace.worker", run_name="__main__", alter_sys=True)
