"""Starts the trace worker in whatever interpreter runs this file: `PYTHON start.py SEAL FOLDER...`, run by path.

SEAL is the filter of system calls that holds from here on, as hexadecimal digits; empty where there is none.

The folders are opscope's own packages. They are found one by one, never through a search path: where opscope is
installed as a wheel, its torch, transformers and pydantic lie beside them and must not stand in for the interpreter's.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType


class Packages:
    """Finds the packages in the given folders, and nothing else that lies beside them."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._places = {Path(folder).name: str(Path(folder).parent) for folder in folders}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package as Python's own finder finds it in its parent folder; None for other names."""
        return (
            PathFinder.find_spec(name, [self._places[name]], target) if path is None and name in self._places else None
        )


if __name__ == "__main__":
    if sys.argv[1]:  # before anything starts a thread
        sealing = runpy.run_path(str(Path(__file__).parents[1] / "children/seal.py"))
        sealing["seal"](bytes.fromhex(sys.argv[1]))
    sys.meta_path.insert(0, Packages(sys.argv[2:]))
    runpy.run_module("opscope_tools.trace.worker", run_name="__main__", alter_sys=True)
