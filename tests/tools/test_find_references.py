"""`find_references` as an agent calls it, over transformers and torch."""

from __future__ import annotations

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import AmbiguousNameError, InputError, UnknownNameError
from opscope_schemas.references import FindReferencesResult
from opscope_tools.find_references import FIND_REFERENCES
from opscope_tools.running.runner import run_tool, shorten_to, to_json
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import DEFAULT_PACKAGES, Workspace, installed_repository

LLAMA = "transformers.models.llama.modeling_llama"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ToolContext:
    found = {name: installed_repository(name, package) for name, package in DEFAULT_PACKAGES.items()}
    repositories = {name: repository for name, repository in found.items() if repository is not None}
    return ToolContext(Workspace(repositories, tmp_path_factory.mktemp("out"), MemoryStore()))


def ask(context: ToolContext, target: str, **more: object) -> FindReferencesResult:
    result = run_tool(FIND_REFERENCES, {"target": target, **more}, context)
    assert isinstance(result, FindReferencesResult)
    return result


def test_a_class_is_built_in_the_layer_that_holds_it(context: ToolContext) -> None:
    found = ask(context, f"{LLAMA}.LlamaAttention", kind="instantiate")
    (place,) = found.references
    assert (place.within, place.verified) == (f"{LLAMA}.LlamaDecoderLayer.__init__", True)
    source = context.workspace.repositories["transformers"].root / place.file
    assert source.read_text().splitlines()[place.line - 1].strip() == place.code


def test_a_config_field_is_read_in_the_code_of_its_model(context: ToolContext) -> None:
    found = ask(context, "llama.num_key_value_heads", verified_only=True)
    assert (found.target_kind, found.file) == ("field", "transformers/models/llama/configuration_llama.py")
    assert {place.file.rpartition("/")[2] for place in found.references if place.kind == "read"} == {
        "configuration_llama.py", "modeling_llama.py",
    }  # fmt: skip
    assert all(place.verified for place in found.references)
    reads = next(count for count in found.counts if count.kind == "read")
    assert reads.unverified > 0  # `config` of unknown class: counted, not listed


def test_pages_join_without_gap_or_overlap(context: ToolContext) -> None:
    whole = ask(context, f"{LLAMA}.LlamaPreTrainedModel").references
    assert len(whole) >= 6
    pages = [ask(context, f"{LLAMA}.LlamaPreTrainedModel", offset=at, limit=2) for at in range(0, len(whole), 2)]
    assert tuple(place for page in pages for place in page.references) == whole
    assert "offset" in pages[0].shortened


def test_a_name_used_everywhere_is_answered_from_the_nearest_files_and_says_so(context: ToolContext) -> None:
    found = ask(context, "torch.nn.Module", limit=5)
    assert found.hits > found.hits_read > 0
    assert any("lower bounds" in note for note in found.notes)
    assert found.references[0].file == "torch/nn/modules/module.py"


def test_shorter_forms_shrink_and_say_so(context: ToolContext) -> None:
    whole = ask(context, "transformers.PreTrainedModel", limit=100)
    sizes = [len(to_json(whole)), *(len(to_json(rung(whole))) for rung in FIND_REFERENCES.shorter)]
    assert sizes == sorted(sizes, reverse=True)
    assert shorten_to(FIND_REFERENCES, whole, sizes[-1]).shortened


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"target": "LlamaAttentoin"}, UnknownNameError),
        ({"target": "apply_rotary_pos_emb"}, AmbiguousNameError),
        ({"target": "LlamaConfig.no_such_field"}, UnknownNameError),
        ({"target": "LlamaConfig", "repo": "nowhere"}, UnknownNameError),
        ({"target": "LlamaConfig", "kind": "mention"}, InputError),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(
    context: ToolContext, arguments: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        run_tool(FIND_REFERENCES, arguments, context)
    assert "\n" not in str(caught.value)


def test_the_description_is_short_enough_for_an_agent() -> None:
    assert len(FIND_REFERENCES.description) < 900
