"""Tools that are not there, may not, or say nothing: each is recorded as what it is, and none becomes a number."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from opscope_schemas.errors import CancelledError
from opscope_schemas.evidence import EvidenceRecord, Machine, Workload
from opscope_tools.collect_evidence.table import ALL_COLLECTORS
from opscope_tools.evidence.bench import Bench
from opscope_tools.evidence.table import Collector, Reading, collected


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose PATH holds nothing but what a test plants, and the shell's own tools."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    python = tmp_path / "python" / "python"  # beside which no program lies
    return Bench(Workload(), Machine(name="here"), tmp_path / "scratch", str(python))


def plant(bench: Bench, name: str, script: str) -> None:
    file = bench.folder.parent / "bin" / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def said(bench: Bench, name: str) -> EvidenceRecord:
    collector = next(one for one in ALL_COLLECTORS if one.id == name)
    return collected(collector, bench)[0]


@pytest.mark.parametrize(
    "collector", [one for one in ALL_COLLECTORS if one.version or one.needs == "gpu"], ids=lambda one: str(one.id)
)
def test_what_is_not_installed_is_missing_and_says_what_to_run_elsewhere(bench: Bench, collector: Collector) -> None:
    record, drawn = collected(collector, bench)
    assert record.status == "missing"
    assert record.reason
    assert record.elsewhere or collector.id == "topology"  # lscpu is on every machine that has a shell
    assert not record.parsed
    assert not record.excerpt
    assert not drawn


@pytest.mark.parametrize(
    ("name", "tool", "script", "status", "reason"),
    [
        ("counters-hardware", "perf", "echo '{\"counter-value\" : \"<not supported>\"}' >&2", "unsupported", "<not supported>"),
        ("counters-software", "perf", "echo 'Access to performance monitoring is limited: perf_event_paranoid' >&2; exit 255", "denied", "255"),
        ("syscalls-whole", "strace", "echo 'strace: ptrace(PTRACE_TRACEME): Operation not permitted' >&2; exit 1", "denied", "not permitted"),
        ("products", "bpftrace", "echo 'ERROR: bpftrace currently only supports running as the root user.' >&2; exit 1", "denied", "root"),
        ("products", "bpftrace", "echo 'ERROR: Could not resolve symbol' >&2; exit 1", "unsupported", "resolve"),
        ("attention-caches", "valgrind", "echo broken >&2; exit 1", "missing", "gcc"),
        ("likwid", "likwid-bench", "echo 'no such test' >&2; exit 1", "failed", "no such test"),
        ("likwid", "likwid-bench", "echo nothing", "failed", "told no rate"),
        ("gpu-memcheck", "nvidia-smi", "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver'; exit 9", "unsupported", "names no GPU"),
        ("gpu", "nvidia-smi", "echo 'GPU 0: X'", "failed", "could not be read"),
    ],
)  # fmt: skip
def test_a_refusal_is_told_from_a_failure(
    bench: Bench, name: str, tool: str, script: str, status: str, reason: str
) -> None:
    plant(bench, tool, script)
    record = said(bench, name)
    assert (record.status, record.parsed) == (status, {})
    assert reason in record.reason
    assert record.elsewhere


def test_what_takes_too_long_is_ended_and_says_so(bench: Bench) -> None:
    plant(bench, "slow", "/bin/sleep 60")
    slow = Collector(
        "slow",
        "Slow?",
        "slow",
        "command",
        "exact",
        ("system-calls",),
        lambda bench: {"output": bench.run(("slow",), seconds=0.3).out},
        lambda _: Reading({}),
    )
    record, _ = collected(slow, bench)
    assert record.status == "timeout"
    assert "more than 0.3 s" in record.reason
    assert record.wall_seconds < 30


def test_a_caller_who_gives_up_ends_the_collection(bench: Bench) -> None:
    def give_up() -> None:
        raise CancelledError("The call was cancelled.")

    plant(bench, "slow", "/bin/sleep 60")
    bench.checkpoint = give_up
    slow = Collector(
        "slow",
        "Slow?",
        "slow",
        "command",
        "exact",
        ("system-calls",),
        lambda bench: {"output": bench.run(("slow",)).out},
        lambda _: Reading({}),
    )
    with pytest.raises(CancelledError):
        collected(slow, bench)


def test_an_output_is_scrubbed_before_it_is_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN_VALUE", "s3cr3t-of-mine")
    plant(bench, "tells", f"echo {bench.folder}/x s3cr3t-of-mine {sys.prefix}")
    tells = Collector(
        "tells",
        "What?",
        "tells",
        "command",
        "exact",
        ("system-calls",),
        lambda bench: {"output": bench.run(("tells",)).out},
        lambda texts: Reading({"n": 1}, texts["output"].splitlines()),
    )
    record, _ = collected(tells, bench)
    assert record.excerpt == ("./x $MY_TOKEN_VALUE $VENV",)
