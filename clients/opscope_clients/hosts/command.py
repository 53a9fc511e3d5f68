"""The command that a host is to start: this installation's `opscope serve`, with the session's options, all paths absolute.

A host starts it in a folder and an environment of its own choice, so nothing of it may depend on either.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from opscope_schemas.errors import UnknownNameError
from opscope_tools.catalog import names_of
from opscope_tools.running.session import interpreter, parse_repository
from opscope_tools.running.workspace import DEFAULT_PACKAGES, folder_repository

from opscope_clients.session_options import SessionOptions

#: parts of the folders in which uvx and `pipx run` build an environment that they throw away
_PASSING = ("archive-v0", "environments-v2", "builds-v0")


def launch(session: SessionOptions, tools: Sequence[str] = ()) -> list[str]:
    """The command and its arguments; `tools` are the values of --toolset. Raises `InputError` where an option cannot be taken."""
    names_of([name.strip() for text in tools for name in text.split(",") if name.strip()])
    chosen = [part for text in tools for part in ("--toolset", text)]
    return [*executable(), "serve", *absolute(session).server_arguments(), *chosen]


def executable() -> list[str]:
    """The console script beside the running interpreter, or the interpreter with the module."""
    python = Path(sys.executable).absolute()  # not resolved: a virtual environment's is a symlink
    script = python.with_name("opscope.exe" if sys.platform == "win32" else "opscope")
    # -P: the project in which a host starts it may have a folder of that name
    return [str(script)] if script.is_file() else [str(python), "-P", "-m", "opscope_clients"]


def absolute(session: SessionOptions) -> SessionOptions:
    """The session with every path absolute, its repositories and interpreter looked up; raises `InputError`."""
    repositories = []
    names = set(DEFAULT_PACKAGES)
    for text in session.repo:
        name, path = parse_repository(text)
        folder_repository(name, path)
        names.add(name)
        repositories.append(f"{name}={_absolute(str(path))}")
    for name in session.trust:
        if name not in names:
            raise UnknownNameError(
                "repository", name, sorted(names), next_step="Give its --repo NAME=PATH in the same command."
            )
    return replace(
        session,
        repo=tuple(repositories),
        python=interpreter(session.python),
        cache_dir=_absolute(session.cache_dir),
        output=_absolute(session.output),
        config_dir=tuple(filter(None, map(_absolute, session.config_dir))),
        device_file=tuple(filter(None, map(_absolute, session.device_file))),
    )


def _absolute(path: str | None) -> str | None:
    return str(Path(path).expanduser().absolute()) if path else None


def warnings(command: list[str], session: SessionOptions, *, host: str) -> list[str]:
    """What may go wrong with the command later, each with what to do."""
    found = []
    if passing(Path(command[0])):
        found.append(
            f"{command[0]} lies in a passing environment that uv or pipx may clear away: install opscope for good "
            "(uv tool install, pipx install or a virtual environment) and install into the host again."
        )
    given = {"OPSCOPE_REPO": session.repo, "OPSCOPE_TRUST": session.trust, "OPSCOPE_PYTHON": session.python,
             "OPSCOPE_CACHE_DIR": session.cache_dir, "OPSCOPE_OUTPUT": session.output}  # fmt: skip
    found += [
        f"{name} is set here, but a host may start the server without it: give --{name[8:].lower().replace('_', '-')} to keep it."
        for name, value in given.items()
        if os.environ.get(name) and not value
    ]
    if host == "claude-desktop" and not session.output:
        found.append(
            "Claude Desktop starts servers in no particular folder: give --output DIR to say where reports go."
        )
    return found


def passing(executable: Path) -> bool:
    """Whether an executable lies in an environment that uvx or `pipx run` made for one run."""
    cache = os.environ.get("UV_CACHE_DIR")
    if cache and executable.is_relative_to(Path(cache).expanduser().absolute()):
        return True
    parts = executable.parts
    uv = any(part in _PASSING for part in parts) and "uv" in parts
    pipx = any(
        (a == "pipx" and b in {".cache", "venvs-cache"}) or (a, b) == (".cache", "pipx") for a, b in pairwise(parts)
    )
    return uv or pipx
