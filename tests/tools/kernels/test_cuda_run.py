"""One run reads a CUDA kernel: its lists and its cost name the same lines, and pointers mean the memory they lead to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from kernel_sources import kernel_sources
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import Cost, KernelTiling
from opscope_tools.kernels import describe, parse_arch, scan
from opscope_tools.kernels.cuda.run import kernel as run
from opscope_tools.kernels.projections.drawing import screen
from opscope_tools.kernels.values.conditions import canonical, negated

CORPUS = Path(__file__).parents[2] / "corpus"


def kernels_of(root: Path, every: int = 1, **asked: Any) -> list[KernelTiling]:
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    repository = Repository(name="r", root=root, packages=())
    inventory = scan(repository, MemoryStore(), **quiet)
    chosen = [k for k in inventory.kernels if k.language == "cuda" and k.role == "kernel"]
    return describe(repository, inventory, chosen[::every], **asked, **quiet)


def one(folder: Path, text: str, **asked: Any) -> KernelTiling:
    (folder / "k.cu").write_text(text)
    (kernel,) = [k for k in kernels_of(folder, **asked) if k.name == "k"]
    return kernel


def body(folder: Path, text: str, parameters: str = "const float* x, float* y, int n", **asked: Any) -> KernelTiling:
    return one(folder, f"__global__ void k({parameters}) {{\n{text}\n}}\nvoid go() {{ k<<<8, 128>>>(); }}\n", **asked)


def cost_of(kernel: KernelTiling) -> Cost:
    assert kernel.cost is not None
    return kernel.cost


def listed(kernel: KernelTiling) -> list[tuple[str, str]]:
    return [(m.expression, m.parameter) for m in (*kernel.loads, *kernel.stores) if m.level == "global"]


# what a pointer leads to ---------------------------------------------------------------------------------------------


def test_moving_a_pointer_through_a_pointer_to_it_is_no_access(tmp_path: Path) -> None:
    text = """
__device__ void advance(const float** p) { *p += 32; }
__global__ void k(const float* x, float* y) { const float* at = x; advance(&at); y[threadIdx.x] = at[threadIdx.x]; }
"""
    assert listed(one(tmp_path, text)) == [("at[threadIdx.x]", "x"), ("y[threadIdx.x]", "y")]


def test_a_fragment_in_registers_that_a_function_is_handed_is_no_global_memory(tmp_path: Path) -> None:
    text = """
__device__ void mma(float d[4], const float* a) { for (int i = 0; i < 4; ++i) d[i] += a[i]; }
__global__ void k(const float* x, float* y) { float d[4] = {}; mma(d, x); y[threadIdx.x] = d[0]; }
"""
    assert listed(one(tmp_path, text)) == [("a[i]", "x"), ("y[threadIdx.x]", "y")]


def test_a_function_that_is_handed_global_and_then_shared_memory_reads_both(tmp_path: Path) -> None:
    text = """
__device__ float get(const float* p) { return p[threadIdx.x]; }
__global__ void k(const float* x, float* y) { __shared__ float t[32]; y[threadIdx.x] = get(x) + get(t); }
"""
    kernel = one(tmp_path, text)
    assert [(m.level, m.expression, m.parameter, m.via) for m in kernel.loads] == [
        ("global", "p[threadIdx.x]", "x", "get"), ("shared", "p[threadIdx.x]", "", "get"),
    ]  # fmt: skip
    assert cost_of(kernel).read_bytes == "4 * {blockDim.x}"


def test_what_is_asserted_of_types_holds_in_every_thread(tmp_path: Path) -> None:
    source = """template <int N> __device__ void put(float* y) {
  static_assert(N % 2 == 0, "even");
  assert(y != nullptr);
  y[0] = N;
}
__global__ void k(float* y) { if (threadIdx.x > 7) { put<4>(y); } }
void go(float* y) { k<<<8, 128>>>(y); }
"""
    told = {c.kind: c.when for c in one(tmp_path, source).constraints}
    assert told == {"static_assert": "", "assert": "threadIdx.x > 7"}


def test_an_object_that_a_function_is_handed_by_its_name_is_not_read(tmp_path: Path) -> None:
    text = "__shared__ Kept kept; __shared__ float sums[32]; given(kept, sums[1]); work.load(kept, n); y[0] = x[0];"
    kernel = body(tmp_path, text)
    assert [m.expression for m in kernel.loads if m.level == "shared"] == ["sums[1]"]


@pytest.mark.parametrize(("mode", "line"), [("kZero", 3), ("kNone", 4)])
def test_what_a_call_names_as_template_arguments_decides_what_of_the_function_runs(
    tmp_path: Path, mode: str, line: int
) -> None:
    source = f"""enum class Fill {{ kZero, kNone = 7 }};
namespace cp {{ template <int BITS, Fill mode> __device__ inline void load(float* to, const float* from) {{
  if constexpr (mode == Fill::kZero) {{ to[0] = from[0];
  }} else if constexpr (mode != Fill::kZero) {{ to[1] = from[1]; }} }} }}
__global__ void k(const float* x, float* y) {{ cp::load<128, Fill::{mode}>(y, x); }}
void go(float* x, float* y) {{ k<<<8, 128>>>(x, y); }}
"""
    kernel = one(tmp_path, source)
    assert [(m.line, m.when, m.counted) for m in (*kernel.loads, *kernel.stores)] == 2 * [(line, "", True)]
    assert not cost_of(kernel).conditions


def test_enumerators_of_one_number_are_not_told_apart(tmp_path: Path) -> None:
    source = """enum class Fill { kZero, kNone, kSame = kNone };
template <Fill mode> __device__ inline void load(float* to, const float* from) {
  if constexpr (mode == Fill::kNone) { to[0] = from[0]; }
}
__global__ void k(const float* x, float* y) { load<Fill::kSame>(y, x); }
void go(float* x, float* y) { k<<<8, 128>>>(x, y); }
"""
    (load,) = one(tmp_path, source).loads
    assert load.when != ""


def test_a_number_in_braces_is_read_once(tmp_path: Path) -> None:
    kernel = body(tmp_path, "int v{x[threadIdx.x]};\ny[threadIdx.x] = v;", "const int* x, float* y")
    assert cost_of(kernel).read_bytes == "512"


def test_a_pointer_that_is_set_anew_starts_where_it_was_set_last(tmp_path: Path) -> None:
    kernel = body(tmp_path, "const float* p = x + n; float v = p[0]; p = y + n; v += p[threadIdx.x]; y[n] = v;")
    assert listed(kernel)[:2] == [("p[0]", "x"), ("p[threadIdx.x]", "y")]


def test_a_table_in_the_parameters_of_a_kernel_is_no_global_memory_but_what_it_points_to_is(tmp_path: Path) -> None:
    text = "struct Lists { float* addresses[4]; int sizes[4]; };\n__global__ void k(Lists lists) {\n"
    kernel = one(tmp_path, text + "lists.addresses[blockIdx.x][threadIdx.x] = lists.sizes[0]; }\n")
    assert [(m.expression, m.parameter, m.coalesced) for m in (*kernel.loads, *kernel.stores)] == [
        ("lists.addresses[blockIdx.x][threadIdx.x]", "lists", "yes")
    ]


def test_constant_memory_is_a_level_of_its_own(tmp_path: Path) -> None:
    text = "__constant__ float table[64];\n__global__ void k(float* y) { y[threadIdx.x] = table[threadIdx.x]; }\n"
    kernel = one(tmp_path, text)
    assert [(m.level, m.expression) for m in kernel.loads] == [("constant", "table[threadIdx.x]")]
    assert cost_of(kernel).read_bytes == "0"


# branches ------------------------------------------------------------------------------------------------------------


def test_a_branch_and_a_loop_without_braces_are_read_as_what_they_are(tmp_path: Path) -> None:
    kernel = body(tmp_path, "if (threadIdx.x < 32)\n  for (int i = 0; i < 4; ++i)\n    y[i] = x[i];\ny[n] = 0;")
    assert [(m.expression, m.loop, m.when) for m in kernel.stores] == [
        ("y[i]", 3, "threadIdx.x < 32"), ("y[n]", 0, ""),
    ]  # fmt: skip
    assert (cost_of(kernel).read_bytes, cost_of(kernel).write_bytes) == ("512", "1024")


def test_the_side_that_is_not_taken_is_listed_with_its_condition_and_not_counted(tmp_path: Path) -> None:
    kernel = body(
        tmp_path,
        "if (add) y[threadIdx.x] += x[threadIdx.x];\nelse y[threadIdx.x] = 1.f;",
        "const float* x, float* y, bool add",
    )
    assert [(m.line, m.when, m.counted) for m in kernel.stores] == [(2, "add", True), (3, "not add", False)]
    assert {line.line for line in cost_of(kernel).lines} == {2}


@pytest.mark.parametrize("ends", [(1, 1, 1), (0, 1, 1), (1, 0, 1), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 0)])
def test_a_case_that_others_fall_through_to_is_told_for_their_values_too(tmp_path: Path, ends: tuple[int, ...]) -> None:
    cases = "".join(f"case {i}: y[{i}] = 1.f;{' break;' * end}\n" for i, end in enumerate(ends))
    kernel = body(tmp_path, f"switch (mode) {{\n{cases}default: y[9] = 1.f; }}", "float* y, int mode")
    told = {m.line - 3: m.when for m in kernel.stores if not m.counted}
    for line in range(1, 4):
        met = [first for first in range(line + 1) if first < 3 and not any(ends[first:line])]
        expected = [f"mode == {first}" for first in met] + ["mode is no other case"] * (line == 3)
        if line in told:
            assert told[line] == " or ".join(expected)
    assert len(told) == 3 - (*ends, 1).index(1)


def test_one_answer_never_takes_a_flag_both_ways(tmp_path: Path) -> None:
    text = "if (mode == 1) y[0] = x[0];\nif (mode == 2) y[1] = x[1];\nif (mode == 1) y[2] = x[2];"
    kernel = body(tmp_path, text, "const float* x, float* y, int mode")
    assert [(m.line, m.counted) for m in kernel.loads] == [(2, True), (3, False), (4, True)]
    given = body(tmp_path, text, "const float* x, float* y, int mode", sizes={"mode": 2})
    assert [(m.line, m.counted) for m in given.loads] == [(2, False), (3, True), (4, False)]


@pytest.mark.parametrize(
    ("test", "arch", "kept"),
    [
        ("__CUDA_ARCH__ >= 900", "sm_80", 4), ("__CUDA_ARCH__ >= 900", "sm_90", 2), ("__CUDA_ARCH__ >= 900", "sm_100", 2),
        ("not defined(USE_ROCM) and __CUDA_ARCH__ >= 800", "sm_75", 4),
        ("not defined(USE_ROCM) and __CUDA_ARCH__ >= 800", "sm_80", 2),
        ("__CUDA_ARCH__ < 700 or __CUDA_ARCH__ == 800", "sm_80", 2),
    ],
)  # fmt: skip
def test_the_architecture_asked_for_decides_which_branch_is_compiled(
    tmp_path: Path, test: str, arch: str, kept: int
) -> None:
    text = f"__global__ void k(float* y) {{\n#if {test}\ny[0] = 1;\n#else\ny[1] = 1;\n#endif\n}}\n"
    kernel = one(tmp_path, text, arch=parse_arch(arch))
    assert [m.line for m in kernel.stores] == [kept + 1]
    assert not any(test in c for c in cost_of(kernel).conditions)


@pytest.mark.parametrize("flag", ["ENABLE_FP8", "USE_ROCM", "SOME_FLAG"])
def test_a_flag_around_a_kernel_counts_as_set(tmp_path: Path, flag: str) -> None:
    kernel = one(tmp_path, f"#ifdef {flag}\n__global__ void k(float* y) {{ y[threadIdx.x] = 1; }}\n#endif\n")
    assert listed(kernel) == [("y[threadIdx.x]", "y")]
    assert any(f"#ifdef {flag} is met" in c for c in cost_of(kernel).conditions)


def test_a_kernel_whose_heading_a_macro_writes_is_run_like_others(tmp_path: Path) -> None:
    text = "#define KERNEL(name) __global__ void name(float* y)\nKERNEL(k) { y[threadIdx.x] = 1; }\n"
    assert cost_of(one(tmp_path, text)).write_bytes == "4 * {blockDim.x}"


# what is not known ---------------------------------------------------------------------------------------------------


def test_a_sum_whose_main_part_is_not_counted_is_empty_and_never_zero(tmp_path: Path) -> None:
    kernel = body(tmp_path, "for (int i = 0; i < n; ++i) copy_tile(x, y, i);\nif (n == 3) y[0] = 0;")
    cost = cost_of(kernel)
    assert (cost.flops, cost.matmul_flops, cost.read_bytes, cost.write_bytes, cost.intensity) == ("", "", "", "", "")
    assert cost.not_counted == ("`copy_tile` (line 2)",)
    assert "bytes read not counted" in screen(kernel)
    assert not re.search(r"(?<!\d)0 (?:bytes|FLOPs)", screen(kernel))


def test_a_statement_that_does_not_parse_is_named_with_its_line(tmp_path: Path) -> None:
    kernel = body(tmp_path, "y[0] = x[0];\ny[1] = (((x[1];\ny[2] = x[2];")
    assert any("(line 3)" in missing for missing in cost_of(kernel).not_counted)
    assert any("loads and stores are incomplete" in note for note in kernel.notes)


def test_what_a_side_that_is_not_taken_took_for_granted_is_said_where_it_is_taken_for_granted_again(
    tmp_path: Path,
) -> None:
    text = """
__global__ void k(float* y, bool flag) {
  if (threadIdx.x % 32 == 0) {
    if (flag) { y[0] = 2; } else { y[1] = 2; }
  }
}
"""
    cost = cost_of(one(tmp_path, text))
    assert cost.write_bytes == "4 * ({blockDim.x} // 32)"
    assert "{blockDim.x} is a multiple of 32." in cost.assumptions


def test_what_was_counted_before_a_very_long_run_ends_stays_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_STEPS", 500)
    deep = "".join(
        f"__device__ float f{i}(float z) {{ return {' + '.join([f'f{i - 1}(z)'] * 5)}; }}\n" for i in range(1, 5)
    )
    text = "__device__ float f0(float z) { return z * z; }\n" + deep
    text += "__global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; if (y[0] > 0) y[1] = f4(x[1]); }\n"
    kernel = one(tmp_path, text + "void go() { k<<<8, 128>>>(); }\n")
    cost = cost_of(kernel)
    assert "what comes behind the first steps of a very long run" in cost.not_counted
    assert [(line.operation, line.bytes) for line in cost.lines] == [("load", "1024"), ("store", "512")]
    text += "__global__ void late(float* y) {\n#ifdef OLD\ny[0] = 1;\n#endif\nif (blockIdx.x == 3) y[1] = f4(1.f * threadIdx.x);\n}\n"
    (tmp_path / "k.cu").write_text(text)
    (late,) = [k for k in kernels_of(tmp_path) if k.name == "late"]
    assert cost_of(late).not_counted == ("what comes behind the first steps of a very long run",)


# assembly ------------------------------------------------------------------------------------------------------------


def test_assembly_that_copies_and_loads_is_listed_and_counted_with_its_operand(tmp_path: Path) -> None:
    text = """
__device__ void copy(void* to, const void* from) {
  const int BYTES = 16;
  unsigned smem = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("{ cp.async.cg.shared.global [%0], [%1], %2; }" :: "r"(smem), "l"(from), "n"(BYTES));
}
__global__ void k(const float* x, int* y) {
  __shared__ float tile[512];
  copy(&tile[4 * threadIdx.x], x + 4 * threadIdx.x);
  int flag;
  asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(flag) : "l"(y + threadIdx.x));
}
void go() { k<<<8, 128>>>(); }
"""
    kernel = one(tmp_path, text)
    assert [(m.operation, m.parameter, m.width, m.coalesced, m.via) for m in kernel.loads] == [
        ("ld", "y", 4, "yes", ""), ("cp.async", "x", 16, "yes", "copy"),
    ]  # fmt: skip
    assert (cost_of(kernel).read_bytes, cost_of(kernel).not_counted) == ("2560", ())
    assert [(i.operation, i.via) for i in kernel.instructions] == [("cp.async", "copy")]


# the invariant -------------------------------------------------------------------------------------------------------

_NAMED = re.compile(r"(?:line |:)(\d+)(?:\)|,|$)")


def disagreements(kernel: KernelTiling) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """Lines with accesses of global memory that the lists or the cost name alone, those that `not_counted` names left out."""
    cost = cost_of(kernel)
    counted = [m for m in (*kernel.loads, *kernel.stores) if m.level == "global" and m.counted]
    lists = {(m.file, m.line) for m in counted}
    lines = {(line.file, line.line) for line in cost.lines if line.bytes}
    named = {int(number) for text in cost.not_counted for number in _NAMED.findall(text)}
    tests = [test for text in cost.not_counted for test in re.findall(r"what `(.*)` (?:decides|chooses)", text)]
    spelled = {form for test in tests for plain in (test, canonical(test)[0]) for form in (plain, negated(plain))}
    reached = {line.via for line in cost.lines}  # a function that both sides of such a test call is counted on neither
    said = {
        (m.file, m.line)
        for m in counted
        if {m.line, m.loop} & named or any(form in m.when for form in spelled) or (tests and m.via not in reached)
    }
    return lists - lines - said, lines - lists


@pytest.fixture(scope="module")
def sources() -> dict[str, Path]:
    return kernel_sources()


@pytest.mark.parametrize("folder", ["cuda_costs", "kernels", "kernels_own", "exllamav2"])
def test_lists_and_cost_name_the_same_lines_of_global_memory(folder: str, sources: dict[str, Path]) -> None:
    root = sources[folder] if folder in sources else CORPUS / folder
    found = kernels_of(root, 3 if folder in sources else 1)
    assert sum(bool(k.loads or k.stores) for k in found) > len(found) // 2
    assert {k.id: d for k in found if (d := disagreements(k)) != (set(), set())} == {}


# what a test amounts to ---------------------------------------------------------------------------------------------

EARLY = """
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if ({test}) {{ y[i] = 0.f; return; }}
  float a = 0.f;
  for (int k = 0; k < n; k++) a += x[i * n + k];
  y[i] = a;
"""


@pytest.mark.parametrize(
    "test", ["n == 1 || n == 4", "n == 1 || m == 4", "n == 1", "m == 4 && n == 1", "n < 1 || m < 1", "!m || n == 4"]
)
def test_a_test_of_parameters_that_is_assumed_hides_neither_of_its_sides(tmp_path: Path, test: str) -> None:
    kernel = body(tmp_path, EARLY.format(test=test), "const float* x, float* y, int n, int m")
    assert [m.expression for m in kernel.loads if m.level == "global"] == ["x[i * n + k]"]
    assert [bool(m.when) for m in kernel.stores if m.counted] == [False]
    assert [bool(m.when) for m in kernel.stores if not m.counted] == [True]
    assert (cost_of(kernel).flops, len(cost_of(kernel).conditions)) == ("128 * {n}", 1)


@pytest.mark.parametrize("joined", ["a < b && c > 0", "a < b || c > 0", "a < b and c > 0", "a < b if c else d > 0"])
def test_the_opposite_of_several_tests_is_not_that_of_the_first(joined: str) -> None:
    assert canonical(joined) == (joined, True)
    assert canonical(negated(joined)) == (f"({joined})", False)


def test_a_condition_of_two_tests_is_told_as_it_stands(tmp_path: Path) -> None:
    text = "int i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i < n && m > 0) y[i] = x[i];"
    kernel = body(tmp_path, text, "const float* x, float* y, int n, int m")
    assert {m.when for m in (*kernel.loads, *kernel.stores)} == {"i < n && m > 0"}


@pytest.mark.parametrize("call", ["mine::Op::forward", "mine::move", "clamp"])
def test_functions_named_as_those_of_std_are_followed_where_they_are_the_repositorys(tmp_path: Path, call: str) -> None:
    text = f"""
namespace mine {{
struct Op {{ static __device__ float forward(float v) {{ return v * v + 1.f; }} }};
__device__ float move(float v) {{ return v * v + 1.f; }}
}}
__device__ float clamp(float v) {{ return v * v + 1.f; }}
__global__ void k(const float* x, float* y) {{ y[threadIdx.x] = {call}(x[threadIdx.x]); }}
void go() {{ k<<<8, 128>>>(); }}
"""
    assert cost_of(one(tmp_path, text)).flops == "256"
    assert cost_of(one(tmp_path, text.replace(f"= {call}", "= std::move"))).flops == "0"


def test_a_total_that_lacks_something_is_told_as_the_least(tmp_path: Path) -> None:
    text = (
        "float s = x[threadIdx.x];\nif (s > 0.f) y[threadIdx.x] = x[n]; else { y[n] = s; y[2 * n] = x[n] + x[2 * n]; }"
    )
    kernel = body(tmp_path, text)
    found = cost_of(kernel)
    assert found.not_counted
    assert found.read_bytes == "512"
    assert "read_bytes" in found.at_least
    assert "launch_read_bytes" in found.at_least
    assert found.intensity == ""
    assert "at least 512 bytes read" in screen(kernel)
    whole = cost_of(body(tmp_path, "y[threadIdx.x] = x[threadIdx.x] + 1.f;"))
    assert (whole.at_least, bool(whole.intensity)) == ((), True)


GIVES_UP = """
__device__ bool fits(float a, float b, float& out) {{ if ({test}) return false; out = a * 2.f; return true; }}
__global__ void k(float* x, float* y, float a, float b) {{
  float t; bool found = fits(a, b, t);
  if ({asked}) y[threadIdx.x] = t; else x[threadIdx.x] = -1.f;
}}
void go() {{ k<<<8, 128>>>(); }}
"""


@pytest.mark.parametrize("test", ["a > b", "a > b || b > 3.f", "a > b && b > 3.f"])
@pytest.mark.parametrize("asked", ["found", "found && a > 0.f", "found == true"])
def test_what_a_function_gives_back_on_one_way_hides_no_side_of_its_caller(
    tmp_path: Path, test: str, asked: str
) -> None:
    kernel = one(tmp_path, GIVES_UP.format(test=test, asked=asked))
    assert sorted((m.parameter, m.counted) for m in kernel.stores if m.level == "global") == [("x", False), ("y", True)]
    assert all(m.when for m in kernel.stores)
    assert {asked, negated(test)} <= {
        c.partition(" (line")[0].partition(" (k.cu")[0] for c in cost_of(kernel).conditions
    }


def test_what_a_function_always_gives_back_decides(tmp_path: Path) -> None:
    text = GIVES_UP.format(test="false", asked="found")
    assert [(m.parameter, m.when) for m in one(tmp_path, text).stores] == [("y", "")]
