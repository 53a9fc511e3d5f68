"""Diagrams: one graph, drawn alike as text, Mermaid and SVG; joins are those of the operator graph, nothing is lost silently."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
import report_toy as toy
from opscope_schemas.dataflow import Dataflow
from opscope_schemas.estimates import OperatorTime
from opscope_schemas.tiling import KernelTiling, TileSize, TilingResult
from opscope_schemas.units import seconds as said_seconds
from opscope_tools.report.components import _line_cost, data_flow
from opscope_tools.report.diagrams import draw
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.graph import INPUTS, OUTPUTS, Edge, Graph, Group, Vertex, folded, from_tree
from opscope_tools.report.mermaid import mermaid
from opscope_tools.report.pictures import pictures
from opscope_tools.report.render import Report
from opscope_tools.report.svg import svg
from opscope_tools.report.system import system_graph
from opscope_tools.report.tasks import tasks
from opscope_tools.report.timeline import timelines

POINT = {
    "batch_size": 1, "seq_len": 64, "cache_len": 0, "a_bytes": 2, "w_bytes": 2, "hidden_size": 8, "num_layers": 2,
    "num_heads": 4, "num_kv_heads": 4, "vocab_size": 100,
}  # fmt: skip
#: operators of the toy by number: 1 embedding, 2 and 3 norm, 4 to 6 attention, 7 the addition, 8 and 9 norm, 10 head
EMBEDDING, ADD = 1, 7


def with_residual(graph: Dataflow) -> Dataflow:
    """The toy's addition reads attention's output and what the layer was given, as its source says."""
    joined = {"depends_on": (EMBEDDING, ADD - 1), "carried_from": (ADD,)}
    changed = tuple(
        o.model_copy(update={"repeat": "{num_layers}", **(joined if o.id == ADD else {})}) if 2 <= o.id <= ADD else o
        for o in graph.operators
    )
    return graph.model_copy(update={"operators": changed})


@pytest.fixture(scope="module")
def residual(facts: ImplementationFacts) -> ImplementationFacts:
    return replace(facts, graphs=tuple(with_residual(graph) for graph in facts.graphs))


def flow_of(edges: str, groups: dict[str, str] | None = None) -> Graph:
    """`in>a a>b b~>a`: vertices in order of appearance, `~>` for a result of the repetition before."""
    found = [(re.split(r"~?>", text), "~" in text) for text in edges.split()]
    names = dict.fromkeys(name for ends, _ in found for name in ends)
    held = groups or {}
    vertices = tuple(Vertex(name, (name, f"what {name} is"), held.get(name, "")) for name in names)
    return Graph(
        vertices, tuple(Edge(a, b, again=again) for (a, b), again in found), tuple(Group(g, g) for g in dict.fromkeys(held.values()))
    )  # fmt: skip


def reachable(graph: Graph) -> set[tuple[str, str]]:
    """Pairs of which the second depends on the first, however indirectly; written anew here."""
    ahead: dict[str, set[str]] = {v.id: {e.target for e in graph.edges if e.source == v.id} for v in graph.vertices}
    pairs = set()
    for start in ahead:
        open_, seen = list(ahead[start]), set()
        while open_:
            name = open_.pop()
            if name not in seen:
                seen.add(name)
                open_ += ahead[name]
        pairs |= {(start, name) for name in seen}
    return pairs


# ---- one graph, three forms ----------------------------------------------------------------------------------------


BRANCHED = "in>a in>b a>c b>c in>c c>d a>d d~>b d>out b>out"


def mermaid_edges(text: str) -> set[tuple[str, str, bool]]:
    label = dict(re.findall(r'(n\d+)\["(\w+)<br/>', text))
    edges = re.findall(r"^  (n\d+) (-->|-\.->)(?:\|[^|]*\|)? (n\d+)$", text, re.MULTILINE)
    return {(label[a], label[b], arrow == "-.->") for a, arrow, b in edges}


def text_edges(text: str) -> set[tuple[str, str, bool]]:
    """What stands in brackets behind the vertices, numbers resolved to titles."""
    titles = {"inputs": "in"} | dict(re.findall(r"^[▼•] (\d+)  (\w+)$", text, re.MULTILINE))
    found: set[tuple[str, str, bool]] = set()
    current = ""
    for line in text.split("\n"):
        if match := re.match(r"[▼•] (?:\d+  )?(\w+)", line):
            current = match[1]
        if match := re.search(r"\[reads (.*)\]$", line):
            for part in match[1].split("; "):
                again = part.startswith("of the repetition before: ")
                for name in part.rpartition(": ")[2].split(", "):
                    if name in titles:
                        found.add((titles[name], current, again))
    return found


def test_text_and_mermaid_show_the_edges_of_the_graph_and_no_others() -> None:
    graph = flow_of(BRANCHED)
    expected = {(e.source, e.target, e.again) for e in graph.edges}
    assert mermaid_edges(mermaid(graph)) == expected
    assert text_edges(draw(graph)) == expected


def test_the_drawing_has_one_arrow_head_per_edge_and_says_them_in_words() -> None:
    graph = flow_of(BRANCHED)
    drawn = svg(graph, "A flow", "x")
    assert drawn.count('class="head"') == len(graph.edges)
    assert drawn.count('class="again"') == 1
    said = re.search(r"<desc[^>]*>(.*?)</desc>", drawn)
    assert said is not None
    assert "c reads inputs, 1, 2" in said[1]
    assert "b reads inputs; of the repetition before: 4" in said[1]


def test_an_arrow_head_stands_only_where_a_vertex_reads_the_one_above_it() -> None:
    lines = draw(flow_of("in>a in>b b>out")).split("\n")
    assert [line[:3] for line in lines if line[0] in "▼•"] == ["• i", "▼ 1", "• 2", "▼ o"]  # b does not read a


def test_a_chain_needs_no_numbers() -> None:
    text = draw(flow_of("in>a a>b b>out"))
    assert "reads" not in text
    assert text.count("▼") == 3


def test_a_vertex_takes_a_line_for_each_of_its_own_and_trees_branch() -> None:
    lines = draw(Graph((Vertex("a", ("a",)), Vertex("b", ("much longer", "x"))))).split("\n")
    assert lines == ["• 1  a  [reads no other result]", "• 2  much longer", "     x  [reads no other result]"]
    tree = draw(from_tree([(0, "root"), (1, "one"), (2, "leaf"), (1, "two")]))
    assert tree == "root\n├── one\n│   └── leaf\n└── two"


HOSTILE = 'say "<script>" & `{x}` #1; | [end] --> %%'


@pytest.mark.parametrize("layout", ["flow", "chains", "tree"])
def test_a_label_is_never_markup(layout: str) -> None:
    graph = Graph((Vertex("a", (HOSTILE,)), Vertex("b", (HOSTILE,))), (Edge("a", "b", HOSTILE),), layout=layout)  # type: ignore[arg-type]
    drawn = ElementTree.fromstring(svg(graph, HOSTILE, "x"))
    texts = ["".join(each.itertext()) for each in drawn.iter() if each.tag.endswith("text")]
    assert any(HOSTILE in text for text in texts)
    label = re.search(r'n1\["(.*)"\]', mermaid(graph))
    assert label is not None
    assert not set('"<>`|') & set(label[1])


def test_every_text_of_a_drawing_lies_inside_it_and_its_colours_are_the_pages(
    residual: ImplementationFacts,
) -> None:
    held = pictures(residual, tasks(residual.main, residual.graphs[0]))
    graphs = [graph for drawing in held.values() for graph in drawing.graphs]
    assert len(graphs) > 12
    for graph in graphs:
        drawn = svg(graph, "x", "x")
        root = ElementTree.fromstring(drawn)
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for text in (each for each in root.iter() if each.tag.endswith("}text") or each.tag == "text"):
            assert float(text.attrib["x"]) + 7.2 * len(text.text or "") <= width + 1
            assert 0 < float(text.attrib["y"]) <= height
        assert not re.search(r"#[0-9a-f]{3}|rgb|style=", drawn)


# ---- folding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_folding_keeps_who_depends_on_whom_among_what_stays(seed: int) -> None:
    dice = random.Random(seed)
    names = [INPUTS, *(f"v{n}" for n in range(14)), OUTPUTS]
    edges = {(a, b) for at, b in enumerate(names) for a in names[:at] if dice.random() < 0.2}
    edges |= {(b, a) for a, b in edges if dice.random() < 0.05 and INPUTS not in (a, b) and OUTPUTS not in (a, b)}
    graph = Graph(
        tuple(Vertex(name, (name,), weight=dice.random()) for name in names),
        tuple(Edge(a, b) for a, b in sorted(edges)),
    )
    small = folded(graph, 6, "boxes")
    kept = {vertex.id for vertex in small.vertices}
    heaviest = sorted((v for v in graph.vertices[1:-1]), key=lambda v: -v.weight)[:6]
    assert kept == {INPUTS, OUTPUTS, *(v.id for v in heaviest)}
    assert small.note.startswith("8 boxes are left out")
    expected = {(a, b) for a, b in reachable(graph) if a in kept and b in kept and a != b}
    assert {(a, b) for a, b in reachable(small) if a != b} == expected


def test_a_tree_that_is_too_large_loses_its_deepest_level_and_says_how_much() -> None:
    rows = [(0, "root"), *(row for n in range(5) for row in [(1, f"m{n}"), (2, "x"), (2, "y"), (3, "z")])]
    tree = from_tree(rows, most=12)
    assert [vertex.lines[0] for vertex in tree.vertices] == ["root", *(f"m{n}  (+3 below)" for n in range(5))]
    assert tree.note == "15 rows of the deepest levels are left out of the drawing; the text has all."
    assert from_tree(rows, most=21).note == ""


# ---- who reads whom ------------------------------------------------------------------------------------------------


def section(text: str, heading: str) -> str:
    return text.partition(f"\n{heading}")[2].partition("\n### ")[0]


def test_a_residual_path_joins_at_the_addition(residual: ImplementationFacts) -> None:
    graph = system_graph(residual)
    titles = {v.id: v.lines[0] for v in graph.vertices}
    found = {(titles[e.source], titles[e.target], e.again) for e in graph.edges}
    add = f"ToyLayer's own add (:{toy.line_of('return residual')})"
    assert ("attention: ToyAttention", add, False) in found
    assert ("embed_tokens: Embedding", add, False) in found
    assert (add, add, True) in found  # the layer before's
    assert (add, "norm: ToyNorm", True) in found  # the next layer's norm
    assert (add, "norm: ToyNorm", False) in found  # the one behind the layers
    assert not any(source == "norm: ToyNorm" and target == add for source, target, _ in found)
    assert [group.label for group in graph.groups] == ["layers.*: ToyLayer ×2"]


def test_the_flow_of_a_layer_shows_what_its_addition_reads(residual: ImplementationFacts) -> None:
    (layer,) = [module for module in residual.modules if module.class_name.endswith("ToyLayer")]
    graph = data_flow(residual, layer)
    assert graph is not None
    lines = [toy.line_of(s) for s in ("self.norm(hidden_states)", "self.attention(", "return residual")]
    assert draw(graph).split("\n") == [
        f"1 norm :{lines[0]}  [reads inputs]", f"2 attention :{lines[1]}  [reads 1]", f"3 add :{lines[2]}  [reads inputs, 2]",
        "outputs  [reads 3]",
    ]  # fmt: skip


def test_lines_that_run_in_turns_are_no_cycle(facts: ImplementationFacts) -> None:
    """As two calls in the body of a loop: the first reads what the second made a repetition before."""
    first, second = toy.layer_kernels("")[:2]
    layer = toy.call("toyland.modeling_toy.ToyLayer", "layer", "= layer(", (first, second, first.model_copy(deep=True)))
    main = facts.main.model_copy(update={"kernels": (facts.main.kernels[0], layer)})
    changed = replace(facts, documents=(main,), graphs=(toy.graph(main),))
    (module,) = [each for each in changed.modules if each.class_name == layer.class_name]
    graph = data_flow(changed, module)
    assert graph is not None
    assert draw(graph).split("\n") == [
        f"1 norm :{first.line}  [reads inputs; of the repetition before: 2]", f"2 attention :{second.line}  [reads 1]", "outputs  [reads 1]"
    ]  # fmt: skip


def test_what_stands_in_for_a_layers_result_is_no_input(facts: ImplementationFacts) -> None:
    """Behind folded layers the trace reads a tensor that nobody makes, beside the dependency on the layer's addition."""
    graph = facts.graphs[0]
    stand_in = graph.tensors[0].model_copy(update={"id": 99, "kind": "input", "created_by": 0, "consumed_by": (8,)})
    operators = tuple(o.model_copy(update={"reads": (99,)}) if o.id == ADD + 1 else o for o in graph.operators)
    changed = graph.model_copy(update={"tensors": (*graph.tensors, stand_in), "operators": operators})
    drawn = system_graph(replace(facts, graphs=(changed, *facts.graphs[1:])))
    assert drawn == system_graph(facts)
    returned = stand_in.model_copy(update={"kind": "output"})
    given = replace(facts, graphs=(changed.model_copy(update={"tensors": (returned,)}), *facts.graphs[1:]))
    assert [maker for _, maker, _ in given.returned] == [ADD]  # where the model returns it too
    layers = next(e.source for e in drawn.edges if e.target == "v4")
    assert Edge(layers, OUTPUTS) in system_graph(given).edges
    true_input = tuple(o.model_copy(update={"depends_on": ()}) if o.id == ADD + 1 else o for o in operators)
    changed = changed.model_copy(update={"operators": true_input})
    drawn = system_graph(replace(facts, graphs=(changed, *facts.graphs[1:])))
    assert drawn.into["v4"] == [Edge(INPUTS, "v4")]


# ---- the timeline --------------------------------------------------------------------------------------------------


def with_kernels(facts: ImplementationFacts, seconds: Sequence[float]) -> ImplementationFacts:
    """The facts with a prefill of kernels that take so long."""
    found = facts.estimates["prefill"]
    first = found.operators[0]
    kernels = tuple(
        first.model_copy(update={"operation": f"k{at}", "module": f"m{at}", "count": 1, "calibrated_seconds": time})
        for at, time in enumerate(seconds)
    )
    return replace(facts, estimates={"prefill": found.model_copy(update={"operators": kernels})})


@pytest.mark.parametrize("seconds", [[1e-3, 2e-3, 5e-3], [1e-3] * 60, [1e-9, 1e-9, 1.0, 1e-9], [0.5]])
def test_the_bars_of_a_timeline_add_up_to_the_pass_and_stand_behind_one_another(
    facts: ImplementationFacts, seconds: list[float]
) -> None:
    (graph,) = timelines(with_kernels(facts, seconds))
    assert len(graph.vertices) <= 16
    spans = [vertex.span for vertex in graph.vertices if vertex.span is not None]
    assert len(spans) == len(graph.vertices)
    assert sum(span.length for span in spans) == pytest.approx(1)
    assert spans[0].start == 0
    for first, then in pairwise(spans):
        assert then.start == pytest.approx(first.start + first.length)
    assert graph.title == f"prefill on Device, calibrated: {said_seconds(sum(seconds))}"
    named = [vertex.lines[0] for vertex in graph.vertices]
    assert named[0].startswith("k0")
    assert f"k{len(seconds) - 1} " in named[-1]


def test_short_neighbours_share_a_bar_and_a_long_kernel_keeps_its_own(facts: ImplementationFacts) -> None:
    (graph,) = timelines(with_kernels(facts, [1e-6, 1e-6, 1.0, 1e-6, 1e-6]))
    assert [vertex.lines[0].split(" ")[0] for vertex in graph.vertices] == ["k0", "k2", "k3"]
    assert graph.vertices[1].lines[1:] == ("     1 s", "100.0 %", "neither, memory under 1 %, 1 kB")


def test_a_bar_says_what_limits_it_and_how_much_of_its_time_that_explains(facts: ImplementationFacts) -> None:
    """Of several kernels too, and where neither bytes nor products explain most of it."""
    told = with_kernels(facts, [4e-3])
    (first,) = told.estimates["prefill"].operators

    long = first.model_copy(update={"calibrated_seconds": 9.0})

    def last(*kernels: OperatorTime) -> tuple[str, ...]:
        found = told.estimates["prefill"].model_copy(update={"operators": (*kernels, long)})
        (graph,) = timelines(replace(told, estimates={"prefill": found}))
        return graph.vertices[0].lines

    assert timelines(told)[0].vertices[0].lines[-1] == "memory 25 %, 1 kB"
    small = first.model_copy(update={"calibrated_seconds": 1e-9, "bound_seconds": 1e-9, "count": 3, "module": "m1"})
    other = first.model_copy(update={"limited_by": "compute", "bound_seconds": 3e-3})
    assert last(small, other)[-1] == "compute 75 %, 4 kFLOP"
    assert (
        last(small, other.model_copy(update={"wide": True}))[-1]
        == "compute 75 %, 4 kFLOP, of 32 bits in the source, timed in 16"
    )
    assert last(small, other)[0] == "k0 (m1) to k0 (m0): 2 kernels, 4 runs"
    assert last(small, small.model_copy(update={"module": "m2"}))[0] == "k0 (m1) to k0 (m2): 2 kernels ×3"


def test_modules_of_one_name_are_told_apart_by_more_of_their_paths(facts: ImplementationFacts) -> None:
    told = with_kernels(facts, [1.0, 1.0, 1.0])
    paths = ("layer.*.attention.output.dense", "layer.*.output.dense", "layer.*.norm")
    kernels = zip(told.estimates["prefill"].operators, paths, strict=True)
    found = told.estimates["prefill"].model_copy(
        update={"operators": tuple(kernel.model_copy(update={"module": path}) for kernel, path in kernels)}
    )
    (graph,) = timelines(replace(told, estimates={"prefill": found}))
    named = [vertex.lines[0].partition("  ")[0] for vertex in graph.vertices]
    assert named == ["k0 (attention.output.dense)", "k1 (layer.output.dense)", "k2 (norm)"]


def test_the_timeline_says_that_it_is_estimated_in_seconds_of_each_pass(rendered: Callable[..., Report]) -> None:
    text = section(rendered().text, "### 8.2 Execution Timeline")
    assert "*Estimated*, not run" in text
    assert text.count(" on Device, calibrated: 2 ms\n") == 2
    assert text.count("may be another than what section 8.3 says of its operator") == 1


# ---- the rest -------------------------------------------------------------------------------------------------------


def test_a_line_that_calls_a_module_says_the_shapes_of_all_that_it_gives(facts: ImplementationFacts) -> None:
    norm = facts.main.kernels[2]
    (operator, *_), given = norm.kernels or (), (toy.tensor("a"), toy.tensor("b"))
    values, shape = facts.point(facts.main), "[batch_size, seq_len, hidden_size]"
    assert _line_cost(facts, [norm.model_copy(update={"outputs": given})], values).endswith(f"-> {shape}, {shape}")
    assert _line_cost(facts, [operator.model_copy(update={"outputs": given})], values).endswith(f"-> {shape}")


def test_a_line_of_pseudocode_says_what_it_costs(facts: ImplementationFacts, rendered: Callable[..., Report]) -> None:
    line = toy.line_of("qkv = self.qkv_proj")
    # 2 * 64 * 8 * 24 FLOPs; reads (64 * 8 + 8 * 24) * 2 bytes; writes 64 * 24 * 2
    assert f"# :{line} 24.6 kFLOP, r 1.41 kB, w 3.07 kB; -> [batch_size, seq_len, hidden_size]\n" in rendered().text
    assert re.search(r"for layer in [^\n]*# :\d+ what its lines cost is of all steps\n", rendered().text)
    tiling = TilingResult(
        total=1,
        kernels=(
            KernelTiling(
                id="k.py::k", name="scaled_dot_product_attention", file="k.py", line=1, end_line=9, language="triton",
                tile=(TileSize(line=2, name="BLOCK_M", values=("64", "128")),),
            ),
        ),
    )  # fmt: skip
    text = toy.rendered_with(replace(facts, tiling=tiling), {}).text
    attention = text.partition("def ToyAttention(")[2].partition("```")[0]
    assert "Tiling: tile BLOCK_M=64/128" in attention
    assert re.search(r"scaled_dot_product_attention\(.*; tile BLOCK_M=64/128\n", attention)
    assert "scaled_dot_product_attention: BLOCK_M=64/128" in section(text, "### 8.1")


def test_all_seven_diagrams_are_built_and_large_ones_say_what_they_leave_out(residual: ImplementationFacts) -> None:
    held = pictures(residual, tasks(residual.main, residual.graphs[0]))
    assert [s for s in held if not s.startswith("4.")] == ["2.1", "2.2", "6.1", "6.2", "8.1", "8.2"]
    assert all(drawing.graphs and drawing.text for drawing in held.values())
    assert not any(drawing.note for drawing in held.values())
