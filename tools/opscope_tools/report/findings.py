"""The finding with which each section opens: one sentence, every number of it from the analysis."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from opscope_schemas.estimates import launches
from opscope_schemas.formula import evaluate, variables
from opscope_schemas.units import seconds, things

from opscope_tools.report.configuration import layer_settings
from opscope_tools.report.facts import ImplementationFacts, is_leaf, issued_in, leaves, short, walk
from opscope_tools.report.insights import share_of_time
from opscope_tools.report.kinds import kinds_of
from opscope_tools.report.nodes import layer_lists
from opscope_tools.report.parallel import Split, strategies
from opscope_tools.report.quotes import Quotes, joined
from opscope_tools.report.reference import without_positions
from opscope_tools.report.tasks import Task

__all__ = ["findings", "ranks_line"]

#: lists of layers that are named
_LISTS = 4
#: share from which a part is called most
_HALF = 0.5
_PINNED = re.compile(r"\{(\w+)\} == \d+")
#: sizes that a model may make itself
_SHAPES = frozenset({"head_dim", "intermediate_size", "num_kv_heads"})
_LENGTHS = frozenset({"seq_len", "encoder_seq_len", "cache_len"})


def findings(facts: ImplementationFacts, catalogue: Sequence[Task], quotes: Quotes) -> dict[str, str]:
    """By the number of a section."""
    return {
        "2": _layers(facts, quotes),
        "3": _parameters(facts, quotes),
        "4": _dearest(facts, quotes),
        "5": _tasks(facts, catalogue, quotes),
        "6": _chain(facts, quotes),
        "7": _split(facts, quotes),
        "8": _limits(facts),
        "9": _positions(facts, quotes),
        "10": _files(facts, quotes),
        "11": "FLOPs and bytes of eager execution follow the conventions below; what times are the sum of stands in section 8.2. A figure with a comment `fact:KEY` in the Markdown stands under that key in the facts file beside the report.",
    }


def _layers(facts: ImplementationFacts, quotes: Quotes) -> str:
    """What share of the parameters stands in layers, and in which lists these are."""
    found = layer_lists(facts.tree.tree)
    held = sum(node.parameters for nodes in found.values() for node in nodes)
    if not held or not facts.tree.parameters:
        return f"`{short(facts.subject)}` repeats no layer."
    share = quotes.decimal("layers.share_of_parameters", 100 * held / facts.tree.parameters, 1)
    names = [f"`{path}`" for path, nodes in found.items() if path and any(node.parameters for node in nodes)]
    more = [f"{len(names) - _LISTS} further lists"] if len(names) > _LISTS + 1 else []
    of = f" (those of {joined([*names[:_LISTS], *more] if more else names)})" * bool(names)
    return f"Repeated layers{of} hold {share} % of the parameters; the rest stands outside of them."


def _pinned(facts: ImplementationFacts, sizes: Sequence[str]) -> dict[str, list[str]]:
    """Sizes at whose value alone formulas hold, by the passes of which that is said; '' of all."""
    found: dict[str, list[str]] = {}
    for name in sizes:
        by = [
            d.phase
            for d in facts.documents
            if any((p := _PINNED.fullmatch(c)) is not None and p[1] == name for c in d.conditions)
        ]
        if by:
            found.setdefault("" if len(by) == len(facts.documents) else " and ".join(by), []).append(name)
    return found


def _parameters(facts: ImplementationFacts, quotes: Quotes) -> str:
    """The sizes that formulas of FLOPs and bytes of a whole pass name, those that bound where these hold, and the settings that say
    which layer is of which kind."""
    totals = [
        each
        for d in facts.documents
        for each in (d.totals.flops, d.totals.memory_access.read, d.totals.memory_access.write)
    ]
    used = frozenset().union(*map(variables, totals))
    known = {v.name: v for document in facts.documents for v in document.variables}
    used |= {name for v in known.values() if v.kind == "derived" and v.name in used for name in variables(v.definition)}
    sizes = [v for v in known.values() if v.config_key and v.name in used]
    named = ", ".join(f"`{v.name}`" for v in sizes)
    alone = "".join(
        f"; of them {_and(fixed)} at {'its value' if len(fixed) == 1 else 'their values'} alone{f' in {phases}' if phases else ''}"
        for phases, fixed in _pinned(facts, [v.name for v in sizes]).items()
    )
    bounds = [variables(c) for d in facts.documents for c in d.conditions if "<" in c and variables(c) & _LENGTHS]
    bounding = frozenset().union(*bounds) - used - facts.position_names
    beyond = [v.name for v in known.values() if v.config_key and v.name in bounding]
    outside = f" and, outside the conditions of section 3.3, from {_and(beyond)}" if beyond else ""
    deciding = [
        name for name in layer_settings(facts) if name not in {v.config_key for v in sizes if v.name == "num_layers"}
    ]
    made = [v.name for v in known.values() if not v.config_key and v.name in used and v.name in _SHAPES]
    outside += (
        f", and from {_and(made)}, which the model makes where the configuration has no such field" if made else ""
    )
    kinds = f"; which layer is of which kind, {_and(deciding)} say{'s' * (len(deciding) == 1)}" if deciding else ""
    return f"What a pass costs follows from {quotes('config.symbols', len(sizes))} sizes of the configuration{f' ({named}{alone})' if named else ''} and from those of the call{outside}{kinds}. Every other field is taken at its value of section 3.1: where what ran reads it, another value is another trace."


def _and(names: Sequence[str]) -> str:
    return joined([f"`{name}`" for name in names])


def _dearest(facts: ImplementationFacts, quotes: Quotes) -> str:
    """The class that takes most of the time without holding another that is told of."""
    outer = {m.class_name for m in facts.modules if any(_inner(facts, k.class_name) for k in m.kernels)}
    said = []
    for document in facts.documents:
        shares = {
            m.class_name: found
            for m in facts.modules
            if m.class_name not in outer and facts.of_models(m.file) and (found := share_of_time(facts, document, m))
        }
        if shares:
            name = max(shares, key=lambda name: shares[name])
            key = f"module.{name}.{document.phase}.share_of_time"
            said.append(f"`{short(name)}` {quotes.decimal(key, 100 * shares[name], 1)} % of {document.phase}")
    return (
        f"Among the model's own classes that hold no other with more than one operator or module in it, all inside each counted to it, the largest part of the time goes to {', '.join(said)}."
        if said
        else "What each class computes and moves, from its own operators."
    )


def _inner(facts: ImplementationFacts, class_name: str) -> bool:
    """Whether a class of the model's own computes something."""
    return any(m.class_name == class_name and facts.of_models(m.file) and len(m.kernels) > 1 for m in facts.modules)


def _tasks(facts: ImplementationFacts, catalogue: Sequence[Task], quotes: Quotes) -> str:
    values, whole = facts.point(facts.main), facts.totals(facts.main)
    flops = {group.name: evaluate(group.flops, values) for group in facts.main.per_operator}
    said = f"{quotes('tasks', len(catalogue))} tasks"
    if not whole.flops or not flops:
        return f"{said}."
    name = max(flops, key=lambda name: flops[name])
    share = quotes.decimal("tasks.largest.share_of_flops", 100 * flops[name] / whole.flops, 1)
    return f"{said}, of which {name} takes {share} % of the FLOPs of {facts.main.phase}."


def _chain(facts: ImplementationFacts, quotes: Quotes) -> str:
    graph = facts.graphs[0]
    if kinds_of(facts, facts.main):  # how layers of several kinds follow each other, the graph does not hold
        return f"{facts.main.phase.capitalize()} runs {quotes('flow.operators', len(graph.operators))} operators where one layer of each kind counts once: those that are listed here."
    depth, values = quotes("flow.depth", graph.depth), facts.point(facts.main)
    looped = any(
        evaluate(kernel.repeat, values) > evaluate(call.repeat, values)
        for _, _, call in walk(facts.main.kernels, "")
        for kernel in call.kernels or ()
        if is_leaf(kernel)
    )
    once = "each run of them counted"
    if any(evaluate(operator.repeat, values) > 1 for operator in graph.operators):
        once = f"what repeats{', also the steps of loops, which follow one another,' if looped else ''} counted once"
    return (
        f"The longest chain of {facts.main.phase} is {depth} of {quotes('flow.operators', len(graph.operators))} {things(len(graph.operators), 'operator')}, "
        f"{once}: what stands beside it may run at the same time."
    )


def _split(facts: ImplementationFacts, quotes: Quotes) -> str:
    if not facts.spread:
        declared = any(plan.found for plan in strategies(Split.of(facts)) if plan.kind == "tensor")
        undeclared = "" if declared else " The source declares no tensor-parallel plan."
        why = f": {facts.unspread}" if facts.unspread else "."
        return f"No size per rank is told{why}{undeclared}"
    most = max(facts.spread)
    fewest, found = facts.served.get(_step(facts)), facts.spread[most]
    before, after = (one.totals.calibrated_seconds if one else None for one in (fewest, found))
    few = fewest.parallel.devices if fewest is not None and fewest.parallel is not None else 1
    key = f"rank.tp{most}"
    text = f"Over {quotes(f'{key}.ranks', most)} {things(most, 'device')}{facts.joined}, as engines split it{', embeddings too' if 'vocab_size' in facts.formula_names(facts.main) else ''}, a rank holds {quotes.said(f'{key}.weights', found.memory.weights_bytes)} of weights{', what did not run whole' if facts.idle else ''}"
    if not found.memory.fits:
        text += ", more than it has room for"
    elif before and after and few < most:
        was = f"{_step(facts)}.time{'.held' * bool(facts.held)}.calibrated"
        text += f", and a {_step(facts)} step is modelled to take {quotes.said(f'{key}.time', after)} in place of {quotes.said(was, before)}{f' on {few}' * (few > 1)}{', had one the memory' * (fewest is not None and not fewest.memory.fits)}"
    return f"{text}."


def _step(facts: ImplementationFacts) -> str:
    return next(iter(facts.spread.values())).phase if facts.spread else facts.main.phase


def ranks_line(facts: ImplementationFacts, quotes: Quotes) -> list[str]:
    """What one rank of tensor parallelism holds and how long its passes take, by the number of ranks."""
    said = []
    for tp, found in facts.spread.items():
        key, use = f"rank.tp{tp}", found.memory
        parts = [f"weights {quotes.said(f'{key}.weights', use.weights_bytes)}"]
        if use.cache_bytes:
            parts.append(f"cache {quotes.said(f'{key}.cache', use.cache_bytes)}")
        if not use.fits and use.usable_bytes:
            parts.append(f"more than the {quotes.said('rank.usable', use.usable_bytes)} of one")
        elif found.totals.calibrated_seconds is not None:
            parts.append(f"{found.phase} {quotes.said(f'{key}.time', found.totals.calibrated_seconds)}")
            if found.phase == "decode" and found.memory.largest_batch:
                parts.append(
                    f"room for {quotes(f'{key}.largest_batch', found.memory.largest_batch)} such {things(found.memory.largest_batch, 'sequence')}"
                )
        prompt = facts.spread_prefill.get(tp)
        if prompt is not None and prompt.memory.fits and prompt.totals.calibrated_seconds is not None:
            parts.append(f"{prompt.phase} {quotes.said(f'{key}.prefill.time', prompt.totals.calibrated_seconds)}")
        said.append(f"{quotes(f'{key}.ranks', tp)} {things(tp, 'rank')}: {', '.join(parts)}")
    device = next(iter(facts.spread.values())).hardware.name if facts.spread else ""
    differs = dict.fromkeys(
        one for found in facts.spread.values() if found.parallel is not None for one in found.parallel.differs
    )
    return (
        [
            f"**Per rank** on {device}{facts.joined}, modelled, split as engines do it and not as a declared plan says: {'; '.join(said)}.{''.join(f' {one}' for one in differs)}"
        ]
        if said
        else []
    )


def _limits(facts: ImplementationFacts) -> str:
    said = []
    for document in facts.documents:
        found = facts.served.get(document.phase)
        if found is not None:
            time = found.totals.calibrated_seconds or found.totals.bound_seconds
            first = found.spent[0] if found.spent else None
            part = "most" if first is None or first.share > _HALF else "the largest part"
            kind = first.name if first is not None else "nothing"
            by = "the fixed time of its kernels" if launches(found.totals) else str(found.totals.limited_by)
            if not launches(found.totals) and found.totals.bound_seconds < _HALF * time:
                by += f" (the bound is {100 * found.totals.bound_seconds / time:.0f} % of the time)"
            bound = "" if launches(found.totals) else " in its bound"
            said.append(f"{document.phase}{bound} by {by}, with {part} of the modelled {seconds(time)} in {kind}")
        else:
            said.append(f"{document.phase} by {facts.limited(document)[0]}")
    spread = next((one.parallel for one in facts.held.values()), None)
    where = f" on the fewest of these devices that hold the passes, {spread.devices}" if spread is not None else ""
    return f"Limited{where}: {'; '.join(said)}."


def _positions(facts: ImplementationFacts, quotes: Quotes) -> str:
    limit = facts.limit
    if without := without_positions(facts):
        return f"{without}: the conditions of section 3.3 bound its sizes."
    room = (
        f"states {quotes('positions', limit)} positions, and no table holds them"
        if limit
        else "names no limit of positions"
    )
    if limit and facts.table_rows is not None:
        rows = quotes("table_positions", facts.table_rows)
        room = f"states {quotes('positions', limit)} positions, and a table has those of a sequence of {rows} tokens"
    elif limit is None and facts.table_weight is not None:
        name, rows = facts.table_weight[0], quotes("table_positions", facts.table_weight[1])
        room = f"{room}; the weight `{name}` holds {rows}"
    elif limit and all(map(facts.unread, facts.positions)):
        room = f"names {quotes('positions', limit)} positions, which the model's file reads nowhere"
    return f"`{short(facts.tree.config_class)}` {room}."


def _files(facts: ImplementationFacts, quotes: Quotes) -> str:
    issued = Counter(issued_in(kernel) for _, kernel in leaves(facts.main))
    path = facts.modeling_file
    count = issued[path]
    return (
        f"Begin at `{path}`: its lines issue {quotes('files.first', count)} of the {quotes('files.operators', issued.total())} "
        "operators."
    )
