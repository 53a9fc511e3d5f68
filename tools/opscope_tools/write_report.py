"""The tool `write_report`: gathers the facts with the other tools, renders the report, checks it, saves it.

Order: arguments, gathering (which calls the sibling tools through the runner, so their answers come from the cache),
the checks that decide whether anything is written, the tool.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from opscope_prompts.templates import render_template
from opscope_schemas.analysis import ModelAnalysisResult, ModelTreeResult
from opscope_schemas.common import ToolArguments, ToolResult
from opscope_schemas.errors import InputError
from opscope_schemas.extracted_config import Check
from opscope_schemas.report import Problem, ReportKind, WriteReportResult
from opscope_schemas.tiling import TilingResult
from pydantic import Field

from opscope_tools.report.checks import Material, check
from opscope_tools.report.facts import ImplementationFacts, default_point, position_limit
from opscope_tools.report.markdown import Page
from opscope_tools.report.overview import scopes
from opscope_tools.report.render import Report, render, section_problems
from opscope_tools.report.saving import facts_path, inside, report_path, save
from opscope_tools.report.sources import SourceReader
from opscope_tools.settings import PythonSource, checks_of
from opscope_tools.spec import Tool, ToolContext

__all__ = ["WRITE_REPORT", "WriteReportArguments", "gather"]

_TEMPLATES: Mapping[ReportKind, str] = {"implementation": "implementation.md"}
_FIRST = 40


class WriteReportArguments(ToolArguments):
    """Arguments of `write_report`."""

    kind: ReportKind = Field(default="implementation", description="Which of the templates.")
    name: str = Field(description="Name of the report; it is saved as reports/implementations/NAME-analysis.md.")
    target: str | None = Field(
        default=None, description="Model type (llama) or model class to report on; by default the name."
    )
    sections: dict[str, str] | None = Field(
        default=None,
        description="Your own Markdown by section number (1, 2.3, 4.1, 8.3) or heading; it follows the computed text.",
    )
    phases: tuple[Literal["prefill", "decode"], ...] = Field(
        default=("prefill", "decode"), min_length=1, description="Passes to report; components speak of the first."
    )
    config: str | dict[str, Any] | None = Field(
        default=None, description="Path to a config.json, or overrides on the default config."
    )
    values: dict[str, int] | None = Field(
        default=None, description="Values of formula variables, e.g. batch_size, seq_len, cache_len."
    )
    kernel: str | None = Field(default=None, description="CUDA or Triton kernel whose tiling section 3.2 shows.")
    ridge: float | None = Field(
        default=None, gt=0, description="FLOPs per byte at which your device turns compute-bound."
    )
    overwrite: bool = Field(default=False, description="Replace a report of that name.")


# ---- gathering ------------------------------------------------------------------------------------------------------


def call_sibling(name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    """Run another tool of the catalogue, or take its answer from the store."""
    from opscope_tools.catalog import tool_named  # here: the catalogue lists this tool too
    from opscope_tools.runner import run_tool

    return run_tool(tool_named(name), arguments, context)


def _steps(arguments: WriteReportArguments) -> float:
    """Progress has one step per phase, and one each for the tree, the rendering and the saving."""
    return len(set(arguments.phases)) + 3.0


def gather(arguments: WriteReportArguments, context: ToolContext) -> ImplementationFacts:
    """Everything that the report is computed from; reports progress, raises the siblings' errors."""
    target = arguments.target or arguments.name
    config = {} if arguments.config is None else {"config": arguments.config}
    phases = tuple(dict.fromkeys(arguments.phases))
    total = _steps(arguments)
    context.progress(0, total, f"inspecting {target}")
    tree = call_sibling("inspect_model", {"model": target, **config}, context)
    assert isinstance(tree, ModelTreeResult)
    answers: list[ModelAnalysisResult] = []
    for phase in phases:
        context.checkpoint()
        context.progress(1.0 + len(answers), total, f"expanding {phase}")
        point = default_point(phase, arguments.values or {}, position_limit(tree))
        values = {name: value for name, value in point.items() if name != "cache_len" or phase == "decode"}
        asked = {"target": target, "phase": phase, "values": values, **config}
        expanded = call_sibling("expand_refs", asked, context)
        assert isinstance(expanded, ModelAnalysisResult)
        answers.append(expanded)
    tiling = _tiling(arguments.kernel, context)
    results: list[ToolResult] = [tree, *answers, *([tiling] if tiling else [])]
    given = {} if arguments.ridge is None else {"ridge": arguments.ridge, "ridge_source": "given by the caller"}
    facts = ImplementationFacts(
        name=arguments.name,
        target=target,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        sources=tuple(dict.fromkeys(source for result in results for source in result.sources)),
        reader=SourceReader(context.workspace.repositories.values()),
        tree=tree,
        documents=tuple(answer.document for answer in answers),
        values=arguments.values or {},
        points={a.document.phase: a.evaluated.values for a in answers if a.evaluated},
        notes=tuple(f"{a.document.phase}: {note}" for a in answers for note in a.notes),
        tiling=tiling,
        **given,  # type: ignore[arg-type]
    )
    return replace(facts, checks=tuple(_checks(facts)))


def _checks(facts: ImplementationFacts) -> Iterator[Check]:
    """Assertions and raises of the classes and functions that ran, and of the configuration class."""
    wanted = {facts.modeling_file: scopes(facts)}
    if facts.config_location is not None:
        path, span = facts.config_location
        wanted[path] = {*wanted.get(path, ()), span.name}
    for path, names in wanted.items():
        lines = facts.reader.lines(path)
        found = checks_of(PythonSource(path, "\n".join(lines)), names) if lines is not None else []
        yield from (check for check in found if check.kind in {"assert", "raise"})


def _tiling(kernel: str | None, context: ToolContext) -> TilingResult | None:
    if kernel is None:
        return None
    answer = call_sibling("cuda_kernel_tiling", {"target": kernel}, context)
    assert isinstance(answer, TilingResult)
    return answer


# ---- the tool -------------------------------------------------------------------------------------------------------


def _run(arguments: WriteReportArguments, context: ToolContext) -> WriteReportResult:
    workspace = context.workspace
    path = report_path(arguments.name)
    if inside(workspace.output, path).exists() and not arguments.overwrite:
        raise InputError(
            f"{path} exists already in {workspace.output}.",
            next_step="Give overwrite=true to replace it, or another name.",
        )
    facts = gather(arguments, context)
    sections = arguments.sections or {}
    template = _TEMPLATES[arguments.kind]
    context.progress(_steps(arguments) - 1, _steps(arguments), "rendering and checking")
    report = render(facts, sections, path, lambda values: render_template(template, values))
    problems = tuple(section_problems(facts, sections)) or _report_problems(facts, report)
    notes: tuple[str, ...] = ()
    if problems:
        notes = ("The report was not saved: repair the problems and call write_report again.",)
    else:
        context.checkpoint()
        save(workspace.output, {facts_path(path): report.facts.model_dump_json(indent=1) + "\n", path: report.text})
    context.progress(_steps(arguments), _steps(arguments), "not saved" if problems else "saved")
    return WriteReportResult(
        path=path,
        ok=not problems,
        problems=problems,
        summary=report.facts.summary,
        facts_path=facts_path(path) if not problems else "",
        sources=facts.sources,
        notes=notes,
    )


def _report_problems(facts: ImplementationFacts, report: Report) -> tuple[Problem, ...]:
    return tuple(check(Material(Page(report.text), facts.reader, report.facts)))


def _first_problems(result: WriteReportResult) -> WriteReportResult:
    left_out = len(result.problems) - _FIRST
    if left_out <= 0:
        return result
    said = f"{left_out} further problems are left out: repair these and write again."
    return result.model_copy(update={"problems": result.problems[:_FIRST], "shortened": said})


WRITE_REPORT: Tool[WriteReportArguments, WriteReportResult] = Tool(
    name="write_report",
    title="Write a report",
    description=(
        "Analyses a model and saves the report on its implementation: eleven sections, every table filled from "
        "computed facts with path:line pointers. Your own prose goes in through `sections`. The report is checked "
        "before it is saved; where the checks reject something nothing is written and `problems` says where. Returns "
        "the path and a summary of insights, optimizations, limitations and links."
    ),
    arguments=WriteReportArguments,
    result=WriteReportResult,
    run=_run,
    shorter=(_first_problems,),
    read_only=False,
    positional=("kind", "name"),
    cached=False,
)
