"""Attention in the worker is what torch's own kernels do: the layout that they leave, and the calls that they do not take."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from opscope_tools.trace.worker.patches import Rewriter
from opscope_tools.trace.worker.training import result_of
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

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


class Parts(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """The operators that run, each with the shapes and types that it makes; views are none."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[str, list[tuple[torch.Size, torch.dtype]]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.ran.append((str(func), [(t.shape, t.dtype) for t in tree_leaves(out)]))
        return out


MASKS = {
    "none": None, "of truths": torch.ones(1, 1, 16, 16, dtype=torch.bool).tril(), "added": torch.zeros(2, 8, 16, 16),
    "of truths for all": torch.ones(16, 16, dtype=torch.bool).tril().expand(2, 1, 16, 16),
}  # fmt: skip


@pytest.mark.parametrize(("mask", "causal"), [*((name, False) for name in MASKS), ("none", True)])
def test_where_no_fused_kernel_takes_the_heads_the_parts_are_torch_s_own(mask: str, causal: bool) -> None:
    draw = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(2, heads, 16, 8, generator=draw) for heads in (8, 1, 1))
    attend = torch.nn.functional.scaled_dot_product_attention
    with Parts() as real:
        expected = attend(query, key, value, MASKS[mask], is_causal=causal)
    with Rewriter(lambda *_: None), Parts() as ours:
        found = attend(query, key, value, MASKS[mask], is_causal=causal)
    assert ours.ran == real.ran
    assert torch.equal(found, expected)
