"""The one explicit list of tools; the MCP server, the command line and the golden files are its only readers.

The order is the order in which an agent meets them: map the repository, find the class, read it, see who uses it, search for what has
no known name, how it is configured, cost it, expand it, follow its data, time it, compare it, look at its kernels, ask the machine, write and check. It
never depends on anything at run
time, so that two listings are always equal.

A tool is imported when it is asked for: all of them take two seconds, and a command needs one.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module

from opscope_schemas.errors import UnknownNameError

from opscope_tools.running.tool import AnyTool
from opscope_tools.toolsets import TOOLSETS

#: the module of this package that holds each; the tool bears its name in capitals
_MODULES = {
    "map_repo": "map_repo",
    "resolve_class": "resolve_class.tool",
    "find_forward": "find_forward",
    "find_references": "find_references",
    "search_source": "search_source",
    "extract_config": "extract_config.tool",
    "inspect_model": "inspect_model",
    "count_flops": "count_flops",
    "expand_refs": "expand_refs",
    "trace_dataflow": "trace_dataflow",
    "estimate_roofline": "estimate_roofline.tool",
    "plan": "estimate_roofline.planning",
    "sweep": "sweep",
    "compare": "compare.tool",
    "cuda_kernel_tiling": "cuda_kernel_tiling",
    "collect_evidence": "collect_evidence.tool",
    "import_evidence": "collect_evidence.importing",
    "write_report": "write_report",
    "check_report": "check_report",
}
#: every tool's name, in order
TOOL_NAMES: tuple[str, ...] = tuple(_MODULES)


@cache
def _tool(name: str) -> AnyTool:
    found: AnyTool = getattr(import_module(f"opscope_tools.{_MODULES[name]}"), name.upper())
    return found


def all_tools() -> tuple[AnyTool, ...]:
    """Every tool, in order."""
    return tuple(map(_tool, TOOL_NAMES))


def any_imported() -> bool:
    """Whether a tool has been imported already, from source that may have changed since."""
    return any(f"opscope_tools.{module}" in sys.modules for module in _MODULES.values())


def toolset(names: Sequence[str]) -> tuple[AnyTool, ...]:
    """The tools of all the toolsets or single tools that are named, in the catalogue's order; all of them for no name.

    Raises `UnknownNameError` for what is neither.
    """
    return tuple(map(_tool, names_of(names)))


def names_of(names: Sequence[str]) -> tuple[str, ...]:
    """The same, of tools that are not imported for it.

    Raises `UnknownNameError` for what is neither.
    """
    known = TOOLSETS | {name: (name,) for name in TOOL_NAMES}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
            raise UnknownNameError("toolset", name, near or list(TOOLSETS))
    chosen = {tool for name in names for tool in known[name]} if names else set(TOOL_NAMES)
    return tuple(name for name in TOOL_NAMES if name in chosen)


def tool_named(name: str) -> AnyTool:
    """The tool called `name`; raises `UnknownNameError` with the nearest names."""
    if name not in _MODULES:
        raise UnknownNameError("tool", name, difflib.get_close_matches(name, TOOL_NAMES, n=3, cutoff=0.4) or TOOL_NAMES)
    return _tool(name)
