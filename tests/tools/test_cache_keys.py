"""Keys of kept answers: each part that an answer depends on makes another key. A part left out would serve stale answers."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import toys
from opscope_cache import keys, trees
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.repo_map import RepoMapResult
from opscope_tools import map_repo
from opscope_tools.kernels import inventory
from opscope_tools.kernels.compiled import nvcc_build, triton_build
from opscope_tools.kernels.compiled.cuda_instance import CudaInstance
from opscope_tools.kernels.compiled.triton_slice import Slice
from opscope_tools.kernels.compiled.triton_types import Choice
from opscope_tools.running import runner
from opscope_tools.running.engines import tracer_of
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.engine import TraceEngine
from opscope_tools.trace.protocol import InspectRequest, ModelSpec, TraceRequest

Patch = pytest.MonkeyPatch


class Asked(MemoryStore):
    """A store that holds nothing and tells what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def get(self, key: str) -> None:
        self.asked.append(key)


@pytest.fixture
def own(tmp_path: Path) -> Repository:
    for name in ("source", "copy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text("x = 1\n")
    return Repository(name="own", root=tmp_path / "source", version="1")


# ---- results of tools


@pytest.fixture
def workspace(own: Repository, tmp_path: Path) -> Workspace:
    return Workspace(repositories={"own": own}, output=tmp_path, store=MemoryStore())


def other_tool(workspace: Workspace) -> str:
    return key(workspace, tool=dataclasses.replace(toys.ROWS, name="columns"))


def test_a_file_that_a_tool_reads_is_in_its_key_by_place_and_content_and_in_no_others(
    workspace: Workspace, tmp_path: Path
) -> None:
    reading = dataclasses.replace(toys.ROWS, files=lambda held: held.device_files)
    alone, without = key(workspace), key(workspace, reading)
    found = []
    for name, text in (("a", "1"), ("a", "2"), ("b", "2"), ("b", None)):
        file = tmp_path / name
        file.write_text(text) if text else file.unlink()
        workspace.device_files = (file,)
        found.append(key(workspace, reading))
        assert key(workspace) == alone
    assert len({without, *found}) == 5


def key(workspace: Workspace, tool: object = toys.ROWS, **arguments: object) -> str:
    checked = runner.validate(toys.ROWS, {"target": "x", **arguments})
    return runner.result_key(tool, checked, workspace)  # type: ignore[arg-type]


def with_repository(workspace: Workspace, **changed: object) -> str:
    own = workspace.repositories["own"].model_copy(update=changed)
    return key(dataclasses.replace(workspace, repositories={own.name: own}, _trees={}))


@contextmanager
def same_fingerprints(patch: Patch) -> Iterator[None]:
    """Every tree looks the same, so that only what is said beside its fingerprint tells two of them apart."""
    with patch.context() as inner:
        inner.setattr(trees.Snapshot, "fingerprint", "same")
        yield


@pytest.mark.parametrize("arguments", [{"target": "y"}, {"rows": 2}, {"detail": "names"}, {"values": {"seq_len": 1}}])
def test_each_argument_is_part_of_a_results_key(workspace: Workspace, arguments: dict[str, object]) -> None:
    assert key(workspace, **arguments) != key(workspace)


def test_the_tool_is_part_of_a_results_key(workspace: Workspace) -> None:
    assert other_tool(workspace) != key(workspace)


def test_each_fact_of_a_repository_is_part_of_a_results_key(
    workspace: Workspace, tmp_path: Path, monkeypatch: Patch
) -> None:
    with same_fingerprints(monkeypatch):
        before = key(workspace)
        assert with_repository(workspace) == before
        for changed in ({"name": "another"}, {"version": "2"}, {"root": tmp_path / "copy"}):
            assert with_repository(workspace, **changed) != before, changed
        trusting = dataclasses.replace(workspace, trusted=frozenset({"own"}), _trees={})
        assert key(trusting) != before
        two = {**workspace.repositories, "two": Repository(name="two", root=tmp_path / "copy")}
        assert key(dataclasses.replace(workspace, repositories=two, _trees={})) != before
    assert key(workspace) != before  # the fingerprint itself


def test_a_file_that_changes_is_part_of_a_results_key(workspace: Workspace, own: Repository) -> None:
    before = key(workspace)
    (own.root / "a.py").write_text("x = 22\n")
    assert key(workspace) != before


@pytest.mark.parametrize("inside", [False, True])
def test_the_contents_of_a_named_file_are_part_of_a_results_key(
    workspace: Workspace, tmp_path: Path, inside: bool
) -> None:
    """A file that an argument names, or the config.json of a folder that it names."""
    (tmp_path / "given").mkdir()
    file = tmp_path / "given/config.json"
    file.write_text('{"layers": 1}')
    named = str(file.parent if inside else file)
    before = key(workspace, target=named)
    assert key(workspace, target=named) == before
    file.write_text('{"layers": 2}')
    assert key(workspace, target=named) != before


def test_the_interpreter_and_what_is_installed_in_it_are_part_of_a_results_key(
    workspace: Workspace, tmp_path: Path
) -> None:
    import os

    seen = {key(workspace)}
    for name in ("one", "two"):
        packages = tmp_path / name / "lib/python3.12/site-packages"
        packages.mkdir(parents=True)
        os.utime(packages, (1, 1))
        seen.add(key(dataclasses.replace(workspace, python=str(tmp_path / name / "bin/python"), _trees={})))
    os.utime(packages, (2, 2))
    seen.add(key(dataclasses.replace(workspace, python=str(tmp_path / "two/bin/python"), _trees={})))
    assert len(seen) == 4


def test_the_running_interpreters_version_is_part_of_a_results_key(workspace: Workspace, monkeypatch: Patch) -> None:
    before = key(workspace)
    monkeypatch.setattr(sys, "version", "another")
    assert key(workspace) != before


# ---- opscope's own version


def versions(monkeypatch: Patch, change: Callable[[], None], version: Callable[[], str]) -> tuple[str, str]:
    """What `version` says before and after the change; both are kept for the process, so they are made to forget."""
    found = []
    for changed in (False, True):
        if changed:
            change()
        keys.engine_version.cache_clear()
        keys.index_version.cache_clear()
        found.append(version())
    monkeypatch.undo()
    keys.engine_version.cache_clear()
    keys.index_version.cache_clear()
    return found[0], found[1]


@pytest.mark.parametrize("package", ["opscope_tools", "opscope_schemas", "opscope_cache"])
def test_the_code_of_each_package_is_part_of_the_engines_version(package: str, monkeypatch: Patch) -> None:
    contents = keys._contents

    def patched(folder: Path) -> bytes:
        return contents(folder) + (b"edited" if folder.name == package else b"")

    before, after = versions(monkeypatch, lambda: monkeypatch.setattr(keys, "_contents", patched), keys.engine_version)
    assert before != after


@pytest.mark.parametrize("name", ["a.py", "deep/b.py", "template.j2", "prompt.md", "table.json"])
def test_every_file_that_an_answer_is_made_of_is_part_of_a_version(name: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    before = keys._contents(tmp_path)
    (tmp_path / name).write_text("something")
    written = keys._contents(tmp_path)
    (tmp_path / name).write_text("something else")
    assert len({before, written, keys._contents(tmp_path)}) == 3


def test_code_grammar_and_interpreter_are_part_of_the_indexs_version(monkeypatch: Patch) -> None:
    contents = keys._contents
    read: list[Path] = []

    def edited(folder: Path) -> bytes:
        read.append(folder)
        return contents(folder) + b"edited"

    changes: list[Callable[[], None]] = [
        lambda: monkeypatch.setattr(keys, "_contents", edited),
        lambda: monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0"),
        lambda: monkeypatch.setattr(sys, "version_info", (3, 99, 0)),
    ]
    for change in changes:
        before, after = versions(monkeypatch, change, keys.index_version)
        assert before != after
    assert [folder.name for folder in read] == ["source", "index"]


@pytest.fixture
def newer(monkeypatch: Patch) -> Callable[[], None]:
    """Makes another version of opscope of this one."""

    def change() -> None:
        for module in (keys, map_repo, inventory, nvcc_build, triton_build):
            monkeypatch.setattr(module, "engine_version", lambda: "newer")

    return change


def test_the_engines_version_is_part_of_a_results_key(workspace: Workspace, newer: Callable[[], None]) -> None:
    before = key(workspace)
    newer()
    assert key(workspace) != before


# ---- traces


def engine(own: Repository, python: str = sys.executable, **changed: object) -> TraceEngine:
    named = own.model_copy(update={"name": "transformers", **changed})
    return TraceEngine([named], MemoryStore(), python=python)


REQUEST = TraceRequest(model=ModelSpec(model_type="llama"))


def test_each_part_of_a_request_is_part_of_a_traces_key(own: Repository) -> None:
    requests: list[TraceRequest | InspectRequest] = [
        REQUEST,
        TraceRequest(model=ModelSpec(model_type="llama", class_name="transformers.LlamaModel")),
        TraceRequest(model=ModelSpec(model_type="llama", overrides={"num_layers": 1})),
        TraceRequest(model=ModelSpec(model_type="llama", content={"num_hidden_layers": 1})),
        REQUEST.model_copy(update={"phase": "decode"}),
        REQUEST.model_copy(update={"attention": "eager"}),
        REQUEST.model_copy(update={"inputs": {"x": ("batch_size", 1)}}),
        REQUEST.model_copy(update={"fit": False}),
        REQUEST.model_copy(update={"plain": True}),
        REQUEST.model_copy(update={"logits": "last"}),
        REQUEST.model_copy(update={"hints": {"seq_len": 1}}),
        REQUEST.model_copy(update={"fused": True}),
    ]
    one = engine(own)
    found = {one._key("trace", request) for request in requests}
    kinds = {one._key(kind, InspectRequest(model=REQUEST.model)) for kind in ("inspect", "configure")}
    assert len(found) == len(requests)
    assert len(kinds) == 2
    fields = set(TraceRequest.model_fields) - {"model"}
    assert fields == {
        "phase",
        "attention",
        "inputs",
        "fit",
        "plain",
        "logits",
        "hints",
        "fused",
    }  # a new one belongs into the list above


def test_each_fact_of_what_the_worker_imports_is_part_of_a_traces_key(
    own: Repository, tmp_path: Path, monkeypatch: Patch
) -> None:
    with same_fingerprints(monkeypatch):
        before = engine(own)._key("trace", REQUEST)
        assert engine(own)._key("trace", REQUEST) == before
        for changed in ({"name": "pytorch"}, {"version": "2"}, {"root": tmp_path / "copy"}):
            assert engine(own, **changed)._key("trace", REQUEST) != before, changed
    assert engine(own)._key("trace", REQUEST) != before


def test_a_trusted_repository_is_part_of_a_traces_key_and_another_is_not(own: Repository, tmp_path: Path) -> None:
    traced = own.model_copy(update={"name": "transformers", "installed": True})
    known = {"transformers": traced, "mine": Repository(name="mine", root=tmp_path / "copy")}

    def of(*trusted: str) -> str:
        workspace = Workspace(known, output=tmp_path, store=MemoryStore(), trusted=frozenset(trusted))
        return tracer_of(workspace)._key("trace", REQUEST)

    assert of() == engine(traced)._key("trace", REQUEST)
    assert of("mine") != of()


def test_interpreter_and_engine_are_part_of_a_traces_key(own: Repository, newer: Callable[[], None]) -> None:
    found = {engine(own)._key("trace", REQUEST), engine(own, python="/usr/bin/python3")._key("trace", REQUEST)}
    newer()
    found.add(engine(own)._key("trace", REQUEST))
    assert len(found) == 3


# ---- kernels


def asked_for_cuda(**changed: str) -> str:
    store = Asked()
    given = {"file": "a.cu", "instance": "k<float>", "arch": "sm_90", "content": "digest", **changed}
    nvcc_build.build_cuda(
        Path("/repo"), CudaInstance(given["file"], "k", given["instance"]), [given["arch"]], given["content"], store,
        seconds=0, checkpoint=lambda: None, progress=lambda *_: None,
    )  # fmt: skip
    (found,) = store.asked
    return found


def test_each_part_of_a_build_is_part_of_its_key(monkeypatch: Patch, newer: Callable[[], None]) -> None:
    seen = {asked_for_cuda()}
    for name in ("file", "instance", "arch", "content"):
        seen.add(asked_for_cuda(**{name: "another"}))
    with monkeypatch.context() as inner:
        inner.setattr(nvcc_build, "version", lambda: "nvcc 99")
        seen.add(asked_for_cuda())
    newer()
    seen.add(asked_for_cuda())
    assert len(seen) == 7


def asked_for_constants(monkeypatch: Patch, **changed: str) -> str:
    store = Asked()
    given = {"file": "a.cu", "expression": "N", "arch": "sm_90", "content": "digest", **changed}
    monkeypatch.setattr(nvcc_build, "_probed", lambda *_args, **_named: [])
    nvcc_build.probe(
        Path("/repo"), given["file"], [given["expression"]], given["arch"], given["content"], store,
        seconds=0, checkpoint=lambda: None,
    )  # fmt: skip
    (found,) = store.asked
    return found


def test_each_part_of_a_question_about_constants_is_part_of_its_key(
    monkeypatch: Patch, newer: Callable[[], None]
) -> None:
    seen = {asked_for_constants(monkeypatch)}
    for name in ("file", "expression", "arch", "content"):
        seen.add(asked_for_constants(monkeypatch, **{name: "another"}))
    with monkeypatch.context() as inner:
        inner.setattr(nvcc_build, "version", lambda: "nvcc 99")
        seen.add(asked_for_constants(monkeypatch))
    newer()
    seen.add(asked_for_constants(monkeypatch))
    assert len(seen) == 7
    assert not seen & {asked_for_cuda()}


SLICE = Slice(("a.py", "kernel"), {"a.py": "def kernel(): ..."}, {"a.py": {"N": {"value": 1}}})


def asked_for_triton(slice_: Slice = SLICE, arch: str = "sm_90", **changed: Any) -> str:
    store = Asked()
    choice = dataclasses.replace(Choice(), **changed)
    triton_build.build_triton(
        slice_, [choice], [arch], store, seconds=0, checkpoint=lambda: None, progress=lambda *_: None
    )
    (found,) = store.asked
    return found


def test_each_part_of_a_triton_build_is_part_of_its_key(monkeypatch: Patch, newer: Callable[[], None]) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "3.9")
    changes: dict[str, Any] = {
        "signature": {"x": "*fp16"}, "constants": {"N": 1}, "divisible": ["x"], "options": {"num_warps": 8},
        "said": {"x": "fp16"}, "config": 2,
    }  # fmt: skip
    # what was assumed is told beside the builds, which say the same of each parameter
    assert {*changes, "assumed"} == {one.name for one in dataclasses.fields(Choice)}
    seen = {asked_for_triton(), asked_for_triton(arch="sm_80")}
    seen |= {asked_for_triton(**{name: value}) for name, value in changes.items()}
    seen.add(asked_for_triton(dataclasses.replace(SLICE, kernel=("a.py", "other"))))
    seen.add(asked_for_triton(dataclasses.replace(SLICE, files={"a.py": "def kernel(): pass"})))
    seen.add(asked_for_triton(dataclasses.replace(SLICE, names={"a.py": {"N": {"value": 2}}})))
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "4.0")
    seen.add(asked_for_triton())
    newer()
    seen.add(asked_for_triton())
    assert len(seen) == 2 + len(changes) + 5


def asked_for_kernels(own: Repository, **changed: object) -> str:
    store = Asked()
    inventory.scan(own.model_copy(update=changed), store, checkpoint=lambda: None, progress=lambda *_: None)
    found, begun = store.asked  # the whole inventory, or what a cancelled scan has read of it
    assert begun.startswith(found)
    return found


def test_each_part_of_an_inventory_is_part_of_its_key(
    own: Repository, tmp_path: Path, newer: Callable[[], None]
) -> None:
    seen = {asked_for_kernels(own), asked_for_kernels(own, root=tmp_path / "copy")}
    seen.add(asked_for_kernels(own, packages=("a",)))
    newer()
    seen.add(asked_for_kernels(own))
    assert len(seen) == 4


def asked_for_map(own: Repository, tmp_path: Path, entry: str | None = None) -> str:
    store = Asked()
    context = ToolContext(Workspace({own.name: own}, tmp_path, store))
    arguments = map_repo.MapRepoArguments(repo=own.name, entry=entry)
    (found,) = _first_key(store, lambda: map_repo._whole(arguments, own, context))
    return found


def _first_key(store: Asked, run: Callable[[], object]) -> list[str]:
    run()
    return store.asked[:1]


def test_each_part_of_a_map_is_part_of_its_key(
    own: Repository, tmp_path: Path, monkeypatch: Patch, newer: Callable[[], None]
) -> None:
    monkeypatch.setattr(map_repo, "survey", lambda *_args, **_named: RepoMapResult.model_construct())
    with same_fingerprints(monkeypatch):
        seen = {asked_for_map(own, tmp_path), asked_for_map(own, tmp_path, entry="a.py:1")}
        seen.add(asked_for_map(own.model_copy(update={"root": tmp_path / "copy"}), tmp_path))
        seen.add(asked_for_map(own.model_copy(update={"packages": ("a",)}), tmp_path))
        with monkeypatch.context() as inner:
            inner.setattr(map_repo, "_installed_scripts", lambda _repository: {"serve": "a:main"})
            seen.add(asked_for_map(own, tmp_path))
        with monkeypatch.context() as inner:
            inner.setattr(map_repo, "engine_version", lambda: "newer")
            seen.add(asked_for_map(own, tmp_path))
    seen.add(asked_for_map(own, tmp_path))
    assert len(seen) == 7
    newer()
