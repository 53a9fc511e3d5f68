"""The protocol over stdin and stdout, line by line.

The SDK's own transport drops lines that it cannot read, shares its threads with whatever else blocks, keeps a line of any
length in memory, and ends with the first answer that cannot be written. This one looks at each message first
(messages.py), reads in a thread of its own, and answers in place of an answer that cannot be written.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, INVALID_REQUEST, JSONRPCError, JSONRPCRequest, JSONRPCResponse
from mcp.types import jsonrpc_message_adapter as adapter
from pydantic import ValidationError

from opscope_server.messages import MOST_BYTES, Answer, Refused, read, too_long
from opscope_server.scan import Scan

logger = logging.getLogger(__name__)
_PIECE = 1 << 16
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio_streams() -> AsyncIterator[Streams]:
    """What the SDK serves over. While inside, stdin is empty to everybody else, and what is printed goes to stderr."""
    with _claimed(0, os.O_RDONLY) as source, _claimed(1, os.O_WRONLY) as sink:
        incoming, inside = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outside, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        line = _Line(source, sink)
        async with anyio.create_task_group() as group:
            group.start_soon(line.receive, incoming)
            group.start_soon(line.send, outgoing)
            yield inside, outside


@contextlib.contextmanager
def _claimed(number: int, flags: int) -> Iterator[BinaryIO]:
    """The stream behind descriptor 0 or 1, which children and careless libraries then no longer reach."""
    own = os.dup(number)
    away = os.dup(2) if flags == os.O_WRONLY else os.open(os.devnull, flags)
    os.dup2(away, number)
    os.close(away)
    # never closed: a thread may still block on it when the server ends
    stream = os.fdopen(own, "wb" if flags == os.O_WRONLY else "rb", closefd=False)
    try:
        yield stream
    finally:
        os.dup2(own, number)


@dataclass(eq=False)
class _Line:
    """Both directions of one client."""

    source: BinaryIO
    sink: BinaryIO

    def __post_init__(self) -> None:
        #: reading blocks one thread for good; the other writes
        self._threads = anyio.CapacityLimiter(2)
        self._writing = anyio.Lock()
        self._under_way: set[str | int] = set()

    async def receive(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass on what can be passed on, and answer the rest."""
        async with incoming:
            while True:
                try:
                    raw = await anyio.to_thread.run_sync(self._next, limiter=self._threads, abandon_on_cancel=True)
                    if raw is None:
                        return
                    message = self._admitted(read(raw)) if raw.strip() else None
                except Refused as refused:
                    for answer in refused.answers:
                        await self._write(answer.text())
                    continue
                if message is not None:
                    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                        await incoming.send(message)

    def _next(self) -> bytes | None:
        """The next line, None at the end. Raises `Refused` for one that is too long, without having kept it."""
        raw = self.source.readline(MOST_BYTES + 1)
        if len(raw) <= MOST_BYTES:
            return raw or None
        scan = Scan.of(raw)
        while not raw.endswith(b"\n"):
            raw = self.source.readline(_PIECE)
            if not raw:
                break
            scan.feed(raw)
        raise too_long(scan)

    def _admitted(self, message: dict[str, object]) -> SessionMessage:
        """The message as the SDK takes it; its id is under way from now on."""
        try:
            typed = adapter.validate_python(message, by_name=False)
        except ValidationError:
            raise Refused(
                *([Answer(message["id"], INVALID_REQUEST, "The message is no request.")] if "method" in message else [])  # type: ignore[arg-type] # an id that passed the envelope's check
            ) from None
        if isinstance(typed, JSONRPCRequest):
            if typed.id in self._under_way:
                sentence = "A request with this id is under way; give each request an id of its own."
                raise Refused(Answer(typed.id, INVALID_REQUEST, sentence))
            self._under_way.add(typed.id)
        elif message.get("method") == "notifications/cancelled":
            params = message.get("params")
            cancelled = params.get("requestId") if isinstance(params, dict) else None
            if isinstance(cancelled, str | int):
                self._under_way.discard(cancelled)  # it is never answered
        return SessionMessage(typed)

    async def send(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write what the SDK answers."""
        async with outgoing:
            async for message in outgoing:
                await self._write(self._text(message))

    def _text(self, message: SessionMessage) -> str:
        typed = message.message
        answered = typed.id if isinstance(typed, JSONRPCResponse | JSONRPCError) else None
        if answered is not None:
            self._under_way.discard(answered)
        try:
            return typed.model_dump_json(by_alias=True, exclude_unset=True)
        except ValueError:  # a text that UTF-8 cannot hold
            logger.exception("an answer could not be written")
            if answered is None:
                return ""
            return Answer(answered, INTERNAL_ERROR, "The answer holds text that cannot be sent.").text()

    async def _write(self, text: str) -> None:
        if text:
            async with self._writing:
                await anyio.to_thread.run_sync(self._put, text.encode() + b"\n", limiter=self._threads)

    def _put(self, raw: bytes) -> None:
        self.sink.write(raw)
        self.sink.flush()
