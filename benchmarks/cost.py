"""How long a new trace takes: by depth, beside a plain count of the same model, and from the cache.

All figures are of one run, medians of rounds that alternate what they compare. No trace is cached but where that is
the question: each has a vocabulary, or for images a width, that no other had. The plain count is what one writes
without opscope: build the model on the meta device, run one forward with eager attention under torch's FlopCounterMode;
it gives one number for one size, a trace gives formulas for every line.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from opscope_tools.catalog import tool_named
from opscope_tools.costing.arguments import model_spec, running
from opscope_tools.running.engines import close_engines, tracer_of
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.protocol import ModelSpec, TraceRequest
from opscope_tools.trace.worker import configs, models
from torch.utils.flop_counter import FlopCounterMode

ROUNDS = 5
CALLS = 200
DEPTHS = (2, 32, 126)
TYPES = ("llama", "mixtral", "deepseek_v3", "bert", "vit", "t5")
#: the targets that the figures are held against
DEEPEST, CACHED_SECONDS = 1.2, 0.010
#: positions of the plain count's one forward
BATCH, POSITIONS = 1, 128


def seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def fresh(workspace: Workspace, model_type: str, layers: int, number: int) -> ModelSpec:
    """A configuration that nobody traced before."""
    own = {"intermediate_size": 3072 + 8 * number} if model_type == "vit" else {"vocab_size": 32000 + number}
    deep = {"num_layers": layers, **({"num_decoder_layers": layers} if model_type == "t5" else {})}
    return model_spec(workspace, model_type, {**deep, **own})


# ---- the plain count


def inputs_of(model: Any, config: Any) -> dict[str, Any]:
    ids = torch.zeros((BATCH, POSITIONS), dtype=torch.int64)
    if model.main_input_name == "pixel_values":
        return {
            "pixel_values": torch.zeros((BATCH, config.num_channels, config.image_size, config.image_size)).bfloat16()
        }
    return {"input_ids": ids, **({"decoder_input_ids": ids} if config.is_encoder_decoder else {})}


def plain_count(spec: ModelSpec) -> int:
    """FLOPs of one forward by torch's own counter, on the meta device."""
    _, ((model_class, config_class), *_) = models.resolve(spec)
    config = configs.make_config(config_class, spec)
    with torch.device("meta"), torch.no_grad():
        model = model_class._from_config(config, attn_implementation="eager", dtype=torch.bfloat16).eval()
        with FlopCounterMode(display=False) as counter:
            model(**inputs_of(model, config))
    return int(counter.get_total_flops())


def refusal(spec: ModelSpec) -> str:
    """Why the plain count does not run; '' where it does. Also warms it up."""
    try:
        plain_count(spec)
    except Exception as error:  # a forward that looks at data has none on the meta device
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:60]}"
    return ""


# ---- the parts


def medians(actions: dict[Any, Callable[[int], object]], numbers: Iterator[int]) -> dict[Any, float]:
    """The median time of each action, in rounds over all of them."""
    times: dict[Any, list[float]] = {name: [] for name in actions}
    for _ in range(ROUNDS):
        for name, action in actions.items():
            times[name].append(seconds(partial(action, next(numbers))))
    return {name: statistics.median(found) for name, found in times.items()}


def by_depth(workspace: Workspace, trace: Callable[[ModelSpec], object], numbers: Iterator[int]) -> None:
    def traced(layers: int, number: int) -> object:
        return trace(fresh(workspace, "llama", layers, number))

    found = medians({layers: partial(traced, layers) for layers in DEPTHS}, numbers)
    for layers, time_taken in found.items():
        against = f"{time_taken / found[DEPTHS[0]]:5.2f} times {DEPTHS[0]} layers"
        target = f"   (target: at most {DEEPEST})" if layers == DEPTHS[-1] else ""
        print(f"trace of a llama of {layers:3} layers      {time_taken:7.3f} s   {against}{target}")


def beside_plain(workspace: Workspace, trace: Callable[[ModelSpec], object], numbers: Iterator[int]) -> None:
    for model_type in TYPES:
        for layers in (2, 32):
            trace(fresh(workspace, model_type, layers, next(numbers)))  # its modules imported
            why = refusal(fresh(workspace, model_type, layers, next(numbers)))
            actions: dict[str, Callable[[int], object]] = {
                "trace": lambda i: trace(fresh(workspace, model_type, layers, i))  # noqa: B023
            }
            if not why:
                actions["plain"] = lambda i: plain_count(fresh(workspace, model_type, layers, i))  # noqa: B023
            found = medians(actions, numbers)
            beside = f"no plain count: {why}"
            if not why:
                beside = f"plain count {found['plain']:7.3f} s   ratio {found['trace'] / found['plain']:5.2f}"
            print(f"{model_type:12} {layers:3} layers   trace {found['trace']:7.3f} s   {beside}", flush=True)


def cached(context: ToolContext) -> None:
    for arguments in ({"target": "llama"}, {"target": "llama", "values": {"batch_size": 1, "seq_len": 128}}):
        call = partial(run_tool, tool_named("count_flops"), arguments, context)
        call()
        times = sorted(seconds(call) for _ in range(CALLS))
        p50, p99 = times[CALLS // 2] * 1000, times[CALLS * 99 // 100 - 1] * 1000
        kind = "with values" if "values" in arguments else "formulas"
        target = f"(target: under {CACHED_SECONDS * 1000:.0f} ms)"
        print(f"cached answer, {kind:12}   p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   {target}")


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # as the worker
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(cache_folder=Path(folder))
        context = ToolContext(workspace)
        engine = tracer_of(workspace)

        def trace(spec: ModelSpec) -> object:
            return engine.trace(TraceRequest(model=spec), running(context))

        trace(fresh(workspace, "llama", 3, next(numbers)))  # torch and transformers imported
        by_depth(workspace, trace, numbers)
        beside_plain(workspace, trace, numbers)
        cached(context)
        close_engines(workspace)
        workspace.store.close()


if __name__ == "__main__":
    main()
