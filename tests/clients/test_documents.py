"""The commands that write analysis documents, on the real tools: files that follow the published schemas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from opscope_server.resources import read_schema

POINT = ("--values", "batch_size=2", "--values", '{"seq_len": 8, "cache_len": 0}')
NORM = "transformers.models.llama.modeling_llama.LlamaRMSNorm"


@pytest.fixture(scope="module")
def environment(index_folder: Path) -> dict[str, str]:
    return {**os.environ, "OPSCOPE_CACHE_DIR": str(index_folder), "COLUMNS": "120"}


def opscope(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opscope_clients", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )


def read(path: Path, schema: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    jsonschema.Draft202012Validator(json.loads(read_schema(schema))).validate(document)
    return document


def test_module_writes_a_module_analysis_that_follows_its_schema(environment: dict[str, str], tmp_path: Path) -> None:
    done = opscope(environment, "module", "--module", NORM, "-o", str(tmp_path), *POINT, "--json")
    assert done.returncode == 0, done.stderr
    document = read(tmp_path / "module_analysis.json", "module_analysis")
    assert document["class_name"] == NORM
    assert json.loads(done.stdout)["document"] == document
    assert f"Written: {tmp_path}/module_analysis.json" in done.stderr.replace("\n", "")


def test_model_writes_a_model_analysis_that_follows_its_schema(environment: dict[str, str], tmp_path: Path) -> None:
    done = opscope(environment, "model", "--model", "LlamaMLP", "--phase", "decode", "-o", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    document = read(tmp_path / "new/model_analysis.json", "model_analysis")
    assert document["phase"] == "decode"
    assert "LlamaMLP" in done.stdout


def test_inspect_prints_the_tree_with_layers_folded(environment: dict[str, str]) -> None:
    done = opscope(environment, "inspect", "--model-id", "llama", "--config", "num_hidden_layers=3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("transformers.models.llama.modeling_llama.LlamaForCausalLM: ")
    assert ". . . 0-2 x3\tLlamaDecoderLayer\t" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["module", "--module", "LlamaRMSNrm"], "LlamaRMSNorm"),
        (["model", "--model", "lama"], "Nearest names: llama"),
        (["module", "--module", "LlamaMLP", "--transformers", "/none"], "points at /none, which is not a folder"),
        (["module", "--module", "LlamaMLP", "--values", "batch_size"], "--values 'batch_size' is neither JSON nor"),
        (["module", "--module", "LlamaMLP", "--config", "/none/config.json"], "/none/config.json"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_writes_nothing(
    environment: dict[str, str], tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = opscope(environment, *arguments, "-o", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_one_sentence(environment: dict[str, str], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = opscope(environment, "module", "--module", NORM, "-o", str(blocked), *POINT)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert done.stderr.count("\n") == 1
