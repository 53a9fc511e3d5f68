"""Section 8: where FLOPs and bytes go, and what bounds them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from opscope_schemas.analysis import GroupTotal, ModelAnalysis
from opscope_schemas.formula import Rational, evaluate
from opscope_schemas.notes import UNPADDED
from opscope_schemas.units import plain_bytes, things

from opscope_tools.report import scan
from opscope_tools.report.facts import Figures, ImplementationFacts, is_leaf, leaves, limited, short, told_hidden, walk
from opscope_tools.report.graph import Edge, Graph, Vertex
from opscope_tools.report.kernels import in_code
from opscope_tools.report.markdown import table
from opscope_tools.report.overview import package_files
from opscope_tools.report.point import point_said
from opscope_tools.report.quotes import Quotes, joined

__all__ = ["WIDE", "basis_said", "bottlenecks", "cost_table", "has_wide", "memory_graph", "points_said"]

#: modules that are named for an operator which other things limit elsewhere
_MODULES = 4
#: of a pass at its roofs, what an operator takes to be named
_LITTLE = 0.01


#: what the ridge leaves aside
WIDE = "; products whose factors are of 32 bits stand at it too, though devices compute them more slowly"


def has_wide(facts: ImplementationFacts) -> bool:
    """Whether a pass multiplies matrices of 32 bits."""
    for document, graph in zip(facts.documents, facts.graphs, strict=True):
        wide = {tensor.id for tensor in graph.tensors if tensor.dtype == "float32"}
        kernels = (kernel for _, kernel in leaves(document) if kernel.kernel_type == "basic")
        for operator, kernel in zip(graph.operators, kernels, strict=True):
            if kernel.matmul_flops != "0" and wide.intersection(operator.reads):
                return True
    return False


def memory_graph(facts: ImplementationFacts) -> Graph:
    """What crosses the border of device memory in one pass; inside a kernel only what the tiling of a named one says."""
    lines, kept = [], list[str]()
    for document in facts.documents:
        figures, floor = facts.totals(document), facts.floor_bytes(document)
        served = facts.whole(document.phase)
        fused = f"as engines run it {plain_bytes(served.totals.bytes)} in all, " if served is not None else ""
        lines.append(
            f"{document.phase}: {fused}run eagerly {plain_bytes(figures.read)} read and {plain_bytes(figures.write)} written, "
            f"floor {plain_bytes(floor)}"
        )
        if served is not None and (less := figures.bytes - served.totals.bytes) > 0:
            kept.append(f"{document.phase} {plain_bytes(less)}")
    tiles = [
        f"{kernel.name}: "
        + (", ".join(f"{t.name}={in_code('/'.join(t.values)) or '?'}" for t in kernel.tile) or "no tile constant")
        for kernel in (facts.tiling.kernels if facts.tiling else ())
    ]
    hbm = Vertex(
        "hbm",
        (f"Global memory (HBM; what stays in the L2 cache is counted too): {'; '.join(lines)}{_unmoved(facts, kept)}",),
    )
    if not tiles:
        chip = "On chip (SRAM, registers): what kernels of libraries keep there is not analysed"
        return Graph((hbm, Vertex("chip", (chip,))), (Edge("hbm", "chip", "load and store"),))
    return Graph(
        (
            hbm,
            Vertex("sram", (f"Shared memory (SRAM): {'; '.join([*tiles, 'library kernels stage tiles of their own'])}",)),
            Vertex("registers", ("Registers: what a kernel computes with, until it is written",)),
        ),
        (
            Edge("hbm", "sram", "load and store"),
            Edge("sram", "registers", "load"),
        ),
    )  # fmt: skip


def _unmoved(facts: ImplementationFacts, kept: Sequence[str]) -> str:
    """What engines do not move of what moves eagerly, of each pass."""
    if not kept:
        return ""
    why = ["fused kernels hand it on in registers", "products that are joined read their input once"]
    why += ["a cache is not copied"] * any(found.memory.cache_bytes for found in facts.estimates.values())
    return f"; what engines do not move of what moves eagerly, as {joined(why)}: {', '.join(kept)}"


def _figures(group: GroupTotal, values: dict[str, Rational]) -> Figures:
    access = group.memory_access
    texts = (group.flops, group.matmul_flops, access.read, access.write)
    return Figures(*(evaluate(text, values) for text in texts))


def cost_table(facts: ImplementationFacts, quotes: Quotes) -> str:
    """Costs by module class (kernels of its own lines), those of several passes in one cell."""
    names = dict.fromkeys(group.name for document in facts.documents for group in document.per_class)
    rows = [row for name in names if (row := _row(facts, name, quotes))]
    whole: dict[str, tuple[str, Figures, str]] = {
        d.phase: (d.phase, facts.totals(d), facts.limited(d)[0]) for d in facts.documents
    }
    rows.append(("the whole pass", *_cells(facts, whole, quotes)))
    return table(("Class (own lines)", "FLOPs", "Matrix products", "Bytes", "FLOPs per byte", "Bound"), rows)


def _row(facts: ImplementationFacts, name: str, quotes: Quotes) -> tuple[str, ...]:
    """The row of a class; none where it neither computes nor moves anything."""
    found: dict[str, tuple[str, Figures, str]] = {}
    for document in facts.documents:
        values = facts.point(document)
        own = [Figures.sum([kernel], values) for owner, kernel in leaves(document) if owner == name]
        for group in document.per_class:
            if group.name == name:
                held = (f"{document.phase}.class.{name}", _figures(group, values), limited(own, facts.ridge)[0])
                found[document.phase] = held
    if not any(figures.bytes or figures.flops for _, figures, _ in found.values()):
        return ()
    return (f"`{short(name)}`", *_cells(facts, found, quotes))


def _cells(
    facts: ImplementationFacts, found: Mapping[str, tuple[str, Figures, str]], quotes: Quotes
) -> tuple[str, ...]:
    """FLOPs, matrix products, bytes, intensity and bound of each pass, by the beginning of their keys."""
    held = [found.get(document.phase) for document in facts.documents]
    columns = (
        [quotes(f"{one[0]}.flops", one[1].flops) if one else "-" for one in held],
        [quotes(f"{one[0]}.matmul_flops", one[1].matmul_flops) if one else "-" for one in held],
        [quotes(f"{one[0]}.bytes", one[1].bytes) if one else "-" for one in held],
        [quotes.decimal(f"{one[0]}.intensity", one[1].intensity) if one else "-" for one in held],
        [one[2] if one and one[1].bytes else "-" for one in held],
    )
    return tuple(" / ".join(column) for column in columns)


def points_said(facts: ImplementationFacts, quotes: Quotes) -> str:
    """`Prefill at batch 1, ... / decode at ...`: what stands in a cell of the table, in its order."""
    said = [f"{d.phase} at {point_said(d, facts.point(d), quotes)}" for d in facts.documents]
    return " / ".join(said)


def basis_said(facts: ImplementationFacts) -> str:
    """What the figures of the table are those of, beside the kernels of the timeline."""
    told = any(told_hidden(kernel) != "0" for document in facts.documents for _, kernel in leaves(document))
    pairs = (
        " FLOPs of attention are those of all pairs of tokens; what bounds it, and the FLOPs per byte behind an operator, are told without "
        "the products of pairs above the diagonal, where its kernel is told that it need not compute them."
    )
    return f"Bytes are those of eager execution, operator by operator, where 8.2 fuses.{pairs * told}"


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
    waits, files = r"(\.item\(\)|synchronize\(|\.tolist\(\)|\.cpu\(\))", package_files(facts)
    found = [hit for path, names in files.items() for hit in scan.matching_lines(facts.reader, path, waits, names)]
    run = _functions_run(facts)
    ran = [hit for hit in found if _function_of(facts, hit) in run]
    besides = _called_besides(facts, run)
    called = [hit for hit in found if _function_of(facts, hit) in besides]
    apart = [hit for hit in ran if _behind_a_condition(facts, hit)]
    read = _values_read(facts)
    known = {(hit.path, hit.line) for pair in read.items() for hit in pair}
    sure = [hit for hit in ran if hit not in apart]
    said, beside, unseen = (
        [_told(hit) for hit in each if (hit.path, hit.line) not in known] for each in (sure, apart, called)
    )
    said += [f"{_told(hit)}{f' through {_told(inner)}' * (inner is not hit)}" for hit, inner in read.items()]
    unasked = (
        "; these passes were given no attention mask, and code that is given one may ask for its values"
        if any(UNPADDED in document.assumptions for document in facts.documents)
        else ""
    )
    none = (
        f"none found: searched what ran of {joined(f'`{path}`' for path in files)} for item, tolist, cpu and synchronize, and all that ran "
        f"for what asks a tensor for its values; not for copies between host and device, such as `.to(device)`{unasked}"
    )
    behind = f"; behind conditions, of which no operator tells whether these passes meet them: {', '.join(beside)}"
    may = f"; in functions that what ran may call, through which no operator of these passes came: {', '.join(unseen)}"
    lines.append(f"**Synchronization:** {', '.join(said) if said else none}{behind * bool(beside)}{may * bool(unseen)}")
    return lines


def _at_roofs(facts: ImplementationFacts, figures: Figures) -> float:
    """Bytes that take as long as a kernel does at the roof that limits it."""
    return max(figures.bytes, figures.needed / facts.ridge)


def _bound_operators(facts: ImplementationFacts, document: ModelAnalysis, kind: str, quotes: Quotes) -> Sequence[str]:
    """Operators that are limited so, without those that take little; of one that is so in some modules alone, those modules."""
    values = facts.point(document)
    each: dict[str, list[tuple[str, Figures]]] = {}
    held = [("", document.kernels), *((path, call.kernels or ()) for call, path in facts.calls_in(document))]
    for place, kernel in ((path, kernel) for path, kernels in held for kernel in kernels if is_leaf(kernel)):
        if (figures := Figures.sum([kernel], values)).bytes:
            each.setdefault(kernel.operator, []).append((place, figures))
    whole = sum(_at_roofs(facts, f) for several in each.values() for _, f in several)
    said, small = [], 0
    for group in document.per_operator:
        name, found = group.name, each.get(group.name, [])
        those = [(place, f) for place, f in found if limited([f], facts.ridge)[0] == kind]
        if those and sum(_at_roofs(facts, f) for _, f in those) < _LITTLE * whole:
            small += 1
            continue
        if those and len(those) == len(found):
            pooled = sum(f.needed for _, f in those) / sum(f.bytes for _, f in those)
            said.append(f"{name} ({quotes.decimal(f'{document.phase}.operator.{name}.intensity', pooled)})")
            continue
        places: dict[str, list[Figures]] = {}
        for place, f in those:
            places.setdefault(place, []).append(f)
        dearest = sorted(places.items(), key=lambda item: -sum(f.weight(facts.ridge) for f in item[1]))
        for place, several in dearest[:_MODULES]:
            flops, moved = sum(f.needed for f in several), sum(f.bytes for f in several)
            key = f"{document.phase}.operator.{name}.{place.replace('*', 'each')}.{kind}.intensity"
            said.append(f"{name}{f' of `{place}`' * bool(place)} ({quotes.decimal(key, flops / moved)})")
        if len(places) > _MODULES:
            said.append(f"{name} of {len(places) - _MODULES} further modules")
    if small:
        said.append(
            f"{quotes(f'{document.phase}.small_{kind}_operators', small)} {things(small, 'further kind')} of operators that take less than 1 % each of the time at these roofs"
        )
    return said


def _told(hit: scan.Hit) -> str:
    return f"`{hit.text.strip()}` ({hit.pointer})"


def _values_read(facts: ImplementationFacts) -> dict[scan.Hit, scan.Hit]:
    """Lines at which the passes asked tensors for their values, the innermost of the forward's file, and the line of a helper elsewhere
    that did so for them, or themselves."""
    found: dict[scan.Hit, scan.Hit] = {}
    for site in (site for document in facts.documents for site in document.reads):
        places = [(site.file, site.line), *((each.file, each.line) for each in site.via)]
        hits = [scan.Hit(*place, "", facts.reader.line(*place)) for place in places]
        own = next(hit for hit in reversed(hits) if hit.path == site.file)
        found.setdefault(own, hits[-1] if hits[-1].path != own.path else own)
    return found


def _behind_a_condition(facts: ImplementationFacts, hit: scan.Hit) -> bool:
    """Whether a line stands in a branch in which no operator ran."""
    around = facts.reader.enclosing(hit.path, hit.line)
    branches = [
        range(block[0].lineno, (block[-1].end_lineno or block[-1].lineno) + 1)
        for node in (ast.walk(around[-1].node) if around else ())
        if isinstance(node, ast.If)
        for block in (node.body, node.orelse)
        if block
    ]
    return any(
        hit.line in lines and not any((hit.path, line) in facts.lines_run for line in lines) for lines in branches
    )


def _function_of(facts: ImplementationFacts, hit: scan.Hit) -> tuple[str, str]:
    """File and dotted name of the function around a line; no name where none is."""
    around = [span for span in facts.reader.enclosing(hit.path, hit.line) if not isinstance(span.node, ast.ClassDef)]
    return hit.path, around[-1].name if around else ""


def _functions_run(facts: ImplementationFacts) -> set[tuple[str, str]]:
    """The functions on whose lines passes issued operators or called others, and the forwards of modules that issued none. By file and
    dotted name: a method may be called as a function of another file is that ran."""
    found = {
        (path, span.name)
        for path, line in facts.lines_run
        for span in facts.reader.enclosing(path, line)
        if not isinstance(span.node, ast.ClassDef)
    }
    for call in (k for d in facts.documents for _, _, k in walk(d.kernels, "") if k.class_name and not k.kernels):
        if (place := facts.locate(call.class_name)) is not None:
            found.add((place[0], f"{place[1].name}.forward"))
    return found


def _called_besides(facts: ImplementationFacts, run: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Functions and methods beside those that ran which they call, or which these call, none of whose operators ran."""
    found, pending = set[tuple[str, str]](), list(run)
    while pending:
        path, name = pending.pop()
        span = facts.reader.definition(path, name)
        for called in scan.calls_in(span.node, name.rpartition(".")[0]) if span is not None else ():
            other = facts.reader.definition(path, called)
            if other is None or other.name != called or isinstance(other.node, ast.ClassDef):
                continue
            if (path, called) not in run | found:
                found.add((path, called))
                pending.append((path, called))
    return found
