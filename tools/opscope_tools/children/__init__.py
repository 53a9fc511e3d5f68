"""The one way in which opscope starts another process; a lint rule refuses every other.

`start` begins a process that is talked to, `run` one that is waited for. Both go through `launcher.py`, so that each child
has a session and a working folder of its own, a cut-down environment, limits, and an end: with the call that started it, and
with the process that did, however that dies. `Cage` adds what the kernel can forbid it (Landlock and seccomp).

Reading order: environment.py, cage.py, starting.py (this side), launcher.py and seal.py (the child's side), scratch.py.
"""

from opscope_tools.children.cage import Cage, Protection, protection
from opscope_tools.children.environment import environment_for
from opscope_tools.children.scratch import alone, scratch_folder
from opscope_tools.children.starting import (
    NOTHING,
    UNLIMITED,
    Child,
    Done,
    Limits,
    python_module,
    run,
    start,
    started_by_others,
)

__all__ = [
    "NOTHING",
    "UNLIMITED",
    "Cage",
    "Child",
    "Done",
    "Limits",
    "Protection",
    "alone",
    "environment_for",
    "protection",
    "python_module",
    "run",
    "scratch_folder",
    "start",
    "started_by_others",
]
