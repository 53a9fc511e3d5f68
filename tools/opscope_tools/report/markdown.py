"""The little Markdown that reports use: cells, fences, tables, headings, and pointers to source.

`Page` reads a report once for all checks; `cell` and `table` write what `Page` reads back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["ABSOLUTE", "FACT_MARK", "POINTER", "Fence", "Page", "Table", "cell", "number", "table"]

_SUFFIXES = "py|pyi|cuh|cu|cpp|cxx|cc|hpp|hh|h|c|rs|go|js|ts|sh|toml|cfg|ini|json|yaml|yml|md|txt"
#: metadata of distributions, which has no suffix
_BARE = "METADATA|PKG-INFO"
#: `path/to/file.py:12` or `path/to/file.py:12-20`
POINTER = re.compile(
    rf"(?<![\w/.\-+])((?:[\w.\-+]++/)*+(?:[\w.\-+]+\.(?:{_SUFFIXES})|{_BARE})):(\d+)(?:-(\d+))?(?![\w])"
)
#: the same by a path that begins with a slash or a home folder, which no repository has
ABSOLUTE = re.compile(rf"(?<![\w/.\-:+])((?:~/|/)(?:[\w.\-+]++/)*+[\w.\-+]+\.(?:{_SUFFIXES})):\d+(?![\w])")
#: what marks a number as one of the analysis, with its key
FACT_MARK = re.compile(r"<!-- fact:(\S+) -->")


def cell(text: object) -> str:
    """`text` as one table cell: no line breaks, and bars that do not end it."""
    return " ".join(str(text).split()).replace("|", r"\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; every column has a name, every row is as wide as the head."""
    assert all(name.strip() for name in head), head
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join('---' for _ in head)}|"]
    for row in rows:
        assert len(row) == len(head), (head, row)
        lines.append(f"| {' | '.join(cell(value) for value in row)} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """Digits in groups of three."""
    return f"{value:,}"


@dataclass(frozen=True)
class Fence:
    """A fenced block: line of its opening, language, lines within; `closed` is false where the file ends first."""

    line: int
    language: str
    lines: tuple[str, ...]
    closed: bool


@dataclass(frozen=True)
class Table:
    """A table: line of its head, cells of the head, rows with their lines."""

    line: int
    head: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip().removeprefix("|")
    inner = re.sub(r"(?<!\\)\|\s*$", "", inner)
    return tuple(part.strip() for part in re.split(r"(?<!\\)\|", inner))


@dataclass(frozen=True)
class Page:
    """A Markdown text, its parts found once."""

    text: str

    @cached_property
    def lines(self) -> list[str]:
        """The lines; the first one is line 1 everywhere else."""
        return self.text.split("\n")

    @cached_property
    def fences(self) -> list[Fence]:
        """The fenced blocks, in order."""
        found: list[Fence] = []
        opening = 0
        mark = language = ""
        held: list[str] = []
        for position, line in enumerate(self.lines, 1):
            fence = re.match(r"\s*+(`{3,}+|~{3,}+)\s*+([\w+-]*+)\s*+$", line)
            if not mark and (opened := re.match(r"\s*+(`{3,}+|~{3,}+)\s*+([^`]*+)$", line)):
                opening, mark, language, held = position, opened.group(1), opened.group(2).strip(), []
            elif mark and fence and fence.group(1).startswith(mark) and not fence.group(2):
                found.append(Fence(opening, language, tuple(held), closed=True))
                mark = ""
            elif mark:
                held.append(line)
        if mark:
            found.append(Fence(opening, language, tuple(held), closed=False))
        return found

    @cached_property
    def fenced(self) -> dict[int, Fence]:
        """Line -> the fence it lies in; the fence's own marks included."""
        return {line: fence for fence in self.fences for line in range(fence.line, fence.line + len(fence.lines) + 2)}

    @cached_property
    def prose(self) -> list[tuple[int, str]]:
        """Lines outside fences."""
        return [(number, line) for number, line in enumerate(self.lines, 1) if number not in self.fenced]

    @cached_property
    def headings(self) -> list[tuple[int, str]]:
        """Lines that are headings."""
        return [(number, line.rstrip()) for number, line in self.prose if re.match(r"#{1,6}\s", line)]

    @cached_property
    def tables(self) -> list[Table]:
        """The tables, in order."""
        prose = dict(self.prose)
        found: list[Table] = []
        for position, line in self.prose:
            divider = prose.get(position + 1, "")
            if not line.lstrip().startswith("|") or not _divides(divider):
                continue
            rows = []
            at = position + 2
            while prose.get(at, "").lstrip().startswith("|"):
                rows.append((at, _cells(prose[at])))
                at += 1
            found.append(Table(position, _cells(line), tuple(rows)))
        return found


def without_code(line: str) -> str:
    """`line` with its code spans and HTML comments blanked out, every other character where it was."""
    kept, at = [], 0
    for start, end in _hidden(line):
        kept += [line[at:start], " " * (end - start)]
        at = end
    return "".join([*kept, line[at:]])


def without(text: str, opening: str, closing: str) -> str:
    """`text` without what stands from one mark to the other, which may span lines; what is never closed stays."""
    kept, at = [], 0
    while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start + len(opening))) >= 0:
        kept.append(text[at:start])
        at = end + len(closing)
    return "".join([*kept, text[at:]])


def _hidden(line: str) -> Iterator[tuple[int, int]]:
    """Start and end of the code spans and HTML comments. Each sign is passed once: a pattern would look for the end of every
    comment that has none, through the whole line."""
    at, closed = 0, max(line.rfind("-->"), 0)
    tick, comment = line.find("`"), -1
    while True:
        tick = line.find("`", at) if 0 <= tick < at else tick
        comment = _at(line, "<!--", at, closed) if comment < at else comment
        if tick < 0 and comment == len(line):
            return
        if 0 <= tick < comment:
            start, end = tick, line.find("`", tick + 1) + 1
            if not end:  # no other backtick follows
                tick = -1
                continue
        else:
            start, end = comment, line.find("-->", comment + 4) + 3
        yield start, end
        at = end


def _at(line: str, mark: str, start: int, before: int) -> int:
    """Where `mark` stands next before a place, the end of the line where it does not."""
    found = line.find(mark, start, before)
    return found if found >= 0 else len(line)


def _divides(line: str) -> bool:
    """Whether the line stands between head and rows of a table."""
    inner = line.strip()
    return len(inner) > 2 and inner[0] == inner[-1] == "|" and "-" in inner and not inner.strip(" \t\r\f\v:|-")


def code_spans(line: str) -> list[tuple[int, str]]:
    """Column and text of every code span of a line."""
    return [(found.start(), found.group(1)) for found in re.finditer(r"`([^`]+)`", line)]
