"""Building the index of a whole repository: worker processes (worker.py) read files, this one writes what they found.

Files go out in batches, so that progress is
known and a cancelled build keeps what it has. A lock file beside the index lets one build run at a time; who comes
second finds it held and leaves the work to the first.

`python -m opscope_tools.index.build.build INDEX ROOT [PACKAGE ...]` is the build that a server runs behind its answers: it prints
`done total` lines, and ends when its standard input does.
"""

from __future__ import annotations

import marshal
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from filelock import FileLock, Timeout
from opscope_cache.trees import PYTHON, Signature, size_of, tree_at
from opscope_schemas.errors import CancelledError

from opscope_tools.children import python_module
from opscope_tools.source.storage.database import Database, Entry
from opscope_tools.source.storage.places import prune
from opscope_tools.source.storage.sealed_files import make_folder
from opscope_tools.source.workers import batches_of, cores, read_batches

#: bytes of source in a batch: small enough that progress moves, large enough that workers do not wait
_BATCH = 600_000
#: share of the files that may differ from the words' segment before it is written anew
_STALE_WORDS = 0.1

Progress = Callable[[int, int], None]


def build(
    place: Path,
    root: Path,
    packages: tuple[str, ...] = (),
    *,
    progress: Progress = lambda *_: None,
    cancelled: threading.Event | None = None,
    workers: int | None = None,
) -> bool:
    """Bring the index at `place` up to the files below `root`; `progress` gets files done and in all.

    Returns False where another process is building it, or where `cancelled` was set; what was read by then is kept.
    """
    make_folder(place.parent)
    try:
        with FileLock(f"{place}.lock", timeout=0, mode=0o600):
            return _Build(place, root, packages, progress, cancelled or threading.Event()).run(workers or cores())
    except Timeout:
        return False


class _Build:
    """One build."""

    def __init__(
        self, place: Path, root: Path, packages: tuple[str, ...], progress: Progress, cancelled: threading.Event
    ) -> None:
        self.place = place
        self.database = Database(place)
        self.database.wait_longer()
        self.root = root
        self.progress = progress
        self.cancelled = cancelled
        self.files = tree_at(root, packages, PYTHON).now().ending(*PYTHON)
        known = self.database.signatures()
        self.unread = {file for file, signature in self.files.items() if known.get(file) != signature}
        self.numbers = {file: number for number, file in enumerate(self.files)}
        self.words = self._words_are_stale()

    def _words_are_stale(self) -> bool:
        segment = self.database.segment()
        stale = sum(1 for file, signature in self.files.items() if segment.get(file, (0, b""))[1] != signature)
        return stale > _STALE_WORDS * len(self.files)

    def run(self, workers: int) -> bool:
        gone = [file for file in self.database.signatures() if file not in self.files]
        self.database.forget(gone)
        todo = [*self.files] if self.words else sorted(self.unread)
        batches = self._batches(todo)
        try:
            finished = not batches or self._read(batches, len(todo), min(workers, len(batches)))
        finally:
            self.database.settle()
            self.database.close()
        prune(self.place)
        return finished

    def _batches(self, files: list[str]) -> list[list[tuple[str, int, bool]]]:
        """(file, number, whether its entry is wanted) in batches of like size, those with the largest files first."""
        wanted = {(file, self.numbers[file], file in self.unread): size_of(self.files[file]) for file in files}
        return batches_of(wanted, _BATCH)

    def _read(self, batches: list[list[tuple[str, int, bool]]], total: int, count: int) -> bool:
        """Hand out the batches and keep what comes back; False where cancelled."""
        done = 0
        self.progress(done, total)
        signatures: dict[str, Signature] = {}
        words: dict[bytes, bytes] = {}
        command = python_module("opscope_tools.index.build.worker", str(self.root), "words" if self.words else "")
        try:
            with closing(
                read_batches(command, batches, marshal, workers=count, checkpoint=self._checkpoint)
            ) as answers:
                for last, answer in answers:
                    if last:
                        _merge(words, answer)
                        continue
                    self.database.put([Entry(*entry) for entry in answer["entries"]])
                    signatures.update(answer["signatures"])
                    done += answer["count"]
                    self.progress(done, total)
        except CancelledError:
            return False
        if self.words:
            numbered = {file: (self.numbers[file], signature) for file, signature in signatures.items()}
            self.database.put_words(numbered, words)
        return True

    def _checkpoint(self) -> None:
        if self.cancelled.is_set():
            raise CancelledError("The build was cancelled.")


def _merge(words: dict[bytes, bytes], more: Mapping[bytes, bytes]) -> None:
    for word, numbers in more.items():
        known = words.get(word)
        words[word] = numbers if known is None else known + numbers


def main() -> None:
    """The build as a process of its own."""
    place, root, *packages = sys.argv[1:]
    cancelled = threading.Event()

    def watch_input() -> None:
        sys.stdin.buffer.read()  # ends when whoever started this process is gone
        cancelled.set()

    threading.Thread(target=watch_input, daemon=True).start()
    os.nice(10)  # answers come first

    def tell(done: int, total: int) -> None:
        print(done, total, flush=True)  # noqa: T201 (what it is for)

    built = build(Path(place), Path(root), tuple(packages), progress=tell, cancelled=cancelled)
    # the thread may still hold standard input's lock, which a normal exit would wait for
    sys.stdout.flush()
    os._exit(0 if built else 1)


if __name__ == "__main__":
    main()
