"""Section 4: one subsection per component class, computed from its own document, its forward and its weights.

Classes of a library whose forward computes on one line (a projection, an activation) share the last subsection.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from opscope_schemas.analysis import Kernel, ModuleAnalysis, ModuleNode, TensorInfo, Totals
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import Formula, Rational, evaluate
from opscope_schemas.units import amount, plain_bytes, things

from opscope_tools.report.attributes import attributes_of
from opscope_tools.report.call_kinds import kinds_told, place_shown
from opscope_tools.report.facts import Figures, ImplementationFacts, short, walk
from opscope_tools.report.flow import tile_of
from opscope_tools.report.graph import INPUTS, OUTPUTS, Graph, Vertex, folded
from opscope_tools.report.insights import by_line, counts_little, insights, library_insights, named, operators_said
from opscope_tools.report.kinds import layers_told
from opscope_tools.report.links import Operators, Unit, edges_of
from opscope_tools.report.nodes import counted_again, node_of, weights_of
from opscope_tools.report.overview import model_files
from opscope_tools.report.pseudocode import Call, parameters_read, pseudocode
from opscope_tools.report.purposes import purpose
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.scan import code_lines
from opscope_tools.report.system import parts

__all__ = [
    "ComponentText",
    "LongFormulas",
    "component_titles",
    "components",
    "data_flow",
    "formulas_elsewhere",
    "grouped",
    "settled",
]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_LIBRARY = "the library's own"
#: boxes of one data-flow diagram; more lines than this no reader follows, so the cheapest are left out
_MOST_BOXES = 30
#: characters of a formula beyond which it stands in the appendix, and of a line of an interface
_LONGEST, _WIDTH = 200, 180
#: what results call the cache
_CACHES = ("past_key_values", "past_key_value", "cache_params")
#: other calls that a comment names
_PLACES = 3


@dataclass(frozen=True)
class ComponentText:
    """The finished parts of one subsection."""

    title: str
    purpose: str
    interface: str
    pseudocode: str
    cost: str
    insights: tuple[str, ...]
    #: where its data flow is drawn, if another section does
    drawn: str = ""


class LongFormulas:
    """Formulas too long for a line of the text: each is named there and stands in the appendix."""

    def __init__(self) -> None:
        self._held: dict[str, list[str]] = {}

    def rows(self, phase: str) -> list[str]:
        """A line for each class that has any, in the pass of that name."""
        return [f"One call of {owner} in {phase}: {'; '.join(said)}" for owner, said in self._held.items()]

    def __call__(self, owner: str, formulas: Sequence[tuple[str, str]]) -> str:
        """`label: formula` of each, or that those of `owner` stand in the appendix."""
        long = [f"{label} `{formula}`" for label, formula in formulas if len(formula) > _LONGEST]
        if long:
            self._held.setdefault(owner, []).extend(long)
        if len(long) == len(formulas):
            return "its formulas stand in 11.B, as each is too long for a line"
        return "; ".join(
            f"{label} in 11.B" if len(formula) > _LONGEST else f"{label} `{formula}`" for label, formula in formulas
        )


def grouped(facts: ImplementationFacts) -> list[tuple[ModuleAnalysis, ...]]:
    """The classes by subsection: each alone in order of first call, those of a library that compute on one line and those
    that hardly count in any pass together."""
    alone: list[ModuleAnalysis] = []
    together: list[ModuleAnalysis] = []
    for module in facts.modules:
        simple = module.file != facts.modeling_file and len(by_line(module.kernels)) == 1
        leaf = not any(kernel.kernel_type == "composite" for kernel in module.kernels)
        (together if leaf and (simple or counts_little(facts, module)) else alone).append(module)
    return [*((module,) for module in alone), *([tuple(together)] if together else [])]


def component_titles(facts: ImplementationFacts) -> list[str]:
    """Titles of the subsections, e.g. `Attention: LlamaAttention`."""
    return [_title(facts, group) for group in grouped(facts)]


def _title(facts: ImplementationFacts, group: Sequence[ModuleAnalysis]) -> str:
    names = ", ".join(short(module.class_name) for module in group)
    return (
        f"Library and minor modules: {names}"
        if len(group) > 1
        else f"{facts.role(group[0].class_name).capitalize()}: {names}"
    )


def components(facts: ImplementationFacts, quotes: Quotes, long: LongFormulas) -> list[ComponentText]:
    """The subsections in the order of their titles."""
    return [_component(facts, group, quotes, long) for group in grouped(facts)]


def _component(
    facts: ImplementationFacts, group: Sequence[ModuleAnalysis], quotes: Quotes, long: LongFormulas
) -> ComponentText:
    several = len(group) > 1
    interfaces = [_interface(facts, module) for module in group]
    return ComponentText(
        _title(facts, group),
        " ".join(purpose(facts, module, quotes) for module in group),
        "\n".join(
            f"{_call_said(facts, m)}: {' '.join(text.split())}" if several else text
            for m, text in zip(group, interfaces, strict=True)
        ),
        "\n".join(_pseudocode(facts, module) for module in group),
        " ".join(_cost(facts, module, several, long) for module in group),
        (
            *(text for module in group if (text := kinds_told(facts, module, quotes))),
            *(library_insights(facts, group, quotes) if several else insights(facts, group[0], quotes)),
        ),
        "drawn in section 2.1" if _holds_parts(facts, group[0]) and not several else "",
    )


# ---- interface ------------------------------------------------------------------------------------------------------


def _holds_parts(facts: ImplementationFacts, module: ModuleAnalysis) -> bool:
    """Whether section 2.1 draws its calls: of the model, of what holds repeated layers, of these layers."""
    values, kernels = facts.point(facts.main), facts.main.kernels
    found = parts(facts, kernels, values)
    shown = {short(part.within.class_name) for part in found if part.within is not None}
    above = {
        short(k.class_name)
        for _, _, k in walk(kernels, "")
        if any(p.within in (k.kernels or ()) for p in found if p.within)
    }
    return short(module.class_name) in shown | above | {short(facts.subject)}


def _call_said(facts: ImplementationFacts, module: ModuleAnalysis) -> str:
    """The class and the call of it that is shown."""
    call = facts.calls.get(module.class_name)
    return f"{short(module.class_name)}{f', called as {call.attribute}' if call and call.attribute else ''}"


def _interface(facts: ImplementationFacts, module: ModuleAnalysis) -> str:
    call = facts.calls.get(module.class_name)
    inputs, outputs = (call.inputs, call.outputs) if call else _boundary(facts, module)
    node = node_of(facts, module.class_name, call)
    kept = node.buffers if node else ()
    weights = [
        f"{name}: {list(shape)}{' (buffer)' * (name in kept)}" for name, shape in (node.weights.items() if node else ())
    ]
    weights += _held(facts, node)
    count = weights_of(facts.tree, node) if node else None
    total = f"{count:,}" if count is not None else _formula(module.parameters) if call is None else ""
    weights += [f"number of weights: {total}"] if total else []
    return "\n".join(
        _wrapped(f"{head}:".ljust(9), [f"- {one}" for one in found or [f"not analysed: {why}"]])
        for head, found, why in (
            ("INPUTS", _tensors(inputs), "the trace records no input tensors here"),
            (
                "OUTPUTS",
                [*_tensors(outputs), *_cache_returned(facts, module)],
                "the trace records no output tensors here",
            ),
            ("PARAMS", weights, "the module tree holds no module of this class"),
        )
    )


def _cache_returned(facts: ImplementationFacts, module: ModuleAnalysis) -> list[str]:
    """The cache, no tensor of the trace, where the call that is shown fills it and its forward hands it back: by which name."""
    cache, call = facts.graphs[0].cache, facts.calls.get(module.class_name)
    makers = {t.created_by for t in facts.graphs[0].tensors if t.kind == "cache" and t.created_by}
    whole = module.class_name == facts.main.class_name
    made = makers if whole else makers & Operators(facts.main).of([call] if call else [])
    _, node = _forward(facts, module)
    if cache is None or not made or node is None:
        return []
    results = (each for each in ast.walk(node) if isinstance(each, ast.Call) and "Output" in ast.unparse(each.func))
    names = dict.fromkeys(k.arg for one in results for k in one.keywords if k.arg in _CACHES)
    size = plain_bytes(evaluate(cache.after, facts.point(facts.main)))
    held = f"the cache, {size} after {facts.main.phase}" if made == makers else "its part of the cache"
    return [f"{name}: {held} (section 6.3)" for name in names]


def _wrapped(head: str, entries: Sequence[str]) -> str:
    """The entries behind `head`, as many on a line as it holds."""
    rows = [head + entries[0]]
    for entry in entries[1:]:
        if len(rows[-1]) + len(entry) + 2 > _WIDTH:
            rows.append(" " * len(head) + entry)
        else:
            rows[-1] += f"  {entry}"
    return "\n".join(rows)


def _tensors(tensors: Sequence[TensorInfo]) -> list[str]:
    """Name, shape and dtype of each; several that are alike once, with all their names."""
    alike: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for tensor in tensors:
        alike.setdefault((tensor.shape, tensor.dtype), []).append(tensor.name or "tensor")
    return [f"{', '.join(names)}: [{', '.join(shape)}], {dtype}" for (shape, dtype), names in alike.items()]


def _held(facts: ImplementationFacts, node: ModuleNode | None) -> list[str]:
    """The submodules with weights; several that are alike once, with all their names."""
    alike: dict[tuple[str, int], list[str]] = {}
    for child in node.children if node else ():
        if child.parameters:
            own = child.parameters - counted_again(facts.tree, child)
            alike.setdefault((short(child.class_name), own), []).append(child.name)
    return [
        f"{', '.join(names)}: {class_name}, {weights:,} {things(weights, 'weight')}{' each' if len(names) > 1 else ''}"
        for (class_name, weights), names in alike.items()
    ]


def _boundary(facts: ImplementationFacts, module: ModuleAnalysis) -> tuple[Sequence[TensorInfo], Sequence[TensorInfo]]:
    """What the whole model is called with and returns; of another that nobody calls, and where that is not known, inputs of the
    first kernel and outputs of the last."""
    whole = module.class_name == facts.main.class_name and not facts.within
    given = [TensorInfo(name=i.name, shape=i.shape, dtype=i.dtype) for i in facts.main.model_inputs if whole]
    note = " (of the last position alone, as asked for)" if facts.main.logits == "last" else ""
    made = [
        tensor.model_copy(update={"name": f"{tensor.name}{note * (tensor.name == 'logits')}"})
        for tensor in facts.main.outputs
        if whole
    ]
    first, last = (module.kernels[0].inputs, module.kernels[-1].outputs) if module.kernels else ((), ())
    return given or first, made or last


# ---- pseudocode and flow --------------------------------------------------------------------------------------------


def _pseudocode(facts: ImplementationFacts, module: ModuleAnalysis) -> str:
    """The forward as the source has it; a forward that cannot be read is said to be, in valid Python."""
    name = short(module.class_name)
    path, node = _forward(facts, module)
    values = facts.point(module)
    notes = [
        f"{facts.role(module.class_name).capitalize()}, from {path}:{node.lineno if node else module.line}",
        f"Tiling: {'; '.join(_tiles(facts, module.kernels)) or _LIBRARY}",
        f"Memory: {_said(Figures.sum(module.kernels, values))} at the values of section 3.1",
    ]
    if node is None:
        return (
            f'def {name}(inputs):\n    """{notes[0]}: not analysed: the forward is not in a registered repository."""'
        )
    return pseudocode(node, name, [". ".join(notes)], _known(facts, module, path, (module.class_name,)))


def _known(facts: ImplementationFacts, module: ModuleAnalysis, path: str, within: tuple[str, ...]) -> Call:
    """What is known of the call of a module; `within`: the classes whose listings ask, down to its own."""
    lines, values = by_line(module.kernels), facts.point(module)

    def held(first: int, last: int) -> list[Kernel]:
        return [k for (file, line), ks in lines.items() if file == path and first <= line <= last for k in ks]

    settings = settled(facts)
    calls = [
        one
        for document in facts.documents
        for one, _ in facts.calls_in(document)
        if one.class_name == module.class_name
    ]
    each = [{i.name.partition("[")[0] for i in one.inputs} for one in calls] or [
        {i.name.partition("[")[0] for i in facts.main.model_inputs}
    ]
    always, ever = set.intersection(*each), set.union(*each)
    return Call(
        given=_as_shown(facts, module, always),
        at_times=_as_shown(facts, module, ever) - _as_shown(facts, module, always),
        said=lambda first, last: _line_cost(facts, held(first, last), values),
        ran=lambda first, last: bool(held(first, last)),
        elsewhere=lambda first, last: _elsewhere(facts, module, path, range(first, last + 1)),
        settings={**settings, **attributes_of(facts, module.class_name, settings)},
        whole=module.class_name == facts.main.class_name,
        needed=lambda first, last: _needed(facts, held(first, last)),
        read=lambda first, last: _read(facts, held(first, last), within),
        empty=() if any(graph.cache is not None for graph in facts.graphs) else _CACHES,
    )


def _called(facts: ImplementationFacts, kernels: Sequence[Kernel]) -> list[ModuleAnalysis]:
    names = {kernel.class_name for kernel in kernels} - {""}
    return [module for module in facts.modules if module.class_name in names]


def _read(facts: ImplementationFacts, kernels: Sequence[Kernel], within: tuple[str, ...]) -> frozenset[str] | None:
    """The parameters that the listings of the modules called read, by what they hand on to others too; None where none is called."""
    found: set[str] = set()
    for module in _called(facts, kernels):
        path, node = _forward(facts, module)
        if node is not None and module.class_name not in within:
            call = _known(facts, module, path, (*within, module.class_name))
            found |= parameters_read(node, replace(call, said=lambda _first, _last: ""))
    return frozenset(found) if any(kernel.class_name for kernel in kernels) else None


def _needed(facts: ImplementationFacts, kernels: Sequence[Kernel]) -> list[str]:
    """The parameters that the modules called have no default for, in their order."""
    forwards = [node for module in _called(facts, kernels) for _, node in [_forward(facts, module)] if node]
    plain = [(*node.args.posonlyargs, *node.args.args) for node in forwards]
    first = [
        a.arg for node, all_ in zip(forwards, plain, strict=True) for a in all_[: len(all_) - len(node.args.defaults)]
    ]
    only = [a.arg for n in forwards for a, d in zip(n.args.kwonlyargs, n.args.kw_defaults, strict=True) if d is None]
    return [name for name in dict.fromkeys([*first, *only]) if name != "self"]


def _elsewhere(facts: ImplementationFacts, module: ModuleAnalysis, path: str, lines: range) -> str:
    """`in decode at encoder_attn`: calls of the class in which no operator runs on these lines, where one does in that shown; or
    those in which one runs, where none does in that shown."""

    def ran(kernels: Iterable[Kernel]) -> bool:
        return any(k.file == path and k.line in lines for k in kernels)

    shown, told = ran(module.kernels), list[tuple[str, str]]()
    for document in facts.documents:
        values = facts.point(document)
        held: dict[str, list[Kernel]] = {}
        for call, at in facts.calls_in(document):
            if call.class_name == module.class_name and call.kernels:
                held.setdefault(at, []).append(call)
        for at, calls in held.items():
            unlike = [call for call in calls if ran(call.kernels or ()) is not shown]
            if not unlike:
                continue
            layers = layers_told(facts, document)
            runs, of = (sum(evaluate(call.repeat, values) for call in some) for some in (unlike, calls))
            numbers = ", ".join(dict.fromkeys(filter(None, (layers.get(id(call)) for call in unlike))))
            which = numbers or (f"{runs} of {of} calls" if runs < of else "")
            told.append((document.phase, f"in {document.phase} at {at}{f' ({which})' if which else ''}"))
    phases = dict.fromkeys(phase for phase, _ in told[_PLACES:])
    more = [f"and at {len(told) - _PLACES} more in {' and '.join(phases)}"] if phases else []
    return ", ".join([*(text for _, text in told[:_PLACES]), *more])


def settled(facts: ImplementationFacts) -> dict[str, object]:
    """The plain settings that hold in every part of the model."""
    return _settings(facts.tree.config, _set_by_model(facts))


def _set_by_model(facts: ImplementationFacts) -> set[str]:
    """Settings that the model's own code writes into a configuration, as into the copy that it hands to a decoder; not those that a
    class writes that is no part of this model, such as another model of the same file."""
    found = set[str]()
    for path in model_files(facts):
        for number, line in enumerate(code_lines(facts.reader, path), 1):
            if written := re.match(r"\s*(?!self\.)\w*config\.(\w+) = ", line):
                owner = next(iter(facts.reader.enclosing(path, number)), None)
                if owner is None or not isinstance(owner.node, ast.ClassDef) or (path, owner.name) in facts.built:
                    found.add(written[1])
    return found


def _settings(config: Mapping[str, object], changed: Collection[str] = ()) -> dict[str, object]:
    """The plain settings of a configuration and of those nested in it; without those that two of them have differently, and those
    that code has `changed` for a part of the model."""
    parts = [config, *(part for part in config.values() if isinstance(part, Mapping))]
    held: dict[str, set[object]] = {}
    for part in parts:
        for name, value in part.items():
            if value is None or isinstance(value, bool | int | float | str):
                held.setdefault(name, set()).add(value)
    return {name: values.pop() for name, values in held.items() if len(values) == 1 and name not in changed}


def _line_cost(facts: ImplementationFacts, kernels: Sequence[Kernel], values: Mapping[str, Rational]) -> str:
    """`34.4 GFLOP, r 41.9 MB, w 8.39 MB`, with the tiles of a kernel that was named; nothing where no operator runs."""
    figures = Figures.sum(kernels, values)
    if not (figures.flops or figures.bytes):
        return ""
    moved = f"{amount(figures.flops, 'FLOP')}, r {plain_bytes(figures.read)}, w {plain_bytes(figures.write)}"
    last = kernels[-1]
    # what else an operator writes is rarely bound to a name, nor is what was written into
    made = last.outputs if last.class_name else last.outputs[:1] if "copy_" not in last.operator.split(".") else ()
    shapes = ", ".join(f"[{', '.join(each.shape)}]" for each in made)
    shape = f"-> {shapes}".replace("{", "").replace("}", "") if made else ""
    return "; ".join(filter(None, [moved, shape, *_tiles(facts, kernels)]))


def _tiles(facts: ImplementationFacts, kernels: Sequence[Kernel]) -> list[str]:
    """The tiles of the operators that run the kernel whose tiling the report was asked for."""
    return list(dict.fromkeys(f"tile {said}" for k in kernels if (said := tile_of(facts, k.operator or k.class_name))))


def _as_shown(facts: ImplementationFacts, module: ModuleAnalysis, given: set[str]) -> frozenset[str]:
    """Names of arguments as the listing has them: a function that runs in place of a forward takes them in its order, by names of its own."""
    found, (_, shown) = facts.locate(module.class_name), _forward(facts, module)
    own = (
        next((n for n in getattr(found[1].node, "body", ()) if getattr(n, "name", "") == "forward"), None)
        if found
        else None
    )
    if shown is None or not isinstance(own, Function):
        return frozenset(given)
    names, there = ([a.arg for a in (*f.args.posonlyargs, *f.args.args)][1:] for f in (own, shown))
    renamed = {} if given <= {*there} else dict(zip(names, there, strict=False))
    return frozenset(renamed.get(name, name) for name in given)


def _forward(facts: ImplementationFacts, module: ModuleAnalysis) -> tuple[str, Function | None]:
    """File and definition of the forward: where the document says, else the function that holds its first kernel."""
    places = [(module.forward_file, module.forward_line)] if module.forward_line else []
    direct = sorted(
        module.kernels, key=lambda kernel: bool(kernel.via)
    )  # what is issued by a helper is so on a line of the forward
    places += [(kernel.file, kernel.line) for kernel in direct]
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


def _cost(facts: ImplementationFacts, module: ModuleAnalysis, several: bool, long: LongFormulas) -> str:
    """The formulas of one call, whole; of which call, where they differ."""
    totals, where = module.totals, place_shown(facts, module)
    owner = f"`{short(module.class_name)}`{f' at {where}' if where else ''}"
    said = long(owner, _formulas(totals))
    if several:
        return f"{owner}: {said}."
    return f"at {where}: {said}." if where else f"{said}."


def formulas_elsewhere(facts: ImplementationFacts) -> list[str]:
    """Of every pass but the main one a line with the formulas of the whole, and all that they hold under."""
    found = []
    for document in facts.documents[1:]:
        own = [f"`{condition}`" for condition in document.conditions]
        traced = document.phase in facts.points and bool(facts.outside(document))
        here = ", and at the values of this report, which that leaves out and a trace of which gave the same" * traced
        where = f", where {', '.join(own)}{here}" * bool(own)
        formulas = "; ".join(f"{label} `{formula}`" for label, formula in _formulas(document.totals))
        found.append(f"One call of `{short(document.class_name)}` in {document.phase}{where}: {formulas}")
    return found


def _formulas(totals: Totals) -> list[tuple[str, str]]:
    rows = [("FLOPs", totals.flops)]
    rows += [("of these matrix products", totals.matmul_flops)] if totals.matmul_flops != totals.flops else []
    rows += [("bytes read", totals.memory_access.read), ("bytes written", totals.memory_access.write)]
    return [(label, _formula(text)) for label, text in rows]


def _said(figures: Figures) -> str:
    return f"{plain_bytes(figures.bytes)} moved, {amount(figures.flops, 'FLOP')} computed"


def data_flow(facts: ImplementationFacts, module: ModuleAnalysis) -> Graph | None:
    """The lines of a forward that compute or move something, and who reads whose result; None where no line does."""
    values = facts.point(module)
    call = facts.calls.get(module.class_name) if module.class_name != facts.main.class_name else None
    whole = {id(own): full for own, full in facts.uncut(module)}  # the operators of those the graph knows
    operators = Operators(facts.main)
    units: list[Unit] = []
    vertices: list[Vertex] = []
    for kernels in by_line(module.kernels).values():
        unit = operators.unit(f"v{len(units)}", [whole[id(kernel)] for kernel in kernels])
        figures = Figures.sum(kernels, values)
        if not (unit.operators or figures.flops or figures.bytes):
            continue
        units.append(unit)
        head = f"line {kernels[0].line}: {_clipped(kernels[0].code or kernels[0].operation)}"
        lines = (head, f"{operators_said(kernels)}: {_said(figures)}")
        brief = f"{named(kernels)} :{kernels[0].line}"
        vertices.append(Vertex(units[-1].id, lines, weight=figures.weight(facts.ridge), brief=brief))
    if not any(vertex.weight for vertex in vertices):
        return None
    edges = edges_of(units, facts.graphs[0], call.repeat if call else "1")
    graph = Graph((Vertex(INPUTS, ("inputs",)), *vertices, Vertex(OUTPUTS, ("outputs",))), edges)
    return folded(graph, _MOST_BOXES, "lines that cost the least")


def _clipped(text: str, width: int = 80) -> str:
    """`text` without its braces and box glyphs, which mean something in a fence."""
    plain = " ".join(text.split()).translate(str.maketrans("{}┌┐└┘│", "()+++++"))
    return plain if len(plain) <= width else plain[: width - 3] + "..."
