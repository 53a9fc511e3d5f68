"""Results for people: a screen for each type of result, listed here, and a plain one for those that have none.

A screen is a function of a `Page` and the result: it says what there is, most telling first, and leaves widths and lengths to the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opscope_schemas.analysis import ModelAnalysisResult, ModelTreeResult, ModuleAnalysisResult
from opscope_schemas.common import ToolResult
from opscope_schemas.comparison import CompareResult
from opscope_schemas.dataflow import DataflowResult
from opscope_schemas.estimates import PlanResult, RooflineResult, SweepResult
from opscope_schemas.evidence import CollectEvidenceResult
from opscope_schemas.extracted_config import ExtractConfigResult
from opscope_schemas.index import FindForwardResult, ResolveClassResult
from opscope_schemas.references import FindReferencesResult
from opscope_schemas.repo_map import RepoMapResult
from opscope_schemas.report import CheckReportResult, WriteReportResult
from opscope_schemas.search import SearchSourceResult
from opscope_schemas.tables import TableResult
from opscope_schemas.tiling import TilingResult
from rich.console import Console

from opscope_clients.console import as_options
from opscope_clients.screens.comparison import show_comparison
from opscope_clients.screens.configurations import show_configurations
from opscope_clients.screens.costs import show_cost, show_dataflow, show_tree
from opscope_clients.screens.estimates import show_estimate, show_plan, show_sweep
from opscope_clients.screens.evidence import show_evidence
from opscope_clients.screens.fields import show_fields
from opscope_clients.screens.index import show_class, show_forward, show_references
from opscope_clients.screens.kernels import show_kernels
from opscope_clients.screens.page import Page
from opscope_clients.screens.reports import show_report
from opscope_clients.screens.repository import show_repository
from opscope_clients.screens.search import show_search
from opscope_clients.screens.tables import show_table

SCREENS: Mapping[type[ToolResult], Callable[[Page, Any], None]] = {
    RepoMapResult: show_repository,
    ResolveClassResult: show_class,
    FindForwardResult: show_forward,
    FindReferencesResult: show_references,
    ExtractConfigResult: show_configurations,
    ModelTreeResult: show_tree,
    ModuleAnalysisResult: show_cost,
    ModelAnalysisResult: show_cost,
    DataflowResult: show_dataflow,
    RooflineResult: show_estimate,
    SweepResult: show_sweep,
    PlanResult: show_plan,
    TableResult: show_table,
    CompareResult: show_comparison,
    SearchSourceResult: show_search,
    TilingResult: show_kernels,
    CollectEvidenceResult: show_evidence,
    WriteReportResult: show_report,
    CheckReportResult: show_report,
}


def show(console: Console, result: ToolResult, *, whole: bool = False) -> None:
    """Print `result`, a screenful of it or the `whole`."""
    page = Page(console, whole=whole)
    SCREENS.get(type(result), show_fields)(page, result)
    page.sayings("notes", [as_options(note) for note in result.notes], style="dim", mark="note: ", most=4)
    page.say(as_options(result.shortened), "dim")
    sources = ", ".join(f"{source.repository} {source.version}".strip() for source in result.sources)
    page.say(f"source: {sources}" if sources else "", "dim")
    page.show()


__all__ = ["SCREENS", "Page", "show"]
