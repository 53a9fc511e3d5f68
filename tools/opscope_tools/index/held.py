"""An interpreted object as rows: what each of its attributes holds, containers flattened, alternatives side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from opscope_tools.index.building import ClassValue, Instance, Machine
from opscope_tools.index.building.values import Choice, Label, Site, Unknown, both
from opscope_tools.index.resolve import ClassSymbol

__all__ = ["HeldModule", "merged", "rows"]

_CANDIDATES = 40
#: a call of something that is named as classes are
_MAKES = re.compile(r"(^|[^\w.])(\w+\.)*[A-Z]\w*\(")


@dataclass(frozen=True, eq=False)
class HeldModule:
    """One attribute that holds a module (or, for `x.*`, the modules in the container `x`).

    `at_default`: whether the configuration's defaults take this alternative; None where source does not tell. Where
    the class is not known, `candidates` are those that the expression chooses among, as far as a table names them.
    """

    attribute: str
    class_name: str
    symbol: ClassSymbol | None
    file: str
    line: int
    arguments: str = ""
    condition: str = ""
    repeat: str = ""
    dispatch: str = ""
    at_default: bool | None = True
    candidates: tuple[str, ...] = ()


def rows(machine: Machine, this: Instance) -> list[HeldModule]:
    """What the instance's attributes hold, containers flattened."""
    found: list[HeldModule] = []
    reader = _Reader(machine, this, found)
    own = machine.container(this.cls)
    for name, value in list(this.attrs.items()):
        shown = reader.part(this, name, value) if own and name.isdigit() else _pattern(name)
        reader.flatten(shown, value, "", True)
    return found


def _pattern(name: str) -> str:
    return name.pattern if isinstance(name, Label) else name


@dataclass(eq=False)
class _Reader:
    machine: Machine
    owner: Instance
    found: list[HeldModule]

    def flatten(self, attribute: str, value: Any, condition: str, live: bool | None) -> None:
        if isinstance(value, Choice):
            for option in value.options:
                both_live = False if False in (live, option.live) else (live and option.live)
                self.flatten(attribute, option.value, both(condition, option.condition), both_live)
        elif isinstance(value, Instance) and value.module:
            self.module(attribute, value, condition, live)
        elif isinstance(value, Unknown) and (
            value.classes or "." in attribute or (value.failed and _MAKES.search(value.text)) or self.called(attribute)
        ):
            symbol = self.owner.cls.symbol
            names = tuple(sorted(cls.qualified_name for cls in value.classes))[:_CANDIDATES]
            self.found.append(
                HeldModule(
                    attribute=attribute,
                    class_name="",
                    symbol=None,
                    file=symbol.file,
                    line=symbol.line,
                    condition=condition,
                    dispatch=value.text or value.name,
                    at_default=None if live else live,
                    candidates=names,
                )
            )

    def called(self, attribute: str) -> bool:
        """Whether the class calls `self.attribute`."""
        if "." in attribute or not attribute.isidentifier():
            return False
        for cls in self.owner.cls.mro:
            if isinstance(cls, ClassValue) and not cls.symbol.module.startswith("torch."):
                symbol = cls.symbol
                lines = symbol.unit.tree.source(symbol.file).split(b"\n")[symbol.line - 1 : symbol.end_line]
                if re.search(rb"\bself\.%s\(" % attribute.encode(), b"\n".join(lines)):
                    return True
        return False

    def module(self, attribute: str, value: Instance, condition: str, live: bool | None) -> None:
        site = self.site(value)
        symbol = value.cls.symbol
        self.found.append(
            HeldModule(
                attribute=attribute,
                class_name=symbol.qualified_name,
                symbol=symbol,
                file=site.unit.file if site is not None else self.owner.cls.symbol.file,
                line=site.line if site is not None else self.owner.cls.symbol.line,
                arguments=site.arguments if site is not None else "",
                condition=condition,
                repeat=site.repeat if site is not None else "",
                dispatch=site.dispatch if site is not None else "",
                at_default=live,
            )
        )
        if self.machine.container(value.cls) and symbol.module.startswith("torch.") and value.waiting is None:
            for name, child in list(value.attrs.items()):
                self.flatten(f"{attribute}.{self.part(value, name, child)}", child, condition, live)

    def site(self, value: Instance) -> Site | None:
        """The place in the owner's construction that made the module."""
        for site in reversed(value.sites):
            if site.owner is self.owner:
                return site
        return value.sites[0] if value.sites else None

    def part(self, container: Instance, name: str, child: Any) -> str:
        """The name of a container's child: `*` where a loop makes several."""
        if not name.isdigit():
            return _pattern(name)
        lines = [self._line(other) for other in container.attrs.values()]
        mine = self._line(child)
        if mine is None or mine[1] or lines.count(mine) > 1:
            return "*"
        return name

    def _line(self, value: Any) -> tuple[int, str, int] | None:
        if isinstance(value, Choice):
            value = value.options[0].value
        if isinstance(value, Instance):
            site = self.site(value)
            return (site.line, site.repeat, site.column) if site is not None else None
        return None


def merged(found: list[HeldModule]) -> list[HeldModule]:
    """Each alternative once; the defaults take it where any of the objects has it."""
    order: dict[tuple[str, ...], HeldModule] = {}
    for row in found:
        key = (row.attribute, row.class_name, row.file, str(row.line), row.condition, row.dispatch)
        known = order.get(key)
        if known is None:
            order[key] = row
        elif known.at_default is not True and row.at_default is not False:
            order[key] = replace(known, at_default=row.at_default)
    by_attribute: dict[str, list[HeldModule]] = {}
    for row in order.values():
        by_attribute.setdefault(row.attribute, []).append(row)
    return [row for same in by_attribute.values() for row in same]
