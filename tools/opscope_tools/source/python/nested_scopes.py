"""What the classes and functions around a nested class bind: a class body is seen by its own statements, a function's
body by everything inside it.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from opscope_tools.source.python.file_rows import body_rows
from opscope_tools.source.python.found import ClassSymbol
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import ClassRow, FunctionRow, Row


class Nesting:
    """Reads the bodies of functions that hold classes, once for each state of a file."""

    def __init__(self) -> None:
        self._bodies: WeakKeyDictionary[Unit, dict[int, tuple[Row, ...]]] = WeakKeyDictionary()

    def binding(self, symbol: ClassSymbol, name: str) -> tuple[str, Row] | str | None:
        """(path in the module, row) of what binds `name` around a nested class, the innermost first; a sentence's part
        where it is a parameter; None where nothing below the module's own level binds it."""
        path = symbol.path
        while "." in path:
            inner, path = path, path.rpartition(".")[0].removesuffix(".<locals>")
            holder = _at_path(symbol.unit, path)
            if isinstance(holder, FunctionRow):
                row = self._local(symbol, holder, name)
                if row is not None:
                    return f"{path}.<locals>.{name}", row
                if any(parameter.name.lstrip("*") == name for parameter in holder.parameters):
                    return f"{name} (a parameter of {holder.name})"
            elif holder is not None and inner == symbol.path:
                for row in reversed(holder.body):
                    if row.name == name and row.line < symbol.line:
                        return f"{path}.{name}", row
        return None

    def _local(self, symbol: ClassSymbol, function: FunctionRow, name: str) -> Row | None:
        """The last row of a function's body that binds `name` before the class."""
        bodies = self._bodies.setdefault(symbol.unit, {})
        if function.line not in bodies:
            bodies[function.line] = body_rows(symbol.unit.tree.source(symbol.file), function)
        rows = [row for row in bodies[function.line] if row.name == name and row.line < symbol.line]
        return rows[-1] if rows else None


def _at_path(unit: Unit, path: str) -> ClassRow | FunctionRow | None:
    """The class or function that stands at `Outer.method.<locals>.Inner` of a module; the last where several do."""
    rows: tuple[Row, ...] = unit.rows.rows
    found: ClassRow | FunctionRow | None = None
    for part in path.replace(".<locals>", "").split("."):
        named = [row for row in rows if row.name == part and isinstance(row, ClassRow | FunctionRow)]
        if not named:
            return None
        found = named[-1]
        rows = found.body if isinstance(found, ClassRow) else found.classes
    return found
