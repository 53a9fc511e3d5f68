"""How a model may be spread over devices, and what the ranks of a pass tell one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opscope_schemas.errors import ConfigError
from opscope_schemas.estimates import Communication, Parallel, Spread
from opscope_schemas.formula import approximated
from opscope_schemas.units import things

from opscope_tools.estimate_roofline.kernels import Numbers, Pass
from opscope_tools.estimate_roofline.times import Estimate
from opscope_tools.hardware.forms import DECODE_ATTENTION, ENCODER_ATTENTION, PREFILL_ATTENTION

#: degrees beyond this are not listed
_MOST = 1024


def tp_degrees(of: Pass, values: Numbers) -> tuple[int, ...]:
    """Numbers of ranks that divide the query heads, and the heads of keys and values or are divided by them; () where there are no heads."""
    return _dividing(_heads(of, values))


def _dividing(found: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    fewest = min(heads for heads, _ in found)
    return tuple(t for t in _divisors(fewest) if all(_divides(t, *one) for one in found)) if fewest else ()


def _divides(ranks: int, heads: int, kv: int) -> bool:
    return heads % ranks == 0 and (kv % ranks == 0 or ranks % kv == 0)


def ep_degrees(of: Pass, values: Numbers) -> tuple[int, ...]:
    """Numbers of ranks that divide the experts; () where there are none."""
    counts = {round(approximated(str(routing.experts))(values)) for routing in of.routings}
    return tuple(e for e in _divisors(min(counts)) if all(c % e == 0 for c in counts)) if counts else ()


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, min(number, _MOST) + 1) if number % d == 0]


def _heads(of: Pass, values: Numbers) -> list[tuple[int, int]]:
    """The query heads, and those of keys and values, of each kind of attention in the pass."""
    found = [
        k.sizes
        for k in of.kernels(values)
        if k.form in (DECODE_ATTENTION, ENCODER_ATTENTION, PREFILL_ATTENTION) and k.sizes is not None
    ]
    if not found:
        return [(round(values.get("num_heads", 0)), round(values.get("num_heads", 0)))]
    return list(dict.fromkeys((round(sizes["h"]), round(sizes["kv"])) for sizes in found))


def check(of: Pass, values: Numbers, parallel: Parallel) -> None:
    """Raises `ConfigError` for degrees that the model does not allow."""
    if parallel.zero:
        raise ConfigError("ZeRO shares what training keeps.", next_step="Leave zero away, or give phase train.")
    if parallel.devices == 1 and parallel.ep == 1:
        return
    if of.eager:
        raise ConfigError("Ranks are those of the serving view.", next_step="Leave `view` away, or `parallel`.")
    if of.found.call.parent >= 0:
        raise ConfigError(
            "Only whole models are spread over devices.", next_step="Give the model's class, type or checkpoint."
        )
    degrees = tp_degrees(of, values)
    if parallel.tp > 1 and degrees and parallel.tp not in degrees:
        heads, kv = next(one for one in _heads(of, values) if not _divides(parallel.tp, *one))
        pp = f"'pp': {parallel.pp}, " if parallel.pp > 1 else ""
        widest = max(degree for degree in degrees if parallel.tp % degree == 0)
        rest = f", and dp or pp for the others: parallel {{'tp': {widest}, {pp}'dp': {parallel.dp * parallel.tp // widest}}}"
        raise ConfigError(
            f"tp {parallel.tp} does not divide {heads} heads and {kv} heads of keys and values.",
            next_step=f"Choose tp from {', '.join(map(str, degrees))}{rest}.",
        )
    experts = ep_degrees(of, values)
    if parallel.ep > 1:
        if not experts:
            raise ConfigError("The model has no experts to spread.", next_step="Leave ep away.")
        if parallel.ep not in experts:
            raise ConfigError(
                f"ep {parallel.ep} does not divide the experts.",
                next_step=f"Choose one of {', '.join(map(str, experts))}.",
            )
        if (parallel.tp * parallel.dp) % parallel.ep:
            raise ConfigError(
                f"ep {parallel.ep} does not divide the {parallel.tp * parallel.dp} ranks (tp times dp) that share the experts.",
                next_step="Choose a divisor of tp times dp.",
            )
    depth = values.get("num_layers")
    if depth is not None and parallel.pp > depth:
        raise ConfigError(f"pp {parallel.pp} is more than the {depth:g} layers.", next_step="Choose fewer stages.")


def check_training(parallel: Parallel) -> None:
    """Raises `ConfigError` for ways in which no training step is estimated."""
    if max(parallel.tp, parallel.pp, parallel.ep) > 1 or parallel.sp:
        raise ConfigError(
            "A training step is estimated on data-parallel ranks alone.",
            next_step="Give dp, and zero 1 to 3, and nothing else.",
        )


def spread(of: Pass, values: Numbers, parallel: Parallel, found: Sequence[Estimate]) -> Spread | None:
    """None for one device."""
    if parallel.devices == 1:
        return None
    told: dict[tuple[str, float, int], list[Estimate]] = {}
    for one in found:
        if one.kernel.ranks > 1:
            told.setdefault((one.kernel.operation, one.kernel.exchanged, one.kernel.ranks), []).append(one)
    others = [one for one in found if one.kernel.ranks == 1 and one.limit is not None]
    known = all(one.measured is not None for one in found if one.limit is not None)
    hidden = None
    if known:
        exchanged = sum(
            one.measured.seconds * one.kernel.count for kinds in told.values() for one in kinds if one.measured
        )
        hidden = max(exchanged, sum(one.measured.seconds * one.kernel.count for one in others if one.measured))
    heads = _heads(of, values)
    return Spread(
        tp=parallel.tp, pp=parallel.pp, ep=parallel.ep, dp=parallel.dp, sp=parallel.sp, zero=parallel.zero, devices=parallel.devices,
        communication=tuple(_row(kind, size, ranks, kinds) for (kind, size, ranks), kinds in told.items()), hidden_seconds=hidden,
        differs=(*_differs(of, heads, parallel.tp), *_uneven(of, values, parallel.tp)) if parallel.tp > 1 else (), tp_degrees=() if of.eager else _dividing(heads), ep_degrees=() if of.eager else ep_degrees(of, values),
    )  # fmt: skip


def _uneven(of: Pass, values: Numbers, ranks: int) -> Iterator[str]:
    """Products whose columns do not divide by the ranks; tables of tokens engines pad as a matter of course."""
    told: dict[tuple[int, str], None] = {}
    for part in of.parts:
        width = approximated(part.op.outputs[0].shape[-1])(values) if part.split == "column" and part.op.outputs else 0
        if width % ranks and "*" in part.module:
            told[int(width), part.module] = None
    for width, module in told:
        yield f"The {width:,} columns of `{module}` do not divide by {ranks} and are taken as if they did: an engine pads them, or leaves that part whole on every rank."


def _differs(of: Pass, heads: Sequence[tuple[int, int]], ranks: int) -> Iterator[str]:
    """Where engines are known to split otherwise than the data flow allows, and what several ranks hold alike."""
    fewest = min(kv for _, kv in heads)
    if 0 < fewest < ranks:
        yield f"{ranks} ranks share {fewest} {things(fewest, 'head')} of keys and values: {ranks // fewest} of them hold each{', with its cache' if of.shards.cache else ''}."
    if of.shards.merged:
        yield "Partial results of products side by side are added up before they are exchanged, once; an engine that exchanges each does so more often."
    if of.shards.across_heads:
        yield "Of a norm over all heads together ranks tell one another the sums of squares; an engine may gather queries and keys instead, which moves more."
    if any(part.function and part.split is not None for part in of.parts):
        yield "What channels or heads of a scan share (B and C, of a group or of all) is split as they are; an engine that copies it to every rank holds a little more."


def _row(kind: str, size: float, ranks: int, kinds: Sequence[Estimate]) -> Communication:
    times = [one.measured.seconds * one.kernel.count for one in kinds if one.measured is not None]
    return Communication(
        kind=kind, bytes=round(size), ranks=ranks, count=sum(one.kernel.count for one in kinds),
        bound_seconds=sum(one.bound * one.kernel.count for one in kinds),
        calibrated_seconds=sum(times) if len(times) == len(kinds) else None,
    )  # fmt: skip


__all__ = ["check", "check_training", "ep_degrees", "spread", "tp_degrees"]
