"""Subcommands generated from the catalogue: one per tool, its options derived from its arguments.

A command runs the same handler, over the same cache, as the server does; only the answer's form differs.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from opscope_schemas.common import ToolResult
from opscope_tools.running.runner import compact, run_tool
from opscope_tools.running.tool import AnyTool, ToolContext
from opscope_tools.running.workspace import Workspace

from opscope_clients import console, render
from opscope_clients.options import arguments_of, parameters
from opscope_clients.session_options import SessionCommand, SessionOptions, command


def tool_command(tool: AnyTool) -> SessionCommand:
    """The subcommand of `tool`: `find_forward` is `opscope find-forward`."""

    def callback(session: SessionOptions, as_json: bool, **given: Any) -> int:
        arguments = {**({} if as_json else tool.for_people), **arguments_of(tool, given)}
        named = session.naming(arguments.get("config"), arguments.get("target"), arguments.get("model"))
        result = run(tool, arguments, named.workspace())
        show(result, as_json=as_json)
        # a check that finds problems, a report that was refused, a name that nothing bears are failures to a script
        return 0 if getattr(result, "ok", True) and getattr(result, "matches", True) else 1

    as_json = click.Option(["--json", "as_json"], is_flag=True, help="The whole result as JSON, unshortened.")
    return command(callback, tool.name.replace("_", "-"), tool.description, [*parameters(tool), as_json])


def run(tool: AnyTool, arguments: dict[str, Any], workspace: Workspace) -> ToolResult:
    """Run a tool here and now, its progress on stderr."""
    with console.progress(tool.title) as sink:
        answer: ToolResult = run_tool(tool, arguments, ToolContext(workspace, progress=sink))
    return answer


def show(result: ToolResult, *, as_json: bool) -> None:
    """Print a result: whole as JSON, or short for people."""
    if as_json:
        indent = 2 if sys.stdout.isatty() else None
        console.emit(json.dumps(compact(result), ensure_ascii=False, indent=indent) + "\n")
    else:
        render.show(console.out(), result)
