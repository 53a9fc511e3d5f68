"""A path that a tool is given leads to a file of a registered repository, or is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.errors import PathRefusedError
from opscope_tools.running.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "repository"
    (root / "shop").mkdir(parents=True)
    (root / "shop" / "inside.py").write_text("")
    (root / "beside.py").write_text("")
    (tmp_path / "outside.py").write_text("")
    (root / "shop" / "link.py").symlink_to(tmp_path / "outside.py")
    return Workspace({"shop": Repository(name="shop", root=root, packages=("shop",))}, tmp_path, MemoryStore())


def test_a_file_of_a_repository_is_found_by_either_path(workspace: Workspace) -> None:
    root = workspace.repositories["shop"].root
    for path in ("shop/inside.py", str(root / "shop" / "inside.py"), "shop/../shop/inside.py"):
        assert workspace.resolve_inside(path)[1] == root / "shop" / "inside.py"


@pytest.mark.parametrize(
    "path", ["../outside.py", "shop/../../outside.py", "shop/link.py", "beside.py", "shop/none.py", "\0", "a" * 5000]
)
def test_what_is_no_file_of_a_repository_is_refused(workspace: Workspace, path: str) -> None:
    with pytest.raises(PathRefusedError, match="not a file of any registered repository"):
        workspace.resolve_inside(path)


def test_an_absolute_path_outside_is_refused(workspace: Workspace) -> None:
    with pytest.raises(PathRefusedError):
        workspace.resolve_inside(str(workspace.repositories["shop"].root.parent / "outside.py"))
