"""The index on disk: built by processes, found damaged or half made, changed files; the answers are always the same."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import SourceError
from opscope_tools.index import Index, open_index
from opscope_tools.index.build.background import BackgroundBuilds
from opscope_tools.index.build.build import build
from opscope_tools.running.workspace import folder_repository
from opscope_tools.source.python import file_rows as symbols
from opscope_tools.source.storage import entries as entries_module
from opscope_tools.source.storage.places import index_place, prune, sizes

COUNT = 150


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package of many files: a chain of classes, one file each."""
    (tmp_path / "repo/pkg").mkdir(parents=True)
    (tmp_path / "repo/pkg/__init__.py").write_text("from .m7 import C7 as Seven\n__all__ = ['Seven']\n")
    for number in range(COUNT):
        base = f"from .m{number - 1} import C{number - 1}\n" if number else ""
        parent = f"C{number - 1}" if number else "object"
        (tmp_path / f"repo/pkg/m{number}.py").write_text(
            f"{base}\n\nclass C{number}({parent}):\n    def f{number}(self):\n        return self.word_{number % 10}\n"
        )
    return tmp_path / "repo"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def opened(root: Path, cache: Path | None) -> Index:
    return open_index([folder_repository("mine", root)], MemoryStore(cache))


def place_of(root: Path, cache: Path) -> Path:
    return index_place(cache, folder_repository("mine", root))


def built(root: Path, cache: Path) -> Path:
    place = place_of(root, cache)
    assert build(place, root)
    return place


def answers(index: Index) -> list[object]:
    """What many questions give, each of them about the whole repository."""
    (tree,) = index.resolver.trees
    deep = index.one(f"C{COUNT - 1}")
    return [
        [index.one(f"C{number}").line for number in range(0, COUNT, 10)],
        index.mro(deep),
        index.one("Seven").qualified_name,
        tree.files_mentioning("word_3"),
        tree.files_mentioning("word"),
        tree.textual_subclasses("C8"),
        sorted(tree.class_names()),
    ]


def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The sources that are extracted from here on."""
    seen: list[bytes] = []
    extract = symbols.extract

    def counted(source: bytes) -> object:
        seen.append(source)
        return extract(source)

    monkeypatch.setattr(entries_module, "extract", counted)
    return seen


def test_answers_are_those_of_an_index_that_was_not_built(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(opened(root, None))
    built(root, cache)
    seen = reads(monkeypatch)
    assert answers(opened(root, cache)) == expected
    assert not seen
    assert expected[3] == sorted(f"pkg/m{number}.py" for number in range(3, COUNT, 10))
    assert expected[4] == []


def test_what_is_up_to_date_is_not_read_again(root: Path, cache: Path) -> None:
    place = built(root, cache)
    told: list[tuple[int, int]] = []
    assert build(place, root, progress=lambda done, total: told.append((done, total)))
    assert told == []
    (root / "pkg/m3.py").write_text("class Other: pass\n")
    assert build(place, root, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (1, 1)
    assert opened(root, cache).one("Other").file == "pkg/m3.py"


def test_progress_ends_at_all_files(root: Path, cache: Path) -> None:
    told: list[tuple[int, int]] = []
    assert build(place_of(root, cache), root, progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, COUNT + 1)
    assert told[-1] == (COUNT + 1, COUNT + 1)
    assert told == sorted(told)


def test_a_cancelled_build_keeps_what_it_has_and_can_be_taken_up(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opscope_tools.index.build.build._BATCH", 500)
    cancelled = threading.Event()

    def stop(done: int, _total: int) -> None:
        if done:
            cancelled.set()

    place = place_of(root, cache)
    assert not build(place, root, progress=stop, cancelled=cancelled)
    kept = sqlite3.connect(place).execute("SELECT count(*) FROM files").fetchone()[0]
    assert 0 < kept < COUNT
    assert answers(opened(root, cache)) == answers(opened(root, None))
    assert build(place, root)
    assert sqlite3.connect(place).execute("SELECT count(*) FROM files").fetchone()[0] == COUNT + 1


def test_a_build_leaves_the_work_to_the_one_that_runs(root: Path, cache: Path) -> None:
    place = place_of(root, cache)
    place.parent.mkdir(parents=True)
    with FileLock(f"{place}.lock"):
        assert not build(place, root)
    assert build(place, root)


def _process(place: Path, root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "opscope_tools.index.build.build", str(place), str(root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_two_processes_that_build_at_once_make_one_index(root: Path, cache: Path) -> None:
    place = place_of(root, cache)
    both = [_process(place, root) for _ in range(2)]
    told = [process.stdout.read() for process in both if process.stdout is not None]
    for process in both:
        process.communicate(timeout=60)
    assert sorted(process.returncode for process in both) in ([0, 0], [0, 1])
    # whoever came second read nothing: it found the lock held, or the work done
    assert sorted(bool(text) for text in told) == [False, True]
    assert answers(opened(root, cache)) == answers(opened(root, None))


def test_a_build_that_is_killed_does_no_harm(root: Path, cache: Path) -> None:
    place = place_of(root, cache)
    process = _process(place, root)
    assert process.stdout is not None
    process.stdout.readline()  # it has begun
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    assert answers(opened(root, cache)) == answers(opened(root, None))
    assert build(place, root)


def test_a_build_ends_when_its_starter_does(root: Path, cache: Path) -> None:
    for number in range(3000):
        (root / f"pkg/x{number}.py").write_text("class A:\n    pass\n")
    process = _process(place_of(root, cache), root)
    assert process.stdout is not None
    process.stdout.readline()
    process.communicate(timeout=30)  # closes its input
    assert process.returncode is not None


@pytest.mark.parametrize("damage", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_index_is_replaced(root: Path, cache: Path, damage: bytes) -> None:
    place = built(root, cache)
    expected = answers(opened(root, None))
    for file in place.parent.glob("*-wal"):
        file.unlink()
    place.write_bytes(damage)
    assert answers(opened(root, cache)) == expected
    assert build(place, root)
    assert answers(opened(root, cache)) == expected


def test_damaged_entries_are_read_again(root: Path, cache: Path) -> None:
    place = built(root, cache)
    with sqlite3.connect(place) as connection:
        connection.execute("UPDATE files SET rows = x'00112233445566', errors = x'00'")
        connection.execute("UPDATE words SET files = x'0011223344' WHERE bucket % 3 = 0")
        connection.execute("UPDATE words SET files = NULL WHERE bucket % 3 = 1")
        connection.execute("UPDATE words SET files = 'text' WHERE bucket % 3 = 2")
    connection.close()
    index = opened(root, cache)
    assert answers(index) == answers(opened(root, None))
    assert index.submodules(index.one("C3")) == []


def test_one_changed_file_is_read_and_no_other(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(root, cache)
    index = opened(root, cache)
    assert index.one("C5").line == 4
    seen = reads(monkeypatch)
    (root / "pkg/m5.py").write_text("\n" * 9 + "class C5:\n    new_word = 1\nclass Fresh(C5): pass\n")
    assert index.one("C5").line == 10
    assert index.one("Fresh").line == 12
    assert index.mro(index.one("C6")) == ["pkg.m6.C6", "pkg.m5.C5", "object"]
    (tree,) = index.resolver.trees
    assert tree.files_mentioning("new_word") == ["pkg/m5.py"]
    assert "pkg/m5.py" not in tree.files_mentioning("word_5")
    assert tree.textual_subclasses("C5") == [("Fresh", "pkg/m5.py"), ("C6", "pkg/m6.py")]
    assert len(seen) == 1
    (root / "pkg/m5.py").unlink()
    assert "Fresh" not in tree.class_names()
    assert tree.places("Fresh") == []


def test_a_change_is_seen_by_an_index_opened_in_another_process(root: Path, cache: Path) -> None:
    built(root, cache)
    index = opened(root, cache)
    answers(index)
    (root / "pkg/m9.py").write_text("class Moved: pass\n")
    code = (
        "import sys; from pathlib import Path; from opscope_tools.index.build.build import build;"
        "assert build(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, str(place_of(root, cache)), str(root)], check=True, timeout=60)
    assert index.one("Moved").file == "pkg/m9.py"


def test_what_a_busy_index_cannot_take_is_answered_from_memory(root: Path, cache: Path) -> None:
    """Another process writes, so an entry that a question needs finds no way into the file."""
    place = built(root, cache)
    index = opened(root, cache)
    assert index.one("C5").line == 4
    other = sqlite3.connect(place, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    (root / "pkg/m5.py").write_text("\nclass C5: pass\nclass Fresh(C5): pass\n__all__ = ['Fresh']\n")
    (root / "pkg/m9.py").unlink()
    (tree,) = index.resolver.trees

    def answers() -> list[object]:
        return [
            index.one("C5").line, index.one("Fresh").line, tree.textual_subclasses("C5"), tree.places("C9"),
            tree.files_exporting("Fresh", "pkg"), {"Fresh", "C9"} & set(tree.class_names()),
        ]  # fmt: skip

    expected = [2, 3, [("Fresh", "pkg/m5.py"), ("C6", "pkg/m6.py")], [], ["pkg/m5.py"], {"Fresh"}]
    assert [*answers()[:5], answers()[5] & {"Fresh"}] == expected  # type: ignore[operator]
    other.execute("ROLLBACK")
    other.close()
    (root / "pkg/m5.py").write_text("\n\nclass C5: pass\nclass Fresh(C5): pass\n__all__ = ['Fresh']\n")
    assert [*answers()[:5], answers()[5]] == [3, 4, *expected[2:]]
    assert index.one("C5").line == 3
    index.close()
    assert sqlite3.connect(place).execute("SELECT line FROM classes WHERE name = 'C5'").fetchall() == [(3,)]


FILES: dict[str, bytes] = {
    "latin.py": b"# -*- coding: latin-1 -*-\nclass Caf\xe9(object):\n    pass\nclass Latin: pass\n",
    "marked.py": b"\xef\xbb\xbfclass Marked: pass\n",
    "broken_utf8.py": b'class Broken:\n    x = "\xff\xfe"\n',
    "empty.py": b"",
    "comment.py": b"# only a comment",
    "old_mac.py": b"x = 1\rclass OldMac:\r    pass\r",
    "carriage.py": b"class Carriage:\r\n    def f(self):\r\n        return 1\r\n",
}


def test_odd_encodings_are_read(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    index = opened(tmp_path, None)
    assert sorted(index.class_names()) == ["Broken", "Café", "Carriage", "Latin", "Marked", "OldMac"]
    assert index.one("OldMac").line == 2
    assert index.one("Café").line == 2
    assert index.one("Marked").line == 1


def test_what_is_no_source_is_left_out_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries_module, "SIZE_LIMIT", 10_000)
    (tmp_path / "binary.py").write_bytes(b"class Hidden: pass\n\0\0")
    (tmp_path / "wide.py").write_bytes("class Wide: pass\n".encode("utf-16"))
    (tmp_path / "huge.py").write_bytes(b"class Huge: pass\n" + b"x = 1\n" * 2000)
    (tmp_path / "good.py").write_bytes(b"class Good: pass\n")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    index = opened(tmp_path, None)
    assert index.class_names() == ["Good"]
    assert index.one("Good").file == "good.py"
    for file, why in (("binary.py", "NUL bytes"), ("wide.py", "NUL bytes"), ("huge.py", "12,017 bytes")):
        with pytest.raises(SourceError, match=why):
            index.target(f"{file}:1")


def test_a_file_whose_name_is_no_text_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("class Good: pass\n")
    with open(os.fsencode(tmp_path) + b"/\xff.py", "w") as stream:  # noqa: PTH123 (no Path can be made of bytes)
        stream.write("class Unreachable: pass\n")
    assert opened(tmp_path, None).class_names() == ["Good"]


def test_a_folder_that_cannot_be_written_costs_speed_only(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert answers(opened(root, tmp_path / "file")) == answers(opened(root, None))


def test_a_question_starts_a_build_behind_it(root: Path, cache: Path) -> None:
    builds = BackgroundBuilds()
    index = open_index([folder_repository("mine", root)], MemoryStore(cache), builds)
    try:
        assert index.one("C140").line == 4
        (tree,) = index.resolver.trees
        until(lambda: len(tree._database.signatures()) == COUNT + 1 and bool(tree._database.segment()))
        assert answers(index) == answers(opened(root, None))
    finally:
        builds.close()
        index.close()


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)  # a bounded wait for another process


def test_indexes_that_nobody_used_for_long_are_removed(root: Path, cache: Path) -> None:
    place = built(root, cache)
    old, recent = place.with_name("old.sqlite"), place.with_name("recent.sqlite")
    old.write_bytes(b"x")
    recent.write_bytes(b"x")
    os.utime(old, (0, 0))
    prune(place)
    assert set(sizes(cache)) == {place, recent}
