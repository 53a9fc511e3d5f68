"""Two hundred calls at once with traces that never end among them: every one is answered, and nothing is a defect."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

LOAD = Path(__file__).parents[2] / "benchmarks/load.py"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, as a module."""
    spec = importlib.util.spec_from_file_location("opscope_load", LOAD)
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, found)
    spec.loader.exec_module(found)
    return found


@pytest.mark.faults
@pytest.mark.slow
def test_two_hundred_calls_beside_traces_that_never_end_are_all_answered(
    load: ModuleType, tmp_path: Path, index_folder: Path
) -> None:
    async def story(port: int) -> tuple[list[str], list[str], list[str]]:
        client = load.Client(port)
        await client.start()
        await load.kept(client)
        traces = await load.runaways(client)
        same = asyncio.create_task(client.call("count_flops", target="runaway.py:Forever"))  # joins the first
        found = [answer.text for answer in await load.at_once(client, load.CALLS)]
        under_way = [task for task in traces if not task.done()]
        assert len(under_way) == 2, "the calls were meant to be beside the traces"
        new = [(await client.call("resolve_class", name=f"Kept{n}", repo="runaway")).text for n in range(3)]
        ended = [(await task).text for task in [*traces, same]]
        assert (await load.kept(client)).message["result"]["structuredContent"]["matches"]
        return found, new, ended

    async def bounded(port: int) -> tuple[list[str], list[str], list[str]]:
        async with asyncio.timeout(300):
            return await story(port)

    with load.serving(tmp_path, index_folder, seconds=25.0) as port:
        found, new, ended = asyncio.run(bounded(port))
    assert len(found) == load.CALLS
    assert not [text for text in found if '"isError": true' in text or '"error"' in text]
    assert all("No class is called" in text for text in new)
    assert all("OPSCOPE_TRACE_TIMEOUT" in text or "OPSCOPE_DEADLINE_TRACE" in text for text in ended), ended
    assert "defect" not in "".join([*found, *new, *ended])
    assert "Traceback" not in (tmp_path / "log").read_text()
