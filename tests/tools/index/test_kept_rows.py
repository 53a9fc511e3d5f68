"""What a class holds is told once: by one reader for both tools, and kept until something changes that it looked at."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_tools.index import Index, open_index
from opscope_tools.index.modules import held_modules
from opscope_tools.index.names.torch_modules import is_module
from opscope_tools.running.workspace import folder_repository
from opscope_tools.source.python.names import ClassSymbol
from same_submodules import disagreements
from small_torch import TORCH

FILES = {
    **TORCH,
    "pkg/__init__.py": "",
    "pkg/sizes.py": "GATED = False\n",
    "pkg/parts.py": "from torch.nn import Linear as Part\n",
    "pkg/config.py": "from dataclasses import dataclass\nfrom .sizes import GATED\n@dataclass\nclass Config:\n    gated: bool = GATED\n",
    "pkg/m.py": """\
from torch import nn
from .config import Config
from .parts import *
try:
    from .fast import Fast
except ImportError:
    Fast = nn.Identity
class M(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.gate = nn.ReLU() if config.gated else nn.Identity()
        self.fast = Fast()
        self.part = Part()
    def forward(self, x):
        return self.part(self.fast(self.gate(x)))
""",
}
Change = Callable[[Path], object]
Write = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "mine"


def opened(root: Path, *more: Repository) -> Index:
    """An index of its own, as a new process has it, over the rows on disk."""
    return open_index([folder_repository("mine", root), *more], MemoryStore(root.parent / "cache"))


def at_default(index: Index) -> dict[str, str]:
    return {m.attribute: m.class_name.rpartition(".")[2] for m in index.submodules(index.one("M")) if m.at_default}


def refuse(*_arguments: object) -> None:
    raise AssertionError("interpreted again")


FIRST = {"gate": "Identity", "fast": "Identity", "part": "Linear"}


def test_what_a_class_holds_is_not_read_twice_by_another_process(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert at_default(opened(root)) == FIRST
    (root / "other.py").write_text("class Other: ...\n")  # nothing that the answer looked at
    monkeypatch.setattr(held_modules, "_answer", refuse)
    assert at_default(opened(root)) == FIRST


@pytest.mark.parametrize("same", [False, True], ids=["another process", "the same process"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda at: (at / "pkg/sizes.py").write_text("GATED = 1 > 0\n"), {"gate": "ReLU"}),
        (lambda at: (at / "pkg/fast.py").write_text("from torch.nn import Dropout as Fast\n"), {"fast": "Dropout"}),
        (lambda at: (at / "pkg/parts.py").write_text("from torch.nn import ReLU as Part\n"), {"part": "ReLU"}),
        (lambda at: ((at / "pkg/parts").mkdir(), (at / "pkg/parts/__init__.py").write_text("from torch.nn import ReLU as Part")), {"part": "ReLU"}),
        (lambda at: (at / "torch/nn/modules/all.py").write_text("from .module import Module\nclass Linear: ...\nclass Identity(Module): ...\nclass ReLU(Module): ...\n"), {"part": None}),
        (lambda at: (at / "pkg/config.py").unlink(), {"gate": None}),
        (lambda at: (at / "pkg/m.py").write_text("\n" + FILES["pkg/m.py"].replace("self.part = Part()", "self.part = nn.Dropout()")), {"part": "Dropout"}),
    ],
    ids=["edited far off", "added where one was missing", "edited star", "a package before a module", "a base gone", "deleted", "own file"],
)  # fmt: skip
def test_no_row_outlives_what_it_was_read_from(
    root: Path, change: Change, expected: dict[str, str | None], same: bool
) -> None:
    first = opened(root)
    assert at_default(first) == FIRST
    change(root)
    wanted = {name: held for name, held in {**FIRST, **expected}.items() if held is not None}
    assert at_default(first if same else opened(root)) == wanted


def test_a_file_added_and_taken_away_again_leaves_the_first_answer(root: Path) -> None:
    assert at_default(opened(root)) == FIRST
    fast = root / "pkg/fast.py"
    fast.write_text("from torch.nn import Dropout as Fast\n")
    assert at_default(opened(root))["fast"] == "Dropout"
    fast.unlink()
    assert at_default(opened(root)) == FIRST


def test_other_repositories_make_another_answer(root: Path, tmp_path: Path) -> None:
    (root / "pkg/m.py").write_text(FILES["pkg/m.py"].replace("from .fast import", "from elsewhere import"))
    assert at_default(opened(root))["fast"] == "Identity"
    elsewhere = tmp_path / "other" / "elsewhere.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text("from torch.nn import Dropout as Fast\n")
    assert at_default(opened(root, folder_repository("other", elsewhere.parent)))["fast"] == "Dropout"


def test_rows_that_do_not_read_are_made_anew(root: Path) -> None:
    index = opened(root)
    assert at_default(index) == FIRST
    for blob in (b"", b"\x00", b"x" * 40, 7, "text", None):
        database = index.resolver.trees[0]._database
        assert database._connection.execute("UPDATE held SET answer=?", (blob,)).rowcount == 1
        assert at_default(opened(root)) == FIRST


def test_both_tools_name_the_same_submodules(root: Path) -> None:
    index = opened(root)
    assert not [*disagreements(index, index.one("M"))]
    forward = index.forward(index.one("M"))
    assert forward is not None
    (line,) = index.forward_lines(forward)
    held = {(m.attribute, m.class_name) for m in index.submodules(index.one("M"))}
    assert {(call.attribute, name) for call in line.calls for name in call.callee.split(" | ")} == held


@pytest.mark.slow
def test_both_tools_name_the_same_submodules_for_a_sample_of_transformers(installed_index: Index) -> None:
    tree, picked = installed_index.resolver.trees[0], random.Random(0)
    files = [file for file in tree.files() if file.rpartition("/")[2].startswith("modeling_")]
    sample: list[ClassSymbol] = []
    for file in picked.sample(files, 60):
        unit = tree.unit(file)
        classes = [(path, row) for path, row in unit.classes() if any(one.name == "forward" for one in row.body)]
        sample += [ClassSymbol(unit, *picked.choice(classes))] if classes else []
    modules = [symbol for symbol in sample if is_module(installed_index.resolver, symbol)]
    assert len(modules) > 45
    assert not [sentence for symbol in modules for sentence in disagreements(installed_index, symbol)]
