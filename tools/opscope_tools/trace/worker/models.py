"""From a spec to a model class, its config class and its variables.

The server found the class in source and hands on its definition; a model type is a key of transformers' own tables.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
import transformers
from opscope_schemas.analysis import Variable
from opscope_schemas.errors import TraceError, UnknownNameError
from transformers.models.auto import configuration_auto, modeling_auto

from opscope_tools.trace.protocol import ModelSpec
from opscope_tools.trace.variables import meaning_of
from opscope_tools.trace.worker.configs import make_config
from opscope_tools.trace.worker.definitions import imported, inside
from opscope_tools.trace.worker.fields import CONFIG_BASE, at, nearest, path_of, sizes


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
        if spec.definition is not None and not inside(spec.definition, model):
            raise TraceError(
                f"The model type {spec.model_type} leads to {model.__qualname__} outside of {spec.definition.root}.",
                next_step="Trace with the interpreter whose transformers is analysed.",
            )
        return model, [(model, _config_class(model, spec.model_type))]
    if spec.definition is None or spec.definition.kind != "class":
        raise TraceError(f"{spec.class_name} came without the place of its definition.", next_step="Name it again.")
    target = imported(spec.definition)
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
    given |= set(spec.content)
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


__all__ = ["configured_sizes", "definitions", "resolve", "roots_for", "variable"]
