"""What a prefill past the window of its layers does otherwise than one within: section 3.3 tells it.

Within the window no layer looks back less far than another, and the source may leave out what tells them apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from opscope_schemas.dataflow import Dataflow, FlowOperator
from opscope_schemas.formula import Rational, evaluate
from opscope_schemas.units import plain_bytes, things

__all__ = ["FUSED_ATTENTION", "Crossed", "crossing_said"]

FUSED_ATTENTION = re.compile(r"sdpa|scaled_dot_product|flash_attention")
#: operators that are named, those with the largest results
_NAMED = 3
Issued = tuple[str, str, int]


@dataclass(frozen=True)
class Crossed:
    """A prefill past the window: its graph, every variable's value there, the window and how many tokens it is of."""

    graph: Dataflow
    point: Mapping[str, Rational]
    window: int
    tokens: int


def crossing_said(within: Dataflow, point: Mapping[str, Rational], crossed: Crossed) -> str:
    """`A prefill of 8,192 tokens, past the window of 4,096, runs otherwise ...`; empty where nothing differs but the sizes."""
    before, after = _issued(within, point), _issued(crossed.graph, crossed.point)
    more, fewer = after - before, before - after
    said = []
    if more:
        sizes = _sizes(crossed)
        largest = sorted(more, key=lambda one: (-sizes.get(one, 0), one))[:_NAMED]
        named = ", ".join(
            f"{o} (`{file}:{line}`), {plain_bytes(sizes.get((o, file, line), 0))} each" for o, file, line in largest
        )
        count = sum(more.values())
        with_ = "among them " if len(more) > _NAMED else ""
        said.append(f"{count:,} {things(count, 'operator')} more run, {with_}{named}")
    if fewer:
        count = sum(fewer.values())
        said.append(f"{count:,} {things(count, 'operator')} fewer")
    if masked := _masked(crossed.graph, crossed.point) - _masked(within, point):
        said.append(
            f"{masked} {things(masked, 'attention')} are given a mask, which kernels that take none, as FlashAttention's, cannot apply"
        )
    cache = crossed.graph.cache
    if cache is not None and cache.memory:
        kept, memory = evaluate(cache.after, crossed.point), evaluate(cache.memory, crossed.point)
        said.append(
            f"the {plain_bytes(kept)} of cache that later tokens look back at are views, and {plain_bytes(memory)} stay in memory until the next pass copies them"
        )
    if not said:
        return ""
    return f"A prefill of {crossed.tokens:,} tokens, past the window of {crossed.window:,}, runs otherwise, and has formulas of its own: {'; '.join(said)}"


def _masked(graph: Dataflow, point: Mapping[str, Rational]) -> int:
    """How many fused attentions read a mask."""
    masks = {tensor.id for tensor in graph.tensors if tensor.dtype == "bool"}
    return sum(
        evaluate(one.repeat, point)
        for one in graph.operators
        if FUSED_ATTENTION.search(one.operator) and masks.intersection(one.reads)
    )


def _issued(graph: Dataflow, point: Mapping[str, Rational]) -> Counter[Issued]:
    """How often each line issues each operator."""
    found: Counter[Issued] = Counter()
    for operator in graph.operators:
        found[_place(operator)] += evaluate(operator.repeat, point)
    return found


def _sizes(crossed: Crossed) -> dict[Issued, int]:
    """The bytes of what each of them makes, the largest."""
    sizes = {t.id: evaluate(t.bytes, crossed.point) for t in crossed.graph.tensors if t.bytes}
    found: dict[Issued, int] = {}
    for operator in crossed.graph.operators:
        made = sum(sizes.get(index, 0) for index in operator.writes)
        found[_place(operator)] = max(made, found.get(_place(operator), 0))
    return found


def _place(operator: FlowOperator) -> Issued:
    return operator.operator, operator.file, operator.line
