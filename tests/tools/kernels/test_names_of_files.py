"""A name means what its file sees: macros of files that it does not include, and functions of other namespaces, are none of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import describe, scan

KERNEL = """#include "own.cuh"
#include <shapes/layout.hpp>
using namespace shapes;
namespace own {
template <int N> __global__ void k(const float* x, float* y) {
  constexpr int WIDTH = N * 2;
  __shared__ float kept[WIDTH];
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  copy(kept, y);
  lay(y);
}
}
void go(float* x, float* y) { own::k<64><<<8, 128>>>(x, y); }
"""
OWN = """#pragma once
namespace own {
__device__ inline void copy(const float* from, float* to) { shapes::copy(from, to); to[threadIdx.x] = from[threadIdx.x]; }
}
"""
OTHERS = {
    "bench/alone.cu": "#define WIDTH 999\n__global__ void other(float* y) { y[WIDTH] = 0; }\n",
    "third/lib/layout.hpp": "namespace third { __device__ inline void lay(float* y) { y[0] = 1.0f; y[1] = 2.0f; assert(y != nullptr); } }\n",
    "third/lib/log.hpp": "__device__ inline void log_it(int line) {}\n#if defined(LOGGED)\n#define __syncthreads() do { log_it(__LINE__); __syncthreads(); } while (0)\n#endif\n",
}


def read(folder: Path) -> KernelTiling:
    """The kernel `k` of the files in a folder."""
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    repository = Repository(name="r", root=folder, packages=())
    inventory = scan(repository, MemoryStore(), **quiet)
    (found,) = describe(repository, inventory, [k for k in inventory.kernels if k.name == "k"], **quiet)
    return found


@pytest.fixture
def kernel(tmp_path: Path) -> KernelTiling:
    for name, text in {"src/k.cu": KERNEL, "src/own.cuh": "#include <lib/log.hpp>\n" + OWN, **OTHERS}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return read(tmp_path)


def test_a_macro_of_a_file_that_is_compiled_by_itself_is_none_of_others(kernel: KernelTiling) -> None:
    assert "999" not in kernel.model_dump_json()
    assert not any("not read" in note for note in kernel.notes)


def test_a_macro_around_a_function_of_the_language_is_that_function(kernel: KernelTiling) -> None:
    assert not kernel.loops
    assert "log_it" not in {call.name for call in kernel.calls}
    assert {one.operation for one in kernel.instructions} == {"barrier"}


def test_a_function_of_a_namespace_is_called_by_that_alone(kernel: KernelTiling) -> None:
    stores = [(s.line, s.file) for s in kernel.stores if s.level == "global"]
    assert stores == [(4, "src/own.cuh")]  # once: `shapes::copy` is no `own::copy`, and `lay` no `third::lay`
    assert not [c for c in kernel.constraints if "third" in c.file]
    assert any("lay(...), shapes::copy(...) are not resolved" in note for note in kernel.notes)


GET = "__device__ float get(const float* p) { return p[threadIdx.x]; }"
LED_TO = {
    "a class with an attribute": (f"struct alignas(16) Vec {{ static {GET} }};", "Vec::get(x)"),
    "an alias": (f"template <int N> struct Vec {{ static {GET} }};\nusing V4 = Vec<4>;", "V4::get(x)"),
    "what a class is derived from": (f"struct A {{ static {GET} }};\nstruct B : A {{}};", "B::get(x)"),
    "what a namespace takes over": (f"namespace d {{ {GET} }}\nnamespace o {{ using d::get; }}", "o::get(x)"),
    "a namespace that another uses": (f"namespace d {{ {GET} }}\nnamespace o {{ using namespace d; }}", "o::get(x)"),
    "what is defined outside of it": (
        f"namespace a {{ __device__ float get(const float*); }}\n{GET.replace('get', 'a::get')}",
        "a::get(x)",
    ),
    "another name of a namespace": (f"namespace long_one {{ {GET} }}\nnamespace s = long_one;", "s::get(x)"),
    "what a macro calls it": (f"#define SPACE own\nnamespace SPACE {{ {GET} }}", "own::get(x)"),
}


@pytest.mark.parametrize("form", LED_TO)
def test_a_name_leads_to_what_it_may_mean(tmp_path: Path, form: str) -> None:
    defined, call = LED_TO[form]
    text = f"{defined}\n__global__ void k(const float* x, float* y) {{ y[0] = {call}; }}\nvoid go() {{ k<<<8, 128>>>(); }}\n"
    (tmp_path / "k.cu").write_text(text)
    kernel = read(tmp_path)
    assert [load.expression for load in kernel.loads] == ["p[threadIdx.x]"]


def test_an_own_function_of_the_name_does_not_hide_that_of_the_namespace(tmp_path: Path) -> None:
    (tmp_path / "o.cuh").write_text(f"namespace o {{ {GET} }}\n")
    text = '#include "o.cuh"\nnamespace own { __device__ float get(const float* p) { return p[7]; } }\n__global__ void k(const float* x, float* y) { y[0] = o::get(x); }\nvoid go() { k<<<8, 128>>>(); }\n'
    (tmp_path / "k.cu").write_text(text)
    kernel = read(tmp_path)
    assert [load.expression for load in kernel.loads] == ["p[threadIdx.x]"]
