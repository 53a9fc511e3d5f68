"""Results for people: a screen for each type of result, listed here, and a plain one for those that have none.

A screen is a function of a `Page` and the result: it says what there is, most telling first, and leaves widths and lengths to the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from opscope_schemas.common import ToolResult
from rich.console import Console

from opscope_clients.console import as_options
from opscope_clients.screens.page import Page

#: result -> its screen, imported when it is shown: a command shows one
SCREENS: Mapping[str, str] = {
    "RepoMapResult": "repository.show_repository",
    "ResolveClassResult": "index.show_class",
    "FindForwardResult": "index.show_forward",
    "FindReferencesResult": "index.show_references",
    "ExtractConfigResult": "configurations.show_configurations",
    "ModelTreeResult": "costs.show_tree",
    "ModuleAnalysisResult": "costs.show_cost",
    "ModelAnalysisResult": "costs.show_cost",
    "DataflowResult": "costs.show_dataflow",
    "RooflineResult": "estimates.show_estimate",
    "SweepResult": "estimates.show_sweep",
    "PlanResult": "estimates.show_plan",
    "TableResult": "tables.show_table",
    "CompareResult": "comparison.show_comparison",
    "SearchSourceResult": "search.show_search",
    "TilingResult": "kernels.show_kernels",
    "CollectEvidenceResult": "evidence.show_evidence",
    "WriteReportResult": "reports.show_report",
    "CheckReportResult": "reports.show_report",
}


def show(console: Console, result: ToolResult, *, whole: bool = False) -> None:
    """Print `result`, a screenful of it or the `whole`."""
    page = Page(console, whole=whole)
    module, function = SCREENS.get(type(result).__name__, "fields.show_fields").split(".")
    getattr(import_module(f"opscope_clients.screens.{module}"), function)(page, result)
    page.sayings("notes", [as_options(note) for note in result.notes], style="dim", mark="note: ", most=4)
    page.say(as_options(result.shortened), "dim")
    sources = ", ".join(f"{source.repository} {source.version}".strip() for source in result.sources)
    page.say(f"source: {sources}" if sources else "", "dim")
    page.show()


__all__ = ["SCREENS", "Page", "show"]
