"""How long answers take: `find_forward`, `count_flops` and `estimate_roofline` cold, in a warm process and from the cache; searches; 1,000 points.

Each figure is the median of several rounds in one run; the cache folder is new for each cold call. Times are of this
machine and its load: compare figures of one run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from opscope_tools.catalog import tool_named
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

ROUNDS = 5
TARGET, CHECKPOINT = "LlamaForCausalLM", "Qwen/Qwen3-30B-A3B"


def seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def command(folder: str, *arguments: str) -> float:
    """A whole process, interpreter start and output included."""
    line = [sys.executable, "-m", "opscope_clients", "--cache-dir", folder, *arguments, "--json"]
    return seconds(lambda: subprocess.run(line, check=True, stdout=subprocess.DEVNULL, timeout=300))


def rounds() -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for _ in range(ROUNDS):
        for tool, *line in (
            ("find_forward", "find-forward", TARGET), ("count_flops", "count-flops", TARGET),
            ("estimate_roofline", "estimate", CHECKPOINT, "--hardware", "h100_sxm"),
        ):  # fmt: skip
            with tempfile.TemporaryDirectory() as folder:
                note(f"{tool}, new process, no cache", command(folder, *line))
                note(f"{tool}, new process, cached", command(folder, *line))
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(cache_folder=Path(folder))
        context = ToolContext(workspace)
        run_tool(tool_named("count_flops"), {"target": "GPT2LMHeadModel"}, context)  # torch and transformers imported
        search = tool_named("search_source")
        note("search_source, first question", seconds(partial(run_tool, search, {"query": "attention"}, context)))
        for number in range(ROUNDS):
            asked = {"query": f"where is the cache of layer {number} written"}
            note("search_source, new question", seconds(partial(run_tool, search, asked, context)))
            # another vocabulary each round: a trace that no cache holds, by a worker that is warm
            other = {"target": TARGET, "config": {"vocab_size": 1000 + number}}
            note(
                "count_flops, warm process, not cached",
                seconds(partial(run_tool, tool_named("count_flops"), other, context)),
            )
            note(
                "count_flops, warm process, cached",
                seconds(partial(run_tool, tool_named("count_flops"), other, context)),
            )
            target = {"target": TARGET}
            note(
                "find_forward, warm process, cached",
                seconds(partial(run_tool, tool_named("find_forward"), target, context)),
            )
            function = tool_named("find_forward").run
            arguments = tool_named("find_forward").arguments(target=TARGET)
            note("find_forward, warm process, computed", seconds(partial(function, arguments, context)))
            estimate = {
                "target": CHECKPOINT,
                "hardware": "h100_sxm",
                "phase": "decode",
                "config": {"vocab_size": 1000 + number},
            }
            for name, values in (("new model", {}), ("next point", {"values": {"batch_size": 9, "cache_len": 9}})):
                took = seconds(partial(run_tool, tool_named("estimate_roofline"), {**estimate, **values}, context))
                note(f"estimate_roofline, warm process, {name}", took)
            lengths = [100 * i + number for i in range(1, 21)]
            table = {
                "targets": [CHECKPOINT],
                "phase": "decode",
                "values": {"batch_size": "1..50", "cache_len": lengths},
            }
            for name, hardware in (("counts", {}), ("times", {"hardware": ["h100_sxm"]})):
                took = seconds(partial(run_tool, tool_named("sweep"), {**table, **hardware}, context))
                note(f"sweep, 1,000 points, {name}", took)
        close_engines(workspace)
        workspace.store.close()
    return found


def main() -> None:
    for name, times in sorted(rounds().items()):
        print(
            f"{name:42} median {statistics.median(times):7.3f} s   ({min(times):.3f} to {max(times):.3f}, {len(times)} rounds)"
        )


if __name__ == "__main__":
    main()
