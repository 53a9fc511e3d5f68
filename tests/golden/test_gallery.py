"""The gallery under reports/ passes its own checks, and a report made anew is the one that lies there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gallery import MODELS, ROOT, undated
from opscope_schemas.report import ReportFacts
from opscope_tools.check_report import CHECK_REPORT, CheckReportArguments
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.write_report import WRITE_REPORT, WriteReportArguments

REPORTS = [*(f"reports/implementations/{name}-analysis.md" for name in MODELS), "reports/repos/transformers.md"]


@pytest.mark.parametrize("path", REPORTS)
def test_a_report_of_the_gallery_passes_every_check(path: str) -> None:
    result = CHECK_REPORT.run(CheckReportArguments(path=path), ToolContext(Workspace.create(output=ROOT)))
    assert result.problems == ()


def test_the_report_on_vllm_is_whole_in_form() -> None:
    text = (ROOT / "reports/repos/vllm.md").read_text()
    facts = ReportFacts.model_validate(json.loads((ROOT / "reports/repos/vllm.facts.json").read_text()))
    assert facts.kind == "repo"
    assert "**LLM-related:** yes" in text


def test_a_report_made_anew_is_the_one_in_the_gallery(tmp_path: Path) -> None:
    workspace = Workspace.create(output=tmp_path, cache_folder=tmp_path / "cache")
    try:
        result = WRITE_REPORT.run(WriteReportArguments(name="llama"), ToolContext(workspace))
    finally:
        close_engines(workspace)
        workspace.store.close()
    assert result.problems == ()
    kept = (ROOT / result.path).read_text()
    assert undated((tmp_path / result.path).read_text()) == undated(kept), "make gallery, and look at the difference"
