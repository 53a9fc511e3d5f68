"""Questions about C++ and CUDA: a name of any form to what it means, its bases, subclasses, methods and declarations.

Names resolve by text: a scope is looked for from the inside outwards, as C++ does, but using-directives, template
arguments and overloads are not followed. What that leaves open is said (`verified`), never guessed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opscope_cache.trees import Snapshot
from opscope_schemas.common import Repository
from opscope_schemas.errors import PathRefusedError, SourceError

from opscope_tools.index.cpp.files import CUDA_SUFFIXES, SUFFIXES, CppFiles
from opscope_tools.index.cpp.rows import CLASS_KINDS, TYPE_KINDS, CppRow

AT_LINE = re.compile(rf"\A(?P<path>.+\.(?:{'|'.join(re.escape(s[1:]) for s in SUFFIXES)})):(?P<line>\d+)$")
_FILES = 400  # files that one question reads
_NAMESPACE = re.compile(r"\bnamespace\s+([A-Za-z_][\w:]*)")
_ARGUMENTS = re.compile(r"<.*", re.DOTALL)
_ACCESS = re.compile(r"\b(?:public|private|protected|virtual)\b\s*")
_TYPE_NAMES = re.compile(rb"\b(?:class|struct|union|enum)\s+(?:class\s+)?(?:[A-Z][A-Z0-9_]*\s+)*([A-Za-z_]\w*)")
_ORDER = ("class", "struct", "union", "enum", "concept", "alias", "function", "macro", "namespace")


@dataclass(frozen=True, eq=False)
class CppSymbol:
    """A definition, or a declaration of what no file that was read defines.

    `elsewhere` are the other places (file, line, is a definition) of the same name and kind; `method` is set where a
    line inside a method was asked for.
    """

    repository: Repository
    file: str
    row: CppRow
    qualified_name: str
    elsewhere: tuple[tuple[str, int, bool], ...] = ()
    method: str = ""

    @property
    def language(self) -> str:
        """`cuda` or `c++`, told by the file's suffix alone."""
        return "cuda" if self.file.endswith(CUDA_SUFFIXES) else "c++"


@dataclass
class CppAnswer:
    """What a name means, best first; `unread` counts files that may define it too."""

    symbols: list[CppSymbol] = field(default_factory=list)
    unread: int = 0


class CppIndex:
    """Answers over the C++ and CUDA files of repositories."""

    def __init__(self, repositories: Sequence[Repository]) -> None:
        self.sources = [CppFiles(repository) for repository in repositories]
        self._macros: dict[tuple[str, str], tuple[Snapshot, str]] = {}

    def _select(self, repo: str | None) -> list[CppFiles]:
        return [files for files in self.sources if repo is None or files.repository.name == repo]

    # names

    def lookup(self, name: str, repo: str | None = None) -> CppAnswer:
        """What `name` means: bare, or qualified from any scope on (`Tensor`, `at::Tensor`, `native::add`)."""
        answer = CppAnswer()
        parts = _parts(name)
        if not parts:
            return answer
        for files in self._select(repo):
            found, unread = self._named(files, parts)
            answer.symbols += found
            answer.unread += unread
        answer.symbols.sort(key=lambda s: _rank(s, len(parts)))
        return answer

    def _named(self, files: CppFiles, parts: list[str]) -> tuple[list[CppSymbol], int]:
        hits, unread = files.defining(parts[-1], *parts[:-1], limit=_FILES)
        rows = self._matching(files, hits, parts)
        if not rows and len(parts) > 1:  # a scope that a macro opens is not in the file's text
            hits, unread = files.defining(parts[-1], limit=_FILES)
            rows = self._matching(files, hits, parts)
        return _merged(files, rows), unread

    def _matching(
        self, files: CppFiles, hits: Iterable[tuple[str, tuple[CppRow, ...]]], parts: list[str]
    ) -> list[tuple[str, CppRow, str]]:
        """(file, row, qualified name) of the rows that the parts name; an inline namespace may be left out of them."""
        exact, loose = [], []
        for file, rows in hits:
            for row in rows:
                if row.name != parts[-1]:
                    continue
                names = [*self._scope(files, row.scope), row.name]
                qualified = "::".join(names)
                if names[-len(parts) :] == parts:
                    exact.append((file, row, qualified))
                elif _subsequence(parts, names):
                    loose.append((file, row, qualified))
        return exact or loose

    def _scope(self, files: CppFiles, scope: str) -> list[str]:
        """The names of a scope, macros that stand for namespaces replaced by what they are defined as."""
        names: list[str] = []
        for part in scope.split("::") if scope else []:
            names += self._expanded(files, part).split("::") if "NAMESPACE" in part and part.isupper() else [part]
        return names

    def _expanded(self, files: CppFiles, macro: str) -> str:
        key, now = (files.repository.name, macro), files.tree.now()
        known = self._macros.get(key)
        if known is not None and known[0] is now:
            return known[1]
        hits, _ = files.defining(macro, limit=_FILES)
        meant = {
            text
            for _, rows in hits
            for row in rows
            if row.kind == "macro" and row.name == macro and (text := _namespace_text(row.signature))
        }
        found = meant.pop() if len(meant) == 1 else macro
        self._macros[key] = (now, found)
        return found

    def at_line(self, path: str, line: int, repo: str | None = None) -> CppSymbol:
        """The innermost class around a line, with the method that the line is in; else the function or macro."""
        for files in self._select(repo):
            file = path
            if Path(path).is_absolute():
                resolved, root = Path(path).resolve(), files.tree.root
                if not resolved.is_relative_to(root):
                    continue
                file = resolved.relative_to(root).as_posix()
            signature = files.listing().get(file)
            if signature is not None:
                return self._around(files, file, files.rows(file, signature), line)
        raise PathRefusedError(
            f"{path!r} is not a C++ or CUDA file of a registered repository.",
            next_step="Give the path relative to the repository's root, e.g. torch/include/ATen/core/TensorBase.h:80.",
        )

    def _around(self, files: CppFiles, file: str, rows: tuple[CppRow, ...], line: int) -> CppSymbol:
        inside = [row for row in rows if row.first_line <= line <= row.end_line and row.kind != "namespace"]
        if not inside:
            held = ", ".join(f"{row.name} ({row.line}-{row.end_line})" for row in rows if row.definition)[:400]
            raise SourceError(
                f"No definition stands at line {line} of {file}.",
                next_step=f"Its definitions and their lines: {held}." if held else "The file defines nothing.",
            )
        row = min(inside, key=lambda r: (r.end_line - r.first_line, -r.line))
        holder = next((r for r in inside if r.kind in CLASS_KINDS and r.qualified_name == row.scope), None)
        method = row.name if holder is not None and row.kind == "function" else ""
        chosen = holder if holder is not None and method else row
        return CppSymbol(
            files.repository,
            file,
            chosen,
            "::".join([*self._scope(files, chosen.scope), chosen.name]),
            method=method,
        )

    def nearest(self, name: str, repo: str | None = None) -> list[str]:
        """Names of types that resemble the last part of `name`, at most five."""
        last = _parts(name)[-1].lower()
        known = {
            found.decode("utf-8", "replace")
            for files in self._select(repo)
            for _, _, source in files.mentioning()
            for found in set(_TYPE_NAMES.findall(source))
        }
        by_case: dict[str, str] = {}
        for text in sorted(known):
            if abs(len(text) - len(last)) <= 3:
                by_case.setdefault(text.lower(), text)
        return [by_case[text] for text in difflib.get_close_matches(last, by_case, n=5, cutoff=0.7)]

    # classes

    def bases(self, symbol: CppSymbol) -> list[str]:
        """The bases: the qualified name where exactly one class can be meant, else as written."""
        return [self._base(symbol, text) or _plain(text) for text in symbol.row.bases]

    def _base(self, symbol: CppSymbol, text: str) -> str:
        wanted = _parts(_plain(text))
        if not wanted or "..." in text:
            return ""
        for files in self._select(symbol.repository.name):
            found, _ = self._named(files, wanted)
            types = {s.qualified_name for s in found if s.row.kind in TYPE_KINDS}
            return _reached(symbol.qualified_name, wanted, types)
        return ""

    def members(self, symbol: CppSymbol) -> list[CppRow]:
        """The functions that the body of a class declares or defines, in source order."""
        files = self._select(symbol.repository.name)[0]
        signature = files.listing().get(symbol.file)
        rows = files.rows(symbol.file, signature) if signature is not None else ()
        own, row = symbol.row.qualified_name, symbol.row
        return [r for r in rows if r.kind == "function" and r.scope == own and row.line <= r.line <= row.end_line]

    def subclasses(self, symbol: CppSymbol) -> tuple[list[str], bool]:
        """Qualified names of the classes that name this one as a base, and whether each was verified: that nothing
        else of this name can be meant there, and that no file was left unread."""
        found: dict[str, bool] = {}
        whole = True
        for files in self.sources:
            rivals = {s.qualified_name for s in self._named(files, [symbol.row.name])[0] if s.row.kind in TYPE_KINDS}
            rivals.add(symbol.qualified_name)
            hits, all_read = files.deriving(symbol.row.name, _FILES)
            whole = whole and all_read
            for row in (row for _, rows in hits for row in rows):
                self._take_subclass(files, row, symbol, rivals, found)
        return sorted(found), whole and all(found.values())

    def _take_subclass(
        self, files: CppFiles, row: CppRow, symbol: CppSymbol, rivals: set[str], found: dict[str, bool]
    ) -> None:
        for text in row.bases:
            wanted = _parts(_plain(text))
            if not wanted or wanted[-1] != symbol.row.name:
                continue
            qualified = "::".join([*self._scope(files, row.scope), row.name])
            reached = _reached(qualified, wanted, rivals)
            if not reached or reached == symbol.qualified_name:
                found[qualified] = bool(reached) and found.get(qualified, True)


def _parts(name: str) -> list[str]:
    """The names along `::`, template arguments left out."""
    plain = re.sub(r"<[^<>]*>", "", name)
    while plain != (shorter := re.sub(r"<[^<>]*>", "", plain)):
        plain = shorter
    return [part for part in plain.strip().split("::") if part]


def _plain(base: str) -> str:
    """A base without its access."""
    return _ACCESS.sub("", base).removeprefix("typename ").strip()


def _subsequence(parts: list[str], names: list[str]) -> bool:
    """Whether the parts occur among the names in order, the last as the last and the first not left of the others."""
    at = iter(names)
    return len(parts) > 1 and names[-1] == parts[-1] and all(part in at for part in parts)


def _reached(inside: str, wanted: list[str], known: set[str]) -> str:
    """The one of the `known` qualified names that `wanted` means inside a scope: the innermost that fits, else the
    only one there is; empty where that leaves a choice."""
    scope = inside.split("::")[:-1]
    for size in range(len(scope), -1, -1):
        full = "::".join([*scope[:size], *wanted])
        if full in known:
            return full
    fitting = [name for name in known if f"::{name}".endswith("::" + "::".join(wanted))]
    return fitting[0] if len(fitting) == 1 else ""


def _merged(files: CppFiles, rows: list[tuple[str, CppRow, str]]) -> list[CppSymbol]:
    """One symbol for each definition, and one for each name that is only declared, each with the other places."""
    groups: dict[tuple[str, str], list[tuple[str, CppRow, str]]] = {}
    types = {qualified for _, row, qualified in rows if row.kind in CLASS_KINDS}
    for item in rows:
        row, qualified = item[1], item[2]
        if row.kind == "function" and qualified.rpartition("::")[0] in types:
            continue  # the constructor of a class of this name
        groups.setdefault((qualified, "type" if row.kind in TYPE_KINDS else row.kind), []).append(item)
    found = []
    for (_, kind), items in groups.items():
        meant = [item for item in items if item[1].definition and item[1].kind != "alias"]
        meant += [item for item in items if item[1].kind == "alias"]
        if not meant or kind == "namespace":  # a namespace is opened in many places; the first stands for it
            meant = items[:1]
        for file, row, qualified in meant:
            others = tuple((f, r.line, r.definition) for f, r, _ in items if r is not row)
            found.append(CppSymbol(files.repository, file, row, qualified, others))
    return found


def _rank(symbol: CppSymbol, parts: int) -> tuple[int, bool, bool, int, str, str, int]:
    """Types before functions, definitions before declarations, the outer scope before the inner."""
    row = symbol.row
    return (
        min(_ORDER.index(row.kind), 3) if row.kind in TYPE_KINDS else _ORDER.index(row.kind),
        not row.definition,
        bool(row.arguments),
        max(0, symbol.qualified_name.count("::") + 1 - parts),
        symbol.qualified_name,
        symbol.file,
        row.line,
    )


def _namespace_text(text: str) -> str:
    """What a macro that stands for a namespace says: `namespace a { namespace b {` is `a::b`, `a __attribute__((x))` is
    `a`; empty where it says neither."""
    text = re.sub(r"^\([^)]*\)\s*", "", text)
    found = _NAMESPACE.findall(text)
    if found:
        return "::".join(found)
    plain = re.match(r"[A-Za-z_]\w*", text)
    return plain[0] if plain is not None else ""
