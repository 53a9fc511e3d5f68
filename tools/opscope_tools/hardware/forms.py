"""What a class of kernels asks of a device, and the form of the time that it takes.

A form has two parts. `base` is physics with a few parameters: a launch, work at a share of the peak, bytes at a share of the
bandwidth. A thin table over `axes` multiplies it where measured kernels differ from that (grids.py). Both are fitted on
measured rows (benchmarks/silicon), so every function here is plain arithmetic: the fit hands it whole columns.

Letters: a product is (m, k) x (k, n); attention has b sequences, h query heads, kv heads of keys and values, width d. Latents
have a rank and a rotary part beside it. A linear layer keeps a state of (k_dim, v_dim) for each of its v_heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from opscope_tools.hardware.grids import Axis

#: name of a quantity -> its value
Sizes = Mapping[str, float]
#: bytes that weights, activations and the cache take, an element, scales of blocks included
BYTES = {
    "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4 / 128**2, "int8": 1.0, "int4": 0.5 + 2 / 128,
    "mxfp4": 0.5 + 1 / 32, "mxfp4_mxfp8": 0.5 + 1 / 32, "nvfp4": 0.5 + 1 / 16,
}  # fmt: skip
#: the sharper of two limits counts; where both are close they add up in part
_SHARP = 4.0


@dataclass(frozen=True)
class Rates:
    """What a device offers a kernel: operations and bytes a second, multiprocessors, bytes a second of a link one way."""

    peak: float
    bandwidth: float
    sms: float = 1.0
    link: float = 1.0


@dataclass(frozen=True)
class Form:
    """One class of kernels. `parameters` name what `base` takes, `start` where a fit begins; all of them are positive."""

    name: str
    sizes: tuple[str, ...]
    parameters: tuple[str, ...]
    start: tuple[float, ...]
    axes: tuple[Axis, ...]
    #: FLOPs and bytes, each weight, key, value and activation moved once
    work: Callable[[Sizes], tuple[float, float]]
    #: seconds
    base: Callable[[Sequence[float], Sizes, Rates], float]
    #: of each axis
    features: Callable[[Sizes], tuple[float, ...]]


def _either(first: float, second: float) -> float:
    """The larger, and a little more where both are alike."""
    both: float = (first**_SHARP + second**_SHARP) ** (1 / _SHARP)
    return both


# ---------------------------------------------------------------- products


def _product_work(x: Sizes) -> tuple[float, float]:
    m, n, k = x["m"], x["n"], x["k"]
    return 2 * m * n * k, x["activation_bytes"] * m * k + x["weight_bytes"] * n * k + 2.0 * m * n


def _product(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    """`quantisation`: bytes that are moved more for each activation, to quantise it before the product."""
    flops, moved = _product_work(x)
    launch, compute, memory, quantisation = p
    return (
        launch
        + _either(flops / (rates.peak * compute), moved / (rates.bandwidth * memory))
        + quantisation * x["m"] * x["k"] / rates.bandwidth
    )


def _product_features(x: Sizes) -> tuple[float, ...]:
    """Rows of the last tile that no row of the product fills cost as others do: kernels in 8 bits take up to twice as long for one
    row more than tiles hold. Tiles have 64 rows where those are all, else 128."""
    m = x["m"]
    tile = 64 + 64 * (m > 64)
    return m, x["n"], x["k"], 1 + (-m % tile) / tile


PRODUCT = Form(
    "product", ("m", "n", "k", "weight_bytes", "activation_bytes"), ("launch", "compute", "memory", "quantisation"),
    (3e-6, 0.7, 0.7, 0.1),
    (Axis("m", (1, 32, 128, 512, 2048, 8192, 32768)), Axis("n", (128, 1024, 4096, 16384, 65536)),
     Axis("k", (128, 1024, 4096, 16384)), Axis("1 and the empty share of the last tile", (1, 2))),
    _product_work, _product, _product_features,
)  # fmt: skip


# ---------------------------------------------------------------- attention


def _decode_work(x: Sizes) -> tuple[float, float]:
    b, h, kv, d, context = x["b"], x["h"], x["kv"], x["d"], x["context"]
    return 4 * b * h * d * context, 2 * x["cache_bytes"] * b * context * kv * d + 4.0 * b * h * d


#: query heads that one tile holds
_TILE = 32


def _decode(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    """Sums, not the larger: sequences and their heads are dealt out to multiprocessors, each of which then reads.

    `repeat`: some kernels read keys and values once for each query head where these are too many for a tile.
    """
    launch, sequence, head, memory, repeat = p
    b, kv = x["b"], x["kv"] + repeat * (x["h"] - x["kv"]) * (x["h"] > _TILE * x["kv"])
    moved = _decode_work({**x, "kv": kv})[1]
    return launch + sequence * b + head * b * kv / rates.sms + moved / (rates.bandwidth * memory)


DECODE_ATTENTION = Form(
    "decode_attention", ("b", "h", "kv", "d", "context", "cache_bytes"), ("launch", "sequence", "head", "memory", "repeat"),
    (1e-5, 1e-8, 2e-6, 0.9, 0.01),
    (Axis("sequences times key/value heads", (1, 16, 64, 256, 1024, 8192)), Axis("context", (2, 128, 512, 2048, 8192, 131072)),
     Axis("query heads to a key/value head", (1, 2, 32)), Axis("key/value heads", (1, 2))),
    _decode_work, _decode, lambda x: (x["b"] * x["kv"], x["context"], x["h"] / x["kv"], x["kv"]),
)  # fmt: skip


def _prefill_work(x: Sizes) -> tuple[float, float]:
    """Causal: a query sees what lies before it."""
    b, h, kv, d, new = x["b"], x["h"], x["kv"], x["d"], x["new"]
    return 2 * b * h * d * new * (new + 1), 2 * x["cache_bytes"] * b * new * kv * d + 4.0 * b * h * d * new


def _prefill(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    launch, sequence, compute, memory = p
    flops, moved = _prefill_work(x)
    return launch + sequence * x["b"] + _either(flops / (rates.peak * compute), moved / (rates.bandwidth * memory))


#: heads of one sequence are dealt out better than sequences of few heads
PREFILL_ATTENTION = Form(
    "prefill_attention", ("b", "h", "kv", "d", "new", "cache_bytes"), ("launch", "sequence", "compute", "memory"),
    (1e-5, 3e-8, 0.6, 0.8),
    (Axis("new tokens", (1, 16, 64, 128, 256, 512, 1024, 4096, 16384)),
     Axis("sequences times heads", (1, 8, 32, 128, 512, 4096, 32768)), Axis("query heads to a key/value head", (1, 16)),
     Axis("query heads", (1, 8, 32))),
    _prefill_work, _prefill, lambda x: (x["new"], x["b"] * x["h"], x["h"] / x["kv"], x["h"]),
)  # fmt: skip


# ---------------------------------------------------------------- attention in both directions


def _both_ways_work(x: Sizes) -> tuple[float, float]:
    """Every query sees every key: those of an encoder, or of a decoder on what an encoder made."""
    b, h, kv, d, new, context = x["b"], x["h"], x["kv"], x["d"], x["new"], x["context"]
    return 4 * b * h * d * new * context, 4.0 * b * d * (h * new + kv * context)


def _both_ways(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    launch, sequence, compute, memory = p
    flops, moved = _both_ways_work(x)
    return launch + sequence * x["b"] + _either(flops / (rates.peak * compute), moved / (rates.bandwidth * memory))


#: measured with as many keys as queries; of other numbers of both what has as many pairs stands beside it in the table
ENCODER_ATTENTION = Form(
    "encoder_attention", ("b", "h", "kv", "d", "new", "context"), PREFILL_ATTENTION.parameters, PREFILL_ATTENTION.start,
    (Axis("new tokens", (1, 16, 64, 128, 256, 512, 1024, 4096, 16384)),
     Axis("sequences times heads", (1, 8, 32, 128, 512, 4096))),
    _both_ways_work, _both_ways, lambda x: ((x["new"] * x["context"]) ** 0.5, x["b"] * x["h"]),
)  # fmt: skip


# ---------------------------------------------------------------- attention in a window


def _smaller(first: float, second: float) -> float:
    """Of two, as arithmetic that columns know too."""
    return (first + second - abs(first - second)) / 2


def _window_decode_work(x: Sizes) -> tuple[float, float]:
    """A query sees the last `window` positions, itself among them."""
    return _decode_work({**x, "context": _smaller(x["context"], x["window"])})


def _window_decode(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    return _decode(p, {**x, "context": _smaller(x["context"], x["window"])}, rates)


def _window_prefill_work(x: Sizes) -> tuple[float, float]:
    b, h, d, new, seen = x["b"], x["h"], x["d"], x["new"], _smaller(x["new"], x["window"])
    pairs = seen * (seen + 1) / 2 + (new - seen) * seen
    return 4 * b * h * d * pairs, _prefill_work(x)[1]


def _window_prefill(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    launch, sequence, compute, memory = p
    flops, moved = _window_prefill_work(x)
    return launch + sequence * x["b"] + _either(flops / (rates.peak * compute), moved / (rates.bandwidth * memory))


WINDOW_DECODE = replace(
    DECODE_ATTENTION, name="window_decode_attention", sizes=(*DECODE_ATTENTION.sizes, "window"), work=_window_decode_work,
    base=_window_decode,
)  # fmt: skip
WINDOW_PREFILL = replace(
    PREFILL_ATTENTION, name="window_prefill_attention", sizes=(*PREFILL_ATTENTION.sizes, "window"), work=_window_prefill_work,
    base=_window_prefill, axes=PREFILL_ATTENTION.axes[:3], features=lambda x: PREFILL_ATTENTION.features(x)[:3],
)  # fmt: skip


# ---------------------------------------------------------------- attention over latents


def _latent_decode_work(x: Sizes) -> tuple[float, float]:
    """Absorbed: queries lie in the latents' space, every head reads the same latents, and those are its values too."""
    b, h, context, rank, rope = x["b"], x["h"], x["context"], x["rank"], x["rope"]
    cached = x["cache_bytes"] * b * context * (rank + rope)
    return 2 * b * h * context * (2 * rank + rope), cached + 2.0 * b * h * (2 * rank + rope)


def _latent_decode(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    """`step`: of a position behind another, where a sequence is not dealt out to several multiprocessors."""
    launch, sequence, step, compute, memory = p
    flops, moved = _latent_decode_work(x)
    work = _either(flops / (rates.peak * compute), moved / (rates.bandwidth * memory))
    return launch + sequence * x["b"] + _either(step * x["context"], work)


LATENT_DECODE = Form(
    "latent_decode", ("b", "h", "context", "rank", "rope", "cache_bytes"),
    ("launch", "sequence", "step", "compute", "memory"), (1e-5, 1e-8, 1e-9, 0.6, 0.8),
    (Axis("sequences", (1, 8, 32, 128, 1024)), Axis("context", (2, 128, 1024, 8192, 131072)), Axis("heads", (1, 16, 64, 128))),
    _latent_decode_work, _latent_decode, lambda x: (x["b"], x["context"], x["h"]),
)  # fmt: skip


def _latent_prefill_work(x: Sizes) -> tuple[float, float]:
    """Expanded: causal attention whose keys (with their rotary part) are wider than its values; new tokens only."""
    rows, widths = x["b"] * x["h"] * x["new"], x["keys"] + x["values"]
    return rows * (x["new"] + 1) * widths, (2.0 + x["cache_bytes"]) * rows * widths


def _latent_prefill(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    launch, sequence, compute, memory = p
    flops, moved = _latent_prefill_work(x)
    return launch + sequence * x["b"] + _either(flops / (rates.peak * compute), moved / (rates.bandwidth * memory))


LATENT_PREFILL = Form(
    "latent_prefill", ("b", "h", "new", "keys", "values", "cache_bytes"), ("launch", "sequence", "compute", "memory"),
    (1e-5, 3e-8, 0.6, 0.8),
    (Axis("new tokens", (1, 64, 256, 1024, 4096, 32768)), Axis("sequences times heads", (1, 8, 32, 128, 512, 4096, 32768))),
    _latent_prefill_work, _latent_prefill, lambda x: (x["new"], x["b"] * x["h"]),
)  # fmt: skip


# ---------------------------------------------------------------- linear attention

#: states are kept and read as float32
_STATE_BYTES = 4.0


def _delta_work(x: Sizes) -> tuple[float, float]:
    """The delta rule as its recurrence defines it: three products of a token with each state. Kernels in chunks compute more.

    Each state is read once and written once, queries, keys and values are read, results written.
    """
    b, new, states = x["b"], x["new"], x["v_heads"] * x["k_dim"] * x["v_dim"]
    tokens = 4.0 * b * new * (x["k_heads"] * x["k_dim"] + x["v_heads"] * x["v_dim"])
    return 6 * b * new * states, 2 * _STATE_BYTES * b * states + tokens


def _delta(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    """`step`: of a token behind another in one sequence; `head`: of a state of a multiprocessor."""
    launch, step, head, compute, memory = p
    flops, moved = _delta_work(x)
    work = _either(flops / (rates.peak * compute), moved / (rates.bandwidth * memory))
    return launch + head * x["b"] * x["v_heads"] / rates.sms + _either(step * x["new"], work)


DELTA_PREFILL = Form(
    "gated_delta_prefill", ("b", "new", "k_heads", "v_heads", "k_dim", "v_dim"),
    ("launch", "step", "head", "compute", "memory"), (1e-5, 4e-8, 1e-7, 0.1, 0.5),
    (Axis("new tokens", (1, 64, 512, 4096, 32768)), Axis("states", (1, 16, 64, 128, 256, 512, 4096, 32768)),
     Axis("states to a key head", (1, 4))),
    _delta_work, _delta, lambda x: (x["new"], x["b"] * x["v_heads"], x["v_heads"] / x["k_heads"]),
)  # fmt: skip


def _delta_step(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    launch, sequence, memory = p
    return launch + sequence * x["b"] + _delta_work(x)[1] / (rates.bandwidth * memory)


DELTA_DECODE = Form(
    "gated_delta_decode", DELTA_PREFILL.sizes, ("launch", "sequence", "memory"), (4e-6, 1e-8, 0.8),
    (Axis("states", (1, 32, 128, 512, 2048, 16384, 65536)), Axis("states to a key head", (1, 4))),
    _delta_work, _delta_step, lambda x: (x["b"] * x["v_heads"], x["v_heads"] / x["k_heads"]),
)  # fmt: skip


def _convolution_work(x: Sizes) -> tuple[float, float]:
    """Causal, each channel alone: what was new is read and written once. A multiply-add for each of `width` places."""
    entries = x["b"] * x["new"] * x["channels"]
    return 2 * entries * x["width"], 4.0 * entries


def _convolution(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    launch, sequence, memory = p
    return launch + sequence * x["b"] + _convolution_work(x)[1] / (rates.bandwidth * memory)


CONVOLUTION = Form(
    "short_convolution", ("b", "new", "channels", "width"), ("launch", "sequence", "memory"), (2e-6, 1e-8, 0.4),
    (Axis("tokens", (1, 16, 128, 1024, 8192, 65536, 1048576)), Axis("channels", (256, 2048, 8192, 16384)),
     Axis("sequences", (1, 8, 64))),
    _convolution_work, _convolution, lambda x: (x["b"] * x["new"], x["channels"], x["b"]),
)  # fmt: skip
CONVOLUTION_STEP = replace(
    CONVOLUTION, name="short_convolution_step",
    axes=(Axis("tokens", (1, 16, 64, 256, 1024)), Axis("channels", (256, 2048, 8192, 16384))),
    features=lambda x: (x["b"], x["channels"]),
)  # fmt: skip


# ---------------------------------------------------------------- experts


def _expert_work(x: Sizes) -> tuple[float, float]:
    """A layer of experts on one rank, tokens spread evenly: each expert that is expected to be touched is read once.

    `matrices` of an expert: 3 where it is gated, 2 where it is not.
    """
    here, inter = x["experts"] / x["ep"], x["inter"] / x["tp"]
    chosen = x["tokens"] * x["topk"]
    touched = here * (1 - (1 - 1 / x["experts"]) ** chosen)
    pairs = chosen / x["ep"]
    matrix = x["matrices"] * x["hidden"] * inter
    weights = touched * matrix * x["weight_bytes"]
    return 2 * pairs * matrix, weights + 4 * x["tokens"] * x["hidden"] + pairs * (
        4 * x["hidden"] + 2 * x["matrices"] * inter
    )


def _experts(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    """`block`: rows by which those of a touched expert are filled up. `outer`: how often the hidden row of every chosen pair is
    moved, whether its expert is here or on another rank; `inner`: the inner row of a pair whose expert is here.
    """
    launch, expert, compute, memory, block, outer, inner = p
    here, width = x["experts"] / x["ep"], x["inter"] / x["tp"]
    flops, moved = _expert_work(x)
    chosen = x["tokens"] * x["topk"]
    touched = here * (1 - (1 - 1 / x["experts"]) ** chosen)
    filled = 2 * x["matrices"] * x["hidden"] * width * touched * block
    rows = 2 * chosen * (outer * x["hidden"] + inner * width / x["ep"])
    work = _either((flops + filled) / (rates.peak * compute), moved / (rates.bandwidth * memory))
    return launch + expert * here + work + rows / rates.bandwidth


EXPERTS = Form(
    "experts", ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "matrices", "skew", "weight_bytes"),
    ("launch", "expert", "compute", "memory", "block", "outer", "inner"), (3e-5, 1e-8, 0.4, 0.7, 8.0, 2.0, 2.0),
    (Axis("tokens of an expert", (0.05, 0.5, 4, 32, 256, 4096)), Axis("inner width", (64, 256, 1024, 4096)),
     Axis("ranks of experts", (1, 8, 64, 256)), Axis("1 and the skew", (1, 2))),
    _expert_work, _experts,
    lambda x: (x["tokens"] * x["topk"] / x["experts"], x["inter"] / x["tp"], x["ep"], 1 + x["skew"]),
)  # fmt: skip


# ---------------------------------------------------------------- collectives


def _exchange_work(x: Sizes) -> tuple[float, float]:
    return 0.0, x["bytes"]


def _exchange(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    """A ring: every rank sends each byte but its own part once."""
    launch, rank, link = p
    n = x["ranks"]
    return launch + rank * (n - 1) + (n - 1) / n * x["bytes"] / (rates.link * link)


def _all_reduce(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    """A reduce-scatter and an all-gather."""
    return _exchange(p, {**x, "bytes": 2 * x["bytes"]}, rates)


ALL_REDUCE = Form(
    "all_reduce", ("bytes", "ranks"), ("launch", "rank", "link"), (6e-6, 3e-7, 0.7),
    (Axis("bytes", (512, 2**13, 2**16, 2**18, 2**20, 2**22, 2**25, 2**29, 2**31)), Axis("ranks", (2, 4, 8))),
    _exchange_work, _all_reduce, lambda x: (x["bytes"], x["ranks"]),
)  # fmt: skip
#: launched one by one, not from a graph
EAGER_ALL_REDUCE = replace(ALL_REDUCE, name="eager_all_reduce")
#: bytes are those of the whole: what all ranks gather, what is scattered, what a rank holds before it exchanges
EXCHANGES = tuple(
    replace(ALL_REDUCE, name=name, base=_exchange) for name in ("all_gather", "reduce_scatter", "all_to_all")
)
COLLECTIVES = (ALL_REDUCE.name, EAGER_ALL_REDUCE.name, *(form.name for form in EXCHANGES))

_KIMI = tuple(replace(form, name=form.name.replace("gated", "kimi")) for form in (DELTA_PREFILL, DELTA_DECODE))
FORMS = {
    form.name: form
    for form in (
        PRODUCT, DECODE_ATTENTION, PREFILL_ATTENTION, ENCODER_ATTENTION, WINDOW_DECODE, WINDOW_PREFILL, LATENT_DECODE, LATENT_PREFILL, DELTA_PREFILL, DELTA_DECODE, *_KIMI, CONVOLUTION,
        CONVOLUTION_STEP, EXPERTS, ALL_REDUCE, EAGER_ALL_REDUCE, *EXCHANGES,
    )
}  # fmt: skip

__all__ = [
    "ALL_REDUCE",
    "BYTES",
    "COLLECTIVES",
    "CONVOLUTION",
    "CONVOLUTION_STEP",
    "DECODE_ATTENTION",
    "DELTA_DECODE",
    "DELTA_PREFILL",
    "EAGER_ALL_REDUCE",
    "ENCODER_ATTENTION",
    "EXCHANGES",
    "EXPERTS",
    "FORMS",
    "LATENT_DECODE",
    "LATENT_PREFILL",
    "PREFILL_ATTENTION",
    "PRODUCT",
    "WINDOW_DECODE",
    "WINDOW_PREFILL",
    "Form",
    "Rates",
    "Sizes",
]
