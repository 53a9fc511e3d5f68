"""What an object holds and what the lines of its forward do, on source written so that the answer is plain to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opscope_schemas.index import ForwardLine
from opscope_tools.index import Index
from small_torch import TORCH

Package = Callable[[Mapping[str, str | bytes]], Index]

MODEL = """\
import torch
import torch.nn.functional as F
from torch import nn
from .acts import ACT, KINDS

def helper(x):
    return x * 2

class Block(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.inner = nn.Linear(config.a, config.b, bias=False)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.inner(x))

class Base(nn.Module):
    norm_class = nn.Identity
    def __init__(self, config):
        super().__init__()
        self.replaced = nn.Linear(1, 1)
        self.removed = nn.Linear(2, 2)
        self.kept = nn.Linear(3, 3)
        self.norm = self.norm_class(config.a)

class Model(Base):
    norm_class = Block
    def __init__(self, config):
        super().__init__(config)
        self.replaced = nn.Identity()
        self.removed = None
        self.act = ACT[config.act]
        self.mixer = KINDS[config.kind](config)
        self.layers = nn.ModuleList([Block(config, i) for i in range(config.depth)])
        grown = []
        for i in range(3):
            grown.append(nn.Linear(i, i))
        self.grown = nn.ModuleList(grown)
        self.net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), Block(config, 0))
        self.table = nn.ModuleDict({"q": nn.Linear(1, 1), "k": nn.Identity()})
        kind = nn.Linear if config.flag else nn.Identity
        self.chosen = kind(4)
        self.size = config.size
        self.build(config)

    def build(self, config):
        if config.extra:
            self.extra = nn.Linear(5, 5)

    def mix(self, x):
        return x

    def forward(self, x: torch.Tensor, mask=None, *, scale: float = 1.0, **kwargs) -> torch.Tensor:
        '''Docstring.'''
        batch, length = x.shape[:2]
        shape = (batch, length * 2)
        residual = x
        if self.training:
            x = helper(x)
        else:
            x = x + 1
        for layer in self.layers[: self.size]:
            x = layer(x)
        for name, block in zip(range(3), self.grown):
            x = block(x)
        x = self.act(x) @ x.transpose(
            1, 2
        )
        x = F.dropout(F.softmax(x, dim=-1), p=0.1, training=self.training)
        x = self.layers[0].inner(self.mix(x)).view(shape)
        fn = KINDS.get(self.size, helper)
        x = fn(x)
        if not self.training:
            return self.table["q"](x)
        return x
"""
ACTS = """\
from torch import nn
class Wrapped(dict): pass
NAMES = {"a": nn.ReLU, "b": nn.Identity}
ACT = Wrapped(NAMES)
class Odd(nn.Module): pass
KINDS = {"linear": nn.Linear, "odd": Odd}
"""
FILES = {**TORCH, "pkg/__init__.py": "", "pkg/acts.py": ACTS, "pkg/m.py": MODEL}
LINEAR, IDENTITY = "torch.nn.modules.all.Linear", "torch.nn.modules.all.Identity"


def lines_of(index: Index, name: str) -> dict[str, ForwardLine]:
    """The forward's lines by their code."""
    forward = index.forward(index.one(name))
    assert forward is not None
    return {line.code: line for line in index.forward_lines(forward)}


def test_what_constructors_set_is_gathered_over_containers_and_conditions(package: Package) -> None:
    index = package(FILES)
    found = {
        (m.attribute, m.class_name): (m.arguments, m.condition, m.repeat) for m in index.submodules(index.one("Model"))
    }
    container = "torch.nn.modules.all."
    assert found == {
        ("kept", LINEAR): ("3, 3", "", ""),
        ("norm", "pkg.m.Block"): ("config.a", "", ""),
        ("replaced", IDENTITY): ("", "", ""),
        ("act", ""): ("", "", ""),  # the key is the caller's: the table's classes are its candidates
        ("mixer", LINEAR): ("config", "config.kind == 'linear'", ""),
        ("mixer", "pkg.acts.Odd"): ("config", "config.kind == 'odd'", ""),
        ("layers", f"{container}ModuleList"): ("[Block(config, i) for i in range(config.depth)]", "", ""),
        ("layers.*", "pkg.m.Block"): ("config, i", "", "for i in range(config.depth)"),
        ("grown", f"{container}ModuleList"): ("grown", "", ""),
        ("grown.*", LINEAR): ("i, i", "", "for i in range(3)"),
        ("net", f"{container}Sequential"): ("nn.Linear(1, 2), nn.ReLU(), Block(config, 0)", "", ""),
        ("net.0", LINEAR): ("1, 2", "", ""),
        ("net.1", f"{container}ReLU"): ("", "", ""),
        ("net.2", "pkg.m.Block"): ("config, 0", "", ""),
        ("table", f"{container}ModuleDict"): ('{"q": nn.Linear(1, 1), "k": nn.Identity()}', "", ""),
        ("table.q", LINEAR): ("1, 1", "", ""),
        ("table.k", IDENTITY): ("", "", ""),
        ("chosen", LINEAR): ("4", "config.flag", ""),
        ("chosen", IDENTITY): ("4", "not (config.flag)", ""),
        ("extra", LINEAR): ("5, 5", "config.extra", ""),
    }


def test_each_computational_line_has_its_kind_and_callee(package: Package) -> None:
    lines = lines_of(package(FILES), "Model")
    block = "pkg.m.Block"
    assert {code: (line.kind, line.callee) for code, line in lines.items()} == {
        "if self.training:": ("control_flow", ""),
        "x = helper(x)": ("helper_call", "pkg.m.helper"),
        "x = x + 1": ("op", "operator.add"),
        "for layer in self.layers[: self.size]:": ("control_flow", ""),
        "x = layer(x)": ("submodule_call", block),
        "for name, block in zip(range(3), self.grown):": ("control_flow", ""),
        "x = block(x)": ("submodule_call", LINEAR),
        "x = self.act(x) @ x.transpose( 1, 2 )": ("submodule_call", f"torch.nn.modules.all.ReLU | {IDENTITY}"),
        "x = F.dropout(F.softmax(x, dim=-1), p=0.1, training=self.training)": ("op", "torch.nn.functional.dropout"),
        "x = self.layers[0].inner(self.mix(x)).view(shape)": ("submodule_call", LINEAR),
        "fn = KINDS.get(self.size, helper)": ("helper_call", "pkg.acts.KINDS.get"),
        "x = fn(x)": ("helper_call", "torch.nn.modules.all.Linear | pkg.acts.Odd | pkg.m.helper"),
        "if not self.training:": ("control_flow", ""),
        'return self.table["q"](x)': ("return", LINEAR),
        "return x": ("return", ""),
    }


def test_lines_are_in_order_and_carry_the_conditions_they_stand_under(package: Package) -> None:
    lines = lines_of(package(FILES), "Model")
    numbers = [line.line for line in lines.values()]
    text = MODEL.split("\n")
    assert numbers == sorted(numbers)
    assert all(line.code.split("(")[0] in text[line.line - 1] for line in lines.values())
    assert lines["x = layer(x)"].condition == "for layer in self.layers[: self.size]"
    assert lines["x = x + 1"].condition == "not (self.training)"
    assert (
        lines["x = self.act(x) @ x.transpose( 1, 2 )"].end_line
        == lines["x = self.act(x) @ x.transpose( 1, 2 )"].line + 2
    )


def test_what_matters_in_training_only_is_marked(package: Package) -> None:
    index = package(FILES)
    lines = lines_of(index, "Model")
    assert [code for code, line in lines.items() if line.training_only] == [
        "x = helper(x)",
        "return x",  # what stands after `if not self.training: return ...`
    ]
    calls = {call.callee: call for line in lines_of(index, "Block").values() for call in line.calls}
    assert set(calls) == {LINEAR, "torch.nn.modules.all.Dropout"}


def test_calls_on_one_line_are_listed_in_evaluation_order(package: Package) -> None:
    lines = lines_of(package(FILES), "Model")
    chained = lines["x = self.layers[0].inner(self.mix(x)).view(shape)"]
    assert [call.callee for call in chained.calls] == ["pkg.m.Model.mix", LINEAR, "torch.Tensor.view"]
    assert [call.attribute for call in chained.calls] == ["", "layers.*.inner", ""]
    helper = lines["x = helper(x)"]
    assert (helper.callee_file, helper.callee_line) == ("pkg/m.py", 6)


def test_super_and_methods_follow_the_class_of_the_object(package: Package) -> None:
    source = (
        "from torch import nn\n"
        "class A(nn.Module):\n    def forward(self, x):\n        return self.step(x)\n    def step(self, x): return x\n"
        "class B(A):\n    def forward(self, x):\n        return super().forward(x)\n"
        "class C(A):\n    def step(self, x): return x\n"
    )
    index = package({**TORCH, "m.py": source})
    assert lines_of(index, "B")["return super().forward(x)"].callee == "m.A.forward"
    assert lines_of(index, "A")["return self.step(x)"].callee == "m.A.step"
    assert lines_of(index, "C")["return self.step(x)"].callee == "m.C.step"


def test_lines_of_llama_attention_name_their_callees(installed_index: Index) -> None:
    lines = lines_of(installed_index, "LlamaAttention")
    callees = {line.callee for line in lines.values()}
    assert {
        "torch.nn.modules.linear.Linear",
        "transformers.models.llama.modeling_llama.apply_rotary_pos_emb",
    } <= callees
    assert any("ALL_ATTENTION_FUNCTIONS.get_interface" in line.dispatch for line in lines.values())
    assert sum(line.attribute.endswith("_proj") for line in lines.values()) == 4
