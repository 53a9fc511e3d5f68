"""`resolve_class` as an agent calls it."""

from __future__ import annotations

from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import InputError, PathRefusedError, SourceError
from opscope_schemas.index import ResolveClassResult
from opscope_tools.resolve_class.tool import RESOLVE_CLASS
from opscope_tools.running.runner import run_tool, shorten_to, to_json
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import DEFAULT_PACKAGES, Workspace, installed_repository

LLAMA = "transformers.models.llama.modeling_llama"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory, index_folder: Path) -> ToolContext:
    found = {name: installed_repository(name, package) for name, package in DEFAULT_PACKAGES.items()}
    repositories = {name: repository for name, repository in found.items() if repository is not None}
    return ToolContext(Workspace(repositories, tmp_path_factory.mktemp("out"), MemoryStore(index_folder)))


def ask(context: ToolContext, name: str, **more: object) -> ResolveClassResult:
    result = run_tool(RESOLVE_CLASS, {"name": name, **more}, context)
    assert isinstance(result, ResolveClassResult)
    return result


def test_a_model_type_gives_its_causal_lm_class_with_its_parts(context: ToolContext) -> None:
    found = ask(context, "llama")
    (match,) = found.matches
    assert found.model_type == "llama"
    assert match.qualified_name == f"{LLAMA}.LlamaForCausalLM"
    assert match.bases == (f"{LLAMA}.LlamaPreTrainedModel", "transformers.generation.utils.GenerationMixin")
    assert match.mro[0] == match.qualified_name
    assert match.mro[-1] == "object"
    assert "torch.nn.modules.module.Module" in match.mro
    assert [(m.attribute, m.class_name) for m in match.submodules] == [
        ("model", f"{LLAMA}.LlamaModel"),
        ("lm_head", "torch.nn.modules.linear.Linear"),
    ]
    assert match.submodules[1].arguments == "config.hidden_size, config.vocab_size, bias=False"
    assert match.exported_as[0] == "transformers.LlamaForCausalLM"
    assert match.forward is not None
    assert match.forward.defined_in == match.qualified_name


def test_a_class_picked_by_the_configuration_is_given_with_its_expression(context: ToolContext) -> None:
    (match,) = ask(context, "LlamaMLP").matches
    act = next(m for m in match.submodules if m.attribute == "act_fn")
    assert (act.class_name, act.dispatch) == ("transformers.activations.SiLUActivation", "ACT2FN[config.hidden_act]")
    assert act.at_default is True


def test_alternatives_say_which_one_the_default_configuration_takes(context: ToolContext) -> None:
    (match,) = ask(context, "transformers.models.wav2vec2.modeling_wav2vec2.Wav2Vec2Model").matches
    encoders = {
        m.class_name.rpartition(".")[2]: (m.condition, m.at_default)
        for m in match.submodules
        if m.attribute == "encoder"
    }
    assert encoders == {
        "Wav2Vec2EncoderStableLayerNorm": ("config.do_stable_layer_norm", False),
        "Wav2Vec2Encoder": ("not (config.do_stable_layer_norm)", True),
    }


def test_containers_show_the_loop_that_fills_them(context: ToolContext) -> None:
    (match,) = ask(context, f"{LLAMA}.LlamaModel").matches
    parts = {m.attribute: m for m in match.submodules}
    assert parts["layers"].class_name == "torch.nn.modules.container.ModuleList"
    assert parts["layers.*"].class_name == f"{LLAMA}.LlamaDecoderLayer"
    assert parts["layers.*"].repeat == "for layer_idx in range(config.num_hidden_layers)"


def test_an_ambiguous_name_lists_its_candidates_page_by_page(context: ToolContext) -> None:
    first = ask(context, "Linear", limit=2)
    second = ask(context, "Linear", limit=2, offset=2)
    assert first.matches[0].qualified_name == "torch.nn.modules.linear.Linear"
    assert first.match_count == second.match_count > 4
    assert not {m.qualified_name for m in first.matches} & {m.qualified_name for m in second.matches}
    assert "offset" in first.shortened


def test_stand_ins_and_templates_come_after_what_runs(context: ToolContext) -> None:
    files = [match.file for match in ask(context, "PreTrainedModel").matches]
    assert files == ["transformers/modeling_utils.py", "transformers/utils/dummy_pt_objects.py"]
    found = ask(context, "GPTNeoXAttention")
    assert found.matches[0].file == "transformers/models/gpt_neox/modeling_gpt_neox.py"
    assert found.matches[0].generated_from == "transformers/models/gpt_neox/modular_gpt_neox.py"


def test_a_line_inside_a_method_names_class_and_method(context: ToolContext) -> None:
    (match,) = ask(context, f"{LLAMA}.LlamaRMSNorm").matches
    assert match.forward is not None
    (at_line,) = ask(context, f"{match.file}:{match.forward.line + 1}").matches
    assert (at_line.qualified_name, at_line.method) == (f"{LLAMA}.LlamaRMSNorm", "forward")


def test_subclasses_of_a_base_of_everything_are_verified_counted_and_paged(context: ToolContext) -> None:
    (match,) = ask(context, "torch.nn.Module", limit=1, user_limit=0).matches
    assert len(match.subclasses) == 50
    assert match.descendant_count > match.subclass_count > 1000
    assert match.subclasses_verified
    assert [place.qualified_name for place in match.subclass_places] == list(match.subclasses)
    (second,) = ask(context, "torch.nn.Module", limit=1, user_limit=0, subclass_offset=49, subclass_limit=2).matches
    assert second.subclasses[0] == match.subclasses[49]


def test_a_class_says_who_derives_from_it_and_who_builds_it(context: ToolContext) -> None:
    (match,) = ask(context, f"{LLAMA}.LlamaPreTrainedModel").matches
    line = next(place.line for place in match.subclass_places if place.qualified_name == f"{LLAMA}.LlamaModel")
    source = context.workspace.repositories["transformers"].root / match.file
    assert source.read_text().splitlines()[line - 1] == "class LlamaModel(LlamaPreTrainedModel):"
    (attention,) = ask(context, f"{LLAMA}.LlamaAttention").matches
    assert [(user.kind, user.within) for user in attention.users] == [
        ("instantiate", f"{LLAMA}.LlamaDecoderLayer.__init__")
    ]
    assert attention.users_complete


def test_an_unknown_name_has_no_match_but_suggestions(context: ToolContext) -> None:
    found = ask(context, "LlamaForCausualLM")
    assert found.matches == ()
    assert found.suggestions[0] == "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", InputError),
        ("torch.nn.functional.silu", SourceError),
        ("transformers/models/llama/modeling_llama.py:2", SourceError),
        ("/etc/hosts.py:1", PathRefusedError),
    ],
)
def test_what_cannot_be_a_class_is_refused_in_a_sentence(
    context: ToolContext, name: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        ask(context, name)
    assert "\n" not in str(caught.value)


def test_shorter_forms_shrink_and_say_so(context: ToolContext) -> None:
    whole = ask(context, "Linear", limit=8)
    sizes = [len(to_json(whole)), *(len(to_json(rung(whole))) for rung in RESOLVE_CLASS.shorter)]
    assert sizes == sorted(sizes, reverse=True)
    for size in sizes[1:]:
        shorter = shorten_to(RESOLVE_CLASS, whole, size)
        assert shorter.shortened
        assert isinstance(shorter, ResolveClassResult)
        assert len(shorter.matches) == 8


def test_the_description_is_short_enough_for_an_agent() -> None:
    assert len(RESOLVE_CLASS.description) < 900


def test_an_auto_class_with_a_configuration_is_the_class_it_picks(context: ToolContext) -> None:
    picked = ask(context, "AutoModelForCausalLM", config={"model_type": "llama"})
    assert picked.model_type == "llama"
    assert [match.qualified_name for match in picked.matches] == [
        "transformers.models.llama.modeling_llama.LlamaForCausalLM"
    ]
    alone = ask(context, "AutoModelForCausalLM")
    assert alone.matches[0].qualified_name == "transformers.models.auto.modeling_auto.AutoModelForCausalLM"
    assert any("Give `config`" in note for note in alone.notes)
