"""The source of what is measured: lines of our own programs, as `sed` prints them."""

from __future__ import annotations

from collections.abc import Mapping

from opscope_tools.evidence.bench import PROGRAMS, Bench
from opscope_tools.evidence.table import Collector, Reading

__all__ = ["COLLECTORS", "source", "source_read"]


def source(name: str, first: str, last: str, bench: Bench) -> Mapping[str, str]:
    """The lines of a program from one that holds a text to the next that holds another; the command that prints them is noted."""
    lines = (PROGRAMS / name).read_text(encoding="utf-8").splitlines()
    begin = next(at for at, line in enumerate(lines) if first in line)
    end = next(at for at, line in enumerate(lines) if at >= begin and last in line)
    bench.noted(f"sed -n '{begin + 1},{end + 1}p' programs/{name}")
    return {"source": "\n".join(lines[begin : end + 1])}


def source_read(texts: Mapping[str, str]) -> Reading:
    """The lines, and how many there are."""
    lines = texts["source"].splitlines()
    return Reading({"lines": len(lines)}, lines)


COLLECTORS: tuple[Collector, ...] = (
    Collector(
        "attention-source", "How are the scores avoided?", "attention.c", "source", "exact", ("cache-hierarchy",),
        lambda bench: source("attention.c", "for (int start = 0; start < tokens; start += keys)", "weight * v[", bench), source_read,
    ),
    Collector(
        "ceiling-source", "What does the benchmark of reads do?", "bandwidth.c", "source", "exact", ("memory-bottlenecks",),
        lambda bench: source("bandwidth.c", "case 'i':", "break;", bench), source_read,
    ),
    Collector(
        "mark-source", "How does the workload mark its phases?", "generate.py", "source", "exact", ("system-calls",),
        lambda bench: source("generate.py", "def mark(name", "os.stat(", bench), source_read,
    ),
)  # fmt: skip
