"""What is read or worked out once is read anew where a file changed, and costs nothing where none did."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from opscope_cache import trees
from opscope_cache.watch import open_watch
from opscope_tools.running.engines import close_engines, remembered, tracer_of
from opscope_tools.running.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "model.py").write_text("SIZE = 1\n")
    made = Workspace.create(
        repositories=[("own", tmp_path / "own")], cache_folder=tmp_path / "cache", trusted=["own"], output=tmp_path
    )
    yield made
    close_engines(made)
    made.store.close()
    shutil.rmtree(tmp_path / "own")


def test_an_answer_is_made_once_for_a_state_of_the_files(workspace: Workspace, tmp_path: Path) -> None:
    made: list[str] = []

    def make() -> str:
        made.append((tmp_path / "own" / "model.py").read_text())
        return made[-1]

    assert remembered(workspace, "size", make) == remembered(workspace, "size", make) == "SIZE = 1\n"
    assert len(made) == 1
    assert remembered(workspace, "another", make) == "SIZE = 1\n"
    assert len(made) == 2
    (tmp_path / "own" / "model.py").write_text("SIZE = 2\n")
    assert remembered(workspace, "size", make) == "SIZE = 2\n"
    (tmp_path / "own" / "more.py").write_text("")
    assert remembered(workspace, "size", make) == "SIZE = 2\n"
    assert len(made) == 4


def test_the_trees_of_a_trace_are_listed_once_and_still_seen_to_change(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tracer_of(workspace)
    before = engine._sources()
    assert engine._sources() == before  # from the second question on they are watched
    listed: list[Path] = []
    original = trees._Listing.__init__

    def counted(self: trees._Listing, root: Path, *rest: object) -> None:
        listed.append(root)
        original(self, root, *rest)  # type: ignore[arg-type]  # the rest as it was given

    monkeypatch.setattr(trees._Listing, "__init__", counted)
    assert engine._sources() == before
    own = (tmp_path / "own").resolve()
    if open_watch(own, [str(own)]) is not None:  # not on every file system, nor beyond the kernel's limits
        assert own not in listed
    (tmp_path / "own" / "model.py").write_text("SIZE = 3\n")
    assert engine._sources() != before
