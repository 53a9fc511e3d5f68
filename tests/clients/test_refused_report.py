"""A report that was refused: the terminal shows its problems whole, and nothing of a report that is not there."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from opscope_clients import screens
from opscope_schemas.errors import OutputError
from opscope_schemas.report import Problem, ReportSummary, WriteReportResult
from opscope_tools.report.saving import check_writable
from rich.console import Console

MESSAGE = (
    "Nothing here can be checked: cite the lines that show it (`path.py:12-20`), a number as {{fact:key}}, or a search."
)


def test_a_refused_report_shows_its_problems_in_full_and_no_summary() -> None:
    text = io.StringIO()
    problem = Problem(rule="CLAIM_UNSUPPORTED", line=3, message=MESSAGE, section="2.3")
    summary = ReportSummary(insights=("It is large.",), links=("reports/x.md#a",))
    refused = WriteReportResult(path="reports/x.md", ok=False, problems=(problem,), summary=summary)
    screens.show(Console(file=text, width=80), refused)
    shown = text.getvalue()
    assert f"section 2.3, line 3: {MESSAGE} (CLAIM_UNSUPPORTED)" in shown
    assert "It is large." not in shown
    assert "#a" not in shown
    saved = io.StringIO()
    screens.show(Console(file=saved, width=80), refused.model_copy(update={"ok": True, "problems": ()}))
    assert "It is large." in saved.getvalue()


def test_the_folder_of_a_report_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    check_writable(tmp_path / "new", "reports/repos/x.md")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "reports").write_text("a file")
    with pytest.raises(OutputError, match="cannot be written"):
        check_writable(tmp_path, "reports/repos/x.md")
