"""An answer that agrees with the trace, made whole: what it left out of the optional fields is the trace's.

Formulas, operations and explanations stay as the agent wrote them; kernels stand in the trace's order. How is counted
(`conventions`) is the trace's alone, since the formulas were held against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from opscope_schemas.analysis import Analysis, Kernel, MemoryAccess, Totals

from opscope_clients.agents.checking import Check, given

__all__ = ["completed"]

Document = TypeVar("Document", bound=Analysis)


def completed(theirs: Document, ours: Document, check: Check) -> Document:
    """`theirs`, which `check` found no difference in, with the rest of `ours`."""
    known = {variable.name: variable for variable in ours.variables}
    own = {variable.name: variable.meaning for variable in theirs.variables if variable.meaning}
    update: dict[str, Any] = {
        "kernels": _kernels(theirs.kernels, ours.kernels, check),
        "totals": _totals(theirs.totals, ours.totals),
        "variables": tuple(v.model_copy(update={"meaning": own.get(n, v.meaning)}) for n, v in known.items()),
        "assumptions": tuple(dict.fromkeys((*ours.assumptions, *theirs.assumptions))),
        "parameters": theirs.parameters if given(theirs, "parameters") else ours.parameters,
    }
    return ours.model_copy(update=update)


def _totals(theirs: Totals, ours: Totals) -> Totals:
    saving = theirs.causal_saving if given(theirs, "causal_saving") else ours.causal_saving
    return theirs.model_copy(update={"causal_saving": saving})


def _kernels(theirs: Sequence[Kernel], ours: Sequence[Kernel], check: Check) -> tuple[Kernel, ...]:
    return tuple(_kernel(said, known, check) for said, known in check.pairs(theirs, ours).both)


def _kernel(said: Kernel, known: Kernel, check: Check) -> Kernel:
    update: dict[str, Any] = {
        "operation": said.operation,
        "analysis": said.analysis,
        "flops": said.flops,
        "matmul_flops": said.matmul_flops,
        "memory_access": MemoryAccess(read=said.memory_access.read, write=said.memory_access.write),
    }
    if known.kernels is not None:
        update["kernels"] = _kernels(said.kernels or (), known.kernels, check)
    return known.model_copy(update=update)
