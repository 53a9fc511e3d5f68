"""The everyday step of decoding, one token at a time, has a document of its own: one trace serves every point."""

from __future__ import annotations

from pathlib import Path

import pytest
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.client import Worker

#: grouped-query attention, as many key/value heads as heads
MODELS = ("qwen3", "llama")


@pytest.mark.slow
@pytest.mark.parametrize("model_type", MODELS)
def test_steps_of_one_token_share_one_further_trace(
    model_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.create(cache_folder=tmp_path / "cache")
    context, asked, ask = ToolContext(workspace), [], Worker.ask

    def counted(self: Worker, kind: str, payload: object, **options: object) -> object:
        asked.append(kind)
        return ask(self, kind, payload, **options)  # type: ignore[arg-type]  # the options are handed on as they came

    monkeypatch.setattr(Worker, "ask", counted)
    figures = set()
    config = {"num_layers": 2}
    for batch_size, cache_len in ((2, 7), (5, 128), (16, 1000), (3, 40)):
        values = {"batch_size": batch_size, "cache_len": cache_len}
        found = count_flops(CostArguments(target=model_type, phase="decode", config=config, values=values), context)
        assert found.evaluated is not None
        assert all(v.kind != "fixed" for v in found.document.variables if v.name in ("batch_size", "cache_len"))
        figures.add(found.evaluated.flops)
    assert asked.count("trace") <= 2
    assert len(figures) == 4
    close_engines(workspace)
    workspace.store.close()
