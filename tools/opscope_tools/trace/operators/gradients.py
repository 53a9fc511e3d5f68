"""What autograd runs backwards: gradients of activations, norms, losses, convolutions and gathers.

Legend: g is the gradient that comes in, x what the forward took, y what it gave. Each rule is the arithmetic of the
derivative that its docstring or its words spell. Order: elementwise, softmax and losses, norms, convolutions, gathers and
windows. The gradient of fused attention stands beside it in attention.py; products are their own gradients' operators.
"""

from __future__ import annotations

from collections.abc import Mapping

from opscope_tools.trace.operators.types import ONE, ZERO, Call, Cost, Rule, cost, moved, operator, optional, times

#: per element of the gradient; the words spell the derivative's arithmetic
_PER_ELEMENT: Mapping[str, tuple[int, str]] = {
    "sigmoid_backward": (3, "g * y * (1 - y): subtract, two multiplies"),
    "tanh_backward": (3, "g * (1 - y * y): multiply, subtract, multiply"),
    "silu_backward": (9, "g * s * (1 + x * (1 - s)): sigmoid's 4, subtract, multiply, add, two multiplies"),
    "threshold_backward": (0, "g where x is above the threshold: a selection"),
    "hardtanh_backward": (0, "g where x is within bounds: a selection"),
    "leaky_relu_backward": (1, "g * slope: a multiply"),
    "hardsigmoid_backward": (1, "g / 6: a divide"),
    "hardswish_backward": (3, "g * (x / 3 + 1 / 2): divide, add, multiply"),
    "softplus_backward": (5, "g * z / (1 + z), z = exp(beta * x): multiply, exp, multiply, add, divide"),
    "elu_backward": (3, "g * alpha * exp(x): exp, two multiplies"),
    "native_dropout_backward": (2, "g * kept / (1 - p): two multiplies"),
    "_softmax_backward_data": (4, "y * (g - sum(g * y)): multiply, add, subtract, multiply"),
    "_log_softmax_backward_data": (4, "g - exp(y) * sum(g): add, exp, multiply, subtract"),
}


def _elementwise(name: str) -> Rule:
    def rule(call: Call) -> Cost:
        count, words = _PER_ELEMENT[name]
        return cost(call, count * call.out, words)

    return rule


for _name in _PER_ELEMENT:
    operator(f"aten.{_name}")(_elementwise(_name))


@operator("aten.gelu_backward")
def gelu_backward(call: Call) -> Cost:
    """g * (F(x) + x * f(x)), F the normal distribution and f its density.

    F: divide, erf, add, multiply; f: square, multiply, exp, multiply; then multiply, add, multiply: 11. The tanh form, with
    t = tanh(u), u = a * (x + b * x**3): u 5, t 1, (1 + t) / 2 2, 1 - t * t 2, u' 4, their product with x / 2 3, add, times g: 19.
    """
    if call.arguments.get("approximate") == "tanh":
        return cost(call, 19 * call.out, "the derivative of the tanh form times g: 19 per element")
    return cost(call, 11 * call.out, "g * (F(x) + x * f(x)): 4 for F, 4 for f, multiply, add, multiply")


@operator("aten.glu_backward")
def glu_backward(call: Call) -> Cost:
    """Of a * s(b): g * s, and g * a * s * (1 - s): sigmoid's 4, 1 and 4 per element of g."""
    return cost(call, 9 * call.inputs[0].numel, "g * s(b); g * a * s(b) * (1 - s(b)): sigmoid's 4 and 5")


@operator("aten._prelu_kernel_backward")
def prelu_backward(call: Call) -> Cost:
    """g * slope, and g * x for the slope: a multiply each."""
    return cost(call, 2 * call.inputs[0].numel, "g * slope, g * x: two multiplies")


# ---------------------------------------------------------------- losses


@operator("aten.nll_loss_backward", "aten.nll_loss2d_backward")
def nll_loss_backward(call: Call) -> Cost:
    """Zeros, and for each target's entry g negated, over the number of targets: 2. Of the scores nothing is read."""
    targets = call.inputs[2]
    beside = sum((t.bytes for at, t in enumerate(call.inputs) if at != 1), ZERO)
    write = moved(call)[1] + targets.numel * call.outputs[0].element
    return Cost(2 * targets.numel, ZERO, beside, write, "zeros, then g / n negated at each target")


@operator("aten.mse_loss_backward")
def mse_loss_backward(call: Call) -> Cost:
    """2 / n * (x - target) * g: subtract, two multiplies."""
    return cost(call, 3 * call.out, "2 / n * (x - target) * g: subtract, two multiplies")


# ---------------------------------------------------------------- norms


def _norm(call: Call, dx: int, affine: tuple[int, ...], weighted: bool) -> Cost:
    """`dx` per element where x has a gradient, 1 more where a weight scales g, and what weight and bias add to theirs."""
    n = call.inputs[0].numel
    mask = list(call.arguments.get("output_mask") or [True] * len(call.outputs))
    per_element = (dx + weighted if mask[0] else 0) + sum(
        count for count, wanted in zip(affine, mask[1:], strict=False) if wanted
    )
    return cost(
        call, per_element * n, f"{per_element} per element: normalised again, its gradient, those of weight and bias"
    )


@operator("aten.native_layer_norm_backward", "aten.native_group_norm_backward")
def layer_norm_backward(call: Call) -> Cost:
    """With h = (x - mean) * r: (g - mean(g) - h * mean(g * h)) * r: h 2, g * h 1, two sums 2, multiply, two subtracts, multiply.

    That is 9; a weight scales g first. The weight's gradient is the sum of g * h (2), the bias's that of g (1).
    """
    return _norm(call, 9, (2, 1), bool(optional(call, 4, "weight")) and call.arguments.get("weight", "") is not None)


@operator("aten._fused_rms_norm_backward")
def rms_norm_backward(call: Call) -> Cost:
    """With h = x * r: (g - h * mean(g * h)) * r: h 1, g * h 1, sum 1, multiply, subtract, multiply; the weight's 2."""
    return _norm(call, 6, (2,), bool(optional(call, 3, "weight")))


@operator("aten.native_batch_norm_backward", "aten.batch_norm_backward")
def batch_norm_backward(call: Call) -> Cost:
    """As layer norm's; with stored statistics x's gradient is g * weight * r: 2 per element, and h 2 for the weight's."""
    weighted = call.arguments.get("weight", "") is not None
    if call.arguments.get("train", True):
        return _norm(call, 9, (2, 1), weighted)
    return _norm(call, 1, (4, 1), weighted)


# ---------------------------------------------------------------- convolutions


@operator("aten.convolution_backward")
def convolution_backward(call: Call) -> Cost:
    """The products of the forward once for x's gradient and once for the weight's; the bias's is the sum of g."""
    g, x, w = call.inputs[:3]
    mask = list(call.arguments.get("output_mask") or (True, True, True))
    positions = x.numel if call.arguments.get("transposed") else g.numel
    matmul = 2 * positions * times(w.shape[1:]) * sum(mask[:2])
    return cost(call, matmul + (g.numel if mask[2] else ZERO), "the forward's products for each gradient", matmul)


# ---------------------------------------------------------------- gathers and windows


@operator("aten.embedding_dense_backward")
def embedding_dense_backward(call: Call) -> Cost:
    """A table of zeros, to whose rows those of g are added: 1 per element of g, each read and written again."""
    g, indices = call.inputs[:2]
    again = g.numel * call.outputs[0].element
    write = moved(call)[1] + again
    return Cost(g.numel, ZERO, g.bytes + indices.bytes + again, write, "zeros, then 1 add per element of g")


@operator("aten.slice_backward", "aten.select_backward", "aten.diagonal_backward")
def view_backward(call: Call) -> Cost:
    """Zeros of the whole, then g copied into its place."""
    g = call.inputs[0]
    return Cost(
        read=g.bytes, write=moved(call)[1] + g.numel * call.outputs[0].element, derivation="zeros, then g in its place"
    )


@operator("aten.unfold_backward", "aten.max_pool2d_with_indices_backward", "aten.max_pool3d_with_indices_backward")
def added_back(call: Call) -> Cost:
    """Zeros, to which each element of g is added at its place: 1 each; of what was pooled nothing is read."""
    g = call.inputs[0]
    again = g.numel * call.outputs[0].element
    places = call.inputs[-1].bytes if "indices" in call.name else ZERO
    return Cost(g.numel, ZERO, g.bytes + places + again, moved(call)[1] + again, "zeros, then 1 add per element of g")


@operator("aten._adaptive_avg_pool2d_backward")
def adaptive_pool_backward(call: Call) -> Cost | None:
    """To a single average: g over the window's size, 1 divide per element of g, copied to each; other windows are not known."""
    g = call.inputs[0]
    if any(size != ONE for size in g.shape[-2:]):
        return None
    return Cost(g.numel, ZERO, g.bytes, moved(call)[1], "g / n for every element of its window")
