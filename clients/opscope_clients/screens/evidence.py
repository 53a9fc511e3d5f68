"""What collectors said: a row each, and what to run elsewhere."""

from __future__ import annotations

from opscope_schemas.evidence import CollectEvidenceResult, CollectorRow
from opscope_schemas.units import said

from opscope_clients.screens.page import Column, Page

__all__ = ["show_evidence"]

#: values of a record that a row shows
_MOST = 3


def show_evidence(page: Page, result: CollectEvidenceResult) -> None:
    """Where the records lie, what came of each, and the commands that this machine cannot run."""
    counted = ", ".join(f"{count} {status}" for status, count in result.counted.items())
    page.say(f"{result.path}: {counted}; on {result.machine}", "bold")
    page.table(
        "records", [Column("record"), Column("tool"), Column("class"), Column("status"), Column("what it said")],
        [(row.id, row.tool, row.evidence_class, row.status, row.reason or _values(row)) for row in result.records],
    )  # fmt: skip
    elsewhere = [f"{row.id}: {row.elsewhere}" for row in result.records if row.elsewhere]
    page.say("Where it can be had, run these, and take the output in with import-evidence:" if elsewhere else "")
    page.sayings("commands", elsewhere, mark="- ", most=12)


def _values(row: CollectorRow) -> str:
    told = [f"{name} {value if isinstance(value, str) else said(name, value)}" for name, value in row.parsed.items()]
    return ", ".join(told[:_MOST])
