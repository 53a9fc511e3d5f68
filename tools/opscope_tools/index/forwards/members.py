"""What objects hold, by their classes: submodules at a path, methods, and what constructors put on `self`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

from opscope_tools.index.forwards.tables import entries_of
from opscope_tools.index.forwards.values import BUILT_IN, CONTAINER, PLAIN, Value, Values, alternatives, distinct
from opscope_tools.index.modules.held_modules import HeldModule, attributes
from opscope_tools.index.names.torch_modules import MODULE
from opscope_tools.source.python.names import ClassSymbol, Found, Resolver
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import AssignRow, FunctionRow

_SCALARS = {"int", "float", "bool", "str", "torch.dtype", "torch.device", "torch.Size"}
_WORD = re.compile(r"[A-Za-z_][\w.]*")
#: what an expression in the constructor of a class, for an object of another or the same class, may stand for
Read = Callable[["Holdings", ClassSymbol, ClassSymbol, FunctionRow, str], Values]


class Holdings:
    """What objects hold, class by class, kept for one question."""

    def __init__(self, resolver: Resolver, read: Read) -> None:
        self.resolver = resolver
        self._read = read
        self._attributes: dict[tuple[str, str], tuple[dict[str, list[HeldModule]], dict[str, list[HeldModule]]]] = {}
        self._members: dict[tuple[str, str, str, str], tuple[ClassSymbol, Found] | None] = {}
        self._below: dict[tuple[str, str, str], list[ClassSymbol]] = {}
        self._tables: dict[tuple[str, str], list[tuple[str, Found]]] = {}
        self._busy: set[tuple[ClassSymbol, str]] = set()

    def class_member(
        self, symbol: ClassSymbol, name: str, after: ClassSymbol | None = None
    ) -> tuple[ClassSymbol, Found] | None:
        """The class of the MRO whose body binds `name`, and what it binds; `after`: as `super()` of that class."""
        key = (symbol.file, symbol.path, name, after.path if after is not None else "")
        if key not in self._members:
            self._members[key] = self.resolver.class_member(symbol, name, after)
        return self._members[key]

    def modules(self, symbol: ClassSymbol) -> dict[str, list[HeldModule]]:
        """The modules that an object holds, by their paths; those in lists of Python's own among them."""
        return self._held(symbol)[0]

    def others(self, symbol: ClassSymbol, name: str) -> list[HeldModule]:
        """What the attribute holds that is no module."""
        return self._held(symbol)[1].get(name, [])

    def _held(self, symbol: ClassSymbol) -> tuple[dict[str, list[HeldModule]], dict[str, list[HeldModule]]]:
        key = (symbol.file, symbol.path)
        if key not in self._attributes:
            modules: dict[str, list[HeldModule]] = {}
            others: dict[str, list[HeldModule]] = {}
            self._attributes[key] = modules, others
            for row in attributes(self.resolver, symbol):
                (modules if row.kind in {"module", "listed"} else others).setdefault(row.attribute, []).append(row)
        return self._attributes[key]

    def at(self, symbol: ClassSymbol, path: str) -> tuple[list[HeldModule], list[tuple[ClassSymbol, str]]]:
        """The submodules at `path` below an object of `symbol`, through the classes of submodules; else the last known
        classes on the way, each with what is left of the path."""
        here = self.modules(symbol)
        if path in here:
            return here[path], []
        fitting = self._fitting(here, path)
        if fitting:
            return fitting, []
        parts = path.split(".")
        rest: list[tuple[ClassSymbol, str]] | None = None
        for size in range(len(parts) - 1, 0, -1):
            held = here.get(".".join(parts[:size]), []) or self._fitting(here, ".".join(parts[:size]))
            reached = [
                self.at(s, ".".join(parts[size:])) for s in distinct(m.symbol for m in held if m.symbol is not None)
            ]
            found = [module for modules, _ in reached for module in modules]
            if found:
                return found, []
            if held and rest is None:
                rest = [left for _, lefts in reached for left in lefts]
        return [], [(symbol, path)] if rest is None else rest

    @staticmethod
    def _fitting(here: dict[str, list[HeldModule]], path: str) -> list[HeldModule]:
        """HeldModules whose path fits one with `*`, on either side."""
        return [
            m
            for name, held in here.items()
            if ("*" in path or "*" in name) and (_matches(name, path) or _matches(path, name))
            for m in held
        ]

    def is_container(self, symbol: ClassSymbol, path: str) -> bool:
        """Whether modules are held below `path`."""
        return any(name.startswith(f"{path}.") for name in self.modules(symbol)) or bool(self.at(symbol, path)[0])

    def member(self, symbol: ClassSymbol, name: str, after: ClassSymbol | None = None) -> Values:
        """What `object.name` may be, for a name that holds no submodule."""
        member = self.class_member(symbol, name, after)
        if member is not None:
            holder, found = member
            if isinstance(found.row, FunctionRow):
                if any(re.search(r"(^|\.|_)property$", text) for text in found.row.decorators):
                    return self.declared(found.unit or holder.unit, found.row.returns)
                return (Value("found", found=found),)
            if found.kind in {"class", "external"} or (found.kind == "value" and _entries(found)):
                return (Value("found", found=found),)
        set_here = self._set(symbol, name)
        if set_here or member is None:
            return set_here
        row = member[1].row
        if isinstance(row, AssignRow):
            if row.annotation:
                return self.declared(member[0].unit, row.annotation)
            return PLAIN if re.fullmatch(r"True|False|-?[\d.]+|[\"'].*[\"']", row.value) else ()
        return ()

    def overrides(self, symbol: ClassSymbol, name: str, near: Unit) -> Values:
        """The methods `name` of the subclasses of `symbol`, which an object declared as `symbol` may run."""
        found = [
            (one, self.class_member(one, name))
            for one in self.subclasses(symbol, near)
            if isinstance(one.members.get(name), FunctionRow)
        ]
        return tuple(
            Value("found", found=member[1], key=one.qualified_name) for one, member in found if member is not None
        )

    def subclasses(self, symbol: ClassSymbol, near: Unit) -> list[ClassSymbol]:
        """Subclasses, direct or not, defined beside `symbol` or in the module `near` that uses it; a search through the
        whole repository would cost more than all the rest of an answer."""
        key = (symbol.file, symbol.path, near.file)
        if key not in self._below:
            found = [symbol]
            for unit in [symbol.unit] if near.file == symbol.file else [symbol.unit, near]:
                for path, row in unit.classes():
                    one = ClassSymbol(unit, path, row)
                    if row.bases and self._derives(one, found):
                        found.append(one)
            self._below[key] = found[1:]
        return self._below[key]

    def _derives(self, one: ClassSymbol, known: list[ClassSymbol]) -> bool:
        """Whether a class names one of the known ones as a base."""
        names = {symbol.name for symbol in known}
        bases = [self.resolver.base(one, text) for text in one.row.bases if text.rpartition(".")[2] in names]
        return any(not isinstance(base, str) and base.same(symbol) for base in bases for symbol in known)

    def entries(self, table: Found) -> list[tuple[str, Found]]:
        """(key, function or class) of a table that is picked from at run time."""
        key = (table.unit.file if table.unit is not None else "", table.name)
        if key not in self._tables:
            self._tables[key] = entries_of(self.resolver, table)
        return self._tables[key]

    def _set(self, symbol: ClassSymbol, name: str) -> Values:
        """What the constructors put on `self`."""
        if (symbol, name) in self._busy:
            return ()
        self._busy.add((symbol, name))
        try:
            return tuple(value for row in self.others(symbol, name) for value in self.of_row(symbol, row))
        finally:
            self._busy.discard((symbol, name))

    def of_row(self, symbol: ClassSymbol, row: HeldModule) -> Values:
        """What an attribute holds: as the constructor tells or, where it picks, all that the expression may be."""
        if row.kind == "plain":
            return PLAIN
        if row.kind == "items":
            return BUILT_IN
        values: Values = ()
        if row.kind == "object" and row.symbol is not None:
            made = Found("class", row.class_name, row.symbol.unit, row.symbol.row, row.symbol)
            values = () if is_tensor(made) else (Value("object", symbol=row.symbol, exact=row.text.endswith(")")),)
        else:
            init = row.holder.members.get(row.method) if row.holder is not None else None
            if row.holder is not None and isinstance(init, FunctionRow):
                text = row.dispatch if "." in row.attribute else row.text
                values = self._read(self, symbol, row.holder, init, text)
            for name in () if values else (*row.candidates, *([row.class_name] if row.class_name else [])):
                found = next(self.resolver.absolute(name), None) or Found("external", name)
                values = (*values, Value("found", found=found))
        return tuple(replace(v, key=v.key or row.condition) for v in values)

    def declared(self, unit: Unit, annotation: str) -> Values:
        """Objects of the classes that an annotation names; tensors are left out, their methods are known by name."""
        parts = [part for part in alternatives(annotation) if part != "None"]
        if parts and all(part in _SCALARS for part in parts):
            return PLAIN
        if parts and all(CONTAINER.match(part) for part in parts):
            return BUILT_IN
        annotation = " ".join(part for part in parts if not CONTAINER.match(part))
        found = [self.resolver.dotted(unit, text) for text in dict.fromkeys(_WORD.findall(annotation))]
        return tuple(
            Value("object", symbol=f.symbol)
            for f in found
            if f is not None and f.symbol is not None and not is_tensor(f)
        )


def _matches(path: str, pattern: str) -> bool:
    """Whether a path fits a pattern part by part."""
    ours, theirs = path.split("."), pattern.split(".")
    return len(ours) == len(theirs) and all(fnmatchcase(a, b) for a, b in zip(ours, theirs, strict=True))


def is_tensor(found: Found) -> bool:
    """Whether a class of torch is no module: tensors, sizes, dtypes."""
    return found.name.startswith("torch.") and MODULE not in found.name and ".modules." not in found.name


def _entries(found: Found) -> bool:
    return isinstance(found.row, AssignRow) and bool(found.row.entries)
