"""Autotune configurations of a package as Python makes them: its modules imported, their `Autotuner.configs` read.

A script for a process of its own: ROOT, further import paths, and the package's top folder. Modules are imported one by
one, without what the top package imports; those that do not import here are counted. Writes one JSON object.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import types
import warnings
from pathlib import Path
from typing import Any


def main() -> None:
    root, *more, top = sys.argv[1:]
    sys.path[:0] = [root, *more]
    warnings.simplefilter("ignore")
    package = types.ModuleType(top)
    package.__path__ = [str(Path(root, top))]
    vars(package)["__version__"] = "0"
    sys.modules[top] = package
    found: dict[str, list[Any]] = {}
    failed: dict[str, str] = {}
    for path in sorted(Path(root, top).rglob("*.py")):
        text = path.read_text()
        if "autotune" not in text or "backends" in path.parts:
            continue
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                module = importlib.import_module(name)
        except Exception as error:  # whatever a module of others raises
            failed[name] = f"{type(error).__name__}: {error}"[:200]
            continue
        for value in vars(module).values():
            while value is not None and not hasattr(value, "configs") and hasattr(value, "fn"):
                value = value.fn
            if not hasattr(value, "configs"):
                continue
            function = value
            while hasattr(function, "fn"):
                function = function.fn
            if getattr(function, "__module__", "") == name:
                found[f"{path.relative_to(root)}::{function.__name__}"] = [
                    [c.kwargs, c.num_warps, c.num_stages] for c in value.configs
                ]
    sys.stdout.write(f"\n{json.dumps({'found': found, 'failed': failed})}\n")


if __name__ == "__main__":
    main()
