"""Sections 7 and 8: what the config declares about splitting the model, and where FLOPs and bytes go."""

from __future__ import annotations

from collections.abc import Sequence

from opscope_schemas.analysis import GroupTotal, ModelAnalysis
from opscope_schemas.formula import evaluate

from opscope_tools.report import scan
from opscope_tools.report.diagrams import Box, bars, draw_stack
from opscope_tools.report.facts import Figures, ImplementationFacts, short
from opscope_tools.report.markdown import table
from opscope_tools.report.overview import scopes
from opscope_tools.report.quotes import Quotes, plain_bytes

__all__ = [
    "bottlenecks", "communication_rows", "cost_tables", "memory_diagram", "overlap", "parallelism_lines", "timeline",
]  # fmt: skip

_COLLECTIVES = r"\b(all_reduce|all_gather|reduce_scatter|all_to_all|torch\.distributed)\b"
_STRATEGIES = (
    ("Data Parallelism", "", r"\b(DistributedDataParallel|fully_shard|FSDP)\b"),
    ("Tensor Parallelism", "tp", r"\b(ColumnParallel\w*|RowParallel\w*|parallelize_module)\b"),
    ("Pipeline Parallelism", "pp", r"\b(PipelineStage|pipeline_parallel\w*)\b"),
    ("Sequence Parallelism", "sp", r"\b(SequenceParallel|sequence_parallel\w*|ring_attention)\b"),
    ("Expert Parallelism", "ep", r"\b(expert_parallel\w*)\b"),
)


def _plans(facts: ImplementationFacts) -> list[scan.Hit]:
    """Plans that the config class declares, then those that the model's classes do."""
    found = []
    if facts.config_location is not None:
        path, span = facts.config_location
        found += scan.plans(facts.reader, path, span.name)
    for name in sorted(scopes(facts)):
        found += scan.plans(facts.reader, facts.modeling_file, name)
    return found


def _searched(facts: ImplementationFacts) -> str:
    files = [facts.modeling_file, *([facts.config_location[0]] if facts.config_location else [])]
    return " and ".join(f"`{path}`" for path in files)


def parallelism_lines(facts: ImplementationFacts) -> list[str]:
    """One line per strategy: the plan that declares it, calls that do it, or what was searched for."""
    plans = _plans(facts)
    lines = []
    for title, letters, pattern in _STRATEGIES:
        declared = [hit for hit in plans if letters and hit.name.endswith(f"_{letters}_plan")]
        entries = sum(1 for hit in plans if letters and f"_{letters}_plan[" in hit.name)
        calls = scan.matching_lines(facts.reader, facts.modeling_file, pattern)
        said = [f"`{hit.name}` ({hit.pointer}) declares it for {entries} modules" for hit in declared]
        said += [f"`{hit.name}` ({hit.pointer})" for hit in calls]
        if said:
            lines.append(f"**{title}:** Yes; {'; '.join(said)}.")
        else:
            plan = f"an attribute that ends in `_{letters}_plan`, and for " if letters else ""
            lines.append(f"**{title}:** No; none found: searched {_searched(facts)} for {plan}`{_words(pattern)}`.")
    return lines


def _words(pattern: str) -> str:
    return pattern.replace(r"\b", "").replace(r"\w*", "").replace("\\", "").strip("()").replace("|", " ")


def communication_rows(facts: ImplementationFacts) -> list[tuple[str, str, str, str]]:
    """Collectives that source calls, and plan entries whose style issues them when a plan is applied."""
    calls = scan.matching_lines(facts.reader, facts.modeling_file, _COLLECTIVES)
    rows = [(f"`{hit.text}`", hit.name, hit.pointer, "not analysed: the size depends on the plan") for hit in calls]
    rows += [
        (
            f"`{_entry(hit)}` split as {hit.text}",
            "all_reduce, all_gather or none: not analysed, the style's own code decides",
            f"when the plan is applied ({hit.pointer})",
            "not analysed: the plan is not run",
        )
        for hit in _plans(facts)
        if "[" in hit.name and "_pp_plan" not in hit.name
    ]
    return rows or [("none found", "none", f"searched {_searched(facts)}", "0 bytes: nothing is communicated")]


def _entry(hit: scan.Hit) -> str:
    """The module pattern in the name of a plan's entry: `plan['layers.*.mlp']`."""
    return hit.name.partition("[")[2].strip("]'\"")


def overlap(facts: ImplementationFacts) -> str:
    """Whether communication is overlapped with computation."""
    hits = scan.matching_lines(facts.reader, facts.modeling_file, r"\b(async_op|cuda\.Stream|wait_stream)\b")
    if hits:
        return " ".join(f"`{hit.name}` is used ({hit.pointer})." for hit in hits)
    return (
        f"None found: searched `{facts.modeling_file}` for async_op, cuda.Stream and wait_stream; "
        "the traced forward runs on one stream."
    )


# ---- 8 --------------------------------------------------------------------------------------------------------------


def memory_diagram(facts: ImplementationFacts) -> str:
    """What crosses the border of device memory in one pass; what happens inside a kernel is not analysed."""
    lines = []
    for document in facts.documents:
        figures, floor = facts.totals(document), facts.floor_bytes(document)
        lines.append(
            f"{document.phase}: {plain_bytes(figures.read)} read, {plain_bytes(figures.write)} written, "
            f"floor {plain_bytes(floor)}"
        )
    boxes = [
        Box("Global memory (HBM)", tuple(lines)),
        Box("Shared memory (SRAM)", ("not analysed: library kernels stage their own tiles",)),
        Box("Registers", ("not analysed: known only after compilation",)),
    ]
    return draw_stack(boxes, ("load, one kernel at a time; results are stored the same way", "load"))


def _figures(group: GroupTotal, values: dict[str, int]) -> Figures:
    access = group.memory_access
    texts = (group.flops, group.matmul_flops, access.read, access.write)
    return Figures(*(evaluate(text, values) for text in texts))


def timeline(facts: ImplementationFacts) -> str:
    """Share of the bytes that each operator moves: modelled from the counts, nothing was timed."""
    parts = []
    for document in facts.documents:
        values = facts.point(document)
        rows = [(group.name, _figures(group, values).bytes) for group in document.per_operator]
        rows = sorted((row for row in rows if row[1]), key=lambda row: -row[1])[:12]
        parts.append(f"{document.phase}: bytes by operator, modelled (not measured)\n{bars(rows)}")
    return "\n\n".join(parts)


def _bound(figures: Figures, ridge: float) -> str:
    return "compute" if figures.intensity >= ridge else "memory"


def cost_tables(facts: ImplementationFacts, quotes: Quotes) -> list[tuple[str, str]]:
    """Per phase a title and a table of costs by module class (kernels of its own lines)."""
    tables = []
    for document in facts.documents:
        values, phase = facts.point(document), document.phase
        rows = []
        for group in document.per_class:
            figures, key = _figures(group, values), f"{phase}.class.{group.name}"
            rows.append(
                (
                    f"`{short(group.name)}`",
                    quotes(f"{key}.flops", figures.flops),
                    quotes(f"{key}.matmul_flops", figures.matmul_flops),
                    quotes(f"{key}.bytes", figures.bytes),
                    f"{figures.intensity:.2f}",
                    _bound(figures, facts.ridge) if figures.bytes else "neither: moves nothing",
                )
            )
        if not rows:
            rows = [("not analysed: the document has no totals per class", "-", "-", "-", "-", "-")]
        head = ("Class (own lines)", "FLOPs", "Matrix products", "Bytes", "FLOPs per byte", "Bound")
        tables.append((_point(facts, document), table(head, rows)))
    return tables


def _point(facts: ImplementationFacts, document: ModelAnalysis) -> str:
    values = facts.point(document)
    return (
        f"{document.phase.capitalize()} at batch {values['batch_size']}, {values['seq_len']} new and "
        f"{values['cache_len']} cached tokens:"
    )


def bottlenecks(facts: ImplementationFacts) -> list[str]:
    """Compute-bound and memory-bound operators against the stated ridge, then synchronisation."""
    lines = []
    for title, kind in (("Compute Bound", "compute"), ("Memory Bound", "memory")):
        said = [
            f"{document.phase}: {', '.join(names) if names else 'none'}"
            for document in facts.documents
            for names in [_bound_operators(facts, document, kind)]
        ]
        lines.append(f"**{title}:** {'; '.join(said)}")
    hits = scan.matching_lines(facts.reader, facts.modeling_file, r"(\.item\(\)|synchronize\(|\.tolist\(\)|\.cpu\(\))")
    said = [f"`{hit.text}` ({hit.pointer})" for hit in hits]
    none = f"none found: searched `{facts.modeling_file}` for item, tolist, cpu and synchronize"
    lines.append(f"**Synchronization:** {', '.join(said) if said else none}")
    return lines


def _bound_operators(facts: ImplementationFacts, document: ModelAnalysis, kind: str) -> Sequence[str]:
    values = facts.point(document)
    figures = ((group.name, _figures(group, values)) for group in document.per_operator)
    return [f"{name} ({f.intensity:.2f})" for name, f in figures if f.bytes and _bound(f, facts.ridge) == kind]
