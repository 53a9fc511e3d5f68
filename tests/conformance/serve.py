"""Serves the real server with the conformance fixtures over streamable HTTP: `python serve.py PORT`.

Everything but the fixtures is what `opscope serve --http` runs; the event store is there because the suite resumes
streams, which the product leaves to the newer protocol.
"""

from __future__ import annotations

import sys

from fixtures import add_fixtures
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.types import JSONRPCMessage
from opscope_server.launch import announce
from opscope_server.server import build_server
from opscope_server.settings import Settings
from opscope_server.transports import run_http
from opscope_tools.running.session import open_workspace


class Events(EventStore):
    """Every event of every stream, in memory."""

    def __init__(self) -> None:
        self._events: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep an event; its number is its id."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        """Send again what followed `last_event_id` on its stream."""
        last = int(last_event_id)
        if not 0 < last <= len(self._events):
            return None
        stream = self._events[last - 1][0]
        for number, (of_stream, message) in enumerate(self._events[last:], start=last + 1):
            if of_stream == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


if __name__ == "__main__":
    server = build_server(open_workspace(), Settings(port=int(sys.argv[1])))
    add_fixtures(server)
    run_http(server, event_store=Events(), retry_interval=100, announce=announce)
