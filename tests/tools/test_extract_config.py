"""`extract_config` as an agent calls it, against objects that transformers and Python themselves make."""

from __future__ import annotations

import ast
import json
import re
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest
from config_comparison import Comparison, compare, live
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import InputError, PathRefusedError, UnknownNameError
from opscope_schemas.extracted_config import Check, ExtractConfigResult, Hyperparameter
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING, TilingArguments
from opscope_tools.extract_config.tool import EXTRACT_CONFIG
from opscope_tools.running.runner import PAGE, run_tool, to_json
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import DEFAULT_PACKAGES, Workspace, folder_repository, installed_repository

CORPUS = Path(__file__).parents[1] / "corpus"
#: one of each kind: aliases, derived sizes, experts, hybrids, encoders, composites, configurations within configurations
TYPES = (
    "llama mixtral deepseek_v3 qwen3_next mamba2 whisper gpt2 t5 vit clip llava gemma3 gpt_oss bamba dbrx bert musicgen "
    "detr rag gemma3n kosmos-2 swin clip_text_model"
).split()


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory, index_folder: Path) -> ToolContext:
    found = {name: installed_repository(name, package) for name, package in DEFAULT_PACKAGES.items()}
    repositories = {name: repository for name, repository in found.items() if repository is not None}
    repositories["shop"] = folder_repository("shop", CORPUS / "kernels")
    repositories["settings"] = folder_repository("settings", CORPUS / "settings")
    return ToolContext(Workspace(repositories, tmp_path_factory.mktemp("out"), MemoryStore(index_folder)))


def ask(context: ToolContext, target: str, **more: object) -> ExtractConfigResult:
    result = run_tool(EXTRACT_CONFIG, {"target": target, **more}, context)
    assert isinstance(result, ExtractConfigResult)
    return result


def parameters(result: ExtractConfigResult, path: str = "") -> dict[str, Hyperparameter]:
    (held,) = [c for c in result.configurations if c.path == path]
    return {parameter.name: parameter for parameter in held.hyperparameters}


def shown(result: ExtractConfigResult, name: str) -> dict[str, Hyperparameter]:
    (held,) = [c for c in result.configurations if c.class_name.rpartition(".")[2] == name]
    return {parameter.name: parameter for parameter in held.hyperparameters}


# ---- against what really is --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_names_values_defaults_and_lines_are_those_of_the_objects_that_transformers_makes(context: ToolContext) -> None:
    found = Comparison()
    for truth in live(TYPES):
        assert "error" not in truth, truth
        said = ask(context, truth["model_type"], section="hyperparameters", detail="full", limit=500)
        compare(said, truth, context.workspace, found)
    assert found.faults == []
    assert found.counts["right"] > 40 * len(TYPES)
    assert found.counts["default right"] > 15 * len(TYPES)


def test_the_comparison_notices_what_is_wrong(context: ToolContext) -> None:
    (truth,) = live(["llama"])
    truth["values"]["hidden_size"] = 4097
    truth["values"]["unheard_of"] = 1
    del truth["values"]["mlp_bias"]
    found = Comparison()
    compare(ask(context, "llama", section="hyperparameters", detail="full"), truth, context.workspace, found)
    assert [fault.split(":")[0] for fault in found.faults] == ["missing", "extra", "wrong"]


def test_records_hold_what_python_makes_of_them(context: ToolContext) -> None:
    made = runpy.run_path(str(CORPUS / "settings" / "records.py"))
    result = ask(context, "records.py", repo="settings", detail="full")
    checked = 0
    for name, arguments in {
        "ModelArgs": {}, "Small": {}, "Shadow": {}, "PlainConfig": {}, "DerivedConfig": {}, "TupleSettings": {"a": 1},
        "OwnInit": {}, "PlainOverRecord": {},
    }.items():  # fmt: skip
        this = made[name](**arguments)
        values = this._asdict() if hasattr(this, "_asdict") else dict(vars(this))
        said = shown(ask(context, f"records.{name}", repo="settings", detail="full"), name)
        open_names = {n for n, p in said.items() if p.basis in {"open", "required"}}
        assert said.keys() == values.keys(), name
        assert open_names <= {"threads", "a", "needed"}, name
        for key, value in values.items():
            if key not in open_names:
                assert json.dumps(said[key].value) == json.dumps(value), (name, key)
                checked += 1
    assert checked > 40
    assert "ModelArgs" in {c.class_name.rpartition(".")[2] for c in result.configurations}


def test_defaults_in_annotations_count_where_pydantic_makes_the_class(context: ToolContext) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # pydantic warns of the default within a union, which is there to be passed over
        made = runpy.run_path(str(CORPUS / "settings" / "annotated.py"))
    for name in ("Served", "Checked", "Pool", "Wrapped", "Holder", "Other"):
        truth = vars(made[name]()).items()
        values = {key: value for key, value in truth if not key.startswith("__")}
        said = shown(ask(context, f"annotated.{name}", repo="settings", detail="full"), name)
        held = {key: p.value for key, p in said.items() if p.basis not in {"open", "required"}}
        # a class without annotations is described by its arguments and public attributes
        assert held == {key: value for key, value in values.items() if not key.startswith("_")}, name
    written = shown(ask(context, "annotated.Served", repo="settings", detail="full"), "Served")
    assert (written["heads"].default, written["plain"].default) == ("Field(default=3)", "5")
    for name, required in {"Standard": {"heads"}, "Demanding": {"heads", "either"}}.items():
        with pytest.raises(Exception, match=r"heads|required"):
            made[name]()
        said = shown(ask(context, f"annotated.{name}", repo="settings", detail="full"), name)
        assert {key for key, p in said.items() if p.basis == "required"} == required


def test_what_a_statement_in_doubt_leaves_open_stands_with_the_value_that_is_known_and_that_statement(
    context: ToolContext,
) -> None:
    tuned = parameters(ask(context, "records.Tuned", repo="settings"))["a"]
    line = next(
        n for n, text in enumerate((CORPUS / "settings/records.py").read_text().split("\n"), 1) if "of_ours" in text
    )
    assert tuned.open == (
        f"1 unless `os.register_at_fork_of_ours` gets the object (Tuned.__post_init__, records.py:{line})"
    )
    dynamic = parameters(ask(context, "records.Dynamic", repo="settings"))
    assert dynamic["a"].open.startswith("1 unless ")
    assert "os.environ" in dynamic["b"].open


def test_what_is_raised_by_name_keeps_its_class_and_its_words(context: ToolContext) -> None:
    lines = (CORPUS / "settings" / "said.py").read_text().split("\n")
    marked = ((n + 2, text.partition("# expect: ")[2]) for n, text in enumerate(lines) if "# expect: " in text)
    expected = {line: tuple(part.strip() for part in text.split("|")) for line, text in marked}
    found = ask(context, "said.py", repo="settings", section="constraints", limit=100).constraints
    raised = {c.line: (c.error, c.message) for c in found if c.kind == "raise" and c.within != "on_the_device"}
    assert raised == expected
    assert len(expected) > 7


def test_a_test_of_the_device_says_what_it_leads_to(context: ToolContext) -> None:
    found = ask(context, "said.py", repo="settings", section="constraints", limit=100).constraints
    said = [(c.condition, c.message) for c in found if c.kind in {"capability", "dtype"}]
    assert said == [
        ("torch.cuda.get_device_capability()[0] < 9", "raises RuntimeError: needs sm_90"),
        ("torch.cuda.is_available() and x.is_cuda", "kept as fast"),
        ("not x.is_cuda", "warn: runs slowly"),
        ("x.dtype != torch.bfloat16", "raises TypeError: {x.dtype} is not bfloat16"),
        ("fast and torch.cuda.device_count() > 1", "returned"),
    ]


def test_asserts_and_raises_are_those_that_the_tree_of_the_classes_holds(context: ToolContext) -> None:
    result = ask(context, "llama", section="constraints", limit=500)
    for file, classes in {
        "transformers/configuration_utils.py": ["PreTrainedConfig"],
        "transformers/models/llama/configuration_llama.py": ["LlamaConfig"],
    }.items():
        _, place = context.workspace.resolve_inside(file)
        tree = ast.parse(place.read_text())
        inside = [n for c in ast.walk(tree) if isinstance(c, ast.ClassDef) and c.name in classes for n in ast.walk(c)]
        truth = sorted((type(n).__name__.lower(), n.lineno) for n in inside if isinstance(n, ast.Assert | ast.Raise))
        said = sorted((c.kind, c.line) for c in result.constraints if c.file == file and c.kind in {"assert", "raise"})
        assert said == truth
        assert truth


def test_a_whole_file_has_every_assert_and_raise(context: ToolContext) -> None:
    file = "transformers/cache_utils.py"
    _, place = context.workspace.resolve_inside(file)
    truth = [n.lineno for n in ast.walk(ast.parse(place.read_text())) if isinstance(n, ast.Assert | ast.Raise)]
    said = ask(context, file, section="constraints", limit=500).constraints
    assert sorted(c.line for c in said if c.kind in {"assert", "raise"}) == sorted(truth)
    assert len(truth) > 5


def test_native_checks_are_those_that_a_search_of_the_text_finds(context: ToolContext) -> None:
    text = (CORPUS / "settings" / "checks.cu").read_text()
    result = ask(context, "checks.cu", repo="settings", detail="full")
    expected = sorted((int(m[1]), m[2]) for m in re.finditer(r"expect: (\d+) (\w+)", text))
    assert sorted((c.line, c.kind) for c in result.constraints) == expected
    by_line = {c.line: c for c in result.constraints}
    check = next(c for c in by_line.values() if c.kind == "TORCH_CHECK" and "Check<2, 3>" in c.condition)
    assert (check.condition, check.message, check.within) == ("(Check<2, 3>::ok)", "both, of them", "run")
    constants = {c.name: (c.value, c.basis) for c in result.constants}
    assert constants == {
        "TILE": (32, "source"),
        "kWarps": (8, "source"),
        "kThreads": (None, "open"),
        "MASK": (255, "source"),
    }


# ---- what is told of one parameter ------------------------------------------------------------------------------------


def test_a_derived_value_stands_with_its_formula_condition_and_line(context: ToolContext) -> None:
    head_dim = parameters(ask(context, "llama", section="hyperparameters"))["head_dim"]
    assert (head_dim.default, head_dim.value, head_dim.basis) == ("None", 128, "derived")
    (derived,) = head_dim.derived
    assert (derived.formula, derived.condition) == (
        "self.hidden_size // self.num_attention_heads",
        "self.head_dim is None",
    )


def test_aliases_overrides_and_meanings_are_told(context: ToolContext) -> None:
    gpt2 = parameters(ask(context, "gpt2", section="hyperparameters"))
    assert gpt2["n_embd"].aliases == ("hidden_size",)
    assert gpt2["n_embd"].meaning is not None
    records = parameters(ask(context, "Small", repo="settings"))
    (override,) = records["dim"].overrides
    assert (override.class_name, override.default, records["dim"].value) == ("records.ModelArgs", "4096", 1024)
    said = {name: (p.meaning.text, p.meaning.origin) for name, p in records.items() if p.meaning is not None}
    assert said["dim"] == ("width of the residual stream.", "docstring")
    assert said["n_layers"] == ("number of blocks, counted without the embedding.", "docstring")
    assert said["vocab_size"] == ("set by the tokenizer", "comment")
    assert said["multiple_of"] == ("hidden width is rounded up to this", "comment")
    assert said["max_batch"] == ("largest batch", "declaration")
    assert said["norm_eps"] == ("keeps the root from zero", "field docstring")
    assert "n_heads" not in said


def test_reads_count_the_places_whose_object_is_this_configuration(context: ToolContext) -> None:
    found = parameters(ask(context, "records.ModelArgs", repo="settings"))
    reads = {name: (p.reads.count, p.reads.unsure) for name, p in found.items() if p.reads is not None}
    assert reads["dim"] == (2, 0)
    assert reads["n_heads"] == (1, 0)
    assert reads["n_layers"] == (0, 0)
    llama = parameters(ask(context, "llama", section="hyperparameters"))["rms_norm_eps"]
    assert llama.reads is not None
    _, place = context.workspace.resolve_inside("transformers/models/llama/modeling_llama.py")
    assert llama.reads.count == len(re.findall(r"config\.rms_norm_eps", place.read_text()))


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_a_part_s_field_counts_as_read_where_a_module_is_declared_to_take_the_whole(
    name: str, context: ToolContext
) -> None:
    _, place = context.workspace.resolve_inside(f"transformers/models/{name}/modeling_{name}.py")
    classes = {
        node.name: ast.unparse(node) for node in ast.parse(place.read_text()).body if isinstance(node, ast.ClassDef)
    }
    part = next(found for found in classes if found.endswith("Attention") and "Vision" not in found)
    read = set(re.findall(r"\bconfig\.(\w+)", classes[part]))
    whole = re.search(r"config: (\w+)", classes[part])
    assert whole is not None
    text = whole[1].replace("Config", "TextConfig")
    found = parameters(ask(context, text, section="hyperparameters"))
    assert text not in classes[part]  # it is declared to take the whole
    counts = {field: found[field].reads for field in read & set(found)}
    assert [field for field, reads in counts.items() if reads is None or not reads.count] == []


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("ModelArgs", "threads"),
        ("Tuned", "a"),
        ("Dynamic", "b"),
        ("Declared", "ranks"),
        ("Probed", "large"),
        ("Counted", "steps"),
        ("LeftEarly", "width"),
    ],
)
def test_what_source_does_not_decide_is_open(context: ToolContext, name: str, field: str) -> None:
    parameter = parameters(ask(context, f"records.{name}", repo="settings"))[field]
    assert (parameter.basis, parameter.value) == ("open", None)
    assert parameter.open


def test_given_values_stand_beside_the_defaults_and_unknown_keys_are_named(context: ToolContext) -> None:
    result = ask(
        context, "llama", section="hyperparameters", config={"hidden_size": 2048, "n_embd": 3, "model_type": "llama"}
    )
    found = parameters(result)
    assert (found["hidden_size"].value, found["hidden_size"].given, found["hidden_size"].effective) == (
        4096,
        2048,
        2048,
    )
    assert (found["head_dim"].value, found["head_dim"].effective, found["head_dim"].is_given) == (128, 64, False)
    assert result.configurations[0].unknown_keys == ("n_embd",)


def test_held_configurations_are_nested_with_what_their_holder_passes(context: ToolContext) -> None:
    result = ask(context, "llava", section="hyperparameters", detail="full", limit=500)
    assert parameters(result)["vision_config"].sub_config == "vision_config"
    hidden = parameters(result, "vision_config")["hidden_size"]
    assert (hidden.default, hidden.value, hidden.basis) == ("768", 1024, "derived")
    (passed,) = hidden.derived
    _, place = context.workspace.resolve_inside(passed.file)
    assert '"hidden_size": 1024' in place.read_text().split("\n")[passed.line - 1]


def test_the_arguments_of_a_module_without_configuration_are_its_parameters(context: ToolContext) -> None:
    result = ask(context, "torch.nn.MultiheadAttention", section="hyperparameters")
    found = parameters(result)
    assert result.configurations[0].kind == "arguments"
    assert (found["embed_dim"].basis, found["dropout"].value, found["bias"].value) == ("required", 0.0, True)
    assert found["dropout"].meaning is not None


# ---- kernels and constraints ------------------------------------------------------------------------------------------


def test_settings_of_a_kernel_are_those_that_its_tiling_tells(context: ToolContext) -> None:
    result = ask(context, "matmul_kernel", repo="shop")
    arguments = TilingArguments(target="matmul_kernel", repo="shop")
    (tiling,) = CUDA_KERNEL_TILING.run(arguments, context).kernels
    (kernel,) = result.kernels
    assert {s.name for s in kernel.settings if s.kind in {"tile", "constexpr"}} == {c.name for c in tiling.constexpr}
    assert tiling.autotune is not None
    assert kernel.autotune is not None
    assert (kernel.autotune.count, kernel.autotune.line) == (tiling.autotune.count, tiling.autotune.line)
    asserted = {(c.kind, c.condition) for c in result.constraints}
    assert ("static_assert", "BLOCK_K % 16 == 0") in asserted
    assert ("assert", "a.shape[1] == b.shape[0]") in asserted


def test_a_raise_is_spelt_with_what_triggers_it_and_names_its_parameters(context: ToolContext) -> None:
    found = ask(context, "llama", section="constraints", limit=500).constraints
    (check,) = [c for c in found if "not a multiple" in c.message and c.file.endswith("configuration_llama.py")]
    assert (check.kind, check.error) == ("raise", "ValueError")
    assert check.condition == "self.hidden_size % self.num_attention_heads != 0"
    assert check.within == "LlamaConfig.validate_architecture"
    assert check.names == ("hidden_size", "num_attention_heads")


def test_capability_tests_and_validators_are_told_apart(context: ToolContext) -> None:
    found = ask(context, "records.py", repo="settings", section="constraints").constraints

    def of(kind: str) -> list[Check]:
        return [c for c in found if c.kind == kind]

    assert [(c.condition, c.within) for c in of("capability") if "capability" in c.condition] == [
        ("torch.cuda.get_device_capability()[0] < 8", "Attention.__init__")
    ]
    assert [(c.condition, c.within) for c in of("validator")] == [("rank", "Checked.check_rank")]
    assert {c.condition for c in of("raise")} >= {"torch.cuda.get_device_capability()[0] < 8", "value > 64"}
    otherwise = next(c for c in of("raise") if c.error == "KeyError")
    assert otherwise.condition == "for name in names and not (name in known)"


# ---- forms and refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["llama", "llava", "bert", "transformers/modeling_rope_utils.py"])
def test_the_compact_answer_stays_short_and_says_what_it_left_out(context: ToolContext, target: str) -> None:
    compact, whole = ask(context, target), ask(context, target, detail="full")
    assert len(to_json(compact)) <= PAGE
    assert compact.constraint_count == whole.constraint_count == len(whole.constraints)
    assert bool(compact.shortened) == (len(to_json(whole)) > PAGE)


def test_pages_of_a_section_put_together_are_the_section(context: ToolContext) -> None:
    whole: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        page = ask(context, "llama", section="constraints", offset=offset, limit=7)
        whole += page.constraints
        offset = page.next_offset
    assert whole == list(ask(context, "llama", detail="full").constraints)


@pytest.mark.parametrize(
    ("target", "error", "said"),
    [
        ("", InputError, "model type"),
        ("LlamaConfg", UnknownNameError, "LlamaConfig"),
        ("matmul_kernal", UnknownNameError, "matmul_kernel"),
        ("llama/modeling_lama.py", PathRefusedError, "--repo"),
        ("../../etc/passwd.py", PathRefusedError, "--repo"),
    ],
)
def test_what_names_nothing_is_refused_with_the_next_step(
    context: ToolContext, target: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)) as caught:
        ask(context, target, **({"repo": "shop"} if "kernal" in target else {}))
    assert "\n" not in str(caught.value)


def test_the_description_is_short_enough_for_an_agent() -> None:
    assert len(EXTRACT_CONFIG.description) < 900
