"""The data of a page's live part: the formulas of every operator, the conditions under which they hold, and the devices.

The page evaluates them itself (page/formula.js) at whatever sizes are set. Several traces of a pass may be there: the one at the
report's own point and the general one; the page takes the first whose conditions hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from opscope_schemas.analysis import Kernel, ModelAnalysis
from opscope_schemas.dataflow import Dataflow
from opscope_schemas.estimates import SweepResult
from opscope_schemas.formula import Rational, holds, variables

from opscope_tools.report.facts import ImplementationFacts, is_leaf, short

__all__ = ["assets", "live_data"]

_FOLDER = Path(__file__).with_name("page")


def assets() -> Mapping[str, str]:
    """The page's own script and style, by what they are."""
    script = "\n".join((_FOLDER / name).read_text("utf-8") for name in ("formula.js", "live.js"))
    return {"live_script": script, "live_style": (_FOLDER / "live.css").read_text("utf-8")}


def live_data(
    facts: ImplementationFacts,
    devices: Sequence[Mapping[str, object]],
    device: str,
    plans: Sequence[tuple[int, Sequence[SweepResult]]] = (),
) -> str:
    """The data as JSON that may stand in a script element; `device` is the one that is shown first.

    A device has `id`, `name`, `peaks` (operations per second by precision), `bandwidth` (bytes per second), `usable` (bytes).
    `plans` are passes over so many ranks at many points, as engines run them on `device`.
    """
    table = _Formulas()
    phases = []
    for document, graph in zip(facts.documents, facts.graphs, strict=True):
        general = [pair for pair in facts.general if pair[0].phase == document.phase]
        pairs = [(document, graph), *(pair for pair in general if pair[0].conditions != document.conditions)]
        documents = [_document(facts, one, flow, facts.point(document), table) for one, flow in pairs]
        phases.append({"phase": document.phase, "documents": documents, "served": list(_served(facts, document.phase))})
    data = {
        "model": short(facts.subject), "target": facts.target, "limit": facts.limit, "phases": phases, "device": device,
        "devices": list(devices), "plans": [_plan(*plan) for plan in plans], "formulas": table.texts,
    }  # fmt: skip
    return json.dumps(data, separators=(",", ":"), default=float).replace("<", "\\u003c")


def _plan(ranks: int, passes: Sequence[SweepResult]) -> dict[str, object]:
    name = "one device" if ranks == 1 else f"{ranks} devices, split by tensors"
    return {"id": f"tp{ranks}", "name": name, "phases": {found.phase: _grid(found) for found in passes}}


def _grid(found: SweepResult) -> dict[str, object]:
    """Seconds and bytes (weights and cache of a device) by context, then by batch."""
    batches, contexts = (sorted({getattr(point, name) for point in found.points}) for name in ("batch", "context"))
    at = {(point.context, point.batch): point for point in found.points}
    rows = [[at[context, batch] for batch in batches] for context in contexts]
    return {
        "batches": batches, "contexts": contexts,
        "seconds": [[float(f"{point.calibrated_seconds:.5g}") for point in row] for row in rows],
        "bytes": [[point.weights_bytes + point.cache_bytes for point in row] for row in rows],
    }  # fmt: skip


class _Formulas:
    """Texts of formulas, each once; the data speaks of them by place."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        return list(self._places)

    def __call__(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))


def _document(
    facts: ImplementationFacts, document: ModelAnalysis, graph: Dataflow, point: Mapping[str, Rational], table: _Formulas
) -> dict[str, object]:  # fmt: skip
    known = {v.name for v in document.variables}
    values = {name: value for name, value in point.items() if name in known}
    return {
        "point": values,
        "variables": [v.model_dump(include={"name", "meaning", "config_key", "default", "definition", "kind"}) for v in document.variables],
        "conditions": list(document.conditions),
        # compared at the report's point with a trace made there: the engine answers with it, though these do not hold
        "waived": [c for c in document.conditions if variables(c) <= point.keys() and not holds(c, point)] if document in facts.documents else [],
        "rows": list(_rows(document.kernels, "", document, table)),
        "weights": document.weights,
        "cache": graph.cache.after if graph.cache is not None else "",
        "per_token": graph.cache.per_token if graph.cache is not None else "",
        "inputs": graph.inputs,
        "peaks": [peak.bytes for peak in graph.peaks],
    }  # fmt: skip


def _rows(
    kernels: Sequence[Kernel], above: str, document: ModelAnalysis, table: _Formulas, owner: str = ""
) -> Iterator[dict[str, object]]:  # fmt: skip
    """The operators with the module that issues each; figures are of all their runs."""
    for kernel in kernels:
        path = ".".join(filter(None, (above, kernel.attribute)))
        if not is_leaf(kernel):
            yield from _rows(kernel.kernels or (), path, document, table, kernel.class_name)
            continue
        access = kernel.memory_access
        yield {
            "path": path if kernel.class_name else above, "operator": (kernel.operator or short(kernel.class_name)).removeprefix("aten."),
            "group": f"{short(owner or document.class_name)}: {(kernel.operator or short(kernel.class_name)).partition('.')[2] or kernel.operation[:30]}",
            "file": kernel.file, "line": kernel.line, "code": kernel.code, "flops": table(kernel.flops), "matmul": table(kernel.matmul_flops),
            "read": table(access.read), "write": table(access.write),
        }  # fmt: skip


def _served(facts: ImplementationFacts, phase: str) -> Iterator[dict[str, object]]:
    """The kernels of the report's own estimate whose time is calibrated."""
    found = facts.whole(phase)
    for one in found.operators if found is not None else ():
        if one.calibrated_seconds is not None:
            name = f"{one.operation} ({one.module})" if one.module else one.operation
            yield {"name": name, "flops": one.flops, "bytes": one.bytes, "seconds": one.calibrated_seconds}
