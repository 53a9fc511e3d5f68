"""The configurations that callers give: the one place that turns an argument into a file that may be read, and its content.

A path counts only where it leads, symlinks resolved, into a folder that the session allows. The file is opened once, what
was opened is checked, and that much of it is read; nobody opens the path again. What a configuration may hold (given.py)
is checked here too, so that every tool refuses the same.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from opscope_cache import keys
from opscope_schemas.errors import ConfigError, OpscopeError, PathRefusedError

from opscope_tools.running.given import check_given
from opscope_tools.running.workspace import Workspace

Config = str | dict[str, Any] | None
#: bytes that a configuration may have; published ones have a few thousand
LARGEST = 10_000_000
_LONGEST_PATH = 4096


@dataclass(frozen=True)
class ConfigFile:
    """A configuration that was read: where it lies, the digest of its bytes, what it says, and its text."""

    path: Path
    digest: str
    content: dict[str, Any]
    text: str = ""

    def line_of(self, key: str, value: object) -> int:
        """The 1-based line on which the file gives `key` this value, at whatever depth; 0 where it does not."""
        for at in re.finditer(rf"{re.escape(json.dumps(key))}\s*:\s*", self.text):
            try:
                held, _ = json.JSONDecoder().raw_decode(self.text, at.end())
            except ValueError:
                continue
            if held == value:
                return self.text.count("\n", 0, at.start()) + 1
        return 0


def read_config(workspace: Workspace, config: Config) -> dict[str, Any] | None:
    """The configuration as an object; raises `PathRefusedError` for a path that may not be read, `ConfigError` for what
    holds no configuration."""
    if config is None or isinstance(config, dict):
        check_given(config or {})
        return config
    return open_config(workspace, config).content


def is_whole(config: Mapping[str, object]) -> bool:
    """Whether an object is a published configuration and no overrides: it says of which model it is."""
    return isinstance(config.get("model_type"), str) or "architectures" in config


def open_config(workspace: Workspace, text: str) -> ConfigFile:
    """The configuration file that `text` names, itself or as the folder around it; raises as `read_config` does."""
    path, data = _read(workspace, text)
    return ConfigFile(path, keys.digest(data), _parsed(path, data), data.decode("utf-8-sig"))


def described(workspace: Workspace, target: str) -> ConfigFile | None:
    """The configuration where a target is a config.json or a folder that holds one; None where it is a name."""
    if target.endswith(".json") or (target.startswith(("/", "./", "../", "~")) and ".py" not in target):
        return open_config(workspace, target)
    try:
        found = _allowed(workspace, target)
    except PathRefusedError:
        return None
    return open_config(workspace, target) if found.suffix == ".json" and found.is_file() else None


def config_digest(workspace: Workspace, text: str) -> tuple[str, str] | None:
    """Path and digest of the file that `text` names as a configuration; None where it names none that may be read."""
    try:
        path, data = _read(workspace, text)
    except OpscopeError:
        return None
    return str(path), keys.digest(data)


def read_named(workspace: Workspace, text: str, noun: str, largest: int) -> bytes:
    """The bytes of a file that the user named or that lies where configurations may; `noun` is what messages call it. Raises
    `PathRefusedError`, and `ConfigError` for what is not there."""
    return _read(workspace, text, noun, largest)[1]


# ---- which paths ----------------------------------------------------------------------------------------------------


def _folders(workspace: Workspace) -> Iterator[Path]:
    """What a path may lead into: folders and files that the user named; without HTTP also repositories and the output."""
    yield from workspace.config_places
    if workspace.paths_allowed:
        if not _is_wide(workspace.output):
            yield workspace.output
        for repository in workspace.repositories.values():
            yield from [repository.root / package for package in repository.packages] or [repository.root]


def _is_wide(folder: Path) -> bool:
    """Whether a folder holds whole homes: a host that starts a server in `/` or at home has named no place for results."""
    try:
        return Path.home().resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # nobody's home is known
        return True


def _allowed(workspace: Workspace, text: str, noun: str = "config") -> Path:
    """The resolved path that `text` names, with the config.json of a folder; raises `PathRefusedError`.

    A path outside is refused alike, whether something is there or not.
    """
    if not text.strip() or len(text) > _LONGEST_PATH or any(ord(character) < 32 for character in text):
        _refuse(text, "is no path", noun)
    if text.startswith("~"):
        _refuse(text, "starts with a home folder, which is not looked up", noun)
    places = list(_folders(workspace))
    if not places:
        raise PathRefusedError(
            f"This server reads no {noun} file by its path.",
            next_step="Start the server with --config-dir FOLDER, or give the content of a config.json as an object.",
        )
    try:
        path = Path(text).resolve()
        if path.is_dir():
            path = (path / "config.json").resolve()
    except (OSError, ValueError, RuntimeError):  # a name that no file can have
        _refuse(text, "is no path", noun)
    if not _inside(path, places):
        _refuse(text, "lies in no folder that configurations are read from", noun)
    return path


def _inside(path: Path, places: list[Path]) -> bool:
    return any(path.is_relative_to(place.resolve()) for place in places)


def _refuse(text: str, why: str, noun: str = "config") -> NoReturn:
    shown = repr(text if len(text) <= 200 else text[:197] + "...")
    raise PathRefusedError(
        f"The {noun} path {shown} {why}.",
        next_step=("Give its content as an object, or a file" if noun == "config" else "Give a file")
        + " in a repository, in the output folder or in a folder that --config-dir names.",
    )


# ---- reading --------------------------------------------------------------------------------------------------------


def _read(workspace: Workspace, text: str, noun: str = "config", largest: int = LARGEST) -> tuple[Path, bytes]:
    """Path and content of the file; what was opened is what was allowed, however the path changes meanwhile."""
    path = _allowed(workspace, text, noun)
    try:
        # a FIFO would block without O_NONBLOCK; the last part is no link any more, it was resolved
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        missing = (
            f"The folder {text} holds no config.json"
            if Path(text).is_dir()
            else f"The {noun} file {text} does not exist"
        )
        raise ConfigError(
            f"{missing}.", next_step="Give a config.json, or an object." if noun == "config" else "Give its path."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"The {noun} file {text} cannot be read: {error.strerror}.",
            next_step="Give a config.json." if noun == "config" else "Give another.",
        ) from None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            _refuse(text, "is no ordinary file", noun)
        if not _still(path, descriptor, about):
            _refuse(text, "changed while it was opened", noun)
        if about.st_size > largest:
            _refuse(text, f"is larger than {largest:,} bytes", noun)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(largest + 1)
    finally:
        os.close(descriptor)
    if len(data) > largest:  # it grew, or lies in a file system that does not tell
        _refuse(text, f"is larger than {largest:,} bytes", noun)
    return path, data


def _still(path: Path, descriptor: int, about: os.stat_result) -> bool:
    """Whether the opened file is the one that the allowed path names: a folder on the way may have become a link."""
    try:
        opened = Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:  # no such folder on this platform: the path must still lead to itself, and to this file
        there = path.lstat()
        return path.resolve() == path and (there.st_dev, there.st_ino) == (about.st_dev, about.st_ino)
    return opened == path


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    """The object that the file holds; no sentence quotes what else it holds."""
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        at = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(
            f"The config file {path} cannot be read: it is not JSON{at}.", next_step="Give a config.json."
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(f"The config file {path} does not hold an object.", next_step="Give a config.json.")
    check_given(value)
    return value


__all__ = ["LARGEST", "Config", "ConfigFile", "config_digest", "described", "is_whole", "open_config", "read_config"]
