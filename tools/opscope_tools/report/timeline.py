"""Section 8.2: a pass along a time axis in seconds, kernel after kernel as engines run them, out of the estimate of its time.

A kernel of repeated layers is one bar, all its runs together; a bar is as long as the kernels were measured to take on the
device, where nobody measured their kind as long as the bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from opscope_schemas.estimates import OperatorTime, RooflineResult
from opscope_schemas.units import amount, plain_bytes, seconds

from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.graph import Graph, Span, Vertex
from opscope_tools.report.quotes import joined

__all__ = ["LEGEND", "timelines"]

#: bars of one timeline; short neighbours share one until there are no more
_MOST = 16
#: share of the pass below which neighbours together are one bar
_SMALL = 0.005
#: share of its time from which a roof explains a kernel
_EXPLAINS = 0.25
#: of the share of the roof that explains most of several kernels: what explains as much is told beside it
_BOTH = 0.5
#: operators that a bar of several names
_NAMED = 3
LEGEND = (
    "A line without a file is one of the model's own. Behind a bar: its time, its share of the pass, what limits it with the share of its time that this explains, what it computes or moves in all its "
    "runs. fixed: most of its time is the part of its fit that grows with none of its sizes, scaled by how kernels near it were measured against the fit (of what only moves data, of which there are no measurements: the launch of a measured product); else the roof that it is nearer "
    "to, memory (its bytes) or compute (its products), both where of several kernels some are nearer to one and some to the other, neither where they explain less than a quarter; such kernels have a fixed part too. A fused kernel is "
    "called by what it does, with the operators before and behind that it takes in (a residual add, a cast, the turn of a rotary embedding), and stands at the "
    "module that issues most of them. An add that no kernel beside it takes in, as at the end of a layer or before a LayerNorm of one kernel, is a kernel of its own, though engines may join it with the norm behind it. What only moves data in one module, one after the other, is timed as one launch, with what one hands to the next written and read. What limits a kernel here may be another than what section 8.3 says of its operator: there operators run eagerly, one "
    "by one, and pairs of tokens that a window, or a mask handed as a tensor, hides from attention are counted too."
)


def timelines(facts: ImplementationFacts) -> list[Graph]:
    """The kernels of each pass whose time is known."""
    return [
        _graph(phase, facts, (facts.locate(facts.subject) or ("",))[0])
        for phase in (document.phase for document in facts.documents)
        if phase in facts.served
    ]


def _graph(phase: str, facts: ImplementationFacts, own: str) -> Graph:
    """`own`: the model's file."""
    found = facts.served[phase]
    time_of = found.seconds_of
    whole = sum(map(time_of, found.operators))
    vertices, at, named = [], 0.0, _names(found.operators)
    for place, run in enumerate(_joined(found.operators, time_of)):
        time = sum(map(time_of, run))
        share = time / whole if whole else 0.0
        lines = (
            _label(run, named, time_of, facts.place_of(run[0]), own),
            f"{seconds(time):>8}",
            f"{100 * share:4.1f} %",
            _said(run, found),
        )
        vertices.append(Vertex(f"s{place}", lines, weight=share, span=Span(at, share)))
        at += share
    basis = "calibrated" if found.totals.calibrated_seconds is not None else "at least"
    title = f"{phase} on {facts.device(phase)}, {basis}: {seconds(whole)}"
    return Graph(tuple(vertices), layout="timeline", title=title)


def _joined(operators: Sequence[OperatorTime], time_of: Callable[[OperatorTime], float]) -> list[list[OperatorTime]]:
    """The kernels with those neighbours put together that take the least, until few enough bars are left."""
    runs = [[one] for one in operators if time_of(one)]
    whole = sum(map(time_of, operators))
    while True:
        times = [sum(map(time_of, run)) for run in runs]
        if len(runs) <= _MOST and all(a + b >= _SMALL * whole for a, b in pairwise(times)):
            return runs
        at = min(range(len(runs) - 1), key=lambda place: times[place] + times[place + 1])
        runs[at : at + 2] = [runs[at] + runs[at + 1]]


def _label(
    run: Sequence[OperatorTime], named: Mapping[str, str], time_of: Callable[[OperatorTime], float], place: tuple[str, int], own: str
) -> str:  # fmt: skip
    """`sdpa (self_attn) ×32  :257`, with the file where it is no line of the model's own; of several kernels the first and the last, how many they are, and one that is most of them."""
    first, last = run[0], run[-1]
    times = f" ×{first.count}" if first.count > 1 and len({one.count for one in run}) == 1 else ""
    if len({(one.module, one.count) for one in run}) > 1:
        ends = " to ".join(f"{_operations([one])}{named[one.module]}" for one in (first, last))
        runs = sum(one.count for one in run)
        often = f", {runs} runs" if runs > len(run) and not times else times
        most = max(run, key=time_of)
        between = most not in (first, last) and time_of(most) > sum(map(time_of, run)) / 2
        said = f", most of it {_operations([most])}{named[most.module]}" if between else ""
        attends = [one for one in run[1:-1] if one.kind == "attention" and one is not most]
        said = said or "".join(f", among them {_operations([one])}{named[one.module]}" for one in attends[:1])
        return f"{ends}: {len(run)} kernels{often}{said}"
    path, line = place
    file = "" if path == own else f" of {path.rpartition('/')[2]}"
    several = f": {len(run)} kernels" if len(run) > 1 else ""
    return f"{_operations(run)}{named[first.module]}{several}{times}  :{line}{file}"


def _operations(run: Sequence[OperatorTime]) -> str:
    """The first few names of what runs; products that run as one are one name."""
    names = list(dict.fromkeys(name for one in run for name in re.split(r", (?![^(]*\))", one.operation)))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _names(operators: Sequence[OperatorTime]) -> dict[str, str]:
    """Per module its name in brackets: the end of its path, as much of it as tells it from the others; a layer by its list."""
    paths = {one.module: [part for part in one.module.split(".") if part not in ("", "*")] for one in operators}
    found = {}
    for module, path in paths.items():
        others = [other for other in paths.values() if other != path]
        length = next((n for n in range(1, len(path)) if path[-n:] not in [other[-n:] for other in others]), len(path))
        found[module] = f" ({'.'.join(path[-length:])})" if path else ""
    return found


def _said(run: Sequence[OperatorTime], found: RooflineResult) -> str:
    """What limits it, how much of its time that explains, and how much of that it computes or moves."""
    moved, whole = plain_bytes(sum(one.bytes for one in run)), sum(map(found.seconds_of, run))
    if told := sum(one.exchanged_bytes for one in run):
        moved = f"{f'{moved}, ' if any(one.bytes for one in run) else ''}{plain_bytes(told)} exchanged"
    explained: dict[str, float] = {}
    for one in run:
        if one.limited_by:
            explained[one.limited_by] = explained.get(one.limited_by, 0.0) + one.bound_seconds
    if not explained:
        return moved
    started = sum(one.launch_seconds or 0.0 for one in run if found.totals.calibrated_seconds)
    neither = "neither, " * (sum(explained.values()) < _EXPLAINS * whole)
    if started > whole / 2:  # as `launches` says of one kernel
        neither, explained = "", {"fixed": started}
    most = max(explained.values())
    limits = sorted((name for name in explained if explained[name] >= _BOTH * most), key=lambda name: -explained[name])
    parts = [_percent(min(1.0, explained[name] / whole)) for name in limits]
    done = [amount(sum(one.flops for one in run), "FLOP") if name == "compute" else moved for name in limits]
    wide = ", of 32 bits in the source, timed in 16" if any(one.wide for one in run) else ""
    said = joined(f"{name} {part}" for name, part in zip(limits, parts, strict=True))
    return f"{neither}{said}, {joined(dict.fromkeys(done))}{wide}"


def _percent(share: float) -> str:
    return "under 1 %" if share < 0.005 else f"{100 * share:.0f} %"
