"""The MCP tool `trace_dataflow`: the operator graph of a module's pass, its memory, and what splitting it communicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opscope_cache.trees import IMPORTED
from opscope_schemas.dataflow import Dataflow, DataflowResult, Overlap
from opscope_schemas.errors import ConfigError, OpscopeError
from opscope_schemas.formula import Rational

from opscope_tools.costing.arguments import CostArguments, find, remarks, sources
from opscope_tools.costing.long_formulas import with_numbers, without_long
from opscope_tools.expand_refs import EXPAND_REFS
from opscope_tools.inspect_model import INSPECT_MODEL
from opscope_tools.report.parallel import Split, communications, overlapping, strategies
from opscope_tools.report.sources import SourceReader
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.trace.dataflow import dataflow, evaluated
from opscope_tools.trace.engine import Found


class DataflowArguments(CostArguments):
    """Arguments of `trace_dataflow`."""


def trace_dataflow(arguments: DataflowArguments, context: ToolContext) -> DataflowResult:
    """Raises what the cost tools raise. Plans are read where the model is one that has a config."""
    if arguments.phase == "train":
        raise ConfigError(
            "A training step has no data-flow graph here: layers are recorded once, and what each of them saves lives on.",
            next_step="Ask count_flops or expand_refs with phase='train' for the saved activations.",
        )
    found, flow = _holding(find(arguments, context))
    notes = list(remarks(found))
    if arguments.view == "serving":
        notes.append("The graph is that of the eager pass; count_flops and expand_refs have the serving view.")
    if not flow.peak_activations:
        notes.append(
            "The peak of activations is not known: the size of a tensor depends on data, or too much on sizes."
        )
    result = DataflowResult(
        dataflow=flow, evaluated=evaluated(flow, found.values) if found.values is not None else None,
        sources=sources(context.workspace), notes=tuple(notes),
    )  # fmt: skip
    try:
        split = _split(arguments, context)
    except OpscopeError as error:
        said = f"Plans for splitting it were not read: {error.message}"
        return result.model_copy(update={"notes": (*result.notes, said), "overlap": Overlap(searched="nothing")})
    return result.model_copy(
        update={
            "parallelism": strategies(split), "communication": communications(split), "overlap": overlapping(split),
        }
    )  # fmt: skip


def _holding(found: Found) -> tuple[Found, Dataflow]:
    """The graph that holds at the values: that two traces have the same totals does not say that their memory is the same.

    A layer with a window keeps fewer tokens where there are more than the window, at the same cost.
    """
    flow = dataflow(found.tree, found.call)
    if found.anew is None or found.values is None:
        return found, flow
    there = dataflow(*found.anew)
    if _memory(flow, found.values) == _memory(there, found.values):
        return found, flow
    said = "At these values memory is used otherwise than the general graph says: this graph was traced at them."
    return replace(found, tree=found.anew[0], call=found.anew[1], notes=(said,), anew=None), there


def _memory(flow: Dataflow, values: Mapping[str, Rational]) -> tuple[int | None, ...]:
    numbers = evaluated(flow, values)
    return numbers.peak_activations, numbers.cache_before, numbers.cache_after


def _split(arguments: DataflowArguments, context: ToolContext) -> Split:
    """The module tree and the expanded pass of what was asked for; raises what these tools raise."""
    given = arguments.model_dump(exclude_defaults=True)
    config = {"config": arguments.config} if arguments.config is not None else {}
    tree = run_tool(INSPECT_MODEL, {"model": arguments.target, **config}, context)
    expanded = run_tool(EXPAND_REFS, {**given, "target": arguments.target, "phase": arguments.phase}, context)
    return Split(SourceReader(context.workspace.repositories.values()), tree, expanded.document)


def _shortened(result: DataflowResult, why: str, **changes: object) -> DataflowResult:
    flow = result.dataflow.model_copy(update=changes)
    return result.model_copy(update={"dataflow": flow, "shortened": f"{why} The artifact is whole."})


def _long_lived(result: DataflowResult) -> DataflowResult:
    kept = tuple(t for t in result.dataflow.tensors if t.lives[1] - t.lives[0] > 2 or t.kind != "activation")
    return _shortened(result, "Tensors that live for three operators or fewer are left out.", tensors=kept)


def _without_tensors(result: DataflowResult) -> DataflowResult:
    bare = tuple(o.model_copy(update={"reads": (), "writes": ()}) for o in result.dataflow.operators)
    peaks = tuple(p.model_copy(update={"tensors": ()}) for p in result.dataflow.peaks)
    said = "Tensors are left out: ask for a submodule to see them."
    return _shortened(result, said, operators=bare, tensors=(), peaks=peaks)


def _summary(result: DataflowResult) -> DataflowResult:
    said = "Operators and tensors are left out: ask for a submodule to see them."
    return _shortened(result, said, operators=(), tensors=(), peaks=result.dataflow.peaks[:4])


TRACE_DATAFLOW: Tool[DataflowArguments, DataflowResult] = Tool(
    name="trace_dataflow",
    title="Operator graph, tensor lifetimes and memory",
    description=(
        "The operator graph of a pass: which operator reads whose result, each tensor's shape, bytes and lifetime, "
        "peak activation memory, what the cache holds and grows by per token, how the "
        "model may be split over devices and the communication that "
        "needs; sizes as formulas."
    ),
    arguments=DataflowArguments,
    result=DataflowResult,
    run=trace_dataflow,
    sources=IMPORTED,
    shorter=(
        _long_lived,
        _without_tensors,
        with_numbers(_without_tensors),
        with_numbers(_summary),
        without_long(with_numbers(_summary)),
    ),
    lane=lambda _: "trace",
)
