"""Operators without arithmetic: views, copies and comparisons, tensors made from scalars.

Order: views (nothing moves), moves (bytes only), what is written without being read.
"""

from __future__ import annotations

from opscope_tools.trace.operators.types import ZERO, Call, Cost, cost, moved, operator, rule_of

# ---------------------------------------------------------------- views: nothing moves

_VIEWS = (
    "aten.view aten._unsafe_view aten.t aten.transpose aten.permute aten.expand aten.unsqueeze "
    "aten.squeeze aten.slice aten.select aten.split aten.split_with_sizes aten.chunk aten.unbind "
    "aten.narrow aten.as_strided aten.alias aten.detach aten.lift_fresh aten.lift aten._reshape_alias "
    "aten.unfold aten.diagonal aten.view_as_real aten.view_as_complex aten.movedim aten.expand_as "
    "aten.flatten aten.real aten.imag aten.conj aten._conj aten.resolve_conj aten.resolve_neg "
    "aten._neg_view aten.unsafe_split aten.unsafe_split_with_sizes aten.unsafe_chunk prim.device aten.sym_size "
    "aten.sym_stride aten.sym_numel aten.sym_storage_offset aten.is_pinned aten.empty aten.empty_like "
    "aten.empty_strided aten.empty_permuted aten.new_empty aten.new_empty_strided aten._assert_async "
    "aten._assert_scalar aten._assert_tensor_metadata aten.dropout aten.is_same_size "
    "aten._local_scalar_dense aten.is_nonzero aten.item aten._has_compatible_shallow_copy_type aten.set_ "
    "aten.resize_ aten.resize_as_ aten.numel aten.size aten.meshgrid aten._linalg_check_errors"
).split()


@operator(*_VIEWS)
def view(_: Call) -> Cost:
    """A view, an allocation, or metadata: no arithmetic and no traffic."""
    return Cost(free=True)


def free(name: str) -> Cost | None:
    """The cost of an operator that has none, whatever its tensors' sizes; None for any other."""
    return Cost(free=True) if rule_of(name) is view else None


# ---------------------------------------------------------------- copies, comparisons, selection: bytes only

_COPIES = (
    "clone _to_copy cat stack repeat roll flip rot90 tile one_hot diag_embed "
    "constant_pad_nd pad reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
    "replication_pad3d repeat_interleave pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle "
    "im2col tril triu where masked_fill masked_select nan_to_num complex _conj_physical nonzero nonzero_static "
    "block_diag _pack_padded_sequence _pad_packed_sequence to_dense argwhere "
    # views whose result is a copy
    "alias_copy as_strided_copy detach_copy diagonal_copy expand_copy permute_copy select_copy slice_copy split_copy "
    "split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy "
    "view_as_real_copy view_as_complex_copy _reshape_copy"
).split()

_COMPARISONS = (
    "eq ne lt le gt ge equal isclose logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not "
    "_is_all_true _is_any_true bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ "
    "__iand__ __ior__ __ixor__ __ilshift__ __irshift__ max min amax amin argmax argmin aminmax topk sort "
    "argsort msort kthvalue median nanmedian mode maximum minimum fmax fmin clamp clamp_min clamp_max any all isnan "
    "isinf isfinite isposinf isneginf isin sign sgn signbit copysign heaviside floor ceil round trunc fix "
    "relu relu6 hardtanh threshold hardshrink "
    "unique_consecutive unique_dim unique_dim_consecutive _unique _unique2 searchsorted bucketize cummax cummin "
    "_cummax_helper _cummin_helper histc bincount "
    # the largest of each window, with its place; nearest neighbours are copies
    "max_pool1d max_pool1d_with_indices max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices "
    "mkldnn_max_pool2d mkldnn_max_pool3d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d "
    "fractional_max_pool3d max_unpool2d max_unpool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d bernoulli"
).split()


@operator(*(f"aten.{name}" for name in (*_COPIES, *_COMPARISONS)))
def move(call: Call) -> Cost:
    """A copy, cast, comparison, selection or rounding: 0 FLOPs, its tensors move once."""
    return cost(call, ZERO, "copies, casts, comparisons and selections count 0 FLOPs")


@operator("aten.copy_", "aten.copy")
def copy_(call: Call) -> Cost:
    """`dst.copy_(src)`: the source is read, the destination written."""
    return Cost(read=call.inputs[-1].bytes, write=moved(call)[1], derivation="source read, destination written")


# ---------------------------------------------------------------- factories: only the output is written

_FACTORIES = (
    "arange zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full scalar_tensor linspace logspace "
    "range eye tril_indices triu_indices rand randn rand_like randn_like randint randint_like randperm hann_window "
    "hamming_window blackman_window kaiser_window bartlett_window _efficientzerotensor "
    # random numbers put in the place of what was there; drawing one is no arithmetic of the model
    "random uniform exponential geometric cauchy log_normal"
).split()


@operator(*(f"aten.{name}" for name in _FACTORIES))
def factory(call: Call) -> Cost:
    """A tensor made from scalars: written once."""
    return Cost(write=moved(call)[1], derivation="made from scalars: 0 FLOPs, written once")


@operator("aten.fill_", "aten.zero_", "aten.fill", "aten.zero")
def fill(call: Call) -> Cost:
    """Overwrites its first input without reading it; a value that is a tensor is read."""
    return Cost(
        read=sum((tensor.bytes for tensor in call.inputs[1:]), ZERO),
        write=moved(call)[1],
        derivation="overwritten without being read",
    )


@operator("aten.bernoulli_", "aten.normal_")
def drawn_in_place(call: Call) -> Cost:
    """Random numbers in the place of what was there; a tensor of probabilities is read."""
    return fill(call)  # type: ignore[return-value]  # a plain function of this file, under the decorator's wider type


@operator("aten.normal")
def normal(call: Call) -> Cost:
    """mean + std * z: multiply and add per output element where a tensor gives mean or std; drawing z is 0."""
    flops = 2 * call.out if call.inputs else ZERO
    return cost(call, flops, "mean + std * z: multiply, add per element where they are tensors")
