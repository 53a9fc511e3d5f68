"""benchmarks/tools.py as a module: what the list of tools may cost is written there alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def measured() -> ModuleType:
    """The benchmark, loaded by its path."""
    spec = importlib.util.spec_from_file_location("opscope_list", Path(__file__).parents[2] / "benchmarks" / "tools.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
