"""Names to definitions: the import rules of Python, read off the rows of the files that a name touches.

In order: what a lookup finds (`Found`), lookups in a module (imports, stars, lazily filled packages, aliases), dotted
names, and the linearisation of classes. Several rows may bind one name; the last one on the main path wins, a
substitute (`except ImportError`) counts where the main path leads to a package that no repository holds.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal
from weakref import WeakKeyDictionary

from opscope_cache.store import Store
from opscope_schemas.common import Repository

from opscope_tools.index.rows import AssignRow, AttributeRow, ClassRow, FunctionRow, ImportRow, Row
from opscope_tools.index.standard import is_installed, standard_order
from opscope_tools.index.trees import SourceTree, Unit

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")


@dataclass(frozen=True, eq=False)
class ClassSymbol:
    """A class definition, and where it stands."""

    unit: Unit
    path: str
    row: ClassRow

    @property
    def qualified_name(self) -> str:
        return f"{self.unit.name}.{self.path}" if self.unit.name else self.path

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def module(self) -> str:
        return self.unit.name

    @property
    def file(self) -> str:
        """Relative to the repository's root."""
        return self.unit.file

    @property
    def line(self) -> int:
        """Line of the `class` keyword."""
        return self.row.line

    @property
    def end_line(self) -> int:
        return self.row.end_line

    @property
    def repository(self) -> Repository:
        return self.unit.tree.repository

    @property
    def installed(self) -> bool:
        return self.repository.installed

    @property
    def attributes(self) -> tuple[AttributeRow, ...]:
        """What its own constructor sets, in order of execution."""
        return self.unit.details.attributes.get(self.line, ())

    @property
    def init_calls(self) -> tuple[str, ...]:
        """The constructors that its `__init__` runs."""
        return self.unit.details.init_calls.get(self.line, ())

    @cached_property
    def members(self) -> dict[str, Row]:
        """The last row that binds each name of the class body."""
        return {row.name: row for row in self.row.body}

    def same(self, other: ClassSymbol) -> bool:
        """Whether both are the same definition, also where a changed file was read again."""
        return (self.repository.name, self.qualified_name, self.line) == (
            other.repository.name,
            other.qualified_name,
            other.line,
        )


@dataclass(frozen=True, eq=False)
class Found:
    """What a name leads to. `external`: nothing in the registered source; `name` is then the name as far as known."""

    kind: Literal["class", "function", "module", "value", "external"]
    name: str
    unit: Unit | None = None
    row: Row | None = None
    symbol: ClassSymbol | None = None

    @property
    def in_source(self) -> bool:
        return self.kind in {"class", "function", "module"}


Base = ClassSymbol | str


class Resolver:
    """Lookups over several repositories."""

    def __init__(self, repositories: Sequence[Repository], store: Store) -> None:
        self.trees = [SourceTree(repository, store) for repository in repositories]
        self._missing: WeakKeyDictionary[Unit, set[str]] = WeakKeyDictionary()

    def module(self, name: str, near: SourceTree | None = None) -> Unit | None:
        """The module called `name`, looked for in the tree that asks and then in the others."""
        for tree in sorted(self.trees, key=lambda tree: tree is not near):
            file = tree.locate(name)
            if file is not None:
                return tree.unit(file)
        return None

    # lookups in a module

    def lookup(self, unit: Unit, name: str, before: int = 0, trail: tuple[object, ...] = ()) -> Found | None:
        """What `name` means in `unit`; where `before` is given, as seen from that line of its top level."""
        step = (unit.tree, unit.file, name, before)
        if step in trail or len(trail) > 60:
            return None
        trail = (*trail, step)
        best: Found | None = None
        for row in self._candidates(unit, name, before):
            found = self._follow(unit, row, name, trail)
            if found is not None and found.in_source:
                return found
            best = best or found
        if best is not None:
            return best
        if before:
            return self.lookup(unit, name, 0, trail)
        if unit.rows.lazy is not None:
            lazy = self._lazy(unit, name, trail)
            if lazy is not None:
                return lazy
        if unit.is_package:
            inner = self.module(f"{unit.name}.{name}", unit.tree)
            if inner is not None:
                return Found("module", inner.name, inner)
        return None

    def _candidates(self, unit: Unit, name: str, before: int) -> list[Row]:
        """Rows that may bind `name`, the best first."""
        rows: list[Row] = [*unit.bindings.get(name, ())]
        if not rows or all(row.guard.fallback for row in rows):
            lazy = unit.rows.lazy is not None
            rows += [star for star in unit.stars if not (lazy and star.guard.type_checking)]
        if before:
            rows = [row for row in rows if row.line < before]
        return sorted(rows, key=lambda row: self.rank(unit, row))

    def rank(self, unit: Unit, row: Row) -> tuple[bool, bool, int]:
        """Sort key of the rows that bind one name: the one that counts comes first."""
        return self.is_substitute(unit, row), row.guard.type_checking, -row.line

    def is_substitute(self, unit: Unit, row: Row) -> bool:
        """Whether the row stands in a branch that is not taken: an `else` or `except`, or what such a branch replaces
        where the block imports a package that is neither registered nor installed."""
        if not row.guard.condition or row.guard.type_checking:
            return row.guard.fallback
        missing = row.guard.condition in self._unavailable(unit)
        return missing or (row.guard.fallback and not self._replaces_missing(unit, row))

    def _unavailable(self, unit: Unit) -> set[str]:
        """Conditions of the blocks of `unit` that import a package which is not there."""
        known = self._missing.get(unit)
        if known is None:
            known = self._missing[unit] = {
                row.guard.condition
                for row in unit.rows.rows
                if isinstance(row, ImportRow)
                and row.guard.condition not in {"", "try"}
                and not row.guard.fallback
                and not row.guard.type_checking
                and not row.module.startswith(".")
                and not self._available(row.module.split(".", 1)[0])
            }
        return known

    def _replaces_missing(self, unit: Unit, row: Row) -> bool:
        return row.guard.condition.removeprefix("not (").removesuffix(")") in self._unavailable(unit)

    def _available(self, top: str) -> bool:
        return any(tree.locate(top) is not None for tree in self.trees) or is_installed(top)

    def _follow(self, unit: Unit, row: Row, name: str, trail: tuple[object, ...]) -> Found | None:
        if isinstance(row, ClassRow):
            symbol = ClassSymbol(unit, row.name, row)
            return Found("class", symbol.qualified_name, unit, row, symbol)
        if isinstance(row, FunctionRow):
            return Found("function", f"{unit.name}.{name}", unit, row)
        if isinstance(row, AssignRow):
            if _DOTTED.match(row.value) and not hasattr(builtins, row.value.split(".", 1)[0]):
                found = self.dotted(unit, row.value, row.line, trail)
                if found is not None:
                    return found
            return Found("value", f"{unit.name}.{name}", unit, row) if row.value else None
        return self._import(unit, row, name, trail)

    def _import(self, unit: Unit, row: ImportRow, name: str, trail: tuple[object, ...]) -> Found | None:
        target = absolute(unit, row.module)
        module = self.module(target, unit.tree)
        if row.member == "*":
            if module is None or (module.rows.exports is not None and name not in module.rows.exports):
                return None
            if module.rows.exports is None and name.startswith("_"):
                return None
            return self.lookup(module, name, 0, trail)
        if not row.member:
            return Found("module", target, module) if module is not None else Found("external", target)
        if module is None:
            return Found("external", f"{target}.{row.member}")
        found = self.lookup(module, row.member, 0, trail)
        if found is None:
            inner = self.module(f"{target}.{row.member}", unit.tree)
            found = Found("module", inner.name, inner) if inner is not None else None
        return found or Found("external", f"{target}.{row.member}")

    def _lazy(self, unit: Unit, name: str, trail: tuple[object, ...]) -> Found | None:
        """A name of a package that fills itself on demand: from its table, or from the `__all__` of files below."""
        submodule = unit.lazy_exports().get(name)
        if submodule is not None:
            module = self.module(f"{unit.name}.{submodule}", unit.tree)
            found = self.lookup(module, name, 0, trail) if module is not None else None
            if found is not None:
                return found
        folder = unit.file.removesuffix("/__init__.py")
        quoted = (f'"{name}"'.encode(), f"'{name}'".encode())
        for inner in unit.rows.lazy or ():
            for file in _python_files(unit.tree, f"{folder}/{inner}" if inner else folder):
                source = unit.tree.source(file)
                if b"__all__" in source and any(text in source for text in quoted):
                    candidate = unit.tree.unit(file)
                    if name in (candidate.rows.exports or ()):
                        found = self.lookup(candidate, name, 0, trail)
                        if found is not None:
                            return found
        return None

    # dotted names

    def dotted(self, unit: Unit, text: str, before: int = 0, trail: tuple[object, ...] = ()) -> Found | None:
        """What `a.b.c` means in `unit`; None where `a` is not bound there."""
        head, *rest = text.split(".")
        found = self.lookup(unit, head, before, trail)
        for part in rest:
            if found is None:
                return None
            found = self.member(found, part, trail)
        return found

    def member(self, found: Found, part: str, trail: tuple[object, ...] = ()) -> Found:
        """The attribute `part` of what was found."""
        if found.kind == "module" and found.unit is not None:
            inner = self.lookup(found.unit, part, 0, trail)
            if inner is None:
                module = self.module(f"{found.name}.{part}", found.unit.tree)
                inner = Found("module", module.name, module) if module is not None else None
            if inner is not None:
                return inner
        if found.symbol is not None:
            inherited = self.class_member(found.symbol, part)
            if inherited is not None:
                return inherited[1]
        return Found("external", f"{found.name}.{part}")

    def class_member(
        self, symbol: ClassSymbol, name: str, after: ClassSymbol | None = None
    ) -> tuple[ClassSymbol, Found] | None:
        """The class of the MRO whose body binds `name`, and what it binds; `after`: as `super()` of that class."""
        passed = after is None
        for holder in self.mro(symbol):
            if isinstance(holder, str):
                continue
            if passed and name in holder.members:
                return holder, self._in_class(holder, name)
            passed = passed or (after is not None and holder.same(after))
        return None

    def _in_class(self, symbol: ClassSymbol, name: str, depth: int = 0) -> Found:
        row, unit = symbol.members[name], symbol.unit
        qualified = f"{symbol.qualified_name}.{name}"
        if isinstance(row, ClassRow):
            nested = ClassSymbol(unit, f"{symbol.path}.{row.name}", row)
            return Found("class", nested.qualified_name, unit, row, nested)
        if isinstance(row, FunctionRow):
            return Found("function", qualified, unit, row)
        if isinstance(row, AssignRow) and _DOTTED.match(row.value) and depth < 8:
            if row.value in symbol.members and row.value != name:
                return self._in_class(symbol, row.value, depth + 1)
            found = self.dotted(unit, row.value)
            if found is not None:
                return found
        if isinstance(row, ImportRow):
            return self._import(unit, row, name, ()) or Found("external", qualified)
        return Found("value", qualified, unit, row)

    # classes

    def absolute(self, name: str, trees: Sequence[SourceTree] | None = None) -> Iterator[Found]:
        """What a fully dotted name means, once for each tree that knows it."""
        parts = name.split(".")
        for tree in trees if trees is not None else self.trees:
            for size in range(len(parts), 0, -1):
                file = tree.locate(".".join(parts[:size]))
                if file is None:
                    continue
                unit = tree.unit(file)
                found: Found | None = Found("module", unit.name, unit)
                for part in parts[size:]:
                    found = self.member(found, part) if found is not None else None
                if found is not None and found.kind != "external":
                    yield found
                break

    def base(self, symbol: ClassSymbol, text: str) -> Base:
        """The class that a base expression means; where it is not in source, the name it goes by."""
        stem = text.split("[", 1)[0].strip()
        if not _DOTTED.match(stem):
            return text
        scope, _, _ = symbol.path.rpartition(".")
        if (
            scope and "<locals>" not in scope
        ):  # a nested class sees its module, not its siblings, but for those above it
            outer = dict(symbol.unit.classes()).get(scope)
            if outer is not None:
                for row in outer.body:
                    if isinstance(row, ClassRow) and row.name == stem and row.line < symbol.line:
                        return ClassSymbol(symbol.unit, f"{scope}.{stem}", row)
        found = self.dotted(symbol.unit, stem, symbol.line if "." not in symbol.path else 0)
        if found is None:
            return stem
        if found.symbol is not None and found.symbol.row is not symbol.row:
            return found.symbol
        return found.name

    def mro(self, symbol: ClassSymbol) -> list[Base]:
        """The linearisation (C3) of `symbol`: definitions, and names for what is not in source, `object` last."""
        return self._linear(symbol, ())

    def _linear(self, symbol: ClassSymbol, below: tuple[ClassSymbol, ...]) -> list[Base]:
        if any(symbol.same(other) for other in below) or len(below) > 80:
            return [symbol]
        bases = [self.base(symbol, text) for text in symbol.row.bases]
        generic = any(b == "typing.Generic" for b in bases)
        lines: list[list[Base]] = []
        for base in bases:
            if isinstance(base, str):
                line = list(standard_order(base))
                lines.append([n for n in line if not (generic and n == "typing.Generic" and base != n)] or [base])
            else:
                lines.append(self._linear(base, (*below, symbol)))
        tops = [line[0] for line in lines]
        merged = _merge([[n for n in line if n != "object"] for line in [*lines, tops]])
        return [symbol, *merged, "object"]


def _equal(first: Base, second: Base) -> bool:
    if isinstance(first, str) or isinstance(second, str):
        return first == second
    return first.same(second)


def _merge(lines: list[list[Base]]) -> list[Base]:
    """C3: always the first head that stands in no other tail; where there is none (a class Python would refuse),
    the first head."""
    merged: list[Base] = []
    lines = [line for line in lines if line]
    while lines:
        head = next(
            (line[0] for line in lines if not any(_equal(line[0], n) for other in lines for n in other[1:])),
            lines[0][0],
        )
        merged.append(head)
        lines = [rest for line in lines if (rest := [n for n in line if not _equal(n, head)])]
    return merged


def absolute(unit: Unit, module: str) -> str:
    """The absolute name of a module as `from module import ...` in `unit` means it."""
    stem = module.lstrip(".")
    dots = len(module) - len(stem)
    if not dots:
        return module
    package = unit.package.split(".") if unit.package else []
    package = package[: len(package) - (dots - 1)] if dots > 1 else package
    return ".".join([*package, stem] if stem else package)


def _python_files(tree: SourceTree, folder: str) -> Iterator[str]:
    """Python files of a folder and its subfolders that a lazily filled package may serve."""
    prefix = folder + "/"
    for file in tree.files_below(folder):
        stem = file.rpartition("/")[2]
        if file.startswith(prefix) and not stem.startswith(("convert_", "modular_", "__init__")):
            yield file
