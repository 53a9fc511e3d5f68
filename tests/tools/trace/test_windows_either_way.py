"""What a cache holds does not depend on how attention is computed, nor on which trace answers: around a window's end, at one sequence
and several, every tool says the same, and it is what the configuration's layers keep."""

from __future__ import annotations

from typing import Any

import pytest
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace_dataflow import DataflowArguments, trace_dataflow

WINDOW = 16
SMALL = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": 99,
    "num_hidden_layers": 4, "sliding_window": WINDOW,
}  # fmt: skip
LENGTHS = (WINDOW - 2, WINDOW - 1, WINDOW, WINDOW + 5)
ONE = 2 * 2 * 16 * 2  # keys and values of one token in one layer


def kinds(model_type: str) -> list[str]:
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type](**SMALL)
    return list(getattr(config, "layer_types", None) or ["sliding_attention"] * SMALL["num_hidden_layers"])


FEW = {("mistral", 1, WINDOW - 1), ("mistral", 2, WINDOW), ("gemma3_text", 1, WINDOW - 2), ("cohere2", 2, WINDOW + 5)}
EACH = [
    (kind, batch, length) for kind in ("gemma3_text", "cohere2", "mistral") for batch in (1, 2) for length in LENGTHS
]


@pytest.mark.parametrize(
    ("model_type", "batch", "length"),
    [case if case in FEW else pytest.param(*case, marks=pytest.mark.slow) for case in EACH],
)
def test_a_cache_grows_by_the_layers_that_still_take_a_token(
    context: ToolContext, model_type: str, batch: int, length: int
) -> None:
    growing = sum(kind == "full_attention" or length + 1 < WINDOW for kind in kinds(model_type))
    asked: dict[str, Any] = {
        "target": model_type, "phase": "prefill", "config": SMALL, "values": {"batch_size": batch, "seq_len": length},
    }  # fmt: skip
    for attention in ("sdpa", "eager"):
        counted = count_flops(CostArguments.model_validate({**asked, "attention": attention}), context).numbers
        memory = trace_dataflow(DataflowArguments.model_validate({**asked, "attention": attention}), context).numbers
        assert counted is not None
        assert memory is not None
        assert (counted.cache_bytes_per_token or 0) == growing * ONE, attention
        assert (memory.cache_per_token or 0) == growing * ONE, attention
    timed = estimate_roofline(RooflineArguments.model_validate({**asked, "hardware": "h100_sxm"}), context)
    assert (timed.memory.cache_bytes_per_token or 0) == growing * ONE
