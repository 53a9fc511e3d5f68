"""Batches of files read by worker processes: what the engines that read whole repositories (index, survey) share.

Processes, because parsing holds the interpreter's lock. A worker gets batches on standard input and answers each on standard
output, frame by frame: four bytes of length, then the value as `codec` writes it. It imports no engine; engines import it.
"""

from __future__ import annotations

import gc
import os
import selectors
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import IO, Any, Protocol, TypeVar

from opscope_schemas.errors import WorkerError

from opscope_tools.children import start

T = TypeVar("T")
Batch = TypeVar("Batch")


class Codec(Protocol):
    """Writes values as bytes and back: `marshal` for plain types, `pickle` for classes of ours."""

    def dumps(self, value: Any, /) -> bytes: ...
    def loads(self, data: bytes, /) -> Any: ...


def cores() -> int:
    """How many workers this machine has room for."""
    return max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))


def batches_of(sizes: Mapping[T, int], batch: int) -> list[list[T]]:
    """The keys of `sizes` in batches of at least `batch` bytes, those with the largest files first."""
    batches: list[list[T]] = []
    held = batch
    for one in sorted(sizes, key=lambda one: -sizes[one]):
        if held >= batch:
            batches.append([])
            held = 0
        batches[-1].append(one)
        held += sizes[one]
    return batches


def read_batches(
    command: Sequence[str], batches: Sequence[object], codec: Codec, *, workers: int, checkpoint: Callable[[], None]
) -> Generator[tuple[bool, Any], None, None]:
    """(False, answer) for every batch as it comes, and (True, last word) of every worker.

    `command` runs `serve`. `checkpoint` is called several times a second, and may raise.
    Raises `WorkerError` where a worker died. Close the iterator to end the workers early.
    """
    waiting = iter(batches)
    started = [_Worker(command, codec) for _ in range(min(workers, len(batches)))]
    selector = selectors.DefaultSelector()
    try:
        for worker in started:
            selector.register(worker.output, selectors.EVENT_READ, worker)
            for _ in range(2):  # one to read, one to find waiting
                worker.give(next(waiting, None))
        while selector.get_map():
            checkpoint()
            for key, _ in selector.select(timeout=0.2):
                last, answer = key.data.take()
                if last:
                    selector.unregister(key.fileobj)
                else:
                    key.data.give(next(waiting, None))
                yield last, answer
    finally:
        selector.close()
        for worker in started:
            worker.end()


def serve(read: Callable[[Batch], object], last_word: Callable[[], object], codec: Codec) -> None:
    """What a worker does: answers batches until there are none, then says its last word."""
    gc.disable()  # trees and rows form no cycles, and the process ends with its work
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while (batch := _read_frame(source, codec)) is not None:
        _write_frame(sink, (False, read(batch)), codec)
    _write_frame(sink, (True, last_word()), codec)


class _Worker:
    """A process that reads batches of files."""

    def __init__(self, command: Sequence[str], codec: Codec) -> None:
        self._codec = codec
        self._process = start(command, kept=False, stderr=None)
        self._input = self._process.stdin
        self.output = self._process.stdout

    def give(self, batch: object) -> None:
        """One batch more; None says that there are none."""
        _write_frame(self._input, batch, self._codec)

    def take(self) -> tuple[bool, Any]:
        """What the worker says next, and whether it is its last word; raises `WorkerError` where it died."""
        answer = _read_frame(self.output, self._codec)
        if answer is None:
            raise WorkerError(
                f"A process that reads files ended with status {self._process.wait()}.",
                next_step="Run it again: what was read is kept.",
            )
        last, said = answer
        return last, said

    def end(self) -> None:
        self._process.end()
        self.output.close()


def _write_frame(stream: IO[bytes], value: object, codec: Codec) -> None:
    """Send a value; a reader that is gone is no error here, the next read tells."""
    blob = codec.dumps(value)
    data = memoryview(len(blob).to_bytes(4, "big") + blob)
    try:
        while data:
            data = data[stream.write(data) :]
        stream.flush()
    except BrokenPipeError:
        return


def _read_frame(stream: IO[bytes], codec: Codec) -> Any | None:
    """The next value; None where the other side ended."""
    head = _exactly(stream, 4)
    body = _exactly(stream, int.from_bytes(head, "big")) if head is not None else None
    return None if body is None else codec.loads(body)


def _exactly(stream: IO[bytes], size: int) -> bytes | None:
    parts = []
    while size:
        part = stream.read(size)
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
