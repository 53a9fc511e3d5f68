"""Kinds of calls of a class, in words: which kind a section shows, how many calls are of each, and what one of them costs."""

from __future__ import annotations

from collections.abc import Sequence

from opscope_schemas.analysis import Kernel, ModuleAnalysis
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import Formula, variables
from opscope_schemas.units import amount, things

from opscope_tools.report.facts import CallKind, ImplementationFacts, short, size_at, walk
from opscope_tools.report.flow import bare
from opscope_tools.report.kinds import layers_told
from opscope_tools.report.nodes import layers_of, node_of, weights_of
from opscope_tools.report.quotes import Quotes

__all__ = ["kinds_told", "place_shown", "shown", "width_of"]

#: kinds that are told, and places and called modules of one that are
_KINDS, _PLACES = 5, 3


def shown(facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> str:
    """The sentence that says which calls a section is of, where the calls of its class differ."""
    kinds = facts.call_kinds.get(module.class_name, ())
    if len(kinds) < 2:
        return ""
    key = f"module.{module.class_name}"
    total = quotes(f"{key}.calls", sum(kind.count for kind in kinds))
    first, name = quotes(f"{key}.kind1.calls", kinds[0].count), short(module.class_name)
    verb, costs = ("is", "costs") if kinds[0].count == 1 else ("are", "together cost")
    measure = "modelled time" if kinds[0].seconds is not None else "bytes and FLOPs at the roofs"
    most = "most"
    if (kinds[0].count, kinds[0].each, kinds[0].seconds) == (kinds[1].count, kinds[1].each, kinds[1].seconds):
        most = f"as much as those of the {'next kind and more than others' if len(kinds) > 2 else 'other kind'}"
    return (
        f" The {total} calls of `{name}` in {facts.main.phase} are of {quotes(f'{key}.kinds', len(kinds))} kinds; shown here "
        f"{verb} the {first} at {_where(facts, kinds, kinds[0])}, which {costs} {most} by {measure}."
    )


def place_shown(facts: ImplementationFacts, module: ModuleAnalysis) -> str:
    """Where the calls stand whose formulas a section shows; empty where those of its class are all alike.

    What costs as much at these sizes may cost something else at others.
    """
    kinds = facts.call_kinds.get(module.class_name, ())
    if not kinds:
        return ""
    first = kinds[0]
    alike: list[Kernel] = []
    others: list[Kernel] = []
    for call in first.calls:
        (alike if _by_one_formula(call, first.shown) else others).append(call)
    if len(kinds) < 2 and not others:
        return ""
    more = f" (those of {_where(facts, kinds, first, others)} cost as much here by others)" if others else ""
    return f"{_where(facts, kinds, first, alike)}{more}"


def _by_one_formula(call: Kernel, other: Kernel) -> bool:
    """Whether one run of both costs the same whatever the sizes."""
    times, others = Formula.parse(call.repeat), Formula.parse(other.repeat)
    pairs = [
        (call.flops, other.flops),
        *((getattr(call.memory_access, n), getattr(other.memory_access, n)) for n in ("read", "write")),
    ]
    try:
        return all(Formula.parse(a) * others == Formula.parse(b) * times for a, b in pairs)
    except ValuesError:  # a formula that the algebra cannot divide exactly
        return all(a == b for a, b in pairs)


def kinds_told(facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> str:
    """What tells the kinds of calls of a class apart, and what each costs; empty where there is one."""
    kinds = facts.call_kinds.get(module.class_name, ())
    if len(kinds) < 2:
        return ""
    most = _KINDS if len(kinds) > _KINDS + 1 else len(kinds)  # one more is told rather than counted
    told = [
        _kind(facts, kinds, place, f"module.{module.class_name}.kind{place + 1}", quotes)
        for place in range(len(kinds[:most]))
    ]
    rest = kinds[most:]
    calls = sum(kind.count for kind in rest)
    more = f"; {calls} {things(calls, 'call')} more are of {len(rest)} further kinds" if rest else ""
    return f"`{short(module.class_name)}`, one call of each kind: {'; '.join(told)}{more}."


def _kind(facts: ImplementationFacts, kinds: Sequence[CallKind], place: int, key: str, quotes: Quotes) -> str:
    """Number and place of its calls, cost of one, its weights, its width and what it calls where others differ in that."""
    kind = kinds[place]
    parts = [
        f"{quotes(f'{key}.calls', kind.count)} at {_where(facts, kinds, kind)}{' (shown)' * (not place)}",
        f"{quotes.said(f'{key}.flops', kind.each.flops)} and {quotes.said(f'{key}.bytes', kind.each.bytes)}",
    ]
    if kind.seconds is not None:
        parts.append(f"{quotes.said(f'{key}.time', kind.seconds)}{' together' * (kind.count > 1)} as modelled")
    widths = [width_of(facts, each) for each in kinds]
    if (width := widths[place]) is not None and len(set(widths)) > 1:
        parts.append(f"on vectors of {quotes(f'{key}.width', width)}")
    nodes = [node for call in kind.calls if (node := node_of(facts, call.class_name, call)) is not None]
    weights = {weights_of(facts.tree, node) for node in nodes} - {0}
    if len(weights) == 1:
        parts.append(f"{quotes(f'{key}.weights', weights.pop())} weights")
    called = [
        dict.fromkeys((k.attribute, k.class_name) for k in each.shown.kernels or () if k.class_name) for each in kinds
    ]
    own = [one for one in called[place] if not all(one in others for others in called)]
    if own:
        parts.append(f"calling {', '.join(f'`{short(name)}` (`{attribute}`)' for attribute, name in own[:_PLACES])}")
    run = [{bare(k.operator) for _, _, k in walk(each.shown.kernels or (), "") if k.operator} for each in kinds]
    apart = sorted(run[place].difference(set[str].intersection(*run))), sorted(set[str]().union(*run) - run[place])
    names = apart[0] or apart[1]
    word, others = ("running", ", as not all kinds do") if apart[0] else ("without", ", which others run")
    if names and all(each == called[0] for each in called):
        more = f" and {len(names) - _PLACES} more" if len(names) > _PLACES else ""
        parts.append(f"{word} {', '.join(f'`{name}`' for name in names[:_PLACES])}{more}{others}")
    return ", ".join(parts)


def _where(
    facts: ImplementationFacts, kinds: Sequence[CallKind], kind: CallKind, calls: Sequence[Kernel] | None = None
) -> str:
    """The places of the calls of one of `kinds`, or of some of them, with the numbers of the layers where not all of a list have it."""
    places: dict[str, dict[str, None]] = {}
    numbers = layers_told(facts, facts.main)
    others = {facts.path_of(call) for each in kinds if each is not kind for call in each.calls}
    for call in kind.calls if calls is None else calls:
        path = facts.path_of(call)
        places.setdefault(path, {})[numbers.get(id(call), "") if path in others else layers_of(facts, call)] = None
    told = [
        f"`{path}`{f' ({said})' if (said := '; '.join(filter(None, layers))) else ''}"
        for path, layers in places.items()
    ]
    return f"{', '.join(told[:_PLACES])}{f' and {len(told) - _PLACES} more' if len(told) > _PLACES else ''}"


def width_of(facts: ImplementationFacts, kind: CallKind) -> int | None:
    """The length of the vectors that a call is given; None where that is no number, or none of the model's own (channels stand first)."""
    first = next((tensor.shape for tensor in kind.shown.inputs if tensor.shape and "float" in tensor.dtype), None)
    of_run = {variable.name for variable in facts.main.variables if not variable.config_key}
    if first and variables(first[-1]) & of_run:
        return None
    width = size_at(first[-1], facts.point(facts.main)) if first else None
    return width if isinstance(width, int) else None


def _flops(value: float) -> str:
    return amount(value, "FLOP")
