"""Which way the branches of a Triton kernel go when its cost is counted: the way that every launch decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_tools.kernels import describe, scan, select

BRANCHES = """import triton
import triton.language as tl

@triton.jit
def scaled(x, y, bias, gate, n, flag, FACTOR: tl.constexpr, HAS_BIAS: tl.constexpr, GATED: tl.constexpr = False,
           B: tl.constexpr = 128):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at)
    if FACTOR == 2:
        v = v * 2.0
    else:
        v = v * 3.0 + 1.0
    if flag:
        v = v + 1.0
    if HAS_BIAS:
        v = v + tl.load(bias + at)
    if GATED:
        v = v * tl.load(gate + at)
    tl.store(y + at, v)

def first(x, y, bias=None):
    factor = 3
    on = False
    scaled[(8,)](x, y, bias, x, 1024, on, FACTOR=factor, HAS_BIAS=bias is not None)

def second(x, y):
    factor = 3
    scaled[(8,)](x, y, None, x, 512, False, factor, False)
THIRD"""
# how often a launch of 128 elements a tile counts, by hand: x loaded, y stored; * 3, + 1 and what a launch turns on


@pytest.mark.parametrize(
    ("third", "given", "flops", "loads", "assumed"),
    [
        # factor 3 through a local variable, flag False, bias None by first's default, GATED by the kernel's own default
        ("", {}, 2 * 128, 1, "HAS_BIAS is False: bias is None by default (ops.py:21)"),
        # a launch with another constant: the first branch, as an assumption
        ("def third(x, y):\n    scaled[(8,)](x, y, None, x, 1, False, 2, False)\n", {}, 128, 1, "FACTOR == 2 (line 9)"),
        # a launch that turns on what the others leave to the kernel's default
        ("def third(x, y):\n    scaled[(8,)](x, y, None, x, 1, False, 3, False, GATED=True)\n", {}, 3 * 128, 2, "GATED (line 17)"),
        # what a caller says wins
        ("", {"HAS_BIAS": True}, 3 * 128, 2, ""),
    ],
)  # fmt: skip
def test_a_branch_goes_the_way_that_every_launch_decides(
    tmp_path: Path, third: str, given: dict[str, Any], flops: int, loads: int, assumed: str
) -> None:
    (tmp_path / "ops.py").write_text(BRANCHES.replace("THIRD", third))
    own = Repository(name="own", root=tmp_path, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(own, MemoryStore(), **quiet)
    (kernel,) = describe(
        own, inventory, select(inventory, "scaled"), given=given, sizes={"B": 128, "element_size()": 2}, **quiet
    )
    cost = kernel.cost
    assert cost is not None
    assert cost.evaluated["flops"] == flops
    assert cost.evaluated["read_bytes"] == loads * 128 * 2
    assert not assumed or assumed in cost.conditions
    assert not given or not any("HAS_BIAS" in a for a in cost.conditions)


DEFAULTS = """
import triton
import triton.language as tl

@triton.jit
def k(x, y, FLAG: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at)
    if TEST:
        v = v * tl.load(y + at)
    tl.store(x + at, v)

def run(x, y, option=DEFAULT):
    k[(8,)](x, y, FLAG=PASSED, B=64)
"""


@pytest.mark.parametrize(
    ("default", "passed", "test"),
    [
        ("4", "option", "FLAG == 1"), ("1", "option", "FLAG == 1"), ("4", "option", "FLAG > 2"), ("-1", "option > 0", "FLAG"),
        ("8", "option > 0", "FLAG"), ("'silu'", "option", "FLAG == 'gelu'"), ("'gelu'", "option", "FLAG == 'gelu'"),
        ("'silu'", "option", "FLAG != 'gelu'"), ("True", "option", "FLAG"), ("False", "option", "FLAG"), ("None", "option is None", "FLAG"),
        ("0.5", "option", "FLAG > 0.0"), ("0.0", "option != 0.0", "FLAG"),
    ],
)  # fmt: skip
def test_what_a_launching_function_defaults_to_decides_and_is_said(
    tmp_path: Path, default: str, passed: str, test: str
) -> None:
    option = eval(default)
    holds = bool(eval(test, {"FLAG": eval(passed, {"option": option})}))
    (tmp_path / "ops.py").write_text(
        DEFAULTS.replace("DEFAULT", default).replace("PASSED", passed).replace("TEST", test)
    )
    own = Repository(name="own", root=tmp_path, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(own, MemoryStore(), **quiet)
    (kernel,) = describe(own, inventory, select(inventory, "k"), **quiet)
    assert kernel.cost is not None
    assert [m.counted for m in kernel.loads if m.parameter == "y"] == [holds]
    (said,) = kernel.cost.conditions
    assert said.endswith(f"option is {option!r} by default (ops.py:13)")


@pytest.mark.parametrize("test", ["at * FLAG < x.numel", "FLAG * tl.program_id(0) > 7", "tl.load(x) < FLAG"])
def test_a_default_that_decides_nothing_is_no_condition(tmp_path: Path, test: str) -> None:
    (tmp_path / "ops.py").write_text(
        DEFAULTS.replace("DEFAULT", "128").replace("PASSED", "option").replace("TEST", test)
    )
    own = Repository(name="own", root=tmp_path, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(own, MemoryStore(), **quiet)
    (kernel,) = describe(own, inventory, select(inventory, "k"), **quiet)
    assert kernel.cost is not None
    assert not any("by default" in condition for condition in kernel.cost.conditions)
