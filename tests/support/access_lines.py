"""The lines of memory that a kernel's lists name beside those that its cost counts: the two must be the same."""

from __future__ import annotations

import re

from opscope_schemas.tiling import KernelTiling


def unlike(kernel: KernelTiling) -> set[tuple[str, int, str]]:
    """(file, line, functions on the way) of accesses that only the lists or only the cost has; not those that neither counts."""
    assert kernel.cost is not None
    listed = {(m.file, m.line, m.via) for m in (*kernel.loads, *kernel.stores) if getattr(m, "counted", True)}
    costs = {(c.file, c.line, c.via) for c in kernel.cost.lines if c.operation in {"load", "store", "atomic"}}
    named = {int(n) for text in kernel.cost.not_counted for n in re.findall(r"\bline (\d+)", text)}
    return {place for place in listed ^ costs if place[1] not in named}
