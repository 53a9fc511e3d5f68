"""Batches handed to worker processes: every batch is answered once, a worker that dies is no silence."""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from opscope_schemas.errors import WorkerError
from opscope_tools.source.workers import batches_of, read_batches

WORKER = """
import os, pickle
from opscope_tools.source.workers import serve
seen = []
def read(batch):
    if batch == "die":
        os._exit(7)
    seen.append(batch)
    return os.getpid(), batch
serve(read, lambda: seen, pickle)
"""


def nothing() -> None:
    pass


def test_every_batch_is_answered_once_and_every_worker_says_its_last_word(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    told = list(
        read_batches([sys.executable, str(tmp_path / "worker.py")], list(range(25)), pickle, workers=2, checkpoint=nothing)
    )  # fmt: skip
    answers = [said for last, said in told if not last]
    lasts = [said for last, said in told if last]
    assert sorted(batch for _, batch in answers) == list(range(25))
    assert len(lasts) == 2
    assert sorted(batch for seen in lasts for batch in seen) == list(range(25))
    for seen in lasts:  # what a worker says it read is what it answered
        assert any(seen == [batch for pid, batch in answers if pid == worker] for worker in {pid for pid, _ in answers})


def test_a_worker_that_dies_is_an_error_that_names_its_status(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    with pytest.raises(WorkerError, match="status 7"):
        list(
            read_batches(
                [sys.executable, str(tmp_path / "worker.py")], ["a", "die", "b"], pickle, workers=1, checkpoint=nothing
            )
        )


def test_closing_the_iterator_ends_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def kept(*arguments: object, **keywords: object) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = real(*arguments, **keywords)  # type: ignore[call-overload]  # handed on as given
        started.append(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", kept)
    with closing(read_batches([sys.executable, str(tmp_path / "worker.py")], list(range(50)), pickle, workers=2, checkpoint=nothing)) as told:  # fmt: skip
        next(told)
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)


def test_batches_hold_every_file_once_the_largest_first() -> None:
    sizes = {"a": 5, "b": 90, "c": 40, "d": 70, "e": 1}
    batches = batches_of(sizes, 100)
    assert [one for batch in batches for one in batch] == sorted(sizes, key=lambda one: -sizes[one])
    assert all(sum(sizes[one] for one in batch) >= 100 for batch in batches[:-1])
