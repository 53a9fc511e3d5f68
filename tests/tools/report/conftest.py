"""Fixtures over the toy model of toy.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import report_toy as toy
from opscope_tools import write_report
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.render import Report
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return toy.workspace(tmp_path)


@pytest.fixture
def context(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> ToolContext:
    """A context whose other tools answer about the toy."""
    toy.answers(monkeypatch)
    return ToolContext(workspace)


@pytest.fixture(scope="session")
def facts(tmp_path_factory: pytest.TempPathFactory) -> ImplementationFacts:
    """The toy's facts; frozen, so that one instance serves every test."""
    with pytest.MonkeyPatch.context() as patch:
        toy.answers(patch)
        context = ToolContext(toy.workspace(tmp_path_factory.mktemp("toy")))
        return write_report.gather(write_report.WriteReportArguments(name="toy"), context)


@pytest.fixture(scope="session")
def report(facts: ImplementationFacts) -> Report:
    """The toy's report without an agent's sections."""
    return toy.rendered_with(facts, {})


@pytest.fixture
def rendered(facts: ImplementationFacts, report: Report) -> Callable[..., Report]:
    """Renders the toy's report with the given sections."""
    return lambda **sections: toy.rendered_with(facts, sections) if sections else report
