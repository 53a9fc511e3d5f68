"""What compilers say of kernels, asked without opscope, and what the tool says of the same instances."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.resources import Build, Resources
from opscope_tools.kernels import Inventory, compiled, describe, launches_of, parse_arch, scan, select

_ENTRY = re.compile(
    r"Compiling entry function '(\S+?)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)",
    re.DOTALL,
)


_HANDLES = {
    "cusparse.h": "typedef void* cusparseHandle_t; typedef int cusparseStatus_t;",
    "cublas_v2.h": "typedef void* cublasHandle_t; typedef int cublasStatus_t;",
    "cublasLt.h": "typedef void* cublasLtHandle_t;", "cusolver_common.h": "typedef int cusolverStatus_t;",
    "cusolverDn.h": "typedef void* cusolverDnHandle_t;", "curand_kernel.h": "", "c10/cuda/impl/cuda_cmake_macros.h": "",
}  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """What is compared."""

    registers: int | None
    shared: int | None
    spill_stores: int | None
    spill_loads: int | None


def by_nvcc(file: Path, folders: Sequence[Path], arch: str, folder: Path) -> dict[str, Figures]:
    """Every entry of a file, by its demangled name, compiled as it stands; of libraries that are not here, handles alone."""
    for header, text in _HANDLES.items():
        (folder / header).parent.mkdir(parents=True, exist_ok=True)
        (folder / header).write_text(f"#pragma once\n{text}\n")
    searched = [part for path in folders for part in ("-I", str(path))]
    done = subprocess.run(
        ["nvcc", "-cubin", f"-arch={arch}", "-std=c++20", "--expt-relaxed-constexpr", "-w", "-DUSE_CUDA", "-Xptxas", "-v", *searched,
         "-I", str(folder), "-o", str(folder / "whole.cubin"), str(file)],
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = {}
    for name, stores, loads, registers, rest in _ENTRY.findall(done.stderr):
        shared = re.search(r"(\d+) bytes smem", rest)
        written = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()
        found[written] = Figures(int(registers), int(shared[1]) if shared else 0, int(stores), int(loads))
    return found


def by_triton(folder: Path, calls: Sequence[Mapping[str, str]], capability: int) -> list[dict[str, Any]]:
    """For each call of a host function, what its launches compile to (triton_launches.py)."""
    script = Path(__file__).with_name("triton_launches.py")
    request = {"folder": str(folder), "capability": capability, "calls": list(calls)}
    done = subprocess.run(
        [sys.executable, str(script)], input=json.dumps(request), capture_output=True, text=True, timeout=580
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


class Asked:
    """The tool's own engine over one folder."""

    def __init__(self, root: Path) -> None:
        self.repository = Repository(name="own", root=root, packages=())
        self.store = MemoryStore()
        self.quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
        self.inventory: Inventory = scan(self.repository, self.store, **self.quiet)

    def resources(
        self, target: str, arch: str, values: Mapping[str, Any] | None = None, instance: str = ""
    ) -> Resources:
        """Of the first kernel that the target names."""
        reference = select(self.inventory, target)[0]
        (kernel,) = describe(self.repository, self.inventory, [reference], **self.quiet)
        archs = [found] if (found := parse_arch(arch)) else []
        launches = launches_of(self.inventory, reference)
        return compiled(
            self.repository, reference, kernel, launches, archs, values or {}, instance, self.store, **self.quiet
        )

    def kernel_of(self, entry: str) -> str:
        """The kernel's name in a demangled entry."""
        return plain(entry).partition("<")[0].partition("(")[0].rpartition("::")[2]


def plain(entry: str) -> str:
    """A demangled entry as C++ would take it."""
    return entry.removeprefix("void ").replace("(anonymous namespace)::", "")


def figures(build: Build) -> Figures:
    """Those of one build."""
    return Figures(build.registers, build.shared_bytes, build.spill_store_bytes, build.spill_load_bytes)


def differing(build: Build, launch: Mapping[str, Any]) -> list[str]:
    """Where a build of a Triton kernel is not the launch's: figures, warps, types and constants."""
    if build.error:
        return [build.error]
    theirs = Figures(*(launch[k] for k in ("registers", "shared", "spill_stores", "spill_loads")))
    found = [] if figures(build) == theirs else [f"{figures(build)} for {theirs}"]
    found += [
        f"{name} {build.options.get(name)} for {launch[name]}" for name in ("num_warps", "num_stages")
        if build.options.get(name) != launch[name]
    ]  # fmt: skip
    for name, kind in launch["signature"].items():
        said = build.specialisation.get(name, "")
        divisible = ", divisible by 16" if name in launch["divisible"] else ""
        value = launch["constants"].get(name, "")
        if kind == "constexpr" and _constant(said.partition(" (")[0]) != _constant(value):
            found.append(f"{name}: {said} for {value}")
        elif kind != "constexpr" and said.partition(" (")[0] != kind + divisible:
            found.append(f"{name}: {said} for {kind}{divisible}")
    return found


def _constant(text: str) -> str:
    names = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    short = text.removeprefix("tl.")
    return names.get(short, short)
