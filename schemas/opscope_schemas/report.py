"""What the report tools answer: problems found by the checks, and the summary that goes with a saved report.

`ReportFacts` is the small JSON file that lies beside a report (`NAME-analysis.facts.json`): the numbers that the report
quotes by key, the variables its formulas may name, the summary, and what the report is made again from: the arguments, the date,
and its text as it was written. `check_report` reads it back.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from opscope_schemas.common import Frozen, Source, ToolResult

__all__ = ["CheckReportResult", "Pin", "Problem", "ReportFacts", "ReportKind", "ReportSummary", "WriteReportResult"]

ReportKind = Literal["implementation", "repo", "post"]


class Problem(Frozen):
    """One thing that the checks reject."""

    rule: str = Field(description="Name of the rule, e.g. PLACEHOLDER, LINE_OUT_OF_BOUNDS, SECTION_MISSING.")
    line: int = Field(
        description="Line of the report, 1-based; of the entry's own text where the fault is in `sections`."
    )
    message: str = Field(description="What is wrong, and what would be right.")
    section: str = Field(
        default="",
        description="Key of the `sections` entry that holds the fault, or the heading above it in a saved report.",
    )
    expected: str = Field(default="", description="What should stand there: the line, or the fact that fits.")
    found: str = Field(default="", description="What stands there: the line, or the sentence.")


class ReportSummary(Frozen):
    """The reply that goes with a report; every sentence is computed from the analysis."""

    insights: tuple[str, ...] = Field(default=(), description="Key architectural insights.")
    optimizations: tuple[str, ...] = Field(default=(), description="Notable optimisations.")
    limitations: tuple[str, ...] = Field(default=(), description="Limitations discovered.")
    links: tuple[str, ...] = Field(default=(), description="Links to the detailed sections, `path#anchor`.")


class Pin(Frozen):
    """Cited lines as they were when the report was written."""

    path: str
    first: int
    last: int
    digest: str = Field(description="Of the lines, their indentation left out.")
    around: str = Field(description="Of the lines before and after.")


class ReportFacts(Frozen):
    """Content of the facts file beside a report."""

    promised: ClassVar[tuple[str, ...]] = ("kind", "variables", "summary")

    kind: ReportKind = "implementation"
    name: str
    values: dict[str, int | float] = Field(
        default_factory=dict,
        description="Number by key, as `<!-- fact:key -->` names it; a fraction as it was rounded.",
    )
    words: dict[str, str] = Field(default_factory=dict, description="Of a post: names that it quotes, by key.")
    variables: tuple[str, ...] = Field(default=(), description="Variables that the report's formulas name.")
    summary: ReportSummary = ReportSummary()
    sources: tuple[Source, ...] = Field(default=(), description="The source trees that the report speaks of.")
    pins: tuple[Pin, ...] = ()
    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="What write_report was given, the agent's sections too: from this it is made again.",
    )
    date: str = Field(default="", description="The day that stands at the report's head.")
    text: str = Field(default="", description="The report as it was written, compressed by zlib, in base64.")


class WriteReportResult(ToolResult):
    """Answer of `write_report`."""

    promised: ClassVar[tuple[str, ...]] = ("problems", "summary")

    path: str = Field(description="Where the report lies, or would lie, relative to the output folder.")
    ok: bool = Field(
        description="True: the report passed every check and was saved; false: `problems` say what did not pass."
    )
    problems: tuple[Problem, ...] = ()
    summary: ReportSummary = ReportSummary()
    facts_path: str = Field(
        default="", description="The facts file beside the report; empty where nothing was written."
    )
    page_path: str = Field(default="", description="With html: the page beside the report.")


class CheckReportResult(ToolResult):
    """Answer of `check_report`."""

    promised: ClassVar[tuple[str, ...]] = ("problems", "summary")

    path: str
    ok: bool
    problems: tuple[Problem, ...] = ()
    summary: ReportSummary = ReportSummary()
    rules: tuple[str, ...] = Field(default=(), description="Names of the rules that were run.")
    repairs: tuple[str, ...] = Field(default=(), description="With fix: pointers that were put right, old -> new.")
