"""Four modules derived by hand, the arithmetic beside each number.

B batch_size, S seq_len, H hidden_size, I intermediate_size, N num_heads, K num_kv_heads, D head_dim, E experts,
T experts per token; bytes: a activation, w weight, float32 4, int64 8. The derivations follow the forwards of
transformers 5.23 line by line and share nothing with the code under test.
"""

from __future__ import annotations

from collections.abc import Mapping

from opscope_schemas.analysis import Totals
from opscope_schemas.formula import evaluate
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext

POINT = dict(B=3, S=7, H=48, I=80, N=6, K=2, D=10, E=5, T=2, a=2, w=2, c=3)  # noqa: C408 -- reads as the legend does
NAMES = dict(  # noqa: C408 -- reads as the legend does
    B="batch_size", S="seq_len", H="hidden_size", I="intermediate_size", N="num_heads", K="num_kv_heads", D="head_dim",
    E="num_experts", T="num_experts_per_tok", a="a_bytes", w="w_bytes", c="kv_bytes",
)  # fmt: skip


def figures(totals: Totals, values: Mapping[str, int]) -> tuple[int, int, int, int]:
    texts = (totals.flops, totals.matmul_flops, totals.memory_access.read, totals.memory_access.write)
    flops, matmul, read, write = (evaluate(text, values) for text in texts)
    return flops, matmul, read, write


def totals_of(target: str, context: ToolContext) -> Totals:
    return count_flops(CostArguments(target=target), context).document.totals


def test_rms_norm_is_four_per_element_and_two_per_row(context: ToolContext) -> None:
    values = {NAMES[k]: v for k, v in POINT.items()}
    B, S, H, a, w = (POINT[k] for k in "BSHaw")  # noqa: N806 -- shape letters
    n, rows = B * S * H, B * S
    flops = n + n + rows + rows + n + n  # pow, mean, add eps, rsqrt, scale, weight
    read = n * a + n * 4 + n * 4 + rows * 4 + rows * 4 + (n * 4 + rows * 4) + n * 4 + (H * w + n * a)
    write = n * 4 + n * 4 + rows * 4 + rows * 4 + rows * 4 + n * 4 + n * a + n * a
    assert figures(totals_of("LlamaRMSNorm", context), values) == (flops, 0, read, write)


def test_mlp_is_three_products_a_silu_and_a_product_by_element(context: ToolContext) -> None:
    values = {NAMES[k]: v for k, v in POINT.items()}
    B, S, H, I, a, w = (POINT[k] for k in "BSHIaw")  # noqa: E741, N806 -- shape letters
    rows = B * S
    matmul = 3 * (2 * rows * H * I)  # gate, up: rows x H x I; down: rows x I x H
    flops = matmul + 5 * rows * I + rows * I  # silu: x / (1 + exp(-x)) spelt x * sigmoid(x) is 5; gate * up is 1
    read = 2 * (rows * H * a + H * I * w) + (rows * I * a + I * H * w) + rows * I * a + 2 * rows * I * a
    write = 2 * rows * I * a + rows * H * a + rows * I * a + rows * I * a
    assert figures(totals_of("LlamaMLP", context), values) == (flops, matmul, read, write)


def test_attention_is_four_projections_rotary_cache_and_the_fused_operator(context: ToolContext) -> None:
    values = {NAMES[k]: v for k, v in POINT.items()}
    B, S, H, N, K, D, a, w, c = (POINT[k] for k in "BSHNKDawc")  # noqa: N806 -- shape letters
    rows, q, k, out = B * S, B * S * N * D, B * S * K * D, B * S * H
    projections = 2 * rows * H * (N * D) + 2 * (2 * rows * H * (K * D)) + 2 * rows * (N * D) * H
    scores = B * N * S * S
    matmul = projections + 2 * scores * (D + D)
    # rotary, for q and for k: x * cos, -x2 (half), cat, rotated * sin, add
    rotary = sum(x + x // 2 + 0 + x + x for x in (q, k))
    flops = matmul + rotary + 4 * scores  # scale 1 and softmax 3 per score
    angles = S * D * a  # cos or sin, broadcast over batch and heads: read at its stored size
    read = (rows * H * a + H * N * D * w) + 2 * (rows * H * a + H * K * D * w) + (q * a + N * D * H * w)
    read += sum((x * a + angles) + x // 2 * a + x * a + (x * a + angles) + 2 * x * a for x in (q, k))
    read += 2 * k * a  # the empty cache is concatenated with k and with v
    read += q * a + 2 * k * c  # sdpa: q, k, v once, the latter two from the cache
    write = q * a + 2 * k * a + out * a
    write += sum(x * a + x // 2 * a + x * a + x * a + x * a for x in (q, k))
    write += (
        2 * k * c + q * a
    )  # the cache with k and v; sdpa, which writes token by token, so that .contiguous() copies nothing
    assert figures(totals_of("LlamaAttention", context), values) == (flops, matmul, read, write)


def test_a_sparse_block_routes_sorts_and_runs_two_grouped_products(context: ToolContext) -> None:
    values = {NAMES[k]: v for k, v in POINT.items()}
    B, S, H, I, E, T, a, w = (POINT[k] for k in "BSHIETaw")  # noqa: E741, N806 -- shape letters
    tokens, rows = B * S, B * S * T
    matmul = 2 * tokens * H * E + 2 * rows * H * (2 * I) + 2 * rows * I * H  # router, gate and up, down
    totals = totals_of("MixtralSparseMoeBlock", context)
    flops, products, read, write = figures(totals, values)
    assert products == matmul
    assert evaluate(totals.floor.read, values) >= E * H * 3 * I * w  # every expert can be touched at this point
    router = 3 * tokens * E + tokens * T + tokens * T  # softmax over experts; sum and divide over the chosen
    # in the experts: token of a row (rows), cumulated offsets (E), silu 5 and gate * up 1 per inner element, routing
    # weight per output element, sum over the T rows of a token
    experts = rows + E + 6 * rows * I + rows * H + rows * H
    assert flops == matmul + router + experts
    touched = min(E, rows)
    read_by_step = (
        (tokens * H * a + E * H * w) + tokens * E * a,  # router logits, cast to float32
        4 * tokens * E + 4 * tokens * E + 4 * tokens * T + (4 * tokens * T + 4 * tokens),  # softmax, topk, sum, divide
        8 * rows + 8 * rows + (rows * H * a + 8 * rows) + (4 * rows + 8 * rows),  # sort, // T, gather rows and weights
        8 * rows + 4 * rows + 4 * E,  # ids to int32, histogram, offsets
        (rows * H * a + touched * 2 * I * H * w + 4 * E),  # gate and up of the experts that can be touched
        rows * I * a + 2 * rows * I * a,  # silu, gate * up
        (rows * I * a + touched * H * I * w + 4 * E),  # down
        (rows * H * a + 4 * rows),  # routing weight, float32
        (8 * rows + 8 * rows) + (4 * rows * H + 8 * rows),  # inverse permutation, rows put back in order
        4 * rows * H + 4 * tokens * H,  # sum over a token's rows, cast back
    )
    write_by_step = (
        tokens * E * a + 4 * tokens * E,
        4 * tokens * E + (4 + 8) * tokens * T + 4 * tokens + 4 * tokens * T,
        (8 + 8) * rows + 8 * rows + rows * H * a + 4 * rows,
        4 * rows + 4 * E + 4 * E,
        rows * 2 * I * a,
        rows * I * a + rows * I * a,
        rows * H * a,
        4 * rows * H,
        8 * rows + 8 * rows + 4 * rows * H,  # arange, the permutation, the gather
        4 * tokens * H + tokens * H * a,
    )
    assert (read, write) == (sum(read_by_step), sum(write_by_step))
