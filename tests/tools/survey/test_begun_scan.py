"""A scan that is stopped keeps what it has read, and the next one reads the rest and what has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_cache.trees import tree_at
from opscope_schemas.errors import CancelledError
from opscope_tools.survey import gather as gathering
from opscope_tools.survey.begun import Begun
from opscope_tools.survey.facts import FileFacts
from opscope_tools.survey.gather import SOURCES, gather
from opscope_tools.survey.reading import Reader

FILES = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        (tmp_path / f"m{number:02}.py").write_text(
            f'"""Module {number}."""\nimport os\n\n\nclass C{number}(object):\n    x: int = os.getenv("V{number}", 1)\n'
        )
    return tmp_path


def scan(folder: Path, begun: Begun | None, checkpoint: Callable[[], None] = lambda: None) -> list[FileFacts]:
    files = tree_at(folder, (), SOURCES).now().ending(*SOURCES)
    names = {file: file.removesuffix(".py") for file in files}
    return gather(folder, files, names, (), checkpoint=checkpoint, progress=lambda *_: None, begun=begun)


def stopping_after(count: int) -> Callable[[], None]:
    left = iter(range(count))

    def checkpoint() -> None:
        if next(left, None) is None:
            raise CancelledError("stopped")

    return checkpoint


@pytest.mark.parametrize("little", [1 << 40, 0], ids=["here", "in processes"])
def test_the_next_scan_goes_on_and_says_what_one_without_a_stop_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, little: int
) -> None:
    monkeypatch.setattr(gathering, "_LITTLE", little)
    monkeypatch.setattr(gathering, "_BATCH", 1)
    whole = scan(folder, None)
    begun = Begun(MemoryStore(), "begun")
    with pytest.raises(CancelledError):
        scan(folder, begun, stopping_after(5))
    files = tree_at(folder, (), SOURCES).now().ending(*SOURCES)
    kept = begun.known(files, {file: file.removesuffix(".py") for file in files})
    assert 0 < len(kept) < FILES
    assert scan(folder, begun) == whole


def test_what_was_read_is_not_read_again_unless_it_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Begun(MemoryStore(), "begun")
    with pytest.raises(CancelledError):
        scan(folder, begun, stopping_after(7))
    (folder / "m03.py").write_text("changed = True\n")
    read: list[str] = []
    original = Reader.read

    def counted(self: Reader, files: Sequence[tuple[str, str]]) -> list[FileFacts]:
        read.extend(file for file, _ in files)
        return original(self, files)

    monkeypatch.setattr(Reader, "read", counted)
    found = scan(folder, begun)
    assert sorted(read) == ["m03.py", *(f"m{number:02}.py" for number in range(7, FILES))]
    assert [one.path for one in found] == [f"m{number:02}.py" for number in range(FILES)]


@pytest.mark.parametrize("text", ["", "{}", "[[1]]", "no json", "\udcff"])
def test_a_beginning_that_cannot_be_read_is_none(folder: Path, text: str) -> None:
    store = MemoryStore()
    store.put("begun", text)
    assert len(scan(folder, Begun(store, "begun"))) == FILES
