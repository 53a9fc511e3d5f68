"""Ways into opscope: the command line over the catalogue of tools, `Session` for scripts, the scripted MCP client, agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opscope_clients.client import AsyncSession, Session
    from opscope_clients.connection import CallError

__all__ = ["AsyncSession", "CallError", "Session"]


def __getattr__(name: str) -> Any:
    """The public names, read when they are first asked for: they need the MCP SDK, and most commands do not."""
    if name in ("AsyncSession", "Session"):
        from opscope_clients import client

        return getattr(client, name)
    if name == "CallError":
        from opscope_clients import connection

        return connection.CallError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
