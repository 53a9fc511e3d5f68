"""The fields of a configuration object: which attribute a name means, also in the parts of a composite one, and which
of them are sizes.

Standard variables and the config's own attribute names mean the same field; a dotted path leads into a part.
"""

from __future__ import annotations

import difflib
from typing import Any

import transformers

from opscope_tools.trace.variables import CONFIG, is_depth

#: transformers 4 spells it otherwise
CONFIG_BASE: Any = getattr(transformers, "PreTrainedConfig", None) or transformers.PretrainedConfig
#: config integers that are no sizes: identifiers, switches and counts of things that Python loops over
NO_SIZE = (
    "_token_id",
    "_id",
    "layer",
    "version",
    "seed",
    "step",
    "max_window",
    "pretraining_tp",
    "_index",
    "chunk",
    "first_k",
    "_period",
    "_interval",
)


def nearest(name: str, known: Any) -> list[str]:
    return difflib.get_close_matches(name, list(known), n=5, cutoff=0.5)


def attribute(config: Any, name: str) -> str:
    """The attribute that `config` really stores `name` (its own, mapped or standard name) in; '' where it has none."""
    candidates = [name, *(CONFIG[name][1] if name in CONFIG else ())]
    for candidate in candidates:
        real = getattr(type(config), "attribute_map", {}).get(candidate, candidate)
        if real in vars(config):
            return str(real)
    return ""


def parts(config: Any) -> dict[str, Any]:
    """Attribute -> configuration, for every part of a composite configuration."""
    return {key: value for key, value in vars(config).items() if isinstance(value, CONFIG_BASE)}


def _prefix(key: str) -> str:
    return key.removesuffix("_config").removesuffix("_configs")


def main_part(config: Any) -> str:
    """The part that holds what the standard names mean: the text model of a composite one."""
    held = parts(config)
    named = [k for k in held if _prefix(k) in ("text", "language", "llm", "thinker", "decoder", "talker")]
    return named[0] if named else ""


def path_of(config: Any, name: str) -> str:
    """Where a composite configuration stores `name`: `hidden_size`, `text_config.hidden_size`; '' where nowhere.

    A name may be the variable's (`vision_hidden_size`), the attribute's own or a dotted path.
    """
    if "." in name:
        head, _, rest = name.partition(".")
        part = parts(config).get(head)
        inner = path_of(part, rest) if part is not None else ""
        return f"{head}.{inner}" if inner else ""
    own = attribute(config, name)
    if own:
        return own
    main = main_part(config)
    ordered = sorted(parts(config), key=lambda key: key != main)
    for key in ordered:
        prefix = _prefix(key) + "_"
        if name.startswith(prefix) and (inner := path_of(parts(config)[key], name.removeprefix(prefix))):
            return f"{key}.{inner}"
    for key in ordered:
        if inner := path_of(parts(config)[key], name):
            return f"{key}.{inner}"
    return ""


def at(config: Any, path: str) -> Any:
    """The value at a path."""
    *holders, last = path.split(".")
    for key in holders:
        config = vars(config)[key]
    return vars(config).get(last)


def put(config: Any, path: str, value: Any) -> None:
    """Write past the config class's own checks, which take no symbols."""
    *holders, last = path.split(".")
    for key in holders:
        config = vars(config)[key]
    config.__dict__[last] = value


def sizes(config: Any, *, any_number: bool = False) -> dict[str, str]:
    """Variable -> path in the config, for every integer of the config that is a size and so can be a symbol.

    Standard names belong to the text part of a composite config; another part's sizes bear its name in front
    (`vision_hidden_size`). `any_number`: also integers whose names are those of no size.
    """
    main = main_part(config)
    found: dict[str, str] = {}
    for key in [main] if main else []:
        inner = sizes(parts(config)[key], any_number=any_number)
        found.update({name: f"{key}.{path}" for name, path in inner.items()})
    for name, path in _own_sizes(config, any_number).items():
        if name not in found:
            found[name] = path
    for key, part in parts(config).items():
        if key != main:
            for name, path in sizes(part, any_number=any_number).items():
                found.setdefault(f"{_prefix(key)}_{name}", f"{key}.{path}")
    return found


def _own_sizes(config: Any, any_number: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in CONFIG:
        real = attribute(config, name)
        if real and real not in taken and type(vars(config)[real]) in (int, type(None)):
            found[name] = real
            taken.add(real)
    for key, value in vars(config).items():
        if key in taken or key.startswith("_") or type(value) is not int or value <= 1:
            continue
        if any_number or is_depth(key) or not any(part in key for part in NO_SIZE):
            found[key] = key
    return found


def all_parts(config: Any) -> list[Any]:
    """A configuration and the parts within it."""
    return [config, *(inner for part in parts(config).values() for inner in all_parts(part))]


def small_fields(config: Any) -> dict[str, Any]:
    """Field -> value of a config and its main part, private ones included: what may say how layers alternate."""
    main = main_part(config)
    held = small_fields(parts(config)[main]) if main else {}
    return {**{k.lstrip("_"): v for k, v in vars(config).items() if not k.startswith("__")}, **held}
