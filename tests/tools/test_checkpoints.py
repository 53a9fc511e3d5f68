"""Public names of checkpoints work without a network, say whose sizes they are, and build what was published."""

from __future__ import annotations

import json
from pathlib import Path

import opscope_tools.costing.checkpoints as table
import pytest
from opscope_schemas.errors import AmbiguousNameError, ConfigError, UnknownNameError
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.costing.checkpoints import checkpoint_named, checkpoints, example_of
from opscope_tools.costing.configured import checkpoint_of
from opscope_tools.count_flops import count_flops
from opscope_tools.expand_refs import ExpandArguments, expand_refs
from opscope_tools.extract_config.tool import ExtractConfigArguments
from opscope_tools.extract_config.tool import run as extract_config
from opscope_tools.find_forward import FindForwardArguments
from opscope_tools.find_forward import run as find_forward
from opscope_tools.inspect_model import InspectArguments, inspect_model
from opscope_tools.running.engines import index_of
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace_dataflow import DataflowArguments, trace_dataflow

#: weights as they are known from elsewhere: the total of the published safetensors, or the architecture's known count
KNOWN = {
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Meta-Llama-3.1-405B": 405_853_388_800,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    # 671,026,419,200 less the 58 * 256 corrections of expert scores, which transformers keeps as buffers
    "deepseek-ai/DeepSeek-V3": 671_026_419_200 - 58 * 256,
    "google/gemma-2-9b": 9_241_705_984,
    "microsoft/phi-4": 14_659_507_200,
    "openai/gpt-oss-20b": 20_914_757_184,
}
#: every twenty-fourth of the table; `make sweep-checkpoints` traces all
SAMPLE = sorted(json.loads(Path(table.__file__).with_name("checkpoints.json").read_text())["checkpoints"])[11::24]


def test_the_table_holds_sixty_checkpoints_each_with_source_and_date() -> None:
    assert len({found.sentence().partition(" ")[2] for found in checkpoints().values()}) >= 60
    for name, found in checkpoints().items():
        assert found.name == name
        assert found.source in found.sentence()
        assert found.date in found.sentence()
        assert found.model_type


def test_every_model_type_of_the_table_is_one_of_transformers(context: ToolContext) -> None:
    index = index_of(context.workspace)
    for model_type in {found.model_type for found in checkpoints().values()}:
        assert next(index.names.auto.of_model_type(model_type, index.names.trees(None)), None) is not None, model_type


def test_no_short_name_hides_a_model_type() -> None:
    for model_type in {found.model_type for found in checkpoints().values()}:
        assert checkpoint_named(model_type) is None
        assert checkpoint_named(model_type.replace("_", "-")) is None


@pytest.mark.parametrize("target", ["Qwen/Qwen3-30B-A3B", "qwen/qwen3-30b-a3b", "Qwen3-30B-A3B", " qwen3-30b-a3b "])
def test_a_name_counts_in_any_case_and_without_its_organisation(target: str) -> None:
    found = checkpoint_named(target)
    assert found is not None
    assert found.name == "Qwen/Qwen3-30B-A3B"


@pytest.mark.parametrize(
    "target", ["llama", "LlamaMLP", "transformers/models/llama", "models/llama.py", "a/b.json", "/x"]
)
def test_other_targets_are_no_checkpoints(target: str) -> None:
    assert checkpoint_named(target) is None


def test_a_misspelt_name_gets_the_nearest_ones(context: ToolContext) -> None:
    with pytest.raises(UnknownNameError) as found:
        inspect_model(InspectArguments(model="Qwen/Qwen3-30B-A3"), context)
    assert "Qwen/Qwen3-30B-A3B" in str(found.value)
    with pytest.raises(UnknownNameError) as found:
        inspect_model(InspectArguments(model="Qwen3-30B-A3"), context)
    assert "Qwen/Qwen3-30B-A3B" in str(found.value)


def test_a_short_name_that_two_bear_is_ambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    one = checkpoints()["Qwen/Qwen3-8B"]
    monkeypatch.setattr(table, "checkpoints", lambda: {"a/X-8B": one, "b/X-8B": one})
    with pytest.raises(AmbiguousNameError):
        checkpoint_named("x-8b")


def test_short_forms_are_written_out() -> None:
    gpt = checkpoints()["openai/gpt-oss-120b"].config
    assert gpt["layer_types"] == ["sliding_attention", "full_attention"] * 18
    spared = checkpoints()["Qwen/Qwen3-30B-A3B-FP8"].config["quantization_config"]["modules_to_not_convert"]
    assert len(spared) == 48 * 3 + 1
    assert "model.layers.47.mlp.gate" in spared


@pytest.mark.parametrize("name", KNOWN)
def test_the_published_number_of_weights_is_built(name: str, context: ToolContext) -> None:
    assert inspect_model(InspectArguments(model=name), context).parameters == KNOWN[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_traces_in_prefill_and_decode(name: str, context: ToolContext) -> None:
    weights = inspect_model(InspectArguments(model=name), context).parameters
    for phase, length in (("prefill", 512), ("decode", 1)):
        values = {"batch_size": 1, "seq_len": length, "cache_len": 511}
        found = count_flops(
            CostArguments.model_validate({"target": name, "phase": phase, "values": values}), context
        ).evaluated
        assert found is not None
        assert found.parameters == weights


def test_every_answer_says_which_checkpoint_it_is_of(context: ToolContext) -> None:
    name = "Qwen/Qwen3-0.6B"
    said = checkpoints()[name].sentence()
    assert said in inspect_model(InspectArguments(model=name), context).notes
    assert said in count_flops(CostArguments(target=name), context).document.assumptions
    assert said in expand_refs(ExpandArguments(target=name), context).document.assumptions
    assert said in trace_dataflow(DataflowArguments(target=name), context).document.assumptions
    assert said in extract_config(ExtractConfigArguments(target=name), context).notes


def test_every_answer_about_a_bare_model_type_says_that_it_is_of_no_checkpoint(context: ToolContext) -> None:
    def says(texts: tuple[str, ...]) -> bool:
        return any("need not be those of a checkpoint" in text and example_of("qwen3") in text for text in texts)

    assert says(inspect_model(InspectArguments(model="qwen3"), context).notes)
    assert says(count_flops(CostArguments(target="qwen3"), context).document.assumptions)
    assert says(expand_refs(ExpandArguments(target="qwen3"), context).document.assumptions)
    assert says(trace_dataflow(DataflowArguments(target="qwen3"), context).document.assumptions)
    assert says(extract_config(ExtractConfigArguments(target="qwen3"), context).notes)
    overridden = inspect_model(InspectArguments(model="qwen3", config={"num_hidden_layers": 2}), context).notes
    assert any("but for what was given" in note for note in overridden)


def test_a_checkpoint_takes_overrides_and_no_second_configuration(context: ToolContext) -> None:
    fewer = inspect_model(InspectArguments(model="Qwen/Qwen3-0.6B", config={"num_layers": 14}), context)
    assert fewer.config["num_hidden_layers"] == 14
    with pytest.raises(ConfigError, match="are configurations"):
        inspect_model(InspectArguments(model="Qwen/Qwen3-0.6B", config={"model_type": "qwen3"}), context)


def test_source_is_found_by_the_name_of_a_checkpoint(context: ToolContext) -> None:
    assert "Qwen3MoeForCausalLM" in find_forward(FindForwardArguments(target="Qwen/Qwen3-30B-A3B"), context).class_name


def test_sizes_are_told_to_be_a_checkpoints_where_each_that_it_states_is_its(context: ToolContext) -> None:
    """Of a class's defaults: any checkpoint of that class that states the same, and none where one size differs or few are known."""
    trees = index_of(context.workspace).names.trees(None)
    for name, found in checkpoints().items():
        known = index_of(context.workspace).names.auto.config_class(found.model_type, trees)
        sizes = {key: value for key, value in found.config.items() if type(value) is int}
        if known is None or found.note or len(sizes) < 4:
            continue
        class_name = known[1].qualified_name
        like = checkpoint_of(context.workspace, class_name, sizes)
        assert like is not None, name
        assert like.model_type == found.model_type
        assert all(like.config.get(key, value) == value for key, value in sizes.items()), name
        first = next(iter(sizes))
        other = checkpoint_of(context.workspace, class_name, {**sizes, first: sizes[first] + 1})
        assert other is None, name
        assert checkpoint_of(context.workspace, class_name, dict([*sizes.items()][:3])) is None
        assert checkpoint_of(context.workspace, f"{class_name}Of", sizes) is None
