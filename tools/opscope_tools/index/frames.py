"""Values over a pipe between our own processes: four bytes of length, then marshal."""

from __future__ import annotations

import marshal
from typing import IO, Any


def write_frame(stream: IO[bytes], value: Any) -> None:
    """Send a value of plain types; a reader that is gone is no error here, the next read tells."""
    blob = marshal.dumps(value)
    data = memoryview(len(blob).to_bytes(4, "big") + blob)
    try:
        while data:
            data = data[stream.write(data) :]
        stream.flush()
    except BrokenPipeError:
        return


def read_frame(stream: IO[bytes]) -> Any | None:
    """The next value; None where the other side ended."""
    head = _exactly(stream, 4)
    body = _exactly(stream, int.from_bytes(head, "big")) if head is not None else None
    return None if body is None else marshal.loads(body)


def _exactly(stream: IO[bytes], size: int) -> bytes | None:
    parts = []
    while size:
        part = stream.read(size)
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
