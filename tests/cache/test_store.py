"""The store: what is kept comes back, what is not ours is left alone, and nothing that goes wrong is the caller's problem."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from opscope_cache import keys, store
from opscope_cache.store import DiskStore, MemoryStore, Store
from opscope_schemas.errors import OutputError


def database(folder: Path) -> Path:
    return folder / "store-2" / "cache.db"


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_what_is_put_is_got_counted_and_cleared(kind: str, tmp_path: Path) -> None:
    kept: Store = DiskStore(tmp_path) if kind == "disk" else MemoryStore()
    kept.put("a/1", "text")
    kept.put("a/2", "täxt")
    assert (kept.get("a/1"), kept.get("a/2"), kept.get("b")) == ("text", "täxt", None)
    assert sorted(kept.keys()) == ["a/1", "a/2"]
    assert kept.info().entries == 2
    assert kept.clear() == 2
    assert kept.get("a/1") is None
    kept.close()


def test_another_process_reads_what_this_one_wrote(tmp_path: Path) -> None:
    first = DiskStore(tmp_path)
    first.put("key", "value")
    code = (
        f"from pathlib import Path\nfrom opscope_cache.store import DiskStore\n"
        f"s = DiskStore(Path({str(tmp_path)!r}))\nprint(s.get('key'))\ns.put('back', 'there')\ns.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "value\n"
    assert first.get("back") == "there"
    first.close()


def test_a_damaged_database_is_set_aside_and_files_of_others_stay(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("precious")
    database(tmp_path).parent.mkdir()
    database(tmp_path).write_bytes(b"this is no database" * 100)
    kept = DiskStore(tmp_path)
    kept.put("key", "value")
    assert kept.get("key") == "value"
    assert precious.read_text() == "precious"
    assert len(list(tmp_path.glob("store-2.damaged-*"))) == 1
    kept.close()


def test_a_locked_database_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.1)
    first = DiskStore(tmp_path)
    for number in range(20):
        first.put(str(number), "x")
    first.close()
    other = sqlite3.connect(database(tmp_path), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    busy = DiskStore(tmp_path)
    busy.put("new", "lost")  # forgotten, not raised
    assert busy.get("0") is None
    busy.close()
    other.execute("ROLLBACK")
    other.close()
    again = DiskStore(tmp_path)
    assert again.info().entries == 20
    again.close()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot be used.*--cache-dir"):
        DiskStore(tmp_path / "file")


def test_digests_tell_lists_of_parts_apart() -> None:
    assert keys.digest("ab", "c") != keys.digest("a", "bc")
    assert keys.of_document({"a": 1, "b": 2}) == keys.of_document({"b": 2, "a": 1})
