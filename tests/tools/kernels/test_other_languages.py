"""Kernels of other languages in Python: those that are launched are listed, helpers and hosts are not."""

from __future__ import annotations

import textwrap

import pytest
from opscope_tools.kernels.triton.definitions import find_in_python, worth_parsing

GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

@gluon.jit
def row(offset):
    return gl.program_id(0) + offset

@gluon.jit
def fill(out):
    gl.store(out + row(1), gl.program_id(1))

@gluon.jit
def once(out):
    gl.store(out, 1)

@gluon.jit
def maximum(a, b):
    return gl.maximum(a, b)

class Schedule:
    @gluon.jit
    def start(self):
        return gl.program_id(0)

def run(out):
    once[(1,)](out)
"""
TILELANG = """
import tilelang.language as T

@T.macro
def clear(block):
    T.clear(block)

def matmul(M):
    @T.prim_func
    def main(A: T.Tensor((M,), "float16")):
        with T.Kernel(T.ceildiv(M, 128), threads=128) as bx:
            T.copy(A[bx], A[bx])

    @T.prim_func
    def host(A: T.Tensor((M,), "float16")):
        T.evaluate(0)
    return main
"""
PALLAS = """
import functools
from jax.experimental import pallas as pl

def add_kernel(x, y, o):
    o[...] = x[...] + y[...]

def scale_kernel(x, o, *, by):
    o[...] = x[...] * by

def run(x, y):
    return pl.pallas_call(add_kernel, grid=(1,))(x, pl.pallas_call(functools.partial(scale_kernel, by=2))(y))
"""


@pytest.mark.parametrize(
    ("source", "form", "kernels"),
    [
        (PALLAS, "Pallas", {"add_kernel", "scale_kernel"}),
    ],
)
def test_what_is_launched_is_a_kernel_and_nothing_else(source: str, form: str, kernels: set[str]) -> None:
    assert worth_parsing(source.encode())
    found = find_in_python("ops.py", textwrap.dedent(source)).not_analysed
    assert {(each.form, each.name) for each in found} == {(form, name) for name in kernels}
    for each in found:  # the line is that of the definition, or of its first decorator's function
        assert f"def {each.name}(" in source.splitlines()[each.line - 1]


def test_what_a_gluon_kernel_calls_is_no_kernel() -> None:
    assert worth_parsing(GLUON.encode())
    found = find_in_python("ops.py", GLUON)
    assert [(k.name, k.language, k.role) for k in found.kernels] == [
        ("fill", "gluon", "kernel"),
        ("once", "gluon", "kernel"),
    ]
    assert found.not_analysed == ()


def test_a_grid_of_tilelang_is_a_kernel_and_its_macros_and_hosts_are_none() -> None:
    assert worth_parsing(TILELANG.encode())
    found = find_in_python("ops.py", TILELANG)
    assert [(k.name, k.language, k.role) for k in found.kernels] == [("matmul.main", "tilelang", "kernel")]
    assert found.not_analysed == ()
