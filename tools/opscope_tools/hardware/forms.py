"""What a class of kernels asks of a device, and the form of the time that it takes.

A form has two parts. `base` is physics with a few parameters: a launch, work at a share of the peak, bytes at a share of the
bandwidth. A thin table over `axes` multiplies it where measured kernels differ from that (grids.py). Both are fitted on
measured rows (benchmarks/silicon), so every function here is plain arithmetic: the fit hands it whole columns.

Letters: a product is (m, k) x (k, n); attention has b sequences, h query heads, g of them to a key/value head, width d.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from opscope_tools.hardware.grids import Axis

#: name of a quantity -> its value
Sizes = Mapping[str, float]
#: bytes that weights, activations and the cache take, an element, scales of blocks included
BYTES = {
    "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4 / 128**2, "int8": 1.0, "int4": 0.5 + 2 / 128,
    "mxfp4": 0.5 + 1 / 32, "nvfp4": 0.5 + 1 / 16,
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


PRODUCT = Form(
    "product", ("m", "n", "k", "weight_bytes", "activation_bytes"), ("launch", "compute", "memory", "quantisation"),
    (3e-6, 0.7, 0.7, 0.1),
    (Axis("m", (1, 32, 128, 512, 2048, 8192, 32768)), Axis("n", (128, 1024, 4096, 16384, 65536)),
     Axis("k", (128, 1024, 4096, 16384))),
    _product_work, _product, lambda x: (x["m"], x["n"], x["k"]),
)  # fmt: skip


# ---------------------------------------------------------------- attention


def _decode_work(x: Sizes) -> tuple[float, float]:
    b, h, kv, d, context = x["b"], x["h"], x["kv"], x["d"], x["context"]
    return 4 * b * h * d * context, 2 * x["cache_bytes"] * b * context * kv * d + 4.0 * b * h * d


def _decode(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    """Sums, not the larger: sequences and their heads are dealt out to multiprocessors, each of which then reads."""
    launch, sequence, head, memory = p
    b = x["b"]
    return launch + sequence * b + head * b * x["kv"] / rates.sms + _decode_work(x)[1] / (rates.bandwidth * memory)


DECODE_ATTENTION = Form(
    "decode_attention", ("b", "h", "kv", "d", "context", "cache_bytes"), ("launch", "sequence", "head", "memory"),
    (1e-5, 1e-8, 2e-6, 0.9),
    (Axis("sequences times key/value heads", (1, 16, 64, 256, 1024, 8192)), Axis("context", (2, 128, 1024, 8192, 131072)),
     Axis("query heads to a key/value head", (1, 4, 16, 64))),
    _decode_work, _decode, lambda x: (x["b"] * x["kv"], x["context"], x["h"] / x["kv"]),
)  # fmt: skip


def _prefill_work(x: Sizes) -> tuple[float, float]:
    """Causal: a query sees what lies before it."""
    b, h, kv, d, new = x["b"], x["h"], x["kv"], x["d"], x["new"]
    return 2 * b * h * d * new * (new + 1), 2 * x["cache_bytes"] * b * new * kv * d + 4.0 * b * h * d * new


def _prefill(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    launch, sequence, compute, memory = p
    flops, moved = _prefill_work(x)
    return launch + sequence * x["b"] + _either(flops / (rates.peak * compute), moved / (rates.bandwidth * memory))


PREFILL_ATTENTION = Form(
    "prefill_attention", ("b", "h", "kv", "d", "new", "cache_bytes"), ("launch", "sequence", "compute", "memory"),
    (1e-5, 3e-8, 0.6, 0.8),
    (Axis("new tokens", (1, 64, 256, 1024, 4096, 16384)), Axis("sequences times heads", (1, 8, 32, 128, 512, 4096)),
     Axis("query heads to a key/value head", (1, 4, 16))),
    _prefill_work, _prefill, lambda x: (x["new"], x["b"] * x["h"], x["h"] / x["kv"]),
)  # fmt: skip


# ---------------------------------------------------------------- experts


def _expert_work(x: Sizes) -> tuple[float, float]:
    """A gated layer of experts on one rank, tokens spread evenly: each expert that is expected to be touched is read once."""
    here, inter = x["experts"] / x["ep"], x["inter"] / x["tp"]
    chosen = x["tokens"] * x["topk"]
    touched = here * (1 - (1 - 1 / x["experts"]) ** chosen)
    pairs = chosen / x["ep"]
    weights = touched * 3 * x["hidden"] * inter * x["weight_bytes"]
    return 6 * pairs * x["hidden"] * inter, weights + 4 * x["tokens"] * x["hidden"] + pairs * (
        4 * x["hidden"] + 6 * inter
    )


def _experts(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    launch, expert, compute, memory = p
    flops, moved = _expert_work(x)
    work = _either(flops / (rates.peak * compute), moved / (rates.bandwidth * memory))
    return launch + expert * x["experts"] / x["ep"] + work


EXPERTS = Form(
    "experts", ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "weight_bytes"),
    ("launch", "expert", "compute", "memory"), (3e-5, 1e-8, 0.4, 0.7),
    (Axis("tokens of an expert", (0.05, 0.5, 4, 32, 256, 4096)), Axis("inner width", (64, 256, 1024, 4096)),
     Axis("experts here", (1, 8, 64, 256, 512))),
    _expert_work, _experts,
    lambda x: (x["tokens"] * x["topk"] / x["experts"], x["inter"] / x["tp"], x["experts"] / x["ep"]),
)  # fmt: skip


# ---------------------------------------------------------------- collectives


def _all_reduce_work(x: Sizes) -> tuple[float, float]:
    return 0.0, x["bytes"]


def _all_reduce(p: Sequence[float], x: Sizes, rates: Rates) -> float:
    """A ring: every rank sends and receives each byte but its own part twice."""
    launch, rank, link = p
    n = x["ranks"]
    return launch + rank * (n - 1) + 2 * (n - 1) / n * x["bytes"] / (rates.link * link)


ALL_REDUCE = Form(
    "all_reduce", ("bytes", "ranks"), ("launch", "rank", "link"), (6e-6, 3e-7, 0.7),
    (Axis("bytes", (512, 2**13, 2**16, 2**18, 2**20, 2**22, 2**25, 2**29, 2**31)), Axis("ranks", (2, 4, 8))),
    _all_reduce_work, _all_reduce, lambda x: (x["bytes"], x["ranks"]),
)  # fmt: skip

FORMS = {form.name: form for form in (PRODUCT, DECODE_ATTENTION, PREFILL_ATTENTION, EXPERTS, ALL_REDUCE)}

__all__ = [
    "ALL_REDUCE",
    "BYTES",
    "DECODE_ATTENTION",
    "EXPERTS",
    "FORMS",
    "PREFILL_ATTENTION",
    "PRODUCT",
    "Form",
    "Rates",
    "Sizes",
]
