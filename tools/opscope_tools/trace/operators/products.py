"""Matrix products and convolutions: 2 FLOPs per multiply-add, which make `matmul_flops`; bias adds and scalings do not.

Order: dense products, products of lower precision, convolutions, experts' products.
"""

from __future__ import annotations

from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.trace.operators.types import ONE, ZERO, Call, Cost, Tensor, cost, moved, operator, times

# ---------------------------------------------------------------- dense


def _product(call: Call, a: Tensor, extra: Formula = ZERO, why: str = "") -> Cost:
    """2 * (elements of the output) * (contracted length): `a` is (..., m, k). Complex: 8 per multiply-add."""
    matmul = (8 if call.is_complex else 2) * call.out * a.shape[-1]
    return cost(call, matmul + extra, f"{8 if call.is_complex else 2} * m * n * k" + why, matmul)


def _sum_of(call: Call, product: Formula) -> Formula:
    """What `beta * c + alpha * product` adds to the product: an add, and a multiply for each factor that is not 0 or 1.

    The product has `product` elements; the sum has the output's.
    """
    beta, alpha = call.arguments.get("beta", 1), call.arguments.get("alpha", 1)
    extra = _scaling(call, alpha) * product
    return extra + ((2 if call.is_complex else 1) + _scaling(call, beta)) * call.out if beta != 0 else extra


def _scaling(call: Call, factor: Any) -> int:
    """What a multiply by a number costs per element; by 1 nothing."""
    if factor == 1:
        return 0
    return _multiply(call) if isinstance(factor, complex) or not call.is_complex else 2


def _multiply(call: Call) -> int:
    """Complex: 4 multiplies, 2 adds."""
    return 6 if call.is_complex else 1


@operator(
    "aten.mm", "aten.bmm", "aten.matmul", "aten.mv", "aten.dot", "aten.vdot", "aten._int_mm",
    complex_too=True,
)  # fmt: skip
def mm(call: Call) -> Cost:
    """(m, k) @ (k, n): 2*m*n*k, per batch entry; a vector is a matrix of one row or column."""
    return _product(call, call.inputs[0])


@operator("aten.addmm", "aten.baddbmm", "aten.addmv", "aten._addmm_activation", complex_too=True)
def addmm(call: Call) -> Cost:
    """beta * bias + alpha * (a @ b): the product, an add per output element, and a multiply for a beta or alpha not 0 or 1.

    `_addmm_activation` compares with 0 afterwards, or applies gelu's tanh form (8 per element).
    """
    extra = _sum_of(call, call.out) + (8 * call.out if call.arguments.get("use_gelu") else ZERO)
    return _product(call, call.inputs[1], extra, " and the bias add")


@operator("aten.addbmm", complex_too=True)
def addbmm(call: Call) -> Cost:
    """beta * bias + alpha * sum over the batch of (a @ b): one product whose contracted length is batch * k."""
    batch, _, k = call.inputs[1].shape
    matmul = (8 if call.is_complex else 2) * call.out * batch * k
    return cost(call, matmul + _sum_of(call, call.out), "2 * m * n * (batch * k) and the bias add", matmul)


@operator("aten.addr", complex_too=True)
def addr(call: Call) -> Cost:
    """beta * c + alpha * (x outer y): a multiply and an add per output element; no contraction, so no matrix product."""
    return cost(
        call, _multiply(call) * call.out + _sum_of(call, call.out), "outer product: multiply, add per output element"
    )


@operator("aten.ger", "aten.outer", complex_too=True)
def outer(call: Call) -> Cost:
    """x outer y: a multiply per output element."""
    return cost(call, _multiply(call) * call.out, "outer product: a multiply per output element")


@operator("aten.linear", "aten.mkldnn_linear", "mkldnn._linear_pointwise", complex_too=True)
def linear(call: Call) -> Cost:
    """x @ W^T + b: 2*m*n*k and an add per output element where there is a bias."""
    bias = (2 if call.is_complex else 1) * call.out if len(call.inputs) > 2 else ZERO
    return _product(call, call.inputs[0], bias, " and the bias add" if len(call.inputs) > 2 else "")


@operator("aten._trilinear")
def trilinear(call: Call) -> Cost:
    """sum over some dimensions of a * b * c, each first unsqueezed at its `expand` dimensions: two multiplies and an add

    per point of the joint space (`nn.Bilinear` is one: x @ W @ y without the intermediate). One multiply-add of each point is the
    contraction's.
    """
    shapes = [
        _unsqueezed(tensor.shape, call.arguments.get(f"expand{index}", ()))
        for index, tensor in enumerate(call.inputs[:3], 1)
    ]
    space = times(next((n for n in sizes if n != ONE), ONE) for sizes in zip(*shapes, strict=True))
    return cost(call, 3 * space, "two multiplies and an add per point of the joint space", 2 * space)


def _unsqueezed(shape: tuple[Formula, ...], dims: Any) -> list[Formula]:
    sizes = list(shape)
    for dim in sorted(dims):
        sizes.insert(dim, ONE)
    return sizes


# ---------------------------------------------------------------- lower precision


@operator("aten._scaled_mm")
def scaled_mm(call: Call) -> Cost:
    """(a * scale_a) @ (b * scale_b) + bias, scaled after the product: a multiply per output element for each scale."""
    scales = min(max(len(call.inputs) - 2, 0), 2)
    extra = scales * call.out + (call.out if len(call.inputs) > 4 else ZERO)
    return _product(call, call.inputs[0], extra, " and the scales (and the bias)")


@operator("aten._weight_int8pack_mm")
def int8pack_mm(call: Call) -> Cost:
    """(a @ W^T) * scales, W in 8-bit integers: a multiply per output element."""
    return _product(call, call.inputs[0], call.out, " and a scale per output element")


@operator("aten._weight_int4pack_mm", "aten._weight_int4pack_mm_for_cpu")
def int4pack_mm(call: Call) -> Cost:
    """a @ dequantised(W)^T: W's n * k entries are each scaled and shifted first."""
    entries = call.outputs[0].shape[-1] * call.inputs[0].shape[-1]
    return _product(call, call.inputs[0], 2 * entries, " and a scale and a shift per weight")


# ---------------------------------------------------------------- convolutions


@operator(
    "aten.convolution", "aten._convolution", "aten.conv1d", "aten.conv2d", "aten.conv3d", "aten.cudnn_convolution",
    "aten.mkldnn_convolution", "aten.thnn_conv2d", "aten._slow_conv2d_forward", "aten.slow_conv3d_forward",
    "aten._conv_depthwise2d", "aten.conv_depthwise3d", "aten.slow_conv_dilated2d", "aten.slow_conv_dilated3d",
    "aten.miopen_convolution", "aten.miopen_depthwise_convolution", "aten.convolution_overrideable", complex_too=True,
)  # fmt: skip
def convolution(call: Call) -> Cost:
    """2 * output elements * (input channels per group * kernel volume); transposed: 2 * input elements * weight per input channel.

    The weight is (out, in / groups, kernel...), transposed (in, out / groups, kernel...): either way its last
    dimensions are the taps of one position. Taps on padding count, as in other counters.
    """
    x, w = call.inputs[0], call.inputs[1]
    positions = x.numel if call.arguments.get("transposed") else call.out
    return _convolved(call, positions, times(w.shape[1:]))


@operator("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d", "aten.slow_conv_transpose2d",
          "aten.slow_conv_transpose3d", "aten.cudnn_convolution_transpose", "aten.miopen_convolution_transpose",
          complex_too=True)  # fmt: skip
def transposed_convolution(call: Call) -> Cost:
    """2 * input elements * (output channels per group * kernel volume)."""
    return _convolved(call, call.inputs[0].numel, times(call.inputs[1].shape[1:]))


@operator("aten.conv_tbc", complex_too=True)
def conv_tbc(call: Call) -> Cost:
    """Over (time, batch, channels) with a weight of (kernel, in, out): 2 * output elements * kernel * in, and the bias."""
    return _convolved(call, call.out, times(call.inputs[1].shape[:2]))


def _convolved(call: Call, positions: Formula, taps: Formula) -> Cost:
    matmul = (8 if call.is_complex else 2) * positions * taps
    bias = call.out * (2 if call.is_complex else 1) if len(call.inputs) > 2 else ZERO
    return cost(
        call, matmul + bias, "2 * positions * taps" + (" and the bias add" if len(call.inputs) > 2 else ""), matmul
    )


# ---------------------------------------------------------------- experts


#: operators that read some of the experts that lie in one tensor
GROUPED = ("aten._grouped_mm", "aten._scaled_grouped_mm", "transformers.grouped_mm_fallback")


@operator(*GROUPED)
def grouped_mm(call: Call) -> Cost:
    """Rows of (rows, k) each meet one of the experts' (k, n): 2*rows*k*n. Only experts that rows can reach are read.

    The gradient of the weights is a product of (k, rows) and (rows, n) in groups of rows: 2*rows*k*n too, both read once.
    """
    x, w = call.inputs[0], call.inputs[1]
    if len(x.shape) == len(w.shape) == 2:
        products = 2 * x.numel * w.shape[-1]
        return cost(call, products, "2 * rows * k * n, in groups of rows", products)
    matmul = 2 * call.out * x.shape[-1]
    touched = Formula.minimum(w.shape[0], x.shape[0])
    read = x.bytes + w.bytes_of(touched * times(w.shape[1:]))
    for other in call.inputs[2:]:
        read = read + other.bytes
    scaled = 2 * call.out if "scaled" in call.name else ZERO
    why = "2 * rows * k * n; weights of min(experts, rows) experts read"
    return Cost(matmul + scaled, matmul, read, moved(call)[1], why)
