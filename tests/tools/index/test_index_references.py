"""References: a package whose lines say what they refer to, and transformers against Python's own reading of it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.errors import AmbiguousNameError, SourceError, UnknownNameError
from opscope_tools.index import Index, open_index
from opscope_tools.index.names.subclasses import Subclasses
from opscope_tools.index.references.references import find
from opscope_tools.index.references.subject import sought
from opscope_tools.running.workspace import folder_repository

LLAMA = "transformers.models.llama.modeling_llama"
CORPUS = Path(__file__).parents[2] / "corpus/references"
_EXPECTED = re.compile(r"#([!?]) (\w+) ([\w.]+)")
Place = tuple[str, int, str, bool]


def expectations() -> dict[str, set[Place]]:
    """target -> its references, as the comments on the lines say."""
    found: dict[str, set[Place]] = {}
    for file in sorted(CORPUS.rglob("*.py")):
        for number, text in enumerate(file.read_text().splitlines(), 1):
            for sign, kind, target in _EXPECTED.findall(text) if "`#" not in text else ():
                place = file.relative_to(CORPUS).as_posix(), number, kind, sign == "!"
                found.setdefault(target, set()).add(place)
    return found


@pytest.fixture(scope="module")
def made() -> Index:
    return open_index([folder_repository("mine", CORPUS)], MemoryStore())


@pytest.mark.parametrize("target", sorted(expectations()))
def test_references_are_those_that_the_lines_state(made: Index, target: str) -> None:
    found = find(made, sought(made, target))
    assert {(r.file, r.line, r.kind, r.verified) for r in found.found} == expectations()[target]
    assert found.complete


def test_a_modular_template_and_prose_are_counted_but_not_listed(made: Index) -> None:
    found = find(made, sought(made, "pkg.ops.rotate"))
    assert found.templates == 2
    assert found.mentions >= 1
    assert found.aliases == ["turn"]


def test_short_names_and_lines_name_the_same_definitions(made: Index) -> None:
    names = {
        "rotate": "pkg.ops.rotate",
        "ops.TABLE": "pkg.ops.TABLE",
        "pkg.rotate": "pkg.ops.rotate",
        "Attention.forward": "pkg.layers.Attention.forward",
        "ModelConfig.num_heads": "pkg.config.ModelConfig.n_head",
        "PublicAttention.run": "pkg.layers.Attention.run",
        "pkg/ops.py:9": "pkg.ops.rotate",
    }
    assert {name: sought(made, name).qualified_name for name in names} == names


def test_a_page_is_filled_however_small_the_budget(made: Index) -> None:
    whole = find(made, sought(made, "pkg.layers.Attention"))
    part = find(made, sought(made, "pkg.layers.Attention"), budget=0, wanted=3)
    assert 3 <= len(part.found) < len(whole.found)
    assert part.found == whole.found[: len(part.found)]
    assert not part.complete


@pytest.mark.parametrize(
    ("target", "error", "says"),
    [
        ("pkg.ops", SourceError, "is a module"),
        ("forward", UnknownNameError, "No class"),
        ("Attention.forwrd", UnknownNameError, "forward"),
        ("use.less", UnknownNameError, "use"),
        ("width", UnknownNameError, "No class"),
        ("pkg.ops.rotat", UnknownNameError, "rotate"),
    ],
)
def test_what_has_no_references_is_refused_in_a_sentence(
    made: Index, target: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        sought(made, target)


def test_rivals_are_refused_with_their_full_names(installed_index: Index) -> None:
    with pytest.raises(AmbiguousNameError) as caught:
        sought(installed_index, "apply_rotary_pos_emb")
    assert f"{LLAMA}.apply_rotary_pos_emb" in caught.value.candidates


# ---- transformers and torch, against Python's own reading ----------------------------------------------------------


def calls_by_ast(file: Path, name: str) -> list[tuple[int, str]]:
    """(line, function) of the plain calls of a name that the module defines and no function binds, by `ast`."""
    found: list[tuple[int, str]] = []

    def visit(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = path
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                inner = f"{path}.{child.name}" if path else child.name
            if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == name:
                found.append((child.func.lineno, path))
            visit(child, inner)

    visit(ast.parse(file.read_text()), "")
    return found


@pytest.mark.parametrize("model", ["llama", "gpt_neox", "cohere", "mixtral", "phi"])
def test_callers_are_those_that_a_walk_of_the_ast_finds(
    installed: list[Repository], installed_index: Index, model: str
) -> None:
    module = f"transformers.models.{model}.modeling_{model}"
    name = "apply_rotary_pos_emb"
    found = find(installed_index, sought(installed_index, f"{module}.{name}"))
    own = installed[0].root / f"transformers/models/{model}/modeling_{model}.py"
    said = [(r.line, r.within.removeprefix(f"{module}.")) for r in found.found if r.kind == "call" and r.verified]
    expected = calls_by_ast(own, name)
    assert expected
    assert sorted(said) == sorted(expected)


BASES = """
torch.nn.modules.module.Module torch.nn.modules.batchnorm._BatchNorm torch.nn.modules.conv._ConvNd
torch.nn.modules.rnn.RNNBase torch.nn.modules.rnn.RNNCellBase torch.nn.modules.loss._Loss
torch.nn.modules.loss._WeightedLoss torch.nn.modules.pooling._MaxPoolNd torch.nn.modules.pooling._AvgPoolNd
torch.nn.modules.linear.Linear torch.nn.modules.container.Sequential torch.nn.modules.padding._ConstantPadNd
torch.nn.modules.activation.Hardtanh torch.nn.modules.sparse.Embedding torch.optim.optimizer.Optimizer
torch.optim.lr_scheduler.LRScheduler torch.utils.data.dataset.Dataset torch.utils.data.sampler.Sampler
torch.autograd.function.Function torch.distributions.distribution.Distribution
transformers.modeling_utils.PreTrainedModel transformers.configuration_utils.PreTrainedConfig
transformers.modeling_layers.GradientCheckpointingLayer transformers.generation.utils.GenerationMixin
transformers.models.llama.modeling_llama.LlamaPreTrainedModel transformers.models.bert.modeling_bert.BertPreTrainedModel
transformers.cache_utils.CacheLayerMixin transformers.tokenization_python.PythonBackend
transformers.modeling_rope_utils.RotaryEmbeddingConfigMixin transformers.utils.generic.ModelOutput
transformers.generation.logits_process.LogitsProcessor transformers.trainer_callback.TrainerCallback
""".split()


@pytest.mark.slow
def test_subclasses_are_those_that_python_keeps(installed: list[Repository], installed_index: Index) -> None:
    """A subprocess imports every 12th modeling file and some packages, and prints `__subclasses__()` of each base."""
    files = sorted((installed[0].root / "transformers/models").rglob("modeling_*.py"))[::12]
    modules = [".".join(file.relative_to(installed[0].root).with_suffix("").parts) for file in files]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("runtime_subclasses.py"))],
        input=json.dumps({"modules": modules, "bases": BASES}), capture_output=True, text=True, check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    truth = json.loads(done.stdout)
    imported = set(truth["imported"])
    derived = Subclasses(installed_index.resolver)
    wrong = {}
    for base, expected in truth["subclasses"].items():
        symbol = sought(installed_index, base).symbol
        assert symbol is not None
        # what the index adds may stand in modules that were not imported, or under a condition that does not hold here
        said = {
            one.qualified_name
            for one in derived.direct(symbol)
            if one.module in imported and "<locals>" not in one.path
        }
        if said != set(expected):
            wrong[base] = {"only read": sorted(said - set(expected)), "only run": sorted(set(expected) - said)}
    assert len(truth["subclasses"]) == len(BASES) >= 30
    assert sum(map(len, truth["subclasses"].values())) > 600
    assert not wrong, json.dumps(wrong)


def test_a_file_that_nests_too_deeply_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("class Good:\n    def forward(self): pass\n")
    (tmp_path / "use.py").write_text(
        "from good import Good\nclass U:\n    def __init__(self):\n        self.g = Good()\n"
        "    def f(self):\n        return self.g()\n"
    )
    deep = "[" * 3000 + "Good()" + "]" * 3000
    (tmp_path / "deep.py").write_text(
        f"from good import Good\nclass D:\n    def __init__(self):\n        self.y = {deep}\n"
    )
    index = open_index([folder_repository("mine", tmp_path)], MemoryStore())
    found = find(index, sought(index, "Good.forward"))
    assert set(found.unread) == {"deep.py"}
    assert ("use.py", 6) in {(reference.file, reference.line) for reference in found.found}
