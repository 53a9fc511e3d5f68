"""The argument `config` of the tools: a config.json, its folder, or an object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opscope_schemas.errors import ConfigError

Config = str | dict[str, Any] | None


def existing_config(text: str) -> Path | None:
    """The file that `text` names, or the config.json of the folder; None where there is none."""
    try:
        path = Path(text).expanduser()
        path = path / "config.json" if path.is_dir() else path
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # a name that no file can have
        return None


def read_config(config: Config) -> dict[str, Any] | None:
    """The configuration as an object; raises `ConfigError` where the file is not there or holds no object."""
    if config is None or isinstance(config, dict):
        return config
    path = existing_config(config)
    if path is None:
        raise ConfigError(f"The config file {config} does not exist.", next_step="Give a config.json, or an object.")
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"The config file {path} cannot be read: {error}.", next_step="Give a config.json.") from None
    if not isinstance(value, dict):
        raise ConfigError(f"The config file {path} holds no object.", next_step="Give a config.json.")
    return value
