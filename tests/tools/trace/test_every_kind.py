"""A sample of all kinds of models: at a random point each document equals a concrete run in products, FLOPs and bytes.

The sample is fixed, of every family that the sweep over all types has; `make sweep-cost` is the whole of it.
"""

from __future__ import annotations

from typing import Any

import pytest
from cost_comparison import compare
from opscope_tools.running.tool import ToolContext
from sampled import sampled

KINDS = """
    bloom deepseek_v3 falcon gemma2 gptj mpt mamba2 olmoe stablelm zaya albert bert deberta-v2 modernbert roberta
    t5 bigbird_pegasus dinov3_vit segformer vit clip whisper wav2vec2
""".split()
#: of the same families, and those that take minutes
FURTHER = """
    jais2 qwen3_next canine distilbert electra layoutlm mpnet blenderbot-small pegasus_x umt5 beit convnextv2 dinov2 regnet swin hubert
    siglip
""".split()


def _exact(model_type: str, phase: Any, context: ToolContext) -> None:
    outcome = compare(model_type, phase, context, count=1)
    assert outcome.state == "exact", outcome.line()
    assert not outcome.not_counted, outcome.line()


@pytest.mark.parametrize(
    "model_type", [*sampled(KINDS, 5), *(pytest.param(kind, marks=pytest.mark.slow) for kind in FURTHER)]
)
def test_a_forward_of_every_kind_of_model_costs_what_a_concrete_run_does(model_type: str, context: ToolContext) -> None:
    _exact(model_type, "prefill", context)


@pytest.mark.parametrize("model_type", sampled(["gemma2", "mamba2", "deepseek_v3", "t5", "whisper"]))
def test_a_decode_step_costs_what_a_concrete_run_does(model_type: str, context: ToolContext) -> None:
    _exact(model_type, "decode", context)
