"""Stand-ins for fused kernels of known packages, which run on a GPU or are not installed: shapes and a cost rule each.

A stand-in takes what the real function takes, checks nothing, gives tensors of the shapes that it would give, and reports the
operator that a rule in `operators/` counts (definition, derivation and source stand there). What a package composes of
several kernels (`mamba_inner_fn`) is composed here in the same order. Arguments that change a result without changing its
cost much (dropout, windows, sequence ids) are taken and left out.

absent.py puts them in the place of the real ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

Report = Callable[[str, list[Any], list[Any], dict[str, Any]], None]
#: who hears of the kernels that run, the innermost last
reports: list[Report] = []


def _told(operator: str, inputs: Sequence[Any], outputs: Sequence[Any], **arguments: Any) -> None:
    if reports:
        reports[-1](operator, [t for t in inputs if t is not None], list(outputs), arguments)


# ---------------------------------------------------------------- attention


def flash_attn_func(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: Any = None, causal: bool = False, *_: Any, **__: Any
) -> Any:  # fmt: skip
    """q (B, L, H, D), k (B, S, kv heads, D), v (..., V)."""
    del dropout_p, softmax_scale
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    _told("flash_attn._flash_attn_forward", [q, k, v], [out], causal=causal)
    return out


def flash_attn_qkvpacked_func(qkv: Any, *more: Any, **given: Any) -> Any:
    return flash_attn_func(*qkv.unbind(2), *more, **given)


def flash_attn_kvpacked_func(q: Any, kv: Any, *more: Any, **given: Any) -> Any:
    return flash_attn_func(q, *kv.unbind(2), *more, **given)


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, max_seqlen_q: Any = None,
    max_seqlen_k: Any = None, dropout_p: float = 0.0, softmax_scale: Any = None, causal: bool = False, *_: Any, **__: Any,
) -> Any:  # fmt: skip
    """Packed: q (tokens, H, D)."""
    del cu_seqlens_q, cu_seqlens_k, max_seqlen_q, dropout_p, softmax_scale
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    _told("flash_attn._flash_attn_varlen_forward", [q, k, v], [out], causal=causal, max_seqlen_k=max_seqlen_k)
    return out


def memory_efficient_attention(query: Any, key: Any, value: Any, attn_bias: Any = None, *_: Any, **__: Any) -> Any:
    """(B, L, H, D), or (B, L, D) of one head."""
    single = query.dim() == 3
    q, k, v = (t.unsqueeze(2) if single else t for t in (query, key, value))
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    bias = [attn_bias] if isinstance(attn_bias, torch.Tensor) else []
    _told(
        "xformers.memory_efficient_attention",
        [q, k, v, *bias],
        [out],
        causal=type(attn_bias).__name__ == "LowerTriangularMask",
    )
    return out.squeeze(2) if single else out


class LowerTriangularMask:
    """Says that attention is causal."""


# ---------------------------------------------------------------- norms, gates, rotations


def _norm(
    kind: str, x: Any, weight: Any = None, bias: Any = None, residual: Any = None, gate: Any = None, *,
    activation: str = "silu", prenorm: bool = False, group: Any = None,
) -> Any:  # fmt: skip
    out = torch.empty_like(x)
    kept = [torch.empty_like(x)] if prenorm and residual is not None else []
    named = {"weight": weight, "bias": bias, "residual": residual, "gate": gate}
    given = [n for n, t in named.items() if t is not None]
    _told("fused_norm", [x, *named.values()], [out, *kept], kind=kind, given=given, gate=activation, group=group)
    return (out, kept[0] if kept else x) if prenorm else out


def rms_norm(
    x: Any, weight: Any = None, bias: Any = None, residual: Any = None, *_: Any, prenorm: bool = False, **__: Any
) -> Any:
    return _norm("rms", x, weight, bias, residual, prenorm=prenorm)


def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, residual: Any = None, *_: Any, prenorm: bool = False,
    is_rms_norm: bool = False, **__: Any,
) -> Any:  # fmt: skip
    return _norm("rms" if is_rms_norm else "layer", x, weight, bias, residual, prenorm=prenorm)


def _gated(kind: str) -> Callable[..., Any]:
    """fla's norm of x, times an activation of g."""

    def norm(
        x: Any, g: Any, weight: Any = None, bias: Any = None, activation: str = "swish", residual: Any = None,
        prenorm: bool = False, *_: Any, **__: Any,
    ) -> Any:  # fmt: skip
        return _norm(kind, x, weight, bias, residual, g, activation=activation, prenorm=prenorm)

    return norm


def rmsnorm_fn(
    x: Any, weight: Any, bias: Any = None, z: Any = None, eps: float = 1e-6, group_size: Any = None, *_: Any, **__: Any
) -> Any:
    """mamba's gated norm: of x times silu(z), in groups of `group_size`."""
    del eps
    return _norm("rms", x, weight, bias, gate=z, group=group_size)


def layernorm_fn(
    x: Any,
    weight: Any,
    bias: Any = None,
    z: Any = None,
    eps: float = 1e-6,
    group_size: Any = None,
    norm_before_gate: bool = True,
    is_rms_norm: bool = False,
) -> Any:
    del eps, norm_before_gate
    return _norm("rms" if is_rms_norm else "layer", x, weight, bias, gate=z, group=group_size)


def l2norm(x: Any, *_: Any, **__: Any) -> Any:
    return _norm("l2", x)


def swiglu(x: Any, y: Any) -> Any:
    out = torch.empty_like(x)
    _told("gated_activation", [x, y], [out], gate="silu")
    return out


def swiglu_linear(x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    return functional.linear(swiglu(x, y), weight, bias)


def swish(x: Any) -> Any:
    return functional.silu(x)


def logsigmoid(x: Any, temperature: float = 1.0) -> Any:
    found = functional.logsigmoid(x)
    return found if temperature == 1.0 else found / temperature


def apply_rotary_emb(x: Any, cos: Any, sin: Any, *_: Any, **__: Any) -> Any:
    """x (B, L, H, D), cos and sin (L, R / 2)."""
    out = torch.empty_like(x)
    _told("rotary_embedding", [x, cos, sin], [out], tensors=1, rotated=2 * cos.shape[-1])
    return out


def apply_rotary_emb_qkv_(qkv: Any, cos: Any, sin: Any, *_: Any, **__: Any) -> Any:
    """qkv (B, L, 3, H, D): q and k are rotated in place."""
    _told("rotary_embedding", [qkv[:, :, :2], cos, sin], [qkv[:, :, :2]], tensors=1, rotated=2 * cos.shape[-1])
    return qkv


def apply_rotary_emb_kv_(kv: Any, cos: Any, sin: Any, *_: Any, **__: Any) -> Any:
    _told("rotary_embedding", [kv[:, :, 0], cos, sin], [kv[:, :, 0]], tensors=1, rotated=2 * cos.shape[-1])
    return kv


def liger_rope(q: Any, k: Any, cos: Any, sin: Any, *_: Any, **__: Any) -> Any:
    """q, k (B, H, L, D), cos and sin (..., L, D): the whole width is rotated."""
    outs = [torch.empty_like(q), torch.empty_like(k)]
    _told("rotary_embedding", [q, k, cos, sin], outs, tensors=2)
    return tuple(outs)


# ---------------------------------------------------------------- convolutions and scans


def causal_conv1d_fn(
    x: Any, weight: Any, bias: Any = None, *_: Any, activation: Any = None, return_final_states: bool = False, **__: Any
) -> Any:
    """x (B, D, L), weight (D, W)."""
    out = torch.empty_like(x)
    _told(
        "causal_conv1d_fwd",
        [x, weight, bias],
        [out],
        activation=activation,
        **({} if bias is not None else {"bias": None}),
    )
    return (out, x.new_empty((*x.shape[:2], weight.shape[-1] - 1))) if return_final_states else out


def causal_conv1d_update(
    x: Any, conv_state: Any, weight: Any, bias: Any = None, activation: Any = None, *_: Any, **__: Any
) -> Any:
    """x (B, D, L), conv_state (B, D, S), weight (D, W)."""
    out = torch.empty_like(x)
    _told(
        "causal_conv1d_update",
        [x, conv_state, weight, bias],
        [out],
        activation=activation,
        **({} if bias is not None else {"bias": None}),
    )
    return out


def causal_conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    residual: Any = None,
    initial_state: Any = None,
    output_final_state: Any = False,
    activation: Any = None,
    **_: Any,
) -> Any:
    """fla's: x (B, L, D); gives the final state (B, D, W) too."""
    del initial_state
    out = causal_conv1d_fn(x, weight, bias, activation=activation)
    state = x.new_empty((x.shape[0], x.shape[-1], weight.shape[-1])) if output_final_state else None
    return (out if residual is None else out + residual), state


def selective_scan_fn(
    u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any = None, z: Any = None, delta_bias: Any = None,  # noqa: N803
    delta_softplus: bool = False, return_last_state: bool = False,
) -> Any:  # fmt: skip
    """u (B, D, L), A (D, N)."""
    out = torch.empty_like(u)
    absent = {n: None for n, t in (("D", D), ("z", z), ("delta_bias", delta_bias)) if t is None}
    _told("selective_scan_fwd", [u, delta, A, B, C, D, z, delta_bias], [out], delta_softplus=delta_softplus, **absent)
    return (out, u.new_empty((*u.shape[:2], A.shape[-1]))) if return_last_state else out


def mamba_inner_fn(
    xz: Any, conv1d_weight: Any, conv1d_bias: Any, x_proj_weight: Any, delta_proj_weight: Any, out_proj_weight: Any,
    out_proj_bias: Any, A: Any, B: Any = None, C: Any = None, D: Any = None, delta_bias: Any = None,  # noqa: N803
    *_: Any, **__: Any,
) -> Any:  # fmt: skip
    """As `mamba_inner_ref`: convolution, projection of the step, B and C, scan, projection out; xz (B, 2 * D, L)."""
    rank, states = delta_proj_weight.shape[1], A.shape[-1]
    x, z = xz.chunk(2, dim=1)
    x = causal_conv1d_fn(x, conv1d_weight.squeeze(1), conv1d_bias, activation="silu")
    found = functional.linear(x.transpose(1, 2), x_proj_weight)
    delta = functional.linear(found[..., :rank], delta_proj_weight).transpose(1, 2)
    b = found[..., rank : rank + states].transpose(1, 2) if B is None else B
    c = found[..., -states:].transpose(1, 2) if C is None else C
    y = selective_scan_fn(x, delta, A, b, c, D, z, delta_bias, True)
    return functional.linear(y.transpose(1, 2), out_proj_weight, out_proj_bias)


def mamba_chunk_scan_combined(
    x: Any, dt: Any, A: Any, B: Any, C: Any, chunk_size: Any, D: Any = None, z: Any = None, dt_bias: Any = None,  # noqa: N803
    *_: Any, dt_softplus: bool = False, return_final_states: bool = False, **__: Any,
) -> Any:  # fmt: skip
    """x (B, L, H, P), B and C (B, L, G, N)."""
    out = torch.empty_like(x)
    absent = {n: None for n, t in (("D", D), ("z", z), ("dt_bias", dt_bias)) if t is None}
    _told(
        "mamba_chunk_scan_combined",
        [x, dt, A, B, C, D, z, dt_bias],
        [out],
        chunk_size=chunk_size,
        dt_softplus=dt_softplus,
        **absent,
    )
    return (out, x.new_empty((x.shape[0], *x.shape[2:], B.shape[-1]))) if return_final_states else out


def mamba_split_conv1d_scan_combined(
    zxbcdt: Any, conv1d_weight: Any, conv1d_bias: Any, dt_bias: Any, A: Any, D: Any, chunk_size: Any, *_: Any,  # noqa: N803
    activation: Any = "silu", rmsnorm_weight: Any = None, outproj_weight: Any = None, outproj_bias: Any = None,
    headdim: Any = None, ngroups: Any = 1, **__: Any,
) -> Any:  # fmt: skip
    """As `mamba_split_conv1d_scan_ref`: convolution, scan, gated norm, projection out; zxbcdt (B, L, 2 * D + 2 * G * N + H)."""
    heads = A.shape[0]
    width = heads * (D.shape[1] if D.dim() > 1 else headdim)
    states = (zxbcdt.shape[-1] - 2 * width - heads) // ngroups // 2
    z, xbc, dt = torch.split(zxbcdt, [width, width + 2 * ngroups * states, heads], dim=-1)
    xbc = causal_conv1d_fn(xbc.transpose(1, 2), conv1d_weight, conv1d_bias, activation=activation).transpose(1, 2)
    x, b, c = torch.split(xbc, [width, ngroups * states, ngroups * states], dim=-1)
    length = zxbcdt.shape[:2]
    x, z = (t.reshape(*length, heads, width // heads) for t in (x, z))
    b, c = (t.reshape(*length, ngroups, states) for t in (b, c))
    gate = None if rmsnorm_weight is not None else z
    y = mamba_chunk_scan_combined(x, dt, A, b, c, chunk_size, D, gate, dt_bias, dt_softplus=True).reshape(
        *length, width
    )
    if rmsnorm_weight is not None:
        y = rmsnorm_fn(y, rmsnorm_weight, None, z.reshape(*length, width))
    return y if outproj_weight is None else functional.linear(y, outproj_weight, outproj_bias)


# ---------------------------------------------------------------- linear attention and the delta rule


def _recurrence(operator: str, decays: str = "none", **fixed: Any) -> Callable[..., Any]:
    """A kernel over q, k (B, L, H, K), v (B, L, H, V) that gives the outputs and, if asked, the final state (B, H, K, V).

    `decays` are the names of tensors beside q, k, v; the first that is there says how the state decays.
    """

    def stand_in(
        q: Any, k: Any, v: Any, *more: Any, output_final_state: bool = False, initial_state: Any = None, **given: Any
    ) -> Any:
        given.update(zip(decays.split(), more, strict=False))
        beside = [t for n in decays.split() if isinstance(t := given.get(n), torch.Tensor)]
        first = beside[0] if beside else None
        decay = "none" if first is None or "delta" in operator else "vector" if first.dim() == 4 else "scalar"
        out, state = torch.empty_like(v), None
        if output_final_state:
            state = v.new_empty((v.shape[0], v.shape[2], k.shape[-1], v.shape[-1]), dtype=torch.float32)
        _told(operator, [q, k, v, *beside, initial_state], [out, *([] if state is None else [state])],
              decay=fixed.get("decay", decay), chunk_size=64, use_qk_l2norm_in_kernel=bool(given.get("use_qk_l2norm_in_kernel")))  # fmt: skip
        return out, state

    return stand_in


_CHUNKED, _STEPPED = "chunk_gated_linear_attention", "recurrent_gated_linear_attention"
_ATTENTION = {
    "flash_attn_func": flash_attn_func, "flash_attn_qkvpacked_func": flash_attn_qkvpacked_func,
    "flash_attn_kvpacked_func": flash_attn_kvpacked_func, "flash_attn_varlen_func": flash_attn_varlen_func,
}  # fmt: skip
_ROTARY = {
    "apply_rotary_emb": apply_rotary_emb, "apply_rotary_emb_func": apply_rotary_emb,
    "apply_rotary_emb_qkv_": apply_rotary_emb_qkv_, "apply_rotary_emb_kv_": apply_rotary_emb_kv_,
}  # fmt: skip
_NORMS = {"layer_norm_fn": layer_norm, "rms_norm_fn": rms_norm}
#: package -> what it calls its functions -> stand-in; a function is known by its name, wherever in the package it lies
STAND_INS: dict[str, dict[str, Any]] = {
    "flash_attn": {**_ATTENTION, **_ROTARY, **_NORMS, "rms_norm": rms_norm, "layer_norm": layer_norm, "swiglu": swiglu},
    "xformers": {"memory_efficient_attention": memory_efficient_attention, "LowerTriangularMask": LowerTriangularMask},
    "causal_conv1d": {"causal_conv1d_fn": causal_conv1d_fn, "causal_conv1d_update": causal_conv1d_update},
    "mamba_ssm": {
        **_NORMS, "selective_scan_fn": selective_scan_fn, "mamba_inner_fn": mamba_inner_fn,
        "mamba_chunk_scan_combined": mamba_chunk_scan_combined, "rmsnorm_fn": rmsnorm_fn, "layernorm_fn": layernorm_fn,
        "mamba_split_conv1d_scan_combined": mamba_split_conv1d_scan_combined,
    },
    "fla": {
        "rms_norm": rms_norm, "layer_norm": layer_norm, "rms_norm_gated": _gated("rms"), "layer_norm_gated": _gated("layer"),
        "rmsnorm_fn": rmsnorm_fn, "layernorm_fn": layernorm_fn, "l2norm": l2norm, "swiglu": swiglu,
        "swiglu_linear": swiglu_linear, "swish": swish, "logsigmoid": logsigmoid, "rotary_embedding": apply_rotary_emb,
        "causal_conv1d": causal_conv1d,
        "chunk_gla": _recurrence(_CHUNKED, "g"), "fused_chunk_gla": _recurrence(_CHUNKED, "g"),
        "fused_recurrent_gla": _recurrence(_STEPPED, "gk gv"), "chunk_simple_gla": _recurrence(_CHUNKED, "g g_gamma"),
        "fused_recurrent_simple_gla": _recurrence(_STEPPED, "g g_gamma"),
        "chunk_retention": _recurrence(_CHUNKED, decay="scalar"),
        "fused_recurrent_retention": _recurrence(_STEPPED, decay="scalar"),
        "chunk_linear_attn": _recurrence(_CHUNKED), "fused_chunk_linear_attn": _recurrence(_CHUNKED),
        "fused_recurrent_linear_attn": _recurrence(_STEPPED), "chunk_delta_rule": _recurrence("chunk_delta_rule", "beta"),
        "fused_recurrent_delta_rule": _recurrence("fused_recurrent_delta_rule", "beta"),
        "chunk_gated_delta_rule": _recurrence("chunk_gated_delta_rule", "g beta"),
        "fused_recurrent_gated_delta_rule": _recurrence("fused_recurrent_gated_delta_rule", "g beta"),
    },
    "liger_kernel": {"liger_rms_norm": rms_norm, "liger_layer_norm": layer_norm, "liger_swiglu": swiglu, "liger_rope": liger_rope},
    "apex": {"FusedLayerNorm": torch.nn.LayerNorm, "FusedRMSNorm": torch.nn.RMSNorm,
             "MixedFusedLayerNorm": torch.nn.LayerNorm, "MixedFusedRMSNorm": torch.nn.RMSNorm},
}  # fmt: skip
#: those that models define in plain operators too, with loops over positions, and that engines always run fused
FUSED = frozenset(
    "chunk_gated_delta_rule fused_recurrent_gated_delta_rule causal_conv1d_fn causal_conv1d_update".split()
)
#: compiled parts of those packages, which their Python files import and the stand-ins make needless
COMPILED = frozenset((
    "flash_attn_2_cuda flash_attn_3_cuda selective_scan_cuda causal_conv1d_cuda rotary_emb dropout_layer_norm fused_dense_lib "
    "xentropy_cuda_lib fused_layer_norm_cuda"
).split())  # fmt: skip
KNOWN = re.compile(r"flash[_-]attn|flash[_ ]?attention|xformers|causal[_-]conv1d|mamba[_-]ssm|selective_scan|\bfla\b|liger|apex|"
                    + "|".join(COMPILED), re.IGNORECASE)  # fmt: skip


__all__ = ["COMPILED", "FUSED", "KNOWN", "STAND_INS", "Report", "reports"]
