"""The trace worker that is started before anybody asks for a trace."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import venv
from pathlib import Path

import pytest
from opscope_server.settings import Settings
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.engines import close_engines, tracer_of, warm_tracer
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.client import Worker


def test_a_warmed_worker_is_the_one_that_traces_and_is_started_once(tmp_path: Path) -> None:
    workspace = Workspace.create(cache_folder=tmp_path)
    try:
        warm_tracer(workspace)
        worker = tracer_of(workspace)._worker
        ends = time.monotonic() + 60
        while worker._process is None and time.monotonic() < ends:
            time.sleep(0.02)
        started = worker._process
        assert started is not None
        warm_tracer(workspace)
        count_flops(CostArguments(target="LlamaRMSNorm"), ToolContext(workspace))
        assert worker._process is started
    finally:
        close_engines(workspace)
        workspace.store.close()
    assert not started.running


def test_a_workspace_closed_while_its_worker_warms_ends_it(tmp_path: Path) -> None:
    workspace = Workspace.create(cache_folder=tmp_path)
    warm_tracer(workspace)
    worker = tracer_of(workspace)._worker
    close_engines(workspace)
    workspace.store.close()
    for warming in [t for t in threading.enumerate() if t.name == "opscope-warm"]:
        warming.join(60)
        assert not warming.is_alive()
    assert worker._process is None


def test_warming_can_be_turned_off() -> None:
    assert Settings.from_environment({}).warm
    assert not Settings.from_environment({"OPSCOPE_WARM": "0"}).warm
    assert not Settings().warm  # a server inside another program, which would have to end the worker


def test_what_an_installer_leaves_without_bytecode_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker in its cage can write none, and would compile torch at each start."""
    venv.create(tmp_path / "venv")
    python = str(tmp_path / "venv/bin/python")
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    modules = ("torch/fx/experimental/symbolic_shapes", "transformers/cache_utils", "transformers/masking_utils", "transformers/modeling_utils")  # fmt: skip
    for module in modules:
        for folder in reversed([*Path(module).parents][:-1]):
            (site / folder).mkdir(exist_ok=True)
            (site / folder / "__init__.py").touch()
        (site / f"{module}.py").touch()

    def compiled() -> set[str]:
        return {path.name.partition(".")[0] for path in site.rglob("*.pyc")}

    said: list[str] = []
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    Worker(python)._readable(lambda: None, said.append)
    assert (said, compiled()) == ([], set())
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for _ in range(2):
        places = Worker(python)._readable(lambda: None, said.append)
    assert len(said) == 1
    assert str(site) in places
    assert compiled() == {"__init__", *(Path(module).name for module in modules)}
