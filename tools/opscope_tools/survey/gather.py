"""Reads every file of a repository once: in this process where there is little, in worker processes where there is much.

Workers (reading.py) take batches of paths and give back facts.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from opscope_cache.trees import SUFFIXES, Signature, size_of
from opscope_schemas.errors import CancelledError

from opscope_tools.children import python_module
from opscope_tools.source.workers import batches_of, cores, read_batches
from opscope_tools.survey.begun import Begun
from opscope_tools.survey.facts import FileFacts
from opscope_tools.survey.plain_file import OTHER
from opscope_tools.survey.reading import Reader

#: endings of the files that are read
SOURCES = (
    *SUFFIXES, ".md", ".rst", ".txt", ".yml", ".yaml", ".cfg", ".ini", ".sh", ".mk", "Makefile", "makefile", "GNUmakefile",
    "justfile", "Dockerfile", ".dockerfile", ".Dockerfile", ".rocm", ".cpu", ".xpu", ".cuda", ".gpu", ".dev", ".tpu", ".npu",
    *OTHER,
)  # fmt: skip
#: bytes below which starting processes takes longer than reading
_LITTLE = 3_000_000
_BATCH = 500_000
#: bytes that could be read in the time that it takes to open a file
_OPENING = 2_000
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
    begun: Begun | None = None,
) -> list[FileFacts]:
    """The facts of `files`, in path order; `names` gives the module name of each Python file. What is read when
    `checkpoint` raises is kept in `begun`, for the next scan to go on from."""
    found = begun.known(files, names) if begun else []
    held = {facts.path for facts in found}
    wanted = [file for file in files if size_of(files[file]) <= _LARGEST and not _is_data(file) and file not in held]
    total = sum(size_of(files[file]) for file in wanted)
    try:
        if total < _LITTLE:
            reader = Reader(root, scripts)
            for done, file in enumerate(wanted):
                checkpoint()
                found += reader.read([(file, names.get(file, ""))])
                if done % 50 == 0:
                    progress(done, len(wanted), f"{done} of {len(wanted)} files read")
        else:
            todo = [(file, names.get(file, "")) for file in wanted]
            for facts in _in_processes(root, todo, files, scripts, checkpoint):
                found += facts
                progress(len(found), len(held) + len(todo), f"{len(found)} of {len(held) + len(todo)} files read")
    except CancelledError:
        if begun:
            begun.keep(found, files, names)
        raise
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
) -> Iterator[list[FileFacts]]:
    """The facts of each batch as it has been read."""
    sizes = {(file, name): size_of(signatures[file]) + _OPENING for file, name in files}
    command = python_module("opscope_tools.survey.reading", str(root), json.dumps(sorted(scripts)))
    batches = batches_of(sizes, _BATCH)
    with closing(read_batches(command, batches, pickle, workers=cores(), checkpoint=checkpoint)) as answers:
        for last, answer in answers:
            if not last:
                yield answer
