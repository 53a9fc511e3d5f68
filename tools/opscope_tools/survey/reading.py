"""Reads files into facts. `python -m opscope_tools.survey.reading ROOT` is a worker of gather.py: pickled frames on standard
input and output, first the names of the console scripts, then batches of (path, module name).
"""

from __future__ import annotations

import gc
import pickle
import struct
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, Any

from opscope_tools.survey.facts import FileFacts
from opscope_tools.survey.plain_file import CommandReader, read_plain
from opscope_tools.survey.python_file import read_python

#: what `read_frame` gives at the end of a stream
END = object()


class Reader:
    """Reads files below `root`."""

    def __init__(self, root: Path, scripts: Collection[str]) -> None:
        self._root = root
        self._commands = CommandReader(scripts)

    def read(self, files: Sequence[tuple[str, str]]) -> list[FileFacts]:
        """The facts of each file that can be opened."""
        found = []
        for file, name in files:
            try:
                data = (self._root / file).read_bytes()
            except OSError:
                continue
            text = (
                data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").replace("\r\n", "\n").replace("\f", " ")
            )
            found.append(
                read_python(file, text, name) if file.endswith(".py") else read_plain(file, text, self._commands)
            )
        return found


def write_frame(stream: IO[bytes], value: object) -> None:
    """A value with its length before it."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    data = struct.pack("<Q", len(data)) + data
    view = memoryview(data)
    while view:
        view = view[stream.write(view) :]


def read_frame(stream: IO[bytes]) -> Any:
    """The next value; `END` at the end of the stream."""
    head = _exactly(stream, 8)
    return pickle.loads(_exactly(stream, struct.unpack("<Q", head)[0])) if len(head) == 8 else END


def _exactly(stream: IO[bytes], size: int) -> bytes:
    parts = []
    while size and (part := stream.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main() -> None:
    """A worker."""
    gc.disable()  # syntax trees form no cycles, and collecting would take a third of the time
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    reader = Reader(Path(sys.argv[1]), read_frame(source))
    while (files := read_frame(source)) not in (None, END):
        write_frame(sink, reader.read(files))


if __name__ == "__main__":
    main()
