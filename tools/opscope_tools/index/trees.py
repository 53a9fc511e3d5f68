"""One repository as modules: which file a dotted name is, what a file says, and in which files a class name occurs.

Rows of a file are kept in the store under the file's digest; in this process they are trusted as long as the file's
stat does not change. The table of class names is kept under the tree's fingerprint, which is taken anew after
`RECHECK_SECONDS` and whenever a name is missing from the table.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opscope_cache import keys
from opscope_cache.store import Store
from opscope_schemas.common import Repository
from opscope_schemas.errors import SourceError

from opscope_tools.index.rows import (
    AssignRow,
    ClassRow,
    FileDetails,
    FileRows,
    FunctionRow,
    ImportRow,
    Row,
    decode,
    encode,
)  # fmt: skip
from opscope_tools.index.symbols import details, extract

RECHECK_SECONDS = 2.0
_SKIPPED = {"__pycache__", ".git", ".hg", ".venv", "node_modules"}
#: no anchor in front: a pattern that begins with a literal is searched several times faster
_CLASS = re.compile(rb"class[ \t]+(\w+)[ \t]*(?:\(([^)]*)|:|\[)")
_TAIL = re.compile(r"([A-Za-z_]\w*)\s*(?:\[|$)")


@dataclass(eq=False)
class Unit:
    """A source file as a module."""

    tree: SourceTree
    file: str
    name: str
    is_package: bool
    rows: FileRows

    @cached_property
    def bindings(self) -> dict[str, list[Row]]:
        """Module-level rows by the name they bind."""
        found: dict[str, list[Row]] = {}
        for row in self.rows.rows:
            found.setdefault(row.name, []).append(row)
        return found

    @cached_property
    def stars(self) -> list[ImportRow]:
        return [row for row in self.rows.rows if isinstance(row, ImportRow) and row.member == "*"]

    @cached_property
    def details(self) -> FileDetails:
        """What the function bodies say; raises `SourceError` where expressions nest beyond reason."""
        try:
            return details(self.tree.source(self.file))
        except RecursionError:
            raise SourceError(f"{self.file} nests expressions too deeply to be read.", location=self.file) from None

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @property
    def template(self) -> bool:
        """A `modular_*.py` file: the template that the `modeling_*.py` beside it is generated from."""
        return self.file.rpartition("/")[2].startswith("modular_")

    @property
    def secondary(self) -> bool:
        """A file whose classes do not run: a template, or `dummy_*_objects.py`, which stand in for missing packages."""
        return self.template or re.fullmatch(r"dummy_\w*objects\.py", self.file.rpartition("/")[2]) is not None

    def classes(self) -> Iterator[tuple[str, ClassRow]]:
        """Every class with its name inside the module, nested ones and those inside functions included."""
        yield from _classes(self.rows.rows, "")

    def lazy_exports(self) -> dict[str, str]:
        """Names that `_import_structure` serves, with the submodule that holds each."""
        found: dict[str, str] = {}
        for row in self.rows.rows:
            if isinstance(row, AssignRow) and row.name == "_import_structure":
                for submodule, names in row.entries:
                    for name in re.findall(r"[\"'](\w+)[\"']", names):
                        found[name] = submodule
        return found


def _classes(rows: tuple[Row, ...], prefix: str) -> Iterator[tuple[str, ClassRow]]:
    for row in rows:
        if isinstance(row, ClassRow):
            yield prefix + row.name, row
            yield from _classes(row.body, f"{prefix}{row.name}.")
        elif isinstance(row, FunctionRow):
            yield from _classes(row.classes, f"{prefix}{row.name}.<locals>.")


class SourceTree:
    """The Python files of one repository."""

    def __init__(self, repository: Repository, store: Store) -> None:
        self.repository = repository
        self._store = store
        self._root = repository.root.resolve()
        self._units: dict[str, tuple[tuple[int, ...], Unit]] = {}
        self._table: dict[str, list[str]] = {}
        self._bases: dict[str, list[tuple[str, str]]] = {}
        self._fingerprint = ""
        self._lock = threading.Lock()
        self._checked = -1e9

    @cached_property
    def folders(self) -> list[str]:
        """Folders, relative to the root, that top-level packages lie in (`""`, `src`, `python`, ...)."""
        if self.repository.packages:
            return [""]
        found = [""]
        pending = [("", 0)]
        while pending:
            here, depth = pending.pop(0)
            for name, is_folder in _listing(self._root / here):
                inner = f"{here}/{name}" if here else name
                if is_folder and depth < 3 and not (self._root / inner / "__init__.py").is_file():
                    pending.append((inner, depth + 1))
                elif is_folder and depth < 4 and here not in found:
                    found.append(here)
        return found

    def locate(self, module: str) -> str | None:
        """The file of a dotted module name; None where the repository has none."""
        parts = module.split(".")
        if not all(parts) or (self.repository.packages and parts[0] not in self.repository.packages):
            return None
        for folder in self.folders:
            stem = "/".join([folder, *parts] if folder else parts)
            for file in (f"{stem}/__init__.py", f"{stem}.py"):
                if self.holds(file):
                    return file
        return None

    def holds(self, file: str) -> bool:
        """Whether `file` is a regular file of the repository; one that a symlink leads out of it is not."""
        path = self._root / file
        try:
            if not path.is_file():
                return False
        except (OSError, ValueError):  # a name that no file can have
            return False
        real = Path(os.path.realpath(path))
        return real.is_relative_to(self._root)

    def registered(self, file: str) -> bool:
        """Whether `file` is a Python file of this repository: inside its packages, and no link out of it."""
        parts = Path(file).parts
        if ".." in parts or Path(file).is_absolute() or not file.endswith(".py"):
            return False
        return (not self.repository.packages or parts[0] in self.repository.packages) and self.holds(file)

    def top_packages(self) -> list[str]:
        """Names of the top-level packages."""
        if self.repository.packages:
            return list(self.repository.packages)
        return [
            name
            for folder in self.folders
            for name, is_folder in _listing(self._root / folder)
            if is_folder and (self._root / folder / name / "__init__.py").is_file()
        ]

    def module_name(self, file: str) -> str:
        """The dotted name of a file: below the folder of packages that holds it."""
        folder = max((f for f in self.folders if not f or file.startswith(f + "/")), key=len)
        stem = file[len(folder) + 1 if folder else 0 :].removesuffix(".py").removesuffix("/__init__")
        return stem.replace("/", ".")

    def unit(self, file: str) -> Unit:
        """The module in `file`; raises `SourceError` where it cannot be read."""
        path = self._root / file
        try:
            stat = path.stat()
            signature = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
            known = self._units.get(file)
            if known is not None and known[0] == signature:
                return known[1]
            source = path.read_bytes()
        except OSError as error:
            raise SourceError(
                f"{file} cannot be read: {error.strerror}.", next_step="Check the file's permissions."
            ) from error
        key = keys.digest("index rows", keys.engine_version(), source)
        stored = self._store.get(key)
        rows = decode(stored.encode("latin-1")) if stored is not None else None
        if rows is None:
            try:
                rows = extract(source)
            except RecursionError:
                raise SourceError(f"{file} nests expressions too deeply to be read.", location=file) from None
            self._store.put(key, encode(rows).decode("latin-1"))
        unit = Unit(self, file, self.module_name(file), file.endswith("__init__.py"), rows)
        self._units[file] = (signature, unit)
        return unit

    def source(self, file: str) -> bytes:
        """The bytes of `file`."""
        return (self._root / file).read_bytes()

    def files(self) -> Iterator[str]:
        """Every Python file, relative to the root."""
        return self.files_below(*(self.repository.packages or ("",)))

    def files_below(self, *folders: str) -> Iterator[str]:
        """Python files below the folders; symlinked folders are not entered, so no loop is possible."""
        pending = list(folders)
        while pending:
            here = pending.pop()
            for name, is_folder in _listing(self._root / here):
                inner = f"{here}/{name}" if here else name
                if is_folder:
                    pending.append(inner)
                elif name.endswith(".py"):
                    yield inner

    def files_defining(self, name: str) -> list[str]:
        """Files that hold a line `class name`, in path order."""
        self._refresh(force=False)
        if name not in self._table:
            self._refresh(force=True)
        return self._table.get(name, [])

    def files_mentioning(self, word: str) -> list[str]:
        """Files whose text holds the identifier `word`, in path order."""
        wanted = word.encode()
        found = []
        for file in self.files():
            source = self.source(file)
            at = source.find(wanted)
            while at >= 0:
                around = source[at - 1 : at] + source[at + len(wanted) : at + len(wanted) + 1]
                if not re.search(rb"\w", around):
                    found.append(file)
                    break
                at = source.find(wanted, at + 1)
        return sorted(found)

    def textual_subclasses(self, name: str) -> list[tuple[str, str]]:
        """(class, file) of every class whose list of bases holds the bare name."""
        self._refresh(force=False)
        return self._bases.get(name, [])

    def class_names(self) -> list[str]:
        self._refresh(force=False)
        return list(self._table)

    def _refresh(self, *, force: bool) -> None:
        with self._lock:  # tools run in several threads; none may see a table half filled
            self._refresh_table(force=force)

    def _refresh_table(self, *, force: bool) -> None:
        now = time.monotonic()
        if now - self._checked < (0.2 if force else RECHECK_SECONDS):
            return
        fingerprint = keys.of_tree(self._root, self.repository.packages)
        self._checked = time.monotonic()
        if fingerprint == self._fingerprint:
            return
        key = keys.digest("class table", keys.engine_version(), fingerprint)
        stored = self._store.get(key)
        try:
            classes = json.loads(stored) if stored is not None else None
        except ValueError:
            classes = None
        if not isinstance(classes, dict):
            classes = self._scan()
            self._store.put(key, json.dumps(classes, separators=(",", ":")))
        table: dict[str, list[str]] = {}
        by_base: dict[str, list[tuple[str, str]]] = {}
        for file, found in classes.items():
            for name, bases in found:
                files = table.setdefault(name, [])
                if file not in files:
                    files.append(file)
                for base in bases:
                    by_base.setdefault(base, []).append((name, file))
        self._fingerprint, self._table, self._bases = fingerprint, table, by_base

    def _scan(self) -> dict[str, list[tuple[str, list[str]]]]:
        """file -> classes with the last names of their bases, by a regular expression over the bytes."""
        found: dict[str, list[tuple[str, list[str]]]] = {}
        for file in sorted(self.files()):
            try:
                source = (self._root / file).read_bytes()
            except OSError:
                continue
            classes = []
            for match in _CLASS.finditer(source):
                start = match.start()
                if source[source.rfind(b"\n", 0, start) + 1 : start].strip(b" \t"):
                    continue  # prose, or part of a longer name
                texts = (match[2] or b"").decode("utf-8", "replace").split(",")
                tails = [tail[1] for text in texts if "=" not in text and (tail := _TAIL.search(text.strip()))]
                classes.append((match[1].decode("utf-8", "replace"), tails))
            if classes:
                found[file] = classes
        return found


def _listing(folder: Path) -> list[tuple[str, bool]]:
    """(name, is a folder) of the entries of `folder` in name order; links to folders are left out."""
    try:
        with os.scandir(folder) as entries:
            found = [
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in entries
                if entry.name not in _SKIPPED and not (entry.is_symlink() and entry.is_dir())
            ]
    except OSError:
        return []
    return sorted(found)
