"""Predicted serving against measured runs of whole engines: `make bench-served`, with the extra `silicon`.

The runs are those of `silicon_sample.csv` in aiconfigurator-core, aggregated serving on at most eight devices. Nothing is fitted on them.
Half of them may be looked at while the product is developed; `--final` reports the other half, from which what shares a configuration or a
measurement with the first is dropped. Other arguments: names of models, as `Llama-3.1-8B`. `--peer=PYTHON`, an interpreter with
`aiconfigurator==0.12.0`, prints that program's errors beside ours on runs that both answer, `--most=N` of them, drawn.
"""

from __future__ import annotations

import csv
import hashlib
import json
import random
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from opscope_schemas.errors import ConfigError, OpscopeError
from opscope_schemas.estimates import Parallel, Served
from opscope_tools.estimate_roofline.predicting import Model, Replica, served
from opscope_tools.estimate_roofline.tool import RooflineArguments, model_of
from opscope_tools.estimate_roofline.traffic import Load
from opscope_tools.hardware import measured as tables
from opscope_tools.hardware.calibration import calibration_of
from opscope_tools.hardware.devices import shipped
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

#: models of the runs -> checkpoints that ship with the product
_CHECKPOINTS = {
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "Qwen/Qwen3-235B-A22B-FP8": "Qwen/Qwen3-235B-A22B", "moonshotai/Kimi-K2.5": "moonshotai/Kimi-K2-Instruct", "zhipuai/GLM-5": "zai-org/GLM-5.1",
}  # fmt: skip
#: whose weights in fp8 come with a scale for each block
_IN_BLOCKS = ("DeepSeek", "Qwen3-235B", "MiniMax", "Qwen3.5", "GLM", "Kimi")
#: milliseconds to the first token above which more requests were sent than fit
_OVERLOAD = 20_000
#: times of one configuration that are so far apart differ by a setting that no row says, as speculative decoding
_UNLIKE = 1.4


@dataclass(frozen=True)
class Run:
    """One measured run; seconds."""

    model: str
    system: str
    backend: str
    precision: str
    load: Load
    parallel: Parallel
    ttft: float
    tpot: float
    #: the longest measured time of a token at this configuration, of the shortest
    alike: float = 1.0

    @property
    def configuration(self) -> tuple[object, ...]:
        """What two runs must not share across the halves."""
        model = self.model.replace("DeepSeek-R1", "DeepSeek-V3")
        return model, self.system, self.backend, self.precision, self.load, str(self.parallel)


def _number(row: Mapping[str, str], name: str) -> int:
    return max(1, int(float(row[name] or 1)))


def _run(row: Mapping[str, str]) -> Run:
    model = row["model_path"]
    dp = _number(row, "attention_dp_size")
    batch = _number(row, "batch_size")
    named = re.search(r"_c(\d+)(?:_|$)", row["id"])
    gemm = row["gemm_quant_mode"] or "bf16"
    precision = {"int4_wo": "int4"}.get(gemm, gemm)
    if precision == "fp8" and any(name in model for name in _IN_BLOCKS):
        precision = "fp8_block"
    if "gpt-oss" in model:
        precision = "checkpoint"
    return Run(
        model, row["system"], row["backend"], precision,
        Load(int(named[1]) if named else batch * dp, int(float(row["isl"])), int(float(row["osl"]))),
        _spread(_number(row, "tp_size"), dp, _number(row, "moe_ep_size")),
        float(row["silicon_ttft_ms"]) / 1e3, float(row["silicon_tpot_ms"]) / 1e3,
    )  # fmt: skip


def _spread(tp: int, dp: int, ep: int) -> Parallel:
    """Attention that is spread by data over n devices stands in the rows as tp n, dp n, ep n * n or as tp 1, dp n * n, ep n: its times,
    and from how many requests on some wait, are those of n devices."""
    for devices, written in ((tp, (tp, tp, tp * tp)), (ep, (1, ep * ep, ep))):
        if devices > 1 and (tp, dp, ep) == written:
            return Parallel(dp=devices, ep=devices)
    return Parallel(tp=tp, dp=dp, ep=ep)


def runs(*, final: bool) -> list[Run]:
    """Of one half, each configuration and measurement once."""
    with (tables.folder() / "silicon_sample.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["mode"] == "agg" and not r["model_path"].startswith("nvidia/")]
    every: dict[tuple[object, ...], list[float]] = defaultdict(list)
    halves: dict[bool, list[Run]] = {False: [], True: []}
    for row in rows:
        if _number(row, "tp_size") <= 8 and row["silicon_tpot_ms"]:
            one = _run(row)
            halves[int(hashlib.sha256(row["id"].encode()).hexdigest()[0], 16) >= 8].append(one)
            every[one.configuration].append(one.tpot)
    known = {r.configuration for r in halves[False]} | {(r.ttft, r.tpot) for r in halves[False]} if final else set()
    found: dict[tuple[object, ...], Run] = {}
    for one in halves[final]:
        if one.configuration not in known and (one.ttft, one.tpot) not in known:
            found.setdefault((*one.configuration, one.ttft, one.tpot), one)
    return [replace(one, alike=max(every[one.configuration]) / min(every[one.configuration])) for one in found.values()]


def small_cache(run: Run) -> bool:
    """Whether keys and values are kept in fp8, which no row says: TensorRT-LLM does so for checkpoints in fp8 and nvfp4; of vLLM's
    runs on Blackwell, development rows hold more requests at a time than a cache in bf16 has room for.
    """
    if run.backend == "trtllm":
        return run.precision in ("fp8", "nvfp4")
    return run.backend == "vllm" and run.system.startswith(("b2", "b3", "gb"))


class Predictor:
    """Traces each model in each precision once."""

    def __init__(self) -> None:
        self.context = ToolContext(Workspace.create())
        self.models: dict[tuple[str, str, bool], Model] = {}
        self.replicas: dict[tuple[object, ...], Replica] = {}

    def __call__(self, run: Run) -> Served:
        """Raises what the tools raise."""
        key = (run.model, run.precision, small_cache(run))
        if key not in self.models:
            target = _CHECKPOINTS.get(run.model, run.model)
            stored = {"weights": run.precision} if run.precision != "checkpoint" else {}
            if small_cache(run):
                stored["cache"] = "fp8"
            given = {"precision": stored} if stored else {}
            asked = RooflineArguments.model_validate(
                {"target": target, "hardware": run.system, "phase": "decode", **given}
            )
            self.models[key] = model_of(asked, self.context)
        device = shipped()[run.system]
        place = (*key, run.system, run.backend, str(run.parallel))
        if place not in self.replicas:
            self.replicas[place] = Replica(
                self.models[key], device, calibration_of(device.id), run.backend, run.parallel
            )
        return served(self.replicas[place], run.load)


@dataclass(frozen=True)
class Compared:
    """One run with its prediction."""

    run: Run
    predicted: Served

    @property
    def tpot(self) -> float:
        """Relative error, signed."""
        return (self.predicted.tpot_seconds or 0) / self.run.tpot - 1

    @property
    def ttft(self) -> float:
        """Relative error, signed."""
        return (self.predicted.ttft_seconds or 0) / self.run.ttft - 1


#: models of the runs -> as the peer calls them, where it does so otherwise
_PEERS = {
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "zhipuai/GLM-5": "zai-org/GLM-5",
}  # fmt: skip
#: percentage points by which a group may be behind the peer's before it is named, and the fewest runs of one
_BEHIND, _FEWEST = 5.0, 5


def asked_of_peer(run: Run) -> dict[str, Any]:
    """The same run in the setting that suits the peer best: weights of experts in blocks where vLLM has them so, MXFP4 with
    activations in fp8 for TensorRT-LLM on Blackwell."""
    spread, blackwell = run.parallel, run.system.startswith(("b2", "b3", "gb"))
    experts = not any(name in run.model for name in ("Llama", "Qwen3-32B"))
    degrees = {"moe_tp_size": spread.tp * spread.dp // spread.ep, "moe_ep_size": spread.ep} if experts else {}
    names = {"fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "int4": "int4_wo"}
    kinds = {"gemm_quant_mode": names[run.precision]} if run.precision in names else {}
    if run.precision == "int4":  # products beside the experts stay as they are
        kinds = {"gemm_quant_mode": "bfloat16"}
    if experts and run.precision in names:
        kinds["moe_quant_mode"] = names[run.precision]
    elif "gpt-oss" in run.model:
        kinds["moe_quant_mode"] = "w4a8_mxfp4_mxfp8" if run.backend == "trtllm" and blackwell else "w4a16_mxfp4"
    return {
        "model_path": _PEERS.get(run.model, run.model), "system_name": run.system, "backend_name": run.backend,
        "isl": run.load.input_len, "osl": run.load.output_len, "batch_size": max(1, run.load.concurrency // spread.dp),
        "tp_size": spread.tp, "attention_dp_size": spread.dp, **degrees, **kinds,
    }  # fmt: skip


def start_peer(python: str, drawn: Sequence[Run]) -> subprocess.Popen[str]:
    """The peer at work on those runs, in a process of its own."""
    script = str(Path(__file__).with_name("peer_runs.py"))
    started = subprocess.Popen([python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdin is not None
    started.stdin.write(json.dumps([asked_of_peer(one) for one in drawn]))
    started.stdin.close()
    return started


def beside_peer(found: Sequence[Compared], drawn: Sequence[Run], answers: Sequence[tuple[float, float] | None]) -> None:
    """Both on the drawn runs that both answer, by group; then the groups where we are behind."""
    known = {run: answer for run, answer in zip(drawn, answers, strict=True) if answer is not None}
    both = [(one, known[one.run]) for one in found if one.run in known]
    print(f"\npeer: {len(both)} runs that both answer, of {len(drawn)} drawn; ours, then the peer's")
    behind: list[str] = []
    for by in (lambda _: "all of both", *_GROUPS):
        groups: dict[str, list[tuple[Compared, tuple[float, float]]]] = defaultdict(list)
        for pair in both:
            groups[by(pair[0].run)].append(pair)
        for name, pairs in sorted(groups.items()):
            ours = [one for one, _ in pairs]
            theirs = [
                Compared(o.run, o.predicted.model_copy(update={"ttft_seconds": a[0], "tpot_seconds": a[1]}))
                for o, a in pairs
            ]
            print(line(name, ours))
            print(line("   peer", theirs))
            for what in ("tpot", "ttft"):
                mine, other = (100 * statistics.mean(abs(getattr(c, what)) for c in side) for side in (ours, theirs))
                if len(pairs) >= _FEWEST and mine > other + _BEHIND:
                    behind.append(f"{what.upper()} of {name}: {mine:.1f} against {other:.1f}, {len(pairs)} runs")
    print("more than 5 points behind the peer:", *(behind or ["nowhere"]), sep="\n  ")


_GROUPS: tuple[Callable[[Run], str], ...] = (
    lambda r: r.backend, lambda r: r.system, lambda r: r.model, lambda r: f"{r.model} {r.backend} {r.system}",
)  # fmt: skip


def line(name: str, found: Sequence[Compared]) -> str:
    """Mean and median of absolute errors and the median signed one, per cent."""

    def three(errors: Iterable[float]) -> str:
        every = [100 * e for e in errors]
        absolute = [abs(e) for e in every]
        return f"{statistics.mean(absolute):5.1f} (median {statistics.median(absolute):5.1f}, bias {statistics.median(every):+6.1f})"

    return f"{name:44} {len(found):5}  TPOT {three(c.tpot for c in found)}  TTFT {three(c.ttft for c in found)}"


def main() -> None:
    """Prints the table."""
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    predict, refused = Predictor(), Counter[str]()
    found: list[Compared] = []
    asked = [
        one for one in runs(final="--final" in sys.argv) if not arguments or any(a in one.model for a in arguments)
    ]
    options = dict(a.removeprefix("--").split("=", 1) for a in sys.argv if a.startswith("--") and "=" in a)
    drawn = random.Random(0).sample(asked, min(int(options.get("most", len(asked))), len(asked)))
    started = start_peer(options["peer"], drawn) if "peer" in options else None
    for one in asked:
        try:
            answer = predict(one)
        except OpscopeError as error:
            refused[f"{one.model}, {one.parallel}: {error}"] += 1
            continue
        if answer.tpot_seconds is None:
            refused[f"{one.model} {one.precision} does not fit {one.parallel} of {one.system}"] += 1
        elif answer.basis == "bound":
            refused[f"{one.model} {one.precision} on {one.system}, {one.backend}: not every kernel is calibrated"] += 1
        else:
            found.append(Compared(one, answer))
    overloaded = [c for c in found if c.run.ttft * 1e3 > _OVERLOAD]
    usual = [c for c in found if c.run.ttft * 1e3 <= _OVERLOAD]
    alike = [c for c in usual if c.run.alike < _UNLIKE]
    for name, chosen in (
        ("all", usual), ("overloaded (first token after 20 s)", overloaded), (f"times of a configuration within {_UNLIKE}", alike),
        ("no more requests than fit", [c for c in usual if c.predicted.cache_limit is None]),
    ):  # fmt: skip
        if chosen:
            print(line(name, chosen))
    for by in _GROUPS:
        groups: dict[str, list[Compared]] = defaultdict(list)
        for each in usual:
            groups[by(each.run)].append(each)
        for name, chosen in sorted(groups.items()):
            print(line(name, chosen))
    for why, count in refused.most_common():
        print(f"not answered: {count:4} {why}")
    if started is not None:
        assert started.stdout is not None
        beside_peer(usual, drawn, json.loads(started.stdout.read().splitlines()[-1]))


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(str(error))
