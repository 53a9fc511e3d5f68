"""Compiles one CUDA kernel with nvcc: a file that includes the kernel's own and asks for one instantiation of it.

Headers of libraries that are not here are stood in for by empty ones, and those of torch come from its CPU wheel. Nothing
is linked or run.
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

from opscope_tools.children import run, scratch_folder
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
_CONSTANTS = TypeAdapter(list[Constant])
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
    root: Path, file: str, name: str, instance: str, archs: Sequence[str], content: str,
    store: Store, *, seconds: float, checkpoint: Callable[[], None], progress: Callable[[float, float | None, str], None],
) -> tuple[list[Build], int]:  # fmt: skip
    """One build per architecture of `instance` (`rms_norm<float, 1024>`, or the bare name), and how many time left out."""
    builds, left = [], 0
    for arch in archs:
        key = digest("nvcc build", engine_version(), version(), content, file, instance, arch)
        known = recall(store, key, Build.model_validate_json)
        if known is not None:
            builds.append(known)
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


def probe(
    root: Path, file: str, expressions: Sequence[str], arch: str, content: str, store: Store, *, seconds: float,
    checkpoint: Callable[[], None],
) -> list[Constant]:  # fmt: skip
    """What constant expressions come to in the scope of `file`: the compiler's word where no reader of text can tell.

    Nothing runs: each is the initialiser of a device array, which the PTX spells out.
    """
    key = digest("nvcc probe", engine_version(), version(), content, file, arch, of_document(list(expressions)))
    known = recall(store, key, _CONSTANTS.validate_json)
    if known is not None:
        return known
    ends = time.monotonic() + seconds
    found = _probed(root, file, expressions, arch, seconds, checkpoint)
    if found is None:  # one that is none of C++ hides the others
        found = []
        for one in expressions:
            left = ends - time.monotonic()
            alone = _probed(root, file, [one], arch, left, checkpoint, keep=True) if left > 0 else None
            found += alone or [Constant(expression=one, error=f"not reached in {seconds:.0f} s")]
    if all("not reached" not in one.error for one in found):
        store.put(key, _CONSTANTS.dump_json(found).decode())
    return found


def _probed(
    root: Path, file: str, expressions: Sequence[str], arch: str, seconds: float, checkpoint: Callable[[], None], *,
    keep: bool = False,
) -> list[Constant] | None:  # fmt: skip
    values = ", ".join(f"(long long)({expression})" for expression in expressions)
    code = f'\nextern "C" __device__ const long long opscope_probe[] = {{{values}}};\n'
    with scratch_folder("nvcc") as folder:
        command = _command(root, file, folder, arch, code, ["-ptx"])
        done = compiled_by(command, folder, reads=_reads(root), seconds=seconds, checkpoint=checkpoint)
        ptx = (folder / "one.out").read_text() if not done.code and not done.timed_out else ""
    if done.timed_out:
        return None
    if initial := re.search(r"\.[bus](8|64) opscope_probe\[\d*\](?:\s*=\s*\{([^}]*)\})?;", ptx):
        width = int(initial[1]) // 8
        listed = b"".join(
            (int(v) % (1 << 8 * width)).to_bytes(width, "little") for v in (initial[2] or "").split(",") if v.strip()
        )
        whole = listed.ljust(8 * len(expressions), b"\0")  # zeros at the end are not written
        return [
            Constant(
                expression=one, value=int.from_bytes(whole[8 * i : 8 * i + 8], "little", signed=True), arch=arch,
                compiler=version(),
            ) for i, one in enumerate(expressions)
        ]  # fmt: skip
    if not keep:
        return None
    return [
        Constant(expression=e, error=_first_error(done.err + done.out, root), arch=arch, compiler=version())
        for e in expressions
    ]


def _command(root: Path, file: str, folder: Path, arch: str, code: str, what: Sequence[str]) -> list[str]:
    """The compiler's command for `file` with `code` after it; puts the files that it reads into `folder`."""
    for header in _STANDINS:
        standin = folder / "standins" / header
        standin.parent.mkdir(parents=True, exist_ok=True)
        standin.write_text("#pragma once\n")
    (folder / "one.cu").write_text(f'#include "{root / file}"\n{code}')
    return [
        tool("nvcc"), *what, f"-arch={arch}", "-std=c++20", "-lineinfo", "--expt-relaxed-constexpr", "--expt-extended-lambda",
        "-w", "-DUSE_CUDA", *_includes(root, file, folder), "-o", "one.out", "one.cu",
    ]  # fmt: skip


def _compile(
    root: Path, file: str, name: str, instance: str, arch: str, seconds: float, checkpoint: Callable[[], None],
) -> tuple[Build | None, float]:  # fmt: skip
    with scratch_folder("nvcc") as folder:
        begun = time.monotonic()
        command = _command(root, file, folder, arch, _asked(instance), ["-cubin", "-Xptxas", "-v"])
        done = compiled_by(command, folder, reads=_reads(root), seconds=seconds, checkpoint=checkpoint)
        spent = time.monotonic() - begun
        common: dict[str, Any] = {"arch": arch, "compiler": version(), "specialisation": {"instance": instance}}
        if done.timed_out:
            return None, spent
        if done.code:
            return Build(**common, error=_first_error(done.err + done.out, root)), spent
        entries = read_cubin(folder / "one.out")
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
    if base := _torch_headers():
        found += [base, base / "torch/csrc/api/include"]
    cccl = Path(tool("nvcc")).resolve().parents[1] / "include/cccl"
    found += [p for p in (cccl, folder / "standins") if p.is_dir()]
    return [part for path in found for part in ("-I", str(path))]


def _torch_headers() -> Path | None:
    torch = importlib.util.find_spec("torch")
    return Path(torch.origin).parent / "include" if torch is not None and torch.origin else None


def _reads(root: Path) -> list[Path]:
    """What a compilation may look into: the repository and torch's headers."""
    headers = _torch_headers()
    return [root, headers] if headers else [root]


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


__all__ = ["build_cuda", "missing", "probe"]
