"""What opscope itself counts and models, and what others have measured: as records beside those of the machine.

`Bench.opscope` runs a tool of the catalogue; its arguments are shown as the command that asks the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from opscope_schemas.errors import ConfigError
from opscope_schemas.evidence import Topic
from opscope_schemas.formula import evaluate

from opscope_tools.evidence import folded
from opscope_tools.evidence.bench import Bench, RefusedError
from opscope_tools.evidence.flamegraph import flamegraph
from opscope_tools.evidence.table import Collector, Picture, Reading
from opscope_tools.hardware.devices import shipped

__all__ = ["COLLECTORS"]

#: the checkpoint that the posts on GPUs speak of, where one sequence has that many tokens behind it, and the device
_CHECKPOINT, _CONTEXT, _DEVICE = "meta-llama/Llama-3.1-8B", 4096, "h100_sxm"
#: measured products that are looked at: rows, columns and inner size; one row of ever wider weights, sizes around a power of two, and
#: ever more rows of one width
_SHAPES = (
    *((1, n, 4096) for n in (1024, 2048, 4096, 6144, 8192, 16384, 51200)), *((1, n, 8192) for n in (7168, 8192, 10240)), *((m, 4096, 4096) for m in (8, 64, 256, 1024, 4096)),
)  # fmt: skip
_PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm")


def _point(bench: Bench) -> dict[str, Any]:
    """The workload's decode, in the middle of what it generates."""
    given = bench.workload
    sizes = {
        name: getattr(given, name)
        for name in ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "intermediate_size", "vocab_size")
    }
    names = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
    }
    config = {
        **{names.get(name, name): value for name, value in sizes.items()},
        "max_position_embeddings": given.prompt + given.tokens + 64,
    }
    width = {"float32": 4, "bfloat16": 2}[given.dtype]
    values = {
        "batch_size": given.batch_size,
        "seq_len": 1,
        "cache_len": given.prompt + given.tokens - 2,
        "w_bytes": width,
        "a_bytes": width,
        "kv_bytes": width,
    }
    return {"target": given.model, "phase": "decode", "config": config, "values": values, "logits": "last"}


#: tools whose command has another name
_COMMANDS = {"estimate_roofline": "estimate"}


def _command(tool: str, asked: Mapping[str, Any]) -> str:
    """The line of the shell that asks for the same."""
    words = ["opscope", _COMMANDS.get(tool, tool.replace("_", "-")), str(asked["target"])]
    for name, value in asked.items():
        if name != "target":
            given = [f"{key}={one}" for key, one in value.items()] if isinstance(value, Mapping) else [str(value)]
            words += [word for one in given for word in (f"--{name.replace('_', '-')}", one)]
    return " ".join(words)


def _asked(bench: Bench, tool: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    found = bench.opscope(tool, asked)
    bench.noted(_command(tool, asked))
    return dict(found)


def _workload_counts(bench: Bench) -> Mapping[str, str]:
    asked = _point(bench)
    found = _asked(bench, "expand_refs", {**asked, "detail": "formulas"})
    flow = _asked(bench, "trace_dataflow", {name: value for name, value in asked.items() if name != "logits"})
    values = found["evaluated"]["values"]
    products = sum(
        int(evaluate(str(kernel.get("repeat", "1")), values))
        for kernel in _leaves(found["document"]["kernels"])
        if kernel.get("operator") in _PRODUCTS
    )
    counts = {
        name: found["evaluated"][name]
        for name in ("flops", "matmul_flops", "memory_read", "memory_write", "floor_read", "floor_write", "weights")
    }
    cache = {name: flow["numbers"][name] for name in ("cache_after", "cache_per_token")}
    return {"counts": json.dumps({**counts, **cache, "products": products, "tokens": asked["values"]["cache_len"] + 1})}


def _leaves(kernels: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for kernel in kernels:
        if kernel.get("kernels"):
            yield from _leaves(kernel["kernels"])
        else:
            yield kernel


def _workload_counts_read(texts: Mapping[str, str]) -> Reading:
    found = json.loads(texts["counts"])
    moved = found["memory_read"] + found["memory_write"]
    values: dict[str, int | float | str] = {
        "flops": found["flops"], "matmul_flops": found["matmul_flops"], "read_bytes": found["memory_read"], "written_bytes": found["memory_write"], "moved_bytes": moved,
        "weight_bytes": found["weights"], "products": found["products"], "cache_bytes": found["cache_after"], "cache_per_token_bytes": found["cache_per_token"],
        "cache_tokens": found["tokens"], "intensity": round(found["flops"] / moved, 4), "floor_bytes": found["floor_read"] + found["floor_write"], "floor_percent": round(100 * (found["floor_read"] + found["floor_write"]) / moved, 1),
    }  # fmt: skip
    return Reading(values, digest=[f"{name:22} {value:,}" for name, value in values.items()])


# ---- a checkpoint on a GPU ------------------------------------------------------------------------------------------


def _decode_bytes(bench: Bench) -> Mapping[str, str]:
    asked = {
        "target": _CHECKPOINT,
        "phase": "decode",
        "values": {"batch_size": 1, "seq_len": 1, "cache_len": _CONTEXT},
        "logits": "last",
        "detail": "formulas",
    }
    found = _asked(bench, "expand_refs", asked)
    values = found["evaluated"]["values"]
    stacks: Counter[tuple[str, ...]] = Counter()
    for path, kernel in _paths(found["document"]["kernels"], (found["document"]["class_name"].rpartition(".")[2],)):
        stacks[path] += sum(int(evaluate(str(kernel["memory_access"][side]), values)) for side in ("read", "write"))
    return {
        "folded": folded.written(+stacks),
        "evaluated": json.dumps(
            {name: found["evaluated"][name] for name in ("flops", "memory_read", "memory_write", "weights")}
        ),
    }


def _paths(
    kernels: Iterable[Mapping[str, Any]], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Each operator with the modules that it runs in; its figures hold its repetitions already."""
    for kernel in kernels:
        called = kernel.get("class_name", "").rpartition(".")[2]
        name = f"{kernel['attribute']}: {called}" if called else kernel["operator"].rpartition(".")[2]
        path = (*above, name.replace(";", ":"))
        if kernel.get("kernels"):
            yield from _paths(kernel["kernels"], path)
        else:
            yield path, kernel


def _decode_bytes_read(texts: Mapping[str, str]) -> Reading:
    stacks, evaluated = folded.parsed(texts["folded"]), json.loads(texts["evaluated"])
    total = sum(stacks.values())
    values: dict[str, int | float | str] = {
        "moved_bytes": total, "weight_bytes": evaluated["weights"], "flops": evaluated["flops"], "context": _CONTEXT, "intensity": round(evaluated["flops"] / total, 3),
        **dict(folded.shares(stacks, (("products_percent", r"^mm$|^linear|: Linear$"), ("attention_percent", r"scaled_dot_product|sdpa"), ("norms_percent", r"RMSNorm")))),
    }  # fmt: skip
    held: Counter[str] = Counter()
    for stack, count in stacks.items():
        held[next((frame for frame in reversed(stack) if ": " in frame), stack[-1])] += count
    return Reading(
        values,
        digest=[f"{count / 1e9:9.3f} GB  {100 * count / total:5.1f} %  {name}" for name, count in held.most_common(8)],
    )


def _decode_bytes_drawn(texts: Mapping[str, str]) -> Iterable[Picture]:
    stacks = folded.parsed(texts["folded"])
    values = _decode_bytes_read(texts).values
    told = f"Flame graph of the {sum(stacks.values()):,} bytes that one decode step of {_CHECKPOINT} moves, by module: linear layers move {values['products_percent']} %."
    yield Picture(
        "decode-bytes",
        flamegraph(stacks, f"Bytes of one decode step of {_CHECKPOINT}, by module", "bytes"),
        texts["folded"],
        told,
    )


def _estimate(bench: Bench) -> Mapping[str, str]:
    return _estimated(
        bench,
        {
            "target": _CHECKPOINT,
            "hardware": _DEVICE,
            "phase": "decode",
            "values": {"batch_size": 1, "cache_len": _CONTEXT},
        },
    )


def _workload_estimate(bench: Bench) -> Mapping[str, str]:
    asked = _point(bench)
    sizes = {name: asked["values"][name] for name in ("batch_size", "cache_len")}
    return _estimated(
        bench,
        {"target": asked["target"], "hardware": _DEVICE, "phase": "decode", "config": asked["config"], "values": sizes},
    )


def _estimated(bench: Bench, asked: Mapping[str, Any]) -> Mapping[str, str]:
    found = _asked(bench, "estimate_roofline", asked)
    kernels = sum(operator["count"] for operator in found["operators"])
    return {
        "estimate": json.dumps({**{name: found[name] for name in ("totals", "hardware", "memory")}, "kernels": kernels})
    }


def _estimate_read(texts: Mapping[str, str]) -> Reading:
    found = json.loads(texts["estimate"])
    totals, memory = found["totals"], found["memory"]
    values: dict[str, int | float | str] = {
        "bound_seconds": totals["bound_seconds"], "calibrated_seconds": totals["calibrated_seconds"], "low_seconds": totals["low_seconds"], "high_seconds": totals["high_seconds"],
        "limited_by": totals["limited_by"], "kernels": found["kernels"], "weight_bytes": memory["weights_bytes"], "cache_bytes": memory["cache_bytes"],
        "device_bytes_per_second": found["hardware"]["bandwidth"], "device_flops_per_second": found["hardware"]["peak_flops"], "ridge": round(found["hardware"]["ridge"], 1),
    }  # fmt: skip
    values["bound_percent"] = round(100 * float(values["bound_seconds"]) / float(values["calibrated_seconds"]), 1)
    return Reading(
        values,
        digest=[
            f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
        ],
    )


# ---- kernels that others have measured ------------------------------------------------------------------------------


def _published(bench: Bench) -> Mapping[str, str]:
    from opscope_tools.hardware import measured  # here: it reads tables with numpy, which a list of tools does not need

    try:
        rows = [one for one in measured.products(_DEVICE) if one.precision == "bf16" and one.backend == "vllm"]
    except ConfigError as error:
        raise RefusedError("missing", f"{error.message} pip install 'opscope[silicon]' brings them.") from None
    if not rows:
        raise RefusedError("unsupported", f"The tables hold no bf16 product of {_DEVICE}.")
    (held, *_) = rows
    lines = []
    for m, n, k in _SHAPES:
        fits = (held.sizes["n"] == n) & (held.sizes["k"] == k) & (held.sizes["m"] == m)
        if fits.any():
            lines.append(f"{m} {n} {k} {float(held.seconds[fits].min()):.9f}")
    bench.noted(
        f"python -c \"import pyarrow.parquet as p; print(p.read_table('aiconfigurator_core/systems/data/{held.table}').to_pandas().query('k == 4096'))\""
    )
    return {"rows": "\n".join(lines), "table": held.table}


def _published_read(texts: Mapping[str, str]) -> Reading:
    device = shipped()[_DEVICE]
    values: dict[str, int | float | str] = {
        "device_bytes_per_second": device.bandwidth,
        "device_flops_per_second": device.peak("bf16")[0],
        "rows": len(texts["rows"].splitlines()),
    }
    shown = [f"{'m':>5} {'n':>6} {'k':>6} {'us':>9} {'TB/s':>6} {'TFLOP/s':>8}"]
    for line in texts["rows"].splitlines():
        m, n, k, seconds = (float(part) for part in line.split())
        moved, flops = 2 * (m * k + k * n + m * n), 2 * m * n * k
        key = f"m{m:.0f}_n{n:.0f}_k{k:.0f}"
        values |= {
            f"{key}_seconds": seconds,
            f"{key}_bytes_per_second": round(moved / seconds),
            f"{key}_flops_per_second": round(flops / seconds),
            f"{key}_bytes": int(moved),
        }
        values[f"{key}_of_peak_percent"] = round(
            100 * max(moved / seconds / device.bandwidth, flops / seconds / device.peak("bf16")[0]), 1
        )
        shown.append(
            f"{m:5.0f} {n:6.0f} {k:6.0f} {seconds * 1e6:9.2f} {moved / seconds / 1e12:6.2f} {flops / seconds / 1e12:8.1f}"
        )
    return Reading(values, digest=shown)


_GPU: tuple[Topic, ...] = ("memory-bandwidth",)

COLLECTORS: tuple[Collector, ...] = (
    Collector(
        "workload-counts", "What does a decode step of the workload cost by its formulas?", "opscope", "counters", "exact", ("cache-hierarchy", "memory-bottlenecks", "matrix-multiplication", "system-calls"),
        _workload_counts, _workload_counts_read,
    ),
    Collector(
        "decode-bytes", "Which modules move the bytes of a decode step?", "opscope", "flamegraph", "exact", _GPU, _decode_bytes, _decode_bytes_read, pictures=_decode_bytes_drawn,
    ),
    Collector(
        "estimate", "How long does that take on the device at the least, and by measured kernels?", "opscope", "counters", "modelled", _GPU,
        _estimate, _estimate_read,
    ),
    Collector(
        "estimate-workload", "How long does a step of the workload itself take on such a device?", "opscope", "counters", "modelled", ("system-calls",),
        _workload_estimate, _estimate_read,
    ),
    Collector(
        "published-products", "What did others measure of such products on that device?", "aiconfigurator-core", "counters", "published", (*_GPU, "matrix-multiplication"),
        _published, _published_read, source="NVIDIA, aiconfigurator-core 0.12.0 (Apache-2.0): measured kernels of vLLM 0.24.0 on H100 SXM",
        elsewhere=lambda _: "pip install 'opscope[silicon]'",
    ),
)  # fmt: skip
