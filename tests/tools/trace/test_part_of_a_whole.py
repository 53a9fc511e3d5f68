"""A model type that describes more than the class that is traced for it: the figures say what is in none of them."""

from __future__ import annotations

import importlib
import re
import sys

import pytest
import transformers
from opscope_tools.costing.arguments import CostArguments, model_spec
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.protocol import ALONE, TraceRequest
from opscope_tools.trace.worker import attempts
from opscope_tools.trace.worker.configs import alone
from transformers.models.auto import configuration_auto
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

COMPOSITE = sorted(
    name
    for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if name in configuration_auto.CONFIG_MAPPING_NAMES and getattr(configuration_auto.CONFIG_MAPPING[name], "sub_configs", {})
)  # fmt: skip


# every fifth: each imports a model
@pytest.mark.parametrize("model_type", COMPOSITE[::5])
def test_every_part_of_a_composite_type_is_told_from_the_whole(model_type: str) -> None:
    module = importlib.import_module(f"transformers.models.{configuration_auto.model_type_to_module_name(model_type)}")
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]
    model = getattr(module, name, None) or getattr(transformers, name)
    whole = configuration_auto.CONFIG_MAPPING[model_type]
    parts = whole.sub_configs.values()
    told = alone(model, model.config_class, model_type)
    assert bool(told) == (model.config_class is not whole and model.config_class in parts)
    if "name " in told:
        larger = getattr(transformers, told.partition("name ")[2].partition(" ")[0])
        assert larger.config_class is whole


def test_the_figures_of_a_part_say_so_where_the_type_was_asked_for_and_not_the_class(context: ToolContext) -> None:
    def notes(target: str) -> list[str]:
        asked = CostArguments.model_validate(
            {"target": target, "config": {"num_hidden_layers": 4}, "values": {"batch_size": 1, "seq_len": 64}}
        )
        return [note for note in count_flops(asked, context).notes if note.startswith(ALONE)]

    assert notes("emu3") == [
        "Of a whole emu3, Emu3ForCausalLM is the text part alone; the vq part is in no figure: "
        "name Emu3ForConditionalGeneration for all of it."
    ]
    assert notes("Emu3ForCausalLM") == []


@pytest.mark.parametrize(
    ("model_type", "computed", "unseen"),
    [("lfm2_vl", "intermediate_size", "modeling_lfm2"), ("gemma3", "vision_hidden_size", "modeling_siglip")],
)
def test_what_a_part_computes_of_a_size_keeps_its_name(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch, model_type: str, computed: str, unseen: str
) -> None:
    # the model of a part may be loaded only when the whole is built
    for name in [name for name in sys.modules if name.endswith(unseen)]:
        monkeypatch.delitem(sys.modules, name)
    spec = model_spec(context.workspace, model_type, None)
    found = attempts.trace(TraceRequest(model=spec, phase="prefill"), lambda _: None)
    assert computed in {variable.name for variable in found.variables if variable.kind == "symbol"}
    pinned = [
        guard for guard in found.guards if computed in guard and re.search(r"== \d+$", guard) and "%" not in guard
    ]
    assert not pinned
