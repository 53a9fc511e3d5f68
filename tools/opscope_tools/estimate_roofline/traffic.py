"""Continuous batching in steady state: from the times of steps to time per token, time to the first token and throughput.

A closed loop of `concurrency` requests. Each replica decodes a batch that follows from Little's law (requests that decode = rate times
the time that one decodes), no larger than its cache; a share of its time goes to the prefills of newcomers, which stretch every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

#: steps until the batch that decodes and the rate agree
_ROUNDS = 60
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


def steady(steps: Steps, load: Load, replicas: int, cache_limit: int | None) -> Steady:
    """Of one of so many replicas that share the load evenly."""
    here = max(1.0, load.concurrency / replicas)
    places = min(here, cache_limit) if cache_limit is not None else here
    context = load.input_len + load.output_len / 2
    service = _prefill(steps, load.input_len)
    extra = _beside(steps, load.input_len, service)
    gaps = max(1, load.output_len - 1)
    batch, tpot, rate, step = places, 0.0, 0.0, 0.0
    for _ in range(_ROUNDS):
        step = steps.decode(max(1.0, batch), context)
        busy = min(0.95, rate * extra)
        tpot = step / (1 - busy)
        in_service = places / (service + gaps * tpot)
        new_rate = min(in_service, 0.98 / extra) if extra else in_service
        new_batch = min(places, new_rate * gaps * tpot)
        if abs(new_rate - rate) < 1e-5 * new_rate and abs(new_batch - batch) < 1e-3 * batch:
            break
        rate, batch = (rate + new_rate) / 2 if rate else new_rate, (batch + new_batch) / 2
    waiting = max(0.0, here / rate - service - gaps * tpot)
    return Steady(step, tpot, service, waiting, batch, rate, min(1.0, rate * extra))


def _prefill(steps: Steps, length: int) -> float:
    return steps.prefill(1, length)


def _beside(steps: Steps, length: int, alone: float) -> float:
    """What one question more costs where several are prefilled in a step."""
    together = math.floor(CHUNK / length)
    return steps.prefill(together, length) / together if together > 1 else alone


__all__ = ["CHUNK", "Load", "Steady", "Steps", "steady"]
