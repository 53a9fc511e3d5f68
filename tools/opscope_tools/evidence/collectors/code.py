"""Which code runs: hot loops and their instructions, calls counted exactly, registers and memory as they are at one point, stacks."""

from __future__ import annotations

import json
import re
import shlex
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from opscope_tools.evidence import folded
from opscope_tools.evidence.bench import Bench, RefusedError
from opscope_tools.evidence.collectors.system import fifos, may_probe
from opscope_tools.evidence.flamegraph import flamegraph
from opscope_tools.evidence.table import Collector, Picture, Reading, excerpt_of

__all__ = ["COLLECTORS"]

#: instructions of a hot loop that are shown, and stacks a second
_SHOWN, _RATE = 14, 499
#: stacks a second where native frames are unwound, seconds of that, and tokens of a decode that lasts as long
_NATIVE_RATE, _SECONDS, _LONG = 97, 10, 2048
#: bytes of a vector register, by the letter of its name
_WIDTHS = {"x": 16, "y": 32, "z": 64}


# ---- hot loops ------------------------------------------------------------------------------------------------------


def _sampled(bench: Bench) -> None:
    """Samples of the decode, with frames, in perf.data."""
    if (bench.folder / "perf.data").exists():
        bench.noted(_record_line(bench))
        return
    command = ["perf", "record", "-e", "cpu-clock", "-F", str(_RATE), "-g", *fifos(bench), "-o", "perf.data"]
    tokens = max(bench.workload.tokens, 64)
    bench.good(bench.run([*command, *bench.program("--control", "ctl,ack", tokens=tokens)], seconds=300))


def _record_line(bench: Bench) -> str:
    tokens = max(bench.workload.tokens, 64)
    command = [
        "perf",
        "record",
        "-e",
        "cpu-clock",
        "-F",
        str(_RATE),
        "-g",
        "-D",
        "-1",
        "--control",
        "fifo:ctl,ack",
        "-o",
        "perf.data",
    ]
    return bench.typed([*command, *bench.program("--control", "ctl,ack", tokens=tokens)])


#: functions that are asked for until one has instructions
_TRIED = 4


def _may_sample(bench: Bench) -> None:
    bench.good(bench.run(("perf", "record", "-e", "cpu-clock", "-o", "probe.data", "true"), keep=False, seconds=30))


def _hot(bench: Bench) -> Mapping[str, str]:
    _sampled(bench)
    report = bench.good(
        bench.run(("perf", "report", "-i", "perf.data", "--no-children", "--stdio", "-g", "none"), seconds=120)
    )
    rows = list(_symbols(report.out))
    if not rows:
        raise RefusedError("failed", "perf saw no symbol.")
    # a function without a name, as libgomp's loop of waiting, cannot be asked for
    named = [row for row in rows if not row[2].startswith("0x")]
    for symbol in [row[2] for row in named if row[1].endswith(".so") or ".so." in row[1]][:_TRIED]:
        annotated = bench.good(bench.run(("perf", "annotate", "-i", "perf.data", symbol, "--stdio"), seconds=240))
        lines = [line for line in annotated.out.splitlines() if _INSTRUCTION.match(line)]
        if lines:
            return {"report": "\n".join(report.out.splitlines()[:60]), "annotate": "\n".join(_around(lines)), "symbol": symbol}  # fmt: skip
    raise RefusedError("failed", "perf annotates none of the functions that most samples fell on.")


_SYMBOL = re.compile(r"^\s+([\d.]+)%\s+\S+\s+(\[JIT\]|\S+)(?: tid \d+)?\s+\[[.k]\]\s+(.+?)\s*$")
_INSTRUCTION = re.compile(r"^\s+([\d.]+)\s+(?:\S+\s+)?:\s+([0-9a-f]+):\s+(\S.*)$")


def _symbols(report: str) -> Iterator[tuple[float, str, str]]:
    for line in report.splitlines():
        if found := _SYMBOL.match(line):
            yield float(found[1]), found[2], found[3]


def _around(lines: list[str]) -> list[str]:
    """The instructions around the one that most samples fell on."""
    hottest = max(range(len(lines)), key=lambda at: float(_INSTRUCTION.match(lines[at])[1]))  # type: ignore[index] # each fits
    return lines[max(0, hottest - 40) : hottest + 40]


def _hot_read(texts: Mapping[str, str]) -> Reading:
    rows = list(_symbols(texts["report"]))
    lines = [(found, line) for line in texts["annotate"].splitlines() if (found := _INSTRUCTION.match(line))]
    shares = [float(found[1]) for found, _ in lines]
    hottest = shares.index(max(shares))
    hot = lines[max(0, hottest - _SHOWN // 2) : hottest + _SHOWN // 2]
    code = "\n".join(found[3] for found, _ in lines if float(found[1]) > 0)
    letters = Counter(re.findall(r"%([xyz])mm\d", code))
    widest = max(letters, key=lambda letter: _WIDTHS[letter]) if letters else ""
    share = next(row[0] for row in rows if row[2] == texts["symbol"])
    values: dict[str, int | float | str] = {
        "symbol": texts["symbol"], "symbol_percent": share, "vector_bytes": _WIDTHS.get(widest, 0), "vector_register": f"{widest}mm" if widest else "none",
        "fused_multiply_add": int("vfmadd" in code), "hottest_address": int(lines[hottest][0][2], 16), "hottest_percent": shares[hottest],
        "interpreter_percent": round(sum(row[0] for row in rows if "python" in row[1]), 2), "samples": _samples(texts["report"]),
        "loop_start": min(int(found[2], 16) for found, _ in lines),
    }  # fmt: skip
    shown = [line.strip() for line in texts["report"].splitlines() if _SYMBOL.match(line)][:6]
    return Reading(values, [*(re.sub(r"\s{2,}", "  ", line)[:150] for line in shown), "", *(f"{float(found[1]):6.2f} : {found[2]}: {found[3]}" for found, _ in hot)])  # fmt: skip


def _samples(report: str) -> int:
    found = re.search(r"# Samples: (\S+)", report)
    number = found[1] if found else "0"
    return int(float(number[:-1]) * 1000) if number.endswith("K") else int(number)


#: what a point is named after, whatever the workload is
PLAIN: Mapping[str, Any] = {"batch_size": 1, "threads": 1, "dtype": "float32"}
#: ways to run the same model: what changes of that
_WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("float32_batch1", {}), ("float32_batch2", {"batch_size": 2}), ("float32_batch8", {"batch_size": 8}), ("bfloat16_batch1", {"dtype": "bfloat16"}),
    ("float32_threads2", {"threads": 2}),
)  # fmt: skip
#: symbols of one way that are kept
_KEPT = 12


def _paths(bench: Bench) -> Mapping[str, str]:
    found = {}
    for name, changes in _WAYS:
        command = ["perf", "record", "-e", "cpu-clock", "-F", str(_RATE), *fifos(bench), "-o", f"{name}.data"]
        tokens = max(bench.workload.tokens, 48)
        bench.good(
            bench.run(
                [*command, *bench.program("--control", "ctl,ack", tokens=tokens, **{**PLAIN, **changes})], seconds=300
            )
        )
        report = bench.good(
            bench.run(("perf", "report", "-i", f"{name}.data", "--no-children", "--stdio"), seconds=120, keep=False)
        )
        found[name] = "\n".join([line for line in report.out.splitlines() if _SYMBOL.match(line)][:400])
    return found


def _paths_read(texts: Mapping[str, str]) -> Reading:
    """The two symbols that most samples of each way fell on; code that was made at run time is one of them."""
    values: dict[str, int | float | str] = {}
    shown = []
    for name, text in texts.items():
        held: dict[str, float] = {}
        for share, where, symbol in _symbols(text):
            made = where == "[JIT]"
            name_of = (
                "made at run time (JIT)"
                if made
                else f"in {where}"
                if symbol.startswith("0x")
                else folded.short_frame(symbol)
            )
            held[name_of] = held.get(name_of, 0.0) + share
        most = sorted(held.items(), key=lambda pair: -pair[1])
        for place, (symbol, share) in zip(("first", "second"), most[:2], strict=False):
            values |= {f"{name}_{place}": symbol, f"{name}_{place}_percent": round(share, 1)}
        shown.append(f"{name:17}" + ", ".join(f"{symbol} {share:.1f} %" for symbol, share in most[:3]))
    return Reading(values, digest=shown)


# ---- calls ----------------------------------------------------------------------------------------------------------

_COUNT_PROGRAM = """tracepoint:syscalls:sys_enter_newfstatat /strncmp(str(args->filename), "/__opscope__/{phase}_begin", {begin}) == 0/ {{ @on = 1; @pid = pid; }}
tracepoint:syscalls:sys_enter_newfstatat /strncmp(str(args->filename), "/__opscope__/{phase}_end", {end}) == 0/ {{ @on = 0; }}
{probes}
END {{ clear(@on); clear(@pid); }}
"""
#: what torch's products of float matrices on a CPU go through, where it is built with MKL
_GATES = ("sgemm_", "sgemv_")


def _libtorch(bench: Bench) -> Path:
    """The library that holds torch's products on a CPU."""
    asked = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    library = Path(bench.ask((bench.python, "-c", asked)).strip()) / "lib/libtorch_cpu.so"
    if not library.is_file():
        raise RefusedError("unsupported", "This torch has no lib/libtorch_cpu.so.")
    return library


def _functions(bench: Bench, library: Path) -> dict[str, int]:
    """Addresses of its functions that have to do with products, by name."""
    rows = (line.split() for line in bench.ask(("nm", "--defined-only", str(library)), seconds=120).splitlines())
    return {row[-1]: int(row[0], 16) for row in rows if len(row) == 3 and re.search(r"gem[mv]", row[-1])}


def _products(bench: Bench) -> Mapping[str, str]:
    library = _libtorch(bench)
    names = _functions(bench, library)
    gates = [name for name in _GATES if name in names]
    if not gates or bench.workload.dtype != "float32":
        raise RefusedError("unsupported", "This torch sends float products through no function that is called sgemm_.")
    paths = sorted(name for name in names if re.fullmatch(r"mkl_blas_(?:cnr_)?(?:def|avx2|avx512|mc3|mc)_xsgemv", name))
    found = {}
    for phase in ("prefill", "decode"):
        probes = "\n".join(f"uprobe:{library}:{name} /@on == 1 && pid == @pid/ {{ @[\"{name}\"] = count(); }}" for name in [*gates, *paths])  # fmt: skip
        begin, end = len(f"/__opscope__/{phase}_begin"), len(f"/__opscope__/{phase}_end")
        (bench.folder / "products.bt").write_text(
            _COUNT_PROGRAM.format(phase=phase, begin=begin, end=end, probes=probes)
        )
        ran = bench.run(("bpftrace", "products.bt", "-c", shlex.join(bench.program())), seconds=240)
        found[phase] = "\n".join(line for line in ran.out.splitlines() if line.startswith("@"))
        found["workload"] = json.dumps(bench.generated(ran))
    found["program"] = bench.scrub((bench.folder / "products.bt").read_text())
    found["sizes"] = bench.workload.model_dump_json()
    return found


def _products_read(texts: Mapping[str, str]) -> Reading:
    """Calls of each phase; what runs of them through which code path of the library."""
    values: dict[str, int | float | str] = {}
    for phase in ("prefill", "decode"):
        counts = {name: int(count) for name, count in re.findall(r"^@\[(\w+)\]: (\d+)", texts[phase], re.MULTILINE)}
        values[f"{phase}_products"] = sum(counts.get(name, 0) for name in _GATES)
        paths = {name: count for name, count in counts.items() if name not in _GATES}
        values[f"{phase}_vector_products"] = sum(paths.values())
        if paths:
            most = max(paths, key=lambda name: paths[name])
            values[f"{phase}_path"] = most
    sizes, found = json.loads(texts["sizes"]), json.loads(texts["workload"])
    values["linears"] = found["linears"]
    values["passes"] = sizes["tokens"] - 1
    heads = sizes["num_layers"] * sizes["num_heads"] * sizes["batch_size"]
    if found.get("plain", True):  # linear layers and heads alone: experts, convolutions and states multiply otherwise
        values["expected_decode_products"] = values["passes"] * (found["linears"] + 2 * heads)
    shown = [line for phase in ("prefill", "decode") for line in (f"{phase}:", *texts[phase].splitlines())]
    return Reading(values, shown)


# ---- registers and memory -------------------------------------------------------------------------------------------


def _may_attach(bench: Bench) -> None:
    bench.good(bench.run(("gdb", "-batch", "-ex", "starti", "-ex", "info registers rip", "-ex", "kill", "--args", "true"), keep=False, seconds=60))  # fmt: skip


def _registers(bench: Bench) -> Mapping[str, str]:
    symbol, address = str(bench.known.get("hot-loop.symbol", "")), int(bench.known.get("hot-loop.hottest_address", 0))
    if not symbol or not address:
        raise RefusedError("failed", "No hot loop is known to stop in: the record hot-loop has to come first.")
    start = _functions(bench, _libtorch(bench)).get(symbol)
    if start is None:
        raise RefusedError("unsupported", f"{symbol} is no function of libtorch_cpu.so.")
    kind = str(bench.known["hot-loop.vector_register"])
    shown = (
        [f"p ${kind}{at}.v{int(bench.known['hot-loop.vector_bytes']) // 4}_float" for at in (0, 4, 8)]
        if kind != "none"
        else []
    )
    with bench.talk(seconds=240) as talk:
        process = talk.until("decode_begin")
        script = [
            "set pagination off", f"break *({symbol}+{address - start})", "continue", "bt 4", "x/6i $pc", "info registers rip rsp rax rbx rcx rdx r8 r9 r11 r14",
            *shown, "delete", "detach",
        ]  # fmt: skip
        words = [word for line in script for word in ("-ex", line)]
        # the workload goes on once gdb lets it, which `continue` does: it waits for a line that is sent ahead
        talk.go()
        ran = bench.run(("gdb", "-batch", "-p", str(process), *words), seconds=240, shown="gdb -batch -p PID " + " ".join(f"-ex '{line}'" for line in script))  # fmt: skip
    return {"gdb": _from_stop(ran.out), "symbol": symbol}


def _from_stop(text: str) -> str:
    """What gdb says from the breakpoint on; raises `RefusedError` where it never came."""
    lines = text.splitlines()
    at = next((place for place, line in enumerate(lines) if re.match(r"(?:Thread .*)?(?:hit )?Breakpoint 1,|Thread .* hit Breakpoint", line)), None)  # fmt: skip
    if at is None:
        raise RefusedError("failed", "gdb did not come to the hot loop.")
    return "\n".join(lines[at:])


def _registers_read(texts: Mapping[str, str]) -> Reading:
    text = texts["gdb"]
    names = dict(re.findall(r"^(r\w+)\s+0x([0-9a-f]+)", text, re.MULTILINE))
    vectors = re.findall(r"^\$\d+ = \{(.*)\}$", text, re.MULTILINE)
    lanes = vectors[0].split(", ") if vectors else []
    values: dict[str, int | float | str] = {"registers": len(names), "vectors": len(vectors), "lanes": len(lanes)}
    instruction = re.search(r"^=> 0x[0-9a-f]+ <[^>]*>:\s+(.*)$", text, re.MULTILINE)
    if instruction:
        values["instruction"] = " ".join(instruction[1].split())
    if not names:
        raise RefusedError("failed", "gdb showed no register.")
    return Reading(values, excerpt_of(text, first=40))


def _cache_dump(bench: Bench) -> Mapping[str, str]:
    if bench.workload.dtype != "float32":
        raise RefusedError(
            "unsupported", f"gdb shows words of four bytes, and the cache is kept in {bench.workload.dtype}."
        )
    with bench.talk() as talk:
        process = talk.until("after_begin")
        found = dict(talk.said)
        address = int(found["keys_address"])
        script = ["set pagination off", f"x/8wx {address:#x}", f"x/8wf {address:#x}", "detach"]
        ran = bench.good(bench.run(("gdb", "-batch", "-p", str(process), *(word for line in script for word in ("-ex", line))), seconds=120, shown="gdb -batch -p PID " + " ".join(f"-ex '{line}'" for line in script)))  # fmt: skip
        talk.finish()
    dumped = "\n".join(line for line in ran.out.splitlines() if re.match(r"0x[0-9a-f]+:", line))
    return {"dump": dumped, "found": json.dumps(found)}


def _cache_dump_read(texts: Mapping[str, str]) -> Reading:
    found = json.loads(texts["found"])
    rows = [re.findall(r"\S+", line.partition(":")[2]) for line in texts["dump"].splitlines()]
    words = [int(word, 16) for row in rows for word in row if word.startswith("0x")]
    held = [struct.unpack("<f", struct.pack("<I", word))[0] for word in words]
    same = sum(
        abs(one - other) <= 1e-6 * max(1.0, abs(other)) for one, other in zip(held, found["keys_first"], strict=False)
    )
    shape, stride = found["keys_shape"], found["keys_stride"]
    values: dict[str, int | float | str] = {
        "words": len(words), "equal_words": same, "cache_bytes": found["cache_bytes"], "cache_tokens": found["cache_tokens"],
        "head_stride_bytes": stride[1] * 4, "token_stride_bytes": stride[2] * 4, "head_dim": shape[-1],
    }  # fmt: skip
    told = [
        f"python: shape {shape}, stride {stride}",
        "python: " + ", ".join(f"{one:.9g}" for one in found["keys_first"][:4]),
    ]
    return Reading(values, texts["dump"].splitlines(), digest=told)


# ---- stacks ---------------------------------------------------------------------------------------------------------

_PARTS = (
    # a frame of Python is named after its file: models/gemma2 is no product
    ("products_percent", r"^(?!.*\.py:\d+\)$).*(?:gem[mv]|mkldnn|dnnl)"), ("attention_percent", r"scaled_dot_product|flash_attention|eager_attention"),
    ("cache_percent", r"(?:DynamicLayer|DynamicCache|Cache)\.update|cat_serial|at::_ops::cat"), ("norms_percent", r"RMSNorm|LayerNorm|layer_norm"),
)  # fmt: skip


def _stacks(bench: Bench) -> Mapping[str, str]:
    """Samples of a decode that is longer than the sampler looks; attached, since it would slow every import down."""
    command = [
        "py-spy",
        "record",
        "-r",
        str(_NATIVE_RATE),
        "-d",
        str(_SECONDS),
        "--native",
        "-f",
        "raw",
        "-o",
        "stacks.txt",
        "-p",
    ]
    with bench.talk(tokens=_LONG) as talk:
        process = talk.until("decode_begin")
        talk.go()
        bench.good(bench.run([*command, str(process)], seconds=120, shown=bench.typed([*command, "PID"])))
    inside: Counter[tuple[str, ...]] = Counter()
    for stack, count in folded.parsed(bench.read("stacks.txt")).items():
        counted = next((at for at, frame in enumerate(stack) if frame.startswith("counted (")), None)
        if counted is not None and not any("_prefill" in frame for frame in stack):
            inside[tuple(folded.short_frame(frame) for frame in stack[counted:])] += count
    return {"folded": folded.written(folded.pruned(inside))}


def _stacks_read(texts: Mapping[str, str]) -> Reading:
    stacks = folded.parsed(texts["folded"])
    if not stacks:
        raise RefusedError("failed", "No sample fell into the decode.")
    total = sum(stacks.values())
    leaves: Counter[str] = Counter()
    for stack, count in stacks.items():
        leaves[stack[-1]] += count
    values: dict[str, int | float | str] = {"samples": total, **dict(folded.shares(stacks, _PARTS))}
    leaf, count = leaves.most_common(1)[0]
    python = sum(held for name, held in leaves.items() if name.endswith(")") and ".py:" in name)
    values |= {
        "leaf": leaf,
        "leaf_percent": round(100 * count / total, 1),
        "python_leaf_percent": round(100 * python / total, 1),
    }
    return Reading(values, digest=[f"{100 * count / total:5.1f} %  {name}" for name, count in leaves.most_common(8)])


def _stacks_drawn(texts: Mapping[str, str]) -> Iterable[Picture]:
    stacks = folded.parsed(texts["folded"])
    values = dict(folded.shares(stacks, _PARTS))
    total = sum(stacks.values())
    told = (
        f"Flame graph of {total:,} samples of the decode: matrix products stand in {values['products_percent']} % of the stacks, "
        f"attention in {values['attention_percent']} %, the cache in {values['cache_percent']} %."
    )
    yield Picture(
        "decode-stacks", flamegraph(stacks, "Decode: Python and native stacks (py-spy)"), texts["folded"], told
    )


# ---- torch's own profiler, allocations ------------------------------------------------------------------------------


def _profiler(bench: Bench) -> Mapping[str, str]:
    found = bench.generated(bench.run(bench.program("--profile"), seconds=240))
    return {
        "operators": json.dumps(found["operators"]),
        "linears": str(found["linears"]),
        "tokens": str(bench.workload.tokens),
    }


def _profiler_read(texts: Mapping[str, str]) -> Reading:
    rows = json.loads(texts["operators"])
    total = sum(row["self_us"] for row in rows) or 1
    values: dict[str, int | float | str] = {"passes": int(texts["tokens"]), "linears": int(texts["linears"])}
    for row in rows:
        name = re.sub(r"\W+", "_", row["name"]).strip("_")
        values[f"{name}_calls"] = row["calls"]
        values[f"{name}_percent"] = round(100 * row["self_us"] / total, 1)
    values["products_calls"] = sum(
        row["calls"] for row in rows if row["name"] in ("aten::mm", "aten::addmm", "aten::bmm")
    )
    head = f"{'operator':55} {'calls':>7} {'self time':>12}"
    return Reading(values, digest=[head, *(f"{row['name'][:55]:55} {row['calls']:7} {row['self_us'] / 1e3:9.2f} ms" for row in rows[:10])])  # fmt: skip


def _allocations(bench: Bench) -> Mapping[str, str]:
    bench.good(bench.run(["memray", "run", "-q", "-f", "-o", "memray.bin", *bench.program()[1:]], seconds=300))
    said = bench.good(bench.run(("memray", "stats", "memray.bin"), seconds=180))
    return {"stats": said.out}


_UNITS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}


def _allocations_read(texts: Mapping[str, str]) -> Reading:
    text = texts["stats"]
    count = re.search(r"Total allocations:\s+([\d,]+)", text)
    peak = re.search(r"Peak memory usage:\s+([\d.]+)\s*(\w+)", text) or re.search(
        r"Total memory allocated:\s+([\d.]+)\s*(\w+)", text
    )
    total = re.search(r"Total memory allocated:\s+([\d.]+)\s*(\w+)", text)
    if not count or not peak or not total:
        raise RefusedError("failed", "memray's statistics have another form.")
    values: dict[str, int | float | str] = {
        "allocations": int(count[1].replace(",", "")), "allocated_bytes": int(float(total[1]) * _UNITS[total[2]]),
        "peak_bytes": int(float(peak[1]) * _UNITS[peak[2]]),
    }  # fmt: skip
    return Reading(values, excerpt_of(text.strip(), first=9))


COLLECTORS: tuple[Collector, ...] = (
    Collector(
        "hot-loop", "Which instructions does the decode spend its time in?", "perf", "code", "measured", ("system-calls", "cache-hierarchy", "memory-bottlenecks", "matrix-multiplication"),
        _hot, _hot_read, probe=_may_sample, version=("perf", "--version"),
        elsewhere=lambda bench: bench.typed(["perf", "record", "-e", "cpu-clock", "-g", *bench.program()]),
    ),
    Collector(
        "paths", "Which function does each way of running it spend its time in?", "perf", "code", "measured", ("memory-bottlenecks", "matrix-multiplication"),
        _paths, _paths_read, probe=_may_sample, version=("perf", "--version"),
        elsewhere=lambda bench: bench.typed(["perf", "record", "-e", "cpu-clock", *bench.program(batch_size=2)]),
    ),
    Collector(
        "products", "How many matrix products does the library run, and by which code?", "bpftrace", "counters", "exact", ("memory-bottlenecks", "matrix-multiplication", "cache-hierarchy"),
        _products, _products_read, probe=may_probe, version=("bpftrace", "--version"),
        elsewhere=lambda bench: "bpftrace products.bt -c '" + bench.typed(bench.program()) + "'",
    ),
    Collector(
        "registers", "What lies in the registers in the middle of that loop?", "gdb", "dump", "exact", ("memory-bottlenecks", "matrix-multiplication"),
        _registers, _registers_read, probe=_may_attach, version=("gdb", "--version"),
        elsewhere=lambda _: "gdb -batch -p PID -ex 'break *ADDRESS' -ex continue -ex 'info registers'",
    ),
    Collector(
        "cache-dump", "Do the bytes of the cache lie where Python says, and in which order?", "gdb", "dump", "exact", ("system-calls", "cache-hierarchy"),
        _cache_dump, _cache_dump_read, probe=_may_attach, version=("gdb", "--version"),
        elsewhere=lambda _: "gdb -batch -p PID -ex 'x/8wx ADDRESS'",
    ),
    Collector(
        "stacks", "Which functions stand on the stack during a decode?", "py-spy", "flamegraph", "measured", ("system-calls", "cache-hierarchy", "memory-bottlenecks", "matrix-multiplication"),
        _stacks, _stacks_read, version=("py-spy", "--version"), pictures=_stacks_drawn,
        elsewhere=lambda _: "py-spy record -r 97 -d 10 --native -f raw -o stacks.txt -p PID",
    ),
    Collector(
        "operators", "Which operators does torch itself count?", "torch.profiler", "counters", "measured", ("memory-bottlenecks", "matrix-multiplication"),
        _profiler, _profiler_read,
    ),
    Collector(
        "allocations", "How much does the script allocate?", "memray", "counters", "measured", ("memory-bottlenecks",),
        _allocations, _allocations_read, version=("memray", "--version"),
        elsewhere=lambda bench: bench.typed(["memray", "run", *bench.program()[1:]]),
    ),
)  # fmt: skip
