"""Formulas against real runs: what the symbols say at a point equals what a concrete model executes there."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trace_reference as reference
from opscope_schemas.formula import evaluate
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.document import CallTree
from opscope_tools.trace.engine import TraceEngine
from opscope_tools.trace.flights import Running
from opscope_tools.trace.protocol import TraceRequest
from random_configs import random_config
from sampled import sampled

MODELS = "llama qwen2 qwen3 mistral phi3 olmo2 gemma3_text gpt2 gpt_neox opt mixtral qwen3_moe".split()
PHASES = ("prefill", "decode")


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("model_type", sampled(MODELS))
def test_random_points_equal_a_concrete_run_in_products_flops_and_bytes(
    model_type: str, phase: Any, count: int, context: ToolContext
) -> None:
    draw = random.Random(f"{model_type} {phase}")
    for _ in range(count):
        config = random_config(model_type, draw)
        batch, seq, cache = draw.randint(1, 4), draw.randint(1, 9), draw.randint(1, 12)
        arguments = CostArguments(
            target=model_type, phase=phase, config=config,
            values={"batch_size": batch, "seq_len": seq, "cache_len": cache},
        )  # fmt: skip
        result = count_flops(arguments, context)
        where = f"{model_type} {phase} {config} at {(batch, seq, cache)}"
        assert result.evaluated is not None
        assert result.document.not_counted == ()
        assert result.evaluated.matmul_flops == reference.matmul_flops(model_type, config, phase, batch, seq, cache), (
            where
        )
        walked = reference.walk(model_type, config, phase, batch, seq, cache)
        ours = (result.evaluated.flops, result.evaluated.memory_read, result.evaluated.memory_write)
        assert ours == (walked.flops, walked.read, walked.write), where


@pytest.mark.parametrize(("model_type", "phase", "seq"), [
    ("mistral", "decode", 1), ("gemma3_text", "decode", 1), ("phi3", "decode", 2), ("gemma3_text", "prefill", 0), ("mistral", "prefill", 0),
])  # fmt: skip
def test_one_trace_serves_every_length_beyond_a_window(
    model_type: str, phase: Any, seq: int, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(f"window {model_type} {phase}")
    window = 8
    config = {**random_config(model_type, draw), "sliding_window": window}
    asked: set[str] = set()
    trace = TraceEngine.trace

    def counted(self: TraceEngine, request: TraceRequest, running: Running) -> CallTree:
        asked.add(request.model_dump_json(include={"hints", "plain"}))
        return trace(self, request, running)

    monkeypatch.setattr(TraceEngine, "trace", counted)
    lengths = [window + 1, window + 2, 2 * window - 1, 2 * window, 2 * window + 3, 2 * window + 4, 5 * window]
    for length in draw.sample(lengths, len(lengths)):
        batch, new, cache = draw.randint(2, 4), seq or length, length if seq else 0
        arguments = CostArguments(
            target=model_type, phase=phase, config=config,
            values={"batch_size": batch, "seq_len": new, **({"cache_len": cache} if seq else {})},
        )  # fmt: skip
        found = count_flops(arguments, context).evaluated
        assert found is not None
        walked = reference.walk(model_type, config, phase, batch, new, cache)
        assert (found.flops, found.memory_read, found.memory_write) == (walked.flops, walked.read, walked.write), length
    assert len(asked) <= 2, "the general one, and that beyond the window"


@pytest.mark.parametrize("model_type", MODELS)
def test_the_general_formula_of_the_default_config_holds_at_sizes_it_was_never_traced_at(
    model_type: str, context: ToolContext
) -> None:
    document = count_flops(CostArguments(target=model_type), context).document
    draw = random.Random(model_type)
    config = random_config(model_type, draw)
    config.pop("sliding_window", None)
    if model_type == "gemma3_text":
        config.pop("num_hidden_layers")  # two kinds of layers: their numbers hold for the traced depth
    real = reference.config_of(model_type, config)
    values = {v.name: getattr(real, v.config_key) for v in document.variables if v.config_key}
    values = {name: value for name, value in values.items() if isinstance(value, int)}
    values |= {"batch_size": 2, "seq_len": 7, "w_bytes": 2, "a_bytes": 2, "kv_bytes": 2}
    for variable in document.variables:
        if variable.name not in values:
            values[variable.name] = evaluate(variable.definition, values)
    expected = reference.matmul_flops(model_type, config, "prefill", 2, 7, 0)
    assert evaluate(document.totals.matmul_flops, values) == expected


@pytest.mark.parametrize("model_type", MODELS)
def test_every_standard_variable_of_the_config_stays_a_symbol(model_type: str, context: ToolContext) -> None:
    document = count_flops(CostArguments(target=model_type), context).document
    symbols = {v.name for v in document.variables if v.kind != "fixed"}
    wanted = {"batch_size", "seq_len", "hidden_size", "num_heads", "head_dim", "vocab_size", "num_layers"}
    if model_type != "gpt2":  # its n_inner is None by default: the width is 4 * hidden_size
        wanted.add("moe_intermediate_size" if model_type == "qwen3_moe" else "intermediate_size")
    if model_type in ("mixtral", "qwen3_moe"):
        wanted |= {"num_experts", "num_experts_per_tok"}
    if model_type == "gpt2":  # its heads always make up hidden_size
        wanted.discard("head_dim")
    if model_type == "gemma3_text":  # local and global layers alternate: their numbers are counted, not a formula
        wanted.discard("num_layers")
    assert wanted <= symbols
