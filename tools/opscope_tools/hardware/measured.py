"""The public tables of measured kernels, read in place from `aiconfigurator-core` (Apache-2.0; the extra `silicon` installs it).

The package is found, never imported: importing it loads a native library. Quantities are turned into those of
opscope_tools.hardware.forms, times into seconds. `seen` marks the rows that a fit may use: the half of the shapes whose
digest begins with 0 to 7. The other half is for figures only.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from opscope_schemas.errors import ConfigError
from opscope_schemas.estimates import HOST_BOUND

from opscope_tools.hardware.devices import shipped
from opscope_tools.hardware.forms import BYTES, ENCODER_ATTENTION, FORMS

Numbers = NDArray[np.float64]
PACKAGE = "aiconfigurator_core"
BACKENDS = ("vllm", "trtllm", "sglang")
#: precisions as the tables call them
_PRECISIONS = {
    "bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "int4_wo": "int4", "int8_wo": "int8",
    "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4_mxfp8",
}  # fmt: skip
#: through plain PyTorch, 1.35 times what others' took at few rows; whole runs of that engine (the development half) are faster than their sum
_UNTUNED = {("trtllm", "nvfp4")}
#: rows of a class below which nothing is fitted
_LEAST = 300
#: widths of activations as a product reads them
_ACTIVATIONS = {"fp8": 1.0, "fp8_block": 1.0, "nvfp4": BYTES["nvfp4"], "int8": 2.0}


@dataclass(frozen=True)
class Rows:
    """Measured kernels of one class: sizes by name, seconds, which of them a fit may see."""

    form: str
    backend: str
    precision: str
    head_dim: int | None
    kernels: tuple[str, ...]
    table: str
    sizes: dict[str, Numbers]
    seconds: Numbers
    seen: NDArray[np.bool_]
    #: what the rows that no fit sees have that the others lack
    held_out: str = "shapes"


def folder() -> Path:
    """Where the tables lie. Raises `ConfigError` where they are not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations or importlib.util.find_spec("pyarrow") is None:
        raise ConfigError("Tables of measured kernels are not installed.", next_step="pip install 'opscope[silicon]'")
    return Path(found.submodule_search_locations[0]) / "systems"


def digest(table: str) -> str:
    """Of a table's bytes."""
    return hashlib.sha256((folder() / "data" / table).read_bytes()).hexdigest()


def systems() -> list[str]:
    """Those with measured products."""
    return sorted(p.name for p in (folder() / "data").iterdir() if (p / "gemm").is_dir())


def _newest(system: str, family: str, backend: str, name: str) -> Path | None:
    found = list((folder() / "data" / system / family / backend).glob(f"*/{name}_perf.parquet"))
    return max(
        found,
        key=lambda p: [(part.isdigit(), part.zfill(8)) for part in p.parent.name.replace("rc", ".").split(".")],
        default=None,
    )


@cache
def _read(file: Path) -> dict[str, Any]:
    from pyarrow import parquet

    table = parquet.read_table(file)
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


def _seen(*columns: Numbers) -> NDArray[np.bool_]:
    """By the digest of a shape: rows of one shape are all seen or all unseen."""
    names = ["x".join(str(int(v)) for v in row) for row in zip(*columns, strict=True)]
    known = {n: int(hashlib.sha256(n.encode()).hexdigest()[0], 16) < 8 for n in set(names)}
    return np.array([known[n] for n in names])


def _rows(form: str, backend: str, precision: str, file: Path, held: dict[str, Any], chosen: Any, sizes: dict[str, Any],
          seen: Any, head_dim: int | None = None, least: int = _LEAST, held_out: str = "shapes") -> Iterator[Rows]:  # fmt: skip
    if chosen.sum() < least or min((seen & chosen).sum(), (~seen & chosen).sum()) < least // 4:
        return
    kernels = tuple(sorted({str(k) for k in held["kernel_source"][chosen]}))
    full = {n: np.broadcast_to(np.asarray(v, dtype=float), chosen.shape)[chosen] for n, v in sizes.items()}
    yield Rows(
        form, backend, precision, head_dim, kernels, str(file.relative_to(folder() / "data")), full,
        held["latency"][chosen].astype(float) * 1e-3, seen[chosen], held_out,
    )  # fmt: skip


def products(system: str) -> Iterator[Rows]:
    """Matrix products of each backend and precision."""
    for backend in BACKENDS:
        if (file := _newest(system, "gemm", backend, "gemm")) is None:
            continue
        held = _read(file)
        seen = _seen(held["n"], held["k"])
        for dtype in sorted(set(held["gemm_dtype"])):
            precision = _PRECISIONS.get(dtype)
            if precision is None or (backend, precision) in HOST_BOUND | _UNTUNED:
                continue
            sizes = {
                "m": held["m"], "n": held["n"], "k": held["k"], "weight_bytes": BYTES[precision],
                "activation_bytes": _ACTIVATIONS.get(precision, 2.0),
            }  # fmt: skip
            yield from _rows("product", backend, precision, file, held, held["gemm_dtype"] == dtype, sizes, seen)


def attention(system: str) -> Iterator[Rows]:
    """Attention with and without a window, in bf16; `precision` is that of the cache."""
    yield from _possible(system, _attention(system))


def _attention(system: str) -> Iterator[Rows]:
    for backend in BACKENDS:
        for name, form in (("generation", "decode_attention"), ("context", "prefill_attention")):
            if (file := _newest(system, "attention", backend, f"{name}_attention")) is None:
                continue
            held = _read(file)
            heads = held["num_heads"].astype(float)
            kv = np.where(held["num_key_value_heads"] == 0, heads, held["num_key_value_heads"])
            window = np.nan_to_num(held.get("window_size", np.zeros(len(heads))).astype(float))
            step = held["step"].astype(float)
            plain = (held["attn_dtype"] != "fp8") & ((step == 0) | (form == "decode_attention"))
            seen = _seen(heads, kv, held["head_dim"])
            for dtype in sorted(set(held["kv_cache_dtype"])):
                precision = {"bfloat16": "bf16", "fp8": "fp8"}.get(dtype)
                for width in sorted(set(held["head_dim"])):
                    if precision is None:
                        continue
                    sizes = {
                        "b": held["batch_size"], "h": heads, "kv": kv, "d": held["head_dim"], "context": held["isl"] + step,
                        "new": held["isl"], "cache_bytes": BYTES[precision], "window": window,
                    }  # fmt: skip
                    chosen = plain & (held["kv_cache_dtype"] == dtype) & (held["head_dim"] == width)
                    for kind, those in ((form, window <= 0), (f"window_{form}", window > 0)):
                        yield from _rows(kind, backend, precision, file, held, chosen & those, sizes, seen, int(width))


def encoders(system: str) -> Iterator[Rows]:
    """Attention in both directions, in bf16, with as many keys as queries and as many heads of them."""
    yield from _possible(system, _encoders(system))


def _encoders(system: str) -> Iterator[Rows]:
    for backend in BACKENDS:
        if (file := _newest(system, "encoder_attention", backend, "encoder_attention")) is None:
            continue
        held = _read(file)
        heads, seen = held["num_heads"], _seen(held["num_heads"], held["head_dim"], held["isl"])
        for width in sorted(set(held["head_dim"])):
            sizes = {
                "b": held["batch_size"], "h": heads, "kv": heads, "d": held["head_dim"], "new": held["isl"], "context": held["isl"],
            }  # fmt: skip
            chosen = (held["attn_dtype"] == "bfloat16") & (held["head_dim"] == width)
            yield from _rows(ENCODER_ATTENTION.name, backend, "bf16", file, held, chosen, sizes, seen, int(width))


def latents(system: str) -> Iterator[Rows]:
    """Attention over latents, as kernels; what is only there as whole modules is left out. `precision` is that of the cache."""
    rank, rope, keys, values = 512, 64, 192, 128  # of the one family of models that was measured
    for backend in BACKENDS:
        for name, form in (("generation", "latent_decode"), ("context", "latent_prefill")):
            if (file := _newest(system, "mla", backend, f"{name}_mla")) is None:
                continue
            held = _read(file)
            heads = held["num_heads"]
            widths = np.full(len(heads), 1.0)
            seen = _seen(heads, rank * widths, rope * widths)
            for dtype in sorted(set(held["kv_cache_dtype"])):
                if (precision := {"bfloat16": "bf16", "fp8": "fp8"}.get(dtype)) is None:
                    continue
                chosen = (held["kv_cache_dtype"] == dtype) & ((held["step"] == 0) | (form == "latent_decode"))
                sizes = {
                    "b": held["batch_size"], "h": heads, "context": held["isl"] + held["step"], "new": held["isl"], "rank": rank,
                    "rope": rope, "keys": keys, "values": values, "cache_bytes": BYTES[precision],
                }  # fmt: skip
                yield from _rows(form, backend, precision, file, held, chosen, sizes, seen)


def _possible(system: str, every: Iterator[Rows]) -> Iterator[Rows]:
    """Without classes of which rows far beyond L2 beat the memory's bandwidth: those were measured on less than their sizes say."""
    device = shipped()[system]
    for rows in every:
        moved = np.asarray(FORMS[rows.form].work(cast(Any, rows.sizes))[1])
        far = moved > 4 * (device.l2_bytes or 0)
        if not (rows.seconds < moved / device.bandwidth)[far].any():
            yield rows


def linear_attention(system: str) -> Iterator[Rows]:
    """Delta rules and the short convolutions before them, in bf16 with states in float32."""
    yield from _possible(system, _linear_attention(system))


def _linear_attention(system: str) -> Iterator[Rows]:
    for backend in BACKENDS:
        for family, name, rule in (("linear_attention", "gdn", "gated_delta"), ("kda", "kda", "kimi_delta")):
            if (file := _newest(system, family, backend, name)) is None:
                continue
            held = _read(file)
            heads = [held[n] for n in ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim")]
            seen = _seen(*heads)
            convolution = np.array(["conv1d" in str(kernel) for kernel in held["kernel_source"]])
            k_heads, v_heads, k_dim, v_dim = heads
            sizes = {
                "b": held["batch_size"], "new": held["seq_len"], "k_heads": k_heads, "v_heads": v_heads, "k_dim": k_dim, "v_dim": v_dim,
                "channels": 2 * k_heads * k_dim + v_heads * v_dim, "width": held["d_conv"],
            }  # fmt: skip
            for phase, kinds in (
                ("context", (f"{rule}_prefill", "short_convolution")),
                ("generation", (f"{rule}_decode", "short_convolution_step")),
            ):
                of_phase = held["phase"] == phase
                yield from _rows(kinds[0], backend, "bf16", file, held, of_phase & ~convolution, sizes, seen, least=40)
                if name == "gdn":
                    yield from _rows(kinds[1], backend, "bf16", file, held, of_phase & convolution, sizes, seen)


@cache
def _ungated_experts() -> frozenset[tuple[int, int, int]]:
    """Width, inner width and number of experts of the measured models whose experts have no gate; 0: as wide as their layers."""
    found = set()
    for file in (folder().parent / "model_configs").glob("*_config.json"):
        config = json.loads(file.read_text("utf-8"))
        if config.get("mlp_hidden_act") == "relu2" and config.get("n_routed_experts"):
            found.add((config.get("moe_latent_size") or 0, config["moe_intermediate_size"], config["n_routed_experts"]))
    return frozenset(found)


def _matrices(hidden: Numbers, inter: Numbers, experts: Numbers) -> Numbers:
    """Of each row's experts: 3 with a gate, 2 without, which the tables do not say.

    A table that has none of those over latents was made before anyone knew of them, and gave all a gate.
    """
    rows = list(zip(hidden.tolist(), inter.tolist(), experts.tolist(), strict=True))
    known = _ungated_experts()
    ungated = {row[1:] for row in known} if known.intersection(rows) else set()
    return np.array([2.0 if row[1:] in ungated else 3.0 for row in rows])


def experts(system: str) -> Iterator[Rows]:
    """Layers of experts; of the kernels that a backend was measured with in a precision, the one with most rows."""
    for backend in BACKENDS:
        if (file := _newest(system, "moe", backend, "moe")) is None:
            continue
        held = _read(file)
        names = ("hidden_size", "inter_size", "topk", "num_experts")
        seen = _seen(*(held[n] for n in names))
        sizes = dict(zip(("hidden", "inter", "topk", "experts"), (held[n] for n in names), strict=True))
        skew = np.array([float(str(d).rpartition("_")[2]) if "law" in str(d) else 0.0 for d in held["distribution"]])
        sizes["matrices"] = _matrices(sizes["hidden"], sizes["inter"], sizes["experts"])
        sizes |= {"tokens": held["num_tokens"], "tp": held["moe_tp_size"], "ep": held["moe_ep_size"], "skew": skew}
        for dtype in sorted(set(held["moe_dtype"])):
            precision = _PRECISIONS.get(dtype)
            of_type = held["moe_dtype"] == dtype
            sources = [s for s in sorted(set(held["kernel_source"][of_type])) if "nongated" not in s]
            if precision is None or not sources:
                continue
            most = max(sources, key=lambda s: int((of_type & (held["kernel_source"] == s)).sum()))
            chosen = of_type & (held["kernel_source"] == most)
            split, held_out = seen, "shapes"
            if seen[chosen].all():  # no shape is left to judge it by
                counts = np.unique(held["num_tokens"])
                split, held_out = np.searchsorted(counts, held["num_tokens"]) % 2 == 0, "token counts"
            stored = {**sizes, "weight_bytes": BYTES[precision]}
            yield from _rows("experts", backend, precision, file, held, chosen, stored, split, held_out=held_out)


def collectives(system: str) -> Iterator[Rows]:
    """All-reduces of each backend, from CUDA graphs and without, and what NCCL does.

    Sizes in the tables are elements; every second one is unseen.
    """
    for backend in (*BACKENDS, "nccl"):
        family, name = ("nccl", "nccl") if backend == "nccl" else (backend, "custom_allreduce")
        if (file := _newest(system, "comm", family, name)) is None:
            continue
        held = _read(file)
        eager = np.array([str(kind).endswith("eager") for kind in held.get("backend", held["kernel_source"])])
        sizes = {"bytes": held["message_size"].astype(float) * 2, "ranks": held["num_gpus"]}
        seen = np.searchsorted(np.unique(held["message_size"]), held["message_size"]) % 2 == 0
        two_bytes = held["nccl_dtype"] == "half" if backend == "nccl" else np.full(len(seen), True)
        for operation in sorted(set(held["op_name"])):
            form = "all_to_all" if operation == "alltoall" else operation
            chosen = two_bytes & (held["op_name"] == operation)
            yield from _rows(form, backend, "bf16", file, held, chosen & ~eager, sizes, seen, least=30)
            yield from _rows(f"eager_{form}", backend, "bf16", file, held, chosen & eager, sizes, seen, least=30)


def every(system: str, form: str = "") -> Iterator[Rows]:
    """All classes of one system, or those of one form; of tables without it none is read."""
    kinds: dict[str, Callable[[str], Iterator[Rows]]] = {
        "product": products, "decode_attention prefill_attention": attention, "encoder": encoders, "latent": latents, "delta convolution": linear_attention, "experts": experts,
        "all_": collectives, "reduce_scatter": collectives,
    }  # fmt: skip
    wanted = [read for names, read in kinds.items() if not form or any(name in form for name in names.split())]
    for read in dict.fromkeys(wanted):
        yield from (rows for rows in read(system) if not form or rows.form == form)
