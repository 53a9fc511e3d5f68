"""Reads every file of a repository once: in this process where there is little, in worker processes where there is much.

Workers (reading.py) are processes, because parsing holds the interpreter's lock; they take batches of paths and give back facts.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import IO, Any

from opscope_cache.trees import SUFFIXES, Signature, size_of

from opscope_tools.survey.facts import FileFacts
from opscope_tools.survey.plain_file import OTHER
from opscope_tools.survey.reading import END, Reader, read_frame, write_frame

#: endings of the files that are read
SOURCES = (
    *SUFFIXES, ".md", ".rst", ".txt", ".yml", ".yaml", ".cfg", ".ini", ".sh", ".mk", "Makefile", "makefile", "GNUmakefile",
    "justfile", "Dockerfile", ".dockerfile", ".Dockerfile", ".rocm", ".cpu", ".xpu", ".cuda", ".gpu", ".dev", ".tpu", ".npu",
    *OTHER,
)  # fmt: skip
#: bytes below which starting processes takes longer than reading
_LITTLE = 3_000_000
_BATCH = 500_000
#: a larger file is data
_LARGEST = 8_000_000

Progress = Callable[[float, float | None, str], None]


def gather(
    root: Path,
    files: Mapping[str, Signature],
    names: Mapping[str, str],
    scripts: Collection[str],
    *,
    checkpoint: Callable[[], None],
    progress: Progress,
) -> list[FileFacts]:
    """The facts of `files`, in path order; `names` gives the module name of each Python file."""
    wanted = [file for file in files if size_of(files[file]) <= _LARGEST and not _is_data(file)]
    total = sum(size_of(files[file]) for file in wanted)
    if total < _LITTLE:
        reader = Reader(root, scripts)
        found = []
        for done, file in enumerate(wanted):
            checkpoint()
            found += reader.read([(file, names.get(file, ""))])
            if done % 50 == 0:
                progress(done, len(wanted), f"{done} of {len(wanted)} files read")
    else:
        found = _in_processes(root, [(f, names.get(f, "")) for f in wanted], files, scripts, checkpoint, progress)
    return sorted(found, key=lambda facts: facts.path)


def _is_data(file: str) -> bool:
    """Text that holds neither commands nor keys: prose outside guides, and notes."""
    return file.endswith((".ini", ".toml", ".pyi", ".jinja", ".jinja2"))


def _in_processes(
    root: Path,
    files: list[tuple[str, str]],
    signatures: Mapping[str, Signature],
    scripts: Collection[str],
    checkpoint: Callable[[], None],
    progress: Progress,
) -> list[FileFacts]:
    batches: list[list[tuple[str, str]]] = []
    size = _BATCH
    for file, name in sorted(files, key=lambda entry: -size_of(signatures[entry[0]])):
        if size >= _BATCH:
            batches.append([])
            size = 0
        batches[-1].append((file, name))
        size += size_of(signatures[file]) + 2_000
    found: list[FileFacts] = []
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = [_Worker(root, scripts) for _ in range(max(1, min(8, cores, len(batches))))]
    selector = selectors.DefaultSelector()
    try:
        for worker in workers:
            selector.register(worker.output, selectors.EVENT_READ, worker)
            for _ in range(2):  # one to read, one to find waiting
                worker.give(batches)
        while selector.get_map():
            checkpoint()
            for key, _ in selector.select(timeout=0.2):
                answer = key.data.take()
                if answer is None:
                    selector.unregister(key.data.output)
                    continue
                key.data.give(batches)
                found += answer
                progress(len(found), len(files), f"{len(found)} of {len(files)} files read")
        return found
    finally:
        selector.close()
        for worker in workers:
            worker.end()


class _Worker:
    """A process that reads batches of files."""

    def __init__(self, root: Path, scripts: Collection[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "opscope_tools.survey.reading", str(root)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[bytes] = self._process.stdin
        self.output: IO[bytes] = self._process.stdout
        write_frame(self._input, sorted(scripts))

    def give(self, batches: list[list[tuple[str, str]]]) -> None:
        """One batch more, or the word that there are none."""
        try:
            write_frame(self._input, batches.pop(0) if batches else None)
        except BrokenPipeError:  # it has been told that there are none, and is gone
            return

    def take(self) -> Any:
        """The facts of a batch; None where the worker has read all. Raises `RuntimeError` where it died."""
        answer = read_frame(self.output)
        if answer is END and self._process.wait() != 0:
            raise RuntimeError(f"A process that reads files ended with status {self._process.returncode}.")
        return None if answer is END else answer

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._input.close()
        self.output.close()
