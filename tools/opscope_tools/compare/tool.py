"""The MCP tool `compare`: two or more sides of one question beside each other, and what makes them differ.

Each side's totals are those of `count_flops` and of `estimate_roofline` at its point; its rows are the operators of the same
trace, or the kernels of the same estimate. Every row stands once on each side, so differences add up to that of the totals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opscope_cache.trees import IMPORTED
from opscope_schemas.analysis import is_element
from opscope_schemas.comparison import (
    Alike,
    CompareResult,
    Difference,
    FieldOfSides,
    Figure,
    ForwardDifference,
    Side,
    TotalOfSides,
)
from opscope_schemas.errors import CancelledError, OpscopeError, TraceError
from opscope_schemas.estimates import RooflineResult
from opscope_schemas.formula import Rational, exactly, variables
from opscope_schemas.numbers import Numbers
from opscope_schemas.units import amount, counted, plain_bytes, seconds, things

from opscope_tools.compare.forwards import differing_forwards
from opscope_tools.compare.matching import Node, Pair, Part, matched_nodes, matched_parts, node_of, places
from opscope_tools.compare.sides import CompareArguments, SideArguments, contexts, sides_of, stored
from opscope_tools.costing.arguments import CostArguments, find, remarks, sources
from opscope_tools.costing.numbers import at_usual_sizes, numbers, run_sizes, usual_sizes
from opscope_tools.estimate_roofline.tool import ESTIMATE_ROOFLINE
from opscope_tools.inspect_model import INSPECT_MODEL
from opscope_tools.running.runner import BRIEF, briefest, run_tool, to_json
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.trace.document import CallTree, module_analysis
from opscope_tools.trace.engine import Found
from opscope_tools.trace.protocol import CallRecord, OpRecord
from opscope_tools.trace.serving import serving

#: characters of an answer for an agent, and rows of each list of it, the longest that fits
_DIFFERENCES = 14
#: a part of a model: what a layer of a stack calls, or what stands outside of stacks
_MODULE = re.compile(r".*?(?<![^.])(?:\*|\d+)(?![^.])(?:\.[^.]+)?|[^.]*(?:\.[^.]+)?")
#: what the fields of a model's language model begin with
_TEXT = "text_config."
#: fields of a configuration that say which one it is, not what is in it
_NAMES = {"_name_or_path", "architectures", "model_type", "transformers_version", "quantization_config"}


@dataclass(frozen=True)
class _Measured:
    """A side with its figures."""

    asked: SideArguments
    context: ToolContext
    found: Found
    values: Mapping[str, Rational]
    numbers: Numbers
    timed: RooflineResult | None
    figures: dict[str, Figure]
    nodes: Node


def compare(arguments: CompareArguments, context: ToolContext) -> CompareResult:
    """Raises what the cost tools raise, `InputError` for fewer than two sides."""
    asked = sides_of(arguments)
    with contexts(context, asked) as rooms:
        sides = [_measured(side, place) for side, place in zip(asked, rooms, strict=True)]
        by = _measure(arguments, sides)
        parts = [
            list(_timed(s.timed, by) if s.timed is not None and "seconds" in by else _counted(s, by)) for s in sides
        ]
        differences: list[Difference] = []
        modules: list[Difference] = []
        forwards: list[ForwardDifference] = []
        alike = []
        for number, other in enumerate(sides[1:], 1):
            context.checkpoint()
            nodes = matched_nodes(sides[0].nodes, other.nodes)
            same = places(nodes)
            pairs = matched_parts(parts[0], parts[number], same)
            names = (asked[0].name, asked[number].name)
            rows = [_difference(*pair, number, names) for pair in pairs]
            equal = [row for row in rows if row.effect == 0 and not row.only]
            alike.append(Alike(side=number, operators=len(equal), figure=sum(row.left or 0 for row in equal)))
            differing = [pair for pair, row in zip(pairs, rows, strict=True) if row.effect or row.only]
            differences += _by_effect(row for row in rows if row.effect or row.only)
            modules += _by_effect(_modules(differing, same[1], number, names))
            effects: dict[str, float] = {}
            for left, right in differing:
                path = _place(left, right, same[1])
                effects[path] = effects.get(path, 0) + abs(
                    (right.figure if right else 0) - (left.figure if left else 0)
                )
            forwards += differing_forwards(nodes, effects, sides[0].context, other.context, number)
        return CompareResult(
            said=_said(sides, by), by=by, sides=tuple(map(_shown, sides)), totals=_totals(sides), config=_config(sides),
            modules=tuple(modules), differences=tuple(differences), alike=tuple(alike), forwards=tuple(forwards),
            sources=sources(context.workspace), notes=_notes(sides),
        )  # fmt: skip


def _place(left: Part | None, right: Part | None, same: Mapping[str, str]) -> str:
    """Where a row is in the left pass: of what is in the right one alone, below the nearest module that both have."""
    if left is not None:
        return left.path
    path = above = right.path if right is not None else ""
    while above and above not in same:
        above = above.rpartition(".")[0]
    return ".".join(part for part in (same.get(above, ""), path[len(above) :].lstrip(".")) if part)


# ---------------------------------------------------------------- figures of a side


def _measured(side: SideArguments, context: ToolContext) -> _Measured:
    context.checkpoint()
    found, assumed = _found(stored(side, context.workspace), context)
    said = numbers(found, assumed)
    if said is None or found.values is None:
        raise TraceError(
            f"What {side.name} costs is not known at these sizes: some operator of it has no rule.",
            next_step="count_flops names it.",
        )
    served = serving(found.tree, found.call, found.values) if side.view == "serving" and not side.hardware else None
    own = served.evaluated if served is not None else None
    read, written = (own["memory_read"], own["memory_write"]) if own else (said.bytes_read, said.bytes_written)
    figures: dict[str, Figure] = {
        "flops": own["flops"] if own else said.flops, "matmul_flops": own["matmul_flops"] if own else said.matmul_flops,
        "bytes": read + written, "bytes_read": read, "bytes_written": written, "parameters": said.parameters,
        "active_parameters": said.active_parameters, "weights_bytes": said.weights_bytes,
        "cache_bytes_per_token": said.cache_bytes_per_token,
    }  # fmt: skip
    timed = None
    if side.hardware:
        given = {
            "target": side.target, "hardware": side.hardware, "phase": side.phase, "config": side.config, "view": side.view,
            "values": {**(side.values or {}), **run_sizes(found)}, "parallel": side.parallel,
            "precision": {"weights": side.weights} if side.weights else None,
        }  # fmt: skip
        timed = run_tool(ESTIMATE_ROOFLINE, given, context)
        figures |= {n: getattr(timed.totals, n) for n in ("bound_seconds", "calibrated_seconds", "tokens_per_second")}
    return _Measured(side, context, found, found.values, said, timed, figures, node_of(found.tree, found.call))


def _found(asked: CostArguments, context: ToolContext) -> tuple[Found, list[str]]:
    """The pass at its sizes, those that nobody gave at usual ones; and the names of these."""
    if not asked.values:
        return at_usual_sizes(asked, find(asked, context), context)
    general = find(asked.model_copy(update={"values": None}), context)
    missing = {name: size for name, size in usual_sizes(general).items() if name not in asked.values}
    found = find(asked.model_copy(update={"values": {**missing, **asked.values}}), context)
    return found, sorted(missing.keys() - ({"seq_len"} if asked.phase == "decode" else set()))


def _measure(arguments: CompareArguments, sides: Sequence[_Measured]) -> str:
    """The total whose difference is explained."""
    if sides[0].timed is not None and arguments.by in (None, "seconds"):
        known = all(side.figures["calibrated_seconds"] is not None for side in sides)
        return "calibrated_seconds" if known else "bound_seconds"

    def spread(name: str) -> float:
        sizes = [abs(side.figures[name] or 0) for side in sides]
        return max(sizes) / min(sizes) if min(sizes) else math.inf if max(sizes) else 1.0

    return arguments.by or max(("flops", "bytes"), key=spread)


def _runs(
    tree: CallTree, call: CallRecord, values: Mapping[str, Rational], times: Rational
) -> Iterator[tuple[str, OpRecord, Rational]]:
    """Every operator below a call with the path of its module and how often it runs."""
    for child in tree.children(call):
        runs = times * exactly(child.repeat, values)
        if isinstance(child, CallRecord):
            yield from _runs(tree, child, values, runs)
        elif {child.flops, child.read, child.write} != {"0"}:
            yield tree.pattern(call), child, runs


def _counted(side: _Measured, by: str) -> Iterator[Part]:
    """Operators of the trace, and what an engine's rules save where the side is seen as served."""
    tree, call, values = side.found.tree, side.found.call, side.values
    rows: list[tuple[str, str, str, int, str]] = []
    amounts: list[tuple[Rational, ...]] = []
    for path, op, runs in _runs(tree, call, values, 1):
        name = op.operator.removeprefix("aten.").removeprefix("opscope.").lstrip("_")
        role = "product" if op.matmul_flops != "0" else ""
        rows.append((path, name + " (backward)" * op.backward, op.site.file, op.site.line, role))
        amounts.append(tuple(runs * exactly(text, values) for text in (op.flops, op.read, op.write)))
    if side.asked.view == "serving" and not side.asked.hardware:
        for rule in serving(tree, call, values).rules:
            file, _, place = (rule.places[0] if rule.places else f"{call.file}:{call.line}").rpartition(":")
            rows.append((tree.pattern(call), f"saved: {rule.rule}", file, int(place), ""))
            saved = (-exactly(text, values) for text in (rule.saved.read, rule.saved.write))
            amounts.append((exactly(rule.flops_added, values), *saved))
    chosen = (0,) if by == "flops" else (1, 2)
    figures = zip(*(list(_whole(amount[n] for amount in amounts)) for n in chosen), strict=True)
    for (path, name, file, line, role), figure in zip(rows, figures, strict=True):
        yield Part(path, name, file, line, sum(figure), role)


def _whole(found: Iterable[Rational]) -> Iterator[int]:
    """Whole numbers that add up, as far as one comes, to the sum rounded up."""
    so_far: Rational = 0
    for one in found:
        before, so_far = math.ceil(so_far), so_far + one
        yield math.ceil(so_far) - before


def _timed(timed: RooflineResult, by: str) -> Iterator[Part]:
    """Kernels of the estimate."""
    for row in timed.operators:
        figure = row.bound_seconds if by == "bound_seconds" else row.calibrated_seconds or 0.0
        yield Part(row.module, row.operation, row.file, row.line, figure, row.kind)


# ---------------------------------------------------------------- rows


def _difference(left: Part | None, right: Part | None, side: int, names: tuple[str, str]) -> Difference:
    first = left or right
    assert first is not None
    other = right.name if right is not None and right.name != first.name else ""
    there = f"{right.file}:{right.line}" if right is not None else ""
    return Difference(
        what=f"{first.path}: {first.name}".lstrip(": ") + (f" / {other}" if other else ""), side=side,
        left=left.figure if left else None, right=right.figure if right else None,
        effect=(right.figure if right else 0) - (left.figure if left else 0),
        only="" if left and right else names[0] if left else names[1], file=first.file, line=first.line,
        right_at="" if left is None or there == f"{first.file}:{first.line}" else there,
    )  # fmt: skip


def _modules(pairs: Iterable[Pair], same: Mapping[str, str], side: int, names: tuple[str, str]) -> Iterator[Difference]:
    """What differs, by the part of the model that it is in; figures are of what differs alone."""
    groups: dict[str, list[Pair]] = {}
    for left, right in pairs:
        path = _place(left, right, same)
        found = _MODULE.match(path)
        groups.setdefault(found[0] if found and found[0] else path, []).append((left, right))
    for path, group in groups.items():
        sums: list[Part | None] = []
        for parts in ([left for left, _ in group if left], [right for _, right in group if right]):
            figure, largest = sum(part.figure for part in parts), max(parts, key=lambda p: abs(p.figure), default=None)
            named = f"{len(group)} {things(len(group), 'operator')}"
            sums.append(largest and Part(path, named, largest.file, largest.line, figure))
        yield _difference(sums[0], sums[1], side, names)


def _by_effect(rows: Iterable[Difference]) -> list[Difference]:
    return sorted(rows, key=lambda row: (-abs(row.effect), row.what))


def _config(sides: Sequence[_Measured]) -> tuple[FieldOfSides, ...]:
    """The fields that differ, those that figures depend on first."""
    held = [_fields(side) for side in sides]
    counts = {key for side in sides for key in _counting(side)}
    if not all(_is_nested(fields) for fields in held):  # a text model beside one that holds a text model
        held = [{_bare(name, fields): value for name, value in fields.items()} for fields in held]
        counts |= {key.removeprefix(_TEXT) for key in counts}
    found = []
    for name in dict.fromkeys(name for fields in held for name in fields):
        values = [fields.get(name) for fields in held]
        if any(value != values[0] for value in values):
            found.append(FieldOfSides(name=name, values=tuple(values), counts=name in counts))
    return tuple(sorted(found, key=lambda field: not field.counts))


def _is_nested(fields: Mapping[str, object]) -> bool:
    return any(name.startswith(_TEXT) for name in fields)


def _bare(name: str, fields: Mapping[str, object]) -> str:
    bare = name.removeprefix(_TEXT)
    return name if bare in fields else bare


def _counting(side: _Measured) -> Iterator[str]:
    """The fields that stand in formulas of the totals."""
    document = module_analysis(side.found.tree, side.found.call)
    access = document.totals.memory_access
    texts = (document.totals.flops, access.read, access.write, document.parameters, document.weights)
    used = {name for text in texts for name in variables(text)}
    for variable in document.variables:
        if variable.name in used:
            used |= variables(variable.definition)
    yield from (variable.config_key for variable in document.variables if variable.name in used)


def _fields(side: _Measured) -> dict[str, int | float | str | bool | None]:
    """The configuration's fields, flat; what `values` set in their place is as it was set."""
    try:
        asked = {"model": side.asked.target, "config": stored(side.asked, side.context.workspace).config}
        content = run_tool(INSPECT_MODEL, asked, side.context).config
    except CancelledError:
        raise
    except OpscopeError:  # a module that no configuration describes
        content = {}
    found = dict(_flat(content, ""))
    for variable in side.found.tree.trace.variables:
        value = side.values.get(variable.name)
        if variable.config_key and value != variable.default and not is_element(variable.name) and value is not None:
            found[variable.config_key] = value if isinstance(value, int) else float(value)
    return found


def _flat(held: Mapping[str, object], above: str) -> Iterator[tuple[str, int | float | str | bool | None]]:
    for name, value in held.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        elif name not in _NAMES:
            yield f"{above}{name}", value if isinstance(value, int | float | str | None) else str(value)[:200]


# ---------------------------------------------------------------- sides and totals


def _shown(side: _Measured) -> Side:
    call, session = side.found.call, side.context.workspace
    stack = (
        f"transformers {session.repositories['transformers'].version}"
        if side.asked.repo in session.repositories
        else ""
    )
    if side.asked.repo and not stack:
        stack = ", ".join(
            f"{n} {r.version}" for n, r in session.repositories.items() if n in ("transformers", "pytorch")
        )
    return Side(
        name=side.asked.name, target=side.asked.target, class_name=call.class_name, file=call.file, line=call.line,
        phase=side.asked.phase, at=side.numbers.at, stack=stack,
    )  # fmt: skip


def in_units(name: str, value: Figure) -> str:
    """A total as people say it."""
    if value is None:
        return "unknown" if name.endswith("seconds") else "none"
    if name.endswith("seconds"):
        return seconds(value)
    if "bytes" in name:
        return plain_bytes(value)
    return amount(value, "FLOP") if name.endswith("flops") else counted(int(value))


def _totals(sides: Sequence[_Measured]) -> tuple[TotalOfSides, ...]:
    found = []
    for name in sides[0].figures:
        first, *others = values = [side.figures[name] for side in sides]
        if any(value is not None for value in values):
            found.append(TotalOfSides(
                name=name, values=tuple(values), shown=tuple(in_units(name, value) for value in values),
                difference=tuple(None if x is None or first is None else x - first for x in others),
                ratio=tuple(round(x / first, 4) if x is not None and first else None for x in others),
            ))  # fmt: skip
    return tuple(found)


def _said(sides: Sequence[_Measured], by: str) -> str:
    names = ("flops", "bytes", *((by,) if "seconds" in by else ()))
    told = [
        f"{s.asked.name}: {', '.join(in_units(n, s.figures[n]) + ' moved' * (n == 'bytes') for n in names)}"
        for s in sides
    ]
    ratios = next(total.ratio for total in _totals(sides) if total.name == by)
    times = [f"{s.asked.name} {x:.4g} times" for s, x in zip(sides[1:], ratios, strict=True) if x is not None]
    return f"{'; '.join(told)}. In {by.replace('_', ' ')}: {', '.join(times) or 'not known'} that of {sides[0].asked.name}."


def _notes(sides: Sequence[_Measured]) -> tuple[str, ...]:
    """What a reader must know of the sides; what all of them have in common once."""
    told = [
        (
            *(f"Sizes that nobody gave: {', '.join(s.numbers.assumed)}." for _ in range(bool(s.numbers.assumed))),
            *remarks(s.found),
        )
        for s in sides
    ]
    shared = [note for note in told[0] if all(note in notes for notes in told[1:])]
    own = [
        f"{s.asked.name}: {note}" for s, notes in zip(sides, told, strict=True) for note in notes if note not in shared
    ]
    at = {tuple(sorted(s.numbers.at.items())) for s in sides}
    apart = ("The sides run at different sizes.",) if len(at) > 1 else ()
    times = ("Counts are of the eager pass with the last position's logits; times are of kernels as `view` says.",)
    return (*apart, *(times if sides[0].timed is not None else ()), *shared, *own)


def _brief(result: CompareResult) -> CompareResult:
    """The largest of every list, as many as fit."""
    return result if len(to_json(result)) <= BRIEF else briefest(lambda rows: _with_largest(result, rows), _DIFFERENCES)


def _with_largest(result: CompareResult, rows: int) -> CompareResult:
    said = (
        f"{min(rows, len(result.differences))} of {len(result.differences)} differences are given, the largest, and of the other lists "
        "fewer; the artifact is whole."
    )
    return result.model_copy(
        update={
            "differences": result.differences[:rows], "modules": result.modules[: rows // 2 + 1], "config": result.config[:rows],
            "forwards": tuple(f.model_copy(update={"lines": f.lines[:rows]}) for f in result.forwards[: rows // 3]),
            "notes": tuple(note[:240] for note in result.notes[:rows]), "shortened": said,
        }
    )  # fmt: skip


COMPARE: Tool[CompareArguments, CompareResult] = Tool(
    name="compare",
    title="Sides compared",
    description="What differs between models, phases or versions, by effect.",
    arguments=CompareArguments,
    result=CompareResult,
    run=compare,
    sources=IMPORTED,
    files=lambda workspace: workspace.device_files,
    positional=("targets",),
    brief=_brief,
    lane=lambda _: "trace",
    fresh=lambda asked: any("repo" in side for side in asked.sides or ()),
)

__all__ = ["COMPARE", "compare", "in_units"]
