"""What a child process sees of our environment: what programs need to run, and no secret.

A list of what is let through, not of what is kept back: keys and tokens have names that nobody can list. Search paths keep
their absolute entries only: the others would mean the folder that one stands in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["environment_for"]

_PASSED = frozenset(
    "HOME LANG LANGUAGE TZ TMPDIR TEMP TMP TERM USER LOGNAME SHELL SYSTEMROOT"
    " LD_LIBRARY_PATH DYLD_LIBRARY_PATH CUDA_HOME CUDA_PATH CONDA_PREFIX VIRTUAL_ENV"
    # where a server that a client starts finds and keeps things
    " XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR".split()
)
#: the one secret among opscope's own settings
_SECRET = "OPSCOPE_HTTP_TOKEN"


def environment_for(given: Mapping[str, str] | None = None, *, own: bool = False) -> dict[str, str]:
    """The environment of a child, with `given` on top; `own` also passes opscope's settings, for an opscope of ours."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED or name.startswith("LC_") or (own and name.startswith("OPSCOPE_") and name != _SECRET)
    }
    for name in ("PATH", "PYTHONPATH"):
        if path := _absolute_only(os.environ.get(name, "")):
            passed[name] = path
    return {**passed, "PYTHONSAFEPATH": "1", **(given or {})}


def _absolute_only(path: str) -> str:
    """A search path without the entries that mean another folder wherever one stands."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if Path(entry).is_absolute())
