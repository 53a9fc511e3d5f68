"""All diagrams of an implementation report, each built once as a typed graph and drawn from it in every form.

In Markdown each is text, once. The HTML page draws every graph as SVG. What is too large for a drawing is folded, with a sentence that says what is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from opscope_tools.report import components, flow, kernels, overview, performance
from opscope_tools.report.diagrams import draw
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.graph import Drawing, Graph, folded, from_tree
from opscope_tools.report.system import system_graph
from opscope_tools.report.tasks import Task
from opscope_tools.report.timeline import timelines

__all__ = ["NO_FLOW", "pictures"]

#: rows of a drawn tree, and chains of a drawn dependency graph
_ROWS, _CHAINS = 120, 40
NO_FLOW = "no operator of this forward computes or moves anything"


def pictures(facts: ImplementationFacts, catalogue: Sequence[Task]) -> dict[str, Drawing]:
    """The diagrams by the section that they stand in."""
    found = [
        _flow("2.1", "System: who reads whose result", system_graph(facts)),
        _tree("2.2", "Module hierarchy", overview.hierarchy(facts)),
        *_components(facts),
        _tree("6.1", "Forward pass, tasks in order of execution", flow.forward_pass(facts, catalogue)),
        _dependencies(facts, catalogue),
        _drawing("8.1", "Memory hierarchy, modelled from counts", performance.memory_graph(facts)),
        _timeline(facts),
    ]
    return {drawing.section: drawing for drawing in found}


def _drawing(section: str, title: str, graph: Graph) -> Drawing:
    return Drawing(section, title, draw(graph), (graph,))


def _flow(section: str, title: str, graph: Graph) -> Drawing:
    """The text ends with what is left out of it."""
    text = "\n\n".join(filter(None, (draw(graph), graph.note)))
    return Drawing(section, title, text, (graph,))


def _tree(section: str, title: str, rows: Sequence[tuple[int, str]]) -> Drawing:
    return Drawing(section, title, draw(from_tree(rows)), (from_tree(rows, _ROWS),))


def _components(facts: ImplementationFacts) -> list[Drawing]:
    groups = [[components.data_flow(facts, module) for module in group] for group in components.grouped(facts)]
    graphs: list[Sequence[Graph | None]] = [*groups, *([graph] for graph in kernels.kernel_graphs(facts))]
    titles = [
        title.partition(": ")[2] for title in (*components.component_titles(facts), *kernels.kernel_titles(facts))
    ]
    return [
        _flows(f"4.{place}", title, title.split(", ") if len(held) > 1 else [""], held)
        for place, (title, held) in enumerate(zip(titles, graphs, strict=True), 1)
    ]


def _flows(section: str, title: str, names: Sequence[str], graphs: Sequence[Graph | None]) -> Drawing:
    """Those of one line each share a line."""
    head = f"Data flow of {title}"
    texts = [(name, _flow(section, head, graph).text) for name, graph in zip(names, graphs, strict=True) if graph]
    short = [f"{name}: {text}" if name else text for name, text in texts if "\n" not in text]
    long = [f"{name}:\n{text}" if name else text for name, text in texts if "\n" in text]
    return Drawing(
        section,
        head,
        "\n".join([*long, *[" | ".join(short)] * bool(short)]) or NO_FLOW,
        tuple(graph for graph in graphs if graph),
    )


def _dependencies(facts: ImplementationFacts, catalogue: Sequence[Task]) -> Drawing:
    graph = flow.dependency_graph(facts, catalogue)
    small = folded(graph, _CHAINS, "chains of tasks that move the fewest bytes")
    return Drawing("6.2", "Dependencies of the tasks", draw(graph), (small,))


def _timeline(facts: ImplementationFacts) -> Drawing:
    graphs = timelines(facts)
    text = "\n\n".join(f"{graph.title}\n{draw(graph)}" for graph in graphs) or "no time is known of any pass"
    return Drawing("8.2", "Execution timeline", text, tuple(graphs))
