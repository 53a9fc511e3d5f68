"""Compiles one CUDA kernel with nvcc: a file that includes the kernel's own and asks for one instantiation of it.

Headers of libraries that are not here are stood in for by empty ones, and those of torch come from its CPU wheel. Nothing
is linked or run.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from opscope_cache.keys import digest, engine_version
from opscope_cache.store import Store
from opscope_schemas.resources import Build, LineInstructions

from opscope_tools.kernels.compiled.process import run
from opscope_tools.kernels.compiled.sass import Machine, in_order, read_cubin, tool

_FIRST = re.compile(r"^(.*?)(?:\((\d+)\))?: (?:fatal )?error: (.*)$|^nvcc fatal\s*: (.*)$", re.MULTILINE)
_ENTRY = re.compile(r"Compiling entry function '(\S+?)'")
#: what ptxas says of an entry
_SAID = {
    "stack": r"(\d+) bytes stack frame", "stores": r"(\d+) bytes spill stores", "loads": r"(\d+) bytes spill loads",
    "registers": r"Used (\d+) registers", "barriers": r"used (\d+) barriers", "shared": r"(\d+) bytes smem",
}  # fmt: skip
_LINES = 12
#: headers of libraries whose declarations a kernel rarely needs, as an empty file
_STANDINS = (
    "cublas_v2.h", "cublas.h", "cublasLt.h", "cusparse.h", "cusolverDn.h", "curand_kernel.h", "curand.h", "nvml.h",
    "c10/cuda/impl/cuda_cmake_macros.h",
)  # fmt: skip


def missing() -> str:
    """What to install before CUDA kernels can be compiled; '' where nothing is missing."""
    if tool("nvcc"):
        return ""
    return "nvcc is not on PATH: install a CUDA toolkit, or pip install nvidia-cuda-nvcc nvidia-cuda-cccl (no GPU is needed)."


@cache
def version() -> str:
    """`nvcc 13.0.88`."""
    try:
        said = subprocess.run(
            [tool("nvcc"), "--version"], capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "nvcc"
    found = re.search(r"V(\d+\.\d+\.\d+)", said)
    return f"nvcc {found[1]}" if found else "nvcc"


def build_cuda(
    root: Path, file: str, name: str, instance: str, archs: Sequence[str], content: str,
    store: Store, *, seconds: float, checkpoint: Callable[[], None], progress: Callable[[float, float | None, str], None],
) -> tuple[list[Build], int]:  # fmt: skip
    """One build per architecture of `instance` (`rms_norm<float, 1024>`, or the bare name), and how many time left out."""
    builds, left = [], 0
    for arch in archs:
        key = digest("nvcc build", engine_version(), version(), content, file, instance, arch)
        if (text := store.get(key)) is not None:
            builds.append(Build.model_validate_json(text))
            continue
        if seconds <= 0:
            left += 1
            continue
        progress(len(builds), len(archs), f"compiling {instance} for {arch}")
        build, spent = _compile(root, file, name, instance, arch, seconds, checkpoint)
        seconds -= spent
        if build is None:
            left += 1
        else:
            store.put(key, build.model_dump_json())
            builds.append(build)
    return builds, left


def _compile(
    root: Path, file: str, name: str, instance: str, arch: str, seconds: float,
    checkpoint: Callable[[], None],
) -> tuple[Build | None, float]:  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="opscope-nvcc-") as folder_name:
        folder = Path(folder_name)
        for header in _STANDINS:
            standin = folder / "standins" / header
            standin.parent.mkdir(parents=True, exist_ok=True)
            standin.write_text("#pragma once\n")
        (folder / "one.cu").write_text(f'#include "{root / file}"\n' + _asked(instance))
        begun = time.monotonic()
        command = [
            tool("nvcc"), "-cubin", f"-arch={arch}", "-std=c++20", "-lineinfo", "--expt-relaxed-constexpr",
            "--expt-extended-lambda", "-w", "-Xptxas", "-v", "-DUSE_CUDA", *_includes(root, file, folder), "-o", "one.cubin", "one.cu",
        ]  # fmt: skip
        done = run(command, folder, seconds=seconds, checkpoint=checkpoint)
        spent = time.monotonic() - begun
        common: dict[str, Any] = {"arch": arch, "compiler": version(), "specialisation": {"instance": instance}}
        if done.timed_out:
            return None, spent
        if done.code:
            return Build(**common, error=_first_error(done.err + done.out, root)), spent
        entries = read_cubin(folder / "one.cubin")
        usage = _usage(done.err + done.out)
        mangled = _entry(name, list(usage))
        if mangled is None:
            return Build(
                **common, error=f"No entry of the name {name} came out of {file}; name the instance to compile."
            ), spent
        machine, said = entries.get(mangled, Machine()), usage[mangled]
        return Build(
            **common, registers=said["registers"], stack_bytes=said["stack"],
            spill_store_bytes=said["stores"], spill_load_bytes=said["loads"], shared_bytes=said["shared"],
            barriers=said["barriers"], instructions=in_order(machine.instructions), lines=_lines(machine, root),
        ), spent  # fmt: skip


def _usage(log: str) -> dict[str, dict[str, int]]:
    """What ptxas says of each entry; what it does not mention is 0."""
    _, *parts = _ENTRY.split(log)
    return {
        name: {key: int(found[1]) if (found := re.search(pattern, text)) else 0 for key, pattern in _SAID.items()}
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _asked(instance: str) -> str:
    """Code that makes the compiler emit the instance: its address taken, which nothing calls."""
    if "<" not in instance:
        return ""
    return f"\nvoid* opscope_wanted() {{ return reinterpret_cast<void*>(&{instance}); }}\n"


def _includes(root: Path, file: str, folder: Path) -> list[str]:
    """Folders to look for headers in: the file's own and those above it, their `include`, then torch's, then stand-ins."""
    parents = [root / parent for parent in Path(file).parents]
    found = [p for parent in parents for p in (parent, parent / "include", parent / "csrc") if p.is_dir()]
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin:
        base = Path(torch.origin).parent / "include"
        found += [base, base / "torch/csrc/api/include"]
    cccl = Path(tool("nvcc")).resolve().parents[1] / "include/cccl"
    found += [p for p in (cccl, folder / "standins") if p.is_dir()]
    return [part for path in found for part in ("-I", str(path))]


def _entry(name: str, mangled: Sequence[str]) -> str | None:
    """The mangled name of the kernel: `_Z` and the length of each part of its name before it; or the name itself."""
    plain = name.rpartition("::")[2]
    return next((m for m in mangled if m == plain or f"{len(plain)}{plain}" in m), None)


def _first_error(text: str, root: Path) -> str:
    found = _FIRST.search(text)
    if found is None:
        return next((line for line in text.splitlines() if line.strip()), "nvcc failed without a message")[:300]
    if found[4]:
        return f"nvcc: {found[4]}"[:300]
    place = found[1].replace(f"{root}/", "")
    return f"{place}:{found[2]}: {found[3]}"[:300] if found[2] else f"{place}: {found[3]}"[:300]


def _lines(machine: Machine, root: Path) -> tuple[LineInstructions, ...]:
    return tuple(
        LineInstructions(file=file.removeprefix(f"{root}/"), line=line, count=count)
        for (file, line), count in machine.lines.most_common(_LINES)
    )


__all__ = ["build_cuda", "missing"]
