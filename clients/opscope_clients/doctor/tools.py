"""Checks of programs that opscope can use and does without: found where, which version, what for."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from opscope_tools.kernels.compiled.sass import tool as nvidia_tool

from opscope_clients.doctor.findings import Finding, asked

_SECONDS = 10.0


@dataclass(frozen=True)
class Program:
    """A program on PATH (or where `find` looks), and the arguments that make it tell its version."""

    name: str
    purpose: str
    fix: str
    version: Sequence[str] = ("--version",)
    find: Callable[[str], str | None] = shutil.which


PROGRAMS = (
    Program(
        "nvcc", "compiles CUDA kernels (cuda-kernel-tiling --compile): registers, shared memory, occupancy; needs no GPU",
        "Install a CUDA toolkit, or pip install nvidia-cuda-nvcc nvidia-cuda-cccl.", find=nvidia_tool,
    ),
    Program(
        "cuobjdump", "reads machine code of compiled kernels: instructions by kind and line",
        "It comes with triton (pip install 'opscope[kernels]') and with a CUDA toolkit.", find=nvidia_tool,
    ),
    Program("git", "tells the commit of a checkout that is a repository", "Install git."),
    Program("node", "runs MCP's conformance suite and Inspector in this project's tests; nothing else needs it", "Install Node.js 22 or newer."),
    Program("perf", "collect-evidence: samples and counters of a model that runs", "Install linux-perf, or your kernel's linux-tools."),
    Program("strace", "collect-evidence: system calls of load, prefill and decode", "Install strace."),
    Program("bpftrace", "collect-evidence: calls of the library of matrix products, counted; needs root", "Install bpftrace."),
    Program("valgrind", "collect-evidence: misses of simulated caches", "Install valgrind."),
    Program("gdb", "collect-evidence: memory and registers of a model that runs", "Install gdb."),
    Program("pidstat", "collect-evidence: context switches and faults by second", "Install sysstat.", ("-V",)),
    Program("gcc", "collect-evidence: builds the small programs that caches and bandwidth are measured with", "Install gcc."),
    Program("ncu", "collect-evidence: counters of kernels on a GPU", "It comes with a CUDA toolkit; nothing to do without an NVIDIA GPU."),
    Program(
        "nvidia-smi", "tells of a GPU: it measures real kernels beside what opscope computes, which needs none",
        "Nothing to do without an NVIDIA GPU.", ("--query-gpu=name,compute_cap,memory.total", "--format=csv,noheader"),
    ),
)  # fmt: skip

PACKAGES = (
    (
        "triton",
        "compiles Triton kernels without a GPU; reading them needs no package",
        "pip install 'opscope[kernels]'",
    ),
    (
        "py-spy",
        "collect-evidence: flame graphs through Python and native code",
        "pip install 'opscope[evidence]'",
    ),
    ("memray", "collect-evidence: allocations of a run", "pip install 'opscope[evidence]'"),
    ("claude-agent-sdk", "headless agents with the server attached", "pip install 'opscope[agent]'"),
)


def optional() -> Iterator[Finding]:
    """Every optional program and package; programs are asked side by side, each for some seconds at most."""
    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        yield from pool.map(program, PROGRAMS)
    for name, purpose, fix in PACKAGES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding("tools", name, "missing", "not installed", purpose, fix=fix)
        else:
            yield Finding("tools", name, "ok", version, purpose, facts={"version": version})


def program(wanted: Program) -> Finding:
    """Where a program is and what it says of its version."""
    path = wanted.find(wanted.name)
    if not path:
        return Finding("tools", wanted.name, "missing", "not found", wanted.purpose, fix=wanted.fix)
    text, failure = asked([path, *wanted.version], seconds=_SECONDS)
    if failure:
        return Finding("tools", wanted.name, "failed", f"{path}: {failure}", wanted.purpose, fix=wanted.fix)
    version = _version(text)
    return Finding(
        "tools", wanted.name, "ok", f"{version} at {path}", wanted.purpose, facts={"path": path, "version": version}
    )


def _version(text: str) -> str:
    """The line that holds a version: the first with a number in it."""
    lines = [line.strip() for line in text.splitlines()]
    release = next((line for line in lines if "release" in line), "")
    return release or next((line for line in lines if any(c.isdigit() for c in line)), lines[0] if lines else "")
