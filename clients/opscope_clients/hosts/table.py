"""The hosts: where each keeps its servers, in which format, and what an entry looks like.

Formats and places were looked up in November 2026; the source stands beside each. Codex 0.169.0, opencode 1.18.34 and Claude
Code 2.1.197 were asked (`mcp list`) and had what is written here, in both scopes. `Where` is what a place depends on, so that
every platform's can be worked out anywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from opscope_schemas.errors import InputError

from opscope_clients.hosts import edits
from opscope_clients.hosts.edits import MISSING, Format
from opscope_clients.hosts.jsonc import Json
from opscope_clients.hosts.toml import Toml

Scope = Literal["project", "user"]
JSON, JSONC, TOML = Json(plain=True), Json(plain=False), Toml()


@dataclass(frozen=True)
class Where:
    """What decides where config files lie: the platform, the environment, the home folder and the project's."""

    platform: str = field(default_factory=lambda: sys.platform)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    home: Path = field(default_factory=Path.home)
    project: Path = field(default_factory=Path.cwd)

    def set(self, variable: str, default: Path) -> Path:
        """The folder that an environment variable names, or the default."""
        named = self.environment.get(variable)
        return Path(named).expanduser() if named else default

    def application(self) -> Path:
        """Where desktop programs keep their settings on this platform."""
        if self.platform == "win32":
            return self.set("APPDATA", self.home / "AppData/Roaming")
        return self.home / "Library/Application Support" if self.platform == "darwin" else self.xdg()

    def xdg(self) -> Path:
        """The XDG config folder, which some programs use on every platform."""
        return self.set("XDG_CONFIG_HOME", self.home / ".config")


@dataclass(frozen=True)
class Host:
    """A program that starts MCP servers. `files`: for each scope that it has, where its config may lie, the likeliest last."""

    key: str
    title: str
    format: Format
    container: edits.Path
    entry: Callable[[Sequence[str]], dict[str, Any]]
    command: Callable[[Mapping[str, Any]], list[str]]
    files: Mapping[Scope, Callable[[Where], list[Path]]]
    #: what the user does next, for each scope
    then: Mapping[Scope, str]

    def file(self, scope: Scope, where: Where) -> Path:
        """The config file of `scope`: the one that is there, or the one to make; raises `InputError`."""
        if scope not in self.files:
            other = next(iter(self.files))
            raise InputError(
                f"{self.title} has no {scope} configuration.",
                next_step=f"Leave --{scope} out, or give --{other}.",
            )
        candidates = self.files[scope](where)
        return next((path for path in candidates if path.exists() or path.is_symlink()), candidates[-1])

    def path(self, text: str, name: str) -> edits.Path:
        """Where the server `name` stands in a config text, or would stand."""
        if self.key == "opencode" and _second(self.format.get(text, (*self.container, "servers"))):
            return (*self.container, "servers", name)
        return (*self.container, name)


def _second(servers: Any) -> bool:
    """Whether `mcp.servers` is opencode 2's table of servers rather than a server of version 1 with that name.

    https://opencode.ai/v2/docs/mcp-servers (read 2026-11-22): version 2 nests servers and still reads version 1's form.
    """
    return servers is not MISSING and isinstance(servers, Mapping) and not {"type", "enabled"} & servers.keys()


def _plain(command: Sequence[str]) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:])}


def _typed(command: Sequence[str]) -> dict[str, Any]:
    return {"type": "stdio", **_plain(command)}


def _split(entry: Mapping[str, Any]) -> list[str]:
    """Command and arguments of an entry in the usual form; whatever else a user may have written is no command."""
    command, arguments = entry.get("command"), entry.get("args") or []
    given = [command, *(arguments if isinstance(arguments, list) else [])]
    return [part for part in given if isinstance(part, str)]


def _whole(entry: Mapping[str, Any]) -> list[str]:
    command = entry.get("command")
    return [part for part in command if isinstance(part, str)] if isinstance(command, list) else []


def _always(command: Sequence[str]) -> dict[str, Any]:
    # without alwaysLoad the server is still pending in the first turn, its tools missing (seen with version 2.1.329)
    return {**_typed(command), "alwaysLoad": True}


def _required(command: Sequence[str]) -> dict[str, Any]:
    # `required`: otherwise the first turn does not wait for it (seen with 0.169.0). Codex gives a server 10 seconds by
    # default, which a cold disk may need (https://github.com/openai/codex/issues/11851)
    return {**_plain(command), "required": True, "startup_timeout_sec": 60}


HOSTS: Mapping[str, Host] = {
    host.key: host
    for host in (
        # plain JSON: a comment makes Claude Code drop the file ("not a valid JSON"). https://code.claude.com/docs/en/mcp: .mcp.json at the project's root; ~/.claude.json, or below CLAUDE_CONFIG_DIR
        Host(
            "claude-code", "Claude Code", JSON, ("mcpServers",), _always, _split,
            {
                "user": lambda at: [at.set("CLAUDE_CONFIG_DIR", at.home) / ".claude.json"],
                "project": lambda at: [at.project / ".mcp.json"],
            },
            {
                "user": "Sessions that start from now on have it.",
                "project": "Claude Code asks once whether this project's servers may run.",
            },
        ),
        # https://modelcontextprotocol.io/quickstart/user: macOS and Windows; on Linux it keeps to ~/.config
        # (https://github.com/aaddrick/claude-desktop-debian/issues/400)
        Host(
            "claude-desktop", "Claude Desktop", JSON, ("mcpServers",), _plain, _split,
            {"user": lambda at: [at.application() / "Claude/claude_desktop_config.json"]},
            {"user": "Quit Claude Desktop and start it again."},
        ),
        # https://code.visualstudio.com/docs/agents/reference/mcp-configuration; the default profile's folder
        Host(
            "vscode", "VS Code", JSONC, ("servers",), _typed, _split,
            {
                "user": lambda at: [at.application() / "Code/User/mcp.json"],
                "project": lambda at: [at.project / ".vscode/mcp.json"],
            },
            dict.fromkeys(("user", "project"), "VS Code asks once whether it may start the server."),
        ),
        # https://docs.cursor.com/context/model-context-protocol
        Host(
            "cursor", "Cursor", JSONC, ("mcpServers",), _typed, _split,
            {
                "user": lambda at: [at.home / ".cursor/mcp.json"],
                "project": lambda at: [at.project / ".cursor/mcp.json"],
            },
            dict.fromkeys(("user", "project"), "Cursor lists it in its settings, under MCP."),
        ),
        # https://zed.dev/docs/ai/mcp, https://zed.dev/docs/configuring-zed; the form of docs/src/ai/mcp.md at zed-industries/zed
        Host(
            "zed", "Zed", JSONC, ("context_servers",), lambda command: {"source": "custom", **_plain(command), "env": {}}, _split,
            {
                "user": lambda at: [
                    (at.application() / "Zed" if at.platform == "win32" else
                     at.home / ".config/zed" if at.platform == "darwin" else at.xdg() / "zed") / "settings.json"
                ],
                "project": lambda at: [at.project / ".zed/settings.json"],
            },
            {"user": "Zed starts it at once.", "project": "Zed starts it once the project is trusted."},
        ),
        # https://developers.openai.com/codex/mcp; the project's file: Codex 0.154 and newer, in trusted projects
        # (https://docs.rs/tuff-adapter-codex/0.13.0, checked there 2026-09-16)
        Host(
            "codex", "Codex", TOML, ("mcp_servers",), _required, _split,
            {
                "user": lambda at: [at.set("CODEX_HOME", at.home / ".codex") / "config.toml"],
                "project": lambda at: [at.project / ".codex/config.toml"],
            },
            {
                "user": "Sessions that start from now on have it.",
                "project": "Codex reads this file only in a project that it trusts.",
            },
        ),
        # https://opencode.ai/docs/config/: both endings are read and merged; XDG on every platform
        Host(
            "opencode", "opencode", JSONC, ("mcp",),
            lambda command: {"type": "local", "command": list(command), "enabled": True}, _whole,
            {
                "user": lambda at: [at.xdg() / f"opencode/opencode.{ending}" for ending in ("jsonc", "json")],
                "project": lambda at: [at.project / f"opencode.{ending}" for ending in ("jsonc", "json")],
            },
            dict.fromkeys(("user", "project"), "Sessions that start from now on have it."),
        ),
    )
}  # fmt: skip
