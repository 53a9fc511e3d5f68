"""From a spec to a configuration, a model class and its variables.

Standard variables and the config's own attribute names are both accepted in overrides; a name that is neither is
refused with the nearest ones, and what the config class refuses is told in its own words.
"""

from __future__ import annotations

import difflib
import functools
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
from opscope_tools.trace.variables import CONFIG, meaning_of
from opscope_tools.trace.worker import patches
from opscope_tools.trace.worker.alike import signature

#: config integers that are no sizes: identifiers, switches and counts of things that Python loops over
_NO_SIZE = ("_token_id", "_id", "layer", "version", "seed", "step", "max_window", "pretraining_tp", "_index", "chunk")


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


def _main_class(model_type: str) -> Any:
    """The model type's causal-LM class, or failing that its base model."""
    known = configuration_auto.CONFIG_MAPPING_NAMES
    if model_type not in known:
        raise UnknownNameError("model type", model_type, nearest(model_type, known))
    for mapping in (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_MAPPING_NAMES,
    ):
        name = mapping.get(model_type)
        if isinstance(name, tuple | list):
            name = name[0]
        if name and hasattr(transformers, name):
            return getattr(transformers, name)
    raise TraceError(f"The model type {model_type} has no model class that transformers exports.")


def _config_class(model: Any, model_type: str) -> Any:
    if model_type:
        return configuration_auto.CONFIG_MAPPING[model_type]
    found = getattr(model, "config_class", None)
    if found is None or found is transformers.PreTrainedConfig:
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
    if not roots and target.__module__.startswith("torch.nn."):
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


def make_config(config_class: Any, spec: ModelSpec) -> Any:
    """The configuration: class default or file, then overrides. Raises `ConfigError` with the reason."""
    base: dict[str, Any] = {}
    if spec.config_file:
        path = Path(spec.config_file)
        try:
            base = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"The config file {path} cannot be read: {error}.", next_step="Give a config.json."
            ) from None
        if not isinstance(base, dict):
            raise ConfigError(f"The config file {path} does not hold an object.", next_step="Give a config.json.")
        declared = base.get("model_type")
        if declared and declared != config_class.model_type:
            raise ConfigError(
                f"The config file is of model type {declared!r}, the target's is {config_class.model_type!r}.",
                next_step=f"Analyse {declared!r}, or give a config of the target's type.",
            )
    reference = config_class()
    for name, value in spec.overrides.items():
        real = attribute(reference, name)
        if not real:
            known = set(vars(reference)) | set(getattr(config_class, "attribute_map", {})) | set(CONFIG)
            raise ConfigError(
                f"{config_class.__name__} has no field {name!r}.",
                next_step=f"Nearest names: {', '.join(nearest(name, sorted(known))) or 'none'}.",
            )
        if type(value) is int and value < 0 and not real.endswith("_id"):
            raise ConfigError(f"{name} is {value}, but a size is not negative.", next_step="Give a positive number.")
        base.pop(name, None)
        base[real] = value
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
    """Variable -> config attribute, for every integer of the config that is a size and so can be a symbol."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in CONFIG:
        real = attribute(config, name)
        if real and real not in taken:
            found[name] = real
            taken.add(real)
    for key, value in vars(config).items():
        if key in taken or key.startswith("_") or type(value) is not int or value <= 1:
            continue
        if not any(part in key for part in _NO_SIZE):
            found[key] = key
    return found


def definitions(config_class: Any, spec: ModelSpec, names: dict[str, str]) -> dict[str, str]:
    """Formulas that the config class itself follows for fields nobody set, found by changing the others and looking."""
    given = {attribute(config_class(), k) or k for k in spec.overrides}
    if spec.config_file:
        given |= set(json.loads(Path(spec.config_file).read_text()))
    known = {real: name for name, real in names.items()}
    candidates: list[tuple[str, Callable[[dict[str, int]], int]]] = [
        ("{num_heads}", lambda v: v["num_heads"]),
        ("{hidden_size} // {num_heads}", lambda v: v["hidden_size"] // v["num_heads"]),
        ("4 * {hidden_size}", lambda v: 4 * v["hidden_size"]),
        ("{hidden_size}", lambda v: v["hidden_size"]),
    ]
    if "num_heads" not in names or "hidden_size" not in names:
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
            values = [(vars(c).get(real), {n: vars(c)[names[n]] for n in ("num_heads", "hidden_size")}) for c in probes]
            if all(isinstance(actual, int) and actual == formula(v) for actual, v in values):
                found[name] = text
                break
    return found


def variable(name: str, config_key: str, default: int | None, *, fixed: bool = False, definition: str = "") -> Variable:
    return Variable(
        name=name, meaning=meaning_of(name), config_key=config_key, default=default,
        kind="fixed" if fixed else "symbol", definition=definition,
    )  # fmt: skip


#: layers beyond the configured ones that are looked at for a pattern: periods and leading dense layers are shorter
_FURTHER = 12


@functools.cache
def _uniform(model_class: Any, config_class: Any, spec_json: str, depth: int) -> bool:
    spec = ModelSpec.model_validate_json(spec_json)
    try:
        config = make_config(
            config_class, spec.model_copy(update={"overrides": {**spec.overrides, "num_layers": depth}})
        )
        lists = [v for v in vars(config).values() if isinstance(v, list | tuple) and len(v) == depth]
        if any(len(set(map(str, found))) > 1 for found in lists):
            return False
        with torch.device("meta"), patches.no_initialisation():
            model = model_class._from_config(config)
    except Exception:  # a config that does not stretch to another depth: its layers are counted, not generalised
        return False
    stacks = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == depth]
    return bool(stacks) and all(len({signature(child) for child in stack}) == 1 for stack in stacks)


def layers_are_uniform(model_class: Any, config_class: Any, spec: ModelSpec, sizes_at_hand: dict[str, Any]) -> bool:
    """Whether all layers are of one kind at this depth and beyond, so that a formula may multiply by {num_layers}.

    A stack of one kind may continue with another (dense before sparse layers, every sixth attending globally): the
    model is built some layers deeper, on the meta device, and looked at.
    """
    layers = sizes_at_hand.get("num_layers")
    if config_class is None or not isinstance(layers, int) or not hasattr(model_class, "_from_config"):
        return False
    return _uniform(model_class, config_class, spec.model_dump_json(), layers + _FURTHER)
