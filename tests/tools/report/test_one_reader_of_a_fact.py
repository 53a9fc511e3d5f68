"""What two places of a report say of one thing is read once: what limits a line, what an operator reads of its own last run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import report_toy as toy
from opscope_schemas.analysis import Kernel
from opscope_schemas.dataflow import FlowOperator
from opscope_tools.report.diagrams import draw
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.flow import catalogue_rows
from opscope_tools.report.insights import insights
from opscope_tools.report.parallel import Split, communication_rows
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.sources import SourceReader
from opscope_tools.report.system import system_graph
from opscope_tools.report.tasks import tasks
from opscope_tools.report.timeline import timelines


def computing_layer(facts: ImplementationFacts, flops: str) -> ImplementationFacts:
    """The toy whose layers' addition computes so much in all layers."""
    layers = facts.main.kernels[1]
    *calls, add = layers.kernels or ()
    kernels: tuple[Kernel, ...] = (*calls, add.model_copy(update={"flops": flops}))
    whole = (facts.main.kernels[0], layers.model_copy(update={"kernels": kernels}), *facts.main.kernels[2:])
    main = facts.main.model_copy(update={"kernels": whole})
    return replace(facts, documents=(main, *facts.documents[1:]))


def test_a_line_is_limited_by_what_the_section_of_its_module_says(facts: ImplementationFacts) -> None:
    """By hand at 16 FLOPs per byte: attention does 163,840 FLOPs over 10,752 bytes, which is 15.24. Its scores and sums (131,072 FLOPs over
    4,096 bytes) take 131,072 to compute, its projections 16 * (4,480 + 2,176) = 106,496 to move: 55 % of the time is computing."""
    told = replace(computing_layer(facts, f"{toy.L}{toy.T} * {toy.H} * 1000"), ridge=16.0)
    said = {m.class_name.rpartition(".")[2]: " ".join(insights(told, m, Quotes())) for m in told.modules}
    moving = f"most bytes move on `{toy.FILE}:{toy.line_of('self.attention(')}` (attention), mostly limited by compute"
    assert moving in said["ToyLayer"]
    assert "prefill" in said["ToyAttention"]
    assert "kernel by kernel limited by compute for 55" in toy.unmarked(said["ToyAttention"])


#: operators of the toy by number: the layers' addition, the last of the layer
ADD = 7


def carrying(facts: ImplementationFacts, repeat: str) -> ImplementationFacts:
    """The toy whose addition reads what it made itself a repetition before; it runs as often as `repeat` says."""

    def changed(one: FlowOperator) -> FlowOperator:
        ran = (
            one.model_copy(update={"repeat": repeat if one.id == ADD else "{num_layers}"}) if 1 < one.id <= ADD else one
        )
        return ran.model_copy(update={"carried_from": (ADD,)}) if one.id == ADD else ran

    first = facts.graphs[0].model_copy(update={"operators": tuple(map(changed, facts.graphs[0].operators))})
    return replace(facts, graphs=(first, *facts.graphs[1:]))


@pytest.mark.parametrize(("repeat", "outside"), [("{num_layers}", True), ("3 * {num_layers}", False)])
def test_an_operator_reads_what_it_made_itself_in_the_layer_before(
    facts: ImplementationFacts, repeat: str, outside: bool
) -> None:
    """Of a loop inside its own box the box reads nothing."""
    told = carrying(facts, repeat)
    (line,) = [each for each in draw(system_graph(told)).split("\n") if "own add" in each]
    assert line.endswith("[reads 3; of the repetition before: 4]" if outside else "[reads 3]")
    catalogue = tasks(told.main, told.graphs[0])
    row = next(row for row in catalogue_rows(told, catalogue) if row[1] == "add")
    assert row[4] == f"{ADD - 1}; of the repetition before: {ADD}"


def beside_each_other(facts: ImplementationFacts, *reads: tuple[int, ...], lines: tuple[int, ...]) -> list[str]:
    """The labels of the boxes of three operators that follow the embedding, which stand on `lines` and read so."""
    first, add = facts.main.kernels[0], (facts.main.kernels[1].kernels or ())[-1]
    names = ("aten.arange", "aten.add", "aten.mul")
    own = [
        add.model_copy(update={"operator": n, "line": at, "repeat": "1"}) for n, at in zip(names, lines, strict=True)
    ]
    main = facts.main.model_copy(update={"kernels": (first, *own)})
    graph = toy.graph(main)
    operators = [
        one.model_copy(update={"depends_on": reads[at - 1] if at else (), "reads": (), "carried_from": ()})
        for at, one in enumerate(graph.operators)
    ]
    graphs = (graph.model_copy(update={"operators": tuple(operators)}),)
    found = draw(system_graph(replace(facts, documents=(main,), graphs=graphs))).split("\n")
    return [line.partition("own ")[2] for line in found if "own " in line]


def test_operators_that_share_neither_a_line_nor_what_they_read_are_boxes_of_their_own(
    facts: ImplementationFacts,
) -> None:
    """Operator 1 is the embedding, 2 to 4 are the model's own."""
    apart = beside_each_other(facts, (), (2,), (1,), lines=(30, 30, 40))
    assert apart == ["arange, add (:30)  [reads no other result]", "mul (:40)  [reads 1]"]
    assert beside_each_other(facts, (), (), (1,), lines=(30, 40, 40)) == [
        "arange (:30)  [reads no other result]", "add, mul (:40)  [reads 1]",
    ]  # fmt: skip
    one_reads_both = beside_each_other(facts, (), (1,), (2, 3), lines=(30, 40, 50))
    assert one_reads_both == ["arange, add, mul (:30, :40, :50)  [reads 1]"]
    the_same_is_read = beside_each_other(facts, (1,), (), (1,), lines=(30, 40, 50))
    assert the_same_is_read == ["arange, mul (:30, :50)  [reads 1]", "add (:40)  [reads no other result]"]


@pytest.mark.parametrize(("second", "said"), [(0.1e-3, "memory 33 %"), (1.2e-3, "fixed 55 %")])
def test_kernels_of_one_bar_are_limited_by_their_start_where_that_is_most_of_the_time_of_all(
    facts: ImplementationFacts, second: float, said: str
) -> None:
    """By hand: of 4 ms the starts are 1 and 0.1 ms, or 1 and 1.2 ms; the bytes alone would take 1/3 + 1 ms."""
    found = facts.estimates["prefill"]
    first = found.operators[0].model_copy(update={"limited_by": "memory"})
    started = first.model_copy(update={"calibrated_seconds": 1.5e-3, "launch_seconds": 1e-3, "bound_seconds": 1e-3 / 3})
    other = first.model_copy(update={"calibrated_seconds": 2.5e-3, "launch_seconds": second, "bound_seconds": 1e-3})
    long = first.model_copy(update={"calibrated_seconds": 9.0, "module": "other"})
    estimate = found.model_copy(update={"operators": (started, other, long)})
    (graph,) = timelines(replace(facts, estimates={"prefill": estimate}))
    assert graph.vertices[0].lines[-1].startswith(said)


COMMUNICATING = """import torch
import torch.distributed as ranks
from torch.distributed import broadcast

from .helpers import all_reduce_sum as _sum


class ToyForCausalLM:
    def forward(self, input_ids):
        if torch.distributed.is_initialized() and ranks.get_rank() == 0:
            torch.distributed.barrier()
        world = ranks.get_world_size(ranks.new_group())
        broadcast(input_ids, 0)
        ranks.send(input_ids, 1)
        scores = torch.gather(input_ids, 0, input_ids).reduce(world)
        return self.group.all_reduce(scores), ranks.nn.functional.all_gather(scores)
"""


def test_rows_of_communication_are_of_calls_that_communicate(facts: ImplementationFacts, tmp_path: Path) -> None:
    repository = toy.write_source(tmp_path / "src")
    (tmp_path / "src" / toy.FILE).write_text(COMMUNICATING)
    split = Split.of(replace(facts, reader=SourceReader([repository])))
    rows = [row for row in communication_rows(split) if row[3].startswith("not analysed")]
    lines = COMMUNICATING.split("\n")
    expected = [("barrier", 11), ("broadcast", 13), ("send", 14), ("all_reduce", 16), ("all_gather", 16)]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        (f"`{lines[at - 1].strip()}`", name, f"`{toy.FILE}:{at}`") for name, at in expected
    ]
