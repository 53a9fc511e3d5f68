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
    service = steps.prefill(1, load.input_len)
    others = _beside(steps, load.input_len, service) * (places - 1) / places
    gaps = max(1, load.output_len - 1)

    def rate(batch: float) -> float:
        """Requests a second while so many decode: each takes its part of the steps, and its prefill stretches those of others."""
        return batch / (gaps * steps.decode(max(1.0, batch), context) + batch * others)

    low, high = 0.0, places
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if middle + rate(middle) * service < places else (low, middle)
    batch = (low + high) / 2
    found = rate(batch)
    tpot = batch / (found * gaps)
    waiting = max(0.0, here / found - service - gaps * tpot)
    return Steady(
        steps.decode(max(1.0, batch), context), tpot, service, waiting, batch, found, min(1.0, found * others)
    )


def _beside(steps: Steps, length: int, alone: float) -> float:
    """What one question more costs where several are prefilled in a step."""
    together = math.floor(CHUNK / length)
    return steps.prefill(together, length) / together if together > 1 else alone


__all__ = ["CHUNK", "Load", "Steady", "Steps", "steady"]
