"""Attention in the worker is what torch's own kernels do: the layout that they leave, and the calls that they do not take."""

from __future__ import annotations

import itertools

import pytest
import torch
from opscope_tools.trace.worker.patches import Rewriter
from opscope_tools.trace.worker.training import result_of

#: orders in which batch, heads, tokens and width may lie in memory, slowest first
LAYOUTS = [order for order in itertools.permutations(range(4)) if order[-1] == 3]


def laid(order: tuple[int, ...], shape: tuple[int, ...]) -> torch.Tensor:
    back = [order.index(axis) for axis in range(4)]
    return torch.empty([shape[axis] for axis in order], dtype=torch.bfloat16, device="meta").permute(back)


@pytest.mark.parametrize("order", LAYOUTS)
@pytest.mark.parametrize("grad", [False, True])
def test_the_result_lies_as_the_flash_kernel_leaves_it(order: tuple[int, ...], grad: bool) -> None:
    query, key, value = (laid(order, (2, 4, 16, 8)) for _ in range(3))
    real = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)[0]
    assert result_of(query.requires_grad_(grad), value).stride() == real.stride()


@pytest.mark.parametrize(
    ("heads", "kv_heads", "gqa"), [(8, 8, False), (8, 1, False), (8, 2, True), (8, 8, True), (1, 1, False)]
)
def test_only_heads_that_a_fused_kernel_takes_are_one_operator(heads: int, kv_heads: int, gqa: bool) -> None:
    query, key, value = (
        torch.empty(2, count, 16, 8, device="meta", dtype=torch.bfloat16) for count in (heads, kv_heads, kv_heads)
    )
    seen: list[str] = []

    with Rewriter(lambda name, *_: seen.append(name)):
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=gqa)
    on_cpu = [torch.zeros(t.shape, dtype=torch.bfloat16) for t in (query, key, value)]
    math = torch._fused_sdp_choice(*on_cpu, enable_gqa=gqa) == 0
    assert found.shape == query.shape
    assert seen == ([] if math else ["opscope.sdpa"])
