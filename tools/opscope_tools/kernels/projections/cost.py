"""What one tile and one launch of a kernel compute and move: the abstract run's events added up, and put on its accesses.

Bytes are what the kernel asks of memory: each access in full, masked elements too, whatever a cache then saves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from opscope_schemas.formula import Formula
from opscope_schemas.tiling import Cost, CostLine, Launch

from opscope_tools.kernels.projections.accesses import moved
from opscope_tools.kernels.run.events import MOVES, Access, Arithmetic, Branch, Event, Part, Product, Unknown
from opscope_tools.kernels.run.log import Log, Lost
from opscope_tools.kernels.values.conditions import canonical, negated
from opscope_tools.kernels.values.expressions import COMPARISONS, Call, leaf, render
from opscope_tools.kernels.values.notation import Counts, evaluate, names_of, read_size
from opscope_tools.kernels.values.trips import at_least_none

_PARTS: tuple[Part, ...] = ("flops", "matmul", "read", "write")
_NAMES: Mapping[Part, str] = {
    "flops": "flops", "matmul": "matmul_flops", "read": "read_bytes", "write": "write_bytes",
}  # fmt: skip
#: a ratio says nothing where one of these is a lower bound
_OF_INTENSITY = {"flops", "read_bytes", "write_bytes"}
_ASSUMED = "Every tile is full: elements that a mask leaves out count, so that tiles at the edge cost less."
_FULL = "Every tile is full: threads that a bound leaves out count, so that blocks at the edge cost less."
_CACHES = "Bytes are those that the kernel asks for; what a cache serves again is not taken off."


def cost_of(
    log: Log, certain: frozenset[str], grids: Sequence[Launch], sizes: Mapping[str, int], settled: Sequence[str],
    what: str = "programs",
) -> Cost:  # fmt: skip
    """The cost of one program, and of a launch where every program does the same.

    `certain`: what addresses start from; `settled`: conditions under which parameters have the values of the run; `what` does
    the same: programs, or thread blocks.
    """
    sums, counts = _Sums(log, certain), log.counts
    shared = persistent(log, grids)
    reason, launch = _of_launch(log, grids, what, shared)
    totals = sums.totals()
    per_tile = ["" if f is None else str(f) for f in totals]
    summed = [None if f is None or launch is None else _of_programs(f, launch, shared, counts) for f in totals]
    per_launch = ["" if f is None else str(f) for f in summed]
    names = dict.fromkeys(n for text in (*per_tile, *per_launch) for n in names_of(text))
    described = {
        n: f"bytes of one element of {n.removesuffix('.element_size()')}"
        for n in names
        if n.endswith(".element_size()")
    }
    variables = {n: text for n, text in log.variables.items() if n in names}
    texts = _fields(per_tile, per_launch)
    numbers, unbound = evaluated_at(texts, names, sizes)
    both = "" if totals[2] is None or totals[3] is None else str(totals[2] + totals[3])
    least = _at_least(texts, {part for part, _ in sums.lost})
    if least & _OF_INTENSITY:
        both = ""
        numbers.pop("intensity", None)
    return Cost(
        **texts, stage_bytes=_stage(log, certain), lines=sums.lines(), at_least=tuple(f for f in texts if f in least),
        intensity=f"({per_tile[0]}) / ({both})" if per_tile[0] and both not in {"", "0"} else "",
        variables={**variables, **described}, conditions=(*_conditions(log), *settled),
        not_counted=tuple(sums.missing), unbound=unbound, evaluated=numbers,
        assumptions=(_ASSUMED, _CACHES, *log.assumptions, *((f"No cost of a launch: {reason}.",) if reason else ())),
    )  # fmt: skip


@dataclass(frozen=True)
class Persistent:
    """A loop by which all programs of a launch share its tiles: `trip` in each, `tiles` in all."""

    trip: str
    tiles: str
    #: the grid's axes but that of the loop, over which the tiles are shared anew
    beside: tuple[str, ...]


def persistent(log: Log, grids: Sequence[Launch]) -> Persistent | None:
    """The loop that starts at the program's index and steps by the grid, where that is told of every launch."""
    for trip, (axis, bound, step) in log.from_index.items():
        along = {g.dimensions[axis] for g in grids if axis < len(g.dimensions)}
        beside = {(*g.dimensions[:axis], *g.dimensions[axis + 1 :]) for g in grids}
        varying = names_of(bound) and set(names_of(bound)) & log.varying
        whole = all(len(g.dimensions) > axis and _steps_by(g.dimensions[axis], axis, step, bound, log) for g in grids)
        if trip in log.uneven and len(along) == len(beside) == 1 and whole and not varying:
            tiles = read_size(bound)  # where it is less than none, no program runs the loop
            return Persistent(trip, render(at_least_none(tiles)), next(iter(beside)))
    return None


def _steps_by(grid: str, axis: int, step: str, bound: str, log: Log) -> bool:
    """Whether a step is the number of programs, or no less where there are no more tiles than programs."""
    if step in {grid, f"{{num_programs({axis})}}"}:
        return True
    match read_size(grid):
        case Call("min", (one, other)) if read_size(step) in (one, other):
            return log.counts.read(other if read_size(step) == one else one) == log.counts.read(bound)
    return False


def _of_programs(each: Formula, programs: Formula, shared: Persistent | None, counts: Counts) -> Formula | None:
    """What all programs of a launch do together; None where that is no multiple of their tiles."""
    if shared is None:
        return each * programs
    (name,) = counts.factor(shared.trip).variables()
    none, one, two = (each.substitute({name: n}) for n in range(3))
    if two - one != one - none:
        return None
    return none * programs + (one - none) * counts.size((shared.tiles, *shared.beside))


class _Sums:
    """The events of a log that a cost counts, added up by line and in all."""

    def __init__(self, log: Log, certain: frozenset[str]) -> None:
        self.log, self.certain = log, certain
        self.total: dict[Part, Formula] = dict.fromkeys(_PARTS, Formula.const(0))
        self.by_line: dict[tuple[str, int, str, str], list[Formula]] = {}
        #: what is not counted, and in which loop what of it is lost and what is counted
        self.missing: dict[str, None] = {}
        self.lost: set[tuple[Part, int]] = set()
        self.within: set[tuple[Part, int]] = set()
        for event in log.events:
            if event.counted:
                self._add(event)

    def _add(self, event: Event) -> None:
        match event:
            case Access():
                parts = MOVES[event.what]
                size = moved(event, self.certain, self.log)
                if size is None:
                    self._miss(event, f"the {event.what} of a tile of unknown shape", parts)
                else:
                    self._put(event, event.what, Formula.const(0), size, parts)
            case Arithmetic(sources=sources) if not self.log.only_indices(sources):
                self._put(event, event.operation, event.flops, Formula.const(0), ["flops"])
            case Product():
                self._put(event, event.operation, event.flops, Formula.const(0), ["flops", "matmul"])
            case Unknown():
                index = self.log.only_indices(event.sources)
                if not index and (not event.roots or self.certain & set(event.roots)):
                    self._miss(event, event.what, event.loses)

    def _put(self, event: Event, operation: str, flops: Formula, size: Formula, parts: Iterable[Part]) -> None:
        flops, size = flops * event.times, size * event.times
        entry = self.by_line.setdefault((event.file, event.line, event.via, operation), [Formula.const(0)] * 2)
        entry[0], entry[1] = entry[0] + flops, entry[1] + size
        for part in parts:
            self.total[part] = self.total[part] + (flops if part in {"flops", "matmul"} else size)
            self.within.add((part, event.loop))

    def _miss(self, event: Event, what: str, parts: Iterable[Part]) -> None:
        self.missing.setdefault(f"{what} (line {event.line})")
        self.lost |= {(part, event.loop) for part in parts}

    def totals(self) -> list[Formula | None]:
        """FLOPs, of these products, bytes read and written; None where nothing of what matters of it is counted."""
        missing: set[Part] = {
            part for part, loop in self.lost if self.total[part] == 0 or (loop and (part, loop) not in self.within)
        }
        if "matmul" in missing:  # they are most of it
            missing.add("flops")
        return [None if part in missing else self.total[part] for part in _PARTS]

    def lines(self) -> tuple[CostLine, ...]:
        return tuple(
            CostLine(file=file, line=line, via=via, operation=operation, basis="evaluated",
                     flops=str(flops) if flops != 0 else "", bytes=str(size) if operation in MOVES else "")
            for (file, line, via, operation), (flops, size) in self.by_line.items() if flops != 0 or operation in MOVES
        )  # fmt: skip


def _conditions(log: Log) -> tuple[str, ...]:
    """Branches that were taken to be so, each where it was first."""
    found: dict[tuple[str, bool], str] = {}
    for event in log.events:
        if isinstance(event, Branch) and event.counted and event.holds is not None:
            shown = event.test if event.holds else negated(event.test)
            found.setdefault(canonical(shown), f"{shown} (line {event.line})")
    return tuple(found.values())


def _at_least(texts: Mapping[str, str], lost: set[Part]) -> set[str]:
    """The totals that are told and lack something."""
    short = {_NAMES[part] for part in lost}
    return {field for field, text in texts.items() if text and field.removeprefix("launch_") in short}


def _fields(per_tile: Sequence[str], per_launch: Sequence[str]) -> dict[str, Any]:
    """The four formulas of a tile and, where they are known, of a launch under their names in `Cost`."""
    return {
        **dict(zip(_NAMES.values(), per_tile, strict=True)),
        **{f"launch_{f}": t for f, t in zip(_NAMES.values(), per_launch, strict=True) if t},
    }


def cuda_cost(log: Log, grids: Sequence[Launch], sizes: Mapping[str, int]) -> Cost:
    """The cost of one thread block, and of a launch where every block does the same."""
    zero, counts = Formula.const(0), log.counts
    missing = dict(log.sums.not_counted)
    total, matmul, read, write = zero, zero, zero, zero
    lines: dict[tuple[str, int, str, str], list[Formula]] = {}
    reached: dict[Part, int] = {}
    for entry, count in log.sums.entries.items():
        times = log.times[entry.times] * count
        product = times * Formula.const(entry.product) if entry.product else zero
        flops = times * entry.flops + product if entry.flops else product
        loaded = times * counts.read(entry.read) if entry.read else zero
        stored = times * counts.read(entry.written) if entry.written else zero
        if "threadIdx" in str(flops + loaded + stored):
            lost = Lost(entry.parts, entry.loops)
            missing.setdefault(f"{entry.operation} at line {entry.line}, which differs from thread to thread", lost)
            continue
        for part in entry.parts:
            reached[part] = max(reached.get(part, 0), entry.loops)
        line = lines.setdefault((entry.file, entry.line, entry.via, entry.operation), [zero, zero])
        line[0], line[1] = line[0] + flops, line[1] + loaded + stored
        total, matmul, read, write = total + flops, matmul + product, read + loaded, write + stored
    shown = tuple(
        CostLine(file=file, line=line, via=via, operation=operation, basis="evaluated",
                 flops=str(flops) if flops != 0 else "", bytes=str(size) if size != 0 else "")
        for (file, line, via, operation), (flops, size) in lines.items() if flops != 0 or size != 0
    )  # fmt: skip
    for name in names_of(f"{total} + {read} + {write}"):  # what differs from block to block has no total
        said = any(name in names_of(text) for text in log.uneven)
        if not said and (name.startswith("blockIdx.") or name in log.varying):
            log.uneven[leaf(name).text] = None
    reason, launch = _of_launch(log, grids, "blocks")
    told = [_told(part, reached, missing.values()) for part in _PARTS]
    sums = list(zip((total, matmul, read, write), told, strict=True))
    per_block = [str(f) if known else "" for f, known in sums]
    per_launch = ["" if launch is None or not known else str(f * launch) for f, known in sums]
    texts = _fields(per_block, per_launch)
    names = dict.fromkeys(n for text in texts.values() for n in names_of(text))
    numbers, unbound = evaluated_at(texts, names, sizes)
    against = [condition for condition in log.sums.conditions if contradicted(condition, sizes)]
    warned = [f"Nothing was evaluated: the sizes given are against the condition {c}." for c in against[:1]]
    both = str(read + write)
    least = _at_least(texts, {part for one in missing.values() for part in one.parts})
    whole = told[0] and told[2] and told[3] and both != "0" and not least & _OF_INTENSITY
    if least & _OF_INTENSITY:
        numbers.pop("intensity", None)
    return Cost(
        **texts, at_least=tuple(f for f in texts if f in least), intensity=f"({per_block[0]}) / ({both})" if whole else "", lines=shown,
        variables={n: text for n, text in log.variables.items() if n in names}, conditions=tuple(log.sums.conditions),
        not_counted=tuple(missing), unbound=unbound,
        assumptions=(_FULL, _CACHES, *log.assumptions, *((f"No cost of a launch: {reason}.",) if reason else ()), *warned),
        evaluated={} if against else numbers,
    )  # fmt: skip


def _told(part: Part, reached: Mapping[Part, int], missing: Iterable[Lost]) -> bool:
    """Whether a sum says something: what is not counted of it stands no deeper in loops than what is."""
    lost = [one.loops for one in missing if part in one.parts]
    return not lost or (part in reached and max(lost) <= reached[part])


def contradicted(condition: str, sizes: Mapping[str, int]) -> bool:
    """Whether a condition that compares two formulas does not hold at the sizes that are given."""
    found = re.match(r"^(.*?) (==|!=|<=|>=|<|>) (.*?)(?: \(.*line \d+.*\))?$", condition)
    if found is None or re.search(r"&&|\|\||\b(?:and|or)\b", condition):
        return False
    left, right = (evaluate(text, sizes) for text in (found[1], found[3]))
    return left is not None and right is not None and not COMPARISONS[found[2]](left, right)


def _of_launch(
    log: Log, grids: Sequence[Launch], what: str, shared: Persistent | None = None
) -> tuple[str, Formula | None]:
    """(why a launch has no cost, the number of blocks or programs of every launch)."""
    tiles = dict.fromkeys(g.num_tiles for g in grids)
    uneven = [trip for trip in log.uneven if shared is None or trip != shared.trip]
    reason = f"{what} do not all do the same ({'; '.join(uneven)})" if uneven else _no_grid(tiles)
    return reason, None if reason else log.counts.read(next(iter(tiles)))


def common_tiles(grids: Sequence[Launch]) -> str:
    """The number of tiles where all resolved launch sites agree on it; else the alternatives, joined by `or`."""
    return " or ".join(dict.fromkeys(g.num_tiles for g in grids if g.num_tiles))


def _no_grid(tiles: Mapping[str, None]) -> str:
    if not tiles:
        return "no launch was found"
    return "launches use different grids" if len(tiles) > 1 else "the grid is not resolved" if "" in tiles else ""


def evaluated_at(
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


def _stage(log: Log, certain: frozenset[str]) -> str:
    """Bytes that one iteration of the products' loop loads as operands; '' where not all of them come so, in one loop."""
    products = [e for e in log.events if isinstance(e, Product) and e.counted]
    loops = {e.loop for e in products}
    places = dict.fromkeys(place for e in products for place in e.operands)
    if len(loops) != 1 or loops == {0} or -1 in places:
        return ""
    total = Formula.const(0)
    for place in places:
        access = log.events[place]
        size = moved(access, certain, log) if isinstance(access, Access) and access.loop in loops else None
        if size is None:
            return ""
        total = total + size
    return str(total)


def _plain(number: Fraction) -> int | float:
    return number.numerator if number.denominator == 1 else float(number)
