"""Run as a program: import modules and write, as JSON, what Python made of their module classes. The other side of the
comparisons in test_index_runtime.py and tests/sweep/index_classes.py; shares no code with the index.

Where a class stands is recorded while the `class` statement runs (`builtins.__build_class__`), so that the definition
that counts is known even where a file holds several of one name. What a name leads to is asked of the imported module.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import json
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: id of a class -> (the class, kept alive; module and name that its statement stands under; the code of its body)
BUILT: dict[int, tuple[type, str, types.CodeType]] = {}


def record_classes() -> None:
    """From now on, note for every class statement that runs where it stands."""
    build: Callable[..., Any] = builtins.__build_class__

    def recording(body: Any, *arguments: Any, **keywords: Any) -> Any:
        made = build(body, *arguments, **keywords)
        if isinstance(made, type):
            BUILT[id(made)] = (made, f"{body.__module__}.{body.__code__.co_qualname}", body.__code__)
        return made

    vars(builtins)["__build_class__"] = recording


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
    """What Python calls the class."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def defined_as(cls: type) -> str:
    """The class by where its statement stands; differs from `qualified` where `__module__` was assigned later."""
    known = BUILT.get(id(cls))
    return known[1] if known is not None else qualified(cls)


def place(cls: type) -> dict[str, Any]:
    """File and line of the class statement; the reason where none ran (`type(...)`)."""
    known = BUILT.get(id(cls))
    if known is None:
        return {"unplaced": "no class statement made it"}
    file, first = known[2].co_filename, known[2].co_firstlineno
    lines = [line for (_, start), line in definitions(file).items() if start == first]
    return {"file": file, "line": lines[0]} if lines else {"unplaced": f"nothing is defined at {file}:{first}"}


def forward_of(cls: Any) -> dict[str, Any]:
    """The def that runs as `forward`, wrappers taken off, and the class whose body holds it."""
    owner = next(base for base in cls.__mro__ if "forward" in vars(base))
    value = vars(owner)["forward"]  # not getattr: some are descriptors that only serve instances
    scripted = getattr(cls, "_methods", {}).get("forward") if type(value).__name__ == "_CachedForward" else None
    if scripted is not None:  # torch.jit compiles this def when an object is made
        value = scripted.original_method
    value = inspect.unwrap(value)
    code = getattr(value, "__code__", None)
    if code is None:
        return {"forward": None, "defined_in": None, "unread": f"forward is a {type(value).__name__}"}
    if code.co_name == "_forward_unimplemented":
        return {"forward": None, "defined_in": None}
    line = definitions(code.co_filename).get((code.co_name, code.co_firstlineno))
    if line is None:
        made = f"forward is {code.co_name} at {code.co_filename}:{code.co_firstlineno}"
        return {"forward": None, "defined_in": None, "unread": made}
    by_text = {base.__qualname__: base for base in cls.__mro__ if base.__module__ == value.__module__}
    holder = by_text.get(value.__qualname__.rpartition(".")[0], owner)
    found = {"forward": [code.co_filename, line], "defined_in": defined_as(holder)}
    return {**found, "replaced": "compiled by torch.jit"} if scripted is not None else found


def describe(cls: Any) -> dict[str, Any]:
    called = {} if qualified(cls) == defined_as(cls) else {"called": qualified(cls)}
    return {**place(cls), **forward_of(cls), **called, "mro": [defined_as(base) for base in cls.__mro__]}


def subclasses(cls: type) -> Iterator[type]:
    """Every class below `cls`, each once."""
    seen: set[type] = {cls}
    pending: list[type] = [cls]
    while pending:
        direct: list[type] = type.__subclasses__(pending.pop())
        for below in direct:
            if below not in seen:
                seen.add(below)
                pending.append(below)
                yield below


def importable(cls: type) -> bool:
    """Whether the class's own qualified name leads to it."""
    value: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        value = getattr(value, part, None)
    return value is cls


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


def load(modules: Iterable[str], note: Callable[[str], None]) -> dict[str, str]:
    """Import the modules; the error of each that does not import. `note` is told each name before its import."""
    failed = {}
    for module in modules:
        note(module)
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:
            text = " ".join(str(error).split())
            failed[module] = f"{type(error).__name__}: {text[:160]}"
    return failed


def exports(packages: Iterable[str], names: Iterable[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Dotted name -> the class it leads to, for all public names of the packages and for `names`; and the names that
    do not lead anywhere here, with the error. What is no class is left out."""
    wanted = [f"{package}.{name}" for package in packages for name in public(importlib.import_module(package))]
    found: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for dotted in dict.fromkeys([*wanted, *names]):
        package, _, name = dotted.rpartition(".")
        try:
            value = getattr(importlib.import_module(package), name)
        except Exception as error:
            failed[dotted] = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            continue
        if isinstance(value, type):
            found[dotted] = {"name": defined_as(value), **place(value)}
    return found, failed


def picks() -> dict[str, dict[str, str]]:
    """Auto class -> model type -> the class it picks for a configuration of that type without architectures."""
    from transformers.models.auto import configuration_auto, modeling_auto

    found: dict[str, dict[str, str]] = {}
    for name, cls in vars(modeling_auto).items():
        mapping = getattr(cls, "_model_mapping", None)
        if not isinstance(cls, type) or mapping is None or cls.__module__ != modeling_auto.__name__:
            continue
        for model_type in configuration_auto.CONFIG_MAPPING_NAMES:
            try:
                picked = mapping[configuration_auto.CONFIG_MAPPING[model_type]]
            except (KeyError, ImportError, AttributeError, ValueError):
                continue
            picked = picked[0] if isinstance(picked, tuple | list) else picked
            found.setdefault(name, {})[model_type] = defined_as(picked)
    return found


def public(module: Any) -> list[str]:
    names = {*dir(module), *getattr(module, "__all__", ())}
    return sorted(name for name in names if name.isidentifier() and not name.startswith("_"))


def main() -> None:
    request = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    record_classes()
    from torch import nn

    def note(module: str) -> None:
        if request.get("progress"):
            with open(request["progress"], "w", encoding="utf-8") as stream:  # noqa: PTH123
                stream.write(module)

    failed = load(request["modules"], note)
    wanted, tops = set(request["modules"]), tuple(request.get("tops", ()))
    classes: dict[str, Any] = {}
    twins: list[dict[str, Any]] = []
    for cls in [nn.Module, *subclasses(nn.Module)]:
        if cls.__module__ not in wanted and cls.__module__.split(".", 1)[0] not in tops:
            continue
        if importable(cls):
            classes[qualified(cls)] = describe(cls)
        else:
            twins.append({"name": qualified(cls), **describe(cls)})
    led, lost = exports(request.get("public", ()), request["exports"])
    models = {name: children(name) for name in request["models"]}
    answer = {
        "classes": classes, "unbound": twins, "failed": failed, "exports": led, "lost": lost, "models": models,
        "picks": picks() if request.get("picks") else {},
    }  # fmt: skip
    with open(request["answer"], "w", encoding="utf-8") as stream:  # noqa: PTH123
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
