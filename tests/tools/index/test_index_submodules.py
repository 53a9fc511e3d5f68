"""What an object holds: constructors interpreted. Small packages written for each rule, and a sample of model types of
transformers, each built on the meta device by a process of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from opscope_tools.index import HeldModule, Index
from small_torch import TORCH
from submodule_comparison import built, compare, held_by_class

Package = Callable[[Mapping[str, str | bytes]], Index]
TYPES = [
    "t5",
    "clip",
    "llava",
    "deepseek_v3",
    "mask2former",
    "wav2vec2",
    "rt_detr",
    "rt_detr_resnet",
    "swin",
    "nemotron_h",
    "perceiver",
]
LINEAR, IDENTITY, RELU = (f"torch.nn.modules.all.{name}" for name in ("Linear", "Identity", "ReLU"))
CONFIG = """\
from dataclasses import dataclass, field

@dataclass
class Config:
    width: int = 8
    depth: int = 3
    act: str = "relu"
    gated: bool = False
    kinds: list = field(default_factory=lambda: ["a", "b", "a"])
    extra: int | None = None

    def __post_init__(self):
        if self.extra is None:
            self.extra = self.width * 2
"""


def held(index: Index, name: str) -> dict[str, set[tuple[str, bool | None]]]:
    """attribute -> (last name of the class, whether the defaults take it)."""
    found: dict[str, set[tuple[str, bool | None]]] = {}
    for module in index.submodules(index.one(name)):
        found.setdefault(module.attribute, set()).add((module.class_name.rpartition(".")[2], module.at_default))
    return found


def entries(index: Index, name: str) -> list[HeldModule]:
    return index.submodules(index.one(name))


def write(package: Package, source: str, **more: str) -> Index:
    head = "import torch\nfrom torch import nn\nfrom .config import Config\n"
    files = {f"pkg/{name}.py": text for name, text in more.items()}
    return package({**TORCH, "pkg/__init__.py": "", "pkg/config.py": CONFIG, "pkg/m.py": head + source, **files})


def test_a_branch_on_the_configuration_is_taken_as_its_defaults_say(package: Package) -> None:
    index = write(
        package,
        """
class M(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        if config.gated:
            self.gate = nn.Linear(config.width, 1)
        elif config.extra == 16:
            self.gate = nn.ReLU()
        self.out = nn.Identity() if config.depth > 2 else nn.Linear(1, 1)
""",
    )
    assert held(index, "M") == {
        "gate": {("Linear", False), ("ReLU", True)},
        "out": {("Identity", True), ("Linear", False)},
    }
    conditions = {(m.class_name, m.condition) for m in entries(index, "M") if m.attribute == "gate"}
    assert conditions == {
        (LINEAR, "config.gated"),
        (RELU, "not (config.gated) and config.extra == 16"),
    }


def test_a_branch_not_taken_counts_also_where_the_default_configuration_lacks_what_it_needs(package: Package) -> None:
    index = write(
        package,
        """
class M(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        if config.gated is False:
            self.out = nn.Linear(1, 1)
        else:
            self.out = nn.ReLU(config.cutoffs)
        if isinstance(config.act, str):
            self.act = nn.Identity()
        else:
            self.act = config.act
    def forward(self, x):
        return self.act(self.out(x))
""",
    )
    assert held(index, "M") == {"out": {("Linear", True), ("ReLU", False)}, "act": {("Identity", True)}}
    forward = index.forward(index.one("M"))
    assert forward is not None
    (line,) = index.forward_lines(forward)
    calls = {call.attribute: call for call in line.calls}
    assert calls["out"].callee == f"{RELU} | {LINEAR}"
    assert (calls["act"].callee, [one.callee for one in calls["act"].candidates or line.candidates]) == (
        "",
        [IDENTITY, ""],
    )


def test_what_only_a_caller_knows_is_open(package: Package) -> None:
    index = write(
        package,
        """
class M(nn.Module):
    def __init__(self, flag, act):
        super().__init__()
        if flag:
            self.a = nn.Linear(1, 1)
        else:
            self.a = nn.ReLU()
        self.act = act
    def forward(self, x):
        return self.act(self.a(x))
""",
    )
    assert held(index, "M") == {"a": {("Linear", None), ("ReLU", None)}, "act": {("", None)}}


def test_lists_grow_by_loops_comprehensions_and_calls(package: Package) -> None:
    index = write(
        package,
        """
class Block(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.mixer = nn.Linear(1, 1) if config.kinds[index] == "a" else nn.ReLU()
        self.plain = nn.Identity()

class M(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList([Block(config, i) for i in range(config.depth)])
        self.grown = nn.ModuleList()
        for i in range(config.depth):
            self.grown.append(nn.Linear(1, 1))
        self.grown.extend([nn.ReLU(), nn.Identity()])
        parts = [nn.Linear(1, 1)]
        if config.gated:
            parts.append(nn.ReLU())
        self.chain = nn.Sequential(*parts)
        for i in range(2):
            self.add_module(f"named_{i}", nn.Identity())
        setattr(self, "last", nn.ReLU())
""",
    )
    found = held(index, "M")
    assert found["layers.*"] == {("Block", True)}
    assert found["grown.*"] == {("Linear", True)}
    assert found["grown.3"] == {("ReLU", True)}
    assert found["chain.0"] == {("Linear", True)}
    assert found["chain.1"] == {("ReLU", False)}
    assert found["named_*"] == {("Identity", True)}
    assert found["last"] == {("ReLU", True)}
    (layer,) = [m for m in entries(index, "M") if m.attribute == "layers.*"]
    assert (layer.arguments, layer.repeat) == ("config, i", "for i in range(config.depth)")


def test_a_class_is_read_as_the_model_of_its_file_builds_it(package: Package) -> None:
    index = write(
        package,
        """
class Block(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.mixer = nn.Linear(1, 1) if config.kinds[index] == "a" else nn.ReLU()

class Base(nn.Module):
    config: Config
    config_class = Config

class M(Base):
    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList([Block(config, i) for i in range(config.depth)])
""",
    )
    assert held(index, "Block") == {"mixer": {("Linear", True), ("ReLU", True)}}


def test_tables_give_classes_and_instances_by_the_default_key(package: Package) -> None:
    index = write(
        package,
        """
from .acts import ACT, KINDS
class M(nn.Module):
    def __init__(self, config: Config, key):
        super().__init__()
        self.act = ACT[config.act]
        self.kind = KINDS[config.kinds[0]](config.width)
        self.other = KINDS[key](1)
""",
        acts="""
from torch import nn
class Making(dict):
    def __getitem__(self, key):
        content = super().__getitem__(key)
        cls, kwargs = content if isinstance(content, tuple) else (content, {})
        return cls(**kwargs)
ACT = Making({"relu": nn.ReLU, "linear": (nn.Linear, {"a": 1})})
KINDS = {"a": nn.Linear, "b": nn.ReLU}
""",
    )
    found = held(index, "M")
    assert found["act"] == {("ReLU", True)}
    assert found["kind"] == {("Linear", True), ("ReLU", False)}
    assert found["other"] == {("Linear", None), ("ReLU", None)}
    act = next(m for m in entries(index, "M") if m.attribute == "act")
    assert act.dispatch == "ACT[config.act]"


def test_factories_partials_class_parameters_and_class_attributes_are_followed(package: Package) -> None:
    index = write(
        package,
        """
from functools import partial
def make(kind, width):
    if kind == "relu":
        return nn.ReLU()
    return nn.Linear(width, width)

class Inner(nn.Module):
    kept = nn.Identity
    def __init__(self, width, layer=nn.Linear):
        super().__init__()
        self.layer = layer(width)
        self.kept = self.kept()

class M(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.made = make(config.act, config.width)
        self.partial = partial(nn.Linear, 1)(2)
        self.inner = Inner(config.width, layer=nn.ReLU)
        self.inner.late = nn.Identity()
        self.gone = nn.Linear(1, 1)
        del self.gone
        self.emptied = nn.Linear(1, 1)
        self.emptied = None
""",
    )
    assert held(index, "M") == {
        "made": {("ReLU", True), ("Linear", False)},
        "partial": {("Linear", True)},
        "inner": {("Inner", True)},
    }
    assert held(index, "Inner")["layer"] == {("Linear", True)}


def test_a_module_that_a_branch_takes_away_is_there_under_the_other_condition(package: Package) -> None:
    index = write(
        package,
        """
class M(nn.Module):
    def __init__(self, config: Config, first=False):
        super().__init__()
        self.a = nn.Linear(1, 1)
        self.b = nn.ReLU()
        if not first:
            self.a = None
        if config.gated:
            del self.b
""",
    )
    assert held(index, "M") == {"a": {("Linear", False)}, "b": {("ReLU", True)}}


def test_inherited_constructors_run_in_the_order_of_the_mro(package: Package) -> None:
    index = write(
        package,
        """
class A(nn.Module):
    norm_class = nn.Identity
    def __init__(self, width):
        super().__init__()
        self.norm = self.norm_class()
        self.first = nn.Linear(width, 1)
        self.build(width)
    def build(self, width):
        self.built = nn.Linear(width, 2)

class B(A):
    norm_class = nn.ReLU
    def __init__(self, width=4):
        super().__init__(width)
        self.first = nn.Identity()
    def build(self, width):
        super().build(width)
        self.more = nn.ReLU()
""",
    )
    assert held(index, "B") == {
        "norm": {("ReLU", True)}, "first": {("Identity", True)}, "built": {("Linear", True)}, "more": {("ReLU", True)},
    }  # fmt: skip
    built_in_a = next(m for m in entries(index, "B") if m.attribute == "built")
    assert built_in_a.line == 13


def test_code_that_does_not_parse_leaves_the_rest(package: Package) -> None:
    index = write(
        package,
        """
class M(nn.Module):
    def __init__(self, width=1):
        super().__init__()
        self.a = nn.Linear(width, 1)
        self.b = nn.Linear(width 1)
        self.c = nn.ReLU()
""",
    )
    assert {"a", "c"} <= set(held(index, "M"))


def test_an_answer_follows_the_files_that_it_comes_from(package: Package) -> None:
    source = "class M(nn.Module):\n    def __init__(self, config: Config):\n        super().__init__()\n        self.a = nn.Linear(1, 1) if config.gated else nn.ReLU()\n"
    index = write(package, source)
    assert held(index, "M")["a"] == {("ReLU", True), ("Linear", False)}
    config = index.one("Config")
    path = config.repository.root / config.file
    path.write_text(path.read_text().replace("gated: bool = False", "gated: bool = True"))
    assert held(index, "M")["a"] == {("ReLU", False), ("Linear", True)}


def test_constructors_that_never_end_are_given_up(package: Package) -> None:
    index = write(
        package,
        """
def again(n):
    return again(n + 1)
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(1, 1)
        self.inner = M()
        self.value = again(0)
        for i in range(10 ** 9):
            self.b = nn.ReLU()
""",
    )
    assert held(index, "M")["a"] == {("Linear", True)}


def test_what_would_be_too_large_is_not_computed(package: Package) -> None:
    index = write(
        package,
        """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(1, 1)
        x = 9
        text = "ab"
        for i in range(200):
            x = x * x
            text = text + text
        self.power = 10 ** 10 ** 10
        self.list = [0] * 10 ** 12
        self.text = f"{1:>10000000000}" + "%10000000000d" % 1 + "a".ljust(10 ** 11) + "{:99999999999}".format(1)
        self.bytes = bytes(10 ** 12)
        self.b = nn.ReLU() if x > 1 else nn.Identity()
""",
    )
    assert held(index, "M") == {"a": {("Linear", True)}, "b": {("ReLU", None), ("Identity", None)}}


@pytest.mark.slow
def test_a_sample_of_model_types_holds_what_models_built_from_their_defaults_hold(installed_index: Index) -> None:
    pairs = list(compare(installed_index, held_by_class(built(TYPES))))
    counts = Counter(pair.verdict for pair in pairs)
    assert counts["exact"] > 400
    assert [pair for pair in pairs if pair.verdict != "exact"] == []
