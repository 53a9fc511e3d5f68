"""Names to definitions: the import rules of Python, read off the rows of the files that a name touches.

In order: modules and packages, lookups in a module (imports, stars, aliases, names served on demand), dotted names,
bases, and the linearisation of classes. Which of several rows that bind one name counts is told in bindings.py.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from opscope_tools.source.python.bindings import Branches, deletes
from opscope_tools.source.python.exports import Exports, exports_of
from opscope_tools.source.python.file_rows import VALUE_LIMIT
from opscope_tools.source.python.found import Base, ClassSymbol, Found
from opscope_tools.source.python.guards import Evaluator
from opscope_tools.source.python.imports import Imported, absolute
from opscope_tools.source.python.linearisation import linearised
from opscope_tools.source.python.looks import Ask, Looks, said, unchanged
from opscope_tools.source.python.lookup_cache import Memory, Step, Trail
from opscope_tools.source.python.made_classes import call_of, from_factory, from_metaclass
from opscope_tools.source.python.nested_scopes import Nesting
from opscope_tools.source.python.outside import installed_version, is_installed, metaclass_module
from opscope_tools.source.python.repository import Kept, SourceTree, Unit
from opscope_tools.source.python.rows import AssignRow, ClassRow, FunctionRow, ImportRow, Row

__all__ = ["Base", "ClassSymbol", "Exports", "Found", "Resolver"]

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")


class Resolver:
    """Lookups over the trees of several repositories."""

    def __init__(self, trees: Sequence[SourceTree]) -> None:
        self.trees = trees
        self._evaluator = Evaluator(self)
        self._branches = Branches(self.available, self._evaluator)
        self._nesting = Nesting()
        self._memory = Memory()
        self.kept = Kept()

    def question(
        self, checkpoint: Callable[[], None] | None = None, *, apart: bool = False
    ) -> AbstractContextManager[None]:
        """Inside, this thread looks nothing up twice: files count as they were when they were first read. `checkpoint` is
        called with every lookup and may raise."""
        return self._memory.question(checkpoint, apart=apart)

    def module(self, name: str, near: SourceTree | Unit | None = None) -> Unit | None:
        """The module called `name`, looked for in the tree that asks, or as the module that asks may import it, and then in
        the other trees."""
        home, beside = (near.tree, near.file) if isinstance(near, Unit) else (near, "")
        for tree in sorted(self.trees, key=lambda tree: tree is not home):
            file = tree.locate(name, beside if tree is home else "")
            if file is not None:
                return tree.unit(file)
        return None

    def module_found(self, name: str, near: Unit | None = None) -> Found:
        """The module called `name` as a lookup gives it."""
        unit = self.module(name, near)
        return Found("module", name, unit) if unit is not None else Found("external", name)

    def available(self, module: str) -> bool:
        """Whether a module can be imported here, as far as the files tell: its package is registered or installed and,
        where the source of the package is at hand, so is the module."""
        top = module.split(".", 1)[0]
        holders = [tree for tree in self.trees if tree.locate(top) is not None]
        if not holders:
            return is_installed(top)
        return any(_may_hold(tree, module) for tree in holders)

    def unchanged(self, looks: Looks) -> bool:
        """Whether all that was looked at is as it was (looks.py)."""
        trees = {tree.repository.name: tree.looks() for tree in self.trees}

        def again(kind: str) -> Ask:
            return lambda repository, about: trees[repository][kind](about) if repository in trees else b"gone"

        return unchanged(looks, {**{kind: again(kind) for kind in next(iter(trees.values()), ())}, **_OUTSIDE})

    # lookups in a module

    def lookup(self, unit: Unit, name: str, before: int = 0, trail: Trail | None = None) -> Found | None:
        """What `name` means in `unit`; where `before` is given, as seen from that line of its top level."""
        step = (unit.tree, unit.file, name, before)
        self._evaluator.reads(unit)
        if trail is not None:
            return self._along(trail, unit, step)
        self._memory.checkpoint()
        with self.question():
            known = self._memory.found
            if step not in known:
                known[step] = self._along(Trail(), unit, step)
            return known[step]

    def _along(self, trail: Trail, unit: Unit, step: Step) -> Found | None:
        if step not in trail.found:
            with trail.at(trail.found, step) as near:
                found = self._looked_up(unit, step[2], step[3], trail) if near else None
            trail.found[step] = found
        return trail.found[step]

    def _looked_up(self, unit: Unit, name: str, before: int, trail: Trail) -> Found | None:
        best: Found | None = None
        for row in self._candidates(unit, name, before):
            if deletes(row):
                if self._branches.runs(unit, row) is not False and not row.guard.fallback:
                    return best
                continue
            found = self._follow(unit, row, name, trail)
            if found is not None and found.in_source:
                return found
            best = best or found
        if best is not None:
            return best
        if before:
            return self.lookup(unit, name, 0, trail)
        return self._on_demand(unit, name, trail)

    def _on_demand(self, unit: Unit, name: str, trail: Trail) -> Found | None:
        """What no statement binds: a lazily filled package, a module's `__getattr__`, a submodule."""
        if unit.rows.lazy is not None:
            lazy = self._lazy(unit, name, trail)
            if lazy is not None:
                return lazy
        hook = unit.bindings.get("__getattr__", ())
        if hook and not name.startswith("__") and isinstance(hook[-1], FunctionRow):
            served = self._evaluator.served(unit, hook[-1], name)
            if served is not None:
                return served
        if unit.is_package:
            inner = self.module(f"{unit.name}.{name}", unit)
            if inner is not None:
                return Found("module", inner.name, inner)
        return None

    # which of several rows counts

    def _candidates(self, unit: Unit, name: str, before: int) -> list[Row]:
        """Rows that may bind `name`, the best first."""
        rows: list[Row] = [*unit.bindings.get(name, ())]
        bound = not all(row.guard.fallback for row in rows)
        last = max((row.line for row in rows), default=0)
        lazy = unit.rows.lazy is not None
        for star in unit.stars:
            hidden = star.guard.type_checking and (lazy or bound)
            if not hidden and (not bound or star.line > last):
                rows.append(star)
        if before:
            rows = [row for row in rows if row.line < before]
        return sorted(rows, key=lambda row: self.rank(unit, row)) if len(rows) > 1 else rows

    def rank(self, unit: Unit, row: Row) -> tuple[bool, bool, int]:
        """Sort key of the rows that bind one name: the one that counts comes first."""
        return self._branches.rank(unit, row)

    # what a row binds

    def _follow(self, unit: Unit, row: Row, name: str, trail: Trail) -> Found | None:
        if isinstance(row, ClassRow):
            symbol = ClassSymbol(unit, row.name, row)
            return Found("class", symbol.qualified_name, unit, row, symbol)
        if isinstance(row, FunctionRow):
            return Found("function", f"{unit.name}.{name}", unit, row)
        if isinstance(row, AssignRow):
            return self._assigned(unit, row, name, trail)
        return self._import(unit, row, name, trail)

    def _assigned(self, unit: Unit, row: AssignRow, name: str, trail: Trail) -> Found | None:
        if _DOTTED.match(row.value) and not hasattr(builtins, row.value.split(".", 1)[0]):
            found = self.dotted(unit, row.value, row.line, trail)
            if found is not None:
                return replace(found, alias=(unit, row))
        made = self._made(unit, row.value, row, trail)
        if made is not None:
            return Found("class", made.qualified_name, unit, made.row, made)
        return Found("value", f"{unit.name}.{name}", unit, row) if row.value or row.entries else None

    def _made(self, unit: Unit, text: str, row: Row, trail: Trail | None = None) -> ClassSymbol | None:
        """The class that a call makes, such as `type("A", (B,), {})`; `row` is the statement that holds it."""
        called = call_of(text)
        if called is None:
            return None
        callee, call = called
        found = self.dotted(unit, callee, row.line, trail)
        made: ClassRow | None = None
        known_as = ""
        if callee == "type" and found is None:
            made = from_metaclass(call, row.line, row.guard)
        elif found is not None and found.kind == "external":
            made = from_factory(found.name, call, row.line, row.guard)
            holder = metaclass_module(found.name)
            if holder is not None:
                made = from_metaclass(call, row.line, row.guard)
                known_as = f"{holder}.{made.name}" if made is not None and holder else ""
        elif found is not None and found.symbol is not None and "type" in self.mro(found.symbol):
            made = from_metaclass(call, row.line, row.guard)
            new = self.class_member(found.symbol, "__new__")
            if made is not None and new is not None:  # a class is named after the module of the code that makes it
                known_as = f"{new[0].module}.{made.name}"
        return ClassSymbol(unit, made.name, made, known_as) if made is not None else None

    def imported(self, unit: Unit, module: str, member: str, trail: Trail | None = None) -> Found | None:
        """What `from module import member` in `unit` binds; None where the module is there and has no such name."""
        target = absolute(unit.package, module)
        holder = self.module(target, unit)
        found = self.lookup(holder, member, 0, trail) if holder is not None else None
        if (
            found is None
        ):  # of a package that is just being asked (`from . import x`), or a folder without `__init__.py`
            inner = self.module_found(f"{target}.{member}", unit)
            found = inner if holder is None or inner.unit is not None else None
        return found

    def binds(self, unit: Unit, one: Imported) -> Found | None:
        """What an import inside a function of `unit` binds; None as for `imported`."""
        return self.imported(unit, one.module, one.member) if one.member else self.module_found(one.stands, unit)

    def _import(self, unit: Unit, row: ImportRow, name: str, trail: Trail) -> Found | None:
        target = absolute(unit.package, row.module)
        if row.member == "*":
            module = self.module(target, unit)
            if module is None or not self._exposed(module, name, trail):
                return None
            return self.lookup(module, name, 0, trail)
        if not row.member:
            return self.module_found(target, unit)
        return self.imported(unit, row.module, row.member, trail) or Found("external", f"{target}.{row.member}")

    def _exposed(self, module: Unit, name: str, trail: Trail) -> bool:
        """Whether `from module import *` may bind `name`."""
        exports = self.exports(module, trail)
        if exports is None or (not exports.complete and name not in exports.names):
            return not name.startswith("_")
        return name in exports.names

    def exports(self, unit: Unit, trail: Trail | None = None) -> Exports | None:
        """`__all__` of a module, with what it takes over from the `__all__` of others; None where it has none."""
        return exports_of(self, self._evaluator, unit, trail or Trail())

    def _lazy(self, unit: Unit, name: str, trail: Trail) -> Found | None:
        """A name of a package that fills itself on demand: from its table, or from the `__all__` of files below."""
        submodule = unit.lazy_exports().get(name)
        if submodule is not None:
            module = self.module(f"{unit.name}.{submodule}", unit)
            found = self.lookup(module, name, 0, trail) if module is not None else None
            if found is not None:
                return found
        folder = unit.file.removesuffix("/__init__.py")
        for inner in unit.rows.lazy or ():
            for file in unit.tree.files_exporting(name, f"{folder}/{inner}" if inner else folder):
                if not file.rpartition("/")[2].startswith(("convert_", "modular_", "__init__")):
                    found = self.lookup(unit.tree.unit(file), name, 0, trail)
                    if found is not None:
                        return found
        return None

    # dotted names

    def dotted(self, unit: Unit, text: str, before: int = 0, trail: Trail | None = None) -> Found | None:
        """What `a.b.c` means in `unit`; None where `a` is not bound there."""
        head, *rest = text.split(".")
        found = self.lookup(unit, head, before, trail)
        for part in rest:
            if found is None:
                return None
            found = self.member(found, part, trail)
        return found

    def member(self, found: Found, part: str, trail: Trail | None = None) -> Found:
        """The attribute `part` of what was found."""
        if found.kind == "module" and found.unit is not None:
            inner = self.lookup(found.unit, part, 0, trail)
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
            return self._import(unit, row, name, Trail()) or Found("external", qualified)
        return Found("value", qualified, unit, row)

    # classes

    def absolute(self, name: str, trees: Sequence[SourceTree] | None = None) -> Iterator[Found]:
        """What a fully dotted name means, once for each tree that knows it."""
        answers = (self._absolute(tree, name) for tree in (trees if trees is not None else self.trees))
        return (found for found in answers if found.kind != "external")

    def bound(self, name: str, beside: str = "") -> tuple[Unit, Row] | None:
        """The statement of a module's own level that binds a fully dotted name as the file `beside` knows it, behind imports;
        an assignment that gives another thing the name is not followed."""
        for tree in self.trees:
            found, rest = self.reached(tree, name, beside)
            unit, row = found.alias or (found.unit, found.row)
            if unit is not None and row is not None and not rest:
                return unit, row
        return None

    def reached(self, tree: SourceTree, name: str, beside: str = "") -> tuple[Found, list[str]]:
        """What a fully dotted name leads to in a tree through modules alone, and what is left of the name then. What a
        package binds comes before a module of the same name, as for `from package import name`."""
        parts = name.split(".")
        sizes = range(len(parts), 0, -1)
        for size in (*sizes[1:2], *sizes[:1], *sizes[2:]):
            file = tree.locate(".".join(parts[:size]), beside)
            if file is not None:
                unit, rest = tree.unit(file), parts[size:]
                found = Found("module", unit.name, unit)
                while rest and found.kind == "module":
                    found = self.member(found, rest.pop(0))
                return found, rest
        return Found("external", name), []

    def _absolute(self, tree: SourceTree, name: str) -> Found:
        found, rest = self.reached(tree, name)
        for part in rest:
            found = self.member(found, part)
        return found

    def bases(self, symbol: ClassSymbol) -> list[Base]:
        """The bases of a class as Python takes them."""
        found: list[Base] = []
        for text in symbol.row.bases:
            called = call_of(text)
            if called is not None and called[0].rpartition(".")[2] == "with_metaclass":
                # the idiom's temporary class gives way to the bases that follow the metaclass
                found += [self.base(symbol, ast.unparse(argument)) for argument in called[1].args[1:]]
            else:
                found.append(self.base(symbol, text))
        return found

    def base(self, symbol: ClassSymbol, text: str) -> Base:
        """The class that a base expression means; where it is not in source, the name it goes by, and where source does
        not tell, the expression."""
        stem = text.split("[", 1)[0].strip()
        if not _DOTTED.match(stem):
            return self._computed_base(symbol, text)
        scoped = self._scoped_base(symbol, stem) if "." in symbol.path and "." not in stem else None
        if scoped is not None:
            return scoped
        found = self.dotted(symbol.unit, stem, symbol.line if "." not in symbol.path else 0)
        if found is None:
            return stem
        if found.symbol is not None and found.symbol.row is not symbol.row:
            return found.symbol
        return found.name

    def _computed_base(self, symbol: ClassSymbol, text: str) -> Base:
        choice = re.fullmatch(r"\(?(.+?) if (.+) else (.+?)\)?", text) if len(text) < VALUE_LIMIT else None
        if choice is not None:
            holds = self._evaluator.holds(symbol.unit, choice[2])
            return text if holds is None else self.base(symbol, choice[1] if holds else choice[3])
        return self._made(symbol.unit, text, symbol.row) or text

    def _scoped_base(self, symbol: ClassSymbol, name: str) -> Base | None:
        """What `name` means to the bases of a nested class, where a class or function around it binds it."""
        bound = self._nesting.binding(symbol, name)
        if bound is None or isinstance(bound, str):
            return bound
        path, row = bound
        if isinstance(row, ClassRow):
            return ClassSymbol(symbol.unit, path, row)
        found = self._follow(symbol.unit, row, name, Trail())
        return (found.symbol or found.name) if found is not None else None

    def mro(self, symbol: ClassSymbol) -> list[Base]:
        """The linearisation (C3) of `symbol`: definitions, and names for what is not in source, `object` last."""
        with self.question():
            return linearised(symbol, self.bases, self._memory.orders)


def _may_hold(tree: SourceTree, module: str) -> bool:
    """Whether the tree has the module, be it a compiled one, which files do not tell for sure."""
    if tree.locate(module) is not None:
        return True
    parts = module.split(".")
    for size in range(len(parts) - 1, 0, -1):
        file = tree.locate(".".join(parts[:size]))
        if file is not None:
            return tree.is_folder_or_compiled(file, parts[size])
    return False


_OUTSIDE: dict[str, Ask] = {
    "installed": lambda _, top: said(is_installed(top)),
    "version": lambda _, package: (installed_version(package) or "").encode(),
}
