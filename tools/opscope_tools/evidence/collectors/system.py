"""What the kernel says: its counters, system calls inside each phase, the scheduler, interrupts, memory of the process."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping

from opscope_schemas.evidence import Topic

from opscope_tools.evidence.bench import Bench, RefusedError
from opscope_tools.evidence.machine import caches
from opscope_tools.evidence.table import Collector, Reading, excerpt_of

__all__ = ["COLLECTORS"]

_ALL: tuple[Topic, ...] = (
    "memory-bandwidth",
    "system-calls",
    "cache-hierarchy",
    "memory-bottlenecks",
    "matrix-multiplication",
)
SOFTWARE = ("task-clock", "context-switches", "cpu-migrations", "page-faults")
HARDWARE = ("cycles", "instructions", "cache-references", "cache-misses", "L1-dcache-load-misses", "LLC-load-misses", "dTLB-load-misses")  # fmt: skip
#: threads that are compared, and how the second one waits for work
_THREADS = (1, 2)


# ---- the machine ----------------------------------------------------------------------------------------------------


def _topology(bench: Bench) -> Mapping[str, str]:
    said = bench.good(bench.run(("lscpu",), environment={"LC_ALL": "C"}, shown="lscpu"))
    table = bench.good(bench.run(("lscpu", "-C"), environment={"LC_ALL": "C"}, shown="lscpu -C"))
    exact = bench.good(bench.run(("lscpu", "-C", "-J", "-B"), keep=False))
    return {"lscpu": said.out, "caches": table.out, "bytes": exact.out}


def _topology_read(texts: Mapping[str, str]) -> Reading:
    values: dict[str, int | float | str] = {}
    for name, (size, ways) in caches(texts["bytes"]).items():
        level = {"L1d": "l1", "L1i": "l1i"}.get(name, name.lower())
        values |= {f"{level}_bytes": size, f"{level}_ways": ways, f"{level}_lines": size // 64}
    flags = next((line for line in texts["lscpu"].splitlines() if line.startswith("Flags")), "")
    values["avx512"] = int("avx512f" in flags)
    values["avx512_bf16"] = int("avx512_bf16" in flags)
    values["cpus"] = int(_after(texts["lscpu"], "CPU(s)"))
    values["vendor"] = _after(texts["lscpu"], "Vendor ID")
    lines = excerpt_of(texts["lscpu"], first=0, wanted=r"^(?:Model name|CPU\(s\)|Thread|Hypervisor|L\d)")
    return Reading(values, [*lines, "", *texts["caches"].splitlines()])


def _after(text: str, name: str) -> str:
    return next(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{name}:"))


# ---- counters -------------------------------------------------------------------------------------------------------


def fifos(bench: Bench) -> list[str]:
    """The words that let perf count in the decode alone; the workload switches it on and off."""
    for name in ("ctl", "ack"):
        if not (bench.folder / name).exists():
            os.mkfifo(bench.folder / name)
    return ["-D", "-1", "--control", "fifo:ctl,ack"]


def _perf_stat(events: tuple[str, ...], bench: Bench) -> Mapping[str, str]:
    command = ["perf", "stat", "-e", ",".join(events), *fifos(bench), *bench.program("--control", "ctl,ack")]
    return {"table": bench.good(bench.run(command)).err}


#: `task-clock:u` where one may only look at one's own programs
_EVENT = re.compile(r"^\s+([\d,.]+)\s+(msec )?([A-Za-z][\w-]+)(?::[a-zA-Z]+)?(?:\s|$)", re.MULTILINE)


def _counted(texts: Mapping[str, str]) -> dict[str, int | float | str]:
    found: dict[str, int | float | str] = {}
    for number, clock, event in _EVENT.findall(texts["table"]):
        value = float(number.replace(",", ""))
        if clock:
            found["task_clock_seconds"] = round(value / 1e3, 6)
        elif event != "seconds":
            found[event.replace("-", "_").lower()] = int(value)
    return found


def _software(texts: Mapping[str, str]) -> Reading:
    values = _counted(texts)
    if "task_clock_seconds" not in values:
        raise RefusedError("unsupported", "perf counts no software events here.")
    return Reading(values, excerpt_of(texts["table"].strip(), first=0, wanted=r"\S.*(?:task-clock|switches|migrations|faults|elapsed)"))  # fmt: skip


def _hardware(texts: Mapping[str, str]) -> Reading:
    values = _counted(texts)
    if "cycles" not in values:
        raise RefusedError("unsupported", "perf's table has no cycles.")
    return Reading(values, [line for line in texts["table"].splitlines() if line.strip()])


def _has_counters(bench: Bench) -> None:
    """One cheap call: a virtual machine without a performance unit says `<not supported>` to each event."""
    said = bench.run(("perf", "stat", "-j", "-e", "cycles,cache-misses", "true"), keep=False, seconds=20)
    if said.code:
        bench.good(said)
    if "<not supported>" in said.err or "<not counted>" in said.err:
        raise RefusedError("unsupported", "perf says <not supported> of cycles and cache-misses: this machine lends no performance counters.")  # fmt: skip


def _may_count(bench: Bench) -> None:
    bench.good(bench.run(("perf", "stat", "-e", "task-clock", "true"), keep=False, seconds=20))


# ---- system calls ---------------------------------------------------------------------------------------------------


def _may_trace(bench: Bench) -> None:
    bench.good(bench.run(("strace", "-c", "true"), keep=False, seconds=20))


def _whole(bench: Bench) -> Mapping[str, str]:
    bench.good(bench.run(["strace", "-f", "-c", "-o", "calls.txt", *bench.program(threads=1)], seconds=300))
    return {"calls": bench.read("calls.txt")}


_ROW = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+(\d+))?\s+(\w+)\s*$")


def _whole_read(texts: Mapping[str, str]) -> Reading:
    rows = [found for line in texts["calls"].splitlines() if (found := _ROW.match(line))]
    values: dict[str, int | float | str] = {f"{row[3]}_calls": int(row[1]) for row in rows if row[3] != "total"}
    values["total_calls"] = sum(int(value) for value in values.values())
    values["kinds"] = len(rows) - sum(row[3] == "total" for row in rows)
    values["failed_calls"] = sum(int(row[2] or 0) for row in rows if row[3] != "total")
    return Reading(values, excerpt_of(texts["calls"], first=10, last=2))


def _windows(bench: Bench) -> Mapping[str, str]:
    found = {}
    for threads in _THREADS:
        bench.good(bench.run(["strace", "-f", "-ttt", "-o", f"threads{threads}.txt", *bench.program(threads=threads)], seconds=300))  # fmt: skip
        found[f"threads{threads}"] = "\n".join(_inside(bench.read(f"threads{threads}.txt")))
    active = {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "infinite"}
    command = ["strace", "-f", "-ttt", "-o", "active.txt", *bench.program(threads=2)]
    bench.good(bench.run(command, seconds=300, environment=active))
    found["active"] = "\n".join(_inside(bench.read("active.txt")))
    found["tokens"] = str(bench.workload.tokens - 1)
    return found


_CALL = re.compile(r"^(\d+)\s+([\d.]+)\s+(?:(\w+)\(|<\.\.\. (\w+) resumed>)")


def _inside(text: str) -> Iterator[str]:
    """The lines of the phases, of all threads; the rest is the import of libraries."""
    inside = False
    for line in text.splitlines():
        if "/__opscope__/" in line and re.search(r"(?:prefill|decode)_(?:begin|end)", line):
            yield line
            inside = "_begin" in line
        elif inside:
            yield line


def _of_phase(lines: str, phase: str) -> Iterator[tuple[str, str]]:
    """System calls of a phase, the marks left out: name and line; one that another thread interrupts is counted where it begins."""
    inside = False
    for line in lines.splitlines():
        if f"/__opscope__/{phase}_begin" in line:
            inside = True
        elif f"/__opscope__/{phase}_end" in line:
            inside = False
        elif inside and (call := _CALL.match(line)) and call[3]:
            yield call[3], line


def _futexes(lines: str, phase: str) -> tuple[int, int]:
    """How often a thread went to sleep for another, and how often one woke others."""
    held = [line for name, line in _of_phase(lines, phase) if name == "futex"]
    return sum("FUTEX_WAIT" in line for line in held), sum("FUTEX_WAKE" in line for line in held)


def _windows_read(texts: Mapping[str, str]) -> Reading:
    tokens = int(texts["tokens"])
    values: dict[str, int | float | str] = {"tokens": tokens}
    shown: list[str] = []
    for run_name in ("threads1", "threads2", "active"):
        for phase in ("prefill", "decode"):
            calls = Counter(name for name, _ in _of_phase(texts[run_name], phase))
            total = sum(calls.values())
            waits, wakes = _futexes(texts[run_name], phase)
            values |= {
                f"{run_name}_{phase}_calls": total,
                f"{run_name}_{phase}_futex_waits": waits,
                f"{run_name}_{phase}_futex_wakes": wakes,
            }
            if phase == "decode":
                values[f"{run_name}_calls_per_token"] = round(total / tokens, 2)
            told = ", ".join(f"{name} {count}" for name, count in calls.most_common(5)) or "none"
            told += f" ({waits} wait, {wakes} wake)" if calls["futex"] else ""
            shown.append(f"{run_name:9} {phase:8} {total:6} calls: {told}")
    first = [line for line in texts["threads2"].splitlines() if "futex" in line][:4]
    return Reading(values, [*first, "[...]"] if first else (), digest=shown)


# ---- the scheduler and interrupts -----------------------------------------------------------------------------------


def _scheduler(bench: Bench) -> Mapping[str, str]:
    control = fifos(bench)
    command = [
        "perf",
        "sched",
        "record",
        *control,
        "-o",
        "sched.data",
        *bench.program("--control", "ctl,ack", threads=2),
    ]
    bench.good(bench.run(command, seconds=180))
    latency = bench.good(bench.run(("perf", "sched", "latency", "-i", "sched.data"), seconds=120))
    return {"latency": latency.out}


_TASK = re.compile(r"^\s+(\S+?):(\(?\d+\)?)\s+\|\s+([\d.]+) ms \|\s+(\d+) \| avg:\s*([\d.]+) ms \| max:\s*([\d.]+) ms")


def _scheduler_read(texts: Mapping[str, str]) -> Reading:
    rows = [found for line in texts["latency"].splitlines() if (found := _TASK.match(line))]
    own = next(row for row in rows if row[1].startswith("python"))
    values: dict[str, int | float | str] = {
        "running_seconds": round(float(own[3]) / 1e3, 6), "switches": int(own[4]), "average_delay_seconds": round(float(own[5]) / 1e3, 9),
        "longest_delay_seconds": round(float(own[6]) / 1e3, 9), "tasks": len(rows),
    }  # fmt: skip
    return Reading(values, excerpt_of(texts["latency"].strip("\n"), first=8))


def _kernel_counts(bench: Bench) -> Mapping[str, str]:
    found = {}
    for threads in _THREADS:
        found[f"threads{threads}"] = json.dumps(bench.generated(bench.run(bench.program(threads=threads))))
    return found


def _kernel_counts_read(texts: Mapping[str, str]) -> Reading:
    values: dict[str, int | float | str] = {}
    shown = []
    for run_name, text in texts.items():
        found = json.loads(text)
        steps = len(found["step_seconds"][0])
        for phase in ("load", "prefill", "decode"):
            counted = found["counted"][phase]
            for name, value in counted.items():
                values[f"{run_name}_{phase}_{name.lower()}"] = value
            shown.append(f"{run_name} {phase:8}" + ", ".join(f"{name} {counted[name]:g}" for name in ("minor_faults", "voluntary_switches", "involuntary_switches", "interrupts_LOC", "interrupts_RES") if name in counted))  # fmt: skip
        values[f"{run_name}_faults_per_token"] = round(found["counted"]["decode"]["minor_faults"] / steps, 2)
        if "interrupts_LOC" in found["counted"]["decode"]:
            values[f"{run_name}_timer_interrupts_per_token"] = round(found["counted"]["decode"]["interrupts_LOC"] / steps, 2)  # fmt: skip
    return Reading(values, digest=shown)


def _pidstat(bench: Bench) -> Mapping[str, str]:
    with bench.talk(tokens=max(bench.workload.tokens, 256), threads=2) as talk:
        process = talk.until("decode_begin")
        talk.go()
        ran = bench.good(bench.run(("pidstat", "-w", "-u", "-t", "-p", str(process), "1", "3"), environment={"LC_ALL": "C", "S_COLORS": "never"}, shown="pidstat -w -u -t -p PID 1 3", seconds=60))  # fmt: skip
    return {"pidstat": ran.out}


def _pidstat_read(texts: Mapping[str, str]) -> Reading:
    rows = [line.split() for line in texts["pidstat"].splitlines() if line.startswith("Average:")]
    heads = [row for row in rows if "UID" in row]
    values: dict[str, int | float | str] = {}
    for row in rows:
        if "UID" in row or row[-1].startswith("|__"):
            continue
        head = next(head for head in heads if len(head) == len(row) and (("cswch/s" in head) == (len(row) == len(heads[-1]) and head is heads[-1])))  # fmt: skip
        told = dict(zip(head, row, strict=True))
        for name, key in (("%usr", "user_percent"), ("%system", "system_percent"), ("%wait", "waiting_percent"), ("cswch/s", "voluntary_switches_per_second"), ("nvcswch/s", "involuntary_switches_per_second")):  # fmt: skip
            if name in told and key not in values:
                values[key] = float(told[name])
    return Reading(values, excerpt_of(texts["pidstat"].strip(), first=0, wanted="^Average:"))


_IRQ_PROGRAM = """tracepoint:syscalls:sys_enter_newfstatat /strncmp(str(args->filename), "/__opscope__/decode_begin", 25) == 0/ { @on = 1; @pid = pid; }
tracepoint:syscalls:sys_enter_newfstatat /strncmp(str(args->filename), "/__opscope__/decode_end", 23) == 0/ { @on = 0; }
tracepoint:irq:softirq_entry /@on == 1 && pid == @pid/ { @softirq[args->vec] = count(); }
tracepoint:irq:irq_handler_entry /@on == 1 && pid == @pid/ { @irq[str(args->name)] = count(); }
tracepoint:sched:sched_switch /@on == 1 && pid == @pid/ { @switches = count(); }
END { clear(@on); clear(@pid); }
"""
#: the kernel's numbers of soft interrupts
_SOFT = ("hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu")


def _interrupts(bench: Bench) -> Mapping[str, str]:
    (bench.folder / "interrupts.bt").write_text(_IRQ_PROGRAM)
    ran = bench.run(("bpftrace", "interrupts.bt", "-c", shlex.join(bench.program(threads=2))), seconds=180)
    return {"bpftrace": "\n".join(line for line in ran.out.splitlines() if line.startswith("@"))}


def _interrupts_read(texts: Mapping[str, str]) -> Reading:
    if not texts["bpftrace"].strip():
        raise RefusedError("failed", "bpftrace counted nothing.")
    values: dict[str, int | float | str] = {}
    for name, count in re.findall(r"^@softirq\[(\d+)\]: (\d+)", texts["bpftrace"], re.MULTILINE):
        values[f"softirq_{_SOFT[int(name)] if int(name) < len(_SOFT) else name}"] = int(count)
    for count in re.findall(r"^@irq\[[^\]]*\]: (\d+)", texts["bpftrace"], re.MULTILINE):
        values["device_interrupts"] = int(values.get("device_interrupts", 0)) + int(count)
    values.setdefault("device_interrupts", 0)
    found = re.search(r"^@switches: (\d+)", texts["bpftrace"], re.MULTILINE)
    values["switches"] = int(found[1]) if found else 0
    return Reading(values, texts["bpftrace"].splitlines())


def may_probe(bench: Bench) -> None:
    """One cheap program, which says whether bpftrace may load any."""
    said = bench.run(("bpftrace", "-e", 'BEGIN { printf("loaded"); exit(); }'), keep=False, seconds=30)
    if "loaded" not in said.out:
        told = next((line for line in said.text.splitlines() if "ERROR" in line), "bpftrace loads no program here")
        raise RefusedError("denied" if "root" in said.text or "permitted" in said.text else "unsupported", told)


# ---- memory of the process ------------------------------------------------------------------------------------------


def _memory(bench: Bench) -> Mapping[str, str]:
    with bench.talk() as talk:
        process = talk.until("after_begin")
        ran = bench.good(bench.run(("cat", f"/proc/{process}/smaps_rollup"), shown="cat /proc/PID/smaps_rollup"))
        talk.finish()
        return {"smaps": ran.out, "found": json.dumps(talk.said)}


def _memory_read(texts: Mapping[str, str]) -> Reading:
    found = json.loads(texts["found"])
    values: dict[str, int | float | str] = {
        "cache_bytes": found["cache_bytes"], "weight_bytes": found["weight_bytes"], "parameters": found["parameters"],
        "cache_tokens": found["cache_tokens"],
    }  # fmt: skip
    for name, kilobytes in re.findall(r"^(\w+):\s+(\d+) kB$", texts["smaps"], re.MULTILINE):
        if name in ("Rss", "Private_Dirty", "Anonymous", "AnonHugePages", "Shared_Clean"):
            values[f"{name.lower()}_bytes"] = int(kilobytes) * 1024
    return Reading(values, excerpt_of(texts["smaps"], first=1, wanted=r"^(?:Rss|Private_Dirty|Anonymous|AnonHugePages|Shared_Clean):"))  # fmt: skip


COLLECTORS: tuple[Collector, ...] = (
    Collector(
        "topology", "Which processor is this, and how large are its caches?", "lscpu", "command", "exact", _ALL,
        _topology, _topology_read, version=("lscpu", "--version"),
    ),
    Collector(
        "counters-software", "What do the kernel's own counters say of the decode?", "perf", "counters", "measured", ("system-calls", "memory-bottlenecks", "cache-hierarchy"),
        lambda bench: _perf_stat(SOFTWARE, bench), _software, probe=_may_count, version=("perf", "--version"),
        elsewhere=lambda bench: bench.typed(["perf", "stat", "-e", ",".join(SOFTWARE), *bench.program()]),
    ),
    Collector(
        "counters-hardware", "What do the processor's counters say of the decode?", "perf", "counters", "measured", ("cache-hierarchy", "memory-bottlenecks", "matrix-multiplication"),
        lambda bench: _perf_stat(HARDWARE, bench), _hardware, probe=_has_counters, version=("perf", "--version"),
        elsewhere=lambda bench: bench.typed(["perf", "stat", "-e", ",".join(HARDWARE), *bench.program()]),
    ),
    Collector(
        "syscalls-whole", "Which system calls does the whole script make?", "strace", "syscalls", "measured", ("system-calls",),
        _whole, _whole_read, probe=_may_trace, version=("strace", "-V"),
        elsewhere=lambda bench: bench.typed(["strace", "-f", "-c", *bench.program()]),
    ),
    Collector(
        "syscalls-window", "Which of them belong to prefill and decode?", "strace", "syscalls", "measured", _ALL[1:],
        _windows, _windows_read, probe=_may_trace, version=("strace", "-V"),
        elsewhere=lambda bench: bench.typed(["strace", "-f", "-ttt", "-o", "calls.txt", *bench.program()]),
    ),
    Collector(
        "scheduler", "How long do the threads of a decode wait for a CPU?", "perf", "counters", "measured", ("system-calls",),
        _scheduler, _scheduler_read, probe=_may_count, version=("perf", "--version"),
        elsewhere=lambda bench: bench.typed(["perf", "sched", "record", *bench.program(threads=2)]),
    ),
    Collector(
        "kernel-counts", "How many faults, switches and interrupts fall into each phase?", "/proc", "counters", "measured", ("system-calls", "memory-bottlenecks"),
        _kernel_counts, _kernel_counts_read,
    ),
    Collector(
        "interrupts", "Which interrupts break into the decode?", "bpftrace", "counters", "measured", ("system-calls",),
        _interrupts, _interrupts_read, probe=may_probe, version=("bpftrace", "--version"),
        elsewhere=lambda bench: "bpftrace interrupts.bt -c '" + bench.typed(bench.program(threads=2)) + "'",
    ),
    Collector(
        "pidstat", "What does the process look like from outside?", "pidstat", "counters", "measured", ("system-calls", "memory-bottlenecks"),
        _pidstat, _pidstat_read, version=("pidstat", "-V"),
        elsewhere=lambda _: "pidstat -w -u -t -p PID 1 3",
    ),
    Collector(
        "process-memory", "What of the process lies in memory, and how large is the cache?", "/proc", "command", "exact", ("memory-bottlenecks", "cache-hierarchy"),
        _memory, _memory_read,
    ),
)  # fmt: skip
