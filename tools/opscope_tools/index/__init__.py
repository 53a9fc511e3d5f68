"""The index engine: what the source of the registered repositories defines, read on demand, never imported.

Read in this order: rows.py (what one file says), parse.py, skeleton.py, symbols.py and construction.py (how that is
extracted), database.py with entries.py (how it is kept), build.py with reading.py (a whole repository at once), trees.py
(a repository as modules), resolve.py with branches.py, evaluation.py, exports.py, nesting.py, made.py and standard.py (names
and MROs across files), names.py with auto.py (what users call a class) and remarks.py (what to know of it), submodules.py (what
constructors set), building/ and built.py (what an object holds, constructors interpreted), constructor.py, shown.py,
configurations.py and constants.py (what configures it), values.py, tables.py, holdings.py, bindings.py and
expressions.py (what an expression stands for), callees.py
with tensors.py, training.py and lines.py (what a forward does), decorators.py (what is done to it), queries.py (the questions, `Index`).
Who uses a definition: occurrences.py (words in text), scopes.py and receivers.py (what names and objects mean inside a
function), sought.py (what is asked for), uses.py and references.py (each use); subclasses.py, surface.py (one file).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opscope_tools.index.built import HeldModule
    from opscope_tools.index.names import Target
    from opscope_tools.index.queries import ForwardDef, Index, open_index
    from opscope_tools.index.resolve import ClassSymbol

__all__ = ["ClassSymbol", "ForwardDef", "HeldModule", "Index", "Target", "open_index"]

_HOMES = {"ClassSymbol": "resolve", "HeldModule": "built", "Target": "names"}


def __getattr__(name: str) -> Any:
    """The public names on first use: processes that only read files start without what answers questions (0.4 s)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'queries')}"), name)
