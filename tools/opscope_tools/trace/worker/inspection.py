"""A model's tree on the meta device: classes, shapes and counts, no weights, repeated siblings folded."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import transformers
from opscope_schemas.analysis import ModelTreeResult, ModuleNode
from opscope_schemas.errors import OpscopeError, TraceError

from opscope_tools.trace.protocol import InspectRequest, ModelSpec
from opscope_tools.trace.worker import configs, fields, models, patches
from opscope_tools.trace.worker.blame import place_of, unset
from opscope_tools.trace.worker.definitions import missing_package
from opscope_tools.trace.worker.fence import fenced

#: seconds of the processor that building a model may take
_PATIENCE = 25.0


def inspect_model(request: InspectRequest) -> ModelTreeResult:
    """Build the model's class from its config and describe it; raises `TraceError` with the reason."""
    with fenced(request.model):
        return _inspected(request.model)


def _inspected(spec: ModelSpec) -> ModelTreeResult:
    target, model_class, config, model = built(spec)
    root: Any = model
    if target is not model_class:
        root = next((m for m in model.modules() if type(m) is target), None)
        if root is None:
            raise TraceError(f"{model_class.__name__} holds no {target.__qualname__} under this config.")
    tree = _node("", root)
    total = sum(p.numel() for p in root.parameters())  # torch names a shared weight once
    return ModelTreeResult(
        model_class=_qualified(model_class), config_class=_qualified(type(config)),
        config=_plain(config.to_dict(), _known(config)),
        parameters=total, tree=tree, text="\n".join(_lines(tree)),
        notes=tuple(filter(None, [spec.origin, configs.ignored(config, spec)])),
    )  # fmt: skip


def built(spec: ModelSpec) -> tuple[Any, Any, Any, Any]:
    """The target class, the model's class, its config and the model, without weights; raises `ConfigError` where the
    config's values do not make one, with the field to blame where it can be told."""
    target, candidates = models.resolve(spec)
    model_class, config_class = candidates[0]
    if config_class is None:
        raise TraceError(
            f"{target.__qualname__} is a single layer, built from its constructor's arguments and not from a config.",
            next_step="Inspect a model, or a class of one.",
        )

    made: list[Any] = []

    def build(of: ModelSpec) -> tuple[Any, Any]:
        made.append(configs.make_config(config_class, of))
        return made[-1], bare(model_class, made[-1])

    try:
        config, model = build(spec)
    except OpscopeError:
        raise
    except Exception as error:
        if spec.content or spec.overrides:
            raise configs.refusal(config_class, model_class.__name__, error, spec, build) from error
        package = missing_package(error)
        raise TraceError(
            f"{model_class.__name__} needs the package {package}, which is not installed."
            if package
            else f"{model_class.__name__} cannot be built from its config: {configs.reason_of(error)}.",
            next_step=f"Install {package} beside opscope." if package else "".join(unset(error, each) for each in made),
            location=place_of(error),
        ) from error
    return target, model_class, config, model


def bare(model_class: Any, config: Any) -> Any:
    """The model of a config, without weights."""
    transformers.logging.set_verbosity_error()
    sentence = f"{model_class.__name__} took more than {_PATIENCE:.0f} s to build with these values."
    with (
        warnings.catch_warnings(),
        torch.device("meta"),
        patches.no_initialisation(),
        configs.deadline(_PATIENCE, sentence),
    ):
        warnings.simplefilter("ignore")
        return model_class._from_config(config)


def _qualified(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _node(name: str, module: Any) -> ModuleNode:
    weights = {n: tuple(p.shape) for n, p in [*module._parameters.items(), *module._buffers.items()] if p is not None}
    children: list[ModuleNode] = []
    for child_name, child in module.named_children():
        node = _node(child_name, child)
        last = children[-1] if children else None
        if last is not None and isinstance(module, torch.nn.ModuleList) and _same(last, node):
            first = last.name.split("-")[0]
            children[-1] = last.model_copy(
                update={
                    "name": f"{first}-{child_name}",
                    "repeat": last.repeat + 1,
                    "parameters": last.parameters + node.parameters,
                }
            )
        else:
            children.append(node)
    own = sum(p.numel() for p in module._parameters.values() if p is not None)
    return ModuleNode(
        name=name, class_name=_qualified(type(module)), parameters=own + sum(c.parameters for c in children),
        weights=weights, buffers=tuple(n for n in weights if n in module._buffers), children=tuple(children),
    )  # fmt: skip


def _same(a: ModuleNode, b: ModuleNode) -> bool:
    per = a.parameters // a.repeat
    return (
        a.class_name == b.class_name and per == b.parameters and a.weights == b.weights
        and len(a.children) == len(b.children) and all(x.name == y.name and _same(x, y) for x, y in zip(a.children, b.children, strict=True))
    )  # fmt: skip


def _lines(node: ModuleNode, depth: int = 0) -> list[str]:
    name = f"({node.name}) " if node.name else ""
    times = f" x{node.repeat}" if node.repeat > 1 else ""
    shapes = "".join(f", {k} {list(v)}" for k, v in node.weights.items())
    count = f"  [{node.parameters:,} parameters]" if node.parameters else ""
    lines = [f"{'  ' * depth}{name}{node.class_name}{times}{shapes}{count}"]
    for child in node.children:
        lines.extend(_lines(child, depth + 1))
    return lines


def _known(config: Any) -> Any:
    """The names that the config class knows, those of its parts in mappings of their own; a file may hold others."""
    default = type(config)()
    own: dict[str, Any] = {**dict.fromkeys(vars(default)), **dict.fromkeys(default.to_dict())}
    own.update(dict.fromkeys(getattr(type(config), "attribute_map", {})))
    return {**own, **{name: _known(part) for name, part in fields.parts(config).items()}}


def _plain(config: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """The settings that are plain values, those of the configs inside it too, of names that the config class knows."""
    config = {name: value for name, value in config.items() if name in known}
    found = {k: v for k, v in config.items() if isinstance(v, int | float | str | bool | type(None))}
    parts = {k: _plain(v, known[k] or {}) for k, v in config.items() if isinstance(v, dict) and k.endswith("_config")}
    return {**found, **parts}
