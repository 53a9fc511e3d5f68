"""An interpreted object as rows: what each of its attributes holds, containers flattened, alternatives side by side."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from typing import Literal

from opscope_tools.index.objects import ClassValue, Instance
from opscope_tools.index.objects.values import (
    MISSING,
    Choice,
    FunctionValue,
    Label,
    Native,
    Option,
    Place,
    Site,
    Unknown,
    both,
)
from opscope_tools.source.python.names import ClassSymbol

__all__ = ["HeldModule", "merged", "rows"]

_CANDIDATES = 40
#: characters of an expression
_TEXT = 400
#: a call of something that is named as classes are
_MAKES = re.compile(r"(^|[^\w.])(\w+\.)*[A-Z]\w*\(")


#: `module`: registered, or of a class that source does not tell; `listed`: a module in a list of Python's own; what is
#: no module: `plain` numbers, flags and strings, `items` of a list or dict, an `object`, a `class`, a `function`, or `open`
Kind = Literal["module", "listed", "plain", "items", "object", "class", "function", "open"]


@dataclass(frozen=True, eq=False)
class HeldModule:
    """One attribute that holds a module (or, for `x.*`, the modules in the container `x`), or what else it holds.

    `at_default`: whether the configuration's defaults take this alternative; None where source does not tell. Where
    the class is not known, `candidates` are those that the expression chooses among, as far as a table names them.
    `text` is the expression that the attribute was set to, in the method `method` of the class `holder`.
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
    kind: Kind = "module"
    holder: ClassSymbol | None = None
    method: str = ""
    text: str = ""


def rows(this: Instance) -> list[HeldModule]:
    """What the instance's attributes hold, containers flattened."""
    reader = _Reader(this)
    own = this.cls.container()
    for name, value in list(this.attrs.items()):
        shown = reader.part(this, name, value) if own and name.isdigit() else _pattern(name)
        reader.flatten(shown, value, "", True, this.places.get((name, id(value))))
    return reader.found


def _pattern(name: str) -> str:
    return name.pattern if isinstance(name, Label) else name


@dataclass(eq=False)
class _Reader:
    owner: Instance
    found: list[HeldModule] = field(default_factory=list)

    def flatten(
        self,
        attribute: str,
        value: object,
        condition: str,
        live: bool | None,
        place: Place | None,
        kind: Kind = "module",
    ) -> None:
        if isinstance(value, Choice):
            for option in value.options:
                both_live = False if False in (live, option.live) else (live and option.live)
                here = self.owner.places.get((attribute, id(option.value)), place)
                self.flatten(attribute, option.value, both(condition, option.condition), both_live, here, kind)
        elif isinstance(value, Instance) and value.module:
            self.module(attribute, value, condition, live, place, kind)
        elif isinstance(value, Unknown) and (
            value.classes or "." in attribute or (value.failed and _MAKES.search(value.text)) or self.called(attribute)
        ):
            names = tuple(sorted(cls.qualified_name for cls in value.classes))[:_CANDIDATES]
            self.row(
                attribute, kind, None, "", condition, None if live else live, place,
                dispatch=value.text or value.name, candidates=names,
            )  # fmt: skip
        elif "." not in attribute:
            self.no_module(attribute, value, condition, live, place)

    def no_module(self, attribute: str, value: object, condition: str, live: bool | None, place: Place | None) -> None:
        """A row for what is no module; none for None, unless a caller may hand something else. Modules in a list of
        Python's own are told as well."""
        if value is MISSING or (value is None and (place is None or not isinstance(place.node, ast.Name))):
            return
        kind: Kind = "open"
        symbol, name = None, ""
        if isinstance(value, bool | int | float | str | bytes):
            kind = "plain"
        elif isinstance(value, list | tuple | dict | set | range):
            kind = "items"
        elif isinstance(value, Instance | ClassValue):
            kind = "object" if isinstance(value, Instance) else "class"
            symbol = value.cls.symbol if isinstance(value, Instance) else value.symbol
            name = symbol.qualified_name
        elif isinstance(value, FunctionValue | Native):
            kind = "function"
            name = value.name if isinstance(value, Native) else f"{value.code.unit.name}.{value.code.name}"
        self.row(attribute, kind, symbol, name, condition, live, place)
        for key, item in enumerate(value) if isinstance(value, list | tuple) else ():
            for one in item.options if isinstance(item, Choice) else (Option("", item, live),):
                if isinstance(one.value, Instance) and one.value.module and key < _CANDIDATES:
                    self.flatten(f"{attribute}.*", item, condition, live, place, "listed")
                    break

    def row(
        self, attribute: str, kind: Kind, symbol: ClassSymbol | None, name: str, condition: str, live: bool | None,
        place: Place | None, site: Site | None = None, dispatch: str = "", candidates: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        own = self.owner.cls.symbol
        line = place.code.line(place.node) if place is not None else own.line
        self.found.append(
            HeldModule(
                attribute=attribute,
                class_name=name,
                symbol=symbol,
                file=site.unit.file if site is not None else own.file,
                line=site.line if site is not None else line if kind not in {"module", "listed"} else own.line,
                arguments=site.arguments if site is not None else "",
                condition=condition,
                repeat=site.repeat if site is not None else "",
                dispatch=site.dispatch if site is not None else dispatch,
                at_default=live,
                candidates=candidates,
                kind=kind,
                holder=place.holder.symbol if place is not None and place.holder is not None else None,
                method=getattr(place.code, "name", "") if place is not None else "",
                text=place.code.text(place.node)[:_TEXT] if place is not None else "",
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

    def module(
        self, attribute: str, value: Instance, condition: str, live: bool | None, place: Place | None, kind: Kind
    ) -> None:
        symbol = value.cls.symbol
        self.row(attribute, kind, symbol, symbol.qualified_name, condition, live, place, self.site(value))
        if value.cls.container() and symbol.module.startswith("torch.") and value.waiting is None:
            for name, child in list(value.attrs.items()):
                self.flatten(f"{attribute}.{self.part(value, name, child)}", child, condition, live, place, kind)

    def site(self, value: Instance) -> Site | None:
        """The place in the owner's construction that made the module."""
        for site in reversed(value.sites):
            if site.owner is self.owner:
                return site
        return value.sites[0] if value.sites else None

    def part(self, container: Instance, name: str, child: object) -> str:
        """The name of a container's child: `*` where a loop makes several."""
        if not name.isdigit():
            return _pattern(name)
        lines = [self._line(other) for other in container.attrs.values()]
        mine = self._line(child)
        if mine is None or mine[1] or lines.count(mine) > 1:
            return "*"
        return name

    def _line(self, value: object) -> tuple[int, str, int] | None:
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
        key = (row.attribute, row.kind, row.class_name, row.file, str(row.line), row.condition, row.dispatch)
        known = order.get(key)
        if known is None:
            order[key] = row
        elif known.at_default is not True and row.at_default is not False:
            order[key] = replace(known, at_default=row.at_default)
    by_attribute: dict[str, list[HeldModule]] = {}
    for row in order.values():
        by_attribute.setdefault(row.attribute, []).append(row)
    return [row for same in by_attribute.values() for row in same]
