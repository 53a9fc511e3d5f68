"""Versions and console scripts of folders, from the metadata of sdists, wheels and site-packages."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.report import WriteReportResult
from opscope_tools.map_repo import MAP_REPO, MapRepoArguments
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository
from opscope_tools.write_report import WRITE_REPORT

SITE = Path(str(importlib.metadata.distribution("jinja2").locate_file(""))).resolve()


def package(folder: Path, text: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(text)
    (folder / "cli.py").write_text("def main():\n    pass\n")
    return folder


def metadata(folder: Path, version: str, **files: str) -> None:
    folder.mkdir(parents=True)
    name = folder.name.partition("-")[0]
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: of prose\n")
    for file, text in files.items():
        (folder / file.replace("_txt", ".txt")).write_text(text)


@pytest.mark.parametrize("name", ["jinja2", "huggingface_hub", "yaml", "transformers"])
def test_a_folder_of_site_packages_has_the_version_that_python_gives(name: str) -> None:
    """The folder of pyyaml bears another name than its distribution."""
    distribution = {"yaml": "pyyaml"}.get(name, name)
    assert folder_repository("some", SITE / name).version == importlib.metadata.version(distribution)


def test_console_scripts_beside_a_package_folder_are_entry_points(tmp_path: Path) -> None:
    package(tmp_path / "engine")
    metadata(tmp_path / "engine-2.5.dist-info", "2.5", entry_points_txt="[console_scripts]\nengine = engine.cli:main\n")
    metadata(tmp_path / "other-1.dist-info", "1", entry_points_txt="[console_scripts]\nother = other:main\n")
    repository = folder_repository("engine", tmp_path / "engine")
    assert repository.version == "2.5"
    context = ToolContext(Workspace({"engine": repository}, tmp_path, MemoryStore()))
    result = MAP_REPO.run(MapRepoArguments(repo="engine", section="entry_points"), context)
    assert [(e.kind, e.name, e.target) for e in result.entry_points] == [
        ("console script", "engine", "engine/cli.py:1")
    ]
    assert result.sources[0].version == "2.5"


def test_an_unpacked_sdist_has_the_version_of_its_metadata(tmp_path: Path) -> None:
    package(tmp_path / "src/engine")
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: engine\nVersion: 0.9.1\n\nProse: Version: 7\n")
    assert folder_repository("engine", tmp_path).version == "0.9.1"
    assert folder_repository("engine", tmp_path / "src/engine").version == "0.9.1"


def test_a_wheel_unpacked_has_the_version_of_its_only_metadata(tmp_path: Path) -> None:
    package(tmp_path / "engine")
    metadata(tmp_path / "engine-3.0.dist-info", "3.0")
    assert folder_repository("engine", tmp_path).version == "3.0"
    metadata(tmp_path / "other-4.dist-info", "4")  # now it could be either
    assert folder_repository("engine", tmp_path).version == ""
    assert folder_repository("engine", tmp_path / "engine").version == "3.0"


def test_a_project_without_metadata_has_the_version_that_it_declares(tmp_path: Path) -> None:
    package(tmp_path / "engine", '__version__ = "1.1"\n')
    assert folder_repository("engine", tmp_path / "engine").version == "1.1"
    assert folder_repository("engine", tmp_path).version == ""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "engine"\nversion = "1.2"\n')
    assert folder_repository("engine", tmp_path).version == "1.2"
    (tmp_path / "pyproject.toml").write_text("[project\n")
    assert folder_repository("engine", tmp_path).version == ""


def test_two_distributions_of_a_package_say_nothing(tmp_path: Path) -> None:
    package(tmp_path / "engine")
    metadata(tmp_path / "engine-1.dist-info", "1")
    metadata(tmp_path / "engine-2.dist-info", "2")
    assert folder_repository("engine", tmp_path / "engine").version == ""


def test_a_report_of_a_package_whose_script_bears_the_name_of_something_in_its_file_passes_its_checks(
    tmp_path: Path,
) -> None:
    package(tmp_path / "engine")
    (tmp_path / "engine/cli.py").write_text("def main():\n    pass\n\n\nengine = main\n")
    metadata(tmp_path / "engine-2.5.dist-info", "2.5", entry_points_txt="[console_scripts]\nengine = engine.cli:main\n")
    workspace = Workspace({"engine": folder_repository("engine", tmp_path / "engine")}, tmp_path, MemoryStore())
    result = run_tool(WRITE_REPORT, {"kind": "repo", "name": "engine", "target": "engine"}, ToolContext(workspace))
    assert isinstance(result, WriteReportResult)
    assert [problem for problem in result.problems if problem.rule == "SYMBOL_MISMATCH"] == []
    assert "`engine = engine.cli:main` (`engine/cli.py:1`)" in (tmp_path / result.path).read_text()
