"""A pass in numbers: its totals at a point in units, and what makes them up, most first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from opscope_schemas.analysis import ModelAnalysisResult, ModuleAnalysisResult, is_element
from opscope_schemas.errors import CancelledError, OpscopeError
from opscope_schemas.formula import Rational, approximated, evaluate
from opscope_schemas.numbers import Numbers, Ranked
from opscope_schemas.units import amount, counted, plain_bytes, seconds

from opscope_tools.costing.arguments import CostArguments, TraceArguments, find
from opscope_tools.costing.long_formulas import LONG
from opscope_tools.costing.long_formulas import left_out as without_formulas
from opscope_tools.hardware.devices import Device, device_named
from opscope_tools.running.runner import briefest
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.dataflow import cache_growth
from opscope_tools.trace.document import CallTree, assignment, evaluated, module_analysis
from opscope_tools.trace.engine import Found
from opscope_tools.trace.protocol import CallRecord, OpRecord
from opscope_tools.trace.routing import grouped, left_out
from opscope_tools.trace.variables import RUN_HINTS

#: what is listed
_OPERATORS, _MODULES = 8, 8
#: sizes of a run where nobody gives them, as far as the model has positions
_SIZES = {"batch_size": 1, "seq_len": 1024, "cache_len": 1024}
#: fields of a configuration that say how many positions there are
_POSITIONS = re.compile(r"max_\w*position|n_positions|n_ctx|max_seq_len|max_sequence_length")


#: what of a document holds formulas, or is about them
_FORMULAS = {
    "kernels",
    "lines",
    "per_class",
    "per_operator",
    "variables",
    "conditions",
    "conventions",
    "assumptions",
    "model_inputs",
    "outputs",
}
C = TypeVar("C", ModuleAnalysisResult, ModelAnalysisResult)


@dataclass(frozen=True)
class _Work:
    """All runs of a part; floating point, exact below 2**53."""

    name: str
    file: str
    line: int
    count: float
    flops: float
    matmul: float
    #: of the products those in 32 bits
    wide: float
    bytes: float

    def bound(self, device: Device) -> tuple[float, Literal["memory", "compute"]]:
        """Matrix products at the peak of their precision, or bytes at the bandwidth of memory: whichever takes longer."""
        compute = (self.matmul - self.wide) / device.peak("bf16")[0] + self.wide / device.peak("fp32")[0]
        memory = self.bytes / device.bandwidth
        return (compute, "compute") if compute > memory else (memory, "memory")


def usual_sizes(found: Found) -> dict[str, Rational]:
    """Sizes of a run for a question that gives none: one sequence, 1,024 positions or as many as there are."""
    trace = found.tree.trace
    needed = [v.name for v in trace.variables if v.default is None and not v.definition and v.kind != "fixed"]
    limit = positions(found) or 1 << 30
    sizes = {**trace.point, **_SIZES, **({"seq_len": 1} if trace.phase == "decode" else {})}
    room = limit - 1 if trace.phase == "decode" else limit
    return {name: min(sizes[name], room) if name in _SIZES else sizes[name] for name in needed if name in sizes}


def positions(found: Found) -> int | None:
    """How many positions the configuration makes room for, where it says so."""
    trace = found.tree.trace
    fields = {v.config_key or v.name: v.name for v in trace.variables}
    room = [int(trace.point[n]) for key, n in fields.items() if _POSITIONS.search(key) and n in trace.point]
    return min(room, default=None)


def numbers(found: Found, assumed: Iterable[str], device: Device | None = None) -> Numbers | None:
    """The pass at the point of `found`; None where it has none, or an operator's cost is not known there."""
    if found.values is None:
        return None
    tree, call, values = found.tree, found.call, found.values
    try:
        whole = evaluated(module_analysis(tree, call), values)
    except OpscopeError:
        return None
    at = {name: _plain(value) for name, value in values.items()}
    placed = list(_placed(tree, call, at, 1.0))
    flops, moved = whole.flops, whole.memory_read + whole.memory_write
    tokens = math.prod(int(values.get(n, 1)) for n in ("batch_size", "seq_len")) if "seq_len" in values else None
    growth = cache_growth(tree, call)
    sizes = run_sizes(found)
    operators = [work for _, _, work in placed]
    listed = _Listed(flops, moved, device)
    bounds = [one.bound(device)[0] for one in operators] if device is not None else []
    held = _active(placed, at, whole.parameters)
    return Numbers(
        said=_said(tree, call, sizes, whole.flops, whole.memory_read, whole.memory_write, whole.parameters, held, bounds, device),
        at=sizes, assumed=tuple(assumed), flops=flops, matmul_flops=whole.matmul_flops, bytes_read=whole.memory_read,
        bytes_written=whole.memory_write, flops_per_token=round(flops / tokens) if tokens else None, parameters=whole.parameters,
        active_parameters=held, weights_bytes=whole.weights,
        cache_bytes_per_token=round(evaluate(growth.per_token, values) / int(values.get("batch_size", 1))) if growth and growth.per_token else None,
        bound_seconds=sum(bounds) if device is not None else None, hardware=device.name if device is not None else "",
        operators=listed(_summed(operators), _OPERATORS),
        modules=listed(_summed(_parts(tree, placed)), _MODULES),
    )  # fmt: skip


def in_numbers(arguments: CostArguments, found: Found, context: ToolContext) -> Numbers | None:
    """The pass in numbers, at sizes that are usual where none were given; None where formulas were asked for."""
    if arguments.detail == "formulas":
        return None
    device = device_named(arguments.hardware, context.workspace.device_files) if arguments.hardware else None
    there, assumed = at_usual_sizes(arguments, found, context)
    return numbers(there, assumed, device)


def at_usual_sizes(arguments: TraceArguments, found: Found, context: ToolContext) -> tuple[Found, list[str]]:
    """What was found at its values, or at usual sizes where it has none; and the names of sizes that nobody gave."""
    if found.values is not None:
        given = {"seq_len", *(arguments.values or {})} if arguments.phase == "decode" else {*(arguments.values or {})}
        return found, sorted(_SIZES.keys() & found.values.keys() - given)
    sizes = usual_sizes(found)
    try:
        there = find(arguments.model_copy(update={"values": sizes}), context)
    except CancelledError:
        raise
    except OpscopeError:  # those of its trace, then
        sizes = found.tree.trace.point
        there = replace(found, values=assignment(found.tree.trace.variables, sizes))
    return there, sorted(sizes.keys() & run_sizes(found).keys())


def briefly(result: C) -> C:
    """Numbers without the document's formulas, where there are numbers."""
    told = result.numbers
    if told is None:
        return result
    bare = _numbers_alone(result)

    def form(rows: int) -> C:
        listed = {"operators": told.operators[:rows], "modules": told.modules[:rows]}
        return bare.model_copy(update={"numbers": told.model_copy(update=listed)})

    return briefest(form, max(_OPERATORS, _MODULES))


def _numbers_alone(result: C) -> C:
    document = result.document.model_copy(
        update=dict.fromkeys(_FORMULAS & result.document.__class__.model_fields.keys(), ())
    )
    said = "Numbers alone: detail='formulas' gives formulas, kernels, lines and conditions; the artifact is whole."
    evaluated = result.evaluated.model_copy(update={"values": {}}) if result.evaluated is not None else None
    return without_formulas(
        result.model_copy(update={"document": document, "evaluated": evaluated, "shortened": said}), LONG
    )


def _plain(value: Rational) -> float:
    return value if isinstance(value, int) else float(value)


def run_sizes(found: Found) -> dict[str, Rational]:
    """Of the point, the sizes that are no configuration's."""
    trace = found.tree.trace
    named = {
        v.name for v in trace.variables if not v.config_key and not v.definition and v.kind != "fixed"
    } | RUN_HINTS.keys()
    return {n: x for n, x in (found.values or trace.point).items() if n in named and not is_element(n)}


#: the calls that an operator lies in, innermost last, each with how often it runs
_Inside = tuple[tuple[CallRecord, float], ...]


def _placed(
    tree: CallTree, call: CallRecord, at: Mapping[str, float], times: float
) -> Iterator[tuple[_Inside, OpRecord, _Work]]:
    for child in tree.children(call):
        runs = times * approximated(child.repeat)(at)
        if isinstance(child, CallRecord):
            for inside, op, work in _placed(tree, child, at, runs):
                yield ((call, times), *inside), op, work
            continue
        yield ((call, times),), child, _work(tree, call, child, at, runs)


def _work(tree: CallTree, call: CallRecord, op: OpRecord, at: Mapping[str, float], runs: float) -> _Work:
    def times(*texts: str) -> float:
        return runs * sum(approximated(text)(at) for text in texts)

    name = op.operator.removeprefix("aten.").removeprefix("opscope.").lstrip("_")
    matmul = times(op.matmul_flops)
    return _Work(
        f"{tree.pattern(call)}: {name}".lstrip(": "), op.site.file, op.site.line, runs, times(op.flops), matmul,
        matmul if op.units == "fp32" else 0.0, times(op.read, op.write),
    )  # fmt: skip


def _summed(found: Iterable[_Work]) -> list[_Work]:
    """Those of one name and line as one."""
    summed: dict[tuple[str, str, int], _Work] = {}
    for one in found:
        key = (one.name, one.file, one.line)
        if (so_far := summed.get(key)) is not None:
            one = replace(
                one, count=so_far.count + one.count, flops=so_far.flops + one.flops, matmul=so_far.matmul + one.matmul,
                wide=so_far.wide + one.wide, bytes=so_far.bytes + one.bytes,
            )  # fmt: skip
        summed[key] = one
    return list(summed.values())


def _parts(tree: CallTree, placed: Sequence[tuple[_Inside, OpRecord, _Work]]) -> Iterator[_Work]:
    """Each operator's work under the name of the part that it is in: what a layer of a stack calls, or what stands outside of stacks."""
    opened = {placed[0][0][0][0].index} if placed else set()
    for inside, _, _ in placed:
        stack = next((place for place, (call, _) in enumerate(inside) if place and call.repeat != "1"), -1)
        opened.update(call.index for call, _ in inside[: stack + 1])
    told: set[int] = set()
    for inside, _, work in placed:
        call, runs = next(((c, n) for c, n in inside if c.index not in opened), inside[-1])
        name = tree.pattern(call) or call.class_name.rpartition(".")[2]
        file, line = (call.site.file, call.site.line) if call.site is not None else (call.file, call.line)
        own = " (own lines)" if call.index in opened else ""
        yield replace(work, name=f"{name}{own}", file=file, line=line, count=0.0 if call.index in told else runs)
        told.add(call.index)


@dataclass(frozen=True)
class _Listed:
    """Rows, most first: by time on a device, else by what is the larger of the shares of FLOPs and bytes."""

    flops: int
    moved: int
    device: Device | None

    def __call__(self, found: Iterable[_Work], most: int) -> tuple[Ranked, ...]:
        rows = [self._row(one) for one in found]
        return tuple(sorted(rows, key=self._rank)[:most])

    def _rank(self, row: Ranked) -> tuple[float, str]:
        size = row.bound_seconds if row.bound_seconds is not None else max(row.flops_share, row.bytes_share)
        return -size, row.name

    def _row(self, one: _Work) -> Ranked:
        bound, limit = one.bound(self.device) if self.device is not None else (None, None)
        return Ranked(
            name=one.name, file=one.file, line=one.line, count=round(one.count), flops=round(one.flops), bytes=round(one.bytes),
            flops_share=_share(one.flops, self.flops), bytes_share=_share(one.bytes, self.moved), bound_seconds=bound, limited_by=limit,
        )  # fmt: skip


def _share(part: float, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _active(placed: Iterable[tuple[_Inside, OpRecord, _Work]], at: Mapping[str, float], parameters: int) -> int | None:
    """Parameters that one token meets; None where no experts are chosen from."""
    ran = [(op, work) for _, op, work in placed]
    experts = grouped(op for op, _ in ran)
    idle = [work.count * left for op, work in ran if (left := left_out(op, at, experts)) is not None]
    return parameters - round(sum(idle)) if idle else None


_PASSES = {"prefill": "A prefill", "decode": "A decode step", "encode": "An encoder pass", "train": "A training step"}


def _said(
    tree: CallTree, call: CallRecord, sizes: Mapping[str, Rational], flops: int, read: int, written: int, parameters: int,
    active: int | None, bounds: list[float], device: Device | None,
) -> str:  # fmt: skip
    shown = ", ".join(f"{name} {value:,}" for name, value in sizes.items() if isinstance(value, int))
    of = f" at {shown}" if shown else ""
    name = call.class_name.rpartition(".")[2]
    met = f", {counted(active)} of them active" if active is not None else ""
    time = f"; at least {seconds(sum(bounds))} on {device.name}, eagerly" if device is not None else ""
    return (
        f"{_PASSES.get(tree.trace.phase, 'A forward')} of {name}{of}: {amount(flops, 'FLOP')}, {plain_bytes(read)} read, "
        f"{plain_bytes(written)} written{time}; {counted(parameters)} parameters{met}."
    )


__all__ = ["at_usual_sizes", "briefly", "in_numbers", "numbers", "positions", "run_sizes", "usual_sizes"]
