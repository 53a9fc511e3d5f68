"""What a Triton kernel is compiled for: one case that its launch really makes, worked out here by running the host code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_tools.kernels import describe, launches_of, scan, select
from opscope_tools.kernels.compiled.triton_types import choices
from opscope_tools.kernels.host.modules import Modules
from opscope_tools.kernels.triton.decorators import Context
from opscope_tools.kernels.triton.definitions import function_of

SOURCE = """import functools
import torch
import triton
import triton.language as tl

def contiguous_inputs(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*(a.contiguous() if isinstance(a, torch.Tensor) else a for a in args), **kwargs)
    return inner

def settings(n):
    block = triton.next_power_of_2(n)
    if block > 65536:
        raise RuntimeError("too wide")
    return block, 16 if block >= 2048 else 8

@triton.heuristics({"EVEN": lambda args: args["Lk"] % args["BLOCK"] == 0, "HAS_BIAS": lambda args: args["bias"] is not None})
@triton.jit(do_not_specialize=["rows"])
def dependent(q, out, bias, Lk, rows, sq, sd, so, BLOCK: tl.constexpr, WARPS: tl.constexpr, EVEN: tl.constexpr,
              HAS_BIAS: tl.constexpr, DTYPE: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(q + tl.program_id(0) * sq + offs * sd, mask=offs < Lk)
    if HAS_BIAS:
        x += tl.load(bias + offs, mask=offs < Lk)
    tl.store(out + tl.program_id(0) * so + offs, x.to(DTYPE), mask=offs < Lk)

@triton.jit
def square(x, y, stride, N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows, cols = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    at = rows[:, None] * stride + cols[None, :]
    tl.store(y + at, tl.load(x + at))

def launch_dependent(q, bias=None):
    rows, Lk = q.shape
    q = q.contiguous()
    assert Lk in (80, 96, 112)
    BLOCK = triton.next_power_of_2(Lk)
    num_warps = 4 if Lk <= 64 else 8
    out = torch.empty_like(q, dtype=torch.float32)
    dependent[(rows,)](q, out, bias, Lk, rows, q.stride(0), q.stride(1), out.stride(0), BLOCK=BLOCK, WARPS=num_warps,
                       DTYPE=tl.float32, num_warps=num_warps)
    return out

@contiguous_inputs
def launch_square(x, n, wide: bool = False):
    if n % 2:
        raise ValueError(n)
    BLOCK_M, num_warps = settings(n)
    y = torch.empty((n, n), device=x.device, dtype=torch.int32)
    if wide:
        square[(1,)](x, y, y.stride(0), N=n, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_M, num_warps=num_warps)
    return y
"""


def choice(tmp_path: Path, target: str, given: dict[str, Any] | None = None, source: str = SOURCE) -> Any:
    (tmp_path / "ops.py").write_text(source)
    own = Repository(name="own", root=tmp_path, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(own, MemoryStore(), **quiet)
    (reference,) = select(inventory, target)
    (kernel,) = describe(own, inventory, [reference], **quiet)
    context = Context(Modules(own), None, lambda: None)
    _, function = function_of(reference, context.modules)
    return choices(function, kernel, launches_of(inventory, reference), context, given or {})[0]


@pytest.mark.parametrize("given", [{}, {"Lk": 80}, {"BLOCK": 128}])
def test_values_that_depend_on_each_other_are_those_of_one_launch(tmp_path: Path, given: dict[str, Any]) -> None:
    found = choice(tmp_path, "dependent", given)
    known = found.constants
    length = known.get("Lk", next((n for n in (80, 96, 112) if f"({n}: " in found.said["Lk"]), None))
    assert length in (80, 96, 112)  # what the host function asserts
    assert known["BLOCK"] == 1 << (length - 1).bit_length() == 128
    assert known["WARPS"] == (4 if length <= 64 else 8) == found.options["num_warps"]
    assert known["EVEN"] == (length % 128 == 0)
    assert known["HAS_BIAS"] is False
    assert known["bias"] is None  # the default of the host function
    assert known["DTYPE"] == "tl.float32"


def test_the_last_stride_of_a_contiguous_tensor_is_a_constant(tmp_path: Path) -> None:
    found = choice(tmp_path, "dependent")
    assert found.constants["sd"] == 1
    assert found.said["sd"] == "1 (the launch passes q.stride(1), which is contiguous)"
    assert found.signature["sq"] == found.signature["so"] == "i32"
    assert found.signature["out"] == "*fp32"  # torch.empty_like(q, dtype=torch.float32)
    assert found.signature["rows"] == "i32"
    assert "rows" not in found.divisible  # do_not_specialize


def test_the_branch_of_a_launch_and_a_helpers_refusal_are_kept(tmp_path: Path) -> None:
    found = choice(tmp_path, "square")
    size = found.constants["N"]
    assert size % 2 == 0
    assert found.constants["BLOCK_M"] == found.constants["BLOCK_N"] == 1 << (size - 1).bit_length()
    assert found.options["num_warps"] == (16 if found.constants["BLOCK_M"] >= 2048 else 8)
    assert found.signature["y"] == "*i32"
    asked = choice(tmp_path, "square", {"BLOCK_M": 2048})
    assert asked.constants["BLOCK_M"] == asked.constants["BLOCK_N"] == asked.constants["N"] == 2048
    assert asked.options["num_warps"] == 16
    assert asked.said["BLOCK_M"] == "2048 (given)"


HOLDS = """import triton
import triton.language as tl

@triton.jit
def typed(words, bytes_, pointers, plain, out, B: tl.constexpr):
    at = tl.arange(0, B)
    bits = (tl.load(words + at // 32) >> (at % 32)) & 1
    eighth = tl.load(bytes_ + at)
    value = eighth.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    base = tl.load(pointers).to(tl.pointer_type(tl.float32))
    tl.store(out + at, tl.load(base + at) + value + bits + tl.load(plain + at))

def launch(words, bytes_, pointers, plain, out):
    typed[(1,)](words, bytes_, pointers, plain, out, B=64)
"""


def test_what_a_pointer_must_hold_is_told_by_what_is_done_with_it(tmp_path: Path) -> None:
    found = choice(tmp_path, "typed", source=HOLDS)
    kinds = {n: found.signature[n] for n in ("words", "bytes_", "pointers", "plain")}
    assert kinds == {"words": "*i32", "bytes_": "*u8", "pointers": "*i64", "plain": "*bf16"}
    assert found.said["words"] == "*i32, divisible by 16 (by what is done with what it holds)"
