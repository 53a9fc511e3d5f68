"""Tools that are built out of other tools' answers ask for them here, so that these come from the store where they can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opscope_schemas.common import ToolResult

from opscope_tools.spec import ToolContext

__all__ = ["call_sibling"]


def call_sibling(name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    """Run another tool of the catalogue, or take its answer from the store."""
    from opscope_tools.catalog import tool_named  # here: the catalogue lists the callers too
    from opscope_tools.runner import run_tool

    return run_tool(tool_named(name), arguments, context)
