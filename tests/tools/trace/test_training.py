"""A training step against real ones: products of forward and backward, and the memory that autograd keeps in between."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import trace_reference as reference
import training_reference as training
from inside_points import inside
from opscope_schemas.analysis import ModuleAnalysis
from opscope_schemas.errors import OpscopeError
from opscope_schemas.formula import Rational, evaluate, whole_bytes
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline
from opscope_tools.expand_refs import expand_refs
from opscope_tools.hardware.devices import shipped
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace import operators
from opscope_tools.trace.document import assignment
from random_configs import random_config
from sampled import sampled

MODELS = "llama gpt2 qwen3_moe bert opt".split()
#: fused attention that drops has no kernel on the CPU, where the references run
_NOT_DROPPED = ("attn_pdrop", "attention_dropout", "attention_probs_dropout_prob")


def settings(model_type: str) -> dict[str, Any]:
    """What no point changes: attention drops nothing, and the last token's number asks for no large vocabulary."""
    known = vars(reference.config_of(model_type, {}))
    chosen = {**dict.fromkeys(_NOT_DROPPED, 0.0), "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    return {name: value for name, value in chosen.items() if name in known}


def real_step(model_type: str, config: dict[str, Any], batch: int, seq: int) -> training.Step:
    """A decoder's step in bfloat16 on the CPU, on labels for every token."""
    model = reference.build(reference._decoder(model_type, config, "sdpa", None), "cpu")
    ids = torch.ones((batch, seq), dtype=torch.int64)
    return training.step(model, lambda: model(input_ids=ids, labels=ids, use_cache=False).loss)


def said(document: ModuleAnalysis, values: dict[str, Rational]) -> tuple[int, int, int]:
    """Products on the way there and in all, bytes saved, as the formulas say."""
    found = document.training
    assert found is not None
    there, back = evaluate(found.forward.matmul_flops, values), evaluate(found.backward.matmul_flops, values)
    assert there + back == evaluate(document.totals.matmul_flops, values)
    return there, there + back, whole_bytes(found.saved_activations, values)


@pytest.mark.parametrize("model_type", sampled(MODELS))
def test_the_general_formulas_equal_real_steps_at_random_points_inside_their_conditions(
    model_type: str, context: ToolContext
) -> None:
    arguments = CostArguments(target=model_type, phase="train", config=settings(model_type))
    document = count_flops(arguments, context).document
    assert document.not_counted == ()
    draw, met = random.Random(f"{model_type} train"), 0
    for _ in range(40):
        config = {**random_config(model_type, draw), **settings(model_type)}
        config.pop("sliding_window", None)
        batch, seq = draw.randint(2, 4), draw.randint(2, 9)
        real = reference.config_of(model_type, config)
        given = {v.name: getattr(real, v.config_key) for v in document.variables if v.config_key}
        given = {name: value for name, value in given.items() if type(value) is int}
        values = assignment(document.variables, {**given, "batch_size": batch, "seq_len": seq})
        if not inside(document, values):
            continue
        step = real_step(model_type, config, batch, seq)
        assert said(document, values) == (step.forward, step.products, step.saved), (config, batch, seq)
        met += 1
        if met == 3:
            return
    pytest.fail(f"of 40 points {met} lay inside the conditions")


@pytest.mark.parametrize("model_type", sampled(["mixtral", "gemma3_text"]))
def test_a_point_that_is_asked_for_equals_a_real_step(model_type: str, context: ToolContext) -> None:
    draw = random.Random(model_type)
    config = {**random_config(model_type, draw), **settings(model_type), "sliding_window": 64}
    arguments = CostArguments(
        target=model_type, phase="train", config=config, values={"batch_size": 1, "seq_len": 5}
    )  # fmt: skip
    found, step = count_flops(arguments, context).evaluated, real_step(model_type, config, 1, 5)
    assert found is not None
    assert (found.matmul_flops, found.saved_activations) == (step.products, step.saved)


def test_a_vision_model_without_a_loss_is_trained_on_the_sum_of_what_it_gives(context: ToolContext) -> None:
    target = "transformers.models.vit.modeling_vit.ViTModel"
    config = {
        "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "num_hidden_layers": 3, "image_size": 32,
        "patch_size": 8, "num_channels": 3,
    }  # fmt: skip
    arguments = CostArguments(target="ViTModel", phase="train", config=config, values={"batch_size": 3})
    result = count_flops(arguments, context)
    model = reference.build(reference.Recipe(target, reference.config_of("vit", config)), "cpu")
    images = torch.ones((3, 3, 32, 32), dtype=torch.bfloat16)
    step = training.step(model, lambda: list(model(pixel_values=images).to_tuple()))
    assert result.evaluated is not None
    assert result.document.not_counted == ()
    assert (result.evaluated.matmul_flops, result.evaluated.saved_activations) == (step.products, step.saved)


def test_layers_that_share_a_tensor_with_a_gradient_run_one_by_one(context: ToolContext) -> None:
    """A decoder's layers all read the encoder's result, whose gradients are added up."""
    config = {
        "d_model": 24, "encoder_attention_heads": 3, "decoder_attention_heads": 2, "encoder_ffn_dim": 40, "decoder_ffn_dim": 56,
        "encoder_layers": 2, "decoder_layers": 3, "vocab_size": 99, "attention_dropout": 0.0, "pad_token_id": 1,
    }  # fmt: skip
    arguments = CostArguments(
        target="bart", phase="train", config=config, values={"batch_size": 2, "seq_len": 5, "encoder_seq_len": 7}
    )  # fmt: skip
    found = count_flops(arguments, context).evaluated
    target = "transformers.models.bart.modeling_bart.BartForConditionalGeneration"
    model = reference.build(reference.Recipe(target, reference.config_of("bart", config)), "cpu")
    read, written = (torch.ones((2, length), dtype=torch.int64) * 5 for length in (7, 5))
    step = training.step(
        model, lambda: model(input_ids=read, decoder_input_ids=written, labels=written.clone(), use_cache=False).loss
    )
    assert found is not None
    assert (found.matmul_flops, found.saved_activations) == (step.products, step.saved)


# ---------------------------------------------------------------- somebody's module

SOURCE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        h = self.norm(x)
        h = torch.relu(self.up(h))
        h = self.down(h)
        return x + self.drop(h)


class Net(nn.Module):
    def __init__(self, width: int = 24, inner: int = 40, depth: int = 3, classes: int = 10):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, inner) for _ in range(depth)])
        self.mix = nn.Parameter(torch.ones(width, width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        x = x @ self.mix
        return self.head(x)
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolContext]:
    folder = tmp_path_factory.mktemp("mine")
    (folder / "nets").mkdir()
    (folder / "nets/__init__.py").write_text("")
    (folder / "nets/net.py").write_text(SOURCE)
    cache = tmp_path_factory.mktemp("cache")
    workspace = Workspace.create(cache_folder=cache, repositories=[("mine", folder)], trusted=["mine"])
    yield ToolContext(workspace)
    close_engines(workspace)
    workspace.store.close()


def net(width: int, inner: int, depth: int) -> Any:
    names: dict[str, Any] = {}
    exec(SOURCE, names)  # the text above
    return names["Net"](width, inner, depth).to(torch.bfloat16)


def test_somebodys_module_equals_a_real_step(mine: ToolContext) -> None:
    draw = random.Random(0)
    for _ in range(3):
        width, inner, depth, batch = draw.randint(5, 40), draw.randint(5, 40), draw.randint(1, 4), draw.randint(2, 9)
        arguments = CostArguments(
            target="nets.net.Net", phase="train", config={"width": width, "inner": inner, "depth": depth},
            inputs={"x": ["batch_size", width]}, values={"batch_size": batch},
        )  # fmt: skip
        result = count_flops(arguments, mine)
        model = net(width, inner, depth)
        given = torch.ones((batch, width), dtype=torch.bfloat16)
        step = training.step(model, lambda model=model, given=given: [model(given)])  # type: ignore[misc]  # mypy infers no type of a lambda's defaults
        assert result.evaluated is not None
        assert result.document.not_counted == ()
        assert (result.evaluated.matmul_flops, result.evaluated.saved_activations) == (step.products, step.saved)


def test_what_runs_backwards_stands_at_the_line_of_the_forward_that_it_belongs_to(mine: ToolContext) -> None:
    arguments = CostArguments(
        target="nets.net.Net", phase="train", inputs={"x": ["batch_size", 24]}, values={"batch_size": 4}
    )  # fmt: skip
    result = count_flops(arguments, mine)
    step = result.document.training
    assert step is not None
    assert result.evaluated is not None
    values = result.evaluated.values
    at = {SOURCE.splitlines()[row.line - 1].strip(): row for row in step.lines}
    mixed = 2 * 4 * 24 * 24
    row = at["x = x @ self.mix"]
    assert (evaluate(row.forward, values), evaluate(row.backward, values)) == (mixed, 2 * mixed)
    assert evaluate(row.saved, values) == 4 * 24 * 2  # x; the parameter is no activation
    products = 2 * 4 * 24 * 10
    row = at["return self.head(x)"]
    assert evaluate(row.forward, values) == products + 4 * 10  # and the bias
    assert evaluate(row.backward, values) == 2 * products + 4 * 10  # and the sum of its gradients
    total = sum(evaluate(row.forward, values) + evaluate(row.backward, values) for row in step.lines)
    assert total == result.evaluated.flops
    assert sum(evaluate(row.saved, values) for row in step.lines) == result.evaluated.saved_activations


# ---------------------------------------------------------------- memory beside it, recomputation, the estimate


def test_layers_that_run_again_cost_what_checkpointed_ones_do(context: ToolContext) -> None:
    config = random_config("llama", random.Random(5)) | {"num_hidden_layers": 3}
    arguments = CostArguments(target="llama", phase="train", config=config, values={"batch_size": 2, "seq_len": 6})
    result = count_flops(arguments, context)
    step = result.document.training
    assert step is not None
    assert step.recomputation is not None
    assert result.evaluated is not None
    values = result.evaluated.values
    model = reference.build(reference._decoder("llama", config, "sdpa", None), "cpu")
    model.activation_checkpointing_enable({"use_reentrant": False})
    ids = torch.ones((2, 6), dtype=torch.int64)
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        real = training.step(model, lambda: model(input_ids=ids, labels=ids, use_cache=False).loss)
    assert evaluate(step.recomputation.matmul_flops, values) == real.products
    plain = result.evaluated.saved_activations
    kept, one = (
        whole_bytes(t, values) for t in (step.recomputation.saved_activations, step.recomputation.largest_layer)
    )
    inputs = 3 * 2 * 6 * config["hidden_size"] * 2
    assert plain is not None
    assert kept == plain - 3 * one + inputs


def test_gradients_and_optimizer_state_are_so_many_bytes_for_each_weight(context: ToolContext) -> None:
    document = count_flops(CostArguments(target="llama", phase="train"), context).document
    assert document.training is not None
    draw = random.Random(1)
    values: dict[str, Rational] = {v.name: draw.randint(1, 50) for v in document.variables}
    values["w_bytes"] = 2
    weights = evaluate(document.parameters, values)
    assert evaluate(document.training.gradients, values) == 2 * weights
    kept = {one.name: evaluate(one.state, values) for one in document.training.optimizers}
    assert kept == {"adamw": 12 * weights, "sgd_momentum": 8 * weights, "sgd": 4 * weights}


def test_an_estimate_of_training_is_bound_by_its_kernels_and_its_memory(context: ToolContext) -> None:
    values = {"batch_size": 2, "seq_len": 512}
    arguments = RooflineArguments(target="qwen3", hardware="h100_sxm", phase="train", values=values)
    found = estimate_roofline(arguments, context)
    whole = count_flops(CostArguments(target="qwen3", phase="train", values=values), context)
    assert whole.evaluated is not None
    memory = found.memory
    assert memory.training is not None
    assert memory.training.recomputed is not None
    weights = whole.evaluated.parameters
    assert (memory.training.gradient_bytes, memory.training.optimizer_bytes) == (2 * weights, 12 * weights)
    assert memory.activation_bytes == whole.evaluated.saved_activations
    needed = memory.weights_bytes + 14 * weights + (memory.activation_bytes or 0)
    assert memory.fits == (needed <= memory.usable_bytes)
    assert memory.training.recomputed.saved_bytes < (memory.activation_bytes or 0)
    assert found.totals.calibrated_seconds is None
    assert found.totals.bound_seconds == pytest.approx(sum(o.bound_seconds for o in found.operators))
    assert found.totals.bound_seconds >= whole.evaluated.matmul_flops * 0.9 / found.hardware.peak_flops
    update = next(o for o in found.operators if o.operation == "adamw")
    assert update.bytes == 2 * (12 + 2) * weights


@pytest.mark.parametrize("zero", sampled([0, 1, 2, 3], 3))
def test_data_parallel_ranks_take_a_part_of_the_batch_and_share_what_zero_says(zero: int, context: ToolContext) -> None:
    """Rajbhandari et al. 2020, arXiv:1910.02054: stages share 12, then 2, then 2 bytes a parameter, and move two or three times the weights."""
    ranks, config = 4, {"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 1000}
    asked = {"target": "llama", "hardware": "h100_sxm", "phase": "train", "config": config}
    spread = {"values": {"batch_size": 8, "seq_len": 64}, "parallel": {"dp": ranks, "zero": zero}}
    found = estimate_roofline(RooflineArguments.model_validate({**asked, **spread}), context)
    alone = estimate_roofline(
        RooflineArguments.model_validate({**asked, "values": {"batch_size": 2, "seq_len": 64}}), context
    )
    weights = alone.memory.weights_bytes // 2
    memory = found.memory.training
    assert memory is not None
    assert found.memory.weights_bytes == 2 * weights / (ranks if zero == 3 else 1)
    assert memory.gradient_bytes == 2 * weights / (ranks if zero >= 2 else 1)
    assert memory.optimizer_bytes == 12 * weights / (ranks if zero else 1)
    assert found.memory.activation_bytes == alone.memory.activation_bytes
    assert found.memory.largest_batch is not None
    assert found.memory.largest_batch >= ranks * (alone.memory.largest_batch or 0)
    own = [o for o in found.operators if o.limited_by != "link" and o.operation != "adamw"]
    assert own == [o for o in alone.operators if o.operation != "adamw"]
    link = shipped()["h100_sxm"].link(ranks)
    assert link is not None
    exchanged = sum(o.bound_seconds for o in found.operators if o.limited_by == "link")
    times = {0: 1, 1: 2, 2: 2, 3: 3}[zero] * (
        1 if zero == 0 else (ranks - 1) / ranks
    )  # each element of a sum holds what others have
    assert exchanged == pytest.approx(times * 2 * weights / link.bytes_per_second)
    assert found.values["batch_size"] == 8
    with pytest.raises(OpscopeError, match="data-parallel ranks alone"):
        estimate_roofline(RooflineArguments.model_validate({**asked, "parallel": {"dp": 2, "tp": 2}}), context)


def test_a_step_is_expanded_with_what_runs_backwards_in_every_module(context: ToolContext) -> None:
    config = random_config("llama", random.Random(9))
    arguments = {"target": "llama", "phase": "train", "config": config, "values": {"batch_size": 2, "seq_len": 6}}
    whole, parts = (
        count_flops(CostArguments.model_validate(arguments), context),
        expand_refs(_expanded(arguments), context),
    )
    assert whole.evaluated == parts.evaluated
    backward = [g for g in parts.document.per_operator if g.name == "opscope.sdpa_backward"]
    assert len(backward) == 1


@pytest.mark.parametrize("model_type", sampled(["llama", "gpt2"]))
def test_a_step_issues_the_operators_of_a_real_one_and_no_others(model_type: str, context: ToolContext) -> None:
    """Sums of gradients, copies and zeros too: of layers that were folded as of those that ran."""
    config = random_config(model_type, random.Random(3)) | settings(model_type) | {"num_hidden_layers": 3}
    given = {"target": model_type, "phase": "train", "config": config, "values": {"batch_size": 2, "seq_len": 6}}
    result = expand_refs(_expanded(given), context)
    assert result.evaluated is not None
    mine = {g.name: evaluate(g.count, result.evaluated.values) for g in result.document.per_operator}
    model = reference.build(reference._decoder(model_type, config, "sdpa", None), "cpu")
    ids, labels = (torch.ones((2, 6), dtype=torch.int64) for _ in range(2))
    real = training.issued(model, lambda: model(input_ids=ids, labels=labels, use_cache=False).loss)
    moving = {name for name in real if (rule := operators.free(name)) is None or not rule.free}
    assert mine == {name: real[name] for name in moving}


def _expanded(arguments: dict[str, Any]) -> Any:
    from opscope_tools.expand_refs import EXPAND_REFS

    return EXPAND_REFS.arguments.model_validate(arguments)


@pytest.mark.parametrize(
    ("given", "words"),
    [({"logits": "last"}, "every position"), ({"view": "serving"}, "eagerly")],
)
def test_what_is_no_training_is_refused(given: dict[str, Any], words: str, context: ToolContext) -> None:
    with pytest.raises(OpscopeError, match=words):
        count_flops(CostArguments(target="llama", phase="train", **given), context)
