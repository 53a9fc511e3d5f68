"""How work grows with its input: calls are counted, so that a loaded machine changes nothing.

`calls` runs something and counts the functions that it calls, Python's and C's. `growth` says by what power of the size they grow
between inputs that double. What a single C call does is not seen here; patterns have tests of their own (test_patterns.py).
"""

from __future__ import annotations

import cProfile
import gc
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise


class TooLongError(BaseException):
    """The work is not done in any time that it may take; no handler of errors in between takes it for one of its own."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TooLongError` after that much processor time."""

    def stop(*_: object) -> None:
        raise TooLongError

    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def calls(work: Callable[[], object]) -> int:
    """How many functions `work` calls.

    The collector waits meanwhile: what it would end is the garbage of whatever ran before, whose finalizers are no part of the work.
    """
    profile, collects = cProfile.Profile(), gc.isenabled()
    gc.disable()
    try:
        profile.runcall(work)
    finally:
        if collects:
            gc.enable()
    return sum(entry.callcount for entry in profile.getstats())


def growth(make: Callable[[int], Callable[[], object]], sizes: Sequence[int], seconds: float = 60) -> float:
    """The largest power by which calls grow as the size doubles, over what every input costs: 1.0 is linear, 2.0 quadratic.

    `make` prepares, and what it returns is counted. Sizes double; what a size adds is held against what the one before added.
    """
    assert all(large == 2 * small for small, large in pairwise(sizes)), "sizes double"
    make(sizes[0])()  # modules are imported by the first who asks
    gc.collect()  # garbage of other tests may hold all watches that a user has, and without one each question walks its tree
    counted = []
    for size in sizes:
        work = make(size)
        with at_most(seconds):
            counted.append(calls(work))
    added = [max(large - small, 1) for small, large in pairwise(counted)]
    told = [(less, more) for less, more in pairwise(added) if more > counted[0] / 20]
    return max((math.log2(more / less) for less, more in told), default=0.0)
