"""The source of a repository as a few long texts, and where in them definitions begin.

A question looks for some words in all of it. Bytes in lower case, many files in one text, are searched at a gigabyte a second, so
nothing has to be built or kept on disk: reading all of transformers (53 MB) takes less than a second, once. A piece runs
from one definition's head to the next.
"""

from __future__ import annotations

import re
import threading
import zlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from opscope_cache.trees import Signature, tree_at
from opscope_schemas.common import Repository

from opscope_tools.source.files import CUDA, PYTHON, read_bytes

__all__ = ["Block", "Texts"]

#: bytes of text that are kept in memory, the least recently used go first; the rest is read again when it is asked for
MEMORY = 256 << 20
_PARTS = 16
_HEAD = re.compile(rb"^([ \t]*)(?:async[ \t]+)?(?:def|class)[ \t]+\w", re.MULTILINE)
#: in C++ a line at the margin that opens something: with a parenthesis, or a word that says so
_CPP_HEAD = re.compile(rb"^[a-z_][^\n;{]*+(?:\{[^\n]*+)?$", re.MULTILINE)
_OPENING = (b"template", b"class ", b"struct ", b"__global__", b"__device__", b"static ", b"inline ")
_BREAK = b"\n\x00\n"


@dataclass(eq=False)
class Block:
    """Some files as one text in lower case: `starts` where each file begins, `heads` where each piece does (a file begins
    one), `parents` the piece of the class or function around each, or -1."""

    files: tuple[tuple[str, Signature], ...]
    text: bytes
    starts: array[int]
    heads: array[int]
    parents: array[int]

    def piece(self, at: int) -> int:
        """The piece that holds an offset."""
        return bisect_right(self.heads, at) - 1

    def end(self, piece: int) -> int:
        """Where a piece ends."""
        return self.heads[piece + 1] if piece + 1 < len(self.heads) else len(self.text)

    def place(self, at: int) -> tuple[str, int]:
        """File and 1-based line of an offset."""
        number = bisect_right(self.starts, at) - 1
        return self.files[number][0], self.text.count(b"\n", self.starts[number], at) + 1


class Texts:
    """The texts of repositories, read again only as far as files changed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], Block] = OrderedDict()
        self._lock = threading.Lock()

    def blocks(self, repository: Repository, checkpoint: Callable[[], None]) -> Iterator[Block]:
        """Every block of a repository, the Python ones first."""
        now = tree_at(repository.root, repository.packages).now()
        for suffixes in (PYTHON, CUDA):
            parts: dict[int, list[tuple[str, Signature]]] = {}
            for file, signature in _listed(now.ending(*suffixes)):
                parts.setdefault(zlib.crc32(file.encode("utf-8", "replace")) % _PARTS, []).append((file, signature))
            for part, files in sorted(parts.items()):
                checkpoint()
                yield self._block(repository, (repository.name, suffixes[0], part), tuple(files))

    def _block(
        self, repository: Repository, key: tuple[str, str, int], files: tuple[tuple[str, Signature], ...]
    ) -> Block:
        with self._lock:
            kept = self._kept.pop(key, None)
            if kept is None or kept.files != files:
                kept = _read(repository, files, python=key[1] == PYTHON[0])
            self._kept[key] = kept
            while sum(len(block.text) for block in self._kept.values()) > MEMORY and len(self._kept) > 1:
                self._kept.popitem(last=False)
            return kept


def _listed(files: Mapping[str, Signature]) -> Iterator[tuple[str, Signature]]:
    """The files in path order, without templates that others are generated from."""
    for file, signature in files.items():
        if not file.rpartition("/")[2].startswith("modular_"):
            yield file, signature


def _read(repository: Repository, files: tuple[tuple[str, Signature], ...], *, python: bool) -> Block:
    pieces, starts, heads, parents = [], array("q"), array("q"), array("q")
    at = 0
    for file, _ in files:
        text = (read_bytes(repository, file, walked=True) or b"").replace(b"\x00", b" ").lower()
        starts.append(at)
        heads.append(at)
        parents.append(-1)
        open_heads: list[tuple[int, int]] = []
        for match in (_HEAD if python else _CPP_HEAD).finditer(text):
            if not python and b"(" not in match[0] and not match[0].startswith(_OPENING):
                continue
            indent = len(match[1]) if python else 0
            while open_heads and open_heads[-1][0] >= indent:
                open_heads.pop()
            if match.start():
                heads.append(at + match.start())
                parents.append(open_heads[-1][1] if open_heads else -1)
            open_heads.append((indent, len(heads) - 1))
        pieces += [text, _BREAK]
        at += len(text) + len(_BREAK)
    return Block(files, b"".join(pieces), starts, heads, parents)
