"""Attention that a model writes out, or that is traced eager, as an engine runs it: one kernel, against counts by hand.

What looks like it and is not, small modules of our own, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import own_modules
import pytest
from opscope_schemas.analysis import ModuleAnalysisResult, ServingView
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline
from opscope_tools.running.tool import ToolContext
from sampled import sampled

H, N, K, D, V = 64, 4, 2, 16, 99
A, W, KV = 2, 3, 1  # bytes per element: three numbers, so that none passes for another
BYTES = {"a_bytes": A, "w_bytes": W, "kv_bytes": KV}
GROUPED = {"hidden_size": H, "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": N, "num_key_value_heads": K,
           "head_dim": D, "vocab_size": V}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, int]]] = {
    "sinks": ("GptOssAttention", GROUPED),
    "capped": ("Gemma2Attention", GROUPED),
    "slopes": ("BloomAttention", {"n_layer": 2, "hidden_size": H, "n_head": N, "vocab_size": V}),
}
#: sequences, new tokens of each, and tokens in the cache with them
POINTS = {"prefill": [(3, 23, 23), (2, 6, 6), (5, 70, 70)], "decode": [(3, 1, 18), (2, 1, 91), (7, 1, 5)]}


def served(context: ToolContext, target: str, **given: Any) -> tuple[ModuleAnalysisResult, ServingView]:
    answer = count_flops(CostArguments.model_validate({"target": target, "view": "serving", **given}), context)
    assert answer.serving is not None
    return answer, answer.serving


def _projection(tokens: int, width: int, out: int, bias: bool) -> tuple[int, int]:
    return tokens * width * A + (width * out + bias * out) * W, tokens * out * A


def _written(model: str, batch: int, new: int, held: int) -> tuple[int, int]:
    """Bytes that a whole attention module reads and writes."""
    t, heads, bias = batch * new, N if model == "slopes" else K, model != "capped"
    parts = [(2 * t * heads * D * A, 2 * t * heads * D * KV)]  # new keys and values into the pages
    if model == "slopes":
        parts += [_projection(t, H, 3 * H, bias), (2 * t * H * A, t * H * A)]  # q, k and v as one; the residual add
    else:
        angles = 2 * new * (D // 2 if model == "sinks" else D) * A
        for width in (N * D, K * D):
            parts += [_projection(t, H, width, bias), (t * width * A + angles, t * width * A)]
        parts.append(_projection(t, H, K * D, bias))
    sinks = N * W if model == "sinks" else 0
    parts.append((t * N * D * A + 2 * batch * held * heads * D * KV + sinks, t * N * D * A))  # attention
    parts.append(_projection(t, N * D, H, bias))
    return sum(read for read, _ in parts), sum(write for _, write in parts)


@pytest.mark.parametrize("model", sampled(MODELS))
@pytest.mark.parametrize("phase", POINTS)
def test_eager_attention_moves_queries_the_cache_and_the_result(model: str, phase: str, context: ToolContext) -> None:
    target, config = MODELS[model]
    for batch, new, held in POINTS[phase]:
        values = {"batch_size": batch, "seq_len": new, "cache_len": held - new, **BYTES}
        answer, view = served(context, target, phase=phase, config=config, values=values)
        assert view.evaluated is not None
        assert answer.evaluated is not None
        assert (view.evaluated["memory_read"], view.evaluated["memory_write"]) == _written(model, batch, new, held)
        t, keys = batch * new, (N if model == "slopes" else K) * D
        products = 2 * t * H * (N * D + 2 * keys) + 2 * t * N * D * H + 4 * batch * N * new * held * D
        assert view.evaluated["matmul_flops"] == products
        assert view.evaluated["flops"] == answer.evaluated.flops
        assert not any("materialised" in limit for limit in view.limits)


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("gemma2", GROUPED),
        pytest.param("mistral", {**GROUPED, "sliding_window": 5000}, marks=pytest.mark.slow),
        pytest.param("gpt_oss", {**GROUPED, "num_local_experts": 8}, marks=pytest.mark.slow),
        ("bloom", {"n_layer": 2, "hidden_size": H, "n_head": N, "vocab_size": V}),
    ],
)  # fmt: skip
def test_no_mask_is_kept_or_read_by_an_engine(model: str, config: dict[str, int], context: ToolContext) -> None:
    """What a pass moves and keeps grows as its length does: a mask would grow as its square."""
    kept, moved = [], []
    for length in (2048, 3072, 4096):
        asked: dict[str, Any] = {"target": model, "hardware": "h100_sxm", "phase": "prefill", "config": config}
        found = estimate_roofline(RooflineArguments.model_validate({**asked, "values": {"seq_len": length}}), context)
        kept.append(found.memory.activation_bytes or 0)
        _, view = served(context, model, config=config, values={"batch_size": 2, "seq_len": length, "cache_len": 0})
        assert view.evaluated is not None
        moved.append(view.evaluated["memory_read"] + view.evaluated["memory_write"])
    for first, second, third in (kept, moved):
        assert 0 < second - first == third - second


def test_an_estimate_takes_eager_attention_for_the_measured_kernel(context: ToolContext) -> None:
    for phase, cache, new in (("decode", 96, 1), ("prefill", 0, 32)):
        asked = {"target": "gpt_oss", "hardware": "h100_sxm", "phase": phase, "config": {**GROUPED, "head_dim": 64},
                 "values": {"batch_size": 4, "seq_len": new, "cache_len": cache}}  # fmt: skip
        found = estimate_roofline(RooflineArguments.model_validate(asked), context)
        attention = [one for one in found.operators if one.measured_as.startswith(f"{phase} attention")]
        assert attention
        for one in attention:
            tokens, held = 4 * new, cache + new
            each = 2 * tokens * N * 64 * 2 + 2 * 4 * held * K * 64 * 2 + N * 2  # queries and result, cache, sinks
            assert one.bytes == one.count * each
        assert sum(one.count for one in attention) == 2
        assert found.totals.calibrated_seconds is not None


# ---------------------------------------------------------------- modules of our own

HEAD = f"""
import torch
from torch import nn


class Part(nn.Module):
    def __init__(self, width: int = {H}):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.mix = nn.Parameter(torch.zeros({N}, {N}))
        self.experts = nn.Parameter(torch.zeros({N}, {D}, {D}))
        self.table = nn.Parameter(torch.zeros({N}, 1, 1))

    def heads(self, x):
        return (p(x).unflatten(-1, ({N}, {D})).transpose(1, 2) for p in (self.q, self.k, self.v))


"""
ATTENTION = {
    "Plain": "return (q @ k.mT / 4).softmax(-1) @ v",
    "ScaledQueries": "return (q * 0.5 @ k.mT).softmax(-1) @ v",
    "WeightedQueries": "return (q * self.table @ k.mT).softmax(-1) @ v",
    "OneHeadOfKeys": "return torch.nn.functional.scaled_dot_product_attention(q, k[:, :1], v[:, :1])",
    "InPlace": "s = q @ k.mT; s *= 0.25; return s.float().softmax(-1).to(v.dtype) @ v",
    "Masked": "n = x.shape[1]; m = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(); "
    "return (q @ k.mT).masked_fill(~m, -1e9).softmax(-1) @ v",
}
OTHER = {
    "NoSoftmax": "return (q @ k.mT) @ v",
    "KeysByValuesFirst": "return q.softmax(-1) @ (k.softmax(-2).mT @ v)",
    "SumsScores": "s = (q @ k.mT).softmax(-1); return s @ v * s.sum()",
    "MixesHeads": "s = torch.einsum('bhqk,hg->bgqk', q @ k.mT, self.mix); return s.softmax(-1) @ v",
    "TwoScores": "return (q @ k.mT + q @ v.mT).softmax(-1) @ v",
    "Experts": "return torch.matmul(torch.matmul(q, self.experts).softmax(-1), self.experts)",
    "Recurrence": "return torch.cumsum(k.mT @ v, 0).softmax(-1)",
}
SHAPES: dict[str, list[str | int]] = {"x": ["batch_size", "seq_len", H]}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolContext]:
    folder = tmp_path_factory.mktemp("parts")
    bodies = (
        f"class {name}(Part):\n    def forward(self, x):\n        q, k, v = self.heads(x)\n        {body}\n"
        for name, body in {**ATTENTION, **OTHER, "Biased": "return (q @ k.mT + self.table).softmax(-1) @ v"}.items()
    )
    (folder / "parts.py").write_text(HEAD + "\n\n".join(bodies), encoding="utf-8")
    yield from own_modules.trusted(folder, tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("name", sampled([*ATTENTION, "Biased"]))
def test_attention_written_out_is_one_kernel(name: str, own: ToolContext) -> None:
    for batch, n in ((2, 9), (5, 31)):
        values = {"batch_size": batch, "seq_len": n, "a_bytes": A, "w_bytes": W}
        _, view = served(own, f"parts.{name}", inputs=SHAPES, values=values)
        assert view.evaluated is not None
        states = batch * n * H * A
        masks = n * n if name == "Masked" else 0  # made of ones, tril and not, by kernels of their own
        biases = N * W if name == "Biased" else 0
        weighted = name == "WeightedQueries"  # no scale that a kernel could take: a kernel of its own
        operands = weighted * (states + N * W) + states + 2 * states // (N if name == "OneHeadOfKeys" else 1)
        assert view.evaluated["memory_read"] - 2 * masks == 3 * (states + H * H * W) + operands + biases
        assert view.evaluated["memory_write"] - 3 * masks == (4 + weighted) * states


@pytest.mark.parametrize("name", sampled(OTHER))
def test_what_is_no_attention_is_not_taken_for_it(name: str, own: ToolContext) -> None:
    values = {"batch_size": 2, "seq_len": 9, "a_bytes": A, "w_bytes": W}
    _, view = served(own, f"parts.{name}", inputs=SHAPES, values=values)
    assert "flash attention" not in {rule.rule for rule in view.rules}
    assert any("materialised" in limit for limit in view.limits) == (name == "SumsScores")


@pytest.mark.parametrize("target", sampled(["MixtralSparseMoeBlock", "Qwen3NextGatedDeltaNet", "Mamba2Mixer"], 3))
def test_recurrences_and_experts_are_not_taken_for_attention(target: str, context: ToolContext) -> None:
    _, view = served(context, target)
    assert "flash attention" not in {rule.rule for rule in view.rules}
