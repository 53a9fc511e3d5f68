"""The table of published checkpoints: their configurations under their public names, so that a name needs no network.

`checkpoints.json` holds what its sources state, one checkpoint a line, each with its source. Left out is what neither sizes
nor costs depend on (token ids, dropout). Short forms in it: a list that repeats is `{"repeat": [...]}`, as long as there
are layers; of names that differ in a layer's number alone, `layers.{0-9}` stands for ten; `also` names checkpoints for
which a source states the same sizes.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from opscope_schemas.errors import AmbiguousNameError, UnknownNameError

_FILE = Path(__file__).with_name("checkpoints.json")
_PUBLIC = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_RANGE = re.compile(r"\{(\d+)-(\d+)\}")


@dataclass(frozen=True)
class Checkpoint:
    """A published configuration: the public name, what is said of it, where that stands and when it was read."""

    name: str
    config: Mapping[str, Any]
    source: str
    date: str
    note: str = ""

    @property
    def model_type(self) -> str:
        """As its configuration names it; raises `KeyError` where that does not."""
        return str(self.config["model_type"])

    def sentence(self) -> str:
        """Whose sizes these are, and how that is known."""
        note = f"; {self.note}" if self.note else ""
        return f"Configuration: that of the checkpoint {self.name}, from {self.source}, read on {self.date}{note}."


@cache
def checkpoints() -> Mapping[str, Checkpoint]:
    """Public name -> checkpoint, every name that one goes by."""
    table = json.loads(_FILE.read_text("utf-8"))
    found = {}
    for name, entry in table["checkpoints"].items():
        source = table["sources"][entry["source"]]
        config = _written_out(entry["config"])
        for public in (name, *entry.get("also", ())):
            found[public] = Checkpoint(public, config, source["name"], source["date"], entry.get("note", ""))
    return found


def checkpoint_named(target: str) -> Checkpoint | None:
    """The checkpoint of that public name, in any case, with or without its organisation; None where it is no such name.

    Raises `AmbiguousNameError` for a short name that several bear, `UnknownNameError` for what is written as a public name
    (`org/name`) and is none of the table.
    """
    known, wanted = checkpoints(), target.strip().casefold()
    if target in known:
        return known[target]
    whole = [name for name in known if name.casefold() == wanted]
    found = whole or [name for name in known if name.partition("/")[2] == target]
    if not found and target.replace("-", "_") not in {one.model_type for one in known.values()}:  # deepseek-v3
        found = [name for name in known if name.partition("/")[2].casefold() == wanted]
    if len(found) > 1:
        raise AmbiguousNameError("checkpoint", target, found)
    if found:
        return known[found[0]]
    if _PUBLIC.fullmatch(target) and not re.search(r"\.\w{1,4}$", target.partition("/")[2].lower()) and _like(target):
        raise UnknownNameError("checkpoint of the table", target, nearest_checkpoints(target))
    return None


def plain_target(target: str) -> str:
    """The target, or where it is a checkpoint the model type whose code runs it."""
    found = checkpoint_named(target)
    return target if found is None else found.model_type


def nearest_checkpoints(target: str) -> list[str]:
    """The public names that look most like the target."""
    names = {name.casefold(): name for name in checkpoints()}
    short = {name.partition("/")[2]: public for name, public in names.items()}
    pool = names if "/" in target else short
    return [pool[near] for near in difflib.get_close_matches(target.casefold(), pool, n=4, cutoff=0.7)]


def example_of(model_type: str) -> str:
    """The public name of a checkpoint of that model type; '' where the table has none."""
    fitting = [found for found in checkpoints().values() if found.model_type == model_type]
    # one whose whole configuration is known, and not another's fine-tuned or quantised copy of it
    fitting.sort(key=lambda found: (bool(found.note), "quantization_config" in found.config))
    return fitting[0].name if fitting else ""


def stored_by(name: str) -> str:
    """How a checkpoint of the table quantises its weights; '' where it does not."""
    scheme = checkpoints()[name].config.get("quantization_config")
    return str(scheme.get("quant_method", "quantised weights")) if isinstance(scheme, Mapping) else ""


def _like(target: str) -> bool:
    """Whether it may be meant for one of the table: of its organisations, or near one of its names."""
    organisations = {name.partition("/")[0].casefold() for name in checkpoints()}
    return target.partition("/")[0].casefold() in organisations or bool(nearest_checkpoints(target))


def _written_out(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with its short forms written out."""
    layers = config.get("num_hidden_layers", 0)
    return {name: _value(value, layers) for name, value in config.items()}


def _value(value: Any, layers: int) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"repeat"}:
            return [value["repeat"][at % len(value["repeat"])] for at in range(layers)]
        return _written_out(value)
    if isinstance(value, list):
        return [one for item in value for one in (_counted(item) if isinstance(item, str) else [item])]
    return value


def _counted(name: str) -> list[str]:
    span = _RANGE.search(name)
    if span is None:
        return [name]
    first, last = map(int, span.groups())
    return [f"{name[: span.start()]}{at}{name[span.end() :]}" for at in range(first, last + 1)]


__all__ = [
    "Checkpoint",
    "checkpoint_named",
    "checkpoints",
    "example_of",
    "nearest_checkpoints",
    "plain_target",
    "stored_by",
]
