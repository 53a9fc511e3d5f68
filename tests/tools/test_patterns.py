"""No regular expression that reads other people's text looks at one stretch of it again and again.

A search holds the interpreter as long as it runs, and with it every other call of a server. Each pattern is given strings made to
have it look twice (support/patterns.py); what takes a pattern longer than any single pass could is a fault. Patterns that only see
text of a bounded length are named with that bound.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patterns import Written, collected, hostile

ROOT = Path(__file__).parents[2]
#: characters that a pattern is tried on; it may take as long as so many plain looks at each of them from each before it do here.
#: What looks three times over takes hundreds of them, what looks twice at most ten: the room between is for the machine's noise
SIZE, LOOKS = 750, 40
#: module:place -> why what it reads is short; lines of code are given by the function around them
BOUNDED = {
    "opscope_tools.index.cpp.files": "the 160 to 640 bytes before a name",
    "opscope_tools.index.cpp.queries": "an argument of a call, at most 1,000 characters",
    "opscope_tools.index.names.subclasses": "the 80 bytes before ` as `",
    "opscope_tools.index.forwards.tables": "the 80 characters before a call, or an assigned value, which is cut at 400",
    "opscope_tools.source.python.names": "an assigned value or base, which is cut at 400",
    "opscope_tools.kernels.compiled.sass": "what cuobjdump prints",
    "opscope_tools.kernels.compiled.triton_build": "what ptxas prints",
    "opscope_tools.report.reference": "names of operators",
    "opscope_tools.report.webpage": "HTML that a renderer wrote, every element closed",
    "opscope_tools.report.repo": "a sentence of a map",
    "opscope_tools.survey.effects": "names of what is called, of at most 200 characters",
    "opscope_tools.survey.signals": "names of classes, of at most 200 characters",
    "opscope_tools.survey.configuration": "names of classes, matched from their beginning",
    "opscope_tools.survey.definitions": "names of classes, matched from their beginning",
    "opscope_tools.survey.entries": "a line of TOML, matched from its beginning",
    "opscope_tools.kernels.cuda.launch.host_expressions": "an expression without spaces at its ends",
    "opscope_tools.extract_config.subject": "an argument of a call, at most 1,000 characters",
}


class TooLongError(Exception):
    """A pattern is still at it."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLongError

    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def taken(written: Written, text: str) -> float:
    """Seconds that the pattern takes over the text, as it is used."""
    pattern = written.pattern
    before = time.thread_time()
    try:
        with bounded(1):
            if written.mode == "search":
                for _ in pattern.finditer(text):
                    pass
            else:
                getattr(pattern, written.mode)(text)
    except TooLongError:
        return 1.0
    return time.thread_time() - before


def most() -> float:
    """Seconds that a pattern may take on this machine, as it is now."""
    plain = Written("", re.compile("a[^b]*b"), "search")
    return LOOKS * sorted(taken(plain, SIZE * "a") for _ in range(9))[4]


def slowest(written: Written) -> tuple[float, str]:
    """How many times too long the pattern takes, and over what; one that seems to is tried again before it counts."""
    worst, limit = (0.0, ""), most()
    for text in hostile(written, SIZE):
        times = taken(written, text) / limit
        for _ in range(3):
            if times > 1:
                times = min(times, taken(written, text) / most())
        worst = max(worst, (times, str(text[:40])))
        if worst[0] > 1:
            break
    return worst


def test_a_pattern_that_looks_three_times_over_is_found() -> None:
    assert slowest(Written("", re.compile(r"\s*a?\s*b"), "search"))[0] > 1


def test_no_pattern_looks_again_at_what_it_has_passed() -> None:
    patterns = collected(ROOT)
    assert len(patterns) > 400
    slow = [
        f"{written.where} {written.pattern.pattern!r} takes {times:.1f} times too long over {text!r}..."
        for written in patterns
        if written.where.rpartition(":")[0] not in BOUNDED
        for times, text in [slowest(written)]
        if times > 1
    ]
    assert slow == []
