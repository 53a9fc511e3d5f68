"""Packages without `__init__.py`: nothing that the map says of a repository hangs on empty files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from map_facts import CORPUS, context_of
from opscope_schemas.repo_map import RepoMapResult
from opscope_tools.map_repo import MAP_REPO, MapRepoArguments
from opscope_tools.running.workspace import folder_repository


def mapped(folder: Path) -> RepoMapResult:
    context = context_of(folder_repository("repo", folder), folder)
    return MAP_REPO.run(MapRepoArguments(repo="repo", detail="full"), context)


def said(found: RepoMapResult) -> tuple[object, ...]:
    """What no `__init__.py` may change."""
    return found.components, found.entry_points, found.loops, found.loop_candidates


@pytest.mark.parametrize("below", ["", "src", "python/lib"])
@pytest.mark.parametrize("name", ["engine", "click_tool", "typer_tool", "image_tool"])
def test_deleting_every_empty_init_changes_no_role_entry_or_loop(tmp_path: Path, name: str, below: str) -> None:
    repo = tmp_path / "repo"
    shutil.copytree(CORPUS / name, repo)
    if below:
        for package in [one.parent for one in repo.glob("*/__init__.py")]:
            shutil.move(package, repo / below / package.name)
    for init in repo.rglob("__init__.py"):
        init.write_text("")
    before = mapped(repo)
    for init in repo.rglob("__init__.py"):
        init.unlink()
    assert said(mapped(repo)) == said(before)


BACKENDS = {
    "setuptools": ("pyproject.toml", '[tool.setuptools.package-dir]\n"" = "lib"\n'),
    "find": ("pyproject.toml", '[tool.setuptools.packages.find]\nwhere = ["lib"]\n'),
    "hatch": ("pyproject.toml", '[tool.hatch.build.targets.wheel]\npackages = ["lib/tool"]\n'),
    "poetry": ("pyproject.toml", '[tool.poetry]\npackages = [{include = "tool", from = "lib"}]\n'),
    "setup.cfg": ("setup.cfg", "[options]\npackage_dir =\n    = lib\n"),
    "setup.py": ("setup.py", 'from setuptools import setup\nsetup(package_dir={"": "lib"})\n'),
    "find_packages": (
        "setup.py",
        'from setuptools import find_packages, setup\nsetup(packages=find_packages("lib"))\n',
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_folder_that_the_manifest_names_holds_packages(tmp_path: Path, backend: str) -> None:
    """No import tells where `tool` begins; the main block is a module's, and not a script's."""
    (tmp_path / "lib/tool").mkdir(parents=True)
    (tmp_path / "lib/tool/app.py").write_text('def run():\n    pass\n\n\nif __name__ == "__main__":\n    run()\n')
    file, text = BACKENDS[backend]
    (tmp_path / file).write_text(text)
    assert [entry.name for entry in mapped(tmp_path).entry_points] == ["python -m tool.app"]


def test_a_package_of_others_that_a_folder_is_named_like_stays_theirs(tmp_path: Path) -> None:
    (tmp_path / "tool/loaders/torch").mkdir(parents=True)
    (tmp_path / "tool/loaders/torch/files.py").write_text("class Reader:\n    pass\n")
    (tmp_path / "tool/app.py").write_text("import torch.nn\nfrom tool.loaders.torch.files import Reader\n")
    (tmp_path / "tool/more.py").write_text("from tool.loaders.torch.files import Reader\n")
    found = next(c for c in mapped(tmp_path).components if c.role == "most imported")
    assert [(c.name, c.importers) for c in found.candidates] == [("Reader", 2)]
