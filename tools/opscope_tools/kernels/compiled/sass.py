"""What a compiled kernel is made of: registers, stack and shared bytes, machine instructions by kind and by source line.

Read from a cubin with NVIDIA's `cuobjdump` and `nvdisasm`, found on PATH, in triton's wheel or in NVIDIA's own wheels.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from opscope_tools.kernels.compiled.process import compiled_by

_SECONDS = 60
#: what an instruction does, by how its name begins; the first that fits counts
_KINDS = (
    ("tensor-core product", r"[HIBDQ]MMA|IMMA|[HIQ]GMMA|BGMMA|UTC\w*MMA|OMMA"),
    ("tensor memory access (TMA)", r"UTMA|UBLKCP|UTMAPF"),
    ("asynchronous copy to shared", r"LDGSTS"),
    ("global load", r"LDG|LD\b"),
    ("global store", r"STG|ST\b"),
    ("matrix load from shared", r"LDSM|LDTM"),
    ("matrix store to shared", r"STSM|STTM"),
    ("shared load", r"LDS"),
    ("shared store", r"STS"),
    ("local load (spill)", r"LDL"),
    ("local store (spill)", r"STL"),
    ("atomic", r"ATOM|RED\b|ATOMG|ATOMS|REDG"),
    ("warp shuffle", r"SHFL|REDUX"),
    ("barrier", r"BAR|SYNCS|WARPSYNC|DEPBAR|MEMBAR"),
    ("special function", r"MUFU"),
    ("packed half arithmetic", r"HADD2|HMUL2|HFMA2|HMNMX2|HSET"),
    ("float arithmetic", r"F(ADD|MUL|FMA|MNMX|SETP|SEL|SET|CHK|RND)|D(ADD|MUL|FMA)"),
    ("conversion", r"F2|I2|FRND"),
    ("integer and address arithmetic", r"I|U?LEA|U?LOP|U?SH|U?PRMT|U?SEL|UI|BFE|POPC|FLO|VI|LOP"),
    ("move", r"U?MOV|S2|CS2|LDC|ULDC|R2|UR2|P2|PLOP|UPLOP"),
    ("branch", r"BRA|BR|EXIT|RET|CALL|BSSY|BSYNC|BREAK|YIELD|NANOSLEEP|WARP"),
)
_PATTERNS = [(kind, re.compile(rf"(?:{pattern})")) for kind, pattern in _KINDS]
#: `HMMA.16816`, `HGMMA.64x128x16`
_MATRIX = re.compile(r"[A-Z0-9]+\.(?:(16|8)(8)(4|8|16|32|64|128)|(\d+)x(\d+)x(\d+))(?:\.|$)")
_WIDTH = re.compile(r"\.(\d+)\b")
_WIDE = ("global load", "global store", "shared load", "shared store", "asynchronous copy to shared")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.x]*)")
_LINE = re.compile(r'//## File "([^"]+)", line (\d+)')
_USAGE = re.compile(r"Function (\S+?):\s*\n?\s*(REG:.*)")
_SECTION = re.compile(r"\.text\.(\S+?)[:\s,]")


@dataclass
class Machine:
    """One entry of a cubin."""

    registers: int | None = None
    stack: int | None = None
    shared: int | None = None
    instructions: Counter[str] = field(default_factory=Counter)
    #: the same by their names, `LDG.E.128.CONSTANT`
    opcodes: Counter[str] = field(default_factory=Counter)
    lines: Counter[tuple[str, int]] = field(default_factory=Counter)


def tool(name: str) -> str:
    """The path of one of NVIDIA's tools; '' where it is nowhere."""
    return _tool(name, os.environ.get("PATH", ""))


@cache
def _tool(name: str, path: str) -> str:
    if on_path := shutil.which(name, path=path):
        return on_path
    for package, inside in (("triton", "backends/nvidia/bin"), ("nvidia", "cu13/bin"), ("nvidia", "cuda_nvcc/bin")):
        spec = importlib.util.find_spec(package)
        for root in spec.submodule_search_locations or () if spec is not None else ():
            if (found := Path(root) / inside / name).is_file():
                return str(found)
    return ""


def read_cubin(path: Path) -> dict[str, Machine]:
    """Every entry of a cubin by its (mangled) name; what a missing tool would tell stays unknown."""
    return machines(_output("cuobjdump", "--dump-resource-usage", path), _output("nvdisasm", "--print-line-info", path))


def machines(usage: str, listing: str) -> dict[str, Machine]:
    """Every entry, from what `cuobjdump --dump-resource-usage` and `nvdisasm --print-line-info` say of a cubin."""
    found: dict[str, Machine] = {}
    for name, told in _USAGE.findall(usage):
        figures = dict(part.split(":", 1) for part in told.split() if ":" in part and not part.startswith("CONSTANT"))
        registers, stack, shared = (int(figures[key]) if key in figures else None for key in ("REG", "STACK", "SHARED"))
        found[name] = Machine(registers, stack, shared)
    entry, place = "", ("", 0)
    for line in listing.splitlines():
        if line.lstrip().startswith(".section") and (section := _SECTION.search(line)):
            entry, place = section[1], ("", 0)
        elif at := _LINE.search(line):
            place = (at[1], int(at[2]))
        elif entry in found and (instruction := _INSTRUCTION.match(line)):
            name = instruction[1]
            if name.startswith("NOP"):
                continue
            found[entry].instructions[kind_of(name)] += 1
            found[entry].opcodes[name] += 1
            if place[1]:
                found[entry].lines[place] += 1
    return found


def kind_of(name: str) -> str:
    """`LDG.E.128` as `global load, 16 bytes`."""
    for kind, pattern in _PATTERNS:
        if pattern.match(name):
            if kind in _WIDE:
                width = _WIDTH.search(name)
                narrow = {".U8": 1, ".S8": 1, ".U16": 2, ".S16": 2}
                given = next((size for mark, size in narrow.items() if mark in name), 4)
                return f"{kind}, {int(width[1]) // 8 if width else given} bytes"
            shape = _MATRIX.match(name) if kind == "tensor-core product" else None
            return f"{kind}, {'x'.join(n for n in shape.groups() if n)}" if shape else kind
    return "other"


def _output(name: str, option: str, file: Path) -> str:
    program = tool(name)
    if not program:
        return ""
    try:
        return compiled_by([program, option, str(file)], file.parent, seconds=_SECONDS).out
    except OSError:
        return ""


def in_order(counts: Mapping[str, int]) -> dict[str, int]:
    """The kinds with the most instructions first."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
