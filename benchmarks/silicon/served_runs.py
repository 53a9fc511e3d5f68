"""Predicted serving against measured runs of whole engines: `make bench-served`, with the extra `silicon`.

The runs are those of `silicon_sample.csv` in aiconfigurator-core, aggregated serving on at most eight devices. Nothing is fitted on them.
Half of them may be looked at while the product is developed; `--final` reports the other half, from which what shares a configuration or a
measurement with the first is dropped. Other arguments: names of models, as `Llama-3.1-8B`.
"""

from __future__ import annotations

import csv
import hashlib
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import silicon_tables as tables
from opscope_schemas.errors import OpscopeError
from opscope_schemas.estimates import Parallel, Served
from opscope_tools.estimate_roofline.predicting import Model, Replica, served
from opscope_tools.estimate_roofline.tool import RooflineArguments, model_of
from opscope_tools.estimate_roofline.traffic import Load
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
        Parallel(tp=_number(row, "tp_size"), dp=dp, ep=_number(row, "moe_ep_size")),
        float(row["silicon_ttft_ms"]) / 1e3, float(row["silicon_tpot_ms"]) / 1e3,
    )  # fmt: skip


def runs(*, final: bool) -> list[Run]:
    """Of one half, each configuration and measurement once."""
    with (tables.folder() / "silicon_sample.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["mode"] == "agg" and not r["model_path"].startswith("nvidia/")]
    halves: dict[bool, list[Run]] = {False: [], True: []}
    for row in rows:
        if _number(row, "tp_size") <= 8 and row["silicon_tpot_ms"]:
            halves[int(hashlib.sha256(row["id"].encode()).hexdigest()[0], 16) >= 8].append(_run(row))
    known = {r.configuration for r in halves[False]} | {(r.ttft, r.tpot) for r in halves[False]} if final else set()
    found: dict[tuple[object, ...], Run] = {}
    for one in halves[final]:
        if one.configuration not in known and (one.ttft, one.tpot) not in known:
            found.setdefault((*one.configuration, one.ttft, one.tpot), one)
    return list(found.values())


class Predictor:
    """Traces each model in each precision once."""

    def __init__(self) -> None:
        self.context = ToolContext(Workspace.create())
        self.models: dict[tuple[str, str, bool], Model] = {}
        self.replicas: dict[tuple[object, ...], Replica] = {}

    def __call__(self, run: Run) -> Served:
        """Raises what the tools raise."""
        key = (run.model, run.precision, run.backend == "trtllm")
        if key not in self.models:
            target = _CHECKPOINTS.get(run.model, run.model)
            stored = {"weights": run.precision} if run.precision != "checkpoint" else {}
            if run.backend == "trtllm" and run.precision in ("fp8", "nvfp4"):  # as such checkpoints ask of that engine
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
        return served(self.replicas[place], run.load)[0]


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
    for one in runs(final="--final" in sys.argv):
        if arguments and not any(a in one.model for a in arguments):
            continue
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
    for name, chosen in (("all", usual), ("overloaded (first token after 20 s)", overloaded)):
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


if __name__ == "__main__":
    try:
        main()
    except tables.NoTablesError as error:
        sys.exit(str(error))
