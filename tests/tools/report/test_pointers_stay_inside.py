"""A pointer of a report reads files of the registered repositories, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from opscope_schemas.common import Repository
from opscope_tools.report.checks import Material, check
from opscope_tools.report.markdown import Page
from opscope_tools.report.sources import SourceReader


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository, a file beside it, and links out of it."""
    repository = tmp_path / "repository"
    (repository / "shop").mkdir(parents=True)
    (repository / "shop" / "inside.py").write_text("class Inside: ...\n")
    (repository / "other.py").write_text("SECRET = 1\n")
    (tmp_path / "outside.py").write_text("SECRET = 1\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "outside.py").write_text("SECRET = 1\n")
    (repository / "shop" / "link.py").symlink_to(tmp_path / "outside.py")
    (repository / "shop" / "folder").symlink_to(tmp_path / "elsewhere")
    return repository


OUTSIDE = [
    "../outside.py",
    "shop/../../outside.py",
    "shop/link.py",
    "shop/folder/outside.py",
    "{root}/../outside.py",
    "{root}/shop/inside.py",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_what_lies_outside_a_repository_is_not_read(root: Path, path: str) -> None:
    reader = SourceReader([Repository(name="shop", root=root)])
    assert reader.lines("shop/inside.py") == ["class Inside: ..."]
    assert reader.lines(path.format(root=root)) is None


def test_what_lies_beside_the_packages_of_a_repository_is_not_read(root: Path) -> None:
    reader = SourceReader([Repository(name="shop", root=root, packages=("shop",))])
    assert reader.lines("shop/inside.py") is not None
    assert reader.lines("other.py") is None


@pytest.mark.parametrize("folder", ["..", "shop/folder", "shop/../.."])
def test_a_search_goes_through_no_folder_outside(root: Path, folder: str) -> None:
    reader = SourceReader([Repository(name="shop", root=root)])
    assert "shop/inside.py" in reader.files_below("shop")
    assert reader.files_below(folder) == []


def test_a_pointer_out_of_a_repository_is_a_dead_one_to_the_check(root: Path) -> None:
    reader = SourceReader([Repository(name="shop", root=root)])
    page = Page("See `shop/inside.py:1`, `shop/link.py:1` and `shop/../../outside.py:1`.")
    dead = [problem for problem in check(Material(page, reader)) if problem.rule == "PATH_MISSING"]
    assert len(dead) == 2
