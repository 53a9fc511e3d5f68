"""Every way in which a forward may write a computation: what each line calls, told on source where the answer is plain."""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping
from types import CodeType

import pytest
from opscope_schemas.index import Call, ForwardLine
from opscope_tools.index import Index
from small_torch import TORCH

Package = Callable[[Mapping[str, str | bytes]], Index]
HEAD = """\
import functools
import torch
from functools import partial
from torch import nn
import torch.nn.functional as F

def double(x): return x * 2
def triple(x): return x * 3
FUNCTIONS = {"double": double, "triple": triple}

class Block(nn.Module):
    def forward(self, x): return x
class Other(nn.Module):
    def forward(self, x): return x

def path(x, p=0.0, training=False):
    if p == 0.0 or not training:
        return x
    return x / (1 - p)
class Depth(nn.Module):
    def forward(self, x):
        return path(x, self.p, self.training)
"""
INIT = """\
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.block = Block()
        self.other = Other()
        self.depth = Depth()
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.norms = nn.ModuleList([Other() for _ in range(3)])
        self.table = nn.ModuleDict({"a": Block(), "b": Other()})
        self.steps = nn.Sequential(Block(), Other())
        self.act = partial(double)
        self.pick = FUNCTIONS[config.kind]
"""


def read(package: Package, body: str, signature: str = "self, x, flag, key", extra: str = "") -> list[ForwardLine]:
    """The lines of a forward with that body."""
    inside = "".join(f"        {line}\n" for line in body.strip("\n").split("\n"))
    source = f"{HEAD}{extra}class Model(nn.Module):\n{INIT}    def forward({signature}):\n{inside}"
    index = package({**TORCH, "m.py": source})
    forward = index.forward(index.one("m.Model"))
    assert forward is not None
    return index.forward_lines(forward)


def calls(lines: list[ForwardLine]) -> dict[str, Call]:
    return {call.code: call for line in lines for call in line.calls}


def callees(lines: list[ForwardLine]) -> dict[str, str]:
    return {code: call.callee for code, call in calls(lines).items() if not call.callee.startswith("operator.")}


@pytest.mark.parametrize(
    ("body", "code", "callee"),
    [
        ("return [layer(x) for layer in self.layers]", "layer(x)", "m.Block"),
        ("return sum(layer(x) for layer in self.layers[:2])", "layer(x)", "m.Block"),
        ("for a, b in zip(self.layers, self.norms):\n    x = b(a(x))", "b(a(x))", "m.Other"),
        ("for i, (a, b) in enumerate(zip(self.layers, self.norms)):\n    x = b(x)", "b(x)", "m.Other"),
        ("for pair in zip(self.layers, self.norms):\n    a, b = pair\n    x = b(x)", "b(x)", "m.Other"),
        ("for layer in reversed(self.layers):\n    x = layer(x)", "layer(x)", "m.Block"),
        ("for name, layer in self.table.items():\n    x = layer(x)", "layer(x)", "m.Block | m.Other"),
        ("for _, (layer) in enumerate(self.layers):\n    x = layer(x)", "layer(x)", "m.Block"),
        ("for step in self.steps:\n    x = step(x)", "step(x)", "m.Block | m.Other"),
        ("return self.steps[1](x)", "self.steps[1](x)", "m.Other"),
        ('return self.table["b"](x)', 'self.table["b"](x)', "m.Other"),
        ("return self.table[key](x)", "self.table[key](x)", "m.Block | m.Other"),
        ('return getattr(self, "other")(x)', 'getattr(self, "other")(x)', "m.Other"),
        ("f = self.block\ng = f\nreturn g(x)", "g(x)", "m.Block"),
        ("f = self.block if flag else self.other\nreturn f(x)", "f(x)", "m.Block | m.Other"),
        ("if flag:\n    f = double\nelse:\n    f = triple\nreturn f(x)", "f(x)", "m.double | m.triple"),
        ("f = double\nif flag:\n    f = triple\nreturn f(x)", "f(x)", "m.double | m.triple"),
        ("f = double\nif flag:\n    f = triple\n    return f(x)\nreturn f(x + 1)", "f(x + 1)", "m.double"),
        ("f = None\nif flag:\n    f = triple\nreturn f(x)", "f(x)", "m.triple"),
        ("f = partial(double)\nreturn f(x)", "f(x)", "m.double"),
        ("f = functools.partial(self.block, flag)\nreturn f(x)", "f(x)", "m.Block"),
        ("return self.act(x)", "self.act(x)", "m.double"),
        ('return FUNCTIONS["triple"](x)', 'FUNCTIONS["triple"](x)', "m.triple"),
        ("return FUNCTIONS[key](x)", "FUNCTIONS[key](x)", "m.double | m.triple"),
        ("return self.pick(x)", "self.pick(x)", "m.double | m.triple"),
        ("if (y := double(x)) is not None:\n    return y", "double(x)", "m.double"),
        ("f = lambda y: self.block(y)\nreturn f(x)", "self.block(y)", "m.Block"),
        ("f = lambda y: self.block(y)\nreturn f(x)", "f(x)", "m.Model.forward.<locals>.<lambda>"),
        ("def run(y):\n    return self.block(y)\nreturn run(x)", "self.block(y)", "m.Block"),
        ("def run(y):\n    return self.block(y)\nreturn run(x)", "run(x)", "m.Model.forward.<locals>.run"),
        ("match key:\n    case 1:\n        x = double(x)\nreturn x", "double(x)", "m.double"),
        ("with torch.autocast('cpu'):\n    x = self.block(x)\nreturn x", "self.block(x)", "m.Block"),
        ("for y in x:\n    pass\nelse:\n    x = double(x)\nreturn x", "double(x)", "m.double"),
        ("assert double(x) is not None\nreturn x", "double(x)", "m.double"),
        ("return (flag and self.block or self.other)(x)", "(flag and self.block or self.other)(x)", "m.Block | m.Other"),
        ("return self._forward(x)", "self._forward(x)", ""),
        ("return x.relu()", "x.relu()", "torch.Tensor.relu"),
    ],
)  # fmt: skip
def test_the_callee_is_found_through_names_containers_and_branches(
    package: Package, body: str, code: str, callee: str
) -> None:
    assert callees(read(package, body))[code] == callee


def test_several_callees_are_candidates_under_the_condition_that_picks_each(package: Package) -> None:
    lines = read(package, "if flag:\n    f = double\nelse:\n    f = triple\nreturn f(x)")
    line = next(line for line in lines if line.kind == "return")
    assert [(c.key, c.callee, c.file, c.line) for c in line.candidates] == [
        ("flag", "m.double", "m.py", 7),
        ("not (flag)", "m.triple", "m.py", 8),
    ]
    assert (line.dispatch, line.candidate_count) == ("f", 2)


def test_an_entry_of_a_table_is_a_candidate_under_its_key(package: Package) -> None:
    (line,) = read(package, "return FUNCTIONS.get(key, self.block)(x)")
    assert line.dispatch == "FUNCTIONS.get(key, self.block)"
    assert [(c.key, c.callee) for c in line.candidates] == [
        ("double", "m.double"), ("triple", "m.triple"), ("(default)", "m.Block"),
    ]  # fmt: skip


REGISTRY = """\
class Mapping:
    _kept = {"double": double, "twice": double}
    def __getitem__(self, key):
        if key in self._local:
            return self._local[key]
        return self._kept[key]
    def get_one(self, key, default):
        return self.get(key, default)
    @classmethod
    def register(cls, key, value): ...
TABLE = Mapping()
TABLE["mine"] = Block
Mapping.register("triple", triple)
"""


def test_a_mapping_object_offers_what_its_class_holds_and_what_is_registered(package: Package) -> None:
    lines = read(package, "f = TABLE.get_one(key, F.softmax)\nreturn f(x)", extra=REGISTRY)
    assert calls(lines)["TABLE.get_one(key, F.softmax)"].callee == "m.Mapping.get_one"
    found = {c.key: c.callee for c in lines[-1].candidates}
    assert found == {
        "double | twice": "m.double", "mine": "m.Block", "triple": "m.triple", "(default)": "torch.nn.functional.softmax",
    }  # fmt: skip
    assert lines[-1].callee == "m.double | m.triple | m.Block | torch.nn.functional.softmax"


def test_methods_follow_declared_classes_and_those_that_override_them(package: Package) -> None:
    extra = (
        "class Cache:\n    def update(self, x): return x\n    def size(self) -> int: ...\n"
        "class Paged(Cache):\n    def update(self, x): return x\n"
    )
    lines = read(package, "y = cache.update(x)\nreturn self.block(y)", "self, x, cache: Cache | None = None", extra)
    assert [(c.key, c.callee) for c in lines[0].candidates] == [
        ("", "m.Cache.update"), ("m.Paged", "m.Paged.update"),
    ]  # fmt: skip
    body = "if isinstance(cache, Paged):\n    return cache.update(x)\nreturn Cache().update(x)"
    found = callees(read(package, body, "self, x, cache=None", extra))
    assert found["cache.update(x)"] == "m.Paged.update"
    assert found["Cache().update(x)"] == "m.Cache.update"


def test_what_a_parameter_may_bring_is_never_guessed(package: Package) -> None:
    lines = read(package, "return flag(x)")
    assert (lines[0].callee, lines[0].dispatch, lines[0].candidates) == ("", "flag", ())


def test_a_callee_that_source_does_not_tell_is_given_as_what_picks_it(package: Package) -> None:
    found = calls(read(package, "f = flag.choose(x)\nfor g in key:\n    x = g(f(x))\nreturn x"))
    assert found["f(x)"].dispatch == "flag.choose(x)"
    assert found["g(f(x))"].dispatch == "g in key"


def test_sizes_flags_and_python_containers_compute_nothing(package: Package) -> None:
    body = (
        "batch, length = x.shape[:2]\nsizes = (batch, length * 2, -1)\nseen = []\nseen.append(length)\n"
        "n = kwargs.pop('n', 0)\nlogger.warning('slow')\nwidth = config.width * 2\nreturn x"
    )
    extra = "from logging import getLogger\nlogger = getLogger(__name__)\nclass Config:\n    width: int = 4\n"
    lines = read(package, body, "self, x, config: Config, **kwargs", extra)
    assert [line.code for line in lines] == ["return x"]


def test_lines_of_a_function_defined_inside_stand_under_its_head(package: Package) -> None:
    lines = read(package, "def run(y, scale=2):\n    y = double(y)\n    return y\nreturn run(x)")
    assert [(line.code, line.condition) for line in lines] == [
        ("def run(y, scale=2):", ""),
        ("y = double(y)", "def run(y, scale=2)"),
        ("return y", "def run(y, scale=2)"),
        ("return run(x)", ""),
    ]


@pytest.mark.parametrize(
    ("body", "marked"),
    [
        ("if self.training:\n    x = double(x)\nreturn x", ["x = double(x)"]),
        ("if self.gradient_checkpointing and self.training:\n    x = double(x)\nreturn x", ["x = double(x)"]),
        ("if not self.training or flag:\n    return double(x)\nreturn triple(x)", ["return triple(x)"]),
        ("if flag or self.training:\n    x = double(x)\nreturn x", []),
        ("if not self.training:\n    return x\ny = double(x)\nreturn y", ["y = double(x)", "return y"]),
        ("if not self.training:\n    x = double(x)\nelse:\n    x = triple(x)\nreturn x", ["x = triple(x)"]),
        ("train = self.training\nif train and flag:\n    x = double(x)\nreturn x", ["x = double(x)"]),
        ("drop = False\nif self.training:\n    drop = True\nif not drop:\n    x = double(x)\nreturn x", ["drop = True"]),
        ("x = F.dropout(x, 0.1, self.training)\nreturn x", ["x = F.dropout(x, 0.1, self.training)"]),
        ("x = path(x, 0.1, self.training)\nreturn x", ["x = path(x, 0.1, self.training)"]),
        ("x = path(x, 0.1, True)\nreturn x", []),
        ("x = self.depth(x)\nreturn x", ["x = self.depth(x)"]),
        ("x = torch.utils.checkpoint.checkpoint(self.block, x)\nreturn x", ["x = torch.utils.checkpoint.checkpoint(self.block, x)"]),
        ("if torch.jit.is_scripting():\n    x = double(x)\nreturn x", []),
    ],
)  # fmt: skip
def test_what_runs_or_has_an_effect_in_training_only_is_marked(package: Package, body: str, marked: list[str]) -> None:
    lines = read(package, body)
    # `drop = True` computes nothing, so it gives no line
    assert [line.code for line in lines if line.training_only] == [code for code in marked if code != "drop = True"]


def test_branches_for_compilers_carry_their_condition(package: Package) -> None:
    lines = read(package, "if torch.jit.is_tracing():\n    x = double(x)\nreturn x")
    assert lines[-2].condition == "torch.jit.is_tracing()"


MULTILINE = """\
x = (
    self.block(x)
    .view(1)
    .transpose(
        0, 1
    )
)
x = (
    self.block(x)
    .view(*flag)
    .transpose(1, 0)
)
return double(
    triple(
        x
    )
) @ F.softmax(
    x, 1
)
"""


def test_calls_over_several_lines_stand_on_the_line_that_python_gives_them(package: Package) -> None:
    """The compiled code knows the line of each call instruction; the start of the source is the same."""
    inside = "".join(f"        {line}\n" for line in MULTILINE.strip().split("\n"))
    code = compile(f"class M:\n    def forward(self, x, flag, key):\n{inside}", "m", "exec")
    forward = next(c for c in _nested(code) if c.co_name == "forward")
    offset = 3  # of the first line of the body
    expected = set()
    for instruction in dis.get_instructions(forward):
        place = instruction.positions
        if instruction.opname.startswith("CALL") and place is not None and place.lineno is not None:
            expected.add(place.lineno - offset)
    lines = read(package, MULTILINE)
    first = lines[0].line
    found = {call.line - first for line in lines for call in line.calls if not call.callee.startswith("operator.")}
    assert found == expected
    assert {line.line - first for line in lines} >= expected


def _nested(code: CodeType) -> list[CodeType]:
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return inner + [c for one in inner for c in _nested(one)]


def test_a_forward_that_is_a_function_of_another_module_reads_that_modules_names(package: Package) -> None:
    index = package(
        {
            **TORCH,
            "base.py": "def twice(x): return x * 2\ndef run(module, x):\n    y = twice(x)\n    return module.step(y)\n",
            "m.py": "from torch import nn\nfrom base import run\ndef twice(x): ...\nclass A(nn.Module):\n"
            "    forward = run\n    def step(self, x): return x\n",
        }
    )
    forward = index.forward(index.one("m.A"))
    assert forward is not None
    lines = index.forward_lines(forward)
    assert [(line.callee, line.callee_file) for line in lines] == [("base.twice", "base.py"), ("m.A.step", "m.py")]


def test_functions_that_return_what_they_picked_are_read_for_it(package: Package) -> None:
    extra = "def choose(name):\n    if name in FUNCTIONS:\n        return FUNCTIONS[name]\n    raise KeyError(name)\n"
    found = callees(read(package, 'f = choose("triple")\ng = choose(key)\nreturn f(g(x))', extra=extra))
    assert found["f(g(x))"] == "m.triple"
    assert found["g(x)"] == "m.double | m.triple"
