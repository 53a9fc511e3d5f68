"""Targets that are configurations: a config.json or its folder, or the public name of a checkpoint of the table.

And the sentence that every answer carries which speaks of no checkpoint: that its sizes are a class's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opscope_schemas.errors import ConfigError

from opscope_tools.costing.checkpoints import Checkpoint, checkpoint_named, checkpoints, example_of, stored_by
from opscope_tools.running.config_files import ConfigFile, described
from opscope_tools.running.engines import index_of
from opscope_tools.running.workspace import Workspace

#: sizes below which two configurations may agree by chance
_TELLING = 4


@dataclass(frozen=True)
class Configured:
    """A target's own configuration, the model type that it is of, and whose it is where that is known."""

    content: Mapping[str, object]
    model_type: str
    origin: str = ""


def configured(workspace: Workspace, target: str) -> Configured | None:
    """The configuration that a target is; None where it names a model type or a class. Raises what reading a file raises,
    `ConfigError` where it names no known model type, and the errors of a name of no checkpoint."""
    file = described(workspace, target)
    if file is not None:
        return Configured(file.content, _model_type(workspace, file))
    checkpoint = checkpoint_named(target)
    if checkpoint is None:
        return None
    return Configured(checkpoint.config, checkpoint.model_type, checkpoint.sentence())


def of_defaults(model_type: str, overrides: Mapping[str, object] | None = None) -> str:
    """That sizes are the defaults of a class, whether or not a checkpoint has the same; it names one of the model type, where the table has one."""
    example = example_of(model_type) if model_type else ""
    what = "but for what was given, the defaults" if overrides else "the defaults"
    method = stored_by(example) if example else ""
    stored = f", which stores its weights as {method}" if method else ""
    named = (
        f"; of that type is for example the checkpoint {example}{stored}, whose sizes may be others" if example else ""
    )
    return f"Configuration: {what} of the model's configuration class, which need not be those of a checkpoint{named}."


def checkpoint_of(workspace: Workspace, config_class: str, sizes: Mapping[str, int]) -> Checkpoint | None:
    """The checkpoint of the table whose sizes these values of a class of configuration are, each that it states; None where none is.

    `sizes`: by the fields' names, those of a part with its name and a dot before them. Fewer than four tell nothing.
    """
    index = index_of(workspace)
    trees = index.names.trees(None)
    found = (one for one in checkpoints().values() if not one.note and _agrees(one.config, sizes))
    for one in sorted(found, key=lambda one: one.name):
        known = index.names.auto.config_class(one.model_type, trees)
        if known is not None and known[1].qualified_name == config_class:
            return one
    return None


def _agrees(config: Mapping[str, object], sizes: Mapping[str, int]) -> bool:
    stated = {name: value for name in sizes if isinstance(value := _stated(config, name), int)}
    return len(stated) >= _TELLING and all(sizes[name] == value for name, value in stated.items())


def _stated(config: object, name: str) -> object:
    for part in name.split("."):
        config = config.get(part) if isinstance(config, Mapping) else None
    return config


def _model_type(workspace: Workspace, config: ConfigFile) -> str:
    """The model type that a configuration file is of; raises `ConfigError` where it names none that is known."""
    named = config.content.get("model_type")
    if not isinstance(named, str) or not named:
        raise ConfigError(
            f"The config file {config.path} names no model_type.",
            next_step="Give the model type as target and the file as config.",
        )
    known = index_of(workspace).names.auto.of_model_type(named, index_of(workspace).names.trees(None))
    if next(known, None) is None:
        raise ConfigError(
            f"The config file {config.path} is of no model type that transformers knows.",
            next_step="Give the model type as target and the file as config.",
        )
    return named


__all__ = ["Configured", "checkpoint_of", "configured", "of_defaults"]
