"""What stands before the SDK on HTTP: time limits for slow senders, a bounded number of connections, and a look at each message.

`connections` is uvicorn's protocol with a clock: uvicorn waits for the head of a request, and for the rest of one that was answered, as long
as the client likes. `Door` is ASGI and stands behind the token: it reads the whole body in a bounded time, answers what
the SDK would not (messages.py), and hands the rest on.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.types import INVALID_REQUEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from opscope_server.messages import MOST_BYTES, Answer, Refused, read, too_long
from opscope_server.scan import Scan

#: bytes of a body that are looked at in the event loop itself; longer ones take a thread
_SHORT = 1 << 16
#: bytes of a body that is too long in which its id is looked for
_LOOKED_AT = 4 * MOST_BYTES
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def connections(most: int, seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol for at most `most` connections, each of which has `seconds` for the head of a request."""

    class Patient(H11Protocol):
        """A connection whose client has to get on while no request of its is being answered."""

        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.write(_FULL)
                transport.close()
            else:
                self._expect()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._answering():
                self._forget()
            else:
                self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _expect(self) -> None:
            if self._late is None:
                self._late = self.loop.call_later(seconds, self._close_if_late)

        def _forget(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _close_if_late(self) -> None:
            self._late = None
            if not self._answering():
                self.transport.abort()

    return Patient


class Door:
    """Lets through what the SDK can answer, and answers the rest."""

    def __init__(self, app: ASGIApp, security: TransportSecuritySettings, body_seconds: float) -> None:
        self._app = app
        self._security = TransportSecurityMiddleware(security)
        self._body_seconds = body_seconds
        #: requests that are being answered: session and id. The SDK would answer the second of two on the first one's stream
        self._under_way: set[tuple[bytes, str | int]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = await self._security.validate_request(Request(scope), is_post=False)
        if refused is not None:
            await refused(scope, receive, send)
            return
        try:
            with anyio.fail_after(self._body_seconds):
                body = await _body(receive)
        except TimeoutError:
            await Response("The request took too long.", 408, {"Connection": "close"})(scope, receive, send)
            return
        except Refused as refusal:
            await _answer(refusal, 413)(scope, receive, send)
            return
        if body is not None:
            await self._pass(body, scope, receive, send)

    async def _pass(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        key: tuple[bytes, str | int] | None = None
        if scope["method"] == "POST":
            try:
                message = await anyio.to_thread.run_sync(read, body) if len(body) > _SHORT else read(body)
                key = self._admitted(message, scope)
            except Refused as refusal:
                await _answer(refusal, 400)(scope, receive, send)
                return
        try:
            await self._app(scope, _again(body, receive), send)
        finally:
            if key is not None:
                self._under_way.discard(key)

    def _admitted(self, message: dict[str, Any], scope: Scope) -> tuple[bytes, str | int] | None:
        """What marks the request as under way in its session. Raises `Refused` where another one bears its id."""
        session = next((value for name, value in scope["headers"] if name == b"mcp-session-id"), None)
        if session is None or "id" not in message or "method" not in message:
            return None
        key = (session, message["id"])
        if key in self._under_way:
            sentence = "A request with this id is under way in this session; give each request an id of its own."
            raise Refused(Answer(message["id"], INVALID_REQUEST, sentence))
        self._under_way.add(key)
        return key


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None where the client has gone. Raises `Refused` for one that is too long."""
    found = bytearray()
    scan: Scan | None = None
    seen = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        piece: bytes = message.get("body", b"")
        if scan is not None:
            scan.feed(piece)
        else:
            found += piece
            if len(found) > MOST_BYTES:
                scan = await anyio.to_thread.run_sync(Scan.of, bytes(found))
                found.clear()
        seen += len(piece)
        if seen > _LOOKED_AT or not message.get("more_body", False):
            break
    if scan is not None:
        raise too_long(scan)
    return bytes(found)


def _again(body: bytes, receive: Receive) -> Receive:
    """`receive` from the beginning."""
    ready: deque[Message] = deque([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> Message:
        return ready.popleft() if ready else await receive()

    return again


def _answer(refusal: Refused, status: int) -> Response:
    """The refusal as HTTP has it: one answer, or a list of them for a batch."""
    documents = [answer.document() for answer in refusal.answers]
    body = json.dumps(documents[0] if len(documents) == 1 else documents) if documents else ""
    return Response(body, status, media_type="application/json")
