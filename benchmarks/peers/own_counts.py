"""opscope asked what its peers are asked, with an empty cache: prints a JSON object.

Its trace worker has imported torch and transformers before, as the peers have. A second point is asked as the first was. A hundred
points are asked in one call of `sweep`, and put into the formula of the products alone.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import psutil
from opscope_schemas.formula import evaluate
from opscope_tools.catalog import tool_named
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.document import assignment
from peer_cases import CASES, Case, hundred, swept

T = TypeVar("T")


def spent() -> float:
    """Processor seconds of this process and of the trace worker, which it started."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))


def timed(action: Callable[[], T]) -> tuple[float, T]:
    begun = spent()
    result = action()
    return spent() - begun, result


def asked(case: Case, context: ToolContext) -> dict[str, Any]:
    """Answers at both points; processor seconds of the first, of the same again, of another point, and of a hundred others."""

    def ask(point: dict[str, int]) -> Any:
        given = {"target": case.class_name, "config": case.fields, "values": point}
        return run_tool(tool_named("count_flops"), given, context)

    def formula_alone() -> list[int]:
        document = results[0].document
        values = (assignment(document.variables, dict(point)) for point in hundred(case))
        return [int(evaluate(document.totals.matmul_flops, at)) for at in values]

    times, results = zip(*(timed(lambda: ask(point)) for point in (case.points[0], *case.points)), strict=True)  # noqa: B023
    table = {"targets": [case.class_name], "config": case.fields, "phase": "prefill", "values": swept(case)}
    in_one, found = timed(lambda: run_tool(tool_named("sweep"), table, context))
    alone, _ = timed(formula_alone)
    assert len(found.rows) == 100, len(found.rows)
    counted = [result.evaluated for result in results[1:]]
    return {
        "answers": [(c.matmul_flops, c.flops, c.memory_read + c.memory_write) for c in counted],
        **dict(zip(("first", "again", "another"), times, strict=True)),
        "hundred": in_one,
        "formula": alone,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(cache_folder=Path(folder))
        context = ToolContext(workspace)
        run_tool(tool_named("count_flops"), {"target": "GPT2LMHeadModel"}, context)  # torch and transformers imported
        start, cases = spent(), {}
        for name, case in CASES.items():
            cases[name] = asked(case, context)
            print(name, file=sys.stderr, flush=True)
        close_engines(workspace)
        workspace.store.close()
    print(json.dumps({"version": version("opscope"), "start": start, "cases": cases}))


if __name__ == "__main__":
    main()
