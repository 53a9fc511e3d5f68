"""No regular expression that reads other people's text looks at one stretch of it again and again.

A search holds the interpreter as long as it runs, and with it every other call of a server. Each pattern is given strings made to
have it look twice (support/patterns.py); what takes a pattern longer than any single pass could is a fault. Patterns that only see
text of a bounded length are named with that bound.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patterns import Written, collected, hostile

ROOT = Path(__file__).parents[2]
#: one pass over this many characters takes a tenth of a millisecond, looking at each from each before it ten or more
SIZE, SECONDS = 1500, 0.01
#: module:place -> why what it reads is short; lines of code are given by the function around them
BOUNDED = {
    "opscope_tools.index.cpp.files": "the 160 to 640 bytes before a name",
    "opscope_tools.index.cpp.queries": "an argument of a call, at most 1,000 characters",
    "opscope_tools.index.subclasses": "the 80 bytes before ` as `",
    "opscope_tools.index.tables": "the 80 characters before a call, or an assigned value, which is cut at 400",
    "opscope_tools.index.resolve": "an assigned value or base, which is cut at 400",
    "opscope_tools.kernels.compiled.sass": "what cuobjdump prints",
    "opscope_tools.kernels.compiled.triton_build": "what ptxas prints",
    "opscope_tools.report.reference": "names of operators",
    "opscope_tools.report.webpage": "HTML that a renderer wrote, every element closed",
    "opscope_tools.report.repo": "a sentence of a map",
    "opscope_tools.survey.signals": "names of classes, of at most 200 characters",
    "opscope_tools.survey.configuration": "names of classes, matched from their beginning",
    "opscope_tools.survey.definitions": "names of classes, matched from their beginning",
    "opscope_tools.survey.entries": "a line of TOML, matched from its beginning",
    "opscope_tools.kernels.cuda_expr": "an expression without spaces at its ends",
    "opscope_tools.extract_subject": "an argument of a call, at most 1,000 characters",
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
    before = time.process_time()
    try:
        with bounded(1):
            if written.mode == "search":
                for _ in pattern.finditer(text):
                    pass
            else:
                getattr(pattern, written.mode)(text)
    except TooLongError:
        return 1.0
    return time.process_time() - before


def slowest(written: Written) -> tuple[float, str]:
    """The string over which the pattern takes longest; one that takes too long is tried again before it counts."""
    worst = (0.0, "")
    for text in hostile(written, SIZE):
        seconds = taken(written, text)
        if seconds > SECONDS:
            seconds = min(seconds, taken(written, text), taken(written, text))
        worst = max(worst, (seconds, str(text[:40])))
        if worst[0] > SECONDS:
            break
    return worst


def test_no_pattern_looks_again_at_what_it_has_passed() -> None:
    patterns = collected(ROOT)
    assert len(patterns) > 400
    slow = [
        f"{written.where} {written.pattern.pattern!r} takes {seconds:.3f} s over {text!r}..."
        for written in patterns
        if written.where.rpartition(":")[0] not in BOUNDED
        for seconds, text in [slowest(written)]
        if seconds > SECONDS
    ]
    assert slow == []
