"""What was changed by hand in a saved report: lines that are not those that were written.

A line that the tool wrote was checked, and so was an agent's prose that came through it; a line that somebody put in later was
not, and may say anything. Numbers whose mark was taken away are found here too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from opscope_schemas.report import Problem, ReportFacts

from opscope_tools.report.markdown import FACT_MARK, Page

__all__ = ["edited_problems", "line_digests", "moved_lines"]


def _digest(line: str) -> str:
    return hashlib.sha256(line.rstrip().encode()).hexdigest()[:12]


def line_digests(page: Page) -> tuple[str, ...]:
    """Digests of the lines that say something, each once."""
    return tuple(dict.fromkeys(_digest(line) for line in page.lines if line.strip()))


def moved_lines(known: Sequence[str], old: Page, new: Page) -> tuple[str, ...]:
    """The digests of a report whose lines were put right: of those that were known, as they are now."""
    if not known:
        return ()
    held = set(known)
    changed = {
        _digest(a): _digest(b) for a, b in zip(old.lines, new.lines, strict=True) if a != b and _digest(a) in held
    }
    return tuple(dict.fromkeys(changed.get(digest, digest) for digest in known))


def edited_problems(page: Page, facts: ReportFacts | None, others: Iterable[Problem]) -> Iterator[Problem]:
    """Lines that are not those that were written, but for lines in which something else is wrong already."""
    if facts is None or not facts.lines:
        return
    known, wrong = set(facts.lines), {problem.line for problem in others}
    for number, line in enumerate(page.lines, 1):
        if line.strip() and number not in wrong and _digest(line) not in known:
            yield Problem(
                rule="EDITED", line=number,
                message="This line was changed since the report was written, and what it says was not checked: put prose in "
                "through `sections` of write_report.",
            )  # fmt: skip
    marked = {match[1] for _, text in page.prose for match in FACT_MARK.finditer(text)}
    lost = [key for key in facts.values if key not in marked]
    if lost:
        said = f"{len(lost)} numbers of the analysis have lost their mark or their line, the first {lost[0]}: write the report again."
        yield Problem(rule="FACT_LOST", line=1, message=said)
