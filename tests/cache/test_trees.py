"""Trees: every change is seen at once, whether by a watch or by looking."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import inotify_simple
import pytest
from cannot import CANNOT
from opscope_cache import trees, watch
from opscope_cache.trees import Snapshot, Tree

Edit = Callable[[Path], object]


def _in_place(root: Path) -> None:
    """Same size, same mtime: only ctime tells."""
    times = (root / "pkg/a.py").stat()
    (root / "pkg/a.py").write_text("x = 2\n")
    os.utime(root / "pkg/a.py", ns=(times.st_atime_ns, times.st_mtime_ns))


def _replaced(root: Path) -> None:
    (root / "new").write_text("x = 3\n")
    (root / "new").replace(root / "pkg/a.py")


def _folder_moved_in(root: Path) -> None:
    (root / "outside/deep").mkdir(parents=True)
    (root / "outside/deep/m.py").write_text("")
    (root / "outside").rename(root / "pkg/sub")


def _environment(root: Path) -> None:
    (root / "pkg/pyvenv.cfg").write_text("")


def _linked(root: Path) -> None:
    (root / "node_modules").mkdir()
    (root / "node_modules/t.py").write_text("")
    (root / "pkg/new.py").symlink_to(root / "node_modules/t.py")


def _replaced_above(root: Path) -> None:
    root.rename(root.with_name("old"))
    (root / "pkg").mkdir(parents=True)
    (root / "pkg/other.py").write_text("")


EDITS: dict[str, tuple[Edit, set[str]]] = {
    "an edit that keeps size and time": (_in_place, {"pkg/a.py", "pkg/b.py"}),
    "a file put in its place": (_replaced, {"pkg/a.py", "pkg/b.py"}),
    "a new file": (lambda root: (root / "pkg/c.py").write_text(""), {"pkg/a.py", "pkg/b.py", "pkg/c.py"}),
    "a file gone": (lambda root: (root / "pkg/a.py").unlink(), {"pkg/b.py"}),
    "a file renamed": (lambda root: (root / "pkg/a.py").rename(root / "pkg/z.py"), {"pkg/b.py", "pkg/z.py"}),
    "a folder moved in": (_folder_moved_in, {"pkg/a.py", "pkg/b.py", "pkg/sub/deep/m.py"}),
    "a folder that becomes an environment": (_environment, set()),
    "a link to a file in a folder that is left out": (_linked, {"pkg/a.py", "pkg/b.py", "pkg/new.py"}),
    "another folder in the place of the root": (_replaced_above, {"pkg/other.py"}),
    "a file that becomes ignored": (lambda root: (root / "pkg/.gitignore").write_text("a.py\n"), {"pkg/b.py"}),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "pkg").mkdir(parents=True)
    for name in ("a", "b"):
        (root / f"pkg/{name}.py").write_text("x = 1\n")
    return root


def python(snapshot: Snapshot) -> set[str]:
    return set(snapshot.ending(".py"))


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize(("edit", "left"), EDITS.values(), ids=EDITS.keys())
def test_a_change_is_seen_by_the_next_question(
    root: Path, edit: Edit, left: set[str], watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not watched:
        monkeypatch.setattr(trees, "open_watch", lambda *_: None)
    tree = Tree(root)
    tree.now()
    before = tree.now()
    assert tree.now() is before
    edit(root)
    after = tree.now()
    assert after is not before
    assert after.fingerprint != before.fingerprint
    assert python(after) == left
    assert tree.now() is after


def test_two_changes_in_a_row_are_both_seen(root: Path) -> None:
    tree = Tree(root)
    assert python(tree.now()) == python(tree.now()) == {"pkg/a.py", "pkg/b.py"}
    for name in ("c", "d", "e"):
        (root / f"pkg/{name}.py").write_text("")
        assert f"pkg/{name}.py" in python(tree.now())
        (root / f"pkg/{name}.py").unlink()
        assert f"pkg/{name}.py" not in python(tree.now())


def test_what_a_link_points_to_is_asked_each_time(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (root / "pkg/link.py").symlink_to(root / "target.txt")
    (root / "target.txt").write_text("x = 1\n")
    outside = tmp_path_factory.mktemp("outside") / "secret.py"
    outside.write_text("")
    (root / "pkg/leak.py").symlink_to(outside)
    tree = Tree(root)
    tree.now()
    before = tree.now()
    assert python(before) == {"pkg/a.py", "pkg/b.py", "pkg/link.py"}
    (root / "target.txt").write_text("x = 22\n")
    assert tree.now().fingerprint != before.fingerprint


def test_loops_environments_and_tool_folders_are_left_out(root: Path) -> None:
    (root / "loop").symlink_to(root)
    for folder, marker in (("env", "pyvenv.cfg"), ("__pycache__", "x.txt"), (".git", "HEAD")):
        (root / folder).mkdir()
        (root / folder / marker).write_text("")
        (root / folder / "m.py").write_text("")
    assert python(Tree(root).now()) == {"pkg/a.py", "pkg/b.py"}


def test_ignored_files_and_folders_are_left_out(root: Path) -> None:
    (root / ".gitignore").write_text("build/\n*_generated.py\n!keep_generated.py\n")
    for file in ("build/m.py", "pkg/x_generated.py", "pkg/keep_generated.py"):
        (root / file).parent.mkdir(exist_ok=True)
        (root / file).write_text("")
    assert python(Tree(root).now()) == {"pkg/a.py", "pkg/b.py", "pkg/keep_generated.py"}


def test_only_the_named_packages_are_listed(root: Path) -> None:
    (root / "other").mkdir()
    (root / "other/m.py").write_text("")
    assert python(Tree(root, ["other"]).now()) == {"other/m.py"}


def test_trees_of_one_folder_are_one(root: Path) -> None:
    tree = trees.tree_at(root)
    assert trees.tree_at(root) is tree
    assert trees.tree_at(root, ["pkg"]) is not tree


def test_trees_that_nobody_holds_give_their_watches_back(root: Path) -> None:
    """A user has few of them; trees of servers and scripts end in circles, which may not be collected for long."""
    gc.collect()
    before = len(watch._OPEN)
    gc.disable()
    try:
        for _ in range(20):
            tree = Tree(root)
            vars(tree)["itself"] = tree
            tree.now()
            tree.now()  # from the second question on it is watched
            if tree._watch is None:
                pytest.skip(f"{CANNOT}other processes hold all watches that a user has")
        assert len(watch._OPEN) <= max(watch._MANY, 2 * before)
    finally:
        gc.enable()


def test_where_the_kernel_refuses_a_watch_those_that_nobody_holds_are_given_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the numbers of watches at which they are looked for, too."""
    monkeypatch.setattr(watch, "_MANY", 2**30)
    allowed, opened = 3, inotify_simple.INotify

    def few(**given: bool) -> inotify_simple.INotify:
        if sum(one.close.alive for one in watch._OPEN) >= before + allowed:
            raise OSError("too many open files")
        return opened(**given)

    gc.collect()
    before = len(watch._OPEN)
    if watch.open_watch(root, [str(root)]) is None:
        # a user has 128, of all processes: what others hold is no defect of the checkout
        pytest.skip(f"{CANNOT}other processes hold all watches that a user has")
    monkeypatch.setattr(inotify_simple, "INotify", few)
    gc.disable()
    try:
        for _ in range(2 * allowed):
            tree = Tree(root)
            vars(tree)["itself"] = tree
            tree.now()
            tree.now()
            assert tree._watch is not None
    finally:
        gc.enable()
