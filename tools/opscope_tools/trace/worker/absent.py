"""Puts the stand-ins of kernels.py in the place of the real functions: of packages that are loaded, and of those that are absent.

`counted` does the first, while a module is built and run. `importable` lets packages of the table that are not installed be
imported, with the names that stand there and no other, so that code which can do without them still does. It is only
entered after an import or a run failed for want of one of them, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from opscope_tools.trace.protocol import Definition
from opscope_tools.trace.worker.kernels import COMPILED, FUSED, KNOWN, STAND_INS, Report, reports


@contextlib.contextmanager
def counted(report: Report | None = None, own: str = "") -> Iterator[None]:
    """Functions of loaded packages of the table are their stand-ins; with `report`, only who hears of them is said.

    So are the functions that modules of the package `own` define for machines that lack those kernels.
    """
    if report is not None:
        reports.append(report)
        try:
            yield
        finally:
            reports.pop()
        return
    changed: list[tuple[dict[Any, Any], Any, Any]] = []
    real = {**_real(), **(_plain(own) if own else {})}
    for module in list(sys.modules.values()) if real else ():
        holder = getattr(module, "__dict__", None)
        if isinstance(holder, dict) and not str(holder.get("__name__")).startswith(("torch", "opscope_tools")):
            for names in (holder, *(v for v in list(holder.values()) if type(v) is dict and len(v) < 200)):
                for name, value in list(names.items()):
                    if callable(value) and id(value) in real:
                        changed.append((names, name, value))
                        names[name] = real[id(value)]
    try:
        yield
    finally:
        for names, name, value in changed:
            names[name] = value


def _real() -> dict[int, Any]:
    """Identity of each loaded function of the table -> its stand-in."""
    found: dict[int, Any] = {}
    for name, module in list(sys.modules.items()):
        package = STAND_INS.get(name.partition(".")[0])
        if package and module is not None and not isinstance(module, _Absent):
            found.update({id(v): package[n] for n, v in vars(module).items() if n in package and callable(v)})
    return found


def _plain(package: str) -> dict[int, Any]:
    """Identity of each function that a package defines in the place of a kernel of the table, by the kernel's name or `torch_` and
    that name -> the kernel's stand-in."""
    kernels = {name: stand_in for table in STAND_INS.values() for name, stand_in in table.items() if name in FUSED}
    return {
        id(value): stand_in
        for name, module in list(sys.modules.items())
        if name == package or name.startswith(f"{package}.")
        for kernel, stand_in in kernels.items()
        for value in map(vars(module).get, (kernel, f"torch_{kernel}", f"torch_{kernel.removeprefix('fused_')}"))
        if getattr(value, "__module__", None) == name
    }


class _Absent(ModuleType):
    """A module of a package that is not installed: what the table knows of the package, and nothing else."""

    __path__: list[str] = []  # noqa: RUF012  # as the import system reads it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = STAND_INS.get(self.__name__.partition(".")[0], {}).get(name)
        if found is None:
            raise AttributeError(f"{self.__name__} is not installed, and no rule knows {name}")
        return found


class _Finder:
    """Last in the import system's list: finds what nothing else found."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        top = name.partition(".")[0]
        absent = top in STAND_INS and (top == name or isinstance(sys.modules.get(top), _Absent))
        return ModuleSpec(name, _Finder(), is_package=True) if absent or top in COMPILED else None  # type: ignore[arg-type]  # typeshed asks for more of a loader than importlib does

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        del module


@contextlib.contextmanager
def importable(definition: Definition) -> Iterator[None]:
    """Packages of the table that are missing can be imported; the definition's package is imported anew, and afterwards all is
    as before."""
    package = definition.module.partition(".")[0]

    def own(name: str, module: Any) -> bool:
        file = getattr(module, "__file__", None) or ""
        loose = "." not in name and "site-packages" not in file and Path(file).parent == Path(definition.root)
        return isinstance(module, _Absent) or name.partition(".")[0] == package or (bool(file) and loose)

    kept = {n: sys.modules.pop(n) for n, m in list(sys.modules.items()) if own(n, m)}
    finder: Any = _Finder
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name, module in list(sys.modules.items()):
            if own(name, module):
                del sys.modules[name]
        sys.modules.update(kept)


def remark() -> str:
    """Which packages are not there, where stand-ins took their place."""
    tops = sorted({n.partition(".")[0] for n, m in sys.modules.items() if isinstance(m, _Absent)})
    return f"Not installed, so its kernels are counted by their definitions: {', '.join(tops)}." if tops else ""


def names_known(text: str) -> bool:
    """Whether an error speaks of a package of the table."""
    return KNOWN.search(text) is not None


__all__ = ["counted", "importable", "names_known", "remark"]
