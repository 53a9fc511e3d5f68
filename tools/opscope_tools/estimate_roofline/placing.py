"""The passes of a report over numbers of devices and of sequences: where they fit, and how long they then take."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from opscope_schemas.errors import InputError, TraceError
from opscope_schemas.estimates import RooflineResult, SweepResult

from opscope_tools.estimate_roofline.sweeping import SWEEP
from opscope_tools.estimate_roofline.tool import ESTIMATE_ROOFLINE, devices_of
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext

__all__ = ["fewest_that_hold", "grids", "of_more", "pass_of", "spread_over"]

#: ranks of tensor parallelism whose share is told; the last are a node
_RANKS = (2, 4, 8)
#: whole nodes that are tried at most where one device does not hold the passes
_NODES = 8
#: sequences or images whose pass is timed where they fit; of the last no more than fit
_SEQUENCES = (4, 16, 64, 256)
#: sequences and tokens at which times are modelled for a page; it draws between them
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_LENGTHS = (16, 64, 256, 1024, 4096, 16384, 65536, 262144)


def pass_of(asked: Mapping[str, object]) -> dict[str, object]:
    """Of what a cost tool was asked, what names the pass."""
    return {name: asked[name] for name in ("target", "phase", "values", "config") if name in asked}


def spread_over(
    hardware: str, asked: Mapping[str, object], context: ToolContext
) -> tuple[dict[int, RooflineResult], str]:
    """The pass over two, four and eight devices, as far as the model and the device bear it; and the first refusal."""
    if ":" in hardware:
        return {}, "the times are of several devices already."
    found, why = {}, ""
    for ranks in _RANKS:
        plan = {"hardware": hardware, "parallel": {"tp": ranks}}
        try:
            found[ranks] = run_tool(ESTIMATE_ROOFLINE, {**pass_of(asked), **plan}, context)
        except (InputError, TraceError) as error:
            why = why or error.message
    return found, why


def fewest_that_hold(
    hardware: str, passes: Mapping[str, Mapping[str, object]], alone: Mapping[str, RooflineResult], context: ToolContext
) -> dict[str, RooflineResult]:
    """The passes over the fewest of 2, 4, 8, 16, 24 ... devices that hold them: tensor parallelism within eight, a pipeline over eights.

    Nothing where one device holds them, where the caller said how many there are, and where 64 do not hold them.
    """
    if ":" in hardware or alone.keys() != passes.keys() or all(one.memory.fits for one in alone.values()):
        return {}
    if devices_of(hardware, None, context)[0].link(_RANKS[0]) is None:
        return {}  # no figures of what joins several
    widest = _RANKS[-1]
    least = max(one.memory.weights_bytes / one.memory.usable_bytes for one in alone.values())
    for devices in (*_RANKS, *range(2 * widest, _NODES * widest + 1, widest)):
        for ranks in (*reversed(_RANKS), 1) if devices >= least else ():
            if devices % ranks:
                continue
            stages = (
                {"pp": devices // ranks} if devices > ranks else {}
            )  # as `spread_over` asks, so that it is answered once
            plan = {"hardware": hardware, "parallel": {"tp": ranks, **stages}}
            try:
                found = {
                    phase: run_tool(ESTIMATE_ROOFLINE, {**pass_of(asked), **plan}, context)
                    for phase, asked in passes.items()
                }
            except (InputError, TraceError):
                continue  # the model does not bear that plan
            if all(one.memory.fits for one in found.values()):
                return found
            break
    return {}


def of_more(
    hardware: str, asked: Mapping[str, object], alone: RooflineResult, context: ToolContext
) -> tuple[RooflineResult, ...]:
    """The pass of `alone` with more sequences or images, up to as many as fit and at most 256, on the same devices."""
    most, here = alone.memory.largest_batch, alone.values
    if not most or "batch_size" not in here:
        return ()
    wanted = {*(size for size in _SEQUENCES if size < most), min(most, _SEQUENCES[-1])}
    degrees = {"tp": alone.parallel.tp, "pp": alone.parallel.pp} if alone.parallel is not None else None
    plan = {**pass_of(asked), "hardware": hardware.partition(":")[0], "parallel": degrees}
    with contextlib.suppress(InputError, TraceError):
        return tuple(
            run_tool(ESTIMATE_ROOFLINE, {**plan, "values": {**here, "batch_size": size}}, context)
            for size in sorted(wanted)
            if size > here["batch_size"]
        )
    return ()


def grids(
    asked: Mapping[str, object], phases: Sequence[str], limit: int | None, context: ToolContext
) -> Iterator[tuple[int, list[SweepResult]]]:
    """The passes over one device and more, at many points up to `limit` tokens, as far as the model and the device bear it."""
    contexts = [size for size in _LENGTHS if limit is None or size < limit]
    lengths = [*contexts, limit] if limit is not None and limit > 1 else contexts
    for ranks in (1, *_RANKS):
        passes = []
        for phase in phases:
            sweep = {**asked, "phase": phase, "parallel": {"tp": ranks}, "batches": [*_BATCHES], "contexts": lengths}
            with contextlib.suppress(InputError, TraceError):
                found = run_tool(SWEEP, sweep, context)
                passes += [found] if all(point.calibrated_seconds for point in found.points) else []
        if passes:
            yield ranks, passes
