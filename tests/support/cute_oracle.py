"""What a kernel written in CuTe computes and moves, counted by running it on the host with CUTLASS' own headers.

The file's text is compiled as it stands, launches put through cuda_count/runtime.cpp. FLOPs are counted by the operators of
the element type, bytes by the compiler's instrumentation of loads and stores. Nothing of opscope is used.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cuda_oracle import COMPILER, SUPPORT

#: folders of CUDA's headers, those of its C++ library first
HEADERS = sorted(Path("/usr/local").glob("cuda*/include/cccl"))[-1:]
_BEFORE = """
#include <cuda_runtime_api.h>
#include <functional>
#include <cute/tensor.hpp>
#undef __global__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define __syncthreads() wait_block()
extern dim3 threadIdx, blockIdx, blockDim, gridDim;
extern long long flops;
void* arena(size_t bytes);
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);
void wait_block();
void begin();
void report(const char* name);
template <class T> T* buffer(size_t count) { return static_cast<T*>(arena(count * sizeof(T))); }
struct Element {  // its copies are not trivial, so that the compiler tells of each load and store
  float raw;
  Element() = default;
  Element(float value) : raw(value) {}
  Element(const Element& other) : raw(other.raw) {}
  Element& operator=(const Element& other) { raw = other.raw; return *this; }
};
inline Element operator+(const Element& a, const Element& b) { flops += 1; return Element(a.raw + b.raw); }
inline Element operator*(const Element& a, const Element& b) { flops += 1; return Element(a.raw * b.raw); }
inline bool operator==(const Element& a, int b) { return a.raw == b; }
inline bool operator!=(const Element& a, int b) { return a.raw != b; }
"""
_LAUNCH = re.compile(r"(\w+)<<<\s*(\w+),\s*(\w+)[^>]*>>>\s*\((.*?)\);", re.DOTALL)


def counted(file: Path, include: Path, calls: Sequence[str], folder: Path) -> list[dict[str, int]]:
    """FLOPs, bytes read and written of each call of a host function of the file, all of its blocks together."""
    assert COMPILER is not None
    text = file.read_text()
    body = text[text.index("template <class ProblemShape") : text.index("int main(")]
    body = _LAUNCH.sub(r"run_grid(\2, \3, [&] { \1(\4); });", body)
    lines = [_BEFORE, body, "int main() {"]
    lines += [f'begin(); {call}; report("{number}");' for number, call in enumerate(calls)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.cpp").write_text("\n".join([*lines, "}"]))
    folders = [include, *HEADERS, *(h.parent for h in HEADERS)]
    flags = ["-std=c++20", "-O0", "-w", "-fno-threadsafe-statics", *(f"-I{f}" for f in folders)]
    _run([COMPILER, *flags, "-fsanitize=thread", "-c", str(folder / "main.cpp"), "-o", str(folder / "main.o")])
    _run([COMPILER, "-std=c++20", "-O0", "-w", "-c", str(SUPPORT / "runtime.cpp"), "-o", str(folder / "runtime.o")])
    _run([COMPILER, str(folder / "main.o"), str(folder / "runtime.o"), "-o", str(folder / "main")])
    found = [json.loads(line) for line in _run([str(folder / "main")]).splitlines()]
    return [{k: v for k, v in one.items() if k != "case"} for one in found]


def compiled(text: str, statements: Sequence[str], include: Path, folder: Path) -> list[str]:
    """The lines that statements print, behind a text that uses CuTe's names."""
    assert COMPILER is not None
    before = "#include <cuda_runtime_api.h>\n#include <cute/tensor.hpp>\n#include <cutlass/numeric_types.h>\nusing namespace cute;\n"
    (folder / "main.cpp").write_text("\n".join([before, text, "int main() {", *statements, "}"]))
    folders = [include, *HEADERS, *(h.parent for h in HEADERS)]
    flags = ["-std=c++20", "-O0", "-w", *(f"-I{f}" for f in folders)]
    _run([COMPILER, *flags, str(folder / "main.cpp"), "-o", str(folder / "main")])
    return _run([str(folder / "main")]).splitlines()


def usable() -> bool:
    """Whether compiler and headers are there."""
    return COMPILER is not None and bool(HEADERS) and shutil.which("g++") is not None


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
