"""What tests cost: CPU seconds of each with all processes that it starts, summed by file, most first. A plugin: `make profile`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

#: where test processes write what each test took, a line each
RECORD = Path(os.environ.get("OPSCOPE_CPU_SECONDS", "cpu-seconds.tsv"))
#: files that are printed
_SHOWN = 40


def spent() -> float:
    """CPU seconds of this process, of those that it started, and of theirs, ended ones included."""
    total = 0.0
    for process in (own := psutil.Process(), *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    """A fixture that several tests share is on the first one's bill."""
    before = spent()
    done = yield
    with RECORD.open("a") as file:
        file.write(f"{spent() - before:.2f}\t{item.nodeid}\n")
    return done


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        RECORD.unlink(missing_ok=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    by_file: defaultdict[str, float] = defaultdict(float)
    for line in RECORD.read_text().splitlines():
        seconds, _, name = line.partition("\t")
        by_file[name.partition("::")[0]] += float(seconds)
    terminalreporter.section(f"{sum(by_file.values()):,.0f} CPU seconds, each test in {RECORD}")
    for name, total in sorted(by_file.items(), key=lambda held: -held[1])[:_SHOWN]:
        terminalreporter.write_line(f"{total:8.1f} {name}")
