"""The whole opscope server on 127.0.0.1:8765; it turns away clients whose User-Agent holds the word that it is given."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

_served = uvicorn.Server.__init__


def _turning_away(self: Any, config: Any) -> None:
    """uvicorn's server with a door-keeper in front of the application."""
    inner, word = config.app, sys.argv[1].encode()

    async def door(scope: Any, receive: Any, send: Any) -> None:
        name = dict(scope.get("headers") or []).get(b"user-agent", b"")
        if scope["type"] == "http" and word and word in name.lower():
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await inner(scope, receive, send)

    config.app = door
    _served(self, config)


if __name__ == "__main__":
    from opscope_server.launch import main

    uvicorn.Server.__init__ = _turning_away  # type: ignore[method-assign]  # the one place to reach the app of a server that a function of ours makes
    main(["--http", "--port", "8765"])
