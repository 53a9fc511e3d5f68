"""Mermaid's own parser, as `check_report` asks it: what the check by form lets pass is caught, what reports hold is taken.

Runs where .ci/install-node has put Node and the package; elsewhere skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from installed import MODULES, NODE
from opscope_schemas.report import Problem
from opscope_tools.check_report import CHECK_REPORT, CheckReportArguments
from opscope_tools.report.checks import Material, check
from opscope_tools.report.checks_mermaid import mermaid_parsed
from opscope_tools.report.graph import INPUTS, Edge, Graph, Group, Vertex
from opscope_tools.report.markdown import Page
from opscope_tools.report.mermaid import mermaid
from opscope_tools.report.sources import SourceReader
from opscope_tools.running.session import open_workspace
from opscope_tools.running.tool import ToolContext

REPORTS = sorted((Path(__file__).parents[2] / "reports").rglob("*.md"))

pytestmark = pytest.mark.nodejs


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Path:
    if not (NODE.is_file() and (MODULES / "mermaid").is_dir()):
        pytest.skip("run .ci/install-node first")
    monkeypatch.setenv("PATH", f"{NODE.parent}:{os.environ['PATH']}")
    return MODULES


def fenced(*diagrams: str) -> Page:
    return Page("\n".join(f"```mermaid\n{text}\n```" for text in diagrams))


def by_form(page: Page) -> list[Problem]:
    return [problem for problem in check(Material(page, SourceReader(()))) if problem.rule == "MERMAID"]


#: a diagram with a fault, and the line of the diagram on which it is
PLANTED = {
    "a word of Mermaid as a node": ('flowchart TB\n  a["x"]\n  linkStyle["y"]\n  a --> linkStyle', 3),
    "another word as a node": ('flowchart TB\n  a["x"]\n  classDef["y"]', 3),
    "an end before its group": ('flowchart TB\n  a["x"]\n  end\n  subgraph g["y"]\n  b["z"]', 3),
    "an empty label": ('flowchart TB\n  a["x"]\n  b[""]', 3),
    "Markdown that is not closed in a label": ('flowchart TB\n  a["x"]\n  b["`y"]', 3),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_that_the_form_does_not_show_is_found_at_its_line(fault: str, modules: Path) -> None:
    text, line = PLANTED[fault]
    page = fenced('flowchart TB\n  a["right"]', text)
    assert by_form(page) == []
    problems, note = mermaid_parsed(page, modules)
    assert note == ""
    assert [(p.rule, p.line) for p in problems] == [("MERMAID_PARSE", 4 + 1 + line)]
    assert problems[0].message.startswith("Mermaid's parser rejects this diagram: unexpected ")


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_every_diagram_of_the_gallery_parses(report: Path, modules: Path) -> None:
    assert mermaid_parsed(Page(report.read_text(encoding="utf-8")), modules) == ([], "")


def test_a_flowchart_parses_whatever_its_labels_hold(modules: Path) -> None:
    hostile = [
        'say "x"',
        "a`b`c",
        "<script>",
        "# end; 1",
        "[a](b) {c} | d",
        "subgraph",
        "%% note",
        "a --> b",
        "×32 → é:",
        "&amp; \\n",
    ]
    vertices = tuple(Vertex(f"v{n}", (text, text), "g" if n in (2, 3) else "") for n, text in enumerate(hostile))
    edges = tuple(Edge("v0", v.id, v.lines[0], again=bool(n % 2)) for n, v in enumerate(vertices[1:]))
    graph = Graph((Vertex(INPUTS, ("end",)), *vertices), edges, (Group("g", hostile[0]),), title="a: b")
    page = fenced(mermaid(graph))
    assert mermaid_parsed(page, modules) == ([], "")
    assert by_form(page) == []


def test_check_report_asks_the_parser_that_the_environment_names(
    modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSCOPE_MERMAID", str(modules.parent))
    workspace = open_workspace(cache_folder=str(tmp_path / "cache"), output=str(tmp_path))
    (tmp_path / "r.md").write_text(fenced(PLANTED["an empty label"][0]).text)
    result = CHECK_REPORT.run(CheckReportArguments(path="r.md"), ToolContext(workspace))
    workspace.store.close()
    assert [p.line for p in result.problems if p.rule == "MERMAID_PARSE"] == [4]
    assert "mermaid_parsed" in result.rules
    assert not any("Mermaid" in note for note in result.notes)


def test_a_package_that_cannot_be_used_is_said_and_nothing_is_rejected(modules: Path, tmp_path: Path) -> None:
    del modules
    broken = tmp_path / "node_modules"
    (broken / "mermaid").mkdir(parents=True)
    (broken / "mermaid/package.json").write_text('{"name": "mermaid", "main": "none.js"}')
    problems, note = mermaid_parsed(fenced('flowchart TB\n  a["x"]'), broken)
    assert problems == []
    assert "could not be used" in note
    assert note.endswith("Diagrams were checked by form.")
