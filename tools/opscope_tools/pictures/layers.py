"""A pass cut into stretches: what runs outside of layers, and one layer of each kind, in order of execution.

Operators of a repeated layer bear its path with a `*` (`model.layers.*.mlp`). A stretch ends where that path does, where its first
operator comes again (another kind of layer begins), and where an operator runs no whole number of times a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opscope_schemas.estimates import OperatorTime, RooflineResult


@dataclass(frozen=True)
class Step:
    """One operator in one run of its stretch: when it starts and how long it takes (seconds), and its whole row."""

    row: OperatorTime
    start: float
    length: float


@dataclass(frozen=True)
class Stretch:
    """One run of operators that follow each other, of `runs` alike; `path` is that of the layer, empty outside of layers."""

    path: str
    runs: int
    rows: tuple[OperatorTime, ...]

    def share(self, row: OperatorTime) -> float:
        """How often the operator runs in one run of the stretch."""
        return row.count / self.runs

    def steps(self, *, calibrated: bool, start: float = 0.0) -> list[Step]:
        """Its operators one after the other from `start` on, in seconds of one run."""
        found = []
        for row in self.rows:
            whole = row.calibrated_seconds if calibrated else row.bound_seconds
            found.append(Step(row, start, (whole or 0.0) / self.runs))
            start += found[-1].length
        return found

    @property
    def name(self) -> str:
        """`model.layers.* (1 of 32 runs)`."""
        return f"{self.path or 'outside of layers'}{f' (1 of {self.runs} runs)' if self.runs > 1 else ''}"


def is_calibrated(result: RooflineResult) -> bool:
    """Whether every operator has a calibrated time, so that times of different kinds never stand in one row."""
    return result.totals.calibrated_seconds is not None


def stretches(operators: Sequence[OperatorTime]) -> list[Stretch]:
    """The pass in order; every operator is in one stretch."""
    found: list[list[OperatorTime]] = []
    for row in operators:
        run = found[-1] if found else []
        if not run or _path(row) != _path(run[0]) or row.count % max(1, run[0].count) or _again(row, run):
            found.append([])
        found[-1].append(row)
    return [Stretch(_path(run[0]), max(1, run[0].count) if _path(run[0]) else 1, tuple(run)) for run in found]


def longest(result: RooflineResult) -> Stretch | None:
    """The kind of layer on which most time is spent; without layers the longest stretch. None where nothing runs."""
    whole = is_calibrated(result)
    every = stretches(result.operators)
    return max(
        [stretch for stretch in every if stretch.path] or every,
        key=lambda stretch: stretch.runs * sum(step.length for step in stretch.steps(calibrated=whole)), default=None,
    )  # fmt: skip


def short(row: OperatorTime) -> str:
    """An operator by the end of its path: `self_attn: sdpa`."""
    below = row.module.rpartition("*.")[2] if "*" in row.module else row.module
    path = "" if below.endswith("*") else below
    return f"{path}: {row.operation}" if path else row.operation


def _path(row: OperatorTime) -> str:
    before, star, _ = row.module.partition("*")
    return before + star if star else ""


def _same(one: OperatorTime, other: OperatorTime) -> bool:
    return (one.module, one.operation, one.file, one.line) == (other.module, other.operation, other.file, other.line)


def _again(row: OperatorTime, run: Sequence[OperatorTime]) -> bool:
    return _same(row, run[0]) and not _same(row, run[-1])


__all__ = ["Step", "Stretch", "is_calibrated", "longest", "short", "stretches"]
