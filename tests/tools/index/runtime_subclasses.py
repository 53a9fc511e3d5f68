"""Run as a program: import the modules asked for on standard input and print, as JSON, the subclasses that Python keeps
of each base, those that a `class` statement outside functions made. Shares no code with the index."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import json
import sys
import warnings
from pathlib import Path


@functools.cache
def statements(file: str) -> frozenset[str]:
    """Qualified names, inside the module, of the classes that the file's statements define."""
    found = set()

    def visit(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = path
            if isinstance(child, ast.ClassDef):
                found.add(path + child.name)
                inner = f"{path}{child.name}."
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                continue  # made when the function runs, as often as it runs
            visit(child, inner)

    visit(ast.parse(Path(file).read_text(encoding="utf-8")), "")
    return frozenset(found)


def home(cls: type) -> str | None:
    """The qualified name of the statement that made the class, whatever `__module__` was set to; None for a class that
    no statement outside functions made."""
    modules = [cls.__module__, *(name for name in sys.modules if name.startswith(("torch", "transformers")))]
    for name in modules:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or not Path(file).is_file():
            continue
        if cls.__qualname__ not in statements(file):
            continue
        if name == cls.__module__ or vars(module).get(cls.__qualname__) is cls:
            return f"{name}.{cls.__qualname__}"
    return None


def main() -> None:
    warnings.simplefilter("ignore")
    request = json.load(sys.stdin)
    for module in request["modules"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    bases = {}
    for base in request["bases"]:
        module, _, name = base.rpartition(".")
        bases[base] = getattr(importlib.import_module(module), name)
    found = {}
    for base, cls in bases.items():
        found[base] = sorted({name for made in cls.__subclasses__() if (name := home(made))})
    print(json.dumps({"subclasses": found, "imported": sorted(sys.modules)}))  # noqa: T201 (its answer)


if __name__ == "__main__":
    main()
