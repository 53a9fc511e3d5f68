"""Section 8: where FLOPs and bytes go, and what bounds them."""

from __future__ import annotations

from collections.abc import Sequence

from opscope_schemas.analysis import GroupTotal, ModelAnalysis
from opscope_schemas.formula import Rational, evaluate
from opscope_schemas.units import plain_bytes

from opscope_tools.report import scan
from opscope_tools.report.facts import Figures, ImplementationFacts, short
from opscope_tools.report.graph import Edge, Graph, Vertex
from opscope_tools.report.kernels import in_code
from opscope_tools.report.markdown import table
from opscope_tools.report.point import point_said
from opscope_tools.report.quotes import Quotes

__all__ = ["bottlenecks", "cost_tables", "memory_graph"]


def memory_graph(facts: ImplementationFacts) -> Graph:
    """What crosses the border of device memory in one pass; inside a kernel only what the tiling of a named one says."""
    lines = []
    for document in facts.documents:
        figures, floor = facts.totals(document), facts.floor_bytes(document)
        lines.append(
            f"{document.phase}: {plain_bytes(figures.read)} read, {plain_bytes(figures.write)} written, "
            f"floor {plain_bytes(floor)}"
        )
    tiles = [
        f"{kernel.name}: "
        + (", ".join(f"{t.name}={in_code('/'.join(t.values)) or '?'}" for t in kernel.tile) or "no tile constant")
        for kernel in (facts.tiling.kernels if facts.tiling else ())
    ]
    return Graph(
        (
            Vertex("hbm", ("Global memory (HBM)", *lines)),
            Vertex("sram", ("Shared memory (SRAM)", *tiles, "not analysed: library kernels stage their own tiles")),
            Vertex("registers", ("Registers", "not analysed: known only after compilation")),
        ),
        (
            Edge("hbm", "sram", "load, one kernel at a time; results are stored the same way"),
            Edge("sram", "registers", "load"),
        ),
    )  # fmt: skip


def _figures(group: GroupTotal, values: dict[str, Rational]) -> Figures:
    access = group.memory_access
    texts = (group.flops, group.matmul_flops, access.read, access.write)
    return Figures(*(evaluate(text, values) for text in texts))


def _bound(figures: Figures, ridge: float) -> str:
    return "compute" if figures.intensity >= ridge else "memory"


def cost_tables(facts: ImplementationFacts, quotes: Quotes) -> list[tuple[str, str]]:
    """Per phase a title and a table of costs by module class (kernels of its own lines)."""
    tables = []
    for document in facts.documents:
        values, phase, whole = facts.point(document), document.phase, facts.totals(document)
        rows = []
        for group in document.per_class:
            figures, key = _figures(group, values), f"{phase}.class.{group.name}"
            rows.append(
                (
                    f"`{short(group.name)}`",
                    quotes(f"{key}.flops", figures.flops),
                    quotes(f"{key}.matmul_flops", figures.matmul_flops),
                    quotes(f"{key}.bytes", figures.bytes),
                    quotes.decimal(f"{key}.intensity", figures.intensity),
                    _bound(figures, facts.ridge) if figures.bytes else "neither: moves nothing",
                )
            )
        if not rows:
            rows = [("not analysed: the document has no totals per class", "-", "-", "-", "-", "-")]
        rows.append(
            (
                "the whole pass",
                quotes(f"{phase}.flops", whole.flops),
                quotes(f"{phase}.matmul_flops", whole.matmul_flops),
                quotes(f"{phase}.bytes", whole.bytes),
                quotes.decimal(f"{phase}.intensity", whole.intensity),
                _bound(whole, facts.ridge),
            )
        )
        head = ("Class (own lines)", "FLOPs", "Matrix products", "Bytes", "FLOPs per byte", "Bound")
        tables.append((_point(facts, document, quotes), table(head, rows)))
    return tables


def _point(facts: ImplementationFacts, document: ModelAnalysis, quotes: Quotes) -> str:
    return f"{document.phase.capitalize()} at {point_said(document, facts.point(document), quotes)}:"


def bottlenecks(facts: ImplementationFacts, quotes: Quotes) -> list[str]:
    """Compute-bound and memory-bound operators against the stated ridge, then synchronisation."""
    lines = []
    for title, kind in (("Compute Bound", "compute"), ("Memory Bound", "memory")):
        said = [
            f"{document.phase}: {', '.join(names) if names else 'none'}"
            for document in facts.documents
            for names in [_bound_operators(facts, document, kind, quotes)]
        ]
        lines.append(f"**{title}:** {'; '.join(said)}")
    hits = scan.matching_lines(facts.reader, facts.modeling_file, r"(\.item\(\)|synchronize\(|\.tolist\(\)|\.cpu\(\))")
    said = [f"`{hit.text}` ({hit.pointer})" for hit in hits]
    none = f"none found: searched `{facts.modeling_file}` for item, tolist, cpu and synchronize"
    lines.append(f"**Synchronization:** {', '.join(said) if said else none}")
    return lines


def _bound_operators(facts: ImplementationFacts, document: ModelAnalysis, kind: str, quotes: Quotes) -> Sequence[str]:
    values = facts.point(document)
    figures = ((group.name, _figures(group, values)) for group in document.per_operator)
    return [
        f"{name} ({quotes.decimal(f'{document.phase}.operator.{name}.intensity', f.intensity)})"
        for name, f in figures
        if f.bytes and _bound(f, facts.ridge) == kind
    ]
