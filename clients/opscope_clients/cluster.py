"""A sweep over many models on a Dask cluster: a model a task.

Each table is kept here as it comes, as an answer of this machine's own: a sweep that was broken off goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from opscope_schemas.errors import InputError, ValuesError
from opscope_schemas.tables import TableResult
from opscope_tools.catalog import tool_named
from opscope_tools.costing.arguments import sources
from opscope_tools.running.runner import look_up, run_tool, to_json, validate
from opscope_tools.running.tool import ToolContext

from opscope_clients import console
from opscope_clients.session_options import SessionOptions

#: a scheduler that answers at all does so in
_SECONDS = 10


def swept(address: str, arguments: Mapping[str, Any], session: SessionOptions) -> TableResult:
    """The table of all targets, in the order given. Raises `InputError` where there is no cluster, `ValuesError` where no model has a table."""
    tool, workspace = tool_named("sweep"), session.workspace()
    asked = {str(one): {**arguments, "targets": [one]} for one in arguments["targets"]}
    keys: dict[str, str] = {}
    found: dict[str, TableResult] = {}
    for target, given in asked.items():
        keys[target], kept = look_up(tool, validate(tool, given), workspace)
        if isinstance(kept, TableResult):
            found[target] = kept
    problems = []
    here = {(source.repository, source.version) for source in sources(workspace)}
    missing = {target: given for target, given in asked.items() if target not in found}
    for target, answer in _answers(address, missing, session) if missing else ():
        if isinstance(answer, str):
            problems.append(f"{target}: {answer}")
            continue
        if here != (there := {(source.repository, source.version) for source in answer.sources}):
            said = " and ".join(" ".join(source) for source in sorted(there ^ here))
            raise InputError(
                f"A worker's sources are not those here: {said}.", next_step="Start workers of this environment."
            )
        workspace.store.put(f"artifact/{keys[target]}", to_json(answer))
        found[target] = answer
        console.err().print(f"{len(found)} of {len(asked)}: {target}", markup=False)
    return _joined([found[target] for target in asked if target in found], problems)


def _joined(tables: list[TableResult], problems: list[str]) -> TableResult:
    if not tables:
        raise ValuesError(
            "; ".join(problems) or "No model was given.", next_step="Sweep one of them without --scheduler."
        )
    rows = tuple(row for table in tables for row in table.rows)
    notes = dict.fromkeys(note for table in tables for note in table.notes)
    return tables[0].model_copy(update={"rows": rows, "count": len(rows), "notes": (*notes, *problems), "artifact": ""})


def _answers(
    address: str, asked: Mapping[str, Any], session: SessionOptions
) -> Iterator[tuple[str, TableResult | str]]:
    """The table of each target as it comes, or why there is none."""
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise InputError("--scheduler needs Dask.", next_step="Install opscope[cluster].") from None
    try:
        client = Client(address, timeout=_SECONDS)
    except (OSError, ValueError) as error:
        raise InputError(
            f"No Dask scheduler answers at {address}: {error}.", next_step="Start one: dask scheduler."
        ) from None
    with client:
        options = json.dumps(asdict(session))
        names = {client.submit(_table, options, given, pure=False): target for target, given in asked.items()}
        for future in as_completed(list(names)):
            failed = future.exception() if future.status == "error" else None
            yield names[future], str(failed) if failed else TableResult.model_validate_json(future.result())
            future.release()


@lru_cache(maxsize=4)
def _context(session: str) -> ToolContext:
    """One of a worker process for each session, whose traces it keeps."""
    return ToolContext(SessionOptions(**json.loads(session)).workspace())


def _table(session: str, arguments: Mapping[str, Any]) -> str:
    """On a worker: the table of one target, as JSON."""
    return to_json(run_tool(tool_named("sweep"), arguments, _context(session)))


__all__ = ["swept"]
