"""A page of a report, asked by axe: contrast, names, roles, what the keyboard reaches; WCAG 2.1 A and AA, and good practice.

Runs where .ci/install-node has put the package and a browser is there; elsewhere skipped.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import report_toy as toy
from browsing import BROWSER, browsed, page_of, result
from installed import MODULES
from opscope_tools import write_report
from opscope_tools.running.tool import ToolContext

AXE = MODULES / "axe-core/axe.min.js"
RUN = """<output id="result"></output><script>%s</script><script>addEventListener("load", async () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  const found = await axe.run(document, {runOnly: {type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}});
  const told = found.violations.map(v => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 200)]);
  document.getElementById("result").textContent = JSON.stringify({passes: found.passes.length, told});
});</script></body>"""

pytestmark = pytest.mark.nodejs


@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_to_mend(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (AXE.is_file() and BROWSER):
        pytest.skip("run .ci/install-node first, and install chromium")
    toy.answers(monkeypatch)
    facts = write_report.gather(
        write_report.WriteReportArguments(name="toy"), ToolContext(toy.workspace(tmp_path / "toy"))
    )
    page = page_of(facts).replace("</body>", RUN % AXE.read_text("utf-8"))
    found = result(browsed(page, tmp_path, width))
    assert found["told"] == [], json.dumps(found["told"], indent=1)
    assert found["passes"] > 20
