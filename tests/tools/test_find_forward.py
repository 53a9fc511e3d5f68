"""`find_forward` as an agent calls it: real classes of the installed packages, and the sentences for bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import (
    AmbiguousNameError,
    ConfigError,
    InputError,
    PathRefusedError,
    SourceError,
    UnknownNameError,
    ValuesError,
)
from opscope_schemas.index import FindForwardResult
from opscope_tools.find_forward import FIND_FORWARD
from opscope_tools.running.runner import run_tool, shorten_to, to_json
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import DEFAULT_PACKAGES, Workspace, folder_repository, installed_repository

LLAMA = "transformers.models.llama.modeling_llama"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory, index_folder: Path) -> ToolContext:
    found = {name: installed_repository(name, package) for name, package in DEFAULT_PACKAGES.items()}
    repositories = {name: repository for name, repository in found.items() if repository is not None}
    return ToolContext(Workspace(repositories, tmp_path_factory.mktemp("out"), MemoryStore(index_folder)))


def reading(context: ToolContext, folder: Path) -> ToolContext:
    """The same, where configurations may also be read from `folder`."""
    return ToolContext(replace(context.workspace, config_places=(folder,)))


def ask(context: ToolContext, target: str, **more: object) -> FindForwardResult:
    result = run_tool(FIND_FORWARD, {"target": target, **more}, context)
    assert isinstance(result, FindForwardResult)
    return result


def text_of(context: ToolContext, result: FindForwardResult) -> list[str]:
    (root,) = {r.root for r in context.workspace.repositories.values() if (r.root / result.file).is_file()}
    return (root / result.file).read_text().split("\n")


@pytest.mark.parametrize(
    "target", ["LlamaAttention", f"{LLAMA}.LlamaAttention", "modeling_llama.LlamaAttention", "@line"]
)
def test_every_form_of_a_name_leads_to_the_same_forward(context: ToolContext, target: str) -> None:
    expected = ask(context, f"{LLAMA}.LlamaAttention")
    if target == "@line":
        target = f"{expected.file}:{expected.line + 3}"
    found = ask(context, target)
    assert found.model_dump(exclude={"target", "artifact"}) == expected.model_dump(exclude={"target", "artifact"})


def test_the_line_is_that_of_the_def_keyword_behind_its_decorators(context: ToolContext) -> None:
    found = ask(context, "llama")
    assert found.class_name == f"{LLAMA}.LlamaForCausalLM"
    assert found.decorators
    assert text_of(context, found)[found.line - 1].lstrip().startswith("def forward(")
    assert found.parameters[0].name == "self"
    assert ("use_cache", "bool | None", "None") in [(p.name, p.annotation, p.default) for p in found.parameters]


def test_lines_quote_the_source_they_point_at(context: ToolContext) -> None:
    found = ask(context, "LlamaMLP")
    source = text_of(context, found)
    for line in found.lines:
        quoted = " ".join(" ".join(source[line.line - 1 : line.end_line]).split())
        assert line.code in quoted


def test_an_inherited_forward_names_the_class_that_holds_it(context: ToolContext) -> None:
    found = ask(context, "LlamaForSequenceClassification")
    assert found.inherited
    assert found.defined_in == "transformers.modeling_layers.GenericForSequenceClassification"
    assert found.file == "transformers/modeling_layers.py"


def test_a_wrapped_forward_is_said_to_be_wrapped(context: ToolContext) -> None:
    found = ask(context, "LlamaDecoderLayer")
    assert found.file == "transformers/models/llama/modeling_llama.py"
    assert any("GradientCheckpointingLayer wraps the forward" in note for note in found.notes)


def test_lines_are_paged_and_the_result_says_so(context: ToolContext) -> None:
    whole = ask(context, "LlamaAttention")
    page = ask(context, "LlamaAttention", offset=2, limit=3)
    assert page.lines == whole.lines[2:5]
    assert page.line_count == len(whole.lines)
    assert page.shortened.startswith("Lines 3 to 5 of")
    with pytest.raises(ValuesError, match="none lies behind offset 999"):
        ask(context, "LlamaAttention", offset=999)


def test_shorter_forms_keep_every_line_until_the_last(context: ToolContext) -> None:
    whole = ask(context, "GPT2Attention")
    sizes = [len(to_json(whole)), *(len(to_json(rung(whole))) for rung in FIND_FORWARD.shorter)]
    assert sizes == sorted(sizes, reverse=True)
    shorter = shorten_to(FIND_FORWARD, whole, sizes[2] + 1)
    assert isinstance(shorter, FindForwardResult)
    assert [line.line for line in shorter.lines] == [line.line for line in whole.lines]
    assert shorter.shortened


def test_the_answer_reads_back_from_json(context: ToolContext) -> None:
    found = ask(context, "torch.nn.Linear")
    assert FindForwardResult.model_validate_json(to_json(found)) == found
    assert json.loads(to_json(found))["lines"][0]["callee"] == "torch.nn.functional.linear"
    assert [source.repository for source in found.sources] == ["pytorch"]


@pytest.mark.parametrize(
    ("target", "error", "sentence"),
    [
        ("LlamaAtention", UnknownNameError, "No class is called 'LlamaAtention'. Nearest names: LlamaAttention"),
        ("lama", UnknownNameError, "Nearest names: llama"),
        ("LlamaConfig", SourceError, "has no forward: none of the"),
        ("ModuleList", SourceError, "only provides a stand-in that raises"),
        ("torch.nn.functional.silu", SourceError, "is a function, not a class"),
        ("Linear", AmbiguousNameError, "Name one of: torch.nn.modules.linear.Linear"),
        ("transformers/no_such_file.py:3", PathRefusedError, "is not a Python file of a registered repository"),
        ("../../etc/passwd.py:1", PathRefusedError, "is not a Python file of a registered repository"),
        ("", InputError, "An empty name means no class. Give a class name"),
    ],
)
def test_bad_targets_get_one_sentence_that_says_what_to_do(
    context: ToolContext, target: str, error: type[InputError], sentence: str
) -> None:
    with pytest.raises(error) as caught:
        ask(context, target)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_repository_is_refused_with_the_known_ones(context: ToolContext) -> None:
    with pytest.raises(UnknownNameError, match="pytorch, transformers"):
        ask(context, "LlamaMLP", repo="nope")


def test_a_syntax_error_and_odd_bytes_are_noted(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_bytes(b"# \xe9\nclass A:\n    def forward(self, x):\n        return x + 1\n\ndef f(:\n")
    workspace = Workspace({"mine": folder_repository("mine", tmp_path)}, tmp_path, MemoryStore())
    found = ask(ToolContext(workspace), "A")
    assert found.lines[0].callee == "operator.add"
    assert any("syntax error at line 6" in note for note in found.notes)
    assert any("not UTF-8" in note for note in found.notes)


def test_the_description_is_short_enough_for_an_agent() -> None:
    assert len(FIND_FORWARD.description) < 900


def test_an_auto_class_answers_for_the_class_that_a_configuration_picks(context: ToolContext, tmp_path: Path) -> None:
    context = reading(context, tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"]}))
    for config in (str(file), str(tmp_path), {"model_type": "gpt_neox"}):
        found = ask(context, "AutoModelForCausalLM", config=config)
        assert found.class_name == "transformers.models.gpt_neox.modeling_gpt_neox.GPTNeoXForCausalLM"


def test_an_auto_class_alone_has_no_forward_and_asks_for_a_configuration(context: ToolContext, tmp_path: Path) -> None:
    context = reading(context, tmp_path)
    with pytest.raises(SourceError, match=r"picks one of \d+ model types' classes.*Give `config`"):
        ask(context, "AutoModelForCausalLM")
    with pytest.raises(ConfigError, match=r"none\.json does not exist"):
        ask(context, "AutoModelForCausalLM", config=str(tmp_path / "none.json"))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ConfigError, match="does not hold an object"):
        ask(context, "AutoModelForCausalLM", config=str(tmp_path / "list.json"))
