"""Section 4: one subsection per component class, computed from its own document, its forward and its weights."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opscope_schemas.analysis import Kernel, ModelAnalysis, ModuleAnalysis, ModuleNode, TensorInfo
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import Formula, Rational
from opscope_schemas.units import amount, plain_bytes

from opscope_tools.report.facts import Figures, ImplementationFacts, short, walk
from opscope_tools.report.flow import tile_of
from opscope_tools.report.graph import INPUTS, OUTPUTS, Graph, Vertex, folded
from opscope_tools.report.links import Operators, Unit, edges_of
from opscope_tools.report.pseudocode import pseudocode
from opscope_tools.report.quotes import Quotes

__all__ = ["ComponentText", "component_titles", "components", "data_flow"]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_LIBRARY = "library operators choose their own tiles; none is set in this source"
#: boxes of one data-flow diagram; more lines than this no reader follows, so the cheapest are left out
_MOST_BOXES = 30


@dataclass(frozen=True)
class ComponentText:
    """The finished parts of one subsection."""

    title: str
    purpose: str
    interface: str
    pseudocode: str
    costs: tuple[str, ...]
    insights: tuple[str, ...]


def component_titles(facts: ImplementationFacts) -> list[str]:
    """Titles of the subsections, e.g. `Attention: LlamaAttention`."""
    return [f"{facts.role(module.class_name).capitalize()}: {short(module.class_name)}" for module in facts.modules]


def components(facts: ImplementationFacts, quotes: Quotes) -> list[ComponentText]:
    """The subsections, in order of first call."""
    titles = component_titles(facts)
    return [
        ComponentText(
            title, _purpose(facts, module), _interface(facts, module), _pseudocode(facts, module),
            tuple(_costs(module)), tuple(_insights(facts, module, quotes)),
        )
        for title, module in zip(titles, facts.modules, strict=True)
    ]  # fmt: skip


def _calls(document: ModelAnalysis, class_name: str) -> list[Kernel]:
    """Calls of a class that are not inside another call of it, so that their costs add up."""
    found: list[Kernel] = []
    hidden_below: int | None = None
    for depth, _, kernel in walk(document.kernels, ""):
        if hidden_below is not None and depth > hidden_below:
            continue
        hidden_below = None
        if kernel.class_name == class_name:
            found.append(kernel)
            hidden_below = depth
    return found


def _purpose(facts: ImplementationFacts, module: ModuleAnalysis) -> str:
    own = [kernel for kernel in module.kernels if kernel.kernel_type == "basic"]
    called = dict.fromkeys(short(k.class_name) for k in module.kernels if k.kernel_type == "composite")
    parts = f"{len(own)} operator{'s' * (len(own) != 1)} on its own lines"
    parts += f" and calls of {', '.join(f'`{name}`' for name in called)}" if called else " and no submodule"
    role = facts.role(module.class_name)
    article = "an" if role[0] in "aeiou" else "a"
    sentence = f"`{short(module.class_name)}` ({facts.pointer(module.class_name)}) is {article} {role}: {parts}."
    sites = list(dict.fromkeys((k.file, k.line) for k in _calls(facts.main, module.class_name) if k.file))
    return f"{sentence} It is called from {_pointers(sites)}." if sites else sentence


def _pointers(sites: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"`{path}:{line}`" for path, line in sites)


# ---- interface ------------------------------------------------------------------------------------------------------


def _interface(facts: ImplementationFacts, module: ModuleAnalysis) -> str:
    call = facts.calls.get(module.class_name)
    inputs, outputs = (call.inputs, call.outputs) if call else _boundary(module)
    node = _find(facts.tree.tree, module.class_name, call.attribute if call else "")
    weights = [f"{name}: {list(shape)}" for name, shape in (node.weights.items() if node else ())]
    weights += [f"{child.name}: {short(child.class_name)}, {child.parameters:,} weights" for child in _children(node)]
    total = [f"number of weights: {node.parameters // node.repeat:,}"] if node else []
    if call is None:
        total = [f"number of weights: {_formula(module.parameters)}"]
    return "\n\n".join(
        f"{head}:\n" + "\n".join(f"  - {line}" for line in lines)
        for head, lines in (
            (
                "INPUTS",
                [_tensor(tensor) for tensor in inputs] or ["not analysed: the trace records no input tensors here"],
            ),
            (
                "OUTPUTS",
                [_tensor(tensor) for tensor in outputs] or ["not analysed: the trace records no output tensors here"],
            ),
            ("PARAMS", weights + total or ["not analysed: the module tree holds no module of this class"]),
        )
    )


def _boundary(module: ModuleAnalysis) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Inputs of the first kernel and outputs of the last: what is known of a model that nobody calls."""
    return (module.kernels[0].inputs, module.kernels[-1].outputs) if module.kernels else ((), ())


def _tensor(tensor: TensorInfo) -> str:
    return f"{tensor.name or 'tensor'}: [{', '.join(tensor.shape)}], {tensor.dtype}"


def _children(node: ModuleNode | None) -> list[ModuleNode]:
    return [child for child in node.children if child.parameters] if node else []


def _find(node: ModuleNode, class_name: str, attribute: str) -> ModuleNode | None:
    """The module of a class that bears the attribute's name; where none does, the first one of the class."""
    found = [each for each in _nodes(node) if each.class_name == class_name]
    named = [each for each in found if each.name == attribute.rpartition(".")[2]]
    return next(iter([*named, *found]), None)


def _nodes(node: ModuleNode) -> Iterator[ModuleNode]:
    yield node
    for child in node.children:
        yield from _nodes(child)


# ---- pseudocode and flow --------------------------------------------------------------------------------------------


def _pseudocode(facts: ImplementationFacts, module: ModuleAnalysis) -> str:
    """The forward as the source has it; a forward that cannot be read is said to be, in valid Python."""
    name = short(module.class_name)
    path, node = _forward(facts, module)
    values = facts.point(module)
    notes = [
        f"{facts.role(module.class_name).capitalize()}, from {path}:{node.lineno if node else module.line}",
        "",
        f"Tiling: {'; '.join(_tiles(facts, module.kernels)) or f'not analysed: {_LIBRARY}'}",
        f"Memory: {_cost(_figures(module, values))} at the values of section 3.1; formulas stand below under Cost",
    ]
    if node is None:
        return (
            f'def {name}(inputs):\n    """{notes[0]}: not analysed: the forward is not in a registered repository."""'
        )
    lines = _by_line(module.kernels)

    def cost(first: int, last: int) -> str:
        held = [k for (file, line), kernels in lines.items() if file == path and first <= line <= last for k in kernels]
        return _line_cost(facts, held, values)

    return pseudocode(node, path, name, notes, cost)


def _line_cost(facts: ImplementationFacts, kernels: Sequence[Kernel], values: Mapping[str, Rational]) -> str:
    """`34.4 GFLOP, r 41.9 MB, w 8.39 MB`, with the tiles of a kernel that was named; nothing where no operator runs."""
    figures = Figures.sum(kernels, values)
    if not (figures.flops or figures.bytes):
        return ""
    moved = f"{amount(figures.flops, 'FLOP')}, r {plain_bytes(figures.read)}, w {plain_bytes(figures.write)}"
    return "; ".join([moved, *_tiles(facts, kernels)])


def _tiles(facts: ImplementationFacts, kernels: Sequence[Kernel]) -> list[str]:
    """The tiles of the operators that run the kernel whose tiling the report was asked for."""
    return list(dict.fromkeys(f"tile {said}" for k in kernels if (said := tile_of(facts, k.operator or k.class_name))))


def _forward(facts: ImplementationFacts, module: ModuleAnalysis) -> tuple[str, Function | None]:
    """File and definition of the forward: where the document says, else the function that holds its first kernel."""
    places = [(module.forward_file, module.forward_line)] if module.forward_line else []
    places += [(kernel.file, kernel.line) for kernel in module.kernels if not kernel.via]
    for path, line in places:
        for span in reversed(facts.reader.enclosing(path, line)):
            if not isinstance(span.node, ast.ClassDef):
                return path, span.node
    return module.file, None


def _formula(text: str) -> str:
    """A formula printed factored."""
    try:
        return str(Formula.parse(text))
    except ValuesError:  # a formula that the algebra cannot divide exactly stays as it was written
        return text


def _costs(module: ModuleAnalysis) -> list[str]:
    """The formulas of one call, whole."""
    totals = module.totals
    rows = (
        ("FLOPs", totals.flops),
        ("of these matrix products", totals.matmul_flops),
        ("bytes read", totals.memory_access.read),
        ("bytes written", totals.memory_access.write),
    )
    return [f"{label}: `{_formula(text)}`" for label, text in rows]


def _figures(module: ModuleAnalysis, values: Mapping[str, Rational]) -> Figures:
    return Figures.sum(module.kernels, values)


def _cost(figures: Figures) -> str:
    return f"{amount(figures.flops, 'FLOP')}, {plain_bytes(figures.bytes)}"


def _by_line(kernels: Sequence[Kernel]) -> dict[tuple[str, int], list[Kernel]]:
    lines: dict[tuple[str, int], list[Kernel]] = {}
    for kernel in kernels:
        lines.setdefault((kernel.file, kernel.line), []).append(kernel)
    return lines


def data_flow(facts: ImplementationFacts, module: ModuleAnalysis) -> Graph | None:
    """The lines of a forward that compute or move something, and who reads whose result; None where no line does."""
    values = facts.point(module)
    call = facts.calls.get(module.class_name) if module.class_name != facts.main.class_name else None
    # the uncut kernels, whose operators the graph knows, in the order of the module's own
    whole = dict(zip(map(id, module.kernels), (call.kernels if call else facts.main.kernels) or (), strict=True))
    operators = Operators(facts.main)
    units: list[Unit] = []
    vertices: list[Vertex] = []
    for kernels in _by_line(module.kernels).values():
        held, figures = operators.of([whole[id(kernel)] for kernel in kernels]), Figures.sum(kernels, values)
        if not (held or figures.flops or figures.bytes):
            continue
        units.append(Unit(f"v{len(units)}", held))
        head = f"line {kernels[0].line}: {_clipped(kernels[0].code or kernels[0].operation)}"
        lines = (head, f"{_operators(kernels)}: {_cost(figures)}")
        vertices.append(Vertex(units[-1].id, lines, weight=figures.bytes + figures.flops / facts.ridge))
    if not any(vertex.weight for vertex in vertices):
        return None
    edges = edges_of(units, facts.graphs[0], call.repeat if call else "1")
    graph = Graph((Vertex(INPUTS, ("inputs",)), *vertices, Vertex(OUTPUTS, ("outputs",))), edges)
    return folded(graph, _MOST_BOXES, "lines that cost the least")


def _clipped(text: str, width: int = 80) -> str:
    """`text` without its braces and box glyphs, which mean something in a fence."""
    plain = " ".join(text.split()).translate(str.maketrans("{}┌┐└┘│", "()+++++"))
    return plain if len(plain) <= width else plain[: width - 3] + "..."


def _operators(kernels: Sequence[Kernel]) -> str:
    names = list(dict.fromkeys(short(k.class_name) if k.class_name else k.operator for k in kernels))
    shown = ", ".join(names[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown


# ---- insights -------------------------------------------------------------------------------------------------------


def _insights(facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> list[str]:
    values = facts.point(module)
    figures, key = _figures(module, values), f"module.{module.class_name}"
    lines = [
        f"One call{_named(facts, module)} takes {quotes(f'{key}.flops', figures.flops)} FLOPs and moves "
        f"{quotes(f'{key}.bytes', figures.bytes)} bytes ({module.phase}): "
        f"{quotes.decimal(f'{key}.intensity', figures.intensity)} FLOPs per byte ({facts.pointer(module.class_name)})."
    ]
    lines += _largest(module, values, quotes)
    floor = facts.floor_bytes(module)
    if floor and figures.bytes:
        lines.append(
            f"Eager execution moves {quotes.decimal(f'{key}.over_floor', figures.bytes / floor)} times the floor of "
            f"{quotes(f'{key}.floor', floor)} bytes (weights, cache and inputs once, outputs once)."
        )
    shares = [_share(facts, document, module.class_name) for document in facts.documents]
    if shares and all(share is not None for share in shares) and any(share and share >= 0.05 for share in shares):
        said = ", ".join(
            f"{quotes.decimal(f'{key}.share_of_{document.phase}', share or 0, 1)} % of {document.phase}"
            for document, share in zip(facts.documents, shares, strict=True)
        )
        whole = f"one call of `{short(facts.subject)}`" if facts.within else "the model"
        lines.append(f"All its calls together take {said} FLOPs of {whole}.")
    return lines


def _largest(module: ModuleAnalysis, values: Mapping[str, Rational], quotes: Quotes) -> list[str]:
    """Where most FLOPs and bytes go: by line, in a forward of one line by kernel; nothing where only one has any."""
    groups = list(_by_line(module.kernels).values())
    groups = groups if len(groups) > 1 else [[kernel] for kernel in module.kernels]
    costs = [(kernels, Figures.sum(kernels, values)) for kernels in groups]
    lines = []
    for verb, unit, of in (("takes", "FLOPs", "flops"), ("moves", "bytes", "bytes")):
        rows = [(kernels, getattr(figures, of)) for kernels, figures in costs if getattr(figures, of)]
        if len(rows) < 2:
            continue
        kernels, top = max(rows, key=lambda row: row[1])
        share = 100 * top / sum(value for _, value in rows)
        shown = quotes.decimal(f"module.{module.class_name}.largest.{of}", share, 1)
        who = kernels[0].attribute if len(kernels) == 1 and kernels[0].attribute else _operators(kernels)
        lines.append(f"`{kernels[0].file}:{kernels[0].line}` ({who}) {verb} {shown} % of its {unit}.")
    return lines


def _named(facts: ImplementationFacts, module: ModuleAnalysis) -> str:
    """Which call the figures are of, where the class is called in several places."""
    call = facts.calls.get(module.class_name)
    several = len({(k.file, k.line, k.attribute) for k in _calls(facts.main, module.class_name)}) > 1
    return f" ({call.attribute}, called at `{call.file}:{call.line}`)" if call and several else ""


def _share(facts: ImplementationFacts, document: ModelAnalysis, class_name: str) -> float | None:
    calls, total = _calls(document, class_name), facts.totals(document).flops
    if not calls or not total:
        return None
    return 100 * Figures.sum(calls, facts.point(document)).flops / total
