"""From a spec to a configuration, a model class and its variables.

Standard variables and the config's own attribute names are both accepted in overrides; a name that is neither is
refused with the nearest ones, and what the config class refuses is told in its own words.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from opscope_schemas.analysis import Variable
from opscope_schemas.errors import ConfigError, TraceError, UnknownNameError
from transformers.models.auto import configuration_auto, modeling_auto

from opscope_tools.trace.protocol import ModelSpec
from opscope_tools.trace.variables import CONFIG, is_depth, meaning_of

#: transformers 4 spells it otherwise
CONFIG_BASE: Any = getattr(transformers, "PreTrainedConfig", None) or transformers.PretrainedConfig
#: config integers that are no sizes: identifiers, switches and counts of things that Python loops over
_NO_SIZE = (
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


def import_class(qualified: str) -> Any:
    """The class that a dotted name means, importing its module."""
    module_name, _, rest = qualified.rpartition(".")
    parts = [rest]
    while module_name:
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and not module_name.startswith(error.name):
                raise TraceError(
                    f"Tracing {qualified} needs the package {error.name}, which is not installed.",
                    next_step=f"Install {error.name} beside opscope.",
                ) from error
            module_name, _, last = module_name.rpartition(".")
            parts.insert(0, last)
            continue
        for part in parts:
            found = getattr(found, part, None)
            if found is None:
                raise UnknownNameError("class", qualified)
        return found
    raise UnknownNameError("class", qualified)


def import_attribute(module: str, name: str) -> Any:
    """What `module.name` is; raises `UnknownNameError`."""
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise TraceError(
            f"{module} cannot be imported: {error}.", next_step="Name it as the repository imports it."
        ) from error
    if found is None:
        raise UnknownNameError("function", f"{module}.{name}")
    return found


def _mappings() -> list[Any]:
    """The tables from model type to class, in the order to look: causal LM, main, the others as written."""
    first = [modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, modeling_auto.MODEL_MAPPING_NAMES]
    others = [v for k, v in vars(modeling_auto).items() if k.startswith("MODEL_FOR_") and k.endswith("_MAPPING_NAMES")]
    return [*first, *(table for table in others if table is not first[0])]


def _main_class(model_type: str) -> Any:
    """The model type's causal-LM class, or failing that its base model, or what another auto class holds for it."""
    known = configuration_auto.CONFIG_MAPPING_NAMES
    if model_type not in known:
        raise UnknownNameError("model type", model_type, nearest(model_type, known))
    for mapping in _mappings():
        name = mapping.get(model_type)
        if isinstance(name, tuple | list):
            name = name[0]
        if name and hasattr(transformers, name):
            return getattr(transformers, name)
    found = _class_of_config(model_type)
    if found is not None:
        return found
    raise TraceError(f"The model type {model_type} has no model class that transformers exports.")


def _class_of_config(model_type: str) -> Any:
    """The first model class whose config class is the model type's, where no auto class names one: parts of models."""
    config_class = configuration_auto.CONFIG_MAPPING[model_type]
    package = config_class.__module__.rpartition(".")[0]
    stem = config_class.__module__.rpartition(".configuration_")[2]
    module = importlib.import_module(f"{package}.modeling_{stem}")
    fitting = [
        c
        for c in vars(module).values()
        if isinstance(c, type)
        and issubclass(c, transformers.PreTrainedModel)
        and vars(c).get("config_class", getattr(c, "config_class", None)) is config_class
        and c.__module__ == module.__name__
        and not c.__name__.endswith("PreTrainedModel")
    ]
    return fitting[0] if fitting else None


def _config_class(model: Any, model_type: str) -> Any:
    if model_type:
        found = configuration_auto.CONFIG_MAPPING[model_type]
        own = getattr(model, "config_class", None)
        # a model of the text alone takes that part of a composite config, as the auto classes hand it over
        return own if own is not None and own in getattr(found, "sub_configs", {}).values() else found
    found = getattr(model, "config_class", None)
    if found is None or found is CONFIG_BASE:
        raise TraceError(f"{model.__qualname__} names no config class, so it cannot be built.")
    return found


def roots_for(target: Any) -> list[tuple[Any, str]]:
    """The models, best first, whose forward may call the module class `target`: causal LMs of its own package."""
    package = target.__module__.rsplit(".", 1)[0]
    types = [
        model_type
        for model_type in configuration_auto.CONFIG_MAPPING_NAMES
        if f"transformers.models.{configuration_auto.model_type_to_module_name(model_type)}" == package
    ]
    found: list[tuple[Any, str]] = []
    for mapping in (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, modeling_auto.MODEL_MAPPING_NAMES):
        for model_type in types:
            name = mapping.get(model_type)
            name = name[0] if isinstance(name, tuple | list) else name
            cls = getattr(transformers, name, None) if name else None
            if cls is not None and (cls, model_type) not in found:
                found.append((cls, model_type))
    return found


def resolve(spec: ModelSpec) -> tuple[Any, list[tuple[Any, Any]]]:
    """The target class, and the (model class, config class) pairs that can be traced to reach it, best first."""
    if not spec.class_name:
        model = _main_class(spec.model_type)
        return model, [(model, _config_class(model, spec.model_type))]
    target = import_class(spec.class_name)
    if not (inspect.isclass(target) and hasattr(target, "forward")):
        raise TraceError(f"{spec.class_name} has no forward.", next_step="Name an nn.Module class.")
    if issubclass(target, transformers.PreTrainedModel):
        if "forward" not in {
            n for c in target.__mro__[:-1] if c.__module__ != "torch.nn.modules.module" for n in vars(c)
        }:
            raise TraceError(f"{spec.class_name} defines no forward of its own to trace.")
        return target, [(target, _config_class(target, spec.model_type))]
    roots = [(model, _config_class(model, model_type)) for model, model_type in roots_for(target)]
    if not roots and issubclass(target, torch.nn.Module) and not target.__module__.startswith("transformers."):
        return target, [(target, None)]  # built from its constructor's own arguments
    if not roots:
        raise TraceError(
            f"No model of transformers is known to call {spec.class_name}, so it cannot be traced in context.",
            next_step="Name the model class that uses it, or a class of transformers.models.",
        )
    return target, roots


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


def _main_part(config: Any) -> str:
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
    main = _main_part(config)
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


def _set(base: dict[str, Any], reference: Any, path: str, value: Any) -> None:
    """Put an override into the keyword arguments of a config class; a part keeps its other fields."""
    head, _, rest = path.partition(".")
    if not rest:
        part = parts(reference).get(head)
        if part is not None and isinstance(value, dict) and isinstance(base.get(head), dict):
            value = {**base[head], **value}
        base[head] = value
        return
    held = base.get(head)
    if not isinstance(held, dict):
        held = base[head] = {"model_type": parts(reference)[head].model_type} if held is None else held.to_dict()
    _set(held, parts(reference)[head], rest, value)


def _part_of(model_type: str, config_class: Any) -> str:
    """The field of a composite model type's config that holds a config of the class; '' where none does."""
    if model_type not in configuration_auto.CONFIG_MAPPING_NAMES:
        return ""
    whole = getattr(configuration_auto.CONFIG_MAPPING[model_type], "sub_configs", {})
    return next((key for key, kind in whole.items() if kind is config_class), "")


def config_file(path: str) -> dict[str, Any]:
    """What a config file holds; empty without one. Raises `ConfigError` where it holds no object."""
    if not path:
        return {}
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"The config file {path} cannot be read: {error}.", next_step="Give a config.json.") from None
    if not isinstance(found, dict):
        raise ConfigError(f"The config file {path} does not hold an object.", next_step="Give a config.json.")
    return found


def make_config(config_class: Any, spec: ModelSpec) -> Any:
    """The configuration: class default or file, then overrides. Raises `ConfigError` with the reason."""
    base = config_file(spec.config_file)
    if base:
        declared = base.get("model_type")
        if declared and declared != config_class.model_type:
            part = _part_of(declared, config_class)
            base, declared = (base[part], "") if isinstance(base.get(part), dict) else (base, declared)
        if declared and declared != config_class.model_type:
            raise ConfigError(
                f"The config file is of model type {declared!r}, the target's is {config_class.model_type!r}.",
                next_step=f"Analyse {declared!r}, or give a config of the target's type.",
            )
    reference = config_class(**base) if base else config_class()
    for name, value in spec.overrides.items():
        real = path_of(reference, name)
        if not real:
            known = (
                set(vars(reference))
                | set(getattr(config_class, "attribute_map", {}))
                | set(CONFIG)
                | set(sizes(reference))
            )
            # some models read a standard field that their configuration class does not declare
            unlisted = f" Where its code reads {name}, give a config.json that holds it." if name in CONFIG else ""
            raise ConfigError(
                f"{config_class.__name__} has no field {name!r}.",
                next_step=f"Nearest names: {', '.join(nearest(name, sorted(known - {name}))) or 'none'}.{unlisted}",
            )
        if type(value) is int and value < 0 and not real.endswith("_id"):
            raise ConfigError(f"{name} is {value}, but a size is not negative.", next_step="Give a positive number.")
        base.pop(name, None)
        _set(base, reference, real, value)
    try:
        return config_class(**base) if base else reference
    except Exception as error:
        # the strict config classes wrap a validator's error in several layers: the innermost sentence says the most
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
        raise ConfigError(f"{config_class.__name__} refuses these values: {reason.rstrip('.')}.") from None


def sizes(config: Any) -> dict[str, str]:
    """Variable -> path in the config, for every integer of the config that is a size and so can be a symbol.

    Standard names belong to the text part of a composite config; another part's sizes bear its name in front
    (`vision_hidden_size`).
    """
    main = _main_part(config)
    found: dict[str, str] = {}
    for key in [main] if main else []:
        found.update({name: f"{key}.{path}" for name, path in sizes(parts(config)[key]).items()})
    for name, path in _own_sizes(config).items():
        if name not in found:
            found[name] = path
    for key, part in parts(config).items():
        if key != main:
            for name, path in sizes(part).items():
                found.setdefault(f"{_prefix(key)}_{name}", f"{key}.{path}")
    return found


def _own_sizes(config: Any) -> dict[str, str]:
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
        if is_depth(key) or not any(part in key for part in _NO_SIZE):
            found[key] = key
    return found


def configured_sizes(spec: ModelSpec) -> dict[str, int]:
    """Variable -> value in the configuration as its class makes it: fields may follow from others."""
    _, candidates = resolve(spec)
    config_class = candidates[0][1]
    if config_class is None:
        return {}
    config = make_config(config_class, spec)
    found = {name: at(config, path) for name, path in sizes(config).items()}
    return {name: value for name, value in found.items() if type(value) is int and value >= 1}


def definitions(config_class: Any, spec: ModelSpec, names: dict[str, str]) -> dict[str, str]:
    """Formulas that the config class itself follows for fields nobody set, found by changing the others and looking."""
    given = {path_of(config_class(), k) or k for k in spec.overrides}
    if spec.config_file:
        given |= set(json.loads(Path(spec.config_file).read_text()))
    known = {real: name for name, real in names.items()}
    candidates: list[tuple[str, Callable[[dict[str, int]], int]]] = [
        ("{num_heads}", lambda v: v["num_heads"]),
        ("{hidden_size} // {num_heads}", lambda v: v["hidden_size"] // v["num_heads"]),
        ("4 * {hidden_size}", lambda v: 4 * v["hidden_size"]),
        ("{hidden_size}", lambda v: v["hidden_size"]),
    ]
    if any("." in names.get(name, ".") for name in ("num_heads", "hidden_size")):
        return {}
    probes = []
    for heads, width in ((6, 6 * 34), (10, 10 * 58)):
        try:
            probes.append(config_class(**{names["num_heads"]: heads, names["hidden_size"]: width}))
        except Exception:  # the class refuses the probe: it then shows no derivation
            return {}
    found = {}
    for real, name in known.items():
        if real in given or name in ("num_heads", "hidden_size"):
            continue
        for text, formula in candidates:
            values = [(at(c, real), {n: at(c, names[n]) for n in ("num_heads", "hidden_size")}) for c in probes]
            if all(isinstance(actual, int) and actual == formula(v) for actual, v in values):
                found[name] = text
                break
    return found


def variable(name: str, config_key: str, default: int | None, *, fixed: bool = False, definition: str = "") -> Variable:
    return Variable(
        name=name, meaning=meaning_of(name), config_key=config_key, default=default,
        kind="fixed" if fixed else "symbol", definition=definition,
    )  # fmt: skip


def all_parts(config: Any) -> list[Any]:
    """A configuration and the parts within it."""
    return [config, *(inner for part in parts(config).values() for inner in all_parts(part))]


def small_fields(config: Any) -> dict[str, Any]:
    """Field -> value of a config and its main part, private ones included: what may say how layers alternate."""
    main = _main_part(config)
    held = small_fields(parts(config)[main]) if main else {}
    return {**{k.lstrip("_"): v for k, v in vars(config).items() if not k.startswith("__")}, **held}
