"""Kernels, launches and autotune sets of real packages against counts by plain text search, and how many kernels compile.

Reads the wheels of tests/kernel-sources.txt (unpacked, never imported), the installed torch's CUDA headers and
Triton code, and every folder that is given. The counts beside ours know nothing of the tool: `__global__` before a body
and `<<<` with comments and strings taken out, `jit` decorators above a `def`, `autotune` decorators. Where they differ the
files are named. Run with `make sweep-kernels`; `--compile N` compiles N Triton kernels of each package, drawn at random.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from autotune_comparison import compared
from kernel_sources import kernel_sources
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import Inventory, compiled, describe, launches_of, parse_arch, scan

#: packages whose modules import here, by their top folder
LIVE = {"fla-core": "fla", "liger-kernel": "liger_kernel"}
_CUDA = (".cu", ".cuh", ".inl", ".h", ".hpp")
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?:.*?)\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_JIT = re.compile(
    r"^[ \t]*@(?:triton|tr)?\.?jit\b[^\n]*\n(?:[ \t]*(?:@[^\n]*|[^\n@]*\)|#[^\n]*)\n)*?[ \t]*def (\w+)", re.MULTILINE
)
_TUNED = re.compile(r"^[ \t]*@(?:triton\.|tr\.|\w+_)?autotune\b", re.MULTILINE)


def quiet(*_: object) -> None:
    pass


def packages() -> Iterator[Repository]:
    """The unpacked wheels, then what is installed."""
    for name, root in kernel_sources().items():
        if name != "einops":
            yield Repository(name=name, root=root, packages=())
    for package, inside in (
        ("torch", "torch/include/ATen"),
        ("torch", "torch/include/c10"),
        ("torch", "torch/_inductor"),
        ("triton", "triton"),
    ):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin:
            yield Repository(name=inside, root=Path(spec.origin).parents[1], packages=(inside,))


def text_counts(repository: Repository) -> dict[str, Counter[str]]:
    """Per file, by plain search: definitions, launches, autotune decorators."""
    found: dict[str, Counter[str]] = {
        "cuda kernels": Counter(),
        "launches": Counter(),
        "triton kernels": Counter(),
        "autotune": Counter(),
    }
    roots = [repository.root / p for p in repository.packages] or [repository.root]
    for path in sorted(p for root in roots for p in root.rglob("*") if p.is_file()):
        name = str(path.relative_to(repository.root))
        if path.suffix in _CUDA:
            text = _COMMENT.sub(" ", path.read_text(errors="replace"))
            text = re.sub(r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\.|\\\n)*", "", text, flags=re.MULTILINE)
            found["cuda kernels"][name] = len(re.findall(r"\b__global__\b[^;{}]*\{", text))
            found["launches"][name] = len(re.findall(r"<<<", text))
        elif path.suffix == ".py":
            text = path.read_text(errors="replace")
            found["triton kernels"][name] = len(_JIT.findall(text)) if "triton" in text else 0
            found["autotune"][name] = len(_TUNED.findall(text)) if "triton" in text else 0
    return found


def ours(repository: Repository, inventory: Inventory) -> tuple[dict[str, Counter[str]], list[str], list[KernelTiling]]:
    """The tool's counts per file, the autotune sets that it could not enumerate, and the Triton kernels described."""
    found: dict[str, Counter[str]] = {
        "cuda kernels": Counter(),
        "launches": Counter(),
        "triton kernels": Counter(),
        "autotune": Counter(),
    }
    unresolved = []
    triton = [k for k in inventory.kernels if k.language == "triton"]
    for kernel in inventory.kernels:
        if kernel.language == "triton":
            found["triton kernels"][kernel.file] += 1
        elif kernel.role == "kernel" and not kernel.macro:
            found["cuda kernels"][kernel.file] += 1
    for launch in inventory.launches:
        if not launch.file.endswith(".py"):
            found["launches"][launch.file] += 1
    described = describe(repository, inventory, triton, checkpoint=quiet, progress=quiet)
    for tiling in described:
        if tiling.autotune is not None:
            found["autotune"][tiling.file] += 1
            if tiling.autotune.unresolved:
                unresolved.append(f"{tiling.file}:{tiling.autotune.line} {tiling.autotune.unresolved[:100]}")
    return found, unresolved, described


def builds(repository: Repository, inventory: Inventory, count: int) -> Counter[str]:
    """How `count` Triton kernels, drawn at random, compile for sm_90, by the compiler's error."""
    entries = [k for k in inventory.kernels if k.language == "triton" and k.role == "kernel"]
    drawn = random.Random(0).sample(entries, min(count, len(entries)))
    archs = [arch for arch in (parse_arch("sm_90"),) if arch is not None]
    tally: Counter[str] = Counter()
    for reference in drawn:
        (kernel,) = describe(repository, inventory, [reference], checkpoint=quiet, progress=quiet)
        first = kernel.autotune.model_copy(update={"configs": kernel.autotune.configs[:1]}) if kernel.autotune else None
        kernel = kernel.model_copy(update={"autotune": first})
        made = compiled(
            repository, reference, kernel, launches_of(inventory, reference), archs, {}, "", MemoryStore(),
            checkpoint=quiet, progress=quiet,
        )  # fmt: skip
        tally["compiled" if made.compiled else made.statement.rpartition("first error: ")[2][:90]] += 1
    return tally


def cuda_costs(repository: Repository, inventory: Inventory, shown: int) -> None:
    """How many CUDA kernels have a cost, how complete, and what most of the others lack."""
    kernels = [k for k in inventory.kernels if k.language == "cuda" and k.role == "kernel"]
    begun = time.perf_counter()
    described = describe(repository, inventory, kernels, checkpoint=quiet, progress=quiet)
    if not described:
        return
    took = 1000 * (time.perf_counter() - begun) / len(described)
    costs = [kernel.cost for kernel in described if kernel.cost is not None]
    whole = sum(not cost.not_counted for cost in costs)
    print(
        f"  cost with nothing uncounted: {whole} of {len(described)} CUDA kernels, with something {len(costs) - whole}, "
        f"without {len(described) - len(costs)}; described in {took:.0f} ms each"
    )
    reasons: Counter[str] = Counter()
    for cost in costs:
        reasons.update({re.sub(r"`.*`", "...", re.sub(r" \([^()]*\d+\)$", "", what)) for what in cost.not_counted})
    for reason, count in reasons.most_common(shown):
        print(f"      {count}: {reason}")


def report(repository: Repository, compile_: int, shown: int) -> None:
    begun = time.perf_counter()
    inventory = scan(repository, MemoryStore(), checkpoint=quiet, progress=quiet)
    took = time.perf_counter() - begun
    theirs, (found, unresolved, described) = text_counts(repository), ours(repository, inventory)
    print(f"\n{repository.name}: {inventory.files_read} files in {took:.1f} s")
    for what in theirs:
        expected, got = theirs[what].total(), found[what].total()
        if not expected and not got:
            continue
        both = sum(min(theirs[what][f], found[what][f]) for f in theirs[what])
        print(
            f"  {what:15} by text {expected:5}   found {got:5}   of those by text {100 * both / max(expected, 1):5.1f} %"
        )
        differing = [f for f in theirs[what] if theirs[what][f] > found[what][f]]
        for file in differing[:shown]:
            print(f"      {file}: by text {theirs[what][file]}, found {found[what][file]}")
    tuned = found["autotune"].total()
    if tuned:
        print(
            f"  autotune sets   enumerated {tuned - len(unresolved)} of {tuned} ({100 * (tuned - len(unresolved)) / tuned:.1f} %)"
        )
        for line in unresolved[:shown]:
            print(f"      {line}")
    costs = [kernel.cost for kernel in described if kernel.cost is not None]
    if costs:
        print(
            f"  cost with nothing uncounted: {sum(not cost.not_counted for cost in costs)} of {len(costs)} Triton kernels"
        )
    cuda_costs(repository, inventory, shown)
    if repository.name in LIVE:
        with tempfile.TemporaryDirectory() as folder:
            einops = repository.root.parent / "einops"
            verdict = compared(described, repository.root, LIVE[repository.name], [einops], Path(folder))
        print(
            f"  against Autotuner.configs as Python makes them: {len(verdict.equal)} equal, "
            f"{len(verdict.different)} different, {len(verdict.open)} not enumerated"
        )
    if compile_:
        tally = builds(repository, inventory, compile_)
        print(f"  compiled for sm_90: {tally['compiled']} of {tally.total()}")
        for error, count in tally.most_common(shown + 1):
            if error != "compiled":
                print(f"      {count}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--compile", type=int, default=0, dest="compile_")
    parser.add_argument("--show", type=int, default=5)
    arguments: Any = parser.parse_args()
    given = [Repository(name=str(f), root=f.resolve(), packages=()) for f in arguments.folders]
    for repository in given or packages():
        report(repository, arguments.compile_, arguments.show)


if __name__ == "__main__":
    main()
