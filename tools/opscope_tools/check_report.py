"""The tool `check_report`: the self-review of a saved report.

It reads the report from the output folder and the facts file beside it, follows every pointer into the registered
repositories, and lists what the rules of report/checks.py reject. It changes nothing, but with `fix` the pointers whose
lines have moved.
"""

from __future__ import annotations

from functools import partial
from urllib.parse import unquote

from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import InputError, PathRefusedError, SourceError
from opscope_schemas.report import CheckReportResult, ReportFacts
from pydantic import Field, ValidationError

from opscope_tools.report.checks import Material, check, rule_names
from opscope_tools.report.checks_mermaid import mermaid_parsed
from opscope_tools.report.edits import edited_problems, moved_lines
from opscope_tools.report.markdown import Page
from opscope_tools.report.pins import pinned, repaired
from opscope_tools.report.saving import facts_path, inside, save
from opscope_tools.report.sources import SourceReader
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.running.workspace import Workspace

__all__ = ["CHECK_REPORT", "CheckReportArguments"]

#: problems of one answer where the whole list is too long
_FIRST = 40


class CheckReportArguments(ToolArguments):
    """Arguments of `check_report`."""

    path: str = Field(description="Report below the output folder: reports/implementations/NAME-analysis.md.")
    fix: bool = Field(default=False, description="Put right pointers whose lines have moved.")


def read_facts(workspace: Workspace, path: str) -> ReportFacts | None:
    """The facts file beside the report at `path`; None where there is none.

    Raises `SourceError` for one that cannot be read: comparing with nothing would pass wrong numbers.
    """
    beside = inside(workspace.output, facts_path(path))
    if not beside.is_file():
        return None
    try:
        return ReportFacts.model_validate_json(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError) as error:
        raise SourceError(
            f"The facts file {facts_path(path)} cannot be read: {str(error).splitlines()[0]}.",
            next_step="Write the report again with write_report, or delete the facts file.",
        ) from None


def _run(arguments: CheckReportArguments, context: ToolContext) -> CheckReportResult:
    workspace = context.workspace
    file = inside(workspace.output, arguments.path)
    if file.suffix != ".md":
        raise InputError(f"{arguments.path!r} is not a Markdown report.", next_step="Give the path that ends in .md.")
    try:
        if file.exists() and not file.is_file():
            raise SourceError(f"{arguments.path!r} is no regular file.", next_step="Give the path of a report.")
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"There is no report at {arguments.path!r} in {workspace.output}.",
            next_step="Write it with write_report, or give the path relative to the output folder.",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"The report {arguments.path!r} cannot be read: {error}.") from None
    path = file.relative_to(workspace.output.resolve()).as_posix()
    facts = read_facts(workspace, path)
    context.checkpoint()
    reader = SourceReader(workspace.repositories.values(), context.checkpoint)
    repairs: tuple[str, ...] = ()
    if arguments.fix and facts is not None:
        text, facts, repairs = _fixed(workspace, path, text, facts, reader)
    sources = tuple(workspace.source(repository) for repository in workspace.repositories.values())
    exists = partial(exists_beside, workspace, path)
    parsed, unparsed = mermaid_parsed(Page(text), workspace.mermaid)
    problems = [*check(Material(Page(text), reader, facts, sources, exists)), *parsed]
    problems = sorted([*problems, *edited_problems(Page(text), facts, problems)], key=lambda problem: problem.line)
    compared = (
        "" if facts else "No facts file lies beside the report, so its numbers and cited lines were not compared."
    )
    return CheckReportResult(
        path=path,
        ok=not problems,
        problems=tuple(problems),
        summary=facts.summary if facts else CheckReportResult.model_fields["summary"].default,
        rules=(*rule_names(), *([] if unparsed else ["mermaid_parsed"])),
        repairs=repairs,
        sources=sources,
        notes=tuple(filter(None, (compared, unparsed))),
    )


def exists_beside(workspace: Workspace, report: str, target: str) -> bool:
    """Whether a link of the report leads to a file of the output folder."""
    try:
        return inside(workspace.output, f"{report.rpartition('/')[0]}/{unquote(target)}").exists()
    except PathRefusedError:
        return False


def _fixed(
    workspace: Workspace, path: str, text: str, facts: ReportFacts, reader: SourceReader
) -> tuple[str, ReportFacts, tuple[str, ...]]:
    """The report with its drifted pointers put right, saved where anything changed."""
    mended, repairs = repaired(Page(text), reader, facts.pins)
    if not repairs:
        return text, facts, ()
    gone = {repair.old for repair in repairs}
    kept = [pin for pin in facts.pins if not {f"{pin.path}:{pin.first}", f"{pin.path}:{pin.first}-{pin.last}"} & gone]
    made = "\n".join(repair.new for repair in repairs)
    pins = tuple(dict.fromkeys((*kept, *pinned(Page(made), reader))))
    facts = facts.model_copy(update={"pins": pins, "lines": moved_lines(facts.lines, Page(text), Page(mended))})
    save(workspace.output, {facts_path(path): facts.model_dump_json(indent=1) + "\n", path: mended})
    return mended, facts, tuple(f"line {repair.line}: {repair.old} -> {repair.new}" for repair in repairs)


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
        "Reviews a saved report: placeholders, dead or moved pointers, missing sections, empty tables, broken diagrams "
        "and links, numbers that differ from the analysis, guesses, repetitions. What a sentence means is not checked."
    ),
    arguments=CheckReportArguments,
    result=CheckReportResult,
    run=_run,
    shorter=(_first_problems,),
    read_only=False,
    positional=("path",),
    cached=False,
)
