"""What lies outside the registered source: the order of the standard library's classes, and which packages are there.

Only modules of the list below are imported, and only to read the order of the bases of their classes; of any other
package the index merely asks whether it can be found.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import types
from functools import cache

from opscope_tools.source.python.looks import note, said

#: modules of the standard library whose classes serve as bases; imported to read the order of their own bases
_STANDARD = frozenset(
    [
        "abc",
        "argparse",
        "ast",
        "builtins",
        "codecs",
        "collections",
        "collections.abc",
        "concurrent.futures",
        "configparser",
        "contextlib",
        "csv",
        "ctypes",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "html.parser",
        "http.server",
        "io",
        "json",
        "json.decoder",
        "json.encoder",
        "logging",
        "multiprocessing",
        "numbers",
        "os",
        "pathlib",
        "pickle",
        "queue",
        "random",
        "socketserver",
        "string",
        "threading",
        "tokenize",
        "types",
        "typing",
        "unittest",
        "unittest.case",
        "unittest.mock",
        "warnings",
        "weakref",
    ]
)


@cache
def standard_order(name: str) -> tuple[str, ...]:
    """The MRO of a class that is not in source: read off the interpreter for the standard library, else itself."""
    special = {"typing.NamedTuple": ("tuple", "object"), "typing.TypedDict": ("dict", "object")}
    if name in special:
        return special[name]
    module, _, attribute = name.rpartition(".")
    module = module or "builtins"
    if module not in _STANDARD:
        return (name, "object")
    try:
        value = vars(importlib.import_module(module))[attribute]
        bases = types.resolve_bases((value,))
    except (ImportError, KeyError, TypeError):
        return (name, "object")
    found = [c for c in bases if isinstance(c, type)]
    names = list(dict.fromkeys(_standard_name(c) for base in found for c in base.__mro__))
    return (*(n for n in names if n != "object"), "object") if names else (name, "object")


def is_standard(name: str) -> bool:
    """Whether the name is that of a class of the standard library whose bases `standard_order` knows."""
    return (name.rpartition(".")[0] or "builtins") in _STANDARD


@cache
def metaclass_module(name: str) -> str | None:
    """The module that classes made by calling a metaclass of the standard library say they stand in; "" for that of the
    caller; None where `name` is no such metaclass."""
    module, _, attribute = name.rpartition(".")
    if module not in _STANDARD:
        return None
    value = vars(importlib.import_module(module)).get(attribute)
    if not isinstance(value, type) or not issubclass(value, type):
        return None
    # `type.__new__` takes the module of the frame that calls it, which is the metaclass's own where that is Python
    code = getattr(value.__new__, "__globals__", None)
    return str(code["__name__"]) if code is not None else ""


def installed_version(package: str) -> str | None:
    """The version of an installed package; None where there is none of that name."""
    found = _installed_version(package)
    note("version", "", package, lambda: (found or "").encode())
    return found


@cache
def _installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _standard_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def is_installed(top: str) -> bool:
    """Whether a top-level package can be found; finding one does not import it, as finding what lies in one would."""
    found = _is_installed(top)
    note("installed", "", top, lambda: said(found))
    return found


@cache
def _is_installed(top: str) -> bool:
    if not top.isidentifier():
        return False
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False
