"""Speculative decoding: a draft proposes tokens, one pass of the target verifies them all, and keeps those up to the first refusal.

With an acceptance rate a (each proposal alike, by itself) and k proposals, a step is expected to give 1 + a + ... + a^k tokens
(Leviathan et al., 2023, arXiv 2211.17192, equation 1): the accepted ones, and one of the target's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opscope_schemas.errors import ConfigError
from opscope_schemas.estimates import Speculative, TimeTotals

_NAMES = ("num_speculative_tokens", "acceptance_rate", "draft_model", "draft_cost")
_MOST = 64
ASSUMED = (
    "A step of speculative decoding: so many decode passes of the draft, one after the other, then a pass of the target over one token more "
    "than were proposed. Proposals are accepted independently at one rate; sampling and the draft's prefill are left out.",
)


@dataclass(frozen=True)
class Speculation:
    """What is asked for: proposals of a step, how likely one is accepted, and the draft, or its passes' share of the target's."""

    tokens: int
    acceptance: float
    model: str = ""
    cost: float = 0.0

    @property
    def expected(self) -> float:
        """Tokens of a step, each sequence."""
        return sum(self.acceptance**power for power in range(self.tokens + 1))


def asked(given: Mapping[str, Any]) -> Speculation:
    """Raises `ConfigError` for a name or a number that cannot be meant."""
    if unknown := [name for name in given if name not in _NAMES]:
        raise ConfigError(f"Speculative decoding knows no {unknown[0]}.", next_step=f"Give {', '.join(_NAMES)}.")
    tokens, rate = given.get("num_speculative_tokens"), given.get("acceptance_rate")
    model, cost = given.get("draft_model"), given.get("draft_cost")
    if not isinstance(tokens, (int, float)) or tokens != int(tokens) or not 1 <= tokens <= _MOST:
        raise ConfigError(f"num_speculative_tokens is a whole number from 1 to {_MOST}.")
    if not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
        raise ConfigError("acceptance_rate lies between 0 and 1.", next_step="Take what was measured for the draft.")
    if (model is None) == (cost is None):
        raise ConfigError("Speculative decoding takes one of draft_model and draft_cost.")
    if model is not None and not isinstance(model, str):
        raise ConfigError("draft_model names a model.")
    if cost is not None and (not isinstance(cost, (int, float)) or not 0 <= cost <= 1):
        raise ConfigError("draft_cost is a share of the target's decode step, between 0 and 1.")
    return Speculation(int(tokens), float(rate), model or "", float(cost or 0.0))


def speculative(
    of: Speculation, step: TimeTotals, verified: TimeTotals, draft: Callable[[], TimeTotals]
) -> Speculative:
    """`step`: a decode step of the target; `verified`: its pass over the proposals; `draft`: a decode step of the draft.

    Calibrated times where all of them have one, else bounds.
    """
    drafted = draft() if of.model else None
    times = [one.calibrated_seconds for one in (step, verified, drafted) if one is not None]
    known = all(time is not None for time in times)

    def seconds(one: TimeTotals) -> float:
        return one.calibrated_seconds if known and one.calibrated_seconds is not None else one.bound_seconds

    drafting = of.tokens * (seconds(drafted) if drafted is not None else of.cost * seconds(step))
    each = (drafting + seconds(verified)) / of.expected
    return Speculative(
        num_speculative_tokens=of.tokens, acceptance_rate=of.acceptance, draft_model=of.model or None, tokens_per_step=of.expected,
        draft_seconds=drafting, verify_seconds=seconds(verified), seconds_per_token=each, speedup=seconds(step) / each,
        basis="calibrated" if known else "bound",
    )  # fmt: skip


__all__ = ["ASSUMED", "Speculation", "asked", "speculative"]
