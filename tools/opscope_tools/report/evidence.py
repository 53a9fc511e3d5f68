"""An agent's own prose: every paragraph rests on a pointer, a fact or a search. What its sentences say is checked in prose.py.

`{{fact:key}}` becomes the number of that key with its mark, with its unit where the sentence names none. "searched `PATTERN` in `PATH`" is a search: the tool runs it,
when the report is written and on every check, and refuses it where it finds something.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from opscope_schemas.report import Problem

from opscope_tools.report.markdown import FACT_MARK, POINTER, Page, without_code
from opscope_tools.report.measures import written
from opscope_tools.report.sentences import paragraphs
from opscope_tools.report.sources import SourceReader

__all__ = ["evidence_problems", "search_problems", "with_facts"]

_FACT = re.compile(r"\{\{\s*fact:([^{}\s]+)\s*\}\}")
_SEARCH = re.compile(r"\bsearched `([^`]+)` in `([^`]+)`")
#: a sentence that says that something is not there
_ABSENCE = re.compile(
    r"\b(?:[Tt]here (?:is|are|was|were) no|[Nn]o (?!\.)\w|[Nn]one\b|[Nn]ever\b|[Nn]either\b|[Ll]acks?\b|(?:has|have|with) no\b"
    r"|(?:does|do) not (?:support|use|implement|have|contain|call|exist|need))"
)
_LONGEST_PATTERN = 200


def with_facts(text: str, values: Mapping[str, float]) -> tuple[str, list[Problem]]:
    """The text with its facts as marked numbers, and the keys that no fact has."""
    problems: list[Problem] = []

    def put(match: re.Match[str]) -> str:
        key = match[1]
        if key in values:
            following = re.split(r"[\n{`]", text[match.end() :], maxsplit=1)[0]
            return f"{written(key, values[key], following)}<!-- fact:{key} -->"
        near = difflib.get_close_matches(key, values, n=3, cutoff=0.3)
        said = f"No number is called {key!r}. Nearest keys: {', '.join(near) or ', '.join(list(values)[:6])}."
        problems.append(Problem(rule="FACT_UNKNOWN", line=text.count("\n", 0, match.start()) + 1, message=said))
        return f"<!-- fact:{key} -->"

    return _FACT.sub(put, text), problems


def evidence_problems(page: Page) -> Iterator[Problem]:
    """What an agent's prose, its facts put in, asserts without evidence."""
    for block in paragraphs(page):
        backed = POINTER.search(block.text) or FACT_MARK.search(block.text)
        searched = _SEARCH.search(block.text)
        if not backed and not searched:
            yield Problem(
                rule="CLAIM_UNSUPPORTED", line=block.line,
                message="Nothing here can be checked: cite the lines that show it (`path.py:12-20`), a number as "
                "{{fact:key}}, or a search that found nothing (searched `PATTERN` in `PATH`).",
            )  # fmt: skip
        elif _ABSENCE.search(without_code(block.text)) and not searched and not POINTER.search(block.text):
            yield Problem(
                rule="ABSENCE_UNSEARCHED", line=block.line,
                message="What is said not to be there needs the search that found nothing: searched `PATTERN` in `PATH`.",
            )  # fmt: skip


def search_problems(page: Page, reader: SourceReader) -> Iterator[Problem]:
    """Searches that find what is said not to be there, and searches that cannot be made."""
    for line, text in page.prose:
        for found in _SEARCH.finditer(text):
            pattern, path = found[1], found[2]
            message = _searched(pattern, path, reader)
            if message:
                yield Problem(rule="SEARCH_FAILED", line=line, message=message)


def _searched(pattern: str, path: str, reader: SourceReader) -> str:
    """What is wrong with a search; empty where it finds nothing, as it should."""
    if len(pattern) > _LONGEST_PATTERN:
        return f"The pattern has {len(pattern)} characters; give at most {_LONGEST_PATTERN}."
    files = reader.files_below(path)
    if not files:
        return f"{path} is no file or folder of a registered repository that holds text."
    for file in files:
        lines = reader.occurrences(file, pattern)
        if lines:
            return f"`{pattern}` is found at {file}:{lines[0]}: say so, or search for what is meant."
    return ""
