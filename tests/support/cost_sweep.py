"""One model type in each of its phases, as a worker of a sweep checks it: asked plainly, compared, tried inside its conditions."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
import torch
from cluster_runs import TimeUpError, limited
from cost_comparison import compare
from cost_records import ABSENT, EXACT, FAILED, INCOMPLETE, REFUSED, TOO_LONG, UNREFERENCED, WRONG, Record
from distributed import get_worker
from inside_points import check
from opscope_schemas.errors import OpscopeError
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

_OUTCOMES = {"exact": EXACT, "incomplete": INCOMPLETE, "inexact": WRONG, "unreferenced": UNREFERENCED}
#: how a refusal says that there is no such phase
_ABSENT = ("has no decode phase", "has no encoder beside a decoder")


@dataclass(frozen=True)
class Task:
    """What to look at, and how many points of each kind."""

    model_type: str
    phases: tuple[str, ...]
    digest: str
    seconds: float = 600.0
    compared: int = 2
    inside: int = 3


@lru_cache(maxsize=1)
def _context() -> ToolContext:
    """One for each worker process, with its traces in the folder that ends with the worker."""
    warnings.simplefilter("ignore")
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    context = ToolContext(Workspace.create(cache_folder=Path(get_worker().local_directory) / "traces"))
    count_flops(
        CostArguments(target="LlamaRMSNorm"), context
    )  # so that no type's seconds are those of starting to trace
    return context


def _close() -> None:
    close_engines(_context().workspace)
    _context().workspace.store.close()
    _context.cache_clear()


def swept(task: Task) -> list[Record]:
    """A record for each phase asked for; those that the time did not reach say so."""
    found: list[Record] = []
    _context()
    try:
        with limited(task.seconds, _spent):
            for record in _phases(task):
                found.append(record)  # noqa: PERF402 (those made before the time is up are kept)
    except TimeUpError:
        _close()  # a trace may still be running
        reason = f"over {task.seconds:.0f} processor seconds for the type"
        found += [Record(task.model_type, p, task.digest, TOO_LONG, reason) for p in task.phases[len(found) :]]
    return found


def _phases(task: Task) -> Iterator[Record]:
    only, refused = "", ""
    for phase in task.phases:
        blank = Record(task.model_type, phase, task.digest, ABSENT, only)
        if only:  # one forward without a cache: neither decode nor encode
            yield blank
            continue
        if refused and phase == "decode":  # which begins with a prefill
            yield replace(blank, outcome=REFUSED, reason=refused)
            continue
        try:
            record, only = _phase(blank, task)
            refused = record.reason if (phase, record.outcome) == ("prefill", REFUSED) else refused
            yield record
        except Exception as error:  # a sweep goes on
            yield replace(blank, outcome=FAILED, reason=_said(error))


def _phase(blank: Record, task: Task) -> tuple[Record, str]:
    """The record, and why there are no other phases where that is so."""
    begun, before = time.monotonic(), _spent()
    error: OpscopeError | None = None
    document: Any = None
    try:
        asked: Any = {"target": blank.model_type, "phase": blank.phase}
        document = count_flops(CostArguments(**asked), _context()).document
    except OpscopeError as refusal:
        error = refusal
    record = replace(blank, seconds=round(time.monotonic() - begun, 1), processor=round(_spent() - before, 1))
    if error is not None:
        absent = any(words in error.message for words in _ABSENT)
        return replace(record, outcome=ABSENT if absent else REFUSED, reason=" ".join(str(error).split())), ""
    outcome = compare(blank.model_type, blank.phase, _context(), count=task.compared)
    state = _OUTCOMES.get(outcome.state, FAILED)
    missing = outcome.not_counted or document.not_counted
    record = replace(
        record, outcome=INCOMPLETE if missing and state in (EXACT, UNREFERENCED) else state, compared=outcome.points,
        reason=missing[0][:200] if missing else "; ".join(outcome.notes)[:400],
    )  # fmt: skip
    return _inside(record, task.inside), "one forward, without a cache" if document.phase == "forward" else ""


def _inside(record: Record, count: int) -> Record:
    try:
        found = check(record.model_type, record.phase, _context(), count=count)
    except Exception as error:  # no point inside, or formulas without a value there: a figure of this sweep
        return replace(record, wrong=(f"no point could be tried: {_said(error)}",))
    exact = record.outcome == UNREFERENCED and found.equal and not found.wrong  # held against runs here, if not before
    return replace(
        record, outcome=EXACT if exact else record.outcome, equal=found.equal, wrong=tuple(found.wrong),
        unbuilt=tuple(found.unbuilt),
    )  # fmt: skip


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _spent() -> float:
    """Processor seconds of this process and of those that it started."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return float(total)


__all__ = ["Task", "swept"]
