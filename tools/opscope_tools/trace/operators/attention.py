"""Fused attention: one operator that computes softmax(scale * q @ k^T + mask) @ v without storing the scores.

Legend: B batch, L query length, S key length, H query heads, D head size of q and k, V head size of v.
FLOPs per score: 2*D for q k, 1 for the scale, 3 for the softmax, 1 for a mask that is added, 2*V for p v. The count is
dense; `causal_saving` is what a kernel that skips the pairs above the diagonal saves of the products.
"""

from __future__ import annotations

from dataclasses import replace

from opscope_schemas.formula import Formula

from opscope_tools.trace.operators.types import (
    ONE,
    ZERO,
    Call,
    Cost,
    Tensor,
    cost,
    moved,
    not_counted,
    operator,
    size_of,
    times,
)


def fused(
    call: Call,
    rows: Formula,
    lengths: tuple[Formula, Formula],
    *,
    additive: bool = False,
    causal: bool = False,
    why: str = "",
) -> Cost:
    """The cost of `rows` (batch * heads) times (L, S) scores; q is the first input and v the third.

    Above the diagonal of L queries stand L * (L - 1) / 2 pairs, each of 2 * (D + V) product FLOPs.
    """
    q, v = call.inputs[0], call.inputs[2]
    q_len, kv_len = lengths
    scores = rows * q_len * kv_len
    per_score = q.shape[-1] + v.shape[-1]
    matmul = 2 * scores * per_score
    saving = rows * q_len * (q_len - 1) * per_score if causal else ZERO
    read, write = moved(call)
    return Cost(
        matmul + (5 if additive else 4) * scores, matmul, read, write,
        "2 * scores * (d + dv), and per score: scale 1, softmax 3" + (", mask 1" if additive else "") + why,
        causal_saving=saving,
    )  # fmt: skip


def _adds(mask: Tensor) -> bool:
    return mask.dtype != "bool"


#: attention as the trace records it
ATTENTION = "opscope.sdpa"


@operator(
    ATTENTION,
    "aten._scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_efficient_attention",
    "aten._scaled_dot_product_cudnn_attention",
    "aten._scaled_dot_product_fused_attention_overrideable",
    "aten._scaled_dot_product_attention_math",
    "aten._scaled_dot_product_attention_math_for_mps",
)
def sdpa(call: Call) -> Cost:
    """q (B, H, L, D), k (B, kv heads, S, D), v (..., S, V): heads are q's, those of k and v are shared."""
    q, k = call.inputs[:2]
    additive = len(call.inputs) > 3 and _adds(call.inputs[3])
    causal = bool(call.arguments.get("causal") or call.arguments.get("is_causal"))
    found = fused(call, times(q.shape[:-2]), (q.shape[-2], k.shape[-2]), additive=additive, causal=causal)
    if not call.arguments.get("dropout"):
        return found
    scores = times(q.shape[:-1]) * k.shape[-2]
    return replace(found, flops=found.flops + 2 * scores, derivation=found.derivation + ", dropout 2")


@operator("opscope.sdpa_backward")
def sdpa_backward(call: Call) -> Cost:
    """The gradient of the result, q, k, v, a mask, the result and a logarithm per row in; gradients of q, k and v out.

    Per score, products: q k again 2*D, dP = dO v 2*V, dV = P dO 2*V, dQ = dS k 2*D, dK = dS q 2*D. Beside them: scale and
    exp(s - log) 3, P * (dP - delta) and its scale 3, a mask that is added 1, dropout 2 on P and 2 on dP, the mask's own
    gradient 1. Delta is 2 per element of the result.
    """
    out, q, k = call.inputs[0], call.inputs[1], call.inputs[2]
    mask = [call.inputs[4]] if call.arguments.get("masked") else []
    rows, scores = times(q.shape[:-2]), times(q.shape[:-1]) * k.shape[-2]
    per_score = 3 * q.shape[-1] + 2 * out.shape[-1]
    beside = 6 + sum(_adds(m) for m in mask) + (4 if call.arguments.get("dropout") else 0) + (len(call.outputs) > 3)
    matmul = 2 * scores * per_score
    read, write = moved(call)
    return Cost(
        matmul + beside * scores + 2 * out.numel, matmul, read, write,
        f"2 * scores * (3 * d + 2 * dv), {beside} beside per score, 2 per element of the result",
        causal_saving=rows * q.shape[-2] * (q.shape[-2] - 1) * per_score if call.arguments.get("causal") else ZERO,
    )  # fmt: skip


def by_token(call: Call, *, causal: bool, additive: bool = False, longest: object = None) -> Cost | None:
    """q (B, L, H, D), k (B, S, kv heads, D); or packed sequences: q (tokens, H, D), k (tokens, kv heads, D).

    Of packed sequences the lengths are data: every query is counted with the longest key length, which is exact where
    all are equal and an upper bound elsewhere; the causal saving is then left at 0.
    """
    q, k = call.inputs[:2]
    if len(q.shape) == 4:
        batch, q_len, heads, _ = q.shape
        return fused(call, batch * heads, (q_len, k.shape[1]), additive=additive, causal=causal)
    keys = size_of(longest)
    if keys is None:
        return None
    return fused(call, q.shape[1], (q.shape[0], keys), additive=additive, why="; packed: every query with max_k keys")


@operator("aten._flash_attention_forward")
def flash_attention_forward(call: Call) -> Cost | None:
    """By token; with `cum_seq_q` the sequences are packed. Sliding windows are counted dense."""
    return by_token(call, causal=bool(call.arguments.get("is_causal")), longest=call.arguments.get("max_k"))


@operator("aten._efficient_attention_forward")
def efficient_attention_forward(call: Call) -> Cost | None:
    """By token, (1, tokens, H, D) where packed; `custom_mask_type` 1 and 2 are causal, a bias is added."""
    packed = call.arguments.get("cu_seqlens_q", ()) is None or "max_seqlen_k" not in call.arguments
    biased = call.arguments.get("bias", ()) is not None and len(call.inputs) > 3 and len(call.inputs[3].shape) == 4
    keys = size_of(call.arguments.get("max_seqlen_k"))
    q = call.inputs[0]
    if not packed and keys is not None and q.shape[0] == ONE:
        why = "; packed: every query with max_seqlen_k keys"
        return fused(call, q.shape[2], (q.shape[1], keys), additive=biased, why=why)
    return by_token(call, causal=call.arguments.get("custom_mask_type", 0) in (1, 2), additive=biased)


not_counted(
    "torch's fused encoder layer chooses its parts at run time",
    "aten._native_multi_head_attention",
    "aten._transformer_encoder_layer_fwd",
)


@operator("aten._transform_bias_rescale_qkv")
def rescale_qkv(call: Call) -> Cost:
    """Splits qkv (B, L, 3*D), adds the bias to each, scales q: 4 per element of D."""
    return cost(call, 4 * call.out, "three bias adds and q's scale")
