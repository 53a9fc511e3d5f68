"""What a document says of depths and of positions holds for models that are built and run there, and not one step further.

A configuration may make layers of other kinds at other depths (its last layer attends globally, it wants one of a kind at
least), take a size outside of the layers from their number, or have a table of positions that ends.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from opscope_schemas.formula import evaluate, holds
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.document import assignment
from opscope_tools.trace.protocol import ModelSpec, TraceRequest
from opscope_tools.trace.worker import attempts, patches
from opscope_tools.trace.worker.session import quiet
from opscope_tools.trace.worker.stacks import Stacks
from opscope_tools.trace.worker.writing import written
from torch import nn
from transformers import AutoModel
from transformers.models.auto import configuration_auto

WIDE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 64,
    "pad_token_id": 0,
}
#: model type -> a small configuration of it, and a depth at which its document holds and one at which it does not
STACKS: dict[str, tuple[dict[str, Any], int, int]] = {
    "olmo_hybrid": (
        {**WIDE, "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}, 13, 3,
    ),
    "gemma3n_text": ({**WIDE, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64, "laurel_rank": 4}, 0, 13),
    "gemma4_text": ({**WIDE, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64, "global_head_dim": 16}, 0, 13),
    "gemma3_text": (WIDE, 13, 0),
    "qwen3_next": (
        {**WIDE, "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
         "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}, 13, 0,
    ),
}  # fmt: skip
DEPTHS = (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25, 61)


def parameters_built(model_type: str, config: dict[str, Any], depth: int) -> int | None:
    """Of a model that is built with so many layers, nothing shared; None where its config refuses."""
    made = configuration_auto.CONFIG_MAPPING[model_type]
    try:
        with torch.device("meta"):
            model = AutoModel.from_config(made(**{**config, "num_hidden_layers": depth}))
    except Exception:
        return None
    return int(sum(p.numel() for p in model.parameters()))


@pytest.mark.parametrize(
    "model_type",
    [
        pytest.param(kind, marks=pytest.mark.slow) if kind in ("qwen3_next", "olmo_hybrid", "gemma3n_text") else kind
        for kind in STACKS
    ],
)
def test_depths_inside_the_conditions_have_the_parameters_of_a_model_built_so(
    model_type: str, context: ToolContext
) -> None:
    config, inside, outside = STACKS[model_type]
    document = count_flops(CostArguments(target=model_type, config=config), context).document
    checked = []
    name = next((v.name for v in document.variables if v.config_key.endswith("num_hidden_layers")), "")
    given = {v.name: v.default for v in document.variables if v.default is not None}
    run = {"batch_size": 3, "seq_len": 16}
    for depth in DEPTHS:
        values = assignment(document.variables, {**given, **run, **({name: depth} if name else {})})
        if not all(holds(condition, values) for condition in document.conditions):
            continue
        built = parameters_built(model_type, config, depth)
        assert built is not None, f"{depth} layers cannot be built"
        head = document.parameters
        whole = evaluate(head, values)
        assert whole - built in (0, 32 * 64), (
            f"{depth} layers: {whole} for {built}"
        )  # a head that is no part of the model below
        checked.append(depth)
    assert inside == 0 or inside in checked
    assert outside == 0 or outside not in checked


def test_what_a_config_makes_of_its_depth_is_no_size_that_moves_by_itself(context: ToolContext) -> None:
    """The last layer with experts follows the depth where nobody gives it: no point inside the conditions has others."""
    config = {**WIDE, "moe_intermediate_size": 16, "moe_num_experts": 4, "moe_k": 2, "num_hidden_layers": 6}
    end = "moe_layer_end_index"
    document = count_flops(CostArguments(target="ernie4_5_moe", config=config), context).document
    free = {v.name for v in document.variables if v.kind != "derived"}
    given = {v.name: v.default for v in document.variables if v.default is not None}
    checked = 0
    for depth in DEPTHS:
        for last in (None, 5, 7, 30) if end in free else (None,):
            point = {**given, "batch_size": 3, "seq_len": 16, "num_layers": depth, **({end: last} if last else {})}
            values = assignment(document.variables, point)
            if all(holds(condition, values) for condition in document.conditions):
                built = parameters_built("ernie4_5_moe", {**config, **({end: last} if last else {})}, depth)
                assert built is not None
                assert evaluate(document.parameters, values) - built in (0, 32 * 64), (depth, last)
                checked += 1
    assert checked > 5
    named = count_flops(CostArguments(target="ernie4_5_moe", config={**config, end: 3}), context).document
    assert "{num_layers} == 6" in named.conditions


@pytest.mark.parametrize(
    ("model_type", "config", "name"),
    [
        ("gpt_bigcode", {"n_embd": 32, "n_head": 4, "n_inner": 48, "n_layer": 2, "vocab_size": 64, "n_positions": 24}, "n_positions"),
        ("opt", {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "word_embed_proj_dim": 32,
                 "vocab_size": 64, "max_position_embeddings": 24}, "max_position_embeddings"),
        ("roberta", {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
                     "max_position_embeddings": 24}, "max_position_embeddings"),
    ],
)  # fmt: skip
def test_positions_end_where_the_conditions_say(
    model_type: str, config: dict[str, Any], name: str, context: ToolContext
) -> None:
    document = count_flops(CostArguments(target=model_type, config=config), context).document
    given = {v.name: v.default for v in document.variables if v.default is not None}
    conditions = [c for c in document.conditions if f"{{{name}}}" in c and "{seq_len}" in c]
    assert conditions
    lengths = [n for n in range(2, 40) if all(holds(c, {**given, "seq_len": n, name: 24}) for c in conditions)]
    model = AutoModel.from_config(configuration_auto.CONFIG_MAPPING[model_type](**config)).eval()
    with torch.no_grad():
        model(torch.full((2, lengths[-1]), 5))
        with pytest.raises((IndexError, RuntimeError)):
            model(torch.full((2, lengths[-1] + 1), 5))


def test_a_layer_of_a_model_with_a_table_of_positions_has_no_condition_on_it(context: ToolContext) -> None:
    whole = count_flops(CostArguments(target="gpt2"), context).document
    layer = count_flops(CostArguments(target="GPT2MLP"), context).document
    assert "{seq_len} <= {n_positions}" in whole.conditions
    assert not any("n_positions" in condition for condition in layer.conditions)
    steps = count_flops(CostArguments(target="gpt2", phase="decode"), context).document
    assert "{seq_len} + {cache_len} <= {n_positions}" in steps.conditions


class TabledConfig(transformers.PreTrainedConfig):  # type: ignore[misc]  # transformers is untyped here
    model_type = "tabled"

    def __init__(self, hidden_size: int = 24, max_position_embeddings: int = 512, **others: Any) -> None:
        self.hidden_size, self.max_position_embeddings, self.vocab_size = hidden_size, max_position_embeddings, 100
        super().__init__(**others)


class Tabled(transformers.PreTrainedModel):  # type: ignore[misc]  # transformers is untyped here
    config_class = TabledConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.table = nn.Parameter(torch.ones(config.max_position_embeddings, config.hidden_size))
        self.post_init()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.words(input_ids) + self.rows(torch.arange(input_ids.shape[1], device=input_ids.device))


READ = {
    "embedding": lambda self, positions: nn.functional.embedding(positions, self.table),
    "index": lambda self, positions: self.table[positions],
    "index of two": lambda self, positions: self.table[positions[None]],
    "index_select": lambda self, positions: self.table.index_select(0, positions),
    # columns, of which a model of any length has enough
    "columns": lambda self, positions: self.table[:, positions % 24][:1].transpose(0, 1),
    # made for each position: there is no table that ends
    "computed": lambda self, positions: positions[:, None] * self.table[0],
}


@pytest.mark.parametrize("way", READ)
def test_however_a_table_of_positions_is_read_its_end_is_a_condition(way: str) -> None:
    model_class = type("Read", (Tabled,), {"rows": READ[way], "__module__": __name__})
    with quiet():
        asked = TraceRequest(model=ModelSpec(model_type="tabled"))
        session = attempts._ran(asked, model_class, TabledConfig, "all", attempts.Way())
        trace = written(session, Stacks(model_class, TabledConfig, asked.model))
    held = [
        n for n in (9, 39, 40, 41, 80)
        if all(holds(c, {**trace.point, "seq_len": n, "max_position_embeddings": 40}) for c in trace.guards)
    ]  # fmt: skip
    model, bears = model_class(TabledConfig(max_position_embeddings=40)), []
    for n in (9, 39, 40, 41, 80):
        try:
            model(torch.ones(2, n, dtype=torch.long))
        except (IndexError, RuntimeError):
            continue
        bears.append(n)
    assert held == bears
    assert bool(trace.ends) is (80 not in bears)


def test_initialisers_do_nothing_by_whatever_name_a_module_holds_them_and_other_functions_do() -> None:
    """Also in one block within another, and where a name was bound to something else, or added, since the module was looked through."""
    fill, own = torch.nn.init.zeros_, lambda tensor: tensor + 1
    module = ModuleType("mine")
    vars(module).update(by=fill, other=fill)
    sys.modules["mine"] = module
    try:
        for _ in range(2):
            with patches.no_initialisation(), patches.no_initialisation():
                assert fill not in (module.by, module.other)
            assert module.by is module.other is fill
        vars(module)["other"] = own
        with patches.no_initialisation():
            assert module.other is own
            assert module.by is not fill
        vars(module)["late"] = fill
        with patches.no_initialisation():
            assert module.late is not fill
        assert module.late is module.by is fill
    finally:
        del sys.modules["mine"]
