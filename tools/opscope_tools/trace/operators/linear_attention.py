"""Fused kernels of recurrent layers and around them: gated linear attention, the delta rule, norms with gates, rotations.

Names and conventions as in kernels.py. Legend: B batch, L tokens, H heads, K width of q and k, V width of v, C tokens a chunk.
Where a kernel exists in two forms, each is counted as it computes: step by step, or in chunks of products.
"""

from __future__ import annotations

from opscope_schemas.formula import Formula

from opscope_tools.trace.operators.attention import by_token
from opscope_tools.trace.operators.types import ONE, ZERO, Call, Cost, cost, operator, size_of

# ---------------------------------------------------------------- attention


@operator("xformers.memory_efficient_attention")
def memory_efficient_attention(call: Call) -> Cost | None:
    """q (B, L, H, D), k and v alike; a tensor `attn_bias` is added, a lower triangular one is causal.

    Source: facebookresearch/xformers, xformers/ops/fmha/__init__.py (`memory_efficient_attention`).
    """
    return by_token(call, causal=bool(call.arguments.get("causal")), additive=len(call.inputs) > 3)


# ---------------------------------------------------------------- linear attention with decays


def _sizes(call: Call) -> tuple[Formula, Formula, Formula, Formula, Formula]:
    """B, L, H, K, V of q, k (B, L, H, K) and v (B, L, H, V)."""
    batch, length, heads, v_dim = call.inputs[2].shape
    return batch, length, heads, call.inputs[1].shape[-1], v_dim


@operator("recurrent_gated_linear_attention")
def recurrent_gated_linear_attention(call: Call) -> Cost:
    """S = decay * S + k^T v; o = (scale * q) S, token by token. `decay` is "vector" (K per head), "scalar" or "none".

    Products: 2*K*V for the update and 2*K*V for the reading. Beside them q's scale K; a decay's exponentials (K or 1) and
    its product with the state K*V.

    Source: fla-org/flash-linear-attention, fla/ops/gla/naive.py, fla/ops/simple_gla/naive.py (`naive_recurrent_*`).
    """
    batch, length, heads, k, v = _sizes(call)
    tokens = batch * length * heads
    decay = {"vector": k + k * v, "scalar": ONE + k * v}.get(str(call.arguments.get("decay")), ZERO)
    matmul = tokens * 4 * k * v
    return cost(
        call, matmul + tokens * (k + decay), "4 * K * V in products, K for the scale, the state's decay", matmul
    )


@operator("chunk_gated_linear_attention")
def chunk_gated_linear_attention(call: Call) -> Cost | None:
    """The same in chunks of `chunk_size` = C tokens, all of which count whole; b is the decays' cumulative sum in a chunk.

    Products per token and head: q k^T 2*C*K, its use 2*C*V, the state read and updated 2*K*V each. Beside them q's scale K and
    the two outputs' sum V. Vector decays: the sum K, q * exp(b) 2*K, k * exp(-b) 3*K, k * exp(b_last - b) 3*K. Scalar ones: the
    sum 1, C differences, exponentials and products with q k^T, q * exp(b) K + 1, k * exp(b_last - b) K + 2. Per chunk: the
    state added to K*V and, with decays, decayed K*V + its exponentials (K or 1).

    Source: fla-org/flash-linear-attention, fla/ops/gla/chunk.py (`chunk_gla`), Yang et al. 2023, section 4.
    """
    chunk = size_of(call.arguments.get("chunk_size", 64))
    if chunk is None:
        return None
    batch, length, heads, k, v = _sizes(call)
    chunks = batch * heads * length.ceildiv(chunk)
    matmul = chunks * chunk * (2 * chunk * (k + v) + 4 * k * v)
    per_token, per_chunk = {
        "vector": (10 * k + v, 2 * k * v + k),
        "scalar": (3 * chunk + 3 * k + v + 4, 2 * k * v + ONE),
    }.get(str(call.arguments.get("decay")), (k + v, k * v))
    flops = matmul + chunks * (chunk * per_token + per_chunk)
    return cost(call, flops, "products within and between chunks, decays, scale", matmul)


@operator("chunk_delta_rule")
def chunk_delta_rule(call: Call) -> Cost | None:
    """q, k (B, L, H, K), v (B, L, H, V), beta (B, L, H): `chunk_gated_delta_rule` without its decays.

    Beside its products, per token and head: q's scale K, beta * v and beta * k, substitution for K + V right-hand sides
    (C - 1 each), v - prediction and the two outputs' sum 2*V; per chunk the state added to.

    Source: fla-org/flash-linear-attention, fla/ops/delta_rule/naive.py (`delta_rule_chunkwise`).
    """
    chunk = size_of(call.arguments.get("chunk_size", 64))
    if chunk is None:
        return None
    batch, length, heads, k, v = _sizes(call)
    chunks = batch * heads * length.ceildiv(chunk)
    matmul = chunks * chunk * (4 * chunk * k + 2 * chunk * v + 6 * k * v)
    per_token = 3 * v + 2 * k + (chunk - 1) * (k + v) + _normalised(call, k)
    return cost(
        call, matmul + chunks * (chunk * per_token + k * v), "products within and between chunks, substitution", matmul
    )


@operator("fused_recurrent_delta_rule")
def recurrent_delta_rule(call: Call) -> Cost:
    """The same one token at a time: read by k 2*K*V, (v - read) * beta 2*V, updated 2*K*V, read by q 2*K*V, q's scale K."""
    batch, length, heads, k, v = _sizes(call)
    tokens = batch * length * heads
    matmul = tokens * 6 * k * v
    return cost(
        call, matmul + tokens * (2 * v + k + _normalised(call, k)), "6 * K * V in products, 2 * V and K", matmul
    )


def _normalised(call: Call, k: Formula) -> Formula:
    """q and k divided by their lengths: square, sum, multiply per element, eps and root per row."""
    return 2 * (3 * k + 2) if call.arguments.get("use_qk_l2norm_in_kernel") else ZERO


# ---------------------------------------------------------------- norms, gates, rotations

#: silu(z) = z / (1 + exp(-z)) and sigmoid(z), each with its product
_GATES = {"silu": 6, "swish": 6, "sigmoid": 5}


@operator("fused_norm")
def fused_norm(call: Call) -> Cost:
    """x (..., n), then weight, bias, residual, gate where `arguments` names them under "given"; `kind` rms, layer or l2.

    Per element: rms 3 (square, mean, scale), layer 5 (mean, subtract, square, mean, divide), l2 3; weight 1, bias 1, the
    residual's add 1, the gate's activation and product. Per row (or group of `group` elements): eps and root.

    Source: Dao-AILab/flash-attention, flash_attn/ops/triton/layer_norm.py (`layer_norm_ref`, `rms_norm_ref`).
    """
    x = call.inputs[0]
    given = call.arguments.get("given", ())
    per = 5 if call.arguments.get("kind") == "layer" else 3
    per += sum(name in given for name in ("weight", "bias", "residual"))
    per += _GATES.get(str(call.arguments.get("gate")), 0) if "gate" in given else 0
    row = size_of(call.arguments.get("group")) or x.shape[-1]
    return cost(call, per * x.numel + 2 * (x.numel // row), f"{per} per element, eps and root per row")


@operator("gated_activation")
def gated_activation(call: Call) -> Cost:
    """act(x) * y: silu 5 or sigmoid 4, and the product. Source: `fla/modules/activations`, `liger_kernel/ops/swiglu.py`."""
    per = _GATES.get(str(call.arguments.get("gate")), 6)
    return cost(call, per * call.out, f"{per} per element")


@operator("rotary_embedding")
def rotary_embedding(call: Call) -> Cost:
    """x (..., D), cos and sin of R / 2 angles: each pair (a, b) becomes (a cos - b sin, a sin + b cos), 3 per element of the R.

    `tensors` is how many of the inputs are rotated. Source: Dao-AILab/flash-attention, flash_attn/layers/rotary.py
    (`apply_rotary_emb_torch`); the elements beyond R are copied.
    """
    number = call.arguments.get("tensors", 1)
    rotated = ZERO
    for x in call.inputs[:number]:
        width = size_of(call.arguments.get("rotated")) or x.shape[-1]
        rotated = rotated + (x.numel // x.shape[-1]) * width
    return cost(call, 3 * rotated, "3 per rotated element")
