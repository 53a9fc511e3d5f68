"""The self-review of a report: one small function per rule, listed in `RULES`.

A rule takes the report and what it may be compared with, and yields what it rejects. Rules about form need the text
alone; POINTER rules follow `path:line` into the sources (checks_source.py); FACT_MISMATCH compares marked numbers with
the facts file. Add a rule: write the function, list it, plant its fault in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from opscope_schemas.common import Source
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import STANDARD_ORDER, evaluate, variables
from opscope_schemas.report import Problem, ReportFacts

from opscope_tools.report.checks_source import pointer_problems
from opscope_tools.report.checks_text import (
    HEAD,
    REPO_HEAD,
    about_models,
    catalogue_problems,
    duplicate_problems,
    file_link_problems,
    head_problems,
    mermaid_problems,
    pseudocode_problems,
    repo_problems,
    word_problems,
)
from opscope_tools.report.evidence import search_problems
from opscope_tools.report.markdown import FACT_MARK, POINTER, Page, code_spans, without_code
from opscope_tools.report.measures import written_forms
from opscope_tools.report.outline import DEEP, REPO_SECTIONS, REPO_TABLES, SECTIONS, TABLES, anchor
from opscope_tools.report.pins import pin_problems
from opscope_tools.report.quotes import BRACED
from opscope_tools.report.sources import SourceReader

__all__ = ["FRAGMENT_RULES", "RULES", "Material", "check", "rule_names"]


@dataclass(frozen=True)
class Material:
    """A report and what it is compared with."""

    page: Page
    reader: SourceReader
    facts: ReportFacts | None = None
    #: the source trees as they are now, and whether a file lies at a path relative to the report
    sources: tuple[Source, ...] = ()
    exists: Callable[[str], bool] | None = None

    @property
    def of_repo(self) -> bool:
        """Whether the report is one on a repository."""
        return self.facts.kind == "repo" if self.facts else self.page.text.lstrip().startswith("# Repo analysis")


Rule = Callable[[Material], Iterator[Problem]]


def _problem(rule: str, line: int, message: str) -> Problem:
    return Problem(rule=rule, line=line, message=message)


# ---- placeholders ---------------------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"\$\{\{[^{}]*+\}\}\([^)$]*+\)")
_ANGLED = re.compile(r"<(?!!--|https?:|mailto:)(?:([A-Za-z][\w-]*+)[^<>\n]*+|[A-Za-z_.][^<>\n]*+)>|<\.\.\.>")
#: elements of HTML, which stand in Markdown as themselves
_ELEMENTS = frozenset(
    "a abbr address area article aside audio b base bdi bdo blockquote body br button canvas caption center cite code col "
    "colgroup data datalist dd del details dfn dialog div dl dt em embed fieldset figcaption figure font footer form h1 h2 "
    "h3 h4 h5 h6 head header hr html i iframe img input ins kbd label legend li link main map mark menu meta meter nav "
    "noscript object ol optgroup option output p picture pre progress q rp rt ruby s samp script search section select "
    "slot small source span strong style sub summary sup svg table tbody td template textarea tfoot th thead time title tr "
    "track tt u ul var video wbr".split()
)
_UNDONE = re.compile(r"\b(?:TODO|TBD|FIXME|XXX)\b")
_NUMBERED = re.compile(
    r"^\s*+(?:[-*]|#|\d++\.)?\s*+(?:Feature|Insight|Problem|Pitfall|Question|Component|Limitation) \d++\.?\s*+$"
    r"|\b[Ss]tep \d+: ?\.\.\."
)
#: what the templates' square brackets begin with
_BRACKETED = re.compile(
    r"(?<![\w\])!])\[(?:Describe|Description|Diagram|Answer|Brief|What |Insert|Explain|Your |ASCII|Task dependency"
    r"|Repeat|Next|Component Name|Model/|URL|YYYY|Yes/No|PyTorch / |requirements|minimum|supported"
    r"|operations|sync points"
    r"|shape\]|\d-\d sentences|memory access|tiling strategy|Related|Documentation|Search|Fill)[^\]\n]*(?:\](?![(\[])|$)"
)
_CHECKLIST = re.compile(r"^\s*[-*] \[[ xX]\]")


def placeholders(material: Material) -> Iterator[Problem]:
    """Nothing that a template left to be filled in."""
    known = {*STANDARD_ORDER, "w_bytes", "a_bytes", "kv_bytes", *(material.facts.variables if material.facts else ())}
    defined = {
        f"[{name}]" for name in re.findall(r"^[ \t]*+\[([^\]\n]++)\]:\s", material.page.text, re.MULTILINE)
    }  # links
    for line, text in enumerate(material.page.lines, 1):
        fence = material.page.fenced.get(line)
        if _CHECKLIST.match(text):  # a checklist may speak of placeholders
            continue
        for found in _unfilled(_REFERENCE.sub("", text), fence.language if fence else None, known):
            if found in defined or _quoted(material.reader, text, found):
                continue
            yield _problem(
                "PLACEHOLDER", line, f"{found!r} is a placeholder; write what it stands for, or leave it out."
            )


def _unfilled(text: str, language: str | None, known: set[str]) -> Iterator[str]:
    """Placeholders in one line; `language` is None outside fences. Python may index, format and compare."""
    outside = language is None
    if (language or "").lower() not in ("python", "py"):
        for found in BRACED.finditer(text):
            if found.group(1) not in known and not _in_formula(text, found.start(), known):
                yield found.group()
    scanned = without_code(text) if outside else text
    if outside:  # what source says is quoted, whatever it leaves to be done
        scanned = re.sub(r"\"[^\"]*\"", "", scanned)
    for pattern in (_UNDONE, _NUMBERED, _BRACKETED):
        yield from (found.group().strip() for found in pattern.finditer(scanned))
    if outside:
        for found in _ANGLED.finditer(without_code(text)):
            if (found[1] or "").lower() not in _ELEMENTS:
                yield found.group()
    elif "<...>" in text:
        yield "<...>"


def _in_formula(text: str, at: int, known: set[str]) -> bool:
    """Whether the brace at `at` stands in a code span that is a formula of at least one known variable."""
    for start, span in code_spans(text):
        if start <= at <= start + len(span) and variables(span) & known:
            try:
                evaluate(span, dict.fromkeys(variables(span), 1))
            except ValuesError:
                return False
            return True
    return False


def _quoted(reader: SourceReader, text: str, braced: str) -> bool:
    """Whether a code span holds the words in braces as a file has them that the same line points to."""
    if not any(braced in span for _, span in code_spans(text)):
        return False
    wanted = "".join(braced.split())
    files = dict.fromkeys(pointer[1] for pointer in POINTER.finditer(text))
    return any(wanted in "".join(line.split()) for file in files for line in reader.lines(file) or ())


# ---- form -----------------------------------------------------------------------------------------------------------


def fences(material: Material) -> Iterator[Problem]:
    """Every fence is closed."""
    for fence in material.page.fences:
        if not fence.closed:
            yield _problem("FENCE_OPEN", fence.line, "This code fence is never closed.")


def tables(material: Material) -> Iterator[Problem]:
    """Tables have names of columns and rows, rows have content, and as many cells as the head."""
    for table in material.page.tables:
        if not all(table.head):
            yield _problem("UNNAMED_COLUMN", table.line, f"A column of the table {' / '.join(table.head)} has no name.")
        if not table.rows:
            yield _problem("TABLE_EMPTY", table.line, f"The table {' / '.join(table.head)} has no rows.")
        for line, cells in table.rows:
            if not any(re.search(r"\w", cell) for cell in cells[1:]) or not any(cells):
                yield _problem("EMPTY_ROW", line, f"This row of the table {' / '.join(table.head)} says nothing.")
            elif len(cells) != len(table.head):
                yield _problem("RAGGED_TABLE", line, f"This row has {len(cells)} cells, the head {len(table.head)}.")


def boxes(material: Material) -> Iterator[Problem]:
    """Boxes in fences close, with their edges in one column each."""
    for fence in material.page.fences:
        claimed: set[tuple[int, int]] = set()
        for row, text in enumerate(fence.lines):
            for column in (at for at, glyph in enumerate(text) if glyph == "┌"):
                fault = _box_fault(fence.lines, row, column, claimed)
                if fault:
                    yield _problem("BOX_BROKEN", fence.line + 1 + fault[0], fault[1])
        for row, text in enumerate(fence.lines):
            for column, glyph in enumerate(text):
                if glyph in "┐┘" and (row, column) not in claimed:
                    yield _problem("BOX_BROKEN", fence.line + 1 + row, f"The corner {glyph} belongs to no box.")


def _box_fault(lines: tuple[str, ...], row: int, left: int, claimed: set[tuple[int, int]]) -> tuple[int, str] | None:
    """What is wrong with the box whose top left corner is given, as row and sentence; claims its right corners."""
    right = lines[row].find("┐", left)
    if right < 0:
        return row, "The top edge of this box has no right corner."
    claimed.add((row, right))
    for below in range(row + 1, len(lines)):
        text = lines[below].ljust(right + 1)
        if text[left] in "└╰":
            if text[right] != "┘":
                return below, f"The bottom edge of this box does not end in column {right + 1}."
            claimed.add((below, right))
            return None
        if text[left] not in "│├┼║" or text[right] not in "│┤┼║":
            side = "left" if text[left] not in "│├┼║" else "right"
            return below, f"The {side} edge of this box is not in column {(left if side == 'left' else right) + 1}."
    return row, "This box has no bottom edge."


# ---- outline --------------------------------------------------------------------------------------------------------


def sections(material: Material) -> Iterator[Problem]:
    """Every section of the outline is there, in order, and says something."""
    headings = material.page.headings
    last_line, last_title = 0, ""
    for section in REPO_SECTIONS if material.of_repo else SECTIONS:
        if material.of_repo and section.number in DEEP and not about_models(material.page):
            continue
        lines = [line for line, text in headings if text == section.heading]
        if not lines:
            yield _problem("SECTION_MISSING", max(last_line, 1), f"The heading {section.heading!r} is missing.")
        elif lines[0] < last_line:
            yield _problem("SECTION_ORDER", lines[0], f"{section.heading!r} stands before {last_title!r}.")
        else:
            last_line, last_title = lines[0], section.heading
    if material.of_repo:
        yield from repo_problems(material.page)
        return
    components = [(line, text) for line, text in headings if re.match(r"### 4\.\d+ ", text)]
    if not components:
        yield _problem("SECTION_MISSING", 1, "Section 4 has no component; the first is headed '### 4.1 ...'.")
    for position, (line, text) in enumerate(components, 1):
        if not text.startswith(f"### 4.{position} "):
            yield _problem("SECTION_ORDER", line, f"{text!r} should be number 4.{position}.")


def empty_sections(material: Material) -> Iterator[Problem]:
    """No heading without content below it."""
    headings = [*material.page.headings, (len(material.page.lines) + 1, "#")]
    for (line, text), (following, deeper) in pairwise(headings):
        body = material.page.lines[line : following - 1]
        level, next_level = (len(heading) - len(heading.lstrip("#")) for heading in (text, deeper))
        if next_level <= level and not any(re.search(r"\w", part) for part in body):
            yield _problem("SECTION_EMPTY", line, f"Nothing stands below {text!r}.")


def table_heads(material: Material) -> Iterator[Problem]:
    """The tables that readers look for stand in their sections."""
    headings = material.page.headings
    outline, heads = (REPO_SECTIONS, REPO_TABLES) if material.of_repo else (SECTIONS, TABLES)
    for section in outline:
        head = heads.get(section.number)
        start = next((line for line, text in headings if text == section.heading), None)
        if head is None or start is None:
            continue
        end = next((line for line, _ in headings if line > start), len(material.page.lines) + 1)
        if not any(start < table.line < end and table.head == head for table in material.page.tables):
            yield _problem("TABLE_MISSING", start, f"{section.heading!r} lacks its table {' / '.join(head)}.")


# ---- links and numbers ----------------------------------------------------------------------------------------------


def links(material: Material) -> Iterator[Problem]:
    """Links inside the report lead to one of its headings."""
    seen: dict[str, int] = {}
    anchors = {anchor(text, seen) for _, text in material.page.headings}
    for line, text in material.page.prose:
        for found in re.finditer(r"\]\(#([^()\s]*+)\)", text):
            if found.group(1) not in anchors:
                yield _problem("LINK_DEAD", line, f"No heading has the anchor #{found.group(1)}.")


_MARKED = re.compile(r"(?:(?<![\d,])(-?\d[\d,]*+(?:\.\d++)?))?([^\d<]{0,12})" + FACT_MARK.pattern)


def facts(material: Material) -> Iterator[Problem]:
    """Numbers that carry a mark equal the analysis."""
    if material.facts is None:
        return
    values: Mapping[str, float] = material.facts.values
    for line, text in material.page.prose:
        for found in _MARKED.finditer(text):
            written, between, key = found.groups()
            if key not in values:
                yield _problem("FACT_UNKNOWN", line, f"The analysis beside this report has no number called {key!r}.")
            elif written is None or not _is(key, values[key], written, between):
                yield _problem(
                    "FACT_MISMATCH",
                    line,
                    f"{key} is {values[key]:,} in the analysis, not {written and written + between}.",
                )


def _is(key: str, value: float, written: str, between: str) -> bool:
    """Whether that is the number, digit by digit or as people say what it counts."""
    return f"{written}{between}" in written_forms(key, value) if between else _number(written) == value


def _number(written: str) -> float:
    plain = written.replace(",", "")
    return float(plain) if "." in plain else int(plain)


def pointers(material: Material) -> Iterator[Problem]:
    """Pointers resolve, and what stands beside them is there."""
    return pointer_problems(material.page, material.reader)


def pins(material: Material) -> Iterator[Problem]:
    """The cited lines are what they were when the report was written."""
    yield from pin_problems(material.page, material.reader, material.facts.pins if material.facts else ())


def versions(material: Material) -> Iterator[Problem]:
    """The source trees are the ones that the report speaks of."""
    now = {source.repository: source.version for source in material.sources}
    for source in material.facts.sources if material.facts else ():
        if source.repository in now and now[source.repository] != source.version:
            line = next((n for n, text in material.page.prose if text.startswith("**Repository:**")), 1)
            yield _problem(
                "VERSION_STALE", line,
                f"The report speaks of {source.repository} {source.version or 'without a version'}; it is "
                f"{now[source.repository] or 'without one'} now. Write the report again.",
            )  # fmt: skip


def searches(material: Material) -> Iterator[Problem]:
    """Searches that are said to have found nothing find nothing."""
    return search_problems(material.page, material.reader)


def words(material: Material) -> Iterator[Problem]:
    """No guesses and no praise."""
    return word_problems(material.page)


def duplicates(material: Material) -> Iterator[Problem]:
    """No sentence twice."""
    return duplicate_problems(material.page)


def file_links(material: Material) -> Iterator[Problem]:
    """Links to files lead to files."""
    return file_link_problems(material.page, material.exists) if material.exists else iter(())


def head(material: Material) -> Iterator[Problem]:
    """What was analysed, with what, and when."""
    return head_problems(material.page, REPO_HEAD if material.of_repo else HEAD)


def catalogue(material: Material) -> Iterator[Problem]:
    """Tasks are numbered, and depend on earlier ones."""
    return catalogue_problems(material.page, TABLES["5"])


def pseudocode(material: Material) -> Iterator[Problem]:
    """Python in fences parses."""
    return pseudocode_problems(material.page)


def diagrams(material: Material) -> Iterator[Problem]:
    """Mermaid in fences is a flowchart whose nodes are declared."""
    return mermaid_problems(material.page)


#: every rule, in the order in which problems are reported for one line
RULES: tuple[Rule, ...] = (
    placeholders, pointers, pins, versions, searches, fences, tables, boxes, head, sections, empty_sections, table_heads,
    catalogue, pseudocode, diagrams, links, file_links, facts, words, duplicates,
)  # fmt: skip
#: the rules that also hold for a piece of a report
FRAGMENT_RULES: tuple[Rule, ...] = (
    placeholders,
    pointers,
    searches,
    fences,
    tables,
    boxes,
    pseudocode,
    diagrams,
    facts,
    words,
)


def check(material: Material, rules: tuple[Rule, ...] = RULES) -> list[Problem]:
    """Everything the rules reject, by line."""
    found: list[Problem] = []
    for rule in rules:
        material.reader.checkpoint()
        found += rule(material)
    return sorted(found, key=lambda problem: problem.line)


def rule_names(rules: tuple[Rule, ...] = RULES) -> tuple[str, ...]:
    """Names of the rules that run."""
    return tuple(rule.__name__ for rule in rules)
