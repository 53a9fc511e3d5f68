"""Which views of a tensor hold all of another: against the elements themselves, drawn at random."""

from __future__ import annotations

import random

import torch
from opscope_tools.costing.arguments import CostArguments, find
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.document import assignment
from opscope_tools.trace.serving import kernels
from opscope_tools.trace.worker.stretches import stretch_of


def drawn(base: torch.Tensor, draw: random.Random) -> torch.Tensor:
    view = base
    for _ in range(draw.randint(0, 4)):
        along = draw.randrange(view.dim())
        size = view.shape[along]
        match draw.randrange(5):
            case 0:
                view = view.narrow(along, size // 3, size - size // 3)
            case 1:
                view = view.narrow(along, 0, draw.randint(1, size))
            case 2:
                view = view.transpose(0, along)
            case 3 if size % 2 == 0:
                view = view.unflatten(along, (size // 2, 2)).select(along + 1, 0)
            case _:
                view = view.unsqueeze(along).expand(*view.shape[:along], 3, *view.shape[along:])
    return view


def test_a_view_holds_another_exactly_where_all_of_its_elements_are_there() -> None:
    draw, told = random.Random(7), [0, 0]
    base = torch.arange(4 * 6 * 8).view(4, 6, 8)
    for _ in range(4000):
        one, other = drawn(base, draw), drawn(base, draw)
        truth = set(other.flatten().tolist()) <= set(one.flatten().tolist())
        told[truth] += 1
        said = stretch_of(one).holds(stretch_of(other))
        assert said <= truth, (one.shape, one.stride(), other.shape, other.stride())
        assert said == truth or set(stretch_of(one).dimensions) & set(stretch_of(other).dimensions)
    assert min(told) > 500


def test_no_elements_are_held_where_none_are_known() -> None:
    assert not stretch_of(torch.empty(3, 0)).holds(stretch_of(torch.empty(3)))
    assert not stretch_of(torch.empty(3)).holds(stretch_of(torch.empty(3, dtype=torch.int32)))


def test_queries_and_keys_that_lie_in_one_product_are_read_once_to_be_turned(context: ToolContext) -> None:
    """The rotated half, its two halves and what is not rotated are views of the queries: together as much as the queries."""
    for target in ("gpt_neox", "phi3"):
        found = find(CostArguments.model_validate({"target": target}), context)
        point = assignment(found.tree.trace.variables, found.tree.trace.point)
        turned = [
            k for k in kernels(found.tree, found.call) if k.rule == "fused rope" and k.repeat.terms and len(k.ops) < 9
        ]
        assert len(turned) == 2
        for kernel in turned:
            read, write = (each.evaluate(point) for each in (kernel.cost.read, kernel.cost.write))
            angles = read - write  # sines and cosines of at most 128 columns
            assert 0 < angles <= 2 * point["seq_len"] * 128 * point["a_bytes"], (target, read, write)
