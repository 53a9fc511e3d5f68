"""Modules of somebody's repository: from constructor arguments, a dataclass, a factory, a config file; only when trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opscope_schemas.errors import OpscopeError
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

SOURCE = '''
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn


@dataclass
class Config:
    n_embd: int = 32
    n_head: int = 4
    n_layer: int = 3
    vocab_size: int = 100
    block_size: int = 64


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.n_head
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.out = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).split(c, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(b, t, c))


class Gpt(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx):
        assert idx.shape[1] <= self.config.block_size, "too long"
        x = self.embed(idx)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Collect(nn.Module):
    """Reads the results of all its layers together."""

    def __init__(self, dim, depth):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(dim, dim, bias=False) for _ in range(depth)])

    def forward(self, x):
        found = []
        for layer in self.layers:
            x = layer(x)
            found.append(x)
        return torch.cat(found, -1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        return self.conv(x).relu()


class Undecided(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        y = self.first(x)
        if x.sum() > 0:
            y = self.second(y)
        return y


def make_collect(width):
    return Collect(width, 2)


class Data(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.down = nn.Linear(dim, json.loads((Path(__file__).parent / "size.json").read_text()), bias=False)

    def forward(self, x):
        return self.down(x)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / "nets.py").write_text(SOURCE)
    (folder / "size.json").write_text("8")
    (folder / "config.json").write_text(json.dumps({"n_embd": 64, "n_head": 8, "n_layer": 2}))
    return folder


@pytest.fixture(scope="module")
def context(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolContext]:
    found = Workspace.create(
        cache_folder=tmp_path_factory.mktemp("cache"), repositories=[("mine", folder)], trusted=["mine"]
    )
    yield ToolContext(found)
    close_engines(found)
    found.store.close()


def products(context: ToolContext, target: str, values: dict[str, int], **arguments: Any) -> int:
    found = count_flops(CostArguments.model_validate({"target": target, "values": values, **arguments}), context)
    assert found.evaluated is not None
    return found.evaluated.matmul_flops


def gpt(b: int, t: int, c: int, layers: int, vocab: int) -> int:
    """Per layer 2bt * 4c*c for the two maps and 4 * b*t*t*c of attention; the head 2bt * c * vocab."""
    return layers * (8 * b * t * c * c + 4 * b * t * t * c) + 2 * b * t * c * vocab


def test_a_dataclass_config_is_filled_from_overrides_or_a_file(context: ToolContext, folder: Path) -> None:
    at = {"batch_size": 2, "seq_len": 10}
    assert products(context, "nets.Gpt", at) == gpt(2, 10, 32, 3, 100)
    assert products(context, "nets.Gpt", at, config={"n_embd": 48, "vocab_size": 7}) == gpt(2, 10, 48, 3, 7)
    assert products(context, "nets.Gpt", at, config=str(folder / "config.json")) == gpt(2, 10, 64, 2, 100)
    assert products(context, "nets.Gpt", {**at, "n_embd": 40, "vocab_size": 9}) == gpt(2, 10, 40, 3, 9)


def test_what_the_module_asserts_of_its_input_refuses_values(context: ToolContext) -> None:
    with pytest.raises(OpscopeError):
        products(context, "nets.Gpt", {"batch_size": 2, "seq_len": 65})


def test_what_reads_the_results_of_all_layers_reads_each(context: ToolContext) -> None:
    arguments = {"config": {"dim": 16, "depth": 6}, "inputs": {"x": ["batch_size", "seq_len", "dim"]}}
    found = count_flops(
        CostArguments.model_validate(
            {"target": "nets.Collect", "values": {"batch_size": 2, "seq_len": 5}, **arguments}
        ),
        context,
    )
    (together,) = [k for k in found.document.kernels if k.operator == "aten.cat"]
    assert together.memory_access.read == together.memory_access.write
    assert found.evaluated is not None
    # six layers: input and weights read, output written; then all six outputs read and written once more
    assert found.evaluated.memory_read == 6 * (160 + 256) * 2 + 6 * 160 * 2


def test_a_factory_and_a_first_convolution_are_understood(context: ToolContext) -> None:
    at = {"batch_size": 2, "seq_len": 5}
    made = {"factory": "nets.make_collect", "width": 12}
    assert (
        products(context, "nets.Collect", at, config=made, inputs={"x": ["batch_size", "seq_len", 12]})
        == 2 * 2 * 10 * 12 * 12
    )
    picture = {"batch_size": 5, "image_height": 10, "image_width": 12}
    assert products(context, "nets.Net", picture) == 2 * 5 * 120 * 8 * 27


def test_an_edit_of_data_beside_the_source_changes_the_answer(context: ToolContext, folder: Path) -> None:
    at = {"batch_size": 2, "seq_len": 5}
    arguments = {"config": {"dim": 16}, "inputs": {"x": ["batch_size", "seq_len", "dim"]}}
    assert products(context, "nets.Data", at, **arguments) == 2 * 10 * 16 * 8
    (folder / "size.json").write_text("24")
    assert products(context, "nets.Data", at, **arguments) == 2 * 10 * 16 * 24


def test_code_that_is_not_trusted_is_not_imported(folder: Path, tmp_path: Path) -> None:
    workspace = Workspace.create(cache_folder=tmp_path, repositories=[("mine", folder)])
    with pytest.raises(OpscopeError, match="--trust mine"):
        products(ToolContext(workspace), "nets.Gpt", {"batch_size": 1, "seq_len": 2})
    close_engines(workspace)
    workspace.store.close()


def test_modules_at_the_top_of_a_repository_are_pointed_at_line_by_line(context: ToolContext, folder: Path) -> None:
    """A file that lies in no package is source as any other."""
    document = count_flops(CostArguments(target="Collect", config={"dim": 64, "depth": 2}), context).document
    lines = (folder / "nets.py").read_text().splitlines()
    assert document.file == "nets.py"
    for kernel in document.kernels:
        assert kernel.file == "nets.py", kernel
        assert lines[kernel.line - 1].strip() == kernel.code
    assert {kernel.code for kernel in document.kernels} >= {"x = layer(x)", "return torch.cat(found, -1)"}


def test_a_src_folder_and_relative_imports_are_found(tmp_path: Path) -> None:
    package = tmp_path / "repo/src/spkg/sub"
    package.mkdir(parents=True)
    for inner in (package, package.parent):
        (inner / "__init__.py").write_text("")
    (package.parent / "base.py").write_text("import torch\n\n\nclass Base(torch.nn.Module):\n    pass\n")
    (package / "net.py").write_text(
        "import torch\nfrom ..base import Base\n\n\nclass SrcNet(Base):\n    def __init__(self, dim: int = 8):\n"
        "        super().__init__()\n        self.inner = torch.nn.Linear(dim, dim)\n\n    def forward(self, x):\n        return self.inner(x)\n"
    )
    workspace = Workspace.create(
        cache_folder=tmp_path / "cache", repositories=[("mine", tmp_path / "repo")], trusted=["mine"], output=tmp_path
    )
    document = count_flops(CostArguments(target="SrcNet", config={"dim": 64}), ToolContext(workspace)).document
    close_engines(workspace)
    workspace.store.close()
    assert document.totals.flops == "{batch_size} * {seq_len} * {dim} * (2 * {dim} + 1)"
    assert document.file.endswith("spkg/sub/net.py")


def test_what_values_decide_is_run_on_values_and_the_line_is_named(context: ToolContext, folder: Path) -> None:
    source = next(path for path in folder.rglob("*.py") if "class Undecided" in path.read_text())
    line = 1 + source.read_text().splitlines().index("        if x.sum() > 0:")
    for inputs in (None, {"x": [2, 5, 8]}):
        asked = {"target": "Undecided", "inputs": inputs}
        document = count_flops(CostArguments.model_validate(asked), context).document
        assert any(f"{source.name}:{line}" in said and "Data decides" in said for said in document.assumptions)
        shape = [int(size) for size in document.model_inputs[0].shape]
        rows = shape[0] * shape[1]
        assert document.totals.matmul_flops == str(2 * 2 * rows * 8 * 8)  # ones add up to more than 0: both layers run
