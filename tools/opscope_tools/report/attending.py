"""Heads of attention and what is kept: of each class by the shapes that its own operators are given, of the model where all agree.

A model of several towers has several kinds of attention; what the configuration of one of them says holds in its own class alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opscope_schemas.analysis import Kernel
from opscope_schemas.formula import Rational, evaluate, variables
from opscope_schemas.units import things

from opscope_tools.report.facts import ImplementationFacts, leaves, short, size_at, walk
from opscope_tools.report.links import Operators
from opscope_tools.report.quotes import Quotes

__all__ = [
    "Heads", "attending", "attention_kind", "heads_by_class", "heads_key", "heads_of", "heads_of_parts", "heads_said", "is_fused", "keeps_cache", "parts_said",
]  # fmt: skip

#: axes of queries, keys and scores where heads have one of their own
_AXES = 4


class Heads(NamedTuple):
    """`multi-head`, `grouped-query` or `multi-query`; heads of queries, and of keys and values."""

    kind: str
    queries: int
    shared: int


def _heads(queries: int, shared: int) -> Heads:
    kind = "multi-head" if shared == queries else "multi-query" if shared == 1 else "grouped-query"
    return Heads(kind, queries, shared)


def is_fused(kernel: Kernel) -> bool:
    """Whether an operator is attention as a whole."""
    return "sdpa" in kernel.operator or "scaled_dot_product" in kernel.operator


def attention_kind(facts: ImplementationFacts) -> Heads | None:
    """The heads of the model's attention; None where they are unknown, or those of its parts or of its classes differ."""
    return None if heads_of_parts(facts) or heads_by_class(facts) else _stated(facts)


def _stated(facts: ImplementationFacts) -> Heads | None:
    """What the configuration as a whole says, and the cache where that has no name for heads of keys and values."""
    values = facts.point(facts.main)
    heads = values.get("num_heads", facts.tree.config.get("num_attention_heads"))
    named: object = values.get("num_kv_heads")
    named = facts.tree.config.get("num_key_value_heads") or heads if named is None else named
    kept = _kept_heads(facts) if facts.tree.config.get("num_key_value_heads") is None else None
    shared = named if kept is None else kept
    if not isinstance(heads, int) or not isinstance(shared, int) or not facts.classes_of("attention"):
        return None
    return _heads(heads, shared)


def heads_of(facts: ImplementationFacts, class_name: str) -> Heads | None:
    """The heads of one class of attention, by what its operators are given; where no operator says it, those of the configuration in
    the class that computes most. None where neither says it, or its calls differ."""
    found, stated = set(_shapes(facts, class_name)), _stated(facts)
    if not found:
        alone = class_name == facts.dearest_of("attention") and not _configured_apart(facts)
        return stated if alone else None
    if len({queries for queries, _ in found}) > 1:
        return None
    queries = next(iter(found))[0]
    given = {keys for _, keys in found if keys is not None}
    if len(given) == 1 and min(given) < queries:
        return _heads(queries, min(given))
    kept = keeps_cache(facts, class_name)
    if stated is not None and stated.queries == queries and (kept or facts.graphs[0].cache is None):
        return stated
    if kept and (shared := _kept_heads(facts, _operators_of(facts, class_name))) is not None:
        return _heads(queries, shared)
    return _heads(queries, queries) if len(given) == 1 and not _repeats(facts, class_name) else None


def _shapes(facts: ImplementationFacts, class_name: str) -> Iterator[tuple[int, int | None]]:
    """Heads of queries and of keys of each operator that attends in the calls of a class; of scores that a softmax turns into weights only
    those of queries are known, and only where a configuration states them."""
    values, stated = facts.point(facts.main), set(_stated_anywhere(facts.tree.config))
    for call in _calls(facts, class_name):
        for _, _, kernel in walk(call.kernels or (), ""):
            if is_fused(kernel) and len(kernel.inputs) > 1:
                sizes = [_at_heads(tensor.shape, values) for tensor in kernel.inputs[:2]]
                if isinstance(sizes[0], int) and isinstance(sizes[1], int):
                    yield sizes[0], sizes[1]
            elif "softmax" in kernel.operator and kernel.outputs:
                size = _at_heads(kernel.outputs[0].shape, values)
                if isinstance(size, int) and size in stated:
                    yield size, None


def _at_heads(shape: Sequence[str], values: Mapping[str, Rational]) -> object:
    return size_at(shape[1], values) if len(shape) == _AXES else None


def _stated_anywhere(config: Mapping[str, object]) -> Iterator[int]:
    """The numbers of heads that a configuration and those nested in it state."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _stated_anywhere(value)
        elif "head" in name and isinstance(value, int):
            yield value


def _calls(facts: ImplementationFacts, class_name: str) -> Iterator[Kernel]:
    return (k for _, _, k in walk(facts.main.kernels, "") if k.class_name == class_name)


def _operators_of(facts: ImplementationFacts, class_name: str) -> frozenset[int]:
    """The operators that run in the calls of a class, by number in the graph of the first pass."""
    return Operators(facts.main).of(list(_calls(facts, class_name)))


def _repeats(facts: ImplementationFacts, class_name: str) -> bool:
    """Whether a class repeats heads of keys and values before it attends, so that its operators are given more than there are."""
    inside = (k for call in _calls(facts, class_name) for _, _, k in walk(call.kernels or (), ""))
    return any("repeat_kv" in site.function for kernel in inside for site in kernel.via)


def keeps_cache(facts: ImplementationFacts, class_name: str) -> bool:
    """Whether what a pass keeps is made inside a class of attention; where it is made in none of them, that of each counts as kept."""
    graph = facts.graphs[0]
    if graph.cache is None:
        return False
    makers = {t.created_by for t in graph.tensors if t.kind == "cache" and t.created_by}
    keeping = [name for name in facts.classes_of("attention") if makers & _operators_of(facts, name)]
    return class_name in keeping or not keeping


def heads_by_class(facts: ImplementationFacts) -> dict[str, Heads]:
    """The heads of each class of attention whose operators tell them, dearest first, where they differ; empty where they do not."""
    if facts.within:
        return {}
    inner = [name for name in facts.classes_of("attention") if not _calls_another(facts, name)]
    found = {name: heads for name in inner if any(_shapes(facts, name)) and (heads := heads_of(facts, name))}
    if len(set(found.values())) < 2:
        return {}
    first = facts.dearest_of("attention")
    return dict(sorted(found.items(), key=lambda item: (item[0] != first, -_layers(facts, item[0]))))


def attending(facts: ImplementationFacts) -> dict[str, Heads]:
    """The heads of the classes that attend: of the dearest alone where all have the same; empty where they are unknown."""
    kind = attention_kind(facts)
    return {facts.dearest_of("attention"): kind} if kind is not None else heads_by_class(facts)


def _calls_another(facts: ImplementationFacts, class_name: str) -> bool:
    """Whether a class of attention leaves attending to another that it calls."""
    inside = (k for call in _calls(facts, class_name) for _, _, k in walk(call.kernels or (), ""))
    return any(k.class_name and facts.role(k.class_name) == "attention" for k in inside)


def _layers(facts: ImplementationFacts, class_name: str) -> int:
    """In how many layers of numbered lists a class runs."""
    values, found = facts.point(facts.main), dict[str, dict[str, int]]()
    for call in _calls(facts, class_name):
        place, star, rest = facts.path_of(call).rpartition("*")
        if star:
            runs = found.setdefault(place, {})
            runs[rest] = runs.get(rest, 0) + evaluate(call.repeat, values)
    return sum(max(runs.values()) for runs in found.values())


def _configured_apart(facts: ImplementationFacts) -> bool:
    """Whether parts of the configuration state several numbers of heads."""
    config = facts.tree.config
    parts = [config, *(part for part in config.values() if isinstance(part, Mapping))]
    return len({part["num_attention_heads"] for part in parts if part.get("num_attention_heads") is not None}) > 1


def heads_of_parts(facts: ImplementationFacts) -> dict[str, int]:
    """Query heads of the parts of a model that ran, by the parts' names, where they differ and one class serves them; empty where they do
    not."""
    if facts.within:
        return {}
    values, ran = facts.point(facts.main), set[Rational]()
    for _, kernel in leaves(facts.main):
        for tensor in (
            kernel.inputs[:1] if is_fused(kernel) else kernel.outputs[:1] if "softmax" in kernel.operator else ()
        ):
            if len(tensor.shape) == _AXES and variables(tensor.shape[1]) <= values.keys():
                ran.add(evaluate(tensor.shape[1], values))
    parts = {
        name: heads
        for name, part in facts.tree.config.items()
        if isinstance(part, Mapping) and isinstance(heads := part.get("num_attention_heads"), int) and heads in ran
    }
    return parts if len(set(parts.values())) > 1 else {}


def heads_key(facts: ImplementationFacts, class_name: str) -> str:
    """What the keys of a class's numbers of heads end in: nothing where all classes have the same."""
    return "" if attention_kind(facts) is not None else f".{short(class_name)}"


def heads_said(facts: ImplementationFacts, quotes: Quotes, class_name: str, heads: Heads) -> str:
    """`64 query heads on 8 key-value heads`, with their marks."""
    end = heads_key(facts, class_name)
    queries = f"{quotes(f'attention.query_heads{end}', heads.queries)} {things(heads.queries, 'query head')}"
    shared = f"{quotes(f'attention.key_value_heads{end}', heads.shared)} {things(heads.shared, 'key-value head')}"
    return f"{queries} on {shared}"


def parts_said(facts: ImplementationFacts, quotes: Quotes) -> str:
    """The heads of each class that attends, or of each part of the configuration, with their marks; empty where all are the same."""
    told = []
    for name, heads in heads_by_class(facts).items():
        layers = _layers(facts, name)
        among = f" in {quotes(f'attention.{short(name)}.layers', layers)} {things(layers, 'layer')}" if layers else ""
        told.append(f"{heads_said(facts, quotes, name, heads)} ({heads.kind}, `{short(name)}`){among}")
    told = told or [
        f"{quotes(f'attention.query_heads.{name}', count)} {things(count, 'head')} (`{name}`)"
        for name, count in heads_of_parts(facts).items()
    ]
    return " and ".join(told)


def _kept_heads(facts: ImplementationFacts, makers: frozenset[int] = frozenset()) -> int | None:
    """Heads of the keys and values that the cache holds, of some operators alone where they are given, where its tensors agree."""
    values = facts.point(facts.main)
    tensors = [t for t in facts.graphs[0].tensors if t.kind == "cache" and t.created_by and len(t.shape) == _AXES]
    kept = [t for t in tensors if not makers or t.created_by in makers]
    heads = {evaluate(t.shape[1], values) for t in kept if variables(t.shape[1]) <= values.keys()}
    return heads.pop() if len(heads) == 1 else None
