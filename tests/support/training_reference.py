"""The independent reference of a training step: a real model in training mode, its loss, its gradients.

torch's own counter says the FLOPs of products, with the formulas that it has for fused attention put on the CPU's kernel too;
hooks say which storages autograd keeps. Nothing here imports opscope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count


@dataclass(frozen=True)
class Step:
    """What a step costs: FLOPs of products on the way there and in all, and bytes that lie saved in between."""

    forward: int
    products: int
    saved: int


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(gradient, query, key, value))


def _grouped(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """Rows (m, k) each with one of the (k, n); or the gradient of these, (k, m) and (m, n) in groups of m."""
    return int(2 * a[0] * a[1] * b[-1])


_FUSED = "aten._scaled_dot_product_flash_attention_for_cpu"
_KERNELS: dict[Any, Any] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    torch.ops.aten._grouped_mm: _grouped,
}


def _dropout(tensor: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """As a GPU drops: one operator, whose mask is of booleans."""
    assert not inplace
    return torch.native_dropout(tensor, p, True)[0] if training and p > 0 else tensor


def step(model: Any, run: Callable[[], Any]) -> Step:
    """`run` gives the loss of `model`, or tensors whose sum is taken for it."""
    known = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    kept: dict[int, Any] = {}

    def packed(tensor: Any) -> Any:
        if tensor.untyped_storage().data_ptr() not in known:
            kept.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage())
        return tensor

    model.train()
    counter = FlopCounterMode(display=False, custom_mapping=_KERNELS)
    with counter, _Statistics() as statistics, mock.patch.object(torch.nn.functional, "dropout", _dropout):
        with torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
            ends = run()
        there = counter.get_total_flops()
        ends = [end for end in (ends if isinstance(ends, list) else [ends]) if end.requires_grad]
        torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])
    saved = sum(storage.nbytes() * statistics.wider.get(at, 1) for at, storage in kept.items())
    return Step(there, counter.get_total_flops(), saved)


class _Statistics(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """How many times as wide as this processor a GPU keeps mean and scale of a layer norm's rows: in four bytes at least."""

    def __init__(self) -> None:
        super().__init__()
        self.wider: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.native_layer_norm.default:
            self.wider |= {t.untyped_storage().data_ptr(): max(1, 4 // t.element_size()) for t in found[1:]}
        return found


class _Issued(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.names[func._schema.name.replace("::", ".").replace(_FUSED, "opscope.sdpa")] += 1
        return func(*args, **(kwargs or {}))


def issued(model: Any, run: Callable[[], Any]) -> Counter[str]:
    """How often a step issues each operator that is no view; attention's kernel by the name that documents give it."""
    model.train()
    with mock.patch.object(torch.nn.functional, "dropout", _dropout), _Issued() as seen:
        end = run()
        with _disable_current_modes():
            seed = torch.ones_like(end)
        torch.autograd.backward(end, seed)
    return Counter(seen.names)


__all__ = ["Step", "issued", "step"]
