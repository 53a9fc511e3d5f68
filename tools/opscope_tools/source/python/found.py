"""What lookups give: a class with the place where it is defined, and what a name leads to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from opscope_schemas.common import Repository

from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import ClassRow, Row

#: what a class is told apart by: repository, qualified name and line, or its name alone where it is not in source
Identity = str | tuple[str, str, int]


@dataclass(frozen=True, eq=False)
class ClassSymbol:
    """A class definition, and where it stands; `known_as` where Python calls it otherwise than by that place."""

    unit: Unit
    path: str
    row: ClassRow
    known_as: str = ""

    @property
    def qualified_name(self) -> str:
        """Module and path in it, or the public name that it is known by."""
        return self.known_as or (f"{self.unit.name}.{self.path}" if self.unit.name else self.path)

    @property
    def name(self) -> str:
        """The name behind the last dot."""
        return self.row.name

    @property
    def module(self) -> str:
        """Dotted name of the module; empty for a script."""
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
        """1-based last line of its body."""
        return self.row.end_line

    @property
    def repository(self) -> Repository:
        """The repository that its file belongs to."""
        return self.unit.tree.repository

    @property
    def installed(self) -> bool:
        """Whether it comes from an installed package, not from a checkout."""
        return self.repository.installed

    @cached_property
    def members(self) -> dict[str, Row]:
        """The last row that binds each name of the class body."""
        return {row.name: row for row in self.row.body}

    @cached_property
    def identity(self) -> Identity:
        """What the same definition shares with itself, also where a changed file was read again."""
        return self.repository.name, self.qualified_name, self.line

    def same(self, other: ClassSymbol) -> bool:
        """Whether both are the same definition."""
        return self.identity == other.identity


@dataclass(frozen=True, eq=False)
class Found:
    """What a name leads to. `external`: nothing in the registered source; `name` is then the name as far as known.
    `alias` is the assignment that gives the thing another name, where one stands between, and the module of it."""

    kind: Literal["class", "function", "module", "value", "external"]
    name: str
    unit: Unit | None = None
    row: Row | None = None
    symbol: ClassSymbol | None = None
    alias: tuple[Unit, Row] | None = None

    @property
    def in_source(self) -> bool:
        """Whether a definition was found, not only a name."""
        return self.kind in {"class", "function", "module"}


Base = ClassSymbol | str
