"""Smaller lists of tools, by what an agent is to do. Names only: whoever offers them need not import the tools."""

from __future__ import annotations

TOOLSETS: dict[str, tuple[str, ...]] = {
    "source": ("map_repo", "resolve_class", "find_forward", "find_references", "search_source", "extract_config"),
    "cost": (
        "resolve_class",
        "find_forward",
        "inspect_model",
        "count_flops",
        "expand_refs",
        "trace_dataflow",
        "estimate_roofline",
        "plan",
        "sweep",
        "compare",
    ),
    "kernels": ("extract_config", "cuda_kernel_tiling"),
    "reports": ("map_repo", "resolve_class", "write_report", "check_report"),
    "evidence": ("cuda_kernel_tiling", "collect_evidence", "import_evidence", "write_report", "check_report"),
}
