"""What memory gives and what caches miss: ceilings, the time of a decode beside them, simulated caches of a known size."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from opscope_schemas.evidence import Spread

from opscope_tools.evidence.bench import PROGRAMS, Bench, RefusedError
from opscope_tools.evidence.collectors.code import PLAIN
from opscope_tools.evidence.table import Collector, Reading

__all__ = ["COLLECTORS"]

#: megabytes of an array of the ceilings, which no cache of a core holds
_MEGABYTES = 256
#: tokens of the simulated heads, and the tiles that are tried on one of them
_TOKENS = (128, 256, 512, 1024)
_HEAD_DIM = 64
_TILED = 512
_TILES = ((64, 64), (64, 32), (64, 16), (32, 16), (16, 16), (128, 16), (64, 8))
_LINE = 64
#: how often a rate is measured
_REPETITIONS = 5


# ---- compiling ------------------------------------------------------------------------------------------------------


def _compiled(bench: Bench, name: str, *flags: str) -> str:
    """A program of ours, compiled here; the command is part of what is shown."""
    command = ("gcc", *flags, "-o", name, str(PROGRAMS / f"{name}.c"), "-lm", "-pthread")
    bench.good(bench.run(command, seconds=60))
    return f"./{name}"


def _program(bench: Bench, *words: str, seconds: float = 120.0) -> str:
    """What a compiled program says."""
    command = [str(bench.folder / words[0].removeprefix("./")), *words[1:]]
    return bench.good(bench.run(command, seconds=seconds, shown=" ".join(words))).out


def _has_gcc(_: Bench) -> None:
    if shutil.which("gcc") is None:
        raise RefusedError("missing", "gcc is not installed.")


# ---- ceilings -------------------------------------------------------------------------------------------------------


def _ceilings(bench: Bench) -> Mapping[str, str]:
    program = _compiled(bench, "bandwidth", "-O3", "-march=native")
    repetitions = str(max(_REPETITIONS, bench.workload.repeat))
    found = {f"threads{count}": _program(bench, program, "ceilings", str(count), str(_MEGABYTES), repetitions) for count in sorted({1, bench.machine.cpus or 1})}  # fmt: skip
    return {**found, "ladder": _program(bench, program, "ladder", repetitions)}


def _rates(text: str) -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = {}
    for line in text.splitlines():
        what, size, rate = line.split()
        found.setdefault((what, int(size)), []).append(float(rate))
    return found


def _ceilings_read(texts: Mapping[str, str]) -> Reading:
    values: dict[str, int | float | str] = {}
    spread, shown = {}, []
    for name, text in texts.items():
        if name == "ladder":
            continue
        for (what, _), rates in _rates(text).items():
            key = f"{name}_{what}_bytes_per_second"
            values[key], spread[key] = _settled(rates)
            shown.append(f"{name} {what:5} median {statistics.median(rates) / 1e9:7.2f} GB/s   ({min(rates) / 1e9:.2f} to {max(rates) / 1e9:.2f}, {len(rates)} times)")  # fmt: skip
    core = max(("threads1_read", "threads1_side"), key=lambda name: float(values[f"{name}_bytes_per_second"]))
    values["core_bytes_per_second"], spread["core_bytes_per_second"] = (
        values[f"{core}_bytes_per_second"],
        spread[f"{core}_bytes_per_second"],
    )
    shown.append("")
    for (_, size), rates in _rates(texts["ladder"]).items():
        key = f"read_{_size_named(size)}_bytes_per_second"
        values[key], spread[key] = _settled(rates)
        shown.append(f"read of {_size_named(size):>6} {statistics.median(rates) / 1e9:8.1f} GB/s")
    return Reading(values, (), spread, shown)


def _size_named(size: int) -> str:
    return f"{size >> 20}MiB" if size >= 1 << 20 else f"{size >> 10}KiB"


def _settled(values: Sequence[float]) -> tuple[float, Spread]:
    return round(statistics.median(values), 9), Spread(repetitions=len(values), least=min(values), most=max(values))


def _likwid(bench: Bench) -> Mapping[str, str]:
    found = {}
    for kernel in ("load", "copy"):
        command = ("likwid-bench", "-s", "1", "-t", kernel, "-w", "S0:256MB:1")
        found[kernel] = "\n".join(bench.good(bench.run(command, seconds=120)).out for _ in range(_REPETITIONS))
    return found


def _likwid_read(texts: Mapping[str, str]) -> Reading:
    values: dict[str, int | float | str] = {}
    spread, shown = {}, []
    for kernel, text in texts.items():
        rates = [float(found) for found in re.findall(r"^MByte/s:\s+([\d.]+)", text, re.MULTILINE)]
        if not rates:
            raise RefusedError("failed", f"likwid-bench told no rate of {kernel}.")
        key = f"{kernel}_bytes_per_second"
        values[key], spread[key] = _settled([1e6 * rate for rate in rates])
        shown.append(f"{kernel:5} MByte/s: {' '.join(f'{rate:.0f}' for rate in rates)}")
    return Reading(values, (), spread, shown)


# ---- the decode beside them -----------------------------------------------------------------------------------------

_POINTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("float32_batch1", {}), ("float32_batch2", {"batch_size": 2}), ("float32_batch4", {"batch_size": 4}), ("float32_batch8", {"batch_size": 8}),
    ("bfloat16_batch1", {"dtype": "bfloat16"}), ("bfloat16_batch8", {"dtype": "bfloat16", "batch_size": 8}), ("float32_threads2", {"threads": 2}),
)  # fmt: skip


def _steps(bench: Bench) -> Mapping[str, str]:
    found = {}
    for name, changes in _POINTS:
        repeat = str(max(_REPETITIONS, bench.workload.repeat))
        ran = bench.run(bench.program("--repeat", repeat, **{**PLAIN, **changes}), seconds=300)
        told = bench.generated(ran)
        kept = {
            key: told[key]
            for key in (
                "step_seconds",
                "prefill_seconds",
                "weight_bytes",
                "streamed_bytes",
                "cache_bytes",
                "parameters",
                "capability",
            )
        }
        found[name] = json.dumps({**kept, "batch": changes.get("batch_size", bench.workload.batch_size)})
    return found


def _steps_read(texts: Mapping[str, str]) -> Reading:
    values: dict[str, int | float | str] = {}
    spread, shown = {}, []
    for name, text in texts.items():
        found = json.loads(text)
        medians = [statistics.median(steps) for steps in found["step_seconds"]]
        step, key = statistics.median(medians), f"{name}_step_seconds"
        values[key], spread[key] = _settled(medians)
        values[f"{name}_streamed_bytes"] = found["streamed_bytes"]
        for said, one in (
            ("tokens_per_second", found["batch"]),
            ("streamed_bytes_per_second", found["streamed_bytes"]),
        ):
            values[f"{name}_{said}"] = round(one / step, 3)
            spread[f"{name}_{said}"] = Spread(
                repetitions=len(medians), least=one / max(medians), most=one / min(medians)
            )
        values[f"{name}_prefill_seconds"], spread[f"{name}_prefill_seconds"] = _settled(found["prefill_seconds"])
        shown.append(f"{name:17} step {step * 1e3:7.2f} ms  ({min(medians) * 1e3:.2f} to {max(medians) * 1e3:.2f}, {len(medians)} times)  {found['batch'] / step:7.1f} tokens/s  {found['streamed_bytes'] / step / 1e9:6.2f} GB/s of weights")  # fmt: skip
    return Reading(values, (), spread, shown)


# ---- simulated caches -----------------------------------------------------------------------------------------------


def _caches(bench: Bench) -> tuple[int, int]:
    """Bytes of the first level and of the last that are simulated: powers of two, as the simulator asks for."""
    first = bench.workload.l1_bytes or bench.machine.l1_bytes or 32 << 10
    last = bench.workload.l2_bytes or bench.machine.l2_bytes or 1 << 20
    return 1 << (first.bit_length() - 1), 1 << (last.bit_length() - 1)


def _simulated(bench: Bench, *words: str) -> str:
    first, last = _caches(bench)
    flags = ("--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=cachegrind.out", f"--D1={first},8,{_LINE}", f"--LL={last},16,{_LINE}")  # fmt: skip
    command = ["valgrind", *flags, str(bench.folder / words[0].removeprefix("./")), *words[1:]]
    ran = bench.good(bench.run(command, seconds=240, shown=" ".join(["valgrind", *flags, *words])))
    return re.sub(r"^==\d+== ?", "", ran.err, flags=re.MULTILINE) + ran.out


def _heads(bench: Bench) -> Mapping[str, str]:
    program = _compiled(bench, "attention", "-O2", "-g")
    first, last = _caches(bench)
    found = {"caches": f"{first} {last}"}
    for tokens in _TOKENS:
        for how in ("naive", "blocked"):
            words = (how, str(tokens), str(_HEAD_DIM), *(("64", "16") if how == "blocked" else ()))
            found[f"{how}_{tokens}"] = _simulated(bench, program, *words)
    found["again"] = _simulated(bench, program, "naive", str(_TOKENS[1]), str(_HEAD_DIM))
    return found


def _misses(text: str) -> tuple[int, int, int]:
    """References to data, and those that the first and the last level miss."""
    found = [
        re.search(rf"^{name}:\s+([\d,]+)", text, re.MULTILINE) for name in (r"D\s+refs", r"D1\s+misses", r"LLd misses")
    ]
    if not all(found):
        raise RefusedError("failed", "cachegrind's summary has another form.")
    return tuple(int(one[1].replace(",", "")) for one in found if one)  # type: ignore[return-value] # three of them


def _heads_read(texts: Mapping[str, str]) -> Reading:
    first, last = (int(one) for one in texts["caches"].split())
    values: dict[str, int | float | str] = {
        "l1_bytes": first,
        "last_bytes": last,
        "line_bytes": _LINE,
        "head_dim": _HEAD_DIM,
    }
    shown = [f"{'':8} {'tokens':>6} {'data refs':>13} {'L1 misses':>11} {'L2 misses':>11}"]
    for how in ("naive", "blocked"):
        for tokens in _TOKENS:
            refs, missed, lost = _misses(texts[f"{how}_{tokens}"])
            values |= {
                f"{how}_{tokens}_refs": refs,
                f"{how}_{tokens}_l1_misses": missed,
                f"{how}_{tokens}_l2_misses": lost,
            }
            shown.append(f"{how:8} {tokens:6} {refs:13,} {missed:11,} {lost:11,}")
    for tokens in _TOKENS:
        lines = tokens * _HEAD_DIM * 4 // _LINE
        values |= {
            f"keys_{tokens}_bytes": tokens * _HEAD_DIM * 4, f"scores_{tokens}_bytes": tokens * tokens * 4,
            f"reread_{tokens}_lines": 2 * tokens * lines, f"scores_{tokens}_lines": tokens * tokens * 4 // _LINE,
        }  # fmt: skip
    values["again_equal"] = int(_misses(texts["again"]) == _misses(texts[f"naive_{_TOKENS[1]}"]))
    return Reading(values, _summary(texts[f"naive_{_TOKENS[-1]}"]), digest=shown)


def _summary(text: str) -> list[str]:
    """What cachegrind itself says of data and the last level."""
    return [line for line in text.splitlines() if re.match(r"(?:D\s+refs|D1\s+misses|LLd misses|LL\s+miss)", line)]


def _tiles(bench: Bench) -> Mapping[str, str]:
    program = _compiled(bench, "attention", "-O2", "-g")
    first, last = _caches(bench)
    found = {"caches": f"{first} {last}"}
    for queries, keys in _TILES:
        found[f"{queries}x{keys}"] = _simulated(
            bench, program, "blocked", str(_TILED), str(_HEAD_DIM), str(queries), str(keys)
        )
    return found


def _tiles_read(texts: Mapping[str, str]) -> Reading:
    first, _ = (int(one) for one in texts["caches"].split())
    values: dict[str, int | float | str] = {"l1_bytes": first, "tokens": _TILED, "head_dim": _HEAD_DIM}
    shown = [f"{'tile':>8} {'keys and values of a tile':>26} {'queries and outputs':>20} {'L1 misses':>10}"]
    missed: dict[str, int] = {}
    for queries, keys in _TILES:
        name = f"{queries}x{keys}"
        missed[name] = _misses(texts[name])[1]
        inner, outer = 2 * keys * _HEAD_DIM * 4, 2 * queries * _HEAD_DIM * 4
        values |= {
            f"tile_{name}_l1_misses": missed[name],
            f"tile_{name}_keys_bytes": inner,
            f"tile_{name}_rows_bytes": outer,
        }
        shown.append(f"{name:>8} {inner:26,} {outer:20,} {missed[name]:10,}")
    best = min(missed, key=lambda name: missed[name])
    values |= {"best_tile": best, "best_l1_misses": missed[best], "worst_l1_misses": max(missed.values())}
    return Reading(values, _summary(texts[f"{_TILES[0][0]}x{_TILES[0][1]}"]), digest=shown)


def _torch_simulated(bench: Bench) -> Mapping[str, str]:
    first, last = _caches(bench)
    small = {"hidden_size": 256, "num_layers": 2, "num_heads": 4, "num_kv_heads": 4, "intermediate_size": 688, "vocab_size": 1024, "prompt": 64, "tokens": 4}  # fmt: skip
    flags = ["--tool=callgrind", "--cache-sim=yes", "--instr-atstart=no", "--callgrind-out-file=callgrind.out", f"--D1={first},8,{_LINE}", f"--LL={last},16,{_LINE}"]  # fmt: skip
    line = bench.typed(["valgrind", *flags, *bench.program("--pause", **small)])
    with bench.talk(["valgrind", *flags], seconds=400, **small) as talk:
        process = talk.until("decode_begin")
        on = bench.good(
            bench.run(("callgrind_control", "-i", "on", str(process)), seconds=120, shown="callgrind_control -i on PID")
        )
        talk.go()
        talk.until("decode_end")
        bench.good(
            bench.run(
                ("callgrind_control", "-i", "off", str(process)), seconds=120, shown="callgrind_control -i off PID"
            )
        )
        talk.finish()
        talk.child.wait(120)
    bench.ran.insert(0, type(on)(line, "", "", 0, 0.0))
    table = bench.good(
        bench.run(("callgrind_annotate", "--show=Ir,Dr,D1mr,DLmr", "--threshold=90", "callgrind.out"), seconds=120)
    )
    return {"annotate": table.out, "sizes": json.dumps(small)}


_ANNOTATED = re.compile(
    r"^\s*([\d,]+) \(\s*([\d.]+)%\)\s+(\S+(?: \([^)]*\))?)\s+(\S+(?: \([^)]*\))?)\s+(\S+(?: \([^)]*\))?)\s+(.*?)(?: \[([^\]]*)\])?$"
)


def _count(cell: str) -> int:
    """The number in front of a cell of callgrind_annotate; a dot is none."""
    found = re.match(r"[\d,]+", cell)
    return int(found[0].replace(",", "")) if found else 0


def _torch_simulated_read(texts: Mapping[str, str]) -> Reading:
    lines = texts["annotate"].splitlines()
    total = next(line for line in lines if "PROGRAM TOTALS" in line)
    whole = _ANNOTATED.match(total)
    if whole is None:
        raise RefusedError("failed", "callgrind_annotate's totals have another form.")
    numbers = [_count(whole[at]) for at in (1, 3, 4, 5)]
    values: dict[str, int | float | str] = {
        "instructions": numbers[0], "data_reads": numbers[1], "l1_read_misses": numbers[2], "l2_read_misses": numbers[3],
        "decode_steps": json.loads(texts["sizes"])["tokens"] - 1,
    }  # fmt: skip
    rows = [line for line in lines if _ANNOTATED.match(line) and "PROGRAM" not in line]
    if rows:
        first = max((found for line in rows if (found := _ANNOTATED.match(line))), key=lambda found: _count(found[5]))
        values |= {
            "symbol": re.sub(r"^\S*?:", "", first[6]).strip()[:80], "symbol_instructions": _count(first[1]),
            "symbol_l2_percent": round(100 * _count(first[5]) / numbers[3], 1) if numbers[3] else 0.0,
        }  # fmt: skip
    return Reading(values, [" ".join(line.split())[:150] for line in [total, *rows[:8]]])


def _may_simulate(bench: Bench) -> None:
    _has_gcc(bench)
    bench.good(
        bench.run(("valgrind", "--tool=cachegrind", "--cachegrind-out-file=/dev/null", "true"), keep=False, seconds=60)
    )


_SHOWN = "valgrind --tool=cachegrind --cache-sim=yes --D1=32768,8,64 --LL=1048576,16,64 ./attention"

COLLECTORS: tuple[Collector, ...] = (
    Collector(
        "ceilings", "How many bytes a second does memory give, and each cache?", "bandwidth.c", "counters", "measured", ("memory-bottlenecks", "cache-hierarchy"),
        _ceilings, _ceilings_read, needs="compiler", probe=_has_gcc, version=("gcc", "--version"),
        elsewhere=lambda _: "gcc -O3 -march=native -o bandwidth bandwidth.c -pthread && ./bandwidth ceilings 1 256 5",
    ),
    Collector(
        "likwid", "Does somebody else's benchmark agree?", "likwid-bench", "counters", "measured", ("memory-bottlenecks",),
        _likwid, _likwid_read, version=("likwid-bench", "-v"), elsewhere=lambda _: "likwid-bench -t load -w S0:256MB:1",
    ),
    Collector(
        "steps", "How long does a decode step take, by batch, dtype and threads?", "generate.py", "counters", "measured", ("memory-bottlenecks", "system-calls", "matrix-multiplication"),
        _steps, _steps_read,
    ),
    Collector(
        "attention-caches", "What does each level of cache miss when attention writes its scores, and when it does not?", "cachegrind", "counters", "simulated", ("cache-hierarchy",),
        _heads, _heads_read, needs="compiler", probe=_may_simulate, version=("valgrind", "--version"), elsewhere=lambda _: f"{_SHOWN} naive 256 64",
    ),
    Collector(
        "attention-tiles", "Which tile misses least?", "cachegrind", "counters", "simulated", ("cache-hierarchy",),
        _tiles, _tiles_read, needs="compiler", probe=_may_simulate, version=("valgrind", "--version"), elsewhere=lambda _: f"{_SHOWN} blocked 512 64 64 16",
    ),
    Collector(
        "decode-caches", "What does a decode of torch itself miss?", "callgrind", "counters", "simulated", ("cache-hierarchy", "memory-bottlenecks"),
        _torch_simulated, _torch_simulated_read, probe=_may_simulate, version=("valgrind", "--version"),
        elsewhere=lambda bench: bench.typed(["valgrind", "--tool=callgrind", "--cache-sim=yes", "--instr-atstart=no", *bench.program("--pause")]),
    ),
)  # fmt: skip
