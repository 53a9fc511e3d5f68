"""What the lines of a kernel are: where its tile lies, its loops, instructions, checks, calls and the sizes of its tiles."""

from __future__ import annotations

import re
from collections.abc import Mapping as Table
from typing import TypeVar

from opscope_schemas.tiling import Constraint, DeviceCall, IndexMapping, Instruction, Loop, TileSize

from opscope_tools.kernels.projections.accesses import grouped
from opscope_tools.kernels.run import events
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.run.paths import when
from opscope_tools.kernels.values.notation import names_of

_TILE_NAME = re.compile(r"(?i)block|tile|chunk|^B[A-Z]{1,2}$|^BLK")
_MOST_USES = 6

E = TypeVar("E", bound=events.Event)


def mapping(log: Log) -> list[IndexMapping]:
    """Lines that turn a program's id into where its tile lies."""
    return [
        IndexMapping(line=e.line, file=e.file, axis=e.axis, variable=e.variable, expression=e.text, via=e.via, when=condition)
        for e, condition in _each(log, events.Mapping)
        if not any(_is_tile(log.events[source]) for source in e.sources - log.indices)
    ]  # fmt: skip


def _is_tile(source: events.Event) -> bool:
    return isinstance(source, events.Access) and source.shape != ()


def loops(log: Log) -> list[Loop]:
    """Loops; one that runs another number of times when it is come to again stands twice."""
    return [
        Loop(
            line=e.line, file=e.file, variable=e.variable, expression=e.text, trip_count=e.trips, kind=e.kind, via=e.via,
            when=condition,
        )
        for e, condition in _each(log, events.Loop)
    ]  # fmt: skip


def instructions(log: Log) -> list[Instruction]:
    """Every hardware instruction, with the condition that it is under."""
    return [
        Instruction(line=e.line, file=e.file, operation=e.operation, expression=e.text, via=e.via, when=condition)
        for e, condition in _each(log, events.Instruction)
    ]


def constraints(log: Log) -> list[Constraint]:
    """Every assertion, with the condition that it is under."""
    return [
        Constraint(
            line=e.line, file=e.file, kind=e.kind, condition=e.condition, message=e.message, via=e.via, when=condition
        )
        for e, condition in _each(log, events.Check)
    ]


def calls(log: Log) -> list[DeviceCall]:
    """Functions that are called, each where it is first."""
    found: dict[str, DeviceCall] = {}
    for event in log.events:
        if isinstance(event, events.Call):
            made = DeviceCall(line=event.line, file=event.file, name=event.name, followed=event.followed)
            known = found.setdefault(event.name, made)
            if known.file == made.file and made.line < known.line:
                found[event.name] = made
    return list(found.values())


def tile_sizes(log: Log, compile_time: frozenset[str], values: Table[str, tuple[str, ...]]) -> list[TileSize]:
    """The compile-time names that measure tiles, with the values found for them."""
    uses: dict[str, dict[str, tuple[str, int]]] = {}
    scaled: list[tuple[str, str, events.Event]] = []
    for event in log.events:
        if isinstance(event, events.Allocation):
            for name in dict.fromkeys(n for size in event.dimensions for n in names_of(size) if n in compile_time):
                uses.setdefault(name, {}).setdefault(event.text, (event.file, event.line))
        elif isinstance(event, events.Mapping):
            scaled += [(name, text, event) for name, text in event.scaled]
    for name, text, event in scaled:  # a tile size if it also measures a tile or is named as one
        if name in uses or _TILE_NAME.search(name):
            uses.setdefault(name, {}).setdefault(text, (event.file, event.line))
    return [
        TileSize(
            line=next(iter(places.values()))[1], file=next(iter(places.values()))[0], name=name, values=values.get(name, ()),
            used_as=tuple(places)[:_MOST_USES],
        )
        for name, places in uses.items()
    ]  # fmt: skip


def _each(log: Log, kind: type[E]) -> list[tuple[E, str]]:
    """Every event of a kind once, with the condition that it stands under."""
    found: list[tuple[E, str]] = []
    for alike in grouped([e for e in log.events if isinstance(e, kind)]):
        told: dict[tuple[object, ...], list[E]] = {}
        for event in alike:
            same = tuple(getattr(event, name) for name in ("variable", "trips", "text") if hasattr(event, name))
            told.setdefault(same, []).append(event)
        found += [(same[0], when([e.path for e in same])) for same in told.values()]
    return found
