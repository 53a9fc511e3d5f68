"""Reads source lines for pointers: `path:line` to text, to the definitions around it, and from a symbol to its lines.

Reports quote source and checks follow pointers, so both read through one `SourceReader`. It reads inside the given
repositories only (symlinks and `..` out of them resolve to nothing) and never imports what it reads.
"""

from __future__ import annotations

import ast
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from opscope_schemas.common import Repository

from opscope_tools.source.python.imports import Imported, imported
from opscope_tools.source.python.trees import definitions, tree_of

__all__ = ["SourceReader", "Span"]

#: largest file that is read: no source file comes near it, and a pointer to a data file must not fill the memory
#: metadata that lies beside the package of a distribution
_BESIDE = re.compile(r"[^/]+\.(dist|egg)-info/(METADATA|PKG-INFO)")
_MAX_BYTES = 8 << 20
#: what a search through a folder reads
_TEXT = frozenset(
    {".py", ".pyi", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc", ".c", ".inl", ".md", ".toml", ".cfg", ".txt", ".json"}
)


@dataclass(frozen=True)
class Span:
    """A definition: its dotted name inside the module, first and last line (decorators included in neither)."""

    name: str
    line: int
    end_line: int
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class _Read:
    """What one text says as Python; nothing where it is none. Readers share it: its nodes are looked at and left as they are."""

    def __init__(self, text: str, package: str) -> None:
        self._text, self._package = text, package

    @cached_property
    def tree(self) -> ast.Module | None:
        """The syntax tree."""
        return tree_of(self._text)

    @cached_property
    def spans(self) -> list[Span]:
        """Every class and function, outer before inner."""
        inside = definitions(self.tree) if self.tree is not None else ()
        return [Span(name, node.lineno, node.end_lineno or node.lineno, node) for name, node in inside]

    @cached_property
    def imports(self) -> dict[str, list[Imported]]:
        """Name -> what `from ... import` statements anywhere in the file bind it to."""
        found: dict[str, list[Imported]] = {}
        for node in ast.walk(self.tree) if self.tree is not None else ():
            for one in imported(node, self._package) if isinstance(node, ast.ImportFrom) else ():
                found.setdefault(one.name, []).append(one)
        return found


class _Kept:
    """The texts that were read last, up to so many characters in all: a tree takes some 25 bytes for each."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._texts: OrderedDict[tuple[str, str], _Read] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, text: str, package: str) -> _Read:
        """What a text says that stands in a package."""
        with self._lock:
            found = self._texts.pop((text, package), None)
            self._held += len(text) * (found is None)
            self._texts[text, package] = found = found or _Read(text, package)
            while self._held > self._most and len(self._texts) > 1:
                (oldest, _), _ = self._texts.popitem(last=False)
                self._held -= len(oldest)
        return found


_KEPT = _Kept(4_000_000)
_NOTHING = _Read("", "")


@dataclass
class SourceReader:
    """Lines and definitions of the files of `repositories`, each file read at most once."""

    repositories: Iterable[Repository]
    #: called with every file that is asked for; raises where nobody waits any more
    checkpoint: Callable[[], None] = lambda: None
    _lines: dict[str, list[str] | None] = field(default_factory=dict, repr=False)
    _parsed: dict[str, _Read] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.repositories = tuple(self.repositories)

    def lines(self, path: str) -> list[str] | None:
        """The lines of `path` (relative to a repository's root), or None where no repository holds that file."""
        self.checkpoint()
        if path not in self._lines:
            self._lines[path] = self._read(path)
        return self._lines[path]

    def _read(self, path: str) -> list[str] | None:
        if not path or path.startswith(("/", "~")) or "\0" in path:
            return None
        for repository in self.repositories:
            candidate = (repository.root / path).resolve()
            root = repository.root.resolve()
            if not candidate.is_relative_to(root):
                continue
            first = candidate.relative_to(root).parts[:1]
            inside = not repository.packages or first in [(package,) for package in repository.packages]
            if not inside and not _BESIDE.fullmatch(path):
                continue
            try:
                if candidate.is_file() and candidate.stat().st_size <= _MAX_BYTES:
                    return candidate.read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
        return None

    def files_below(self, path: str) -> list[str]:
        """The text files that a path names: itself, or those below the folder; [] where no repository holds it."""
        if self.lines(path) is not None:
            return [path]
        for repository in self.repositories:
            folder, root = (repository.root / path).resolve(), repository.root.resolve()
            if path and not path.startswith(("/", "~")) and folder.is_dir() and folder.is_relative_to(root):
                found = sorted(f.relative_to(root).as_posix() for f in folder.rglob("*") if f.suffix in _TEXT)
                return [file for file in found if self.lines(file) is not None]
        return []

    def line(self, path: str, number: int) -> str:
        """The stripped text of one line; empty where there is none."""
        lines = self.lines(path) or []
        return lines[number - 1].strip() if 1 <= number <= len(lines) else ""

    def tree(self, path: str) -> ast.Module | None:
        """The syntax tree of a Python file, not to be changed; None for other files and for files that do not parse."""
        return self._python(path).tree

    def spans(self, path: str) -> list[Span]:
        """Every class and function of a Python file, outer before inner."""
        return self._python(path).spans

    def imports(self, path: str, name: str) -> list[Imported]:
        """What `from ... import` statements of a Python file bind a name to."""
        return self._python(path).imports.get(name, [])

    def _python(self, path: str) -> _Read:
        if path not in self._parsed:
            lines = self.lines(path) if path.endswith(".py") else None
            package = ".".join(path.split("/")[:-1])
            self._parsed[path] = _KEPT.of("\n".join(lines), package) if lines is not None else _NOTHING
        return self._parsed[path]

    def enclosing(self, path: str, line: int) -> list[Span]:
        """The definitions that hold `line`, outermost first; a decorator belongs to what it decorates."""
        return [span for span in self.spans(path) if _first_line(span) <= line <= span.end_line]

    def definition(self, path: str, name: str) -> Span | None:
        """The definition called `name`: dotted inside the module, or its last part where only one bears it."""
        exact = [span for span in self.spans(path) if span.name == name]
        if exact:
            return exact[0]
        last = [span for span in self.spans(path) if span.name.rpartition(".")[2] == name]
        return last[0] if len(last) == 1 else None

    def occurrences(self, path: str, word: str) -> list[int]:
        """Lines on which `word` stands as a whole word, 1-based."""
        pattern = re.compile(rf"(?<![\w]){re.escape(word)}(?![\w])")
        return [number for number, text in enumerate(self.lines(path) or [], 1) if pattern.search(text)]


def _first_line(span: Span) -> int:
    decorators = span.node.decorator_list
    return min([span.line, *(decorator.lineno for decorator in decorators)])
