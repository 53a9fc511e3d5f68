"""Every cost rule against the independent counter: FLOPs, products, bytes read and written of real small calls.

What the reference has a rule for is counted by that; an operator that it does not know is run once more and what it is made of
is counted. What neither reaches stands in `ELSEWHERE`, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cost_bytes import moved
from cost_flops import arithmetic
from cost_operator import Ran, find, ran
from cost_products import BESIDE, PRODUCTS
from cost_walk import FREE, VIEWS, walked
from operator_calls import calls
from opscope_schemas.formula import Formula
from opscope_tools.trace import operators
from opscope_tools.trace.operators import Call, Cost, Tensor
from opscope_tools.trace.worker.recorder import arguments_of, tensors_in
from torch.utils._python_dispatch import TorchDispatchMode

_WRITTEN_OUT = "its definition is written out in test_operators.py; no kernel for it is here"
_OTHER_MACHINE = "only another machine has it, and no shape of its result here; the rule is the one of the operator that it stands for"
ELSEWHERE = {
    **dict.fromkeys((
        "causal_conv1d_fwd causal_conv1d_update chunk_gated_delta_rule fused_recurrent_gated_delta_rule "
        "mamba_chunk_scan_combined selective_scan_fwd selective_state_update flash_attn._flash_attn_forward "
        "flash_attn._flash_attn_varlen_forward torchvision.roi_align aten._scaled_mm aten._weight_int4pack_mm "
        "aten._weight_int4pack_mm_for_cpu aten._thnn_fused_lstm_cell"
    ).split(), _WRITTEN_OUT),
    **dict.fromkeys((
        "gated_activation fused_norm rotary_embedding fused_recurrent_delta_rule chunk_delta_rule recurrent_gated_linear_attention "
        "chunk_gated_linear_attention xformers.memory_efficient_attention"
    ).split(), "its definition is written out in test_recurrent_kernels.py; no kernel for it is here"),
    **dict.fromkeys((
        "aten.cudnn_batch_norm aten.cudnn_convolution aten.cudnn_convolution_transpose aten.cudnn_grid_sampler "
        "aten.miopen_batch_norm aten.miopen_convolution aten.miopen_convolution_transpose aten.miopen_depthwise_convolution "
        "aten.convolution_overrideable aten.mkldnn_linear mkldnn._linear_pointwise aten._scaled_grouped_mm "
        "aten._conv_depthwise2d aten.conv_depthwise3d aten._thnn_fused_gru_cell aten.mkldnn_max_pool2d aten.mkldnn_max_pool3d "
        "aten.mkldnn_adaptive_avg_pool2d aten.to_dense"
    ).split(), _OTHER_MACHINE),
    **dict.fromkeys(("aten.gru", "aten.gru_cell"), "torch joins n and h in 3 steps, the definition in test_operators.py in 4"),
    **dict.fromkeys((
        "aten.sigmoid_backward aten.tanh_backward aten.silu_backward aten.threshold_backward aten.hardtanh_backward "
        "aten.leaky_relu_backward aten.hardsigmoid_backward aten.hardswish_backward aten.softplus_backward aten.elu_backward "
        "aten.native_dropout_backward aten._softmax_backward_data aten._log_softmax_backward_data aten.gelu_backward "
        "aten.glu_backward aten._prelu_kernel_backward aten.nll_loss_backward aten.nll_loss2d_backward aten.mse_loss_backward "
        "aten.native_layer_norm_backward aten.native_group_norm_backward aten._fused_rms_norm_backward "
        "aten.native_batch_norm_backward aten.batch_norm_backward aten.convolution_backward aten.embedding_dense_backward "
        "aten.slice_backward aten.select_backward aten.diagonal_backward aten.unfold_backward "
        "aten.max_pool2d_with_indices_backward aten.max_pool3d_with_indices_backward aten._adaptive_avg_pool2d_backward"
    ).split(), "a derivative, whose arithmetic the rule spells; products are held against real steps in test_training.py"),
    **dict.fromkeys(("opscope.sdpa", "opscope.sdpa_backward", "transformers.grouped_mm_fallback", "prim.device"), "no operator of torch's: models run them"),
}  # fmt: skip


def tensor_of(tensor: torch.Tensor) -> Tensor:
    """A real tensor as rules see it."""
    number = Formula.const
    stored = math.prod(n for n, step in zip(tensor.shape, tensor.stride(), strict=True) if step)
    place = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
    name = str(tensor.dtype).removeprefix("torch.")
    return Tensor(tuple(map(number, tensor.shape)), name, number(tensor.element_size()), number(stored), key=place)


def ours(func: Any, args: Any, kwargs: Any, result: Any) -> Cost | None:
    """What the rule says of a call."""
    given, made = ([tensor_of(t) for _, t in tensors_in(tree)] for tree in ((args, kwargs), result))
    return operators.cost_of(Call(_name(func), given, made, arguments_of(func, args, kwargs)))


def theirs(func: Any, args: Any, kwargs: Any, result: Any) -> tuple[int, int, int, int]:
    """What the reference says: FLOPs, products, read, written."""
    call = ran(func, args, kwargs, result)
    if func.is_view or call.name in FREE | VIEWS:
        return 0, 0, 0, 0
    product = find(call.name, PRODUCTS)
    flops = find(call.name, BESIDE)(call) if product else arithmetic(call)
    products = int(product(call)) if product else 0
    if flops is None:
        inside = walked(lambda: func(*args, **kwargs))
        flops, products = inside.flops - inside.products, inside.products
        if not (inside.read or inside.write):
            return flops + products, products, 0, 0
    return flops + products, products, *moved(call)


def _name(func: Any) -> str:
    return str(func._schema.name).replace("::", ".")


def _registered(func: Any) -> str:
    name = _name(func)
    return name if name in operators.registered() else name.removesuffix("_")


class Compared:
    """Which rules were held against the reference, and where the two differ."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.differences: dict[str, str] = {}

    def see(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = _registered(func)
        if name not in operators.registered():
            return
        cost = ours(func, args, kwargs, result)
        if cost is None:  # the rule says that it does not know, of complex numbers for one
            return
        figures = (cost.flops, cost.matmul_flops, cost.read, cost.write)
        said, expected = tuple(f.evaluate({}) for f in figures), theirs(func, args, kwargs, result)
        self.names.add(name)
        if said != expected:
            shapes = [
                (tuple(t.shape), t.dtype) for t in Ran("", {}, [t for _, t in tensors_in((args, kwargs))], []).inputs
            ]
            self.differences.setdefault(
                name, f"{name}: rule {said}, reference {expected} on {shapes}, {arguments_of(func, args, kwargs)}"
            )


@pytest.mark.slow
def test_every_rule_says_what_the_reference_counts_and_none_is_left_out() -> None:
    compared = Compared()
    calls(compared.see, [name.removeprefix("aten.") for name in operators.registered() if name.startswith("aten.")])
    assert not compared.differences, "\n".join(compared.differences.values())
    left = operators.registered() - compared.names
    assert left - ELSEWHERE.keys() == set(), "rules that no call was compared for: add calls to operator_calls.py"
    assert ELSEWHERE.keys() - left == set(), "compared after all, or no longer there"


# ---------------------------------------------------------------- gradients


class _Seen(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Costs by operator, as the rules say them of real calls."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        cost = ours(func, args, kwargs or {}, result)
        if cost is not None:
            self.flops[func._schema.name.removeprefix("aten::")] = cost.flops.evaluate({})
        return result


def test_gradients_cost_the_arithmetic_of_their_derivatives() -> None:
    functional = torch.nn.functional
    x = torch.randn(3, 4, requires_grad=True)
    weight, bias = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    image, taps = torch.randn(2, 3, 6, 6, requires_grad=True), torch.randn(5, 3, 3, 3, requires_grad=True)
    table, target = torch.randn(9, 4, requires_grad=True), torch.tensor([0, 3, 1])
    expected: dict[str, tuple[Callable[[], torch.Tensor], int]] = {
        "silu_backward": (lambda: functional.silu(x), 9 * 12),
        "tanh_backward": (lambda: torch.tanh(x), 3 * 12),
        "gelu_backward": (lambda: functional.gelu(x), 11 * 12),
        "threshold_backward": (lambda: torch.relu(x), 0),
        "_softmax_backward_data": (lambda: x.softmax(-1), 4 * 12),
        "_log_softmax_backward_data": (lambda: x.log_softmax(-1), 4 * 12),
        "nll_loss_backward": (lambda: functional.nll_loss(x, target), 2 * 3),
        "native_layer_norm_backward": (lambda: functional.layer_norm(x, (4,), weight, bias), (9 + 1 + 2 + 1) * 12),
        "embedding_dense_backward": (lambda: functional.embedding(target, table), 12),
        "convolution_backward": (lambda: functional.conv2d(image, taps, stride=2), 2 * 2 * (2 * 5 * 2 * 2) * 27),
        "slice_backward": (lambda: x[:, :2], 0),
        "native_dropout_backward": (lambda: torch.native_dropout(x, 0.5, True)[0], 2 * 12),
    }
    for name, (run, flops) in expected.items():
        with _Seen() as seen:
            torch.autograd.backward(run().sum())
        assert seen.flops[name] == flops, name


def test_every_gradient_s_rule_is_registered_for_an_operator_of_torch() -> None:
    backward = {name for name in operators.registered() if name.endswith(("_backward", "_backward_data"))}
    assert len(backward) > 20
    assert all(hasattr(torch.ops.aten, n.removeprefix("aten.")) for n in backward if n.startswith("aten."))
