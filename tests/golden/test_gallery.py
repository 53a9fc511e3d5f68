"""The gallery under reports/ passes its own checks, which make every report anew."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import transformers
from gallery import MODELS, ROOT
from opscope_schemas.report import CheckReportResult, ReportFacts
from opscope_tools.check_report import CHECK_REPORT, CheckReportArguments
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

REPORTS = [*(f"reports/implementations/{name}-analysis.md" for name in MODELS), "reports/repos/transformers.md"]


#: what is made anew in seconds; the others take minutes
QUICK = ("reports/implementations/llama-analysis.md",)


def checked(path: str, cache: Path, regenerate: bool) -> CheckReportResult:
    workspace = Workspace.create(output=ROOT, cache_folder=cache)
    try:
        return CHECK_REPORT.run(CheckReportArguments(path=path, regenerate=regenerate), ToolContext(workspace))
    finally:
        close_engines(workspace)
        workspace.store.close()


@pytest.mark.parametrize("path", REPORTS)
def test_a_report_of_the_gallery_passes_every_check(path: str, index_folder: Path) -> None:
    result = checked(path, index_folder, regenerate=path in QUICK)
    assert result.problems == (), "make gallery, and look at the difference"
    assert any("as it was written" in note for note in result.notes) is (path not in QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in REPORTS if path not in QUICK])
def test_a_report_of_the_gallery_is_the_one_that_its_source_gives(path: str, tmp_path: Path) -> None:
    assert checked(path, tmp_path, regenerate=True).problems == (), "make gallery, and look at the difference"


@pytest.mark.parametrize("path", [path for path in REPORTS if "/implementations/" in path])
def test_what_a_task_is_called_as_stands_on_the_line_that_calls_it(path: str) -> None:
    """A class that has no attribute, but a place in a table of functions, is called by its own name."""
    text = re.sub(r"<!-- fact:[^>]*-->", "", (ROOT / path).read_text())
    root = Path(transformers.__file__).parents[1]
    called = re.findall(r"called as ([a-z]\w*) at `([^`:]+):(\d+)`", text)
    assert called or "mamba" in path
    for name, file, line in called:
        assert name in (root / file).read_text().split("\n")[int(line) - 1], (name, file, line)


@pytest.mark.parametrize("path", [path for path in REPORTS if "/implementations/" in path])
def test_every_variable_of_a_formula_is_explained(path: str) -> None:
    """What formulas and their conditions name stands in the table of section 3.1, those of other passes too."""
    text = re.sub(r"<!-- fact:[^>]*-->", "", (ROOT / path).read_text())
    table = text[text.index("### 3.1") : text.index("### 3.2")]
    explained = {
        name for row in re.findall(r"^\|([^|]*)\|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    lines = re.findall(r"^- (?:Cost of one call|One call of|Formulas of \w+ derived where).*$", text, re.MULTILINE)
    used = {name for line in lines for name in re.findall(r"\{(\w+)\}", line)}
    assert len(used) > 4
    assert used <= explained


def test_the_report_on_vllm_is_whole_in_form() -> None:
    text = (ROOT / "reports/repos/vllm.md").read_text()
    facts = ReportFacts.model_validate(json.loads((ROOT / "reports/repos/vllm.facts.json").read_text()))
    assert facts.kind == "repo"
    assert "**LLM-related:** yes" in text
