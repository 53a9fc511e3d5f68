"""The MCP tool `trace_dataflow`: the operator graph of a module's pass, its memory, and what splitting it communicates."""

from __future__ import annotations

from collections.abc import Mapping

from opscope_cache.trees import IMPORTED
from opscope_schemas.dataflow import (
    Communication,
    DataflowResult,
    FlowOperator,
    FlowTensor,
    HeldTensor,
    MemoryNumbers,
    Overlap,
)
from opscope_schemas.errors import ConfigError, OpscopeError
from opscope_schemas.formula import Rational, evaluate
from opscope_schemas.units import plain_bytes

from opscope_tools.costing.arguments import TraceArguments, find, remarks, sources
from opscope_tools.costing.long_formulas import LONG, left_out, with_numbers, without_long
from opscope_tools.costing.numbers import at_usual_sizes, run_sizes
from opscope_tools.expand_refs import EXPAND_REFS
from opscope_tools.inspect_model import INSPECT_MODEL
from opscope_tools.report.parallel import Split, communications, overlapping, strategies
from opscope_tools.report.sources import SourceReader
from opscope_tools.running.runner import briefest, run_tool
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.trace.dataflow import dataflow, evaluated
from opscope_tools.trace.engine import Found

#: what communicates that an agent is told of, first in the plan's order
_TOLD = 5
#: tensors of the peak that are named
_LARGEST = 6


class DataflowArguments(TraceArguments):
    """Arguments of `trace_dataflow`."""


def trace_dataflow(arguments: DataflowArguments, context: ToolContext) -> DataflowResult:
    """Raises what the cost tools raise. Plans are read where the model is one that has a config."""
    if arguments.phase == "train":
        raise ConfigError(
            "A training step has no data-flow graph here: layers are recorded once, and what each of them saves lives on.",
            next_step="Ask count_flops or expand_refs with phase='train' for the saved activations.",
        )
    found = find(arguments, context)
    flow = dataflow(found.tree, found.call)
    notes = list(remarks(found))
    if arguments.view == "serving":
        notes.append("The graph is that of the eager pass; count_flops and expand_refs have the serving view.")
    if not flow.peak_activations:
        notes.append(
            "The peak of activations is not known: the size of a tensor depends on data, or too much on sizes."
        )
    result = DataflowResult(
        numbers=_in_numbers(arguments, found, context), document=flow, evaluated=evaluated(flow, found.values) if found.values is not None else None,
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


def _in_numbers(arguments: DataflowArguments, found: Found, context: ToolContext) -> MemoryNumbers | None:
    """The memory at the point, or at usual sizes where none is given; None where formulas were asked for."""
    if arguments.detail == "formulas":
        return None
    there, assumed = at_usual_sizes(arguments, found, context)
    assert there.values is not None
    flow = dataflow(there.tree, there.call)
    numbers, values = evaluated(flow, there.values), there.values
    operators = {one.id: one for one in flow.operators}
    peak = next((p for p in flow.peaks if p.operator == numbers.peak_operator), None)
    tensors = {t.id: t for t in flow.tensors}
    living = [tensors[index] for index in peak.tensors] if peak is not None else []
    held = [_held(t, operators.get(t.created_by), values) for t in living]
    at = run_sizes(there)
    shown = ", ".join(f"{name} {value:,}" for name, value in at.items() if isinstance(value, int))
    parts = [
        ("of weights", numbers.weights),
        ("of activations at most", numbers.peak_activations),
        ("of cache after it", numbers.cache_after),
    ]
    told = ", ".join(f"{plain_bytes(size)} {what}" for what, size in parts if size is not None)
    return MemoryNumbers(
        said=f"{flow.class_name.rpartition('.')[2]}, {flow.phase} at {shown}: {told or 'no bytes are known'}.", at=at, assumed=tuple(assumed),
        weights=numbers.weights, peak_activations=numbers.peak_activations, cache_before=numbers.cache_before, cache_after=numbers.cache_after,
        cache_per_token=_of_sequence(numbers.cache_per_token, values), peak=_named(operators.get(numbers.peak_operator)),
        largest=tuple(sorted(held, key=lambda t: -t.bytes)[:_LARGEST]),
    )  # fmt: skip


def _held(tensor: FlowTensor, maker: FlowOperator | None, values: Mapping[str, Rational]) -> HeldTensor:
    size = evaluate(tensor.bytes, values) if tensor.bytes else 0
    return HeldTensor(
        bytes=size,
        kind=tensor.kind,
        operator=_named(maker),
        file=maker.file if maker else "",
        line=maker.line if maker else 0,
    )


def _of_sequence(size: int | None, values: Mapping[str, Rational]) -> int | None:
    return None if size is None else round(size / int(values.get("batch_size", 1)))


def _named(operator: FlowOperator | None) -> str:
    return f"{operator.module}: {operator.operator}".lstrip(": ") if operator is not None else ""


def _split(arguments: DataflowArguments, context: ToolContext) -> Split:
    """The module tree and the expanded pass of what was asked for; raises what these tools raise."""
    given = {**arguments.model_dump(exclude_defaults=True), "detail": "formulas"}
    config = {"config": arguments.config} if arguments.config is not None else {}
    tree = run_tool(INSPECT_MODEL, {"model": arguments.target, **config}, context)
    expanded = run_tool(EXPAND_REFS, {**given, "target": arguments.target, "phase": arguments.phase}, context)
    return Split(SourceReader(context.workspace.repositories.values()), tree, expanded.document)


def _shortened(result: DataflowResult, why: str, **changes: object) -> DataflowResult:
    flow = result.document.model_copy(update=changes)
    return result.model_copy(update={"document": flow, "shortened": f"{why} The artifact is whole."})


def _long_lived(result: DataflowResult) -> DataflowResult:
    kept = tuple(t for t in result.document.tensors if t.lives[1] - t.lives[0] > 2 or t.kind != "activation")
    return _shortened(result, "Tensors that live for three operators or fewer are left out.", tensors=kept)


def _without_tensors(result: DataflowResult) -> DataflowResult:
    bare = tuple(o.model_copy(update={"reads": (), "writes": (), "holds": ()}) for o in result.document.operators)
    peaks = tuple(p.model_copy(update={"tensors": ()}) for p in result.document.peaks)
    said = "Tensors are left out: ask for a submodule to see them."
    return _shortened(result, said, operators=bare, tensors=(), peaks=peaks)


def _summary(result: DataflowResult) -> DataflowResult:
    said = "Operators and tensors are left out: ask for a submodule to see them. So are entries of plans that communicate nothing."
    short = _shortened(result, said, operators=(), tensors=(), peaks=result.document.peaks[:4])
    return short.model_copy(update={"communication": _communicating(result)})


def _communicating(result: DataflowResult) -> tuple[Communication, ...]:
    return tuple(one for one in result.communication if one.bytes != "0")


def _brief(result: DataflowResult) -> DataflowResult:
    if result.numbers is None:
        return result
    said = "Numbers, and of a plan the first that communicates: detail='formulas' gives operators, tensors, formulas and the whole plan."
    short = _shortened(result, said, operators=(), tensors=(), peaks=(), variables=(), conditions=(), assumptions=())
    numbers = short.evaluated.model_copy(update={"values": {}}) if short.evaluated is not None else None
    short = left_out(short.model_copy(update={"evaluated": numbers}), LONG)
    told = _communicating(short)
    return briefest(lambda rows: short.model_copy(update={"communication": told[:rows]}), _TOLD)


TRACE_DATAFLOW: Tool[DataflowArguments, DataflowResult] = Tool(
    name="trace_dataflow",
    title="Operator graph, tensor lifetimes and memory",
    description=(
        "Memory of a pass: peak activations, cache, what splitting over devices communicates; with detail='formulas' the operator graph "
        "and each tensor's bytes and lifetime."
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
    brief=_brief,
    lane=lambda _: "trace",
)
