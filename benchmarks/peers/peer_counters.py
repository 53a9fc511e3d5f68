"""One peer asked about every case, in the peer's own interpreter: `PYTHON peer_counters.py TOOL SECONDS` prints a JSON object.

Each peer is a function of a case that gets ready once (a model built, a database opened) and gives back the question: a point
in, products, FLOPs where the peer counts more than products, and bytes where it knows any. All in opscope's convention, two
FLOPs per multiply-add; what a peer says is brought there beside the lines of its code that say what it counts.

A case is asked in a fork, SECONDS at most, with the peer imported before: some leave torch's functions changed when they fail.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from peer_cases import CASES, Case

#: products, all FLOPs, bytes
Answer = tuple[float, float | None, float | None]
Question = Callable[[Mapping[str, int]], Answer]


def torch_counter(case: Case, device: str = "cpu", attention: str | None = None) -> Question:
    """torch/utils/flop_counter.py, `mm_flop`: "m * n * 2 * k"; products, convolutions and attention only."""
    from peer_models import built, forward
    from torch import no_grad
    from torch.utils.flop_counter import FlopCounterMode

    model = built(case, device, attention)

    def ask(point: Mapping[str, int]) -> Answer:
        run = forward(model, point)
        with no_grad(), FlopCounterMode(display=False) as counter:
            run()
        return counter.get_total_flops(), None, None

    return ask


def torch_counter_meta(case: Case) -> Question:
    """The same on tensors without data, where a pass computes nothing."""
    return torch_counter(case, "meta")


def deepspeed(case: Case, attention: str | None = None) -> Question:
    """profiling/flops_profiler/profiler.py, `_linear_flops_compute`: "return 2 * macs, macs"; macs are products, flops everything."""
    from deepspeed.profiling.flops_profiler import get_model_profile
    from peer_models import built, inputs
    from torch import no_grad

    model = built(case, attention=attention)

    def ask(point: Mapping[str, int]) -> Answer:
        with no_grad():
            flops, macs, _ = get_model_profile(
                model, kwargs=inputs(model, point), print_profile=False, as_string=False, warm_up=0
            )
        return 2 * macs, flops, None

    return ask


def calflops(case: Case, attention: str | None = None) -> Question:
    """pytorch_ops.py, `_linear_flops_compute`: "return 2 * macs, macs", as in the profiler that it is made from."""
    from calflops import calculate_flops
    from peer_models import built, inputs
    from torch import no_grad

    model = built(case, attention=attention)

    def ask(point: Mapping[str, int]) -> Answer:
        with no_grad():
            flops, macs, _ = calculate_flops(
                model, kwargs=inputs(model, point), print_results=False, output_as_string=False
            )
        return 2 * macs, flops, None

    return ask


def thop(case: Case, attention: str | None = None) -> Question:
    """vision/calc_func.py, `calculate_linear`: in_feature * num_elements, so one per multiply-add, and doubled here.

    Into the same sum go 4 per element of an affine `nn.LayerNorm` and its like (`count_normalization`), which no doubling makes right.
    """
    from peer_models import built, inputs
    from thop import profile
    from torch import nn

    model = built(case, attention=attention)

    class ByName(nn.Module):  # type: ignore[misc]  # torch is untyped here
        """`profile` calls a model with positional arguments only."""

        def __init__(self, names: list[str]) -> None:
            super().__init__()
            self.model, self.names = model, names

        def forward(self, *values: Any) -> Any:
            return self.model(**dict(zip(self.names, values, strict=True)))

    def ask(point: Mapping[str, int]) -> Answer:
        given = inputs(model, point)
        operations, _ = profile(ByName(list(given)), inputs=tuple(given.values()), verbose=False)
        return 2 * operations, None, None

    return ask


#: GenZ's names of a config's fields
_GENZ = {
    "hidden_size": "hidden_size", "vocab_size": "vocab_size", "num_decoder_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads", "num_key_value_heads": "num_key_value_heads", "head_dim": "head_dim",
    "num_experts": "num_experts", "expert_top_k": "num_experts_per_tok", "moe_intermediate_size": "moe_intermediate_size",
}  # fmt: skip


def genz(case: Case) -> Question:
    """GenZ/operators.py, `FC.get_num_ops`: np.prod([B, O, I]), one per multiply-add and so named ("MACs"), in millions."""
    from GenZ import prefill_moddeling
    from GenZ.Models import ModelConfig

    if case.config_type not in ("llama", "qwen3_moe", "gemma3_text"):
        raise NotImplementedError("no such layers")
    given = {theirs: case.fields[name] for theirs, name in _GENZ.items() if name in case.fields}
    wide = case.fields.get("moe_intermediate_size", case.fields.get("intermediate_size"))
    model = ModelConfig(model=case.config_type, num_ffi=2, intermediate_size=wide, **given)

    def ask(point: Mapping[str, int]) -> Answer:
        _, found = prefill_moddeling(
            model=model,
            batch_size=point["batch_size"],
            input_tokens=point["seq_len"],
            bits="bf16",
            model_profilling=True,
        )
        megabytes = found["Total Data (MB)"].values[0] if "Total Data (MB)" in found else None
        return 2e6 * found["MACs (MFLOP)"].values[0], None, megabytes and megabytes * 2**20

    return ask


def aiconfigurator(case: Case) -> Question:
    """`EngineHandle.evaluate_ops_sol_json`: seconds of arithmetic and of memory at the peaks of a device; times those peaks,
    FLOPs (a product of (m, k) and (k, n) is 2*m*n*k, which the times of its GEMMs show) and bytes. It has no count of its own."""
    from aiconfigurator_core.sdk import config, engine, models
    from aiconfigurator_core.sdk.perf_database import get_database

    with tempfile.TemporaryDirectory() as folder:
        fields = {"max_position_embeddings": 4096, "hidden_act": "silu", "torch_dtype": "bfloat16", **case.fields}
        told = {"architectures": [case.class_name], "model_type": case.config_type, **fields}
        (Path(folder) / "config.json").write_text(json.dumps(told))
        model = models.get_model(folder, config.ModelConfig(moe_tp_size=1, moe_ep_size=1), "trtllm")
    database = get_database("h100_sxm", "trtllm", "current")
    handle, operations = engine.EngineHandle.for_database(database), engine.build_ops_json(model.context_ops)
    peaks = database.system_spec["gpu"]

    def ask(point: Mapping[str, int]) -> Answer:
        found = handle.evaluate_ops_sol_json(
            operations, is_context=True, batch_size=point["batch_size"], s=point["seq_len"]
        )
        arithmetic, memory = (sum(row[column] for row in found) / 1e3 for column in (2, 3))
        return arithmetic * peaks["bfloat16_tc_flops"], None, memory * peaks["mem_bw"]

    return ask


@dataclass(frozen=True)
class Peer:
    """`runs`: it looks at a run of the model, and so may see other operators where attention is written out."""

    prepare: Callable[..., Question]
    distribution: str
    modules: tuple[str, ...]
    runs: bool = True


PEERS = {
    "FlopCounterMode": Peer(torch_counter, "torch", ("peer_models",)),
    "FlopCounterMode, meta": Peer(torch_counter_meta, "torch", ("peer_models",), runs=False),
    "DeepSpeed": Peer(deepspeed, "deepspeed", ("peer_models", "deepspeed.profiling.flops_profiler")),
    "ultralytics-thop": Peer(thop, "ultralytics-thop", ("peer_models", "thop")),
    "calflops": Peer(calflops, "calflops", ("peer_models", "calflops")),
    "GenZ": Peer(genz, "genz-llm", ("GenZ",), runs=False),
    "aiconfigurator": Peer(aiconfigurator, "aiconfigurator", ("aiconfigurator_core.sdk.models",), runs=False),
}


def asked(peer: Peer, case: Case) -> dict[str, Any]:
    """Answers at both points; processor seconds of the first, the model's building included, and of the same question again."""
    found: dict[str, Any] = {}
    begun = time.process_time()
    try:
        ask = peer.prepare(case)
        answers = [ask(case.points[0])]
        answered = time.process_time()
        again = ask(case.points[0])
        assert again == answers[0], f"{again}, and before {answers[0]}"
        found.update(first=answered - begun, again=time.process_time() - answered)
        found["answers"] = [*answers, ask(case.points[1])]
        if peer.runs:
            found["eager"] = peer.prepare(case, attention="eager")(case.points[0])[0]
    except Exception as error:  # a peer's failure is a result
        found["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return found


def _within(peer: Peer, case: Case, limit: float) -> dict[str, Any]:
    """`asked` in a fork that ends after so many seconds."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)

    def tell(end: Connection) -> None:
        end.send(asked(peer, case))

    process = fork.Process(target=tell, args=(there,))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(limit) else {"error": f"over {limit:.0f} s"}
    except EOFError:
        return {"error": "its process died"}
    finally:
        process.kill()
        process.join()


def main() -> None:
    peer, limit = PEERS[sys.argv[1]], float(sys.argv[2])
    with redirect_stdout(sys.stderr):
        for module in peer.modules:
            importlib.import_module(module)
        imported = time.process_time()
        cases = {name: _within(peer, case, limit) for name, case in CASES.items()}
    print(json.dumps({"version": version(peer.distribution), "start": imported, "cases": cases}))


if __name__ == "__main__":
    main()
