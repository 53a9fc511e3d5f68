"""Section 1's table: the main figures of each pass, a column for each; what they hold for stands below it, in the story.

Counts are of the eager pass, as everywhere in the report; times and memory of the pass as engines run it on the devices that are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opscope_schemas.analysis import Kernel, ModelAnalysis
from opscope_schemas.estimates import MemoryUse, RooflineResult, launches
from opscope_schemas.formula import Rational, evaluate, holds, variables
from opscope_schemas.units import plain_bytes, things

from opscope_tools.report.changes import STEPS, units
from opscope_tools.report.facts import ImplementationFacts, short, walk
from opscope_tools.report.kinds import windowed
from opscope_tools.report.markdown import FACT_MARK, table
from opscope_tools.report.quotes import Quotes, as_prose

__all__ = ["devices_said", "glance", "times_said"]

#: parts of a sum that are named
_PARTS = 3
#: of the tokens of all sequences that fit, those that fit in one where what a pass keeps grows faster than its length
_STEEP = 0.9
#: of the memory that engines use: what is left of it where a pass fits barely
_BARELY = 0.08
#: of the slowest kernel's time: what takes as much takes as long
_ALIKE = 0.999
#: of the longest of what limits a pass: what limits it nearly as long
_NEAR = 0.9


def glance(facts: ImplementationFacts, quotes: Quotes) -> str:
    """A column for each pass, a row for each figure that one of them has."""
    columns = [dict(_figures(facts, document, quotes)) for document in facts.documents]
    heads = [f"{facts.called(one, quotes)}{_one_position(one, facts.point(one))}" for one in facts.documents]
    names = (
        "FLOPs",
        "Bytes, run eagerly",
        "Most bytes, by own lines",
        "Bytes, as engines run it",
        "Time, modelled as engines run it",
        "Bound",
        "Where the time goes",
    )
    told = [*names, *dict.fromkeys(name for column in columns for name in column if name not in names)]
    rows = [(name, *(column.get(name, "–") for column in columns)) for name in told]
    return table(("Figure", *heads), [row for row in rows if set(row[1:]) != {"–"}])


def times_said(facts: ImplementationFacts) -> list[str]:
    """How long passes take, without marks, for the reply beside the report."""
    said = []
    for phase, found in facts.served.items():
        told = {name: FACT_MARK.sub("", text) for name, text in _timed(facts, phase, found, Quotes())}
        step = f"One call in {phase}" if facts.within else STEPS[phase].capitalize()
        said.append(
            f"{step} on {devices_said(facts, None)} {found.hardware.name}, modelled as engines run it: {told['Time, modelled as engines run it']}; bound {told['Bound']}."
        )
    return said


def devices_said(facts: ImplementationFacts, quotes: Quotes | None) -> str:
    """How many there are of the device that is named."""
    plan = next((found.parallel for found in facts.served.values()), None)
    if plan is None:
        return "one"
    return quotes("devices", plan.devices) if quotes else f"{plan.devices:,}"


def _figures(facts: ImplementationFacts, document: ModelAnalysis, quotes: Quotes) -> Iterator[tuple[str, str]]:
    """Of a pass, under the names of their rows."""
    phase, figures, values = document.phase, facts.totals(document), facts.point(document)
    products = quotes.said(f"{phase}.matmul_flops", figures.matmul_flops)
    yield "FLOPs", f"{quotes.said(f'{phase}.flops', figures.flops)}, of which matrix products {products}"
    ran = sum(evaluate(group.count, values) for group in document.per_operator)  # a loop over tokens shows here
    moved, intensity = (
        quotes.said(f"{phase}.bytes", figures.bytes),
        quotes.decimal(f"{phase}.intensity", figures.intensity),
    )
    yield (
        "Bytes, run eagerly",
        f"{moved} in {quotes(f'{phase}.operators', ran)} {things(ran, 'operator')}: {intensity} FLOPs per byte",
    )
    if most := _classes(document, values, quotes):
        yield "Most bytes, by own lines", most
    if (found := facts.served.get(phase)) is not None:
        yield from _timed(facts, phase, found, quotes)
        yield from _held(facts, phase, quotes)


def _classes(document: ModelAnalysis, values: Mapping[str, Rational], quotes: Quotes) -> str:
    """The classes whose own lines move most."""
    moved = {
        group.name: evaluate(group.memory_access.read, values) + evaluate(group.memory_access.write, values)
        for group in document.per_class
    }
    most = sorted((name for name in moved if moved[name]), key=lambda name: -moved[name])[:_PARTS]
    return ", ".join(
        f"`{short(name)}` {quotes.said(f'{document.phase}.class.{name}.bytes', moved[name])}" for name in most
    )


def _one_position(document: ModelAnalysis, values: Mapping[str, Rational]) -> str:
    """Of which positions logits are, where there are several."""
    if values.get("seq_len", 1) <= 1 or document.phase != "prefill":
        return ""
    last = document.kernels[-1].outputs if document.kernels else ()
    many = any("vocab_size" in variables(size) for out in last for size in out.shape)
    return (
        " with logits of the last position alone"
        if document.logits == "last"
        else " with logits of every position" * many
    )


# ---- time


def _timed(facts: ImplementationFacts, phase: str, found: RooflineResult, quotes: Quotes) -> Iterator[tuple[str, str]]:
    """Calibrated with its spread where that is known, else the bound; rates only of what fits and of whole passes over text."""
    of, totals = f"{phase}.time{'.held' * bool(facts.held)}", found.totals
    kernels = sum(row.count for row in found.operators)
    if (whole := facts.whole(phase)) is not None:
        ran = f"{quotes(f'{of}.kernels', kernels)} {things(kernels, 'kernel')}"
        how = f" in all; split, {ran} one after another" if facts.held else f" in {ran}"
        yield "Bytes, as engines run it", f"{quotes.said(f'{phase}.time.bytes', whole.totals.bytes)}{how}"
    bound, rate = quotes.said(f"{of}.bound", totals.bound_seconds), totals.tokens_per_second
    if totals.calibrated_seconds is None:
        time, rate = f"at least {bound}: nothing like it was measured", totals.bound_tokens_per_second
    else:
        low, high = (
            quotes.said(f"{of}.{name}", value or 0.0)
            for name, value in (("low", totals.low_seconds), ("high", totals.high_seconds))
        )
        time = f"{quotes.said(f'{of}.calibrated', totals.calibrated_seconds)} ({low} to {high})"
    if rate is not None and _of_text(facts, phase):
        most = " at most" * (totals.calibrated_seconds is None)
        time += (
            f", {quotes(f'{of}.tokens_per_second', round(float(f'{rate:.3g}')))} tokens/s{_whose(facts, phase)}{most}"
        )
    yield "Time, modelled as engines run it", f"{'had it the memory, ' * (not found.memory.fits)}{time}"
    limit = f"{bound}, by {_limited(found)}"
    if (started := launches(totals)) is not None:
        explains = quotes.decimal(f"{of}.bound_share", 100 * totals.bound_seconds / (totals.calibrated_seconds or 1), 0)
        fixed = quotes.decimal(f"{of}.launch_share", 100 * started, 0)
        limit += (
            f": {explains} % of the modelled time; {fixed} % of that time is fixed for each kernel, whatever its size"
        )
    yield "Bound", limit
    if goes := _dominant(facts, of, found, quotes):
        yield "Where the time goes", goes
    if encoder := _of_encoder(facts, phase, found):
        yield "Time in the encoder", quotes.said(f"{of}.encoder", encoder)


def _limited(found: RooflineResult) -> str:
    """What the bound of most of a pass is, and what is nearly as much."""
    spent: dict[str, float] = {}
    for row in found.operators:
        if row.limited_by is not None:
            spent[row.limited_by] = spent.get(row.limited_by, 0.0) + row.bound_seconds
    near = [
        kind for kind, time in spent.items() if kind != found.totals.limited_by and time > _NEAR * max(spent.values())
    ]
    return f"{found.totals.limited_by}{''.join(f', and by {kind} nearly as long' for kind in near)}"


def _dominant(facts: ImplementationFacts, of: str, found: RooflineResult, quotes: Quotes) -> str:
    """What most of the time is spent on, and the line of the kernel that takes most."""
    parts = [one for one in found.spent if one.share >= 0.005][:_PARTS]
    if not parts:
        return ""
    told = [f"{one.name} {quotes.decimal(f'{of}.{one.name}', 100 * one.share, 0)} %" for one in parts]
    slowest, *others = sorted(found.operators, key=found.seconds_of, reverse=True)
    alike = sum(1 for one in others if found.seconds_of(one) >= _ALIKE * found.seconds_of(slowest))
    names = slowest.operation.split(", ")
    operation = (
        slowest.operation if len(names) <= _PARTS else f"{', '.join(names[:_PARTS])} and {len(names) - _PARTS} more"
    )
    at = as_prose(f"{operation} of {slowest.module}" if slowest.module else operation)  # names are no emphasis
    runs = f", {quotes(f'{of}.slowest.kernels', slowest.count)} runs" * (slowest.count > 1)
    share = quotes.decimal(
        f"{of}.slowest", 100 * found.seconds_of(slowest) / sum(map(found.seconds_of, found.operators)), 0
    )
    same = f", and as much in {alike} other {things(alike, 'kernel')}" if alike else ""
    file, line = facts.place_of(slowest)
    return f"{', '.join(told)}; most in {at} (`{file}:{line}`{runs}): {share} %{same}"


def _of_encoder(facts: ImplementationFacts, phase: str, found: RooflineResult) -> float:
    """Seconds of a pass of encoder and decoder that modules take on which the decoder's tokens have no bearing; 0 where it is of one."""
    document = facts.document_of(phase)
    if facts.main is not document or not {"encoder_seq_len", "seq_len"} <= {one.name for one in document.variables}:
        return 0.0
    paths = [facts.path_of(kernel) for kernel in _encoding(document.kernels)]
    rows = [row for row in found.operators if any(f"{row.module}.".startswith(f"{path}.") for path in paths)]
    return sum(row.calibrated_seconds or row.bound_seconds for row in rows)


def _encoding(kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """The outermost calls that read what an encoder is given, and nothing as long as the decoder's tokens are."""
    for kernel in kernels:
        below = [kernel, *(one for _, _, one in walk(kernel.kernels or (), ""))]
        sizes = {
            name
            for one in below
            for tensor in (*one.inputs, *one.outputs)
            for size in tensor.shape
            for name in variables(size)
        }
        if kernel.kernels and "encoder_seq_len" in sizes and "seq_len" not in sizes:
            yield kernel
        else:
            yield from _encoding(kernel.kernels or ())


def _whose(facts: ImplementationFacts, phase: str) -> str:
    """Whose tokens a pass is given that reads what an encoder read."""
    inputs = facts.document_of(phase).model_inputs
    return " of the decoder" * any(one.name.startswith("decoder_") for one in inputs)


def _of_text(facts: ImplementationFacts, phase: str) -> bool:
    """Whether a rate of tokens says something: not of one call in a pass, nor of a pass over pictures beside a text."""
    inputs = facts.document_of(phase).model_inputs
    return not facts.within and (phase != "forward" or not any("float" in each.dtype for each in inputs))


# ---- memory


def _held(facts: ImplementationFacts, phase: str, quotes: Quotes) -> Iterator[tuple[str, str]]:
    """What a pass keeps beside what a device has; where that is too much, also what each of those keeps that hold it; what else fits."""
    key, use = f"{phase}.memory", facts.estimates[phase].memory
    quotes.said(f"{key}.usable", use.usable_bytes)
    yield "Memory of one", f"{_kept(key, use, quotes)}: {_fit(key, use, quotes)}"
    if facts.held:
        key, use = f"{key}.held", facts.held[phase].memory
        plan = facts.held[phase].parallel
        split = plan is not None and plan.tp > 1
        kept = _kept(key, use, quotes, " counted whole, of which a rank holds a part" * split)
        yield f"Memory of each of {devices_said(facts, quotes)}", f"{kept}: {_fit(key, use, quotes)}"
    if room := ", or ".join(_room(facts, phase, key, use, quotes)):
        yield f"Room for {'about' if facts.held else 'at most'}", room


def _kept(key: str, use: MemoryUse, quotes: Quotes, of_activations: str = "") -> str:
    """What a device keeps in a pass."""
    parts = [f"weights {quotes.said(f'{key}.weights', use.weights_bytes)}"]
    if use.cache_bytes:
        parts.append(f"cache {quotes.said(f'{key}.cache', use.cache_bytes)}")
    if use.activation_bytes is not None:
        parts.append(f"activations {quotes.said(f'{key}.activations', use.activation_bytes)}{of_activations}")
    if use.notable_inputs:
        parts.append(f"inputs {quotes.said(f'{key}.inputs', use.input_bytes)}")
    return ", ".join(parts)


def _fit(key: str, use: MemoryUse, quotes: Quotes) -> str:
    """Whether that fits, and how well."""
    spare = use.usable_bytes - use.needed_bytes
    if not use.fits:
        return f"does not fit in {plain_bytes(use.usable_bytes)}"
    if spare < _BARELY * use.usable_bytes:
        return f"fits with {quotes.said(f'{key}.spare', spare)} to spare, which the runtime's own buffers may take"
    return f"fits, {plain_bytes(use.needed_bytes)} of {plain_bytes(use.usable_bytes)}"


def _room(facts: ImplementationFacts, phase: str, key: str, use: MemoryUse, quotes: Quotes) -> Iterator[str]:
    """How many such sequences, or how long ones, a pass could have there."""
    if use.largest_batch:
        eager = _run_eagerly(facts, phase, f"{key}.largest_batch", {"batch_size": use.largest_batch}, quotes)
        yield f"{quotes(f'{key}.largest_batch', use.largest_batch)} {units(facts, phase)} like these{' in one pass' * (phase == 'prefill')}{eager}"
    if use.longest_context and facts.table_rows is not None and use.longest_context > facts.table_rows:
        yield f"contexts of all {quotes('table_positions', facts.table_rows)} tokens that a table has positions for, in this batch"
    elif use.longest_context:
        yield f"contexts of {quotes(f'{key}.longest_context', use.longest_context)} tokens{_whose(facts, phase)} in this batch{''.join(_of_context(facts, phase, key, use, quotes))}"


def _of_context(facts: ImplementationFacts, phase: str, key: str, use: MemoryUse, quotes: Quotes) -> Iterator[str]:
    """What is to be said of the longest context that fits."""
    longest = use.longest_context or 0
    if windowed(facts):
        yield " (of which layers with windows keep no more than these)"
    at = facts.point(facts.document_of(phase))
    together = (use.largest_batch or 0) * at.get("seq_len", 0) / at.get("batch_size", 1)
    if phase == "prefill" and longest < _STEEP * together:
        yield " (fewer than these sequences hold together: masks and what else the pass keeps grow faster than the length)"
    if phase != "decode":
        yield _run_eagerly(facts, phase, key, {"seq_len": longest}, quotes)
    if facts.limit is not None and longest > facts.limit:
        yield f", more than the {quotes('positions', facts.limit)} positions that the configuration states"


def _run_eagerly(facts: ImplementationFacts, phase: str, key: str, changed: Mapping[str, int], quotes: Quotes) -> str:
    """What a pass of so many tokens or sequences holds at least where it is run eagerly, if that is more than a device of the report has;
    empty where it is not, or no formula tells."""
    document, peaks = facts.document_of(phase), facts.graph_of(facts.document_of(phase)).peaks
    point = facts.point(document)
    there = {**point, **changed}
    asked = [c for c in document.conditions if variables(c) <= point.keys() and holds(c, point)]
    if facts.held or not all(
        holds(c, there) for c in asked
    ):  # what each of several devices holds then no formula tells
        return ""
    eager = max((evaluate(one.bytes, there) for one in peaks if variables(one.bytes) <= there.keys()), default=0)
    if eager <= facts.estimates[phase].memory.usable_bytes:
        return ""
    many = quotes.said(f"{key}.eager_activations", eager)
    return f" (run eagerly, as its source is, activations alone would take {many} there)"
