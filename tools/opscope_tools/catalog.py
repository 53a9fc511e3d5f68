"""The one explicit list of tools; the MCP server, the command line and the golden files are its only readers.

The order is the order in which an agent meets them: map the repository, find the class, read it, see who uses it, search for what has
no known name, how it is configured, cost it, expand it, follow its data, time it, compare it, look at its kernels, ask the machine, write and check. It
never depends on anything at run
time, so that two listings are always equal.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from opscope_schemas.errors import UnknownNameError

from opscope_tools.check_report import CHECK_REPORT
from opscope_tools.collect_evidence.importing import IMPORT_EVIDENCE
from opscope_tools.collect_evidence.tool import COLLECT_EVIDENCE
from opscope_tools.compare.tool import COMPARE
from opscope_tools.count_flops import COUNT_FLOPS
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING
from opscope_tools.estimate_roofline.planning import PLAN
from opscope_tools.estimate_roofline.tool import ESTIMATE_ROOFLINE
from opscope_tools.expand_refs import EXPAND_REFS
from opscope_tools.extract_config.tool import EXTRACT_CONFIG
from opscope_tools.find_forward import FIND_FORWARD
from opscope_tools.find_references import FIND_REFERENCES
from opscope_tools.inspect_model import INSPECT_MODEL
from opscope_tools.map_repo import MAP_REPO
from opscope_tools.resolve_class.tool import RESOLVE_CLASS
from opscope_tools.running.tool import AnyTool
from opscope_tools.search_source import SEARCH_SOURCE
from opscope_tools.sweep import SWEEP
from opscope_tools.toolsets import TOOLSETS
from opscope_tools.trace_dataflow import TRACE_DATAFLOW
from opscope_tools.write_report import WRITE_REPORT

ALL_TOOLS: tuple[AnyTool, ...] = (
    MAP_REPO,
    RESOLVE_CLASS,
    FIND_FORWARD,
    FIND_REFERENCES,
    SEARCH_SOURCE,
    EXTRACT_CONFIG,
    INSPECT_MODEL,
    COUNT_FLOPS,
    EXPAND_REFS,
    TRACE_DATAFLOW,
    ESTIMATE_ROOFLINE,
    PLAN,
    SWEEP,
    COMPARE,
    CUDA_KERNEL_TILING,
    COLLECT_EVIDENCE,
    IMPORT_EVIDENCE,
    WRITE_REPORT,
    CHECK_REPORT,
)


def toolset(names: Sequence[str]) -> tuple[AnyTool, ...]:
    """The tools of all the toolsets or single tools that are named, in the catalogue's order; all of them for no name.

    Raises `UnknownNameError` for what is neither.
    """
    known = TOOLSETS | {tool.name: (tool.name,) for tool in ALL_TOOLS}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
            raise UnknownNameError("toolset", name, near or list(TOOLSETS))
    chosen = {tool for name in names for tool in known[name]} if names else {tool.name for tool in ALL_TOOLS}
    return tuple(tool for tool in ALL_TOOLS if tool.name in chosen)


def tool_named(name: str, tools: Sequence[AnyTool] = ALL_TOOLS) -> AnyTool:
    """The tool called `name`; raises `UnknownNameError` with the nearest names."""
    for tool in tools:
        if tool.name == name:
            return tool
    names = [tool.name for tool in tools]
    raise UnknownNameError("tool", name, difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names)
