"""Matrix products as they ran: 2 FLOPs per multiply-add, and what else the operators with a product in them compute.

`PRODUCTS` is the class that documents total on its own; `BESIDE` is the rest of the same calls: biases, scales, the
softmax of fused attention, the gates of recurrent layers. Products of complex numbers are 8 per multiply-add.
"""

from __future__ import annotations

import math

import torch
from cost_flops import sum_of
from cost_operator import Count, Ran


def _madd(call: Ran) -> int:
    return 8 if call.is_complex else 2


def _contracts(name: str) -> Count:
    """Each output is a sum over the last dimension of the argument `name`."""
    return lambda call: _madd(call) * call.made * int(call[name].shape[-1])


def _addbmm(call: Ran) -> int:
    """One sum over the batch and the last dimension."""
    batch, _, k = call["batch1"].shape
    return int(_madd(call) * call.made * batch * k)


def _convolution(call: Ran) -> int:
    """Each output gathers the taps of one filter, on padding too; transposed, each input is spread over them."""
    spots = call.inputs[0].numel() if call.arguments.get("transposed", "transpose" in call.name) else call.made
    return int(_madd(call) * spots * math.prod(call["weight"].shape[1:]))


def _over_time(call: Ran) -> int:
    """A filter of (taps, in, out) over (time, batch, in)."""
    return int(2 * call.made * math.prod(call["weight"].shape[:2]))


def _scores(call: Ran) -> int:
    """Pairs of a query and a key in every head of the queries; tensors by head, or by token."""
    if call.name in _BY_TOKEN:
        return int(math.prod(call["query"].shape[:-1]) * call["key"].shape[1])
    return int(math.prod(call["query"].shape[:-1]) * call["key"].shape[-2])


def _attention(call: Ran) -> int:
    return 2 * _scores(call) * int(call["query"].shape[-1] + call["value"].shape[-1])


_CONVOLUTIONS = ("convolution", "_convolution", "mkldnn_convolution", "_slow_conv2d_forward", "slow_conv3d_forward",
                 "slow_conv_dilated2d", "slow_conv_dilated3d", "slow_conv_transpose2d", "slow_conv_transpose3d")  # fmt: skip


def _rnn(call: Ran) -> int:
    """Every token meets each gate's rows of both matrices once."""
    return int(2 * math.prod(call["input"].shape[:-1]) * (call["weight0"].numel() + call["weight1"].numel()))


def _pairs(call: Ran) -> int:
    """Coordinates of all pairs of points."""
    return call.made * int(call["x1"].shape[-1])


def _space(call: Ran) -> int:
    """Points of the joint space of three tensors, each first unsqueezed at its `expand` dimensions."""
    shapes = []
    for index in (1, 2, 3):
        tensor = call[f"i{index}"]
        for dim in sorted(call[f"expand{index}"]):
            tensor = tensor.unsqueeze(dim)
        shapes.append(tensor.shape)
    return math.prod(torch.broadcast_shapes(*shapes))


_BY_TOKEN = ("_flash_attention_forward", "_efficient_attention_forward")
#: what `scaled_dot_product_attention` becomes where it is not seen as one operator
_KERNELS = ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math",
            "_scaled_dot_product_attention_math_for_mps", *_BY_TOKEN)  # fmt: skip

PRODUCTS: dict[str, Count] = {
    "_cdist_forward": lambda _: 0,
    "_euclidean_dist": lambda call: 2 * call.made * (call.inputs[0].shape[-1] + 2),
    "mm": _contracts("self"), "bmm": _contracts("self"), "mv": _contracts("self"), "dot": _contracts("self"),
    "vdot": _contracts("self"), "_int_mm": _contracts("self"), "addmm": _contracts("mat1"),
    "_addmm_activation": _contracts("mat1"), "baddbmm": _contracts("batch1"), "addmv": _contracts("mat"),
    "addbmm": _addbmm, "linear": _contracts("input"), "_grouped_mm": _contracts("self"),
    "grouped_mm_fallback": _contracts("input"), "conv_tbc": _over_time, "_weight_int8pack_mm": _contracts("self"),
    **dict.fromkeys(_CONVOLUTIONS, _convolution), "mkldnn_rnn_layer": _rnn,
    "sdpa": _attention, **dict.fromkeys(_KERNELS, _attention),
    # x W y, and the squares of a distance with their sum: a multiply-add per point, per coordinate of a pair
    "_trilinear": lambda call: 2 * _space(call),
}  # fmt: skip


# ---------------------------------------------------------------- beside the products of the same call


def _nothing(_: Ran) -> int:
    return 0


def _sum(call: Ran) -> int:
    """`beta * bias + alpha * product`; gelu's tanh form afterwards is 8."""
    return sum_of(call) + call.made * (8 if call.arguments.get("use_gelu") else 0)


def _bias(call: Ran) -> int:
    return call.made * call.given("bias") * (2 if call.is_complex else 1)


def _softmax_of_scores(call: Ran) -> int:
    """Per score: the scale 1; exp, add, divide 3; a mask that is not boolean is added."""
    mask = next((call[n] for n in ("attn_mask", "attn_bias", "bias") if call.arguments.get(n) is not None), None)
    return _scores(call) * (5 if mask is not None and mask.dtype != torch.bool else 4)


#: by `mode`: gates; per hidden unit W x + U h of each gate, sigmoids (4 each) and tanh, and how they are joined
_GATES = {0: (1, 1), 1: (1, 1 + 1), 2: (4, 4 + 3 * 4 + 1 + 3 + 2), 3: (3, 2 + 2 * 4 + 3 + 4)}


def _joined_gates(call: Ran) -> int:
    """Two biases of each gate's units where there are any, and the gates' arithmetic."""
    gates, per_unit = _GATES[call["mode"]]
    rows = int(call["weight0"].shape[0])
    return int(math.prod(call["input"].shape[:-1])) * (rows // gates * per_unit + 2 * rows * bool(call["has_biases"]))


def _distance(call: Ran) -> int:
    """Order 2: subtract, square, add and a root. Order 1: subtract, absolute value, add; infinity: no add."""
    each, root = {0: (1, 0), 1: (3, 0), 2: (3, 1), math.inf: (2, 0)}.get(call.arguments.get("p", 2), (4, 1))
    return each * _pairs(call) + root * call.made


def _distance_by_product(call: Ran) -> int:
    """Beside (-2 x, |x|**2, 1) @ (y, 1, |y|**2)^T: the squared lengths of both sides, the factor of x, the roots."""
    x, y = call.inputs[:2]
    return int(call.made + 3 * x.numel() + 2 * y.numel())


BESIDE: dict[str, Count] = {
    **dict.fromkeys(("addmm", "_addmm_activation", "baddbmm", "addmv", "addbmm"), _sum),
    **dict.fromkeys(("linear", "conv_tbc", *_CONVOLUTIONS), _bias),
    "_weight_int8pack_mm": lambda call: call.made,  # a scale per output
    **dict.fromkeys(("sdpa", *_KERNELS), _softmax_of_scores),
    "_cdist_forward": _distance,
    "_euclidean_dist": _distance_by_product,
    "mkldnn_rnn_layer": _joined_gates,
    "_trilinear": _space,
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "_int_mm", "_grouped_mm", "grouped_mm_fallback"), _nothing),
}
