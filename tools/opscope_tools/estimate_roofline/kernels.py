"""The kernels of a pass at one point: FLOPs, bytes, and what kind of measured kernel each is like.

Products that read the same activations run as one, as engines run them (q, k and v; gate and up), and a layer of experts is
one kernel from the first to the last product of its class, with what sorts and sums its tokens between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opscope_schemas.formula import Formula, Rational, evaluate, whole_bytes

from opscope_tools.hardware.forms import (
    BYTES,
    DECODE_ATTENTION,
    EXPERTS,
    LATENT_DECODE,
    LATENT_PREFILL,
    PREFILL_ATTENTION,
    PRODUCT,
    Form,
)
from opscope_tools.trace.engine import Found
from opscope_tools.trace.protocol import CallRecord, OpRecord
from opscope_tools.trace.routing import GROUPED, Routing, routings
from opscope_tools.trace.serving import EngineKernel, kernels

_ATTENTION = "opscope.sdpa"
#: exponent of the power law by which tokens choose experts, as kernels were measured: routers are not even
_SKEW = 1.01
#: bytes per element of weights above which they are as the model's dtype has them
_PLAIN = 1.5


@dataclass(frozen=True)
class Kernel:
    """One kernel: figures of one run, `count` runs. `sizes` are those of `form`; without one it moves and computes a little."""

    operation: str
    module: str
    file: str
    line: int
    count: int
    flops: float
    matmul_flops: float
    moved: float
    precision: str = "bf16"
    form: Form | None = None
    sizes: Mapping[str, float] | None = None
    counted: bool = True
    #: what products of one kernel share; () where it stays alone
    joins: tuple[object, ...] = ()


@dataclass(frozen=True)
class _Point:
    found: Found
    values: Mapping[str, Rational]
    quantised: str
    routings: Sequence[Routing]

    def number(self, formula: Formula | str) -> float:
        return float(evaluate(str(formula), self.values))

    def size(self, text: str) -> float:
        return float(whole_bytes(text, self.values))

    def shape(self, texts: Sequence[str]) -> list[float]:
        return [self.number(text) if text != "?" else math.nan for text in texts]

    def read(self, formula: Formula) -> float:
        """Bytes read; of experts those that uniform routing is expected to touch."""
        text, values = str(formula), dict(self.values)
        for number, routing in enumerate(self.routings):
            values[f"touched_{number}"] = routing.experts_read(self.values)
            text = text.replace(str(routing.bound), f"{{touched_{number}}}")
        return float(whole_bytes(text, values))


def kernels_at(found: Found, values: Mapping[str, Rational], quantised: str, *, eager: bool = False) -> list[Kernel]:
    """The kernels of the call at a point. `quantised`: the precision of weights that are not the model's dtype."""
    point = _Point(found, values, quantised, list(routings(found.tree, found.call)))
    every = kernels(found.tree, found.call, eager=eager)
    if eager:
        return [_kernel(one, point) for one in every]
    return list(_joined(_with_experts(every, point)))


def _kernel(kernel: EngineKernel, point: _Point) -> Kernel:
    op, cost = kernel.ops[0], kernel.cost
    call = point.found.tree.trace.calls[op.call]
    matmul = point.number(cost.matmul)
    causal = point.number(cost.causal)
    flops = point.number(cost.flops)
    if causal:  # a causal kernel skips what lies above the diagonal
        matmul, flops = matmul - causal * matmul / flops, flops - causal
    read, written = point.read(cost.read), float(whole_bytes(str(cost.write), point.values))
    plain = Kernel(
        operation=_named(op), module=point.found.tree.pattern(call), file=op.site.file, line=op.site.line,
        count=int(point.number(kernel.repeat)), flops=flops, matmul_flops=matmul, moved=read + written, counted=op.counted,
    )  # fmt: skip
    if not matmul:
        return plain
    return _attention(plain, op, read, point) if op.operator == _ATTENTION else _product(plain, op, read, point)


def _named(op: OpRecord) -> str:
    return op.operator.removeprefix("aten.").removeprefix("opscope.").lstrip("_")


def _product(plain: Kernel, op: OpRecord, read: float, point: _Point) -> Kernel:
    """(m, k) x (k, n) from what it makes: the last dimension is n (of a convolution the channels), the others are m."""
    shape = point.shape(op.outputs[0].shape) if op.outputs else []
    elements = math.prod(shape)
    if not shape or not elements > 0:
        return plain
    n = shape[1] if "convolution" in op.operator and len(shape) > 2 else shape[-1]
    k = plain.matmul_flops / (2 * elements)
    activations = sum(point.size(view.size) for view in op.views)
    stored = (read - activations) / (n * k) if op.views else 2.0
    precision = point.quantised if point.quantised and stored < _PLAIN else "bf16"
    sizes = {
        "m": elements / n, "n": n, "k": k, "weight_bytes": BYTES[precision],
        "activation_bytes": min(2.0, BYTES[precision]) if precision in ("fp8", "fp8_block", "nvfp4") else 2.0,
    }  # fmt: skip
    weights = len(op.views) == 1 and op.operator not in GROUPED
    joins = (op.views[0].tensor, op.views[0].view, op.site.file, _parent(op, point)) if weights else ()
    return replace(plain, precision=precision, form=PRODUCT, sizes=sizes, joins=joins)


def _parent(op: OpRecord, point: _Point) -> int:
    return point.found.tree.trace.calls[op.call].parent


def _attention(plain: Kernel, op: OpRecord, read: float, point: _Point) -> Kernel:
    """Heads of keys and values from the bytes that are read: they may be given repeated, and are not read so."""
    if len(op.inputs) < 3:
        return plain
    if op.inputs[0].shape[-1] != op.inputs[2].shape[-1]:
        return _latents(plain, op, read, point)
    b, h, new, d = point.shape(op.inputs[0].shape)[-4:]
    context = point.shape(op.inputs[1].shape)[-2]
    cached = float(point.values.get("kv_bytes", 2))
    kv = min(h, max(1.0, round((read - 2 * b * h * new * d) / (2 * cached * b * context * d))))
    sizes = {"b": b, "h": h, "kv": kv, "d": d, "context": context, "new": new, "cache_bytes": cached}
    form = DECODE_ATTENTION if new == 1 else PREFILL_ATTENTION
    return replace(plain, precision="fp8" if cached < _PLAIN else "bf16", form=form, sizes=sizes)


def _latents(plain: Kernel, op: OpRecord, read: float, point: _Point) -> Kernel:
    """Attention whose keys are wider than its values; absorbed, its products say how wide the latents are that it reads."""
    b, h, new, keys = point.shape(op.inputs[0].shape)[-4:]
    context, values = point.shape(op.inputs[1].shape)[-2], point.shape(op.inputs[2].shape)[-1]
    cached = float(point.values.get("kv_bytes", 2))
    rank = (plain.moved - read) / (2 * b * h * new)
    rope = plain.matmul_flops / (2 * b * h * new * context) - 2 * rank
    sizes = {"b": b, "h": h, "context": context, "new": new, "cache_bytes": cached}
    precision = "fp8" if cached < _PLAIN else "bf16"
    if new == 1 and rank != values:
        return replace(plain, precision=precision, form=LATENT_DECODE, sizes={**sizes, "rank": rank, "rope": rope})
    if new == 1:  # expanded for every token: no engine does so, and nobody measured it
        return plain
    return replace(plain, precision=precision, form=LATENT_PREFILL, sizes={**sizes, "keys": keys, "values": values})


# ---------------------------------------------------------------- joined


def _with_experts(every: Iterable[EngineKernel], point: _Point) -> Iterator[Kernel]:
    """Every kernel, those of a layer of experts as one."""
    held: dict[int, list[EngineKernel]] = {}
    listed = list(every)
    for one in listed:
        held.setdefault(one.ops[0].call, []).append(one)
    layers = {call: kinds for call, kinds in held.items() if sum(k.ops[0].operator in GROUPED for k in kinds) > 1}
    inside = {call: _span(point, call) for call in layers}
    done: set[int] = set()
    for one in listed:
        layer = next((c for c, below in inside.items() if one.ops[0].call in below), None)
        if layer is None:
            yield _kernel(one, point)
        elif layer not in done:
            done.add(layer)
            yield _experts([k for k in listed if k.ops[0].call in inside[layer]], point, layer)


def _span(point: _Point, index: int) -> set[int]:
    call: CallRecord = point.found.tree.trace.calls[index]
    return {below.index for below in point.found.tree.calls_below(call)}


def _experts(parts: Sequence[EngineKernel], point: _Point, index: int) -> Kernel:
    singles = [_kernel(part, point) for part in parts]
    grouped = [(p, s) for p, s in zip(parts, singles, strict=True) if p.ops[0].operator in GROUPED]
    first, last = grouped[0][0].ops[0], grouped[-1][0].ops[0]
    experts, hidden = point.shape(first.inputs[1].shape)[0], point.shape(first.inputs[0].shape)[-1]
    inter, rows = point.shape(last.inputs[0].shape)[-1], point.shape(first.inputs[0].shape)[0]
    call = point.found.tree.trace.calls[index]
    given = [point.shape(i.shape) for i in call.inputs]
    tokens = next((math.prod(s[:-1]) for s in given if len(s) > 1 and s[-1] == hidden), rows)
    count = singles[0].count
    shares = [s.count / count for s in singles]  # what runs more often than the layer
    weights = sum(s.moved for _, s in grouped)
    per_weight = _stored(grouped, point)
    precision = point.quantised if point.quantised and per_weight < _PLAIN else "bf16"
    whole = replace(
        grouped[0][1], operation="experts", module=point.found.tree.pattern(call), count=count, joins=(),
        flops=sum(s.flops * n for s, n in zip(singles, shares, strict=True)), matmul_flops=sum(s.matmul_flops for _, s in grouped),
        moved=weights, precision=precision, counted=all(s.counted for s in singles),
    )  # fmt: skip
    sizes = {
        "tokens": tokens, "hidden": hidden, "inter": inter, "topk": rows / tokens, "experts": experts, "tp": 1.0, "ep": 1.0,
        "weight_bytes": BYTES[precision], "skew": _SKEW, "matrices": float(round(whole.matmul_flops / (2 * rows * hidden * inter))),
    }  # fmt: skip
    return replace(whole, form=EXPERTS, sizes=sizes)


def _stored(grouped: Sequence[tuple[EngineKernel, Kernel]], point: _Point) -> float:
    """Bytes per element of the experts' weights, as all that can be touched are read."""
    part, _ = grouped[0]
    op = part.ops[0]
    experts, inner, outer = point.shape(op.inputs[1].shape)[:3]
    rows = point.shape(op.inputs[0].shape)[0]
    activations = sum(point.size(view.size) for view in op.views)
    return (point.size(str(part.cost.read)) - activations) / (min(experts, rows) * inner * outer)


def _joined(every: Iterable[Kernel]) -> Iterator[Kernel]:
    """Products with weights that read the same activations in the same module, as one product."""
    groups: dict[tuple[object, ...], list[Kernel]] = {}
    for number, one in enumerate(every):
        groups.setdefault((*one.joins, one.count, one.precision) if one.joins else (number,), []).append(one)
    for same in groups.values():
        yield same[0] if len(same) == 1 else _one_product(same)


def _one_product(same: Sequence[Kernel]) -> Kernel:
    first = same[0]
    assert first.sizes is not None
    n = sum(k.sizes["n"] for k in same if k.sizes is not None)
    activations = 2 * first.sizes["m"] * first.sizes["k"]
    names = [k.module.rpartition(".")[2] for k in same]
    return replace(
        first, operation=f"{first.operation} ({', '.join(dict.fromkeys(filter(None, names)))})",
        module=first.module.rpartition(".")[0], flops=sum(k.flops for k in same), matmul_flops=sum(k.matmul_flops for k in same),
        moved=sum(k.moved for k in same) - activations * (len(same) - 1), sizes={**first.sizes, "n": n},
    )  # fmt: skip


__all__ = ["Kernel", "kernels_at"]
