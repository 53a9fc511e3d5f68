"""What a CUDA launch asks for, as running its host function tells: macros, references, branches, function pointers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import describe, scan, select

KERNELS = """
template <typename T, bool Causal, bool Even, int N> __global__ void attend(T * x) { x[threadIdx.x] = Causal; }
__global__ void first(float * x) { x[threadIdx.x] = 1.f; }
__global__ void second(float * x) { x[threadIdx.x] = 2.f; }
"""
SWITCHES = """#define BOOL_SWITCH(COND, CONST_NAME, ...) \\
  [&] {                                     /* a comment \\
                                               goes on */ \\
    if (COND) {                              \\
      constexpr static bool CONST_NAME = true;  \\
      return __VA_ARGS__();                  \\
    } else {                                 \\
      constexpr static bool CONST_NAME = false; \\
      return __VA_ARGS__();                  \\
    }                                        \\
  }()
#define EVEN_SWITCH BOOL_SWITCH
#define KIND_SWITCH(KIND, ...) [&] { switch (KIND) { \\
  case Kind::half: { using scalar_t = half; return __VA_ARGS__(); } \\
  case Kind::single: { using scalar_t = float; return __VA_ARGS__(); } \\
  default: TORCH_CHECK(false, "no kind ", KIND); } }()
"""


def kernels(tmp_path: Path, host: str, **files: str) -> dict[str, KernelTiling]:
    """The kernels of a file with these host functions, by name."""
    (tmp_path / "kernels.cuh").write_text(KERNELS)
    (tmp_path / "switch.h").write_text(SWITCHES)
    for name, text in files.items():
        (tmp_path / f"{name}.h").write_text(text)
    included = "".join(f'#include "{n}"\n' for n in ("kernels.cuh", "switch.h", *(f"{n}.h" for n in files)))
    (tmp_path / "host.cu").write_text(included + host)
    own = Repository(name="own", root=tmp_path, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(own, MemoryStore(), **quiet)
    return {k.name: k for k in describe(own, inventory, select(inventory, "own"), **quiet)}


def asked(kernel: KernelTiling) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
    """(grid, block, tests around) of each launch."""
    return [(g.dimensions, g.block, g.reached_when) for g in kernel.grid]


def values(kernel: KernelTiling) -> dict[str, set[str]]:
    return {c.name: {v.value for v in c.values} for c in kernel.constexpr}


def test_a_flag_that_a_macro_names_is_a_template_argument_with_both_values(tmp_path: Path) -> None:
    host = """
template <typename T> void run(T * x, int n, bool causal, cudaStream_t stream) {
  const int rows = (n + 127) / 128;
  BOOL_SWITCH(causal, kCausal, [&] {
    EVEN_SWITCH(n % 2 == 0, kEven, [&] {
      dim3 grid(rows, 3);
      auto kernel = &attend<T, kCausal && !kEven, kEven, 64>;
      kernel<<<grid, 128, 0, stream>>>(x);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}
void outer(float * x, int n, bool c, cudaStream_t s) { run<float>(x, n, c, s); }
"""
    kernel = kernels(tmp_path, host)["attend"]
    assert asked(kernel) == [(("cdiv({n}, 128)", "3"), ("128",), ())]  # the same on each of the four ways
    assert values(kernel) == {"T": {"float"}, "Causal": {"true", "false"}, "Even": {"true", "false"}, "N": {"64"}}
    assert kernel.grid[0].kernel == "attend<T, kCausal && !kEven, kEven, 64>"


def test_a_grid_that_a_flag_decides_is_one_launch_for_each_value(tmp_path: Path) -> None:
    host = """
void run(float * x, int n, bool causal) {
  BOOL_SWITCH(causal, kCausal, [&] {
    dim3 grid(n, kCausal ? 2 : 1);
    attend<float, kCausal, true, 64><<<grid, kCausal ? 64 : 32>>>(x);
  });
}
"""
    kernel = kernels(tmp_path, host)["attend"]
    assert asked(kernel) == [(("{n}", "2"), ("64",), ("causal",)), (("{n}", "1"), ("32",), ("not causal",))]
    assert [g.kernel for g in kernel.grid] == ["attend<float, true, true, 64>", "attend<float, false, true, 64>"]


@pytest.mark.parametrize(
    "macro", ["KIND_SWITCH(kind, [&] {", 'AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "run", [&] {']
)
def test_a_grid_in_the_lambda_of_a_dispatch_is_found_where_the_macro_is_known_and_where_not(
    tmp_path: Path, macro: str
) -> None:
    body = "dim3 grid(n, 5); grid.z = 2; attend<scalar_t, true, false, 8><<<grid, 96>>>(p);"
    kernel = kernels(tmp_path, f"void run(Tensor x, Kind kind, float * p, int n) {{ {macro} {body} }}); }}")["attend"]
    assert [(d, b) for d, b, _ in asked(kernel)] == [(("{n}", "5", "2"), ("96",))]


CONFIGURE = """
static void configure(int n, dim3 & block, dim3 & grid, bool wide = false) {
  int width = std::min(n, 64);
  block.x = width; block.y = 4;
  grid = dim3((n + 127) / 128, 7);
}
"""


def test_what_a_function_makes_of_a_reference_is_what_the_launch_takes(tmp_path: Path) -> None:
    host = """void run(float * x, int n) {
  dim3 block(1), grid;
  configure(n, block, grid);
  first<<<grid, block>>>(x);
}"""
    found = kernels(tmp_path, host, configure=CONFIGURE)["first"]
    assert asked(found) == [(("cdiv({n}, 128)", "7"), ("min({n}, 64)", "4"), ())]
    assert "block.x = width (configure.h:4)" in found.grid[0].definitions


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "configure, which is not read, may change it"),
        ({"configure": CONFIGURE + CONFIGURE}, "configure, which is not read, may change it"),  # which is meant?
    ],
)
def test_what_an_unread_function_may_change_is_not_told(tmp_path: Path, files: dict[str, str], why: str) -> None:
    host = "void run(float * x, int n) { dim3 block(1); dim3 grid(n, 2); configure(n, block, grid); first<<<grid, block>>>(x); }"
    (launch,) = kernels(tmp_path, host, **files)["first"].grid
    assert (launch.dimensions, launch.block, launch.threads, launch.num_tiles) == ((), (), None, "")
    assert launch.unresolved == (f"grid: {why}", f"block: {why}")


def test_a_copy_that_a_function_changes_stays_as_it_is(tmp_path: Path) -> None:
    host = """static int most(dim3 block) { block.x = 7; return 3; }
void run(float * x, int n) { dim3 block(64); int m = most(block); first<<<m, block>>>(x); }"""
    assert asked(kernels(tmp_path, host)["first"]) == [(("3",), ("64",), ())]


def test_launches_through_one_pointer_are_those_of_what_it_points_to_then(tmp_path: Path) -> None:
    host = """void run(float * x, int n, bool big) {
  auto kernel = &first;
  kernel<<<1, 32>>>(x);
  kernel = &second;
  kernel<<<2, 64>>>(x);
  auto either = big ? &first : &second;
  either<<<3, 96>>>(x);
  if (n > 3) kernel = &first;
  kernel<<<4, 128>>>(x);
}"""
    found = kernels(tmp_path, host)
    assert asked(found["first"]) == [(("1",), ("32",), ()), (("3",), ("96",), ("big",)), (("4",), ("128",), ("n > 3",))]
    assert asked(found["second"]) == [
        (("2",), ("64",), ()), (("3",), ("96",), ("not big",)), (("4",), ("128",), ("n <= 3",)),
    ]  # fmt: skip


def test_the_tests_around_a_launch_are_its_conditions(tmp_path: Path) -> None:
    host = """void run(float * x, int n, int mode) {
  int block = 32;
  if (n > 64) { block = 64; if (mode) { first<<<n, block>>>(x); } }
  else { first<<<1, block>>>(x); return; }
  switch (mode) { case 1: case 2: second<<<2, block>>>(x); break; default: second<<<3, 8>>>(x); }
}"""
    found = kernels(tmp_path, host)
    assert asked(found["first"]) == [(("{n}",), ("64",), ("n > 64", "mode")), (("1",), ("32",), ("n <= 64",))]
    assert asked(found["second"]) == [
        (("2",), ("64",), ("mode == 1 or mode == 2",)), (("3",), ("8",), ("mode is none of these",)),
    ]  # fmt: skip


def test_a_launcher_under_a_test_and_a_config_that_is_filled_are_followed(tmp_path: Path) -> None:
    launcher = """#pragma once
template <typename F, typename... Args> void launch(F kernel, dim3 grid, dim3 block, int bytes, Args... args) {
  cudaLaunchConfig_t config = {.blockDim = block, .gridDim = grid};
  config.dynamicSmemBytes = bytes * 2;
  cudaLaunchKernelEx(&config, kernel, args...);
}
template <int N, typename F> void sized(F kernel, int n, float * x) { kernel<<<n, N>>>(x); }
"""
    host = """void run(float * x, int n, bool c) {
  if (c) { launch(first, dim3(n, 2), 64, 256, x); } else { sized<192>(second, n + 1, x); }
}"""
    found = kernels(tmp_path, host, launcher=launcher)
    assert asked(found["first"]) == [(("{n}", "2"), ("64",), ("c",))]
    assert found["first"].grid[0].shared_memory == "512"
    assert asked(found["second"]) == [(("{n} + 1",), ("192",), ("not c",))]


def test_what_does_not_parse_around_a_launch_hides_nothing_of_it(tmp_path: Path) -> None:
    host = """void run(float * x, int n, std::string name) {
  if (name == "long" + std::string("er")) { throw std::runtime_error("no " + name); }
  try { std::cout << "rows " << n << std::endl; } catch (...) { return; }
  PUSH_WARNINGS("off")
  const int rows = n / 2;
  auto later = [&](auto tag, std::string const & by) { first<<<dim3(rows, 2), 32>>>(x); };
  each_of(later, "name", 3);
  second<<<rows * 2, 64, 0, at::cuda::getCurrentCUDAStream()>>>(x);
}"""
    found = kernels(tmp_path, host)
    assert asked(found["first"]) == [(("{n} // 2", "2"), ("32",), ())]
    assert asked(found["second"]) == [(("({n} // 2) * 2",), ("64",), ())]


def test_a_check_under_a_test_is_asked_for_only_there(tmp_path: Path) -> None:
    host = """
void go(float* x, int n, bool strict) {
  TORCH_CHECK(n > 0, "some");
  if (strict) TORCH_CHECK(n < 9, "few");
  if (n > 4) { CHECK_INPUT(x); } else { TORCH_CHECK(n % 2 == 0); }
  first<<<1, 32>>>(x);
}
"""
    asked = {c.condition: c.when for c in kernels(tmp_path, host)["first"].constraints}
    assert asked == {"n > 0": "", "n < 9": "strict", "x": "n > 4", "n % 2 == 0": "the test before line 7 fails"}


SCHEDULERS = """
struct One {
  struct Arguments { int const tiles, heads; float scale; };
  static dim3 shape(Arguments const& args, int sms) { return {uint32_t(args.tiles), uint32_t(args.heads)}; }
};
template <class T> struct Persistent {
  static constexpr int kRows = 4;
  struct Arguments { float* p; int const heads, tiles; };
  static dim3 shape(Arguments const& args, int sms) { return {(unsigned)sms}; }
  static dim3 rows(int n) { return dim3(n / kRows); }
};
"""


@pytest.mark.parametrize(
    ("scheduler", "grid"),
    [
        ("One", ("cdiv({n}, 128)", "{h}")), ("Persistent<float>", ("132",)),
        ("std::conditional_t<true, One, Persistent<T>>", ("cdiv({n}, 128)", "{h}")),
        # each axis is either's
        ("std::conditional_t<P, Persistent<T>, One>", ("(132 if P else cdiv({n}, 128))", "(1 if P else {h})")),
        # a type that the caller does not tell
        ("T", ("{Scheduler::shape(args, 132)}",)), ("Unknown", ("{Scheduler::shape(args, 132)}",)),
    ],
)  # fmt: skip
def test_a_grid_that_a_class_works_out_is_told_where_the_class_is(
    tmp_path: Path, scheduler: str, grid: tuple[str, ...]
) -> None:
    """Structures of one name in several classes are that of the class whose function takes them."""
    host = f"""
void other(int * unused) {{ using Scheduler = Other; }}
template <typename T, bool P> void run(float * x, int n, int h) {{
  using Scheduler = {scheduler};
  int tiles = (n + 127) / 128;
  other(&tiles);
  typename Scheduler::Arguments args = {{tiles, h, 1.f}};
  dim3 grid = Scheduler::shape(args, 132);
  first<<<grid, 128>>>(x);
}}
"""
    (launch,) = kernels(tmp_path, host, schedulers=SCHEDULERS)["first"].grid
    assert launch.dimensions == grid


def test_a_grid_that_rests_on_a_constant_of_the_class_is_not_told_by_another_of_that_name(tmp_path: Path) -> None:
    host = "constexpr int kRows = 8;\nvoid run(float * x, int n) { first<<<Persistent<float>::rows(n), 128>>>(x); }\n"
    (launch,) = kernels(tmp_path, host, schedulers=SCHEDULERS)["first"].grid
    assert (launch.dimensions, launch.expression) == ((), "Persistent<float>::rows(n)")
    assert any("Persistent<float>::rows(n)" in one for one in launch.unresolved)
