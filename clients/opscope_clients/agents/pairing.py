"""Which kernel of an answer is which kernel of the trace: by source line first, then by name, then by kind.

Within a line kernels may stand in any order and may be worded freely; what finds no partner was invented or left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opscope_schemas.analysis import Kernel

__all__ = ["Pairs", "pair", "reference"]

_REFERENCE = re.compile(r"\$\{\{\s*([\w.]+)\s*\}\}")


@dataclass(frozen=True)
class Pairs:
    """Kernels that belong together, as (theirs, ours) in the trace's order, and those of either side left over."""

    both: tuple[tuple[Kernel, Kernel], ...]
    invented: tuple[Kernel, ...]
    left_out: tuple[Kernel, ...]


def reference(kernel: Kernel) -> str:
    """The class that a composite kernel refers to by `${{...}}`; empty where it refers to none."""
    found = _REFERENCE.search(kernel.operation)
    return found.group(1) if found else ""


def pair(theirs: Sequence[Kernel], ours: Sequence[Kernel], alike: Callable[[Kernel, Kernel], bool]) -> Pairs:
    """Pair the kernels of two lists; `alike` says whether two of one line agree in everything."""
    free = list(range(len(theirs)))
    partner: dict[int, int] = {}
    named: Callable[[Kernel, Kernel], bool] = lambda a, b: _name(a) == _name(b)  # noqa: E731 - one of three rules
    typed: Callable[[Kernel, Kernel], bool] = lambda a, b: a.kernel_type == b.kernel_type  # noqa: E731
    # both first: kernels of one line may cost the same and be called otherwise
    both: Callable[[Kernel, Kernel], bool] = lambda a, b: named(a, b) and alike(a, b)  # noqa: E731
    for rule in (both, alike, named, typed):
        for index, kernel in enumerate(ours):
            if index in partner:
                continue
            fits = (i for i in free if _place(theirs[i]) == _place(kernel) and rule(theirs[i], kernel))
            if (chosen := next(fits, None)) is not None:
                partner[index] = chosen
                free.remove(chosen)
    return Pairs(
        both=tuple((theirs[partner[i]], kernel) for i, kernel in enumerate(ours) if i in partner),
        invented=tuple(theirs[i] for i in free),
        left_out=tuple(kernel for i, kernel in enumerate(ours) if i not in partner),
    )


def _place(kernel: Kernel) -> tuple[str, int]:
    return kernel.file, kernel.line


def _name(kernel: Kernel) -> tuple[str, str, str]:
    """What tells kernels of one line apart: operator or referenced class, and the submodule where it is given."""
    if kernel.kernel_type == "composite":
        return "composite", reference(kernel) or kernel.class_name, kernel.attribute
    operator = kernel.operator.rpartition(".")[2] or kernel.operation.partition("(")[0].strip()
    return "basic", operator.rpartition(".")[2], ""
