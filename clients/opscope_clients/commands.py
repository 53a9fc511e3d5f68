"""Subcommands generated from the catalogue: one per tool, its options derived from its arguments.

A command runs the same handler, over the same cache, as the server does; only the answer's form differs.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from opscope_schemas.common import ToolResult
from opscope_schemas.estimates import PlanResult
from opscope_schemas.tables import TableResult
from opscope_tools.running.runner import compact, run_tool
from opscope_tools.running.tool import AnyTool, ToolContext
from opscope_tools.running.workspace import Workspace

from opscope_clients import console, screens
from opscope_clients.options import arguments_of, parameters, size_options, sizes_of
from opscope_clients.screens import tables
from opscope_clients.session_options import SessionCommand, SessionOptions, command


def tool_command(tool: AnyTool) -> SessionCommand:
    """The subcommand of `tool`: `find_forward` is `opscope find-forward`."""

    of_pass = {"values", "phase"} <= tool.arguments.model_fields.keys()

    def callback(
        session: SessionOptions,
        as_json: bool,
        whole: bool = False,
        out: str | None = None,
        as_csv: bool = False,
        scheduler: str | None = None,
        **given: Any,
    ) -> int:
        if out is not None:
            tables.check(out)
        arguments = {
            **({} if as_json else tool.for_people), **(_largest_pages(tool) if whole else {}), **arguments_of(tool, given),
        }  # fmt: skip
        if of_pass and (short := sizes_of(given)):
            arguments["values"] = {**short, **arguments.get("values", {})}
        session, arguments = _placed(session, tool, arguments)
        named = session.naming(
            arguments.get("config"),
            arguments.get("target"),
            arguments.get("model"),
            arguments.get("path"),
            *arguments.get("targets", ()),
        )
        if scheduler:
            from opscope_clients.cluster import swept

            result: ToolResult = swept(scheduler, arguments, named)
        else:
            result = run(tool, arguments, named.workspace())
        if isinstance(result, TableResult) and out is not None:
            tables.write(result, out)
        elif isinstance(result, TableResult) and as_csv:
            console.emit(result.to_csv())
        else:
            show(result, as_json=as_json, whole=whole)
        if as_csv or out is not None:
            tables.say_notes(result)
        return status(tool, result)

    options = [
        *parameters(tool),
        *(size_options() if of_pass else ()),
        *forms(),
        *(tables.options() if issubclass(tool.result, TableResult) else ()),
    ]
    if tool.name == "sweep":
        options.append(click.Option(["--scheduler"], metavar="ADDRESS", help="A Dask cluster, for many models."))
    return command(callback, tool.name.replace("_", "-"), tool.description, options)


def _placed(session: SessionOptions, tool: AnyTool, arguments: dict[str, Any]) -> tuple[SessionOptions, dict[str, Any]]:
    """The session with the sources that were named by their paths, and the arguments as they are called there: what is added is searched alone."""
    before = len(session.repo)
    for name in tool.positional:
        if isinstance(text := arguments.get(name), str):
            session, arguments[name] = session.placing(text)
        elif isinstance(text, list | tuple):
            placed = []
            for one in text:
                session, called = session.placing(one) if isinstance(one, str) else (session, one)
                placed.append(called)
            arguments[name] = placed
    if len(session.repo) == before + 1 and "repo" in tool.arguments.model_fields.keys() - set(tool.positional):
        arguments.setdefault("repo", session.repo[-1].partition("=")[0])
    return session, arguments


def status(tool: AnyTool, result: ToolResult) -> int:
    """The exit status of an answer: 1 where it is no, since a script must notice a check that fails, a name that nothing bears."""
    if isinstance(result, TableResult):
        return 0 if any(cell is not None for row in result.rows for cell in row[-1:]) else 1
    if not getattr(result, "ok", True) or (isinstance(result, PlanResult) and result.best is None):
        return 1
    fields = type(result).model_fields
    found = (
        getattr(result, name) not in ((), fields[name].get_default(call_default_factory=True)) for name in tool.finds
    )
    return 0 if not tool.finds or any(found) else 1


def forms() -> list[click.Parameter]:
    """How much of a result is printed, and for whom."""
    return [
        click.Option(["--all", "whole"], is_flag=True, help="Print all of it, however long."),
        click.Option(["--json", "as_json"], is_flag=True, help="The whole result as JSON, unshortened."),
    ]


def _largest_pages(tool: AnyTool) -> dict[str, int]:
    """The most that a call may ask for of each list that the tool pages."""
    paged = {
        name: field
        for name, field in tool.arguments.model_fields.items()
        if name.endswith("limit") and field.annotation is int
    }
    return {name: next((m.le for m in field.metadata if hasattr(m, "le")), 100_000) for name, field in paged.items()}


def run(tool: AnyTool, arguments: dict[str, Any], workspace: Workspace) -> ToolResult:
    """Run a tool here and now, its progress on stderr."""
    with console.progress(tool.title) as sink:
        answer: ToolResult = run_tool(tool, arguments, ToolContext(workspace, progress=sink))
    return answer


def show(result: ToolResult, *, as_json: bool, whole: bool = False) -> None:
    """Print a result: as JSON, or for people, a screenful or the `whole`."""
    if as_json:
        indent = 2 if sys.stdout.isatty() else None
        console.emit(json.dumps(compact(result), ensure_ascii=False, indent=indent) + "\n")
    else:
        screens.show(console.out(), result, whole=whole)
