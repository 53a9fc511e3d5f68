"""Continuous batching in steady state: from the times of steps to time per token, time to the first token and throughput.

A closed loop of `concurrency` requests. Each replica decodes a batch that follows from Little's law (requests that decode = rate times
the time that one decodes), no larger than its cache; a share of its time goes to the prefills of newcomers, which stretch every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

#: of the span in which the batch lies that decodes
_HALVINGS = 12
#: of each engine: prefills, decode steps and places of a first wave that a request waits for its first token, and seconds of a decode step
#: in which the device waits for its host. The only figures that are fitted on runs of whole engines (benchmarks/silicon/served_runs.py,
#: the half that may be looked at): benchmarks send all requests at once and then ten for each place, so a tenth of them wait for half of
#: the others' prefills; more of SGLang's waves stay together. A bound has none of them
_WAITS = {
    "": (1.0, 0.0, 0.0, 0.0), "vllm": (1.0, 5.0, 0.1, 6e-4), "trtllm": (1.0, 9.0, 0.1, 0.0), "sglang": (1.0, 16.0, 0.3, 0.0),
}  # fmt: skip
#: tokens that an engine prefills in one step at most
CHUNK = 8192


@dataclass(frozen=True)
class Load:
    """Requests at a time in all, tokens of a question and of an answer."""

    concurrency: int
    input_len: int
    output_len: int


@dataclass(frozen=True)
class Steps:
    """What a replica takes, seconds: a decode step of (batch, context); a prefill of so many questions of (number, length)."""

    decode: Callable[[float, float], float]
    prefill: Callable[[float, float], float]


@dataclass(frozen=True)
class Steady:
    """The steady state of a replica. Rates are per second, `queue` and `service` seconds."""

    step: float
    tpot: float
    service: float
    queue: float
    batch: float
    rate: float
    prefill_share: float


def steady(
    steps: Steps, load: Load, replicas: int, cache_limit: int | None, backend: str = "", at_first: float = 1.0
) -> Steady:
    """Of one of so many replicas that share the load evenly. `at_first`: of the place that a request comes to take, what it must find
    free to begin; for the rest it waits later, between its tokens."""
    here = max(1.0, load.concurrency / replicas)
    places = min(here, cache_limit) if cache_limit is not None else here
    context = load.input_len + load.output_len / 2
    service = steps.prefill(1, load.input_len)
    together = _beside(steps, load.input_len, service)
    others = together * (places - 1) / places
    gaps = max(1, load.output_len - 1)
    prefills, waits, wave, host = _WAITS[backend]

    def step_of(batch: float) -> float:
        return steps.decode(max(1.0, batch), context) + host

    def rate(batch: float) -> float:
        """Requests a second while so many decode: each takes its part of the steps, and its prefill stretches those of others."""
        return batch / (gaps * step_of(batch) + batch * others)

    low, high = 0.0, places
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if middle + rate(middle) * service < places else (low, middle)
    batch = (low + high) / 2
    found = rate(batch)
    step = step_of(batch)
    # of a wave that begins together, half of the prefills come before a request's own
    tpot = step + (1 - wave / 2) * batch * others / gaps
    burst = (prefills - 1) * service + waits * step + wave * (places - 1) / 2 * together
    waiting = max(0.0, here / found - service - batch / found)
    tpot += (1 - at_first) * waiting / gaps
    return Steady(step, tpot, service, at_first * waiting + burst, batch, found, min(1.0, found * others))


def _beside(steps: Steps, length: int, alone: float) -> float:
    """What one question more costs where several are prefilled in a step."""
    together = math.floor(CHUNK / length)
    return steps.prefill(together, length) / together if together > 1 else alone


__all__ = ["CHUNK", "Load", "Steady", "Steps", "steady"]
