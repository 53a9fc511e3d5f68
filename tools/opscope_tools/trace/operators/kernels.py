"""Custom kernels by name: what the CUDA and Triton packages that transformers calls compute, from their definitions.

A caller that meets such a kernel builds a `Call` with the name below, the tensors in the order of the docstring and the
optional ones that are absent as None in `arguments`. "Scans' products", the part of a recurrence that belongs to
`matmul_flops`, are the multiply-adds between vectors and the state: its rank-1 update and its contraction.

Order: attention, short convolutions, state space scans, the gated delta rule.
"""

from __future__ import annotations

from opscope_schemas.formula import Formula

from opscope_tools.trace.operators.attention import by_token
from opscope_tools.trace.operators.types import ONE, ZERO, Call, Cost, cost, moved, operator, optional, size_of

# ---------------------------------------------------------------- attention


@operator("flash_attn._flash_attn_forward", "flash_attn._flash_attn_varlen_forward")
def flash_attention(call: Call) -> Cost | None:
    """q, k, v by token (B, L, H, D), or packed (tokens, H, D) with `max_seqlen_k`; no mask but `causal`.

    Source: Dao-AILab/flash-attention, flash_attn/flash_attn_interface.py.
    """
    return by_token(call, causal=bool(call.arguments.get("causal")), longest=call.arguments.get("max_seqlen_k"))


# ---------------------------------------------------------------- short convolutions


def _activated(call: Call) -> bool:
    return bool(call.arguments.get("silu_activation") or call.arguments.get("activation"))


def _depthwise(call: Call, weight: int) -> tuple[Formula, Formula, str]:
    """All and product FLOPs of W taps per element of x: 2*W, the bias 1, SiLU 5."""
    x, taps = call.inputs[0].numel, call.inputs[weight].shape[-1]
    bias = len(optional(call, weight + 1, "bias"))
    extra = bias + (5 if _activated(call) else 0)
    words = "2 * W per element" + (", bias 1" if bias else "") + (", SiLU 5" if _activated(call) else "")
    return (2 * taps + extra) * x, 2 * taps * x, words


@operator("causal_conv1d_fwd")
def causal_conv1d_fwd(call: Call) -> Cost:
    """x (B, D, L), weight (D, W), bias (D): each channel's W last values, weighted; `silu_activation`.

    Source: Dao-AILab/causal-conv1d, csrc/causal_conv1d_fwd.cu.
    """
    flops, matmul, words = _depthwise(call, 1)
    return cost(call, flops, words, matmul)


#: kernels that read a state of the cache and write it again
CHANGES_STATE = frozenset({"causal_conv1d_update", "selective_state_update"})


@operator("causal_conv1d_update")
def causal_conv1d_update(call: Call) -> Cost:
    """x (B, D) or (B, D, L), conv_state (B, D, S), weight (D, W), bias (D): the state is read and written again.

    Source: Dao-AILab/causal-conv1d, csrc/causal_conv1d_update.cu.
    """
    flops, matmul, words = _depthwise(call, 2)
    read, write = moved(call)
    return Cost(flops, matmul, read, write + call.inputs[1].bytes, words)


# ---------------------------------------------------------------- state space scans


def _scan(call: Call, states: Formula, x: Formula, dt: Formula, given: list[str]) -> tuple[Formula, Formula, str]:
    """All and product FLOPs of one step per entry of `states` (tokens * channels * N), `x` and `dt`.

    A state: dt * A, exp, times h, and the update (dt * x) * B and the contraction h * C, a multiply and an add each: 7,
    of which 4 are products. A channel: dt * x 1; D * x and its add 2; silu(z) and its product 6; the step's bias 1, its
    softplus 3.
    """
    per_x = 1 + (2 if "D" in given else 0) + (6 if "z" in given else 0)
    soft = call.arguments.get("delta_softplus") or call.arguments.get("dt_softplus")
    per_dt = (1 if {"delta_bias", "dt_bias"} & set(given) else 0) + (3 if soft else 0)
    return 7 * states + per_x * x + per_dt * dt, 4 * states, f"7 per state, {per_x} per channel, {per_dt} per step size"


@operator("selective_scan_fwd")
def selective_scan_fwd(call: Call) -> Cost:
    """u (B, D, L), delta (B, D, L), A (D, N), B, C, then D (D), z (B, D, L), delta_bias (D) where present.

    Source: state-spaces/mamba, mamba_ssm/ops/selective_scan_interface.py (`selective_scan_ref` defines it).
    """
    u, delta, a = call.inputs[:3]
    given = optional(call, 5, "D", "z", "delta_bias")
    flops, matmul, words = _scan(call, u.numel * a.shape[-1], u.numel, delta.numel, given)
    return cost(call, flops, words, matmul)


@operator("selective_state_update")
def selective_state_update(call: Call) -> Cost:
    """state (B, [H,] D, N), x (B, [H,] D), dt, A, B, C, then D, z, dt_bias where present: one token; the state is written.

    Source: state-spaces/mamba, mamba_ssm/ops/triton/selective_state_update.py (`selective_state_update_ref`).
    """
    state, x, dt = call.inputs[:3]
    given = optional(call, 6, "D", "z", "dt_bias")
    flops, matmul, words = _scan(call, state.numel, x.numel, dt.numel, given)
    read, write = moved(call)
    return Cost(flops, matmul, read, write + state.bytes, words)


@operator("mamba_chunk_scan_combined")
def mamba_chunk_scan(call: Call) -> Cost | None:
    """x (B, L, H, P), dt (B, L, H), A (H), B and C (B, L, G, N), then D, z, dt_bias; in chunks of `chunk_size` = Q tokens.

    Products per token: C B^T within the chunk 2*Q*N per group, (C B^T * decay) x 2*Q*P per head, the chunk's state
    B^T x and C times the state before it 2*N*P each per head. Beside them per token and head: dt * A, its cumulative sum,
    Q differences, Q exponentials, Q products with C B^T; x * dt, B * decay (difference, exponential, N); the state's
    share scaled (exponential, P) and added (P). Per chunk and head: the state decayed and added to, 2*N*P + 1.

    Source: state-spaces/mamba, mamba_ssm/modules/ssd_minimal.py (`ssd_minimal_discrete`); the last chunk counts whole.
    """
    chunk = size_of(call.arguments.get("chunk_size"))
    if chunk is None:
        return None
    batch, length, heads, width = call.inputs[0].shape
    groups, states = call.inputs[3].shape[-2:]
    given = optional(call, 5, "D", "z", "dt_bias")
    chunks = length.ceildiv(chunk)
    tokens = batch * chunks * chunk
    matmul = tokens * (2 * chunk * states * groups + heads * (2 * chunk * width + 4 * states * width))
    per_head = 3 * chunk + 5 + states + 3 * width
    soft = 3 if call.arguments.get("dt_softplus") else 0
    per_dt = (1 if "dt_bias" in given else 0) + soft
    per_x = (2 if "D" in given else 0) + (6 if "z" in given else 0)
    beside = tokens * heads * per_head + batch * chunks * heads * (2 * states * width + 1)
    outside = batch * length * heads * (per_dt + per_x * width)
    return cost(call, matmul + beside + outside, "products within and between chunks, decays, gates", matmul)


# ---------------------------------------------------------------- the gated delta rule


def _delta_rule(call: Call) -> tuple[Formula, Formula, Formula, Formula]:
    """Tokens * heads of v, K, V, and what is done to q and k before: q's scale K, and if asked both normalised 3*K + 2."""
    batch, length, heads, v_dim = call.inputs[2].shape
    k_heads, k_dim = call.inputs[1].shape[-2:]
    normalised = 2 * (3 * k_dim + 2) if call.arguments.get("use_qk_l2norm_in_kernel") else ZERO
    return batch * length * heads, k_dim, v_dim, batch * length * k_heads * (k_dim + normalised)


@operator("chunk_gated_delta_rule")
def chunk_gated_delta_rule(call: Call) -> Cost | None:
    """q, k (B, L, H, K), v (B, L, H, V), g and beta (B, L, H), an initial state; in chunks of `chunk_size` = C tokens.

    Products per token and head: k_beta k^T and q k^T 2*C*K each, their use 2*C*V, the state read twice and updated once
    2*K*V each. Beside them: beta * v and beta * k; the decays' cumulative sum, C differences, C exponentials, 2*C products
    with them; substitution for K + V right-hand sides (C - 1 each); k_beta, q and k decayed (4 exponentials and
    differences, K each); v - prediction and the two outputs' sum 2*V. Per chunk: the state decayed and added to.

    Source: fla-org/flash-linear-attention, fla/ops/gated_delta_rule/chunk.py; transformers' `torch_chunk_gated_delta_rule`
    defines the same. The last chunk counts whole.
    """
    chunk = size_of(call.arguments.get("chunk_size", 64))
    if chunk is None:
        return None
    _, k, v, before = _delta_rule(call)
    batch, length, heads, _ = call.inputs[2].shape
    chunks = batch * heads * length.ceildiv(chunk)
    matmul = chunks * chunk * (4 * chunk * k + 2 * chunk * v + 6 * k * v)
    per_token = 3 * v + 4 * k + 5 + 4 * chunk + (chunk - 1) * (k + v)
    flops = matmul + chunks * chunk * per_token + chunks * (2 * k * v + 1) + before
    return cost(call, flops, "products within and between chunks, substitution, decays", matmul)


@operator("fused_recurrent_gated_delta_rule")
def recurrent_gated_delta_rule(call: Call) -> Cost:
    """The same one token at a time: the state decayed (exp 1, K*V), read by k 2*K*V, (v - read) * beta 2*V, updated by

    k and that 2*K*V, read by q 2*K*V; the last three are its products.

    Source: fla-org/flash-linear-attention, fla/ops/gated_delta_rule/fused_recurrent.py.
    """
    tokens, k, v, before = _delta_rule(call)
    matmul = tokens * 6 * k * v
    return cost(
        call, matmul + tokens * (k * v + 2 * v + ONE) + before, "7 * K * V, 2 * V and 1 per token and head", matmul
    )
