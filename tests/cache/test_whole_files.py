"""Files appear whole or not at all, and what a kill leaves beside them goes with the next write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from opscope_cache import whole_files
from opscope_cache.whole_files import write_whole, written_beside


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def test_a_file_is_replaced_with_content_and_mode(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    write_whole(tmp_path / "a", b"new", 0o640)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["a"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "a", b"new", 0o644)
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_copies_of_killed_writers_go_with_the_next_write_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom opscope_cache.whole_files import written_beside\n"
        "written_beside(Path(sys.argv[1]), b'x', 0o644)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=False)
    assert len(names(tmp_path)) == 1
    living = written_beside(tmp_path / "a", b"y", 0o644)
    write_whole(tmp_path / "a", b"new", 0o644)
    assert names(tmp_path) == sorted([living.name, "a"])
    assert whole_files._lives(os.getpid())
