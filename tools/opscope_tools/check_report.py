"""The tool `check_report`: the self-review of a saved report.

It reads the report from the output folder and the facts file beside it, follows every pointer into the registered
repositories, and lists what the rules of report/checks.py reject. It changes nothing.
"""

from __future__ import annotations

from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import InputError, SourceError
from opscope_schemas.report import CheckReportResult, ReportFacts
from pydantic import Field, ValidationError

from opscope_tools.report.checks import Material, check, rule_names
from opscope_tools.report.markdown import Page
from opscope_tools.report.saving import facts_path, inside
from opscope_tools.report.sources import SourceReader
from opscope_tools.spec import Tool, ToolContext
from opscope_tools.workspace import Workspace

__all__ = ["CHECK_REPORT", "CheckReportArguments"]

#: problems of one answer where the whole list is too long
_FIRST = 40


class CheckReportArguments(ToolArguments):
    """Arguments of `check_report`."""

    path: str = Field(
        description="The report, relative to the output folder: reports/implementations/NAME-analysis.md."
    )


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
    problems = tuple(check(Material(Page(text), SourceReader(workspace.repositories.values()), facts)))
    notes = () if facts else ("No facts file lies beside the report, so its numbers were not compared.",)
    return CheckReportResult(
        path=path,
        ok=not problems,
        problems=problems,
        summary=facts.summary if facts else CheckReportResult.model_fields["summary"].default,
        rules=rule_names(),
        sources=tuple(workspace.source(repository) for repository in workspace.repositories.values()),
        notes=notes,
    )


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
        "Reviews a saved report: placeholders, path:line pointers that do not resolve, symbols that are not where the "
        "report says, missing or disordered sections, empty or ragged tables, broken fences and diagrams, and numbers "
        "marked as facts that differ from the analysis. Checks form and evidence, not prose: unmarked numbers pass. "
        "Returns one sentence per problem with its line."
    ),
    arguments=CheckReportArguments,
    result=CheckReportResult,
    run=_run,
    shorter=(_first_problems,),
    positional=("path",),
    cached=False,
)
