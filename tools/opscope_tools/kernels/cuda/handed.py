"""What launches hand a kernel of CuTe's values: by its arguments, by its template parameters, by classes of traits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opscope_schemas.tiling import Constexpr, Launch, Parameter, TileSize

from opscope_tools.kernels.cuda.cute.values import KINDS, common, is_cute, shown, told_whole
from opscope_tools.kernels.cuda.launch.sites import CudaSite
from opscope_tools.kernels.cuda.names.template_arguments import Members


@dataclass(frozen=True)
class Handed:
    """CuTe's values by the place of a parameter, or by the name of a type or constant."""

    values: Mapping[int | str, Any]
    #: the launch that hands them, where others hand other kinds of values
    chosen: Launch | None = None


def handed(
    parameters: Sequence[Parameter], constexprs: Sequence[Constexpr], sites: Sequence[CudaSite],
    traits: Sequence[tuple[Constexpr, str, Members]],
) -> Handed:  # fmt: skip
    """What all launches hand alike; where they hand other kinds, what the first launch hands for which most is told."""
    found: dict[int | str, Any] = {}
    for parameter, _, members in traits:
        if len(parameter.values) == 1:
            numbers = {name: value for name, value in members.numbers.items() if isinstance(value, int)}
            found |= {f"{parameter.name}::{name}": value for name, value in {**numbers, **members.values}.items()}
    typed = _agreed([c.name for c in constexprs], [way for site in sites for way in site.typed])
    found |= {name: value for name, value in typed.items() if value is not None}
    ways = [(site, way) for site in sites for way in site.handed if any(map(is_cute, way))]
    given = _agreed([p.name for p in parameters], [way for _, way in ways])
    if None not in given.values():
        places = {p.name: place for place, p in enumerate(parameters)}
        return Handed(found | {places[name]: value for name, value in given.items()})
    site, way = max(ways, key=lambda one: sum(map(is_cute, one[1])))
    return Handed(found | {place: value for place, value in enumerate(way) if is_cute(value)}, site.launch)


def _agreed(names: Sequence[str], ways: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """What several ways give under each name, of those that one of them gives a value of CuTe's; None: not the same kind."""
    found = {}
    for place, name in enumerate(names):
        values = [way[place] if place < len(way) else None for way in ways]
        if any(map(is_cute, values)):
            found[name] = common(name, values) if all(map(is_cute, values)) else None
    return found


def tiles(parameters: Sequence[Parameter], sites: Sequence[CudaSite]) -> Iterable[TileSize]:
    """Tiles, layouts, copies and products that launches hand a kernel, as far as the compiler knows them whole."""
    for place, parameter in enumerate(parameters):
        values = [way[place] for site in sites for way in site.handed if place < len(way)]
        known = [value for value in values if type(value) in KINDS and told_whole(value)]
        if known:
            kinds = tuple(dict.fromkeys(KINDS[type(value)] for value in known))
            texts = tuple(dict.fromkeys(map(shown, known)))
            yield TileSize(line=parameter.line, name=parameter.name, values=texts, used_as=kinds, basis="evaluated")


__all__ = ["Handed", "handed", "tiles"]
