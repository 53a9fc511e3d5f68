"""The kernels of a pass at one point: FLOPs, bytes, and what kind of measured kernel each is like.

Products that read the same activations run as one, as engines run them (q, k and v; gate and up), and a layer of experts is
one kernel from the first to the last product of its class, with what sorts and sums its tokens between them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opscope_schemas.estimates import ALONE, ROUTING_SKEW, Parallel
from opscope_schemas.formula import Rational, approximated, variables

from opscope_tools.hardware.forms import (
    ALL_REDUCE,
    BYTES,
    CONVOLUTION,
    CONVOLUTION_STEP,
    DECODE_ATTENTION,
    DELTA_DECODE,
    DELTA_PREFILL,
    ENCODER_ATTENTION,
    EXPERTS,
    FORMS,
    LATENT_DECODE,
    LATENT_PREFILL,
    PREFILL_ATTENTION,
    PRODUCT,
    WINDOW_DECODE,
    WINDOW_PREFILL,
    Form,
)
from opscope_tools.trace.engine import Found
from opscope_tools.trace.operators import ATTENTION, GROUPED
from opscope_tools.trace.protocol import OpRecord
from opscope_tools.trace.routing import expert_layers, routings, touched
from opscope_tools.trace.serving import EngineKernel, kernels
from opscope_tools.trace.sharding import Shards, Split, shards

#: fused kernels of linear attention -> as they were measured
_LINEAR = {
    "chunk_gated_delta_rule": DELTA_PREFILL, "fused_recurrent_gated_delta_rule": DELTA_DECODE, "causal_conv1d_fwd": CONVOLUTION,
    "causal_conv1d_update": CONVOLUTION_STEP,
}  # fmt: skip
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
    #: whether it is a kernel from the hub, of many operators and with products inside
    hub: bool = False
    #: of a convolution that each channel has a filter of its own for: no matrix product
    depthwise: bool = False
    #: place of its first operator in the pass
    order: float = 0.0
    #: bytes that ranks tell one another, and how many ranks
    exchanged: float = 0.0
    ranks: int = 1
    #: precision in which products take their activations, where somebody asked for one; "": as the measured kernels have it
    activations: str = ""
    #: of the modules that it runs in, outermost first
    classes: tuple[str, ...] = ()
    #: whether the source has its products in 32 bits: engines are measured to run routers as other products
    wide: bool = False

    @property
    def units(self) -> str:
        """Precision in which its products are computed: the wider one of weights (or cache) and activations; attention over a prompt was
        measured in bf16, whatever the cache holds."""
        stored = "bf16" if self.form in (PREFILL_ATTENTION, WINDOW_PREFILL) else self.precision
        if not self.activations:
            return stored
        return self.activations if BYTES[self.activations] >= min(2.0, BYTES[stored]) else stored


#: name of a size -> its value; fractions as floating point
Numbers = Mapping[str, float]


def numbers(values: Mapping[str, Rational | float]) -> dict[str, float]:
    """Values as formulas of many points take them: whole ones stay whole."""
    return {name: value if isinstance(value, (int, float)) else int(value) if value.denominator == 1 else float(value)
            for name, value in values.items()}  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """A kernel of the trace with its formulas as text, written once for every point."""

    op: OpRecord
    #: what people call it, and the operator whose module and line stand for the kernel
    operation: str
    shown: OpRecord
    module: str
    classes: tuple[str, ...]
    repeat: str
    flops: str
    matmul: str
    causal: str
    #: with the experts that are touched as variables
    read: str
    #: with all that can be
    bound: str
    write: str
    split: Split | None
    #: shapes of queries, keys and values; () where it is no attention
    attention: tuple[tuple[str, ...], ...] = ()
    #: orders of all operators that run in it
    orders: tuple[int, ...] = ()
    #: that a kernel from the hub stands for
    function: str = ""


class Pass:
    """One pass of a model, whose kernels can be had at any point at which its trace holds and on any ranks."""

    def __init__(self, found: Found, quantised: str, *, eager: bool = False, activations: str = "") -> None:
        """`quantised`: the precision of weights that are not the model's dtype; `activations`: that of what products read."""
        self.found, self.quantised, self.eager, self.activations = found, quantised, eager, activations
        tree, call = found.tree, found.call
        self.decodes = tree.trace.phase == "decode"
        self.shards: Shards = shards(tree, call)
        self.routings = list(routings(tree, call))
        self.parts = [self._part(one) for one in kernels(tree, call, eager=eager)]
        self.layers = expert_layers(tree, call)

    def _part(self, kernel: EngineKernel) -> _Part:
        op, cost, tree = kernel.ops[0], kernel.cost, self.found.tree
        bound, shown = str(cost.read), _most_of(kernel)
        call = tree.trace.calls[shown.call]
        return _Part(
            op, _called(kernel), shown, tree.pattern(call), tree.classes(call), str(kernel.repeat), str(cost.flops), str(cost.matmul), str(cost.causal),
            touched(bound, self.routings), bound, str(cost.write), self.shards.split.get(op.order), kernel.attention,
            tuple(op.order for op in kernel.ops), kernel.function,
        )  # fmt: skip

    def kernels(self, values: Mapping[str, Rational | float], parallel: Parallel = ALONE) -> list[Kernel]:
        """The kernels of one rank, what it exchanges with others included. `values` are those of a rank's own sequences."""
        point = self._at(values, parallel)
        if self.eager:
            return self._singles(point)
        joined = [*_small_as_one(_joined(_with_experts(point))), *_exchanges(point)]
        return [self._reading(one) for one in sorted(joined, key=lambda one: one.order)]

    def singles(self, values: Mapping[str, Rational | float]) -> list[Kernel]:
        """One for each of `parts`, none joined with another."""
        return self._singles(self._at(values, ALONE))

    def _singles(self, point: _Point) -> list[Kernel]:
        return [self._reading(_kernel(part, point)) for part in self.parts]

    def _reading(self, kernel: Kernel) -> Kernel:
        """Where weights are quantised, products with others keep their activations too, as engines run them."""
        kept = self.quantised and kernel.precision == "bf16" and self.activations not in ("", "fp16")
        return kernel if kept else _reading(kernel, self.activations)

    def _at(self, values: Mapping[str, Rational | float], parallel: Parallel) -> _Point:
        given = numbers(values)
        for number, routing in enumerate(self.routings):
            experts, chosen, tokens = (
                approximated(str(f))(given) for f in (routing.experts, routing.chosen, routing.tokens)
            )
            given[f"touched_{number}"] = (
                experts * -math.expm1(tokens * math.log1p(-chosen / experts)) if chosen < experts else experts
            )
        return _Point(self, given, parallel)


@dataclass(frozen=True)
class _Point:
    of: Pass
    values: Numbers
    parallel: Parallel

    @property
    def found(self) -> Found:
        return self.of.found

    @property
    def quantised(self) -> str:
        return self.of.quantised

    def number(self, text: str) -> float:
        return approximated(text)(self.values)

    def bytes(self, text: str) -> float:
        """A fraction of a byte takes a byte."""
        return float(math.ceil(round(approximated(text)(self.values), 6)))

    def shape(self, texts: Sequence[str]) -> list[float]:
        return [self.number(text) if text != "?" else math.nan for text in texts]

    def ranks(self, part: _Part) -> float:
        """How many share the work of a kernel."""
        if part.split is None:
            return 1.0 if not self.parallel.sp else float(self.parallel.tp)
        if (heads := self.of.shards.of_keys.get(part.op.order)) is not None:
            return max(1.0, min(float(self.parallel.tp), self.number(heads)))
        return float(self.parallel.tp)


def _kernel(part: _Part, point: _Point) -> Kernel:
    op = part.op
    matmul, causal, flops = point.number(part.matmul), point.number(part.causal), point.number(part.flops)
    if causal:  # a causal kernel skips what lies above the diagonal
        matmul, flops = matmul - causal * matmul / flops, flops - causal
    read, written = point.bytes(part.read), point.bytes(part.write)
    plain = Kernel(
        operation=part.operation, module=part.module, classes=part.classes, file=part.shown.site.file, line=part.shown.site.line,
        count=int(point.number(part.repeat)), flops=flops, matmul_flops=matmul, moved=read + written, counted=op.counted,
        hub=bool(part.function), order=part.shown.order,
    )  # fmt: skip
    if not matmul or part.function:
        return _shared(plain, point.ranks(part))
    if (form := _LINEAR.get(op.operator)) is not None:
        return _linear(plain, part, form, point)
    return _attention(plain, part, read, point) if part.attention else _product(plain, part, read, point)


def _reading(kernel: Kernel, activations: str) -> Kernel:
    """Its products take activations of that precision; what lies between products stays as it is."""
    if not activations or not kernel.matmul_flops or kernel.wide:
        return kernel
    narrower, x = 2.0 - BYTES[activations], kernel.sizes or {}
    entries = 0.0
    if kernel.form is PRODUCT:
        entries = x["m"] * x["k"]
    elif kernel.form is EXPERTS:
        entries = x["tokens"] * x["topk"] / x["ep"] * (x["hidden"] + x["inter"] / x["tp"])
    return replace(kernel, activations=activations, moved=max(0.0, kernel.moved - narrower * entries))


def _shared(plain: Kernel, ranks: float) -> Kernel:
    if ranks == 1:
        return plain
    return replace(plain, flops=plain.flops / ranks, matmul_flops=plain.matmul_flops / ranks, moved=plain.moved / ranks)


def _named(op: OpRecord) -> str:
    return op.operator.removeprefix("aten.").removeprefix("opscope.").lstrip("_")


def _called(kernel: EngineKernel) -> str:
    """A fused kernel by what it is, one that is nothing in particular by its operators in their order."""
    if kernel.attention:  # of one that was recognised in eager operators nobody said that it is PyTorch's
        return "sdpa" if kernel.ops[0].operator == ATTENTION else "attention"
    if kernel.function:
        return kernel.function
    if kernel.rule != "fused elementwise":
        return kernel.rule or _named(kernel.ops[0])
    return ", ".join(dict.fromkeys(_named(op) for op in sorted(kernel.ops, key=lambda op: op.order)))


def _most_of(kernel: EngineKernel) -> OpRecord:
    """The operator that stands for a fused kernel: the last one of the module that issues most of its operators, of several the
    last. What ends the layer before stands for none."""
    if not kernel.rule:
        return kernel.ops[0]
    issued = Counter(op.call for op in kernel.own)
    return max(kernel.own, key=lambda op: (issued[op.call], op.order))


def _product(plain: Kernel, part: _Part, read: float, point: _Point) -> Kernel:
    """(m, k) x (k, n) from what it makes: the last dimension is n (of a convolution the channels), the others are m.

    Ranks share its n (by columns), its k (by rows), or what it is made for (a product of activations).
    """
    op = part.op
    shape = point.shape(op.outputs[0].shape) if op.outputs else []
    elements = math.prod(shape)
    if not shape or not elements > 0:
        return plain
    convolves = "convolution" in op.operator
    if convolves and _is_depthwise(op, point):
        return replace(_shared(plain, point.ranks(part)), depthwise=True)
    n = shape[1] if convolves and len(shape) > 2 else shape[-1]
    n *= _matrices(op, point)
    k, m = plain.matmul_flops / (2 * elements), elements / n
    activations = sum(point.bytes(view.size) for view in op.views)
    first = (
        op.inputs["addmm" in op.operator or "baddbmm" in op.operator] if len(op.inputs) > 1 else None
    )  # a bias comes first
    if not convolves and first is not None and (width := point.shape(first.shape)[-1]) > k > 0:
        # absorbed: its weights meet other rows than those that the eager pass gives them
        k, m = width, plain.matmul_flops / (2 * n * width)
        activations = BYTES[op.units] * m * k
    stored = (read - activations) / (n * k) if op.views else 2.0
    ranks = point.ranks(part) if part.split is not None else 1.0
    if part.split in ("column", "row"):
        weights, written = read - activations, plain.moved - read
        by_column = part.split == "column"
        moved = (
            weights / ranks
            + (activations if by_column else activations / ranks)
            + (written / ranks if by_column else written)
        )
        n, k = (n / ranks, k) if by_column else (n, k / ranks)
        plain = replace(plain, flops=plain.flops / ranks, matmul_flops=plain.matmul_flops / ranks, moved=moved)
    else:
        plain, m = _shared(plain, ranks), m / ranks
    narrower = point.quantised and 0 < stored < _PLAIN  # nothing is stored of what the pass itself made
    units = op.units if point.of.eager else "bf16"
    precision = point.quantised if narrower else units
    narrow = precision in ("fp8", "fp8_block", "nvfp4")
    sizes = {
        "m": m, "n": n, "k": k, "weight_bytes": BYTES[precision],
        "activation_bytes": min(2.0, BYTES[precision]) if narrow else BYTES[units],
    }  # fmt: skip
    weights = (
        len(op.views) == 1 and op.operator not in GROUPED and not convolves
    )  # no engine narrows those of a convolution
    joins = (op.views[0].tensor, op.views[0].view, op.site.file, _parent(op, point), part.split) if weights else ()
    return replace(plain, precision=precision, form=PRODUCT, sizes=sizes, joins=joins, wide=op.units == "fp32")


def _is_depthwise(op: OpRecord, point: _Point) -> bool:
    """Whether each channel of several has its own filter."""
    (_, channels, *_), (_, of_each, *_) = (point.shape(each.shape) for each in op.inputs[:2])
    return channels > 1 and of_each == 1


def _matrices(op: OpRecord, point: _Point) -> float:
    """How many matrices of weights a batched product multiplies by, each with rows of its own: in time they are as one that is so much wider."""
    if len(op.views) != 1 or len(op.inputs) < 2 or op.operator.rpartition(".")[2] not in ("bmm", "baddbmm", "matmul"):
        return 1.0
    weights = point.shape(op.inputs[-1].shape)
    return math.prod(weights[:-2]) if len(weights) > 2 and all(size > 0 for size in weights) else 1.0


def _parent(op: OpRecord, point: _Point) -> int:
    return point.found.tree.trace.calls[op.call].parent


def _attention(plain: Kernel, part: _Part, read: float, point: _Point) -> Kernel:
    """Heads of keys and values from the bytes that are read: they may be given repeated, and are not read so."""
    ranks = point.ranks(part) if part.split is not None else 1.0
    if len(part.attention) < 3:
        return _shared(plain, ranks)
    if part.attention[0][-1] != part.attention[2][-1]:
        return _latents(plain, part, read, point, ranks)
    b, h, new, d = point.shape(part.attention[0])[-4:]
    tokens = point.values.get("seq_len", 1.0) if point.of.decodes else new
    if new != tokens:  # query heads of one key are folded into its new tokens
        h, new = h * new / tokens, tokens
    context = point.shape(part.attention[1])[-2]
    cached = float(point.values.get("kv_bytes", 2))
    kv = min(h, max(1.0, round((read - 2 * b * h * new * d) / (2 * cached * b * context * d))))
    here = max(1.0, kv / ranks)
    said = point.found.tree.trace.calls[part.op.call].window
    length = context  # what no window is said of sees all that it is given, be it an encoder's or what was cached
    if said:
        length = max(context, point.values.get("cache_len", 0) + new if point.of.decodes else new)
    window = min(context, point.number(said)) if said else context  # a cache that forgets is as long as its window
    cache = 2 * cached * b * context * d
    plain = replace(
        plain, flops=plain.flops / ranks, matmul_flops=plain.matmul_flops / ranks,
        moved=(plain.moved - cache * kv) / ranks + cache * here if ranks > 1 else plain.moved,
    )  # fmt: skip
    sizes = {"b": b, "h": h / ranks, "kv": here, "d": d, "context": context, "new": new, "cache_bytes": cached}
    decodes = new == 1 or new < context
    form, precision = DECODE_ATTENTION if decodes else PREFILL_ATTENTION, "fp8" if cached < _PLAIN else "bf16"
    if new > 1 and not point.of.decodes and _in_both_directions(part, point):
        form, precision = ENCODER_ATTENTION, "bf16"
    if window < length:
        form = WINDOW_DECODE if decodes else WINDOW_PREFILL
        sizes |= {"context": length, "window": window}
        flops = form.work({**sizes, "h": sizes["h"] * new} if decodes else sizes)[0]
        plain = replace(plain, flops=plain.flops * flops / plain.matmul_flops, matmul_flops=flops)
    return replace(plain, precision=precision, form=form, sizes=sizes)


def _in_both_directions(part: _Part, point: _Point) -> bool:
    """Whether every query sees every key, and nothing was cached before: where no kernel is told otherwise, but for tokens of a model
    that generates among themselves, whose masks may hide what they will."""
    generates = point.found.tree.trace.phase == "prefill"
    return not point.number(part.causal) and not (generates and "seq_len" in variables(part.attention[1][-2]))


def _linear(plain: Kernel, part: _Part, form: Form, point: _Point) -> Kernel:
    """Linear attention, or the short convolution before it. Ranks share the heads (or channels); states are read and written once."""
    op, ranks = part.op, point.ranks(part) if part.split is not None else 1.0
    first = point.shape(op.inputs[0].shape)
    if form in (CONVOLUTION, CONVOLUTION_STEP):
        width = point.shape(op.inputs[1].shape)[-1]
        sizes = {"b": first[0], "new": first[-1], "channels": first[1] / ranks, "width": width}
        return replace(_shared(plain, ranks), form=form, sizes=sizes)
    b, new, heads, k_dim = first
    v_heads, v_dim = point.shape(op.inputs[2].shape)[-2:]
    sizes = {
        "b": b, "new": new, "k_heads": max(1.0, heads / ranks), "v_heads": max(1.0, v_heads / ranks), "k_dim": k_dim, "v_dim": v_dim,
    }  # fmt: skip
    return replace(_shared(plain, ranks), moved=form.work(sizes)[1], form=form, sizes=sizes)


def _latents(plain: Kernel, part: _Part, read: float, point: _Point, ranks: float) -> Kernel:
    """Attention whose keys are wider than its values; absorbed, its products say how wide the latents are that it reads.

    Ranks share the heads; every rank reads all latents, and its own heads of keys and values where they are expanded.
    """
    b, h, new, keys = point.shape(part.attention[0])[-4:]
    context, values = point.shape(part.attention[1])[-2], point.shape(part.attention[2])[-1]
    cached = float(point.values.get("kv_bytes", 2))
    rank = (plain.moved - read) / (2 * b * h * new)
    rope = plain.matmul_flops / (2 * b * h * new * context) - 2 * rank
    beside = new == 1 or new < context
    absorbed = beside and rank != values
    if ranks > 1:
        latents = cached * b * context * (rank + rope) if absorbed else 0.0
        moved = (plain.moved - latents) / ranks + latents
        plain = replace(plain, flops=plain.flops / ranks, matmul_flops=plain.matmul_flops / ranks, moved=moved)
    sizes = {"b": b, "h": h / ranks, "context": context, "new": new, "cache_bytes": cached}
    precision = "fp8" if cached < _PLAIN else "bf16"
    if absorbed:
        return replace(plain, precision=precision, form=LATENT_DECODE, sizes={**sizes, "rank": rank, "rope": rope})
    if beside:  # expanded for every token: no engine does so, and nobody measured it
        return plain
    return replace(plain, precision=precision, form=LATENT_PREFILL, sizes={**sizes, "keys": keys, "values": values})


# ---------------------------------------------------------------- joined


def _with_experts(point: _Point) -> Iterator[Kernel]:
    """Every kernel, those of a layer of experts as one."""
    layers = point.of.layers
    done: set[int] = set()
    for part in point.of.parts:
        layer = next((index for index, below in layers.items() if part.op.call in below), None)
        if layer is None:
            yield _kernel(part, point)
        elif layer not in done:
            done.add(layer)
            yield _experts([p for p in point.of.parts if p.op.call in layers[layer]], point, layer)


def _experts(parts: Sequence[_Part], point: _Point, index: int) -> Kernel:
    """One layer. Ranks of one group hold whole experts (`ep`), or all of them in parts; with data-parallel attention the experts
    see the tokens of every replica."""
    whole_layer = replace(point, parallel=ALONE)
    singles = [_kernel(part, whole_layer) for part in parts]
    grouped = [(p, s) for p, s in zip(parts, singles, strict=True) if p.op.operator in GROUPED]
    first, last = grouped[0][0].op, grouped[-1][0].op
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
        grouped[0][1], operation="experts", module=point.found.tree.pattern(call),
        classes=point.found.tree.classes(call), count=count, joins=(), file=call.forward_file, line=call.forward_line,
        flops=sum(s.flops * n for s, n in zip(singles, shares, strict=True)), matmul_flops=sum(s.matmul_flops for _, s in grouped),
        moved=weights, precision=precision, counted=all(s.counted for s in singles),
    )  # fmt: skip
    sizes = {
        "tokens": tokens, "hidden": hidden, "inter": inter, "topk": rows / tokens, "experts": experts, "tp": 1.0, "ep": 1.0,
        "weight_bytes": BYTES[precision], "skew": ROUTING_SKEW, "matrices": float(round(whole.matmul_flops / (2 * rows * hidden * inter))),
    }  # fmt: skip
    spread = point.parallel
    if spread.tp * spread.dp * spread.ep == 1:
        return replace(whole, form=EXPERTS, sizes=sizes)
    over = spread.expert_ranks
    here = {
        **sizes,
        "tokens": tokens * (spread.dp if spread.ep > 1 else 1),
        "ep": float(spread.ep),
        "tp": over / spread.ep,
    }
    alone, on_rank = EXPERTS.work(sizes), EXPERTS.work(here)
    share = on_rank[0] / alone[0]
    return replace(
        whole, form=EXPERTS, sizes=here, flops=whole.flops * share, matmul_flops=whole.matmul_flops * share,
        moved=whole.moved * on_rank[1] / alone[1],
    )  # fmt: skip


def _stored(grouped: Sequence[tuple[_Part, Kernel]], point: _Point) -> float:
    """Bytes per element of the experts' weights, as all that can be touched are read."""
    part, _ = grouped[0]
    op = part.op
    experts, inner, outer = point.shape(op.inputs[1].shape)[:3]
    rows = point.shape(op.inputs[0].shape)[0]
    activations = sum(point.bytes(view.size) for view in op.views)
    return (point.bytes(part.bound) - activations) / (min(experts, rows) * inner * outer)


# ---------------------------------------------------------------- exchanged


def _exchanges(point: _Point) -> Iterator[Kernel]:
    """What a rank tells others: sums of partial results, tokens for experts elsewhere, what a stage hands to the next."""
    spread, found = point.parallel, point.of.shards
    by_order = {op.order: op for op in point.found.tree.trace.ops}
    for one in found.exchanges if spread.tp > 1 else ():
        whole = point.bytes(one.bytes) if one.bytes else 0.0
        told, made = by_order[one.order], by_order.get(one.made)
        yield _exchange(one.kind, told, point, whole, spread.tp, int(point.number(one.repeat)), made)
    handed_on = point.bytes(found.handed_on) if found.handed_on else 0.0
    if spread.ep > 1 and spread.dp > 1 and point.of.layers:
        for index in point.of.layers:
            first = next(part for part in point.of.parts if part.op.call == index and part.op.operator in GROUPED)
            count = int(point.number(first.repeat))
            yield _exchange("all_gather", first.op, point, handed_on * spread.dp, spread.dp, count)
            yield _exchange("reduce_scatter", first.op, point, handed_on * spread.dp, spread.dp, count)
    if spread.pp > 1:
        yield _exchange(
            "send", point.of.parts[-1].op, point, handed_on / (spread.tp if spread.sp else 1), 2, spread.pp - 1
        )


def _exchange(
    kind: str, op: OpRecord, point: _Point, size: float, ranks: int, count: int, made: OpRecord | None = None
) -> Kernel:
    """Timed as what it is; what is sent takes no more than an all-reduce among two. It runs in the innermost call around both `op` and
    what made its parts."""
    tree = point.found.tree
    calls = tree.trace.calls
    makers = {one.index for one in tree.around(calls[(made or op).call])}
    call = next((one for one in tree.around(calls[op.call]) if one.index in makers), calls[op.call])
    return Kernel(
        operation=kind, module=tree.pattern(call), classes=tree.classes(call), file=op.site.file, line=op.site.line,
        count=count, flops=0.0, matmul_flops=0.0, moved=0.0, form=FORMS.get(kind, ALL_REDUCE) if size else None,
        sizes={"bytes": size, "ranks": float(ranks)}, exchanged=size, ranks=ranks,
        order=op.order - 0.5 if kind == "all_reduce" else op.order + 0.5,  # a sum is exchanged before somebody reads it
    )  # fmt: skip


# ---------------------------------------------------------------- products as one


def _joined(every: Iterable[Kernel]) -> Iterator[Kernel]:
    """Products with weights that read the same activations in the same module, as one product."""
    groups: dict[tuple[object, ...], list[Kernel]] = {}
    for number, one in enumerate(every):
        groups.setdefault((*one.joins, one.count, one.precision) if one.joins else (number,), []).append(one)
    for same in groups.values():
        yield same[0] if len(same) == 1 else _one_product(same)


def _small_as_one(every: Iterable[Kernel]) -> Iterator[Kernel]:
    """Kernels of one module that only move data, with no product between them, as one: rotary embeddings and what is written to
    the cache, the choice of experts."""
    held: list[Kernel] = []
    for one in every:
        alike = not one.matmul_flops and one.counted
        if held and not (alike and (one.module, one.count) == (held[0].module, held[0].count)):
            yield _one_small(held)
            held = []
        if alike:
            held.append(one)
        else:
            yield one
    if held:
        yield _one_small(held)


def _one_small(same: Sequence[Kernel]) -> Kernel:
    """All of them, where the first of them runs and at the line of the one that moves most."""
    if len(same) == 1:
        return same[0]
    names = ", ".join(dict.fromkeys(name for k in same for name in k.operation.split(", ")))
    most = max(same, key=lambda k: k.moved)
    flops, moved = sum(k.flops for k in same), sum(k.moved for k in same)
    return replace(same[0], operation=names, file=most.file, line=most.line, flops=flops, moved=moved)


def _one_product(same: Sequence[Kernel]) -> Kernel:
    first = same[0]
    assert first.sizes is not None
    n = sum(k.sizes["n"] for k in same if k.sizes is not None)
    activations = BYTES["fp32" if first.wide else "bf16"] * first.sizes["m"] * first.sizes["k"]
    names = [k.module.rpartition(".")[2] for k in same]
    return replace(
        first, operation=f"{first.operation} ({', '.join(dict.fromkeys(filter(None, names)))})",
        module=first.module.rpartition(".")[0], classes=first.classes[:-1], flops=sum(k.flops for k in same), matmul_flops=sum(k.matmul_flops for k in same),
        moved=sum(k.moved for k in same) - activations * (len(same) - 1), sizes={**first.sizes, "n": n},
    )  # fmt: skip


__all__ = ["Kernel", "Pass", "numbers"]
