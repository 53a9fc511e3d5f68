"""What the security tests share: a session with planted code around it, and the count of what was tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opscope_schemas.common import ToolResult
from opscope_schemas.errors import OpscopeError
from opscope_tools.catalog import tool_named
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from tally import FIGURES, SECRET, Tally, summary

#: a trusted repository: functions of its own, and names that it merely imports
TRUSTED = """
import functools
import os
import subprocess as runner
from os import system as make_system
from subprocess import *

import torch
from torch import nn, load as make_loaded
from torch.nn import Linear


def make_net(width=8):
    return nn.Linear(width, width)


class Holder:
    @staticmethod
    def make(width=8):
        return nn.Linear(width, width)


alias_of_system = os.system
anonymous = lambda **given: os.system(given.get("command", ""))
part = functools.partial(os.system)
"""


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trusted repository, one that is not trusted, a place for configurations, and foreign files."""
    ground = tmp_path_factory.mktemp("ground")
    for name in ("trusted", "strange", "configs", "outside", "out"):
        (ground / name).mkdir()
    (ground / "trusted/planted.py").write_text(TRUSTED)
    (ground / "strange/strangers.py").write_text(
        "from torch import nn\n\n\ndef make(**given):\n    return nn.Linear(2, 2)\n"
    )
    (ground / "outside/config.json").write_text(f'{{"model_type": "llama", "{SECRET}": "{SECRET}"}}')
    return ground


@pytest.fixture(scope="session")
def workspace(ground: Path, index_folder: Path) -> Iterator[Workspace]:
    made = Workspace.create(
        repositories=[("planted", ground / "trusted"), ("strange", ground / "strange")],
        output=ground / "out", cache_folder=index_folder, trusted=["planted"],
    )  # fmt: skip
    made.config_places = (ground / "configs",)
    yield made
    close_engines(made)
    made.store.close()


@pytest.fixture(scope="session")
def answer(workspace: Workspace) -> Callable[..., str]:
    """The answer of a tool as JSON, or the sentence that refuses; any other error fails the test."""

    def ask(tool: str, **arguments: Any) -> str:
        try:
            answer: ToolResult = run_tool(tool_named(tool), arguments, ToolContext(workspace))
            return answer.model_dump_json()
        except OpscopeError as error:
            sentence = str(error)
            assert "\n" not in sentence.strip()
            assert len(sentence) <= 600, sentence
            return sentence

    return ask


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    return Tally(record_property)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The figures of the whole run."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, []) if r.when == "call"]
    counts = dict.fromkeys(FIGURES, 0)
    for name, count in (pair for report in reports for pair in report.user_properties if pair[0] in counts):
        counts[name] += count
    terminalreporter.write_line(summary(counts))
