"""What two places of a report say of one thing is read once: what limits a line, what an operator reads of its own last run."""

from __future__ import annotations

from dataclasses import replace

import report_toy as toy
from opscope_schemas.analysis import Kernel
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.insights import insights
from opscope_tools.report.quotes import Quotes


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
