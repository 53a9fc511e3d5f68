"""Which folders are packages where no `__init__.py` says so, and which folders packages lie in.

Three things tell: what the manifest of the project declares, absolute imports and console scripts that lead into a folder,
and the folders below a package. Without them a name of such a project leads nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from opscope_tools.survey.facts import FileFacts

__all__ = ["Roots", "as_folder", "declared_folders", "folders_above", "roots_of", "table"]


@dataclass(frozen=True)
class Roots:
    """`packages` are all folders that are packages, `tops` those that no other holds, `holders` what these lie in."""

    packages: frozenset[str]
    tops: tuple[str, ...]
    holders: tuple[str, ...]


def roots_of(
    files: Iterable[str], facts: Iterable[FileFacts], declared: Collection[str], named: Iterable[str]
) -> Roots:
    """The packages among `files`; `declared` are folders that the manifest says packages lie in, `named` are modules that
    console scripts name."""
    python = [file for file in files if file.endswith(".py")]
    regular = {file.removesuffix("/__init__.py") for file in python if file.endswith("/__init__.py")}
    folders = {folder for file in python for folder in folders_above(file)}
    first = tops = {one for one in regular if not _inside(one, regular)}
    tops = tops | {
        one for one in folders if one.rpartition("/")[0] in declared and "/" in one and not _inside(one, tops)
    }
    tops |= {one for one in _imported_folders(facts, named, folders, set(python)) if not _inside(one, tops)}
    tops = {one for one in tops if not _inside(one, tops)}
    below = {one for one in folders if one in tops or _inside(one, tops)}
    held = {"", *declared, *(one.rpartition("/")[0] for one in first | tops)}
    holders = sorted(held, key=lambda one: (one.count("/"), one))
    return Roots(frozenset(regular | below), tuple(sorted(tops)), tuple(holders))


def folders_above(path: str) -> Iterator[str]:
    """Every folder that holds `path`, the nearest first."""
    while path := path.rpartition("/")[0]:
        yield path


def _inside(folder: str, packages: Collection[str]) -> bool:
    return any(above in packages for above in folders_above(folder))


def _imported_folders(
    facts: Iterable[FileFacts], named: Iterable[str], folders: Collection[str], files: Collection[str]
) -> Iterator[str]:
    """The folders that absolute imports begin in: `a` of `import a.b`, where a folder `a` has a module or folder `b`."""
    called: dict[str, list[str]] = {}
    for folder in sorted(folders, key=lambda one: (one.count("/"), one)):
        called.setdefault(folder.rpartition("/")[2], []).append(folder)
    asked = {
        (one.module, one.member) for held in facts for one in held.imports if one.module.partition(".")[0] in called
    }
    asked |= {(module, "") for module in named if module.partition(".")[0] in called}
    for module, member in sorted(asked):
        top, _, rest = module.partition(".")
        inner = rest.replace(".", "/") or member
        found = next((f for f in called[top] if inner and _leads(f"{f}/{inner}", folders, files)), None)
        if found is not None:
            yield found


def _leads(stem: str, folders: Collection[str], files: Collection[str]) -> bool:
    return stem in folders or f"{stem}.py" in files


def declared_folders(pyproject: Mapping[str, object]) -> Iterator[str]:
    """Folders that the tables of a build backend say packages lie in: setuptools, hatch, poetry, pdm, maturin, uv."""
    tool = table(pyproject, "tool")
    setuptools = table(tool, "setuptools")
    yield from _texts(table(setuptools, "package-dir").get(""))
    find = table(table(setuptools, "packages"), "find")
    yield from _texts(find.get("where"))
    wheel = table(table(table(table(tool, "hatch"), "build"), "targets"), "wheel")
    for package in _texts(wheel.get("packages")):
        yield package.rpartition("/")[0]
    packages = table(tool, "poetry").get("packages")
    for one in packages if isinstance(packages, list) else ():
        yield from _texts(one.get("from") if isinstance(one, dict) else None)
    yield from _texts(table(table(tool, "pdm"), "build").get("package-dir"))
    yield from _texts(table(tool, "maturin").get("python-source"))
    yield from _texts(table(table(tool, "uv"), "build-backend").get("module-root"))


def table(held: Mapping[str, object], name: str) -> dict[str, object]:
    """The table `name` of a TOML table; empty where it has none."""
    inner = held.get(name)
    return inner if isinstance(inner, dict) else {}


def _texts(value: object) -> list[str]:
    """A text, or the texts of a list, as folders."""
    return [as_folder(one) for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]


def as_folder(text: str) -> str:
    """A folder as paths of this code spell it: no dots and slashes around it."""
    return text.strip().removeprefix("./").strip("/").removeprefix(".")
