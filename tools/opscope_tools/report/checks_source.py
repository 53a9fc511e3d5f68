"""The rules that follow a report into the sources: does `path:line` exist, and is the named symbol there?

A symbol belongs to the pointer that follows it most closely (`Name` (`path:12`)), or, where none precedes, to the one
before it. It is accepted where it stands on the cited lines or near them, or names a definition around them. Where it
stands elsewhere the problem says on which line, so that the writer repairs the line instead of dropping the claim.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from opscope_schemas.report import Problem

from opscope_tools.report.markdown import ABSOLUTE, POINTER, Page, code_spans, without_code
from opscope_tools.report.sources import SourceReader

__all__ = ["pointer_problems"]

#: lines around the cited ones on which the symbol may stand: decorators, and arguments of a call broken over lines
_NEAR = 3
_IDENTIFIER = re.compile(r"^[A-Za-z_][\w.]*(?:\(\))?$")
#: operators are named as the dispatcher knows them; no source line spells them so
_UNSPELLED = ("aten.", "aten::", "prims.", "torch.ops.")
#: what ends the reach of a name: the next sentence speaks of something else
_SENTENCE_END = re.compile(r"[.;:!?]\s")
_BARE_PATH = re.compile(r"^(?:[\w.\-+]+/)+[\w.\-+]+\.(?:py|pyi|cu|cuh|cpp|cc|h|hpp|c)$")


def pointer_problems(page: Page, reader: SourceReader) -> Iterator[Problem]:
    """What is wrong with the pointers of `page`."""
    for line, text in enumerate(page.lines, 1):
        fenced = line in page.fenced
        for found in ABSOLUTE.finditer(text):
            yield Problem(rule="PATH_MISSING", line=line, message=_missing(found[1]))
        for found in POINTER.finditer(text):
            path, first = found.group(1), int(found.group(2))
            last = int(found.group(3) or first)
            fault = _range_fault(reader, path, first, last)
            if fault:
                yield Problem(rule=fault[0], line=line, message=fault[1])
            elif not fenced and (symbol := _symbol_beside(text, found.start(), found.end(), reader)):
                message = _symbol_fault(reader, path, first, last, symbol)
                if message:
                    yield Problem(rule="SYMBOL_MISMATCH", line=line, message=message)
        if not fenced:
            for _, span in code_spans(text):
                if _BARE_PATH.match(span) and reader.lines(span) is None:
                    yield Problem(rule="PATH_MISSING", line=line, message=_missing(span))


def _missing(path: str) -> str:
    return f"{path} is not a file of any registered repository; paths are relative to a repository's root."


def _range_fault(reader: SourceReader, path: str, first: int, last: int) -> tuple[str, str] | None:
    lines = reader.lines(path)
    if lines is None:
        return "PATH_MISSING", _missing(path)
    if not 1 <= first <= last <= len(lines):
        cited = f"{first}-{last}" if last != first else str(first)
        return "LINE_OUT_OF_BOUNDS", f"{path} has {len(lines)} lines; {cited} is not among them."
    if not any(text.strip() for text in lines[first - 1 : last]):
        return "LINE_BLANK", f"{path}:{first} is blank."
    return None


def _symbol_beside(text: str, start: int, end: int, reader: SourceReader) -> str:
    """The identifier in back-ticks that a pointer at `start` speaks of; empty where there is none."""
    pointers = [found.span() for found in POINTER.finditer(text)]
    before_limit = max((stop for _, stop in pointers if stop <= start), default=0)
    after_limit = min((begin for begin, _ in pointers if begin >= end), default=len(text))
    names = [(at, name) for at, name in code_spans(text) if _IDENTIFIER.match(name) and not name.startswith(_UNSPELLED)]
    names = [(at, name) for at, name in names if not POINTER.fullmatch(name) and not _is_file(name, reader)]
    before = [(at, name) for at, name in names if before_limit <= at < start]
    after = [(at, name) for at, name in names if end <= at < after_limit]
    prose = without_code(text)
    if before and not _SENTENCE_END.search(prose[before[-1][0] : start]):
        return before[-1][1]
    alone = not before_limit and after_limit == len(text)
    return after[0][1] if alone and after and not _SENTENCE_END.search(prose[end : after[0][0]]) else ""


def _is_file(name: str, reader: SourceReader) -> bool:
    named = re.search(r"\.(?:py|json|md|cu|h)$", name)
    return named is not None or ("." in name and reader.lines(name) is not None)


def _symbol_fault(reader: SourceReader, path: str, first: int, last: int, symbol: str) -> str:
    """A sentence where `symbol` is neither near the cited lines nor names a definition around them; else empty."""
    word = symbol.removesuffix("()").rpartition(".")[2]
    lines = reader.occurrences(path, word)
    if any(first - _NEAR <= at <= last + _NEAR for at in lines):
        return ""
    around = {part for span in reader.enclosing(path, first) for part in span.name.split(".")}
    if word in around:
        return ""
    if not lines:
        return f"`{symbol}` does not occur in {path}."
    definition = reader.definition(path, word)
    nearest = definition.line if definition else min(lines, key=lambda at: abs(at - first))
    return f"`{symbol}` is not at {path}:{first}; it is {'defined' if definition else 'found'} at {path}:{nearest}."
