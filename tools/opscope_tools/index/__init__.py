"""The index engine: what the Python source of the registered repositories defines, read on demand, never imported.

Read in this order: rows.py (what one file says), parse.py, symbols.py and construction.py (how that is extracted),
trees.py (a repository as modules), resolve.py with standard.py (names and MROs across files), submodules.py (what an
object holds), callees.py with tensors.py and lines.py (what its forward does), queries.py (the questions, `Index`).
"""

from opscope_tools.index.queries import ForwardDef, Index, Target, open_index
from opscope_tools.index.resolve import ClassSymbol
from opscope_tools.index.submodules import Submodule

__all__ = ["ClassSymbol", "ForwardDef", "Index", "Submodule", "Target", "open_index"]
