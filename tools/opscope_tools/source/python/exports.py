"""What `__all__` of a module lists, also where it is put together from those of other modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from opscope_tools.source.python.lookup_cache import Trail
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import AssignRow

if TYPE_CHECKING:
    from opscope_tools.source.python.guards import Evaluator
    from opscope_tools.source.python.names import Resolver


@dataclass(frozen=True)
class Exports:
    """What `__all__` of a module lists; not `complete` where a part of it is computed."""

    names: tuple[str, ...]
    complete: bool = True


def exports_of(resolver: Resolver, evaluator: Evaluator, unit: Unit, trail: Trail) -> Exports | None:
    """`__all__` of a module, with what it takes over from the `__all__` of others; None where it has none."""
    listed = unit.rows.exports
    if listed is None:
        return None
    step = (unit.tree, unit.file, "__all__", 0)
    if step not in trail.exports:
        with trail.at(trail.exports, step) as near:
            found = _put_together(resolver, evaluator, unit, listed, trail) if near else None
        trail.exports[step] = found
    return trail.exports[step]


def _put_together(
    resolver: Resolver, evaluator: Evaluator, unit: Unit, listed: tuple[str, ...], trail: Trail
) -> Exports:
    names: list[str] = []
    complete = True
    for entry in listed:
        if not entry.startswith(("*", "$", "?")):
            names.append(entry)
            continue
        part = _listed_elsewhere(resolver, evaluator, unit, entry, trail)
        names += part.names if part is not None else ()
        complete = complete and part is not None and part.complete
    return Exports(tuple(names), complete)


def _listed_elsewhere(resolver: Resolver, evaluator: Evaluator, unit: Unit, entry: str, trail: Trail) -> Exports | None:
    """A part of `__all__` that is not spelt out: `*module` for that module's `__all__`, `$name` for a variable."""
    kind, text = entry[0], entry[1:]
    found = resolver.dotted(unit, text, 0, trail) if kind in "*$" else None
    if found is None or found.unit is None:
        return None
    if kind == "*":
        return resolver.exports(found.unit, trail) if found.kind == "module" else None
    if text.endswith("__all__") or not isinstance(found.row, AssignRow):
        return None
    value = evaluator.assigned(found)
    literal = isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    return Exports(value) if literal else None
