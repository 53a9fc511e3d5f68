"""FLOPs of the operators without a product, from the written conventions.

`PER_OUTPUT` says what one element of the output costs, `PER_INPUT` what one of the input does; `JOINT` holds functions
of the call for what depends on more. Copies, casts, comparisons and indexing are named in `NONE`, and what is only
written in `MADE`, so that an operator that nobody thought of raises. Complex numbers cost the real arithmetic that
they stand for: `COMPLEX` per output, and the sums among `JOINT`.
"""

from __future__ import annotations

import math

import torch
from cost_operator import Count, Ran, find, places_written
from cost_solvers import SOLVERS

# ---------------------------------------------------------------- by element

PER_OUTPUT: dict[str, int] = {
    **dict.fromkeys((
        "neg pow exp exp2 log log2 log10 log1p expm1 sqrt rsqrt reciprocal square abs sin cos tan asin acos atan atan2 "
        "sinh cosh tanh asinh acosh atanh erf erfc erfinv remainder fmod floor_divide frac angle cumprod lgamma digamma "
        "leaky_relu prelu _prelu_kernel rrelu_with_noise softshrink hypot deg2rad rad2deg polygamma i0 igamma igammac "
        "special_i0e special_i1 special_i1e special_zeta special_ndtri special_log_ndtr special_erfcx special_bessel_j0 "
        "special_bessel_j1"
    ).split(), 1),
    "sigmoid": 4, "silu": 5, "glu": 5,  # negate, exp, add, divide; and a multiply
    "mish": 5, "hardsigmoid": 2, "hardswish": 3,
    "log_sigmoid_forward": 5,  # -log(1 + exp(-x)): negate, exp, add, log, negate
    "logit": 3, "xlogy": 2, "special_xlog1py": 2, "logaddexp": 4, "logaddexp2": 4, "special_entr": 3, "sinc": 4,
    "addcdiv": 2, "lerp": 3, "polar": 4, "ldexp": 2, "native_dropout": 2, "_fused_dropout": 2,
    "_transform_bias_rescale_qkv": 4,  # three biases added, q scaled
    "_softmax": 3, "_safe_softmax": 3, "softmax": 3,  # exp, add, divide
    "logcumsumexp": 3, "linalg_cross": 3,
    # weighted means of t taps, a dimension after the other: t multiplies and t - 1 adds
    "upsample_linear1d": 3, "upsample_bilinear2d": 2 * 3 + 3, "upsample_trilinear3d": 4 * 3 + 2 * 3 + 3,
    "upsample_bicubic2d": 4 * 7 + 7,
}  # fmt: skip

PER_INPUT: dict[str, int] = {
    **dict.fromkeys("sum mean cumsum prod nansum col2im".split(), 1),
    "multinomial": 2,  # each weight's share of their sum: add, divide
}

COMPLEX: dict[str, int] = {"neg": 2, "exp": 5, "log": 6, "square": 6, "reciprocal": 6, "abs": 4, "angle": 1}

#: copies, casts, comparisons, selection, rounding
NONE = frozenset((
    "clone _to_copy cat stack copy copy_ repeat roll flip rot90 constant_pad_nd reflection_pad1d reflection_pad2d "
    "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d repeat_interleave pixel_shuffle "
    "pixel_unshuffle channel_shuffle native_channel_shuffle im2col tril triu where masked_fill masked_select nan_to_num "
    "complex _conj_physical nonzero nonzero_static expand_copy view_copy _pack_padded_sequence diag_embed one_hot "
    "slice_copy select_copy permute_copy transpose_copy unbind_copy split_copy unsqueeze_copy squeeze_copy diagonal_copy "
    "alias_copy as_strided_copy split_with_sizes_copy t_copy unfold_copy detach_copy view_as_real_copy view_as_complex_copy "
    "_reshape_copy block_diag nanmedian fractional_max_pool2d fractional_max_pool3d max_unpool3d _unsafe_masked_index "
    "_pad_packed_sequence to_dense _unique unique_dim_consecutive mkldnn_max_pool2d mkldnn_max_pool3d "
    "eq ne lt le gt ge equal isclose logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not "
    "bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ "
    "__ixor__ __ilshift__ __irshift__ _is_all_true _is_any_true max min amax amin argmax argmin aminmax topk sort argsort "
    "kthvalue median mode maximum minimum fmax fmin clamp clamp_min clamp_max any all isnan isinf isfinite isin isposinf "
    "isneginf sign sgn signbit copysign heaviside floor ceil round trunc relu relu6 hardtanh threshold hardshrink "
    "_unique2 unique_dim unique_consecutive searchsorted bucketize cummax cummin _cummax_helper _cummin_helper histc "
    "bincount bernoulli "
    "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d "
    "adaptive_max_pool3d max_unpool2d upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d "
    "embedding index_select gather index take _unsafe_index index_copy index_fill slice_scatter select_scatter "
    "diagonal_scatter masked_scatter fill zero bernoulli_ normal_"
).split())  # fmt: skip

#: written without anything being read; drawing a random number is no arithmetic of the model
MADE = frozenset((
    "random uniform exponential cauchy geometric log_normal arange zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full scalar_tensor linspace logspace "
    "range eye tril_indices triu_indices rand randn rand_like randn_like randint randint_like randperm hann_window "
    "hamming_window blackman_window kaiser_window bartlett_window _efficientzerotensor"
).split())  # fmt: skip


# ---------------------------------------------------------------- sums and products, of complex numbers too


def _add(call: Ran) -> int:
    return call.made * (2 if call.is_scaled("alpha") else 1) * (2 if call.is_complex else 1)


def _are_complex(call: Ran) -> bool:
    """Whether both operands are complex, tensors or numbers."""
    numbers = sum(isinstance(value, complex) for value in call.arguments.values())
    return bool(sum(t.is_complex() for t in call.inputs) + numbers > 1)


def _multiply(call: Ran) -> int:
    """(a + bi)(c + di): four multiplies, two adds; by a real number two multiplies."""
    return call.made * ((6 if _are_complex(call) else 2) if call.is_complex else 1)


def _divide(call: Ran) -> int:
    """By a complex number: times its conjugate 6, its square 3, two divisions; by a real one two divisions."""
    return call.made * ((11 if _are_complex(call) else 2) if call.is_complex else 1)


def _addcmul(call: Ran) -> int:
    return call.made * (3 if call.is_scaled("value") else 2)


def _addr(call: Ran) -> int:
    """alpha * x y^T + beta * c: a product of two numbers each, then as any sum with factors."""
    return call.made * (6 if call.is_complex else 1) + sum_of(call)


def sum_of(call: Ran) -> int:
    """What `beta * c + alpha * product` adds to a product: an add unless beta is 0, a multiply per factor that is not 0 or 1."""

    def scaling(factor: complex) -> int:
        return 0 if factor in (0, 1) else 1 if not call.is_complex else 6 if isinstance(factor, complex) else 2

    added = 0 if call["beta"] == 0 else (2 if call.is_complex else 1)
    alpha = (1 if not call.is_complex else 6 if isinstance(call["alpha"], complex) else 2) if call["alpha"] != 1 else 0
    return int(call.made * (added + scaling(call["beta"]) + alpha))


# ---------------------------------------------------------------- activations with parameters


def _gelu(call: Ran) -> int:
    """x / 2 * (1 + erf(x / sqrt 2)) is 5; the form with tanh and a cube 8."""
    return (8 if call["approximate"] == "tanh" else 5) * call.made


def _elu(call: Ran) -> int:
    """exp(x) - 1, and a multiply for each factor that is not 1."""
    return call.made * (2 + sum(call.is_scaled(name) for name in ("alpha", "scale", "input_scale")))


def _celu(call: Ran) -> int:
    """alpha * (exp(x / alpha) - 1)."""
    return call.made * (4 if call.is_scaled("alpha") else 2)


def _normal(call: Ran) -> int:
    """mean + std * z, where one of them is a tensor."""
    return 2 * call.made if call.inputs and not call.in_place else 0


def _softplus(call: Ran) -> int:
    """log(1 + exp(beta * x)) / beta: 3, and 2 for a beta that is not 1."""
    return call.made * (5 if call.is_scaled("beta") else 3)


# ---------------------------------------------------------------- reductions and norms


def _variance(call: Ran) -> int:
    """mean, subtract, square, mean; a root per output of a deviation."""
    return 4 * call.taken + (call.made if call.name.startswith("std") else 0)


def _vector_norm(call: Ran) -> int:
    """The p-th root of the sum of |x|**p, without the steps that its order makes unnecessary."""
    order = call.arguments.get("ord", call.arguments.get("p"))
    orders = {0: (1, 0), 1: (2, 0), 2: (2, 1), math.inf: (1, 0), -math.inf: (1, 0), None: (2, 1)}
    each, root = orders.get(order, (3, 1))
    return each * call.taken + root * call.made


def _trace(call: Ran) -> int:
    """The diagonal of a matrix."""
    return int(call["self"].diagonal().numel())


def _count(call: Ran) -> int:
    """An add per element, of whatever dtype."""
    return call.taken


def _renorm(call: Ran) -> int | None:
    """Slices scaled to a largest norm of order 2: square, add, multiply per element; a root and a quotient per slice."""
    return int(3 * call.taken + 2 * call["self"].shape[call["dim"]]) if call["p"] == 2 else None


def _rows(call: Ran) -> int:
    x = call["input"]
    return math.prod(x.shape[: x.dim() - len(call["normalized_shape"])])


def _layer_norm(call: Ran) -> int:
    """mean, subtract, square, mean, divide; eps and root per row; scale and shift where present."""
    return int(call["input"].numel() * (5 + call.given("weight", "bias")) + 2 * _rows(call))


def _rms_norm(call: Ran) -> int:
    """square, mean, scale; eps and root per row; the weight where present."""
    return int(call["input"].numel() * (3 + call.given("weight")) + 2 * _rows(call))


def _group_norm(call: Ran) -> int:
    """A layer norm whose rows are the groups of each entry of the batch."""
    return int(call["input"].numel() * (5 + call.given("weight", "bias")) + 2 * call["N"] * call["group"])


def _batch_norm(call: Ran) -> int:
    """subtract, divide by stored statistics, or the layer norm's five of the batch's own; eps and root per channel."""
    x = call["input"]
    own = call.arguments.get("training", call.name == "_batch_norm_with_update")
    return int(x.numel() * ((5 if own else 2) + call.given("weight", "bias")) + 2 * x.shape[1])


def _weight_norm(call: Ran) -> int:
    """v * (g / |v|): square, add, multiply per element; root, divide per row."""
    return int(3 * call["v"].numel() + 2 * call["g"].numel())


def _log_softmax(call: Ran) -> int:
    """exp, add, subtract; a logarithm per row."""
    x = call["self"]
    return int(
        3 * x.numel() + (math.prod(n for i, n in enumerate(x.shape) if i != call["dim"] % x.dim()) if x.dim() else 1)
    )


def _logsumexp(call: Ran) -> int:
    return 2 * call.taken + call.made


def _nll_loss(call: Ran) -> int:
    """The target's entry negated; 1 more for a mean or sum, 2 for a weight."""
    each = 1 + (call["reduction"] != 0) + 2 * call.given("weight")
    return int(call["target"].numel() * each)


#: per element of the prediction, before the reduction
_LOSSES = {
    "mse_loss": 2, "smooth_l1_loss": 4, "huber_loss": 4,  # the quadratic branch: subtract, absolute value, square, scale
    "kl_div": 3,  # y * (log y - x)
    "soft_margin_loss": 5,  # log(1 + exp(-y * x))
    "binary_cross_entropy": 8,  # -(y log x + (1 - y) log(1 - x))
}  # fmt: skip


def _loss(call: Ran) -> int:
    each = _LOSSES[call.name] + (call["reduction"] != 0) + call.given("weight")
    return int(call["self"].numel() * each)


def _distance(call: Ran) -> int:
    """Of two tensors as one point each, or of all pairs of rows."""
    order = float(call["p"])
    each, root = {0: (1, 0), 1: (3, 0), 2: (3, 1), math.inf: (2, 0)}.get(order, (4, 1))
    joint = math.prod(torch.broadcast_shapes(*(t.shape for t in call.inputs)))
    coordinates = joint if call.name == "dist" else call.made * int(call["self"].shape[-1])
    return each * coordinates + root * call.made


# ---------------------------------------------------------------- pools, sampling, spectra


def _avg_pool(call: Ran) -> int:
    """The mean of a window of k is k - 1 adds and a division."""
    dims, kernel = int(call.name[-2]), list(call["kernel_size"])
    return int(call.made * math.prod(kernel if len(kernel) == dims else kernel * dims))


def _adaptive_avg_pool(call: Ran) -> int:
    """Window i of m over n elements reaches from floor(i n / m) to ceil((i + 1) n / m)."""
    dims = int(call.name[-2])
    x, out = call["self"].shape, call.outputs[0].shape
    total = math.prod(out[:-dims])
    for n, m in zip(x[-dims:], out[-dims:], strict=True):
        total *= sum(-(-(i + 1) * n // m) - i * n // m for i in range(m))
    return int(total)


def _antialiased(call: Ran) -> int:
    """Along rows, then columns: means of t taps (2 t - 1), t being the support, stretched where the image shrinks."""
    support = {"bilinear": 2, "bicubic": 4, "lanczos": 6}[call.name.split("2d")[0].rpartition("_")[2]]
    x, out = call["self"].shape, call.outputs[0].shape

    def mean(size: int, wanted: int) -> int:
        return 2 * max(support, -(-support * size // wanted)) - 1

    return int(math.prod(x[:-1]) * out[-1] * mean(x[-1], out[-1]) + call.made * mean(x[-2], out[-2]))


def _grid_sampler(call: Ran) -> int:
    """Coordinates and weights per place, taps per output.

    Per place and dimension the coordinate ((g + 1) * size - 1) / 2 is 4, with aligned corners 3, mirrored 6 more; then
    3 for the two distances (linear) or 26 for distances and weights (cubic). A linear weight is a product of d
    distances. Taps are 2**d multiplies and 2**d - 1 adds, cubic five means of 4 taps.
    """
    grid = call["grid"]
    dims = int(grid.shape[-1])
    coordinate = (3 if call["align_corners"] else 4) + (6 if call["padding_mode"] == 2 else 0)
    corners = 2**dims
    modes = ((3, corners * (dims - 1), 2 * corners - 1), (0, 0, 0), (26, 0, 5 * 7))
    beside, weights, taps = modes[call["interpolation_mode"]]
    return int(grid.numel() // dims * (dims * (coordinate + beside) + weights) + taps * call.made)


def _fourier(call: Ran) -> int:
    """5 n log2(n) per transform, its half where one side is real; a scaled result 1 per real number."""
    side = call.outputs[0] if call.name == "_fft_c2r" else call["self"]
    flops = 5 * side.numel() * sum(math.ceil(math.log2(side.shape[dim])) for dim in call["dim"])
    flops = flops if call.name == "_fft_c2c" else -(-flops // 2)
    parts = 2 if call.outputs[0].is_complex() else 1
    return int(flops + (parts * call.made if call["normalization"] else 0))


# ---------------------------------------------------------------- what scatters add


def _scatter(call: Ran) -> int:
    """An add or a multiply per index; largest and smallest are comparisons; a mean divides each output."""
    reduce = "sum" if call.name.startswith("scatter_add") else call.arguments.get("reduce")
    count = 0 if reduce in (None, "amax", "amin") else int(call["index"].numel())
    return count + (call.made if reduce == "mean" else 0)


def _index_add(call: Ran) -> int:
    adds = 0 if call.arguments.get("reduce") in ("amax", "amin") else 1
    return int(call["source"].numel()) * (adds + call.is_scaled("alpha"))


def _index_put(call: Ran) -> int:
    return places_written(call) if call["accumulate"] else 0


def _put(call: Ran) -> int:
    return int(call["source"].numel()) if call["accumulate"] else 0


def _embedding_bag(call: Ran) -> int:
    """An add per element gathered (none for the largest), a mean's division, a weight's multiply."""
    gathered = int(call["indices"].numel() * call["weight"].shape[-1])
    adds = 0 if call["mode"] == 2 else gathered
    return adds + (call.made if call["mode"] == 1 else 0) + gathered * call.given("per_sample_weights")


JOINT: dict[str, Count] = {
    "add": _add, "sub": _add, "rsub": _add, "mul": _multiply, "div": _divide, "addcmul": _addcmul,
    "gelu": _gelu, "elu": _elu, "softplus": _softplus,
    "var": _variance, "std": _variance, "var_mean": _variance, "std_mean": _variance,
    "linalg_vector_norm": _vector_norm, "norm": _vector_norm,
    "native_layer_norm": _layer_norm, "_fused_rms_norm": _rms_norm, "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm, "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm, "_batch_norm_no_update": _batch_norm,
    "_weight_norm_interface": _weight_norm, "_log_softmax": _log_softmax, "logsumexp": _logsumexp,
    "nll_loss_forward": _nll_loss, "nll_loss2d_forward": _nll_loss,
    "avg_pool1d": _avg_pool, "avg_pool2d": _avg_pool, "avg_pool3d": _avg_pool,
    "adaptive_avg_pool1d": _adaptive_avg_pool, "_adaptive_avg_pool2d": _adaptive_avg_pool,
    "_adaptive_avg_pool3d": _adaptive_avg_pool,
    "_upsample_bilinear2d_aa": _antialiased, "_upsample_bicubic2d_aa": _antialiased, "_upsample_lanczos2d_aa": _antialiased,
    "grid_sampler_2d": _grid_sampler, "grid_sampler_3d": _grid_sampler,
    "_fft_c2c": _fourier, "_fft_r2c": _fourier, "_fft_c2r": _fourier,
    "scatter": _scatter, "scatter_add": _scatter, "scatter_reduce": _scatter, "index_add": _index_add,
    "index_reduce": _index_add, "index_put": _index_put, "_index_put_impl_": _index_put, "_embedding_bag": _embedding_bag,
    "_unsafe_index_put": _index_put, "_unsafe_masked_index_put_accumulate": places_written, "put": _put,
    "_embedding_bag_forward_only": _embedding_bag, "celu": _celu, "normal": _normal, "addr": _addr, "trace": _trace,
    "count_nonzero": _count, "renorm": _renorm, **dict.fromkeys(_LOSSES, _loss), "dist": _distance, "_pdist_forward": _distance,
    "_batch_norm_with_update": _batch_norm,
    "_native_batch_norm_legit_functional": _batch_norm, "_grid_sampler_2d_cpu_fallback": _grid_sampler, "nll_loss": _nll_loss,
    "embedding_bag": _embedding_bag, **SOLVERS,
}  # fmt: skip


def arithmetic(call: Ran) -> int | None:
    """FLOPs of an operator without a product; None where nothing is known of it."""
    name = call.name
    joint: Count | None = find(name, JOINT)
    if joint is not None:
        return joint(call)
    if find(name, dict.fromkeys(NONE | MADE, True)):
        return 0
    if find(name, PER_INPUT) is not None:
        return call.taken * int(find(name, PER_INPUT)) * (2 if call.is_complex else 1)
    each = find(name, COMPLEX if call.is_complex else PER_OUTPUT)
    return None if each is None else call.made * int(each)
