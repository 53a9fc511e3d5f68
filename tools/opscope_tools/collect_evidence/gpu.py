"""What a GPU says: times by CUDA events, counters, a timeline, memory checks, registers at a breakpoint.

Each command is in the table so that a machine with a GPU runs it and one without says what to run. Metrics are those of Nsight Compute; the names that
nvprof used are refused by it, and by the check of posts.
"""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence

from opscope_schemas.evidence import Spread

from opscope_tools.evidence.bench import PROGRAMS, Bench, RefusedError
from opscope_tools.evidence.table import Collector, Reading, excerpt_of

__all__ = ["COLLECTORS", "METRICS"]

#: what is asked of each kernel, and the field that it becomes
METRICS = {
    "dram__bytes_read.sum": "dram_read_bytes", "dram__bytes_write.sum": "dram_written_bytes",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_percent", "gpu__time_duration.sum": "duration_seconds",
    "lts__t_sector_hit_rate.pct": "l2_hit_percent", "l1tex__t_sector_hit_rate.pct": "l1_hit_percent",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": "sector_use_percent",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active": "tensor_pipe_percent",
}  # fmt: skip
_MEGABYTES, _SIZE = "256", "4096"


def _has_gpu(bench: Bench) -> None:
    """One cheap call of the driver's own tool."""
    said = bench.run(("nvidia-smi", "-L"), keep=False, seconds=30)
    if said.code or "GPU 0" not in said.out:
        raise RefusedError("unsupported", "nvidia-smi names no GPU.")


def _needs(*tools: str) -> Callable[[Bench], None]:
    def probe(bench: Bench) -> None:
        _has_gpu(bench)
        for name in tools:
            bench.tool(name)

    return probe


def _build(bench: Bench, name: str, *flags: str) -> None:
    bench.good(
        bench.run(("nvcc", "-O3", "-arch=native", *flags, "-o", name, str(PROGRAMS / f"{name}.cu")), seconds=300)
    )


# ---- times ----------------------------------------------------------------------------------------------------------


def _timed(name: str, size: str, bench: Bench) -> Mapping[str, str]:
    _build(bench, name)
    rows = bench.good(bench.run((str(bench.folder / name), size, "20"), seconds=300, shown=f"./{name} {size} 20"))
    return {"output": rows.out}


def _copies_read(texts: Mapping[str, str]) -> Reading:
    values: dict[str, int | float | str] = {}
    spread = {}
    for name, size, best, median in re.findall(r"^(copy_\w+) (\d+) ([\d.]+) ([\d.]+)$", texts["output"], re.MULTILINE):
        key = f"{name}_bytes_per_second"
        values |= {key: float(median) * 1e6, "array_bytes": int(size)}
        spread[key] = Spread(repetitions=20, least=float(median) * 1e6, most=float(best) * 1e6)
    return Reading(_some(values), texts["output"].splitlines(), spread)


def _matmul_read(texts: Mapping[str, str]) -> Reading:
    values: dict[str, int | float | str] = {}
    spread = {}
    for name, size, best, median, error in re.findall(
        r"^(matmul_\w+) (\d+) ([\d.]+) ([\d.]+) ([\d.]+)$", texts["output"], re.MULTILINE
    ):
        key = f"{name}_flops_per_second"
        values |= {key: float(median) * 1e9, "size": int(size), f"{name}_error": float(error)}
        spread[key] = Spread(repetitions=20, least=float(median) * 1e9, most=float(best) * 1e9)
    return Reading(_some(values), texts["output"].splitlines(), spread)


def _some(values: dict[str, int | float | str]) -> dict[str, int | float | str]:
    if not values:
        raise RefusedError("failed", "The output has another form.")
    return values


def _steps(bench: Bench) -> Mapping[str, str]:
    ran = bench.run(
        bench.program("--repeat", str(max(5, bench.workload.repeat)), device="cuda", dtype="bfloat16"), seconds=300
    )
    found = bench.generated(ran)
    return {
        "output": json.dumps(
            {key: found[key] for key in ("step_seconds", "prefill_seconds", "weight_bytes", "cache_bytes")}
        )
    }


def _steps_read(texts: Mapping[str, str]) -> Reading:
    found = json.loads(texts["output"])
    medians = [statistics.median(steps) for steps in found["step_seconds"]]
    step = statistics.median(medians)
    spread = {"step_seconds": Spread(repetitions=len(medians), least=min(medians), most=max(medians))}
    return Reading(
        {"step_seconds": step, "weight_bytes": found["weight_bytes"], "cache_bytes": found["cache_bytes"]},
        spread=spread,
        digest=[f"step {step * 1e3:.3f} ms"],
    )


# ---- counters -------------------------------------------------------------------------------------------------------


def _counted(name: str, size: str, bench: Bench) -> Mapping[str, str]:
    _build(bench, name, "-lineinfo")
    command = (
        "ncu",
        "--clock-control",
        "none",
        "--csv",
        "--metrics",
        ",".join(METRICS),
        "-c",
        "8",
        str(bench.folder / name),
        size,
        "1",
    )
    return {
        "output": bench.good(
            bench.run(command, seconds=400, shown=" ".join((*command[:-3], f"./{name}", size, "1")))
        ).out
    }


#: how a unit of ncu's table becomes that of a field
_SCALES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0, "second": 1.0, "%": 1.0, "": 1.0}  # fmt: skip


def _counted_read(texts: Mapping[str, str]) -> Reading:
    lines = texts["output"].splitlines()
    head = next((at for at, line in enumerate(lines) if "Metric Name" in line), None)
    if head is None:
        raise RefusedError(
            "denied" if "ERR_NVGPUCTRPERM" in texts["output"] else "failed", "ncu gave no table of metrics."
        )
    values: dict[str, int | float | str] = {}
    shown = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[head:]))):
        kernel, metric = re.sub(r"\W.*", "", row["Kernel Name"]), row["Metric Name"]
        if (
            metric in METRICS
            and (told := row["Metric Value"].replace(",", ""))
            and re.fullmatch(r"-?[\d.]+(?:e[+-]?\d+)?", told)
        ):
            values.setdefault(f"{kernel}_{METRICS[metric]}", float(told) * _SCALES.get(row["Metric Unit"], 1.0))
            shown.append(f"{kernel:16} {metric:70} {told} {row['Metric Unit']}")
    return Reading(_some(values), digest=shown[:24])


def _timeline(bench: Bench) -> Mapping[str, str]:
    command = [
        "nsys",
        "profile",
        "-o",
        "decode",
        "--force-overwrite",
        "true",
        "--trace",
        "cuda",
        *bench.program(device="cuda", dtype="bfloat16"),
    ]
    bench.good(bench.run(command, seconds=400))
    return {
        "output": bench.good(
            bench.run(
                ("nsys", "stats", "--report", "cuda_gpu_kern_sum", "--format", "csv", "decode.nsys-rep"), seconds=200
            )
        ).out
    }


def _timeline_read(texts: Mapping[str, str]) -> Reading:
    lines = texts["output"].splitlines()
    head = next((at for at, line in enumerate(lines) if line.startswith("Time (%)")), None)
    if head is None:
        raise RefusedError("failed", "nsys stats gave no table of kernels.")
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[head:]))))
    values: dict[str, int | float | str] = {
        "kernels": len(rows), "launches": sum(int(row["Instances"]) for row in rows), "kernel_seconds": sum(float(row["Total Time (ns)"]) for row in rows) / 1e9,
        "first_percent": float(rows[0]["Time (%)"]), "first_kernel": rows[0]["Name"][:80],
    }  # fmt: skip
    return Reading(
        values, digest=[f"{row['Time (%)']:>6} %  {row['Instances']:>7}  {row['Name'][:90]}" for row in rows[:8]]
    )


def _sanitized(bench: Bench) -> Mapping[str, str]:
    _build(bench, "copies")
    ran = bench.run(
        ("compute-sanitizer", "--tool", "memcheck", str(bench.folder / "copies"), "16", "1"),
        seconds=300,
        shown="compute-sanitizer --tool memcheck ./copies 16 1",
    )
    return {"output": ran.text}


def _sanitized_read(texts: Mapping[str, str]) -> Reading:
    found = re.search(r"ERROR SUMMARY: (\d+) errors?", texts["output"])
    if not found:
        raise RefusedError("failed", "compute-sanitizer gave no summary.")
    return Reading({"errors": int(found[1])}, excerpt_of(texts["output"], first=2, last=1))


def _debugged(bench: Bench) -> Mapping[str, str]:
    _build(bench, "matmul", "-g", "-G")
    script = (
        "break matmul_tiled",
        "run 256 1",
        "info cuda kernels",
        "info registers R0 R1 R2 R3 R4 R5 R6 R7",
        "print row",
        "x/8wf a",
        "kill",
    )
    words = [word for line in script for word in ("-ex", line)]
    shown = "cuda-gdb -batch " + " ".join(f"-ex '{line}'" for line in script) + " ./matmul"
    return {
        "output": bench.run(("cuda-gdb", "-batch", *words, str(bench.folder / "matmul")), seconds=300, shown=shown).out
    }


def _debugged_read(texts: Mapping[str, str]) -> Reading:
    registers = re.findall(r"^(R\d+)\s+(0x[0-9a-f]+)", texts["output"], re.MULTILINE)
    if not registers:
        raise RefusedError("failed", "cuda-gdb showed no register.")
    lines: Sequence[str] = [
        line for line in texts["output"].splitlines() if re.match(r"R\d+|\$\d|0x|\*|Thread|CUDA", line)
    ]
    return Reading({"registers": len(registers)}, list(lines)[:20])


def _smi(bench: Bench) -> Mapping[str, str]:
    asked = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem"
    return {"output": bench.good(bench.run(("nvidia-smi", f"--query-gpu={asked}", "--format=csv"), seconds=30)).out}


def _smi_read(texts: Mapping[str, str]) -> Reading:
    lines = texts["output"].strip().splitlines()
    name, driver, memory, *_ = (part.strip() for part in lines[1].split(","))
    return Reading({"gpu": name, "driver": driver, "memory_bytes": int(memory.split()[0]) << 20}, lines)


_NCU = "ncu --clock-control none --csv --metrics " + ",".join(METRICS)

COLLECTORS: tuple[Collector, ...] = (
    Collector(
        "gpu", "Which GPU is this?", "nvidia-smi", "command", "exact", ("memory-bandwidth", "system-calls", "matrix-multiplication"),
        _smi, _smi_read, needs="gpu", probe=_has_gpu, elsewhere=lambda _: "nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv",
    ),
    Collector(
        "gpu-copies", "How many bytes a second does each copy move?", "CUDA events", "counters", "measured", ("memory-bandwidth",),
        lambda bench: _timed("copies", _MEGABYTES, bench), _copies_read, needs="gpu", probe=_needs("nvcc"),
        elsewhere=lambda _: f"nvcc -O3 -arch=native -o copies copies.cu && ./copies {_MEGABYTES} 20",
    ),
    Collector(
        "gpu-copies-counters", "What do the memory controllers count of each copy?", "ncu", "counters", "measured", ("memory-bandwidth",),
        lambda bench: _counted("copies", _MEGABYTES, bench), _counted_read, needs="gpu", probe=_needs("nvcc", "ncu"),
        elsewhere=lambda _: f"{_NCU} -c 8 ./copies {_MEGABYTES} 1",
    ),
    Collector(
        "gpu-memcheck", "Does any copy leave its array?", "compute-sanitizer", "command", "exact", ("memory-bandwidth",),
        _sanitized, _sanitized_read, needs="gpu", probe=_needs("nvcc", "compute-sanitizer"),
        elsewhere=lambda _: "compute-sanitizer --tool memcheck ./copies 16 1",
    ),
    Collector(
        "gpu-registers", "What lies in the registers of a thread at a breakpoint?", "cuda-gdb", "dump", "exact", ("memory-bandwidth", "matrix-multiplication"),
        _debugged, _debugged_read, needs="gpu", probe=_needs("nvcc", "cuda-gdb"),
        elsewhere=lambda _: "cuda-gdb -batch -ex 'break matmul_tiled' -ex 'run 256 1' -ex 'info registers R0 R1 R2 R3' -ex 'x/8wf a' ./matmul",
    ),
    Collector(
        "gpu-matmul", "How many operations a second does each product reach?", "CUDA events", "counters", "measured", ("matrix-multiplication",),
        lambda bench: _timed("matmul", _SIZE, bench), _matmul_read, needs="gpu", probe=_needs("nvcc"),
        elsewhere=lambda _: f"nvcc -O3 -arch=native -o matmul matmul.cu && ./matmul {_SIZE} 20",
    ),
    Collector(
        "gpu-matmul-counters", "How busy are the tensor cores?", "ncu", "counters", "measured", ("matrix-multiplication",),
        lambda bench: _counted("matmul", _SIZE, bench), _counted_read, needs="gpu", probe=_needs("nvcc", "ncu"),
        elsewhere=lambda _: f"{_NCU} -c 8 ./matmul {_SIZE} 1",
    ),
    Collector(
        "gpu-timeline", "Which kernels does a decode launch?", "nsys", "counters", "measured", ("system-calls", "memory-bandwidth"),
        _timeline, _timeline_read, needs="gpu", probe=_needs("nsys"),
        elsewhere=lambda bench: bench.typed(["nsys", "profile", "--trace", "cuda", "-o", "decode", *bench.program(device="cuda", dtype="bfloat16")]) + " && nsys stats --report cuda_gpu_kern_sum --format csv decode.nsys-rep",
    ),
    Collector(
        "gpu-steps", "How long does a decode step take on the GPU?", "generate.py", "counters", "measured", ("system-calls",),
        _steps, _steps_read, needs="gpu", probe=_has_gpu, elsewhere=lambda bench: bench.typed(bench.program("--repeat", "5", device="cuda", dtype="bfloat16")),
    ),
)  # fmt: skip
