"""From a spec to a model class, its config class and its variables.

The server found the class in source and hands on its definition; a model type is a key of transformers' own tables.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch
import transformers
from opscope_schemas.analysis import Variable
from opscope_schemas.errors import TraceError
from transformers.models.auto import configuration_auto, modeling_auto

from opscope_tools.trace.protocol import ModelSpec
from opscope_tools.trace.variables import meaning_of
from opscope_tools.trace.worker.configs import make_config
from opscope_tools.trace.worker.definitions import imported
from opscope_tools.trace.worker.fields import CONFIG_BASE, all_parts, at, sizes


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
    if spec.definition is None or spec.definition.kind != "class":
        name = spec.class_name or spec.model_type
        raise TraceError(f"{name} came without the place of its definition.", next_step="Name it again.")
    target = imported(spec.definition)
    if not (inspect.isclass(target) and hasattr(target, "forward")):
        raise TraceError(f"{spec.definition.name} has no forward.", next_step="Name an nn.Module class.")
    if issubclass(target, transformers.PreTrainedModel):
        if "forward" not in {
            n for c in target.__mro__[:-1] if c.__module__ != "torch.nn.modules.module" for n in vars(c)
        }:
            raise TraceError(f"{spec.definition.name} defines no forward of its own to trace.")
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


def packages(model_class: Any, config: Any) -> tuple[str, ...]:
    """The package of a model, and those of the models that parts of its configuration mean, loaded: they may be asked for by name only
    when the model is built."""
    found = [model_class.__module__]
    for part in all_parts(config) if isinstance(config, CONFIG_BASE) else ():
        with contextlib.suppress(KeyError, ValueError, ImportError, AttributeError):
            meant = modeling_auto.MODEL_MAPPING[type(part)]
            found += [one.__module__ for one in (meant if isinstance(meant, tuple | list) else [meant])]
    return tuple(dict.fromkeys(name.rsplit(".", 1)[0] for name in found))  # a module of no package is its own


def configured_sizes(spec: ModelSpec) -> dict[str, int]:
    """Variable -> value in the configuration as its class makes it: fields may follow from others."""
    _, candidates = resolve(spec)
    config_class = candidates[0][1]
    if config_class is None:
        return {}
    config = make_config(config_class, spec)
    found = {name: at(config, path) for name, path in sizes(config).items()}
    return {name: value for name, value in found.items() if type(value) is int and value >= 1}


def variable(name: str, config_key: str, default: int | None, *, fixed: bool = False, definition: str = "") -> Variable:
    return Variable(
        name=name, meaning=meaning_of(name), config_key=config_key, default=default,
        kind="fixed" if fixed else "symbol", definition=definition,
    )  # fmt: skip


__all__ = ["configured_sizes", "packages", "resolve", "roots_for", "variable"]
