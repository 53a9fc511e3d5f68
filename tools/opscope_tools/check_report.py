"""The tool `check_report`: a saved report beside the one that its source gives.

It follows every pointer into the registered repositories, lists what the rules of report/checks.py reject, makes the report anew
from the arguments that its facts file keeps, and says line by line what is not as it should be. Where it cannot be made anew it is
compared with its text as it was written, and a note says why. It changes nothing, but with `fix` the pointers whose lines have
moved. Order: arguments, what lies there, what it is compared with, the tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from opscope_schemas.common import Source, ToolArguments
from opscope_schemas.errors import BusyError, CancelledError, DeadlineError, InputError, OpscopeError, SourceError
from opscope_schemas.report import CheckReportResult, Problem, ReportFacts
from pydantic import Field, ValidationError

from opscope_tools.collect_evidence.files import record_problems
from opscope_tools.report.checks import Material, check, rule_names
from opscope_tools.report.checks_mermaid import mermaid_parsed
from opscope_tools.report.edits import differences, joined, packed, unpacked
from opscope_tools.report.markdown import Page
from opscope_tools.report.pins import pinned, repaired
from opscope_tools.report.post_checks import POST_RULES, check_post
from opscope_tools.report.saving import exists_beside, facts_path, inside, report_path, save
from opscope_tools.report.sources import SourceReader
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.write_report import Draft, WriteReportArguments, drafted, post_of

__all__ = ["CHECK_REPORT", "CheckReportArguments"]

#: problems of one answer where the whole list is too long
_FIRST = 40
#: what says that the source is not the one that the report was made from
_MOVED_ON = frozenset({"VERSION_STALE", "LINE_DRIFTED", "LINE_STALE"})
_AGAIN = "Write the report again with write_report and overwrite=true."
_COMPARED = "The report was compared with its text as it was written"


class CheckReportArguments(ToolArguments):
    """Arguments of `check_report`."""

    path: str = Field(
        description="Report below the output folder: reports/implementations/NAME-analysis.md, posts/NAME.md."
    )
    fix: bool = Field(default=False, description="Put right pointers whose lines have moved.")
    regenerate: bool = Field(
        default=True, description="Make the report anew to compare; false: compare with its text as it was written."
    )


# ---- what lies there ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Saved:
    """A report and its facts file: what it keeps, the arguments and the text that were written, and what is wrong with the
    file itself."""

    path: str
    text: str
    facts: ReportFacts | None = None
    arguments: WriteReportArguments | None = None
    written: str = ""
    problems: tuple[Problem, ...] = ()

    @classmethod
    def read(cls, workspace: Workspace, path: str, text: str) -> _Saved:
        beside = facts_path(path)
        try:
            facts = ReportFacts.model_validate_json(inside(workspace.output, beside).read_text(encoding="utf-8"))
            arguments, written = WriteReportArguments.model_validate(facts.arguments), unpacked(facts.text)
        except FileNotFoundError:
            said = f"No facts file lies at {beside}, so nothing that the report says was compared. {_AGAIN}"
            return cls(path, text, problems=(_of_facts("FACTS_MISSING", said, beside, "no such file"),))
        except (OSError, ValueError, ValidationError) as error:
            why = str(error).splitlines()[0]
            said = f"The facts file {beside} cannot be read, so nothing was compared: {why}. {_AGAIN}"
            return cls(path, text, problems=(_of_facts("FACTS_UNREADABLE", said, "a facts file", why),))
        belongs = _place(facts.name, facts.kind), _place(arguments.name, arguments.kind)
        foreign = next((other for other in belongs if other != path), "")
        if foreign:
            said = f"The facts file {beside} belongs to {foreign}, so nothing was compared. {_AGAIN}"
            return cls(path, text, problems=(_of_facts("FACTS_FOREIGN", said, path, foreign),))
        return cls(path, text, facts, arguments, written)


def _place(name: str, kind: str) -> str:
    """Where a report of that name lies; a phrase where it can lie nowhere."""
    try:
        return report_path(name, kind)
    except InputError:
        return f"a report called {name!r}"


def _of_facts(rule: str, message: str, expected: str, found: str) -> Problem:
    return Problem(rule=rule, line=1, message=message, expected=expected, found=found)


def _report_file(workspace: Workspace, path: str) -> tuple[Path, str]:
    """The report's file and text; raises `InputError` and `SourceError` for what is no report."""
    file = inside(workspace.output, path)
    if file.suffix != ".md":
        raise InputError(f"{path!r} is not a Markdown report.", next_step="Give the path that ends in .md.")
    try:
        if file.exists() and not file.is_file():
            raise SourceError(f"{path!r} is no regular file.", next_step="Give the path of a report.")
        return file, file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"There is no report at {path!r} in {workspace.output}.",
            next_step="Write it with write_report, or give the path relative to the output folder.",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"The report {path!r} cannot be read: {error}.") from None


# ---- what it is compared with ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Anew:
    """The report made a second time; without one a note says why, or a problem that its own arguments do not give it."""

    draft: Draft | None = None
    note: str = ""
    problems: tuple[Problem, ...] = ()


def _made_anew(
    facts: ReportFacts, arguments: WriteReportArguments, rejected: Iterable[Problem], context: ToolContext
) -> _Anew:
    """The report that the kept arguments give now. It is not made where the source is another than the report speaks of, which
    is a problem by itself."""
    if _MOVED_ON & {problem.rule for problem in rejected}:
        return _Anew(note=f"{_COMPARED}: the source has changed since.")
    try:
        return _Anew(drafted(arguments, context, facts.date))
    except (BusyError, CancelledError, DeadlineError):
        raise
    except OpscopeError as error:
        why = error.message.rstrip(".")
        absent = [s.repository for s in facts.sources if s.repository not in context.workspace.repositories]
        if absent:
            return _Anew(note=f"{_COMPARED}: {', '.join(absent)} is not registered, so it cannot be made anew.")
        if not isinstance(error, InputError):
            return _Anew(note=f"{_COMPARED}: it cannot be made anew here: {why}.")
        said = f"The arguments in the facts file do not give a report: {why}. {_AGAIN}"
        return _Anew(problems=(_of_facts("FACTS_CHANGED", said, "arguments that give this report", why),))


def _facts_problems(kept: ReportFacts, anew: ReportFacts) -> Iterator[Problem]:
    """What the facts file says otherwise than the analysis does now."""
    for key in sorted(kept.values.keys() | anew.values.keys()):
        right, found = anew.values.get(key), kept.values.get(key)
        if right != found:
            yield _facts_differ(f"{key} in the facts file", str(right), str(found))
    for name in ("variables", "words", "summary", "sources"):
        right, found = getattr(anew, name), getattr(kept, name)
        if right != found:
            yield _facts_differ(f"`{name}` of the facts file", str(right), str(found))
    if set(anew.pins) != set(kept.pins):
        odd = next(iter(set(kept.pins) ^ set(anew.pins)))
        yield _facts_differ("a pinned line of the facts file", "the lines cited", f"{odd.path}:{odd.first}-{odd.last}")


def _facts_differ(what: str, expected: str, found: str) -> Problem:
    said = f"{what} is not what the analysis gives. Expected: {expected[:200]}. Found: {found[:200]}. {_AGAIN}"
    return _of_facts("FACTS_CHANGED", said, expected, found)


def _prose_problems(draft: Draft, page: Page) -> Iterator[Problem]:
    """What is rejected in the agent's sections, at the line of the report where the sentence stands."""
    for problem in draft.problems:
        near = (problem.found or "\n").split("\n")[0]
        line = next((number for number, text in enumerate(page.lines, 1) if near and near in text), 1)
        yield problem.model_copy(update={"line": line})


def _compared(saved: _Saved, anew: _Anew, rejected: list[Problem]) -> tuple[list[Problem], str]:
    """All problems of a report that has its facts, and a note where it was not made anew."""
    assert saved.facts is not None
    page, expected, note = Page(saved.text), Page(saved.written), anew.note
    found = [*rejected, *anew.problems]
    if anew.draft is not None:
        expected = Page(anew.draft.report.text)
        found += [*_facts_problems(saved.facts, anew.draft.report.facts), *_prose_problems(anew.draft, page)]
        if saved.text == saved.written != expected.text:
            note = "The report is as it was written; what it is computed from gives another report now."
    return joined(page, found, differences(expected, page)), note


# ---- the tool -------------------------------------------------------------------------------------------------------


def _run(arguments: CheckReportArguments, context: ToolContext) -> CheckReportResult:
    workspace = context.workspace
    file, text = _report_file(workspace, arguments.path)
    saved = _Saved.read(workspace, file.relative_to(workspace.output.resolve()).as_posix(), text)
    context.checkpoint()
    reader = SourceReader(workspace.repositories.values(), context.checkpoint)
    repairs: tuple[str, ...] = ()
    if arguments.fix and saved.facts is not None:
        saved, repairs = _fixed(workspace, saved, saved.facts, reader)
    rejected = _rejected(saved, reader, context)
    anew = _Anew(note=f"{_COMPARED}, as was asked.")
    if saved.facts is not None and saved.arguments is not None and arguments.regenerate:
        anew = _made_anew(saved.facts, saved.arguments, rejected, context)
        if repairs and anew.draft is not None and _numbered(anew.draft.report.text) == _numbered(saved.text):
            saved = _taken(workspace, saved, anew.draft)
            rejected = _rejected(saved, reader, context)
    parsed, unparsed = mermaid_parsed(Page(saved.text), workspace.mermaid)
    problems, compared = joined(Page(saved.text), [*rejected, *parsed], ()), ""
    if saved.facts is not None:
        problems, compared = _compared(saved, anew, [*rejected, *parsed])
    rules = (*(rule.__name__ for rule in POST_RULES), "record_problems")
    return CheckReportResult(
        path=saved.path,
        ok=not problems,
        problems=tuple(problems),
        summary=saved.facts.summary if saved.facts else CheckReportResult.model_fields["summary"].default,
        rules=rules if saved.path.startswith("posts/") else (*rule_names(), *([] if unparsed else ["mermaid_parsed"])),
        repairs=repairs,
        sources=_sources(workspace),
        notes=tuple(filter(None, (compared, unparsed))),
    )


def _sources(workspace: Workspace) -> tuple[Source, ...]:
    return tuple(workspace.source(repository) for repository in workspace.repositories.values())


def _rejected(saved: _Saved, reader: SourceReader, context: ToolContext) -> list[Problem]:
    """What is wrong with the facts file, and what the rules reject."""
    workspace = context.workspace
    if saved.path.startswith("posts/"):
        if saved.facts is None or saved.arguments is None:
            return list(saved.problems)
        post = post_of(saved.arguments, saved.facts.date, context)
        return [*saved.problems, *record_problems(post, workspace.output), *check_post(Page(saved.text), post)]
    exists = partial(exists_beside, workspace.output, saved.path)
    return [*saved.problems, *check(Material(Page(saved.text), reader, saved.facts, _sources(workspace), exists))]


_LINE = re.compile(r"(?<=:)\d+(?:-\d+)?|(?<=line )\d+|(?<=lines )\d+")


def _numbered(text: str) -> str:
    """A report without the numbers of lines: diagrams give them without a path, so no pin follows them."""
    return _LINE.sub("", text)


def _taken(workspace: Workspace, saved: _Saved, draft: Draft) -> _Saved:
    """The report made anew in place of one that differs from it in numbers of lines alone."""
    report = draft.report
    save(
        workspace.output,
        {facts_path(saved.path): report.facts.model_dump_json(indent=1) + "\n", saved.path: report.text},
    )
    return _Saved(saved.path, report.text, report.facts, saved.arguments, report.text)


def _fixed(
    workspace: Workspace, saved: _Saved, facts: ReportFacts, reader: SourceReader
) -> tuple[_Saved, tuple[str, ...]]:
    """The report with its drifted pointers put right, saved where anything changed; so are those of the text as it was written
    and of the agent's sections, which it is compared with."""

    def mended(text: str) -> str:
        return repaired(Page(text), reader, facts.pins)[0]

    text, repairs = repaired(Page(saved.text), reader, facts.pins)
    if not repairs:
        return saved, ()
    gone = {repair.old for repair in repairs}
    kept = [pin for pin in facts.pins if not {f"{pin.path}:{pin.first}", f"{pin.path}:{pin.first}-{pin.last}"} & gone]
    made = "\n".join(repair.new for repair in repairs)
    written, sections = mended(saved.written), saved.arguments and saved.arguments.sections
    asked = {**facts.arguments, "sections": {key: mended(prose) for key, prose in sections.items()}} if sections else {}
    pins = tuple(dict.fromkeys((*kept, *pinned(Page(made), reader))))
    facts = facts.model_copy(update={"pins": pins, "text": packed(written), "arguments": asked or facts.arguments})
    save(workspace.output, {facts_path(saved.path): facts.model_dump_json(indent=1) + "\n", saved.path: text})
    told = tuple(f"line {repair.line}: {repair.old} -> {repair.new}" for repair in repairs)
    return _Saved(saved.path, text, facts, WriteReportArguments.model_validate(facts.arguments), written), told


def _first_problems(result: CheckReportResult) -> CheckReportResult:
    left_out = len(result.problems) - _FIRST
    if left_out <= 0:
        return result
    said = f"{left_out} further problems are left out: repair these and check again."
    return result.model_copy(update={"problems": result.problems[:_FIRST], "shortened": said})


CHECK_REPORT: Tool[CheckReportArguments, CheckReportResult] = Tool(
    name="check_report",
    title="Check a report",
    description=(
        "Reviews a saved report: makes it anew from source and says of every difference what was expected and found; dead or "
        "moved pointers, broken diagrams and links, unsupported prose."
    ),
    arguments=CheckReportArguments,
    result=CheckReportResult,
    run=_run,
    shorter=(_first_problems,),
    read_only=False,
    positional=("path",),
    cached=False,
    lane=lambda arguments: (
        "trace" if arguments.regenerate and not re.search(r"reports/repos/|posts/", arguments.path) else "static"
    ),
)
