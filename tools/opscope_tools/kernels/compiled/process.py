"""Runs a compiler, or a tool of its toolkit, in a cage: it reads what it is given to compile, writes its folder, and is offline.

What is compiled is foreign code: `#include "/home/me/.ssh/id_rsa"` must find nothing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from opscope_tools.children import Cage, Done, Limits, run

__all__ = ["compiled_by", "toolkit"]

_MEMORY = 8 << 30


def compiled_by(
    command: Sequence[str], folder: Path, *, reads: Sequence[Path] = (), seconds: float,
    checkpoint: Callable[[], None] = lambda: None, text: str = "", environment: Mapping[str, str] | None = None,
) -> Done:  # fmt: skip
    """Run `command` in `folder`, the one place where it may write, with `text` as its input; `reads` is what it may look into.

    `checkpoint` may raise to cancel. Raises `OSError` where no process can be started.
    """
    # a compiler driver starts the host's compiler, its assembler and tools of its own
    programs = ("/usr", "/bin", toolkit(command[0]), sys.prefix, sys.base_prefix)
    cage = Cage(read=(*programs, *map(str, reads)), write=(str(folder),), execute=programs)
    limits = Limits(cpu_seconds=math.ceil(seconds) + 5, address_bytes=_MEMORY)
    homes = dict.fromkeys(("HOME", "TMPDIR", "TRITON_HOME"), str(folder))
    return run(
        command, seconds=seconds, text=text, folder=folder, limits=limits, cage=cage, checkpoint=checkpoint,
        environment={**homes, **(environment or {})},
    )  # fmt: skip


def toolkit(program: str) -> str:
    """The folder of a toolkit that one of its programs lies in: `/usr/local/cuda` of `/usr/local/cuda/bin/nvcc`."""
    return str(Path(program).resolve().parents[1])
