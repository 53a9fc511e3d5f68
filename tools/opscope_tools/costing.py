"""What `count_flops`, `expand_refs` and `inspect_model` share: their arguments, and from a target to a model spec."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from opscope_schemas.common import Source, ToolArguments
from opscope_schemas.errors import ConfigError
from pydantic import Field, Strict

from opscope_tools.children import protection
from opscope_tools.config_files import Config, ConfigFile, described, read_config
from opscope_tools.engines import index_of, tracer_of
from opscope_tools.given import check_values
from opscope_tools.spec import ToolContext
from opscope_tools.trace.engine import Found
from opscope_tools.trace.flights import Running
from opscope_tools.trace.protocol import ModelSpec, TraceRequest
from opscope_tools.trust import factory, traced_class
from opscope_tools.workspace import Workspace

TARGET = "Model type (`llama`), class (`LlamaAttention`), `path.py:line`, or a config.json or its folder."
CONFIG = "Path of a config.json, or overrides of the default config ({'hidden_size': 2048, 'num_layers': 16})."
VALUES = (
    "Point at which to evaluate: {'batch_size': 1, 'seq_len': 1, 'cache_len': 127}; the rest comes from the config."
)

#: field of a configuration that names a function of a trusted repository, which then builds the module
_FACTORY = "factory"


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
    own = described(workspace, target)
    if own is not None and isinstance(config, str):
        raise ConfigError(f"Both {target} and {config} are configurations.", next_step="Give one of them.")
    given = read_config(workspace, config) or {}
    overrides = given if isinstance(config, dict) else {}
    content = own.content if own is not None else {} if isinstance(config, dict) else given
    found, definition = traced_class(workspace, target if own is None else _model_type(workspace, own))
    code = {**content, **overrides}.get(_FACTORY)
    return ModelSpec(
        class_name="" if found.model_type else found.symbol.qualified_name,
        definition=definition, model_type=found.model_type or "",
        content=_without(content), overrides=_without(overrides),
        factory=None if code is None else factory(workspace, code),
    )  # fmt: skip


def _without(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration but for the field that names code: that was looked up, and goes to the worker as a definition."""
    return {name: value for name, value in config.items() if name != _FACTORY}


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


def running(context: ToolContext) -> Running:
    """The context as the trace engine takes it."""
    return Running(context.cancelled, lambda text: context.progress(0, None, text))


def find(arguments: CostArguments, context: ToolContext) -> Found:
    """The trace to read and the call in it that the arguments ask about."""
    workspace = context.workspace
    check_values(arguments.values, arguments.inputs)
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
    return (*found.notes, *((lower,) if missing else ()), *variants(found), *uncaged())


def uncaged() -> tuple[str, ...]:
    """A note where the machine could not keep the model's code from what it has no business with."""
    sentence = protection().sentence()
    return (sentence,) if sentence else ()


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


__all__ = ["CostArguments", "find", "model_spec", "remarks", "running", "sources", "uncaged"]
