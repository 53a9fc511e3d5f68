"""Opens the `Workspace` that a user's options and environment describe; the server and the command line share it.

What is given wins over the environment: OPSCOPE_REPO, OPSCOPE_TRUST, OPSCOPE_CONFIG_DIRS and OPSCOPE_DEVICE_FILES (several, separated
as in PATH), OPSCOPE_PYTHON, OPSCOPE_OUTPUT, OPSCOPE_TRACE_TIMEOUT (seconds), OPSCOPE_TRACE_MEMORY (MiB), OPSCOPE_TRACE_PROCESSES,
OPSCOPE_TRACE_FILES, OPSCOPE_MERMAID (a node_modules folder); OPSCOPE_CACHE_DIR is read where the store is opened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from opscope_schemas.errors import InputError, UnknownNameError

from opscope_tools.children import Limits
from opscope_tools.running.workspace import Workspace


def open_workspace(
    *,
    repositories: Sequence[str] = (),
    trust: Sequence[str] = (),
    python: str | None = None,
    cache_folder: str | None = None,
    output: str | None = None,
    config_dirs: Sequence[str] = (),
    device_files: Sequence[str] = (),
) -> Workspace:
    """The workspace of `--repo NAME=PATH ... --trust NAME ... --python --cache-dir --output --config-dir DIR ... --device-file FILE ...`.

    Raises `InputError` where an option cannot be taken.
    """
    named = [*listed("OPSCOPE_REPO"), *repositories]
    trusted = [*listed("OPSCOPE_TRUST"), *trust]
    output = output or os.environ.get("OPSCOPE_OUTPUT")
    workspace = Workspace.create(
        repositories=[parse_repository(text) for text in named],
        output=Path(output).expanduser() if output else None,
        cache_folder=Path(cache_folder).expanduser() if cache_folder else None,
        python=interpreter(python or os.environ.get("OPSCOPE_PYTHON")),
        trusted=trusted,
    )
    workspace.trace_timeout = _seconds("OPSCOPE_TRACE_TIMEOUT", workspace.trace_timeout)
    workspace.trace_limits = _limits(workspace.trace_limits)
    workspace.config_places = tuple(map(_place, [*listed("OPSCOPE_CONFIG_DIRS"), *config_dirs]))
    workspace.device_files = tuple(map(_table, [*listed("OPSCOPE_DEVICE_FILES"), *device_files]))
    workspace.mermaid = _modules("OPSCOPE_MERMAID")
    for name in trusted:
        if name not in workspace.repositories:
            raise UnknownNameError(
                "repository", name, sorted(workspace.repositories), next_step="Register it with --repo NAME=PATH."
            )
    return workspace


def _modules(variable: str) -> Path | None:
    """The node_modules folder that the environment names, itself or as the folder around it; raises `InputError`."""
    text = os.environ.get(variable)
    if not text:
        return None
    folder = Path(text).expanduser().resolve()
    folder = folder if folder.name == "node_modules" else folder / "node_modules"
    if not (folder / "mermaid/package.json").is_file():
        raise InputError(
            f"{variable} is {text!r}, which holds no npm package mermaid.",
            next_step="Name the node_modules folder in which `npm install mermaid` has put it.",
        )
    return folder


def _limits(default: Limits) -> Limits:
    """The limits of the process that traces, from the environment; raises `InputError`."""
    return replace(
        default,
        data_bytes=_number("OPSCOPE_TRACE_MEMORY", default.data_bytes >> 20) << 20,
        processes=_number("OPSCOPE_TRACE_PROCESSES", default.processes),
        open_files=_number("OPSCOPE_TRACE_FILES", default.open_files),
    )


def _number(variable: str, default: int) -> int:
    """A whole number from the environment; raises `InputError`."""
    text = os.environ.get(variable)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError(f"{variable} is {text[:40]!r}.", next_step="Give a whole number.")
    return int(text)


def _place(text: str) -> Path:
    """A folder, or a single file, that configurations may be read from; raises `InputError` where nothing is there."""
    path = Path(text).expanduser()
    if not path.exists():
        raise InputError(f"--config-dir {text!r} does not exist.", next_step="Name a folder that holds configurations.")
    return path.resolve()


def _table(text: str) -> Path:
    """A table of devices; raises `InputError` where no file is there."""
    path = Path(text).expanduser()
    if not path.is_file():
        raise InputError(f"--device-file {text!r} is not a file.", next_step="Name a JSON file of devices.")
    return path.resolve()


def _seconds(variable: str, default: float) -> float:
    """A positive number of seconds from the environment; raises `InputError`."""
    text = os.environ.get(variable)
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"{variable} is {text!r}.", next_step="Give a positive number of seconds.")
    return seconds


def parse_repository(text: str) -> tuple[str, Path]:
    """Name and path of `NAME=PATH`; raises `InputError`."""
    name, equals, path = text.partition("=")
    if not equals or not name.strip() or not path.strip():
        raise InputError(
            f"--repo {text!r} is not of the form NAME=PATH.", next_step="Example: --repo liger=./liger-kernel."
        )
    return name.strip(), Path(path.strip())


def interpreter(python: str | None) -> str | None:
    """The interpreter as an absolute path that is not resolved: a virtual environment's is a symlink.

    Raises `InputError` where it is none.
    """
    if not python:
        return None
    found = shutil.which(Path(python).expanduser())
    if found is None:
        raise InputError(
            f"--python {python!r} is not an executable file.",
            next_step="Name a Python interpreter, e.g. .venv/bin/python.",
        )
    return str(Path(found).absolute())


def listed(variable: str) -> list[str]:
    """The parts of an environment variable that is separated as PATH is."""
    return [part for part in os.environ.get(variable, "").split(os.pathsep) if part]
