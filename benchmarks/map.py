"""The map of a repository beside the index build of the same one: wall and CPU time, and the largest resident set.

Each side runs cold in a process of its own, in turn; CPU is user and system time of the whole process tree, the figure that a
busy machine bends least. `python benchmarks/map.py [NAME=PATH ...]`: the installed transformers, and the folders named.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 3
#: the map may take so much of the index build's time, and so many bytes
SHARE, MEMORY = 3.0, 2 << 30


def main() -> None:
    """Measure every repository, a row each."""
    named = dict(part.split("=", 1) for part in sys.argv[1:])
    print(f"{'repository':<16}{'side':<8}{'wall s':>8}{'CPU s':>8}{'MiB':>8}   (medians of {ROUNDS} rounds)")
    for name, path in {"transformers": "", **named}.items():
        sides: dict[str, list[dict[str, float]]] = {"index": [], "map": []}
        for _ in range(ROUNDS):  # in turn, so that what else the machine does bends both sides alike
            for side, runs in sides.items():
                runs.append(_measured(side, name, path))
        medians = {side: {k: statistics.median(r[k] for r in runs) for k in runs[0]} for side, runs in sides.items()}
        for side, figures in medians.items():
            print(f"{name:<16}{side:<8}{figures['wall']:>8.1f}{figures['cpu']:>8.1f}{figures['rss'] / 2**20:>8.0f}")
        for figure in ("wall", "cpu"):
            share = medians["map"][figure] / medians["index"][figure]
            print(f"{name:<16}map / index, {figure}: {share:.2f} (target: at most {SHARE:g})")
        print(f"{name:<16}peak {medians['map']['rss'] / 2**20:,.0f} MiB (target: below {MEMORY >> 20:,})")


def _measured(side: str, name: str, path: str) -> dict[str, float]:
    """One cold run in a process of its own, in seconds and bytes; the children's largest set is added to the parent's."""
    command = [sys.executable, __file__, "--one", side, name, path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _one(side: str, name: str, path: str) -> None:
    from opscope_cache.store import MemoryStore
    from opscope_tools.index.build.build import build
    from opscope_tools.map_repo import MAP_REPO, MapRepoArguments
    from opscope_tools.running.tool import ToolContext
    from opscope_tools.running.workspace import Workspace, folder_repository, installed_repository

    repository = folder_repository(name, Path(path)) if path else installed_repository(name, name)
    assert repository is not None
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if side == "index":
            build(Path(folder, "index.sqlite"), repository.root, repository.packages)
        else:
            workspace = Workspace({name: repository}, Path(folder), MemoryStore())
            MAP_REPO.run(MapRepoArguments(repo=name), ToolContext(workspace))
    wall = time.perf_counter() - begun
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rss = (own.ru_maxrss + workers * children.ru_maxrss) * 1024  # every worker as large as the largest
    print(json.dumps({"wall": wall, "cpu": cpu, "rss": rss}))


if __name__ == "__main__":
    _one(*sys.argv[2:5]) if sys.argv[1:2] == ["--one"] else main()
