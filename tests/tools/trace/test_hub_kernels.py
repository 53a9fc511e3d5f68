"""What transformers runs as a kernel from the hub is one kernel of the serving view: inputs in, outputs and state out."""

from __future__ import annotations

from typing import Any

import pytest
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline
from opscope_tools.running.tool import ToolContext
from sampled import sampled

SMALL: dict[str, Any] = {
    "hidden_size": 256, "num_heads": 8, "head_dim": 64, "state_size": 128, "n_groups": 1, "num_hidden_layers": 3, "vocab_size": 512, "chunk_size": 64,
}  # fmt: skip


@pytest.mark.parametrize("batch", sampled([2, 64]))
def test_a_step_reads_and_writes_the_state_once(context: ToolContext, batch: int) -> None:
    """Of Mamba-2, whose state by hand is heads times width times states in single precision, for each sequence and layer."""
    values = {"batch_size": batch, "cache_len": 5000}
    asked = {"target": "mamba2", "config": SMALL, "phase": "decode", "values": values}
    found = estimate_roofline(RooflineArguments.model_validate({**asked, "hardware": "h100_sxm"}), context)
    state = batch * 3 * 8 * 64 * 128 * 4
    updates = [one for one in found.operators if one.operation == "mamba2_selective_state_update"]
    moved = sum(one.bytes for one in updates)
    assert sum(one.count for one in updates) == 3
    assert 2 * state <= moved <= 2.1 * state
    assert found.memory.activation_bytes is not None
    assert 0 < found.memory.activation_bytes < state / 3  # of one layer: the new state is made where the old one lies
    eager = count_flops(CostArguments.model_validate(asked), context).evaluated
    assert eager is not None
    assert sum(one.flops for one in found.operators) == pytest.approx(
        eager.flops, rel=0.01
    )  # all that is computed is counted


@pytest.mark.slow
def test_a_scan_moves_what_goes_in_and_comes_out(context: ToolContext) -> None:
    """Its chunks, their states, masks and decays stay inside: of a prefill of several chunks less than a fifth of what eager execution
    moves."""
    asked = {"target": "mamba2", "config": SMALL, "phase": "prefill", "values": {"batch_size": 2, "seq_len": 512}}
    served = estimate_roofline(RooflineArguments.model_validate({**asked, "hardware": "h100_sxm"}), context)
    eager = estimate_roofline(
        RooflineArguments.model_validate({**asked, "hardware": "h100_sxm", "view": "eager"}), context
    )
    scans = [one for one in served.operators if one.operation == "mamba2_chunk_scan"]
    assert sum(one.count for one in scans) == 3
    tokens, inner = 2 * 512, 8 * 64
    # x, B, C and the step in bfloat16, the result and the last state in single precision, A, D and the bias of the step
    moved = tokens * (2 * inner + 2 * 2 * 128 + 2 * 8 + 4 * inner) + 2 * inner * 128 * 4 + (4 + 2 + 2) * 8
    assert sum(one.bytes for one in scans) == 3 * moved
    assert served.totals.bytes < 0.2 * eager.totals.bytes


@pytest.mark.parametrize("model", sampled(["mamba", "falcon_mamba"]))
def test_a_scan_that_loops_over_tokens_is_one_kernel_of_each_layer(context: ToolContext, model: str) -> None:
    """Of Mamba, whose reference steps through the tokens: no states between steps are moved, all that is computed is counted."""
    tokens, inner, states = 2 * 512, 512, 16
    config = {"hidden_size": 256, "num_hidden_layers": 3, "vocab_size": 512, "state_size": states}
    asked = {"target": model, "config": config, "phase": "prefill", "values": {"batch_size": 2, "seq_len": 512}}
    served, eager = (
        estimate_roofline(RooflineArguments.model_validate({**asked, "hardware": "h100_sxm", "view": view}), context)
        for view in ("serving", "eager")
    )
    scans = [one for one in served.operators if one.operation == "mamba_selective_scan"]
    assert sum(one.count for one in scans) == 3
    assert max(one.count for one in served.operators) <= 3
    least = 3 * tokens * 2 * (4 * inner + 2 * states)  # x, its step, its gate and the result, B and C, in bfloat16
    assert least <= sum(one.bytes for one in scans) <= 1.3 * least
    assert served.totals.flops == pytest.approx(eager.totals.flops, rel=0.001)
