"""Run as a program: import the modeling files named on the command line and print, as JSON, what Python made of their
module classes. The other side of the comparison in test_index_runtime.py; shares no code with the index."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import sys
import warnings
from typing import Any


@functools.cache
def definitions(file: str) -> dict[tuple[str, int], int]:
    """(name, line of the statement or of its first decorator) -> line of the `class` or `def` keyword."""
    with open(file, encoding="utf-8") as stream:  # noqa: PTH123 (a program of its own)
        tree = ast.parse(stream.read())
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            for line in [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]:
                found[node.name, line] = node.lineno
    return found


def qualified(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def describe(cls: Any) -> dict[str, object]:
    file = str(inspect.getsourcefile(cls))
    code = getattr(inspect.unwrap(cls.forward), "__code__", None)
    forward = None
    if code is not None and code.co_name != "_forward_unimplemented":
        forward = [code.co_filename, definitions(code.co_filename)[code.co_name, code.co_firstlineno]]
    return {
        "file": file,
        "line": definitions(file)[cls.__name__, inspect.getsourcelines(cls)[1]],
        "forward": forward,
        "mro": [qualified(base) for base in cls.__mro__],
    }


def children(cls: str) -> dict[str, dict[str, list[str]]]:
    """Submodules by class of the model that the class's default config builds, without weights."""
    import torch

    module, _, name = cls.rpartition(".")
    made = getattr(importlib.import_module(module), name)
    with torch.device("meta"):
        model = made(made.config_class())
    found: dict[str, dict[str, list[str]]] = {}
    for inner in model.modules():
        held = found.setdefault(qualified(type(inner)), {})
        for attribute, child in inner.named_children():
            names = held.setdefault(attribute, [])
            names.extend({qualified(type(child))} - set(names))
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    from torch import nn

    request = json.load(sys.stdin)
    classes: dict[str, object] = {}
    for module in request["modules"]:
        try:
            loaded = importlib.import_module(module)
        except ImportError:
            continue
        for name, cls in vars(loaded).items():
            if (
                isinstance(cls, type)
                and issubclass(cls, nn.Module)
                and cls.__module__ == module
                and cls.__name__ == name
            ):
                classes[qualified(cls)] = describe(cls)
    import transformers

    exports = {}
    for name in request["exports"]:
        value = getattr(transformers, name, None)
        if isinstance(value, type):
            exports[name] = qualified(value)
    models = {name: children(name) for name in request["models"]}
    print(json.dumps({"classes": classes, "exports": exports, "models": models}))  # noqa: T201 (its answer)


if __name__ == "__main__":
    main()
