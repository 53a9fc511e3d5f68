"""Which of several statements that bind one name counts: of those that run, the last.

Whether the branch that a statement stands in runs here is told by its condition (guards.py), and by what the branch
imports: a block that needs a package which is not there cannot have run. Where neither tells, the first branch counts
before `else` and `except`.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from opscope_tools.source.python.guards import Evaluator
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import AssignRow, ImportRow, Row


class Branches:
    """Answers for the units of one resolver; `available` tells whether a module can be imported here."""

    def __init__(self, available: Callable[[str], bool], evaluator: Evaluator) -> None:
        self._available = available
        self._evaluator = evaluator
        self._guarded: WeakKeyDictionary[Unit, list[ImportRow]] = WeakKeyDictionary()

    def rank(self, unit: Unit, row: Row) -> tuple[bool, bool, int]:
        """Sort key of the rows that bind one name: the one that counts comes first."""
        runs = self.runs(unit, row)
        substitute = row.guard.fallback if runs is None else not runs
        return substitute, row.guard.type_checking, -row.line

    def runs(self, unit: Unit, row: Row) -> bool | None:
        """Whether the statement of the row runs when its module is imported here; None where source does not tell."""
        guard = row.guard
        if not guard.condition or guard.type_checking:
            return None
        if guard.block:
            failing = self._failing(unit, guard.block)
            if failing and guard.fallback:
                return True
            if failing and row.line > failing:
                return False
        holds = self._evaluator.holds(unit, guard.condition)
        if holds is not None:
            return holds
        impossible = self._impossible(unit)
        if guard.condition in impossible:
            return False
        opposite = guard.condition.removeprefix("not (").removesuffix(")")
        return True if guard.fallback and opposite in impossible else None

    def _imports(self, unit: Unit) -> list[ImportRow]:
        """Imports of other packages that stand under a condition or in a `try`."""
        known = self._guarded.get(unit)
        if known is None:
            known = self._guarded[unit] = [
                row
                for row in unit.rows.rows
                if isinstance(row, ImportRow)
                and row.guard.condition
                and not row.guard.fallback
                and not row.guard.type_checking
                and not row.module.startswith(".")
            ]
        return known

    def _failing(self, unit: Unit, block: int) -> int:
        """The line of the first import in the `try` block that cannot succeed here; 0 where there is none."""
        rows = [row for row in self._imports(unit) if row.guard.block == block]
        return next((row.line for row in rows if not self._available(row.module)), 0)

    def _impossible(self, unit: Unit) -> set[str]:
        """Conditions whose blocks import what is not there, outside any `try`."""
        rows = [row for row in self._imports(unit) if not row.guard.block]
        return {row.guard.condition for row in rows if not self._available(row.module)}


def deletes(row: Row) -> bool:
    """Whether the row stands for `del name`."""
    return isinstance(row, AssignRow) and not (row.value or row.entries or row.annotation)
