"""Two tools that need the same trace at the same time have the worker make it once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import CancelledError
from opscope_tools.catalog import tool_named
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.client import Worker

LONG = 120.0


@pytest.mark.slow
def test_a_trace_is_made_once_for_two_tools_and_survives_the_one_that_gives_up(
    index_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.create(output=tmp_path, cache_folder=tmp_path / "cache")
    workspace.store.close()
    workspace.store = MemoryStore(index_folder)
    asked: list[tuple[str, str]] = []
    begun, may_go_on = threading.Event(), threading.Event()
    original = Worker.ask

    def ask(self: Worker, kind: str, request: Any, *given: Any, **named: Any) -> Any:
        asked.append((kind, json.dumps(request, sort_keys=True)))
        begun.set()
        assert may_go_on.wait(LONG)
        return original(self, kind, request, *given, **named)

    monkeypatch.setattr(Worker, "ask", ask)
    contexts = [ToolContext(workspace), ToolContext(workspace)]
    found: list[object] = [None, None]

    def call(number: int, tool: str) -> Callable[[], None]:
        def story() -> None:
            try:
                found[number] = run_tool(tool_named(tool), {"target": "LlamaRMSNorm"}, contexts[number])
            except CancelledError as error:
                found[number] = error

        return story

    threads = [threading.Thread(target=call(0, "count_flops")), threading.Thread(target=call(1, "trace_dataflow"))]
    try:
        threads[0].start()
        assert begun.wait(LONG)
        threads[1].start()
        engine = workspace._engines["trace"]
        assert isinstance(engine, tuple)
        (flight,) = engine[1]._flights._under_way.values()
        while len(flight.waiting) < 2 and threads[1].is_alive():
            threading.Event().wait(0.01)
        contexts[0].cancelled.set()
        threads[0].join(LONG)
        may_go_on.set()
        threads[1].join(LONG)
    finally:
        may_go_on.set()
        close_engines(workspace)
    assert isinstance(found[0], CancelledError)
    assert found[1] is not None
    assert not isinstance(found[1], CancelledError)
    assert "trace" in dict(asked)
    assert len(asked) == len(set(asked))
