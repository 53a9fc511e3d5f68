"""Results for people: short tables from any result type; `--json` is there for programs.

Order: special shapes (cost documents, module trees), then the general one: scalars as lines, lists as tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from opscope_schemas.analysis import Analysis, Evaluated, ExpectedExperts, ModelTreeResult, ServingView
from opscope_schemas.common import ToolResult
from opscope_schemas.errors import InputError
from opscope_schemas.estimates import PlanResult, RooflineResult
from opscope_schemas.report import WriteReportResult
from opscope_schemas.tiling import TilingResult
from opscope_tools.running.runner import compact
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from opscope_clients.estimate_screen import show_estimate, show_plan

#: rows of a table before the rest is only counted
ROWS = 40
#: characters of a cell
CELL = 100


def show(console: Console, result: ToolResult) -> None:
    """Print `result`."""
    document = getattr(result, "document", None)
    if isinstance(document, Analysis):
        _show_analysis(console, document, getattr(result, "evaluated", None))
        _show_beside(console, getattr(result, "expected", None), getattr(result, "serving", None))
    elif isinstance(result, ModelTreeResult):
        console.print(escape(result.text))
        console.print(f"[bold]{escape(result.model_class)}[/bold]: {result.parameters:,} parameters")
    elif isinstance(result, TilingResult) and (
        drawn := [text for k in result.kernels if (text := k.diagram or k.screen)]
    ):
        if len(drawn) > 1 and drawn[0].startswith("<svg"):
            ids = ", ".join(kernel.id for kernel in result.kernels)
            raise InputError(
                f"{len(drawn)} kernels are named, and an SVG is of one: {ids}.", next_step="Give one by path::name."
            )
        console.print("\n\n".join(drawn), markup=False, highlight=False, soft_wrap=True)
        if any(kernel.diagram for kernel in result.kernels):
            return  # a drawing goes into a file: nothing beside it
        if any(kernel.parameters for kernel in result.kernels):
            plain = tuple(kernel.model_copy(update={"screen": ""}) for kernel in result.kernels)
            _show_fields(console, result.model_copy(update={"kernels": plain}))
    elif isinstance(result, RooflineResult):
        show_estimate(console, result)
    elif isinstance(result, PlanResult):
        show_plan(console, result)
    elif isinstance(result, WriteReportResult) and not result.ok:
        _show_refused(console, result)
    else:
        _show_fields(console, result)
    for note in result.notes:
        console.print(f"[dim]note:[/dim] {escape(note)}")
    sources = ", ".join(f"{source.repository} {source.version}".strip() for source in result.sources)
    if sources:
        console.print(f"[dim]source: {escape(sources)}[/dim]")


def _show_analysis(console: Console, document: Analysis, evaluated: object) -> None:
    console.print(
        f"[bold]{escape(document.class_name)}[/bold]  {escape(document.file)}:{document.line}"
        f"  {document.phase}, {escape(document.attention)} attention"
    )
    table = Table("line", "operation", "FLOPs", "read, bytes", "written, bytes", box=None, header_style="dim")
    for kernel in document.kernels[:ROWS]:
        table.add_row(
            str(kernel.line),
            *(
                _cell(text)
                for text in (kernel.operation, kernel.flops, kernel.memory_access.read, kernel.memory_access.write)
            ),
        )
    console.print(table)
    _more(console, document.kernels)
    totals = document.totals
    for name, formula in (
        ("FLOPs", totals.flops),
        ("of these matrix products", totals.matmul_flops),
        ("bytes read", totals.memory_access.read),
        ("bytes written", totals.memory_access.write),
    ):
        console.print(f"{name}: {escape(formula)}")
    if (step := document.training) is not None:
        console.print(f"FLOPs of the way back, which are in these: {escape(step.backward.flops)}")
        console.print(f"bytes saved for it: {escape(step.saved_activations)}")
    for missing in document.not_counted:
        console.print(f"[yellow]not counted:[/yellow] {escape(missing)}")
    if isinstance(evaluated, Evaluated):
        point = ", ".join(f"{name}={value}" for name, value in evaluated.values.items())
        console.print(
            f"at {escape(point)}: {evaluated.flops:,} FLOPs ({evaluated.matmul_flops:,} in matrix products), "
            f"{evaluated.memory_read:,} bytes read, {evaluated.memory_write:,} written"
        )
        console.print(
            f"{evaluated.parameters:,} parameters, {evaluated.weights:,} bytes of weights; no implementation reads less than "
            f"{evaluated.floor_read:,} bytes and writes less than {evaluated.floor_write:,}"
        )
        if evaluated.saved_activations is not None:
            console.print(f"{evaluated.saved_activations:,} bytes saved for the way back")
    for assumption in document.assumptions:
        console.print(f"[dim]assumed:[/dim] {escape(assumption)}")


def _show_beside(console: Console, expected: ExpectedExperts | None, serving: ServingView | None) -> None:
    """What stands beside a document's own figures: experts under uniform routing, the pass as an engine runs it."""
    if expected is not None:
        console.print(
            f"experts: totals read {expected.bound} of a layer, uniform routing is expected to read {expected.experts_read:.2f}: "
            f"{expected.memory_read:,} bytes read in all"
        )
    if serving is None:
        return
    if serving.evaluated:
        figures = serving.evaluated
        console.print(
            f"[bold]as an engine runs it[/bold]: {figures['flops']:,} FLOPs, {figures['memory_read']:,} bytes read, "
            f"{figures['memory_write']:,} written"
        )
    else:
        access = serving.memory_access
        console.print(f"[bold]as an engine runs it[/bold]: bytes read {escape(access.read)}")
        console.print(f"bytes written {escape(access.write)}")
    for rule in serving.rules:
        console.print(f"- {escape(rule.rule)}: {escape(rule.says)}")
    for limit in serving.limits:
        console.print(f"[dim]not in it:[/dim] {escape(limit)}")


def _show_refused(console: Console, result: WriteReportResult) -> None:
    """A report that was not saved: its problems in full, and nothing of what it would have said."""
    console.print(f"[bold]not saved[/bold]: {escape(result.path)} has {len(result.problems)} problems")
    for problem in result.problems:
        where = f"section {problem.section}, line {problem.line}" if problem.section else f"line {problem.line}"
        console.print(f"- {escape(where)}: {escape(problem.message)} ({escape(problem.rule)})", soft_wrap=True)


def _show_fields(console: Console, value: BaseModel, indent: str = "") -> None:
    for name, field in type(value).model_fields.items():
        held = getattr(value, name)
        if name in ToolResult.model_fields or held in (None, "", (), [], {}):
            continue
        del field
        label = f"{indent}[bold]{name.replace('_', ' ')}[/bold]"
        if isinstance(held, BaseModel):
            console.print(label)
            _show_fields(console, held, indent + "  ")
        elif _is_table(held):
            _show_models(console, label, held, indent)
        elif isinstance(held, list | tuple):
            console.print(f"{label}: {escape(_text(held))}")
        else:
            console.print(f"{label}: {escape(str(held))}")


def _is_table(held: object) -> bool:
    return isinstance(held, list | tuple) and bool(held) and all(isinstance(entry, BaseModel) for entry in held)


def _show_models(console: Console, label: str, held: Sequence[BaseModel], indent: str) -> None:
    """A list of records: a table where they are flat, one after the other where they hold lists of records."""
    if any(_is_table(getattr(entry, name)) for entry in held for name in type(entry).model_fields):
        for entry in held[:ROWS]:
            console.print(label)
            _show_fields(console, entry, indent + "  ")
        _more(console, held)
        return
    columns = [
        name
        for name in type(held[0]).model_fields
        if any(getattr(entry, name, None) not in (None, "", (), [], {}) for entry in held)
    ]
    console.print(label)
    table = Table(*(column.replace("_", " ") for column in columns), box=None, header_style="dim")
    for entry in held[:ROWS]:
        table.add_row(*(_cell(_text(getattr(entry, column))) for column in columns))
    console.print(table)
    _more(console, held)


def _more(console: Console, held: Sequence[object]) -> None:
    if len(held) > ROWS:
        console.print(f"... and {len(held) - ROWS} more; --json shows all")


def _text(value: object) -> str:
    plain = compact(value)
    if isinstance(plain, list):
        return ", ".join(_text(entry) for entry in plain)
    if isinstance(plain, dict):
        return ", ".join(f"{key}={_text(entry)}" for key, entry in plain.items() if entry not in (None, "", [], {}))
    return "" if plain is None else str(plain)


def _cell(text: str) -> str:
    return escape(text if len(text) <= CELL else text[: CELL - 3] + "...")
