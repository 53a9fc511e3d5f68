"""The sentences of an agent's prose, each with its facts and pointers, and its plain words apart from what is code.

A statement is a paragraph, a bullet, a heading, a row of a table or a line of a diagram; a sentence ends at a full stop. `plain` has as
many signs as the sentence: code spans, pointers, links and comments are blank in it, and a quoted fact is one NUL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from opscope_tools.report.markdown import FACT_MARK, POINTER, Page, without_code

__all__ = ["FACT", "Quoted", "Sentence", "Statement", "paragraphs", "sentences", "statements"]

#: stands in plain words for a fact
FACT = "\0"
#: a number of the analysis with the unit that it may bring, and its mark
_QUOTED = re.compile(
    r"(?:(?<![\w.,])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?: ?(?:[kMGTP]?(?:FLOP|B)(?:/s)?|[KMGT]iB|m?s|us|ns|%|[TBMK]))?)?"
    + FACT_MARK.pattern
)
_LINK = re.compile(r"(?<=\])\([^()\s]*\)|<?https?://[^\s>)]*>?")
_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[^\s\w]*[A-Z\0]|\s*$)|(?<=[.!?])[)\"'*_]*\s{2,}")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|cf|vs|approx|etc|fig|eq|no|al|resp)\.$", re.IGNORECASE)
#: languages of fences that hold code, whose numbers are literals
_CODE = frozenset("python py cpp c cuda cu c++ bash sh shell console json toml yaml text/x-python pycon".split())


@dataclass(frozen=True)
class Quoted:
    """A fact in a sentence: where its number stands, its key."""

    start: int
    end: int
    key: str


@dataclass(frozen=True)
class Statement:
    """What stands together: its first line, its text, and whether it is drawn in a fence."""

    line: int
    text: str
    drawn: bool = False


@dataclass(frozen=True)
class Sentence:
    """A sentence of a statement."""

    line: int
    text: str
    plain: str
    facts: tuple[Quoted, ...]
    within: Statement


def paragraphs(page: Page) -> Iterator[Statement]:
    """The paragraphs and bullets, outside fences and tables."""
    held: list[str] = []
    first = 0
    for position, text in [*page.prose, (len(page.lines) + 2, "")]:
        ends = (
            not text.strip()
            or re.match(r"\s*(?:[-*+]|\d+\.)\s|#{1,6}\s|\s*\|", text)
            or (held and position > first + len(held))
        )
        if ends and held:
            yield Statement(first, " ".join(held))
            held = []
        if text.strip() and not re.match(r"#{1,6}\s|\s*\||\s*[-*_]{3,}\s*$", text):
            first = first if held else position
            held.append(text.strip())


def statements(page: Page) -> Iterator[Statement]:
    """All that a page says: paragraphs and bullets, headings, rows of tables, lines of diagrams."""
    yield from paragraphs(page)
    for line, heading in page.headings:
        yield Statement(line, heading.lstrip("# "))
    for table in page.tables:
        for line, cells in [(table.line, table.head), *table.rows]:
            yield Statement(line, " | ".join(cells))
    for fence in page.fences:
        if fence.language.lower() not in _CODE:
            for line, text in enumerate(fence.lines, fence.line + 1):
                yield Statement(line, text, drawn=True)


def sentences(statement: Statement) -> Iterator[Sentence]:
    """The sentences of a statement, in order."""
    plain, facts = _plain(statement)
    start = 0
    ends = [m.end() for m in _END.finditer(plain) if not _ABBREVIATED.search(plain[: m.start()].rstrip())]
    for end in [*ends, len(plain)]:
        if statement.text[start:end].strip():
            own = tuple(Quoted(f.start - start, f.end - start, f.key) for f in facts if start <= f.start < end)
            yield Sentence(statement.line, statement.text[start:end].strip(" "), plain[start:end], own, statement)
        start = end


def _plain(statement: Statement) -> tuple[str, list[Quoted]]:
    """The words of a statement, and where its facts stand."""
    text = statement.text
    facts = [Quoted(m.start(), m.end(), m[1]) for m in _QUOTED.finditer(text)]
    for fact in facts:
        text = text[: fact.start] + FACT + " " * (fact.end - fact.start - 1) + text[fact.end :]
    kept = text if statement.drawn else without_code(text)
    for pattern in (POINTER, _LINK):
        kept = pattern.sub(lambda found: " " * len(found[0]), kept)
    listed = re.match(r"\s*(?:[-*+]|\d+\.)\s+(?:\[[ xX]\]\s)?", kept)
    return (" " * listed.end() + kept[listed.end() :] if listed else kept), facts
