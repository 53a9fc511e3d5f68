"""The index engine: what the source of the registered repositories defines, read on demand, never imported.

It stands on `source`, which reads files and follows names across them. `queries.py` holds the questions (`Index`); `names/` is what users
call a class and what to know of it, `objects/` the interpreter of constructors, `modules/` what an object holds, `configurations/` what
configures it, `forwards/` what its forward does line by line, `references/` who uses a definition, `decisions/` which config fields
decide what runs, `search/` what words find, `cpp/` the same for C++, and `build/`
reads a whole repository at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opscope_tools.index.modules.held_modules import HeldModule
    from opscope_tools.index.names.targets import Target
    from opscope_tools.index.queries import ForwardDef, Index, open_index
    from opscope_tools.source.python.names import ClassSymbol

__all__ = ["ClassSymbol", "ForwardDef", "HeldModule", "Index", "Target", "open_index"]

_HOMES = {
    "ClassSymbol": "opscope_tools.source.python.names",
    "HeldModule": f"{__name__}.modules.held_modules",
    "Target": f"{__name__}.names.targets",
}


def __getattr__(name: str) -> Any:
    """The public names on first use: processes that only read files start without what answers questions (0.4 s)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, f"{__name__}.queries")), name)
