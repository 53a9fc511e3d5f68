"""Bytes of structures in shared memory are those that the compiler lays out; where that is not told, there is no number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opscope_schemas.tiling import Cost, KernelTiling

Described = Callable[..., tuple[KernelTiling, Cost]]
STRUCTURES = """
struct alignas(16) A { float v; };
struct B { A x; float y; };
struct C { char c; float2 f; char d; };
struct D { C n; double z; bool k[5]; };
struct alignas(128) E { float a[3]; };
struct F { E p; int q; };
struct G : C { int e; };
struct H { alignas(16) float a; float b; alignas(8) char c; };
struct I { A it[3]; float2 q; };
struct J : public A, public C { char e; };
struct K { char c; float3 f; };
struct L { float a; double4 d; };
struct M { alignas(32) float a; };
union U { char c[5]; A a; };
struct N { char c; U u; char d; };
struct O { H h; alignas(64) char c, d; };
struct P { char c; B b[2]; F f; };
struct Empty {}; struct Built { double d; char c; Built() {} }; struct Hidden { double d; private: char c; }; struct Seen { double d; virtual void f(); };
struct Q : Empty { char c; }; struct R : Built { char c; }; struct S : Hidden { char c; }; struct T { Seen s; }; struct V : G { char c; };
struct __attribute__((packed)) W { char c; double d; }; struct X { W w; char c; }; struct Y : Elsewhere { int e; };
"""
#: as `sizeof` of g++ 13 tells them, which lays structures out as nvcc does
SIZES = {
    "A": 16, "B": 32, "C": 24, "D": 40, "E": 128, "F": 256, "G": 32, "H": 16, "I": 64, "J": 48, "K": 16, "L": 48, "M": 32,
    "U": 16, "N": 48, "O": 192, "P": 384,
}  # fmt: skip


def bytes_of(described: Described, name: str) -> int | None:
    source = f"{STRUCTURES}__global__ void k(float* o) {{ __shared__ {name} s[3]; o[0] = 1.f; }}"
    (array,) = described(source)[0].shared_memory
    return array.bytes


@pytest.mark.parametrize("name", SIZES)
def test_a_structure_takes_the_bytes_that_the_compiler_lays_out(described: Described, name: str) -> None:
    assert bytes_of(described, name) == 3 * SIZES[name]


@pytest.mark.parametrize("name", ["Q", "R", "S", "T", "V", "W", "X", "Y"])
def test_where_the_layout_is_not_told_there_is_no_number(described: Described, name: str) -> None:
    assert bytes_of(described, name) is None
