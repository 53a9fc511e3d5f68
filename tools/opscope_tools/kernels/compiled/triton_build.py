"""Compiles a Triton kernel for architectures and autotune configurations, and reads what came out; results are kept."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opscope_cache.keys import digest, engine_version, of_document
from opscope_cache.store import Store, recall
from opscope_schemas.resources import Build, LineInstructions

from opscope_tools.children import scratch_folder
from opscope_tools.kernels.compiled.occupancy import WARP, occupancy
from opscope_tools.kernels.compiled.process import compiled_by
from opscope_tools.kernels.compiled.sass import Machine, in_order, read_cubin
from opscope_tools.kernels.compiled.triton_slice import Slice
from opscope_tools.kernels.compiled.triton_types import Choice

#: the compiler makes nonsense below this capability
OLDEST = 80
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_BARRIERS = re.compile(r"used (\d+) barriers")
_LINES = 12


def missing() -> str:
    """What to install before Triton kernels can be compiled; '' where nothing is missing."""
    if importlib.util.find_spec("triton") is not None:
        return ""
    return "Triton is not installed in the server's environment: pip install 'opscope[kernels]' (no GPU is needed)."


def build_triton(
    slice_: Slice, choices: Sequence[Choice], archs: Sequence[str], store: Store, *, seconds: float,
    checkpoint: Callable[[], None], progress: Callable[[float, float | None, str], None],
) -> tuple[list[Build], int]:  # fmt: skip
    """One build per choice and architecture, and how many were left out because time was up."""
    version = importlib.metadata.version("triton")
    marks = of_document([slice_.files, slice_.names, list(slice_.kernel)])
    wanted = [(choice, arch) for choice in choices for arch in archs]
    keys = [
        digest("triton build", engine_version(), version, marks, arch, of_document(_request(c, arch)))
        for c, arch in wanted
    ]
    known = {key: build for key in keys if (build := recall(store, key, Build.model_validate_json)) is not None}
    todo = [(c, a, k) for (c, a), k in zip(wanted, keys, strict=True) if k not in known]
    if todo and seconds > 0:
        progress(0, len(todo), f"compiling {slice_.kernel[1]} {len(todo)} times")
        for key, build in _compile(slice_, todo, version, seconds, checkpoint):
            known[key] = build
            store.put(key, build.model_dump_json())
    builds = [known[key] for key in keys if key in known]
    return builds, len(keys) - len(builds)


def _request(choice: Choice, arch: str) -> dict[str, Any]:
    return {
        "signature": choice.signature, "constants": choice.constants, "divisible": choice.divisible,
        "options": choice.options, "capability": int(arch.removeprefix("sm_").rstrip("af")), "said": choice.said,
        "config": choice.config,
    }  # fmt: skip


def _compile(
    slice_: Slice, todo: Sequence[tuple[Choice, str, str]], version: str, seconds: float, checkpoint: Callable[[], None]
) -> list[tuple[str, Build]]:
    worker = Path(__file__).with_name("triton_worker.py")
    with scratch_folder("triton") as folder:
        request = {
            "kernel": list(slice_.kernel), "files": slice_.files, "names": slice_.names, "out": str(folder),
            "builds": [_request(choice, arch) for choice, arch, _ in todo],
        }  # fmt: skip
        done = compiled_by(
            [sys.executable, "-P", "-s", str(worker)], folder, reads=[worker, *map(Path, filter(None, sys.path))],
            seconds=seconds, checkpoint=checkpoint, text=json.dumps(request),
        )  # fmt: skip
        answers = [json.loads(line) for line in done.out.splitlines() if line.endswith("}")]
        failed = next((a["failed"] for a in answers if "failed" in a), "")
        if not answers and not done.timed_out:
            failed = (done.err.strip().splitlines() or ["the compiler's process ended without an answer"])[-1]
        found = []
        given = {a["number"]: a for a in answers if "number" in a}
        for number, (choice, arch, key) in enumerate(todo):
            checkpoint()
            answer = given.get(number, {"error": failed} if failed else None)
            if answer is not None:
                found.append((key, _build(choice, arch, answer, version)))
            elif done.code and not done.timed_out:  # it died at this one
                found.append(
                    (key, _build(choice, arch, {"error": f"The compiler ended with code {done.code}."}, version))
                )
                break
        return found


def _build(choice: Choice, arch: str, answer: Mapping[str, Any], version: str) -> Build:
    common: dict[str, Any] = {
        "arch": arch, "compiler": f"triton {version}", "specialisation": choice.said, "options": choice.options,
        "config": choice.config,
    }  # fmt: skip
    if "error" in answer:
        return Build(**common, error=answer["error"])
    entries = read_cubin(Path(answer["cubin"]))
    machine = next(iter(entries.values()), Machine())
    spills, barriers = _SPILLS.search(answer["log"]), _BARRIERS.search(answer["log"])
    threads, shared = WARP * answer["num_warps"], answer["shared"]
    options = {**choice.options, "num_warps": answer["num_warps"], "num_stages": answer["num_stages"]}
    used = int(barriers[1]) if barriers else None
    return Build(
        **{**common, "options": options}, threads=threads, registers=machine.registers, stack_bytes=machine.stack,
        spill_store_bytes=int(spills[2]) if spills else None, spill_load_bytes=int(spills[3]) if spills else None,
        shared_bytes=shared, barriers=used, instructions=in_order(machine.instructions),
        lines=_lines(machine, answer["folder"]),
        occupancy=occupancy(arch, threads, machine.registers, 0, shared, used if used is not None else 1),
    )  # fmt: skip


def _lines(machine: Machine, folder: str) -> tuple[LineInstructions, ...]:
    return tuple(
        LineInstructions(file=file.removeprefix(f"{folder}/"), line=line, count=count)
        for (file, line), count in machine.lines.most_common(_LINES)
        if file.startswith(folder)
    )


__all__ = ["OLDEST", "build_triton", "missing"]
