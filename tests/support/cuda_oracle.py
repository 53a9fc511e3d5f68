"""What a CUDA kernel computes and moves, counted by running it: compiled by the host's C++ compiler behind cuda_count/device.h.

The kernel's text is compiled as it stands. FLOPs are counted by the operators of the types that take the place of float
and half, bytes by the compiler's instrumentation of loads and stores (-fsanitize=thread, with own ends of its calls).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SUPPORT = Path(__file__).parent / "cuda_count"
COMPILER = shutil.which("g++")


@dataclass(frozen=True)
class CudaCase:
    """One launch: a kernel with its template arguments, its arguments as C++ (`buffer<float>(64)`), grid and block."""

    kernel: str
    arguments: tuple[str, ...]
    grid: tuple[int, ...] = (1,)
    block: tuple[int, ...] = (64,)
    #: numbers for the names of the formulas, and template parameters
    sizes: dict[str, int] = field(default_factory=dict)
    given: dict[str, int | str] = field(default_factory=dict)
    #: C++ that defines what the kernel's own file takes from its headers
    before: str = ""

    @property
    def name(self) -> str:
        return self.kernel.partition("<")[0]


def definition(text: str, name: str) -> str:
    """The definitions of a function in a file, all of its overloads, template heads included."""
    head = r"(?:template\s*<[^;{}]*?>\s*)?(?:(?:static|inline)\s+)*(?:__global__|__device__)[^;{}()]*?"
    found = list(re.finditer(rf"{head}(?:__launch_bounds__\s*\([^)]*\)\s*)?[^;{{}}()]*\b{name}\s*\(", text))
    assert found, name
    return "\n".join(text[m.start() : _end(text, text.index("{", _closing(text, m.end() - 1)))] for m in found)


def _end(text: str, position: int) -> int:
    depth = 0
    while True:
        depth += (text[position] == "{") - (text[position] == "}")
        position += 1
        if depth == 0:
            return position


def part_of(path: Path, names: Sequence[str]) -> str:
    """The named functions of a file with its macros, without what includes and launches need."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
    directives = re.findall(
        r"^[ \t]*#(?![ \t]*(?:include|pragma))(?:\\\n|[^\n])*", text.partition("__global__")[0], re.MULTILINE
    )
    return "\n".join([*directives, *(definition(text, name) for name in names)])


def _closing(text: str, position: int) -> int:
    depth = 0
    while True:
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return position
        position += 1


def counted(source: str, cases: Sequence[CudaCase], folder: Path) -> list[dict[str, int]]:
    """FLOPs, bytes read and bytes written of each launch, all of its blocks together."""
    assert COMPILER is not None
    dynamic = re.sub(
        r"extern\s+__shared__\s+([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;", r"\1* \2 = (\1*) dynamic_shared;", source
    )
    lines = ["static char dynamic_shared[1 << 16] __attribute__((aligned(16)));"]
    lines += dict.fromkeys(case.before for case in cases if case.before)
    lines += [f'#line 1 "kernel.cu"\n{dynamic}', "int main() {"]
    for number, case in enumerate(cases):
        names = ", ".join(f"a{i}" for i in range(len(case.arguments)))
        given = "".join(f"auto a{i} = {argument}; " for i, argument in enumerate(case.arguments))
        grid, block = (", ".join(map(str, shape)) for shape in (case.grid, case.block))
        lines.append(
            f"{{ {given} begin(); run_grid(dim3({grid}), dim3({block}), [&] {{ {case.kernel}({names}); }}); "
            f'report("{number}"); }}'
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.cpp").write_text('#include "device.h"\n' + "\n".join([*lines, "}"]) + "\n")
    flags = ["-std=c++20", "-O0", "-w", "-fno-threadsafe-statics", f"-I{SUPPORT}"]
    for text, more, made in (
        (folder / "main.cpp", ["-fsanitize=thread"], "main.o"),
        (SUPPORT / "runtime.cpp", [], "runtime.o"),
    ):
        _run([COMPILER, *flags, *more, "-c", str(text), "-o", str(folder / made)])
    _run([COMPILER, str(folder / "main.o"), str(folder / "runtime.o"), "-o", str(folder / "main")])
    out = _run([str(folder / "main")])
    found = [json.loads(line) for line in out.splitlines()]
    assert len(found) == len(cases)
    return [{k: v for k, v in one.items() if k != "case"} for one in found]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
