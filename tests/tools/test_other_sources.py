"""Another transformers than the installed one: what is traced is the folder that the user names."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from opscope_schemas.errors import InputError, TraceError
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a `src` layout in which LlamaRMSNorm multiplies once more."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.submodule_search_locations
    top = tmp_path_factory.mktemp("checkout")
    package = top / "src" / "transformers"

    # copies: a hard link would change the status of the installed files, and with it every other process's cache keys
    shutil.copytree(next(iter(spec.submodule_search_locations)), package, ignore=shutil.ignore_patterns("__pycache__"))
    edited = package / "models" / "llama" / "modeling_llama.py"
    text = edited.read_text()
    edited.write_text(text.replace("hidden_states.pow(2).mean(-1", "(hidden_states * 3.0).pow(2).mean(-1", 1))
    return top


@pytest.mark.parametrize("inside", ["", "src", "src/transformers"])
def test_a_checkout_its_src_folder_and_the_package_itself_all_name_the_package(checkout: Path, inside: str) -> None:
    found = folder_repository("transformers", checkout / inside)
    assert (found.root, found.packages) == (checkout / "src", ("transformers",))
    assert found.version.count(".") == 2


def test_a_folder_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no package transformers"):
        folder_repository("transformers", tmp_path)


def test_a_folder_in_the_place_of_transformers_is_imported_only_where_it_is_trusted(
    checkout: Path, tmp_path: Path
) -> None:
    workspace = Workspace.create(
        repositories=[("transformers", checkout)], cache_folder=tmp_path / "cache", output=tmp_path
    )
    with pytest.raises(TraceError, match="--trust transformers"):
        count_flops(CostArguments(target="LlamaRMSNorm"), ToolContext(workspace))
    close_engines(workspace)
    workspace.store.close()


def test_the_named_sources_are_traced_and_not_the_installed_ones(checkout: Path, tmp_path: Path) -> None:
    workspace = Workspace.create(
        repositories=[("transformers", checkout)],
        cache_folder=tmp_path / "cache",
        output=tmp_path,
        trusted=["transformers"],
    )
    document = count_flops(CostArguments(target="LlamaRMSNorm"), ToolContext(workspace)).document
    first = next(k.code for k in document.kernels if k.operator == "aten.mul")
    assert first.startswith("variance = (hidden_states * 3.0)")
    # 4 per element and 2 per row as installed, and the planted multiply
    assert document.totals.flops == "{batch_size} * {seq_len} * (5 * {hidden_size} + 2)"
    # an edit while the worker is warm: neither it nor the cache may answer from what was
    edited = checkout / "src" / "transformers" / "models" / "llama" / "modeling_llama.py"
    edited.write_text(
        edited.read_text().replace("(hidden_states * 3.0).pow(2)", "(hidden_states * 3.0 + 1.0).pow(2)", 1)
    )
    again = count_flops(CostArguments(target="LlamaRMSNorm"), ToolContext(workspace)).document
    assert again.totals.flops == "2 * {batch_size} * {seq_len} * (3 * {hidden_size} + 1)"
    close_engines(workspace)
    workspace.store.close()
