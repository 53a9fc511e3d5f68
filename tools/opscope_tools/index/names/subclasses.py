"""Which classes derive from a class: every candidate whose list of bases bears the name, each base resolved.

The table of base names finds candidates without reading files; a class imported under another name is found through
the files that say `Name as other` or `other = Name`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from weakref import WeakKeyDictionary

from opscope_tools.source.python.names import Base, ClassSymbol, Resolver
from opscope_tools.source.python.repository import SourceTree, Unit
from opscope_tools.source.python.rows import ClassRow

#: names looked up one by one before one pass over the tree is cheaper
_ONE_BY_ONE = 8
#: patterns that begin with a literal are searched many times faster
_AS = re.compile(rb" as (\w+)")
_EQUAL = re.compile(rb"\n(\w+) = (?:\w+\.)*([A-Za-z_]\w*)[ \t]*(?=#|\r?\n)")
_CLASS = re.compile(rb"class[ \t]+(\w+)[ \t]*\(([^)]*)")
_LAST_WORD = re.compile(rb"\w+$")
_DOTTED = re.compile(r"[A-Za-z_][\w.]*$")


class _Names:
    """Candidates by the text of one tree: classes by the last name of a base, and other names of a name."""

    def __init__(self, tree: SourceTree, checkpoint: Callable[[], None]) -> None:
        self._tree, self._checkpoint = tree, checkpoint
        self._asked = 0

    def with_base(self, name: str) -> list[tuple[str, str]]:
        """(class, file) of the classes that may have a base of that name."""
        self._asked += 1
        if self._asked <= _ONE_BY_ONE:
            return self._tree.textual_subclasses(name)
        return self._whole[0].get(name, [])

    def others(self, name: str) -> list[str]:
        """What `name as other` and `other = name` call it."""
        if self._asked <= _ONE_BY_ONE:
            wanted, found = name.encode(), dict[bytes, None]()
            for file in self._tree.files_mentioning(name):
                found.update((new, None) for old, new in _renamings(self._tree.source(file)) if old == wanted)
            return [new.decode() for new in found]
        return self._whole[1].get(name, [])

    @cached_property
    def _whole(self) -> tuple[dict[str, list[tuple[str, str]]], dict[str, list[str]]]:
        """Both tables for all names, from one pass over the text of the tree."""
        bases: dict[str, list[tuple[str, str]]] = {}
        others: dict[str, list[str]] = {}
        for file in self._tree.files():
            self._checkpoint()
            source = self._tree.source(file)
            for match in _CLASS.finditer(source):
                for word in set(re.findall(rb"\w+", match[2])):
                    bases.setdefault(word.decode(), []).append((match[1].decode(), file))
            for old, new in _renamings(source):
                if new.decode() not in others.setdefault(old.decode(), []):
                    others[old.decode()].append(new.decode())
        return bases, others


class Subclasses:
    """Subclasses of classes, found for one question; what a base means in a file is looked up once."""

    def __init__(self, resolver: Resolver, checkpoint: Callable[[], None] = lambda: None) -> None:
        self._resolver = resolver
        self._checkpoint = checkpoint
        self._bases: dict[tuple[str, str, str], Base] = {}
        self._names: dict[SourceTree, _Names] = {}
        self._tables: WeakKeyDictionary[Unit, dict[str, list[tuple[str, ClassRow]]]] = WeakKeyDictionary()

    def direct(self, symbol: ClassSymbol) -> list[ClassSymbol]:
        """The classes that name `symbol` as a base, in order of their names; templates are left out."""
        found: dict[tuple[str, str, int], ClassSymbol] = {}
        for tree in self._resolver.trees:
            for name, called, file in self._called(tree, symbol):
                for inner in self._candidates(tree, called, file):
                    key = tree.repository.name, inner.file, inner.line
                    if key not in found and self._derives(inner, name, symbol):
                        found[key] = inner
        return sorted(found.values(), key=lambda inner: (inner.qualified_name, inner.line))

    def count(self, symbol: ClassSymbol) -> int:
        """How many classes derive from `symbol`, directly or not."""
        seen: set[tuple[str, str, int]] = set()
        pending = [symbol]
        while pending:
            self._checkpoint()
            for inner in self.direct(pending.pop()):
                key = inner.repository.name, inner.file, inner.line
                if key not in seen:
                    seen.add(key)
                    pending.append(inner)
        return len(seen)

    def _candidates(self, tree: SourceTree, name: str, file: str) -> Iterator[ClassSymbol]:
        """The classes of a file that bear a name."""
        if file.rpartition("/")[2].startswith("modular_"):
            return
        unit = tree.unit(file)
        table = self._tables.get(unit)
        if table is None:
            table = self._tables[unit] = {}
            for path, row in unit.classes():
                table.setdefault(row.name, []).append((path, row))
        for path, row in table.get(name, ()):
            if not row.guard.type_checking:  # such a class is never made
                yield ClassSymbol(unit, path, row)

    def _derives(self, inner: ClassSymbol, name: str, symbol: ClassSymbol) -> bool:
        """Whether `symbol`, called `name` there, is a base of `inner`."""
        texts = inner.row.bases
        plain = all(_DOTTED.match(text.split("[", 1)[0].strip()) for text in texts)
        bases = [self._base(inner, text) for text in texts if _ends_in(text, name)] if plain else None
        return any(
            not isinstance(base, str) and base.same(symbol)
            for base in (bases if bases is not None else self._resolver.bases(inner))
        )

    def _base(self, inner: ClassSymbol, text: str) -> Base:
        """The class that a base means; one that the file binds once means the same to every class of the file."""
        head = text.split("[", 1)[0].split(".", 1)[0].strip()
        if "." in inner.path or len(inner.unit.bindings.get(head, ())) > 1:
            return self._resolver.base(inner, text)
        key = inner.repository.name, inner.file, text
        if key not in self._bases:
            self._bases[key] = self._resolver.base(inner, text)
        return self._bases[key]

    def _called(self, tree: SourceTree, symbol: ClassSymbol) -> Iterator[tuple[str, str, str]]:
        """(name, class, file): the classes of the tree with a base that bears a name of `symbol`."""
        table = self._names.setdefault(tree, _Names(tree, self._checkpoint))
        names = [symbol.name]
        for name in names:
            found = table.with_base(name)
            yield from ((name, inner, file) for inner, file in dict.fromkeys(found))
            if name == symbol.name or found:  # a name that no class derives from leads no further
                names += [other for other in table.others(name) if other not in names]


def _ends_in(base: str, name: str) -> bool:
    return base.split("[", 1)[0].strip().rpartition(".")[2] == name


def _renamings(source: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(old, new) of every `old as new` and, at module level, `new = old` or `new = module.old`."""
    for match in _AS.finditer(source):
        old = _LAST_WORD.search(source, max(0, match.start() - 80), match.start())
        if old is not None:
            yield old[0], match[1]
    for match in _EQUAL.finditer(source):
        yield match[2], match[1]
