"""Rules about what a report says: words, repetitions, links to files, its head, its catalogue and its pseudocode.

They need the text, and for links a look at the output folder.
"""

from __future__ import annotations

import ast
import datetime
import re
import textwrap
from collections.abc import Callable, Iterator

from opscope_schemas.report import Problem

from opscope_tools.report.markdown import Page, without_code
from opscope_tools.report.outline import COMPONENTS, NO_FURTHER

__all__ = [
    "HEAD", "REPO_HEAD", "about_models", "catalogue_problems", "duplicate_problems", "file_link_problems", "head_problems", "mermaid_problems",
    "pseudocode_problems", "repo_problems", "word_problems",
]  # fmt: skip

_HEDGES = (
    "probably presumably supposedly arguably seemingly perhaps maybe roughly speaking|it seems|seems to|appears to|i think"
    "|i believe|we believe|most likely|should be around|might be around|as far as i know"
)
_PRAISE = (
    "blazing|blazingly|lightning-fast|cutting-edge|state-of-the-art|world-class|best-in-class|game-changing|revolutionary"
    "|seamless|seamlessly|robust|elegant|elegantly|powerful|unparalleled|industry-leading|next-generation|battle-tested"
)
_SINGLE, _, _PHRASES = _HEDGES.partition(" roughly speaking|")
_HEDGING = re.compile(rf"\b(?:{'|'.join(_SINGLE.split())}|roughly speaking|{_PHRASES})\b", re.IGNORECASE)
_PRAISING = re.compile(rf"\b(?:{_PRAISE})\b", re.IGNORECASE)
#: what stands in the head of a report on a model, and of one on a repository
HEAD = ("Repository", "Framework", "Analysis Date")
REPO_HEAD = ("Repo", "Local clone", "Commit", "LLM-related")
#: words of a sentence from which on a repetition is one
_LONG = 9
_LINK = re.compile(r"(?<!!)\[[^\[\]\n]*+\]\(([^()\s#]++)(?:#[^()\s]*+)?\)|!\[[^\[\]\n]*+\]\(([^()\s]++)\)")
_EXTERNAL = re.compile(r"(?:https?|mailto):")


def word_problems(page: Page) -> Iterator[Problem]:
    """Words that guess or praise instead of saying."""
    for line, text in page.prose:
        plain = re.sub(r"\"[^\"]*\"", "", without_code(text))
        for found in _HEDGING.finditer(plain):
            yield Problem(
                rule="HEDGE", line=line, message=f"{found[0]!r} guesses: say what is known, or that it is not."
            )
        for found in _PRAISING.finditer(plain):
            yield Problem(rule="PRAISE", line=line, message=f"{found[0]!r} praises: say what was measured or counted.")


def duplicate_problems(page: Page) -> Iterator[Problem]:
    """Sentences of prose that stand in two sections."""
    seen: dict[str, tuple[int, str]] = {}
    section = ""
    headings = dict(page.headings)
    for line, text in page.prose:
        section = headings.get(line, section)
        if line in headings or text.lstrip().startswith(("|", "-", "*", "<", "A: ")):
            continue
        for sentence in re.split(r"(?<=[.!?])\s+", text.strip()):
            words = re.findall(r"\w+", sentence.lower())
            if len(words) < _LONG:
                continue
            first = seen.setdefault(" ".join(words), (line, section))
            if first[1] != section:
                yield Problem(
                    rule="DUPLICATE", line=line,
                    message=f"This sentence stands in {first[1].lstrip('# ')!r} too (line {first[0]}): say it once.",
                )  # fmt: skip


def file_link_problems(page: Page, exists: Callable[[str], bool]) -> Iterator[Problem]:
    """Links to files, as a renderer resolves them: relative to the report."""
    for line, text in page.prose:
        for found in _LINK.finditer(re.sub(r"`[^`]*`", "", text)):
            target = found[1] or found[2]
            if _EXTERNAL.match(target):
                continue
            if target.startswith("/"):
                said = f"{target} begins with a slash, which leads out of the report's folder: make it relative."
            elif not exists(target):
                said = f"{target} is no file beside the report."
            else:
                continue
            yield Problem(rule="LINK_DEAD", line=line, message=said)


def head_problems(page: Page, names: tuple[str, ...]) -> Iterator[Problem]:
    """The lines that say what was analysed, with what, and when."""
    for name in names:
        found = next(((n, t) for n, t in page.prose[:30] if t.startswith(f"**{name}:**")), None)
        if found is None or not found[1].partition(":**")[2].strip():
            yield Problem(rule="HEAD_MISSING", line=found[0] if found else 1, message=f"The head lacks **{name}:**.")
        elif name == "Analysis Date":
            yield from _date_problems(*found)


def _date_problems(line: int, text: str) -> Iterator[Problem]:
    written = text.partition(":**")[2].strip()
    try:
        date = datetime.date.fromisoformat(written)
    except ValueError:
        yield Problem(rule="HEAD_DATE", line=line, message=f"{written!r} is no date of the form 2026-01-31.")
        return
    if date > datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1):
        yield Problem(rule="HEAD_DATE", line=line, message=f"{written} lies in the future.")


def catalogue_problems(page: Page, head: tuple[str, ...]) -> Iterator[Problem]:
    """Tasks are numbered from 1 without gaps, a row for one or for a run of them, and depend on tasks that there are."""
    for table in page.tables:
        if table.head != head:
            continue
        rows = [(line, cells, _numbers(cells[0])) for line, cells in table.rows if len(cells) == len(head)]
        count, expected = max((last for *_, (_, last) in rows), default=0), 1
        for line, cells, (first, last) in rows:
            if first != expected or last < first:
                yield Problem(rule="TASK_NUMBER", line=line, message=f"Task {cells[0]!r} should be number {expected}.")
            expected = last + 1
            unknown = [n for n in re.findall(r"\d+", cells[-1]) if not 1 <= int(n) <= count]
            if unknown:
                said = f"Task {cells[0]} depends on {', '.join(unknown)}, which the catalogue does not have."
                yield Problem(rule="TASK_UNKNOWN", line=line, message=said)
            own = cells[-1].partition(";")[0]
            if re.fullmatch(r"[\d, ]+", own) and any(first <= int(n) <= count for n in re.findall(r"\d+", own)):
                said = f"Task {cells[0]} depends on itself or on a later task."
                yield Problem(rule="TASK_CIRCLE", line=line, message=said)


def _numbers(cell: str) -> tuple[int, int]:
    """The first and the last number of a row, `7` or `4-6`; zeros where it has none."""
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", cell)
    return (int(found[1]), int(found[2] or found[1])) if found else (0, 0)


def pseudocode_problems(page: Page) -> Iterator[Problem]:
    """Python in fences is Python."""
    for fence in page.fences:
        if fence.language != "python" or not fence.closed or any(line.startswith(">>>") for line in fence.lines):
            continue
        try:
            ast.parse(textwrap.dedent("\n".join(fence.lines)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            at = fence.line + (getattr(error, "lineno", 1) or 1)
            yield Problem(rule="PSEUDOCODE", line=min(at, len(page.lines)), message=f"This is no Python: {error}.")


_NODE = re.compile(r'^\s*(\w+)\["[^"\n]*"\]\s*$')
_EDGE = re.compile(r'^\s*(\w+)\s+(?:-->|---|-\.->|==>)(?:\|"[^"|\n]*"\|)?\s+(\w+)\s*$')
_GROUP = re.compile(r'^\s*subgraph \w+\["[^"\n]*"\]\s*$|^\s*end\s*$')
_RESERVED = frozenset({"end", "graph", "subgraph", "flowchart", "class", "style", "click", "default"})


def mermaid_problems(page: Page) -> Iterator[Problem]:
    """Flowcharts of quoted labels, declared nodes, plain edges and closed groups: what every renderer of Mermaid draws alike."""
    for fence in page.fences:
        if fence.language != "mermaid" or not fence.closed:
            continue
        nodes = {m[1] for line in fence.lines if (m := _NODE.match(line))}
        for at, line in enumerate(fence.lines, fence.line + 1):
            fault = _mermaid_fault(line, at == fence.line + 1, nodes)
            if fault:
                yield Problem(rule="MERMAID", line=at, message=fault)
        if not nodes:
            yield Problem(rule="MERMAID", line=fence.line, message="This diagram has no node.")
        opened = sum(line.strip().startswith("subgraph ") for line in fence.lines)
        if opened != sum(line.strip() == "end" for line in fence.lines):
            yield Problem(
                rule="MERMAID", line=fence.line, message="A `subgraph` ends with `end`, and nothing else does."
            )


def _mermaid_fault(line: str, first: bool, nodes: set[str]) -> str:
    if first:
        right = re.fullmatch(r"\s*(?:flowchart|graph) (?:TB|TD|BT|LR|RL)\s*", line)
        return "" if right else "A diagram begins with `flowchart TB` (or LR)."
    if not line.strip() or line.strip().startswith("%%") or _GROUP.match(line):
        return ""
    if node := _NODE.match(line):
        return f"{node[1]} is a word of Mermaid: call the node otherwise." if node[1] in _RESERVED else ""
    if edge := _EDGE.match(line):
        unknown = [name for name in (edge[1], edge[2]) if name not in nodes]
        return f'{unknown[0]} is no node of this diagram: declare it as {unknown[0]}["..."].' if unknown else ""
    return 'This is neither a node (`a["label"]`) nor an edge (`a --> b`); labels are quoted.'


#: rows of components with a pointer that a report on a repository has, and lines of its summary
_SUMMARY = (5, 8)


def about_models(page: Page) -> bool:
    """Whether a report says that its repository is about language models."""
    return any(text.startswith("**LLM-related:** yes") for _, text in page.prose)


def repo_problems(page: Page) -> Iterator[Problem]:
    """What a report on a repository holds: enough components, a summary of its length, a deep dive only where it is due."""
    headings = page.headings
    about = about_models(page)
    for line, text in headings:
        if text.startswith("## LLM deep dive") and not about:
            yield Problem(
                rule="SECTION_UNDUE", line=line, message="The repository is not LLM-related: leave the deep dive out."
            )
        if text.startswith("## TL;DR"):
            end = next((n for n, _ in headings if n > line), len(page.lines) + 1)
            count = sum(1 for n, t in page.prose if line < n < end and t.strip())
            if not _SUMMARY[0] <= count <= _SUMMARY[1]:
                said = f"The summary has {count} lines; {_SUMMARY[0]} to {_SUMMARY[1]} are asked for."
                yield Problem(rule="TLDR_LENGTH", line=line, message=said)
        if text.startswith("## Open questions"):
            end = next((n for n, _ in headings if n > line), len(page.lines) + 1)
            asked = [t for n, t in page.prose if line < n < end and "?" in t]
            if not asked:
                yield Problem(rule="NO_QUESTION", line=line, message="An open question ends with a question mark.")
    for table in page.tables:
        if table.head == ("Component", "Location", "Responsibility"):
            located = [cells for _, cells in table.rows if len(cells) == 3 and re.search(r":\d+", cells[1])]
            searched = [
                cells
                for _, cells in table.rows
                if len(cells) == 3 and ("searched" in cells[2] or cells[1] == "not looked for")
            ]
            exhausted = any(cells[0] == NO_FURTHER for cells in searched)
            if about and len(located) < COMPONENTS and not exhausted:
                said = f"{len(located)} components have a place; at least {COMPONENTS} are asked for."
                yield Problem(rule="TOO_FEW_COMPONENTS", line=table.line, message=said)
            for row_line, cells in table.rows:
                if len(cells) == 3 and cells not in located and cells not in searched:
                    said = f"{cells[0]} has neither a place nor a search that found none."
                    yield Problem(rule="COMPONENT_UNPLACED", line=row_line, message=said)
