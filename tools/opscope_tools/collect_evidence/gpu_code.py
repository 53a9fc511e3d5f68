"""What compilers make of kernels, without a GPU: registers, machine instructions, occupancy, and the bytes that are in flight."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from opscope_tools.evidence.bars import bars
from opscope_tools.evidence.bench import PROGRAMS, Bench, RefusedError
from opscope_tools.evidence.collectors.sources import source, source_read
from opscope_tools.evidence.table import Collector, Picture, Reading, excerpt_of
from opscope_tools.hardware.devices import shipped
from opscope_tools.kernels.compiled.occupancy import occupancy
from opscope_tools.kernels.compiled.sass import Machine, in_order, machines, tool

__all__ = ["COLLECTORS"]

#: architectures that one kernel is compiled for: A100, H100, B200
_ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
#: threads of a block, of the copies and of the products, as programs/*.cu launch them
_COPY_THREADS, _PRODUCT_THREADS = 256, {"matmul_naive": 1024, "matmul_tiled": 1024, "matmul_tensor": 512}
#: the device whose multiprocessors are counted, and how many it has (NVIDIA, H100 SXM5 datasheet)
_DEVICE, _MULTIPROCESSORS = "h100_sxm", 132
#: operations of an instruction of a warp or warpgroup: m, n, k of its shape
_SHAPES = {"HMMA.16816": (16, 8, 16), "HGMMA.64": (64, 64, 16)}


def _has_nvcc(_: Bench) -> None:
    if not tool("nvcc"):
        raise RefusedError(
            "missing", "nvcc is not installed; no GPU is needed: pip install nvidia-cuda-nvcc nvidia-cuda-cccl"
        )
    if not tool("nvdisasm") or not tool("cuobjdump"):
        raise RefusedError("missing", "nvdisasm and cuobjdump are not installed: pip install triton brings both.")


def _cubin(bench: Bench, name: str, arch: str) -> dict[str, str]:
    """What the compiler and the disassembler say of one of our programs."""
    cubin = f"{name}.{arch}.cubin"
    nvcc = (
        "nvcc",
        "-cubin",
        "-O3",
        "-lineinfo",
        f"-arch={arch}",
        "-Xptxas",
        "-v",
        "-o",
        cubin,
        str(PROGRAMS / f"{name}.cu"),
    )
    built = bench.good(bench.run((tool("nvcc"), *nvcc[1:]), seconds=180, shown=bench.typed(nvcc)))
    return {f"ptxas_{arch}": built.text, **_disassembled(bench, cubin, arch)}


def _disassembled(bench: Bench, cubin: str, arch: str) -> dict[str, str]:
    usage = bench.good(
        bench.run((tool("cuobjdump"), "--dump-resource-usage", cubin), shown=f"cuobjdump --dump-resource-usage {cubin}")
    )
    listing = bench.good(
        bench.run((tool("nvdisasm"), "--print-line-info", cubin), shown=f"nvdisasm --print-line-info {cubin}")
    )
    return {f"usage_{arch}": usage.out, f"sass_{arch}": _instructions(listing.out)}


def _instructions(listing: str) -> str:
    """The lines of a listing that say something: sections, source lines, instructions without their encoding."""
    kept = [re.sub(r"\s*/\* 0x[0-9a-f]+ \*/", "", line).rstrip() for line in listing.splitlines()]
    return "\n".join(
        line for line in kept if re.match(r"\s*(?:/\*[0-9a-f]{4,}\*/|//## File|\.section\s+\.text|\.L_x_)", line)
    )


def _machines(texts: Mapping[str, str], arch: str) -> dict[str, Machine]:
    found = machines(texts[f"usage_{arch}"], texts[f"sass_{arch}"])
    if not found:
        raise RefusedError("failed", "The disassembler's listing has another form.")
    return found


def _of(machine: Machine, pattern: str) -> int:
    return sum(count for name, count in machine.opcodes.items() if re.match(pattern, name))


def _mix(name: str, title: str, rows: Mapping[str, Machine]) -> Iterable[Picture]:
    """Bars of the instructions of kernels by kind."""
    counts = {row: in_order(machine.instructions) for row, machine in rows.items()}
    largest = max(counts, key=lambda row: sum(counts[row].values()))
    first = next(iter(counts[largest].items()))
    told = f"{title}: bars of {len(counts)} builds; the longest, {largest}, has {sum(counts[largest].values()):,} instructions, of which {first[1]:,} are {first[0]}."
    data = "".join(f"{row};{kind} {count}\n" for row, kinds in counts.items() for kind, count in kinds.items())
    yield Picture(name, bars(counts, title, "instructions"), data, told)


# ---- copies ---------------------------------------------------------------------------------------------------------


def _copies(bench: Bench) -> Mapping[str, str]:
    return _cubin(bench, "copies", "sm_90")


def _copies_read(texts: Mapping[str, str]) -> Reading:
    device = shipped()[_DEVICE]
    values: dict[str, int | float | str] = {
        "multiprocessors": _MULTIPROCESSORS,
        "device_bytes_per_second": device.bandwidth,
    }
    shown = []
    for name, machine in sorted(_machines(texts, "sm_90").items()):
        loads = {opcode: count for opcode, count in machine.opcodes.items() if opcode.startswith("LDG")}
        width = (
            16 if any(".128" in opcode for opcode in loads) else 8 if any(".64" in opcode for opcode in loads) else 4
        )
        fits = occupancy("sm_90", _COPY_THREADS, machine.registers, machine.shared or 0)
        threads = (fits.blocks or 0) * _COPY_THREADS
        flying = threads * width * sum(loads.values())
        covered = flying * _MULTIPROCESSORS / device.bandwidth
        values |= {
            f"{name}_registers": machine.registers or 0, f"{name}_load_bytes": width, f"{name}_loads": sum(loads.values()), f"{name}_threads": threads,
            f"{name}_flying_bytes": flying, f"{name}_covered_seconds": round(covered, 12), f"{name}_instructions": sum(machine.opcodes.values()),
        }  # fmt: skip
        shown.append(
            f"{name:14} {machine.registers:3} registers, {threads:4} threads on a multiprocessor, loads {dict(loads)}"
        )
    code = texts["sass_sm_90"].splitlines()
    return Reading(values, _shown_code(code, "copy_unrolled", r"LDG|STG"), digest=shown)


def _copies_drawn(texts: Mapping[str, str]) -> Iterable[Picture]:
    rows = dict(sorted(_machines(texts, "sm_90").items()))
    yield from _mix("copies-instructions", "Instructions of four copies on sm_90", rows)


def _shown_code(lines: Sequence[str], kernel: str, wanted: str, most: int = 14) -> list[str]:
    """Instructions of a kernel that a pattern names, in order."""
    start = next((at for at, line in enumerate(lines) if f".text.{kernel}" in line), 0)
    end = next((at for at, line in enumerate(lines) if at > start and ".section" in line), len(lines))
    held = [
        " ".join(line.split()) for line in lines[start:end] if re.search(rf"\*/\s+(?:@!?U?P\w+\s+)?(?:{wanted})", line)
    ]
    return held[:most] + (["[...]"] if len(held) > most else [])


# ---- products -------------------------------------------------------------------------------------------------------


def _products(bench: Bench) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for arch in _ARCHITECTURES:
        found |= _cubin(bench, "matmul", arch)
    ptx = ("nvcc", "-ptx", "-O3", "-arch=sm_90", "-o", "matmul.ptx", str(PROGRAMS / "matmul.cu"))
    bench.good(bench.run((tool("nvcc"), *ptx[1:]), seconds=120, shown=bench.typed(ptx)))
    return {**found, "ptx": bench.read("matmul.ptx")}


def _products_read(texts: Mapping[str, str]) -> Reading:
    values: dict[str, int | float | str] = {}
    shown = [
        f"{'kernel':14} {'arch':7} {'registers':>9} {'shared':>7} {'threads/SM':>10} {'FFMA':>5} {'HMMA':>5} {'LDG':>4} {'LDS':>4}"
    ]
    for arch in _ARCHITECTURES:
        for name, machine in sorted(_machines(texts, arch).items()):
            fits = occupancy(arch, _PRODUCT_THREADS[name], machine.registers, machine.shared or 0)
            threads = (fits.blocks or 0) * _PRODUCT_THREADS[name]
            counts = {
                "ffma": _of(machine, "FFMA"),
                "hmma": _of(machine, "HMMA"),
                "ldg": _of(machine, "LDG"),
                "lds": _of(machine, r"LDS\b"),
            }
            values |= {
                f"{name}_{arch}_registers": machine.registers or 0, f"{name}_{arch}_shared_bytes": machine.shared or 0, f"{name}_{arch}_threads": threads, f"{name}_{arch}_instructions": sum(machine.opcodes.values()),
                **{f"{name}_{arch}_{kind}": count for kind, count in counts.items()},
            }  # fmt: skip
            shown.append(f"{name:14} {arch:7} {machine.registers:9} {machine.shared:7} {threads:10} " + " ".join(f"{count:{width}}" for count, width in zip(counts.values(), (5, 5, 4, 4), strict=True)))  # fmt: skip
    for name, body in _ptx_bodies(texts["ptx"]).items():
        for kind, pattern in (
            ("fma", r"\bfma\.rn"),
            ("global_loads", r"\bld\.global"),
            ("shared_loads", r"\bld\.shared"),
            ("tensor_products", r"\bwmma\.mma"),
        ):
            values[f"{name}_ptx_{kind}"] = len(re.findall(pattern, body))
    code = texts["sass_sm_90"].splitlines()
    return Reading(
        values,
        [*_shown_code(code, "matmul_tiled", r"LDS|FFMA", 10), "", *_shown_code(code, "matmul_tensor", r"HMMA|LDG", 8)],
        digest=shown,
    )


def _products_drawn(texts: Mapping[str, str]) -> Iterable[Picture]:
    builds = {arch: _machines(texts, arch) for arch in _ARCHITECTURES}
    rows = {f"{name} {arch}": builds[arch][name] for name in sorted(builds["sm_80"]) for arch in _ARCHITECTURES}
    yield from _mix("matmul-instructions", "Instructions of three products on three architectures", rows)


def _ptx_bodies(text: str) -> dict[str, str]:
    parts = re.split(r"\.entry (\w+)\(", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _triton(bench: Bench) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for arch in _ARCHITECTURES:
        number = arch.removeprefix("sm_")
        command = (bench.python, str(PROGRAMS / "matmul_triton.py"), number, f"triton{number}")
        ran = bench.run(command, seconds=180, environment={"TRITON_CACHE_DIR": str(bench.folder / "triton"), "TRITON_DEFAULT_FP_FUSION": "1"}, shown=bench.typed(command))  # fmt: skip
        if "No module named 'triton'" in ran.err:
            raise RefusedError("missing", "triton is not installed: pip install 'opscope[kernels]'")
        found[f"said_{arch}"] = bench.good(ran).out
        found |= _disassembled(bench, f"triton{number}.cubin", arch)
    return found


def _triton_read(texts: Mapping[str, str]) -> Reading:
    values: dict[str, int | float | str] = {"tile_flops": 2 * 64 * 64 * 32, "warps": 4}
    shown = []
    for arch in _ARCHITECTURES:
        ((_, machine),) = _machines(texts, arch).items()
        shared = re.search(r"(\d+) bytes of shared memory", texts[f"said_{arch}"])
        products = Counter({name: count for name, count in machine.opcodes.items() if re.match(r"[HUT\w]*MMA", name)})
        values |= {
            f"{arch}_registers": machine.registers or 0, f"{arch}_shared_bytes": int(shared[1]) if shared else 0, f"{arch}_products": sum(products.values()),
            f"{arch}_product": next(iter(products), ""), f"{arch}_async_copies": _of(machine, "LDGSTS"), f"{arch}_shared_matrix_loads": _of(machine, "LDSM"),
        }  # fmt: skip
        for opcode, (m, n, k) in _SHAPES.items():
            if held := _of(machine, re.escape(opcode)):
                warps = 1 if opcode.startswith("HMMA") else 4
                values[f"{arch}_counted_flops"] = 2 * m * n * k * held * (4 // warps)
        shown.append(f"{arch:6} {machine.registers:3} registers; " + ", ".join(f"{count} x {name}" for name, count in products.items()) + f"; {_of(machine, 'LDGSTS')} x LDGSTS, {_of(machine, 'LDSM')} x LDSM")  # fmt: skip
    code = texts["sass_sm_90"].splitlines()
    return Reading(values, _shown_code(code, "matmul", r"HGMMA|WARPGROUP|LDGDEPBAR|DEPBAR", 10), digest=shown)


# ---- what a CUDA program asks of the kernel -------------------------------------------------------------------------


def _cuda_calls(bench: Bench) -> Mapping[str, str]:
    nvcc = ("nvcc", "-O3", "-arch=sm_90", "-o", "copies", str(PROGRAMS / "copies.cu"))
    bench.good(bench.run((tool("nvcc"), *nvcc[1:]), seconds=180, shown=bench.typed(nvcc)))
    ran = bench.run(
        ("strace", "-f", "-o", "cuda.txt", str(bench.folder / "copies"), "16", "3"),
        seconds=120,
        shown="strace -f -o cuda.txt ./copies 16 3",
    )
    return {"calls": bench.read("cuda.txt"), "said": ran.text.strip()}


def _cuda_calls_read(texts: Mapping[str, str]) -> Reading:
    lines = texts["calls"].splitlines()
    names = Counter(found[1] for line in lines if (found := re.match(r"\d+\s+(\w+)\(", line)))
    driver = [line for line in lines if re.search(r"libcuda\.so|/dev/nvidia", line)]
    values: dict[str, int | float | str] = {
        "calls": sum(names.values()), "ioctl_calls": names["ioctl"], "driver_searches": sum("libcuda.so" in line for line in driver),
        "device_opens": sum("/dev/nvidia" in line and " = -1" not in line for line in driver), "devices": int("no CUDA" not in texts["said"] and "insufficient" not in texts["said"]),
    }  # fmt: skip
    return Reading(
        values,
        [*excerpt_of("\n".join(driver), first=3, last=2), texts["said"].splitlines()[0] if texts["said"] else ""],
    )


COLLECTORS: tuple[Collector, ...] = (
    Collector(
        "copies-source", "Four ways to move the same bytes", "copies.cu", "source", "exact", ("memory-bandwidth",),
        lambda bench: source("copies.cu", "// one float a thread", "to[at] = one", bench), source_read,
    ),
    Collector(
        "copies-code", "What does the compiler make of them, and how many bytes are in flight?", "nvcc", "code", "exact", ("memory-bandwidth",),
        _copies, _copies_read, needs="compiler", probe=_has_nvcc, pictures=_copies_drawn, elsewhere=lambda _: "nvcc -cubin -O3 -arch=sm_90 -Xptxas -v -o copies.cubin copies.cu && nvdisasm copies.cubin",
    ),
    Collector(
        "cuda-calls", "What does a CUDA program ask of the kernel?", "strace", "syscalls", "measured", ("memory-bandwidth", "system-calls"),
        _cuda_calls, _cuda_calls_read, needs="compiler", probe=_has_nvcc, version=("strace", "-V"), elsewhere=lambda _: "strace -f -e trace=ioctl,openat,mmap,futex ./copies 16 3",
    ),
    Collector(
        "matmul-source", "The same product three times", "matmul.cu", "source", "exact", ("matrix-multiplication",),
        lambda bench: source("matmul.cu", "// a block of 32 x 32 threads", "c[row * size + column] = sum;", bench), source_read,
    ),
    Collector(
        "matmul-code", "What does the compiler make of the three?", "nvcc", "code", "exact", ("matrix-multiplication",),
        _products, _products_read, needs="compiler", probe=_has_nvcc, pictures=_products_drawn, elsewhere=lambda _: "nvcc -cubin -O3 -arch=sm_90 -Xptxas -v -o matmul.cubin matmul.cu && nvdisasm matmul.cubin",
    ),
    Collector(
        "triton-code", "What becomes of one Triton kernel on three architectures?", "triton", "code", "exact", ("matrix-multiplication",),
        _triton, _triton_read, needs="compiler", probe=_has_nvcc, elsewhere=lambda _: "python matmul_triton.py 90 out && nvdisasm out.cubin",
    ),
)  # fmt: skip
