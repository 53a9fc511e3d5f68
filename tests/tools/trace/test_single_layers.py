"""torch.nn layers on their own, built from their constructor's arguments: derived by hand."""

from __future__ import annotations

import pytest
from opscope_schemas.errors import OpscopeError
from opscope_schemas.formula import evaluate
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext

B, S, M, N = 3, 5, 8, 12  # batch, positions, in, out


@pytest.mark.parametrize(
    ("target", "values", "flops", "matmul"),
    [
        ("torch.nn.Linear", {"in_features": M, "out_features": N}, 2 * B * S * M * N + B * S * N, 2 * B * S * M * N),
        ("torch.nn.Embedding", {"num_embeddings": 100, "embedding_dim": M}, 0, 0),
        ("torch.nn.LayerNorm", {"normalized_shape": M}, 7 * B * S * M + 2 * B * S, 0),  # 5 and scale, shift; eps, root
        ("torch.nn.RMSNorm", {"normalized_shape": M}, 4 * B * S * M + 2 * B * S, 0),  # 3 and the weight; eps, root
        ("torch.nn.SiLU", {"hidden_size": M}, 5 * B * S * M, 0),
        # 3 taps without padding: 3 positions left of 5, each N outputs of 3 * M products, and the bias
        ("torch.nn.Conv1d", {"in_channels": M, "out_channels": N, "kernel_size": 3}, 2 * B * N * 3 * 3 * M + B * N * 3, 2 * B * N * 3 * 3 * M),
    ],
)  # fmt: skip
def test_a_layer_costs_what_its_definition_says(
    target: str, values: dict[str, int], flops: int, matmul: int, context: ToolContext
) -> None:
    result = count_flops(CostArguments(target=target, values={"batch_size": B, "seq_len": S, **values}), context)
    assert result.evaluated is not None
    assert (result.evaluated.flops, result.evaluated.matmul_flops) == (flops, matmul)
    assert result.document.not_counted == ()


def test_a_linear_layer_reads_input_weight_and_bias(context: ToolContext) -> None:
    document = count_flops(CostArguments(target="torch.nn.Linear"), context).document
    values = {"batch_size": B, "seq_len": S, "in_features": M, "out_features": N, "w_bytes": 1, "a_bytes": 2}
    assert evaluate(document.totals.memory_access.read, values) == B * S * M * 2 + M * N * 1 + N * 1
    assert evaluate(document.totals.memory_access.write, values) == B * S * N * 2


def test_what_a_layer_cannot_do_is_told(context: ToolContext) -> None:
    with pytest.raises(OpscopeError, match="KV cache"):
        count_flops(CostArguments(target="torch.nn.Linear", phase="decode"), context)
    with pytest.raises(OpscopeError, match="in_features"):
        count_flops(CostArguments(target="torch.nn.Linear", config={"in_feature": 3}), context)
