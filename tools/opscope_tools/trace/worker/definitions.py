"""Imports the definitions that the server found in source, and nothing else.

Before a package or module is imported, its place is looked up; it has to lie below the root that the index read. What the
module then holds under the name has to be the definition itself: a class or function made there, not one handed on.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

from opscope_schemas.errors import TraceError, UnknownNameError

from opscope_tools.trace.protocol import Definition

#: how libraries say which distribution they miss
_MISSING = (
    re.compile(r"[`']([A-Za-z][\w.-]*)[^`']*[`'] distribution was not found"),
    re.compile(r"requires the `?([A-Za-z][\w.-]*)`? (?:library|package|module)"),
    re.compile(r"pip install (?:-U |--upgrade )?[`']?([A-Za-z][\w.-]*)"),
    re.compile(r"No module named '(\w+)"),
    re.compile(r"[`'\"]?([A-Za-z][\w-]*)[`'\"]? (?:is|was) not (?:installed|found)"),
)


def imported(definition: Definition) -> Any:
    """The class or function; raises `TraceError` where what would be imported is not what the index read."""
    qualified = f"{definition.module}.{definition.name}"
    module = _module(definition, qualified)
    found: Any = module
    for part in definition.name.split("."):
        found = vars(found).get(part) if isinstance(found, type) or found is module else None
        found = getattr(found, "__func__", found) if isinstance(found, staticmethod | classmethod) else found
    if found is None:
        raise UnknownNameError(definition.kind, qualified)
    made_here = _is_class(found, definition) if definition.kind == "class" else _is_function(found, definition)
    if not made_here:
        raise TraceError(
            f"{qualified} is not the {definition.kind} of {definition.file}:{definition.line} when it is imported.",
            next_step="Name the definition itself, not a name that something else is bound to.",
        )
    return found


def missing_package(error: BaseException) -> str:
    """The package whose absence an error reports, itself or through those that it was raised from; '' where it reports none."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain and len(chain) < 10:
        chain.append(at)
        at = at.__cause__ or at.__context__
    for one in reversed([e for e in chain if isinstance(e, ImportError)]):
        text = " ".join(str(one).split())
        for pattern in _MISSING:
            if found := pattern.search(text):
                return found[1].rstrip(".")
    return ""


def _module(definition: Definition, qualified: str) -> Any:
    """The module, each package on the way checked before it is imported."""
    parts = definition.module.split(".")
    for size in range(1, len(parts) + 1):
        name = ".".join(parts[:size])
        try:
            if name not in sys.modules and not _found_below(name, definition.root):
                _refuse(definition, qualified)
            importlib.import_module(name)
        except TraceError:
            raise
        except Exception as error:
            _cannot(qualified, error)
    module = sys.modules[definition.module]
    file = getattr(module, "__file__", None)
    if file is None or Path(file).resolve() != _file(definition):
        _refuse(definition, qualified)
    return module


def _found_below(name: str, root: str) -> bool:
    """Whether the import system would take a module from below the root; its parents are imported already."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    places = [*(spec.submodule_search_locations or ())] or [spec.origin or ""]
    return any(_below(place, root) for place in places)


def _below(path: str, root: str) -> bool:
    return Path(path).resolve().is_relative_to(Path(root).resolve())


def _file(definition: Definition) -> Path:
    return (Path(definition.root) / definition.file).resolve()


def _is_class(found: Any, definition: Definition) -> bool:
    """Whether a class was made in the definition's file: it says so, or its own methods do."""
    if not isinstance(found, type):
        return False
    codes = [getattr(value, "__code__", None) for value in vars(found).values()]
    file = _file(definition)
    return found.__module__ == definition.module or any(
        code is not None and Path(code.co_filename).resolve() == file for code in codes
    )


def _is_function(found: Any, definition: Definition) -> bool:
    """Whether a function, or the one that a decorator wraps, was made at the definition's lines."""
    for _ in range(20):
        inner = getattr(found, "__wrapped__", None)
        if inner is None:
            break
        found = inner
    code = getattr(found, "__code__", None)
    return (
        code is not None
        and Path(code.co_filename).resolve() == _file(definition)
        and code.co_name == definition.name.rpartition(".")[2]
    )


def _refuse(definition: Definition, qualified: str) -> NoReturn:
    raise TraceError(
        f"{qualified} would not be imported from {definition.root}, where it was read, but from another place.",
        next_step="Give the repository a name of its own, or trace with an interpreter that has no package of that name.",
    )


def _cannot(qualified: str, error: Exception) -> NoReturn:
    if package := missing_package(error):
        raise TraceError(
            f"Tracing {qualified} needs the package {package}, which is not installed.",
            next_step=f"Install {package} beside opscope.",
        ) from error
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    raise TraceError(
        f"{qualified} cannot be imported: {type(error).__name__}: {said[:200].rstrip('.')}.",
        next_step="See that the package imports in that interpreter.",
    ) from error


__all__ = ["imported", "missing_package"]
