"""Views in a trace have the strides that views of data have, on which torch's choice of a layout, and so of operators, rests."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cost_comparison import compare
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.worker.patches import strides_of_views
from sampled import sampled
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

Viewed = Callable[[torch.Tensor], torch.Tensor]


def drawn(draw: random.Random) -> tuple[list[int], list[int], list[int]]:
    """A shape with ones among it, an order of its dimensions, and another shape of as many elements."""
    shape = [draw.choice((1, 1, 2, 3, 4, 6)) for _ in range(draw.randint(0, 5))]
    order = draw.sample(range(len(shape)), len(shape))
    left, other = math.prod(shape), []
    while left > 1:
        other.append(draw.choice([n for n in range(2, left + 1) if left % n == 0]))
        left //= other[-1]
    for _ in range(draw.randint(0, 2)):
        other.insert(draw.randint(0, len(other)), 1)
    return shape, order, other


def test_views_of_numbers_have_the_strides_of_real_ones() -> None:
    draw, legal = random.Random(0), 0
    for _ in range(1500):
        shape, order, other = drawn(draw)
        try:
            real = torch.empty(shape).permute(order).view(other).stride()
        except RuntimeError:
            continue
        with FakeTensorMode(), strides_of_views():
            assert torch.empty(shape).permute(order).view(other).stride() == real, (shape, order, other)
        legal += 1
    assert legal > 500


@pytest.mark.parametrize("viewed", [
    lambda x: x.transpose(1, 2).view(1, x.shape[2], 4, -1),
    lambda x: x.transpose(1, 2).reshape(1, x.shape[2], -1, 1),
    lambda x: x.view(x.shape[1], 1, x.shape[2], 1),
    lambda x: x[:, :, :3].unflatten(-1, (3, 1)),
    lambda x: x.transpose(0, 2).view(1, x.shape[2], x.shape[1], 1),
])  # fmt: skip
def test_views_of_symbols_have_the_strides_of_real_ones(viewed: Viewed) -> None:
    env = ShapeEnv()

    def symbol(name: str, value: int) -> Any:
        made = env.create_symbol(value, ConstantSource(name), dynamic_dim=DimDynamic.DYNAMIC)
        return env.create_symintnode(made, hint=value)

    with FakeTensorMode(shape_env=env), strides_of_views():
        traced = viewed(torch.empty(1, symbol("tokens", 20), symbol("width", 6)))
        assert any(isinstance(stride, torch.SymInt) for stride in traced.stride())
        strides = [int(stride) for stride in traced.stride()]
    assert strides == list(viewed(torch.empty(1, 20, 6)).stride())


def test_torch_has_its_own_rules_back_after_a_trace() -> None:
    def stride() -> Any:
        with FakeTensorMode():
            return torch.empty(1, 6, 2).transpose(1, 2).view(1, 2, 2, 3).stride()

    before = stride()
    with strides_of_views():
        pass
    assert stride() == before


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("model_type", sampled(["segformer", "vit", "whisper"]))
def test_a_model_costs_what_a_run_does_whether_one_stands_in_its_batch_or_two(
    model_type: str, batch: int, context: ToolContext
) -> None:
    outcome = compare(model_type, "prefill", context, count=1, run={"batch_size": batch})
    assert outcome.state == "exact", outcome.line()
