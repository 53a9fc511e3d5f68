"""Compiles one instance of a CUDA kernel with nvcc: a file that includes the kernel's own and asks for that instance.

The first step ends at PTX, which says which entry the instance is (cuda_instance.py); of all entries only that one is then
assembled. Headers of libraries that are not here are stood in for by short ones, those of torch come from its CPU wheel.
Nothing is linked or run.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from opscope_cache.keys import digest, engine_version, of_document
from opscope_cache.store import Store, recall
from opscope_schemas.resources import Build, Constant, LineInstructions
from pydantic import TypeAdapter

from opscope_tools.children import Done, run, scratch_folder
from opscope_tools.kernels.compiled.cuda_instance import (
    CudaInstance,
    demangler,
    entries_of,
    instances_among,
    named_entries,
    probe_code,
    probed,
    types_in,
)
from opscope_tools.kernels.compiled.process import compiled_by
from opscope_tools.kernels.compiled.sass import Machine, in_order, read_cubin, tool

_FIRST = re.compile(r"^(.*?)(?:\((\d+)\))?: (?:fatal )?error: (.*)$|^nvcc fatal\s*: (.*)$", re.MULTILINE)
_ENTRY = re.compile(r"Compiling entry function '(\S+?)'")
#: what ptxas says of an entry
_SAID = {
    "stack": r"(\d+) bytes stack frame", "stores": r"(\d+) bytes spill stores", "loads": r"(\d+) bytes spill loads",
    "registers": r"Used (\d+) registers", "barriers": r"used (\d+) barriers", "shared": r"(\d+) bytes smem",
}  # fmt: skip
_LINES = 12
#: candidates that are named where an instance is none of them
_LISTED = 8
_CONSTANTS = TypeAdapter(list[Constant])
#: headers of libraries that kernels rarely need, as files with no more than the handles that torch's headers speak of
_STANDINS = {
    "cublas_v2.h": "typedef struct cublasContext* cublasHandle_t; typedef int cublasStatus_t;",
    "cublasLt.h": "typedef struct cublasLtContext* cublasLtHandle_t;",
    "cusparse.h": "typedef struct cusparseContext* cusparseHandle_t; typedef int cusparseStatus_t;",
    "cusolver_common.h": "typedef int cusolverStatus_t;",
    "cusolverDn.h": '#include "cusolver_common.h"\ntypedef struct cusolverDnContext* cusolverDnHandle_t;',
    "curand_kernel.h": "struct curandStateXORWOW; typedef curandStateXORWOW curandState_t; typedef curandState_t curandState;\n"
    "struct curandStateXORWOW { unsigned int d, v[5]; };\n"
    "__device__ void curand_init(unsigned long long, unsigned long long, unsigned long long, curandState_t*);\n"
    "__device__ unsigned int curand(curandState_t*); __device__ float curand_uniform(curandState_t*);\n"
    "__device__ float curand_normal(curandState_t*); __device__ double curand_uniform_double(curandState_t*);\n"
    "__device__ double curand_normal_double(curandState_t*);",
    **dict.fromkeys(("cublas.h", "curand.h", "nvml.h", "c10/cuda/impl/cuda_cmake_macros.h"), ""),
}


def missing() -> str:
    """What to install before CUDA kernels can be compiled; '' where nothing is missing."""
    if tool("nvcc"):
        return ""
    return "nvcc is not on PATH: install a CUDA toolkit, or pip install nvidia-cuda-nvcc nvidia-cuda-cccl (no GPU is needed)."


def version() -> str:
    """`nvcc 13.0.88`."""
    return _version(tool("nvcc"))


@cache
def _version(nvcc: str) -> str:
    try:
        said = run([nvcc, "--version"], seconds=20).out
    except OSError:
        return "nvcc"
    found = re.search(r"V(\d+\.\d+\.\d+)", said)
    return f"nvcc {found[1]}" if found else "nvcc"


def build_cuda(
    root: Path, wanted: CudaInstance, archs: Sequence[str], content: str, store: Store, *, seconds: float,
    checkpoint: Callable[[], None], progress: Callable[[float, float | None, str], None],
) -> tuple[list[Build], int]:  # fmt: skip
    """One build of an instance per architecture, and how many time left out."""
    builds, left = [], 0
    marks = of_document([wanted.file, wanted.expression, list(wanted.namespaces), list(wanted.folders), wanted.text])
    for arch in archs:
        key = digest("nvcc build", engine_version(), version(), content, marks, arch)
        known = recall(store, key, Build.model_validate_json)
        if known is not None:
            builds.append(known)
            continue
        if seconds <= 0:
            left += 1
            continue
        progress(len(builds), len(archs), f"compiling {wanted.spelled} for {arch}")
        begun = time.monotonic()
        build = _compile(root, wanted, arch, seconds, checkpoint)
        seconds -= time.monotonic() - begun
        if build is None:
            left += 1
        else:
            store.put(key, build.model_dump_json())
            builds.append(build)
    return builds, left


def probe(
    root: Path, file: str, expressions: Sequence[str], arch: str, content: str, store: Store, *, seconds: float,
    checkpoint: Callable[[], None], folders: Sequence[str] = (),
) -> list[Constant]:  # fmt: skip
    """What constant expressions come to in the scope of `file`: the compiler's word where no reader of text can tell.

    Nothing runs: each is the initialiser of a device array, which the PTX spells out.
    """
    key = digest(
        "nvcc probe", engine_version(), version(), content, file, arch, of_document([list(expressions), list(folders)])
    )
    known = recall(store, key, _CONSTANTS.validate_json)
    if known is not None:
        return known
    ends = time.monotonic() + seconds
    found = _probed(root, file, expressions, arch, seconds, checkpoint, folders)
    if found is None:  # one that is none of C++ hides the others
        found = []
        for one in expressions:
            left = ends - time.monotonic()
            alone = _probed(root, file, [one], arch, left, checkpoint, folders, keep=True) if left > 0 else None
            found += alone or [Constant(expression=one, error=f"not reached in {seconds:.0f} s")]
    if all("not reached" not in one.error for one in found):
        store.put(key, _CONSTANTS.dump_json(found).decode())
    return found


def _probed(
    root: Path, file: str, expressions: Sequence[str], arch: str, seconds: float, checkpoint: Callable[[], None],
    folders: Sequence[str], *, keep: bool = False,
) -> list[Constant] | None:  # fmt: skip
    code = probe_code(expressions)
    with scratch_folder("nvcc") as folder:
        command = _command(root, file, folder, arch, code, folders)
        done = compiled_by(command, folder, reads=_reads(root), seconds=seconds, checkpoint=checkpoint)
        ptx = (folder / "one.out").read_text() if not done.code and not done.timed_out else ""
    if done.timed_out:
        return None
    if values := probed(ptx, len(expressions)):
        return [
            Constant(expression=one, value=value, arch=arch, compiler=version())
            for one, value in zip(expressions, values, strict=True)
        ]
    if not keep:
        return None
    return [
        Constant(expression=e, error=_first_error(done.err + done.out, root), arch=arch, compiler=version())
        for e in expressions
    ]


def _command(
    root: Path, file: str, folder: Path, arch: str, code: str, folders: Sequence[str], text: str = ""
) -> list[str]:  # fmt: skip
    """The command that makes PTX of `file`, or of `text` in its place, with `code` after it; puts the files that it reads into `folder`."""
    for header, held in _STANDINS.items():
        standin = folder / "standins" / header
        standin.parent.mkdir(parents=True, exist_ok=True)
        standin.write_text(f"#pragma once\n{held}\n")
    (folder / "one.cu").write_text((text or f'#include "{root / file}"\n') + code)
    searched = [
        *([str((root / file).parent)] if text else []),
        *folders,
        *map(str, _torch_folders()),
        str(folder / "standins"),
    ]
    return [
        tool("nvcc"), "-ptx", f"-arch={arch}", "-std=c++20", "-lineinfo", "--expt-relaxed-constexpr", "--expt-extended-lambda",
        "-w", "-DUSE_CUDA", *(part for path in searched for part in ("-I", path)), "-o", "one.out", "one.cu",
    ]  # fmt: skip


class _Compiler:
    """nvcc in one scratch folder, until its time is up."""

    def __init__(
        self, root: Path, wanted: CudaInstance, arch: str, folder: Path, checkpoint: Callable[[], None]
    ) -> None:
        self.root, self.wanted, self.arch, self.folder, self.checkpoint = root, wanted, arch, folder, checkpoint

    def run(self, command: Sequence[str], ends: float, text: str = "") -> Done:
        left = max(ends - time.monotonic(), 0.1)
        return compiled_by(
            command, self.folder, reads=_reads(self.root), seconds=left, checkpoint=self.checkpoint, text=text
        )

    def ptx(self, code: str, ends: float) -> tuple[str, Done]:
        """The PTX of the kernel's file with `code` after it; '' where there is none."""
        command = _command(
            self.root, self.wanted.file, self.folder, self.arch, code, self.wanted.folders, self.wanted.text
        )
        done = self.run(command, ends)
        return (self.folder / "one.out").read_text() if not done.code and not done.timed_out else "", done

    def assembled(self, mangled: str, ends: float) -> Done:
        """Assemble that one entry; all of them where others need one another."""
        (self.folder / "one.ptx").write_text((self.folder / "one.out").read_text())
        command = [tool("nvcc"), "-cubin", f"-arch={self.arch}", "-lineinfo", "-o", "one.cubin", "one.ptx", "-Xptxas"]
        done = self.run([*command, f"-v,--entry={mangled}"], ends)
        return self.run([*command, "-v"], ends) if done.code and "Undefined reference" in done.err + done.out else done

    def demangled(self, names: Sequence[str]) -> list[str]:
        """Names written out; as they are where nothing writes them out."""
        if not (program := demangler()):
            return list(names)
        said = self.run(program, time.monotonic() + 20, "\n".join(names) + "\n").out.splitlines()
        return said if len(said) == len(names) else list(names)


def _compile(
    root: Path, wanted: CudaInstance, arch: str, seconds: float, checkpoint: Callable[[], None],
) -> Build | None:  # fmt: skip
    """The build of one instance; None where time was up."""
    ends = time.monotonic() + seconds
    common: dict[str, Any] = {"arch": arch, "compiler": version(), "specialisation": {"instance": wanted.spelled}}
    with scratch_folder("nvcc") as folder:
        nvcc = _Compiler(root, wanted, arch, folder, checkpoint)
        ptx, done = nvcc.ptx(wanted.code, ends)
        if done.timed_out:
            return None
        if not ptx:
            error = _first_error(done.err + done.out, root)
            return Build(**common, error=error + _candidates(nvcc, ends))
        entries = named_entries(ptx, wanted.name, nvcc.demangled)
        if not entries and wanted.text:  # a part of a file, whose one entry that is
            entries = [entry for entry in entries_of(ptx) if f"{len(wanted.name)}{wanted.name}I" in entry]
        if len(entries) != 1:
            among = nvcc.demangled(entries or entries_of(ptx))
            problem = f"{len(entries)} entries of {wanted.file} are {wanted.spelled}, not one, of: {', '.join(among[:_LISTED])}"
            return Build(**common, error=problem)
        (mangled,) = entries
        done = nvcc.assembled(mangled, ends)
        if done.timed_out:
            return None
        if done.code:
            return Build(**common, error=_first_error(done.err + done.out, root))
        common["specialisation"]["entry"] = nvcc.demangled([mangled])[0]
        machine, said = read_cubin(folder / "one.cubin").get(mangled, Machine()), _usage(done.err + done.out)[mangled]
        return Build(
            **common, registers=said["registers"], stack_bytes=said["stack"],
            spill_store_bytes=said["stores"], spill_load_bytes=said["loads"], shared_bytes=said["shared"],
            options=dict(zip(wanted.constants, probed(ptx, len(wanted.constants)), strict=False)), types=tuple(types_in(ptx)),
            barriers=said["barriers"], instructions=in_order(machine.instructions), lines=_lines(machine, root),
        )  # fmt: skip


def _candidates(nvcc: _Compiler, ends: float) -> str:
    """The instances that the file makes by itself, for one whose name the compiler does not take; '' where it makes none."""
    ptx, _ = nvcc.ptx("", ends)
    among = instances_among(nvcc.demangled(entries_of(ptx)), nvcc.wanted.name) if ptx else []
    if not among:
        return ""
    more = f" and {len(among) - _LISTED} more" if len(among) > _LISTED else ""
    return f" (asked for {nvcc.wanted.spelled}; {nvcc.wanted.file} itself makes {', '.join(among[:_LISTED])}{more})"


def _usage(log: str) -> dict[str, dict[str, int]]:
    """What ptxas says of each entry; what it does not mention is 0."""
    _, *parts = _ENTRY.split(log)
    return {
        name: {key: int(found[1]) if (found := re.search(pattern, text)) else 0 for key, pattern in _SAID.items()}
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _torch_folders() -> list[Path]:
    """Torch's headers, which nvcc does not know of."""
    base = _torch_headers()
    return [path for path in ((base, base / "torch/csrc/api/include") if base else ()) if path.is_dir()]


def provided() -> list[Path]:
    """Every folder in which headers lie that are not the repository's: torch's, the toolkit's, the system's."""
    return [*_torch_folders(), *_toolkit_headers(tool("nvcc")), Path("/usr/include")]


@cache
def _toolkit_headers(nvcc: str) -> list[Path]:
    said = run([nvcc, "--dryrun", "-ptx", "-x", "cu", "/dev/null"], seconds=20)
    lines = [line for line in (said.err + said.out).splitlines() if "INCLUDES=" in line]
    return [Path(folder) for line in lines for folder in re.findall(r'"(?:-I)?(/[^"]+)"', line)]


def _torch_headers() -> Path | None:
    torch = importlib.util.find_spec("torch")
    return Path(torch.origin).parent / "include" if torch is not None and torch.origin else None


def _reads(root: Path) -> list[Path]:
    """What a compilation may look into: the repository and torch's headers."""
    headers = _torch_headers()
    return [root, headers] if headers else [root]


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


__all__ = ["build_cuda", "missing", "probe", "provided"]
