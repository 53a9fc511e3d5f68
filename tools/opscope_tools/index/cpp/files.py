"""The C, C++ and CUDA files of one repository: what each defines, and which of them may define a name.

Without an index a name is sought in the text of every file; only files where a hit stands as a definition could are
parsed. Rows are trusted as long as a file's signature does not change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice

from opscope_cache.trees import Signature, size_of, tree_at
from opscope_schemas.common import Repository
from opscope_schemas.errors import SourceError

from opscope_tools.index.cpp.rows import CppRow
from opscope_tools.index.cpp.scan import definitions

SUFFIXES = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".cu", ".inl", ".c", ".cc", ".cpp", ".cxx", ".hip")
CUDA_SUFFIXES = (".cu", ".cuh", ".hip")
_KEPT = 2000  # files whose rows are kept in memory
_BEHIND = re.compile(rb"\s*(?:(final\b)|([({;<=\[,)\\/#])|(:(?!:))|(\w))")
_CLASS_BEFORE = re.compile(rb"\b(?:class|struct|union|enum)\s[^;{}=]*$")
_ALIAS_BEFORE = re.compile(rb"\b(?:using|concept|namespace)\s+$")
_TYPEDEF_BEFORE = re.compile(rb"\btypedef\b[^;{}]*$")
_WORD_BEFORE = re.compile(rb"(?<!\w)([A-Za-z_]\w*+)\s*+$")
_CALLING = frozenset((b"return", b"new", b"else", b"case", b"throw", b"goto", b"co_return", b"co_await", b"delete"))
_LISTED_BEFORE = re.compile(rb"(?:(?<!:):|,|\b(?:public|private|protected|virtual))\s*(?:::\s*)?(?:\w+\s*::\s*)*$")
_SCOPE_BEFORE = re.compile(rb"(?:\w+\s*(?:<[^<>]*>\s*)?::\s*)+$")
DECLARES, DEFINES = 1, 2  # the strength of evidence
_DECLARING = 20  # files that only declare a class and are read all the same
_NEAR = 160  # bytes before a name that tell what it is


class CppFiles:
    """The C++ files of a repository."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.tree = tree_at(repository.root, repository.packages)
        self._rows: dict[str, tuple[Signature, tuple[CppRow, ...]]] = {}

    def listing(self) -> Mapping[str, Signature]:
        """Path relative to the root -> signature, of every file as it is now."""
        return self.tree.now().ending(*SUFFIXES)

    def source(self, file: str, size: int = 1 << 20) -> bytes:
        """The bytes of a file; `size` is what it is expected to hold."""
        try:
            opened = os.open(os.path.join(self.tree.root, file), os.O_RDONLY)  # noqa: PTH118 - twice as fast as Path
            try:
                found = os.read(opened, size + 1)
                while len(found) > size and (more := os.read(opened, 1 << 22)):
                    found, size = found + more, len(found) + len(more) - 1
            finally:
                os.close(opened)
        except OSError as error:
            raise SourceError(
                f"{file} cannot be read: {error.strerror}.", next_step="Check the file's permissions."
            ) from error
        return found

    def rows(self, file: str, signature: Signature, source: bytes | None = None) -> tuple[CppRow, ...]:
        """What a file defines."""
        known = self._rows.get(file)
        if known is not None and known[0] == signature:
            return known[1]
        found = definitions(self.source(file, size_of(signature)) if source is None else source)
        while len(self._rows) >= _KEPT:
            del self._rows[next(iter(self._rows))]
        self._rows[file] = (signature, found)
        return found

    def mentioning(self, *names: str) -> Iterator[tuple[str, Signature, bytes]]:
        """Files whose text holds all the names, as parts of longer words too; with signature and text."""
        sought = [name.encode() for name in names]
        for file, signature in self.listing().items():
            try:
                source = self.source(file, size_of(signature))
            except SourceError:
                continue
            if all(name in source for name in sought):
                yield file, signature, source

    def defining(self, name: str, *others: str, limit: int) -> tuple[list[tuple[str, tuple[CppRow, ...]]], int]:
        """(file, rows of the file) of at most `limit` files that may define `name` and hold the `others`, and of some
        that may declare it; with how many that may define it were left unread."""
        own = name.encode()
        word = re.compile(re.escape(own) + rb"(?!\w)")
        found: list[tuple[str, tuple[CppRow, ...]]] = []
        unread = declaring = 0
        for file, signature, source in self.mentioning(name, *others):
            strength = evidence(source, word)
            if strength == DECLARES:
                declaring += 1
            if strength == DEFINES and len(found) - min(declaring, _DECLARING) >= limit:
                unread += 1
            elif strength == DEFINES or (strength == DECLARES and declaring <= _DECLARING):
                found.append((file, self.rows(file, signature, source)))
        return found, unread

    def deriving(self, name: str, limit: int) -> tuple[list[tuple[str, tuple[CppRow, ...]]], bool]:
        """(file, rows) of the files where `name` stands in a list of bases, and whether those are all."""
        word = re.compile(re.escape(name.encode()) + rb"(?=\s*(?:[,{<#/]|\.\.\.))")
        hits = (
            (file, self.rows(file, signature, source))
            for file, signature, source in self.mentioning(name)
            if any(_is_base(source, match.start()) for match in word.finditer(source))
        )
        found = list(islice(hits, limit))
        return found, next(hits, None) is None


def evidence(source: bytes, word: re.Pattern[bytes]) -> int:
    """What the best occurrence of a word looks like: a definition, no more than a declaration of a class, or a use."""
    best = 0
    for match in word.finditer(source):
        best = max(best, _strength(source, match.start(), match.end()))
        if best == DEFINES:
            break
    return best


def _strength(source: bytes, start: int, end: int) -> int:
    before = source[start - 1 : start]
    if before.isalnum() or before == b"_":
        return 0
    behind = _BEHIND.match(source, end)
    head = source[max(0, start - _NEAR) : start]
    text = head.rstrip()
    if text.endswith((b"define", b"operator")):
        return DEFINES
    if behind is None:
        return 0
    mark = behind[2] or b""
    if mark == b"(":
        return DEFINES if _may_be_head(text) else 0
    if mark == b"=":
        return DEFINES if _ALIAS_BEFORE.search(head) is not None else 0
    if mark and mark in b";,)[":
        if (mark in b";," and text.endswith(b"}")) or _TYPEDEF_BEFORE.search(head) is not None:
            return DEFINES
        return DECLARES if mark == b";" and _in_class_head(head) else 0
    return DEFINES if _in_class_head(head) or (mark == b"<" and _may_be_head(text)) else 0


def _in_class_head(head: bytes) -> bool:
    keyed = b"class" in head or b"struct" in head or b"enum" in head or b"union" in head  # most often not: no search
    return keyed and _CLASS_BEFORE.search(head) is not None


def _is_base(source: bytes, start: int) -> bool:
    head = source[max(0, start - 4 * _NEAR) : start]
    return _in_class_head(head) and _LISTED_BEFORE.search(head[-_NEAR:]) is not None


def _may_be_head(text: bytes) -> bool:
    """Whether a name with a parenthesis behind it may be declared there, by what stands before it; a call's name
    stands behind `=`, `(`, `,`, `.` and the like."""
    if text.endswith(b"::"):
        text = _SCOPE_BEFORE.sub(b"", text).rstrip()
    if text[-1:] in b"*&~>)":
        return not text.endswith(b"->") and text != b""
    word = _WORD_BEFORE.search(text)
    return word is not None and word[1] not in _CALLING
