"""What the events of a CUDA kernel's run say of it, list by list: accesses, mapping, shared memory, loops, instructions, calls.

Pure functions of the events; what a line does in several turns or calls is one entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from opscope_schemas.tiling import (
    DeviceCall,
    IndexMapping,
    Instruction,
    Level,
    Loop,
    MemoryOperation,
    SharedArray,
)

from opscope_tools.kernels.projections.accesses import beside
from opscope_tools.kernels.run import events
from opscope_tools.kernels.run.log import MEMORY
from opscope_tools.kernels.run.paths import when

E = TypeVar("E", bound=events.Event)
_LEVELS: dict[str, Level] = {"global": "global", "shared": "shared", "constant": "constant"}
_MAPPINGS = 80


def of_kind(every: Iterable[events.Event], kind: type[E]) -> list[E]:
    """The events of a kind: the kernel's own by their place, then those of the functions that it calls."""
    ways: dict[str, list[E]] = {"": []}
    for event in every:
        if isinstance(event, kind):
            ways.setdefault(event.via, []).append(event)
    return [event for via in ways.values() for event in sorted(via, key=lambda e: e.node)]


def loads_and_stores(every: Iterable[events.Event]) -> tuple[tuple[MemoryOperation, ...], tuple[MemoryOperation, ...]]:
    """What the kernel reads and what it writes; what does both at once is among the stores."""
    loads: dict[MemoryOperation, None] = {}
    stores: dict[MemoryOperation, None] = {}
    for event in of_kind(every, events.Access):
        kept = loads if event.what in {"load", "copy"} else stores
        kept.setdefault(_operation(event))
    return tuple(loads), tuple(stores)


def _operation(event: events.Access) -> MemoryOperation:
    inside = event.space == "global"
    return MemoryOperation(
        line=event.line, file=event.file, level=_LEVELS[event.space], expression=event.text, loop=event.loop, via=event.via,
        operation=event.operation, parameter=" or ".join(event.roots) if inside else "", definition=event.definition,
        assumptions=(event.assumes,) if event.assumes else (), width=event.width, strides=event.steps,
        coalesced=beside(event.steps) if event.steps and inside else "", when=when((event.path,)),
        counted=event.counted,
    )  # fmt: skip


def unresolved(every: Iterable[events.Event]) -> list[str]:
    """Accesses that may hide in what is not followed, as they are spelled."""
    named = dict.fromkeys(e.what for e in of_kind(every, events.Unknown) if e.what and e.loses & MEMORY)
    return [n for n in named if not any(n != other and n.startswith(other) for other in named)]


def mapping(every: Iterable[events.Event]) -> tuple[IndexMapping, ...]:
    """Lines that make indices; of those that use the block's index in place the ones where no variable takes it."""
    found = of_kind(every, events.Mapping)
    named = {(e.file, e.line) for e in found if e.variable}
    made: dict[tuple[str, int, str, str], IndexMapping] = {}
    for event in found:
        if event.variable or (event.file, event.line) not in named:
            key = event.file, event.line, event.variable, event.text if event.variable else ""
            entry = IndexMapping(
                line=event.line, file=event.file, axis=event.axis, variable=event.variable, expression=event.text,
                via=event.via, when=when((event.path,)),
            )  # fmt: skip
            made.setdefault(key, entry)
    return tuple(made.values())[:_MAPPINGS]


def shared_memory(every: Iterable[events.Event]) -> tuple[SharedArray, ...]:
    """Arrays in shared memory."""
    made = [
        SharedArray(
            line=e.line, file=e.file, name=e.name, type=e.type, dynamic=e.dynamic, bytes=e.bytes, dimensions=e.dimensions,
            via=e.via, formula=e.formula, basis="source" if e.dynamic or e.bytes is None else "evaluated",
        )
        for e in of_kind(every, events.Allocation)
    ]  # fmt: skip
    return tuple(dict.fromkeys(made))


def loops(every: Iterable[events.Event]) -> tuple[Loop, ...]:
    """Loops, each with how often it runs in one thread."""
    return tuple(
        Loop(
            line=e.line, file=e.file, variable=e.variable, expression=e.text, trip_count=e.trips, kind=e.kind, via=e.via,
            basis="evaluated" if e.trips else "source", when=when((e.path,)),
            assumptions=("it is not left early",) if e.trips and e.left_early else (),
        )
        for e in of_kind(every, events.Loop)
    )  # fmt: skip


def instructions(every: Iterable[events.Event]) -> tuple[Instruction, ...]:
    """Instructions, each once on a line."""
    made: dict[tuple[str, str, int, str], Instruction] = {}
    for e in of_kind(every, events.Instruction):
        key = e.via, e.file, e.line, e.operation
        entry = Instruction(
            line=e.line, file=e.file, operation=e.operation, expression=e.text, via=e.via, when=when((e.path,))
        )
        made.setdefault(key, entry)
    return tuple(made[key] for key in sorted(made, key=lambda k: k[:3]))


def calls(every: Iterable[events.Event], file: str) -> tuple[DeviceCall, ...]:
    """The device functions that are called, each once; `file`: that of the kernel."""
    made: dict[str, DeviceCall] = {}
    for e in of_kind(every, events.Call):
        known = made.get(e.name)
        if known is None or (e.followed and not known.followed):
            made[e.name] = DeviceCall(
                line=known.line if known else e.line, file=known.file if known else "" if e.file == file else e.file,
                name=e.name, followed=e.followed,
            )  # fmt: skip
    return tuple(made.values())


__all__ = [
    "calls", "instructions", "loads_and_stores", "loops", "mapping", "shared_memory", "unresolved",
]  # fmt: skip
