"""A kept answer that does not read is as good as none, whoever kept it: it is made anew, and kept again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import toys
from opscope_cache.store import MemoryStore, recall
from opscope_schemas.common import Repository
from opscope_tools import kernels, map_repo
from opscope_tools.cuda_kernel_tiling import _traits
from opscope_tools.kernels import inventory
from opscope_tools.kernels.compiled import nvcc_build, triton_build
from opscope_tools.kernels.compiled.cuda_instance import CudaInstance
from opscope_tools.kernels.compiled.triton_slice import Slice
from opscope_tools.kernels.compiled.triton_types import Choice
from opscope_tools.running import runner
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.engine import TraceEngine
from opscope_tools.trace.flights import Running
from opscope_tools.trace.protocol import InspectRequest, ModelSpec, TraceRequest

GARBAGE = ["", "null", "1", '"text"', "[]", "[1]", "{}", '{"rows": 3', '{"a": "b"}', "[" * 100_000, "\ud800", "\0"]


class Reached(Exception):  # noqa: N818 (no error: the sign that work began)
    """The answer is being made."""


def reach(*_arguments: object, **_named: object) -> None:
    raise Reached


class Garbage(MemoryStore):
    """A store with the same text under every key."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def get(self, _key: str) -> str:
        return self._text


@pytest.fixture(params=GARBAGE, ids=range(len(GARBAGE)))
def store(request: pytest.FixtureRequest) -> Garbage:
    return Garbage(request.param)


@pytest.fixture
def own(tmp_path: Path) -> Repository:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/a.cu").write_text("__global__ void k(float* x) { x[threadIdx.x] = 0; }\n")
    return Repository(name="transformers", root=tmp_path / "own")


@pytest.fixture
def engine(own: Repository, store: Garbage, monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceEngine]:
    monkeypatch.setattr(TraceEngine, "_ask", reach)
    found = TraceEngine([own], store, python=sys.executable)
    yield found
    found.close()


RUNNING = Running(threading.Event(), lambda _text: None)


def test_a_trace_and_a_tree_of_a_model_are_made_anew(engine: TraceEngine) -> None:
    model = ModelSpec(model_type="llama")
    with pytest.raises(Reached):
        engine.trace(TraceRequest(model=model), RUNNING)
    with pytest.raises(Reached):
        engine.inspect(model, RUNNING)
    assert engine._key("trace", TraceRequest(model=model)) != engine._key("inspect", InspectRequest(model=model))


def test_builds_and_constants_are_compiled_anew(store: Garbage, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((nvcc_build, "_compile"), (nvcc_build, "_probed"), (triton_build, "_compile")):
        monkeypatch.setattr(module, name, reach)
    quiet = {"checkpoint": lambda: None, "progress": lambda *_: None}
    wanted = CudaInstance("a.cu", "k", "k")
    with pytest.raises(Reached):
        nvcc_build.build_cuda(Path("/r"), wanted, ["sm_90"], "digest", store, seconds=9, **quiet)  # type: ignore[arg-type]  # of a dict of several kinds
    with pytest.raises(Reached):
        triton_build.build_triton(Slice(("a.py", "k")), [Choice()], ["sm_90"], store, seconds=9, **quiet)  # type: ignore[arg-type]  # of a dict of several kinds
    if store.get("") == "[]":
        return  # no constants: an answer that reads
    with pytest.raises(Reached):
        nvcc_build.probe(Path("/r"), "a.cu", ["N"], "sm_90", "digest", store, seconds=9, checkpoint=lambda: None)


def test_an_inventory_and_what_its_kernels_do_are_read_anew(
    own: Repository, store: Garbage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = {"checkpoint": lambda: None, "progress": lambda *_: None}
    found = inventory.scan(own, store, **quiet)  # type: ignore[arg-type]
    assert found == inventory.scan(own, MemoryStore(), **quiet)  # type: ignore[arg-type]
    monkeypatch.setattr(kernels, "describe", reach)
    context = ToolContext(Workspace({own.name: own}, tmp_path, store))
    if store.get("") == "[]":
        return  # no kernels: an answer that reads
    with pytest.raises(Reached):
        _traits(context, own, found, list(found.kernels))


def test_a_map_and_a_result_are_made_anew(
    own: Repository, store: Garbage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ToolContext(Workspace({own.name: own}, tmp_path, store))
    before = len(toys.CALLS)
    runner.run_tool(toys.ROWS, {"target": "x"}, context)
    assert len(toys.CALLS) == before + 1
    monkeypatch.setattr(map_repo, "survey", reach)
    with pytest.raises(Reached):
        map_repo._whole(map_repo.MapRepoArguments(repo=own.name), own, context)


def test_what_a_parser_refuses_is_not_kept() -> None:
    store = MemoryStore()
    store.put("number", "7")
    assert recall(store, "number", int) == 7
    assert recall(store, "nothing", int) is None
    store.put("number", "seven")
    assert recall(store, "number", int) is None
