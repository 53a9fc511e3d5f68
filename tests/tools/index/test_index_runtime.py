"""The static reading against Python itself: a subprocess imports a sample of the installed packages and reports file,
line, forward, MRO, exports and submodules; the index must say the same without importing anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opscope_schemas.common import Repository
from opscope_tools.index import Index

MODELS = [
    "transformers.models.llama.modeling_llama.LlamaForCausalLM",
    "transformers.models.gpt2.modeling_gpt2.GPT2LMHeadModel",
    "transformers.models.mixtral.modeling_mixtral.MixtralForCausalLM",
    "transformers.models.opt.modeling_opt.OPTForCausalLM",
]
EXPORTS = [
    "LlamaForCausalLM", "PreTrainedModel", "AutoModelForCausalLM", "Cache", "PretrainedConfig", "BertModel",
    "GenerationMixin", "Trainer", "T5EncoderModel", "WhisperForConditionalGeneration", "PreTrainedTokenizerFast",
    "CacheLayerMixin", "NerPipeline",
]  # fmt: skip


def sample(root: Path) -> list[str]:
    """Every 40th modeling file of transformers, and the layers that torch models are built from."""
    files = sorted((root / "transformers").rglob("modeling_*.py"))[::40]
    files += [root / "torch/nn/modules" / name for name in ("linear.py", "activation.py", "rnn.py", "container.py")]
    # two definitions under a condition; a base made by calling a metaclass
    files += [root / "transformers/models/xlstm/modeling_xlstm.py", root / "torch/ao/quantization/observer.py"]
    return [".".join(file.relative_to(root).with_suffix("").parts) for file in files]


@pytest.fixture(scope="module")
def truth(installed: list[Repository], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    answer = tmp_path_factory.mktemp("truth") / "answer.json"
    request = {
        "modules": sample(installed[0].root), "exports": [f"transformers.{name}" for name in EXPORTS],
        "models": MODELS, "public": ["torch.nn"], "answer": str(answer),
    }  # fmt: skip
    subprocess.run(
        [sys.executable, str(Path(__file__).with_name("runtime_truth.py"))],
        input=json.dumps(request), capture_output=True, text=True, check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def test_position_forward_and_mro_are_those_that_python_sees(
    truth: dict[str, Any], installed: list[Repository], installed_index: Index
) -> None:
    root = installed[0].root
    wrong = {}
    for name, expected in truth["classes"].items():
        symbol = installed_index.one(name)
        forward = installed_index.forward(symbol)
        said = {
            "file": str(root / symbol.file),
            "line": symbol.line,
            "forward": [str(root / forward.file), forward.line] if forward is not None else None,
            "defined_in": forward.defined_in.qualified_name if forward is not None else None,
            "mro": installed_index.mro(symbol),
        }
        if said != expected:
            wrong[name] = (said, expected)
    assert len(truth["classes"]) >= 60
    assert not wrong


def test_names_that_transformers_and_torch_nn_export_lead_to_the_class_that_python_imports(
    truth: dict[str, Any], installed_index: Index
) -> None:
    expected = {name: found["name"] for name, found in truth["exports"].items() if "file" in found}
    assert {f"transformers.{name}" for name in EXPORTS} <= set(expected)
    assert len(expected) > len(EXPORTS) + 100
    assert {name: installed_index.one(name).qualified_name for name in expected} == expected


def test_submodules_are_those_of_a_model_built_from_its_default_config(
    truth: dict[str, Any], installed_index: Index
) -> None:
    compared = 0
    for held in truth["models"].values():
        for name, attributes in held.items():
            if not name.startswith("transformers.models."):
                continue
            said: dict[str, set[str]] = {}
            for module in installed_index.submodules(installed_index.one(name)):
                if module.at_default:
                    said.setdefault(re.sub(r"\.\d+$", "", module.attribute), set()).add(module.class_name)
            for attribute, classes in attributes.items():
                assert set(classes) == said[attribute], (name, attribute)
                compared += 1
    assert compared > 50
