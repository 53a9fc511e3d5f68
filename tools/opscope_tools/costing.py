"""What `count_flops`, `expand_refs` and `inspect_model` share: their arguments, and from a target to a model spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from opscope_schemas.common import Source, ToolArguments
from opscope_schemas.errors import ConfigError, TraceError
from pydantic import Field, Strict

from opscope_tools.config_files import Config, existing_config
from opscope_tools.engines import index_of, tracer_of
from opscope_tools.spec import ToolContext
from opscope_tools.trace.engine import Found
from opscope_tools.trace.flights import Running
from opscope_tools.trace.protocol import ModelSpec, TraceRequest
from opscope_tools.workspace import Workspace

TARGET = "Model type (`llama`), class (`LlamaAttention`), `path.py:line`, or a config.json or its folder."
CONFIG = "Path of a config.json, or overrides of the default config ({'hidden_size': 2048, 'num_layers': 16})."
VALUES = (
    "Point at which to evaluate: {'batch_size': 1, 'seq_len': 1, 'cache_len': 127}; the rest comes from the config."
)


class CostArguments(ToolArguments):
    """Arguments of a cost analysis."""

    target: str = Field(description=TARGET, min_length=1, max_length=1000)
    phase: Literal["prefill", "decode", "encode"] = Field(
        default="prefill",
        description="prefill: seq_len tokens, empty cache (or a model's only forward); decode: seq_len more after cache_len; "
        "encode: the encoder alone.",
    )
    config: Config = Field(default=None, description=CONFIG)
    values: dict[str, Annotated[int, Strict()]] | None = Field(default=None, description=VALUES)
    attention: Literal["sdpa", "eager"] = Field(default="sdpa", description="eager: scores are materialised.")
    inputs: dict[str, list[str | int]] | None = Field(
        default=None,
        description="For a module without a transformers config: shapes of its forward's arguments ({'x': ['batch_size', "
        "'seq_len', 64]}); config then holds its constructor's arguments.",
    )
    instance: str = Field(default="", description="Which instance of the class (`model.layers.*.mlp`).")


def model_spec(workspace: Workspace, target: str, config: Config) -> ModelSpec:
    """The target as the trace worker takes it. Raises the index's errors for unknown and ambiguous names."""
    described = _described(target)
    if described is not None:
        if isinstance(config, str):
            raise ConfigError(f"Both {target} and {config} are configurations.", next_step="Give one of them.")
        model_type, path = described
        return model_spec(workspace, model_type, config).model_copy(update={"config_file": str(path)})
    found = index_of(workspace).target(target)
    symbol, name = found.symbol, found.symbol.repository.name
    if not symbol.installed and name not in ("transformers", "pytorch") and name not in workspace.trusted:
        raise TraceError(
            f"Tracing {symbol.qualified_name} would import code of the repository {name}, which is not trusted.",
            next_step=f"Start with --trust {name} to allow it.",
        )
    file, overrides = "", {}
    if isinstance(config, dict):
        overrides = config
    elif config:
        existing = existing_config(config)
        if existing is None:
            raise ConfigError(
                f"The config file {config} does not exist.", next_step="Give a config.json, or an object."
            )
        file = str(existing.resolve())
    return ModelSpec(
        class_name="" if found.model_type else symbol.qualified_name, model_type=found.model_type or "",
        config_file=file, overrides=overrides,
    )  # fmt: skip


def _described(target: str) -> tuple[str, Path] | None:
    """Model type and path where the target is a config.json or a folder that holds one; None where it is a name."""
    path = existing_config(target)
    if path is None or path.suffix != ".json":
        return None
    try:
        model_type = json.loads(path.read_text()).get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"The config file {path} cannot be read: {error}.", next_step="Give a config.json.") from None
    if not isinstance(model_type, str):
        raise ConfigError(
            f"The config file {path} names no model_type.",
            next_step="Give the model type as target and the file as config.",
        )
    return model_type, path.resolve()


def running(context: ToolContext) -> Running:
    """The context as the trace engine takes it."""
    return Running(context.cancelled, lambda text: context.progress(0, None, text))


def find(arguments: CostArguments, context: ToolContext) -> Found:
    """The trace to read and the call in it that the arguments ask about."""
    workspace = context.workspace
    spec = model_spec(workspace, arguments.target, arguments.config)
    inputs = {name: tuple(shape) for name, shape in (arguments.inputs or {}).items()}
    request = TraceRequest(model=spec, phase=arguments.phase, attention=arguments.attention, inputs=inputs)
    values = arguments.values
    if values and arguments.phase == "decode":
        values = {"seq_len": 1, **values}  # decoding is one token at a time unless said otherwise
    return tracer_of(workspace).find(request, spec.class_name, arguments.instance, values, running(context))


def sources(workspace: Workspace) -> tuple[Source, ...]:
    """The trees that a trace runs over."""
    return tuple(workspace.source(r) for n, r in workspace.repositories.items() if n in ("transformers", "pytorch"))


def remarks(found: Found) -> tuple[str, ...]:
    """What a reader of the figures must know: how the trace was chosen, what it leaves out, where else the class runs."""
    missing = len(found.tree.trace.not_counted)
    lower = f"{missing} operation{'s are' if missing > 1 else ' is'} not counted (see not_counted): the totals are too low by their cost."
    return (*found.notes, *((lower,) if missing else ()), *variants(found))


def variants(found: Found) -> tuple[str, ...]:
    """A note where the class runs in several places, so that no reader takes one instance for all."""
    tree, call = found.tree, found.call
    paths: dict[str, None] = {}
    for other in tree.instances(call.class_name):
        if other.index != call.index:
            paths[tree.pattern(other)] = None
    paths.pop(tree.pattern(call), None)
    if not paths:
        return ()
    name, shown = call.class_name.rpartition(".")[2], ", ".join(list(paths)[:6])
    more = f" and {len(paths) - 6} more" if len(paths) > 6 else ""
    return (f"{name} also runs at {shown}{more}; this document is of {tree.pattern(call)} (choose with `instance`).",)


__all__ = ["CostArguments", "find", "model_spec", "remarks", "running", "sources"]
