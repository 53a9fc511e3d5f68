"""The documents: they add up, they point at source, and they are what their schemas say."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
import transformers
from opscope_schemas.analysis import Kernel, ModelAnalysis, ModuleAnalysis
from opscope_schemas.formula import evaluate, holds
from opscope_schemas.notes import of_its_point
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.costing.long_formulas import LEFT_OUT
from opscope_tools.count_flops import COUNT_FLOPS, count_flops
from opscope_tools.expand_refs import EXPAND_REFS, ExpandArguments, expand_refs
from opscope_tools.inspect_model import InspectArguments, inspect_model
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.document import assignment
from sampled import sampled
from torch.utils._python_dispatch import TorchDispatchMode

POINT = {"batch_size": 2, "seq_len": 5, "cache_len": 9}
CASES = [("llama", "prefill"), ("mixtral", "decode"), ("gemma3_text", "prefill"), ("gpt2", "decode")]


def cost(kernel: Kernel, values: Mapping[str, int]) -> tuple[int, ...]:
    access = kernel.memory_access
    texts = (kernel.flops, kernel.matmul_flops, access.read, access.write, kernel.causal_saving)
    return tuple(evaluate(text, values) for text in texts)


def added(costs: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*costs, strict=True))


def leaves(kernels: Iterable[Kernel]) -> Iterable[Kernel]:
    for kernel in kernels:
        if kernel.kernels is None:
            yield kernel
        else:
            yield from leaves(kernel.kernels)


def levels_add_up(kernels: Iterable[Kernel], values: Mapping[str, int]) -> None:
    for kernel in kernels:
        if kernel.kernels:
            assert added(cost(k, values) for k in kernel.kernels) == cost(kernel, values), kernel.operation
            levels_add_up(kernel.kernels, values)


def point_of(document: ModuleAnalysis | ModelAnalysis) -> dict[str, int]:
    return {v.name: int(v.default) for v in document.variables if v.default is not None} | POINT


@pytest.mark.parametrize(("target", "phase"), sampled(CASES))
def test_kernels_add_up_to_totals_at_every_level_and_leaf_by_leaf(
    target: str, phase: Any, context: ToolContext
) -> None:
    document = expand_refs(ExpandArguments(target=target, phase=phase), context).document
    values = point_of(document)
    totals = tuple(
        evaluate(text, values)
        for text in (
            document.totals.flops, document.totals.matmul_flops, document.totals.memory_access.read,
            document.totals.memory_access.write, document.totals.causal_saving,
        )
    )  # fmt: skip
    assert added(cost(k, values) for k in document.kernels) == totals
    assert added(cost(k, values) for k in leaves(document.kernels)) == totals
    levels_add_up(document.kernels, values)
    assert sum(evaluate(g.flops, values) for g in document.per_class) == totals[0]
    assert sum(evaluate(g.memory_access.read, values) for g in document.per_operator) == totals[2]


@pytest.mark.parametrize(("target", "phase"), sampled(CASES))
def test_each_line_is_the_sum_of_its_kernels(target: str, phase: Any, context: ToolContext) -> None:
    document = count_flops(CostArguments(target=target, phase=phase), context).document
    values = point_of(document)
    for line in document.lines:
        kernels = [k for k in document.kernels if (k.file, k.line) == (line.file, line.line)]
        texts = (line.flops, line.matmul_flops, line.memory_access.read, line.memory_access.write)
        assert added(cost(k, values)[:4] for k in kernels) == tuple(evaluate(text, values) for text in texts)
    assert {(k.file, k.line) for k in document.kernels} == {(line.file, line.line) for line in document.lines}


@pytest.mark.parametrize(("target", "phase"), sampled(CASES))
def test_every_kernel_points_at_a_line_that_holds_its_code(target: str, phase: Any, context: ToolContext) -> None:
    workspace: Workspace = context.workspace

    def line_of(file: str, number: int) -> str:
        _, path = workspace.resolve_inside(file)
        return Path(path).read_text().splitlines()[number - 1].strip()

    def check(kernels: Iterable[Kernel]) -> None:
        for kernel in kernels:
            assert line_of(kernel.file, kernel.line) == kernel.code
            for step in kernel.via:
                assert line_of(step.file, step.line)
            check(kernel.kernels or ())

    document = expand_refs(ExpandArguments(target=target, phase=phase), context).document
    check(document.kernels)
    assert line_of(document.file, document.line).startswith("class ")
    assert line_of(document.forward_file, document.forward_line).startswith("def forward(")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_documents_are_valid_under_their_exported_schemas(phase: Any, context: ToolContext) -> None:
    module = count_flops(CostArguments(target="LlamaAttention", phase=phase), context).document
    model = expand_refs(ExpandArguments(target="LlamaModel", phase=phase), context).document
    for document in (module, model):
        schema = type(document).model_json_schema()
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(document.model_dump(mode="json"), schema)


def test_calls_of_submodules_are_references_and_operators_are_basic(context: ToolContext) -> None:
    document = count_flops(CostArguments(target="LlamaMLP"), context).document
    references = [k.operation for k in document.kernels if k.kernel_type == "composite"]
    assert [r.partition("(")[0] for r in references] == [
        "${{torch.nn.modules.linear.Linear}}",
        "${{transformers.activations.SiLUActivation}}",
        "${{torch.nn.modules.linear.Linear}}",
        "${{torch.nn.modules.linear.Linear}}",
    ]
    assert [k.operator for k in document.kernels if k.kernel_type == "basic"] == ["aten.mul"]


def test_layers_are_listed_once_and_carry_their_number(context: ToolContext) -> None:
    document = expand_refs(ExpandArguments(target="LlamaModel"), context).document
    layers = [k for k in document.kernels if k.class_name.endswith("LlamaDecoderLayer")]
    assert [(k.attribute, k.repeat) for k in layers] == [("layers.*", "{num_layers}")]


def test_a_stack_of_two_kinds_of_layers_is_folded_per_kind(context: ToolContext) -> None:
    document = expand_refs(ExpandArguments(target="gemma3_text", depth=1), context).document
    (model,) = [k for k in document.kernels if k.class_name.endswith("Gemma3TextModel")]
    layers = [k for k in model.kernels or () if k.class_name.endswith("DecoderLayer")]
    numbers = [sorted(evaluate(k.repeat, {"num_layers": depth}) for k in layers) for depth in (26, 6, 61)]
    assert numbers == [[4, 22], [1, 5], [10, 51]]  # every sixth attends globally


def test_leading_layers_of_another_kind_are_counted_by_the_field_that_says_how_many(context: ToolContext) -> None:
    document = expand_refs(ExpandArguments(target="deepseek_v3", depth=1), context).document
    (model,) = [k for k in document.kernels if k.class_name.endswith("DeepseekV3Model")]
    layers = [k for k in model.kernels or () if k.class_name.endswith("DecoderLayer")]
    assert [k.repeat for k in layers] == [
        "min({first_k_dense_replace}, {num_layers})",
        "{num_layers} - min({first_k_dense_replace}, {num_layers})",
    ]
    deeper = CostArguments.model_validate(
        {
            "target": "deepseek_v3",
            "config": {"num_hidden_layers": 7, "first_k_dense_replace": 2, "vocab_size": 99},
            "values": {"batch_size": 2, "seq_len": 5},
        }
    )
    other = count_flops(deeper, context)
    assert other.evaluated is not None
    general = count_flops(deeper.model_copy(update={"config": {"vocab_size": 99}}), context).document
    values = other.evaluated.values | {
        v.name: v.default for v in general.variables if v.default and v.name not in other.evaluated.values
    }
    assert (
        evaluate(general.totals.flops, values | {"num_layers": 7, "first_k_dense_replace": 2}) == other.evaluated.flops
    )


@pytest.mark.parametrize(
    ("target", "config", "alike"),
    [
        ("deepseek_v3", {"num_hidden_layers": 2, "vocab_size": 99}, 3),  # its first three layers are dense
        ("qwen2_moe", {"num_hidden_layers": 1, "decoder_sparse_step": 2}, 1),
        ("smollm3", {"num_hidden_layers": 3}, 3),  # every fourth layer goes without positions
    ],
)
def test_a_stack_that_changes_further_down_is_multiplied_no_further(
    target: str, config: dict[str, Any], alike: int, context: ToolContext
) -> None:
    document = count_flops(CostArguments(target=target, config=config), context).document
    known = {v.name: v.default for v in document.variables if v.default} | {"batch_size": 3, "seq_len": 11}
    grouped = {**known, "num_kv_heads": known["num_heads"] // 2}  # of which a document is where both are asked for

    def holds_at(depth: int) -> bool:
        points = (assignment(document.variables, {**p, "num_layers": depth}) for p in (known, grouped))
        return any(all(holds(condition, point) for condition in document.conditions) for point in points)

    inside = [depth for depth in range(1, 9) if holds_at(depth)]
    assert inside in ([config["num_hidden_layers"]], [*range(1, alike + 1)]), document.conditions


def test_a_size_that_cannot_be_a_symbol_is_fitted_and_run_again_where_it_is_asked_for(context: ToolContext) -> None:
    # its forward makes a list of {seq_len} numbers
    small = {"num_hidden_layers": 2, "hidden_size": 64, "dim_ff": 96, "vocab_size": 99}
    asked = CostArguments.model_validate(
        {"target": "cpmant", "config": small, "values": {"batch_size": 2, "seq_len": 37}}
    )
    result = count_flops(asked, context)
    assert {v.name: v.kind for v in result.document.variables}["seq_len"] == "fitted"
    assert "{seq_len}" in result.document.totals.matmul_flops
    assert any("fitted to runs at several sizes" in a for a in result.document.assumptions)
    assert any(map(of_its_point, result.notes))


def test_depth_limits_nesting_and_changes_no_total(context: ToolContext) -> None:
    whole = expand_refs(ExpandArguments(target="llama"), context).document
    flat = expand_refs(ExpandArguments(target="llama", depth=0), context).document
    assert flat.totals == whole.totals
    assert all(k.kernels is None for k in flat.kernels)


def test_parameters_equal_those_of_the_built_model(context: ToolContext) -> None:
    for target in ("llama", "mixtral", "gpt2"):
        document = count_flops(CostArguments(target=target), context).document
        tree = inspect_model(InspectArguments(model=target), context)
        if not tree.config.get("tie_word_embeddings"):
            assert evaluate(document.parameters, point_of(document)) == tree.parameters


def test_shorter_forms_shrink_and_keep_the_totals(context: ToolContext) -> None:
    module = count_flops(CostArguments(target="LlamaAttention"), context)
    sizes = [len(module.document.model_dump_json())]
    for rung in COUNT_FLOPS.shorter:
        short = rung(module)
        assert short.document.totals == module.document.totals
        assert short.shortened
        sizes.append(len(short.document.model_dump_json()))
    assert sizes == sorted(sizes, reverse=True)
    model = expand_refs(ExpandArguments(target="llama"), context)
    for step in EXPAND_REFS.shorter:
        smaller = step(model)
        if LEFT_OUT in smaller.shortened:
            continue  # formulas that are not there cannot add up
        values = point_of(smaller.document)
        assert added(cost(k, values) for k in leaves(smaller.document.kernels))[0] == evaluate(
            model.document.totals.flops, values
        )


@pytest.mark.parametrize(
    ("target", "phase", "points"),
    [
        ("gemma3_text", "decode", ({"seq_len": 1, "cache_len": 40}, {"seq_len": 1, "cache_len": 300})),
        ("gemma3_text", "prefill", ({"seq_len": 40, "cache_len": 0}, {"seq_len": 300, "cache_len": 0})),
        ("mistral", "decode", ({"seq_len": 1, "cache_len": 40}, {"seq_len": 1, "cache_len": 300})),
    ],
)
def test_where_a_documents_conditions_hold_its_formulas_are_those_of_a_document_made_there(
    context: ToolContext, target: str, phase: str, points: tuple[dict[str, int], ...]
) -> None:
    """On both sides of a sliding window, and whatever else the conditions are: one of them must tell the sides apart."""
    made = []
    for point in points:
        asked = {
            "target": target,
            "phase": phase,
            "config": {"sliding_window": 64},
            "values": {"batch_size": 2, **point},
        }
        made.append(expand_refs(ExpandArguments.model_validate(asked), context))
    for one in made:
        for other in made:
            assert other.evaluated is not None
            there = other.evaluated.values
            broken = [c for c in one.document.conditions if not holds(c, there)]
            if one is other:
                assert not broken
            if not broken:
                assert evaluate(one.document.totals.flops, there) == other.evaluated.flops
    assert any("sliding_window" in c for one in made for c in one.document.conditions)


def test_the_floor_is_never_above_what_eager_execution_moves(context: ToolContext) -> None:
    for target, phase in (("llama", "prefill"), ("llama", "decode"), ("mixtral", "decode")):
        document = count_flops(CostArguments.model_validate({"target": target, "phase": phase}), context).document
        values = point_of(document)
        assert evaluate(document.totals.floor.read, values) <= evaluate(document.totals.memory_access.read, values)
        assert evaluate(document.totals.floor.write, values) <= evaluate(document.totals.memory_access.write, values)


def test_the_floor_of_a_decode_step_is_weights_cache_and_logits(context: ToolContext) -> None:
    document = count_flops(CostArguments(target="llama", phase="decode"), context).document
    values = point_of(document) | {"num_kv_heads": 8}
    c, layers = POINT["cache_len"], values["num_layers"]
    kv = 2 * POINT["batch_size"] * values["num_kv_heads"] * values["head_dim"] * layers * 2  # k and v, bytes per token
    embedding = values["vocab_size"] * values["hidden_size"]
    weights = (evaluate(document.parameters, values) - embedding) * 2
    rows = POINT["batch_size"] * POINT["seq_len"]
    gathered = rows * values["hidden_size"] * 2 + rows * 8  # embedding rows and ids
    rotary = values["head_dim"] // 2 * 4  # inverse frequencies, a float32 buffer
    assert evaluate(document.totals.floor.read, values) == weights + kv * c + gathered + rotary
    logits = rows * values["vocab_size"] * 2
    assert evaluate(document.totals.floor.write, values) == logits + kv * POINT["seq_len"]


def test_decoding_is_one_token_unless_said_otherwise(context: ToolContext) -> None:
    def at(**values: int) -> Any:
        asked = {"target": "LlamaMLP", "phase": "decode", "values": values}
        return count_flops(CostArguments.model_validate(asked), context).evaluated

    assert at(batch_size=2, cache_len=9) == at(batch_size=2, cache_len=9, seq_len=1)
    assert at(batch_size=2, cache_len=9, seq_len=3).flops == 3 * at(batch_size=2, cache_len=9).flops


class _Reads(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """The innermost lines of a file at which values of tensors are asked for."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.lines: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            stack = [frame.lineno for frame in traceback.extract_stack() if frame.filename.endswith(self.file)]
            self.lines.add(stack[-1] or 0)
        return func(*args, **(kwargs or {}))


def test_lines_that_read_values_of_tensors_are_those_of_a_run_on_real_ones(context: ToolContext) -> None:
    """A check of how many placeholders there are, and the words for where it fails: both wait for the device."""
    file = "transformers/models/llava/modeling_llava.py"
    text = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 40, "vocab_size": 99}  # fmt: skip
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40, "image_size": 28, "patch_size": 14}  # fmt: skip
    config = {"text_config": {"model_type": "llama", **text}, "vision_config": {"model_type": "clip_vision_model", **vision}, "image_token_index": 7, "image_token_id": 7}  # fmt: skip
    asked = ExpandArguments.model_validate({"target": "llava", "config": config})
    found = expand_refs(asked, context).document
    model = transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(**config)).eval()
    with torch.no_grad(), _Reads(file) as real:
        model(torch.full((1, 4), 7), pixel_values=torch.zeros(1, 3, 28, 28))
    lines = {
        [site.line, *(each.line for each in site.via if each.file == file)][-1]
        for site in found.reads
        if site.file == file
    }
    assert lines == real.lines
    assert len(lines) == 2
