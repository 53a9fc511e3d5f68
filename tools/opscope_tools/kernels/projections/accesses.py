"""Loads and stores as they are listed: each expression once, with its tile, its steps and the condition it stands under."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from opscope_schemas.formula import Formula
from opscope_schemas.tiling import MemoryOperation

from opscope_tools.kernels.run.events import Access, Event
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.run.paths import when

E = TypeVar("E", bound=Event)


def pointers(events: Iterable[Event]) -> frozenset[str]:
    """Parameters and arrays that an address starts from for certain."""
    accesses = [e for e in events if isinstance(e, Access) and e.space != "register"]
    certain = frozenset(e.roots[0] for e in accesses if len(e.roots) == 1)
    return certain | {root_of(e, certain) for e in accesses} - {""}


def root_of(access: Access, certain: frozenset[str]) -> str:
    """What an address starts from: of several that are added in it, the one that is an address elsewhere."""
    return next((r for r in access.roots if r in certain), access.roots[0] if access.roots else "")


def moved(access: Access, certain: frozenset[str], log: Log) -> Formula | None:
    """Bytes of one execution; None where the shape is not known."""
    if access.shape is None:
        return None
    element = access.element_bytes or f"{{{root_of(access, certain) or 'element'}.element_size()}}"
    return log.counts.read(element) * log.counts.size(access.shape)


def loads(log: Log, certain: frozenset[str]) -> list[MemoryOperation]:
    """What is read."""
    return _listed(log, certain, {"load"})


def stores(log: Log, certain: frozenset[str]) -> list[MemoryOperation]:
    """What is written, or read and written."""
    return _listed(log, certain, {"store", "atomic", "copy"})


def _listed(log: Log, certain: frozenset[str], kinds: set[str]) -> list[MemoryOperation]:
    accesses = [e for e in log.events if isinstance(e, Access) and e.what in kinds and e.space != "register"]
    made = []
    for alike in grouped(accesses):
        first = next((a for a in alike if a.counted and a.shape is not None), alike[0])
        size, shape = moved(first, certain, log), first.shape or ()
        made.append(MemoryOperation(
            line=first.line, file=first.file, operation=first.operation, level="global", expression=first.text,
            parameter=root_of(first, certain), variable=first.into, definition=first.definition, mask=first.mask,
            mask_definition=first.mask_definition, loop=first.loop, via=first.via, shape=shape,
            strides=first.steps if first.steps and len(first.steps) == len(shape) else (), coalesced=coalesced(first),
            bytes=str(size) if size is not None else "", when=when([a.path for a in alike]),
            counted=any(a.counted for a in alike),
        ))  # fmt: skip
    return made


def grouped(events: Iterable[E]) -> list[list[E]]:
    """What one expression does each time that it is met; those of one function in the order of its lines."""
    found: dict[tuple[str, int, str, int], list[E]] = {}
    for event in events:
        found.setdefault(event.place, []).append(event)
    in_order: dict[tuple[str, str], list[list[E]]] = {}
    for alike in sorted(found.values(), key=lambda alike: (-alike[0].line, -alike[0].node)):
        in_order.setdefault((alike[0].file, alike[0].via), []).append(alike)
    return [in_order[alike[0].file, alike[0].via].pop() for alike in found.values()]


def coalesced(access: Access) -> str:
    """Whether neighbouring elements of a tile lie side by side in memory, or when they do."""
    if access.shape is None:
        return ""
    told = access.steps or ("",) * len(access.shape)
    steps = [step for size, step in zip(access.shape, told, strict=False) if size != "1"]
    return beside(steps, access.gathered) if steps else "one element"


def beside(steps: Sequence[str], gathered: bool = False) -> str:
    """Whether steps along axes or lanes lead to what lies side by side, or when they do."""
    if "1" in steps:
        return "yes"
    if "-1" in steps:
        return "yes, downwards"
    if not any(steps):
        return "no: gathered through an index" if gathered else ""
    named = [step for step in steps if step and not step.lstrip("-").isdigit()]
    if named:
        open_ = " or along an axis whose step is not told" if "" in steps else ""
        return "where " + " or ".join(f"{step} == 1" for step in dict.fromkeys(named)) + open_
    if "" in steps:
        return ""
    if all(step == "0" for step in steps):
        return "one element for all"
    return f"no: {', '.join(steps)} elements apart"


__all__ = ["beside", "coalesced", "grouped", "loads", "moved", "pointers", "root_of", "stores"]
