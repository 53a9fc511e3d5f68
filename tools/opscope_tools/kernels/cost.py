"""What one tile and one launch of a kernel compute and move: the abstract run's events added up, and put on its accesses.

Bytes are what the kernel asks of memory: each access in full, masked elements too, whatever a cache then saves.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from opscope_schemas.formula import Formula
from opscope_schemas.tiling import Cost, CostLine, Launch, MemoryOperation

from opscope_tools.kernels.counts import evaluate, names_of
from opscope_tools.kernels.cuda_record import Record
from opscope_tools.kernels.triton_operations import Event, Run
from opscope_tools.kernels.triton_tiles import Value

_COMPARES: Mapping[str, Callable[[Fraction, Fraction], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_ASSUMED = "Every tile is full: elements that a mask leaves out count, so that tiles at the edge cost less."
_FULL = "Every tile is full: threads that a bound leaves out count, so that blocks at the edge cost less."
_CACHES = "Bytes are those that the kernel asks for; what a cache serves again is not taken off."


def triton_cost(run: Run, grids: Sequence[Launch], sizes: Mapping[str, int]) -> Cost:
    """The cost of one program, and of a launch where every program does the same."""
    zero = Formula.const(0)
    total, matmul, read, write = zero, zero, zero, zero
    lines: dict[tuple[str, int, str, str], list[Formula]] = {}
    not_counted = dict(run.not_counted)
    for event in run.events:
        flops, size = _counted(event, run), _moved(event, run)
        if event.kind in ("load", "store", "atomic") and size is None:
            not_counted.setdefault(f"the {event.kind} at line {event.line}, of a tile of unknown shape")
            continue
        flops, size = flops * event.times, (size or zero) * event.times
        operation = {"flops": "arithmetic", "dot": "tl.dot"}.get(event.kind, event.kind)
        entry = lines.setdefault((event.file, event.line, event.via, operation), [zero, zero])
        entry[0], entry[1] = entry[0] + flops, entry[1] + size
        total = total + flops
        if event.kind == "dot":
            matmul = matmul + flops
        if event.kind in ("load", "atomic"):
            read = read + size
        if event.kind in ("store", "atomic"):
            write = write + size
    shown = tuple(
        CostLine(file=file, line=line, via=via, operation=operation, basis="evaluated",
                 flops=run.counts.show(flops) if flops != 0 else "", bytes=run.counts.show(size) if size != 0 else "")
        for (file, line, via, operation), (flops, size) in lines.items() if flops != 0 or size != 0
    )  # fmt: skip
    uneven = f"programs do not all do the same ({'; '.join(run.uneven)})" if run.uneven else ""
    tiles = dict.fromkeys(g.num_tiles for g in grids)
    reason = uneven or _no_grid(tiles)
    launch = None if reason else run.counts.read(next(iter(tiles)))
    per_tile = [run.counts.show(f) for f in (total, matmul, read, write)]
    per_launch = ["" if launch is None else run.counts.show(f * launch) for f in (total, matmul, read, write)]
    names = dict.fromkeys(n for text in (*per_tile, *per_launch) for n in names_of(text))
    described = {
        n: f"bytes of one element of {n.removesuffix('.element_size()')}"
        for n in names
        if n.endswith(".element_size()")
    }
    texts = _fields(per_tile, per_launch)
    numbers, unbound = _evaluated(texts, names, sizes)
    both = run.counts.show(read + write)
    return Cost(
        **texts, stage_bytes=_stage(run), intensity=f"({per_tile[0]}) / ({both})" if both != "0" else "", lines=shown,
        variables={**run.variables, **described}, conditions=tuple(run.assumed), not_counted=tuple(not_counted),
        unbound=unbound, assumptions=(_ASSUMED, _CACHES, *((f"No cost of a launch: {reason}.",) if reason else ())), evaluated=numbers,
    )  # fmt: skip


def _fields(per_tile: Sequence[str], per_launch: Sequence[str]) -> dict[str, Any]:
    """The four formulas of a tile and, where they are known, of a launch under their names in `Cost`."""
    fields = ("flops", "matmul_flops", "read_bytes", "write_bytes")
    return {
        **dict(zip(fields, per_tile, strict=True)),
        **{f"launch_{f}": t for f, t in zip(fields, per_launch, strict=True) if t},
    }


def cuda_cost(record: Record, grids: Sequence[Launch], sizes: Mapping[str, int]) -> Cost:
    """The cost of one thread block, and of a launch where every block does the same."""
    zero, counts = Formula.const(0), record.counts
    missing = dict.fromkeys(record.not_counted)
    total, matmul, read, write = zero, zero, zero, zero
    lines: dict[tuple[str, int, str, str], list[Formula]] = {}
    for entry, count in record.entries.items():
        times = record.times[entry.times] * count
        product = times * Formula.const(entry.product) if entry.product else zero
        flops = times * entry.flops + product if entry.flops else product
        loaded = times * counts.read(entry.read) if entry.read else zero
        stored = times * counts.read(entry.written) if entry.written else zero
        if "threadIdx" in counts.show(flops + loaded + stored):
            missing.setdefault(f"{entry.operation} at line {entry.line}, which differs from thread to thread")
            continue
        line = lines.setdefault((entry.file, entry.line, entry.via, entry.operation), [zero, zero])
        line[0], line[1] = line[0] + flops, line[1] + loaded + stored
        total, matmul, read, write = total + flops, matmul + product, read + loaded, write + stored
    shown = tuple(
        CostLine(file=file, line=line, via=via, operation=operation, basis="evaluated",
                 flops=counts.show(flops) if flops != 0 else "", bytes=counts.show(size) if size != 0 else "")
        for (file, line, via, operation), (flops, size) in lines.items() if flops != 0 or size != 0
    )  # fmt: skip
    reason, launch = _of_launch(record, grids)
    per_block = [counts.show(f) for f in (total, matmul, read, write)]
    per_launch = ["" if launch is None else counts.show(f * launch) for f in (total, matmul, read, write)]
    texts = _fields(per_block, per_launch)
    names = dict.fromkeys(n for text in texts.values() for n in names_of(text))
    numbers, unbound = _evaluated(texts, names, sizes)
    against = [condition for condition in record.conditions if contradicted(condition, sizes)]
    said = [f"Nothing was evaluated: the sizes given are against the condition {c}." for c in against[:1]]
    both = counts.show(read + write)
    return Cost(
        **texts, intensity=f"({per_block[0]}) / ({both})" if both != "0" else "", lines=shown,
        variables={n: text for n, text in record.variables.items() if n in names}, conditions=tuple(record.conditions),
        not_counted=tuple(missing), unbound=unbound,
        assumptions=(_FULL, _CACHES, *record.assumptions, *((f"No cost of a launch: {reason}.",) if reason else ()), *said),
        evaluated={} if against else numbers,
    )  # fmt: skip


def contradicted(condition: str, sizes: Mapping[str, int]) -> bool:
    """Whether a condition that compares two formulas does not hold at the sizes that are given."""
    found = re.match(r"^(.*?) (==|!=|<=|>=|<|>) (.*?)(?: \(.*line \d+.*\))?$", condition)
    if found is None or re.search(r"&&|\|\||\b(?:and|or)\b", condition):
        return False
    left, right = (evaluate(text, sizes) for text in (found[1], found[3]))
    return left is not None and right is not None and not _COMPARES[found[2]](left, right)


def _of_launch(record: Record, grids: Sequence[Launch]) -> tuple[str, Formula | None]:
    """(why a launch has no cost, the number of blocks of every launch)."""
    tiles = dict.fromkeys(g.num_tiles for g in grids)
    reason = f"blocks do not all do the same ({'; '.join(record.uneven)})" if record.uneven else _no_grid(tiles)
    return reason, None if reason else record.counts.read(next(iter(tiles)))


def _no_grid(tiles: Mapping[str, None]) -> str:
    if not tiles:
        return "no launch was found"
    return "launches use different grids" if len(tiles) > 1 else "the grid is not resolved" if "" in tiles else ""


def _evaluated(
    texts: Mapping[str, str], names: Iterable[str], sizes: Mapping[str, int]
) -> tuple[dict[str, int | float], tuple[str, ...]]:  # fmt: skip
    """The formulas that `sizes` bind as numbers, with FLOPs per byte, and the names that it does not give."""
    if not sizes:
        return {}, ()
    every = sizes.get("element_size()")  # one word for the elements of all tensors
    if every is not None:
        sizes = {**{n: every for n in names if n.endswith(".element_size()")}, **sizes}
    numbers = {name: _plain(number) for name, text in texts.items() if (number := evaluate(text, sizes)) is not None}
    moved = numbers.get("read_bytes", 0) + numbers.get("write_bytes", 0)
    if moved and {"flops", "read_bytes", "write_bytes"} <= set(numbers):
        numbers["intensity"] = round(numbers["flops"] / moved, 3)
    return numbers, tuple(n for n in names if n not in sizes)


def _stage(run: Run) -> str:
    """Bytes that one iteration of the products' loop loads as operands; '' where not all of them come so, in one loop."""
    loops = {loop for loop, _, _ in run.products}
    loads = dict.fromkeys(load for _, *pair in run.products for load in pair)
    if len(loops) != 1 or loops == {0} or -1 in loads or any(run.events[i].loop not in loops for i in loads):
        return ""
    sizes = [_moved(run.events[i], run) for i in loads]
    total = Formula.const(0)
    for size in sizes:
        if size is None:
            return ""
        total = total + size
    return run.counts.show(total)


def _plain(number: Fraction) -> int | float:
    return number.numerator if number.denominator == 1 else float(number)


def _counted(event: Event, run: Run) -> Formula:
    """FLOPs of one execution; arithmetic on what turns out to be an index is none."""
    index = event.kind == "flops" and event.value.sources and event.value.sources <= run.indices
    return Formula.const(0) if index or event.flops is None else event.flops


def _moved(event: Event, run: Run) -> Formula | None:
    """Bytes of one execution of an access; None where its shape is not known."""
    if event.kind not in ("load", "store", "atomic"):
        return Formula.const(0)
    if event.value.shape is None:
        return None
    element = run.counts.read(event.value.element or f"{{{event.value.pointer or 'element'}.element_size()}}")
    return element * run.counts.size(event.value.shape)


def placed(operations: Sequence[MemoryOperation], nodes: Sequence[int], run: Run) -> list[MemoryOperation]:
    """Loads or stores with the shape, the steps and the bytes of one execution, by the syntax node of each."""
    found: dict[int, Event] = {}
    for event in run.events:
        if event.kind in ("load", "store", "atomic"):
            found.setdefault(event.node, event)
    made = []
    for operation, node in zip(operations, nodes, strict=True):
        met = found.get(node)
        if met is None or met.value.shape is None:
            made.append(operation)
            continue
        value, size = met.value, _moved(met, run)
        shape = value.shape or ()
        made.append(operation.model_copy(update={
            "shape": shape, "strides": value.strides if len(value.strides) == len(shape) else (),
            "coalesced": coalesced(value), "bytes": run.counts.show(size) if size is not None else "",
        }))  # fmt: skip
    return made


def coalesced(value: Value) -> str:
    """Whether neighbouring elements of a tile lie side by side in memory, or when they do."""
    shape = value.shape or ()
    steps = [(size, step) for size, step in zip(shape, value.strides, strict=False) if size != "1"]
    if not steps:
        return "one element"
    if any(step == "1" for _, step in steps):
        return "yes"
    if any(step == "-1" for _, step in steps):
        return "yes, downwards"
    if all(step == "" for _, step in steps):
        return "no: gathered through an index" if value.sources else ""
    named = [step for _, step in steps if step and not step.lstrip("-").isdigit()]
    if named:
        open_ = " or along an axis whose step is not told" if any(step == "" for _, step in steps) else ""
        return "where " + " or ".join(f"{step} == 1" for step in dict.fromkeys(named)) + open_
    if any(step == "" for _, step in steps):
        return ""
    if all(step == "0" for _, step in steps):
        return "one element for all"
    return f"no: {', '.join(step or 'an index' for _, step in steps)} elements apart"
