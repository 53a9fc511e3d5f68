"""Bounds and calibrated times beside measurements on the device at hand: products, attention, whole prefill and decode steps.

`python benchmarks/gpu_roofline.py [HARDWARE]` needs a CUDA device, which it takes by its own name where HARDWARE is not given;
without one it says so and ends. `--cpu` does the same with the processor, in float32, on a small model. Everything is predicted before
anything is measured; models have random weights and run eagerly, compiled, and compiled into CUDA graphs. Raw figures go to
benchmarks/results/. A bound more than 2 % above a measurement is an error, and so is the exit status.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from opscope_tools.estimate_roofline.kernels import Kernel
from opscope_tools.estimate_roofline.times import estimates
from opscope_tools.estimate_roofline.tool import RooflineArguments, devices_of, estimate_roofline
from opscope_tools.hardware.calibration import calibration_for
from opscope_tools.hardware.devices import Device
from opscope_tools.hardware.forms import BYTES, DECODE_ATTENTION, PREFILL_ATTENTION, PRODUCT
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

RESULTS = Path(__file__).parent / "results"
_REPEATS, _ALLOWED = 9, 1.02
_LLAMA_1B = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
             "vocab_size": 128_256, "max_position_embeddings": 16_384}  # fmt: skip
_LLAMA_8B = {**_LLAMA_1B, "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14_336}
_EXPERTS = {**_LLAMA_1B, "vocab_size": 32_000, "num_hidden_layers": 12, "num_experts": 64, "num_experts_per_tok": 8,
            "moe_intermediate_size": 768, "head_dim": 64}  # fmt: skip
_SMALL = {**_LLAMA_1B, "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 4096,
          "vocab_size": 32_000}  # fmt: skip
#: what a float32 pass moves an element, by the variables of the formulas
_FLOAT32 = {"w_bytes": 4, "a_bytes": 4, "kv_bytes": 4}


@dataclass
class Case:
    """One thing to measure: its bound and calibrated time, seconds, and how to run it."""

    name: str
    bound: float
    calibrated: float | None
    ready: Callable[[], Callable[[], object]]


class Bench:
    """One device, its width of elements, and what is to be measured on it."""

    def __init__(self, hardware: str, *, cpu: bool) -> None:
        self.cpu, self.hardware = cpu, hardware
        self.context = ToolContext(Workspace.create())
        self.device: Device = devices_of(hardware, None, self.context)[0]
        self.where, self.dtype = ("cpu", torch.float32) if cpu else ("cuda", torch.bfloat16)
        self.width: int = self.dtype.itemsize

    def kernel(self, name: str, kernel: Kernel, ready: Callable[[], Callable[[], object]]) -> Case:
        """One kernel, as an estimate takes it."""
        (found,) = estimates([kernel], self.device, calibration_for(self.device), "vllm")
        return Case(name, found.bound, found.measured.seconds if found.measured else None, ready)

    def products(self) -> Iterator[Case]:
        """From one token to many."""
        for m, n, k in [
            (1, 4096, 4096),
            (16, 4096, 4096),
            (512, 2048, 2048),
            *([] if self.cpu else [(4096, 8192, 8192)]),
        ]:
            flops, moved = 2.0 * m * n * k, float(self.width * (m * k + n * k + m * n))
            sizes = {"m": m, "n": n, "k": k, "weight_bytes": BYTES["bf16"], "activation_bytes": 2.0}

            def ready(m: int = m, n: int = n, k: int = k) -> Callable[[], object]:
                left, weights = self._random(m, k), [self._random(n, k) for _ in range(self._copies(n * k))]
                turn = iter(range(1 << 62))
                return lambda: torch.nn.functional.linear(left, weights[next(turn) % len(weights)])

            yield self.kernel(
                f"product {m}x{n}x{k}",
                Kernel("mm", "", "", 1, 1, flops, flops, moved, form=PRODUCT, sizes=sizes),
                ready,
            )

    def attention(self) -> Iterator[Case]:
        """One new token beside a cache, and a prefill."""
        for b, h, kv, d, new, context in [(8, 32, 8, 128, 1, 4096), (1, 32, 8, 128, 1024, 1024)]:
            pairs = new * (new + 1) / 2 if new > 1 else context
            flops, moved = 4.0 * b * h * d * pairs, float(self.width * b * d * 2 * (kv * context + h * new))
            form = DECODE_ATTENTION if new == 1 else PREFILL_ATTENTION
            sizes = {"b": b, "h": h, "kv": kv, "d": d, "context": context, "new": new, "cache_bytes": 2.0}

            def ready(
                b: int = b, h: int = h, kv: int = kv, d: int = d, new: int = new, context: int = context
            ) -> Callable[[], object]:
                q, k, v = (self._random(b, heads, size, d) for heads, size in ((h, new), (kv, context), (kv, context)))
                return lambda: torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=new > 1, enable_gqa=True
                )

            made = Kernel("sdpa", "", "", 1, 1, flops, flops, moved, form=form, sizes=sizes)
            yield self.kernel(f"attention of {new} beside {context}", made, ready)

    def steps(self, name: str, model_type: str, config: dict[str, Any], modes: tuple[str, ...]) -> Iterator[Case]:
        """A prefill and decode steps of one model in each mode."""
        built: dict[str, Any] = {}
        points = [("prefill", 1, 128), ("decode", 1, 512), ("decode", 8, 512)]
        for phase, batch, length in points if self.cpu else [*points, ("prefill", 4, 2048), ("decode", 64, 2048)]:
            sizes = {"batch_size": batch, "seq_len" if phase == "prefill" else "cache_len": length}
            asked = {"target": model_type, "hardware": self.hardware, "phase": phase, "config": config,
                     "values": {**sizes, **(_FLOAT32 if self.cpu else {})}}  # fmt: skip
            found = estimate_roofline(RooflineArguments.model_validate(asked), self.context).totals
            for mode in modes:

                def ready(
                    phase: str = phase, batch: int = batch, length: int = length, mode: str = mode
                ) -> Callable[[], object]:
                    if "model" not in built:
                        built["model"] = self._model(model_type, config)
                    return self._step(built["model"], phase, batch, length, mode)

                yield Case(
                    f"{name} {phase} {batch}x{length}, {mode}", found.bound_seconds, found.calibrated_seconds, ready
                )

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=self.dtype, device=self.where)

    def _copies(self, elements: int) -> int:
        """As many weights as no cache holds, so that each is read from memory."""
        return max(2, (512 << 20) // (elements * int(self.width)))

    def _model(self, model_type: str, config: dict[str, Any]) -> Any:
        from transformers import AutoConfig, AutoModelForCausalLM

        with torch.device(self.where):
            return AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **config), dtype=self.dtype).eval()

    def _step(self, model: Any, phase: str, batch: int, length: int, mode: str) -> Callable[[], object]:
        from transformers import DynamicCache, StaticCache

        ids = torch.randint(0, 1000, (batch, length), device=self.where)
        run = model
        if mode != "eager":
            torch.compiler.reset()
            run = torch.compile(model, mode="reduce-overhead" if mode == "CUDA graphs" else "default", dynamic=False)
        if phase == "prefill":
            return lambda: run(ids, logits_to_keep=1, use_cache=mode == "eager")
        if mode == "eager":
            cache = DynamicCache(config=model.config)
            model(ids, past_key_values=cache, logits_to_keep=1)

            def grown() -> None:
                model(ids[:, :1], past_key_values=cache)
                cache.crop(-1)

            return grown
        fixed = StaticCache(config=model.config, max_cache_len=length + 8)
        place = torch.arange(length, device=self.where)
        model(ids, past_key_values=fixed, cache_position=place, logits_to_keep=1)
        last = torch.tensor([length], device=self.where)
        return lambda: run(ids[:, :1], past_key_values=fixed, cache_position=last)

    def seconds(self, work: Callable[[], object]) -> list[float]:
        """Of each repeat, ascending; three runs come first."""
        found = []
        for repeat in range(-3, _REPEATS):
            if not self.cpu:
                torch.cuda.synchronize()
            before = time.perf_counter()
            work()
            if not self.cpu:
                torch.cuda.synchronize()
            if repeat >= 0:
                found.append(time.perf_counter() - before)
        return sorted(found)


def main() -> int:
    cpu = "--cpu" in sys.argv
    given = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    if not cpu and not torch.cuda.is_available():
        print("No CUDA device: nothing to measure. --cpu measures this machine's processor.")
        return 0
    bench = Bench("cpu" if cpu else given or torch.cuda.get_device_name(), cpu=cpu)
    print(f"{bench.device.name}: " + "; ".join(f"{s.what}: {s.source}" for s in bench.device.sources))
    modes = ("eager",) if cpu else ("eager", "compiled", "CUDA graphs")
    models = (
        [("small llama", "llama", _SMALL)]
        if cpu
        else [("1B", "llama", _LLAMA_1B), ("8B", "llama", _LLAMA_8B), ("experts", "qwen3_moe", _EXPERTS)]
    )
    groups = [[*bench.products(), *bench.attention()], *([*bench.steps(*model, modes)] for model in models)]
    rows, above = [], 0
    for cases in groups:
        for case in cases:
            with torch.inference_mode():
                times = bench.seconds(case.ready())
            middle = statistics.median(times)
            above += case.bound > _ALLOWED * middle
            said = f"{case.calibrated * 1e3:9.3f}" if case.calibrated is not None else "        -"
            print(f"{case.name:38} bound {case.bound * 1e3:9.3f} ms, calibrated {said}, measured {middle * 1e3:9.3f} "
                  f"({times[0] * 1e3:.3f} to {times[-1] * 1e3:.3f}); bound is {case.bound / middle:.0%} of it")  # fmt: skip
            rows.append({"name": case.name, "bound": case.bound, "calibrated": case.calibrated, "measured": times})
        cases.clear()  # a model's weights go before the next one comes
        if not cpu:
            torch.cuda.empty_cache()
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"roofline-{bench.device.id}.json"
    file.write_text(
        json.dumps({"device": bench.device.model_dump(), "torch": torch.__version__, "rows": rows}, indent=1) + "\n"
    )
    print(
        f"{above} of {len(rows)} bounds lie more than {_ALLOWED - 1:.0%} above what was measured; raw figures in {file}"
    )
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
