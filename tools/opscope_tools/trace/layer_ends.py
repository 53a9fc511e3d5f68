"""Which residual add that ends a layer an engine joins with the norm that begins the next one.

The first norm of a stack of layers has no add before it, and the add of the last layer meets the norm behind them all. A layer
that stands for several begins and ends as often as it runs, so that each add is given to the norm of its own kind of layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opscope_tools.trace.document import CallTree
from opscope_tools.trace.protocol import CallRecord, OpRecord

#: home of what is in no repeated call
_OUTSIDE = -1
Ops = Mapping[int, Sequence[OpRecord]]


def meetings(
    tree: CallTree, call: CallRecord, home: Mapping[int, int], makers: Ops, readers: Ops,
    begins: Mapping[int, int], ends: Mapping[int, int],
) -> Iterator[tuple[int, int]]:  # fmt: skip
    """Kernels of adds and of norms that are one, each by the operator that gives its result.

    `home`: operator -> the innermost repeated call around it; `makers` and `readers`: tensor -> operators. `begins`: kernel of a norm ->
    the one tensor that it reads; `ends`: sum -> its kernel. Every kind of layer that a sum is handed to has to begin with a norm of it.
    """
    inside = {below.index: below for below in tree.calls_below(call) if below is not call}
    within = {index: {op.order for op in tree.ops_below(below)} for index, below in inside.items()}
    first = {t.index: t.alias_of for t in tree.trace.tensors if t.alias_of is not None}
    layers = {total: home[kernel] for total, kernel in ends.items() if home[kernel] in within}
    handed = {
        total: {home[op.order] for op in readers.get(total, ()) if op.order in home}
        for total, layer in layers.items()
        if not any(op.order in within[layer] for op in readers.get(total, ()))  # else the layer goes on
    }
    given = {norm: {first.get(read, read)} for norm, read in begins.items()}
    for one in (carried for carried in tree.trace.carried if carried.call in within):
        for norm in (norm for norm, read in begins.items() if read == one.read and norm in within[one.call]):
            given[norm].add(one.made)
        if one.made in handed:
            handed[one.made] |= {home[op.order] for op in readers[one.read] if op.order in within[one.call]}

    def of_layer(total: int) -> bool:
        return any(home.get(op.order, _OUTSIDE) != _OUTSIDE for op in makers.get(total, ()))

    while True:
        norms = [norm for norm, every in given.items() if all(s in handed or not of_layer(s) for s in every)]
        met = {(home[norm], total) for norm in norms for total in given[norm]} | {(_OUTSIDE, total) for total in handed}
        kept = {s: to for s, to in handed.items() if to - {_OUTSIDE} and all((layer, s) in met for layer in to)}
        if len(kept) == len(handed):
            break
        handed = kept
    norms.sort(
        key=lambda norm: (given[norm].isdisjoint(handed), norm)
    )  # one that only the layer before all repetitions feeds comes last
    for layer in dict.fromkeys(layers.values()):
        adds = sorted(ends[total] for total in handed if layers[total] == layer)
        yield from zip(adds, (norm for norm in norms if home[norm] == layer), strict=False)


__all__ = ["meetings"]
