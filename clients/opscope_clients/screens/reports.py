"""The screen of a report that was written, refused or checked."""

from __future__ import annotations

from opscope_schemas.report import CheckReportResult, Problem, WriteReportResult

from opscope_clients.screens.page import Page


def show_report(page: Page, result: WriteReportResult | CheckReportResult) -> None:
    """Its problems, if there are any; then what it says. Of a report that was not saved, the problems alone."""
    count = f"{len(result.problems):,} problem{'' if len(result.problems) == 1 else 's'}"
    if isinstance(result, WriteReportResult) and not result.ok:
        page.say(f"not saved: {result.path} has {count}", "bold")
    else:
        page.say(
            f"{result.path}: {'saved' if isinstance(result, WriteReportResult) else count if result.problems else 'no problems'}",
            "bold",
        )
    page.sayings("problems", [_said(problem) for problem in result.problems], mark="- ", most=12)
    if isinstance(result, WriteReportResult):
        page.say(f"page: {result.page_path}" if result.page_path else "")
        page.say(f"facts: {result.facts_path}" if result.facts_path else "")
        if not result.ok:
            return
    else:
        page.sayings("repairs", result.repairs, mark="put right: ", most=12)
    summary = result.summary
    for title, sentences in (
        ("insights", summary.insights), ("optimizations", summary.optimizations), ("limitations", summary.limitations),
    ):  # fmt: skip
        page.say(title if sentences else "", "bold")
        page.sayings(title, sentences, mark="- ")


def _said(problem: Problem) -> str:
    where = f"section {problem.section}, line {problem.line}" if problem.section else f"line {problem.line}"
    return f"{where}: {problem.message} ({problem.rule})"


__all__ = ["show_report"]
