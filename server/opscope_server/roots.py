"""The client's roots as repositories: the folders that a user has open in the host can be asked about by name.

Taken over stdio only, where client and server are one user's, and only to be read: tracing a root's code needs `--trust`
and a repository that was named on the command line. Clients of the 2026-07-28 era have no roots; they pass `--repo`.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import anyio
from mcp import MCPError
from mcp.server.mcpserver import Context
from mcp.types import ClientCapabilities, ListRootsRequest, ListRootsResult, Root, RootsCapability
from opscope_schemas.errors import OpscopeError
from opscope_tools.running.workspace import DEFAULT_PACKAGES, Workspace, folder_repository

#: seconds that a client gets to answer, and after which it is asked again whether its roots changed
_PATIENCE, _AGE = 5.0, 60.0


class Roots:
    """What the client last said."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._given = dict(workspace.repositories)
        self._asked = -_AGE

    async def take(self, context: Context[Any, Any]) -> None:
        """Ask the client for its roots, where it has some to tell, and register them; whatever fails changes nothing."""
        if time.monotonic() - self._asked < _AGE:
            return
        self._asked = time.monotonic()
        session = context.session
        if not session.check_client_capability(ClientCapabilities(roots=RootsCapability())):
            return
        try:
            with anyio.fail_after(_PATIENCE):
                answer = await session.send_request(ListRootsRequest(), ListRootsResult)
        except (MCPError, TimeoutError):
            return
        self.register(answer.roots)

    def register(self, roots: list[Root]) -> None:
        """The workspace's own repositories and these roots, one repository for each folder."""
        found = dict(self._given)
        for root in roots:
            folder = folder_of(str(root.uri))
            if folder is None or any(folder == known.root for known in found.values()):
                continue
            name = _name(root.name or folder.name, {*found, *DEFAULT_PACKAGES})
            try:
                found[name] = folder_repository(name, folder)
            except OpscopeError:
                continue
        if found != self._workspace.repositories:
            self._workspace.repositories = found


def folder_of(uri: str) -> Path | None:
    """The folder that a root names; None where it is none, or so wide that it is no repository: `/`, the home folder."""
    parsed = urlparse(uri)
    if parsed.scheme != "file" or parsed.netloc not in {"", "localhost"}:
        return None
    try:
        folder = Path(unquote(parsed.path)).resolve()
        home = Path.home().resolve()
        return folder if folder.is_dir() and not home.is_relative_to(folder) else None
    except (OSError, RuntimeError, ValueError):
        return None


def _name(wanted: str, taken: set[str]) -> str:
    """A repository name of letters, digits, `.`, `_` and `-` that is not taken yet."""
    stem = re.sub(r"[^\w.-]+", "-", wanted).strip("-") or "root"
    number = 1
    while (name := stem if number == 1 else f"{stem}-{number}") in taken:
        number += 1
    return name
