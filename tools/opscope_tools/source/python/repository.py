"""One repository as modules: which file a dotted name is, what a file says, and which files a name occurs in.

What a file says comes from the index on disk (database.py) where its entry is for the file as it is now, else from
reading the file, which makes the entry. Tables are asked for the files that have an entry; the others are searched as
text first, and those that hold the name are read, so that an answer is the same with a whole index, a part of one or
none. Nothing is answered from before a change: `Tree.now` tells which files differ from their entries, and a file that a
table names is one of the repository's or it is not looked at.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from opscope_cache.trees import PYTHON, Signature, tree_at
from opscope_schemas.common import Repository
from opscope_schemas.errors import SourceError

from opscope_tools.source.python.file_rows import syntax_errors
from opscope_tools.source.python.looks import note, said
from opscope_tools.source.python.rows import (
    AssignRow,
    ClassRow,
    FileRows,
    ImportRow,
    Row,
    decode,
    decode_lines,
    encode,
)  # fmt: skip
from opscope_tools.source.storage.database import Database, Place
from opscope_tools.source.storage.entries import (
    IDENTIFIER,
    SIZE_LIMIT,
    classes,
    entry_of,
    read_rows,
    readable,
    signature_now,
)
from opscope_tools.source.storage.places import index_place

_T = TypeVar("_T")

#: modules kept in memory, the least recently used go first
_UNITS = 150
#: changed files that a question reads by the way; where there are more, it is the index that is missing
_FEW = 60
#: no anchor in front: a pattern that begins with a literal is searched several times faster
_CLASS = re.compile(rb"class[ \t]+(\w+)[ \t]*[(:\[]")


class Kept:
    """What others have worked out of an object, each under its own type, beside it: what refers back can lie nowhere else and be let go."""

    def __init__(self) -> None:
        self._held: dict[type, Any] = {}

    def of(self, kind: type[_T], make: Callable[[], _T]) -> _T:
        """What is held of that type; made where nothing is."""
        found: _T = self._held[kind] if kind in self._held else self._held.setdefault(kind, make())
        return found


@dataclass(eq=False)
class Unit:
    """A source file as a module."""

    tree: SourceTree
    file: str
    name: str
    is_package: bool
    rows: FileRows
    #: of this state of the file
    kept: Kept = field(default_factory=Kept)

    @cached_property
    def bindings(self) -> dict[str, list[Row]]:
        """Module-level rows by the name they bind."""
        found: dict[str, list[Row]] = {}
        for row in self.rows.rows:
            found.setdefault(row.name, []).append(row)
        return found

    @cached_property
    def stars(self) -> list[ImportRow]:
        """Its `from module import *` lines, in order."""
        return [row for row in self.rows.rows if isinstance(row, ImportRow) and row.member == "*"]

    @cached_property
    def syntax_errors(self) -> tuple[int, ...]:
        """The lines that do not parse, ten at most; raises `SourceError` where expressions nest beyond reason."""
        return self.tree.syntax_errors(self.file)

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
        yield from classes(self.rows.rows)

    def lazy_exports(self) -> dict[str, str]:
        """Names that `_import_structure` serves, with the submodule that holds each."""
        found: dict[str, str] = {}
        for row in self.rows.rows:
            if isinstance(row, AssignRow) and row.name == "_import_structure":
                for submodule, names in row.entries:
                    for name in re.findall(r"[\"'](\w+)[\"']", names):
                        found[name] = submodule
        return found


class SourceTree:
    """The Python files of one repository; its index lies in `folder`, or in memory where that is None.

    `on_cold` is called when a question finds most files without an entry: whoever can build the index should.
    """

    def __init__(
        self, repository: Repository, folder: Path | None = None, on_cold: Callable[[SourceTree], None] | None = None
    ) -> None:
        self.repository = repository
        self._root = repository.root.resolve()
        self._tree = tree_at(self._root, repository.packages, PYTHON)
        self._database = Database(index_place(folder, repository) if folder is not None else None)
        self._on_cold = on_cold
        self._units: OrderedDict[str, tuple[Signature, Unit]] = OrderedDict()
        self._lock = threading.RLock()
        self._inside: set[str] = set()
        self._folders: tuple[Mapping[str, Signature] | None, list[str]] = (None, [""])
        #: the files as of the last question
        self._listed: Mapping[str, Signature] = {}
        #: the files and the entries that were last found to match
        self._complete: tuple[Mapping[str, Signature], Mapping[str, Signature]] | None = None

    @property
    def place(self) -> Path | None:
        """The file of the index; None where it is kept in memory."""
        return self._database.place

    def close(self) -> None:
        """Close its rows on disk; nothing can be asked afterwards."""
        self._database.close()

    @property
    def folders(self) -> list[str]:
        """Folders, relative to the root, that top-level packages lie in (`""`, `src`, `python`, ...), the root first."""
        if self.repository.packages:
            return [""]
        files = self._now()
        if self._folders[0] is not files:
            packages = {file.removesuffix("/__init__.py") for file in files if file.endswith("/__init__.py")}
            # a package inside another one, also below a folder that is none itself, belongs to that one
            tops = [package for package in packages if not any(above in packages for above in _above(package))]
            holders = {package.rpartition("/")[0] for package in tops}
            self._folders = (files, sorted({"", *holders}, key=lambda folder: (folder.count("/"), folder)))
        note("folders", self.repository.name, "", lambda: _joined(self._folders[1]))
        return self._folders[1]

    def locate(self, module: str, beside: str = "") -> str | None:
        """The file of a dotted module name, as the file `beside` may import it where one asks; None where the repository
        has none."""
        parts = module.split(".")
        if not all(parts) or (self.repository.packages and parts[0] not in self.repository.packages):
            return None
        for folder in (*self.folders, *self._above_script(beside, parts[0])):
            stem = "/".join([folder, *parts] if folder else parts)
            for file in (f"{stem}/__init__.py", f"{stem}.py"):
                if self.holds(file):
                    return file
        return None

    def _above_script(self, file: str, top: str) -> Iterator[str]:
        """Where else a file outside packages may import `top` from: its own folder, and what holds a folder `top` above it."""
        folder = file.rpartition("/")[0]
        if not folder or self.repository.packages or self.holds(f"{folder}/__init__.py"):
            return
        yield folder
        for above in (folder, *_above(folder)):
            if above.rpartition("/")[2] == top:
                yield above.rpartition("/")[0]

    def holds(self, file: str) -> bool:
        """Whether `file` is a regular file of the repository; one that a symlink leads out of it is not."""
        found = self._holds(file)
        note("there", self.repository.name, file, lambda: said(found))
        return found

    def _holds(self, file: str) -> bool:
        path = f"{self._root}/{file}"
        try:
            found = os.lstat(path)
        except (OSError, ValueError):  # nothing there, or a name that no file can have
            return False
        if stat.S_ISREG(found.st_mode) and self._is_inside(path.rpartition("/")[0]):
            return True
        return stat.S_ISLNK(found.st_mode) and Path(path).is_file() and self._is_inside(path)

    def is_folder_or_compiled(self, file: str, name: str) -> bool:
        """Whether `name` is, beside `file`, a folder of its package or a compiled module."""
        folder = (self.repository.root / file).parent
        compiled = folder.is_dir() and any(folder.glob(f"{name}.*.so"))
        found = compiled or (file.endswith("__init__.py") and (folder / name).is_dir())
        note("compiled", self.repository.name, f"{file}\n{name}", lambda: said(found))
        return found

    def _is_inside(self, path: str) -> bool:
        """Whether what `path` really is lies below the root; what was inside is not asked again."""
        inside = path in self._inside or Path(path).resolve().is_relative_to(self._root)
        if inside:
            self._inside.add(path)
        return inside

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
        found = []
        for folder in self.folders:
            start = f"{folder}/" if folder else ""
            inner = (file[len(start) :] for file in self._now() if file.startswith(start))
            found += [file.removesuffix("/__init__.py") for file in inner if file.endswith("/__init__.py")]
        return [name for name in found if "/" not in name]

    def module_name(self, file: str) -> str:
        """The dotted name of a file: below the folder of packages that holds it."""
        folder = max((f for f in self.folders if not f or file.startswith(f + "/")), key=len)
        stem = file[len(folder) + 1 if folder else 0 :].removesuffix(".py").removesuffix("/__init__")
        return stem.replace("/", ".")

    def unit(self, file: str) -> Unit:
        """The module in `file`; raises `SourceError` where it cannot be read."""
        try:
            signature = signature_now(f"{self._root}/{file}")
            note("file", self.repository.name, file, lambda: signature)
            with self._lock:
                known = self._units.get(file)
                if known is not None and known[0] == signature:
                    self._units.move_to_end(file)
                    return known[1]
            blob = self._database.rows(file, signature)
            rows = decode(blob) if blob is not None else None
            if rows is None:
                rows = self._read(file, signature)
        except OSError as error:
            raise SourceError(
                f"{file} cannot be read: {error.strerror}.", next_step="Check the file's permissions."
            ) from error
        if rows.problem:
            raise SourceError(f"{file} {rows.problem}.", location=file)
        unit = Unit(self, file, self.module_name(file), file.endswith("__init__.py"), rows)
        with self._lock:
            self._units[file] = (signature, unit)
            while len(self._units) > _UNITS:
                self._units.popitem(last=False)
        return unit

    def _read(self, file: str, signature: Signature) -> FileRows:
        rows = read_rows(self.source(file))
        self._database.put([entry_of(file, signature, rows)])
        return rows

    def syntax_errors(self, file: str) -> tuple[int, ...]:
        """The lines of `file` that do not parse; raises `SourceError` where expressions nest beyond reason."""
        signature = signature_now(f"{self._root}/{file}")
        blob = self._database.errors(file, signature)
        found = decode_lines(blob) if blob is not None else None
        if found is None:
            try:
                found = syntax_errors(self.source(file))
            except RecursionError:
                raise SourceError(f"{file} nests expressions too deeply to be read.", location=file) from None
            self._database.put_errors(file, signature, encode(found))
        return found

    def held(self, file: str, path: str, line: int, question: str) -> bytes | None:
        """What the index keeps of the class at that place."""
        return self._database.held(file, path, line, question)

    def keep_held(self, file: str, path: str, line: int, question: str, answer: bytes) -> None:
        """Keep what was found out about the class at that place."""
        self._database.keep_held(file, path, line, question, answer)

    def source(self, file: str) -> bytes:
        """The text of `file` as UTF-8, whatever encoding it declares."""
        note("file", self.repository.name, file, lambda: self.signature(file))
        return readable((self._root / file).read_bytes())

    def signature(self, file: str) -> Signature:
        """The signature of `file` as it is now; empty where it is not there."""
        try:
            return signature_now(f"{self._root}/{file}")
        except (OSError, ValueError):
            return b""

    def looks(self) -> Mapping[str, Callable[[str], bytes]]:
        """How to look again at what was noted of this repository (looks.py)."""
        return {
            "file": self.signature,
            "there": lambda file: said(self._holds(file)),
            "folders": lambda _: _joined(self.folders),
            "below": lambda folders: _joined(self.files_below(*folders.split("\n"))),
            "compiled": lambda about: said(self.is_folder_or_compiled(*about.split("\n"))),
            "exporting": lambda about: _joined(self.files_exporting(*about.split("\n"))),
        }

    def files(self) -> Iterator[str]:
        """Every Python file, relative to the root, in path order."""
        yield from self._now()

    def _now(self) -> Mapping[str, Signature]:
        return self._tree.now().ending(".py")

    def files_below(self, *folders: str) -> list[str]:
        """Python files below the folders, in path order."""
        files = list(self._now())
        found = []
        for start in sorted(f"{folder}/" if folder else "" for folder in folders):
            found += files[bisect_left(files, start) : bisect_right(files, f"{start}\U0010ffff")]
        note("below", self.repository.name, "\n".join(folders), lambda: _joined(found))
        return found

    # which files a name occurs in

    def places(self, name: str) -> list[Place]:
        """The definitions of classes called `name`, in path order."""
        files = self._cover(name, _defines)
        return [place for place in self._database.places(name) if place.file in files]

    def files_defining(self, name: str) -> list[str]:
        """Files that define a class `name`, in path order."""
        return list(dict.fromkeys(place.file for place in self.places(name)))

    def textual_subclasses(self, name: str) -> list[tuple[str, str]]:
        """(class, file) of every class whose list of bases holds an expression that ends in the bare name."""
        files = self._cover(name, _holds)
        return [(cls, file) for cls, file in self._database.with_base(name) if file in files]

    def files_exporting(self, name: str, folder: str) -> list[str]:
        """Files below `folder` whose `__all__` holds `name`, in path order."""
        files = self._cover(name, _exports)
        found = [file for file in self._database.exporting(name) if file.startswith(f"{folder}/") and file in files]
        note("exporting", self.repository.name, f"{name}\n{folder}", lambda: _joined(found))
        return found

    def files_mentioning(self, word: str) -> list[str]:
        """Files whose text holds the identifier `word`, in path order."""
        files = self._now()
        held = self._database.mentioning(word)  # first: what is damaged drops the segment
        segment = self._database.segment()
        found, unknown = [], []
        for file, signature in files.items():
            number, kept = segment.get(file, (0, None))
            if kept != signature:
                unknown.append(file)
            elif number in held:
                found.append(file)
        return sorted([*found, *self._holding(unknown, word, _holds)]) if unknown else found

    def class_names(self) -> list[str]:
        """Names of the classes, in no order."""
        missing = self._missing()
        names = dict.fromkeys(self._database.class_names())
        for file in missing:
            source = self._bytes(file)
            names.update(
                (match[1].decode("utf-8", "replace"), None)
                for match in _CLASS.finditer(source)
                if not source[source.rfind(b"\n", 0, match.start()) + 1 : match.start()].strip(b" \t")
            )
        return list(names)

    def _cover(self, name: str, holds: Callable[[bytes, bytes], bool]) -> Mapping[str, Signature]:
        """Make entries of those files without one whose text `holds` the name; returns the repository's files."""
        missing = self._missing()
        for file in self._holding(missing, name, holds) if missing else ():
            self._make_entry(file)
        return self._listed

    def _holding(self, files: Iterable[str], name: str, holds: Callable[[bytes, bytes], bool]) -> list[str]:
        """Those of the files whose text `holds` the name. One buffer takes them all: copying each would cost more than
        reading and searching it."""
        word, found = name.encode(), []
        buffer = bytearray(SIZE_LIMIT)
        for file in files:
            try:
                with io.FileIO(f"{self._root}/{file}") as stream:
                    size = stream.readinto(buffer)
            except OSError:
                continue
            if buffer.find(word, 0, size) >= 0 and holds(bytes(memoryview(buffer)[:size]), word):
                found.append(file)
        return found

    def _missing(self) -> list[str]:
        """Files without an entry for what they are now; entries of files that are gone are dropped. Where only a few
        files changed, they are read here."""
        files, known = self._now(), self._database.signatures()
        self._listed = files
        if self._complete is not None and self._complete[0] is files and self._complete[1] is known:
            return []
        gone = [file for file in known if file not in files]
        if gone:
            self._database.forget(gone)
        missing = [file for file, signature in files.items() if known.get(file) != signature]
        if missing and len(missing) <= _FEW:
            missing = [file for file in missing if not self._make_entry(file)]
        elif missing and self._on_cold is not None:
            self._on_cold(self)
        self._complete = (files, known) if not missing else None
        return missing

    def _make_entry(self, file: str) -> bool:
        """Whether `file` has an entry now; one that is gone or may not be read needs none."""
        try:
            signature = signature_now(f"{self._root}/{file}")
            self._read(file, signature)
        except OSError:
            return True
        return self._database.signatures().get(file) == signature

    def _bytes(self, file: str) -> bytes:
        try:
            return (self._root / file).read_bytes()
        except OSError:
            return b""


def _joined(names: Iterable[str]) -> bytes:
    """Names as one short value that differs where they do."""
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).digest()[:12]


def _above(path: str) -> Iterator[str]:
    """The folders above `path`, the nearest first, the root left out."""
    while path := path.rpartition("/")[0]:
        yield path


def _defines(source: bytes, name: bytes) -> bool:
    at = source.find(name)
    while at >= 0:
        before = source[max(0, at - 40) : at]
        if before.rstrip(b" \t").endswith(b"class") and before[-1:] in b" \t":
            return True
        at = source.find(name, at + 1)
    return False


def _exports(source: bytes, name: bytes) -> bool:
    return b"__all__" in source and (b'"%s"' % name in source or b"'%s'" % name in source)


def _holds(source: bytes, word: bytes) -> bool:
    """Whether `source` holds the identifier. `bytes.find` is many times faster here than a regular expression."""
    at = source.find(word)
    while at >= 0:
        around = source[max(0, at - 1) : at] + source[at + len(word) : at + len(word) + 1]
        if not any(byte in IDENTIFIER for byte in around):
            return True
        at = source.find(word, at + 1)
    return False
