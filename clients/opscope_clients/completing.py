"""What a shell completes: commands, options, model types, checkpoints, devices and repositories.

The real command line takes seconds to import, so its shape is kept in completions.json (`make golden`) and read here alone: a shell
waits for Tab. Order: the shape, the command line made from it, what values may be.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from opscope_clients import helping

_SHAPE = Path(__file__).with_name("completions.json")
_TYPE = re.compile(r'^\s+\("([\w-]+)", "\w+Config"\),', re.MULTILINE)


def shape(command: click.Command) -> dict[str, Any]:
    """Names, options and choices of `command` and of the commands below it, as JSON holds them."""
    params = [
        {
            "argument": isinstance(param, click.Argument), "names": [param.name, *param.opts, *param.secondary_opts],
            "several": param.nargs == -1 or param.multiple, "flag": bool(getattr(param, "is_flag", False)),
            "choices": list(getattr(param.type, "choices", ())),
        }
        for param in command.params
    ]  # fmt: skip
    below = helping.below(command)
    held: dict[str, Any] = {"help": command.get_short_help_str(120), "params": params}
    return {**held, "commands": {name: shape(one) for name, one in below.items()}} if below else held


def text(command: click.Command) -> str:
    """The content of completions.json: a command a line."""
    held = shape(command)
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(held.pop("commands").items())]
    return json.dumps(held)[:-1] + ', "commands": {\n' + ",\n".join(lines) + "\n}}\n"


@cache
def options() -> frozenset[str]:
    """The long options of all commands."""
    commands = json.loads(_SHAPE.read_text(encoding="utf-8"))["commands"].values()
    return frozenset(name for one in commands for param in one["params"] for name in param["names"] if name[:2] == "--")


def main() -> None:
    """Answer the shell, as `_OPSCOPE_COMPLETE` asks; never returns."""
    _command("opscope", json.loads(_SHAPE.read_text(encoding="utf-8"))).main(prog_name="opscope")


def _command(name: str, held: Mapping[str, Any]) -> click.Command:
    params = [_parameter(param) for param in held["params"]]
    if "commands" not in held:
        return click.Command(name, params=params, short_help=held["help"])
    below = {one: _command(one, said) for one, said in held["commands"].items()}
    return click.Group(name, params=params, commands=below, short_help=held["help"])


def _parameter(held: Mapping[str, Any]) -> click.Parameter:
    name, *flags = held["names"]
    kind = click.Choice(held["choices"]) if held["choices"] else click.Path() if name in _FILES else click.STRING
    values = _VALUES.get(name)
    complete = None if values is None else lambda ctx, _, typed: _matching(values(ctx), typed)
    if held["argument"]:
        return click.Argument(
            [name], type=kind, nargs=-1 if held["several"] else 1, required=False, shell_complete=complete
        )
    if held["flag"]:
        return click.Option([*flags, name], is_flag=True)
    return click.Option([*flags, name], type=kind, multiple=held["several"], shell_complete=complete)


def _matching(values: Iterable[str], typed: str) -> list[CompletionItem]:
    return [CompletionItem(value) for value in values if value.startswith(typed)]


def _models(_: click.Context) -> list[str]:
    """Model types of the installed transformers, read from its text; then checkpoints by their public names."""
    found: dict[str, None] = {}
    spec = importlib.util.find_spec("transformers")  # a name without dots: nothing is imported
    for file in ("auto_mappings.py", "configuration_auto.py"):
        path = Path(spec.origin if spec and spec.origin else "").parent / "models/auto" / file
        found |= dict.fromkeys(_TYPE.findall(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    return [*found, *_table("costing/checkpoints.json")["checkpoints"]]


def _devices(_: click.Context) -> list[str]:
    return [entry["id"] for entry in _table("hardware/devices.json")["devices"]] + ["cpu"]


def _table(file: str) -> Any:
    return json.loads(importlib.resources.files("opscope_tools").joinpath(file).read_text(encoding="utf-8"))


def _repositories(ctx: click.Context) -> list[str]:
    """Those that every session has, and those that the line so far or the environment names."""
    given = [*os.environ.get("OPSCOPE_REPO", "").split(os.pathsep), *(ctx.find_root().params.get("repo") or ())]
    return ["transformers", "pytorch", *(text.partition("=")[0] for text in given if "=" in text)]


_VALUES: Mapping[str, Callable[[click.Context], list[str]]] = {
    "target": _models, "targets": _models, "model": _models, "model_id": _models, "name": _models,
    "hardware": _devices, "repo": _repositories, "trust": _repositories,
}  # fmt: skip
_FILES = frozenset(
    {
        "path",
        "config",
        "out",
        "plot",
        "python",
        "cache_dir",
        "output",
        "output_folder",
        "config_dir",
        "device_file",
        "token_file",
    }
)


__all__ = ["main", "options", "shape", "text"]
