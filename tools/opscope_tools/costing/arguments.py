"""What `count_flops`, `expand_refs` and `inspect_model` share: their arguments, and from a target to a model spec."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from opscope_schemas.common import Source, ToolArguments
from opscope_schemas.errors import ConfigError, UnknownNameError
from opscope_schemas.formula import evaluate, variables
from pydantic import BeforeValidator, Field, Strict

from opscope_tools.children import protection
from opscope_tools.costing.checkpoints import nearest_checkpoints
from opscope_tools.costing.config_code import read_by_code
from opscope_tools.costing.configured import configured, of_defaults
from opscope_tools.index import Target
from opscope_tools.running.config_files import Config, is_whole, read_config
from opscope_tools.running.engines import index_of, remembered, tracer_of
from opscope_tools.running.given import check_values, fraction
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.trust import factory, traced_class
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace import routing
from opscope_tools.trace.document import not_counted
from opscope_tools.trace.engine import Found
from opscope_tools.trace.flights import Running
from opscope_tools.trace.heads import head
from opscope_tools.trace.protocol import ALONE, IGNORED, Definition, ModelSpec, TraceRequest
from opscope_tools.trace.serving import reexpanded

TARGET = "`llama`, `Qwen/Qwen3-8B`, a class, `path.py:line` or config.json."
CONFIG = "A config.json's path or content, or overrides."
VALUES = "{'batch_size': 1, 'cache_len': 127}."

#: parts of a model that did not run and are named
_MOST_IDLE = 4
#: field of a configuration that names a function of a trusted repository, which then builds the module
_FACTORY = "factory"


def _fractions_of_bytes(values: object) -> object:
    """Bytes per element may be fractions, as text or exact; sizes are whole numbers."""
    if not isinstance(values, dict):
        return values
    return {name: value if type(value) is int else fraction(name, value) for name, value in values.items()}


#: a point to evaluate at
Values = Annotated[Mapping[str, Annotated[int, Strict()] | Fraction] | None, BeforeValidator(_fractions_of_bytes)]


class TraceArguments(ToolArguments):
    """Arguments of what is read from a trace."""

    target: str = Field(description=TARGET, min_length=1, max_length=1000)
    phase: Literal["prefill", "decode", "encode", "train"] = Field(
        default="prefill",
        description="decode: after cache_len tokens; train: with gradients.",
    )
    config: Config = Field(default=None, description=CONFIG)
    values: Values = Field(default=None, description=VALUES)
    attention: Literal["sdpa", "eager"] = Field(default="sdpa", description="eager: scores stored.")
    logits: Literal["all", "last"] = Field(default="all", description="last: of the last position.")
    view: Literal["eager", "serving"] = Field(default="eager", description="serving: an engine's figures beside.")
    inputs: dict[str, list[str | int]] | None = Field(
        default=None,
        description="Outside transformers: shapes ({'x': ['batch_size', 64]}); config: the constructor's.",
    )

    instance: str = Field(default="", description="`model.layers.*.mlp`.")
    detail: Literal["numbers", "formulas"] = Field(default="numbers", description="Exact formulas too.")


class CostArguments(TraceArguments):
    """Arguments of a cost analysis."""

    hardware: str = Field(default="", description="`h100_sxm`: bounds.", max_length=200)


def model_spec(workspace: Workspace, target: str, config: Config) -> ModelSpec:
    """The target as the trace worker takes it. Raises the index's errors for unknown and ambiguous names."""
    given = read_config(workspace, config) or {}
    overrides = given if isinstance(config, dict) and not is_whole(config) else {}
    own = configured(workspace, target)
    if own is not None and given and not overrides:
        shown = config if isinstance(config, str) else "the config given"
        raise ConfigError(f"Both {target} and {shown} are configurations.", next_step="Give one of them.")
    content = given if given and not overrides else dict(own.content) if own is not None else {}
    found, definition = _class_of(workspace, target if own is None else own.model_type)
    both = {**content, **overrides}
    code = both.get(_FACTORY)
    return ModelSpec(
        class_name="" if found.model_type else found.symbol.qualified_name,
        definition=definition, model_type=found.model_type or "",
        content=_without(content), overrides=_without(overrides),
        read=_read(workspace, found, both) if both else (),
        origin=own.origin if own is not None else "" if content else of_defaults(found.model_type or "", overrides),
        factory=None if code is None else factory(workspace, code),
    )  # fmt: skip


def _read(workspace: Workspace, found: Target, given: Mapping[str, object]) -> tuple[str, ...]:
    about = (
        "read",
        found.symbol.unit.tree.repository.name,
        found.symbol.file,
        found.symbol.line,
        json.dumps(given, sort_keys=True),
    )
    return remembered(workspace, about, lambda: tuple(sorted(read_by_code(index_of(workspace), found, given))))


def _class_of(workspace: Workspace, target: str) -> tuple[Target, Definition]:
    try:
        return traced_class(workspace, target)
    except UnknownNameError as error:
        if near := nearest_checkpoints(target):
            raise UnknownNameError(error.kind, error.name, [*near, *error.nearest]) from None
        raise


def _without(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration but for the field that names code: that was looked up, and goes to the worker as a definition."""
    return {name: value for name, value in config.items() if name != _FACTORY}


def running(context: ToolContext) -> Running:
    """The context as the trace engine takes it."""
    return Running(context.cancelled, lambda text: context.progress(0, None, text))


def find(
    arguments: TraceArguments, context: ToolContext, *, fused: bool = False, special: bool = True, several: bool = True
) -> Found:
    """The trace to read and the call in it that the arguments ask about; `fused`: with the kernels that engines have for
    loops; without `special`, none that holds at these values alone is made; without `several`, one sequence is told by a trace of one,
    which holds at other lengths too."""
    workspace = context.workspace
    if arguments.phase == "train" and (arguments.logits, arguments.view) != ("all", "eager"):
        raise ConfigError(
            "A training step computes every position's logits, eagerly.", next_step="Leave out logits and view."
        )
    check_values(arguments.values, arguments.inputs)
    spec = model_spec(workspace, arguments.target, arguments.config)
    inputs = {name: tuple(shape) for name, shape in (arguments.inputs or {}).items()}
    request = TraceRequest(
        model=spec, phase=arguments.phase, attention=arguments.attention, logits=arguments.logits, inputs=inputs,
        fit=arguments.phase != "train", fused=fused,  # what is saved has no fit
    )  # fmt: skip
    values = arguments.values
    if values:
        values = {"batch_size": 1, **values}  # of one sequence unless said otherwise
    if values and arguments.phase == "decode":
        values = {"seq_len": 1, **values}  # decoding is one token at a time unless said otherwise
    tracer, run = tracer_of(workspace), running(context)
    return tracer.find(request, spec.class_name, arguments.instance, values, run, special=special, several=several)


def sources(workspace: Workspace) -> tuple[Source, ...]:
    """The trees that a trace runs over."""
    return tuple(workspace.source(r) for n, r in workspace.repositories.items() if n in ("transformers", "pytorch"))


def remarks(found: Found) -> tuple[str, ...]:
    """What a reader of the figures must know: how the trace was chosen, what it leaves out, where else the class runs."""
    missing = len(not_counted(found.tree.ops_below(found.call)))
    lower = f"{missing} operation{'s are' if missing > 1 else ' is'} not counted (see not_counted): the totals are too low by their cost."
    return (
        *found.notes,
        *(said for said in found.tree.trace.assumptions if said.startswith((IGNORED, ALONE))),
        *((lower,) if missing else ()),
        *head(found.tree, found.call, found.values),
        *routing.notes(found.tree, found.call),
        *idle(found),
        *reexpanded(found.tree, found.call),
        *variants(found),
        *uncaged(),
    )


#: what a note on parts that no operator of a pass belongs to says
IDLE = "did not run in this pass"
#: names of classes that a pass of their own may run
_TOWER = re.compile(r"Encoder|Tower|Vision|Audio|Speech|Image|Video")


def idle(found: Found) -> tuple[str, ...]:
    """A note on what of the whole model did not run, so that nobody takes the figures for those of all of it."""
    trace = found.tree.trace
    if found.call.parent >= 0 or not trace.idle:
        return ()
    values = {**trace.point, **(found.values or {})}
    named = [
        f"{part.path} ({part.class_name.rpartition('.')[2]}, {evaluate(part.parameters, values):,} parameters)"
        for part in trace.idle[:_MOST_IDLE]
        if variables(part.parameters) <= values.keys()
    ]
    more = f" and {len(trace.idle) - len(named)} more parts" if len(trace.idle) > len(named) else ""
    whose = trace.model_class.rpartition(".")[2]
    towers = trace.phase != "encode" and any(_TOWER.search(part.class_name) for part in trace.idle)
    counts = "; phase='encode' counts an encoder or tower" if towers else ""
    return (
        f"Of {whose}, {', '.join(named)}{more} {IDLE}: no FLOPs and no bytes moved are theirs, only weights{counts}.",
    )


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
