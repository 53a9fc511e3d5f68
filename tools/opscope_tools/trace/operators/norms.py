"""Reductions, norms, softmax and losses: the arithmetic of their definitions.

Order: plain reductions, variances and vector norms, softmax, normalisations, losses.
"""

from __future__ import annotations

from opscope_schemas.formula import Formula

from opscope_tools.trace.operators.types import ONE, ZERO, Call, Cost, cost, moved, operator, optional, times

# ---------------------------------------------------------------- reductions


@operator("aten.count_nonzero", complex_too=True)
def count_nonzero(call: Call) -> Cost:
    """An add per input element."""
    return cost(call, call.inputs[0].numel, "1 per input element")


@operator("aten.trace")
def trace(call: Call) -> Cost:
    """The sum of a diagonal, which is as long as the shorter side."""
    return cost(call, Formula.minimum(*call.inputs[0].shape), "1 per element of the diagonal")


@operator("aten.sum", "aten.mean", "aten.cumsum", "aten.prod", "aten.nansum", complex_too=True)
def reduction(call: Call) -> Cost | None:
    """1 per input element (a mean of n is n-1 adds and a division); sums of complex numbers add both parts."""
    if call.is_complex and call.name == "aten.prod":
        return None
    parts = 2 if call.is_complex else 1
    return cost(call, parts * call.inputs[0].numel, f"{parts} per input element")


@operator("aten.logcumsumexp")
def logcumsumexp(call: Call) -> Cost:
    """log(cumsum(exp(x))): exp, add, log per element."""
    return cost(call, 3 * call.out, "log(cumsum(exp(x))): exp, add, log per element")


@operator("aten.logsumexp")
def logsumexp(call: Call) -> Cost:
    """exp and add per input element, a logarithm per output."""
    return cost(call, 2 * call.inputs[0].numel + call.out, "exp, add per input element; log per output")


@operator("aten.var", "aten.var_mean", "aten.std", "aten.std_mean")
def variance(call: Call) -> Cost:
    """mean(x) n, x - mean n, square n, their mean n: 4 per input element; a square root per output for std."""
    root = call.out if call.name.startswith("aten.std") else ZERO
    return cost(call, 4 * call.inputs[0].numel + root, "mean, subtract, square, mean: 4 per input element")


#: order of a norm -> (per input element, per output, words)
_ORDERS = {
    0.0: (1, 0, "add 1 where not zero, per input element"),
    1.0: (2, 0, "absolute value, add per input element"),
    2.0: (2, 1, "square, add per input element; root per output"),
    float("inf"): (1, 0, "absolute value per input element; the largest is a comparison"),
    float("-inf"): (1, 0, "absolute value per input element; the smallest is a comparison"),
}


@operator("aten.linalg_vector_norm", "aten.norm", "aten.frobenius_norm")
def norm(call: Call) -> Cost:
    """By its order: 2 is the root of the sum of squares, p the p-th root of the sum of |x|**p."""
    order = call.arguments.get("ord", call.arguments.get("p"))
    order = 2.0 if order is None else float(order)
    per_input, per_output, words = _ORDERS.get(order, (3, 1, "absolute value, power, add; power per output"))
    return cost(call, per_input * call.inputs[0].numel + per_output * call.out, words)


# ---------------------------------------------------------------- softmax


@operator("aten._softmax", "aten.softmax", "aten._safe_softmax")
def softmax(call: Call) -> Cost:
    """exp(x) / sum(exp(x)): exp, add, divide = 3 per element (the maximum that kernels subtract first is not counted)."""
    return cost(
        call,
        3 * call.out,
        "exp(x) / sum(exp(x)): exp, add, divide = 3 per element; subtracting the maximum first is left out",
    )


@operator("aten._log_softmax", "aten.log_softmax")
def log_softmax(call: Call) -> Cost:
    """x - log(sum(exp(x))): exp, add, subtract per element, a logarithm per row."""
    shape, dim = list(call.outputs[0].shape), call.arguments.get("dim", -1)
    if shape:
        del shape[dim]
    return cost(call, 3 * call.out + times(shape), "x - log(sum(exp(x))): exp, add, subtract per element; log per row")


# ---------------------------------------------------------------- normalisations


def _rows(call: Call) -> Formula:
    """Rows of a norm over its last `normalized_shape` dimensions."""
    width = len(call.arguments.get("normalized_shape") or (1,))
    return times(call.inputs[0].shape[: len(call.inputs[0].shape) - width])


def _affine(call: Call) -> int:
    """How many of weight and bias are applied."""
    return len(optional(call, 1, "weight", "bias"))


@operator("aten.native_layer_norm", "aten.layer_norm")
def layer_norm(call: Call) -> Cost:
    """mean n, subtract n, square n, mean n, divide n (5n); eps and root per row; scale n and shift n where present."""
    n, affine = call.inputs[0].numel, _affine(call)
    return cost(
        call, (5 + affine) * n + 2 * _rows(call),
        f"mean, subtract, square, mean, divide: 5 per element; eps and root per row; {affine} affine per element",
    )  # fmt: skip


@operator("aten.rms_norm", "aten._fused_rms_norm")
def rms_norm(call: Call) -> Cost:
    """square n, mean n, scale by 1/root n (3n); eps and root per row; weight n where present."""
    n, affine = call.inputs[0].numel, len(optional(call, 1, "weight"))
    return cost(
        call, (3 + affine) * n + 2 * _rows(call),
        f"square, mean, scale: 3 per element; eps and root per row; {affine} affine per element",
    )  # fmt: skip


@operator("aten.native_group_norm")
def group_norm(call: Call) -> Cost:
    """As layer norm: 5 per element, scale and shift where present, eps and root per group of each batch entry.

    The second output is the mean of each group, so its elements are the groups.
    """
    affine, groups = _affine(call), call.outputs[1].numel
    return cost(
        call, (5 + affine) * call.inputs[0].numel + 2 * groups,
        f"mean, subtract, square, mean, divide: 5 per element; eps and root per group; {affine} affine per element",
    )  # fmt: skip


@operator(
    "aten.native_batch_norm", "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_no_training",
    "aten._batch_norm_no_update", "aten._batch_norm_with_update", "aten.cudnn_batch_norm", "aten.miopen_batch_norm",
    "aten.batch_norm", "aten._native_batch_norm_legit_functional",
)  # fmt: skip
def batch_norm(call: Call) -> Cost:
    """(x - mean) / sqrt(var + eps) * weight + bias.

    With stored statistics: subtract n, divide n; eps and root per channel. With the batch's own: mean n, square n,
    mean n more. Scale n and shift n where present.
    """
    x, affine = call.inputs[0], _affine(call)
    stored = call.name.startswith(("aten._native_batch_norm_legit_no", "aten._batch_norm_no"))
    own = not stored and bool(call.arguments.get("training", call.arguments.get("train", "with_update" in call.name)))
    channels = x.shape[1] if len(x.shape) > 1 else ONE
    return cost(
        call, ((5 if own else 2) + affine) * x.numel + 2 * channels,
        f"{'mean, subtract, square, mean, divide' if own else 'subtract, divide'} per element; eps and root per "
        f"channel; {affine} affine per element",
    )  # fmt: skip


@operator("aten._weight_norm_interface", "aten._weight_norm")
def weight_norm(call: Call) -> Cost:
    """v * (g / |v|): square, add, multiply per element of v; root and divide per row that g scales."""
    v, g = call.inputs[:2]
    return cost(
        call, 3 * v.numel + 2 * g.numel, "v * (g / |v|): square, add, multiply per element; root, divide per row"
    )


@operator("aten.renorm")
def renorm(call: Call) -> Cost | None:
    """Rows scaled to a largest norm; for the norm of order 2: square, add, multiply per element; root, divide per row."""
    if float(call.arguments.get("p", 2)) != 2.0:
        return None
    rows = call.inputs[0].shape[call.arguments.get("dim", 0)]
    return cost(call, 3 * call.out + 2 * rows, "square, add, multiply per element; root, divide per row")


@operator("aten.multinomial")
def multinomial(call: Call) -> Cost:
    """Weights divided by their sum: 2 per input element; drawing and comparing count 0."""
    return cost(call, 2 * call.inputs[0].numel, "weights by their sum: add, divide per element; drawing is 0")


# ---------------------------------------------------------------- losses (a forward that is given labels)

#: per element of the input before the reduction
_LOSSES = {
    "mse_loss": (2, "subtract, square"),
    "l1_loss": (2, "subtract, absolute value"),
    "smooth_l1_loss": (4, "subtract, absolute value, and the branch |d| < beta: square, scale"),
    "huber_loss": (4, "subtract, absolute value, and the branch |d| < delta: square, scale"),
    "soft_margin_loss": (5, "log(1 + exp(-y * x)): negate, multiply, exp, add, log"),
    "binary_cross_entropy": (
        8,
        "-(y log x + (1 - y) log(1 - x)): two logs, two subtracts, two multiplies, add, negate",
    ),
    "kl_div": (3, "y * (log y - x): log, subtract, multiply"),
}


def _reduced(call: Call) -> Formula:
    """A mean or a sum (1 and 2 of torch's enumeration) adds 1 per element."""
    return call.inputs[0].numel if call.arguments.get("reduction", 1) != 0 else ZERO


@operator(*(f"aten.{name}" for name in _LOSSES))
def loss(call: Call) -> Cost:
    """The definition per element, and 1 more for the mean or the sum over them; weights of a loss multiply."""
    count, words = _LOSSES[call.name.removeprefix("aten.")]
    weights = call.inputs[0].numel if len(call.inputs) > 2 else ZERO
    return cost(call, count * call.inputs[0].numel + weights + _reduced(call), f"{words} per element; the mean 1 more")


@operator("aten.nll_loss_forward", "aten.nll_loss2d_forward", "aten.nll_loss")
def nll_loss(call: Call) -> Cost:
    """The target's entry of each row, negated and averaged: 2 per target (a class weight: 2 more, times and sum).

    Reads one entry per target.
    """
    scores, targets = call.inputs[:2]
    weights = call.inputs[2:]
    each = 1 + (1 if call.arguments.get("reduction", 1) != 0 else 0) + (2 if weights else 0)
    write = moved(call)[1]
    read = targets.numel * scores.element + targets.bytes + sum((w.bytes for w in weights), ZERO)
    return Cost(each * targets.numel, ZERO, read, write, "the target's entry negated and averaged")
