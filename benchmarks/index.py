"""The index beside what else answers its questions: universal-ctags, ripgrep, griffe, jedi, Serena, importing and inspecting.

All sides run in one sitting, in turn, each in a process of its own; CPU is user and system time of the whole process
tree, the figure that a busy machine bends least. Every target stands beside what was measured. A tool that is not
installed is said to be missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
BARE = ("LlamaForCausalLM", "MixtralSparseMoeBlock", "TransformerEncoderLayer")
SERENA = HERE.parent / ".venv-peers/serena/bin/python"
DOTTED = "transformers.models.llama.modeling_llama.LlamaAttention"


@dataclass
class Run:
    """One process: CPU and wall in seconds, the largest resident set in bytes, what it printed as JSON."""

    cpu: float
    wall: float
    rss: int
    said: dict[str, float]


@dataclass
class Series:
    """The rounds of one side."""

    runs: list[Run] = field(default_factory=list)

    def median(self, name: str) -> float:
        return statistics.median(float(getattr(run, name)) for run in self.runs)

    def said(self, name: str) -> float:
        return statistics.median(run.said[name] for run in self.runs)


class Sitting:
    """All that is run, by label."""

    def __init__(self) -> None:
        self.sides: dict[str, Series] = {}
        self.missing: dict[str, str] = {}

    def run(self, label: str, command: Sequence[str]) -> None:
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        if process.returncode:
            raise SystemExit(f"{label} ended with status {process.returncode}: {' '.join(command)}")
        said = json.loads(text) if text.startswith(b"{") else {}
        wall = time.perf_counter() - begun
        run = Run(used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024, said)
        self.sides.setdefault(label, Series()).runs.append(run)

    def ask(self, label: str, what: str, folder: str, name: str = "") -> None:
        self.run(label, [sys.executable, str(HERE / "index_questions.py"), what, folder, name])


def roots() -> list[str]:
    found = []
    for package in ("transformers", "torch"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        found.append(str(next(iter(spec.submodule_search_locations or ()))))
    return found


def one_round(sitting: Sitting, warm: str, first: bool) -> None:
    trees = roots()
    with tempfile.TemporaryDirectory() as folder:
        sitting.ask("tree-sitter parse of every file", "parse_everything", folder)
        if tool := found(sitting, "ctags", "universal-ctags"):
            sitting.run("universal-ctags", [tool, "-R", "--languages=python", "-f", f"{folder}/tags", *trees])
        sitting.ask("opscope, cold index", "build_everything", folder)
    for name in BARE:
        if tool := found(sitting, "rg", "ripgrep"):
            sitting.run("ripgrep -w, bare name", [tool, "-w", "--type", "py", name, *trees])
        with tempfile.TemporaryDirectory() as folder:
            sitting.ask("opscope, bare name, no index", "first_answer", folder, name)
        sitting.ask("opscope, after the SDK", "answer_after_the_sdk", warm, name)
    with tempfile.TemporaryDirectory() as folder:
        sitting.ask("opscope, dotted name, no index", "first_answer", folder, DOTTED)
        if importlib.util.find_spec("jedi"):
            sitting.ask("jedi, dotted name", "jedi_goto", folder, DOTTED)
        sitting.ask("import and inspect", "inspect_it", folder, DOTTED)
    sitting.ask("latencies", "latencies", warm)
    with tempfile.TemporaryDirectory() as folder:
        sitting.ask("one change", "one_change", folder)
        if first:
            sitting.ask("opscope, references, no index, once", "references", folder, DOTTED)
            if SERENA.is_file():
                package = trees[0]
                sitting.run(
                    "Serena over jedi, references, once",
                    [str(SERENA), str(HERE / "peers/serena_references.py"), package],
                )
            else:
                sitting.missing["serena-agent"] = ".ci/peer-environments serena"
        if first and importlib.util.find_spec("griffe"):
            sitting.ask("griffe, transformers only, once", "griffe_load", folder)
    for package in ("jedi", "griffe"):
        if not importlib.util.find_spec(package):
            sitting.missing[package] = f"pip install {package}"


def found(sitting: Sitting, command: str, package: str) -> str | None:
    path = shutil.which(command)
    if path is None:
        sitting.missing[package] = f"apt-get install {package}"
    return path


def table(sitting: Sitting) -> list[tuple[str, str, str]]:
    """(figure, measured, target)."""
    sides = sitting.sides
    ours = sides["opscope, cold index"].median("cpu")
    rows = []

    def ratio(label: str, mine: float, other: str, target: str) -> None:
        if other in sides:
            rows.append((label, f"{mine / sides[other].median('cpu'):.2f}", target))

    ratio("cold index over universal-ctags, CPU", ours, "universal-ctags", "at most 8")
    ratio("cold index over the bare parse, CPU", ours, "tree-sitter parse of every file", "at most 1.4")
    spread = ours / sides["opscope, cold index"].median("wall")
    rows.append(("cold index, cores in use (CPU over wall)", f"{spread:.2f}", "as many as are free"))
    bare, dotted = sides["opscope, bare name, no index"], sides["opscope, dotted name, no index"]
    label = "bare name, no index, over ripgrep -w, CPU"
    ratio(f"{label}, question alone", bare.said("question"), "ripgrep -w, bare name", "at most 2")
    ratio(f"{label}, whole process", bare.median("cpu"), "ripgrep -w, bare name", "")
    rows.append(("dotted name, no index, whole process, CPU s", f"{dotted.median('cpu'):.3f}", "at most 0.3"))
    after = sides["opscope, after the SDK"].said("wall")
    rows.append(("new process, warm index, after the SDK import, wall ms", f"{after * 1e3:.0f}", "at most 50 (quiet)"))
    latency = sides["latencies"]
    for label, target in (
        ("class lookup", "at most 0.1"), ("find_forward with MRO, nothing read", "at most 3"),
        ("find_forward with MRO, again", ""), ("files that mention a class", "at most 10"),
    ):  # fmt: skip
        p50, p99 = latency.said(f"{label} p50") * 1e3, latency.said(f"{label} p99") * 1e3
        rows.append((f"{label}, CPU ms, p99 (p50)", f"{p99:.3f} ({p50:.3f})", target))
    change = sides["one change"]
    rows.append(
        (
            "one file changed, next answer, CPU ms more than warm (largest of 25)",
            f"{change.said('cpu') * 1e3:.0f} ({change.said('largest') * 1e3:.0f})",
            "at most 60",
        )
    )
    rows.append(("index in memory after 2,000 questions, MB", f"{latency.said('rss') / 1e6:.0f}", "at most 50"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    sitting = Sitting()
    with tempfile.TemporaryDirectory() as warm:
        subprocess.run(
            [sys.executable, "-m", "opscope_clients", "--cache-dir", warm, "index"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for number in range(rounds):
            one_round(sitting, warm, first=number == 0)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"medians of {rounds} rounds in one sitting; load at the end {load}\n")
    print(f"{'side':<40}{'CPU s':>9}{'wall s':>9}{'MB':>7}{'runs':>6}")
    for label, side in sitting.sides.items():
        figures = f"{side.median('cpu'):>9.3f}{side.median('wall'):>9.3f}{side.median('rss') / 1e6:>7.0f}"
        print(f"{label:<40}{figures}{len(side.runs):>6}")
    for package, how in sitting.missing.items():
        print(f"{package} is missing: {how}")
    print(f"\n{'figure':<72}{'measured':>18}  target")
    for figure, measured, target in table(sitting):
        print(f"{figure:<72}{measured:>18}  {target}")


if __name__ == "__main__":
    main()
